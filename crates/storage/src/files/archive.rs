//! The places that take and give the files of backups and archives.
//!
//! A checkpoint hands complete log files to such a place, and a backup its images: both know
//! [`BackupSink`] and not each other. `backup` knows what makes files a backup.

use std::{
    io::{self, Read, Write},
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use aerostat_types::CommitTs;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    RecoverError, StorageError,
    files::{
        disk::{Disk, Opened, Stream, SystemDisk, parent},
        fault,
    },
};

/// The file that makes a backup of the others.
pub(crate) const DOCUMENT: &str = "backup.json";

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupFile {
    /// Its name, with a slash between parts.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The checksum of all of it.
    pub crc32: u32,
}

/// A place that takes files. Their names have a slash between parts, as in `a/b`.
pub trait BackupSink: Send + Sync {
    /// Takes a file of `bytes` bytes. When this returns it is there as a whole and for
    /// good; until then there is nothing of this name, or what was there before.
    ///
    /// # Errors
    /// As the place has them. The file is not there then.
    fn put(&self, name: &str, content: &mut dyn Read, bytes: u64) -> io::Result<()>;

    /// Whether the place has this very file already, from an earlier backup.
    ///
    /// # Errors
    /// As the place has them.
    fn has(&self, file: &BackupFile) -> io::Result<bool> {
        let _ = file;
        Ok(false)
    }

