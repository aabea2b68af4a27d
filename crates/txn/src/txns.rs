//! The transactions of one tenant: ids, states, the commit order, the positions of snapshots.
//!
//! Transactions, blocks, snapshots and locks refer to a [`TxnManager`]; its methods that begin
//! one are in that one's module.
//!
//! Lock order: `order` guards what must change together; `states` is separate so that readers
//! resolving stamps do not queue behind commits. `states` is locked inside `order`, never the
//! other way round, and so is the guard of the log's queue. Nobody waits for the log's disk while
//! holding a lock.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use aerostat_sync::{AtomicU64, AtomicUsize, Mutex, Ordering, RwLock, yield_now};
use aerostat_types::{Clock, CommitTs, SystemClock, TxnId};

use crate::{
    Call, CommitError, CommitLog, LiveSnapshots, LogFailure, RowLock, RowLocks,
    lock_table::FastLocks, points::Points, queue::RowTag, stamp::COMMITS_END, wait::WaitGraph,
};

/// Where a transaction stands. One that is not in the table has settled: all its
/// stamps have been overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxnState {
    Active,
    Committed(CommitTs),
    Aborted,
    /// It ends with this block, which leaves the table after it.
    PartOf(TxnId),
}

/// Ids that a block takes at once: few blocks have more statements than that, and more
/// make its snapshots only a range longer.
const IDS_PER_RUN: u64 = 1 << 10;

/// For ids, which are our own and ascend: a multiplication spreads them. A reader that
/// meets unfinished transactions resolves one or two ids per stamp, which takes half the
/// time that it takes with the standard hasher among 50,000 ids, and 0.7 among 100.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, id: u64) {
        // 2^64 / φ, odd. The table takes low and high bits, the middle ones are the best mixed.
        self.0 = (self.0 ^ id)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(32);
    }
}

/// The transactions of one tenant. Tenants share nothing.
pub struct TxnManager {
    order: Mutex<Order>,
    /// How many places there are in the queues of rows, which `order` has.
    row_tickets: Arc<AtomicUsize>,
    /// For transactions, statements of blocks and other owners of locks.
    next_id: AtomicU64,
    /// Locks on relations, but for those that `order` has.
    fast_locks: FastLocks,
    states: RwLock<HashMap<TxnId, TxnState, BuildHasherDefault<IdHasher>>>,
    locks: RowLocks,
    /// `None` when nothing is to survive.
    log: Option<Arc<dyn CommitLog>>,
    clock: Arc<dyn Clock>,
}

struct Order {
    /// The newest place in the order that somebody has; perhaps not durable yet.
    last_assigned: CommitTs,
    /// The newest commit that snapshots see. Everything up to it is durable.
    last_commit: CommitTs,
    /// Where snapshots are.
    snapshots: Points,
    /// Where blocks began. Between statements a block may hold no snapshot.
    blocks: Points,
    waits: WaitGraph,
}

impl TxnManager {
    /// No transactions yet; the last commit is 0. Nothing is durable.
    pub fn new() -> Arc<Self> {
        Self::starting_at(TxnId(1), CommitTs(0), None, Arc::new(SystemClock))
    }

    /// Goes on after `last_commit`, which is in the log, with transactions from `first`
    /// on, which is above every id in the log.
    pub fn with_log(first: TxnId, last_commit: CommitTs, log: Arc<dyn CommitLog>) -> Arc<Self> {
        Self::with_clock(first, last_commit, log, Arc::new(SystemClock))
    }

    /// As [`Self::with_log`], with a clock of its own.
    pub fn with_clock(
        first: TxnId,
        last_commit: CommitTs,
        log: Arc<dyn CommitLog>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        Self::starting_at(first, last_commit, Some(log), clock)
    }

    fn starting_at(
        first: TxnId,
        last_commit: CommitTs,
        log: Option<Arc<dyn CommitLog>>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let waits = WaitGraph::new(Arc::clone(&clock));
        Arc::new(Self {
            row_tickets: waits.rows.count(),
            next_id: AtomicU64::new(first.0),
            fast_locks: FastLocks::default(),
            order: Mutex::new(Order {
                last_assigned: last_commit,
                last_commit,
                snapshots: Points::default(),
                blocks: Points::default(),
                waits,
            }),
            states: RwLock::default(),
            locks: RowLocks::default(),
            log,
            clock,
        })
    }

    /// The clock of everything that waits here.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// When a wait ends that begins now. A timeout beyond the clock's end is none.
    pub(crate) fn deadline(&self, timeout: Option<Duration>) -> Option<Instant> {
        timeout.and_then(|timeout| self.clock.now().checked_add(timeout))
    }

