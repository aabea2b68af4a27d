//! Properties of every plan, on instances from seeds.
//!
//! `PLACEMENT_SEED` and `PLACEMENT_SEEDS` choose the first seed and how many; a failing seed is printed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    Change, Inventory, Move, Node, NodeId, NodeState, Plan, Policy, Tenant, plan, what_if,
};

use super::generate::{Seed, after, instance};

fn number(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn plans_are_safe_and_keep_what_they_promise() {
    let first = number("PLACEMENT_SEED", 0);
    let count = number("PLACEMENT_SEEDS", 2_000);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, feasible) = (AtomicU64::new(first), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    feasible.fetch_add(u64::from(is_feasible(seed)), Ordering::Relaxed);
                }
            });
        }
    });
    // Otherwise the rules were hardly looked at.
    let feasible = feasible.into_inner();
    assert!(feasible >= count / 5, "{feasible} of {count} are feasible");
}

/// Checks all about the plan of one instance; whether it met everything.
fn is_feasible(seed: u64) -> bool {
    let _seed = Seed(seed);
    let (inventory, policy) = instance(seed);
    let plan = plan(&inventory, &policy);
    check_moves(&inventory, &policy, &plan);
    check_budget(&policy, &plan);
    check_order_of_input(&inventory, &policy, &plan);
    let end = after(&inventory, &plan);
    check_report(&end, &plan);
    let feasible = plan.report.feasible();
    if feasible {
        check_rules(&end, &policy);
        check_rest(&end, &policy, &plan);
    }
    if seed.is_multiple_of(20) {
        check_coming_to_rest(end, &policy);
    }
    feasible
}

/// No move is impossible, takes a copy that is needed, or goes where there is no room.
fn check_moves(inventory: &Inventory, policy: &Policy, plan: &Plan) {
    let mut now = inventory.clone();
    for step in &plan.moves {
        // A second copy on a node, and the removal of a leader, are impossible.
        now.apply(step)
            .unwrap_or_else(|error| panic!("{step}: {error}"));
        let tenant = inventory.tenant(step.tenant).unwrap();
        let least = live(inventory, step).min(wanted(tenant, policy));
        assert!(live(&now, step) >= least, "{step}");
        if let Change::AddCopy { node } = step.change {
            let to = find(&now, node);
            assert_eq!(to.state, NodeState::Ready, "{step}");
            let used = memory_used(&now)[&node];
            assert!(used as f64 <= memory_allowed(to, policy), "{step}: {used}");
        }
    }
    // Where a copy is live, the leader is.
    for tenant in now.tenants() {
        let is_live = |node: &NodeId| find(&now, *node).state != NodeState::Lost;
        if tenant.copies.iter().any(is_live) {
            assert!(tenant.leader.as_ref().is_some_and(is_live));
        }
    }
}

fn find(inventory: &Inventory, id: NodeId) -> &Node {
    let mut nodes = inventory.nodes().iter();
    nodes.find(|node| node.id == id).unwrap()
}

/// How many live copies the tenant of a move has.
fn live(inventory: &Inventory, step: &Move) -> usize {
    let copies = inventory.tenant(step.tenant).unwrap().copies.iter();
    let live = copies.filter(|node| find(inventory, **node).state != NodeState::Lost);
    live.count()
}

fn memory_used(inventory: &Inventory) -> BTreeMap<NodeId, u64> {
    let mut used = BTreeMap::new();
    for tenant in inventory.tenants() {
        for &node in &tenant.copies {
            *used.entry(node).or_default() += tenant.memory_bytes;
        }
    }
    used
}

fn memory_allowed(node: &Node, policy: &Policy) -> f64 {
    node.memory_bytes as f64 * (1.0 - policy.memory_headroom.get())
}

fn check_budget(policy: &Policy, plan: &Plan) {
    let report = &plan.report;
    let added = |step: &&Move| matches!(step.change, Change::AddCopy { .. });
    assert_eq!(plan.moves.iter().filter(added).count(), report.copies_added);
    assert!(report.copies_added <= policy.copies_added_max);
    assert!(report.bytes_added <= policy.bytes_added_max || report.copies_added == 1);
}

