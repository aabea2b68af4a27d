//! A transaction from begin to commit or rollback.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use aerostat_sync::{AtomicBool, Mutex, Ordering};
use aerostat_types::{CommitTs, OutOfMemory, TxnId};

use crate::{
    Awaited, CancelToken, CommitError, Committing, Isolation, LogFailure, Participant,
    RelationLocks, RowLock, RowPlace, RowTag, Seat, Seats, Snapshot, WaitError, Waiting,
    block_state::Shared,
    participant::Work,
    redo::{REDO_BYTES_MAX, Redo},
    txns::TxnManager,
    waiting::Asleep,
};

/// A unit of work that happens wholly or not at all: a transaction, or one statement of a
/// [`crate::Block`]. Dropping it rolls it back.
pub struct Transaction {
    txns: Arc<TxnManager>,
    id: TxnId,
    snapshot: Snapshot,
    cancel: CancelToken,
    participants: Mutex<Vec<Box<dyn Participant>>>,
    /// What it did, in the order in which it did it, as far as the log has not got it.
    redo: Mutex<Redo>,
    /// Whether the log has a part of the redo. Locked while it gets one: later redo must not
    /// overtake it.
    spilled: Mutex<bool>,
    /// Those of its block, if it is of one.
    locks: Arc<RelationLocks>,
    /// The longest wait for another transaction; `None` for any.
    lock_timeout: Mutex<Option<Duration>>,
    /// Whether it has taken row locks, which a block keeps as it keeps changes.
    has_locked: AtomicBool,
    /// Where it stands among those that wait for rows, if it has waited for one.
    place: OnceLock<RowPlace>,
    /// The block it is a statement of.
    block: Option<Arc<Shared>>,
    waits: Waits,
    /// Whether its commit gives its locks back.
    leaves_locks: bool,
    /// Whether it does again what another node's log says, and the log has that.
    is_applied: bool,
    ended: bool,
}

/// Whether a transaction's thread may sleep or be kept busy for long.
enum Waits {
    /// Both.
    Freely,
    /// Both, but it sleeps for other transactions only as long as it has a seat.
    Seated(Arc<Seats>),
    /// Neither.
    Never,
}

impl TxnManager {
    /// Begins a transaction on a snapshot of now.
    pub fn begin(self: &Arc<Self>) -> Transaction {
        self.begin_with(self.relation_locks())
    }

    /// Begins a transaction on a snapshot of now that has these locks, until its end. No
    /// other transaction had them.
    pub fn begin_with(self: &Arc<Self>, locks: Arc<RelationLocks>) -> Transaction {
        let id = locks.owner();
        self.begin_state(id);
        let snapshot = self.snapshot();
        Transaction::new(Arc::clone(self), id, snapshot, locks, None)
    }
}

impl Transaction {
    pub(crate) fn new(
        txns: Arc<TxnManager>,
        id: TxnId,
        snapshot: Snapshot,
        locks: Arc<RelationLocks>,
        block: Option<Arc<Shared>>,
    ) -> Self {
        Self {
            txns,
            id,
            snapshot,
            cancel: CancelToken::new(),
            participants: Mutex::default(),
            redo: Mutex::default(),
            spilled: Mutex::new(false),
            locks,
            lock_timeout: Mutex::default(),
            has_locked: AtomicBool::new(false),
            place: OnceLock::new(),
            block,
            waits: Waits::Freely,
            leaves_locks: false,
            is_applied: false,
            ended: false,
        }
    }

    /// The same transaction for a thread that must not wait: what would wait for another
    /// transaction, or work for long, fails instead. The caller rolls back and has another
    /// thread do it.
    pub fn without_waiting(mut self) -> Self {
        self.waits = Waits::Never;
        self
    }

    /// The same transaction for a statement that can be undone and run again: its thread sleeps for
    /// other transactions only where there is a seat.
    pub fn with_seats(mut self, seats: &Arc<Seats>) -> Self {
        self.waits = Waits::Seated(Arc::clone(seats));
        self
    }

    /// The same transaction as another run of a statement that has these places.
    pub fn with_place(mut self, place: &RowPlace) -> Self {
        let owner = self.block.as_ref().map_or(self.id, |block| block.id());
        place.begin_run(owner);
        self.place = OnceLock::from(place.clone());
        self
    }

    /// Its places among those that wait for rows, for its statement's next run.
    pub fn place(&self) -> RowPlace {
        self.place.get_or_init(|| RowPlace::new(&self.txns)).clone()
    }

    /// Whether it waits for rows, or has and may have them next.
    pub fn has_place(&self) -> bool {
        self.place.get().is_some_and(|place| !place.is_empty())
    }

