//! The report of a placement: loads, the effect of failures, and the rules that are not met.

use std::collections::BTreeMap;
use std::fmt;

use aerostat_types::{NodeId, TenantId};
use serde::{Deserialize, Serialize};

use crate::assignment::Assignment;
use crate::facts::{Facts, TenantFacts, UNITS, share};
use crate::moves::{Names, Numbers, overload};

/// A placement as it will be after a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The nodes that are not lost, in order of their ids.
    pub nodes: Vec<NodeReport>,
    /// The effect of two failures at once.
    pub double_failures: DoubleFailures,
    /// The rules of the policy that are not met.
    pub violations: Vec<Violation>,
    /// Tenants of which a move has no room on its way; another plan may find it.
    pub blocked: Vec<TenantId>,
    /// How many more nodes, like most there are, the planner needs to meet the policy. 0: those that are
    /// there suffice, perhaps after more plans. `None`: nodes of this kind do not help.
    pub nodes_more: Option<usize>,
    /// Copies that the plan makes.
    pub copies_added: usize,
    /// Bytes of these copies.
    pub bytes_added: u64,
}

impl Report {
    /// Whether everything is as the policy wants it.
    #[must_use]
    pub fn feasible(&self) -> bool {
        self.violations.is_empty()
    }
}

/// A node after a plan. Loads are in the unit of [`Load`](crate::Load).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Which one.
    pub node: NodeId,
    /// Its load while no node fails.
    pub load: f64,
    /// Its load after the failure of another node that adds most.
    pub worst_load: f64,
    /// That node; `None`: no failure adds anything.
    pub worst_failure: Option<NodeId>,
    /// The load it may have, without the head-room.
    pub load_allowed: f64,
    /// Memory of its copies, in bytes.
    pub memory_bytes: u64,
    /// Memory that copies may have, without the head-room, in bytes.
    pub memory_allowed_bytes: u64,
    /// With how many other nodes it has tenants in common.
    pub neighbours: usize,
}

/// The effect of the failure of two nodes at once, over all pairs of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DoubleFailures {
    /// The share of pairs that would take all copies of some tenant.
    pub pairs_hit: f64,
    /// The share of tenants that would have no copy, on average.
    pub tenants_hit: f64,
}

/// Why a copy could not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Obstacle {
    /// Every node that takes copies has one already.
    NoOtherNode,
    /// No other node has the memory.
    NoMemory,
    /// The migration budget is used up.
    Budget,
}

/// A rule that a placement does not meet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Violation {
    /// All nodes with a copy are lost: there is nothing to copy from until one of them is back.
    AllCopiesLost {
        /// The tenant.
        tenant: TenantId,
    },
    /// No node could hold the tenant even alone, in memory or in load after a failure.
    TenantTooLarge {
        /// The tenant.
        tenant: TenantId,
    },
    /// A tenant has too few copies.
    TooFewCopies {
        /// The tenant.
        tenant: TenantId,
        /// How many are live.
        live: usize,
        /// How many there should be.
        wanted: usize,
        /// Why there are no more.
        obstacle: Obstacle,
    },
    /// A draining node still has copies.
    StillDraining {
        /// The node.
        node: NodeId,
        /// How many.
        copies: usize,
    },
    /// A node has more in its memory than it may.
    MemoryExceeded {
        /// The node.
        node: NodeId,
        /// What it has, in bytes.
        bytes: u64,
        /// What it may have, in bytes.
        allowed_bytes: u64,
    },
    /// A node has more load than it may, now or after a failure. Shares are of its whole capacity.
    Overloaded {
        /// The node.
        node: NodeId,
        /// Whose failure; `None`: already now.
        failed: Option<NodeId>,
        /// The load there would be.
        share: f64,
        /// The load there may be.
        allowed: f64,
    },
    /// A node has tenants in common with too many others.
    TooManyNeighbours {
        /// The node.
        node: NodeId,
        /// With how many.
        neighbours: usize,
        /// With how many it may.
        allowed: usize,
    },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoOtherNode => "there is no other node",
            Self::NoMemory => "no other node has the memory",
            Self::Budget => "the migration budget is used up",
        })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told(&Numbers))
    }
}

impl Violation {
    /// In words.
    #[must_use]
    pub fn told(&self, names: &dyn Names) -> String {
        match self {
            Self::AllCopiesLost { tenant } => {
                format!(
                    "all nodes with a copy of {} are lost",
                    names.tenant(*tenant)
                )
            }
            Self::TenantTooLarge { tenant } => {
                format!("no node could hold {}, even alone", names.tenant(*tenant))
            }
            Self::TooFewCopies {
                tenant,
                live,
                wanted,
                obstacle,
            } => format!(
                "{} has {live} of {wanted} copies: {obstacle}",
                names.tenant(*tenant)
            ),
            Self::StillDraining { node, copies } => {
                format!("{} is draining and has {copies} copies", names.node(*node))
            }
            Self::MemoryExceeded {
                node,
                bytes,
                allowed_bytes,
            } => format!(
                "{} has copies of {bytes} bytes, where {allowed_bytes} are allowed",
                names.node(*node)
            ),
            Self::Overloaded {
                node,
                failed,
                share,
                allowed,
            } => overload(names, *node, *failed, *share, *allowed),
            Self::TooManyNeighbours {
                node,
                neighbours,
                allowed,
            } => format!(
                "{} has tenants in common with {neighbours} nodes, where {allowed} are allowed",
                names.node(*node)
            ),
        }
    }
}

