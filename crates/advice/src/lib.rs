//! The layout adviser: which vertical partitioning of a table costs least for
//! what its statements read and write.
//!
//! It follows HYRISE (Grund, Krüger, Plattner, Zeier, Cudre-Mauroux, Madden:
//! "HYRISE: A Main Memory Hybrid Storage Engine", PVLDB 4(2), 2010; source 000
//! §3.3): count the cache lines that statements touch in attribute groups of a
//! given width, price them, and search the partitionings that the statements'
//! attribute sets suggest.
//!
//! ```text
//! statements ─► Footprints ─► Workload ─┐
//!               (bounded, decayed)      │
//! widths, rows ────────► TableShape ────┼─► decide ─► Advice
//! cache levels, ns ────► Machine ───────┤   (pure)    layout, costs, why
//! patience ────────────► Policy ────────┘
//! ```
//!
//! **What the model counts.** A scan goes vector by vector. Each predicate is a
//! pass over one attribute, the first over every row, later ones over those that
//! are left; then each projected attribute is a pass over the selected rows. A
//! pass touches whole cache lines, so an attribute of a wide group brings its
//! neighbours along; lines that an earlier pass over the same vector brought are
//! found in the level that is large enough for what the vector touched. The
//! levels combine as in Manegold, Boncz, Kersten ("Generic Database Cost Models
//! for Hierarchical Memory Systems", VLDB 2002): the sum over the levels of misses
//! times latency. To that comes the time per value of the kernels, since a value
//! that lies alone in its group is filtered by vector instructions and handed to
//! Arrow without a copy, and others are not.
//!
//! **What it leaves out**, because it is the same for every layout: zone maps, NULL
//! bitmaps, versions, the key index, the heap of long values, and whatever happens
//! above the scan. It also takes selected rows to be spread evenly, finds every
//! table cold when a statement starts, counts no address translation (arenas lie
//! in huge pages; a calibrated latency has it inside) and no contention for memory
//! bandwidth.
//!
//! Nothing here does I/O, asks a clock or starts a thread.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod affinity;
mod atoms;
mod cost;
mod decide;
mod footprints;
mod lines;
mod machine;
mod search;
mod shape;
mod workload;

pub use cost::estimate_ns;
pub use decide::{Advice, Candidate, GroupAdvice, KeepReason, Policy, Verdict, decide};
pub use footprints::{
    DECAY_HALF_LIFE_S, FOOTPRINT_ATTRIBUTES_MAX, FOOTPRINTS_MAX, Footprints, FootprintsStatus,
};
pub use machine::{Level, Machine, ValueNs};
pub use search::{ATOMS_EXACT_MAX, ATOMS_GREEDY_MAX, WORK_MAX};
pub use shape::{AdviceError, Part, TableShape};
pub use workload::{Access, Filter, Footprint, PREDICATES_MAX, Scan, Workload};
