//! From the text that names a place to the place.

use std::{path::Path, sync::Arc};

use super::BackupInfo;
use crate::files::{
    archive::{BackupError, BackupSink, BackupSource, FolderSink, FolderSource},
    disk::{Disk, SystemDisk},
};

/// Finds the places that statements and settings name.
pub trait Places: Send + Sync {
    /// Whether the text names a place of a kind that is known. Does not look for it.
    ///
    /// # Errors
    /// [`BackupError::NotAPlace`].
    fn check(&self, place: &str) -> Result<(), BackupError>;

    /// A place for one backup: empty now, complete or without a backup afterwards. Files that
    /// the earlier backup in `base` has are not copied from here again.
    ///
    /// # Errors
    /// [`BackupError::NotAPlace`], [`BackupError::NotEmpty`], [`BackupError::Io`], those of a
    /// base that is no backup.
    fn for_backup(
        &self,
        place: &str,
        base: Option<&str>,
    ) -> Result<Box<dyn BackupSink>, BackupError>;

    /// A place that collects files. Waits for nobody but the disk.
    ///
    /// # Errors
    /// [`BackupError::NotAPlace`], [`BackupError::Io`].
    fn for_archive(&self, place: &str) -> Result<Arc<dyn BackupSink>, BackupError>;

    /// The files at a place. Does not look for it.
    ///
    /// # Errors
    /// [`BackupError::NotAPlace`], [`BackupError::Io`].
    fn source(&self, place: &str) -> Result<Box<dyn BackupSource>, BackupError>;
}

impl FolderSink {
    /// A folder for one backup: missing or empty now, complete or missing afterwards.
    /// Meanwhile its name ends with `.partial`. Files that the backup in `base` has are
    /// linked, not copied, so `base` is on the same file system.
    ///
    /// # Errors
    /// [`BackupError::NotEmpty`], [`BackupError::Io`], those of a base that is no backup.
    pub fn for_backup(target: &Path, base: Option<&Path>) -> Result<FolderSink, BackupError> {
        FolderSink::for_backup_on(Arc::new(SystemDisk), target, base)
    }

    /// As [`FolderSink::for_backup`], on a disk.
    pub(crate) fn for_backup_on(
        disk: Arc<dyn Disk>,
        target: &Path,
        base: Option<&Path>,
    ) -> Result<FolderSink, BackupError> {
        let base = match base {
            Some(path) => {
                let source = FolderSource::on(Arc::clone(&disk), path);
                let info = BackupInfo::read(&source)?;
                Some((path.to_owned(), info.files))
            }
            None => None,
        };
        FolderSink::begin(disk, target, base)
    }
}

/// Folders of this machine, named by absolute paths: relative ones would depend on where
/// the process was started.
#[derive(Clone, Copy, Debug, Default)]
pub struct Folders;

impl Folders {
    fn path(place: &str) -> Result<&Path, BackupError> {
        let path = Path::new(place);
        if path.is_absolute() {
            Ok(path)
        } else {
            Err(BackupError::NotAPlace {
                place: place.to_owned(),
                why: "is not an absolute path".to_owned(),
            })
        }
    }
}

impl Places for Folders {
    fn check(&self, place: &str) -> Result<(), BackupError> {
        Folders::path(place).map(drop)
    }

    fn for_backup(
        &self,
        place: &str,
        base: Option<&str>,
    ) -> Result<Box<dyn BackupSink>, BackupError> {
        let (path, base) = (Folders::path(place)?, base.map(Folders::path).transpose()?);
        Ok(Box::new(FolderSink::for_backup(path, base)?))
    }

    fn for_archive(&self, place: &str) -> Result<Arc<dyn BackupSink>, BackupError> {
        let sink = FolderSink::for_archive(Folders::path(place)?)?;
        Ok(Arc::new(sink))
    }

    fn source(&self, place: &str) -> Result<Box<dyn BackupSource>, BackupError> {
        Ok(Box::new(FolderSource::new(Folders::path(place)?)))
    }
}
