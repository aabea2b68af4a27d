//! Locking rows without changing them: SELECT … FOR UPDATE and similar clauses, and foreign keys.
//!
//! ```text
//!  end stamp of a row   NONE                    free
//!                       set of locks            free for locks that go with these, or if
//!                                               nobody holds them any more
//!                       transaction             being ended: deleted, or its key changes
//!                       transaction, key stays  being replaced: free FOR KEY SHARE
//!                       commit                  changed since the snapshot
//! ```
//!
//! A lock is a stamp like the mark of a transaction that ends the row, so it goes with the row
//! wherever that is moved, readers compare it like any other, and an unlocked row has nothing.
//! `aerostat_txn::RowLocks` has the holders of each set; a block of rows that one statement locks
//! has one stamp in its header.
//!
//! * **Waiting.** As for a change: until the obstructing transaction has settled, with no latch
//!   held, and in the order of arrival. A free row belongs to its first waiter: to others it is
//!   locked.
//! * **Changed rows.** A row that has changed since the snapshot is a conflict. Under READ
//!   COMMITTED a statement that skips locked rows skips it, too: a moment ago its changer had it
//!   locked.
//! * **FOR KEY SHARE beside an update that keeps the key.** The lock is then on the key, whether
//!   the update comes first or second, because the version that had the lock would be left
//!   behind.
//! * A table without a key cannot identify an old version's successor. There an update takes a
//!   row as a delete does, and waits for locks FOR KEY SHARE.

use std::{
    cell::Cell,
    ops::{ControlFlow, Range},
    sync::Arc,
};

use aerostat_segment::{KeyRef, Pinned, Predicate, Segment};
use aerostat_txn::{END_NONE, Isolation, Joined, LockSetId, RowLock, Stamp, Transaction};
use aerostat_types::TxnId;
use arrow_array::{cast::AsArray, types::UInt64Type};

use crate::{
    RowId, ScanSpec, StorageError, Table, TableView,
    store::directory::{Access, Entry, Latch},
    write::{
        modify::Step,
        writes::{Target, Writes},
    },
};

/// What is done about rows that another transaction holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Waiting for it.
    #[default]
    Wait,
    /// [`StorageError::LockNotAvailable`].
    Nowait,
    /// Going without them.
    SkipLocked,
}

/// What a call of [`TableView::lock`] wants.
struct Request<'a> {
    table: &'a Table,
    mode: RowLock,
    policy: WaitPolicy,
    /// Whether changed rows are skipped.
    skips_changed: bool,
    /// The last join: rows side by side have mostly the same holders.
    last_join: Cell<Option<(Option<LockSetId>, LockSetId)>>,
}

/// What became of one row.
enum Locked {
    /// It is the transaction's, with this set.
    Set(LockSetId),
    /// It is the transaction's anyway.
    Already,
    /// It goes without the row.
    Skipped,
    /// By this one, or nobody: then it is for somebody who has waited for longer.
    Held(Option<TxnId>),
}

impl TableView {
    /// Locks the rows until the transaction ends, and says of each whether it is locked:
    /// rows are left out that `policy` says so of, and those that the transaction has ended
    /// itself.
    ///
    /// # Errors
    /// [`StorageError::Conflict`] when a transaction that committed after the snapshot changed
    /// one of the rows; [`StorageError::Deadlock`], [`StorageError::LockTimeout`] or
    /// [`StorageError::Cancelled`] while waiting for an unfinished one,
    /// [`StorageError::LockNotAvailable`] instead of waiting; lack of memory for stamps, and
    /// [`StorageError::TooManyLocks`]. What was locked stays locked.
    pub fn lock(
        &self,
        txn: &Transaction,
        row_ids: &[RowId],
        mode: RowLock,
        policy: WaitPolicy,
    ) -> Result<Vec<bool>, StorageError> {
        let table = self.table();
        let request = Request {
            table,
            mode,
            policy,
            skips_changed: policy == WaitPolicy::SkipLocked
                && txn.isolation() == Isolation::ReadCommitted,
            last_join: Cell::new(None),
        };
        let mut locked = vec![false; row_ids.len()];
        let mut writes = Writes::of(txn, table);
        self.in_runs(
            &mut writes,
            row_ids,
            request.skips_changed,
            &mut |writes, entry, latch, run| {
                request.lock_run(writes, entry, latch, run, &mut locked)
            },
        )?;
        Ok(locked)
    }
}

