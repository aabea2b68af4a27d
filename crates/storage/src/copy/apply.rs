//! Doing a leader's commits again, in the order of its log, beside readers.
//!
//! * **Chunks** of a transaction that has not ended are done at once, under a transaction of this node's, so
//!   that a large load is nearly done when its commit comes. Only rows of tables without a key are ended at
//!   the commit: which statements belong together is known then, and so which rows are theirs to end.
//! * **What is committed** is for the leader to say. A record with a place waits until then.
//! * **Definitions.** A catalogue is the caller's to understand: it is handed over when snapshots see the
//!   rows that were committed with it.
//! * **Errors** are final: what was half done is undone with the applier, and the copy is opened again.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use aerostat_txn::Transaction;
use aerostat_types::{CommitTs, Epoch, TableId, TxnId};
use thiserror::Error;

use super::ends::Wanted;
use crate::{
    StorageError, Table, TenantStore,
    durable::cut_back::{Place, Unfinished},
    files::{
        codec::{BadBytes, RowBuffer},
        log::{
            record::{self, Kind, Record},
            redo::{self, Change, Operation},
            stream::{LogReader, StreamError, Wake},
        },
        manifest::TableDescription,
    },
    store::tenant::Registry,
};

/// What is read of the log at once.
const READ_BYTES: usize = 256 << 10;

/// Images of rows that are to end, at once.
const WANTED_BYTES_MAX: usize = 32 << 20;

