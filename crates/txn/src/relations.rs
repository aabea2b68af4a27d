//! The locks of one transaction on relations and names, held to its end.
//!
//! ```text
//!  weak mode (ACCESS SHARE, ROW SHARE, ROW EXCLUSIVE)
//!      own stripe ── nobody strong about? ── yes ─► noted in the stripe: a mutex nobody wants
//!                                         └─ no ──► the table, as a strong one
//!  strong mode
//!      says so ─► takes what the stripes note of the relation into the table ─► table
//! ```
//!
//! Waits are part of the same graph as waits for rows (`wait`), so a circle through both is
//! found.

#[cfg(all(test, not(loom)))]
mod tests;

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use aerostat_sync::{Mutex, Ordering};
use aerostat_types::TxnId;

use crate::{
    CancelToken, LockMode, LockTag, WaitError,
    lock_table::{LockTable, Note},
    signal::Signal,
    txns::TxnManager,
};

/// The locks of one owner: of a [`crate::Block`], of a [`crate::Transaction`], or of a
/// statement that only reads. Given back at the owner's end, or when dropped.
pub struct RelationLocks {
    txns: Arc<TxnManager>,
    owner: TxnId,
    held: Mutex<Held>,
}

/// In the order in which they were taken.
#[derive(Default)]
struct Held {
    relations: Vec<(LockTag, LockMode)>,
    /// Advisory locks that end with the owner. Dropping one gives it back.
    advisory: Vec<Box<dyn Send>>,
}

/// A moment in an owner's life, to give back the locks taken since then: how many there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LockMark {
    relations: usize,
    advisory: usize,
}

impl TxnManager {
    /// No locks yet, for a transaction to come or for who only reads. Locks are taken
    /// before the snapshot: what they waited for is in it.
    pub fn relation_locks(self: &Arc<Self>) -> Arc<RelationLocks> {
        RelationLocks::of(Arc::clone(self), self.take_id())
    }
}

impl RelationLocks {
    pub(crate) fn of(txns: Arc<TxnManager>, owner: TxnId) -> Arc<Self> {
        Arc::new(Self {
            txns,
            owner,
            held: Mutex::default(),
        })
    }

    /// Who holds them.
    pub fn owner(&self) -> TxnId {
        self.owner
    }

    /// Whether others may wait for their owner.
    pub fn hold_some(&self) -> bool {
        let held = self.held.lock();
        !held.relations.is_empty() || !held.advisory.is_empty()
    }

    /// Whether nobody else can get what the mode excludes.
    pub fn holds(&self, tag: LockTag, mode: LockMode) -> bool {
        let held = self.held.lock();
        let mut relations = held.relations.iter();
        relations.any(|(other, stronger)| *other == tag && stronger.covers(mode))
    }

    /// Takes a lock unless somebody is in the way, or waits for one that is. Never sleeps.
    pub fn try_acquire(&self, tag: LockTag, mode: LockMode) -> bool {
        if self.holds(tag, mode) || self.take_fast(tag, mode) {
            return true;
        }
        self.announce(tag, mode);
        let granted = self.txns.with_locks(|graph| {
            self.hand_over(tag, mode, &mut graph.locks);
            let is_free = graph.locks.blockers(tag, self.owner, mode).is_empty();
            if is_free {
                graph.locks.hold(tag, self.owner, mode);
            }
            is_free
        });
        if granted {
            self.held.lock().relations.push((tag, mode));
        } else {
            self.renounce(tag, mode);
        }
        granted
    }

    /// Takes a lock, sleeping until nobody is in the way. The caller holds no latch, and
    /// looks again at what it has locked: it may have changed meanwhile.
    ///
    /// # Errors
    /// [`WaitError::Deadlock`] if somebody in the way waits for this owner,
    /// [`WaitError::Cancelled`] by the token, [`WaitError::TimedOut`] if it takes longer than
    /// `timeout`.
    pub fn acquire(
        &self,
        tag: LockTag,
        mode: LockMode,
        cancel: &CancelToken,
        timeout: Option<Duration>,
    ) -> Result<(), WaitError> {
        let Some(signal) = self.request(tag, mode)? else {
            return Ok(());
        };
        let deadline = self.txns.deadline(timeout);
        cancel.attach(&signal);
        let result = signal.sleep(deadline);
        cancel.detach(&signal);
        self.answered((tag, mode), &signal, result);
        result
    }

    /// As [`Self::acquire`], of a task: `None` if it has the lock. Neither a token nor a time ends the wait; the caller
    /// drops it.
    ///
    /// # Errors
    /// [`WaitError::Deadlock`].
    pub fn acquiring(
        self: &Arc<Self>,
        tag: LockTag,
        mode: LockMode,
    ) -> Result<Option<Acquiring>, WaitError> {
        let asked = self.request(tag, mode)?;
        Ok(asked.map(|signal| Acquiring {
            locks: Arc::clone(self),
            lock: (tag, mode),
            signal: Some(signal),
        }))
    }

