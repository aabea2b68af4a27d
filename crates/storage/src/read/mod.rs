//! Reading tables as one snapshot sees them; no latch is taken.
//!
//! ```text
//!  TableView (view) ─┬─► Scan (scan): morsels (queue) ─► lookup, narrow ─► columns
//!                    ├─► RowView (point): one row by key, where it lies
//!                    ├─► references: rows by the values that foreign keys compare
//!                    └─► estimate: how many rows satisfy predicates
//!  Table            ───► statistics, segments: what a table is like
//! ```
//!
//! `describe` shows keys as messages do. The room uses `store` and no other; `write` asks it
//! which rows are in its way.

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
