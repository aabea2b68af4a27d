//! End-to-end tests: the real binary as a process of its own, on free loopback
//! ports with a private data folder, spoken to over real sockets.
//!
//! Nothing here links the server: what passes, passes for a user.

#![allow(clippy::unwrap_used, clippy::panic)]

mod admission;
mod alter;
mod backup;
mod benchmarks;
mod broker;
mod cached_plans;
mod calibration;
mod certificates;
mod cgroup;
mod clients;
mod closing;
mod cluster;
mod concurrency;
mod copies;
mod cut_off;
mod degraded;
mod dice;
mod differential;
mod drivers;
mod dump;
mod encodings;
mod etcd;
#[path = "../../../etcd/tests/members/mod.rs"]
mod etcd_members;
mod evict;
mod greedy;
mod growth;
mod harness;
mod hostile;
mod idle;
mod isolation;
mod lab;
mod layouts;
mod ledger;
mod local;
mod long_texts;
mod memory;
mod moving;
mod networks;
mod notify;
mod old_folders;
mod operations;
mod passing;
mod placing;
mod postgres;
mod protocol;
mod psql;
mod raw;
mod reading;
mod recovery;
mod rights;
mod rounds;
mod routing;
mod s3;
mod secured;
mod sessions;
mod slt;
mod sockets;
mod sql;
mod upgrading;
