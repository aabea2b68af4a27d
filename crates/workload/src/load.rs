//! The bulk loader: creates a data set's tables and fills them by COPY over
//! several connections.
//!
//! ```text
//!  blocking thread        channel               task
//!  generate chunk ─► [CHUNKS_IN_FLIGHT] ─► COPY t FROM STDIN ─► connection 0
//!  generate chunk ─► [CHUNKS_IN_FLIGHT] ─► COPY t FROM STDIN ─► connection 1
//!        ▲
//!        └─ next run of CHUNKS_PER_COPY chunks, off one shared counter
//! ```
//!
//! Tables are loaded one after another, each over all connections. A COPY covers
//! a contiguous run of chunks, so it brings ascending primary keys, and it is one
//! transaction, so a failed load leaves whole runs and nothing in between.

use std::error::Error;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use aerostat_pgclient::Server;
use bytes::Bytes;
use futures::{SinkExt, Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use crate::copy::Format;
use crate::dataset::{Dataset, DatasetTable};

/// Chunks generated ahead of each connection: enough that neither the generator
/// nor the connection waits for single chunks, about 4 MB per connection.
pub const CHUNKS_IN_FLIGHT: usize = 4;

/// Chunks per COPY, about half a million rows: large enough that a statement's
/// fixed cost vanishes, small enough that no transaction spans the whole table.
pub const CHUNKS_PER_COPY: u64 = 64;

/// Largest CopyData message sent. A server buffers a message whole before it
/// reads it.
pub const COPY_FRAME_BYTES_MAX: usize = 64 * 1024;

/// How to load.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Number of connections.
    pub connections: NonZeroUsize,
    /// Whether tables of the same names are dropped first. Without it, loading
    /// fails where one exists.
    pub replace: bool,
    /// The layouts of the tables.
    pub layouts: Layouts,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            connections: NonZeroUsize::new(2).expect("two is not zero"),
            replace: false,
            layouts: Layouts::default(),
        }
    }
}

/// Which layout each table gets; none at all for a server that knows no layouts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layouts {
    /// The layout of every table without one of its own, such as `column`.
    pub every: Option<String>,
    /// Layouts of single tables, such as `('lineorder', '(a,b),(c)')`.
    pub tables: Vec<(String, String)>,
}

impl Layouts {
    /// The same layout for every table.
    pub fn all(layout: impl Into<String>) -> Self {
        Self {
            every: Some(layout.into()),
            tables: Vec::new(),
        }
    }

    /// The layout of `table`, if it has one.
    pub fn of(&self, table: &str) -> Option<&str> {
        let own = self.tables.iter().find(|(name, _)| name == table);
        own.map(|(_, layout)| layout.as_str())
            .or(self.every.as_deref())
    }
}

/// Watches a load. Calls come from the loading tasks and must return quickly.
pub trait Progress: Send + Sync {
    /// A table's load begins; `rows_expected` is exact for all tables but TPC-H's
    /// `lineitem`.
    fn table_started(&self, _table: &str, _rows_expected: u64) {}
    /// That many more rows and bytes of a table were handed to the server.
    fn advanced(&self, _table: &str, _rows: u64, _bytes: u64) {}
    /// A table is complete.
    fn table_finished(&self, _report: &TableReport) {}
}

/// Watches nothing.
impl Progress for () {}

/// What a load did.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct LoadReport {
    /// Rows of all tables.
    pub rows: u64,
    /// COPY bytes of all tables.
    pub bytes: u64,
    /// Seconds, with creating the tables.
    pub elapsed_s: f64,
    /// The tables in loading order.
    pub tables: Vec<TableReport>,
}

/// What loading one table did.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct TableReport {
    /// SQL name.
    pub table: String,
    /// Rows the server says it took.
    pub rows: u64,
    /// COPY bytes sent.
    pub bytes: u64,
    /// Seconds.
    pub elapsed_s: f64,
}

