//! Temporary files that queries write when they are out of memory, within limits: of the node, of
//! each tenant, and of the disk that is left free for logs and checkpoints.
//!
//! ```text
//!  operator ─► spill file ─► bytes counted: tenant's, node's ─► over a limit: 53400
//!                     └────► free disk, looked at now and then ─► below the reserve: 53100
//! ```
//!
//! A statement that meets a limit fails, and its files are removed. A tenant's log needs the disk,
//! too, and cannot go without, so spilling stops while there is still room for the log.

use std::{
    fmt,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use aerostat_catalog::failure::{canceled, is_full};
use aerostat_semantics::growth;
use aerostat_storage::{DiskSpace, make_folder};
use aerostat_types::{ByteSize, ErrorKind, SqlError};
use bytes::Bytes;
use datafusion::{
    common::{DataFusionError, Result},
    execution::{SpillFile, SpillWriter, TempFileFactory},
};
use futures::{Stream, TryFutureExt, TryStreamExt};
use tempfile::{Builder, TempPath};
use tokio_util::io::ReaderStream;

use crate::{error::ours, heap::stop_current};

/// How many bytes a file may get before the free disk is looked at again. A look takes a
/// microsecond; writing this much takes some hundred.
const BYTES_PER_LOOK: u64 = 1 << 20;

/// How many bytes are read at once. With the usual 8 KiB, reading batches of megabytes would
/// consist mostly of thread switches.
const CHUNK_BYTES: usize = 128 << 10;

/// A quantity of disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskQuantity {
    /// This many bytes.
    Bytes(ByteSize),
    /// This share of the file system that has the data folder, in percent.
    Percent(u8),
}

/// How much disk queries may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpillLimits {
    /// What the queries of all databases may take together.
    pub node: DiskQuantity,
    /// What the queries of one database may take.
    pub tenant: DiskQuantity,
    /// How much disk stays free.
    pub reserve: ByteSize,
}

impl Default for SpillLimits {
    /// Half of the disk, half of that for one tenant, and free disk for sixteen log files.
    fn default() -> Self {
        Self {
            node: DiskQuantity::Percent(50),
            tenant: DiskQuantity::Percent(25),
            reserve: ByteSize(1 << 30),
        }
    }
}

/// A limit in bytes, and how much of it is used.
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
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(
            before >= bytes,
            "{}: {bytes} bytes of temporary files are gone, and {before} were counted",
            self.name
        );
    }
}

/// The node's disk for spilled rows.
pub struct SpillSpace {
    folder: PathBuf,
    account: Account,
    tenant_bytes_max: u64,
    reserve_bytes: u64,
}

impl SpillSpace {
    /// Spill space in a folder below the data folder. Files that a killed process has left there
    /// are removed, because nobody needs them.
    pub fn new(data: &Path, limits: &SpillLimits) -> Arc<Self> {
        let folder = data.join("spill");
        if let Err(error) = std::fs::remove_dir_all(&folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, folder = %folder.display(), "cannot remove old spill files");
        }
        // Without a known size of the disk, shares of it limit nothing.
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

