//! How long a plan takes: `cargo bench -p aerostat-placement`.
//!
//! Tenants with skewed loads on nodes alike: placed for the first time, at rest, after a node was lost, after a
//! node came, and on too few nodes.
#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a benchmark prints what it measures"
)]

use std::time::Instant;

use aerostat_placement::{
    Inventory, Load, LoadSplit, Node, NodeId, NodeState, Plan, Policy, Tenant, TenantId, plan,
};

fn main() {
    for (tenants, nodes) in [(100, 8), (300, 16), (1_000, 50), (4_000, 200)] {
        for (name, split) in [
            ("led", LoadSplit::default()),
            ("balanced", LoadSplit::BALANCED),
        ] {
            println!("{tenants} tenants, {nodes} nodes, loads {name}");
            measure(tenants, nodes, split);
        }
    }
}

fn measure(tenants: u32, nodes: u32, split: LoadSplit) {
    let policy = Policy::default().without_budget();
    let nodes: Vec<Node> = (1..=nodes).map(node).collect();
    let tenants = skewed(tenants, nodes.len() as f64 * 0.7, split);
    let fresh = Inventory::new(nodes.clone(), tenants.clone()).expect("ids are distinct");
    let first = timed("placed for the first time", &fresh, &policy);
    let mut rest = fresh.clone();
    for step in &first.moves {
        rest.apply(step).expect("plans can be done");
    }
    timed("at rest", &rest, &policy);
    let with = |nodes| Inventory::new(nodes, rest.tenants().to_vec()).expect("ids are distinct");
    let mut lost = nodes.clone();
    lost[0].state = NodeState::Lost;
    timed("a node lost", &with(lost), &policy);
    let mut more = nodes.clone();
    more.push(node(9_999));
    timed("a node more", &with(more), &policy);
    let few = nodes[..nodes.len() * 3 / 4].to_vec();
    let few = Inventory::new(few, tenants).expect("ids are distinct");
    timed("on three quarters of the nodes", &few, &policy);
}

fn timed(name: &str, inventory: &Inventory, policy: &Policy) -> Plan {
    let begin = Instant::now();
    let plan = plan(inventory, policy);
    let took = begin.elapsed().as_secs_f64() * 1e3;
    let report = &plan.report;
    println!(
        "  {name:32} {took:9.1} ms, {:5} copies added, {:3} violations, {:?} nodes more",
        report.copies_added,
        report.violations.len(),
        report.nodes_more,
    );
    plan
}

fn node(id: u32) -> Node {
    Node {
        id: NodeId(id),
        memory_bytes: 1 << 40,
        capacity: Load::new(1.0).expect("1 is a load"),
        state: NodeState::Ready,
    }
}

/// Unplaced tenants whose loads fall by their rank, as in a Zipf distribution, and are `sum` together.
fn skewed(count: u32, sum: f64, split: LoadSplit) -> Vec<Tenant> {
    let weight = |rank: u32| 1.0 / f64::from(rank + 10);
    let whole: f64 = (1..=count).map(weight).sum();
    let tenant = |rank| Tenant {
        id: TenantId(rank),
        load: Load::new((weight(rank) / whole * sum).min(0.4)).expect("a share is a load"),
        split,
        memory_bytes: 1 << 30,
        wanted: None,
        copies: Vec::new(),
        leader: None,
    };
    (1..=count).map(tenant).collect()
}
