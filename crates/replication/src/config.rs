//! Configurations: who leads, and who must have a record before it is committed.

use aerostat_types::{Epoch, NodeId};
use serde::{Deserialize, Serialize};

/// Counts the processes of a node: no two have the same, and a later one has a greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

/// A process of a node that has a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Member {
    /// Its node.
    pub node: NodeId,
    /// Which of the node's processes.
    pub incarnation: Incarnation,
}

/// Who has a database. The store has the newest one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Its number: a swap is for the epoch that it was made after.
    pub epoch: Epoch,
    /// The member whose log it is.
    pub leader: NodeId,
    /// All that must have a record before it is committed, the leader among them.
    pub members: Vec<Member>,
}

impl Config {
    /// The next one.
    pub(crate) fn next(&self, leader: NodeId, members: Vec<Member>) -> Config {
        Config {
            epoch: Epoch(self.epoch.0 + 1),
            leader,
            members,
        }
    }

    /// Whether it is one that a store can have: somebody leads.
    pub fn is_sound(&self) -> bool {
        self.epoch > Epoch(0) && self.of(self.leader).is_some()
    }

    /// The member of a node.
    pub fn of(&self, node: NodeId) -> Option<Member> {
        self.members.iter().copied().find(|one| one.node == node)
    }

    /// Whether this process is a member.
    pub fn has(&self, member: Member) -> bool {
        self.members.contains(&member)
    }

    /// Whether this process leads.
    pub fn is_led_by(&self, member: Member) -> bool {
        self.leader == member.node && self.has(member)
    }
}
