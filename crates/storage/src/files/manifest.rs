//! The manifest of a checkpoint: the contents at a point of the commit order, and the files that
//! hold them.
//!
//! ```text
//!  file := "AEROCKP3", crc u32 of the rest, JSON length u32, JSON, the catalogue's bytes
//! ```
//!
//! There is one manifest, replaced as a whole: written to another name, synced, renamed. Version 2
//! has no [`EndedFile`]s, and is otherwise the same.

use std::{collections::HashSet, io, path::Path};

use aerostat_segment::ROWS_MAX;
use aerostat_types::{
    CommitTs, Epoch, Layout, SqlType, TableId, TableIndex, TableSchema, TenantId, TxnId,
};
use serde::{Deserialize, Serialize};

use crate::{
    RecoverError, Timeline,
    files::{
        codec::{BadBytes, Reader},
        disk::Disk,
        fault,
        log::record::USED_END,
    },
};

const MAGIC: &[u8; 8] = b"AEROCKP3";
const MAGIC_2: &[u8; 8] = b"AEROCKP2";
const REPLACEMENT: &str = "manifest.new";

/// Far more than an image takes, and little enough that those of any number of images are
/// counted without overflow.
const IMAGE_BYTES_END: u64 = 1 << 40;

/// The longest declared text, as PostgreSQL has it.
const TEXT_LENGTH_MAX: u32 = 10 << 20;

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
    /// No transaction with chunks in a log file before `log_from` has a greater id. Those to
    /// come have: archives keep such files, and a restored tenant must not take an old chunk
    /// for that of a new transaction. `None` in manifests of older versions.
    #[serde(default)]
    pub(crate) last_txn: Option<TxnId>,
    /// The first log file that recovery needs.
    pub(crate) log_from: u64,
    /// The epochs that had begun by then, and where, ascending. None in manifests of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) epochs: Vec<(Epoch, CommitTs)>,
    /// Where this history begins, of a tenant that was restored: epochs through this place are of the one that
    /// was backed up.
    #[serde(default, skip_serializing_if = "is_from_the_start")]
    pub(crate) begins: CommitTs,
    pub(crate) tables: Vec<TableImage>,
    /// Tables that are no more, but that the log may still name.
    pub(crate) dropped: Vec<TableId>,
    /// Whether there is a catalogue; its bytes follow the JSON.
    pub(crate) has_catalog: bool,
    #[serde(skip)]
    pub(crate) catalog: Vec<u8>,
}

/// Whether a history is nobody else's.
fn is_from_the_start(begins: &CommitTs) -> bool {
    *begins == CommitTs(0)
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
    /// Which rows of a frozen segment had ended, if they are others than the image says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<EndedFile>,
}

/// A list of rows that have ended in a frozen segment since its image was written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EndedFile {
    pub(crate) name: String,
    /// Of the whole file, as is the checksum.
    pub(crate) bytes: u64,
    pub(crate) crc32: u32,
}

/// A file that a manifest names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedFile<'a> {
    pub(crate) name: &'a str,
    pub(crate) bytes: u64,
    pub(crate) crc32: u32,
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

impl ImageFile {
    /// Whether its name leads to no other folder, and its numbers are such as images have.
    fn is_sound(&self) -> bool {
        let may_have_ended = self.form == ImageForm::Frozen || self.ended.is_none();
        let is_file = |file: NamedFile<'_>| is_file_name(file.name) && file.bytes < IMAGE_BYTES_END;
        may_have_ended && self.rows <= ROWS_MAX.into() && self.files().all(is_file)
    }

    /// The image, and the list of rows that have ended since.
    pub(crate) fn files(&self) -> impl Iterator<Item = NamedFile<'_>> {
        let image = NamedFile {
            name: &self.name,
            bytes: self.bytes,
            crc32: self.crc32,
        };
        let ended = self.ended.as_ref().map(|ended| NamedFile {
            name: &ended.name,
            bytes: ended.bytes,
            crc32: ended.crc32,
        });
        [image].into_iter().chain(ended)
    }
}

/// Whether a checkpoint's file of this name is an image or a list of ended rows.
pub(crate) fn is_of_image(name: &str) -> bool {
    name.ends_with(".img") || name.ends_with(".end")
}

/// Whether it is a name as checkpoints give, which leads to no other folder.
pub(crate) fn is_file_name(name: &str) -> bool {
    let stem = name.strip_suffix(".img").or(name.strip_suffix(".end"));
    let stem = stem.unwrap_or_default();
    let known = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    !stem.is_empty() && stem.bytes().all(known)
}