    /// Nothing more comes. What the files are part of is complete when this returns.
    ///
    /// # Errors
    /// As the place has them.
    fn finish(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A place that gives files, by the names under which a [`BackupSink`] took them.
pub trait BackupSource: Send + Sync {
    /// The names of all files.
    ///
    /// # Errors
    /// As the place has them.
    fn names(&self) -> io::Result<Vec<String>>;

    /// A file's content from its beginning.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none, others as the place has them.
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + '_>>;
}

/// Appended to the name of what is not complete.
const PARTIAL: &str = ".partial";

/// A folder that takes files.
#[derive(Debug)]
pub struct FolderSink {
    disk: Arc<dyn Disk>,
    /// Where files go.
    root: PathBuf,
    /// What the root is to be called in the end.
    target: Option<PathBuf>,
    /// An earlier backup with the files it has.
    base: Option<(PathBuf, Vec<BackupFile>)>,
}

impl FolderSink {
    /// A folder for one backup, as [`FolderSink::for_backup`] says. `base` is an earlier
    /// backup with its files.
    pub(crate) fn begin(
        disk: Arc<dyn Disk>,
        target: &Path,
        base: Option<(PathBuf, Vec<BackupFile>)>,
    ) -> Result<FolderSink, BackupError> {
        Ok(FolderSink {
            root: begin_folder(&*disk, target)?,
            disk,
            target: Some(target.to_owned()),
            base,
        })
    }

    /// A folder that collects files, made if it is missing: an archive.
    ///
    /// # Errors
    /// [`BackupError::Io`].
    pub fn for_archive(root: &Path) -> Result<FolderSink, BackupError> {
        FolderSink::for_archive_on(Arc::new(SystemDisk), root)
    }

    /// As [`FolderSink::for_archive`], on a disk.
    pub(crate) fn for_archive_on(
        disk: Arc<dyn Disk>,
        root: &Path,
    ) -> Result<FolderSink, BackupError> {
        disk.make_folder_for_good(root)
            .map_err(BackupError::io(root))?;
        Ok(FolderSink {
            disk,
            root: root.to_owned(),
            target: None,
            base: None,
        })
    }

    /// The path of a file whose folder is there.
    fn place(&self, name: &str) -> io::Result<PathBuf> {
        let path = within(&self.root, name)?;
        let folder = path.parent().unwrap_or(&self.root);
        if folder != self.root {
            self.disk.make_folder(folder)?;
            // Also one that was made before: nobody knows whether its name became durable.
            for named in folder.ancestors().take_while(|named| *named != self.root) {
                self.disk.sync_folder(parent(named))?;
            }
        }
        Ok(path)
    }
}

impl BackupSink for FolderSink {
    fn put(&self, name: &str, content: &mut dyn Read, bytes: u64) -> io::Result<()> {
        let path = self.place(name)?;
        let partial = with_suffix(&path);
        let mut file = Stream::of(self.disk.open(&partial, Opened::Empty)?);
        let copied = copy(&mut content.take(bytes), &mut file)?;
        if copied < bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.file().sync_all()?;
        fault::pass("backup.before_rename");
        self.disk.rename(&partial, &path)?;
        self.disk.sync_folder(parent(&path))
    }

    fn has(&self, file: &BackupFile) -> io::Result<bool> {
        let Some((base, files)) = &self.base else {
            return Ok(false);
        };
        if !files.contains(file) {
            return Ok(false);
        }
        let path = self.place(&file.name)?;
        self.disk.link(&within(base, &file.name)?, &path)?;
        self.disk.sync_folder(parent(&path))?;
        Ok(true)
    }

    fn finish(&self) -> io::Result<()> {
        match &self.target {
            Some(target) => end_folder(&*self.disk, &self.root, target),
            None => Ok(()),
        }
    }
}

impl Drop for FolderSink {
    /// A backup that came to no end is nothing. After a finished one the root is no more.
    fn drop(&mut self) {
        if self.target.is_some() {
            let _ = self.disk.remove_folder(&self.root);
        }
    }
}

/// A folder with files.
#[derive(Clone, Debug)]
pub struct FolderSource {
    disk: Arc<dyn Disk>,
    root: PathBuf,
}

impl FolderSource {
    /// The files in a folder and in folders within.
    pub fn new(root: &Path) -> FolderSource {
        FolderSource::on(Arc::new(SystemDisk), root)
    }

    /// As [`FolderSource::new`], on a disk.
    pub(crate) fn on(disk: Arc<dyn Disk>, root: &Path) -> FolderSource {
        FolderSource {
            disk,
            root: root.to_owned(),
        }
    }
}

impl BackupSource for FolderSource {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let mut folders = vec![(self.root.clone(), String::new())];
        while let Some((folder, prefix)) = folders.pop() {
            for (path, is_folder) in self.disk.list(&folder)? {
                // Names of ours are text.
                let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                    continue;
                };
                let name = format!("{prefix}{name}");
                if is_folder {
                    folders.push((path, format!("{name}/")));
                } else {
                    names.push(name);
                }
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        let path = within(&self.root, name)?;
        Ok(Box::new(Stream::of(self.disk.open(&path, Opened::Read)?)))
    }
}

/// Why a backup could not be made, or a tenant not be made of one.
#[derive(Debug, Error)]
pub enum BackupError {
    /// The tenant has no log, so nothing of it is ever in files.
    #[error("the database keeps nothing in files, so there is nothing to back up")]
    NotDurable,
    /// The tenant could not say what it has.
    #[error("the checkpoint that a backup begins with failed")]
    Storage(#[from] StorageError),
    /// The text names no place that is known.
    #[error("\"{place}\" {why}")]
    NotAPlace {
        /// The text, without what should not be shown.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// Something is where the backup or the restored tenant should go.
    #[error("{place} is there already and not empty")]
    NotEmpty {
        /// Where.
        place: String,
    },
    /// A file or folder could not be read or written.
    #[error("cannot use {name}")]
    Io {
        /// Which.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is no `backup.json`: nothing was backed up to this place, or not to the end.
    #[error("there is no complete backup: {DOCUMENT} is missing")]
    NotABackup,
    /// A newer version made it.
    #[error("the backup has format {found}, and this version knows up to {known}")]
    Format {
        /// The backup's format.
        found: u32,
        /// The newest that is known.
        known: u32,
    },
    /// A file is not what was written.
    #[error("the backup's file {name} is damaged: {what}")]
    Damaged {
        /// Which.
        name: String,
        /// How.
        what: &'static str,
    },
    /// A file of the log is damaged, or is another timeline's.
    #[error("the log cannot be used")]
    Log(#[source] RecoverError),
    /// The log files do not lead from the backup to their end.
    #[error("the log has a gap: file {number:016x}.log is missing")]
    LogMissing {
        /// The number of the first that is missing.
        number: u64,
    },
    /// The point to go back to is before the backup.
    #[error("the backup was made at commit {at}, after the point to restore")]
    BeforeBackup {
        /// The backup's commit.
        at: CommitTs,
        /// When it was made.
        taken: SystemTime,
    },
    /// The log does not reach the point to go back to, as far as it is there.
    #[error("what is there ends at commit {last}, before the point to restore")]
    BeyondLog {
        /// The last commit there is.
        last: CommitTs,
    },
}

impl BackupError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
        named(path.display().to_string())
    }

    pub(crate) fn damaged(name: &str, what: &'static str) -> BackupError {
        BackupError::Damaged {
            name: name.to_owned(),
            what,
        }
    }
}

pub(crate) fn named(name: impl Into<String>) -> impl FnOnce(io::Error) -> BackupError {
    let name = name.into();
    move |source| BackupError::Io { name, source }
}

/// Content with its checksum so far.
pub(crate) struct Hashing<R> {
    content: R,
    hasher: crc32fast::Hasher,
    bytes: u64,
}

impl<R: Read> Hashing<R> {
    pub(crate) fn new(content: R) -> Self {
        Self {
            content,
            hasher: crc32fast::Hasher::new(),
            bytes: 0,
        }
    }

    /// What was read, under a name.
    pub(crate) fn file(self, name: &str) -> BackupFile {
        BackupFile {
            name: name.to_owned(),
            bytes: self.bytes,
            crc32: self.hasher.finalize(),
        }
    }

    /// Holds what was read to its end against what it should be.
    pub(crate) fn check(self, expected: &BackupFile) -> Result<(), BackupError> {
        let what = match self.bytes.cmp(&expected.bytes) {
            std::cmp::Ordering::Less => "it is shorter than it was",
            std::cmp::Ordering::Greater => "it is longer than it was",
            std::cmp::Ordering::Equal if self.hasher.finalize() != expected.crc32 => {
                "the checksum does not match"
            }
            std::cmp::Ordering::Equal => return Ok(()),
        };
        Err(BackupError::damaged(&expected.name, what))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.content.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}

/// Copies to the end in large pieces.
pub(crate) fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<u64> {
    let mut buffer = vec![0; 256 << 10];
    let mut copied = 0;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(copied),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(&buffer[..count])?;
        copied += count as u64;
    }
}

/// Puts a file as long as it is now under a name.
pub(crate) fn put_file(
    disk: &dyn Disk,
    sink: &dyn BackupSink,
    name: &str,
    path: &Path,
) -> Result<BackupFile, BackupError> {
    let file = disk.open(path, Opened::Read);
    let file = file.map_err(BackupError::io(path))?;
    let bytes = file.bytes().map_err(BackupError::io(path))?;
    let mut content = Hashing::new(Stream::of(file));
    sink.put(name, &mut content, bytes).map_err(named(name))?;
    Ok(content.file(name))
}

/// A whole file.
pub(crate) fn read_whole(source: &dyn BackupSource, name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.open(name)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The path of a name, which leads nowhere else.
fn within(root: &Path, name: &str) -> io::Result<PathBuf> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if name.is_empty() || !Path::new(name).components().all(is_plain) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no file name"));
    }
    Ok(root.join(name))
}

fn with_suffix(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(PARTIAL);
    name.into()
}

/// An empty folder beside `target`, which must be missing or empty, to be put in its place.
pub(crate) fn begin_folder(disk: &dyn Disk, target: &Path) -> Result<PathBuf, BackupError> {
    let is_empty = match disk.list(target) {
        Ok(entries) => entries.is_empty(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(BackupError::io(target)(error)),
    };
    if !is_empty {
        return Err(BackupError::NotEmpty {
            place: target.display().to_string(),
        });
    }
    let partial = with_suffix(target);
    // What a crash has left.
    disk.remove_folder_if_there(&partial)
        .and_then(|()| disk.make_folder(&partial))
        .map_err(BackupError::io(&partial))?;
    Ok(partial)
}

/// Puts a folder in its place, for good.
pub(crate) fn end_folder(disk: &dyn Disk, partial: &Path, target: &Path) -> io::Result<()> {
    disk.sync_folder(partial)?;
    fault::pass("backup.before_end");
    // Takes the place of an empty folder too.
    disk.rename(partial, target)?;
    fault::pass("backup.after_end");
    disk.sync_folder(parent(target))
}
