//! A data folder in this process, from opening to closing.

use std::{
    fs::Permissions,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use aerostat_calibrate::CalibrateError;
use aerostat_catalog::admin::{BOOTSTRAP, NodeError};
use aerostat_engine::{Engine, EngineOptions, Eviction, UpkeepOptions};
use aerostat_memory::Governor;
use aerostat_objects::ObjectPlaces;
use aerostat_storage::MetaError;
use aerostat_types::{ByteSize, ErrorKind, SqlError};
use tempfile::TempDir;
use thiserror::Error;
use tokio::runtime::{Handle, Runtime};
use tokio_util::sync::CancellationToken;

use crate::{
    Connection, MEMORY_BYTES_MIN, Options, calibration,
    threads::{ends_runtime, query_runtime},
};

/// Why a data folder cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A node has the data folder, or this program has it open already.
    #[error("another process uses the data folder {}", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The data folder is damaged, not readable, or not one of ours.
    #[error("cannot open the data folder {}", path.display())]
    Node {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<NodeError>,
    },
    /// There is no place for a temporary folder.
    #[error("cannot make a temporary data folder")]
    Temporary(#[source] io::Error),
    /// The system gives no more threads.
    #[error("cannot start the threads of queries")]
    Threads(#[source] io::Error),
    /// Too little memory to work with.
    #[error(
        "{memory} of memory are not enough; at least {} are needed",
        ByteSize(MEMORY_BYTES_MIN)
    )]
    Memory {
        /// What was given.
        memory: ByteSize,
    },
    /// The file with a calibration cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What is in it is none.
    #[error("{} cannot be used", path.display())]
    Calibration {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: CalibrateError,
    },
    /// What a new folder begins with cannot be set.
    #[error("cannot set up the database")]
    Setup(#[source] Box<SqlError>),
}

/// Who connects, to which of the databases in the data folder.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The database: a tenant, as `CREATE DATABASE` makes them.
    pub database: String,
    /// The role. Whoever may open the folder needs no password.
    pub role: String,
    /// Settings of the session, such as `("statement_timeout", "5s")`.
    pub settings: Vec<(String, String)>,
}

impl Default for ConnectOptions {
    /// The superuser and the database that every data folder begins with.
    fn default() -> Self {
        Self {
            database: BOOTSTRAP.to_owned(),
            role: BOOTSTRAP.to_owned(),
            settings: Vec::new(),
        }
    }
}

/// An open data folder, with the engine and the threads that work on it. Clones are handles of
/// the same; it is closed when the last of them and of its connections are dropped.
#[derive(Clone)]
pub struct Aerostat(Arc<Open>);

/// What is closed at the end.
pub(crate) struct Open {
    engine: Arc<Engine>,
    data: PathBuf,
    /// Until it ends.
    queries: Option<Runtime>,
    /// The threads that end transactions; until the queries' have ended.
    ends: Option<Runtime>,
    handle: Handle,
    upkeep_ends: CancellationToken,
    /// Whether the end waits for work that is under way.
    waits: AtomicBool,
    /// Removed last.
    _temporary: Option<TempDir>,
}

