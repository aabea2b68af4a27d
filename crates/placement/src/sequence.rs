//! From where copies are to where they shall be, as moves in a safe order.
//!
//! ```text
//!  lead handed over from a lost node ─► add ─► hand over ─► remove ─► remove what is on lost nodes
//!                                       └──── for each copy that changes places ────┘
//! ```
//!
//! The moves are played while they are written down. A copy is only added where memory is free at that moment,
//! with everything that has not been removed yet. Of what can be done, what is urgent comes first: copies that
//! are missing, draining nodes, overloads and neighbours, balance. A less urgent move goes ahead only when it
//! frees the memory that a more urgent one waits for. Moves that wait for one another in a circle are left
//! out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use aerostat_types::TenantId;

use crate::assignment::Assignment;
use crate::facts::Facts;
use crate::moves::{Change, Move, Reason};

/// The moves, and where they lead.
pub(crate) struct Sequence<'a> {
    pub(crate) moves: Vec<Move>,
    pub(crate) end: Assignment<'a>,
    /// Tenants with moves that were left out.
    pub(crate) blocked: Vec<TenantId>,
}

/// One copy that comes, goes, or both; or a lead that is handed over.
struct Unit {
    tenant: usize,
    add: Option<usize>,
    remove: Option<usize>,
    urgency: Urgency,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    Restore,
    New,
    Surplus,
    Drain,
    Repair,
    Balance,
}

/// The moves from the facts' origin to `target`.
pub(crate) fn sequence<'a>(target: &Assignment<'a>, why: &BTreeMap<usize, Reason>) -> Sequence<'a> {
    let facts = target.facts();
    let mut player = Player {
        target,
        why,
        moves: Vec::new(),
        state: Assignment::origin(facts),
        with_lost: (0..facts.tenants.len()).collect(),
    };
    for tenant in 0..facts.tenants.len() {
        player.replace_leader(tenant);
    }
    let mut units: Vec<Unit> = (0..facts.tenants.len())
        .flat_map(|tenant| player.units_of(tenant))
        .collect();
    units.sort_by_key(|unit| {
        let load = facts.tenants[unit.tenant].parts.whole();
        (unit.urgency, Reverse(load), unit.tenant)
    });
    while let Some(place) = units.iter().position(|unit| player.can(unit)) {
        let unit = units.remove(place);
        player.run(&unit);
    }
    for tenant in 0..facts.tenants.len() {
        player.drop_lost(tenant);
    }
    let blocked: BTreeSet<usize> = units.iter().map(|unit| unit.tenant).collect();
    Sequence {
        moves: player.moves,
        end: player.state,
        blocked: blocked.iter().map(|&at| facts.tenants[at].id).collect(),
    }
}

struct Player<'p, 'a> {
    target: &'p Assignment<'a>,
    why: &'p BTreeMap<usize, Reason>,
    moves: Vec<Move>,
    /// After the moves so far.
    state: Assignment<'a>,
    /// Tenants of which copies on lost nodes are still listed.
    with_lost: BTreeSet<usize>,
}

impl Player<'_, '_> {
    fn facts(&self) -> &Facts {
        self.target.facts()
    }

    /// Gives a tenant whose leader is lost another one, before anything else.
    fn replace_leader(&mut self, tenant: usize) {
        let known = &self.facts().tenants[tenant];
        let Some(&first) = known.origin.first() else {
            return;
        };
        if known.leader == Some(self.facts().nodes[first].id) {
            return;
        }
        let reason = match known.leader {
            Some(node) => Reason::LeaderLost { node },
            None => Reason::NoLeader,
        };
        let wished = self.target.members(tenant)[0];
        let to = if known.origin.contains(&wished) {
            wished
        } else {
            first
        };
        self.hand_over(tenant, to, reason);
    }

    fn units_of(&self, tenant: usize) -> Vec<Unit> {
        let (now, then) = (self.state.members(tenant), self.target.members(tenant));
        let mut adds: Vec<usize> = then.iter().copied().filter(|n| !now.contains(n)).collect();
        let mut removes: Vec<usize> = now.iter().copied().filter(|n| !then.contains(n)).collect();
        // Draining nodes are emptied by the more urgent units.
        removes.sort_by_key(|&node| (self.facts().nodes[node].ready, node));
        let unit = |add, remove| Unit {
            tenant,
            add,
            remove,
            urgency: self.urgency(tenant, add, remove),
        };
        let mut units = Vec::new();
        while adds.len() > removes.len() {
            units.push(unit(Some(adds.remove(0)), None));
        }
        while removes.len() > adds.len() {
            units.push(unit(None, Some(removes.remove(0))));
        }
        let both = adds.into_iter().zip(removes);
        units.extend(both.map(|(add, remove)| unit(Some(add), Some(remove))));
        if units.is_empty() && now.first() != then.first() {
            units.push(unit(None, None));
        }
        units
    }

