//! Tables in main memory: segments in key order, versions, changes, scans.
//!
//! ```text
//!  TenantStore ── transactions, budget
//!   └ Table ── Directory (ordered, replaced as a whole)
//!               └ Entry ── Segment (versions, key index, zones)
//!  TableView = Table + Snapshot + the Directory of that moment ──► Scan
//! ```
//!
//! * **Writing.** [`Table::insert`] routes rows by key to segments and checks
//!   uniqueness under the segment's latch; [`TableView::delete`] and
//!   [`TableView::update`] end the versions a view found. Rows carry the
//!   transaction's stamp until it ends; what was written is enlisted with the
//!   transaction, which stamps it for good or undoes it.
//! * **Locking.** [`TableView::lock`] keeps others from changing rows until the transaction
//!   ends, with a stamp where a change would have its own (`lock`).
//! * **Reading.** A [`TableView`] pins the directory; readers take no latch.
//! * **Structure.** Full segments are rewritten or followed by new ones, mostly
//!   dead ones are rewritten without their garbage. Old segments say where rows
//!   went and live while views pin them.
//! * **Freezing.** [`Table::freeze`] encodes segments; what is written to their keys
//!   afterwards goes to hot ones in front of them, until the next freeze.
//! * **Shape.** [`Table::set_layout`] changes how new segments are laid out,
//!   [`Table::reshape`] brings the others to it, one after the other.
//! * **Indexes.** [`Table::create_index`] gives every segment a piece of a secondary index,
//!   which scans use by themselves; unique ones are guarded across segments (`unique`).
//! * **Memory.** Every arena's bytes in use are charged to the tenant's budget
//!   before they are touched.
//!
//! * **Durability.** A tenant with a folder has a commit log (`log`) that transactions
//!   wait for, checkpoints (`checkpoint`) that let the log's old files go, and recovery
//!   (`recover`) from both. The log speaks of rows, not of segments. [`backup`] has
//!   backups, archives of the log, and tenants made of them.
//!
//! The crate knows neither SQL nor DataFusion. [`MetaStore`] keeps the node's
//! catalogue, whose contents are the caller's.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod archive;
mod arena;
pub mod backup;
mod carry;
mod checkpoint;
mod chosen;
mod codec;
mod conflicts;
mod damage;
mod describe;
mod directory;
mod error;
mod estimate;
mod fault;
#[doc(hidden)]
pub mod forge;
mod freeze;
mod image;
mod incoming;
mod index;
mod indexes;
mod insert;
mod last_checkpoint;
mod load;
mod lock;
mod log;
mod lookup;
mod made;
mod manifest;
mod meta;
mod modify;
mod narrow;
mod origin;
mod penalty;
mod point;
mod private;
mod queue;
mod recover;
mod redefine;
mod references;
pub mod repair;
mod replay;
mod reshape;
mod room;
mod row_id;
mod scan;
mod segments;
mod shape;
mod side_by_side;
mod statistics;
mod surplus;
mod table;
mod tables;
mod tail;
mod tenant;
mod unique;
mod unit;
mod vacuum;
mod view;
mod working;
mod writes;

#[cfg(test)]
mod tests;

pub use aerostat_segment::{
    AttributeEncoding, CompareOp, DuplicateKey, Encoding, Key, KeyRef, Literal, LookupTable,
    Predicate, ValueRef,
};
pub use checkpoint::{Checkpointed, checkpoint_is_due};
pub use conflicts::InTheWay;
pub use damage::RecoverError;
pub use error::{COLUMNS_MAX, StorageError};

pub use aerostat_types::Durability;
pub use freeze::{FreezeBacklog, FreezeReport};
pub use lock::WaitPolicy;
pub use lookup::Lookup;
pub use meta::{
    DataFolder, MetaError, MetaFile, MetaMemory, MetaStore, Swapped, Version, Versioned,
};
pub use narrow::{Bound, NarrowedCounts, Narrowing};
pub use origin::Timeline;
pub use point::RowView;
pub use private::{DiskSpace, make_folder};
pub use recover::{OpenOptions, Recovered};
pub use references::describe_key;
pub use reshape::ReshapeReport;
pub use row_id::{ROW_ID_COLUMN, RowId};
pub use scan::{Scan, ScanCounts, ScanReader, ScanSpec, ScannedRows};
pub use segments::{AttributeDescription, SegmentDescription};
pub use statistics::TableStatistics;
pub use table::Table;
pub use tenant::TenantStore;
pub use view::TableView;