    /// The newest id that anybody has.
    pub fn last_id(&self) -> TxnId {
        TxnId(self.next_id.load(Ordering::Relaxed) - 1)
    }

    /// An id that nobody has.
    pub(crate) fn take_id(&self) -> TxnId {
        TxnId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// More ids for a block.
    pub(crate) fn take_ids(&self) -> Range<u64> {
        let first = self.next_id.fetch_add(IDS_PER_RUN, Ordering::Relaxed);
        first..first + IDS_PER_RUN
    }

    pub(crate) fn fast_locks(&self) -> &FastLocks {
        &self.fast_locks
    }

    /// Looks at the graph of waits and the locks in it. Quick: commits wait.
    pub(crate) fn with_locks<T>(&self, look: impl FnOnce(&mut WaitGraph) -> T) -> T {
        look(&mut self.order.lock().waits)
    }

    /// A transaction, or a block, is in the state table from now on.
    pub(crate) fn begin_state(&self, id: TxnId) {
        let before = self.states.write().insert(id, TxnState::Active);
        assert_eq!(before, None, "transaction {id} began twice");
    }

    /// Begins a statement of a block.
    pub(crate) fn begin_part(&self, id: TxnId, block: TxnId) {
        let mut states = self.states.write();
        assert_eq!(
            states.get(&block),
            Some(&TxnState::Active),
            "statement {id} begins in block {block}, which has ended"
        );
        let before = states.insert(id, TxnState::PartOf(block));
        assert_eq!(before, None, "statement {id} began twice");
    }

    /// The oldest registered snapshot, or the last commit if there is none:
    /// versions ended at or before it are garbage.
    pub fn horizon(&self) -> CommitTs {
        let order = self.order.lock();
        order.snapshots.oldest().unwrap_or(order.last_commit)
    }

    /// The point at or after which everything began that has not ended, writers included.
    pub fn oldest_begin(&self) -> CommitTs {
        let order = self.order.lock();
        let oldest = [order.snapshots.oldest(), order.blocks.oldest()];
        let oldest = oldest.into_iter().flatten().min();
        oldest.unwrap_or(order.last_commit)
    }

    /// All registered snapshots, for a finer decision than [`Self::horizon`].
    pub fn live_snapshots(&self) -> LiveSnapshots {
        let order = self.order.lock();
        LiveSnapshots::new(order.snapshots.iter().collect(), order.last_commit)
    }

    /// The newest commit that snapshots see.
    pub fn last_commit(&self) -> CommitTs {
        self.order.lock().last_commit
    }

    /// Whether somebody waits for the row who is to have it before such a lock, which nobody who
    /// holds it is in the way of.
    pub(crate) fn is_kept(&self, row: RowTag, place: Option<u64>, mode: RowLock) -> bool {
        self.with_locks(|graph| graph.rows.is_kept(row, place, mode))
    }

    /// Whether anybody waits for any row.
    pub(crate) fn has_row_queues(&self) -> bool {
        self.row_tickets.load(Ordering::Relaxed) > 0
    }

    /// The row locks of the tenant.
    pub fn row_locks(&self) -> &RowLocks {
        &self.locks
    }

    /// Whether the transaction, or the block of the statement, has neither committed nor been
    /// rolled back.
    pub fn is_active(&self, id: TxnId) -> bool {
        self.state(id) == Some(TxnState::Active)
    }

    /// The block of a statement, or the transaction itself.
    pub(crate) fn owner(&self, id: TxnId) -> TxnId {
        match self.states.read().get(&id) {
            Some(TxnState::PartOf(block)) => *block,
            _ => id,
        }
    }

    /// How many threads wait for other transactions now.
    pub fn waiting(&self) -> usize {
        self.order.lock().waits.len()
    }

    /// How many transactions and statements have not settled.
    #[cfg(test)]
    pub(crate) fn unsettled(&self) -> usize {
        self.states.read().len()
    }

    /// Where a transaction stands, or the block that a statement ends with.
    pub(crate) fn state(&self, id: TxnId) -> Option<TxnState> {
        let states = self.states.read();
        match states.get(&id) {
            Some(TxnState::PartOf(block)) => states.get(block).copied(),
            state => state.copied(),
        }
    }

    /// Takes a place in the commit order for something that is no transaction, and returns
    /// once it is durable. `enqueue` puts it into the log; it is called under the order
    /// lock and must neither wait nor do I/O.
    ///
    /// # Errors
    /// [`CommitError::Refused`] when the log takes nothing any more, [`CommitError::InDoubt`]
    /// when it fails meanwhile.
    ///
    /// # Panics
    /// When there is no log.
    pub fn append_entry(
        &self,
        enqueue: impl FnOnce(CommitTs) -> Result<(), LogFailure>,
    ) -> Result<CommitTs, CommitError> {
        let log = self
            .log
            .as_ref()
            .expect("entries are for tenants with a log");
        let ts = self.place_entry(enqueue)?;
        let through = log.wait_durable(ts).map_err(CommitError::InDoubt)?;
        assert_has(through, ts);
        self.publish(through);
        Ok(ts)
    }

    /// As [`Self::append_entry`], but returns at once: whoever has it acknowledged [publishes](Self::publish) it.
    ///
    /// # Errors
    /// [`CommitError::Refused`] when the log takes nothing any more.
    pub fn place_entry(
        &self,
        enqueue: impl FnOnce(CommitTs) -> Result<(), LogFailure>,
    ) -> Result<CommitTs, CommitError> {
        let mut order = self.order.lock();
        let ts = order.next_place();
        enqueue(ts).map_err(CommitError::Refused)?;
        order.last_assigned = ts;
        Ok(ts)
    }

    /// Takes places for what was committed elsewhere, and lets new snapshots see it.
    pub(crate) fn pass(&self, ts: CommitTs, ids: &[TxnId]) {
        let mut order = self.order.lock();
        assert!(
            ts >= order.next_place() && order.last_commit == order.last_assigned,
            "commit {ts} of another log comes behind {}, of which snapshots see {}",
            order.last_assigned,
            order.last_commit
        );
        let mut states = self.states.write();
        for id in ids {
            let before = states.insert(*id, TxnState::Committed(ts));
            assert_eq!(
                before,
                Some(TxnState::Active),
                "transaction {id} ended twice"
            );
        }
        (order.last_assigned, order.last_commit) = (ts, ts);
    }

    /// No id through this one is taken from now on.
    pub(crate) fn raise_next_id(&self, above: TxnId) {
        self.next_id.fetch_max(above.0 + 1, Ordering::Relaxed);
    }

    /// Lets new snapshots see everything through `through`, which the log says is durable.
    pub fn publish(&self, through: CommitTs) {
        let mut order = self.order.lock();
        assert!(
            through <= order.last_assigned,
            "what is durable was assigned before"
        );
        order.last_commit = order.last_commit.max(through);
    }

    /// The commits with these places in the order, which are in doubt, did not happen. Snapshots
    /// may pass their places from then on. The log takes no commit meanwhile.
    pub fn give_up(&self, after: CommitTs, through: CommitTs) {
        // Under the order lock every place that was assigned has its state.
        let order = self.order.lock();
        assert!(
            order.last_commit <= after && after <= through && through <= order.last_assigned,
            "places after {after} through {through} are given up, of which snapshots see those \
             through {} and nobody has any after {}",
            order.last_commit,
            order.last_assigned
        );
        for state in self.states.write().values_mut() {
            if matches!(state, TxnState::Committed(ts) if after < *ts && *ts <= through) {
                *state = TxnState::Aborted;
            }
        }
    }

    /// Waits until every transaction that the newest snapshots see has settled: none of its
    /// stamps is left then.
    pub fn wait_settled(&self) {
        let through = self.last_commit();
        let unsettled = || {
            self.states
                .read()
                .values()
                .any(|state| matches!(state, TxnState::Committed(ts) if *ts <= through))
        };
        while unsettled() {
            // Stamping takes no I/O and waits for latches only.
            yield_now();
        }
    }

    pub(crate) fn log(&self) -> Option<&Arc<dyn CommitLog>> {
        self.log.as_ref()
    }

    /// The atomic step: a snapshot is taken either before it and sees nothing of
    /// the transaction, or after it and sees all. With a log it is taken as soon as the
    /// log has the commit for good ([`Self::await_durable`]). `spilled` are a block's
    /// statements of whose redo the log has a part; `catalog` is what becomes durable with
    /// the redo. Neither waits nor does I/O.
    pub(crate) fn enqueue_commit(
        &self,
        id: TxnId,
        spilled: &[TxnId],
        redo: Vec<u8>,
        catalog: Option<Vec<u8>>,
    ) -> Result<CommitTs, CommitError> {
        let mut order = self.order.lock();
        let ts = order.next_place();
        if let Some(log) = &self.log {
            let queued = match catalog {
                None => log.enqueue_commit(id, spilled, ts, redo),
                Some(catalog) => log.enqueue_commit_with_catalog(id, spilled, ts, redo, catalog),
            };
            queued.map_err(CommitError::Refused)?;
        } else {
            order.last_commit = ts;
        }
        order.last_assigned = ts;
        let before = self.states.write().insert(id, TxnState::Committed(ts));
        assert_eq!(
            before,
            Some(TxnState::Active),
            "transaction {id} ended twice"
        );
        Ok(ts)
    }

    /// Waits until the log has the commit for good, and lets snapshots see it.
    pub(crate) fn await_durable(&self, id: TxnId, ts: CommitTs) -> Result<(), CommitError> {
        match &self.log {
            Some(log) => self.durable(id, ts, log.wait_durable(ts)),
            None => Ok(()),
        }
    }

    /// As [`Self::await_durable`] if there is nothing to wait for, else nothing.
    pub(crate) fn try_durable(&self, id: TxnId, ts: CommitTs) -> Option<Result<(), CommitError>> {
        match &self.log {
            Some(log) => Some(self.durable(id, ts, log.try_durable(ts)?)),
            None => Some(Ok(())),
        }
    }

    /// See [`CommitLog::when_known`](crate::CommitLog::when_known).
    pub(crate) fn when_known(&self, ts: CommitTs, call: Call) -> Option<Call> {
        match &self.log {
            Some(log) => log.when_known(ts, call),
            None => Some(call),
        }
    }

    fn durable(
        &self,
        id: TxnId,
        ts: CommitTs,
        through: Result<CommitTs, LogFailure>,
    ) -> Result<(), CommitError> {
        match through {
            Ok(through) => {
                assert_has(through, ts);
                self.publish(through);
                Ok(())
            }
            Err(failure) => {
                // Hidden before, for no snapshot reaches its place, and hidden after.
                let before = self.states.write().insert(id, TxnState::Aborted);
                assert!(
                    before == Some(TxnState::Committed(ts)) || before == Some(TxnState::Aborted),
                    "transaction {id} is in doubt at {ts}, and was {before:?}"
                );
                Err(CommitError::InDoubt(failure))
            }
        }
    }

    /// It will not commit. A block may have said so of its statement before.
    pub(crate) fn abort(&self, id: TxnId) {
        let before = self.states.write().insert(id, TxnState::Aborted);
        assert!(
            !matches!(before, None | Some(TxnState::Committed(_))),
            "transaction {id} ended twice"
        );
    }

    /// All stamps are final: forgets the transaction and its locks, and wakes who waits for it.
    pub(crate) fn settled(&self, id: TxnId) {
        self.settled_all(&[id], None);
    }

    /// All stamps of these are final: of a transaction, or of a block's statements and of the
    /// block, with the point at which it began. In one step, for a block has many statements
    /// and others want the same locks.
    pub(crate) fn settled_all(&self, ids: &[TxnId], began: Option<CommitTs>) {
        ids.iter().for_each(|id| self.locks.release(*id));
        let woken = {
            let mut order = self.order.lock();
            if let Some(began) = began {
                order.blocks.release(began);
            }
            let mut states = self.states.write();
            for id in ids {
                let state = states.remove(id);
                assert!(state.is_some(), "transaction {id} settled twice");
            }
            order.waits.settled(ids)
        };
        woken.iter().for_each(|signal| signal.complete());
    }

    /// Registers a snapshot of everything committed so far. Gives where it is.
    pub(crate) fn register_snapshot(&self) -> CommitTs {
        let mut order = self.order.lock();
        let at = order.last_commit;
        order.snapshots.register(at);
        at
    }

    pub(crate) fn unregister_snapshot(&self, at: CommitTs) {
        self.order.lock().snapshots.release(at);
    }

    /// Registers where a block begins, until it has settled.
    pub(crate) fn register_block(&self) -> CommitTs {
        let mut order = self.order.lock();
        let began = order.last_commit;
        order.blocks.register(began);
        began
    }
}

impl Order {
    fn next_place(&self) -> CommitTs {
        assert!(
            self.last_commit <= self.last_assigned,
            "snapshots see commits through {}, and the newest is {}",
            self.last_commit,
            self.last_assigned
        );
        let next = self.last_assigned.0 + 1;
        assert!(next < COMMITS_END, "a commit's place is no other stamp");
        CommitTs(next)
    }
}

/// A commit is acknowledged once the log has everything through it.
fn assert_has(through: CommitTs, ts: CommitTs) {
    assert!(
        ts <= through,
        "commit {ts} is acknowledged by a log that has those through {through}"
    );
}
