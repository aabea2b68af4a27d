//! What the nodes of a cluster share: documents in a folder, and a word that only they know.

use std::{
    fs, io,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use aerostat_storage::{MetaError, MetaShared, MetaStore, make_folder};
use aerostat_types::TenantId;
use thiserror::Error;

/// What names a folder of this machine, or one that all nodes have mounted.
const SCHEME: &str = "file://";

/// Bytes of the word.
const TOKEN_BYTES: usize = 32;

/// Why a space cannot be used.
#[derive(Debug, Error)]
pub enum SpaceError {
    /// No space is named like this.
    #[error("\"{0}\" names no cluster; give a folder that all nodes share, as file:///path")]
    Name(String),
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
pub struct Space {
    folder: PathBuf,
}

impl FromStr for Space {
    type Err = SpaceError;

    fn from_str(text: &str) -> Result<Space, SpaceError> {
        let path = match text.split_once("://") {
            None => text,
            Some(_) => text.strip_prefix(SCHEME).unwrap_or_default(),
        };
        match path.is_empty() {
            true => Err(SpaceError::Name(text.to_owned())),
            false => Ok(Space {
                folder: PathBuf::from(path),
            }),
        }
    }
}

impl Space {
    /// The one in a folder.
    pub fn of(folder: &Path) -> Space {
        Space {
            folder: folder.to_owned(),
        }
    }

    /// Whether there is a cluster in it.
    pub fn is_there(&self) -> bool {
        self.folder.join("nodes").is_dir()
    }

    /// The record of roles and databases.
    ///
    /// # Errors
    /// [`SpaceError`], as all here.
    pub fn record(&self) -> Result<Arc<dyn MetaStore>, SpaceError> {
        self.document("catalog")
    }

    /// Who the nodes are.
    ///
    /// # Errors
    /// See [`Self::record`].
    pub fn nodes(&self) -> Result<Arc<dyn MetaStore>, SpaceError> {
        self.document("nodes")
    }

    /// Who leads a database, and who must have its commits.
    ///
    /// # Errors
    /// See [`Self::record`].
    pub fn configurations(&self, database: TenantId) -> Result<Arc<dyn MetaStore>, SpaceError> {
        self.document(&format!("databases/{database}"))
    }

    fn document(&self, name: &str) -> Result<Arc<dyn MetaStore>, SpaceError> {
        let mut folder = self.folder.clone();
        for part in name.split('/') {
            make_folder(&folder).map_err(at(&folder))?;
            folder.push(part);
        }
        Ok(Arc::new(MetaShared::open(&folder)?))
    }

    /// The word with which nodes prove to each other that they are of the cluster. The first that asks makes it.
    ///
    /// # Errors
    /// See [`Self::record`].
    pub fn token(&self) -> Result<Vec<u8>, SpaceError> {
        make_folder(&self.folder).map_err(at(&self.folder))?;
        let path = self.folder.join("token");
        match fs::read(&path) {
            Ok(token) if token.len() == TOKEN_BYTES => return Ok(token),
            Ok(_) => {
                let odd = io::Error::new(io::ErrorKind::InvalidData, "it has another length");
                return Err(at(&path)(odd));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(at(&path)(error)),
        }
        let token: [u8; TOKEN_BYTES] = rand::random();
        let made = self
            .folder
            .join(format!("token.{:016x}", rand::random::<u64>()));
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
        fs::File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(at(&self.folder))?;
        fs::read(&path).map_err(at(&path))
    }
}

pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> SpaceError {
    let path = path.to_owned();
    move |source| SpaceError::Io { path, source }
}
