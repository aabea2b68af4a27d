//! The threads that a process has for all its copies.

use std::{io, thread};

use crate::pool::{Limits, Pool};

/// Threads that drive copies: one for each core, since a turn waits for nothing that is not brief. With fewer than two,
/// one that is slow would hold up all others; beyond eight, they wait for each other's packets to come.
const DRIVERS: std::ops::RangeInclusive<usize> = 2..=8;

/// Beside those that are stuck: a copy that is opened again waits for its sessions. A node that gives up the lead of as many
/// databases at once, as after it was frozen, has the others wait for the first of them.
const STUCK_MAX: usize = 256;

/// Configurations that are asked for at once, where the store does not answer at once: it syncs what it is told. Where it
/// is away each has a thread for some seconds, in vain.
const ASKS: usize = 32;

/// The threads that a process has for all its copies.
#[derive(Clone)]
pub struct Threads {
    pub(crate) drivers: Pool,
    pub(crate) asks: Pool,
}

impl Threads {
    /// # Errors
    /// The system has no thread.
    pub fn new() -> io::Result<Threads> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.clamp(*DRIVERS.start(), *DRIVERS.end());
        Ok(Threads {
            drivers: Pool::new(Limits {
                name: "aerostat-copies",
                threads,
                threads_max: threads + STUCK_MAX,
                threads_idle: threads,
                clock: Some("aerostat-clock"),
            })?,
            asks: Pool::new(Limits {
                name: "aerostat-asks",
                threads: ASKS,
                threads_max: ASKS,
                threads_idle: 1,
                clock: None,
            })?,
        })
    }
}
