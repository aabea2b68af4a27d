//! The modes of relation locks, and which of them conflict, as in PostgreSQL.

use std::fmt;

/// How a relation is locked. Each mode is that of PostgreSQL's table "Conflicting Lock
/// Modes", from the weakest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LockMode {
    /// To read.
    AccessShare,
    /// To lock rows.
    RowShare,
    /// To write rows.
    RowExclusive,
    /// To do what may be done beside writers, but once at a time.
    ShareUpdateExclusive,
    /// To keep rows as they are.
    Share,
    /// That, once at a time.
    ShareRowExclusive,
    /// To leave others nothing but reading.
    Exclusive,
    /// To leave others nothing.
    AccessExclusive,
}

impl LockMode {
    /// From the weakest to the strongest.
    pub const ALL: [LockMode; 8] = [
        LockMode::AccessShare,
        LockMode::RowShare,
        LockMode::RowExclusive,
        LockMode::ShareUpdateExclusive,
        LockMode::Share,
        LockMode::ShareRowExclusive,
        LockMode::Exclusive,
        LockMode::AccessExclusive,
    ];

    /// Whether two transactions cannot have a relation in these modes at once.
    pub const fn conflicts_with(self, other: LockMode) -> bool {
        self.conflicts() & other.bit() != 0
    }

    /// Whether who has this mode needs nothing more for the other.
    pub const fn covers(self, other: LockMode) -> bool {
        other.conflicts() & !self.conflicts() == 0
    }

    /// Whether it conflicts with no mode that is weak, too. Nearly all locks are.
    pub(crate) const fn is_weak(self) -> bool {
        matches!(
            self,
            LockMode::AccessShare | LockMode::RowShare | LockMode::RowExclusive
        )
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// The modes that this one conflicts with, a bit each.
    const fn conflicts(self) -> u8 {
        // Of the bits, the lowest is that of ACCESS SHARE.
        match self {
            LockMode::AccessShare => 0b1000_0000,
            LockMode::RowShare => 0b1100_0000,
            LockMode::RowExclusive => 0b1111_0000,
            LockMode::ShareUpdateExclusive => 0b1111_1000,
            LockMode::Share => 0b1110_1100,
            LockMode::ShareRowExclusive => 0b1111_1100,
            LockMode::Exclusive => 0b1111_1110,
            LockMode::AccessExclusive => 0b1111_1111,
        }
    }
}

impl fmt::Display for LockMode {
    /// As LOCK TABLE has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LockMode::AccessShare => "ACCESS SHARE",
            LockMode::RowShare => "ROW SHARE",
            LockMode::RowExclusive => "ROW EXCLUSIVE",
            LockMode::ShareUpdateExclusive => "SHARE UPDATE EXCLUSIVE",
            LockMode::Share => "SHARE",
            LockMode::ShareRowExclusive => "SHARE ROW EXCLUSIVE",
            LockMode::Exclusive => "EXCLUSIVE",
            LockMode::AccessExclusive => "ACCESS EXCLUSIVE",
        })
    }
}

/// Several modes of one transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modes(u8);

impl Modes {
    pub(crate) fn insert(&mut self, mode: LockMode) {
        self.0 |= mode.bit();
    }

    pub(crate) fn remove(&mut self, mode: LockMode) {
        self.0 &= !mode.bit();
    }

    pub(crate) fn contains(self, mode: LockMode) -> bool {
        self.0 & mode.bit() != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn conflict_with(self, mode: LockMode) -> bool {
        self.0 & mode.conflicts() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PostgreSQL 15, table 13.2: a line per requested mode, an X where a mode that is
    /// held is in the way.
    const MATRIX: [&str; 8] = [
        ".......X", "......XX", "....XXXX", "...XXXXX", "..XX.XXX", "..XXXXXX", ".XXXXXXX",
        "XXXXXXXX",
    ];

    #[test]
    fn modes_conflict_as_in_postgresql() {
        for (wanted, line) in LockMode::ALL.into_iter().zip(MATRIX) {
            for (held, cell) in LockMode::ALL.into_iter().zip(line.chars()) {
                assert_eq!(
                    wanted.conflicts_with(held),
                    cell == 'X',
                    "{wanted} beside {held}"
                );
            }
        }
    }

    #[test]
    fn a_mode_covers_those_that_exclude_no_more() {
        for a in LockMode::ALL {
            for b in LockMode::ALL {
                let covers = LockMode::ALL
                    .into_iter()
                    .all(|other| !b.conflicts_with(other) || a.conflicts_with(other));
                assert_eq!(a.covers(b), covers, "{a} and {b}");
            }
        }
        let weak: Vec<LockMode> = LockMode::ALL.into_iter().filter(|m| m.is_weak()).collect();
        for a in &weak {
            assert!(weak.iter().all(|b| !a.conflicts_with(*b)));
        }
    }
}
