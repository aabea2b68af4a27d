//! Waiting for another transaction to end, and finding circles of waits.
//!
//! The wait-for graph has one edge per waiting thread, waiter → holder. A circle
//! can only close with the newest edge, so the newcomer searches from its holder
//! for itself before it waits, and gives up if it finds a way: the others go on.
//!
//! A statement of a block is waited for until it is undone or its block has ended, but
//! what holds the others up is the block: the nodes of the graph are *owners*, a
//! statement's block or a transaction itself.
//!
//! Who waits for a lock on a relation waits for several at once. Those edges are not kept
//! here but follow from the table of locks (`relations`).

use std::{collections::HashMap, sync::Arc, time::Instant};

use aerostat_types::TxnId;
use parking_lot::{Condvar, Mutex};
use thiserror::Error;

use crate::{LockMode, LockTag, relations::LockTable};

/// Why a wait ended without the holder's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WaitError {
    /// The holder waits, directly or through others, for the waiter.
    #[error("deadlock detected")]
    Deadlock,
    /// The waiter's token was cancelled.
    #[error("canceled while waiting for another transaction")]
    Cancelled,
    /// It took longer than the waiter's lock timeout.
    #[error("waited too long for another transaction")]
    TimedOut,
}

/// Where one thread sleeps.
#[derive(Default)]
pub(crate) struct Signal {
    result: Mutex<Option<Result<(), WaitError>>>,
    changed: Condvar,
}

impl Signal {
    /// The holder has ended.
    pub(crate) fn complete(&self) {
        self.set(Ok(()));
    }

    /// The waiter was cancelled.
    pub(crate) fn interrupt(&self) {
        self.set(Err(WaitError::Cancelled));
    }

    /// The first result stands.
    fn set(&self, result: Result<(), WaitError>) {
        self.result.lock().get_or_insert(result);
        self.changed.notify_all();
    }

    /// Until the deadline, if there is one.
    pub(crate) fn sleep(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        let mut result = self.result.lock();
        loop {
            if let Some(result) = *result {
                return result;
            }
            match deadline {
                None => self.changed.wait(&mut result),
                Some(deadline) => {
                    if self.changed.wait_until(&mut result, deadline).timed_out() {
                        return result.unwrap_or(Err(WaitError::TimedOut));
                    }
                }
            }
        }
    }
}

/// The wait-for graph, guarded by the transactions' mutex.
#[derive(Default)]
pub(crate) struct WaitGraph {
    edges: HashMap<TxnId, Vec<Edge>>,
    pub(crate) locks: LockTable,
}

struct Edge {
    /// Whose end is waited for.
    holder: TxnId,
    /// Who must go on for that.
    owner: TxnId,
    signal: Arc<Signal>,
}

impl WaitGraph {
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
        let signal = Arc::new(Signal::default());
        self.edges.entry(waiter).or_default().push(Edge {
            holder,
            owner,
            signal: Arc::clone(&signal),
        });
        Ok(signal)
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
        if blockers.iter().any(|blocker| self.reaches(*blocker, owner)) {
            return Err(WaitError::Deadlock);
        }
        Ok(Some(self.locks.enqueue(tag, owner, mode)))
    }

    pub(crate) fn remove(&mut self, waiter: TxnId, signal: &Arc<Signal>) {
        if let Some(edges) = self.edges.get_mut(&waiter) {
            edges.retain(|edge| !Arc::ptr_eq(&edge.signal, signal));
            if edges.is_empty() {
                self.edges.remove(&waiter);
            }
        }
    }

    /// Wakes everyone who waits for `holder`. They remove their own edges.
    pub(crate) fn wake(&self, holder: TxnId) {
        for edge in self.edges.values().flatten() {
            if edge.holder == holder {
                edge.signal.complete();
            }
        }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.edges.values().map(Vec::len).sum::<usize>() + self.locks.waiting()
    }

    /// Whether `to` can be reached from `from`.
    fn reaches(&self, from: TxnId, to: TxnId) -> bool {
        let mut pending = vec![from];
        let mut seen = Vec::new();
        while let Some(at) = pending.pop() {
            if at == to {
                return true;
            }
            if !seen.contains(&at) {
                seen.push(at);
                pending.extend(
                    self.edges
                        .get(&at)
                        .into_iter()
                        .flatten()
                        .map(|edge| edge.owner),
                );
                pending.extend(self.locks.blockers_of(at));
            }
        }
        false
    }
}
