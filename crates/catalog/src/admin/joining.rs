//! How a data folder becomes that of a cluster's node.

use std::path::Path;

use aerostat_storage::{DataFolder, MetaFile, Swapped, SystemDisk, TenantStore, Timeline, Version};

use super::{
    host::Shared,
    record::{NodeError, first_record, folder_of, read_record, write_record},
};
use crate::state::{CopiesRecord, DatabaseRecord, NodeRecord};

/// The file that says that a data folder is a cluster's, and of which node.
pub const MARKER: &str = "cluster.json";

/// A folder that is no cluster's.
///
/// # Errors
/// [`NodeError::InCluster`].
pub(super) fn require_alone(data: &Path) -> Result<(), NodeError> {
    match data.join(MARKER).exists() {
        true => Err(NodeError::InCluster {
            path: data.to_owned(),
        }),
        false => Ok(()),
    }
}

/// The record that the node shares, of which this was found; the first node of a cluster makes one, with the
/// databases that its folder has.
pub(super) fn join(
    folder: &DataFolder,
    shared: &Shared,
    found: Option<(Version, NodeRecord)>,
) -> Result<(Version, NodeRecord), NodeError> {
    let own = MetaFile::of(folder);
    let brought = read_record(&own)?.map(|(_, record)| record);
    let (version, record) = match found {
        Some(found) => found,
        None => begin(folder.path(), shared, brought.clone())?,
    };
    if let Some(brought) = brought {
        let is_here = |entry: &DatabaseRecord| {
            let mut all = record.databases.values();
            let is_it = |other: &DatabaseRecord| {
                let copies = other.copies;
                other.oid == entry.oid && copies.is_some_and(|copies| copies.home == shared.me)
            };
            all.any(is_it)
        };
        if !brought.databases.values().all(is_here) {
            return Err(NodeError::OwnDatabases {
                path: folder.path().to_owned(),
            });
        }
        own.retire()?;
    }
    Ok((version, record))
}

/// Makes the record, unless another node does.
fn begin(
    data: &Path,
    shared: &Shared,
    brought: Option<NodeRecord>,
) -> Result<(Version, NodeRecord), NodeError> {
    let mut record = brought.unwrap_or_else(first_record);
    for entry in record.databases.values_mut() {
        let folder = folder_of(data, entry.oid);
        let read = TenantStore::read_timeline(entry.oid, &folder, &SystemDisk);
        let timeline = read.map_err(|source| NodeError::Timeline {
            path: folder,
            source: Box::new(source),
        })?;
        entry.copies = Some(CopiesRecord {
            timeline: timeline.unwrap_or_else(|| Timeline::begin(&aerostat_types::SystemClock)),
            home: shared.me,
        });
    }
    match write_record(&*shared.record, None, &record)? {
        Swapped::Done(version) => Ok((version, record)),
        Swapped::Lost(_) => read_record(&*shared.record)?.ok_or_else(|| NodeError::NoCatalog {
            path: shared.record.place(),
        }),
    }
}
