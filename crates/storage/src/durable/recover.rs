//! Opening a durable tenant: the checkpoint, then the log behind it.
//!
//! ```text
//!  manifest at S ──► images ──► tables as of S
//!  log, pass 1   ──► which transactions committed, when; tables; the end
//!                    (of a block which statements)
//!  log, pass 2   ──► redo of commits after S, file by file, tables side by side
//! ```
//!
//! There are two passes because redo of a large transaction is in the log before it is known
//! whether it commits. The first reads only frames and checksums. Why the second may apply redo
//! in the order of the log: see `log`.
//!
//! LSNs have no gaps, so a missing file is noticed. New transaction ids start above all in the
//! log, so that chunks of a transaction that never ended belong to no new one.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use aerostat_memory::Budget;
use aerostat_txn::TxnManager;
use aerostat_types::{Clock, CommitTs, Epoch, TableId, TenantId, TxnId};
use parking_lot::Mutex;

use crate::{
    Durability, RecoverError, Table, TenantStore,
    durable::{
        cut_back::{Unfinished, cut_back},
        load,
        replay::{Replay, ReplayError},
        surplus,
    },
    files::{
        codec::BadBytes,
        disk::{Disk, DiskLock, Machine, parent},
        last_checkpoint::LastCheckpoint,
        log::{
            FILE_BYTES_MAX, Log, LogEnd,
            read::{self, Expected, LogFile, Sequence},
            record::{self, Kind, Record, USED_END},
            redo::{self, Operation},
        },
        manifest::{Manifest, TableDescription},
        origin::{Origin, Timeline},
        pins::Pins,
        replace::settle,
        side_by_side::side_by_side,
    },
    store::{
        arena::ArenaSizes,
        tenant::{Durable, Registry},
    },
};

/// How a tenant is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// What its commits survive.
    pub durability: Durability,
    /// Whether redo of rows that are not there is passed over, which is for a tenant that has
    /// lost some ([`crate::repair`]); it is damage else. What has lost something is another
    /// history, whose timeline begins with the next checkpoint.
    pub lenient: bool,
    /// Where its files are: by default on the disks of this machine.
    pub disk: Arc<dyn Disk>,
    /// What tells it the time: by default the clocks of this machine.
    pub clock: Arc<dyn Clock>,
    pub(crate) sizes: Option<ArenaSizes>,
    /// How large log files become; `None`: as large as is good.
    pub(crate) log_file_bytes: Option<usize>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        let Machine { disk, clock } = Machine::default();
        Self {
            durability: Durability::default(),
            lenient: false,
            disk,
            clock,
            sizes: None,
            log_file_bytes: None,
        }
    }
}

impl OpenOptions {
    /// The same, with log files that are full from so many bytes on.
    #[cfg(any(test, feature = "simulated"))]
    #[doc(hidden)]
    #[must_use]
    pub fn with_log_files_of(mut self, bytes: usize) -> OpenOptions {
        self.log_file_bytes = Some(bytes);
        self
    }

    fn machine(&self) -> Machine {
        Machine {
            disk: Arc::clone(&self.disk),
            clock: Arc::clone(&self.clock),
        }
    }
}

/// What was found.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The last catalogue.
    pub catalog: Option<Vec<u8>>,
    /// The epochs that the log has, and where they begin.
    pub(crate) epochs: Vec<(Epoch, CommitTs)>,
    /// The tables. Who does not keep one drops it with [`TenantStore::drop_table`].
    pub tables: BTreeMap<TableId, Arc<Table>>,
    /// The highest number of a table, there or dropped, that log and checkpoint tell of. No
    /// new table may have it, nor a lower one that had been used.
    pub last_table: Option<TableId>,
    /// The point of the checkpoint that was loaded; 0 for none.
    pub checkpoint_at: CommitTs,
    /// Records of the log that were read.
    pub records: u64,
    /// Bytes of log and images that were read.
    pub bytes: u64,
    /// Bytes of a torn tail that were cut off.
    pub truncated_bytes: u64,
    /// How long it took.
    pub duration: Duration,
}

