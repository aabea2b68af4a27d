//! Nodes and tenants made from seeds.

use std::num::NonZeroUsize;

use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::{Inventory, Load, LoadSplit, Node, NodeId, NodeState, Policy, Share, Tenant, TenantId};

pub(crate) const GIB: u64 = 1 << 30;

/// Says which seed it was when a test fails.
pub(crate) struct Seed(pub(crate) u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

pub(crate) fn load(load: f64) -> Load {
    Load::new(load).unwrap()
}

pub(crate) fn share(share: f64) -> Share {
    Share::new(share).unwrap()
}

pub(crate) fn node(id: u32, memory_bytes: u64, capacity: f64) -> Node {
    Node {
        id: NodeId(id),
        memory_bytes,
        capacity: load(capacity),
        state: NodeState::Ready,
    }
}

/// Nodes of capacity 1 from id 1 on.
pub(crate) fn like_nodes(count: u32, memory_bytes: u64) -> Vec<Node> {
    (1..=count).map(|id| node(id, memory_bytes, 1.0)).collect()
}

/// A tenant with copies on nodes, of which the first leads.
pub(crate) fn tenant(id: u32, of_load: f64, memory_bytes: u64, copies: &[u32]) -> Tenant {
    Tenant {
        id: TenantId(id),
        load: load(of_load),
        split: LoadSplit::default(),
        memory_bytes,
        wanted: None,
        copies: copies.iter().map(|&id| NodeId(id)).collect(),
        leader: copies.first().map(|&id| NodeId(id)),
    }
}

/// A policy without head-room and budget, so that numbers are easy to follow.
pub(crate) fn tight() -> Policy {
    Policy {
        memory_headroom: Share::ZERO,
        load_headroom: Share::ZERO,
        ..Policy::default().without_budget()
    }
}

/// The inventory after all moves of a plan.
pub(crate) fn after(inventory: &Inventory, plan: &crate::Plan) -> Inventory {
    let mut after = inventory.clone();
    for step in &plan.moves {
        after
            .apply(step)
            .unwrap_or_else(|error| panic!("{step}: {error}"));
    }
    after
}

/// A log-normal number with this median: most are near it, few are many times as large.
pub(crate) fn log_normal(random: &mut StdRng, median: f64, sigma: f64) -> f64 {
    let (one, other): (f64, f64) = (random.random(), random.random());
    let radius = (-2.0 * (1.0 - one).ln()).sqrt();
    let normal = radius * (std::f64::consts::TAU * other).cos();
    median * (sigma * normal).exp()
}

/// Tenants with skewed rates and sizes whose loads are `sum` together, none above `largest`, unplaced.
/// Text 001 says only that rates and sizes differ; sizes and rates of hosted businesses are near
/// log-normal, and `load = rate · size^0.95` is then, too.
pub(crate) fn skewed(
    random: &mut StdRng,
    count: u32,
    sum: f64,
    largest: f64,
    split: LoadSplit,
) -> Vec<Tenant> {
    let drawn: Vec<(f64, f64)> = (0..count)
        .map(|_| {
            let size = log_normal(random, 0.2 * GIB as f64, 1.0);
            let rate = log_normal(random, 1.0, 1.0);
            (size, rate * size.powf(0.95))
        })
        .collect();
    let whole: f64 = drawn.iter().map(|(_, work)| work).sum();
    (1..)
        .zip(drawn)
        .map(|(id, (size, work))| Tenant {
            split,
            ..tenant(id, (work / whole * sum).min(largest), size as u64, &[])
        })
        .collect()
}

/// Some instance, often an odd one: few or many nodes, lost and draining ones, tenants with too many or too few
/// copies anywhere, tight memory, tight caps and budgets.
pub(crate) fn instance(seed: u64) -> (Inventory, Policy) {
    let random = &mut StdRng::seed_from_u64(seed);
    let count: u32 = random.random_range(1..=12);
    let alike = random.random_bool(0.5);
    let memory = GIB * random.random_range(4..40);
    let lossy = random.random_bool(0.5);
    let nodes: Vec<Node> = (1..=count)
        .map(|id| Node {
            state: match random.random_range(0..12) {
                0 if lossy => NodeState::Lost,
                1 if lossy => NodeState::Draining,
                _ => NodeState::Ready,
            },
            ..node(
                id,
                if alike {
                    memory
                } else {
                    memory + GIB * random.random_range(0..20)
                },
                if alike {
                    1.0
                } else {
                    f64::from(random.random_range(0..5)) / 2.0
                },
            )
        })
        .collect();
    let tenants: u32 = random.random_range(0..40);
    let sum = f64::from(count) * random.random_range(0.1..1.1);
    let split = match random.random_range(0..3) {
        0 => LoadSplit::BALANCED,
        1 => LoadSplit::default(),
        _ => LoadSplit::new(share(0.2), share(0.3)).unwrap(),
    };
    let mut tenants = skewed(random, tenants, sum, 2.0, split);
    let (placed, mixed) = (random.random_bool(0.8), random.random_bool(0.3));
    for tenant in tenants.iter_mut().filter(|_| placed) {
        let copies = random.random_range(0..=4_usize).min(3);
        let mut free: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
        while tenant.copies.len() < copies && !free.is_empty() {
            let place = random.random_range(0..free.len());
            tenant.copies.push(free.swap_remove(place));
        }
        let wanted = random.random_range(1..=12_usize);
        let wanted = NonZeroUsize::new(wanted).filter(|wanted| wanted.get() <= 3);
        tenant.wanted = wanted.filter(|_| mixed);
        let leaderless = random.random_bool(0.05);
        tenant.leader = tenant.copies.first().copied().filter(|_| !leaderless);
    }
    let policy = Policy {
        copies: NonZeroUsize::new([1, 2, 2, 2, 3][random.random_range(0..5)]).unwrap(),
        neighbours_max: random.random_range(1..8),
        copies_added_max: random.random_range(0..60),
        bytes_added_max: GIB * random.random_range(0..60),
        load_headroom: share(random.random_range(0.0..0.2)),
        ..Policy::default()
    };
    let policy = if random.random_bool(0.5) {
        policy.without_budget()
    } else {
        policy
    };
    (Inventory::new(nodes, tenants).unwrap(), policy)
}
