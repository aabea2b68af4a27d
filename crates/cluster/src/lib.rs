//! A node of a cluster: who the others are, and this node's copies of the cluster's databases.
//!
//! ```text
//!  Space, a folder that all nodes share, or etcd
//!    catalog       roles and databases   ◄─► Node (aerostat-catalog)
//!    nodes         who is where          ◄── join, at every start
//!    databases/N   who leads database N  ◄─► its copies' drivers (aerostat-copies)
//!
//!  Keeper ── the record has it ──► opens a copy, runs its driver ──► Owner: sessions, catalogue
//!         ── the record has it no more ──► ends the driver, removes the files
//!         ── the driver ended ──► opens it again, as another process of the node would
//! ```
//!
//! * **A database is on the nodes that its record names**, or on all. One that is to be elsewhere goes once it is: all
//!   of those have it, one of them leads, and the store says that nobody counts with what is here.
//! * **A node is its data folder**: its name and number are in the folder and in the space, and each of its
//!   processes has a number of its own, so that what one of them had in memory is not taken for another's.
//! * **Whoever can read the space is trusted**: it has the word with which nodes talk to each other.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod builds;
mod census;
mod coordinator;
mod inventory;
mod keeper;
mod others;
mod owner;
mod placing;
mod reach;
mod sample;
mod space;
mod speaker;
mod spread;
#[cfg(test)]
mod tests;

pub use aerostat_catalog::admin::Shared;
pub use aerostat_copies::Door;
pub use aerostat_etcd::Access;
pub use aerostat_replication::Settings;
pub use builds::{Build, Format};
pub use census::{Census, Examined, FileState, Programs, TimeUsed, shared};
pub use inventory::{Identity, JoinError, NodeEntry, join};
pub use keeper::{Cluster, Setup};
pub use others::Others;
pub use placing::{Going, Picture, PictureDatabase, PictureNode};
pub use sample::{CopySample, samples};
pub use space::{Space, SpaceError};
pub use speaker::Pace;
