//! An inventory under a policy, as numbers: live nodes by index, and loads as whole *units*, of which sums and
//! differences are exact. So a change that is tried and taken back leaves no trace, and plans are the same on
//! every machine.

use aerostat_types::{NodeId, TenantId};

use crate::inventory::{Inventory, NODES_MAX, Node, NodeState, Tenant};
use crate::policy::Policy;

/// Units of a load of 1.0.
pub(crate) const UNITS: f64 = 1e9;

/// An inventory and its policy as the planner uses them.
pub(crate) struct Facts {
    /// The nodes that are not lost, in order of their ids.
    pub(crate) nodes: Vec<NodeFacts>,
    pub(crate) tenants: Vec<TenantFacts>,
    pub(crate) neighbours_max: usize,
    /// Of a capacity, the share that loads may take.
    pub(crate) allowed: f64,
}

#[derive(Clone)]
pub(crate) struct NodeFacts {
    pub(crate) id: NodeId,
    /// Units that loads may take.
    pub(crate) capacity: i64,
    /// Units without the head-room.
    pub(crate) capacity_whole: i64,
    /// Bytes that copies may take.
    pub(crate) memory: u64,
    /// It takes copies: it is not draining.
    pub(crate) ready: bool,
}

#[derive(Clone)]
pub(crate) struct TenantFacts {
    pub(crate) id: TenantId,
    pub(crate) parts: Parts,
    /// Bytes of one copy.
    pub(crate) memory: u64,
    /// How many copies it is to have.
    pub(crate) copies: usize,
    /// Indexes of the live nodes that have a copy now: the leader, or the first that may become it, then the others.
    pub(crate) origin: Vec<usize>,
    /// Lost nodes that have a copy.
    pub(crate) lost: Vec<NodeId>,
    /// The leader now; `None`: nobody leads.
    pub(crate) leader: Option<NodeId>,
}

/// A tenant's load in units, by the copies that bear it (see [`LoadSplit`](crate::LoadSplit)).
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    /// Each copy's.
    pub(crate) written: i64,
    /// Divided over the live copies.
    pub(crate) shared: i64,
    /// The leader's.
    pub(crate) led: i64,
}

impl Parts {
    pub(crate) fn of(tenant: &Tenant) -> Self {
        let units = |share: f64| (tenant.load.get() * share * UNITS).ceil() as i64;
        let (written, shared) = (tenant.split.written().get(), tenant.split.shared().get());
        Self {
            written: units(written),
            shared: units(shared),
            led: units((1.0 - written - shared).max(0.0)),
        }
    }

    pub(crate) fn whole(self) -> i64 {
        self.written + self.shared + self.led
    }

    /// The units that a copy bears when `live` copies are left; `leads` if it leads or counts as leading.
    pub(crate) fn borne(self, live: usize, leads: bool) -> i64 {
        // At least one copy is live, or nobody would ask.
        let live = live.max(1) as i64;
        let led = if leads { self.led } else { 0 };
        self.written + (self.shared + live - 1) / live + led
    }

    /// The units that a copy bears in addition when one of `copies` fails. Any survivor of a leader may lead next, so
    /// each is counted as if it did: of two copies that is exact, of more it is on the safe side.
    pub(crate) fn shifted(self, copies: usize, leader_fails: bool) -> i64 {
        self.borne(copies - 1, leader_fails) - self.borne(copies, false)
    }
}

impl Facts {
    pub(crate) fn new(inventory: &Inventory, policy: &Policy) -> Self {
        let live: Vec<&Node> = inventory
            .nodes()
            .iter()
            .filter(|node| node.state != NodeState::Lost)
            .collect();
        let tenant = |tenant| tenant_facts(tenant, policy, &live);
        Self {
            nodes: live.iter().map(|node| node_facts(node, policy)).collect(),
            tenants: inventory.tenants().iter().map(tenant).collect(),
            neighbours_max: policy.neighbours_max.min(NODES_MAX),
            allowed: 1.0 - policy.load_headroom.get(),
        }
    }

    /// The same tenants, none of them placed, on other nodes.
    pub(crate) fn afresh(&self, nodes: Vec<NodeFacts>) -> Self {
        let unplaced = |tenant: &TenantFacts| TenantFacts {
            origin: Vec::new(),
            lost: Vec::new(),
            leader: None,
            ..tenant.clone()
        };
        Self {
            nodes,
            tenants: self.tenants.iter().map(unplaced).collect(),
            ..*self
        }
    }
}

pub(crate) fn node_facts(node: &Node, policy: &Policy) -> NodeFacts {
    let free = 1.0 - policy.load_headroom.get();
    let memory = node.memory_bytes as f64 * (1.0 - policy.memory_headroom.get());
    NodeFacts {
        id: node.id,
        capacity: (node.capacity.get() * free * UNITS).floor() as i64,
        capacity_whole: (node.capacity.get() * UNITS).floor() as i64,
        // Sizes above 2^53 are rounded, never above what there is.
        memory: (memory.floor() as u64).min(node.memory_bytes),
        ready: node.state == NodeState::Ready,
    }
}

fn tenant_facts(tenant: &Tenant, policy: &Policy, live: &[&Node]) -> TenantFacts {
    let index = |id: &NodeId| live.binary_search_by_key(id, |node| node.id).ok();
    let mut origin: Vec<usize> = tenant.copies.iter().filter_map(index).collect();
    origin.sort_unstable();
    if let Some(place) = tenant
        .leader
        .and_then(|leader| index(&leader))
        .and_then(|leader| origin.iter().position(|&node| node == leader))
    {
        origin[..=place].rotate_right(1);
    }
    let mut lost = tenant.copies.clone();
    lost.retain(|id| index(id).is_none());
    lost.sort_unstable();
    TenantFacts {
        id: tenant.id,
        parts: Parts::of(tenant),
        memory: tenant.memory_bytes,
        // More than that there never are, and larger numbers would overflow products.
        copies: tenant.wanted.unwrap_or(policy.copies).get().min(NODES_MAX),
        origin,
        lost,
        leader: tenant.leader,
    }
}

/// A load as a share of a capacity: finite, though very large where there is no capacity.
pub(crate) fn share(load: i64, capacity: i64) -> f64 {
    load as f64 / capacity.max(1) as f64
}
