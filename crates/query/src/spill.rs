//! What queries write to disk when they are out of memory, within limits: of the node, of each
//! tenant, and of what is left free for logs and checkpoints.
//!
//! ```text
//!  operator ─► spill file ─► bytes counted: tenant's, node's ─► over a limit: 53400
//!                     └────► free disk, looked at now and then ─► below the reserve: 53100
//! ```
//!
//! A statement that meets a limit fails and its files go. A tenant's log needs the disk, too,
//! and cannot go without, so spilling stops while there is room for it.

use std::{
    fmt,
    io::{self, Write},
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use aerostat_storage::{DiskSpace, make_folder};
use aerostat_types::{ByteSize, ErrorKind, SqlError};
use bytes::Bytes;
use datafusion::{
    common::{DataFusionError, Result},
    execution::{
        DiskManager, SpillFile, SpillWriter, TempFileFactory,
        disk_manager::{DiskManagerBuilder, DiskManagerMode},
    },
};
use futures::Stream;
use parking_lot::Mutex;

/// A file may write so many bytes before the free disk is looked at again: that takes a
/// microsecond, and writing them some hundred.
const BYTES_PER_LOOK: u64 = 1 << 20;

/// A quantity of disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskQuantity {
    /// So many bytes.
    Bytes(ByteSize),
    /// A share of the file system that has the data folder.
    Percent(u8),
}

/// How much of the disk queries may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpillLimits {
    /// All of them together.
    pub node: DiskQuantity,
    /// Those of any one database.
    pub tenant: DiskQuantity,
    /// What they leave free.
    pub reserve: ByteSize,
}

impl Default for SpillLimits {
    /// Half of the disk, half of that for one tenant, and what sixteen files of logs take is
    /// left free.
    fn default() -> Self {
        Self {
            node: DiskQuantity::Percent(50),
            tenant: DiskQuantity::Percent(25),
            reserve: ByteSize(1 << 30),
        }
    }
}

/// A limit in bytes, and what is used of it.
struct Account {
    name: &'static str,
    setting: &'static str,
    bytes_max: u64,
    bytes: AtomicU64,
}

impl Account {
    fn add(&self, bytes: u64) -> Result<(), SqlError> {
        let taken = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if taken + bytes <= self.bytes_max {
            return Ok(());
        }
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        let limit = ByteSize(self.bytes_max);
        Err(SqlError::new(
            ErrorKind::ConfigurationLimitExceeded,
            format!(
                "temporary files of the {} exceed its limit of {limit}",
                self.name
            ),
        )
        .with_hint(format!(
            "Ask for less at once, raise the database's memory_max, or the server's --{}.",
            self.setting
        )))
    }

    fn give_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The node's disk for spilled rows.
pub(crate) struct SpillSpace {
    folder: PathBuf,
    account: Account,
    tenant_bytes_max: u64,
    reserve_bytes: u64,
}

impl SpillSpace {
    /// In a folder below the data folder. What a killed process had spilled is removed: it is
    /// of no use to anybody.
    pub(crate) fn new(data: &Path, limits: &SpillLimits) -> Arc<Self> {
        let folder = data.join("spill");
        if let Err(error) = std::fs::remove_dir_all(&folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, folder = %folder.display(), "cannot remove old spill files");
        }
        // A disk whose size is not known limits nothing by shares of it.
        let disk = DiskSpace::of(data).map_or(u64::MAX, |disk| disk.bytes);
        let bytes = |quantity| match quantity {
            DiskQuantity::Bytes(size) => size.0,
            DiskQuantity::Percent(percent) => disk / 100 * u64::from(percent),
        };
        Arc::new(Self {
            folder,
            account: Account {
                name: "node",
                setting: "spill-max",
                bytes_max: bytes(limits.node),
                bytes: AtomicU64::new(0),
            },
            tenant_bytes_max: bytes(limits.tenant),
            reserve_bytes: limits.reserve.0,
        })
    }

    /// Where a tenant's queries spill to.
    pub(crate) fn of_tenant(self: &Arc<Self>, name: &str) -> Arc<TenantSpill> {
        Arc::new(TenantSpill(Arc::new(Shared {
            folder: self.folder.join(name),
            files: Mutex::default(),
            account: Account {
                name: "database",
                setting: "spill-tenant-max",
                bytes_max: self.tenant_bytes_max,
                bytes: AtomicU64::new(0),
            },
            node: Arc::clone(self),
        })))
    }

    /// Whether the disk has room beside the reserve.
    fn look(&self) -> Result<(), SqlError> {
        let Ok(disk) = DiskSpace::of(&self.folder) else {
            return Ok(());
        };
        if disk.bytes_free >= self.reserve_bytes {
            return Ok(());
        }
        let (free, reserve) = (ByteSize(disk.bytes_free), ByteSize(self.reserve_bytes));
        Err(SqlError::new(
            ErrorKind::DiskFull,
            "no disk is left for temporary files",
        )
        .with_detail(format!("{free} are free, of which {reserve} are kept for logs and checkpoints."))
        .with_hint("Ask for less at once, raise the database's memory_max, or free space on the disk of the data folder."))
    }
}

/// A tenant's disk for spilled rows, as DataFusion asks for files.
pub(crate) struct TenantSpill(Arc<Shared>);

struct Shared {
    folder: PathBuf,
    /// Makes the files; there once the first is.
    files: Mutex<Option<Arc<DiskManager>>>,
    account: Account,
    node: Arc<SpillSpace>,
}

