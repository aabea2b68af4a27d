//! The manifest of a checkpoint: what there was at a point of the commit order, and in
//! which files.
//!
//! ```text
//!  file := "AEROCKP1", crc u32 of the rest, JSON length u32, JSON, the catalogue's bytes
//! ```
//!
//! There is one manifest, replaced as a whole: written beside, synced, renamed.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use aerostat_types::{CommitTs, Layout, TableId, TableIndex, TableSchema, TenantId};
use serde::{Deserialize, Serialize};

use crate::{
    RecoverError, fault,
    log::codec::{BadBytes, Reader},
};

const MAGIC: &[u8; 8] = b"AEROCKP1";
const NAME: &str = "manifest";
const REPLACEMENT: &str = "manifest.new";

/// A checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) tenant: TenantId,
    /// The images hold what a snapshot at this point sees.
    pub(crate) at: CommitTs,
    /// The first log file that recovery needs.
    pub(crate) log_from: u64,
    pub(crate) tables: Vec<TableImage>,
    /// Tables that are no more, but that the log may still name.
    pub(crate) dropped: Vec<TableId>,
    /// Whether there is a catalogue; its bytes follow the JSON.
    pub(crate) has_catalog: bool,
    #[serde(skip)]
    pub(crate) catalog: Vec<u8>,
}

/// A table in a checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TableImage {
    #[serde(flatten)]
    pub(crate) description: TableDescription,
    /// One for each segment, in key order.
    pub(crate) images: Vec<ImageFile>,
}

/// What a table is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TableDescription {
    pub(crate) id: TableId,
    pub(crate) schema: TableSchema,
    pub(crate) layout: Layout,
    /// The secondary indexes that are built.
    #[serde(default)]
    pub(crate) indexes: Vec<TableIndex>,
}

/// A segment's image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ImageFile {
    pub(crate) name: String,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

impl Manifest {
    /// The names of all image files.
    pub(crate) fn image_names(&self) -> impl Iterator<Item = &str> {
        let images = self.tables.iter().flat_map(|table| &table.images);
        images.map(|image| image.name.as_str())
    }

    /// The folder's manifest, if it has one.
    pub(crate) fn read(folder: &Path, tenant: TenantId) -> Result<Option<Manifest>, RecoverError> {
        let path = folder.join(NAME);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(RecoverError::io(&path)(error)),
        };
        let manifest =
            Manifest::parse(&bytes).map_err(|what| RecoverError::damaged(&path, 0, what))?;
        if manifest.tenant != tenant {
            let what = BadBytes("the checkpoint is another tenant's");
            return Err(RecoverError::damaged(&path, 0, what));
        }
        Ok(Some(manifest))
    }

    fn parse(bytes: &[u8]) -> Result<Manifest, BadBytes> {
        let mut reader = Reader(bytes);
        if reader.take(MAGIC.len())? != MAGIC {
            return Err(BadBytes("no manifest begins like this"));
        }
        let crc = reader.u32()?;
        if crc32fast::hash(reader.0) != crc {
            return Err(BadBytes("the checksum does not match"));
        }
        let length = reader.u32()? as usize;
        let mut manifest: Manifest = serde_json::from_slice(reader.take(length)?)
            .map_err(|_| BadBytes("a manifest that this version does not know"))?;
        manifest.catalog = reader.0.to_vec();
        Ok(manifest)
    }

    /// Replaces the folder's manifest. When this returns, the new one survives a crash.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let json = serde_json::to_vec(self)?;
        let mut rest = Vec::with_capacity(json.len() + self.catalog.len() + 4);
        let length = u32::try_from(json.len()).map_err(io::Error::other)?;
        rest.extend_from_slice(&length.to_le_bytes());
        rest.extend_from_slice(&json);
        rest.extend_from_slice(&self.catalog);
        let path = folder.join(REPLACEMENT);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)?;
        file.write_all(MAGIC)?;
        file.write_all(&crc32fast::hash(&rest).to_le_bytes())?;
        file.write_all(&rest)?;
        fault::pass("checkpoint.manifest");
        file.sync_all()?;
        fault::pass("checkpoint.before_rename");
        fs::rename(&path, folder.join(NAME))?;
        fault::pass("checkpoint.after_rename");
        File::open(folder)?.sync_all()
    }
}
