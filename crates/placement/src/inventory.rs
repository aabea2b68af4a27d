//! The planner's input: nodes, and tenants with their copies. An [`Inventory`] is checked when it is
//! made, so the planner meets no contradiction.

use std::{collections::BTreeSet, num::NonZeroUsize};

use aerostat_types::{NodeId, TenantId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::load::{Load, LoadSplit};

/// The planner keeps a table with a place for every pair of nodes.
pub const NODES_MAX: usize = 1_000;

/// The planner looks at each tenant several times.
pub const TENANTS_MAX: usize = 100_000;

/// The most memory of one copy of every tenant together, in bytes, 8 PiB: sums over all copies are exact.
pub const MEMORY_SUM_MAX: u64 = 1 << 53;

/// The largest load of all tenants together: sums over all copies are exact.
pub const LOAD_SUM_MAX: f64 = 1e6;

/// The use that may be made of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeState {
    /// It has copies and takes more.
    #[default]
    Ready,
    /// It serves what it has, and that is to go elsewhere.
    Draining,
    /// It cannot be reached: its copies count as gone.
    Lost,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Unique in an inventory.
    pub id: NodeId,
    /// Memory for tenants' copies, in bytes.
    pub memory_bytes: u64,
    /// The load at which the node only just meets its goal. Nodes may differ.
    pub capacity: Load,
    /// The use that may be made of it.
    pub state: NodeState,
}

/// A tenant, and where its copies are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tenant {
    /// Unique in an inventory.
    pub id: TenantId,
    /// The load of all its clients, however many copies it has.
    pub load: Load,
    /// How the load is divided over its copies.
    pub split: LoadSplit,
    /// Memory of one copy, in bytes.
    pub memory_bytes: u64,
    /// How many copies it is to have; `None`: as many as the policy says.
    pub wanted: Option<NonZeroUsize>,
    /// The nodes that have a copy, in any order; empty for a tenant that is not placed yet.
    pub copies: Vec<NodeId>,
    /// The one of `copies` that leads; `None` if nobody does.
    pub leader: Option<NodeId>,
}

/// Why nodes and tenants are no inventory.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum InventoryError {
    /// Two nodes with one id.
    #[error("node {0} is listed twice")]
    NodeTwice(NodeId),
    /// Two tenants with one id.
    #[error("tenant {0} is listed twice")]
    TenantTwice(TenantId),
    /// A copy on a node that is not listed. A node that is gone is listed as lost.
    #[error("tenant {tenant} has a copy on node {node}, which is not listed")]
    NoNode {
        /// Whose copy it is.
        tenant: TenantId,
        /// Where it is said to be.
        node: NodeId,
    },
    /// Two copies of a tenant on one node.
    #[error("tenant {tenant} has two copies on node {node}")]
    CopyTwice {
        /// Whose copies they are.
        tenant: TenantId,
        /// Where they are.
        node: NodeId,
    },
    /// A leader that has no copy.
    #[error("node {node} leads tenant {tenant} and has no copy of it")]
    LeaderWithoutCopy {
        /// The tenant.
        tenant: TenantId,
        /// Its leader.
        node: NodeId,
    },
    /// More nodes or tenants than the planner is made for.
    #[error("{0} nodes and {1} tenants are more than {NODES_MAX} and {TENANTS_MAX}")]
    TooMany(usize, usize),
    /// More memory or load in all than the planner can add up exactly.
    #[error(
        "the tenants have {0} bytes and a load of {1} together, of which {MEMORY_SUM_MAX} and {LOAD_SUM_MAX} are allowed"
    )]
    TooMuch(u64, f64),
}

/// Nodes and tenants without contradictions, each in order of their ids.
#[derive(Clone, Debug, PartialEq)]
pub struct Inventory {
    nodes: Vec<Node>,
    tenants: Vec<Tenant>,
}

impl Inventory {
    /// Nodes and tenants in any order.
    ///
    /// # Errors
    /// When ids are used twice, or a tenant's copies and its leader contradict one another or the nodes.
    pub fn new(mut nodes: Vec<Node>, mut tenants: Vec<Tenant>) -> Result<Self, InventoryError> {
        if nodes.len() > NODES_MAX || tenants.len() > TENANTS_MAX {
            return Err(InventoryError::TooMany(nodes.len(), tenants.len()));
        }
        check_sums(&tenants)?;
        nodes.sort_by_key(|node| node.id);
        tenants.sort_by_key(|tenant| tenant.id);
        if let Some(pair) = nodes.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(InventoryError::NodeTwice(pair[0].id));
        }
        if let Some(pair) = tenants.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(InventoryError::TenantTwice(pair[0].id));
        }
        let ids: BTreeSet<NodeId> = nodes.iter().map(|node| node.id).collect();
        for tenant in &tenants {
            check_copies(tenant, &ids)?;
        }
        Ok(Self { nodes, tenants })
    }

    /// In order of their ids.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// In order of their ids.
    #[must_use]
    pub fn tenants(&self) -> &[Tenant] {
        &self.tenants
    }

    /// The tenant with this id.
    #[must_use]
    pub fn tenant(&self, id: TenantId) -> Option<&Tenant> {
        let found = self.tenants.binary_search_by_key(&id, |tenant| tenant.id);
        found.ok().map(|place| &self.tenants[place])
    }

    pub(crate) fn tenant_mut(&mut self, id: TenantId) -> Option<&mut Tenant> {
        let found = self.tenants.binary_search_by_key(&id, |tenant| tenant.id);
        found.ok().map(|place| &mut self.tenants[place])
    }

    /// The place of a node in [`Inventory::nodes`].
    pub(crate) fn place_of(&self, id: NodeId) -> Option<usize> {
        self.nodes.binary_search_by_key(&id, |node| node.id).ok()
    }
}

fn check_sums(tenants: &[Tenant]) -> Result<(), InventoryError> {
    let memory = tenants.iter().map(|tenant| tenant.memory_bytes);
    let memory = memory.fold(0, u64::saturating_add);
    let load: f64 = tenants.iter().map(|tenant| tenant.load.get()).sum();
    if memory > MEMORY_SUM_MAX || load > LOAD_SUM_MAX {
        return Err(InventoryError::TooMuch(memory, load));
    }
    Ok(())
}

fn check_copies(tenant: &Tenant, nodes: &BTreeSet<NodeId>) -> Result<(), InventoryError> {
    let mut copies = BTreeSet::new();
    for &node in &tenant.copies {
        if !nodes.contains(&node) {
            return Err(InventoryError::NoNode {
                tenant: tenant.id,
                node,
            });
        }
        if !copies.insert(node) {
            return Err(InventoryError::CopyTwice {
                tenant: tenant.id,
                node,
            });
        }
    }
    match tenant.leader {
        Some(node) if !copies.contains(&node) => Err(InventoryError::LeaderWithoutCopy {
            tenant: tenant.id,
            node,
        }),
        _ => Ok(()),
    }
}