    /// It has the row, or goes without it.
    pub fn leave_row(&self, row: RowTag) {
        if let Some(place) = self.place.get() {
            place.leave_row(row);
        }
    }

    /// Whether anybody waits for any row: else none is kept.
    pub fn may_be_kept(&self) -> bool {
        self.txns.has_row_queues()
    }

    /// Whether a row that nobody holds is kept from it for somebody who has waited longer.
    pub fn is_kept(&self, row: RowTag, mode: RowLock) -> bool {
        let place = self.place.get().map(RowPlace::id);
        self.txns.is_kept(row, place, mode)
    }

    /// Whether its thread may be kept busy for long.
    pub fn waits(&self) -> bool {
        !matches!(self.waits, Waits::Never)
    }

    /// That its thread may sleep for another transaction; `None` if it must not.
    pub fn seat(&self) -> Option<Seat> {
        match &self.waits {
            Waits::Freely => Some(Seat::own()),
            Waits::Seated(seats) => seats.take(),
            Waits::Never => None,
        }
    }

    /// The id its rows are stamped with.
    pub fn id(&self) -> TxnId {
        self.id
    }

    /// What it saw when it began.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// What it sees of others. [`Isolation::ReadCommitted`] outside a block: who meets a
    /// conflict may run again on a newer snapshot.
    pub fn isolation(&self) -> Isolation {
        self.block
            .as_ref()
            .map_or(Isolation::ReadCommitted, |block| block.isolation())
    }

    /// Whether rows stamped with this id are its own: written by itself or by a statement
    /// that its block had kept when it began. Nobody waits for those.
    pub fn owns(&self, id: TxnId) -> bool {
        id == self.id || self.snapshot.owns(id)
    }

    /// The tenant's transactions.
    pub fn txns(&self) -> &Arc<TxnManager> {
        &self.txns
    }

