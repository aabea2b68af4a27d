//! What the store asks of a disk. All stored data goes through here, so that a simulation can
//! have a disk of its own that loses unsynced writes and fails at any call.
//!
//! ```text
//!  Disk ── names: open, list, rename, link, remove, lock     durable once their folder is synced
//!   └ DiskFile ── bytes: read, write, cut, sync              durable once the file is synced
//! ```
//!
//! * A file's bytes and its name become durable separately, as in POSIX: a writer that creates a
//!   file syncs it and then its folder. A rename replaces the old name by the new one in one
//!   step.
//! * Nothing else in the crate calls the file system; clippy enforces it (`clippy.toml`).
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the only file that calls the file system"
)]

use std::{
    fmt,
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, Read, Write},
    num::NonZeroU64,
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use aerostat_types::{Clock, SystemClock};
use rustix::fs::{Advice, CWD, RenameFlags, fadvise, renameat_with};

/// What nobody but the owner may do with a folder that is made here.
const FOLDER_MODE: u32 = 0o700;

/// As with files.
const FILE_MODE: u32 = 0o600;

/// How a file is opened. One that is made is its owner's alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// To be read.
    Read,
    /// To be written, with the bytes it has.
    Write,
    /// To be written, with the bytes it has; made if it is missing.
    WriteOrNew,
    /// To be written, and empty: made if it is missing.
    Empty,
    /// To be written, and new: an error if it is there.
    New,
}

/// What has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Whether it is a folder.
    pub is_folder: bool,
    /// Bytes of a file.
    pub bytes: u64,
}

/// A lock, as long as it is kept. The end of the process ends it, too.
pub type DiskLock = Box<dyn fmt::Debug + Send + Sync>;

/// The size of a file system, and what of it is free to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// All of it.
    pub bytes: u64,
    /// What can be written still.
    pub bytes_free: u64,
}

/// What a store stands on.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Default for Machine {
    /// This one.
    fn default() -> Self {
        Self {
            disk: Arc::new(SystemDisk),
            clock: Arc::new(SystemClock),
        }
    }
}

/// Folders, and files in them. Every call may fail as the system's do, and a change that failed may
/// have happened.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens a file.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] and [`io::ErrorKind::AlreadyExists`] as `how` has it.
    fn open(&self, path: &Path, how: Opened) -> io::Result<Box<dyn DiskFile>>;

    /// All bytes of a file.
    ///
    /// # Errors
    /// As the system has them.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// What has this name.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if nothing has.
    fn look(&self, path: &Path) -> io::Result<Found>;

    /// The paths of all that is in a folder, and whether each is a folder; in any order.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such folder.
    fn list(&self, folder: &Path) -> io::Result<Vec<(PathBuf, bool)>>;

    /// Makes a folder and those above it, if they are missing, for their owner alone.
    ///
    /// # Errors
    /// As the system has them.
    fn make_folder(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// As the system has them: what had not been durable may be, or not.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    /// Gives a file or folder another name, in the place of what had it: a file, or an empty folder.
    ///
    /// # Errors
    /// As the system has them.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Exchanges two names in one step.
    ///
    /// # Errors
    /// One is not there, or the file system cannot do it.
    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()>;

    /// Gives a file a second name, which nothing has yet.
    ///
    /// # Errors
    /// As the system has them.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Takes a file's name away.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a folder with all that is in it.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;

    /// Locks a file or folder that is there; `None` if somebody has it locked.
    ///
    /// # Errors
    /// As the system has them.
    fn lock(&self, path: &Path) -> io::Result<Option<DiskLock>>;

    /// How large the file system of a file or folder is.
    ///
    /// # Errors
    /// When that cannot be found out.
    fn space(&self, path: &Path) -> io::Result<DiskSpace>;

    /// How many threads read from it side by side.
    fn readers(&self) -> usize;
}