impl TableDescription {
    /// Whether the columns are such as tables can have: what is computed of types and names
    /// relies on it. Key, layout and indexes are examined where they are used.
    ///
    /// # Errors
    /// When they are not.
    pub(crate) fn check(&self) -> Result<(), BadBytes> {
        let mut names = HashSet::new();
        for column in &self.schema.columns {
            if !names.insert(&column.name) {
                return Err(BadBytes("two columns of one name"));
            }
            let possible = match column.ty {
                SqlType::Numeric { precision, scale } => {
                    (1..=38).contains(&precision) && (0..=precision as i8).contains(&scale)
                }
                SqlType::Char(length) | SqlType::Varchar(Some(length)) => {
                    (1..=TEXT_LENGTH_MAX).contains(&length)
                }
                _ => true,
            };
            if !possible {
                return Err(BadBytes("a column of an impossible type"));
            }
        }
        Ok(())
    }
}

impl Manifest {
    /// The name of the file.
    pub(crate) const NAME: &str = "manifest";

    /// All images.
    pub(crate) fn images(&self) -> impl Iterator<Item = &ImageFile> {
        self.tables.iter().flat_map(|table| &table.images)
    }

    /// The files of all images.
    pub(crate) fn files(&self) -> impl Iterator<Item = NamedFile<'_>> {
        self.images().flat_map(ImageFile::files)
    }

    /// The highest number of a table it tells of.
    pub(crate) fn last_table(&self) -> Option<TableId> {
        let living = self.tables.iter().map(|table| table.description.id);
        living.chain(self.dropped.iter().copied()).max()
    }

    /// The folder's manifest, if it has one.
    pub(crate) fn read(
        disk: &dyn Disk,
        folder: &Path,
        tenant: TenantId,
    ) -> Result<Option<Manifest>, RecoverError> {
        let path = folder.join(Self::NAME);
        let bytes = match disk.read(&path) {
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
        let magic = reader.take(MAGIC.len())?;
        if magic != MAGIC && magic != MAGIC_2 {
            return Err(BadBytes("no manifest begins like this"));
        }
        let crc = reader.u32()?;
        if crc32fast::hash(reader.0) != crc {
            return Err(BadBytes("the checksum does not match"));
        }
        let length = reader.u32()? as usize;
        let mut manifest: Manifest = serde_json::from_slice(reader.take(length)?)
            .map_err(|_| BadBytes("a manifest that this version does not know"))?;
        manifest.check()?;
        manifest.catalog = reader.0.to_vec();
        Ok(manifest)
    }

    /// Whether it is one that checkpoints write, as far as others rely on it.
    fn check(&self) -> Result<(), BadBytes> {
        let last_txn = self.last_txn.map_or(0, |last| last.0);
        if [self.at.0, self.log_from, last_txn, self.begins.0]
            .iter()
            .any(|number| *number >= USED_END)
        {
            return Err(BadBytes("numbers beyond all commits and files"));
        }
        let ascends = |two: &[(Epoch, CommitTs)]| two[0].0 < two[1].0 && two[0].1 < two[1].1;
        if !self.epochs.windows(2).all(ascends) || self.epochs.iter().any(|start| start.1 > self.at)
        {
            return Err(BadBytes("epochs that no log has"));
        }
        let mut ids = HashSet::new();
        for table in &self.tables {
            table.description.check()?;
            if !ids.insert(table.description.id) {
                return Err(BadBytes("a table that is there twice"));
            }
        }
        if !self.images().all(ImageFile::is_sound) {
            return Err(BadBytes("an image that no checkpoint makes"));
        }
        Ok(())
    }

    /// The bytes of a file of this JSON and this catalogue.
    pub(crate) fn to_bytes(json: &[u8], catalog: &[u8]) -> io::Result<Vec<u8>> {
        let length = u32::try_from(json.len()).map_err(io::Error::other)?;
        let mut bytes = Vec::with_capacity(MAGIC.len() + 8 + json.len() + catalog.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(json);
        bytes.extend_from_slice(catalog);
        let crc = crc32fast::hash(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        Ok(bytes)
    }

    /// Replaces the folder's manifest. When this returns, the new one survives a crash.
    pub(crate) fn write(&self, disk: &dyn Disk, folder: &Path) -> io::Result<()> {
        let bytes = Manifest::to_bytes(&serde_json::to_vec(self)?, &self.catalog)?;
        debug_assert!(
            Manifest::parse(&bytes).is_ok_and(|read| read.at == self.at
                && read.images().count() == self.images().count()
                && read.catalog == self.catalog),
            "a manifest is read as it was written"
        );
        if fault::is_planted("checkpoint.torn_manifest") {
            disk.create_file(&folder.join(Self::NAME), &bytes)?
                .sync_all()?;
            return disk.sync_folder(folder);
        }
        let path = folder.join(REPLACEMENT);
        let file = disk.create_file(&path, &bytes)?;
        fault::pass("checkpoint.manifest");
        file.sync_all()?;
        fault::pass("checkpoint.before_rename");
        disk.rename(&path, &folder.join(Self::NAME))?;
        fault::pass("checkpoint.after_rename");
        disk.sync_folder(folder)
    }
}
