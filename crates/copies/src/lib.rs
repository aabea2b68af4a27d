//! A tenant's copy in one process: what the replication machine decides, done to the store.
//!
//! ```text
//!  packets, ticks,          ┌────────────── Driver ──────────────┐
//!  configurations ─────────►│ Replica (pure) ─► effects          │
//!                           │   leads     log ─► LogReader ──────┼─► packets, to each copy
//!                           │   follows   receive, Applier ◄─────┼── packets, from the leader
//!                           └──────┬─────────────────────────────┘
//!                                  └─► Host: network, configurations, syncs, opening again
//! ```
//!
//! * **The machine decides** (`aerostat-replication`), and knows nothing of records. The driver keeps it told
//!   of what the log has, carries its effects out in order, and adds the log's bytes to what it sends.
//! * **Large transactions** do not wait for their commit: what the log has of them goes ahead, as records
//!   without a place, of which the machine need not know.
//! * **Catching up.** What a copy lacks goes in parts ([`PART_BYTES`]), as fast as the host has room for it;
//!   to one that is no member yet, as commits at the leader allow.
//! * **Seeds.** A copy that its leader's log does not lead to any more is made of a checkpoint ([`seed`]): its
//!   driver ends with [`CopyError::LacksLog`].
//! * **Whatever cannot go on ends**: a copy that failed is opened again, as another process would open it. So
//!   there is one way back, and it is the one that a crash takes.
//!
//! The driver has no thread, no clock and no socket: the [`Host`] has them. A process's is in `process`, driven by
//! threads that all copies share (`pool`, [`Threads`]), with connections in `link` and the form of packets in `wire`; simulations have a host of their own.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod applying;
mod asks;
mod configurations;
mod driver;
mod driving;
mod error;
mod guests;
mod host;
mod inbox;
mod job;
mod known;
mod link;
mod outbox;
mod pace;
mod pacing;
mod packet;
mod peers;
mod pool;
mod process;
pub mod seed;
mod spoken;
mod syncs;
mod taking;
#[cfg(test)]
mod tests;
mod threads;
mod told;
mod turn;
mod way;
mod wire;

pub use aerostat_transport::{Peer, Transport};
pub use driver::Driver;
pub use error::CopyError;
pub use guests::{Door, dial_cancel, dial_session};
pub use host::{Host, Standing};
pub use inbox::Inbox;
pub use job::Job;
pub use known::{Known, KnownPeer};
pub use link::{Links, Route, Served, serve};
pub use packet::{PART_BYTES, Packet, Records};
pub use peers::{Address, Peers, Versions};
pub use process::{Owner, Running, Setup, run};
pub use spoken::{Spoken, VERSION};
pub use threads::Threads;
pub use wire::{Greeting, Purpose, WireError};
