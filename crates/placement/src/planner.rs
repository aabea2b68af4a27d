//! From an inventory and a policy to a plan.

use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::inventory::Inventory;
use crate::moves::Move;
use crate::needed::nodes_more;
use crate::policy::Policy;
use crate::report::{Report, report};
use crate::search::{Budget, Search};
use crate::sequence::sequence;

/// Moves, and the placement that they lead to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// To be done one after another. At no moment a node has more in its memory than it may, or a tenant fewer
    /// live copies than it has to have, or had before the plan.
    pub moves: Vec<Move>,
    /// The placement after all moves.
    pub report: Report,
}

/// Plans moves towards what the policy wants: missing copies first, then draining nodes, then too much memory,
/// overloads and surplus neighbours, and balance only where nothing is wrong. What cannot be reached is in the report, with
/// the best plan nevertheless.
///
/// The same inventory and policy give the same plan. A plan that follows another one with nothing changed
/// between them is empty, unless the migration budget or memory on the way held the first one up.
#[must_use]
pub fn plan(inventory: &Inventory, policy: &Policy) -> Plan {
    let facts = Facts::new(inventory, policy);
    let mut search = Search::new(&facts, Budget::of(policy));
    search.drop_surplus();
    let obstacles = search.place_missing();
    search.drain();
    search.repair();
    if obstacles.is_empty() && search.state.cost().is_feasible() {
        search.balance(policy.balance_gain_min.get());
    }
    let sequence = sequence(&search.state, &search.why);
    let mut report = report(&sequence.end, &obstacles);
    report.blocked = sequence.blocked;
    if !report.feasible() {
        report.nodes_more = nodes_more(&facts);
    }
    Plan {
        moves: sequence.moves,
        report,
    }
}
