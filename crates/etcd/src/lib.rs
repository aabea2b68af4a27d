//! Documents that the nodes of a cluster share, in etcd.
//!
//! ```text
//!  EtcdMeta ── load, compare and swap, wait ──► Gateway ── JSON over HTTP ──► whichever member answers
//!  a document   a key, its version                         /v3/kv, /v3/watch
//! ```
//!
//! * **A version** is how often the key was put (`version` in etcd): 1, 2, and so on. Nobody deletes a key.
//! * **Swaps whose answer is lost** are told apart: each puts a word of its own in front of the document. Whoever
//!   asks again finds it there, or another's.
//! * **Reads** are linearizable: a member without a majority answers nothing.
//! * **Who asks** may have to say so ([`Access`]): by TLS, by a certificate of its own, by a user's password, for which
//!   members give a token that ends.
//! * **etcd's API** is that of version 3.4 and later, by its JSON gateway
//!   (<https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/>).
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod access;
mod addresses;
mod error;
mod gateway;
mod meta;
mod packing;

pub use access::Access;
pub use error::EtcdError;
pub use gateway::Endpoints;
pub use meta::{Etcd, EtcdMeta};
