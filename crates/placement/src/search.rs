//! The common ground of all searches: an assignment under a migration budget, steps that change it, and the
//! reasons for them.

use std::collections::BTreeMap;

use crate::assignment::{Added, Assignment, Cost};
use crate::facts::Facts;
use crate::moves::Reason;
use crate::policy::Policy;

/// How many copies a plan may add.
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    copies: usize,
    bytes: u64,
}

impl Budget {
    pub(crate) const UNLIMITED: Self = Self {
        copies: usize::MAX,
        bytes: u64::MAX,
    };

    pub(crate) fn of(policy: &Policy) -> Self {
        Self {
            copies: policy.copies_added_max,
            bytes: policy.bytes_added_max,
        }
    }

    /// Whether `next` is within the budget, or at least no farther than `before`.
    pub(crate) fn allows(self, before: Added, next: Added) -> bool {
        let no_farther = next.copies <= before.copies && next.bytes <= before.bytes;
        let bytes = next.bytes <= self.bytes || next.copies <= 1;
        no_farther || next.copies <= self.copies && bytes
    }
}

/// New members of some tenants, and what that leads to.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) changes: Vec<(usize, Vec<usize>)>,
    pub(crate) rank: Rank,
}

/// How good a step is; smaller is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// It lessens what is wrong. Of steps that lessen it alike, those that move few bytes come first.
    Repairs {
        broken: (i64, i64, i64),
        bytes: u64,
        pressure: i128,
    },
    /// It only makes loads more even.
    Evens { pressure: i128 },
}

/// Where a step is worth taking.
#[derive(Clone, Copy)]
pub(crate) struct Bar {
    pub(crate) now: Cost,
    pub(crate) added: Added,
    /// A step that only makes loads more even has to come below this.
    pub(crate) pressure: i128,
    pub(crate) budget: Budget,
}

impl Bar {
    /// Only steps that lessen what is wrong are worth taking.
    pub(crate) fn without_evening(self) -> Self {
        Self {
            pressure: 0,
            ..self
        }
    }

    /// Whether the budget allows a step that leads to so much added.
    pub(crate) fn affords(&self, added: Added) -> bool {
        self.budget.allows(self.added, added)
    }

    /// The rank of a step that leads to this cost; `None`: it is not worth taking, or not allowed.
    pub(crate) fn rank(&self, cost: &Cost, added: Added) -> Option<Rank> {
        // Too much memory ends a node, so lessening that may even break the other rules.
        let allowed = cost.keeps_rules(&self.now) || cost.overflow < self.now.overflow;
        if !allowed || !self.affords(added) {
            return None;
        }
        if cost.broken() != self.now.broken() {
            return Some(Rank::Repairs {
                broken: cost.broken(),
                bytes: added.bytes,
                pressure: cost.pressure,
            });
        }
        (cost.pressure < self.pressure).then_some(Rank::Evens {
            pressure: cost.pressure,
        })
    }
}

/// A tenant's members and reason before a step.
pub(crate) struct Before {
    tenant: usize,
    members: Vec<usize>,
    why: Option<Reason>,
}

/// A search under way.
pub(crate) struct Search<'a> {
    pub(crate) state: Assignment<'a>,
    pub(crate) budget: Budget,
    /// Why a tenant was changed last: that reason is told for all its moves.
    pub(crate) why: BTreeMap<usize, Reason>,
}

impl<'a> Search<'a> {
    /// Begins with the tenants where they are now.
    pub(crate) fn new(facts: &'a Facts, budget: Budget) -> Self {
        Self {
            state: Assignment::origin(facts),
            budget,
            why: BTreeMap::new(),
        }
    }

    pub(crate) fn facts(&self) -> &'a Facts {
        self.state.facts()
    }

    /// A step is worth taking when it repairs, or takes off a hundredth of what presses on `node`.
    pub(crate) fn bar(&self, node: usize) -> Bar {
        let now = self.state.cost();
        Bar {
            now,
            added: self.state.added(),
            pressure: now.pressure - self.state.cost_of(node).pressure / 100,
            budget: self.budget,
        }
    }

    /// Gives a tenant other members and returns those that it had.
    pub(crate) fn change(&mut self, tenant: usize, members: Vec<usize>) -> Vec<usize> {
        let old = self.state.clear(tenant);
        self.state.set(tenant, members);
        old
    }

    /// Takes a step and returns how to take it back.
    pub(crate) fn take(&mut self, step: Step, reason: &Reason) -> Vec<Before> {
        let mut before = Vec::with_capacity(step.changes.len());
        for (tenant, members) in step.changes {
            before.push(Before {
                tenant,
                members: self.change(tenant, members),
                why: self.why.insert(tenant, reason.clone()),
            });
        }
        before
    }

    /// Takes a step back.
    pub(crate) fn take_back(&mut self, step: Vec<Before>) {
        for before in step.into_iter().rev() {
            self.change(before.tenant, before.members);
            match before.why {
                Some(why) => self.why.insert(before.tenant, why),
                None => self.why.remove(&before.tenant),
            };
        }
    }

    /// Nodes that take copies, in order.
    pub(crate) fn ready(&self) -> Vec<usize> {
        let nodes = self.facts().nodes.iter().enumerate();
        nodes
            .filter(|(_, node)| node.ready)
            .map(|(index, _)| index)
            .collect()
    }

    /// Takes a tenant out and calls `visit` with each way to have it back on other nodes by one copy of
    /// those in `from`, or under another leader. The tenant is as before afterwards.
    pub(crate) fn each_relocation(
        &mut self,
        tenant: usize,
        from: impl Fn(usize) -> bool,
        mut visit: impl FnMut(&Assignment<'_>, &[usize]),
    ) {
        let ready = self.ready();
        let leads = self.facts().tenants[tenant].parts.led > 0;
        let old = self.state.clear(tenant);
        let mut members = old.clone();
        if leads {
            each_leader(&mut members, 1, &mut |members| visit(&self.state, members));
        }
        for place in (0..old.len()).filter(|&place| from(old[place])) {
            for &node in &ready {
                if old.contains(&node) || !self.state.fits(tenant, node) {
                    continue;
                }
                members.clone_from(&old);
                members[place] = node;
                if leads {
                    each_leader(&mut members, 0, &mut |members| visit(&self.state, members));
                } else {
                    // A member that stays may lead at once; a new copy has to be made first.
                    if place == 0 && members.len() > 1 {
                        members.swap(0, 1);
                    }
                    members[1..].sort_unstable();
                    visit(&self.state, &members);
                }
            }
        }
        self.state.set(tenant, old);
    }
}

/// Calls `visit` with the members under each leader from `first` on.
fn each_leader(members: &mut [usize], first: usize, visit: &mut impl FnMut(&[usize])) {
    let all = members.to_vec();
    for leader in first..all.len() {
        members.copy_from_slice(&all);
        members.swap(0, leader);
        members[1..].sort_unstable();
        visit(members);
    }
}

/// Keeps the better of the best step so far and another one.
pub(crate) fn keep_better(best: &mut Option<Step>, rank: Rank, changes: &[(usize, &[usize])]) {
    if best.as_ref().is_none_or(|best| rank < best.rank) {
        let changes = changes
            .iter()
            .map(|&(tenant, nodes)| (tenant, nodes.to_vec()));
        *best = Some(Step {
            changes: changes.collect(),
            rank,
        });
    }
}
