//! The mirrored layout that text 001 compares with: nodes in pairs, both with the same tenants.

use std::cmp::Reverse;

use crate::{Inventory, LoadSplit, Node, NodeId, Tenant};

use super::generate::like_nodes;

/// The fewest nodes of capacity 1 that best-fit packing into pairs needs: of each pair, one node has to bear
/// all loads when the other fails.
pub(super) fn nodes_needed(tenants: &[Tenant]) -> usize {
    2 * pack(tenants).len()
}

/// Which tenants go on which pair of nodes.
fn pack(tenants: &[Tenant]) -> Vec<Vec<usize>> {
    let load = |tenant: usize| tenants[tenant].load.get();
    let mut order: Vec<usize> = (0..tenants.len()).collect();
    order.sort_by_key(|&tenant| Reverse((load(tenant) * 1e9) as u64));
    let mut pairs: Vec<(f64, Vec<usize>)> = Vec::new();
    for tenant in order {
        let fullest_with_room = pairs
            .iter_mut()
            .filter(|(full, _)| full + load(tenant) <= 1.0)
            .max_by(|one, other| one.0.total_cmp(&other.0));
        match fullest_with_room {
            Some((full, on)) => {
                *full += load(tenant);
                on.push(tenant);
            }
            None => pairs.push((load(tenant), vec![tenant])),
        }
    }
    pairs.into_iter().map(|(_, on)| on).collect()
}

/// Tenants that are alike, on so many nodes in pairs.
pub(super) fn placed(tenants: &[Tenant], nodes: u32, memory_bytes: u64) -> Inventory {
    let nodes: Vec<Node> = like_nodes(nodes, memory_bytes);
    let pairs = nodes.len() / 2;
    let mut tenants = tenants.to_vec();
    for (index, tenant) in tenants.iter_mut().enumerate() {
        let pair = index % pairs * 2;
        let copies: [NodeId; 2] = [nodes[pair].id, nodes[pair + 1].id];
        tenant.copies = copies.to_vec();
        // Leads are spread over both.
        tenant.leader = Some(copies[index / pairs % 2]);
    }
    assert!(
        tenants
            .iter()
            .all(|tenant| tenant.split == LoadSplit::BALANCED)
    );
    Inventory::new(nodes, tenants).unwrap()
}
