//! What holds a tenant's rows: tables, their directories of segments, their shapes.
//!
//! ```text
//!  TenantStore (tenant) ── arena, tables: making and dropping tables
//!   └ Table (table) ── Shape (shape) ── Index (index)
//!      └ Directory, Entry (directory) ── penalty: what scans have paid at a segment
//!         │                      └─ evict: values that are not in memory
//!         └ Unit (unit): the entries that are rewritten together
//! ```
//!
//! `TenantStore` lists its tables and a `Table` holds its store, so these two modules are a
//! circle. The room uses `files`: the store has the log, and a table can describe itself for a
//! manifest. Rows are read, written and rewritten by the rooms above, in `impl` blocks of their
//! own.

pub(crate) mod arena;
pub(crate) mod directory;
pub(crate) mod evict;
pub(crate) mod index;
pub(crate) mod living;
mod penalty;
pub(crate) mod row_id;
pub(crate) mod shape;
pub(crate) mod table;
mod tables;
pub(crate) mod tenant;
pub(crate) mod unit;
