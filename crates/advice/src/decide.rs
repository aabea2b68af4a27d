//! Decides whether a table should get another layout, which one, and why.

use std::fmt;

use aerostat_types::Layout;

use crate::{
    AdviceError, Machine, TableShape, Workload,
    atoms::atoms,
    cost::Model,
    search::{MARGIN, search},
};

/// A line that is written is fetched first and written back later.
const WRITTEN_LINES: f64 = 2.0;

/// How much better a layout must be before the table moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// The least share of today's cost to be saved, 0 to 1.
    pub gain_share_min: f64,
    /// Seconds within which the gain must pay for the re-laying.
    pub horizon_s: f64,
    /// Executions, decayed, below which nothing is concluded.
    pub executions_min: f64,
}

impl Default for Policy {
    /// 10 %: the model's figures for one machine are seldom nearer than that. An hour:
    /// a few half-lives of the footprints, so what changes daily is still followed.
    /// 100 executions: enough for the selectivities to have settled.
    fn default() -> Policy {
        Policy {
            gain_share_min: 0.1,
            horizon_s: 3600.0,
            executions_min: 100.0,
        }
    }
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The advised layout is worth the re-laying.
    Change,
    /// The current layout stays.
    Keep(KeepReason),
}

/// Why the current layout stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepReason {
    /// Too few executions were seen.
    FewStatements,
    /// No layout costs less.
    Best,
    /// One does, but by a smaller share than the policy asks for.
    SmallGain,
    /// One does, but its gain does not pay for the re-laying within the horizon.
    DearMove,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Change => "change",
            Verdict::Keep(KeepReason::FewStatements) => "keep: too few statements seen",
            Verdict::Keep(KeepReason::Best) => "keep: none costs less",
            Verdict::Keep(KeepReason::SmallGain) => "keep: the gain is small",
            Verdict::Keep(KeepReason::DearMove) => "keep: the gain does not pay for the move",
        })
    }
}

/// A layout and what it costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The layout.
    pub layout: Layout,
    /// ns per execution, averaged over the mix.
    pub cost_ns: f64,
    /// Its groups, as [`Layout::resolve`] gives them.
    pub groups: Vec<GroupAdvice>,
}

/// Why a group is as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupAdvice {
    /// Names of its attributes, in the order of its tuple.
    pub attributes: Vec<String>,
    /// Bytes of a HOT tuple.
    pub stride_bytes: u64,
    /// ns per execution of the mix that go to this group.
    pub cost_ns: f64,
    /// What that would be if each attribute stood alone.
    pub apart_ns: f64,
    /// Footprints that use an attribute of it.
    pub footprints: usize,
    /// Share of the stride that those use, averaged by weight. 0 when none does.
    pub used_share: f64,
}

/// The answer: a row of `aerostat.layout_advice`.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The layout the table should have: the current one unless `verdict` is a change.
    pub layout: Layout,
    /// What it costs, ns per execution of the mix.
    pub cost_ns: f64,
    /// What the current layout costs, ns per execution of the mix.
    pub cost_now_ns: f64,
    /// The layout that costs least by the model, worth the move or not.
    pub best: Candidate,
    /// Share of the current cost that the best layout saves.
    pub gain_share: f64,
    /// ns that re-laying the table takes.
    pub relay_ns: f64,
    /// Seconds in which the best layout saves that much; infinite when it saves nothing.
    pub pays_after_s: f64,
    /// Executions seen, decayed.
    pub executions: f64,
    /// What to do, and why.
    pub verdict: Verdict,
}

impl fmt::Display for GroupAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Layout::Groups(vec![self.attributes.clone()]);
        write!(
            f,
            "{names}: {} B, {} footprints use {:.0} % of it, {:.0} ns (apart {:.0} ns)",
            self.stride_bytes,
            self.footprints,
            self.used_share * 100.0,
            self.cost_ns,
            self.apart_ns
        )
    }
}

/// Compares the current layout with the best the search finds. Pure: the same
/// arguments give the same advice.
///
/// # Errors
/// [`AdviceError`] when the arguments do not fit each other.
pub fn decide(
    current: &Layout,
    workload: &Workload,
    shape: &TableShape,
    machine: &Machine,
    policy: &Policy,
) -> Result<Advice, AdviceError> {
    let mut model = Model::new(workload, shape, machine)?;
    let groups_now = current.resolve(&shape.names)?;
    let atoms = atoms(&model);
    model.price_alone(&atoms);
    let found = search(&model, &atoms);
    let (layout, groups, best_ns) = best(&model, current, &groups_now, found)?;
    let now_ns = model.layout_ns(&groups_now);
    let relay_ns = relay_ns(shape, machine, &groups_now, &groups);
    let executions = workload.weight();
    let gain_share = if now_ns > 0.0 {
        (now_ns - best_ns) / now_ns
    } else {
        0.0
    };
    let pays_after_s = if gain_share > 0.0 {
        relay_ns / (now_ns - best_ns) * workload.window_s
    } else {
        f64::INFINITY
    };
    let verdict = if executions < policy.executions_min {
        Verdict::Keep(KeepReason::FewStatements)
    } else if gain_share <= 0.0 {
        Verdict::Keep(KeepReason::Best)
    } else if gain_share < policy.gain_share_min {
        Verdict::Keep(KeepReason::SmallGain)
    } else if pays_after_s > policy.horizon_s {
        Verdict::Keep(KeepReason::DearMove)
    } else {
        Verdict::Change
    };
    let changes = verdict == Verdict::Change;
    let per_execution = 1.0 / executions.max(f64::MIN_POSITIVE);
    Ok(Advice {
        layout: if changes { &layout } else { current }.clone(),
        cost_ns: if changes { best_ns } else { now_ns } * per_execution,
        cost_now_ns: now_ns * per_execution,
        best: Candidate {
            layout,
            cost_ns: best_ns * per_execution,
            groups: explain(&model, &groups, per_execution),
        },
        gain_share,
        relay_ns,
        pays_after_s,
        executions,
        verdict,
    })
}

