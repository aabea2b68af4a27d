//! Which node leads a database's log, and which of its records are committed.
//!
//! ```text
//!  ticks, messages, what the disk did, what the store of configurations said
//!        └──► Replica::step(now, event) ──► effects: send, store, cut, sync, swap, committed, quieten
//! ```
//!
//! After PacificA (Lin et al., MSR-TR-2008-25): one log for each database, copied from its leader to the
//! other members of a *configuration*, which stands in a store that compares and swaps. No quorum decides
//! on records; a quorum, or a disk, behind that store decides on configurations, seldom.
//!
//! | rule | | where |
//! |---|---|---|
//! | incarnation | a process that starts is no member: what it had only in memory is gone | [`Member`] |
//! | commit | every member has the record; a member that is alone has it on disk | `replica/leading.rs` |
//! | fencing | what comes from an earlier epoch is refused | `replica/following.rs` |
//! | read lease | a leader answers strong reads while no member may have taken its place | [`Replica::may_read`] |
//! | promotion lease | a member takes its leader's place only once that lease is over | `replica/following.rs` |
//! | degraded sync | before a member goes on alone, everything committed is on its disk | both |
//! | join order | a copy has everything, and is waited for, before it becomes a member | `replica/leading.rs` |
//! | reclaim | who was alone goes on alone after a restart; where all ended, the one with the longest log does | `replica/starting.rs` |
//!
//! Each can be taken out in tests, and the simulation finds a loss, or a read of what is no more
//! (`tests`).
//!
//! A leader that is to hand over on purpose first has its sessions leave, for a while that has an end
//! (`replica/handover.rs`): that is peace for clients, and nothing is safe by it.
//!
//! The machine has no clock, no socket, no disk and no thread, and knows nothing of what is in a record:
//! its driver keeps the log, and ships what [`Message::Append`] names.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod config;
mod history;
mod message;
mod protections;
mod replica;
#[cfg(test)]
mod tests;

pub use aerostat_types::{Epoch, NodeId};
pub use config::{Config, Incarnation, Member};
pub use history::{History, Position};
pub use message::Message;
pub use protections::Protections;
pub use replica::{Effect, Event, PeerState, Replica, Settings};
