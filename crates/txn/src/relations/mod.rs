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
//! Statements that read and write take weak locks only, which never conflict with each
//! other: they touch neither the table nor the order lock. The stripe is chosen by the
//! owner, so that sessions that use the same relation meet nowhere. It is PostgreSQL's
//! fast path.
//!
//! Why none is missed: who wants a strong lock says so first and then locks each stripe.
//! Who notes a weak one looks for strong ones with the stripe locked. So either the strong
//! one finds the note, or the weak one finds the strong one.
//!
//! Waits are part of the same graph as waits for rows (`wait`), so a circle through both is
//! found.

mod mode;
mod table;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use aerostat_types::TxnId;
use parking_lot::Mutex;

pub use mode::LockMode;
pub use table::LockTag;

pub(crate) use table::LockTable;

use crate::{CancelToken, WaitError, advisory::Hold, txns::TxnManager};

/// More than the processors that such a node has by an order, so that two sessions at work
/// rarely have the same.
const STRIPES: usize = 64;

/// Strong locks are counted by the tag's hash. A relation that shares its place with one
/// that is locked strongly takes the way through the table meanwhile.
const STRONG_SLOTS: usize = 1_024;

/// Weak locks that the table does not know of.
pub(crate) struct FastLocks {
    stripes: Box<[Mutex<Vec<Note>>]>,
    /// Strong locks that are held or wanted.
    strong: Box<[AtomicU32]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Note {
    tag: LockTag,
    owner: TxnId,
    mode: LockMode,
}

impl Default for FastLocks {
    fn default() -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            strong: (0..STRONG_SLOTS).map(|_| AtomicU32::new(0)).collect(),
        }
    }
}

impl FastLocks {
    fn stripe(&self, owner: TxnId) -> &Mutex<Vec<Note>> {
        &self.stripes[owner.0 as usize % STRIPES]
    }

    fn strong(&self, tag: LockTag) -> &AtomicU32 {
        // 2^64 / φ, odd: neighbours are spread over all places.
        let spread = tag.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54;
        &self.strong[spread as usize % STRONG_SLOTS]
    }

    /// Notes a weak lock, if no strong one may be in the way.
    fn note(&self, note: Note) -> bool {
        let mut notes = self.stripe(note.owner).lock();
        // The stripe's mutex orders this behind a strong one that has passed the stripe.
        let free = self.strong(note.tag).load(Ordering::Relaxed) == 0;
        if free {
            notes.push(note);
        }
        free
    }

    /// Takes a note away, if it is still there.
    fn forget(&self, note: Note) -> bool {
        let mut notes = self.stripe(note.owner).lock();
        let found = notes.iter().position(|other| *other == note);
        found.map(|at| notes.swap_remove(at)).is_some()
    }

    /// Every lock that is noted.
    pub(crate) fn each(&self, mut look: impl FnMut(LockTag, TxnId, LockMode)) {
        for stripe in &self.stripes {
            for note in stripe.lock().iter() {
                look(note.tag, note.owner, note.mode);
            }
        }
    }

    /// Moves what is noted of a relation into the table. The caller has said that it
    /// wants a strong lock.
    fn hand_over(&self, tag: LockTag, table: &mut LockTable) {
        for stripe in &self.stripes {
            stripe.lock().retain(|note| {
                if note.tag == tag {
                    table.hold(tag, note.owner, note.mode);
                }
                note.tag != tag
            });
        }
    }
}

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
    advisory: Vec<Hold>,
}

/// A moment in an owner's life, to give back the locks taken since then: how many there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LockMark {
    relations: usize,
    advisory: usize,
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
        if self.holds(tag, mode) || self.take_fast(tag, mode) {
            return Ok(());
        }
        self.announce(tag, mode);
        let result = self.acquire_slowly(tag, mode, cancel, timeout);
        match result {
            Ok(()) => self.held.lock().relations.push((tag, mode)),
            Err(_) => self.renounce(tag, mode),
        }
        result
    }

    fn acquire_slowly(
        &self,
        tag: LockTag,
        mode: LockMode,
        cancel: &CancelToken,
        timeout: Option<Duration>,
    ) -> Result<(), WaitError> {
        let owner = self.owner;
        let waiting = self.txns.with_locks(|graph| {
            self.hand_over(tag, mode, &mut graph.locks);
            graph.request(tag, owner, mode)
        })?;
        let Some(signal) = waiting else {
            return Ok(());
        };
        // A timeout beyond the clock's end is none.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        cancel.attach(&signal);
        let result = signal.sleep(deadline);
        cancel.detach(&signal);
        if result.is_err() {
            self.txns
                .with_locks(|graph| graph.locks.give_up(tag, owner, mode, &signal));
        }
        result
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
    pub(crate) fn keep(&self, hold: Hold) {
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
            strong.fetch_sub(1, Ordering::Relaxed);
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

impl fmt::Debug for RelationLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelationLocks")
            .field("owner", &self.owner)
            .field("held", &self.held.lock().relations)
            .finish_non_exhaustive()
    }
}
