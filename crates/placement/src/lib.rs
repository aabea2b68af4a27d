//! Which node has which tenant's copies: a pure planner.
//!
//! ```text
//!  nodes, tenants with loads and copies ──► Inventory ─┐
//!  copies, neighbours, head-room, budget ──► Policy ───┴─► plan ──► Plan: moves with reasons, in a safe order
//!                                                                  └ Report: loads, worst failures, what is wrong
//! ```
//!
//! After text 001, "Tenant placement". In its mirrored layout two nodes have the same tenants, so each may only
//! be half full: when one fails, all its work moves to the other. In the *interleaved* layout a node's
//! tenants have their other copies on many nodes, which divide its work when it fails, and all may be fuller:
//!
//! ```text
//!  mirrored                           interleaved
//!  n0  A B   n1  A B                  n0  A B C   n1  A D E
//!  n2  C D   n3  C D   …              n2  B D F   n3  C E F
//! ```
//!
//! # Load and failures
//!
//! A tenant's [`Load`] is `rate · size^0.95 / C` ([`Calibration`]), or a measured one ([`SmoothedLoad`]),
//! where 1.0 is the load at which a node of capacity 1.0 only just meets its goal. Its [`LoadSplit`] says which
//! part every copy bears, which part the live copies divide, and leaves the rest to the leader. When a node
//! fails, each surviving copy of its tenants bears more of the divided part, and the leader's part where the
//! node led. Of more than two copies any survivor may be the next leader, so each is counted as if it were.
//!
//! # Rules
//!
//! | rule | when it cannot be met |
//! |---|---|
//! | a tenant's copies are on distinct nodes | always met |
//! | no copy is added beyond a node's memory, nor on a draining or lost node | always met |
//! | a node has no more in its memory than it may, also when copies grow | [`Violation::MemoryExceeded`] |
//! | a tenant has as many copies as the policy says | [`Violation::TooFewCopies`] |
//! | draining nodes are emptied | [`Violation::StillDraining`] |
//! | after any single failure each node is within its capacity | [`Violation::Overloaded`] |
//! | a node has tenants in common with at most so many others | [`Violation::TooManyNeighbours`] |
//!
//! Memory and copies are also guarded between two moves, loads only after the last one. The number of
//! neighbours is bounded because two failures at once lose both copies of a tenant exactly when they meet
//! neighbours ([`DoubleFailures`]).
//!
//! # How it plans
//!
//! `place` puts missing copies where they cost least, `repair` and `balance` take the best of many small
//! steps, all on one `assignment`, which knows what each failure would add to each node. `sequence` orders
//! what has changed. Nothing here has a clock, I/O or chance: the caller executes moves and plans again.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod apply;
mod assignment;
mod balance;
mod calibration;
mod facts;
mod inventory;
mod load;
mod moves;
mod needed;
mod pairs;
mod place;
mod planner;
mod policy;
mod repair;
mod report;
mod search;
mod sequence;
#[cfg(test)]
mod tests;
mod what_if;

pub use aerostat_types::{NodeId, TenantId};
pub use apply::MoveError;
pub use calibration::{Calibration, Observed, SmoothedLoad};
pub use inventory::{
    Inventory, InventoryError, LOAD_SUM_MAX, MEMORY_SUM_MAX, NODES_MAX, Node, NodeState,
    TENANTS_MAX, Tenant,
};
pub use load::{Load, LoadSplit, Share, ValueError};
pub use moves::{Change, Move, Names, Numbers, Reason};
pub use needed::nodes_needed;
pub use planner::{Plan, plan};
pub use policy::Policy;
pub use report::{DoubleFailures, NodeReport, Obstacle, Report, Violation};
pub use what_if::{SingleFailures, WhatIf, single_failures, what_if};
