//! The record of roles and databases as a document, and where the node's files are.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use aerostat_storage::{
    MetaError, MetaStore, RecoverError, StorageError, Swapped, Version, backup::BackupError,
};
use aerostat_types::{RoleId, TenantId};
use thiserror::Error;

use crate::state::{
    DatabaseRecord, FIRST_USER_OID, NodeRecord, RecordError, RoleRecord, UnknownFields,
};

/// The superuser and the database that a new node begins with.
pub const BOOTSTRAP: &str = "aerostat";

/// The database that tools connect to when they are to make or drop another. A new node begins
/// with it; it may be dropped.
const MAINTENANCE: &str = "postgres";

/// The OID of that database, as in PostgreSQL.
const MAINTENANCE_OID: TenantId = TenantId(5);

/// The OID of the superuser that a new node begins with, as in PostgreSQL.
pub(super) const BOOTSTRAP_OID: RoleId = RoleId(10);

/// Why a node cannot be opened.
#[derive(Debug, Error)]
pub enum NodeError {
    /// The data folder cannot be used.
    #[error("cannot open the data folder")]
    Meta(#[from] MetaError),
    /// There are databases and no catalogue that names them.
    #[error(
        "the catalogue is missing from {}, which has databases; put catalog.json back from a copy of the folder",
        path.display()
    )]
    NoCatalog {
        /// The data folder.
        path: PathBuf,
    },
    /// What a dropped database left behind cannot be removed, or what nobody knows cannot be
    /// set aside.
    #[error("cannot remove or use {}", path.display())]
    Remove {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The folder is one of a cluster's node.
    #[error(
        "the data folder {} belongs to a node of a cluster; start it with --cluster",
        path.display()
    )]
    InCluster {
        /// The data folder.
        path: PathBuf,
    },
    /// The folder has databases that the cluster does not have.
    #[error(
        "the data folder {} has databases of its own, and the cluster has others; take an empty folder, and move the databases by backup and restore",
        path.display()
    )]
    OwnDatabases {
        /// The data folder.
        path: PathBuf,
    },
    /// What a database's files are of cannot be read.
    #[error("cannot read whose log is in {}", path.display())]
    Timeline {
        /// The database's folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<RecoverError>,
    },
    /// There is no such database to repair.
    #[error("database \"{name}\" does not exist")]
    NoDatabase {
        /// The name.
        name: String,
    },
    /// A repair cannot copy or exchange folders.
    #[error("cannot repair in {}", path.display())]
    Repair {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Why one database could not be opened.
#[derive(Debug, Error)]
pub(super) enum OpenError {
    /// Its log or checkpoint cannot be read or written, or is damaged.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// What it does not need any more could not be dropped.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Its catalogue cannot be made of what the log holds.
    #[error(transparent)]
    Catalog(#[from] RecordError),
    /// Its folder is not there, or its log is not in it.
    #[error("{} is missing", path.display())]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// The archive of its log cannot be used.
    #[error("the archive of its log cannot be used")]
    Archive(#[from] BackupError),
}

/// The folder in the data folder that has one folder for each database, named by its OID.
pub(super) const TENANTS: &str = "tenants";

pub(super) fn folder_of(data: &Path, id: TenantId) -> PathBuf {
    data.join(TENANTS).join(id.0.to_string())
}

/// The record in a store, and its version.
///
/// # Errors
/// Those of the store, and what is in it is no record.
pub(super) fn read_record(
    meta: &dyn MetaStore,
) -> Result<Option<(Version, NodeRecord)>, MetaError> {
    let Some(kept) = meta.load()? else {
        return Ok(None);
    };
    let record = serde_json::from_slice(&kept.document);
    let record = record.map_err(|source| MetaError::Parse {
        path: meta.place(),
        source,
    })?;
    Ok(Some((kept.version, record)))
}

pub(super) fn write_record(
    meta: &dyn MetaStore,
    expected: Option<Version>,
    record: &NodeRecord,
) -> Result<Swapped, MetaError> {
    let document = serde_json::to_vec_pretty(record).map_err(MetaError::Encode)?;
    meta.compare_and_swap(expected, &document)
}

pub(super) fn first_record() -> NodeRecord {
    let role = RoleRecord {
        oid: BOOTSTRAP_OID,
        superuser: true,
        login: true,
        create_database: true,
        create_role: true,
        connection_limit: -1,
        verifier: None,
        comment: None,
        member_of: BTreeSet::new(),
        unknown: UnknownFields::new(),
    };
    // Who makes a database has the limits of the one it is connected to, and these have none: superusers say who
    // else comes in.
    let database = |oid, comment: Option<&str>| DatabaseRecord {
        comment: comment.map(str::to_owned),
        ..DatabaseRecord::new(oid, BOOTSTRAP)
    };
    let maintenance = Some("default administrative connection database");
    NodeRecord {
        roles: [(BOOTSTRAP.to_owned(), role)].into(),
        databases: [
            (
                BOOTSTRAP.to_owned(),
                database(TenantId(FIRST_USER_OID), None),
            ),
            (
                MAINTENANCE.to_owned(),
                database(MAINTENANCE_OID, maintenance),
            ),
        ]
        .into(),
        next_oid: FIRST_USER_OID + 1,
        dropped: BTreeSet::new(),
        memory: None,
        unknown: UnknownFields::new(),
    }
}
