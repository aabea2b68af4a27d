//! Locks, conditions and atomics of the crates whose threads meet without a lock.
//!
//! ```text
//!  txn, segment, schedule ──► aerostat_sync ──┬─► parking_lot, std      every build
//!                                             └─► loom                  --cfg loom: models
//! ```
//!
//! In every build of ours the names here *are* those of the standard library and of
//! `parking_lot`; nothing is compiled for them. With `--cfg loom` they are [loom]'s, which runs
//! a test once for each order that threads may go on in and for each value that a load may give
//! under the memory model of C++11 (Norris and Demsky, CDSChecker, OOPSLA 2013). So the code that
//! is tested is the code that runs.
//!
//! * Tests that model threads are in modules that are called `loom_tests`, under
//!   `cfg(all(test, loom))`. `scripts/loom` runs them; others fail there, for loom's types
//!   live in a model only.
//! * `Arc` is the standard library's in models, too: counting adds orders, it takes none away.
//! * Counters that nobody acts on (`static` numbers) may stay the standard library's.
//!
//! [loom]: https://docs.rs/loom
#![forbid(unsafe_code)]

#[cfg(loom)]
mod modelled;
#[cfg(loom)]
pub use modelled::*;

#[cfg(not(loom))]
pub use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    thread::yield_now,
    thread_local,
};

#[cfg(not(loom))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};
