//! Waiting for another transaction to end, and finding circles of waits.
//!
//! The wait-for graph has one edge per waiting thread or task, waiter → holder. A circle can only
//! close with the newest edge, so the newcomer searches from its holder for itself before it
//! waits, and fails if it finds a path: the others go on.
//!
//! A statement of a block is waited for until it is undone or its block has ended. Since the
//! block is what holds the others up, the nodes of the graph are *owners*: a statement's block,
//! or a transaction itself.
//!
//! A waiter for a row waits in its queue until it is the first (`queue`). Being behind others is
//! an edge, too, but a soft one: if a circle closes by it, the waiter passes them.
//!
//! A waiter for a relation lock waits for several owners at once. Those edges are not stored but
//! follow from the table of locks (`lock_table`).
//!
//! Advisory locks belong to a session, rows and relations to its transaction (`advisory`). Either
//! goes on only when the other does, so there is an edge both ways between the two.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::SystemTime,
};

use aerostat_sync::{AtomicU64, Ordering};
use aerostat_types::{Clock, TxnId};

use crate::{
    AdvisoryKey, LockMode, LockTag, RowLock, WaitError,
    lock_table::LockTable,
    queue::{RowQueues, RowTag},
    signal::Signal,
};

/// The wait-for graph, guarded by the transactions' mutex.
pub(crate) struct WaitGraph {
    clock: Arc<dyn Clock>,
    edges: HashMap<TxnId, Vec<Edge>>,
    pub(crate) locks: LockTable,
    pub(crate) advisory: LockTable<AdvisoryKey>,
    pub(crate) rows: RowQueues,
    /// The transaction at hand of each session that has asked for an advisory lock.
    sessions: BTreeMap<TxnId, Arc<AtomicU64>>,
}

/// What becomes of a request that need not wait.
pub(crate) enum Requested {
    Granted,
    /// Somebody is in the way of one that will not wait.
    Refused,
    Waits(Arc<Signal>),
}

struct Edge {
    /// Whose end is waited for.
    holder: TxnId,
    /// Who must go on for that.
    owner: TxnId,
    signal: Arc<Signal>,
}

/// A signal to wait for, and the transaction that it is waited for, if there is one.
type Joined = (Arc<Signal>, Option<TxnId>);

