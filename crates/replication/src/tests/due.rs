//! What is to happen, in its order.

use aerostat_types::CommitTs;

use super::disk::Record;
use crate::{Config, Event, Member, Message};

#[derive(Clone)]
pub(super) enum What {
    /// Something for a node's process, told by its number: another one does not hear of it. A message is for
    /// whichever process the node has when it comes.
    Tell(u32, u64, Told),
    /// A request has come to the store from a process: a swap, or a read.
    Ask(u32, u64, Option<Config>),
    Client,
    Trouble,
    /// Another is to lead, and nothing is wrong.
    Wish,
    Up(u32),
    /// Other nodes are to have the database.
    Move,
    /// A node looks whether it is to have it.
    Look(u32),
}

#[derive(Clone)]
pub(super) enum Told {
    Event(Event),
    /// With the records of an append.
    Message(Member, Message, Vec<Record>),
    /// By the disk, after so many cuts.
    Disk(u64, Event),
    /// The leader's change at a place is written.
    Change(u64, CommitTs),
    Tick,
}

/// Happens at a time, in the order in which it was said of several at a time.
pub(super) struct Due(pub(super) u64, pub(super) u64, pub(super) What);

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}
