//! What the databases of a node have of the process that serves them.

use std::{num::NonZeroU8, sync::Arc};

use aerostat_memory::Governor;
use aerostat_storage::{MetaStore, backup::Places};
use aerostat_types::{Clock, NodeId, SystemClock};

use crate::state::{ClusterNodes, StatementsRecord};

/// What the databases of a node have of the process that serves them.
#[derive(Clone)]
pub struct Host {
    /// Their memory.
    pub governor: Arc<Governor>,
    /// Where backups and archives are.
    pub places: Arc<dyn Places>,
    /// What tells them the time. Whoever waits for memory sleeps by it.
    pub clock: Arc<dyn Clock>,
    /// How many statements of a database run and wait where its record says nothing of it.
    pub statements: StatementsRecord,
    /// What the node shares with others, in a cluster.
    pub shared: Option<Shared>,
}

/// What a node shares with others.
#[derive(Clone)]
pub struct Shared {
    /// Where the record of roles and databases is.
    pub record: Arc<dyn MetaStore>,
    /// Which of the nodes this is.
    pub me: NodeId,
    /// What it is called.
    pub name: String,
    /// The cluster's nodes.
    pub nodes: Arc<dyn ClusterNodes>,
    /// How many copies a new database has of which nothing else is said; `None`: one on every node.
    pub copies: Option<NonZeroU8>,
}

impl Host {
    /// A host with the clocks of the operating system.
    pub fn new(governor: Arc<Governor>, places: Arc<dyn Places>) -> Self {
        Self {
            governor,
            places,
            clock: Arc::new(SystemClock),
            statements: StatementsRecord::default(),
            shared: None,
        }
    }
}
