//! Turning a damaged tenant's folder into one that can be opened, at a known loss.
//!
//! ```text
//!  tenant's folder ──copy──► beside it ──open──► damage in a file
//!                               ▲                   │ cut the log there, or leave the image out
//!                               └───────────────────┘ until it opens
//!  exchange both: the damaged folder is whole where the copy was
//! ```
//!
//! The repair works on a copy, whose images are links, since nobody writes to an image. So the
//! damaged files stay as they are, and an abandoned repair has changed nothing.
//!
//! * The log is cut at the damage. Everything behind it may depend on what is damaged, so no
//!   later commit can be kept, in whatever files.
//! * A damaged image is left out: the rows of its segment are lost, except for those that are
//!   also in the log. Redo of rows that do not exist any more is skipped
//!   ([`crate::OpenOptions::lenient`]).
//! * Without a manifest everything is lost except the log's contents, if the log reaches back to
//!   the beginning.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use aerostat_types::{TableId, TenantId};

use crate::{
    RecoverError,
    files::{
        archive::copy,
        disk::{Disk, Opened, Stream, SystemDisk, parent},
        log::{
            file_name,
            read::{self, number_of},
            record::{self, Kind},
        },
        manifest::Manifest,
    },
};

/// What a repair gives up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The end of the log.
    Log {
        /// The file that is cut.
        file: String,
        /// Where.
        offset: u64,
        /// Bytes behind that, in this file and those after it.
        bytes: u64,
        /// Files after it.
        files_after: u64,
        /// Commits in them that can be read still: at least so many are lost.
        commits: u64,
    },
    /// Rows of a table as the last checkpoint had them.
    Image {
        /// The file that is left out.
        file: String,
        /// The table.
        table: TableId,
        /// Its name when it was made.
        name: String,
        /// How many.
        rows: u64,
    },
    /// The last checkpoint.
    Checkpoint,
    /// All there was: the folder with the log is missing.
    Everything,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Log {
                file,
                offset,
                bytes,
                files_after,
                commits,
            } => write!(
                f,
                "the log from byte {offset} of {file} on: {bytes} bytes and {files_after} later files, \
                 with at least {commits} commits"
            ),
            Loss::Image {
                file,
                table,
                name,
                rows,
            } => write!(
                f,
                "{rows} rows of table \"{name}\" ({table}) in {file}, but for those changed since the last checkpoint"
            ),
            Loss::Checkpoint => f.write_str("the last checkpoint, but for what the log has"),
            Loss::Everything => f.write_str("everything, for its log is missing"),
        }
    }
}

/// Copies a tenant's folder, its images by linking them. A copy that is there is replaced.
///
/// # Errors
/// A file cannot be read, or the copy not be written.
pub fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    let disk: &dyn Disk = &SystemDisk;
    disk.remove_folder_if_there(to)?;
    for part in ["log", "checkpoint"] {
        disk.make_folder(&to.join(part))?;
        let entries = match disk.list(&from.join(part)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for (path, _) in entries {
            let target = to.join(part).join(path.file_name().unwrap_or_default());
            if path.extension().is_some_and(|extension| extension == "img") {
                disk.link(&path, &target)?;
            } else {
                let mut content = Stream::of(disk.open(&path, Opened::Read)?);
                let mut copied = Stream::of(disk.open(&target, Opened::New)?);
                copy(&mut content, &mut copied)?;
            }
        }
    }
    Ok(())
}

/// Takes what a tenant could not be opened for out of a folder, which is a copy, and says what
/// is lost with it. `None` if that is not known to help.
///
/// # Errors
/// The folder cannot be read or written, or no repair is possible.
pub fn cut_damage(
    folder: &Path,
    tenant: TenantId,
    error: &RecoverError,
) -> Result<Option<Loss>, RecoverError> {
    let (path, offset) = match error {
        RecoverError::Damaged { path, offset, .. } => (path, *offset),
        // An image that the manifest names, and that is not there or cannot be read.
        RecoverError::Io { path, .. } => (path, 0),
        _ => return Ok(None),
    };
    let (log, checkpoint) = (folder.join("log"), folder.join("checkpoint"));
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.unwrap_or_default();
    if *path == log {
        return cut_at_gap(&log, tenant, &checkpoint);
    }
    if path.starts_with(&log)
        && let Some(number) = number_of(name)
    {
        return cut_log(&log, number, offset).map(Some);
    }
    if !path.starts_with(&checkpoint) {
        return Ok(None);
    }
    match name {
        Manifest::NAME => drop_manifest(&log, path),
        _ => leave_out(&checkpoint, tenant, name),
    }
}

