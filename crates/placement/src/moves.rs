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
        match self {
            Self::LeaderLost { node } => write!(f, "node {node}, which led, is lost"),
            Self::NoLeader => write!(f, "nobody leads"),
            Self::TooFewCopies { tenant, live: 1 } => write!(f, "tenant {tenant} has one copy"),
            Self::TooFewCopies { tenant, live } | Self::TooManyCopies { tenant, live } => {
                write!(f, "tenant {tenant} has {live} copies")
            }
            Self::NewTenant { tenant } => write!(f, "tenant {tenant} is new"),
            Self::NodeLost { node } => write!(f, "node {node} is lost"),
            Self::Draining { node } => write!(f, "node {node} is draining"),
            Self::Memory {
                node,
                bytes,
                allowed_bytes,
            } => write!(
                f,
                "node {node} has copies of {bytes} bytes, where {allowed_bytes} are allowed"
            ),
            Self::Overload {
                node,
                failed,
                share,
                allowed,
            } => write_overload(f, *node, *failed, *share, *allowed),
            Self::Neighbours {
                node,
                neighbours,
                allowed,
            } => write!(
                f,
                "node {node} has tenants in common with {neighbours} nodes, where {allowed} are allowed"
            ),
            Self::Balance { node, share } => write!(
                f,
                "node {node} is the fullest, at {share:.2} of its capacity after a failure"
            ),
        }
    }
}

/// `node 2 would be at 1.23 of its capacity if node 5 failed, where 0.95 is allowed`.
pub(crate) fn write_overload(
    f: &mut fmt::Formatter<'_>,
    node: NodeId,
    failed: Option<NodeId>,
    share: f64,
    allowed: f64,
) -> fmt::Result {
    match failed {
        Some(failed) => write!(
            f,
            "node {node} would be at {share:.2} of its capacity if node {failed} failed"
        )?,
        None => write!(f, "node {node} is at {share:.2} of its capacity")?,
    }
    if allowed < 1.0 {
        write!(f, ", where {allowed:.2} is allowed")?;
    }
    Ok(())
}
