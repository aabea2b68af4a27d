//! The effect of failures on users, in a placement as it is.
//!
//! Nobody has moved anything yet: survivors take over what failed nodes bore. Head-room does not count here; a
//! node misses its goal above its whole capacity.

use std::collections::BTreeSet;

use aerostat_types::{NodeId, TenantId};
use serde::{Deserialize, Serialize};

use crate::facts::{Parts, UNITS, share};
use crate::inventory::{Inventory, NodeState, Tenant};

/// A placement after failures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhatIf {
    /// The load of all tenants.
    pub load: f64,
    /// The part of it that is served within the goal.
    pub load_in_goal: f64,
    /// The fullest live node's load, as a share of its capacity. While every tenant's load grows or falls
    /// alike, its inverse is how far until the first node misses its goal.
    pub fullest: f64,
    /// Live nodes above their capacities.
    pub overloaded: Vec<NodeId>,
    /// Tenants without a live copy.
    pub down: Vec<TenantId>,
}

impl WhatIf {
    /// The share of the load that is served within the goal: users kept.
    #[must_use]
    pub fn kept(&self) -> f64 {
        if self.load > 0.0 {
            self.load_in_goal / self.load
        } else {
            1.0
        }
    }
}

/// The effect of periodic single failures, of one node after another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SingleFailures {
    /// The share of the load within the goal, on average over the failing nodes.
    pub kept_mean: f64,
    /// The same for the failure that is worst.
    pub kept_min: f64,
    /// How many users can be served within the goal during any single failure, relative to how many can be
    /// without one: text 001's measure, where it is 0.94 of the interleaved layout and 0.54 of the mirrored.
    pub throughput_kept: f64,
}

/// The placement after these nodes failed, too, beside those that are lost already. Ids of no node are ignored.
#[must_use]
pub fn what_if(inventory: &Inventory, failed: &[NodeId]) -> WhatIf {
    let failed: BTreeSet<NodeId> = failed.iter().copied().collect();
    let nodes = inventory.nodes();
    let is_live: Vec<bool> = nodes
        .iter()
        .map(|node| node.state != NodeState::Lost && !failed.contains(&node.id))
        .collect();
    let served: Vec<Served> = inventory
        .tenants()
        .iter()
        .map(|tenant| Served::of(inventory, tenant, &is_live))
        .collect();
    let mut loads = vec![0; nodes.len()];
    for tenant in &served {
        for &node in &tenant.live {
            loads[node] += tenant.borne(node);
        }
    }
    let capacity = |node: usize| (nodes[node].capacity.get() * UNITS).floor() as i64;
    let is_within: Vec<bool> = loads
        .iter()
        .enumerate()
        .map(|(node, &load)| load <= capacity(node))
        .collect();
    let units = |sum: i64| sum as f64 / UNITS;
    WhatIf {
        load: units(served.iter().map(|tenant| tenant.parts.whole()).sum()),
        load_in_goal: units(served.iter().map(|tenant| tenant.in_goal(&is_within)).sum()),
        fullest: loads
            .iter()
            .enumerate()
            .map(|(node, &load)| share(load, capacity(node)))
            .fold(0.0, f64::max),
        overloaded: (0..nodes.len())
            .filter(|&node| !is_within[node])
            .map(|node| nodes[node].id)
            .collect(),
        down: served
            .iter()
            .filter(|tenant| tenant.live.is_empty())
            .map(|tenant| tenant.id)
            .collect(),
    }
}

/// The effect of each single failure; without a node that could fail, there is none.
#[must_use]
pub fn single_failures(inventory: &Inventory) -> SingleFailures {
    let nodes = inventory.nodes().iter();
    let failures: Vec<WhatIf> = nodes
        .filter(|node| node.state != NodeState::Lost)
        .map(|node| what_if(inventory, &[node.id]))
        .collect();
    let kept = failures.iter().map(WhatIf::kept);
    let fullest = failures.iter().map(|after| after.fullest);
    let fullest = fullest.fold(0.0, f64::max);
    let without = what_if(inventory, &[]).fullest;
    SingleFailures {
        kept_mean: kept.clone().sum::<f64>() / failures.len().max(1) as f64,
        kept_min: kept.fold(1.0, f64::min),
        throughput_kept: if fullest > 0.0 {
            without / fullest
        } else {
            1.0
        },
    }
}

/// A tenant and the nodes that serve it.
struct Served {
    id: TenantId,
    parts: Parts,
    /// Places of the live nodes with a copy.
    live: Vec<usize>,
    /// The place of its leader, if that is live. Otherwise each live copy may be the next leader.
    leader: Option<usize>,
}

impl Served {
    fn of(inventory: &Inventory, tenant: &Tenant, is_live: &[bool]) -> Self {
        let place = |node: &NodeId| inventory.place_of(*node).filter(|&place| is_live[place]);
        Self {
            id: tenant.id,
            parts: Parts::of(tenant),
            live: tenant.copies.iter().filter_map(place).collect(),
            leader: tenant.leader.as_ref().and_then(place),
        }
    }

    fn may_lead(&self, node: usize) -> bool {
        self.leader.is_none_or(|leader| leader == node)
    }

    fn borne(&self, node: usize) -> i64 {
        self.parts.borne(self.live.len(), self.may_lead(node))
    }

    /// The units of its load that nodes within their capacities serve. Commits wait for every copy, so
    /// writes are within the goal only if all copies are.
    fn in_goal(&self, is_within: &[bool]) -> i64 {
        let Some(last) = self.live.len().checked_sub(1) else {
            return 0;
        };
        let within = self.live.iter().filter(|&&node| is_within[node]).count();
        let mut leaders = self.live.iter().filter(|&&node| self.may_lead(node));
        let led = leaders.all(|&node| is_within[node]);
        let mut served = self.parts.shared * within as i64 / (last as i64 + 1);
        if within > last {
            served += self.parts.written;
        }
        if led {
            served += self.parts.led;
        }
        served
    }
}