/// What the first pass learns.
#[derive(Default)]
struct Outline {
    /// The checkpoint's point.
    at: CommitTs,
    files: Vec<(u64, PathBuf)>,
    /// The last file that counts and how much of it does.
    end: Option<(u64, usize)>,
    /// What of that is known to be on disk.
    synced: usize,
    /// Whether more may come to that file.
    goes_on: bool,
    last: CommitTs,
    /// Whose log it is; a new one has none yet.
    timeline: Option<Timeline>,
    /// The clock at the last record.
    wall_micros: u64,
    txn_max: u64,
    /// Transactions, or statements of blocks, with chunks, and when they committed if they
    /// did.
    chunked: HashMap<TxnId, Option<CommitTs>>,
    /// Whether behind the last record with a place a transaction was said to be aborted.
    ends_aborted: bool,
    /// In order: of a table the last counts.
    described: Vec<TableDescription>,
    dropped: HashSet<TableId>,
    /// The highest number that a table has had, as far as is known.
    last_table: Option<TableId>,
    catalog: Option<Vec<u8>>,
    /// Ascending.
    epochs: Vec<(Epoch, CommitTs)>,
    /// Where the history begins: epochs through this are another's.
    begins: CommitTs,
    records: u64,
    bytes: u64,
    truncated_bytes: u64,
}

/// What a copy's log is of, and how far it counts.
#[derive(Clone, Copy, Debug)]
pub struct CopyOf {
    /// The history of which it is. A new folder begins with it.
    pub timeline: Timeline,
    /// What is behind this place does not count, since the leader's log has something else there; `None`:
    /// all counts.
    pub through: Option<CommitTs>,
}

impl TenantStore {
    /// Opens the tenant in a folder, making it if it is missing, with everything that was
    /// acknowledged. The rows are charged to the budget.
    ///
    /// # Errors
    /// [`RecoverError`]; the folder is as it was, but for a torn tail that may be gone, and a log file behind
    /// those of an older format.
    pub fn open(
        id: TenantId,
        budget: Arc<Budget>,
        folder: &Path,
        options: &OpenOptions,
    ) -> Result<(Arc<TenantStore>, Recovered), RecoverError> {
        Self::open_as(id, budget, folder, options, None)
            .map(|(store, recovered, _)| (store, recovered))
    }

    /// [`Self::open`], as a copy of another node's if it is `copy`: then it takes nothing but that one's
    /// records, and what its transactions had not committed is given.
    pub(crate) fn open_as(
        id: TenantId,
        budget: Arc<Budget>,
        folder: &Path,
        options: &OpenOptions,
        copy: Option<CopyOf>,
    ) -> Result<(Arc<TenantStore>, Recovered, Unfinished), RecoverError> {
        let started = options.clock.now();
        let machine = options.machine();
        let disk = &*machine.disk;
        // A seed that was about to take the folder's place does.
        settle(disk, folder)?;
        let lock = locked(disk, folder)?;
        let (log_folder, images) = (folder.join("log"), folder.join("checkpoint"));
        for path in [&log_folder, &images] {
            disk.make_folder(path).map_err(RecoverError::io(path))?;
        }
        // The names of what is found here may not be durable: the folder is new, or a process before
        // this one has ended because the disk refused to sync them.
        for path in [&log_folder, &images, folder, parent(folder)] {
            disk.sync_folder(path).map_err(RecoverError::io(path))?;
        }
        let manifest = Manifest::read(disk, &images, id)?;
        let unfinished = match copy {
            Some(copy) => cut_back(disk, &log_folder, id, manifest.as_ref(), copy.through)?,
            None => Unfinished::default(),
        };
        let outline = Outline::read(disk, &log_folder, id, manifest.as_ref())?;
        if let (Some(copy), Some(own)) = (copy, outline.timeline)
            && own != copy.timeline
        {
            return Err(RecoverError::Diverged {
                path: folder.to_owned(),
                what: "it is of another history",
            });
        }
        let log = outline.open_log(
            &log_folder,
            id,
            options,
            copy.map(|copy| copy.timeline),
            Arc::clone(&budget),
            lock,
        )?;
        match copy {
            Some(_) => log.follow(unfinished.chunked()),
            // Whoever follows this log does not know that they are gone.
            None => log.abort(outline.unfinished(), outline.aborted_from()),
        }
        let txns = TxnManager::with_clock(
            TxnId(outline.txn_max + 1),
            outline.last,
            Arc::clone(&log) as _,
            Arc::clone(&options.clock),
        );
        let durable = Durable {
            log,
            machine,
            folder: folder.to_owned(),
            registry: Mutex::new(Registry::default()),
            epochs: Mutex::new(Vec::new()),
            begins: outline.begins,
            checkpoint: Mutex::new(LastCheckpoint::default()),
            pins: Pins::default(),
        };
        let sizes = options.sizes.clone().unwrap_or_default();
        let store = TenantStore::with_log(id, budget, sizes, txns, durable);
        let mut recovered = Recovered::default();
        store.restore(&images, manifest, outline, options.lenient, &mut recovered)?;
        recovered.duration = options.clock.now().saturating_duration_since(started);
        Ok((store, recovered, unfinished))
    }

