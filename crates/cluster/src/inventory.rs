//! The nodes of a cluster: their names, numbers and addresses.

use std::{
    collections::BTreeMap,
    fs, io,
    io::Write,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use aerostat_catalog::{UnknownFields, admin::MARKER};
use aerostat_copies::Spoken;
use aerostat_storage::{DataFolder, MetaError, MetaStore, Swapped, Versioned};
use aerostat_types::NodeId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Build, Space, SpaceError, space::at};

/// The nodes of a cluster, as the space has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inventory {
    /// Which cluster it is of: each has another.
    #[serde(default)]
    cluster: String,
    /// By name.
    pub(crate) nodes: BTreeMap<String, NodeEntry>,
    /// The number of the next.
    next: u32,
    /// What later builds have written into it, which is kept as it is.
    #[serde(flatten)]
    unknown: UnknownFields,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEntry {
    /// Its number.
    pub id: NodeId,
    /// Which data folder it is.
    folder: String,
    /// How many processes of it there have been.
    pub incarnation: u64,
    /// Where other nodes find it.
    pub address: SocketAddr,
    /// Where clients find it.
    pub clients: SocketAddr,
    /// Whether its databases are to go to others.
    #[serde(default)]
    pub draining: bool,
    /// The build of its process; of builds before this one, nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    /// The build that it was last asked to go on as, until it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_build: Option<Build>,
    /// Its process ends for that, and the next one has not come yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restarts: bool,
    /// What later builds have written into it.
    #[serde(flatten)]
    unknown: UnknownFields,
}

impl NodeEntry {
    /// What its process speaks with other nodes.
    pub(crate) fn spoken(&self) -> Spoken {
        self.build
            .as_ref()
            .map_or(Spoken::FIRST, |build| build.between_nodes)
    }
}

/// What a data folder says of itself.
#[derive(Serialize, Deserialize)]
struct Marker {
    node: String,
    folder: String,
    /// Of which cluster the node is; `None` until it has joined.
    #[serde(default)]
    cluster: Option<String>,
    /// What later builds have written into it.
    #[serde(flatten)]
    unknown: UnknownFields,
}

/// Who a process is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The node's name.
    pub name: String,
    /// The node's number.
    pub node: NodeId,
    /// Counts the node's processes.
    pub incarnation: u64,
}

/// Why a process cannot be a node's.
#[derive(Debug, Error)]
pub enum JoinError {
    /// The space cannot be used.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// The list of nodes is none.
    #[error("the list of the cluster's nodes cannot be understood")]
    Parse(#[source] serde_json::Error),
    /// The folder is another node's.
    #[error(
        "the data folder {} is node \"{node}\"; start it with --node-name {node}",
        path.display()
    )]
    OtherName {
        /// The folder.
        path: PathBuf,
        /// What it is called.
        node: String,
    },
    /// The name is that of another folder.
    #[error(
        "the cluster has a node \"{node}\" with another data folder; give this one another --node-name"
    )]
    Taken {
        /// The name.
        node: String,
    },
    /// The folder is of another cluster's node.
    #[error(
        "the data folder {} belongs to another cluster, or the folder that its nodes share is not there",
        path.display()
    )]
    OtherCluster {
        /// The folder.
        path: PathBuf,
    },
    /// The folder has databases that the cluster does not have.
    #[error(
        "the data folder {} has databases of its own, and the cluster has others; take an empty folder, and move the databases by backup and restore",
        path.display()
    )]
    OwnDatabases {
        /// The folder.
        path: PathBuf,
    },
    /// No node is called like this.
    #[error("\"{0}\" is no name for a node: letters, digits, - and _, at most 63")]
    Name(String),
}

impl From<MetaError> for JoinError {
    fn from(error: MetaError) -> Self {
        JoinError::Space(error.into())
    }
}

impl Inventory {
    /// What the space has.
    ///
    /// # Errors
    /// It cannot be read, or is no inventory.
    pub(crate) fn load(store: &dyn MetaStore) -> Result<Inventory, JoinError> {
        Self::of(store.load()?.as_ref())
    }

    pub(crate) fn of(found: Option<&Versioned>) -> Result<Inventory, JoinError> {
        match found {
            None => Ok(Inventory::default()),
            Some(found) => serde_json::from_slice(&found.document).map_err(JoinError::Parse),
        }
    }

