//! The broker: moves memory between programs of one machine that speak the balloon protocol.
//!
//! ```text
//!  participants ──balloon protocol──► serve ──events──► core ──► ledger (durable), audit log
//!                                                        ├─ policy   who should have more
//!                                                        └─ kernel   who has how much
//! ```
//!
//! * [`core`] decides, [`policy`] and [`ledger`] are pure; they know no clock, socket or disk.
//! * What it acts on is [`core::World`]: the machine, or the tests' model of one.
//!
//! The broker never kills, pages or restarts anything. It asks a program for memory, has the kernel
//! count what came back, and grants no more than that.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod admin;
pub mod core;
pub mod files;
pub mod kernel;
pub mod ledger;
pub mod policy;
pub mod serve;