    /// The catalogue that [`Self::open`] would find, without opening the tenant: nothing is changed,
    /// and no rows are loaded. Nobody may have it open, or what is read may be of no point.
    ///
    /// # Errors
    /// [`RecoverError`], as far as frames and checksums tell.
    pub fn read_catalog(
        id: TenantId,
        folder: &Path,
        disk: &dyn Disk,
    ) -> Result<Option<Vec<u8>>, RecoverError> {
        let manifest = Manifest::read(disk, &folder.join("checkpoint"), id)?;
        let outline = Outline::read(disk, &folder.join("log"), id, manifest.as_ref())?;
        let at_checkpoint = manifest.filter(|manifest| manifest.has_catalog);
        Ok(outline
            .catalog
            .or(at_checkpoint.map(|manifest| manifest.catalog)))
    }

    /// The history that the log in a folder is of, without opening the tenant; `None` if there is no log yet.
    ///
    /// # Errors
    /// As [`Self::read_catalog`].
    pub fn read_timeline(
        id: TenantId,
        folder: &Path,
        disk: &dyn Disk,
    ) -> Result<Option<Timeline>, RecoverError> {
        let log = folder.join("log");
        match disk.look(&log) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            looked => looked.map_err(RecoverError::io(&log))?,
        };
        let manifest = Manifest::read(disk, &folder.join("checkpoint"), id)?;
        let outline = Outline::read(disk, &log, id, manifest.as_ref())?;
        Ok(outline.timeline)
    }

    fn restore(
        self: &Arc<Self>,
        images: &Path,
        manifest: Option<Manifest>,
        mut outline: Outline,
        lenient: bool,
        recovered: &mut Recovered,
    ) -> Result<(), RecoverError> {
        let mut tables: BTreeMap<TableId, Mutex<Replay>> = BTreeMap::new();
        let at_checkpoint = manifest.iter().flat_map(|manifest| &manifest.tables);
        let described: BTreeMap<TableId, TableDescription> = at_checkpoint
            .map(|table| table.description.clone())
            .chain(std::mem::take(&mut outline.described))
            .filter(|description| !outline.dropped.contains(&description.id))
            .map(|description| (description.id, description))
            .collect();
        for description in described.into_values() {
            let TableDescription {
                id,
                schema,
                layout,
                indexes,
            } = description;
            let schema = Arc::new(schema);
            let table = Table::create(Arc::clone(self), id, schema, &layout, indexes, false)?;
            let replay = Replay::of(Arc::clone(&table), lenient);
            tables.insert(id, Mutex::new(replay));
            recovered.tables.insert(id, table);
        }
        let mut catalog = None;
        let disk = &self.durable_side().machine.disk;
        if let Some(manifest) = manifest {
            let table = |id| recovered.tables.get(&id).cloned();
            let (bytes, unchanged) = load::load_all(disk, images, &manifest, &table)?;
            *self.durable_side().checkpoint.lock() = LastCheckpoint::loaded(unchanged);
            recovered.bytes += bytes;
            recovered.checkpoint_at = manifest.at;
            catalog = manifest.has_catalog.then_some(manifest.catalog);
        }
        outline.replay(&**disk, self.id(), recovered.checkpoint_at, &tables)?;
        let tables: Vec<_> = tables.into_values().collect();
        side_by_side(disk.readers(), tables, |replay| {
            replay.into_inner().finish()
        })
        .map_err(|error| {
            failed(error, |what| {
                let (path, end) = (outline.last_path(), outline.end);
                RecoverError::damaged(&path, end.map_or(0, |end| end.1), what)
            })
        })?;
        recovered.catalog = outline.catalog.take().or(catalog);
        recovered.epochs = std::mem::take(&mut outline.epochs);
        recovered.last_table = outline.last_table;
        recovered.records = outline.records;
        recovered.bytes += outline.bytes;
        recovered.truncated_bytes = outline.truncated_bytes;
        let mut registry = self.durable_side().registry.lock();
        registry.catalog = recovered.catalog.as_deref().map(Arc::from);
        self.durable_side()
            .epochs
            .lock()
            .clone_from(&recovered.epochs);
        registry.tables = recovered
            .tables
            .iter()
            .map(|(id, table)| (*id, Arc::downgrade(table)))
            .collect();
        if self.is_copy() {
            // Transactions of its leader may have rows of them, and be there still.
            outline
                .dropped
                .iter()
                .for_each(|id| registry.drop_table(*id));
        }
        Ok(())
    }
}

