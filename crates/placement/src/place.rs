//! The copies that are needed: more for tenants that have too few, fewer for those that have too many, and
//! other ones in place of those on draining nodes.
//!
//! Tenants come one after another, the largest loads first, and each goes where it costs least: greedy, as
//! best-fit packing is, with the load after the worst single failure as the size of a bin. The searches in
//! `repair` put right what was placed badly.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::assignment::Cost;
use crate::moves::Reason;
use crate::report::Obstacle;
use crate::search::Search;

impl Search<'_> {
    /// Takes surplus copies away, those on draining nodes first.
    pub(crate) fn drop_surplus(&mut self) {
        for tenant in 0..self.facts().tenants.len() {
            while self.state.members(tenant).len() > self.facts().tenants[tenant].copies {
                let live = self.state.members(tenant).len();
                let kept = self.without_one(tenant);
                self.change(tenant, kept);
                let id = self.facts().tenants[tenant].id;
                self.why
                    .insert(tenant, Reason::TooManyCopies { tenant: id, live });
            }
        }
    }

    /// The members without the one that is missed least: rather one that drains, or breaks rules, and rather
    /// not the leader.
    fn without_one(&mut self, tenant: usize) -> Vec<usize> {
        let facts = self.facts();
        let old = self.state.clear(tenant);
        let without = |place: usize| {
            let mut kept = old.clone();
            kept.remove(place);
            let draining = kept.iter().filter(|&&node| !facts.nodes[node].ready);
            let cost = self.state.cost_with(tenant, &kept);
            let rules = (draining.count(), cost.broken());
            ((rules, place == 0, cost.pressure), kept)
        };
        let options = (0..old.len()).map(without);
        let best = options.min_by(|one, other| one.0.cmp(&other.0));
        let (_, kept) = best.expect("a tenant with surplus copies has some");
        self.state.set(tenant, old);
        kept
    }

    /// Adds copies where tenants have too few: first of those that have some, then of new tenants. What
    /// could not be added, and why.
    pub(crate) fn place_missing(&mut self) -> BTreeMap<usize, Obstacle> {
        let facts = self.facts();
        let mut missing: Vec<usize> = (0..facts.tenants.len())
            .filter(|&tenant| self.state.members(tenant).len() < facts.tenants[tenant].copies)
            // A tenant whose copies are all lost has nothing to copy from.
            .filter(|&tenant| {
                let known = &facts.tenants[tenant];
                !known.origin.is_empty() || known.lost.is_empty()
            })
            .collect();
        missing.sort_by_key(|&tenant| {
            let known = &facts.tenants[tenant];
            (
                known.origin.is_empty(),
                Reverse(known.parts.whole()),
                tenant,
            )
        });
        let mut obstacles = BTreeMap::new();
        for tenant in missing {
            if let Err(obstacle) = self.complete(tenant) {
                obstacles.insert(tenant, obstacle);
            }
        }
        obstacles
    }

    /// Gives a tenant all its copies, or as many as there are places for.
    fn complete(&mut self, tenant: usize) -> Result<(), Obstacle> {
        let wanted = self.facts().tenants[tenant].copies;
        while self.state.members(tenant).len() < wanted {
            let old = self.state.clear(tenant);
            let pair = old.is_empty() && wanted > 1;
            let found = if pair { self.best_pair(tenant) } else { None };
            let found = found.or_else(|| self.best_addition(tenant, &old));
            let obstacle = found.is_none().then(|| self.obstacle(tenant, &old));
            self.state.set(tenant, found.unwrap_or(old));
            if let Some(obstacle) = obstacle {
                return Err(obstacle);
            }
        }
        Ok(())
    }

    /// The best two nodes, leader first, for an absent tenant. Both are chosen together, for what one bears
    /// when the other fails depends on both.
    fn best_pair(&self, tenant: usize) -> Option<Vec<usize>> {
        let ready = self.ready();
        let fitting: Vec<usize> = ready
            .into_iter()
            .filter(|&node| self.state.fits(tenant, node))
            .collect();
        let leads = self.facts().tenants[tenant].parts.led > 0;
        let mut best: Option<(Cost, [usize; 2])> = None;
        for &leader in &fitting {
            for &other in &fitting {
                // Without a leader's part of the load both orders are the same.
                if leader == other || !leads && leader > other {
                    continue;
                }
                let pair = [leader, other];
                let cost = self.state.cost_with(tenant, &pair);
                if best.is_none_or(|(least, _)| cost < least) {
                    best = Some((cost, pair));
                }
            }
        }
        let pair = best?.1.to_vec();
        self.affordable(tenant, &pair).then_some(pair)
    }

    /// The members of an absent tenant and the best node beside them.
    fn best_addition(&self, tenant: usize, members: &[usize]) -> Option<Vec<usize>> {
        let nodes = self.ready().into_iter();
        let options = nodes
            .filter(|node| !members.contains(node) && self.state.fits(tenant, *node))
            .map(|node| with(members, node))
            .map(|members| (self.state.cost_with(tenant, &members), members));
        let (_, best) = options.min_by(|one, other| one.0.cmp(&other.0))?;
        self.affordable(tenant, &best).then_some(best)
    }

    fn affordable(&self, tenant: usize, members: &[usize]) -> bool {
        let before = self.state.added();
        let next = self.state.added_with(tenant, members);
        self.budget.allows(before, next)
    }

    /// Why an absent tenant, which has these members, gets no other.
    fn obstacle(&self, tenant: usize, members: &[usize]) -> Obstacle {
        let others: Vec<usize> = self
            .ready()
            .into_iter()
            .filter(|node| !members.contains(node))
            .collect();
        if others.is_empty() {
            Obstacle::NoOtherNode
        } else if others.iter().any(|&node| self.state.fits(tenant, node)) {
            Obstacle::Budget
        } else {
            Obstacle::NoMemory
        }
    }

    /// Moves copies off draining nodes, the largest loads first.
    pub(crate) fn drain(&mut self) {
        for node in 0..self.facts().nodes.len() {
            if self.facts().nodes[node].ready {
                continue;
            }
            let mut tenants = self.state.tenants_on(node).to_vec();
            tenants.sort_by_key(|&tenant| {
                (Reverse(self.facts().tenants[tenant].parts.whole()), tenant)
            });
            for tenant in tenants {
                self.drain_copy(tenant, node);
            }
        }
    }

    fn drain_copy(&mut self, tenant: usize, node: usize) {
        let (budget, before) = (self.budget, self.state.added());
        let mut best: Option<(Cost, Vec<usize>)> = None;
        self.each_relocation(
            tenant,
            |from| from == node,
            |state, members| {
                let added = state.added_with(tenant, members);
                if members.contains(&node) || !budget.allows(before, added) {
                    return;
                }
                let cost = state.cost_with(tenant, members);
                if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                    best = Some((cost, members.to_vec()));
                }
            },
        );
        if let Some((_, members)) = best {
            self.change(tenant, members);
            let node = self.facts().nodes[node].id;
            self.why.insert(tenant, Reason::Draining { node });
        }
    }
}

/// Members with another one, in order behind the leader.
fn with(members: &[usize], node: usize) -> Vec<usize> {
    let mut members = members.to_vec();
    members.push(node);
    members[1..].sort_unstable();
    members
}