    fn urgency(&self, tenant: usize, add: Option<usize>, remove: Option<usize>) -> Urgency {
        match self.reason(tenant, add, remove) {
            Reason::LeaderLost { .. } | Reason::NoLeader | Reason::TooFewCopies { .. } => {
                Urgency::Restore
            }
            Reason::NewTenant { .. } => Urgency::New,
            Reason::TooManyCopies { .. } | Reason::NodeLost { .. } => Urgency::Surplus,
            Reason::Draining { .. } => Urgency::Drain,
            Reason::Memory { .. } | Reason::Overload { .. } | Reason::Neighbours { .. } => {
                Urgency::Repair
            }
            Reason::Balance { .. } => Urgency::Balance,
        }
    }

    fn reason(&self, tenant: usize, add: Option<usize>, remove: Option<usize>) -> Reason {
        let facts = self.facts();
        let known = &facts.tenants[tenant];
        let live = self.state.members(tenant).len();
        let draining = remove.filter(|&node| !facts.nodes[node].ready);
        match (add, remove, draining) {
            (Some(_), None, _) if known.origin.is_empty() => Reason::NewTenant { tenant: known.id },
            (Some(_), None, _) => Reason::TooFewCopies {
                tenant: known.id,
                live,
            },
            (None, Some(_), _) => Reason::TooManyCopies {
                tenant: known.id,
                live,
            },
            (_, _, Some(node)) => Reason::Draining {
                node: facts.nodes[node].id,
            },
            _ => {
                let why = self.why.get(&tenant);
                why.expect("a tenant that is moved without need has a reason")
                    .clone()
            }
        }
    }

    /// Whether a unit's copy has room now. The first copy of a new tenant is the one that shall lead.
    fn can(&self, unit: &Unit) -> bool {
        let Some(node) = unit.add else {
            return true;
        };
        let begins = self.state.members(unit.tenant).is_empty();
        let leads = self.target.members(unit.tenant)[0] == node;
        (leads || !begins) && self.state.fits(unit.tenant, node)
    }

    fn run(&mut self, unit: &Unit) {
        let reason = self.reason(unit.tenant, unit.add, unit.remove);
        if let Some(node) = unit.add {
            let mut members = self.state.clear(unit.tenant);
            members.push(node);
            members[1..].sort_unstable();
            self.state.set(unit.tenant, members);
            let node = self.facts().nodes[node].id;
            self.write(unit.tenant, Change::AddCopy { node }, reason.clone());
        }
        self.lead_as_wished(unit, &reason);
        if let Some(node) = unit.remove {
            let mut members = self.state.clear(unit.tenant);
            assert!(members[0] != node, "a leader is not removed");
            members.retain(|&member| member != node);
            self.state.set(unit.tenant, members);
            let node = self.facts().nodes[node].id;
            self.write(unit.tenant, Change::RemoveCopy { node }, reason);
        }
        self.drop_lost(unit.tenant);
    }

    /// Hands the lead to the wished leader once that has a copy. Until then, a leader that is about to be
    /// removed hands over to another copy.
    fn lead_as_wished(&mut self, unit: &Unit, reason: &Reason) {
        let (now, then) = (
            self.state.members(unit.tenant),
            self.target.members(unit.tenant),
        );
        let to = if now.contains(&then[0]) {
            then[0]
        } else if Some(now[0]) == unit.remove {
            let stays = now.iter().find(|node| then.contains(node));
            *stays.unwrap_or(&now[1])
        } else {
            return;
        };
        if to != now[0] {
            self.hand_over(unit.tenant, to, reason.clone());
        }
    }

    fn hand_over(&mut self, tenant: usize, to: usize, reason: Reason) {
        let mut members = self.state.clear(tenant);
        let place = members.iter().position(|&node| node == to);
        members.swap(0, place.expect("the next leader has a copy"));
        members[1..].sort_unstable();
        self.state.set(tenant, members);
        let to = self.facts().nodes[to].id;
        self.write(tenant, Change::HandOverLead { to }, reason);
    }

    /// Removes copies on lost nodes once the tenant has enough others. Until then they may be what comes back.
    fn drop_lost(&mut self, tenant: usize) {
        let enough = self.state.members(tenant).len() >= self.facts().tenants[tenant].copies;
        if enough && self.with_lost.remove(&tenant) {
            for node in self.facts().tenants[tenant].lost.clone() {
                let reason = Reason::NodeLost { node };
                self.write(tenant, Change::RemoveCopy { node }, reason);
            }
        }
    }

    fn write(&mut self, tenant: usize, change: Change, reason: Reason) {
        let tenant = self.facts().tenants[tenant].id;
        self.moves.push(Move {
            tenant,
            change,
            reason,
        });
    }
}
