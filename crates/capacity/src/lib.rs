//! How much of a node tenants use, and which tenants fit on which nodes.
//!
//! ```text
//! fit     highest rates by size ─► two laws with their intervals
//! model   what was measured on a machine, kept as JSON ─► a tenant's highest rate,
//!         the workload of tenants that share a node
//! tenants a list of tenants with sizes, request rates and goals
//! place   which of them on which nodes, and what is left there
//! ```
//!
//! The workload is source 001's: `sum of rate · size^m / C` over a node's tenants; at 1 the node
//! only just meets its goal for the 99th percentile of response times. The whole crate is pure;
//! `lab` measures.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod fit;
mod model;
mod place;
mod tenants;
mod units;

use std::io;
use std::path::PathBuf;

pub use fit::{Fits, Interval, Law, LinearFit, Observation, PowerFit, fit};
pub use model::{FILE, FORMAT, Measured, Model};
pub use place::{NodeLimits, Placed, Plan, PlannedNode, place};
pub use tenants::{Tenant, parse_tenants, read_tenants};
pub use units::{Size, parse_bytes, parse_rate, parse_size, parse_time_ms};

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A file that cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
    /// A file that is no model.
    #[error("this is no workload model")]
    NoModel(#[source] serde_json::Error),
    /// A model of another format.
    #[error(
        "the workload model has format {found}; this program reads format {FORMAT}: run `aerostat lab run workload-model` again"
    )]
    Format {
        /// The format in the file.
        found: u32,
    },
    /// Too little was measured.
    #[error(
        "the workload model needs highest rates of three tenant sizes at least, with a goal, workers and bytes per row above zero"
    )]
    FewSizes,
    /// No number above zero.
    #[error("{text:?} does not begin with a number above zero")]
    Number {
        /// What there is.
        text: String,
    },
    /// A unit that is not known here.
    #[error("{text:?} has no unit that is known here: {known}")]
    Unit {
        /// What there is.
        text: String,
        /// What there could be.
        known: &'static str,
    },
    /// A list that is no CSV.
    #[error("the list of tenants is no CSV")]
    Csv(#[source] csv::Error),
    /// A column that is missing.
    #[error(
        "the list of tenants has no column {name:?}: its first line names name, size, rate and perhaps goal"
    )]
    Column {
        /// Its name.
        name: &'static str,
    },
    /// A column that means nothing.
    #[error(
        "the list of tenants has an unknown column {name:?}: there are name, size, rate and goal"
    )]
    UnknownColumn {
        /// Its name.
        name: String,
    },
    /// A line that cannot be read.
    #[error("line {line} of the list of tenants cannot be used")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong.
        #[source]
        source: Box<PlanError>,
    },
    /// A tenant without a name.
    #[error("the tenant has no name")]
    NoName,
    /// Two tenants of one name.
    #[error("there is a tenant {name:?} before")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// An empty list.
    #[error("the list has no tenant")]
    NoTenants,
    /// A tenant that no node has room for.
    #[error("tenant {name:?} fits on no node: it needs {needs} {what}, a node is given {has}")]
    TooLarge {
        /// The tenant.
        name: String,
        /// Of what.
        what: &'static str,
        /// How much.
        needs: String,
        /// How much there is.
        has: String,
    },
    /// Limits that are none.
    #[error("a node needs memory, workers and copies above zero, and shares above 0 and up to 1")]
    Limits,
}