/// The last place of a log that goes on from a checkpoint, and the epochs that both tell of.
///
/// # Errors
/// [`RecoverError`]; also when the log ends before the checkpoint, or with something that is no record.
pub(crate) fn examine_log(
    disk: &dyn Disk,
    folder: &Path,
    manifest: &Manifest,
) -> Result<(CommitTs, Vec<(Epoch, CommitTs)>), RecoverError> {
    let outline = Outline::read(disk, folder, manifest.tenant, Some(manifest))?;
    // Whoever goes on from such a log would lack chunks that stand between its end and the checkpoint.
    let is_whole = outline.goes_on && outline.truncated_bytes == 0;
    if outline.files.is_empty() || !is_whole {
        let what = BadBytes("the log ends before its checkpoint, or within a record");
        return Err(RecoverError::damaged(&outline.last_path(), 0, what));
    }
    Ok((outline.last, outline.epochs))
}

/// Makes the folder if it is missing, and locks it.
fn locked(disk: &dyn Disk, folder: &Path) -> Result<DiskLock, RecoverError> {
    let made = disk.make_folder_for_good(folder);
    let locked = made.and_then(|()| disk.lock(folder));
    let locked = locked.map_err(RecoverError::io(folder))?;
    locked.ok_or_else(|| RecoverError::Locked {
        path: folder.to_owned(),
    })
}

fn failed(error: ReplayError, damaged: impl FnOnce(BadBytes) -> RecoverError) -> RecoverError {
    match error {
        ReplayError::Bad(what) => damaged(what),
        ReplayError::Storage(error) => RecoverError::Storage(error),
    }
}

