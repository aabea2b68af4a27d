//! Reading tables as one snapshot sees them, without latches.
//!
//! ```text
//!  TableView (view) ─┬─► Scan (scan): morsels (queue) ─► lookup, narrow ─► columns
//!                    ├─► RowView (point): one row by key, where it lies
//!                    ├─► references: rows by the values that foreign keys compare
//!                    └─► estimate: how many rows satisfy predicates
//!  Table            ───► statistics, segments: what a table is like
//! ```
//!
//! `describe` formats keys as messages show them. The room uses `store` and no other; `write`
//! asks it which rows conflict with new ones.

pub(crate) mod describe;
mod estimate;
pub(crate) mod lookup;
pub(crate) mod narrow;
pub(crate) mod point;
mod queue;
pub(crate) mod references;
pub(crate) mod scan;
pub(crate) mod segments;
pub(crate) mod statistics;
pub(crate) mod view;
