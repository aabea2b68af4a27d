//! How much of a node tenants take.
//!
//! ```text
//! fit     highest rates by size ─► two laws with their intervals
//! model   what was measured on a machine, kept as JSON ─► a tenant's highest rate,
//!         the workload of tenants that share a node
//! ```
//!
//! The workload is source 001's: `sum of rate · size^m / C` over a node's tenants, at 1 of
//! which the node only just keeps its goal for the 99th percentile of response times. All of
//! it is pure; `lab` measures.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod fit;
mod model;

use std::io;
use std::path::PathBuf;

pub use fit::{Fits, Interval, Law, LinearFit, Observation, PowerFit, fit};
pub use model::{FILE, FORMAT, Measured, Model};

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
}
