//! What copies of a tenant send to each other.

use aerostat_replication::{Epoch, Member, Message};
use aerostat_storage::StreamPoint;
use aerostat_types::CommitTs;
use serde::{Deserialize, Serialize};

/// What goes in one packet, about: enough that the packets' own cost does not show, little enough that a
/// heartbeat does not wait for it.
pub const PART_BYTES: usize = 256 << 10;

/// A message of the machine, or a part of the log that goes ahead of one. It may come late, twice, out of order,
/// or never.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packet {
    /// Who sends it.
    pub from: Member,
    /// The newest configuration that it knows.
    pub epoch: Epoch,
    /// Of a leader: the epoch with which it began to lead. What it has behind the last place is its own.
    pub tenure: Epoch,
    /// Its disk has the log through this.
    pub durable: CommitTs,
    /// Of a leader: the disks of all members have the log through this. Nobody needs to keep what is before.
    pub settled: CommitTs,
    /// Of a leader: the process of the node that asks for what its log has not any more. It has to be made anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacking: Option<Member>,
    /// `None` for records without a place, which go ahead.
    pub message: Option<Message>,
    /// Of a leader's [`Message::Append`]: what is behind the place that it names.
    pub records: Records,
}

impl Packet {
    /// Whether it answers a leader, and nothing else.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self.message, Some(Message::Has { .. })) && self.records.bytes.is_empty()
    }
}

/// A part of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// Where it begins.
    pub from: StreamPoint,
    /// Whole records. They go behind the rest.
    #[serde(skip)]
    pub bytes: Vec<u8>,
}