/// An open file.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Reads bytes from an offset on, and says how many: 0 at the end.
    ///
    /// # Errors
    /// As the system has them.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Says that bytes will be read soon, so that they may be on their way before. It does not wait.
    fn will_read(&self, _offset: u64, _bytes: u64) {}

    /// Writes bytes from an offset on. The file grows as far as they reach.
    ///
    /// # Errors
    /// Any part of them may be written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Cuts the file, or lets it grow by zeros.
    ///
    /// # Errors
    /// As the system has them.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Makes its bytes durable, and of what describes it what is needed to read them.
    ///
    /// # Errors
    /// What had not been durable may be lost, though later calls succeed.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes its bytes durable, and all that describes it.
    ///
    /// # Errors
    /// As [`DiskFile::sync_data`].
    fn sync_all(&self) -> io::Result<()>;

    /// How many bytes it has.
    ///
    /// # Errors
    /// As the system has them.
    fn bytes(&self) -> io::Result<u64>;
}

/// The file systems of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn open(&self, path: &Path, how: Opened) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        match how {
            Opened::Read => options.read(true),
            Opened::Write => options.write(true),
            Opened::WriteOrNew => options.write(true).create(true),
            Opened::Empty => options.write(true).create(true).truncate(true),
            Opened::New => options.write(true).create_new(true),
        };
        let file = options.mode(FILE_MODE).open(path)?;
        Ok(Box::new(SystemFile(file)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn look(&self, path: &Path) -> io::Result<Found> {
        let found = fs::metadata(path)?;
        Ok(Found {
            is_folder: found.is_dir(),
            bytes: found.len(),
        })
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
        let each = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            Ok((entry.path(), entry.file_type()?.is_dir()))
        };
        fs::read_dir(folder)?.map(each).collect()
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(FOLDER_MODE).create(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        Ok(renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE)?)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<DiskLock>> {
        let file = File::open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn space(&self, path: &Path) -> io::Result<DiskSpace> {
        let found = rustix::fs::statvfs(path)?;
        Ok(DiskSpace {
            bytes: found.f_blocks.saturating_mul(found.f_frsize),
            bytes_free: found.f_bavail.saturating_mul(found.f_frsize),
        })
    }

    fn readers(&self) -> usize {
        thread::available_parallelism().map_or(1, |threads| threads.get())
    }
}

/// A file of the system.
#[derive(Debug)]
struct SystemFile(File);

impl DiskFile for SystemFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn will_read(&self, offset: u64, bytes: u64) {
        // A hint: who reads finds out what is wrong.
        let _ = fadvise(&self.0, offset, NonZeroU64::new(bytes), Advice::WillNeed);
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

impl SystemDisk {
    /// The permissions of a file or folder.
    pub(crate) fn mode(self, path: &Path) -> io::Result<u32> {
        Ok(fs::metadata(path)?.permissions().mode() & 0o7777)
    }

    /// Takes a folder's permissions from all but its owner.
    pub(crate) fn close_folder(self, path: &Path) -> io::Result<()> {
        fs::set_permissions(path, Permissions::from_mode(FOLDER_MODE))
    }
}

impl dyn Disk + '_ {
    /// Whether something has this name, as far as that can be found out.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.look(path).is_ok()
    }

    /// Takes a file's name away if it has one.
    pub(crate) fn remove_if_there(&self, path: &Path) -> io::Result<()> {
        missing_is_fine(self.remove_file(path))
    }

    /// Removes a folder if it is there.
    pub(crate) fn remove_folder_if_there(&self, path: &Path) -> io::Result<()> {
        missing_is_fine(self.remove_folder(path))
    }

    /// Makes a folder and those above it, if they are missing, for good.
    pub(crate) fn make_folder_for_good(&self, path: &Path) -> io::Result<()> {
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !self.has(path);
        let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
        self.make_folder(path)?;
        for made in missing {
            self.sync_folder(parent(made))?;
        }
        Ok(())
    }

    /// A file of these bytes, and no others. They are not durable yet.
    pub(crate) fn create_file(&self, path: &Path, bytes: &[u8]) -> io::Result<Box<dyn DiskFile>> {
        let file = self.open(path, Opened::Empty)?;
        file.write_all_at(bytes, 0)?;
        Ok(file)
    }
}

fn missing_is_fine(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The folder that something is in.
pub(crate) fn parent(path: &Path) -> &Path {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// A file that is read or written from its beginning on.
#[derive(Debug)]
pub(crate) struct Stream {
    file: Box<dyn DiskFile>,
    at: u64,
}

impl Stream {
    pub(crate) fn of(file: Box<dyn DiskFile>) -> Stream {
        Stream { file, at: 0 }
    }

    pub(crate) fn file(&self) -> &dyn DiskFile {
        &*self.file
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
