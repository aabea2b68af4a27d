//! How many nodes tenants need, found by planning them on more and more nodes.

use crate::facts::{Facts, NodeFacts, TenantFacts, node_facts};
use crate::inventory::{Inventory, InventoryError, NODES_MAX, Node, NodeState, Tenant};
use crate::policy::Policy;
use crate::search::{Budget, Search};

/// The fewest nodes like `like` on which the planner places these tenants, wherever they are now, as the policy
/// wants it; `None` when more nodes do not help, or [`NODES_MAX`] are too few. The state of `like` does not
/// matter.
///
/// # Errors
/// When two tenants have one id, or there are too many.
pub fn nodes_needed(
    tenants: &[Tenant],
    like: &Node,
    policy: &Policy,
) -> Result<Option<usize>, InventoryError> {
    let unplaced = |tenant: &Tenant| Tenant {
        copies: Vec::new(),
        leader: None,
        ..tenant.clone()
    };
    let inventory = Inventory::new(Vec::new(), tenants.iter().map(unplaced).collect())?;
    let facts = Facts::new(&inventory, policy);
    let ready = Node {
        state: NodeState::Ready,
        ..like.clone()
    };
    Ok(more(&facts, &[], &node_facts(&ready, policy)))
}

/// How many more nodes, like most that are ready, the tenants need; `None` as in [`nodes_needed`].
pub(crate) fn nodes_more(facts: &Facts) -> Option<usize> {
    let mut ready: Vec<NodeFacts> = facts.nodes.clone();
    ready.retain(|node| node.ready);
    let like = commonest(&ready)?.clone();
    more(facts, &ready, &like)
}

fn commonest(nodes: &[NodeFacts]) -> Option<&NodeFacts> {
    let kind = |node: &NodeFacts| (node.capacity, node.memory);
    let count = |node: &NodeFacts| nodes.iter().filter(|one| kind(one) == kind(node)).count();
    nodes.iter().max_by_key(|node| (count(node), kind(node)))
}

/// The least number that suffices, between a bound that is below it and one that is found by doubling.
fn more(facts: &Facts, ready: &[NodeFacts], like: &NodeFacts) -> Option<usize> {
    if !each_alone(facts, ready, like) {
        return None;
    }
    // With a node for each copy there is nothing left to spread.
    let most = facts.tenants.iter().map(|tenant| tenant.copies).sum();
    let room = NODES_MAX.checked_sub(ready.len())?.min(most);
    let least = lower_bound(facts, ready, like).filter(|&least| least <= room)?;
    let suffices = |count: usize| suffices(facts, ready, like, count);
    let (mut below, mut enough) = (least, least);
    let mut step = 1;
    while !suffices(enough) {
        if enough == room {
            return None;
        }
        below = enough + 1;
        enough = (enough + step).min(room);
        step *= 2;
    }
    while below < enough {
        let middle = below.midpoint(enough);
        if suffices(middle) {
            enough = middle;
        } else {
            below = middle + 1;
        }
    }
    Some(enough)
}

/// Whether some node could hold each tenant if it had nothing else, and the cap allows that many copies.
fn each_alone(facts: &Facts, ready: &[NodeFacts], like: &NodeFacts) -> bool {
    let holds = |tenant: &TenantFacts| {
        let mut kinds = ready.iter().chain([like]);
        kinds.any(|node| facts.holds_alone(tenant, node.capacity, node.memory))
    };
    let copies = copies_most(facts);
    facts.neighbours_max + 1 >= copies && facts.tenants.iter().all(holds)
}

/// The copies of the tenant that has most.
fn copies_most(facts: &Facts) -> usize {
    facts
        .tenants
        .iter()
        .map(|tenant| tenant.copies)
        .max()
        .unwrap_or(0)
}

/// Fewer nodes cannot suffice. Their memory has to hold all copies. Their capacity has to bear all loads and the
/// worst failure of each node, which shifts at least the average over the node's neighbours.
fn lower_bound(facts: &Facts, ready: &[NodeFacts], like: &NodeFacts) -> Option<usize> {
    let neighbours = facts.neighbours_max.max(1) as f64;
    let (mut load, mut memory) = (0.0, 0.0);
    for tenant in &facts.tenants {
        let (parts, copies) = (tenant.parts, tenant.copies);
        let led = parts.borne(copies, true) - parts.borne(copies, false);
        load += (parts.borne(copies, false) * copies as i64 + led) as f64;
        if copies > 1 {
            let pairs = copies as i64 - 1;
            let after_leader = parts.shifted(copies, true) * pairs;
            let after_others = parts.shifted(copies, false) * pairs * pairs;
            load += (after_leader + after_others) as f64 / neighbours;
        }
        memory += tenant.memory as f64 * copies as f64;
    }
    let capacity: f64 = ready.iter().map(|node| node.capacity as f64).sum();
    let bytes: f64 = ready.iter().map(|node| node.memory as f64).sum();
    let by_load = lacking(load - capacity, like.capacity as f64)?;
    let by_memory = lacking(memory - bytes, like.memory as f64)?;
    let by_copies = copies_most(facts).saturating_sub(ready.len());
    Some(by_load.max(by_memory).max(by_copies))
}

/// How many nodes with so much each make up for what is lacking.
fn lacking(lacking: f64, each: f64) -> Option<usize> {
    if lacking <= 0.0 {
        return Some(0);
    }
    // Sums of large numbers are rounded: a node less is tried, too.
    let count = (lacking / each - 1e-6).ceil();
    (count <= NODES_MAX as f64).then_some(count as usize)
}

/// Overloads above this share of all capacity are too large to be repaired by better packing: where placing
/// one after another leaves more, nodes are lacking, and a long search would end in vain.
const REPAIRABLE: f64 = 0.05;

/// Whether the planner can place all tenants, none of which is placed yet, on these nodes.
fn suffices(facts: &Facts, ready: &[NodeFacts], like: &NodeFacts, count: usize) -> bool {
    let mut nodes = ready.to_vec();
    nodes.extend(std::iter::repeat_n(like.clone(), count));
    let fresh = facts.afresh(nodes);
    let mut search = Search::new(&fresh, Budget::UNLIMITED);
    if !search.place_missing().is_empty() {
        return false;
    }
    let capacity: i64 = fresh.nodes.iter().map(|node| node.capacity).sum();
    if search.state.cost().overload as f64 > REPAIRABLE * capacity as f64 {
        return false;
    }
    search.repair();
    search.state.cost().is_feasible()
}