/// The report of an assignment, but for what only the planner knows.
pub(crate) fn report(state: &Assignment<'_>, obstacles: &BTreeMap<usize, Obstacle>) -> Report {
    let facts = state.facts();
    let nodes = 0..facts.nodes.len();
    let tenants = 0..facts.tenants.len();
    let mut violations: Vec<Violation> = tenants
        .filter_map(|tenant| tenant_violation(state, tenant, obstacles))
        .collect();
    for node in nodes.clone() {
        node_violations(state, node, &mut violations);
    }
    Report {
        nodes: nodes.map(|node| node_report(state, node)).collect(),
        double_failures: double_failures(state),
        violations,
        blocked: Vec::new(),
        nodes_more: Some(0),
        copies_added: state.added().copies,
        bytes_added: state.added().bytes,
    }
}

fn node_report(state: &Assignment<'_>, node: usize) -> NodeReport {
    let known = &state.facts().nodes[node];
    let failed = state.worst_failure(node);
    NodeReport {
        node: known.id,
        load: state.load(node) as f64 / UNITS,
        worst_load: state.worst(node) as f64 / UNITS,
        worst_failure: failed.map(|failed| state.facts().nodes[failed].id),
        load_allowed: known.capacity as f64 / UNITS,
        memory_bytes: state.memory(node),
        memory_allowed_bytes: known.memory,
        neighbours: state.neighbours(node),
    }
}

fn tenant_violation(
    state: &Assignment<'_>,
    tenant: usize,
    obstacles: &BTreeMap<usize, Obstacle>,
) -> Option<Violation> {
    let facts = state.facts();
    let known = &facts.tenants[tenant];
    let live = state.members(tenant).len();
    if live == 0 && !known.lost.is_empty() {
        return Some(Violation::AllCopiesLost { tenant: known.id });
    }
    let mut nodes = facts.nodes.iter().filter(|node| node.ready).peekable();
    let somewhere = nodes.peek().is_none()
        || nodes.any(|node| facts.holds_alone(known, node.capacity, node.memory));
    if !somewhere {
        return Some(Violation::TenantTooLarge { tenant: known.id });
    }
    (live < known.copies).then(|| Violation::TooFewCopies {
        tenant: known.id,
        live,
        wanted: known.copies,
        // A move that found no room on its way is an obstacle of memory, too.
        obstacle: *obstacles.get(&tenant).unwrap_or(&Obstacle::NoMemory),
    })
}

impl Facts {
    /// Whether a node with this capacity and memory has room for a copy of this tenant, if it has nothing else
    /// and another copy fails.
    pub(crate) fn holds_alone(&self, tenant: &TenantFacts, capacity: i64, memory: u64) -> bool {
        let worst = tenant.parts.borne(tenant.copies.saturating_sub(1), true);
        worst <= capacity && tenant.memory <= memory
    }
}

fn node_violations(state: &Assignment<'_>, node: usize, violations: &mut Vec<Violation>) {
    let facts = state.facts();
    let known = &facts.nodes[node];
    let copies = state.tenants_on(node).len();
    if !known.ready && copies > 0 {
        let node = known.id;
        violations.push(Violation::StillDraining { node, copies });
    }
    if state.memory(node) > known.memory {
        violations.push(Violation::MemoryExceeded {
            node: known.id,
            bytes: state.memory(node),
            allowed_bytes: known.memory,
        });
    }
    if state.worst(node) > known.capacity {
        let already = state.load(node) > known.capacity;
        let failed = state.worst_failure(node).filter(|_| !already);
        let load = if already {
            state.load(node)
        } else {
            state.worst(node)
        };
        violations.push(Violation::Overloaded {
            node: known.id,
            failed: failed.map(|failed| facts.nodes[failed].id),
            share: share(load, known.capacity_whole),
            allowed: facts.allowed,
        });
    }
    if state.neighbours(node) > facts.neighbours_max {
        violations.push(Violation::TooManyNeighbours {
            node: known.id,
            neighbours: state.neighbours(node),
            allowed: facts.neighbours_max,
        });
    }
}

fn double_failures(state: &Assignment<'_>) -> DoubleFailures {
    let nodes = state.facts().nodes.len();
    let tenants = state.facts().tenants.len();
    let pairs = nodes * nodes.saturating_sub(1) / 2;
    if pairs == 0 || tenants == 0 {
        return DoubleFailures::default();
    }
    let mut hit = vec![false; nodes * nodes];
    let mut losses = 0;
    let mut lose = |one: usize, other: usize| {
        hit[one.min(other) * nodes + one.max(other)] = true;
        losses += 1;
    };
    for tenant in 0..tenants {
        match *state.members(tenant) {
            [one, other] => lose(one, other),
            // Whatever fails beside its only node.
            [only] => (0..nodes)
                .filter(|&n| n != only)
                .for_each(|n| lose(only, n)),
            _ => {}
        }
    }
    DoubleFailures {
        pairs_hit: hit.iter().filter(|hit| **hit).count() as f64 / pairs as f64,
        tenants_hit: f64::from(losses) / pairs as f64 / tenants as f64,
    }
}
