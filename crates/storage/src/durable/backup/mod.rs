//! Backups of a tenant, and tenants restored from them.
//!
//! ```text
//!  backup    checkpoint at S ──► checkpoint/manifest, checkpoint/*.{img,end}, then backup.json
//!  archive   log files that are complete ──► <timeline>/<number>.log
//!  restore   backup at S (+ log files from there on, up to a point) ──► a tenant's folder
//! ```
//!
//! * A backup is what one snapshot sees, so it needs no log. Writers go on meanwhile; the next
//!   checkpoint waits. `backup.json` ([`BackupInfo`]) lists every file with size and checksum,
//!   and is written last: without it there is no backup.
//! * The log files that a backup's manifest names and all later ones lead from it to any later
//!   commit. Those of a running tenant are in its folder until a checkpoint removes them; with an
//!   archive ([`TenantStore::archive_log_to`]) they are copied first.
//! * A restored tenant is a new one: it has an id and a [`Timeline`](crate::Timeline) of its own,
//!   which are in the headers of its log and in its manifest. LSNs continue from the point to
//!   which it was restored. Restoring copies files and applies nothing: opening the folder does.
//! * The location of the files is behind [`BackupSink`] and [`BackupSource`], and [`Places`]
//!   finds them by name. Folders are here; object stores are the crate `objects`.

mod document;
mod places;
mod restore;

use std::{
    io,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    StorageError, TenantStore,
    files::{
        archive::{DOCUMENT, Hashing, copy, named, put_file},
        fault,
        manifest::Manifest,
    },
};

pub use crate::files::archive::{
    BackupError, BackupFile, BackupSink, BackupSource, FolderSink, FolderSource,
};
pub use document::BackupInfo;
pub use places::{Folders, Places};
#[cfg(test)]
pub(crate) use restore::restore_on;
pub use restore::{Restore, Restored, Until, restore};

/// The part of a backup that its checkpoint is.
const CHECKPOINT: &str = "checkpoint";

/// A moment of the log's clock.
fn time_of(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}

impl TenantStore {
    /// Backs the tenant up as it is at one point of its commit order, while others write.
    /// Checkpoints wait meanwhile. `database` is the name that the backup says. Images that
    /// the sink has already from an earlier backup are not written again.
    ///
    /// # Errors
    /// [`BackupError`]; the sink is not finished then.
    pub fn backup(&self, database: &str, sink: &dyn BackupSink) -> Result<BackupInfo, BackupError> {
        let durable = self.durable.as_ref().ok_or(BackupError::NotDurable)?;
        self.checkpoint()?;
        // Held so that no file goes while it is copied.
        let _last = durable.checkpoint.lock();
        let folder = durable.folder.join("checkpoint");
        let disk = &*durable.machine.disk;
        let manifest = Manifest::read(disk, &folder, self.id())
            .map_err(BackupError::Log)?
            .ok_or(BackupError::NotABackup)?;
        let mut files = Vec::new();
        for named_file in manifest.files() {
            let file = BackupFile {
                name: format!("{CHECKPOINT}/{}", named_file.name),
                bytes: named_file.bytes,
                crc32: named_file.crc32,
            };
            if !sink.has(&file).map_err(named(&*file.name))? {
                let put = put_file(disk, sink, &file.name, &folder.join(named_file.name))?;
                if put != file {
                    return Err(BackupError::damaged(&file.name, "not what was written"));
                }
            }
            fault::pass("backup.file");
            files.push(file);
        }
        let name = format!("{CHECKPOINT}/{}", Manifest::NAME);
        files.push(put_file(disk, sink, &name, &folder.join(Manifest::NAME))?);
        let info = BackupInfo::of(database, &manifest, files);
        let document = info.to_bytes();
        fault::pass("backup.before_document");
        sink.put(DOCUMENT, &mut &*document, document.len() as u64)
            .and_then(|()| sink.finish())
            .map_err(named(DOCUMENT))?;
        Ok(info)
    }

    /// Copies log files to an archive from now on, each when it is complete and before a
    /// checkpoint removes it, so that backups can be restored to any later point; `None`
    /// ends that. If the archive cannot take a file, checkpoints fail and the log stays.
    pub fn archive_log_to(&self, sink: Option<Arc<dyn BackupSink>>) {
        if let Some(durable) = &self.durable {
            durable.log.archive_to(sink);
        }
    }

    /// Completes the current log file and archives it: what was committed by now is in the
    /// archive when this returns. Without an archive it is only completed.
    ///
    /// # Errors
    /// [`BackupError::Storage`] if the log has failed, [`BackupError::Io`].
    pub fn archive_log(&self) -> Result<(), BackupError> {
        let Some(durable) = &self.durable else {
            return Ok(());
        };
        // No file goes meanwhile.
        let _last = durable.checkpoint.lock();
        let cut = durable.log.rotate().map_err(StorageError::from)?;
        durable.log.archive_before(cut.next)
    }
}

/// Reads a whole backup and says what it is of.
///
/// # Errors
/// [`BackupError::NotABackup`], [`BackupError::Format`], [`BackupError::Io`], and
/// [`BackupError::Damaged`] with the first file that is.
pub fn verify(source: &dyn BackupSource) -> Result<BackupInfo, BackupError> {
    let info = BackupInfo::read(source)?;
    for file in &info.files {
        let mut content = Hashing::new(source.open(&file.name).map_err(named(&*file.name))?);
        copy(&mut content, &mut io::sink()).map_err(named(&*file.name))?;
        content.check(file)?;
    }
    info.manifest(source)?;
    Ok(info)
}