/// The cheapest of the current layout, the two plain ones and the one searched for;
/// of equals the first, which needs no move or fewer words.
fn best(
    model: &Model<'_>,
    current: &Layout,
    groups_now: &[Vec<usize>],
    found: Vec<Vec<usize>>,
) -> Result<(Layout, Vec<Vec<usize>>, f64), AdviceError> {
    let names = &model.shape.names;
    let row = (Layout::Row, Layout::Row.resolve(names)?);
    let found_is_row = found.len() == 1;
    let found = (named(&found, names), found);
    // A row of all attributes is no better than narrower groups that cost the same.
    let [third, fourth] = if found_is_row {
        [row, found]
    } else {
        [found, row]
    };
    let column = (Layout::Column, Layout::Column.resolve(names)?);
    let mut best_ns = model.layout_ns(groups_now);
    let mut best = (current.clone(), groups_now.to_vec());
    for candidate in [column, third, fourth] {
        let ns = model.layout_ns(&candidate.1);
        if ns < best_ns * (1.0 - MARGIN) {
            (best, best_ns) = (candidate, ns);
        }
    }
    Ok((best.0, best.1, best_ns))
}

/// Groups as a layout; what a layout need not say, since an attribute that no group
/// names stands alone, is left out.
fn named(groups: &[Vec<usize>], names: &[String]) -> Layout {
    let mut groups: Vec<&Vec<usize>> = groups.iter().filter(|group| group.len() > 1).collect();
    groups.sort_by_key(|group| group.iter().min());
    if groups.is_empty() {
        return Layout::Column;
    }
    let name = |group: &&Vec<usize>| group.iter().map(|&at| names[at].clone()).collect();
    Layout::Groups(groups.iter().map(name).collect())
}

/// ns of reading every group that changes and writing it anew.
fn relay_ns(shape: &TableShape, machine: &Machine, from: &[Vec<usize>], to: &[Vec<usize>]) -> f64 {
    let same: std::collections::HashSet<&Vec<usize>> = from.iter().collect();
    let moved: Vec<usize> = to
        .iter()
        .filter(|group| !same.contains(group))
        .flatten()
        .copied()
        .collect();
    let line_ns = machine.memory_sequential_ns() / machine.memory_line_bytes() as f64;
    [&shape.hot, &shape.frozen]
        .into_iter()
        .filter(|part| part.rows > 0)
        .map(|part| {
            let bytes: u64 = moved.iter().map(|&at| u64::from(part.slot_bytes[at])).sum();
            let lines_ns = (1.0 + WRITTEN_LINES) * bytes as f64 * line_ns;
            part.rows as f64 * (lines_ns + moved.len() as f64 * machine.value_ns.strided)
        })
        .sum()
}

fn explain(model: &Model<'_>, groups: &[Vec<usize>], per_execution: f64) -> Vec<GroupAdvice> {
    groups
        .iter()
        .map(|group| {
            let bytes = |at: usize| u64::from(model.shape.hot.slot_bytes[at]);
            let stride_bytes: u64 = group.iter().map(|&at| bytes(at)).sum();
            let users = model.used_by(group);
            let (mut weight, mut used) = (0.0, 0.0);
            for &nth in &users {
                let statement = &model.statements[nth];
                let read = group.iter().filter(|&&at| statement.stages[at] != 0);
                weight += statement.weight;
                used += statement.weight * read.map(|&at| bytes(at)).sum::<u64>() as f64;
            }
            let alone = |&at: &usize| model.group_ns(&[at], &mut 0);
            GroupAdvice {
                attributes: group
                    .iter()
                    .map(|&at| model.shape.names[at].clone())
                    .collect(),
                stride_bytes,
                cost_ns: model.group_ns(group, &mut 0) * per_execution,
                apart_ns: group.iter().map(alone).sum::<f64>() * per_execution,
                footprints: users.len(),
                used_share: if weight > 0.0 && stride_bytes > 0 {
                    used / weight / stride_bytes as f64
                } else {
                    0.0
                },
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
