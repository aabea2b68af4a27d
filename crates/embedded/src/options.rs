//! The options with which a database is opened.

use std::{path::PathBuf, sync::Arc, thread};

use aerostat_catalog::admin::Shared;
pub use aerostat_engine::MEMORY_BYTES_MIN;
use aerostat_engine::{Eviction, NoObserver, Observer, Opening, SpillLimits, StatementOptions};
use aerostat_memory::machine_memory_bytes;
use aerostat_types::ByteSize;

use crate::Pinning;

/// The share of what machine and cgroup allow that is used unless said otherwise.
pub const MEMORY_PERCENT: u64 = 60;

/// The share of one core for making cold rows small, unless said otherwise: half a core freezes
/// some 50 MB of rows a second and leaves the machine to queries.
pub const FREEZER_PERCENT: u8 = 50;

/// How a database is opened. What is not set is as in a node without settings.
#[derive(Clone)]
pub struct Options {
    /// The data folder, which is made if it is not there; `None` for one that is removed when
    /// the database is closed, and whose commits do not wait for the disk.
    pub data: Option<PathBuf>,
    /// Memory for data and queries, at least [`MEMORY_BYTES_MIN`].
    pub memory: ByteSize,
    /// Whether that counts even if the data folder has another value, from ALTER SYSTEM.
    pub memory_is_given: bool,
    /// What of it may be used until somebody says otherwise; `None`: all. A program whose memory a broker
    /// divides begins with what that grants.
    pub memory_cap: Option<ByteSize>,
    /// How many threads run queries.
    pub threads: usize,
    /// Whether these keep to a core each.
    pub pinning: Pinning,
    /// Share of one core for making cold rows small; 0 pauses it.
    pub freezer_percent: u8,
    /// When values of frozen segments leave memory.
    pub eviction: Eviction,
    /// How much of the disk queries may take that do not fit into memory.
    pub spill: SpillLimits,
    /// When its databases are opened.
    pub opening: Opening,
    /// How many statements run at once, and how many wait.
    pub statements: StatementOptions,
    /// What `aerostat calibrate` wrote; `None`: in the data folder, if it is there.
    pub calibration: Option<PathBuf>,
    /// Who is told of every statement.
    pub observer: Arc<dyn Observer>,
    /// What the node shares with others, in a cluster. Whoever sets it keeps its copies, too.
    pub shared: Option<Shared>,
}

impl Options {
    /// For a data folder, such as a node's.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: Some(data.into()),
            ..Self::temporary()
        }
    }

    /// For a database that is gone when it is closed.
    pub fn temporary() -> Self {
        let memory = machine_memory_bytes() / 100 * MEMORY_PERCENT;
        Self {
            data: None,
            memory: ByteSize(memory.max(MEMORY_BYTES_MIN)),
            memory_is_given: false,
            memory_cap: None,
            threads: thread::available_parallelism().map_or(1, usize::from),
            pinning: Pinning::Off,
            freezer_percent: FREEZER_PERCENT,
            eviction: Eviction::default(),
            spill: SpillLimits::default(),
            opening: Opening::Eager,
            statements: StatementOptions::default(),
            calibration: None,
            observer: Arc::new(NoObserver),
            shared: None,
        }
    }
}
