//! Weak locks, noted outside the table: PostgreSQL's fast path.
//!
//! Statements that read and write take weak locks only (ACCESS SHARE, ROW SHARE, ROW EXCLUSIVE),
//! which never conflict with each other: they touch neither the table nor the order lock. The
//! owner chooses the stripe, so sessions that use the same relation do not contend.
//!
//! Why none is missed: a transaction that wants a strong lock announces it first and then locks
//! each stripe. A transaction that notes a weak one checks for strong ones with the stripe
//! locked. So either the strong one finds the note, or the weak one finds the strong one.
//!
//! Why what was done under a strong lock is seen under a weak one after it: a strong lock that is
//! given back leaves the count with Release, and a transaction that notes a weak one reads the
//! count with Acquire. The other way round the stripe's mutex orders them.

use aerostat_sync::{AtomicU32, Mutex, Ordering};
use aerostat_types::TxnId;

use super::{
    mode::LockMode,
    table::{LockTable, LockTag},
};

/// More than the processors that such a node has by an order, so that two sessions at work
/// rarely have the same.
#[cfg(not(loom))]
const STRIPES: usize = 64;
/// In models each costs time.
#[cfg(loom)]
const STRIPES: usize = 2;

/// Strong locks are counted by the tag's hash. A relation that shares its place with one
/// that is locked strongly takes the way through the table meanwhile.
#[cfg(not(loom))]
const STRONG_SLOTS: usize = 1_024;
#[cfg(loom)]
const STRONG_SLOTS: usize = 2;

/// Weak locks that the table does not know of.
pub(crate) struct FastLocks {
    stripes: Box<[Mutex<Vec<Note>>]>,
    /// Strong locks that are held or wanted.
    strong: Box<[AtomicU32]>,
}

/// A weak lock that an owner has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) tag: LockTag,
    pub(crate) owner: TxnId,
    pub(crate) mode: LockMode,
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

    /// How many strong locks of the relation are held or wanted.
    pub(crate) fn strong(&self, tag: LockTag) -> &AtomicU32 {
        // 2^64 / φ, odd: neighbours are spread over all places.
        let spread = tag.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54;
        &self.strong[spread as usize % STRONG_SLOTS]
    }

    /// Notes a weak lock, if no strong one may be in the way.
    pub(crate) fn note(&self, note: Note) -> bool {
        let mut notes = self.stripe(note.owner).lock();
        // The stripe's mutex orders this behind a strong one that has passed the stripe, Acquire
        // behind what was done under those that are gone.
        let free = self.strong(note.tag).load(Ordering::Acquire) == 0;
        if free {
            notes.push(note);
        }
        free
    }

    /// Takes a note away, if it is still there.
    pub(crate) fn forget(&self, note: Note) -> bool {
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
    pub(crate) fn hand_over(&self, tag: LockTag, table: &mut LockTable) {
        assert!(
            self.strong(tag).load(Ordering::Relaxed) > 0,
            "nobody notes a lock of a relation whose notes are taken over"
        );
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
