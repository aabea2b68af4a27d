//! What must hold, whatever happens.

use std::collections::BTreeMap;

use aerostat_replication::{Epoch, History, Position};
use aerostat_types::CommitTs;

/// By key: the number of the transaction.
pub(super) type Rows = BTreeMap<i32, i64>;

/// What a transaction did.
#[derive(Clone, Debug, Default)]
pub(super) struct Delta {
    pub(super) inserted: Vec<i32>,
    pub(super) ended: Vec<i32>,
    pub(super) number: i64,
}

/// What clients asked for, and what they were told.
#[derive(Default)]
pub(super) struct Judge {
    /// By the record: of one place there may be several, of leaders one of which did not know of the other.
    asked: BTreeMap<Position, Delta>,
    acknowledged: Vec<Position>,
    pub(super) compared: u64,
}

impl Judge {
    pub(super) fn ask(&mut self, at: Position, delta: Delta) {
        let before = self.asked.insert(at, delta);
        assert!(before.is_none(), "{at:?} was asked for twice");
    }

    pub(super) fn acknowledge(&mut self, at: Position) {
        assert!(self.asked.contains_key(&at), "nobody has asked for {at:?}");
        self.acknowledged.push(at);
    }

    pub(super) fn count(&self) -> u64 {
        self.acknowledged.len() as u64
    }

    /// Whoever leads an epoch has everything that was acknowledged until then. One that was paused may begin to lead
    /// when others have led since: it has no member that answers it.
    pub(super) fn examine(&self, who: u32, history: &History, epoch: Epoch) {
        let mut acknowledged = self.acknowledged.iter();
        let missing = acknowledged.find(|at| at.epoch <= epoch && !history.has(**at));
        assert!(
            missing.is_none(),
            "node {who} leads, and has not {missing:?}, which was acknowledged"
        );
    }

    /// A node shows these rows at a place of its log.
    pub(super) fn compare(&mut self, who: u32, history: &History, at: CommitTs, found: &Rows) {
        let mut expected = Rows::new();
        for (position, delta) in &self.asked {
            if position.lsn > at || !history.has(*position) {
                continue;
            }
            for key in &delta.ended {
                expected.remove(key);
            }
            for key in &delta.inserted {
                expected.insert(*key, delta.number);
            }
        }
        self.compared += 1;
        assert_eq!(*found, expected, "node {who} at {at} of {history:?}");
    }
}
