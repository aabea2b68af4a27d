//! Placing tenants on nodes: packing by workload and by memory.
//!
//! Best-fit decreasing in two dimensions: tenants by falling demand, which is the larger of the
//! shares of a node that their workload and their memory take; each goes on the node where it
//! fits and leaves least. That needs few nodes more than the least possible number (Panigrahy et
//! al., "Heuristics for Vector Bin Packing", 2011), which is reported beside it.
//!
//! Copies of a tenant are on different nodes and share its requests.

use serde::Serialize;

use crate::PlanError;
use crate::fit::Interval;
use crate::model::Model;
use crate::tenants::Tenant;

/// What a node is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeLimits {
    /// Memory of a node, in bytes.
    pub memory_bytes: f64,
    /// The share of it that tenants' data may take; queries and new rows need the rest.
    pub data_share: f64,
    /// The workload that is given to a node; at 1 the goal is only just kept.
    pub load_max: f64,
    /// Threads of a node's queries.
    pub workers: usize,
    /// Copies of each tenant.
    pub copies: usize,
}

impl NodeLimits {
    fn data_bytes(&self) -> f64 {
        self.memory_bytes * self.data_share
    }

    fn check(&self) -> Result<(), PlanError> {
        let is_share = |value: f64| value > 0.0 && value <= 1.0;
        let sound = self.memory_bytes > 0.0
            && is_share(self.data_share)
            && is_share(self.load_max)
            && self.workers > 0
            && self.copies > 0;
        if sound {
            Ok(())
        } else {
            Err(PlanError::Limits)
        }
    }
}

/// A tenant on a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Placed {
    /// The tenant.
    pub name: String,
    /// Rows of its fact table.
    pub rows: f64,
    /// Bytes in memory.
    pub bytes: f64,
    /// Requests per second here.
    pub rate: f64,
    /// Its part of the node's workload.
    pub load: f64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedNode {
    /// Its workload, with the model's interval.
    pub load: Interval,
    /// By how much all its rates may rise together until the goal is only just kept, in
    /// percent, with the model's interval.
    pub headroom_percent: Interval,
    /// Bytes of its tenants.
    pub bytes: f64,
    /// Its tenants.
    pub tenants: Vec<Placed>,
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The nodes.
    pub nodes: Vec<PlannedNode>,
    /// With fewer nodes than these it cannot be done, by the sums of workload and memory.
    pub nodes_min: usize,
    /// The workload that a node is given.
    pub load_max: f64,
    /// The bytes of tenants that a node is given.
    pub bytes_max: f64,
    /// The goal of the 99th percentile that the workload is for, ms.
    pub goal_ms: f64,
    /// What the plan does not know.
    pub unknown: Vec<String>,
}

/// Places tenants on as many nodes as that takes.
///
/// # Errors
/// [`PlanError::TooLarge`] for a tenant that fits on no node, [`PlanError::Limits`].
pub fn place(model: &Model, tenants: &[Tenant], limits: &NodeLimits) -> Result<Plan, PlanError> {
    limits.check()?;
    let copies = limits.copies as f64;
    // The model's workload is of as many workers as it was measured with.
    let speed = limits.workers as f64 / model.measured.workers as f64;
    let items: Vec<Placed> = tenants
        .iter()
        .map(|tenant| Placed {
            name: tenant.name.clone(),
            rows: tenant.rows,
            bytes: tenant.bytes,
            rate: tenant.rate / copies,
            load: tenant.rate / copies / (model.rate_max(tenant.rows) * speed),
        })
        .collect();
    items.iter().try_for_each(|item| fits_alone(item, limits))?;
    let total = |of: fn(&Placed) -> f64| items.iter().map(of).sum::<f64>() * copies;
    let by_load = (total(|item| item.load) / limits.load_max).ceil() as usize;
    let by_memory = (total(|item| item.bytes) / limits.data_bytes()).ceil() as usize;
    let nodes = pack(items, limits).into_iter().map(|mut tenants| {
        tenants.sort_by(|a, b| b.load.total_cmp(&a.load).then_with(|| a.name.cmp(&b.name)));
        planned(model, tenants, speed)
    });
    Ok(Plan {
        nodes: nodes.collect(),
        nodes_min: by_load.max(by_memory).max(limits.copies),
        load_max: limits.load_max,
        bytes_max: limits.data_bytes(),
        goal_ms: model.measured.goal_ms,
        unknown: unknown(model, tenants, limits),
    })
}

