//! Holders of locks and queues of waiters, in order. No threads here.
//!
//! An object's queue is fair: a request waits for the conflicting requests before it, not only
//! for holders, so that weak ones do not pass a strong one for ever. But a holder goes before the
//! first request that waits for that holder's own lock, or it would wait for itself.
//!
//! A request's obstacles follow from holders and queue at any time, so the circles that `wait`
//! looks for need no stored edges.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    sync::Arc,
    time::SystemTime,
};

use aerostat_types::TxnId;

use super::mode::{LockMode, Modes};
use crate::signal::Signal;

/// What a lock is on: a number that the tenant's users of locks agree on, such as a
/// relation's OID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockTag(pub u64);

/// The locks of a tenant of one kind, by what they are on: those on relations and names, but
/// for those that stripes note, or advisory ones.
pub(crate) struct LockTable<K = LockTag> {
    objects: HashMap<K, Object>,
    /// Those that somebody waits for.
    contended: HashSet<K>,
}

impl<K> Default for LockTable<K> {
    fn default() -> Self {
        Self {
            objects: HashMap::new(),
            contended: HashSet::new(),
        }
    }
}

/// Who has an object, and who waits for it.
#[derive(Default)]
struct Object {
    holders: Vec<(TxnId, Modes)>,
    /// Who comes first is served first.
    queue: Vec<Waiter>,
}

struct Waiter {
    owner: TxnId,
    mode: LockMode,
    signal: Arc<Signal>,
}

impl<K: Copy + Eq + Hash> LockTable<K> {
    /// Who keeps a new request waiting.
    pub(crate) fn blockers(&self, tag: K, owner: TxnId, mode: LockMode) -> Vec<TxnId> {
        self.objects.get(&tag).map_or_else(Vec::new, |object| {
            let position = object.position(owner);
            object.blockers(owner, mode, position).collect()
        })
    }

    /// Whom an owner waits for.
    pub(crate) fn blockers_of(&self, owner: TxnId) -> Vec<TxnId> {
        let mut found = Vec::new();
        for object in self.contended.iter().map(|tag| &self.objects[tag]) {
            for (position, waiter) in object.queue.iter().enumerate() {
                if waiter.owner == owner {
                    found.extend(object.blockers(owner, waiter.mode, position));
                }
            }
        }
        found
    }

    /// Gives a lock that nobody is in the way of.
    pub(crate) fn hold(&mut self, tag: K, owner: TxnId, mode: LockMode) {
        self.objects.entry(tag).or_default().hold(owner, mode);
    }

    /// Makes a request wait from now on.
    pub(crate) fn enqueue(
        &mut self,
        tag: K,
        owner: TxnId,
        mode: LockMode,
        now: SystemTime,
    ) -> Arc<Signal> {
        let object = self.objects.entry(tag).or_default();
        let signal = Arc::new(Signal::new(now));
        let waiter = Waiter {
            owner,
            mode,
            signal: Arc::clone(&signal),
        };
        object.queue.insert(object.position(owner), waiter);
        self.contended.insert(tag);
        signal
    }

    /// Ends a wait that was given up. The lock may have been granted a moment ago: then it
    /// is given back.
    pub(crate) fn give_up(&mut self, tag: K, owner: TxnId, mode: LockMode, signal: &Arc<Signal>) {
        if !self.withdraw(tag, signal) {
            self.release(tag, owner, mode);
        }
    }

    /// Takes a request out of the queue; `false` if it was granted a moment ago.
    pub(crate) fn withdraw(&mut self, tag: K, signal: &Arc<Signal>) -> bool {
        let Some(object) = self.objects.get_mut(&tag) else {
            return false;
        };
        let waiting = object.queue.len();
        object
            .queue
            .retain(|waiter| !Arc::ptr_eq(&waiter.signal, signal));
        let was_waiting = object.queue.len() < waiting;
        if was_waiting {
            self.serve(tag);
        }
        was_waiting
    }

    /// Takes a lock back.
    pub(crate) fn release(&mut self, tag: K, owner: TxnId, mode: LockMode) {
        if let Some(object) = self.objects.get_mut(&tag) {
            object.release(owner, mode);
            self.serve(tag);
        }
    }

    /// Whether the owner has the very lock.
    pub(crate) fn holds(&self, tag: K, owner: TxnId, mode: LockMode) -> bool {
        let object = self.objects.get(&tag);
        object.is_some_and(|object| object.held_by(owner).contains(mode))
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        let queues = self.contended.iter().map(|tag| &self.objects[tag].queue);
        queues.map(Vec::len).sum()
    }

    /// Whether somebody has or wants the object.
    pub(crate) fn knows(&self, tag: K) -> bool {
        self.objects.contains_key(&tag)
    }

    /// How many objects somebody has or wants.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether nobody has or wants anything.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.contended.is_empty()
    }

    /// Every lock: its object, owner and mode, and since when its owner waits for it.
    pub(crate) fn each(&self, mut look: impl FnMut(K, TxnId, LockMode, Option<SystemTime>)) {
        for (tag, object) in &self.objects {
            for (owner, modes) in &object.holders {
                for mode in LockMode::ALL
                    .into_iter()
                    .filter(|mode| modes.contains(*mode))
                {
                    look(*tag, *owner, mode, None);
                }
            }
            for waiter in &object.queue {
                look(*tag, waiter.owner, waiter.mode, Some(waiter.signal.since()));
            }
        }
    }

    fn serve(&mut self, tag: K) {
        if let Some(object) = self.objects.get_mut(&tag) {
            object.serve();
            if object.queue.is_empty() {
                self.contended.remove(&tag);
                if object.holders.is_empty() {
                    self.objects.remove(&tag);
                }
            }
        }
    }
}

impl Object {
    fn held_by(&self, owner: TxnId) -> Modes {
        let held = self.holders.iter().find(|(holder, _)| *holder == owner);
        held.map_or_else(Modes::default, |(_, modes)| *modes)
    }

    fn hold(&mut self, owner: TxnId, mode: LockMode) {
        debug_assert!(
            self.holders
                .iter()
                .all(|(holder, modes)| *holder == owner || !modes.conflict_with(mode)),
            "no two hold locks that exclude each other"
        );
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