    /// Its locks on relations: held until it, or its block, has ended.
    pub fn relation_locks(&self) -> &Arc<RelationLocks> {
        &self.locks
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Cancels its waits and its commit.
    pub fn cancel_token(&self) -> CancelToken {
        self.cancel.clone()
    }

    /// How long it waits for another transaction at most; `None` for as long as it takes.
    pub fn set_lock_timeout(&self, timeout: Option<Duration>) {
        *self.lock_timeout.lock() = timeout;
    }

    /// See [`Self::set_lock_timeout`].
    pub fn lock_timeout(&self) -> Option<Duration> {
        *self.lock_timeout.lock()
    }

    /// Sleeps until it may have a row, which the caller looks at again afterwards: until it
    /// is the first of those that wait, or, if it is, until the row's holder has settled. Gives
    /// who has. The caller holds no latch.
    ///
    /// # Errors
    /// As [`TxnManager::wait_for`], and [`WaitError::TimedOut`] at the lock timeout.
    pub fn wait(&self, awaited: Awaited) -> Result<Option<TxnId>, WaitError> {
        let Some(asleep) = self.begin_wait(awaited)? else {
            return Ok(awaited.holder);
        };
        let holder = asleep.holder;
        self.txns
            .sleep(asleep, self.lock_timeout(), &self.cancel)
            .map(|()| holder)
    }

    /// As [`Self::wait`], for a task: `None` if there is nothing to wait for. Neither the
    /// transaction's token nor its lock timeout ends the wait; the caller drops it.
    ///
    /// # Errors
    /// [`WaitError::Deadlock`].
    pub fn waiting_for(&self, awaited: Awaited) -> Result<Option<Waiting>, WaitError> {
        let begun = self.begin_wait(awaited)?;
        Ok(begun.map(|asleep| Waiting::new(Arc::clone(&self.txns), asleep)))
    }

    fn begin_wait(&self, awaited: Awaited) -> Result<Option<Asleep>, WaitError> {
        let Awaited { holder, row } = awaited;
        match (row, holder) {
            (Some(row), _) => self.txns.begin_row_wait(self.id, self.place(), row, holder),
            (None, Some(holder)) => self.txns.begin_wait(self.id, holder),
            (None, None) => Ok(None),
        }
    }

    /// What has committed by now, with all that its block has kept and that it has done
    /// itself: what constraints are checked on.
    pub fn newest_snapshot(&self) -> Snapshot {
        self.snapshot.renewed(self.id)
    }

    /// It has taken row locks.
    pub(crate) fn note_locks(&self) {
        self.has_locked.store(true, Ordering::Relaxed);
    }

    /// Adds what to do at the end. Participants finish in the order they enlisted.
    pub fn enlist(&self, participant: Box<dyn Participant>) {
        self.participants.lock().push(participant);
    }

    /// The same transaction as one whose redo the log has already.
    pub(crate) fn of_other_log(mut self) -> Self {
        self.is_applied = true;
        self
    }

    /// What it has done, for its commit.
    pub(crate) fn into_applied_work(mut self) -> Work {
        let work = self.take_work();
        assert!(
            self.is_applied && work.redo.is_empty(),
            "transaction {} is this node's own",
            self.id
        );
        self.ended = true;
        work
    }

    /// Whether somebody wants redo.
    pub fn is_logged(&self) -> bool {
        !self.is_applied && self.txns.log().is_some()
    }

    /// Adds to what the log needs to do the transaction again. Quick: may be called with
    /// latches held, so that redo of the same row is in the order of the changes. Nothing is
    /// added if nobody wants it.
    ///
    /// # Errors
    /// When there is no memory for it. The caller rolls back, for the log will not have all
    /// that was done.
    pub fn add_redo(&self, redo: Vec<u8>) -> Result<(), OutOfMemory> {
        match self.txns.log() {
            Some(log) => self.redo.lock().add(redo, log),
            None => Ok(()),
        }
    }

    /// Gives redo to the log if there is much of it. Called with no latch held after
    /// [`Self::add_redo`], so that a load of any size needs little memory for it.
    ///
    /// # Errors
    /// When the log has failed. The caller rolls back.
    pub fn spill_redo(&self) -> Result<(), LogFailure> {
        let Some(log) = self.txns.log() else {
            return Ok(());
        };
        if self.redo.lock().len() < REDO_BYTES_MAX {
            return Ok(());
        }
        if let Some(block) = &self.block {
            block.spill(&**log)?;
        }
        let mut spilled = self.spilled.lock();
        let mut redo = std::mem::take(&mut *self.redo.lock());
        if redo.is_empty() {
            return Ok(());
        }
        *spilled = true;
        log.append_chunk(self.id, redo.take_bytes())
    }

    /// Makes all of its work visible to every snapshot taken from now on, in one
    /// step, and returns its place in the commit order. A transaction that wrote
    /// nothing takes no place. Returns once the log has it for good, if there is one.
    ///
    /// A statement of a block is kept for the block's commit, without waiting for the
    /// disk; its place is not known yet, and the newest that snapshots see is returned.
    ///
    /// # Errors
    /// [`CommitError::Cancelled`] and [`CommitError::Refused`]: it is rolled back.
    /// [`CommitError::InDoubt`]: nobody sees it, but it may be there after a crash.
    pub fn commit(self) -> Result<CommitTs, CommitError> {
        self.enqueue()?.finish()
    }

    /// The part of [`Self::commit`] that waits for nothing: gives it a place in the order.
    /// What is left to do is [`Committing::finish`]; of a statement of a block, nothing.
    ///
    /// # Errors
    /// [`CommitError::Cancelled`] and [`CommitError::Refused`]: it is rolled back.
    pub fn enqueue(mut self) -> Result<Committing, CommitError> {
        assert!(
            !self.is_applied,
            "what another node committed has its place in the order"
        );
        if self.cancel.is_cancelled() {
            return Err(CommitError::Cancelled);
        }
        let has_locked = self.has_locked.load(Ordering::Relaxed) && self.block.is_some();
        if self.participants.get_mut().is_empty() && !has_locked {
            return Ok(Committing::nothing(Arc::clone(&self.txns)));
        }
        let mut work = self.take_work();
        self.ended = true;
        let txns = Arc::clone(&self.txns);
        if let Some(block) = &self.block {
            block.keep(work)?;
            return Ok(Committing::nothing(txns));
        }
        let redo = work.redo.take_bytes();
        let redo_bytes = redo.len();
        match txns.enqueue_commit(self.id, &[], redo, None) {
            Ok(ts) => {
                self.leaves_locks = true;
                let locks = Some(Arc::clone(&self.locks));
                let works = vec![work];
                Ok(Committing::of(
                    txns, self.id, ts, redo_bytes, works, None, locks,
                ))
            }
            Err(error) => {
                work.undo(&txns);
                Err(error)
            }
        }
    }

    /// Undoes all of its work.
    pub fn rollback(self) {
        drop(self);
    }

    fn take_work(&mut self) -> Work {
        Work {
            id: self.id,
            participants: std::mem::take(self.participants.get_mut()),
            redo: std::mem::take(self.redo.get_mut()),
            is_spilled: *self.spilled.get_mut(),
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.ended {
            if let Some(block) = &self.block {
                block.leave(self.id);
            }
            self.take_work().undo(&self.txns);
        }
        if self.block.is_none() && !self.leaves_locks {
            self.locks.release_all();
        }
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("id", &self.id)
            .field("snapshot", &self.snapshot)
            .finish_non_exhaustive()
    }
}
