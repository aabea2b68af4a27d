//! Version stamps: the two numbers that say from when to when a row is valid.
//!
//! ```text
//! 0 … 2^62−1          a commit timestamp
//! 2^62 … 2^63−1       of an end: a set of row locks; the topmost are the constants below
//! 2^63 …              bit 63 set: the transaction (low 62 bits) that has not been resolved yet;
//!                     of an end, bit 62 says that the row lives on under its key
//! ```
//!
//! Only the raw numbers are defined here; the transaction layer decides who sees what. The
//! constants are chosen so that plain comparison does the right thing: `END_NONE` and `ABORTED`
//! are above every commit timestamp.

/// Set in the stamp of a transaction, clear in a commit timestamp.
pub const TXN_BIT: u64 = 1 << 63;

/// The end of a row that has not ended.
pub const END_NONE: u64 = u64::MAX >> 1;

/// The begin of a row whose transaction was rolled back: after every snapshot.
pub const ABORTED: u64 = END_NONE - 1;

/// In a version block's header: the rows differ, see the array. Never a stamp.
pub(crate) const VARIES: u64 = END_NONE - 2;

/// The stamp of a transaction that has not ended.
pub const fn of_txn(id: u64) -> u64 {
    id | TXN_BIT
}

/// The transaction that a stamp names; `None` when it is a commit timestamp or a constant.
pub const fn txn(stamp: u64) -> Option<u64> {
    if stamp & TXN_BIT != 0 {
        Some(stamp & !TXN_BIT)
    } else {
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn constants_are_after_every_commit_and_name_no_transaction() {
        let last_commit = (1 << 62) - 1;
        for constant in [END_NONE, ABORTED, VARIES] {
            assert!(constant > last_commit);
            assert_eq!(txn(constant), None);
        }
        assert_eq!(txn(of_txn(7)), Some(7));
        assert_eq!(txn(7), None);
    }
}