impl Outline {
    fn read(
        disk: &dyn Disk,
        folder: &Path,
        tenant: TenantId,
        manifest: Option<&Manifest>,
    ) -> Result<Outline, RecoverError> {
        let from = manifest.map_or(1, |manifest| manifest.log_from);
        let at = manifest.map_or(CommitTs(0), |manifest| manifest.at);
        let mut files = read::files(disk, folder).map_err(RecoverError::io(folder))?;
        files.retain(|(number, _)| *number >= from);
        let mut outline = Outline {
            at,
            last: at,
            goes_on: true,
            timeline: manifest.map(|manifest| manifest.timeline),
            wall_micros: manifest.map_or(0, |manifest| manifest.taken_micros),
            dropped: manifest
                .iter()
                .flat_map(|manifest| manifest.dropped.iter().copied())
                .collect(),
            txn_max: manifest
                .and_then(|manifest| manifest.last_txn)
                .map_or(0, |last| last.0),
            last_table: manifest.and_then(Manifest::last_table),
            epochs: manifest.map_or_else(Vec::new, |manifest| manifest.epochs.clone()),
            begins: manifest.map_or(CommitTs(0), |manifest| manifest.begins),
            ..Outline::default()
        };
        let lacks_surplus =
            manifest.is_some_and(|manifest| surplus::may_be_missing(manifest, &files));
        let expected = from + u64::from(lacks_surplus)..;
        let is_gap = |((number, _), expected): (&(u64, PathBuf), u64)| *number != expected;
        if files.iter().zip(expected).any(is_gap) || (files.is_empty() && manifest.is_some()) {
            let what = BadBytes("a log file is missing");
            return Err(RecoverError::damaged(folder, 0, what));
        }
        let mut sequence = Sequence::after(at);
        for (position, (number, path)) in files.iter().enumerate() {
            let expected = Expected {
                tenant,
                timeline: outline.timeline,
                number: *number,
                is_last: position + 1 == files.len(),
            };
            let file = LogFile::read(disk, path, expected)?;
            outline.end = Some((*number, file.end));
            outline.synced = file.synced();
            outline.truncated_bytes += file.torn_bytes();
            outline.timeline = file
                .head
                .map(|head| head.origin.timeline)
                .or(outline.timeline);
            if let Some(head) = file.head {
                let begun = sequence.begin_file(head.after);
                begun.map_err(|gap| file.damaged(0, gap))?;
            }
            outline.read_file(&file, &mut sequence)?;
            let said = sequence.said().max(file.head.map(|head| head.after));
            outline.goes_on = file.head.is_none_or(|head| {
                // Without a sync the power may have taken what the checkpoint has.
                head.format.is_current() && said >= Some(sequence.last())
            });
        }
        if lacks_surplus {
            outline.examine_surplus(disk, folder, tenant, &files[0])?;
        }
        outline.last = sequence.last();
        outline.files = files;
        if outline.truncated_bytes > 0 {
            tracing::warn!(
                tenant = %tenant,
                bytes = outline.truncated_bytes,
                "the log ends with a record that was not written to its end; it is cut off"
            );
        }
        Ok(outline)
    }

    /// The file before this one, which the manifest asks for, is not there.
    fn examine_surplus(
        &self,
        disk: &dyn Disk,
        folder: &Path,
        tenant: TenantId,
        (number, path): &(u64, PathBuf),
    ) -> Result<(), RecoverError> {
        let expected = Expected {
            tenant,
            timeline: self.timeline,
            number: *number,
            is_last: true,
        };
        let next = LogFile::read(disk, path, expected)?;
        surplus::examine(&next, &self.chunked, self.at)
            .map_err(|what| RecoverError::damaged(folder, 0, what))?;
        tracing::warn!(
            tenant = %tenant,
            missing = %read::file_name(number - 1),
            "the checkpoint asks for a log file that an earlier one has removed; all that \
             committed in it is in the checkpoint, and no later commit is found to need it"
        );
        Ok(())
    }

    fn read_file(&mut self, file: &LogFile, sequence: &mut Sequence) -> Result<(), RecoverError> {
        for (offset, record) in file.records() {
            let head = record.head;
            if head.kind.has_place() {
                let followed = sequence.follow(&record);
                followed.map_err(|gap| file.damaged(offset, gap))?;
            }
            if head.txn.0 >= USED_END || head.lsn.0 >= USED_END {
                let what = BadBytes("a number that nothing has reached");
                return Err(file.damaged(offset, what));
            }
            self.records += 1;
            self.txn_max = self.txn_max.max(head.txn.0);
            self.wall_micros = self.wall_micros.max(head.wall_micros);
            self.learn(file, offset, &record)?;
        }
        self.bytes += file.end as u64;
        Ok(())
    }

