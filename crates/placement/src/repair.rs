//! Steps that lessen what is wrong: too much memory, overloads, surplus neighbours.
//!
//! ```text
//!  one copy moves, or a lead     t: {n, p} → {m, p}, {n, m}, {p led, n}
//!  what a pair has in common     see `pairs`
//!  two copies change places      t: {n, p} → {m, p},  u: {m, q} → {n, q}
//! ```
//!
//! The search goes on from the node that is worst off, takes the best step, and ends when no step at any
//! such node helps. Every step lessens [`Cost`](crate::assignment::Cost), so it ends.

use std::collections::BTreeSet;

use crate::assignment::Added;
use crate::moves::Reason;
use crate::pairs::replaced;
use crate::search::{Bar, Search, Step, keep_better};

/// A plan looks for exchanges this many times: there are many to try, and they help least.
const EXCHANGES_MAX: usize = 16;

/// An exchange is looked for with this many of the least full nodes.
const PARTNERS: usize = 8;

impl Search<'_> {
    /// Takes steps until no rule is broken, or no step helps.
    pub(crate) fn repair(&mut self) {
        let mut exchanges = EXCHANGES_MAX;
        loop {
            if self.repair_each() {
                continue;
            }
            let hot = self.hot();
            let next = |node: &usize| Some((*node, self.next_exchange(*node, &mut exchanges)?));
            let Some((node, step)) = hot.iter().find_map(next) else {
                return;
            };
            let reason = self.wrong_with(node);
            self.take(step, &reason);
        }
    }

    /// Takes steps at the worst node until none helps there, then at the worst of the others; whether any
    /// step was taken. A node where nothing helped is only tried again after all others.
    fn repair_each(&mut self) -> bool {
        let mut tried = BTreeSet::new();
        let mut stepped = false;
        while let Some(&node) = self.hot().iter().find(|node| !tried.contains(*node)) {
            match self.best_repair(node) {
                Some(step) => {
                    let reason = self.wrong_with(node);
                    self.take(step, &reason);
                    stepped = true;
                }
                None => {
                    tried.insert(node);
                }
            }
        }
        stepped
    }

    /// Nodes with something wrong, the worst first.
    fn hot(&self) -> Vec<usize> {
        let wrong = |node: &usize| self.state.cost_of(*node).broken();
        let nodes = 0..self.facts().nodes.len();
        let mut hot: Vec<usize> = nodes.filter(|node| wrong(node) > (0, 0, 0)).collect();
        hot.sort_by(|one, other| wrong(other).cmp(&wrong(one)).then(one.cmp(other)));
        hot
    }

    fn wrong_with(&self, node: usize) -> Reason {
        let facts = self.facts();
        let id = facts.nodes[node].id;
        let cost = self.state.cost_of(node);
        if cost.overflow > 0 {
            return Reason::Memory {
                node: id,
                bytes: self.state.memory(node),
                allowed_bytes: facts.nodes[node].memory,
            };
        }
        if cost.overload == 0 {
            return Reason::Neighbours {
                node: id,
                neighbours: self.state.neighbours(node),
                allowed: facts.neighbours_max,
            };
        }
        let failed = self.state.worst_failure(node);
        let already = self.state.load(node) > facts.nodes[node].capacity;
        Reason::Overload {
            node: id,
            failed: failed
                .filter(|_| !already)
                .map(|failed| facts.nodes[failed].id),
            share: self.share_of(node, already),
            allowed: facts.allowed,
        }
    }

    /// A node's load, now or after its worst failure, as a share of its whole capacity.
    pub(crate) fn share_of(&self, node: usize, now: bool) -> f64 {
        let load = if now {
            self.state.load(node)
        } else {
            self.state.worst(node)
        };
        crate::facts::share(load, self.facts().nodes[node].capacity_whole)
    }

    fn best_repair(&mut self, node: usize) -> Option<Step> {
        let mut bar = self.bar(node);
        if self.state.cost_of(node).overload == 0 {
            bar = bar.without_evening();
        }
        let mut best = self.best_relocation(node, &bar);
        // The many tenants of a pair are only worth trying where a single one does not help.
        if best.is_none() || self.state.cost_of(node).excess > 0 {
            self.best_pair_move(node, &bar, &mut best);
            self.best_parting(node, &bar, &mut best);
        }
        best
    }

    /// The best step that moves one copy of a tenant on this node, or hands over its lead.
    pub(crate) fn best_relocation(&mut self, node: usize, bar: &Bar) -> Option<Step> {
        let mut best = None;
        for tenant in self.state.tenants_on(node).to_vec() {
            self.each_relocation(
                tenant,
                |_| true,
                |state, members| {
                    let cost = state.cost_with(tenant, members);
                    if let Some(rank) = bar.rank(&cost, state.added_with(tenant, members)) {
                        keep_better(&mut best, rank, &[(tenant, members)]);
                    }
                },
            );
        }
        best
    }

    fn next_exchange(&mut self, node: usize, left: &mut usize) -> Option<Step> {
        *left = left.checked_sub(1)?;
        let bar = self.bar(node);
        let mut partners = self.ready();
        partners.retain(|&partner| partner != node);
        let fullness = |node: usize| (self.state.fullness(node), node);
        partners.sort_by(|&one, &other| {
            let (one, other) = (fullness(one), fullness(other));
            one.0.total_cmp(&other.0).then(one.1.cmp(&other.1))
        });
        partners.truncate(PARTNERS);
        let mut best = None;
        for tenant in self.state.tenants_on(node).to_vec() {
            for &partner in &partners {
                if self.may_move(tenant, node, partner) {
                    self.try_exchanges(tenant, node, partner, &bar, &mut best);
                }
            }
        }
        best
    }

    /// Whether `to` has no copy, and may be a neighbour of the members that stay.
    fn may_move(&self, tenant: usize, from: usize, to: usize) -> bool {
        let mut members = self.state.members(tenant).iter();
        members.all(|&member| {
            member != to && (member == from || self.may_be_neighbours(to, member, from))
        })
    }

    /// Exchanges a tenant's copy on `node` for each smaller one on `partner`.
    fn try_exchanges(
        &mut self,
        tenant: usize,
        node: usize,
        partner: usize,
        bar: &Bar,
        best: &mut Option<Step>,
    ) {
        let whole = |tenant: usize| self.facts().tenants[tenant].parts.whole();
        let mut smaller = self.state.tenants_on(partner).to_vec();
        smaller
            .retain(|&other| whole(other) < whole(tenant) && self.may_move(other, partner, node));
        let old = self.state.clear(tenant);
        let new = replaced(&old, node, partner);
        for other in smaller {
            let other_old = self.state.clear(other);
            let other_new = replaced(&other_old, partner, node);
            if self.state.fits(tenant, partner) {
                self.state.set(tenant, new.clone());
                if self.state.fits(other, node) {
                    let cost = self.state.cost_with(other, &other_new);
                    let added: Added = self.state.added_with(other, &other_new);
                    if let Some(rank) = bar.rank(&cost, added) {
                        keep_better(best, rank, &[(tenant, &new), (other, &other_new)]);
                    }
                }
                self.state.clear(tenant);
            }
            self.state.set(other, other_old);
        }
        self.state.set(tenant, old);
    }
}