impl WaitGraph {
    /// Of nobody who waits.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            edges: HashMap::default(),
            locks: LockTable::default(),
            advisory: LockTable::default(),
            rows: RowQueues::default(),
            sessions: BTreeMap::default(),
        }
    }

    /// Adds the edge `waiter → owner`, unless it would close a circle. Both are owners;
    /// `holder` is the owner's transaction or statement to be waited for. A statement
    /// that waits until one of its own block has been undone closes none: nothing else
    /// is needed for that.
    pub(crate) fn add(
        &mut self,
        waiter: TxnId,
        holder: TxnId,
        owner: TxnId,
    ) -> Result<Arc<Signal>, WaitError> {
        if owner != waiter && self.reaches(owner, waiter) {
            return Err(WaitError::Deadlock);
        }
        let signal = Arc::new(Signal::new(self.clock.wall()));
        self.edges.entry(waiter).or_default().push(Edge {
            holder,
            owner,
            signal: Arc::clone(&signal),
        });
        self.let_pass(waiter);
        Ok(signal)
    }

    /// Waits in the queue of a row, or for its holder if it is the place's turn: then it is
    /// the end of this one that the signal tells. `None` if there is nothing to wait for.
    pub(crate) fn add_for_row(
        &mut self,
        row: RowTag,
        place: u64,
        waiter: TxnId,
        mode: RowLock,
        holder: Option<(TxnId, TxnId)>,
    ) -> Result<Option<Joined>, WaitError> {
        if self.rows.enter(row, place, waiter, mode) {
            let Some((holder, owner)) = holder else {
                return Ok(None);
            };
            let signal = self.add(waiter, holder, owner)?;
            self.rows.set_asleep(row, place);
            return Ok(Some((signal, Some(holder))));
        }
        if let Some((_, owner)) = holder
            && owner != waiter
            && self.reaches(owner, waiter)
        {
            return Err(WaitError::Deadlock);
        }
        let signal = self.rows.sleep(row, place, holder, self.clock.wall());
        self.let_pass(waiter);
        Ok(Some((signal, None)))
    }

    /// Gives the lock, or makes the owner wait for it: then there is a signal. It does not
    /// wait if that would close a circle.
    pub(crate) fn request(
        &mut self,
        tag: LockTag,
        owner: TxnId,
        mode: LockMode,
    ) -> Result<Option<Arc<Signal>>, WaitError> {
        let blockers = self.locks.blockers(tag, owner, mode);
        if blockers.is_empty() {
            self.locks.hold(tag, owner, mode);
            return Ok(None);
        }
        self.refuse_circle(&blockers, owner)?;
        let signal = self.locks.enqueue(tag, owner, mode, self.clock.wall());
        self.let_pass(owner);
        Ok(Some(signal))
    }

    /// As [`Self::request`], for an advisory lock of a session.
    pub(crate) fn request_advisory(
        &mut self,
        key: AdvisoryKey,
        session: TxnId,
        mode: LockMode,
        waits: bool,
    ) -> Result<Requested, WaitError> {
        let blockers = self.advisory.blockers(key, session, mode);
        if blockers.is_empty() {
            self.advisory.hold(key, session, mode);
            return Ok(Requested::Granted);
        }
        if !waits {
            return Ok(Requested::Refused);
        }
        self.refuse_circle(&blockers, session)?;
        let signal = self.advisory.enqueue(key, session, mode, self.clock.wall());
        self.let_pass(session);
        Ok(Requested::Waits(signal))
    }

    /// From here on the session and the transaction that it has at hand wait for each other.
    pub(crate) fn join(&mut self, session: TxnId, transaction: &Arc<AtomicU64>) {
        self.sessions
            .entry(session)
            .or_insert_with(|| Arc::clone(transaction));
    }

    /// The session has ended.
    pub(crate) fn part(&mut self, session: TxnId) {
        self.sessions.remove(&session);
    }

    /// Every wait for a transaction: who waits, for whom, and since when.
    pub(crate) fn each_wait(&self, mut look: impl FnMut(TxnId, TxnId, SystemTime)) {
        for (waiter, edges) in &self.edges {
            for edge in edges {
                look(*waiter, edge.owner, edge.signal.since());
            }
        }
        self.rows.each_sleep(look);
    }

    fn refuse_circle(&self, blockers: &[TxnId], owner: TxnId) -> Result<(), WaitError> {
        match blockers.iter().any(|blocker| self.reaches(*blocker, owner)) {
            true => Err(WaitError::Deadlock),
            false => Ok(()),
        }
    }

    pub(crate) fn remove(&mut self, waiter: TxnId, signal: &Arc<Signal>) {
        if let Some(edges) = self.edges.get_mut(&waiter) {
            edges.retain(|edge| !Arc::ptr_eq(&edge.signal, signal));
            if edges.is_empty() {
                self.edges.remove(&waiter);
            }
        }
    }

    /// These have settled. Gives where everyone sleeps who waits for one of them. They remove their own edges, for
    /// which they want the lock that this is called under: it is given back before they wake.
    pub(crate) fn settled(&mut self, holders: &[TxnId]) -> Vec<Arc<Signal>> {
        self.rows.settled(holders);
        let edges = self.edges.values().flatten();
        let waiting = edges.filter(|edge| holders.contains(&edge.holder));
        waiting.map(|edge| Arc::clone(&edge.signal)).collect()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        let rows = self.edges.values().map(Vec::len).sum::<usize>();
        rows + self.rows.sleeping() + self.locks.waiting() + self.advisory.waiting()
    }

    /// Whether `to` can be reached from `from` by what must happen.
    fn reaches(&self, from: TxnId, to: TxnId) -> bool {
        let mut pending = vec![from];
        let mut seen = HashSet::new();
        while let Some(at) = pending.pop() {
            if at == to {
                return true;
            }
            if seen.insert(at) {
                pending.extend(self.needed_by(at));
            }
        }
        false
    }

    /// Who must go on for an owner to go on.
    fn needed_by(&self, at: TxnId) -> impl Iterator<Item = TxnId> + '_ {
        let edges = self.edges.get(&at).into_iter().flatten();
        edges
            .map(|edge| edge.owner)
            .chain(self.rows.holders_for(at))
            .chain(self.locks.blockers_of(at))
            .chain(self.advisory.blockers_of(at))
            .chain(self.partners(at))
    }

    /// Opens the circles that the newest wait has closed, which are none of things that must
    /// happen: in each somebody only lets others go first.
    fn let_pass(&mut self, waiter: TxnId) {
        while let Some((row, place)) = self.politeness(waiter) {
            self.rows.let_pass(row, place);
        }
    }

    /// In a circle through this owner a place that lets another go first.
    fn politeness(&self, waiter: TxnId) -> Option<(RowTag, u64)> {
        if self.rows.is_empty() {
            return None;
        }
        let mut pending = vec![(waiter, None)];
        let mut seen = HashSet::new();
        while let Some((at, polite)) = pending.pop() {
            if at == waiter && polite.is_some() {
                return polite;
            }
            if seen.insert(at) {
                let needed = self.needed_by(at).map(|to| (to, polite));
                pending.extend(needed.filter(|(to, polite)| *to != waiter || polite.is_some()));
                let before = self.rows.before(at).into_iter();
                pending.extend(before.map(|(to, edge)| (to, polite.or(Some(edge)))));
            }
        }
        None
    }

    /// A session's transaction, or a transaction's session.
    fn partners(&self, of: TxnId) -> impl Iterator<Item = TxnId> + '_ {
        self.sessions.iter().filter_map(move |(session, at_hand)| {
            // 0 for a session that has begun none.
            let transaction = TxnId(at_hand.load(Ordering::Relaxed));
            if *session == of {
                (transaction.0 != 0).then_some(transaction)
            } else {
                (transaction == of).then_some(*session)
            }
        })
    }
}