/// Why a load failed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No connection.
    #[error("cannot connect")]
    Connect(#[source] tokio_postgres::Error),
    /// A statement other than COPY failed.
    #[error("statement failed: {statement}")]
    Statement {
        /// The statement's first line.
        statement: String,
        /// The server's error.
        #[source]
        source: tokio_postgres::Error,
    },
    /// A COPY failed.
    #[error("copy failed: {statement}")]
    Copy {
        /// The COPY statement.
        statement: String,
        /// The server's error.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The source of the bytes failed.
    #[error("cannot read the data to copy")]
    Source(#[source] Box<dyn Error + Send + Sync>),
    /// The server took another number of rows than was sent.
    #[error("table {table}: {sent} rows were sent, the server took {taken}")]
    RowCount {
        /// The table.
        table: String,
        /// Rows sent.
        sent: u64,
        /// Rows the server reported.
        taken: u64,
    },
    /// A task of the load died.
    #[error("a loading task ended early")]
    Task(#[source] tokio::task::JoinError),
}

/// Creates and fills the tables of `dataset`.
///
/// # Errors
/// The first [`LoadError`] of any connection; the others stop.
pub async fn load(
    server: &Server,
    dataset: Dataset,
    options: &LoadOptions,
    progress: Arc<dyn Progress>,
) -> Result<LoadReport, LoadError> {
    let started = Instant::now();
    let mut clients = Vec::new();
    for _ in 0..options.connections.get() {
        clients.push(connect(server).await?);
    }
    let tables = dataset.tables();
    create_tables(&clients[0], &tables, options).await?;
    let mut report = LoadReport::default();
    for table in tables {
        let loaded = load_table(&mut clients, dataset, table, &progress).await?;
        progress.table_finished(&loaded);
        report.rows += loaded.rows;
        report.bytes += loaded.bytes;
        report.tables.push(loaded);
    }
    report.elapsed_s = started.elapsed().as_secs_f64();
    Ok(report)
}

/// Connects; the connection lives until the client is dropped.
///
/// # Errors
/// [`LoadError::Connect`].
pub async fn connect(server: &Server) -> Result<Client, LoadError> {
    server.connect().await.map_err(LoadError::Connect)
}

/// What a COPY took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// Rows the server reported.
    pub rows: u64,
    /// Bytes sent.
    pub bytes: u64,
}

/// Runs a `COPY … FROM STDIN` statement over a stream of bytes. Items need not end
/// at row ends. Nothing is buffered beyond one frame, so a slow server slows the
/// stream down.
///
/// # Errors
/// [`LoadError::Copy`] when the server refuses, [`LoadError::Source`] when the
/// stream fails; then the COPY is aborted and leaves no row.
pub async fn copy_bytes<S, E>(
    client: &Client,
    statement: &str,
    stream: S,
) -> Result<Copied, LoadError>
where
    S: Stream<Item = Result<Bytes, E>>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let failed = |source| LoadError::Copy {
        statement: statement.to_owned(),
        source,
    };
    let mut stream = pin!(stream);
    let mut sink = pin!(
        client
            .copy_in::<_, Bytes>(statement)
            .await
            .map_err(failed)?
    );
    let mut bytes = 0;
    while let Some(item) = stream.next().await {
        let mut rest = item.map_err(|error| LoadError::Source(error.into()))?;
        while !rest.is_empty() {
            let frame = rest.split_to(rest.len().min(COPY_FRAME_BYTES_MAX));
            bytes += frame.len() as u64;
            sink.send(frame).await.map_err(failed)?;
        }
    }
    let rows = sink.finish().await.map_err(failed)?;
    Ok(Copied { rows, bytes })
}

async fn create_tables(
    client: &Client,
    tables: &[DatasetTable],
    options: &LoadOptions,
) -> Result<(), LoadError> {
    for table in tables {
        if options.replace {
            let drop = format!("DROP TABLE IF EXISTS {}", table.name);
            execute(client, &drop).await?;
        }
        let create = table.create_table(options.layouts.of(table.name));
        execute(client, &create).await?;
    }
    Ok(())
}

async fn execute(client: &Client, sql: &str) -> Result<(), LoadError> {
    let result = client.batch_execute(sql).await;
    result.map_err(|source| LoadError::Statement {
        statement: sql.lines().next().unwrap_or_default().to_owned(),
        source,
    })
}

/// Loads one table over all connections, which it gives back.
async fn load_table(
    clients: &mut Vec<Client>,
    dataset: Dataset,
    table: DatasetTable,
    progress: &Arc<dyn Progress>,
) -> Result<TableReport, LoadError> {
    let started = Instant::now();
    progress.table_started(table.name, table.rows_expected);
    let job = Arc::new(TableJob {
        dataset,
        table,
        next_run: AtomicU64::new(0),
        progress: Arc::clone(progress),
    });
    // Dropping the set on an error aborts the workers, and with their channels
    // gone the generators stop too.
    let mut workers = JoinSet::new();
    for client in clients.drain(..) {
        let job = Arc::clone(&job);
        workers.spawn(async move {
            let copied = job.work(&client).await?;
            Ok::<_, LoadError>((client, copied))
        });
    }
    let mut total = Copied::default();
    while let Some(done) = workers.join_next().await {
        let (client, copied) = done.map_err(LoadError::Task)??;
        clients.push(client);
        total.rows += copied.rows;
        total.bytes += copied.bytes;
    }
    Ok(TableReport {
        table: table.name.to_owned(),
        rows: total.rows,
        bytes: total.bytes,
        elapsed_s: started.elapsed().as_secs_f64(),
    })
}

/// A table being loaded, shared by the connections.
struct TableJob {
    dataset: Dataset,
    table: DatasetTable,
    next_run: AtomicU64,
    progress: Arc<dyn Progress>,
}

impl TableJob {
    /// Takes runs of chunks until none is left.
    async fn work(self: Arc<Self>, client: &Client) -> Result<Copied, LoadError> {
        let mut total = Copied::default();
        loop {
            // Only the counter itself is shared, so no ordering is needed.
            let first = self.next_run.fetch_add(1, Ordering::Relaxed) * CHUNKS_PER_COPY;
            if first >= self.table.chunks {
                return Ok(total);
            }
            let copied = self.copy_run(client, first).await?;
            total.rows += copied.rows;
            total.bytes += copied.bytes;
        }
    }

    async fn copy_run(self: &Arc<Self>, client: &Client, first: u64) -> Result<Copied, LoadError> {
        let (sender, mut receiver) = mpsc::channel(CHUNKS_IN_FLIGHT);
        let job = Arc::clone(self);
        let generator = tokio::task::spawn_blocking(move || job.generate(first, &sender));
        let mut sent = 0;
        let chunks = futures::stream::poll_fn(|context| receiver.poll_recv(context));
        let bytes = chunks.map(|(rows, bytes): (u64, Bytes)| {
            sent += rows;
            self.progress
                .advanced(self.table.name, rows, bytes.len() as u64);
            Ok::<_, LoadError>(bytes)
        });
        let statement = Format::Text.copy_statement(self.table.name);
        let copied = copy_bytes(client, &statement, bytes).await?;
        // A generator that died has sent too few rows without the server knowing.
        generator.await.map_err(LoadError::Task)?;
        if copied.rows == sent {
            Ok(copied)
        } else {
            Err(LoadError::RowCount {
                table: self.table.name.to_owned(),
                sent,
                taken: copied.rows,
            })
        }
    }

    /// Makes the chunks of one run; stops early when nobody receives them.
    fn generate(&self, first: u64, sender: &mpsc::Sender<(u64, Bytes)>) {
        let end = (first + CHUNKS_PER_COPY).min(self.table.chunks);
        let mut size = 0;
        for chunk in first..end {
            let mut out = Vec::with_capacity(size);
            let rows = self.dataset.copy_chunk(&self.table, chunk, &mut out);
            size = out.len();
            if sender.blocking_send((rows, out.into())).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tables_own_layout_wins() {
        let layouts = Layouts {
            every: Some("column".to_owned()),
            tables: vec![("dates".to_owned(), "row".to_owned())],
        };
        assert_eq!(layouts.of("dates"), Some("row"));
        assert_eq!(layouts.of("part"), Some("column"));
        assert_eq!(Layouts::default().of("part"), None);
        assert_eq!(Layouts::all("auto").of("part"), Some("auto"));
    }
}
