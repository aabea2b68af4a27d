//! Nodes that are copies of each other are killed under load, and what clients saw is checked.
//!
//! ```text
//!   8 writers ──► whichever node is writable        ┐
//!   2 readers ──► whichever node is a copy          ├─► history ─► checker (strict snapshot isolation)
//!   nemesis: SIGKILL, pg_promote, definitions       ┘
//!        in pauses: digests of both nodes are the same
//! ```
//!
//! Nothing here links the node: it is the process that `AEROSTAT_BIN` names, else
//! `target/release/aerostat`. Where there is none, and where it has no copies, a test says that it
//! is skipped; an empty `AEROSTAT_BIN` says that the tests run elsewhere.
//!
//! `COPIES_KILLS` says how often nodes are killed, `COPIES_SEED` begins with the seed that a
//! failure printed (what clients and kernels do in between is not in it), `COPIES_KEEP=1` keeps
//! histories and logs of what passes, too; `COPIES_GATEWAYS=1` has clients that write connect to any
//! node, which serves what the other one leads; `COPIES_REWRITE=1` adds columns to the tables that
//! clients read. A kept history is checked again by
//! `cargo run -p aerostat-histories -- FILE`.

#![allow(clippy::unwrap_used, clippy::panic)]

mod alike;
mod client;
mod definitions;
mod nemesis;
mod node;
mod run;

use crate::run::{Plan, kills, run, seed};

/// One node, which keeps what it acknowledged on its disk: what holds without copies, and a check
/// of the clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_killed_shows_no_anomaly() {
    run(Plan {
        name: "one",
        seed: seed(),
        kills: kills(),
        nodes: 1,
        durability: "fsync",
        together: false,
    })
    .await;
}

/// Two nodes, of which one is there at any time: what two memories have is not lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_that_are_killed_show_no_anomaly() {
    run(Plan {
        name: "copies",
        seed: seed(),
        kills: kills(),
        nodes: 2,
        durability: "memory2",
        together: false,
    })
    .await;
}

/// Two nodes that are also killed together: what was acknowledged is on the leader's disk, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_that_are_killed_together_show_no_anomaly() {
    run(Plan {
        name: "together",
        seed: seed(),
        kills: kills(),
        nodes: 2,
        durability: "memory2+fsync",
        together: true,
    })
    .await;
}