    /// Takes a lock, or asks for it: what is given tells when it is granted.
    fn request(&self, tag: LockTag, mode: LockMode) -> Result<Option<Arc<Signal>>, WaitError> {
        if self.holds(tag, mode) || self.take_fast(tag, mode) {
            return Ok(None);
        }
        self.announce(tag, mode);
        let asked = self.txns.with_locks(|graph| {
            self.hand_over(tag, mode, &mut graph.locks);
            graph.request(tag, self.owner, mode)
        });
        match &asked {
            Ok(None) => self.held.lock().relations.push((tag, mode)),
            Ok(Some(_)) => {}
            Err(_) => self.renounce(tag, mode),
        }
        asked
    }

    /// A lock that was asked for is granted, or is not waited for any longer.
    fn answered(
        &self,
        (tag, mode): (LockTag, LockMode),
        signal: &Arc<Signal>,
        result: Result<(), WaitError>,
    ) {
        if result.is_ok() {
            return self.held.lock().relations.push((tag, mode));
        }
        self.txns
            .with_locks(|graph| graph.locks.give_up(tag, self.owner, mode, signal));
        self.renounce(tag, mode);
    }

    /// Gives all back.
    pub fn release_all(&self) {
        self.release_since(LockMark::default());
    }

    pub(crate) fn mark(&self) -> LockMark {
        let held = self.held.lock();
        LockMark {
            relations: held.relations.len(),
            advisory: held.advisory.len(),
        }
    }

    /// Keeps an advisory lock as long as the others.
    pub(crate) fn keep(&self, hold: Box<dyn Send>) {
        self.held.lock().advisory.push(hold);
    }

    /// Gives back what was taken since then.
    pub(crate) fn release_since(&self, mark: LockMark) {
        let (relations, advisory) = {
            let mut held = self.held.lock();
            let relations = mark.relations.min(held.relations.len());
            let advisory = mark.advisory.min(held.advisory.len());
            (
                held.relations.split_off(relations),
                held.advisory.split_off(advisory),
            )
        };
        drop(advisory);
        for (tag, mode) in relations.into_iter().rev() {
            let note = Note {
                tag,
                owner: self.owner,
                mode,
            };
            if mode.is_weak() && self.txns.fast_locks().forget(note) {
                continue;
            }
            self.txns
                .with_locks(|graph| graph.locks.release(tag, self.owner, mode));
            self.renounce(tag, mode);
        }
    }

    fn take_fast(&self, tag: LockTag, mode: LockMode) -> bool {
        let note = Note {
            tag,
            owner: self.owner,
            mode,
        };
        let taken = mode.is_weak() && self.txns.fast_locks().note(note);
        if taken {
            self.held.lock().relations.push((tag, mode));
        }
        taken
    }

    /// From here on nobody notes a weak lock of the relation.
    fn announce(&self, tag: LockTag, mode: LockMode) {
        if !mode.is_weak() {
            let strong = self.txns.fast_locks().strong(tag);
            strong.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn renounce(&self, tag: LockTag, mode: LockMode) {
        if !mode.is_weak() {
            let strong = self.txns.fast_locks().strong(tag);
            // What was done under the lock comes before.
            let before = strong.fetch_sub(1, Ordering::Release);
            assert!(before > 0, "a strong lock is renounced once");
        }
    }

    fn hand_over(&self, tag: LockTag, mode: LockMode, table: &mut LockTable) {
        if !mode.is_weak() {
            self.txns.fast_locks().hand_over(tag, table);
        }
    }
}

impl Drop for RelationLocks {
    fn drop(&mut self) {
        self.release_all();
    }
}

/// A lock that is waited for without a thread. The wait is given up when this is dropped.
#[must_use = "a wait that is dropped is given up"]
pub struct Acquiring {
    locks: Arc<RelationLocks>,
    lock: (LockTag, LockMode),
    /// Until it is known what became of it.
    signal: Option<Arc<Signal>>,
}

impl Future for Acquiring {
    type Output = Result<(), WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(signal) = self.signal.clone() else {
            return Poll::Pending;
        };
        let polled = signal.poll(context);
        if let Poll::Ready(result) = polled {
            self.signal = None;
            self.locks.answered(self.lock, &signal, result);
        }
        polled
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        if let Some(signal) = self.signal.take() {
            let given_up = Err(WaitError::Cancelled);
            self.locks.answered(self.lock, &signal, given_up);
        }
    }
}

impl fmt::Debug for RelationLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelationLocks")
            .field("owner", &self.owner)
            .field("held", &self.held.lock().relations)
            .finish_non_exhaustive()
    }
}
