//! The balloon protocol, version 1: how a broker and programs that manage their own memory agree
//! on who has how much.
//!
//! ```text
//!  participant                                        broker
//!     │── hello (name, floor, ceiling, used) ───────────►│
//!     │◄─────────────── welcome (target, epoch, lease) ──│
//!     │── heartbeat (used, applied epoch) ──────────────►│   every heartbeat_ms, or the lease ends
//!     │◄──────────────────────── target (bytes, epoch) ──│
//!     │── progress (epoch, used) ───────────────────────►│   while memory is given back
//!     │── done (epoch, used) ───────────────────────────►│
//!     │── demand (wanted, costs) ───────────────────────►│   whenever more would help
//! ```
//!
//! * A message is a line of JSON ([`mod@line`]), over a Unix socket or TLS ([`endpoint`]).
//! * A target is identified by its epoch. A participant that receives an epoch again answers again
//!   and changes nothing, and it ignores epochs older than the last one it applied.
//! * A participant keeps its last target while no broker answers: the broker's ledger has granted
//!   that much to it, and goes on to do so until the process has gone.
//!
//! This is the mechanism of "Application Level Ballooning for Efficient Server Consolidation"
//! (Salomie et al., EuroSys 2013, section 3), with the demand of the application added. The protocol's
//! reference is `docs/balloon.md`. [`participant`] is the client that Aerostat's own node uses; the
//! broker is the crate `broker`.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod endpoint;
pub mod line;
pub mod message;
pub mod participant;