/// The same input in another order gives the same plan.
fn check_order_of_input(inventory: &Inventory, policy: &Policy, first: &Plan) {
    let mut nodes = inventory.nodes().to_vec();
    let mut tenants = inventory.tenants().to_vec();
    nodes.reverse();
    tenants.reverse();
    for tenant in &mut tenants {
        tenant.copies.reverse();
    }
    let turned = Inventory::new(nodes, tenants).unwrap();
    assert_eq!(plan(&turned, policy), *first);
}

/// The report says what the inventory after all moves is like.
fn check_report(end: &Inventory, plan: &Plan) {
    let used = memory_used(end);
    let now = what_if(end, &[]);
    for node in &plan.report.nodes {
        let bytes = used.get(&node.node).copied().unwrap_or(0);
        assert_eq!(node.memory_bytes, bytes);
        assert_eq!(node.neighbours, neighbours(end, node.node));
    }
    let capacity = |id| find(end, id).capacity.get();
    let loads = plan.report.nodes.iter().map(|node| {
        let share = node.load / capacity(node.node).max(1e-9);
        assert!(node.worst_load >= node.load);
        share
    });
    let fullest = loads.fold(0.0, f64::max);
    assert!((fullest - now.fullest).abs() <= 1e-6 * fullest, "{now:?}");
}

/// How many copies a tenant is to have.
fn wanted(tenant: &Tenant, policy: &Policy) -> usize {
    tenant.wanted.unwrap_or(policy.copies).get()
}

fn neighbours(inventory: &Inventory, node: NodeId) -> usize {
    let with = inventory
        .tenants()
        .iter()
        .filter(|tenant| tenant.copies.contains(&node));
    let mut others: Vec<NodeId> = with
        .flat_map(|tenant| &tenant.copies)
        .copied()
        .filter(|other| *other != node && find(inventory, *other).state != NodeState::Lost)
        .collect();
    others.sort_unstable();
    others.dedup();
    others.len()
}

/// The rules, from their definitions.
fn check_rules(end: &Inventory, policy: &Policy) {
    for tenant in end.tenants() {
        let ready = |node: &&NodeId| find(end, **node).state == NodeState::Ready;
        let wanted = wanted(tenant, policy);
        assert_eq!(tenant.copies.len(), wanted);
        assert_eq!(tenant.copies.iter().filter(ready).count(), wanted);
    }
    let used = memory_used(end);
    for node in end.nodes() {
        let bytes = used.get(&node.id).copied().unwrap_or(0);
        assert!(bytes as f64 <= memory_allowed(node, policy));
        assert!(neighbours(end, node.id) <= policy.neighbours_max);
        let failed = what_if(end, &[node.id]);
        let allowed = 1.0 - policy.load_headroom.get();
        assert!(failed.overloaded.is_empty() && failed.fullest <= allowed + 1e-6);
        let is_single = |tenant: &Tenant| wanted(tenant, policy) == 1;
        let any_single = end.tenants().iter().any(is_single);
        assert!((failed.kept() - 1.0).abs() < 1e-6 || any_single);
        assert!(failed.down.is_empty() || any_single);
    }
}

/// A second plan is empty, unless something held the first one up.
fn check_rest(end: &Inventory, policy: &Policy, first: &Plan) {
    let budget = policy.copies_added_max.min(1_000) as u64 * policy.bytes_added_max.min(1 << 50);
    if first.report.blocked.is_empty() && budget >= 1_000 << 50 {
        assert_eq!(plan(end, policy).moves, []);
    }
}

/// Plans that follow one another with nothing changed between them end, also where nothing is feasible.
fn check_coming_to_rest(mut inventory: Inventory, policy: &Policy) {
    // With the smallest budget every copy of 40 tenants takes a plan, and it may move later.
    for _ in 0..400 {
        let next = plan(&inventory, policy);
        if next.moves.is_empty() {
            return;
        }
        inventory = after(&inventory, &next);
    }
    panic!("400 plans and no end");
}