    /// The node of a number, and its name.
    pub(crate) fn node(&self, id: NodeId) -> Option<(&String, &NodeEntry)> {
        self.nodes.iter().find(|(_, entry)| entry.id == id)
    }
}

/// Makes a process one of the node that a data folder is, and says to others where it is, and which build.
///
/// # Errors
/// [`JoinError`]. Nothing has changed then, but that the folder may have a name.
pub fn join(
    space: &Space,
    data: &Path,
    name: &str,
    (address, clients): (SocketAddr, SocketAddr),
    build: &Build,
) -> Result<Identity, JoinError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 63 || !name.chars().all(is_plain) {
        return Err(JoinError::Name(name.to_owned()));
    }
    // Nobody else is about to have it, or has it.
    let _locked = DataFolder::open(data)?;
    let known = read_marker(data)?;
    if let Some(known) = &known
        && known.node != name
    {
        return Err(JoinError::OtherName {
            path: data.to_owned(),
            node: known.node.clone(),
        });
    }
    let other_cluster = || JoinError::OtherCluster {
        path: data.to_owned(),
    };
    let joined = known.as_ref().and_then(|known| known.cluster.clone());
    if joined.is_some() && !space.is_there()? {
        return Err(other_cluster());
    }
    let is_own = known.is_none() && data.join("catalog.json").exists();
    if is_own && space.record()?.load()?.is_some() {
        return Err(JoinError::OwnDatabases {
            path: data.to_owned(),
        });
    }
    let mut marker = match known {
        Some(known) => known,
        None => Marker::new(data, name)?,
    };
    let store = space.nodes()?;
    loop {
        let found = store.load()?;
        let mut all = Inventory::of(found.as_ref())?;
        if all.cluster.is_empty() {
            all.cluster = format!("{:032x}", rand::random::<u128>());
        }
        if let Some(joined) = &joined
            && (*joined != all.cluster || !all.nodes.contains_key(name))
        {
            return Err(other_cluster());
        }
        let next = all.next;
        let entry = all.nodes.entry(name.to_owned());
        let entry = entry.or_insert_with(|| NodeEntry {
            id: NodeId(next),
            folder: marker.folder.clone(),
            incarnation: 0,
            address,
            clients,
            draining: false,
            build: None,
            next_build: None,
            restarts: false,
            unknown: UnknownFields::new(),
        });
        if entry.folder != marker.folder {
            return Err(JoinError::Taken {
                node: name.to_owned(),
            });
        }
        entry.incarnation += 1;
        (entry.address, entry.clients) = (address, clients);
        (entry.build, entry.next_build) = (Some(build.clone()), None);
        entry.restarts = false;
        let identity = Identity {
            name: name.to_owned(),
            node: entry.id,
            incarnation: entry.incarnation,
        };
        all.next = all.next.max(identity.node.0 + 1);
        let document = serde_json::to_vec_pretty(&all).map_err(JoinError::Parse)?;
        let expected = found.map(|found| found.version);
        // Another node may have come meanwhile.
        if let Swapped::Done(_) = store.compare_and_swap(expected, &document)? {
            if joined.is_none() {
                marker.cluster = Some(all.cluster);
                marker.write(data)?;
            }
            return Ok(identity);
        }
    }
}

/// What a data folder says of itself; `None` if it says nothing.
fn read_marker(data: &Path) -> Result<Option<Marker>, JoinError> {
    let path = data.join(MARKER);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(JoinError::Parse),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(&path)(error).into()),
    }
}

impl Marker {
    /// The folder is this node's from now on.
    fn new(data: &Path, name: &str) -> Result<Marker, JoinError> {
        let marker = Marker {
            node: name.to_owned(),
            folder: format!("{:032x}", rand::random::<u128>()),
            cluster: None,
            unknown: UnknownFields::new(),
        };
        marker.write(data)?;
        Ok(marker)
    }

    fn write(&self, data: &Path) -> Result<(), JoinError> {
        let path = data.join(MARKER);
        let text = serde_json::to_vec_pretty(self).map_err(JoinError::Parse)?;
        let new = data.join(format!("{MARKER}.new"));
        let write = || -> io::Result<()> {
            let mut options = fs::OpenOptions::new();
            let mut file = options
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            fs::File::open(data)?.sync_all()
        };
        write().map_err(at(&path))?;
        Ok(())
    }
}
