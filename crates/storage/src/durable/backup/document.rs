//! `backup.json`: describes a backup and its files.
//!
//! ```text
//!  line 1   { "format": 1, "database": …, "at": …, "files": [ … ] }
//!  line 2   { "crc32": of line 1 without its end }
//! ```

use std::{io, time::SystemTime};

use aerostat_types::{CommitTs, TenantId};
use serde::{Deserialize, Serialize};

use super::{CHECKPOINT, time_of};
use crate::{
    Timeline,
    files::{
        archive::{BackupError, BackupFile, BackupSource, DOCUMENT, Hashing, named, read_whole},
        manifest::Manifest,
    },
};

/// Raised whenever older backups could be misread.
const FORMAT: u32 = 2;

/// What a backup is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupInfo {
    format: u32,
    /// The name the database had.
    pub database: String,
    /// Its id.
    pub tenant: TenantId,
    /// Its history.
    pub timeline: Timeline,
    /// It holds what a snapshot at this point sees.
    pub at: CommitTs,
    taken_micros: u64,
    /// The number of the first log file that leads to later points.
    pub log_from: u64,
    /// Rows of all tables.
    pub rows: u64,
    /// Bytes of all files but this one.
    pub bytes: u64,
    /// All files but this one.
    pub files: Vec<BackupFile>,
}

#[derive(Serialize, Deserialize)]
struct Seal {
    crc32: u32,
}

/// The part that every format has.
#[derive(Deserialize)]
struct AnyFormat {
    format: u32,
}

impl BackupInfo {
    pub(super) fn of(database: &str, manifest: &Manifest, files: Vec<BackupFile>) -> BackupInfo {
        BackupInfo {
            format: FORMAT,
            database: database.to_owned(),
            tenant: manifest.tenant,
            timeline: manifest.timeline,
            at: manifest.at,
            taken_micros: manifest.taken_micros,
            log_from: manifest.log_from,
            rows: manifest.images().map(|image| image.rows).sum(),
            bytes: files.iter().map(|file| file.bytes).sum(),
            files,
        }
    }

    /// When it was made: nothing in it was committed later.
    pub fn taken(&self) -> SystemTime {
        time_of(self.taken_micros)
    }

    pub(super) fn taken_micros(&self) -> u64 {
        self.taken_micros
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let to_vec = |value: Result<Vec<u8>, serde_json::Error>| {
            value.expect("numbers, texts and lists have a form in JSON")
        };
        let mut bytes = to_vec(serde_json::to_vec(self));
        let crc32 = crc32fast::hash(&bytes);
        bytes.push(b'\n');
        bytes.extend(to_vec(serde_json::to_vec(&Seal { crc32 })));
        bytes.push(b'\n');
        bytes
    }

    /// The description of a backup, without a look at its other files.
    ///
    /// # Errors
    /// [`BackupError::NotABackup`], [`BackupError::Format`], [`BackupError::Damaged`],
    /// [`BackupError::Io`].
    pub fn read(source: &dyn BackupSource) -> Result<BackupInfo, BackupError> {
        let bytes = match read_whole(source, DOCUMENT) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(BackupError::NotABackup);
            }
            Err(error) => return Err(named(DOCUMENT)(error)),
        };
        BackupInfo::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Result<BackupInfo, BackupError> {
        let damaged = |what| BackupError::damaged(DOCUMENT, what);
        let mut lines = bytes.splitn(2, |&byte| byte == b'\n');
        let (document, seal) = (
            lines.next().unwrap_or_default(),
            lines.next().unwrap_or_default(),
        );
        let seal: Seal =
            serde_json::from_slice(seal).map_err(|_| damaged("its checksum is missing"))?;
        if seal.crc32 != crc32fast::hash(document) || !bytes.ends_with(b"\n") {
            return Err(damaged("the checksum does not match"));
        }
        let unknown = |_| damaged("no description of a backup");
        let AnyFormat { format } = serde_json::from_slice(document).map_err(unknown)?;
        if format > FORMAT {
            return Err(BackupError::Format {
                found: format,
                known: FORMAT,
            });
        }
        serde_json::from_slice(document).map_err(unknown)
    }

    /// The manifest, which says the same as the description.
    pub(super) fn manifest(&self, source: &dyn BackupSource) -> Result<Manifest, BackupError> {
        let name = format!("{CHECKPOINT}/{}", Manifest::NAME);
        let file = self.files.iter().find(|file| file.name == name);
        let file = file.ok_or(BackupError::damaged(&name, "it is not described"))?;
        let bytes = read_whole(source, &name).map_err(named(&*name))?;
        let mut content = Hashing::new(&*bytes);
        io::copy(&mut content, &mut io::sink()).map_err(named(&*name))?;
        content.check(file)?;
        let manifest =
            Manifest::parse(&bytes).map_err(|what| BackupError::damaged(&name, what.0))?;
        let files: Vec<BackupFile> = manifest
            .files()
            .map(|file| BackupFile {
                name: format!("{CHECKPOINT}/{}", file.name),
                bytes: file.bytes,
                crc32: file.crc32,
            })
            .chain([file.clone()])
            .collect();
        let described = BackupInfo {
            format: self.format,
            ..BackupInfo::of(&self.database, &manifest, files)
        };
        if described != *self {
            return Err(BackupError::damaged(DOCUMENT, "not what the manifest says"));
        }
        Ok(manifest)
    }
}