impl Aerostat {
    /// Opens a data folder, or makes one. What was committed to it is there again, whoever had
    /// it open before and however that ended.
    ///
    /// # Errors
    /// [`OpenError::InUse`] while another has it open, and others.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        if options.memory.0 < MEMORY_BYTES_MIN {
            return Err(OpenError::Memory {
                memory: options.memory,
            });
        }
        let (data, temporary) = match options.data {
            Some(data) => (data, None),
            None => {
                let folder = temporary_folder()?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        let threads = options.threads.max(1);
        let machine = calibration::machine(options.calibration.as_deref(), &data)?;
        let queries = query_runtime(threads, options.pinning).map_err(OpenError::Threads)?;
        let handle = queries.handle().clone();
        let ends = ends_runtime().map_err(OpenError::Threads)?;
        if options.eviction == Eviction::Always {
            // So that what is small goes, too.
            aerostat_memory::give_up_lines();
        }
        let governor = match options.memory_is_given {
            true => Governor::given(options.memory),
            false => Governor::new(options.memory),
        };
        governor.set_cap(options.memory_cap);
        let opened = Engine::open(EngineOptions {
            data: data.clone(),
            governor,
            queries: handle.clone(),
            ends: ends.handle().clone(),
            threads,
            observer: options.observer,
            places: Arc::new(ObjectPlaces::new()),
            machine,
            spill: options.spill,
            opening: options.opening,
            statements: options.statements,
            shared: options.shared,
        });
        let engine = match opened {
            Ok(engine) => engine,
            Err(error) => {
                queries.shutdown_background();
                ends.shutdown_background();
                return Err(not_opened(data, error));
            }
        };
        let upkeep_ends = CancellationToken::new();
        let upkeep = UpkeepOptions {
            freezer_percent: options.freezer_percent,
            eviction: options.eviction,
        };
        handle.spawn(Arc::clone(&engine).keep_up(upkeep, upkeep_ends.clone()));
        let is_temporary = temporary.is_some();
        let database = Self(Arc::new(Open {
            engine,
            data,
            queries: Some(queries),
            ends: Some(ends),
            handle,
            upkeep_ends,
            waits: AtomicBool::new(true),
            _temporary: temporary,
        }));
        if is_temporary {
            let set_up = database.stop_waiting_for_disk();
            set_up.map_err(|error| OpenError::Setup(Box::new(error)))?;
        }
        Ok(database)
    }

    /// Connects as the superuser to the database that every folder begins with.
    ///
    /// # Errors
    /// As [`Self::connect_with`].
    pub fn connect(&self) -> Result<Connection, SqlError> {
        self.connect_with(&ConnectOptions::default())
    }

    /// Connects.
    ///
    /// # Errors
    /// Role or database are not there or full, the role may not connect, or something is no
    /// setting.
    pub fn connect_with(&self, options: &ConnectOptions) -> Result<Connection, SqlError> {
        let ConnectOptions {
            database,
            role,
            settings,
        } = options;
        let session = self.0.engine.connect(role, database, settings)?;
        Ok(Connection::new(session, self.clone()))
    }

    /// The data folder.
    pub fn data(&self) -> &Path {
        &self.0.data
    }

    /// The engine, for whoever serves it to others.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.0.engine
    }

    /// Closes the database: running queries end, a checkpoint under way is finished, and the
    /// folder may be opened by others when this returns. Dropping the last handle does the same.
    ///
    /// # Errors
    /// `ObjectInUse` while there are connections or other handles. It closes with the last.
    pub fn close(self) -> Result<(), SqlError> {
        match Arc::try_unwrap(self.0) {
            Ok(open) => {
                drop(open);
                Ok(())
            }
            Err(shared) => {
                let others = Arc::strong_count(&shared) - 1;
                let message = format!("{others} connections or handles use the database");
                Err(SqlError::new(ErrorKind::ObjectInUse, message)
                    .with_hint("Drop them; with the last the database is closed."))
            }
        }
    }

    /// Gives it up without waiting for anything under way: for a process that ends now. What is
    /// committed is kept.
    pub fn abandon(self) {
        self.0.waits.store(false, Ordering::Relaxed);
    }

    /// The runtime that queries run on.
    pub(crate) fn queries(&self) -> &Handle {
        &self.0.handle
    }

    /// What is gone after a crash in any case need not be on disk.
    fn stop_waiting_for_disk(&self) -> Result<(), SqlError> {
        let mut connection = self.connect()?;
        let sql = format!("ALTER DATABASE {BOOTSTRAP} SET (durability = 'none')");
        connection.execute(&sql).map(drop)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.upkeep_ends.cancel();
        let (Some(queries), Some(ends)) = (self.queries.take(), self.ends.take()) else {
            return;
        };
        if !*self.waits.get_mut() {
            queries.shutdown_background();
            ends.shutdown_background();
            return;
        }
        // Waiting is refused on a thread that runs tasks, and the caller's may be one.
        let ending = thread::Builder::new().name("aerostat-close".to_owned());
        match ending.spawn(move || {
            drop(queries);
            drop(ends);
        }) {
            Ok(ending) => drop(ending.join()),
            Err(error) => tracing::warn!(%error, "the threads of queries were not waited for"),
        }
    }
}

fn temporary_folder() -> Result<TempDir, OpenError> {
    // The owner's alone, as any data folder.
    let made = tempfile::Builder::new()
        .prefix("aerostat-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir();
    made.map_err(OpenError::Temporary)
}

pub(crate) fn not_opened(path: PathBuf, source: NodeError) -> OpenError {
    match source {
        NodeError::Meta(MetaError::Locked { path }) => OpenError::InUse { path },
        source => OpenError::Node {
            path,
            source: Box::new(source),
        },
    }
}
