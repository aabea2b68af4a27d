//! Who has which locks, and who waits for them in which order. No threads here.
//!
//! A relation's queue is fair: a request waits for those before it that it conflicts
//! with, not only for holders, so that a strong one is not passed by weak ones for ever.
//! But who holds a lock goes before the first that waits for that very lock, for it would
//! wait for itself behind it.
//!
//! What somebody waits for follows from holders and queue at any time, so the circles that
//! `wait` looks for need no edges to be kept up.

use std::{collections::HashMap, sync::Arc};

use aerostat_types::TxnId;

use super::mode::{LockMode, Modes};
use crate::wait::Signal;

/// What a lock is on: a number that the tenant's users of locks agree on, such as a
/// relation's OID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockTag(pub u64);

/// The locks of a tenant but those that stripes note.
#[derive(Default)]
pub(crate) struct LockTable {
    relations: HashMap<LockTag, Relation>,
}

#[derive(Default)]
struct Relation {
    holders: Vec<(TxnId, Modes)>,
    /// Who comes first is served first.
    queue: Vec<Waiter>,
}

struct Waiter {
    owner: TxnId,
    mode: LockMode,
    signal: Arc<Signal>,
}

impl LockTable {
    /// Who keeps a new request waiting.
    pub(crate) fn blockers(&self, tag: LockTag, owner: TxnId, mode: LockMode) -> Vec<TxnId> {
        self.relations.get(&tag).map_or_else(Vec::new, |relation| {
            let position = relation.position(owner);
            relation.blockers(owner, mode, position).collect()
        })
    }

    /// Whom an owner waits for.
    pub(crate) fn blockers_of(&self, owner: TxnId) -> Vec<TxnId> {
        let mut found = Vec::new();
        for relation in self.relations.values() {
            for (position, waiter) in relation.queue.iter().enumerate() {
                if waiter.owner == owner {
                    found.extend(relation.blockers(owner, waiter.mode, position));
                }
            }
        }
        found
    }

    /// Gives a lock that nobody is in the way of.
    pub(crate) fn hold(&mut self, tag: LockTag, owner: TxnId, mode: LockMode) {
        self.relations.entry(tag).or_default().hold(owner, mode);
    }

    /// Makes a request wait.
    pub(crate) fn enqueue(&mut self, tag: LockTag, owner: TxnId, mode: LockMode) -> Arc<Signal> {
        let relation = self.relations.entry(tag).or_default();
        let signal = Arc::new(Signal::default());
        let waiter = Waiter {
            owner,
            mode,
            signal: Arc::clone(&signal),
        };
        relation.queue.insert(relation.position(owner), waiter);
        signal
    }

    /// Ends a wait that was given up. The lock may have been granted a moment ago: then it
    /// is given back.
    pub(crate) fn give_up(
        &mut self,
        tag: LockTag,
        owner: TxnId,
        mode: LockMode,
        signal: &Arc<Signal>,
    ) {
        let Some(relation) = self.relations.get_mut(&tag) else {
            return;
        };
        let waiting = relation.queue.len();
        relation
            .queue
            .retain(|waiter| !Arc::ptr_eq(&waiter.signal, signal));
        if relation.queue.len() == waiting {
            self.release(tag, owner, mode);
        } else {
            self.serve(tag);
        }
    }

    /// Takes a lock back.
    pub(crate) fn release(&mut self, tag: LockTag, owner: TxnId, mode: LockMode) {
        if let Some(relation) = self.relations.get_mut(&tag) {
            relation.release(owner, mode);
            self.serve(tag);
        }
    }

    /// Whether the owner has the very lock.
    #[cfg(test)]
    pub(crate) fn holds(&self, tag: LockTag, owner: TxnId, mode: LockMode) -> bool {
        let relation = self.relations.get(&tag);
        relation.is_some_and(|relation| relation.held_by(owner).contains(mode))
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.relations
            .values()
            .map(|relation| relation.queue.len())
            .sum()
    }

    /// Whether nobody has or wants anything.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.relations.is_empty()
    }

    fn serve(&mut self, tag: LockTag) {
        if let Some(relation) = self.relations.get_mut(&tag) {
            relation.serve();
            if relation.holders.is_empty() && relation.queue.is_empty() {
                self.relations.remove(&tag);
            }
        }
    }
}

impl Relation {
    fn held_by(&self, owner: TxnId) -> Modes {
        let held = self.holders.iter().find(|(holder, _)| *holder == owner);
        held.map_or_else(Modes::default, |(_, modes)| *modes)
    }

    fn hold(&mut self, owner: TxnId, mode: LockMode) {
        match self.holders.iter_mut().find(|(holder, _)| *holder == owner) {
            Some((_, modes)) => modes.insert(mode),
            None => {
                let mut modes = Modes::default();
                modes.insert(mode);
                self.holders.push((owner, modes));
            }
        }
    }

    fn release(&mut self, owner: TxnId, mode: LockMode) {
        for (_, modes) in self
            .holders
            .iter_mut()
            .filter(|(holder, _)| *holder == owner)
        {
            debug_assert!(modes.contains(mode), "a lock is given back once");
            modes.remove(mode);
        }
        self.holders.retain(|(_, modes)| !modes.is_empty());
    }

    /// Where a new request of the owner stands in the queue.
    fn position(&self, owner: TxnId) -> usize {
        let held = self.held_by(owner);
        let waits_for_it = |waiter: &Waiter| held.conflict_with(waiter.mode);
        let first = self.queue.iter().position(waits_for_it);
        first.unwrap_or(self.queue.len())
    }

    /// Who is in the way of a request at this position.
    fn blockers(
        &self,
        owner: TxnId,
        mode: LockMode,
        position: usize,
    ) -> impl Iterator<Item = TxnId> + '_ {
        let holders = self
            .holders
            .iter()
            .filter(move |(holder, modes)| *holder != owner && modes.conflict_with(mode))
            .map(|(holder, _)| *holder);
        let before = self.queue[..position]
            .iter()
            .filter(move |waiter| waiter.owner != owner && waiter.mode.conflicts_with(mode))
            .map(|waiter| waiter.owner);
        holders.chain(before)
    }

    /// Grants what nobody is in the way of any more, in the order of the queue.
    fn serve(&mut self) {
        let mut at = 0;
        while let Some(waiter) = self.queue.get(at) {
            let (owner, mode) = (waiter.owner, waiter.mode);
            if self.blockers(owner, mode, at).next().is_some() {
                at += 1;
                continue;
            }
            let served = self.queue.remove(at);
            self.hold(owner, mode);
            served.signal.complete();
        }
    }
}
