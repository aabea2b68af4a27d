//! The manifest of a checkpoint: what there was at a point of the commit order, and in
//! which files.
//!
//! ```text
//!  file := "AEROCKP2", crc u32 of the rest, JSON length u32, JSON, the catalogue's bytes
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
    RecoverError, Timeline, fault,
    log::codec::{BadBytes, Reader},
};

const MAGIC: &[u8; 8] = b"AEROCKP2";
const REPLACEMENT: &str = "manifest.new";

/// A checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) tenant: TenantId,
    pub(crate) timeline: Timeline,
    /// The images hold what a snapshot at this point sees.
    pub(crate) at: CommitTs,
    /// Microseconds since 1970 when that snapshot was there: no earlier than those of any
    /// record through `at`.
    pub(crate) taken_micros: u64,
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
    /// One for each segment, in key order; see `load` for what stands in front of what.
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
    /// Rows that the snapshot sees.
    pub(crate) rows: u64,
    /// Of the whole file, as is the checksum.
    pub(crate) bytes: u64,
    pub(crate) crc32: u32,
    pub(crate) form: ImageForm,
    /// Its keys lie among those of the images before it, as far back as one for which this
    /// is not so: its base.
    pub(crate) in_front: bool,
}

/// What an image holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ImageForm {
    /// Rows.
    Rows,
    /// A frozen segment.
    Frozen,
}

impl Manifest {
    /// The name of the file.
    pub(crate) const NAME: &str = "manifest";

    /// All images.
    pub(crate) fn images(&self) -> impl Iterator<Item = &ImageFile> {
        self.tables.iter().flat_map(|table| &table.images)
    }

    /// The folder's manifest, if it has one.
    pub(crate) fn read(folder: &Path, tenant: TenantId) -> Result<Option<Manifest>, RecoverError> {
        let path = folder.join(Self::NAME);
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

    /// Takes the bytes of the file apart.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Manifest, BadBytes> {
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
        fs::rename(&path, folder.join(Self::NAME))?;
        fault::pass("checkpoint.after_rename");
        File::open(folder)?.sync_all()
    }
}
