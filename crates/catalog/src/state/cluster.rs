//! What a node knows of the cluster that it is in: the other nodes, and who has which database.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU8,
    time::Duration,
};

use aerostat_types::{ErrorKind, NodeId, SqlError, TenantId};

use super::NodeRecord;

/// The nodes of the cluster that a node is in.
pub trait ClusterNodes: Send + Sync {
    /// Their names and numbers, as they are now. Asks what the nodes share.
    ///
    /// # Errors
    /// It cannot be read.
    fn list(&self) -> Result<BTreeMap<String, NodeId>, SqlError>;

    /// The nodes on which `copies` copies of a new database go, or fewer where there are no more that take some; `first`
    /// has it already. Asks what the nodes share.
    ///
    /// # Errors
    /// It cannot be read; no node takes databases.
    fn place(
        &self,
        record: &NodeRecord,
        copies: NonZeroU8,
        first: Option<NodeId>,
    ) -> Result<Placing, SqlError>;

    /// Has a node give its databases to others, and get none, or get some again.
    ///
    /// # Errors
    /// There is none of the name; it cannot be stored.
    fn set_draining(&self, name: &str, is_draining: bool) -> Result<(), SqlError>;

    /// Takes a node that does not run out of the cluster.
    ///
    /// # Errors
    /// It runs, or there is none of the name; it cannot be stored.
    fn remove(&self, name: &str) -> Result<(), SqlError>;

    /// Has this node's process go on as another build, once that is known to be able to; or only finds out whether it is.
    /// Returns before it does.
    ///
    /// # Errors
    /// The node takes no other builds, or not this file; that build does not start, reads other files, or speaks with
    /// other nodes in other ways. Nothing has changed then.
    fn upgrade(&self, program: &str, only_check: bool) -> Result<(), SqlError>;

    /// What was known of nodes and their databases some seconds ago.
    fn facts(&self) -> ClusterFacts;
}

/// Where a new database goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placing {
    /// The nodes that are to have it, by name.
    pub nodes: BTreeSet<String>,
    /// The one of them that begins to lead it.
    pub leader: NodeId,
}

/// What is known of a cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterFacts {
    /// In order of names.
    pub nodes: Vec<NodeFacts>,
    /// What nodes have said of databases, by number. One that nobody has spoken of is not among them.
    pub databases: BTreeMap<TenantId, PlacedFacts>,
}

/// What is known of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: NodeId,
    /// Where other nodes find it.
    pub address: String,
    /// Where clients find it.
    pub clients: String,
    /// The build that it runs; `None` of one before builds said so.
    pub build: Option<BuildName>,
    /// The build that it was last asked to go on as, until it does.
    pub next_build: Option<BuildName>,
    /// Whether its databases are to go to others.
    pub is_draining: bool,
    /// Whether it has said that it ends.
    pub is_stopped: bool,
    /// For how long it has said nothing new; `None` of one that was never heard.
    pub silent: Option<Duration>,
    /// What its databases and queries may use of memory, in bytes.
    pub memory_bytes: u64,
    /// What they use.
    pub memory_used: u64,
    /// The share of its threads that statements take, about the last half minute.
    pub load: f64,
}

/// What a build of the program is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildName {
    /// Its version.
    pub version: String,
    /// Tells it from others of the same version.
    pub id: String,
}

/// What nodes have said of a database.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacedFacts {
    /// Who leads it.
    pub leader: Option<NodeId>,
    /// By which configuration.
    pub epoch: u64,
    /// The nodes that must have a commit before it is acknowledged, ascending.
    pub members: Vec<NodeId>,
    /// The nodes that run whose copies are known to have everything, by what their processes of now have said, ascending.
    pub current: Vec<NodeId>,
    /// Memory of the largest copy, in bytes.
    pub bytes: u64,
    /// The share of a node's threads that its statements take, on all nodes together.
    pub load: f64,
    /// Of that, the share that nodes have which do not lead it.
    pub load_beside_leader: f64,
}

/// The error for a node that is none of the cluster's, which are called like this.
pub fn undefined_node<'n>(name: &str, known: impl Iterator<Item = &'n String>) -> SqlError {
    let known: Vec<&str> = known.map(String::as_str).collect();
    let message = format!("node \"{name}\" does not exist");
    SqlError::new(ErrorKind::UndefinedObject, message)
        .with_hint(format!("The cluster has {}.", known.join(", ")))
}

impl ClusterFacts {
    /// What a node is called; its number if it is none.
    pub fn name_of(&self, id: NodeId) -> String {
        let mut nodes = self.nodes.iter();
        let node = nodes.find(|node| node.id == id);
        node.map_or_else(|| id.to_string(), |node| node.name.clone())
    }
}

impl NodeFacts {
    /// How long a node may be silent that is taken to run.
    pub const SILENT_MAX: Duration = Duration::from_secs(10);

    /// Whether it is taken to run.
    pub fn is_up(&self) -> bool {
        !self.is_stopped && self.silent.is_some_and(|silent| silent < Self::SILENT_MAX)
    }
}
