//! The PostgreSQL wire protocol: connections, authentication, value formats, COPY.
//!
//! ```text
//!  socket ─► startup: TLS, startup packet, SCRAM ─► connection: simple, extended, COPY
//!                                                       │ aerostat_api::Backend: an engine
//!                                                       ▼
//!                         value, copy: Arrow ◄─► text and binary forms
//! ```
//!
//! This is the only crate that knows the wire. It has its own connection loop and message codec,
//! and uses pgwire for the SCRAM-SHA-256 exchange. pgwire's handler traits do not allow watching
//! the socket while a statement runs, and its decoders index by lengths that a client claims, so a
//! truncated message would end in a panic.
//!
//! Invariants: a message is decoded only when its length is within a named limit ([`limits`]) and
//! its bytes have arrived; memory never grows before the bytes for it have arrived; an error of one
//! connection ends at most that connection; the client gets whole messages or none.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod connection;
mod copy;
mod door;
mod farewell;
mod flag;
pub mod limits;
mod listen;
mod lobby;
mod options;
mod orders;
mod packet;
mod readers;
mod registry;
mod relay;
mod route;
mod scram;
mod serve;
mod sqlstate;
mod startup;
mod stream;
#[cfg(test)]
mod tests;
mod texts;
mod threads;
mod value;
mod wire;

pub(crate) use aerostat_api as api;

pub use door::{Door, Guests, door};
pub use listen::{Listeners, LocalListener};
pub use lobby::{Lobby, LobbyPlace};
pub use options::{GatewayOptions, NodeSecret, TlsOptions};
pub use serve::serve;
pub use sqlstate::WireError;
pub use texts::Texts;

/// One type of every kind, for tests.
#[cfg(test)]
fn tests_types() -> Vec<aerostat_types::SqlType> {
    tests::fake_types().to_vec()
}