    /// The spill space of one tenant.
    pub fn of_tenant(self: &Arc<Self>, name: &str) -> Arc<TenantSpill> {
        Arc::new(TenantSpill(Arc::new(Shared {
            folder: self.folder.join(name),
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

/// A tenant's spill space, as DataFusion's factory of temporary files.
pub struct TenantSpill(Arc<Shared>);

struct Shared {
    folder: PathBuf,
    account: Account,
    node: Arc<SpillSpace>,
}

impl TenantSpill {
    /// Bytes in its files now.
    pub fn used(&self) -> u64 {
        self.0.account.bytes.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for TenantSpill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TenantSpill")
    }
}

impl Shared {
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
    fn create_temp_file(&self, _description: &str) -> Result<Arc<dyn SpillFile>> {
        let shared = &self.0;
        let made = make_folder(&shared.folder)
            .and_then(|()| Builder::new().prefix("rows-").tempfile_in(&shared.folder));
        let file = Arc::new(OnDisk {
            path: made.map_err(DataFusionError::IoError)?.into_temp_path(),
            shared: Arc::clone(shared),
            bytes: AtomicU64::new(0),
        });
        Ok(Arc::new(Counted(file)))
    }
}

/// A file that exists, and is counted, until its readers and writers are gone. It is open only
/// while it is written or read: a repartition spills each batch to a file of its own.
struct OnDisk {
    path: TempPath,
    shared: Arc<Shared>,
    bytes: AtomicU64,
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        self.shared.give_back(*self.bytes.get_mut());
    }
}

struct Counted(Arc<OnDisk>);

impl SpillFile for Counted {
    fn path(&self) -> Option<&Path> {
        Some(&self.0.path)
    }

    fn size(&self) -> Option<u64> {
        Some(self.0.bytes.load(Ordering::Relaxed))
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        let file = Arc::clone(&self.0);
        let opened = async move { tokio::fs::File::open(&file.path).await };
        let chunks = opened.map_ok(|file| ReaderStream::with_capacity(file, CHUNK_BYTES));
        Ok(Box::pin(
            chunks
                .try_flatten_stream()
                .map_err(DataFusionError::IoError),
        ))
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        let file = File::options().append(true).open(&self.0.path);
        Ok(Box::new(CountedWriter {
            file: file.map_err(DataFusionError::IoError)?,
            on_disk: Arc::clone(&self.0),
            bytes_until_look: 0,
        }))
    }
}

struct CountedWriter {
    file: File,
    on_disk: Arc<OnDisk>,
    bytes_until_look: u64,
}

impl CountedWriter {
    fn admit(&mut self, bytes: u64) -> Result<(), SqlError> {
        let shared = &self.on_disk.shared;
        if bytes >= self.bytes_until_look {
            shared.node.look()?;
            self.bytes_until_look = BYTES_PER_LOOK;
        } else {
            self.bytes_until_look -= bytes;
        }
        shared.add(bytes)?;
        self.on_disk.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn append(&mut self, buffer: &[u8]) -> io::Result<()> {
        // A sort writes all that it has in one call, so it must look whether it is stopped.
        growth::go_on().map_err(|error| {
            let why = ours(&error).cloned().unwrap_or_else(canceled);
            io::Error::other(why)
        })?;
        self.admit(buffer.len() as u64).map_err(io::Error::other)?;
        self.file.write_all(buffer)
    }
}

impl Write for CountedWriter {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        // A task that reads a repartition's file waits for the rest of it and does not get this
        // error, which goes to another task: so the whole statement is stopped.
        self.append(buffer)
            .inspect_err(|error| stop_current(not_written(error)))?;
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl SpillWriter for CountedWriter {
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The error of a limit, or of the disk.
fn not_written(error: &io::Error) -> SqlError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    if let Some(limit) = inner {
        return SqlError::clone(limit);
    }
    let kind = match is_full(error) {
        true => ErrorKind::DiskFull,
        false => ErrorKind::IoError,
    };
    SqlError::new(kind, format!("cannot write temporary files: {error}"))
        .with_hint("See to the disk of the data folder, or raise the database's memory_max.")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use datafusion::{
        arrow::{
            array::{ArrayRef, Int32Array, RecordBatch},
            datatypes::Schema,
        },
        execution::{disk_manager::DiskManagerBuilder, runtime_env::RuntimeEnvBuilder},
        physical_plan::{
            metrics::{ExecutionPlanMetricsSet, SpillMetrics},
            spill::{
                SpillManager,
                spill_pool::{SpillPoolSink, mpsc_channel},
            },
        },
    };
    use futures::StreamExt;
    use parking_lot::Mutex;

    use super::*;
    use crate::state::base_state;

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

    /// Another task that spills while this one opens its file.
    #[derive(Default)]
    struct Meanwhile(Mutex<Option<(SpillPoolSink, RecordBatch)>>);

    struct Interrupted(Arc<TenantSpill>, Arc<Meanwhile>);

    struct InterruptedFile(Arc<dyn SpillFile>, Arc<Meanwhile>);

    impl TempFileFactory for Interrupted {
        fn create_temp_file(&self, description: &str) -> Result<Arc<dyn SpillFile>> {
            let file = self.0.create_temp_file(description)?;
            Ok(Arc::new(InterruptedFile(file, Arc::clone(&self.1))))
        }
    }

    impl SpillFile for InterruptedFile {
        fn size(&self) -> Option<u64> {
            self.0.size()
        }

        fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
            self.0.read_stream()
        }

        fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
            let meanwhile = self.1.0.lock().take();
            if let Some((other, batch)) = meanwhile {
                other.push_batch(&batch)?;
            }
            self.0.open_writer()
        }
    }

    /// A repartition's tasks wait until its reader has read enough, so the rows that the reader
    /// waits for must be in the files without anything more from the tasks.
    #[tokio::test]
    async fn what_two_tasks_have_spilled_is_read_though_neither_goes_on() {
        let data = tempfile::tempdir().unwrap();
        let space = SpillSpace::new(data.path(), &limits(u64::MAX, u64::MAX, 0));
        let spill = space.of_tenant("a");
        let meanwhile = Arc::new(Meanwhile::default());
        let files = Interrupted(Arc::clone(&spill), Arc::clone(&meanwhile));
        let disk = DiskManagerBuilder::default().with_temp_file_factory(Arc::new(files));
        let environment = RuntimeEnvBuilder::new().with_disk_manager_builder(disk);
        let batch = |value: i32| {
            let column: ArrayRef = Arc::new(Int32Array::from(vec![value]));
            RecordBatch::try_from_iter([("a", column)]).unwrap()
        };
        let metrics = SpillMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
        let schema: Arc<Schema> = batch(0).schema();
        let manager = SpillManager::new(environment.build_arc().unwrap(), metrics, schema);
        let state = base_state(2);
        let file_bytes_max = state.config_options().execution.max_spill_file_size_bytes;
        let (first, mut reader) = mpsc_channel(file_bytes_max.get(), Arc::new(manager));
        *meanwhile.0.lock() = Some((first.new_sink(), batch(2)));
        first.push_batch(&batch(1)).unwrap();
        assert!(spill.used() > 0);
        for _ in 0..2 {
            let next = tokio::time::timeout(Duration::from_secs(20), reader.next());
            let read = next.await.expect("both batches were spilled");
            assert_eq!(read.unwrap().unwrap().num_rows(), 1);
        }
        drop((first, reader));
        assert_eq!(spill.used(), 0);
    }
}
