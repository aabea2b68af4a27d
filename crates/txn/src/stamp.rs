//! The meaning of the numbers with which row versions are stamped.
//!
//! ```text
//!  bits 63 62
//!        0  0   a commit timestamp
//!        0  1   an end: a set of row locks, else the constants at the top
//!        1  0   a transaction that has not ended
//!        1  1   an end: such a transaction, and the row lives on under the same key
//! ```
//!
//! A lock is above every commit timestamp, so the comparison that readers make anyway shows them
//! a row that has not ended. Segments store stamps as plain `u64`s; storage asserts that both
//! crates agree on the constants.

use aerostat_types::{CommitTs, TxnId};

use crate::LockSetId;

/// Set in the stamp of a transaction that has not ended; the lower 62 bits are its id.
pub const TXN_BIT: u64 = 1 << 63;

/// Beside [`TXN_BIT`] in an end stamp: the transaction has put another version with the same
/// key in the row's place. Without it: a set of row locks.
const KEEPS_KEY_BIT: u64 = 1 << 62;
const LOCK_BIT: u64 = 1 << 62;
/// No commit has such a place, and no transaction such an id.
pub(crate) const COMMITS_END: u64 = LOCK_BIT;

/// The end stamp of a version that nobody has ended. Greater than every commit timestamp.
pub const END_NONE: u64 = u64::MAX >> 1;

/// The begin stamp of a version whose transaction was rolled back. Greater than
/// every commit timestamp, so a comparison alone hides the version.
pub const ABORTED: u64 = END_NONE - 1;

/// From here on constants, of segments too; far above every set of locks.
const CONSTANTS: u64 = END_NONE - 7;

/// A stamp, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// A transaction that committed at this point, or one of the constants above,
    /// which compare as later than every commit.
    At(CommitTs),
    /// A transaction that had not ended when the stamp was written.
    By(TxnId),
    /// Nobody has ended the version, but these locks were taken. They may be gone.
    Locked(LockSetId),
}

impl Stamp {
    /// Takes a raw stamp apart.
    pub const fn of(raw: u64) -> Stamp {
        if raw & TXN_BIT != 0 {
            Stamp::By(TxnId(raw & !(TXN_BIT | KEEPS_KEY_BIT)))
        } else if raw & LOCK_BIT == 0 || raw >= CONSTANTS {
            Stamp::At(CommitTs(raw))
        } else {
            Stamp::Locked(LockSetId(raw & !LOCK_BIT))
        }
    }

    /// The raw form.
    pub const fn raw(self) -> u64 {
        match self {
            Stamp::At(ts) => ts.0,
            Stamp::By(id) => {
                debug_assert!(id.0 < COMMITS_END, "an id leaves the stamp's upper bits");
                id.0 | TXN_BIT
            }
            Stamp::Locked(set) => set.0 | LOCK_BIT,
        }
    }

    /// The end stamp of a version that the transaction replaces by one with the same key.
    pub const fn superseded_by(id: TxnId) -> u64 {
        id.0 | TXN_BIT | KEEPS_KEY_BIT
    }

    /// Whether an unfinished transaction's end stamp says so.
    pub const fn keeps_key(raw: u64) -> bool {
        raw & (TXN_BIT | KEEPS_KEY_BIT) == TXN_BIT | KEEPS_KEY_BIT
    }

    /// Whether an end stamp says that the version has ended for good.
    pub fn has_ended(raw: u64) -> bool {
        raw != END_NONE && matches!(Stamp::of(raw), Stamp::At(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_taken_apart_and_put_together() {
        for stamp in [
            Stamp::At(CommitTs(0)),
            Stamp::At(CommitTs((1 << 62) - 1)),
            Stamp::At(CommitTs(END_NONE)),
            Stamp::At(CommitTs(ABORTED)),
            Stamp::By(TxnId(7)),
            Stamp::Locked(LockSetId(1)),
            Stamp::Locked(LockSetId(1 << 60)),
        ] {
            assert_eq!(Stamp::of(stamp.raw()), stamp);
            assert!(!Stamp::keeps_key(stamp.raw()));
        }
        let superseded = Stamp::superseded_by(TxnId(7));
        assert_eq!(Stamp::of(superseded), Stamp::By(TxnId(7)));
        assert!(Stamp::keeps_key(superseded));
        let locked = Stamp::Locked(LockSetId(3)).raw();
        assert!(
            locked > (1 << 62) - 1 && locked < ABORTED,
            "after every commit"
        );
        let ended = [5, 1 << 61].map(Stamp::has_ended);
        let not_ended = [END_NONE, locked, superseded, 7 | TXN_BIT].map(Stamp::has_ended);
        assert_eq!((ended, not_ended), ([true; 2], [false; 4]));
    }
}