impl Table {
    /// Locks the rows that match the predicates now, whatever the transaction's snapshot, and
    /// returns how many: those of the newest commits, of the transaction's block and its own.
    /// With predicates that fix the primary key or a unique index these are looked up. For
    /// constraints, which hold for the rows there are.
    ///
    /// # Errors
    /// Those of [`TableView::lock`] but [`StorageError::Conflict`].
    pub fn lock_matching(
        self: &Arc<Self>,
        txn: &Transaction,
        predicates: &[Predicate],
        mode: RowLock,
        policy: WaitPolicy,
    ) -> Result<u64, StorageError> {
        loop {
            let view = self.view(txn.newest_snapshot());
            let scan = view.scan(ScanSpec {
                predicates: predicates.to_vec(),
                row_ids: true,
                ..ScanSpec::default()
            })?;
            let mut rows = Vec::new();
            let mut reader = scan.reader();
            while let Some(batch) = reader.next_batch()? {
                let ids = batch.column(0).as_primitive::<UInt64Type>();
                rows.extend(ids.values().iter().map(|id| RowId(*id)));
            }
            match view.lock(txn, &rows, mode, policy) {
                // It has committed meanwhile: its rows are there to be looked at.
                Err(StorageError::Conflict) => {}
                Ok(locked) => return Ok(locked.iter().filter(|locked| **locked).count() as u64),
                Err(error) => return Err(error),
            }
        }
    }

    /// The columns that other tables' rows may refer to: those of the primary key and of
    /// unique indexes. An update that leaves their values as they are keeps the row's key.
    pub fn key_columns(&self) -> Vec<usize> {
        self.shape().key_columns.clone()
    }

    /// Who is about to take the key away, though whoever replaces a version of it keeps it.
    /// Nobody marks versions meanwhile, so that those of the newest directory are all.
    fn key_taker(&self, txn: &Transaction, key: KeyRef<'_>) -> Result<Option<TxnId>, StorageError> {
        let directory = Arc::clone(&self.directory());
        let Some(position) = directory.route(key) else {
            return Ok(None);
        };
        for entry in directory.ranges()[position].entries() {
            let segment = entry.pin_key(Access::Rows)?;
            let mut taker = None;
            segment.find(key, &mut |row| {
                taker = unfinished_taker(&segment, row, txn);
                match taker {
                    Some(_) => ControlFlow::Break(()),
                    None => ControlFlow::Continue(()),
                }
            });
            if taker.is_some() {
                return Ok(taker);
            }
        }
        Ok(None)
    }
}

fn unfinished_taker(segment: &Segment, row: u32, txn: &Transaction) -> Option<TxnId> {
    let (_, end) = segment.stamps(row);
    match Stamp::of(end) {
        Stamp::By(by) if !Stamp::keeps_key(end) && !txn.owns(by) => Some(by),
        _ => None,
    }
}

