//! The kinds of anomalies, cycles and edges, and their names.

use std::fmt;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A value was appended to a list twice: the history cannot be checked for it.
    NotUnique,
    /// A value was read that nobody appended.
    UnknownValue,
    /// A list had a value twice.
    Duplicate,
    /// Of two reads of a list none is the beginning of the other.
    IncompatibleOrder,
    /// A value was read that a failed transaction had appended.
    G1a,
    /// A list was read as it was in the middle of a transaction of another.
    G1b,
    /// What a transaction appended to a list is not together in it, or not in its order.
    Torn,
    /// A transaction did not read what it had appended itself, or read what it appended later.
    Internal,
    /// A transaction read a list twice, and somebody else had appended in between.
    NonRepeatable,
    /// A transaction was committed that had appended behind what a failed one had appended.
    DirtyUpdate,
    /// Two transactions read the same list and appended to it, and both were committed.
    LostUpdate,
    /// What was acknowledged, or had been read, is not there when all is over.
    LostAppend,
    /// A cycle of transactions each of which comes before the next.
    Cycle(Class, Via),
}

/// Kinds of cycles, by their edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Only ww.
    G0,
    /// ww and wr.
    G1c,
    /// One rw.
    GSingle,
    /// Several rw, never two in a row.
    GNonadjacent,
    /// Two rw in a row, such as write skew.
    G2Item,
}

/// What order a cycle needs beside what was read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Via {
    /// None.
    Data,
    /// That of processes.
    Process,
    /// That of real time.
    RealTime,
}

/// Why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgeKind {
    /// The other appended behind what this had appended.
    Ww,
    /// The other read what this had appended.
    Wr,
    /// This did not read what the other appended next.
    Rw,
    /// Both are of one process.
    Process,
    /// This had completed before the other was invoked.
    RealTime,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotUnique => "value appended twice",
            Self::UnknownValue => "unknown value",
            Self::Duplicate => "duplicate",
            Self::IncompatibleOrder => "incompatible order",
            Self::G1a => "G1a, aborted read",
            Self::G1b => "G1b, intermediate read",
            Self::Torn => "torn transaction",
            Self::Internal => "internal inconsistency",
            Self::NonRepeatable => "non-repeatable read",
            Self::DirtyUpdate => "dirty update",
            Self::LostUpdate => "lost update",
            Self::LostAppend => "lost append",
            Self::Cycle(class, via) => return write!(f, "{class}{via}"),
        })
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::G0 => "G0",
            Self::G1c => "G1c",
            Self::GSingle => "G-single",
            Self::GNonadjacent => "G-nonadjacent",
            Self::G2Item => "G2-item",
        })
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "",
            Self::Process => "-process",
            Self::RealTime => "-realtime",
        })
    }
}

impl fmt::Display for EdgeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ww => "ww",
            Self::Wr => "wr",
            Self::Rw => "rw",
            Self::Process => "process",
            Self::RealTime => "real time",
        })
    }
}
