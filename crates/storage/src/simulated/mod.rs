//! A disk and a clock of a simulation, for this crate's tests and those of crates above it (feature
//! `simulated`).
//!
//! ```text
//!  SimDisk   in memory; loses unsynced writes when the power fails, fails where a seed says
//!  SimClock  advances as it is read
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "tests use it, and nothing else"
)]

mod clock;
mod disk;

pub use clock::SimClock;
pub use disk::{Handle, SimDisk, set_witness};
