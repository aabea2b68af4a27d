//! The meaning of the numbers that row versions are stamped with.
//!
//! Segments store them as plain `u64`s; storage asserts that both crates agree
//! on the constants.

use aerostat_types::{CommitTs, TxnId};

/// Set in the stamp of a transaction that has not ended; the other bits are its id.
pub const TXN_BIT: u64 = 1 << 63;

/// The end stamp of a version that nobody has ended. Greater than every commit timestamp.
pub const END_NONE: u64 = u64::MAX >> 1;

/// The begin stamp of a version whose transaction was rolled back. Greater than
/// every commit timestamp, so a comparison alone hides the version.
pub const ABORTED: u64 = END_NONE - 1;

/// A stamp, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// A transaction that committed at this point, or one of the constants above,
    /// which compare as later than every commit.
    At(CommitTs),
    /// A transaction that had not ended when the stamp was written.
    By(TxnId),
}

impl Stamp {
    /// Takes a raw stamp apart.
    pub const fn of(raw: u64) -> Stamp {
        if raw & TXN_BIT == 0 {
            Stamp::At(CommitTs(raw))
        } else {
            Stamp::By(TxnId(raw & !TXN_BIT))
        }
    }

    /// The raw form.
    pub const fn raw(self) -> u64 {
        match self {
            Stamp::At(ts) => ts.0,
            Stamp::By(id) => id.0 | TXN_BIT,
        }
    }
}
