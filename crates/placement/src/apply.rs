//! Moves, played on an inventory: for simulations, and to see what a plan leads to.

use aerostat_types::{NodeId, TenantId};
use thiserror::Error;

use crate::inventory::Inventory;
use crate::moves::{Change, Move};

/// Why a move is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MoveError {
    /// The inventory has no such tenant.
    #[error("there is no tenant {0}")]
    NoTenant(TenantId),
    /// The inventory has no such node.
    #[error("there is no node {0}")]
    NoNode(NodeId),
    /// The node has a copy already.
    #[error("tenant {0} has a copy on node {1} already")]
    CopyExists(TenantId, NodeId),
    /// The node has no copy.
    #[error("tenant {0} has no copy on node {1}")]
    NoCopy(TenantId, NodeId),
    /// The node leads, so its copy cannot be removed.
    #[error("node {1} leads tenant {0}")]
    Leads(TenantId, NodeId),
}

impl Inventory {
    /// Does a move.
    ///
    /// # Errors
    /// When it is impossible; the inventory is as before.
    pub fn apply(&mut self, step: &Move) -> Result<(), MoveError> {
        let id = step.tenant;
        let (Change::AddCopy { node }
        | Change::HandOverLead { to: node }
        | Change::RemoveCopy { node }) = step.change;
        if self.place_of(node).is_none() {
            return Err(MoveError::NoNode(node));
        }
        let tenant = self.tenant_mut(id).ok_or(MoveError::NoTenant(id))?;
        let has_copy = tenant.copies.contains(&node);
        match step.change {
            Change::AddCopy { .. } if has_copy => return Err(MoveError::CopyExists(id, node)),
            Change::AddCopy { .. } => {
                if tenant.copies.is_empty() {
                    tenant.leader = Some(node);
                }
                tenant.copies.push(node);
            }
            _ if !has_copy => return Err(MoveError::NoCopy(id, node)),
            Change::HandOverLead { .. } => tenant.leader = Some(node),
            Change::RemoveCopy { .. } if tenant.leader == Some(node) => {
                return Err(MoveError::Leads(id, node));
            }
            Change::RemoveCopy { .. } => tenant.copies.retain(|&copy| copy != node),
        }
        Ok(())
    }
}