    fn learn(
        &mut self,
        file: &LogFile,
        offset: usize,
        record: &Record<'_>,
    ) -> Result<(), RecoverError> {
        let odd = || file.damaged(offset, BadBytes("an entry that this version does not know"));
        if record.head.kind.has_place() {
            self.ends_aborted = false;
        }
        match record.head.kind {
            Kind::Rows => {
                self.chunked.entry(record.head.txn).or_insert(None);
            }
            Kind::Abort => {
                self.ends_aborted = true;
                // One that is said to have committed is not to be lost for it.
                if self.chunked.get(&record.head.txn) == Some(&None) {
                    self.chunked.remove(&record.head.txn);
                }
            }
            Kind::Nothing => {}
            Kind::Epoch => {
                let epoch = record::epoch(record.payload);
                let epoch = epoch.map_err(|what| file.damaged(offset, what))?;
                self.note_epoch(epoch, record.head.lsn)
                    .map_err(|what| file.damaged(offset, what))?;
            }
            Kind::Commit => self.note_commit(record.head.txn, record.head.lsn),
            Kind::Block => self.note_block(file, offset, record, record.payload)?,
            Kind::Defining => {
                let taken_apart = record::catalog(record.payload);
                let (block, catalog) = taken_apart.map_err(|what| file.damaged(offset, what))?;
                self.note_block(file, offset, record, block)?;
                if record.head.lsn > self.at {
                    self.catalog = Some(catalog.to_vec());
                }
            }
            Kind::Table => {
                let description: TableDescription =
                    serde_json::from_slice(record.payload).map_err(|_| odd())?;
                let checked = description.check();
                checked.map_err(|what| file.damaged(offset, what))?;
                self.last_table = self.last_table.max(Some(description.id));
                // The checkpoint knows it as it was then, with a layout that the node had chosen.
                if record.head.lsn > self.at {
                    self.described.push(description);
                }
            }
            Kind::DropTable => {
                let id = record.payload.try_into().map_err(|_| odd())?;
                self.dropped.insert(TableId(u32::from_le_bytes(id)));
            }
        }
        Ok(())
    }

    fn note_block(
        &mut self,
        file: &LogFile,
        offset: usize,
        record: &Record<'_>,
        payload: &[u8],
    ) -> Result<(), RecoverError> {
        let parts = record::parts(payload).map_err(|what| file.damaged(offset, what))?;
        for part in parts.1 {
            // A checkpoint keeps the chunks of what commits after it.
            if record.head.lsn > self.at && !self.chunked.contains_key(&part) {
                let what = BadBytes("rows of a statement before this are missing");
                return Err(file.damaged(offset, what));
            }
            self.note_commit(part, record.head.lsn);
        }
        Ok(())
    }

    /// The checkpoint may have told of it.
    fn note_epoch(&mut self, epoch: Epoch, at: CommitTs) -> Result<(), BadBytes> {
        match self.epochs.last() {
            _ if at <= self.begins || self.epochs.contains(&(epoch, at)) => {}
            Some((last, begun)) if epoch <= *last || at <= *begun => {
                return Err(BadBytes("an epoch that had begun before"));
            }
            _ => self.epochs.push((epoch, at)),
        }
        Ok(())
    }

    fn note_commit(&mut self, id: TxnId, at: CommitTs) {
        if let Some(committed) = self.chunked.get_mut(&id) {
            *committed = Some(at);
        }
    }

