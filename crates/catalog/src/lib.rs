//! What exists, and who may do what with it: roles and databases of a node, and inside one
//! database its schemas, tables, views and sequences. The statements that define these are
//! executed here, except for parts that need a planner, which they ask by traits. The crate knows
//! `sqlparser` and storage, and nothing of plans or sessions.
//!
//! ```text
//!  CREATE, ALTER, DROP, GRANT ─┬─ in a database ─► ddl ───┬─► state ─► sequence, usage ─► storage
//!                              └─ on the node ───► admin ─┘
//! ```
//!
//! A database's catalogue is an immutable [`CatalogState`]; a reader sees one state throughout.
//! What a transaction defines is a [`Draft`] of the next state until it commits.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod actor;
pub mod admin;
pub mod ddl;
pub mod failure;
pub mod sequence;
mod state;
mod usage;

pub use actor::Actor;
pub use state::{
    AEROSTAT_OID, BuildName, CATALOG_FORMAT, Catalog, CatalogState, Change, ClusterFacts,
    ClusterNodes, CopiesRecord, CopyFacts, CopyState, Database, DatabaseRecord, Definitions, Draft,
    FIRST_USER_OID, ForeignKey, Grant, INFORMATION_SCHEMA_OID, Identity, IndexEntry, Lowered, Mark,
    NodeFacts, NodeRecord, OnCommit, Order, OwnedBy, PG_CATALOG_OID, PG_TEMP, PUBLIC, PUBLIC_OID,
    PartComments, PeerFacts, PlacedFacts, Placing, RecordError, ReferentialAction, Relation,
    RoleRecord, SEQUENCE_COLUMNS, SchemaEntry, SchemaGrant, SequenceEntry, Standing,
    StatementLimits, Statements, StatementsRecord, TableEntry, Temporaries, UnknownFields,
    ViewEntry, is_temporary, relation_tag, temporary_schema, undefined_node, undefined_relation,
    undefined_schema,
};
pub use usage::{RecordedScan, Usage};
