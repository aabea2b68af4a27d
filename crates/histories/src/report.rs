//! What was found: anomalies with their witnesses, in words.

use std::collections::BTreeMap;
use std::fmt;

use crate::model::Model;
use crate::versions::Versions;

/// How many anomalies of one kind a report describes; it counts all.
const DESCRIBED_MAX: usize = 8;

/// A transaction by its line in the history, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionId(pub usize);

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

/// An edge of a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// From which transaction.
    pub from: TransactionId,
    /// To which.
    pub to: TransactionId,
    /// Of which kind.
    pub kind: EdgeKind,
    /// Why, in words.
    pub reason: String,
}

/// An anomaly and what shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// What is wrong.
    pub kind: Kind,
    /// The transactions that show it; those of a cycle in its order.
    pub transactions: Vec<TransactionId>,
    /// The edges of a cycle.
    pub steps: Vec<Step>,
    /// What is wrong, in words.
    pub text: String,
}

/// What was found in a history.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was asked.
    pub model: Model,
    /// What the model forbids; of each kind the first few.
    pub anomalies: Vec<Anomaly>,
    /// How many there are of each kind: of cycles at least one for each knot of transactions.
    pub counts: BTreeMap<Kind, usize>,
    /// How many transactions are known to have been committed, and how many there are.
    pub committed: (usize, usize),
}

impl Report {
    pub(crate) fn new(model: Model, versions: &Versions<'_>) -> Self {
        Self {
            model,
            anomalies: Vec::new(),
            counts: BTreeMap::new(),
            committed: (
                versions.committed.iter().filter(|&&is| is).count(),
                versions.committed.len(),
            ),
        }
    }

    /// Whether nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.counts.is_empty()
    }

    /// Whether this was found.
    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        self.counts.contains_key(&kind)
    }

    /// Whether cycles of this class were found, whatever they need.
    #[must_use]
    pub fn has_cycle(&self, class: Class) -> bool {
        let mut kinds = self.counts.keys();
        kinds.any(|kind| matches!(kind, Kind::Cycle(found, _) if *found == class))
    }

    /// Adds what the model forbids; `describe` is asked only for what has a place.
    pub(crate) fn add(&mut self, kind: Kind, describe: impl FnOnce() -> Anomaly) {
        if !self.model.forbids(kind) {
            return;
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= DESCRIBED_MAX {
            self.anomalies.push(describe());
        }
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}", self.0)
    }
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

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.text)?;
        for step in &self.steps {
            let Step { from, to, kind, .. } = step;
            write!(f, "\n    {from} --{kind}--> {to}: {}", step.reason)?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (committed, all) = self.committed;
        let Model {
            isolation,
            sessions,
            real_time,
        } = self.model;
        write!(
            f,
            "{committed} of {all} transactions committed; {isolation:?}, sessions {sessions}, real time {real_time}: "
        )?;
        if self.is_clean() {
            return f.write_str("no anomaly");
        }
        let counts: Vec<String> = self
            .counts
            .iter()
            .map(|(kind, count)| format!("{count} of {kind}"))
            .collect();
        write!(f, "{}", counts.join(", "))?;
        for anomaly in &self.anomalies {
            write!(f, "\n  {anomaly}")?;
        }
        Ok(())
    }
}