impl TenantSpill {
    /// Bytes in its files now.
    pub(crate) fn used(&self) -> u64 {
        self.0.account.bytes.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for TenantSpill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TenantSpill")
    }
}

impl Shared {
    fn files(&self) -> Result<Arc<DiskManager>> {
        let mut files = self.files.lock();
        if let Some(files) = &*files {
            return Ok(Arc::clone(files));
        }
        make_folder(&self.folder).map_err(DataFusionError::IoError)?;
        let folders = DiskManagerMode::Directories(vec![self.folder.clone()]);
        let made = DiskManagerBuilder::default()
            .with_mode(folders)
            .with_max_temp_directory_size(u64::MAX)
            .build()?;
        Ok(Arc::clone(files.insert(Arc::new(made))))
    }

    fn add(&self, bytes: u64) -> Result<(), SqlError> {
        self.account.add(bytes)?;
        self.node
            .account
            .add(bytes)
            .inspect_err(|_| self.account.give_back(bytes))
    }

    fn give_back(&self, bytes: u64) {
        self.account.give_back(bytes);
        self.node.account.give_back(bytes);
    }
}

impl TempFileFactory for TenantSpill {
    fn create_temp_file(&self, description: &str) -> Result<Arc<dyn SpillFile>> {
        Ok(Arc::new(Counted {
            file: self.0.files()?.create_tmp_file(description)?,
            bytes: Arc::new(Bytecount {
                shared: Arc::clone(&self.0),
                bytes: AtomicU64::new(0),
            }),
        }))
    }
}

/// A file whose bytes are counted until it and its writers are gone.
struct Counted {
    file: Arc<dyn SpillFile>,
    bytes: Arc<Bytecount>,
}

struct Bytecount {
    shared: Arc<Shared>,
    bytes: AtomicU64,
}

impl Drop for Bytecount {
    fn drop(&mut self) {
        self.shared.give_back(*self.bytes.get_mut());
    }
}

impl SpillFile for Counted {
    fn path(&self) -> Option<&Path> {
        self.file.path()
    }

    fn size(&self) -> Option<u64> {
        self.file.size()
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        self.file.read_stream()
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(CountedWriter {
            writer: self.file.open_writer()?,
            bytes: Arc::clone(&self.bytes),
            bytes_until_look: 0,
        }))
    }
}

struct CountedWriter {
    writer: Box<dyn SpillWriter>,
    bytes: Arc<Bytecount>,
    bytes_until_look: u64,
}

impl CountedWriter {
    fn admit(&mut self, bytes: u64) -> Result<(), SqlError> {
        let shared = &self.bytes.shared;
        if bytes >= self.bytes_until_look {
            shared.node.look()?;
            self.bytes_until_look = BYTES_PER_LOOK;
        } else {
            self.bytes_until_look -= bytes;
        }
        shared.add(bytes)?;
        self.bytes.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Write for CountedWriter {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.admit(buffer.len() as u64).map_err(io::Error::other)?;
        self.writer.write_all(buffer)?;
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl SpillWriter for CountedWriter {
    fn finish(&mut self) -> Result<()> {
        self.writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(node: u64, tenant: u64, reserve: u64) -> SpillLimits {
        SpillLimits {
            node: DiskQuantity::Bytes(ByteSize(node)),
            tenant: DiskQuantity::Bytes(ByteSize(tenant)),
            reserve: ByteSize(reserve),
        }
    }

    fn refused(result: io::Result<()>) -> ErrorKind {
        let error = result.expect_err("a limit");
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        let error: &SqlError = inner.expect("an error of ours");
        error.kind
    }

    #[test]
    fn files_count_against_tenant_and_node_until_they_are_gone() {
        let data = tempfile::tempdir().unwrap();
        let space = SpillSpace::new(data.path(), &limits(150, 100, 0));
        let (a, b) = (space.of_tenant("a"), space.of_tenant("b"));
        let first = a.create_temp_file("test").unwrap();
        let mut writer = first.open_writer().unwrap();
        writer.write_all(&[1; 90]).unwrap();
        let limit = ErrorKind::ConfigurationLimitExceeded;
        assert_eq!(refused(writer.write_all(&[1; 11])), limit);
        writer.write_all(&[1; 10]).unwrap();
        assert_eq!((a.used(), b.used()), (100, 0));
        let second = b.create_temp_file("test").unwrap();
        let mut other = second.open_writer().unwrap();
        assert_eq!(refused(other.write_all(&[1; 51])), limit);
        other.write_all(&[1; 50]).unwrap();
        drop(first);
        assert_eq!(a.used(), 100, "it is written still");
        drop(writer);
        assert_eq!(a.used(), 0);
        other.write_all(&[1; 50]).unwrap();
        drop((other, second));
        assert_eq!(space.account.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn nothing_is_spilled_into_the_reserve() {
        let data = tempfile::tempdir().unwrap();
        let all = DiskSpace::of(data.path()).unwrap().bytes;
        let space = SpillSpace::new(data.path(), &limits(u64::MAX, u64::MAX, all + 1));
        let file = space.of_tenant("a").create_temp_file("test").unwrap();
        let mut writer = file.open_writer().unwrap();
        assert_eq!(refused(writer.write_all(b"x")), ErrorKind::DiskFull);
    }
}
