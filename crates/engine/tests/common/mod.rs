//! An engine in a temporary folder, and statements whose results are texts.

#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use aerostat_api::{CopyIn, Outcome};
use aerostat_engine::{
    Engine, EngineOptions, NoObserver, QUERY_STACK_BYTES, Session, StatementOptions,
};
use aerostat_memory::Governor;
use aerostat_storage::backup::Folders;
use aerostat_types::{ByteSize, ErrorKind, SqlError};
use arrow::{
    array::RecordBatch,
    util::display::{ArrayFormatter, FormatOptions},
};
use futures::StreamExt;
use tempfile::TempDir;

/// A generator whose numbers a seed fixes: PCG's multiplier and increment.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    pub(crate) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }
}

/// An engine, its runtime and its folder.
pub(crate) struct Fixture {
    pub engine: Arc<Engine>,
    pub runtime: tokio::runtime::Runtime,
    _ends: tokio::runtime::Runtime,
    _folder: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with_memory(1 << 30)
    }

    pub(crate) fn with_memory(bytes: u64) -> Self {
        Self::of(bytes, 512, StatementOptions::default())
    }

    /// With so many threads for what blocks.
    pub(crate) fn of(memory: u64, blocking_max: usize, statements: StatementOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(blocking_max)
            .thread_stack_size(QUERY_STACK_BYTES)
            .enable_all()
            .build()
            .unwrap();
        let ends = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let engine = Engine::open(EngineOptions {
            data: folder.path().to_owned(),
            governor: Governor::new(ByteSize(memory)),
            queries: runtime.handle().clone(),
            ends: ends.handle().clone(),
            threads: 2,
            observer: Arc::new(NoObserver),
            places: Arc::new(Folders),
            machine: aerostat_advice::Machine::default(),
            spill: aerostat_engine::SpillLimits::default(),
            opening: aerostat_engine::Opening::Eager,
            statements,
            shared: None,
        })
        .unwrap();
        Self {
            engine,
            runtime,
            _ends: ends,
            _folder: folder,
        }
    }

    pub(crate) fn session(&self) -> Session {
        self.engine.connect("aerostat", "aerostat", &[]).unwrap()
    }

    /// Runs a message; the result of its last statement, rows as `a|b` lines.
    pub(crate) fn run(&self, session: &mut Session, sql: &str) -> Result<Vec<String>, SqlError> {
        self.runtime.block_on(run(session, sql))
    }

    /// As [`Fixture::run`], for statements that must succeed.
    pub(crate) fn ok(&self, session: &mut Session, sql: &str) -> Vec<String> {
        self.run(session, sql)
            .unwrap_or_else(|error| panic!("{sql}\n{error:?}"))
    }

    /// The error of a statement that must fail.
    pub(crate) fn error(&self, session: &mut Session, sql: &str) -> SqlError {
        match self.run(session, sql) {
            Ok(rows) => panic!("{sql}\ngave {rows:?}"),
            Err(error) => error,
        }
    }

    /// As [`Fixture::error`], its kind alone.
    pub(crate) fn kind(&self, session: &mut Session, sql: &str) -> ErrorKind {
        self.error(session, sql).kind
    }
}

pub(crate) async fn run(session: &mut Session, sql: &str) -> Result<Vec<String>, SqlError> {
    let mut last = Vec::new();
    for statement in session.split(sql).await? {
        last = rows_of(session.execute(&statement).await?).await?;
    }
    Ok(last)
}

pub(crate) async fn rows_of(outcome: Outcome) -> Result<Vec<String>, SqlError> {
    match outcome {
        Outcome::Rows {
            mut batches,
            columns,
            ..
        } => {
            let mut rows = Vec::new();
            while let Some(batch) = batches.next().await {
                let batch = batch?;
                assert_eq!(batch.num_columns(), columns.len());
                rows.extend(texts(&batch));
            }
            Ok(rows)
        }
        Outcome::Command { tag } => Ok(vec![tag]),
        Outcome::Empty => Ok(Vec::new()),
        Outcome::CopyIn(_) | Outcome::CopyOut(_) => panic!("a COPY"),
    }
}

pub(crate) async fn copy_in(session: &mut Session, sql: &str) -> Result<CopyIn, SqlError> {
    let statement = session.split(sql).await?.remove(0);
    match session.execute(&statement).await? {
        Outcome::CopyIn(copy) => Ok(copy),
        other => panic!("{other:?}"),
    }
}

/// The rows of a batch as `a|b`, NULL as nothing.
pub(crate) fn texts(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::new().with_null("");
    let formatters: Vec<_> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
        .collect();
    (0..batch.num_rows())
        .map(|row| {
            formatters
                .iter()
                .map(|f| f.value(row).to_string())
                .collect::<Vec<_>>()
                .join("|")
        })
        .collect()
}
