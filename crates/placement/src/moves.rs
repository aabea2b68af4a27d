//! The moves of a plan, each with its reason.

use std::fmt;

use aerostat_types::{NodeId, TenantId};
use serde::{Deserialize, Serialize};

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// Whose copies it changes.
    pub tenant: TenantId,
    /// Its effect.
    pub change: Change,
    /// Why.
    pub reason: Reason,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tenant,
            change,
            reason,
        } = self;
        write!(f, "tenant {tenant}: {change}, because {reason}")
    }
}

/// The effect of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Makes a copy. A tenant's first copy leads.
    AddCopy {
        /// Where.
        node: NodeId,
    },
    /// Makes another copy the leader.
    HandOverLead {
        /// The new leader, which has a copy.
        to: NodeId,
    },
    /// Removes a copy, which does not lead.
    RemoveCopy {
        /// From where.
        node: NodeId,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddCopy { node } => write!(f, "add a copy on node {node}"),
            Self::HandOverLead { to } => write!(f, "hand the lead over to node {to}"),
            Self::RemoveCopy { node } => write!(f, "remove the copy on node {node}"),
        }
    }
}

/// Why a copy or a lead moves. Shares are of a node's whole capacity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reason {
    /// The leader's node is lost.
    LeaderLost {
        /// That node.
        node: NodeId,
    },
    /// Nobody leads the tenant.
    NoLeader,
    /// Too few copies are live.
    TooFewCopies {
        /// The tenant.
        tenant: TenantId,
        /// How many are live.
        live: usize,
    },
    /// The tenant is not placed yet.
    NewTenant {
        /// The tenant.
        tenant: TenantId,
    },
    /// The copy's node is lost, and the tenant has enough copies without it.
    NodeLost {
        /// That node.
        node: NodeId,
    },
    /// The tenant has more copies than the policy asks for.
    TooManyCopies {
        /// The tenant.
        tenant: TenantId,
        /// How many are live.
        live: usize,
    },
    /// The copy's node is draining.
    Draining {
        /// That node.
        node: NodeId,
    },
    /// A node has more in its memory than it may.
    Memory {
        /// The node.
        node: NodeId,
        /// What it has, in bytes.
        bytes: u64,
        /// What it may have, in bytes.
        allowed_bytes: u64,
    },
    /// A node's load is more than it may be, now or after a failure.
    Overload {
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
    Neighbours {
        /// The node.
        node: NodeId,
        /// With how many.
        neighbours: usize,
        /// With how many it may.
        allowed: usize,
    },
    /// Nothing is wrong; the fullest node gets less full.
    Balance {
        /// The fullest node.
        node: NodeId,
        /// Its load after its worst failure.
        share: f64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told(&Numbers))
    }
}

/// What nodes and tenants are called in messages.
pub trait Names {
    /// A node, as in "… is lost".
    fn node(&self, id: NodeId) -> String;

    /// A tenant, as in "… is new".
    fn tenant(&self, id: TenantId) -> String;
}

/// They are called by their numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbers;

impl Names for Numbers {
    fn node(&self, id: NodeId) -> String {
        format!("node {id}")
    }

    fn tenant(&self, id: TenantId) -> String {
        format!("tenant {id}")
    }
}

impl Reason {
    /// In words.
    #[must_use]
    pub fn told(&self, names: &dyn Names) -> String {
        match self {
            Self::LeaderLost { node } => format!("{}, which led, is lost", names.node(*node)),
            Self::NoLeader => "nobody leads".to_owned(),
            Self::TooFewCopies { tenant, live: 1 } => {
                format!("{} has one copy", names.tenant(*tenant))
            }
            Self::TooFewCopies { tenant, live } | Self::TooManyCopies { tenant, live } => {
                format!("{} has {live} copies", names.tenant(*tenant))
            }
            Self::NewTenant { tenant } => format!("{} is new", names.tenant(*tenant)),
            Self::NodeLost { node } => format!("{} is lost", names.node(*node)),
            Self::Draining { node } => format!("{} is draining", names.node(*node)),
            Self::Memory {
                node,
                bytes,
                allowed_bytes,
            } => format!(
                "{} has copies of {bytes} bytes, where {allowed_bytes} are allowed",
                names.node(*node)
            ),
            Self::Overload {
                node,
                failed,
                share,
                allowed,
            } => overload(names, *node, *failed, *share, *allowed),
            Self::Neighbours {
                node,
                neighbours,
                allowed,
            } => format!(
                "{} has tenants in common with {neighbours} nodes, where {allowed} are allowed",
                names.node(*node)
            ),
            Self::Balance { node, share } => format!(
                "{} is the fullest, at {share:.2} of its capacity after a failure",
                names.node(*node)
            ),
        }
    }
}

/// `node 2 would be at 1.23 of its capacity if node 5 failed, where 0.95 is allowed`.
pub(crate) fn overload(
    names: &dyn Names,
    node: NodeId,
    failed: Option<NodeId>,
    share: f64,
    allowed: f64,
) -> String {
    let node = names.node(node);
    let is = match failed {
        Some(failed) => format!(
            "{node} would be at {share:.2} of its capacity if {} failed",
            names.node(failed)
        ),
        None => format!("{node} is at {share:.2} of its capacity"),
    };
    match allowed < 1.0 {
        true => format!("{is}, where {allowed:.2} is allowed"),
        false => is,
    }
}
