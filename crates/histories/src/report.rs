//! What was found: anomalies with their witnesses, in words.

use std::collections::BTreeMap;
use std::fmt;

use crate::kind::{Class, EdgeKind, Kind};
use crate::model::Model;

/// How many anomalies of one kind a report describes; it counts all.
const DESCRIBED_MAX: usize = 8;

/// A transaction by its line in the history, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionId(pub usize);

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
    pub(crate) fn new(model: Model, committed: (usize, usize)) -> Self {
        Self {
            model,
            anomalies: Vec::new(),
            counts: BTreeMap::new(),
            committed,
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
