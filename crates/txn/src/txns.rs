//! The transactions of one tenant: ids, states, the commit order, snapshots.
//!
//! Locks: `order` guards what must change together; `states` is apart so that
//! readers resolving stamps do not queue behind commits. `states` is locked
//! inside `order`, never the other way round.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use aerostat_types::{CommitTs, TxnId};
use parking_lot::{Mutex, RwLock};

use crate::{
    CancelToken, LiveSnapshots, Snapshot, Transaction,
    wait::{WaitError, WaitGraph},
};

/// Where a transaction stands. One that is not in the table has settled: all its
/// stamps have been overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxnState {
    Active,
    Committed(CommitTs),
    Aborted,
}

/// The transactions of one tenant. Tenants share nothing.
pub struct TxnManager {
    order: Mutex<Order>,
    states: RwLock<HashMap<TxnId, TxnState>>,
}

struct Order {
    next_id: u64,
    last_commit: CommitTs,
    /// How many registrations there are of each point.
    snapshots: BTreeMap<CommitTs, usize>,
    waits: WaitGraph,
}

impl TxnManager {
    /// No transactions yet; the last commit is 0.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            order: Mutex::new(Order {
                next_id: 1,
                last_commit: CommitTs(0),
                snapshots: BTreeMap::new(),
                waits: WaitGraph::default(),
            }),
            states: RwLock::default(),
        })
    }

    /// Begins a transaction on a snapshot of now.
    pub fn begin(self: &Arc<Self>) -> Transaction {
        let mut order = self.order.lock();
        let id = TxnId(order.next_id);
        order.next_id += 1;
        self.states.write().insert(id, TxnState::Active);
        let snapshot = self.register(&mut order);
        drop(order);
        Transaction::new(Arc::clone(self), id, snapshot)
    }

    /// A snapshot of everything committed so far.
    pub fn snapshot(self: &Arc<Self>) -> Snapshot {
        self.register(&mut self.order.lock())
    }

    /// The oldest registered snapshot, or the last commit if there is none:
    /// versions ended at or before it are garbage.
    pub fn horizon(&self) -> CommitTs {
        let order = self.order.lock();
        order
            .snapshots
            .first_key_value()
            .map_or(order.last_commit, |(at, _)| *at)
    }

    /// All registered snapshots, for a finer decision than [`Self::horizon`].
    pub fn live_snapshots(&self) -> LiveSnapshots {
        let order = self.order.lock();
        LiveSnapshots::new(order.snapshots.keys().copied().collect(), order.last_commit)
    }

    /// The newest commit.
    pub fn last_commit(&self) -> CommitTs {
        self.order.lock().last_commit
    }

    /// Sleeps until `holder` has settled: ended, and every stamp of it overwritten.
    /// The caller holds no latch, and looks at the row again afterwards.
    ///
    /// # Errors
    /// [`WaitError::Deadlock`] if `holder` waits for `me`, [`WaitError::Cancelled`]
    /// if the token is cancelled before or meanwhile.
    pub fn wait_for(
        &self,
        me: TxnId,
        holder: TxnId,
        cancel: &CancelToken,
    ) -> Result<(), WaitError> {
        assert_ne!(me, holder, "a transaction waits for itself");
        let signal = {
            let mut order = self.order.lock();
            if self.state(holder).is_none() {
                return Ok(());
            }
            order.waits.add(me, holder)?
        };
        cancel.attach(&signal);
        let result = signal.sleep();
        cancel.detach(&signal);
        self.order.lock().waits.remove(me, &signal);
        result
    }

    /// How many threads wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.order.lock().waits.len()
    }

    pub(crate) fn state(&self, id: TxnId) -> Option<TxnState> {
        self.states.read().get(&id).copied()
    }

    /// The atomic step: a snapshot is taken either before it and sees nothing of
    /// the transaction, or after it and sees all.
    pub(crate) fn commit(&self, id: TxnId) -> CommitTs {
        let mut order = self.order.lock();
        let ts = CommitTs(order.last_commit.0 + 1);
        self.set_state(id, TxnState::Committed(ts));
        order.last_commit = ts;
        ts
    }

    pub(crate) fn abort(&self, id: TxnId) {
        self.set_state(id, TxnState::Aborted);
    }

    /// All stamps are final: forgets the transaction and wakes who waits for it.
    pub(crate) fn settled(&self, id: TxnId) {
        let order = self.order.lock();
        let state = self.states.write().remove(&id);
        assert!(state.is_some(), "transaction {id} settled twice");
        order.waits.wake(id);
    }

    pub(crate) fn unregister(&self, at: CommitTs) {
        let mut order = self.order.lock();
        let count = order
            .snapshots
            .get_mut(&at)
            .expect("a snapshot is registered until its last clone is dropped");
        *count -= 1;
        if *count == 0 {
            order.snapshots.remove(&at);
        }
    }

    fn register(self: &Arc<Self>, order: &mut Order) -> Snapshot {
        *order.snapshots.entry(order.last_commit).or_default() += 1;
        Snapshot::register(Arc::clone(self), order.last_commit)
    }

    fn set_state(&self, id: TxnId, state: TxnState) {
        let before = self.states.write().insert(id, state);
        assert_eq!(
            before,
            Some(TxnState::Active),
            "transaction {id} ended twice"
        );
    }
}
