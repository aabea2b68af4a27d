//! What a database promises: an isolation, and whether sessions and real time count.

use crate::kind::{Class, Kind};

/// Which anomalies cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isolation {
    /// PL-2 of Adya: nobody reads what is not committed.
    ReadCommitted,
    /// Each transaction reads one snapshot, and of two that change the same and overlap one fails:
    /// no cycle is without two consecutive rw edges.
    SnapshotIsolation,
    /// No cycles.
    Serializable,
}

/// What the history is checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// What cannot be.
    pub isolation: Isolation,
    /// Whether a transaction sees what the same process has seen and done before.
    pub sessions: bool,
    /// Whether a transaction sees everything that had completed before it was invoked.
    pub real_time: bool,
}

impl Model {
    /// The isolation alone.
    #[must_use]
    pub const fn new(isolation: Isolation) -> Self {
        Self {
            isolation,
            sessions: false,
            real_time: false,
        }
    }

    /// With the order of each process: strong session.
    #[must_use]
    pub const fn strong_session(self) -> Self {
        Self {
            sessions: true,
            ..self
        }
    }

    /// With the order of each process and of real time: strict.
    #[must_use]
    pub const fn strict(self) -> Self {
        Self {
            sessions: true,
            real_time: true,
            ..self
        }
    }

    /// Whether this cannot be.
    #[must_use]
    pub fn forbids(self, kind: Kind) -> bool {
        let least = match kind {
            Kind::LostUpdate | Kind::NonRepeatable => Isolation::SnapshotIsolation,
            Kind::Cycle(Class::GSingle | Class::GNonadjacent, _) => Isolation::SnapshotIsolation,
            Kind::Cycle(Class::G2Item, _) => Isolation::Serializable,
            _ => Isolation::ReadCommitted,
        };
        self.isolation >= least
    }
}
