//! Tables in main memory: segments in key order, versions, changes, scans.
//!
//! ```text
//!  TenantStore ── transactions, budget
//!   └ Table ── Directory (ordered, replaced as a whole)
//!               └ Entry ── Segment (versions, key index, zones)
//!  TableView = Table + Snapshot + the Directory of that moment ──► Scan
//! ```
//!
//! * **Writing.** [`Table::insert`] routes rows by key to segments and checks uniqueness under
//!   the segment's latch; [`TableView::delete`] and [`TableView::update`] end the versions that a
//!   view found. Rows carry the transaction's stamp until it ends; written rows are enlisted with
//!   the transaction, which stamps them for good or undoes them.
//! * **Locking.** [`TableView::lock`] keeps others from changing rows until the transaction ends,
//!   with a stamp in the place of a change's own (`lock`).
//! * **Reading.** A [`TableView`] pins the directory; readers take no latch.
//! * **Structure.** Full segments are rewritten or followed by new ones; mostly dead ones are
//!   rewritten without their garbage. Old segments record where their rows went, and live while
//!   views pin them.
//! * **Freezing.** [`Table::freeze`] encodes segments; later writes to their keys go to hot
//!   segments in front of them, until the next freeze.
//! * **Shape.** [`Table::set_layout`] changes how new segments are laid out; [`Table::reshape`]
//!   brings the others to it, one after the other.
//! * **Indexes.** [`Table::create_index`] gives every segment a piece of a secondary index, which
//!   scans use by themselves; unique ones are guarded across segments (`unique`).
//! * **Memory.** Every arena's bytes in use are charged to the tenant's budget before they are
//!   touched. Values of frozen segments that have an image are evicted when it is full, and read back
//!   when they are wanted (`evict`).
//!
//! * **Durability.** A tenant with a folder has a commit log (`log`) that transactions wait for,
//!   checkpoints (`checkpoint`) that let the log's old files be removed, and recovery (`recover`)
//!   from both. The log records rows, not segments. [`backup`] has backups, archives of the log,
//!   and tenants restored from them.
//! * **Copies.** [`TenantStore::open_copy`] opens a tenant that receives the log of another node's, and
//!   does its commits again beside readers (`copy`). A copy that the log does not lead to any more is made of
//!   a checkpoint ([`seed`]).
//!
//! Its rooms are folders, one for each activity; each uses those below it and none above:
//!
//! ```text
//!                        copy   another node's log, done again
//!       ┌───────────────┴───────────────┐
//!  rewrite   freezing, reshaping, vacuum      durable   checkpoints, recovery, repair, backups
//!       └───────────────┐               ┌──────────┘
//!                       write   inserting, deleting, updating, locking
//!                       read    views, scans, lookups
//!                       store   tenants, tables, directories of segments
//!            meta ────► files   log, manifest, archive           error: known to all
//! ```
//!
//! The crate knows neither SQL nor DataFusion. [`MetaStore`] stores the node's catalogue, whose
//! contents are the caller's.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests use the machine's"
    )
)]

mod copy;
mod durable;
mod error;
mod files;
mod meta;
mod read;
mod rewrite;
#[cfg(any(test, feature = "simulated"))]
#[doc(hidden)]
pub mod simulated;
mod store;
mod write;

#[cfg(test)]
mod tests;

pub use aerostat_segment::{
    AttributeEncoding, CompareOp, DuplicateKey, Encoding, Key, KeyRef, Literal, LookupTable,
    Predicate, SegmentError, ValueRef,
};
pub use aerostat_txn::LogFailure;
pub use aerostat_types::{Clock, Durability, SystemClock};

pub use copy::{Applier, ApplyError, Progress};
#[doc(hidden)]
pub use durable::forge;
pub use durable::{
    backup,
    checkpoint::{Checkpointed, checkpoint_is_due},
    recover::{CopyOf, OpenOptions, Recovered},
    repair, seed,
};
pub use error::{COLUMNS_MAX, StorageError};
pub use files::{
    damage::RecoverError,
    disk::{Disk, DiskFile, DiskLock, DiskSpace, Found, Opened, SystemDisk},
    formats::{FILE_FORMATS, FileFormat},
    log::{
        Ended,
        point::{StreamPoint, last_place, unplaced},
        pulse::{CommitTimes, CommitWatch},
        receive::ReceiveError,
        stream::{LogHold, LogReader, LogWatch, StreamError, Wake},
    },
    origin::Timeline,
    private::make_folder,
};
pub use meta::{
    DataFolder, MetaError, MetaFile, MetaMemory, MetaShared, MetaStore, Swapped, Version, Versioned,
};
pub use read::{
    lookup::Lookup,
    narrow::{Bound, NarrowedCounts, Narrowing},
    point::{RowReader, RowView},
    references::describe_key,
    scan::{Scan, ScanCounts, ScanReader, ScanSpec, ScannedRows},
    segments::{AttributeDescription, SegmentDescription},
    statistics::{ArenaMemory, TableStatistics},
    view::TableView,
};
pub use rewrite::{
    freeze::{FreezeBacklog, FreezeReport},
    reshape::ReshapeReport,
};
pub use store::{
    evict::{Evictions, WorthOfMemory},
    row_id::{ROW_ID_COLUMN, RowId},
    table::Table,
    tenant::TenantStore,
};
pub use write::{conflicts::InTheWay, lock::WaitPolicy};