/// Why a copy cannot go on.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The log says what cannot be done with what is here.
    #[error("the copy does not have what its leader's log changes: {0}")]
    Bad(&'static str),
    /// The tables took it not: mostly for lack of memory.
    #[error("the copy cannot do what its leader has done")]
    Storage(#[from] StorageError),
    /// The log could not be read.
    #[error(transparent)]
    Stream(#[from] StreamError),
}

impl From<BadBytes> for ApplyError {
    fn from(bad: BadBytes) -> Self {
        ApplyError::Bad(bad.0)
    }
}

/// How far an applier has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All that is here and committed has been done.
    CaughtUp,
    /// There may be more.
    More,
    /// A commit has changed the catalogue to this. There may be more to do.
    Defined(Arc<[u8]>),
}

/// A transaction of the leader's that has chunks here.
struct Begun {
    txn: Transaction,
    /// Chunks that end rows of tables without a key.
    put_off: Vec<Place>,
}

/// Does the commits of a copy's log.
pub struct Applier {
    store: Arc<TenantStore>,
    reader: LogReader,
    /// Records that were read, and where the next one is: in here, and in the log.
    buffer: Vec<u8>,
    at: usize,
    place: Place,
    /// Bytes of records that were done here.
    done: u64,
    /// By the leader's ids.
    begun: HashMap<TxnId, Begun>,
    /// All there are, for the catalogue may name one later.
    tables: BTreeMap<TableId, Arc<Table>>,
}

impl Applier {
    /// Goes on behind what opening the copy has done.
    pub(super) fn resume(
        store: &Arc<TenantStore>,
        tables: &BTreeMap<TableId, Arc<Table>>,
        unfinished: &Unfinished,
    ) -> Result<Applier, ApplyError> {
        let log = &store.durable_side().log;
        let nobody: Wake = Arc::new(|| {});
        let mut applier = Applier {
            store: Arc::clone(store),
            reader: LogReader::at_end(log, store.txns().last_commit(), nobody),
            buffer: Vec::new(),
            at: 0,
            place: (0, 0),
            done: 0,
            begun: HashMap::new(),
            tables: tables.clone(),
        };
        for (place, txn) in unfinished.chunks() {
            let chunk = log.record_at(place.0, place.1)?;
            applier.do_chunk(txn, payload(&chunk)?, place)?;
        }
        Ok(applier)
    }

    /// Everything through this is done.
    pub fn applied(&self) -> CommitTs {
        self.store.txns().last_commit()
    }

    /// How many bytes it has done of what was received since the copy was opened.
    pub fn bytes_done(&self) -> u64 {
        self.done
    }

    /// How many transactions of the leader have begun here, and not ended.
    pub fn open_transactions(&self) -> usize {
        self.begun.len()
    }

    /// The tables there are, whether or not a catalogue names them.
    pub fn tables(&self) -> &BTreeMap<TableId, Arc<Table>> {
        &self.tables
    }

    /// The catalogue that was handed over last is the one that is shown.
    pub fn defined(&self) {
        self.store.set_defining(false);
    }

    /// Does what the log has, as far as it is committed. Ends before that where a commit has changed the
    /// catalogue, and after a while, for whoever has other things to do.
    ///
    /// # Errors
    /// [`ApplyError`]. The copy has to be opened again.
    pub fn apply(&mut self, committed: CommitTs) -> Result<Progress, ApplyError> {
        self.apply_until(committed, |_, _| Ok(false))
    }

    /// As [`Self::apply`], but ends before what may take longer than the log shows: then there is more.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub fn apply_brief(&mut self, committed: CommitTs) -> Result<Progress, ApplyError> {
        self.apply_until(committed, |applier, record| Ok(!applier.is_brief(record)?))
    }

    /// Whether a record takes as long as it has bytes: it defines nothing, finds its rows by key, and is all that
    /// there is of its transaction.
    fn is_brief(&self, record: &Record<'_>) -> Result<bool, ApplyError> {
        match record.head.kind {
            Kind::Nothing | Kind::Epoch => return Ok(true),
            Kind::Commit | Kind::Block if self.begun.is_empty() => {}
            _ => return Ok(false),
        }
        for operation in redo::operations(record::redo(record)?) {
            if operation?.change == Change::EndRows {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn apply_until(
        &mut self,
        committed: CommitTs,
        ends_before: EndsBefore,
    ) -> Result<Progress, ApplyError> {
        self.store.durable_side().log.note_committed(committed);
        let mut has_read = false;
        loop {
            if self.at == self.buffer.len() {
                if std::mem::replace(&mut has_read, true) {
                    return Ok(Progress::More);
                }
                // Where the next records are: the reader may go on to another file.
                match self.reader.next(READ_BYTES)? {
                    None => return Ok(Progress::CaughtUp),
                    Some(bytes) => {
                        let (file, end) = self.reader.position();
                        self.place = (file, end - bytes.len());
                        (self.buffer, self.at) = (bytes, 0);
                    }
                }
            }
            let buffer = std::mem::take(&mut self.buffer);
            let done = self.next(&buffer, committed, ends_before);
            self.buffer = buffer;
            match done? {
                Next::Later => return Ok(Progress::CaughtUp),
                Next::Long => return Ok(Progress::More),
                Next::Done => {}
                Next::Defined(catalog) => return Ok(Progress::Defined(catalog)),
            }
        }
    }

    fn next(
        &mut self,
        buffer: &[u8],
        committed: CommitTs,
        ends_before: EndsBefore,
    ) -> Result<Next, ApplyError> {
        let bad = ApplyError::Bad("no record where one is to be");
        let (record, length) = record::take_apart(&buffer[self.at..]).ok_or(bad)?;
        if record.head.kind.has_place() && record.head.lsn > committed {
            return Ok(Next::Later);
        }
        if ends_before(self, &record)? {
            return Ok(Next::Long);
        }
        self.store.txns().raise_ids(record.head.txn);
        let done = self.record(&record)?;
        self.at += length;
        self.place.1 += length;
        self.done += length as u64;
        Ok(done)
    }

    fn record(&mut self, record: &Record<'_>) -> Result<Next, ApplyError> {
        let (txn, lsn) = (record.head.txn, record.head.lsn);
        match record.head.kind {
            Kind::Rows => self.do_chunk(txn, record.payload, self.place)?,
            Kind::Abort => drop(self.begun.remove(&txn)),
            Kind::Nothing => self.store.txns().commit_applied(lsn, Vec::new()),
            kind @ (Kind::Commit | Kind::Block | Kind::Defining) => {
                let mut group = record::statements(record)?;
                group.push(txn);
                let catalog: Option<Arc<[u8]>> = match kind {
                    Kind::Defining => Some(Arc::from(record::catalog(record.payload)?.1)),
                    _ => None,
                };
                self.commit(lsn, &group, record::redo(record)?, catalog.as_ref())?;
                return Ok(catalog.map_or(Next::Done, Next::Defined));
            }
            Kind::Table => {
                let bad = |_| ApplyError::Bad("a table that this version does not know");
                let description: TableDescription =
                    serde_json::from_slice(record.payload).map_err(bad)?;
                description.check()?;
                self.describe(lsn, description)?;
            }
            Kind::DropTable => {
                let bad = |_| ApplyError::Bad("a table without a number");
                let id = TableId(u32::from_le_bytes(record.payload.try_into().map_err(bad)?));
                let dropped = self.tables.remove(&id);
                self.define(lsn, |registry| registry.drop_table(id));
                drop(dropped);
            }
            Kind::Epoch => {
                let epoch = record::epoch(record.payload)?;
                let mut epochs = self.store.durable_side().epochs.lock();
                epochs.push((epoch, lsn));
                self.store.txns().commit_applied(lsn, Vec::new());
            }
        }
        Ok(Next::Done)
    }

    /// Changes what checkpoints find at a place, in one step with passing it.
    fn define(&self, lsn: CommitTs, change: impl FnOnce(&mut Registry)) {
        let mut registry = self.store.durable_side().registry.lock();
        change(&mut registry);
        self.store.txns().commit_applied(lsn, Vec::new());
    }

    fn describe(&mut self, lsn: CommitTs, description: TableDescription) -> Result<(), ApplyError> {
        let id = description.id;
        if let Some(table) = self.tables.get(&id) {
            table.follow_description(&description)?;
            self.define(lsn, |_| {});
            return Ok(());
        }
        let table = self.store.create_described(description)?;
        let weak = Arc::downgrade(&table);
        self.tables.insert(id, table);
        self.define(lsn, |registry| {
            registry.put_table(id, weak);
        });
        Ok(())
    }

    /// Does a part of a transaction that has not committed.
    fn do_chunk(&mut self, txn: TxnId, redo: &[u8], place: Place) -> Result<(), ApplyError> {
        let mut begun = self.begun.remove(&txn).unwrap_or_else(|| self.begin());
        if self.do_operations(&begun.txn, redo, &mut |_, _| Ok(()))? {
            begun.put_off.push(place);
        }
        self.begun.insert(txn, begun);
        Ok(())
    }

    fn begin(&self) -> Begun {
        Begun {
            txn: self.store.txns().begin_applied(),
            put_off: Vec::new(),
        }
    }

    /// Does operations in order, but for ends of rows without a key, which `put_off` gets; whether there were
    /// any.
    fn do_operations(
        &self,
        txn: &Transaction,
        redo: &[u8],
        put_off: &mut PutOff<'_>,
    ) -> Result<bool, ApplyError> {
        let mut has_put_off = false;
        for operation in redo::operations(redo) {
            let operation = operation?;
            let Some(table) = self.table(operation.table)? else {
                continue;
            };
            match operation.change {
                Change::Insert => {
                    let mut rows = RowBuffer::new(table.types());
                    rows.decode(operation.rows, operation.body)?;
                    table.insert_applied(txn, rows.finish()?, operation.rows)?;
                }
                Change::EndKeys if table.is_keyed() => {
                    if !table.end_keys_applied(txn, &redo::keys(&operation)?)? {
                        return Err(ApplyError::Bad("a key ended that was not there"));
                    }
                }
                Change::EndRows if !table.is_keyed() => {
                    put_off(table, &operation)?;
                    has_put_off = true;
                }
                _ => return Err(ApplyError::Bad("ends that are not of this kind of table")),
            }
        }
        Ok(has_put_off)
    }

    /// The table of an operation; `None` of one that is no more.
    fn table(&self, id: TableId) -> Result<Option<&Arc<Table>>, ApplyError> {
        match self.tables.get(&id) {
            Some(table) => Ok(Some(table)),
            None if self.store.durable_side().registry.lock().has_dropped(id) => Ok(None),
            None => Err(ApplyError::Bad("rows of a table that is not there")),
        }
    }

    /// Commits the transactions of a group, the last redo of which this is.
    fn commit(
        &mut self,
        lsn: CommitTs,
        group: &[TxnId],
        redo: &[u8],
        catalog: Option<&Arc<[u8]>>,
    ) -> Result<(), ApplyError> {
        let mut all: Vec<Begun> = group
            .iter()
            .filter_map(|txn| self.begun.remove(txn))
            .collect();
        let needs_own = !redo.is_empty() || all.iter().any(|begun| !begun.put_off.is_empty());
        if needs_own {
            let own = self.begin();
            let ids = all.iter().chain([&own]).map(|begun| begun.txn.id());
            let ids: HashSet<TxnId> = ids.collect();
            let mut ends = Ends {
                txn: &own.txn,
                ids: &ids,
                wanted: BTreeMap::new(),
            };
            // In the log these come first.
            let log = &self.store.durable_side().log;
            let put_off = all.iter().flat_map(|begun| begun.put_off.iter().copied());
            let mut put_off: Vec<Place> = put_off.collect();
            put_off.sort_unstable();
            for place in put_off {
                let chunk = log.record_at(place.0, place.1)?;
                for operation in redo::operations(payload(&chunk)?) {
                    let operation = operation?;
                    if operation.change == Change::EndRows
                        && let Some(table) = self.table(operation.table)?
                    {
                        ends.add(table, &operation)?;
                    }
                }
            }
            self.do_operations(&own.txn, redo, &mut |table, operation| {
                ends.add(table, operation)
            })?;
            ends.finish()?;
            all.push(own);
        }
        let transactions = all.into_iter().map(|begun| begun.txn).collect();
        match catalog {
            None => self.store.txns().commit_applied(lsn, transactions),
            Some(catalog) => {
                // Until whoever is handed the catalogue has followed it.
                self.store.set_defining(true);
                let mut registry = self.store.durable_side().registry.lock();
                self.store.txns().commit_applied(lsn, transactions);
                registry.catalog = Some(Arc::clone(catalog));
            }
        }
        Ok(())
    }

    /// Makes the tenant this node's own, with what has been applied: the log has nothing behind that. What has
    /// not committed will not, and an epoch begins, at the place that is given.
    ///
    /// # Errors
    /// [`StorageError::Commit`] when the log fails.
    ///
    /// # Panics
    /// When there is more in the log than was applied.
    pub fn lead(self, epoch: Epoch) -> Result<CommitTs, StorageError> {
        let Applier { store, begun, .. } = self;
        drop(begun);
        let last = store.txns().last_commit();
        // In one step with the epoch's place: nobody commits before it.
        store.begin_epoch_after(epoch, |log| log.lead_on(last))
    }
}

/// The payload of a record that was read before.
fn payload(record: &[u8]) -> Result<&[u8], ApplyError> {
    let bad = ApplyError::Bad("a record that was there has gone");
    Ok(record::take_apart(record).ok_or(bad)?.0.payload)
}

/// What is done with an operation that ends rows without a key.
type PutOff<'a> = dyn FnMut(&Arc<Table>, &Operation<'_>) -> Result<(), ApplyError> + 'a;

/// Whether a record is not to be done now.
type EndsBefore = fn(&Applier, &Record<'_>) -> Result<bool, ApplyError>;

/// What became of a record.
enum Next {
    Done,
    /// It is not committed, as far as is known.
    Later,
    /// Whoever asked has no time for it.
    Long,
    Defined(Arc<[u8]>),
}

/// Rows without a key that end with a commit.
struct Ends<'a> {
    txn: &'a Transaction,
    ids: &'a HashSet<TxnId>,
    wanted: BTreeMap<TableId, Wanted>,
}

impl Ends<'_> {
    fn add(&mut self, table: &Arc<Table>, operation: &Operation<'_>) -> Result<(), ApplyError> {
        let new = || Wanted::of(table);
        let wanted = self.wanted.entry(table.id()).or_insert_with(new);
        wanted.add(operation)?;
        if wanted.bytes() > WANTED_BYTES_MAX
            && let Some(wanted) = self.wanted.remove(&table.id())
        {
            self.end(wanted)?;
        }
        Ok(())
    }

    fn end(&self, wanted: Wanted) -> Result<(), ApplyError> {
        match wanted.end(self.txn, self.ids)? {
            true => Ok(()),
            false => Err(ApplyError::Bad("a row ended that was not there")),
        }
    }

    fn finish(mut self) -> Result<(), ApplyError> {
        for wanted in std::mem::take(&mut self.wanted).into_values() {
            self.end(wanted)?;
        }
        Ok(())
    }
}
