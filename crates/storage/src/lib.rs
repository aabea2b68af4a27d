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
//! * **Reading.** A [`TableView`] pins the directory; readers take no latch.
//! * **Structure.** Full segments are rewritten or followed by new ones, mostly
//!   dead ones are rewritten without their garbage. Old segments say where rows
//!   went and live while views pin them.
//! * **Freezing.** [`Table::freeze`] encodes segments; what is written to their keys
//!   afterwards goes to hot ones in front of them, until the next freeze.
//! * **Shape.** [`Table::set_layout`] changes how new segments are laid out,
//!   [`Table::reshape`] brings the others to it, one after the other.
//! * **Memory.** Every arena's bytes in use are charged to the tenant's budget
//!   before they are touched.
//!
//! * **Durability.** A tenant with a folder has a commit log (`log`) that transactions
//!   wait for, checkpoints (`checkpoint`) that let the log's old files go, and recovery
//!   (`recover`) from both. Log and checkpoints speak of rows, not of segments.
//!
//! The crate knows neither SQL nor DataFusion. [`MetaFile`] keeps the node's
//! catalogue, whose contents are the caller's.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod arena;
mod checkpoint;
mod describe;
mod directory;
mod durable;
mod error;
mod fault;
mod freeze;
mod image;
mod incoming;
mod insert;
mod log;
mod manifest;
mod meta;
mod modify;
mod recover;
mod replay;
mod reshape;
mod room;
mod row_id;
mod scan;
mod segments;
mod shape;
mod statistics;
mod table;
mod tenant;
mod unit;
mod view;
mod writes;

#[cfg(test)]
mod tests;

pub use aerostat_segment::{
    AttributeEncoding, CompareOp, Encoding, Key, KeyRef, Literal, Predicate,
};
pub use checkpoint::{Checkpointed, checkpoint_is_due};
pub use error::{COLUMNS_MAX, StorageError};

pub use freeze::FreezeReport;
pub use log::Durability;
pub use meta::{MetaError, MetaFile};
pub use recover::{OpenOptions, RecoverError, Recovered, Until};
pub use reshape::ReshapeReport;
pub use row_id::{ROW_ID_COLUMN, RowId};
pub use scan::{Scan, ScanCounts, ScanSpec};
pub use segments::{AttributeDescription, SegmentDescription};
pub use statistics::TableStatistics;
pub use table::Table;
pub use tenant::TenantStore;
pub use view::TableView;
