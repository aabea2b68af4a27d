//! What the nodes of a cluster share: documents in a folder or in etcd, and a word that only they know.

use std::{
    fs, io,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use aerostat_etcd::{Access, Endpoints, Etcd, EtcdError};
use aerostat_replication::Config;
use aerostat_storage::{MetaError, MetaShared, MetaStore, Swapped, make_folder};
use aerostat_types::{NodeId, TenantId};
use thiserror::Error;

/// What names a folder of this machine, or one that all nodes have mounted.
const SCHEME: &str = "file://";

/// Bytes of the word.
const TOKEN_BYTES: usize = 32;

/// Why a space cannot be used.
#[derive(Debug, Error)]
pub enum SpaceError {
    /// No space is named like this.
    #[error(
        "\"{0}\" names no cluster; give a folder that all nodes share, as file:///path, or etcd, as etcd://host:2379/name"
    )]
    Name(String),
    /// No cluster of etcd is named like this.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// A document cannot be read or written.
    #[error("the cluster's documents cannot be used")]
    Meta(#[from] MetaError),
    /// A file cannot be read or written.
    #[error("cannot use {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What the nodes of a cluster share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Folder(PathBuf),
    Etcd(Etcd),
}

impl FromStr for Space {
    type Err = SpaceError;

    fn from_str(text: &str) -> Result<Space, SpaceError> {
        Space::open(text, &Access::default())
    }
}

impl Space {
    /// The one of this name; etcd is asked in this way.
    ///
    /// # Errors
    /// It is none.
    pub fn open(text: &str, access: &Access) -> Result<Space, SpaceError> {
        if text.starts_with(Endpoints::SCHEME) {
            return Ok(Space(Kind::Etcd(Etcd::new(text.parse()?, access))));
        }
        let path = match text.split_once("://") {
            None => text,
            Some(_) => text.strip_prefix(SCHEME).unwrap_or_default(),
        };
        match path.is_empty() {
            true => Err(SpaceError::Name(text.to_owned())),
            false => Ok(Space(Kind::Folder(PathBuf::from(path)))),
        }
    }

    /// The one in a folder.
    pub fn of(folder: &Path) -> Space {
        Space(Kind::Folder(folder.to_owned()))
    }

    /// Whether there is a cluster in it.
    ///
    /// # Errors
    /// [`SpaceError`], as all here.
    pub fn is_there(&self) -> Result<bool, SpaceError> {
        match &self.0 {
            Kind::Folder(folder) => Ok(folder.join("nodes").is_dir()),
            Kind::Etcd(_) => Ok(self.nodes()?.load()?.is_some()),
        }
    }

    /// The record of roles and databases.
    ///
    /// # Errors
    /// See [`Self::is_there`].
    pub fn record(&self) -> Result<Arc<dyn MetaStore>, SpaceError> {
        self.document("catalog")
    }

    /// Who the nodes are.
    ///
    /// # Errors
    /// See [`Self::is_there`].
    pub fn nodes(&self) -> Result<Arc<dyn MetaStore>, SpaceError> {
        self.document("nodes")
    }

    /// What a node says of itself.
    ///
    /// # Errors
    /// See [`Self::is_there`].
    pub(crate) fn report(&self, node: NodeId) -> Result<Arc<dyn MetaStore>, SpaceError> {
        self.document(&format!("reports/{node}"))
    }

    /// Who leads a database, and who must have its commits.
    ///
    /// # Errors
    /// See [`Self::is_there`].
    pub fn configurations(&self, database: TenantId) -> Result<Arc<dyn MetaStore>, SpaceError> {
        self.document(&format!("databases/{database}"))
    }

    /// Who leads a database, and who must have its commits, as it is now; `None` where nobody has led it yet, or what is
    /// there cannot be understood.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn config(&self, database: TenantId) -> Result<Option<Config>, SpaceError> {
        let found = self.configurations(database)?.load()?;
        Ok(found.and_then(|found| serde_json::from_slice(&found.document).ok()))
    }

    /// What a store that keeps what documents were has now, if this is one.
    ///
    /// # Errors
    /// See [`Self::is_there`].
    pub(crate) fn revision(&self) -> Result<Option<u64>, SpaceError> {
        match &self.0 {
            Kind::Folder(_) => Ok(None),
            Kind::Etcd(etcd) => Ok(Some(etcd.revision()?)),
        }
    }

    /// Has it forget what documents were before a revision.
    ///
    /// # Errors
    /// See [`Self::is_there`].
    pub(crate) fn forget_before(&self, revision: u64) -> Result<(), SpaceError> {
        match &self.0 {
            Kind::Folder(_) => Ok(()),
            Kind::Etcd(etcd) => Ok(etcd.forget_before(revision)?),
        }
    }

    fn document(&self, name: &str) -> Result<Arc<dyn MetaStore>, SpaceError> {
        let mut folder = match &self.0 {
            Kind::Folder(folder) => folder.clone(),
            Kind::Etcd(etcd) => return Ok(Arc::new(etcd.document(name))),
        };
        // One that is away for a while, as a file system may be, is not made anew: only nodes that join make one.
        if name.contains('/') {
            let nodes = folder.join("nodes");
            fs::metadata(&nodes).map_err(at(&nodes))?;
        }
        for part in name.split('/') {
            make_folder(&folder).map_err(at(&folder))?;
            folder.push(part);
        }
        Ok(Arc::new(MetaShared::open(&folder)?))
    }

    /// The word with which nodes prove to each other that they are of the cluster. The first that asks makes it.
    ///
    /// # Errors
    /// See [`Self::is_there`].
    pub fn token(&self) -> Result<Vec<u8>, SpaceError> {
        match &self.0 {
            Kind::Folder(folder) => of_folder(folder),
            Kind::Etcd(etcd) => of_document(&etcd.document("token")),
        }
    }
}

/// The word in a document.
fn of_document(store: &dyn MetaStore) -> Result<Vec<u8>, SpaceError> {
    let found = match store.load()? {
        Some(found) => found.document,
        None => {
            let token: [u8; TOKEN_BYTES] = rand::random();
            match store.compare_and_swap(None, &token)? {
                Swapped::Lost(Some(found)) => found.document,
                Swapped::Done(_) | Swapped::Lost(None) => token.to_vec(),
            }
        }
    };
    sound(found, &store.place())
}

/// What was found, if it can be a word.
fn sound(token: Vec<u8>, found_at: &Path) -> Result<Vec<u8>, SpaceError> {
    match token.len() {
        TOKEN_BYTES => Ok(token),
        _ => {
            let odd = io::Error::new(io::ErrorKind::InvalidData, "it has another length");
            Err(at(found_at)(odd))
        }
    }
}

/// The word in a folder.
fn of_folder(folder: &Path) -> Result<Vec<u8>, SpaceError> {
    make_folder(folder).map_err(at(folder))?;
    let path = folder.join("token");
    match fs::read(&path) {
        Ok(token) => return sound(token, &path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(at(&path)(error)),
    }
    let token: [u8; TOKEN_BYTES] = rand::random();
    let made = folder.join(format!("token.{:016x}", rand::random::<u64>()));
    let write = || -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&made)?;
        file.write_all(&token)?;
        file.sync_all()?;
        // It is whole when it is there, and whoever is first makes it.
        match fs::hard_link(&made, &path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    };
    let written = write();
    // Nobody knows it by this name.
    let _ = fs::remove_file(&made);
    written.map_err(at(&path))?;
    fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(at(folder))?;
    fs::read(&path).map_err(at(&path))
}

pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> SpaceError {
    let path = path.to_owned();
    move |source| SpaceError::Io { path, source }
}