fn fits_alone(item: &Placed, limits: &NodeLimits) -> Result<(), PlanError> {
    let too_large = |what, needs: f64, has: f64| {
        Err(PlanError::TooLarge {
            name: item.name.clone(),
            what,
            needs: format!("{needs:.2}"),
            has: format!("{has:.2}"),
        })
    };
    let mib = |bytes: f64| bytes / 1048576.0;
    if item.bytes > limits.data_bytes() {
        return too_large("MiB of memory", mib(item.bytes), mib(limits.data_bytes()));
    }
    if item.load > limits.load_max {
        return too_large("of workload", item.load, limits.load_max);
    }
    Ok(())
}

/// The items by nodes.
fn pack(mut items: Vec<Placed>, limits: &NodeLimits) -> Vec<Vec<Placed>> {
    let share = |item: &Placed| {
        let memory = item.bytes / limits.data_bytes();
        (item.load / limits.load_max, memory)
    };
    let demand = |item: &Placed| {
        let (load, memory) = share(item);
        load.max(memory)
    };
    // Names decide between equals, so that the same list gives the same plan.
    items.sort_by(|a, b| {
        demand(b)
            .total_cmp(&demand(a))
            .then_with(|| a.name.cmp(&b.name))
    });
    let mut nodes: Vec<(f64, f64, Vec<Placed>)> = Vec::new();
    for item in items {
        let (load, memory) = share(&item);
        let mut taken: Vec<usize> = Vec::new();
        for _ in 0..limits.copies {
            let left = |at: &usize| {
                let (node_load, node_memory, _) = &nodes[*at];
                (1.0 - node_load - load) + (1.0 - node_memory - memory)
            };
            let fits = |at: &usize| {
                let (node_load, node_memory, _) = &nodes[*at];
                !taken.contains(at) && node_load + load <= 1.0 && node_memory + memory <= 1.0
            };
            let best = (0..nodes.len())
                .filter(fits)
                .min_by(|a, b| left(a).total_cmp(&left(b)));
            let at = best.unwrap_or_else(|| {
                nodes.push((0.0, 0.0, Vec::new()));
                nodes.len() - 1
            });
            let node = &mut nodes[at];
            node.0 += load;
            node.1 += memory;
            node.2.push(item.clone());
            taken.push(at);
        }
    }
    nodes.into_iter().map(|(_, _, tenants)| tenants).collect()
}

fn planned(model: &Model, tenants: Vec<Placed>, speed: f64) -> PlannedNode {
    let rates: Vec<(f64, f64)> = tenants
        .iter()
        .map(|one| (one.rows, one.rate / speed))
        .collect();
    let load = model.workload(&rates);
    let headroom = |load: f64| (1.0 / load - 1.0) * 100.0;
    PlannedNode {
        load,
        headroom_percent: Interval {
            low: headroom(load.high),
            value: headroom(load.value),
            high: headroom(load.low),
        },
        bytes: tenants.iter().map(|one| one.bytes).sum(),
        tenants,
    }
}

/// What the plan does not know, in sentences.
fn unknown(model: &Model, tenants: &[Tenant], limits: &NodeLimits) -> Vec<String> {
    let measured = &model.measured;
    let names = |which: &dyn Fn(&Tenant) -> bool| {
        let names: Vec<&str> = tenants
            .iter()
            .filter(|one| which(one))
            .map(|one| one.name.as_str())
            .collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let mut unknown = vec![
        "What it costs tenants of different sizes to share a node: the model is of tenants of one size; `aerostat lab run plan-check` measures it.".to_owned(),
        "Writes, and the freezing and merging they cause: the model is of queries alone."
            .to_owned(),
        format!("Other queries than those measured ({}).", measured.requests),
        format!(
            "Other processors than the one measured ({}).",
            measured.processor
        ),
    ];
    if limits.workers != measured.workers {
        unknown.push(format!(
            "How a node of {} workers does: {} were measured, and rates are taken in proportion.",
            limits.workers, measured.workers
        ));
    }
    if limits.copies > 1 {
        unknown.push("What becomes of the goal while a node with copies is down: its requests go to the others.".to_owned());
    }
    let (least, most) = model.rows_measured();
    if let Some(names) = names(&|tenant| tenant.rows < least || tenant.rows > most) {
        unknown.push(format!(
            "Tenants outside the sizes measured, {least:.0} to {most:.0} rows: {names}."
        ));
    }
    if let Some(names) = names(&|tenant| tenant.goal_ms < measured.goal_ms) {
        unknown.push(format!(
            "Whether tighter goals than the {:.0} ms measured are kept: {names}.",
            measured.goal_ms
        ));
    }
    if let Some(names) = names(&|tenant| tenant.goal_ms > measured.goal_ms) {
        unknown.push(format!(
            "How much more looser goals than the {:.0} ms measured allow: {names}.",
            measured.goal_ms
        ));
    }
    if measured.quick {
        unknown.push("Much: the model is of a quick run.".to_owned());
    }
    unknown
}

#[cfg(test)]
mod tests;
