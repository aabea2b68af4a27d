//! Making a copy of a leader's checkpoint and log, over a connection of its own.
//!
//! ```text
//!  copy (fetch)                                        leader (give)
//!  greeting, for a seed ────────────────────────────►  token, node
//!  Begin { history, epoch, pass } ──────────────────►  leads, and in that epoch? ─ checkpoint, pinned
//!        ◄─────────────────────────── Wait* , Plan + manifest
//!  Image { name, from } ────────────────────────────►  reads, waits as the pace has it
//!        ◄─────────────────────────── Image + bytes        ▲
//!  Log { file, from } ──────────────────────────────►      └ p99 of commits against that before
//!        ◄─────────────────────────── Log + bytes
//!  takes its folder's place; opens it; joins           holds the log until the connection ends
//! ```
//!
//! * **The copy asks**, a part at a time, so that whatever one side is slow at slows the other.
//! * **The log comes between the images**, so that the leader need not keep what is written meanwhile.
//! * **Where the leader has gone on too far** the copy begins another pass on the same connection, for which only
//!   what has changed is sent, at twice the least pace: each pass has less to send, so that there is a last one.
//! * **The pace** (`crate::pace`) halves while commits at the leader take half as long again as before, and grows
//!   otherwise.
//! * **Which process a copy is.** Whoever has had its folder replaced runs as another process would, with an
//!   incarnation that there has not been. The machine that ended may have asked to lead, and may have told its
//!   leader that it will not for a while: another one by the same name would know of neither. And a member that
//!   has ended is to be counted as lost until it has joined again, whatever its folder has. What it had
//!   acknowledged is in the seed, which is of the leader of the newest configuration, or of one in which the
//!   node is no member any more (`SeedOf::epoch`).

mod fetch;
mod give;

use aerostat_replication::Epoch;
use aerostat_storage::Timeline;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use crate::pace::PaceLimits;
pub use fetch::{
    Fetch, FetchError, SeedHold, SeedNeed, Seeded, fetch, fetch_from_leader, fetch_seed,
};
pub(crate) use give::give;
pub use give::{Leading, Seeds};

/// What goes in one part: as much as in a packet.
const PART_BYTES: usize = 256 << 10;

/// The most that a request has.
const REQUEST_BYTES_MAX: usize = 4 << 10;

/// What a copy asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Request {
    /// A checkpoint.
    Begin(Begin),
    /// A part of an image.
    Image {
        /// Its name.
        name: String,
        /// The first byte.
        from: u64,
    },
    /// A part of the log.
    Log {
        /// The file.
        file: u64,
        /// The first byte.
        from: u64,
        /// How many bytes at most.
        bytes_max: u64,
    },
    /// Nothing more, but that the leader keeps its log while the copy is opened. There is no answer.
    Done,
}

/// What a copy asks for a checkpoint of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Begin {
    /// The history, if there is one that is known.
    timeline: Option<Timeline>,
    /// Whoever leads in this epoch, or in a later one.
    epoch: Epoch,
    /// How often it was begun on this connection before.
    pass: u32,
}

/// What a leader answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Response {
    /// It is at it.
    Wait,
    /// The checkpoint's manifest goes with it.
    Plan,
    /// Bytes of the image go with it.
    Image,
    /// Bytes of the log go with it.
    Log {
        /// How many the file has.
        file_bytes: u64,
        /// Whether no more come to that file.
        is_complete: bool,
        /// How far the log is written.
        end: (u64, u64),
    },
    /// It does not give that.
    Refused(Refusal),
}

/// Why a leader gives no seed, or no more of it.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Refusal {
    /// It does not lead, or has not begun to.
    #[error("it does not lead")]
    DoesNotLead,
    /// It leads another history.
    #[error("it leads another history of the database")]
    OfAnother,
    /// It leads by a configuration before the one that is known.
    #[error("its last epoch is {0}")]
    Over(Epoch),
    /// It makes as many copies already as it may.
    #[error("it makes as many copies already as it may")]
    Busy,
    /// It does not have all of the seed any more: there is another one to be begun.
    #[error("it does not have all of the seed any more")]
    Gone,
    /// The seed has no such file.
    #[error("the seed has no such file")]
    Unknown,
    /// It cannot.
    #[error("it cannot: {0}")]
    Failed(String),
}