impl Request<'_> {
    /// Locks the rows of a run as far as nobody is in the way.
    fn lock_run(
        &self,
        writes: &Writes<'_>,
        entry: &Entry,
        latch: &mut Latch<'_>,
        run: &[Target],
        locked: &mut [bool],
    ) -> Result<Step, StorageError> {
        // Locks that keep a key are taken before the rows are looked at, or after.
        let keys = (self.mode == RowLock::Update).then(|| writes.locks().hold_keys());
        let keys = keys
            .as_ref()
            .filter(|keys| self.table.is_keyed() && keys.has_any(self.table.id()));
        let access = Access::rows(writes.txn().waits());
        let keys = match keys {
            Some(keys) => Some((keys, entry.pin_key(access)?)),
            None => None,
        };
        let may_be_kept = writes.txn().may_be_kept();
        let mut stamping = Stamping::default();
        let mut step = Ok(Step::All);
        for (at, target) in run.iter().enumerate() {
            let held_key = keys.as_ref().and_then(|(keys, segment)| {
                keys.holder(writes.txn(), self.table.id(), &segment.key_of(target.row))
            });
            let answer = match held_key {
                Some(by) => Ok(Locked::Held(Some(by))),
                None => self.lock_row(writes, entry, target.row, may_be_kept),
            };
            match answer.and_then(|answer| self.apply_policy(answer)) {
                Ok(Locked::Set(set)) => {
                    stamping.add(latch, target.row, Stamp::Locked(set).raw());
                    locked[target.index] = true;
                }
                Ok(Locked::Already) => locked[target.index] = true,
                Ok(Locked::Skipped) => {}
                Ok(Locked::Held(by)) => {
                    let awaited = writes.awaited(entry, target.row, self.mode, by);
                    step = awaited.map(|awaited| Step::Held(at, awaited));
                    break;
                }
                Err(error) => {
                    step = Err(error);
                    break;
                }
            }
        }
        stamping.finish(latch);
        latch.settle_reservation()?;
        step
    }

    /// What a row that another transaction holds means.
    fn apply_policy(&self, answer: Locked) -> Result<Locked, StorageError> {
        match (answer, self.policy) {
            (Locked::Held(_), WaitPolicy::SkipLocked) => Ok(Locked::Skipped),
            (Locked::Held(_), WaitPolicy::Nowait) => Err(StorageError::LockNotAvailable {
                table: self.table.schema().name.clone(),
            }),
            (answer, _) => Ok(answer),
        }
    }

    /// Locks a row, but for its stamp. The caller holds the latch.
    fn lock_row(
        &self,
        writes: &Writes<'_>,
        entry: &Entry,
        row: u32,
        may_be_kept: bool,
    ) -> Result<Locked, StorageError> {
        let (_, end) = entry.segment().stamps(row);
        if may_be_kept && self.is_free(writes, end) && writes.is_kept(entry, row, self.mode)? {
            return Ok(Locked::Held(None));
        }
        match Stamp::of(end) {
            Stamp::At(_) if end == END_NONE => self.join(writes, None),
            Stamp::Locked(set) => self.join(writes, Some(set)),
            Stamp::At(_) if self.skips_changed => Ok(Locked::Skipped),
            Stamp::At(_) => Err(StorageError::Conflict),
            Stamp::By(by) if writes.owns(by) => Ok(Locked::Skipped),
            // Without a key of its own a table's rows are never marked so.
            Stamp::By(by) if self.mode == RowLock::KeyShare && Stamp::keeps_key(end) => {
                let segment = entry.pin_key(Access::Rows)?;
                self.share_key(writes, &segment, row, by)
            }
            Stamp::By(by) => Ok(Locked::Held(Some(by))),
        }
    }

    /// Whether nobody has the row, the transaction neither.
    fn is_free(&self, writes: &Writes<'_>, end: u64) -> bool {
        match Stamp::of(end) {
            Stamp::At(_) => end == END_NONE,
            Stamp::Locked(set) => !writes.locks().is_held(set),
            Stamp::By(_) => false,
        }
    }

    fn join(
        &self,
        writes: &Writes<'_>,
        standing: Option<LockSetId>,
    ) -> Result<Locked, StorageError> {
        if let Some((same, set)) = self.last_join.get()
            && same == standing
        {
            return Ok(Locked::Set(set));
        }
        let joined = writes.locks().join(writes.txn(), standing, self.mode)?;
        Ok(match joined {
            Joined::Set(set) => {
                self.last_join.set(Some((standing, set)));
                Locked::Set(set)
            }
            Joined::Already => Locked::Already,
            Joined::Held(by) => Locked::Held(Some(by)),
        })
    }

    /// Locks the key of a row that another transaction is replacing. As long as that one is
    /// active, nobody else has seen what it replaces the row by.
    fn share_key(
        &self,
        writes: &Writes<'_>,
        segment: &Pinned<'_>,
        row: u32,
        replacer: TxnId,
    ) -> Result<Locked, StorageError> {
        let (txn, key) = (writes.txn(), segment.key_of(row));
        let in_the_way = || match txn.txns().is_active(replacer) {
            true => self.table.key_taker(txn, key.borrow()),
            false => Ok(Some(replacer)),
        };
        let locks = writes.locks();
        let taker = locks.share_key::<StorageError>(txn, self.table.id(), &key, in_the_way)?;
        Ok(taker.map_or(Locked::Already, |by| Locked::Held(Some(by))))
    }
}

/// Stamps rows of a segment, those side by side together: so that a block of rows that one
/// statement locks has one stamp.
#[derive(Default)]
struct Stamping(Option<(Range<u32>, u64)>);

impl Stamping {
    fn add(&mut self, latch: &mut Latch<'_>, row: u32, stamp: u64) {
        match &mut self.0 {
            Some((rows, same)) if rows.end == row && *same == stamp => rows.end += 1,
            _ => {
                self.finish(latch);
                self.0 = Some((row..row + 1, stamp));
            }
        }
    }

    fn finish(&mut self, latch: &mut Latch<'_>) {
        if let Some((rows, stamp)) = self.0.take() {
            latch.writer.set_ends(rows, stamp);
        }
    }
}