/// The first file that is missing ends the log.
fn cut_at_gap(
    log: &Path,
    tenant: TenantId,
    checkpoint: &Path,
) -> Result<Option<Loss>, RecoverError> {
    let manifest = Manifest::read(&SystemDisk, checkpoint, tenant)?;
    let from = manifest.map_or(1, |manifest| manifest.log_from);
    let files = read::files(&SystemDisk, log).map_err(RecoverError::io(log))?;
    let there = |number: &u64| files.iter().any(|(found, _)| found == number);
    let missing = (from..).find(|number| !there(number)).unwrap_or(from);
    cut_log(log, missing, 0).map(Some)
}

/// Cuts a file, or begins it empty, and removes those after it.
fn cut_log(log: &Path, number: u64, offset: u64) -> Result<Loss, RecoverError> {
    let path = log.join(file_name(number));
    let (mut bytes, mut files_after, mut commits) = (0, 0, 0);
    for (found, path) in read::files(&SystemDisk, log).map_err(RecoverError::io(log))? {
        if found < number {
            continue;
        }
        let content = SystemDisk.read(&path).map_err(RecoverError::io(&path))?;
        let from = if found == number { offset as usize } else { 0 };
        let behind = content.get(from..).unwrap_or_default();
        bytes += behind.len() as u64;
        commits += commits_in(behind);
        if found > number {
            files_after += 1;
            SystemDisk
                .remove_file(&path)
                .map_err(RecoverError::io(&path))?;
        }
    }
    let file = SystemDisk.open(&path, Opened::WriteOrNew);
    let cut = file.and_then(|file| {
        file.set_len(offset)?;
        file.sync_all()
    });
    cut.map_err(RecoverError::io(&path))?;
    Ok(Loss::Log {
        file: file_name(number),
        offset,
        bytes,
        files_after,
        commits,
    })
}

/// How many commits can be read, wherever they begin.
fn commits_in(bytes: &[u8]) -> u64 {
    let (mut at, mut commits) = (0, 0);
    while at < bytes.len() {
        match record::parse(&bytes[at..]) {
            Some((record, length)) => {
                let kind = record.head.kind;
                commits += u64::from(kind.has_place() && kind != Kind::Nothing);
                at += length;
            }
            None => at += 1,
        }
    }
    commits
}

/// Removes a manifest that cannot be read, if the log tells all without it.
fn drop_manifest(log: &Path, path: &Path) -> Result<Option<Loss>, RecoverError> {
    if SystemDisk.look(&log.join(file_name(1))).is_err() {
        return Ok(None);
    }
    SystemDisk
        .remove_file(path)
        .map_err(RecoverError::io(path))?;
    Ok(Some(Loss::Checkpoint))
}

/// Writes a manifest that does not name the image.
fn leave_out(
    checkpoint: &Path,
    tenant: TenantId,
    name: &str,
) -> Result<Option<Loss>, RecoverError> {
    let Some(mut manifest) = Manifest::read(&SystemDisk, checkpoint, tenant)? else {
        return Ok(None);
    };
    let mut loss = None;
    for table in &mut manifest.tables {
        let Some(at) = table
            .images
            .iter()
            .position(|image| image.files().any(|file| file.name == name))
        else {
            continue;
        };
        let image = table.images.remove(at);
        // Those in front of a base that is gone stand for themselves.
        if let Some(next) = table.images.get_mut(at) {
            next.in_front &= image.in_front;
        }
        loss = Some(Loss::Image {
            file: image.name,
            table: table.description.id,
            name: table.description.schema.name.clone(),
            rows: image.rows,
        });
    }
    if loss.is_some() {
        let path = checkpoint.join(Manifest::NAME);
        manifest
            .write(&SystemDisk, checkpoint)
            .map_err(RecoverError::io(&path))?;
    }
    Ok(loss)
}

/// Exchanges two folders in one step, for good.
///
/// # Errors
/// One is not there, or the file system cannot do it.
pub fn exchange_folders(a: &Path, b: &Path) -> io::Result<()> {
    SystemDisk.exchange(a, b)?;
    for path in [a, b] {
        SystemDisk.sync_folder(parent(path))?;
    }
    Ok(())
}

/// Whether a tenant's folder has nothing that anybody was told to be there: no checkpoint,
/// and no record in any file of its log.
///
/// # Errors
/// It cannot be read.
pub fn is_vacant(folder: &Path) -> io::Result<bool> {
    if SystemDisk
        .look(&folder.join("checkpoint").join(Manifest::NAME))
        .is_ok()
    {
        return Ok(false);
    }
    let files = match read::files(&SystemDisk, &folder.join("log")) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    for (_, path) in files {
        if SystemDisk.look(&path)?.bytes > record::FILE_HEAD_BYTES as u64 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Where a repaired tenant's damaged folder may go: a name that nothing has yet.
pub fn unused_name(folder: &Path, stem: &str) -> PathBuf {
    let numbered = |number: u32| match number {
        0 => folder.join(stem),
        number => folder.join(format!("{stem}-{number}")),
    };
    let mut names = (0..).map(numbered);
    let unused = names.find(|path| SystemDisk.look(path).is_err());
    unused.expect("there are more numbers than files")
}
