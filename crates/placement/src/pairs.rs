//! Steps that move all that two nodes have in common, so that they are neighbours no more.
//!
//! ```text
//!  pair move   every t of {n, p} → {m, p}: p changes one neighbour for another, and m may be empty
//!  parting     each t of {n, p} → {m, p} or {n, m}, wherever it costs least: on pairs that exist
//! ```
//!
//! Where neighbours are at their cap, a step of one tenant can use neither an empty node nor lower the number
//! of neighbours.

use std::cmp::Reverse;

use crate::assignment::Cost;
use crate::search::{Bar, Search, Step, keep_better};

impl Search<'_> {
    /// The best step that moves all that this node and a neighbour have in common from one of the two to a
    /// third node.
    pub(crate) fn best_pair_move(&mut self, node: usize, bar: &Bar, best: &mut Option<Step>) {
        let ready = self.ready();
        for other in 0..self.facts().nodes.len() {
            if self.state.common(node, other) == 0 {
                continue;
            }
            let group = self.in_common(node, other);
            for (from, stays) in [(node, other), (other, node)] {
                for &to in &ready {
                    if to != node && to != other && self.may_be_neighbours(to, stays, from) {
                        self.try_pair_move(&group, from, to, bar, best);
                    }
                }
            }
        }
    }

    /// Whether two nodes have tenants in common, or could have under the cap once `leaver` has none in common
    /// with the second one.
    pub(crate) fn may_be_neighbours(&self, new: usize, stays: usize, leaver: usize) -> bool {
        let max = self.facts().neighbours_max;
        let left = usize::from(self.state.common(stays, leaver) > 0);
        self.state.common(new, stays) > 0
            || self.state.neighbours(new) < max && self.state.neighbours(stays) - left < max
    }

    fn try_pair_move(
        &mut self,
        group: &[usize],
        from: usize,
        to: usize,
        bar: &Bar,
        best: &mut Option<Step>,
    ) {
        let mut undo = Vec::with_capacity(group.len());
        for &tenant in group {
            let old = self.state.clear(tenant);
            if old.contains(&to) || !self.state.fits(tenant, to) {
                self.state.set(tenant, old);
                break;
            }
            self.state.set(tenant, replaced(&old, from, to));
            undo.push((tenant, old));
        }
        if undo.len() == group.len() {
            self.keep_if_better(group, bar, best);
        }
        for (tenant, old) in undo {
            self.change(tenant, old);
        }
    }

    /// The best step that moves what this node and a neighbour have in common, each tenant for itself.
    pub(crate) fn best_parting(&mut self, node: usize, bar: &Bar, best: &mut Option<Step>) {
        for other in 0..self.facts().nodes.len() {
            if self.state.common(node, other) > 0 {
                self.try_parting(node, other, bar, best);
            }
        }
    }

    fn try_parting(&mut self, node: usize, other: usize, bar: &Bar, best: &mut Option<Step>) {
        let mut group = self.in_common(node, other);
        group.sort_by_key(|&tenant| (Reverse(self.facts().tenants[tenant].parts.whole()), tenant));
        let mut undo = Vec::with_capacity(group.len());
        for &tenant in &group {
            let Some(members) = self.best_apart(tenant, node, other, bar) else {
                break;
            };
            undo.push((tenant, self.change(tenant, members)));
        }
        if undo.len() == group.len() {
            self.keep_if_better(&group, bar, best);
        }
        for (tenant, old) in undo {
            self.change(tenant, old);
        }
    }

    /// Where a tenant costs least if it is not on both nodes.
    fn best_apart(
        &mut self,
        tenant: usize,
        node: usize,
        other: usize,
        bar: &Bar,
    ) -> Option<Vec<usize>> {
        let mut best: Option<(Cost, Vec<usize>)> = None;
        self.each_relocation(
            tenant,
            |from| from == node || from == other,
            |state, members| {
                let parted = !(members.contains(&node) && members.contains(&other));
                if !parted || !bar.affords(state.added_with(tenant, members)) {
                    return;
                }
                let cost = state.cost_with(tenant, members);
                if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                    best = Some((cost, members.to_vec()));
                }
            },
        );
        best.map(|(_, members)| members)
    }

    /// Keeps the members that these tenants have now, if that is better than the best step so far.
    fn keep_if_better(&self, group: &[usize], bar: &Bar, best: &mut Option<Step>) {
        if let Some(rank) = bar.rank(&self.state.cost(), self.state.added()) {
            let changes: Vec<(usize, &[usize])> = group
                .iter()
                .map(|&tenant| (tenant, self.state.members(tenant)))
                .collect();
            keep_better(best, rank, &changes);
        }
    }

    /// The tenants that two nodes have in common, in order.
    fn in_common(&self, node: usize, other: usize) -> Vec<usize> {
        let mut group = self.state.tenants_on(node).to_vec();
        group.retain(|&tenant| self.state.members(tenant).contains(&other));
        group
    }
}

/// Members with `to` in the place of `from`, also as leader.
pub(crate) fn replaced(members: &[usize], from: usize, to: usize) -> Vec<usize> {
    let mut members = members.to_vec();
    if let Some(place) = members.iter().position(|&node| node == from) {
        members[place] = to;
    }
    members[1..].sort_unstable();
    members
}