    fn open_log(
        &self,
        folder: &Path,
        tenant: TenantId,
        options: &OpenOptions,
        of_leader: Option<Timeline>,
        budget: Arc<Budget>,
        lock: DiskLock,
    ) -> Result<Arc<Log>, RecoverError> {
        let machine = options.machine();
        let end = LogEnd {
            file: self.end,
            synced: self.synced,
            goes_on: self.goes_on,
            timeline: self.timeline,
            last: self.last,
            wall_micros: self.wall_micros,
        };
        let origin = Origin {
            tenant,
            timeline: self
                .timeline
                .filter(|_| !options.lenient)
                .or(of_leader)
                .unwrap_or_else(|| Timeline::begin(&*machine.clock)),
        };
        let log = Log::open(origin, folder, &end, options.durability, machine, budget)
            .map_err(RecoverError::io(folder))?;
        let file_bytes_max = options.log_file_bytes.unwrap_or(FILE_BYTES_MAX);
        Ok(Arc::new(log.with_files_of(file_bytes_max).with_lock(lock)))
    }

    /// Transactions with chunks that have neither committed nor been said to be aborted.
    fn unfinished(&self) -> impl Iterator<Item = (TxnId, u64)> + '_ {
        let (all, from) = (self.chunked.iter(), self.first_file());
        all.filter_map(move |(txn, committed)| committed.is_none().then_some((*txn, from)))
    }

    /// The first file that may have a chunk of a transaction that was said to be aborted behind the last
    /// record with a place.
    fn aborted_from(&self) -> Option<u64> {
        self.ends_aborted.then(|| self.first_file())
    }

    fn first_file(&self) -> u64 {
        self.files.first().map_or(1, |(number, _)| *number)
    }

    fn last_path(&self) -> PathBuf {
        self.files
            .last()
            .map(|(_, path)| path.clone())
            .unwrap_or_default()
    }

    /// Applies what committed after `at`. Tables are independent of each other, so the
    /// operations of a file are dealt out by table.
    fn replay(
        &self,
        disk: &dyn Disk,
        tenant: TenantId,
        at: CommitTs,
        tables: &BTreeMap<TableId, Mutex<Replay>>,
    ) -> Result<(), RecoverError> {
        for (number, path) in &self.files {
            // A torn tail is gone, and what is cut is not in the file any more.
            let expected = Expected {
                tenant,
                timeline: self.timeline,
                number: *number,
                is_last: true,
            };
            let file = LogFile::read(disk, path, expected)?;
            let mut dealt: BTreeMap<TableId, Vec<(usize, CommitTs, Operation<'_>)>> =
                BTreeMap::new();
            for (offset, record) in file.records() {
                let Some(ts) = self.committed(&record).filter(|ts| *ts > at) else {
                    continue;
                };
                let redo = record::redo(&record).map_err(|what| file.damaged(offset, what))?;
                for operation in redo::operations(redo) {
                    let operation = operation.map_err(|what| file.damaged(offset, what))?;
                    if self.dropped.contains(&operation.table) {
                        continue;
                    }
                    if !tables.contains_key(&operation.table) {
                        let what = BadBytes("rows of a table that is not there");
                        return Err(file.damaged(offset, what));
                    }
                    let table = dealt.entry(operation.table).or_default();
                    table.push((offset, ts, operation));
                }
            }
            let apply = |(table, operations): (TableId, Vec<_>)| -> Result<(), RecoverError> {
                let mut replay = tables[&table].lock();
                for (offset, ts, operation) in operations {
                    let applied = replay.apply(&operation, ts);
                    applied.map_err(|error| failed(error, |what| file.damaged(offset, what)))?;
                }
                Ok(())
            };
            side_by_side(disk.readers(), dealt.into_iter().collect(), apply)?;
        }
        Ok(())
    }

    /// When the transaction of a record with rows committed, if it did.
    fn committed(&self, record: &Record<'_>) -> Option<CommitTs> {
        match record.head.kind {
            Kind::Rows => *self.chunked.get(&record.head.txn)?,
            Kind::Commit | Kind::Block | Kind::Defining => Some(record.head.lsn),
            _ => None,
        }
    }
}
