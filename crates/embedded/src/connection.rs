//! One session, and the results of its statements.

use std::{fmt, sync::Arc};

use aerostat_api::{
    ColumnDescription, Group, Notice, Outcome, RowStream, RowsTag, TransactionStatus, Value, Zone,
};
use aerostat_engine::{CancelHandle, Session};
use aerostat_types::{ErrorKind, SqlError};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use futures::StreamExt;
use tokio::runtime::Handle;

use crate::{Aerostat, Statement, values, wait::block_on};

/// A role in a database. It keeps the database open, may go from thread to thread, and works on
/// one statement at a time; several connections work side by side. A block that is open when
/// it is dropped is rolled back.
pub struct Connection {
    // Gone before the database is closed.
    session: Session,
    database: Aerostat,
    /// Shared with the statements that it has prepared.
    identity: Arc<()>,
}

/// How a statement ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its words, as `psql` shows them: `CREATE TABLE`, `INSERT 0 5`; empty for an empty text.
    pub tag: String,
    /// Rows changed or returned.
    pub rows: u64,
}

impl Done {
    fn of(tag: String) -> Self {
        let rows = tag.rsplit(' ').next().and_then(|word| word.parse().ok());
        Self {
            rows: rows.unwrap_or(0),
            tag,
        }
    }
}

impl Connection {
    pub(crate) fn new(session: Session, database: Aerostat) -> Self {
        Self {
            session,
            database,
            identity: Arc::default(),
        }
    }

    /// Runs the statements of a text, to their end. They are one transaction, unless there is
    /// a block or they make blocks: all of them happen, or none. Rows that they return are
    /// only counted.
    ///
    /// # Errors
    /// Anything that can be wrong with a statement.
    pub fn execute(&mut self, sql: &str) -> Result<Done, SqlError> {
        let done = self.run_all(sql);
        self.end(done)
    }

    fn run_all(&mut self, sql: &str) -> Result<Done, SqlError> {
        let statements = self.wait_for(async |session| session.split(sql).await)?;
        if statements.len() > 1 {
            self.session.begin_group(Group::Message);
        }
        let mut last = Done::of(String::new());
        for statement in &statements {
            let outcome = self.wait_for(async |session| session.execute(statement).await)?;
            let (mut rows, _) = Reading::of(outcome)?;
            while rows.next(self.database.queries()).transpose()?.is_some() {}
            last = rows.done();
        }
        self.wait_for(async |session| session.end_group().await)?;
        Ok(last)
    }

    /// Runs one statement; its rows come while it runs.
    ///
    /// # Errors
    /// Anything that can be wrong with a statement before its first row.
    pub fn query(&mut self, sql: &str) -> Result<Rows<'_>, SqlError> {
        let outcome = self.run_one(sql);
        self.rows(outcome)
    }

    fn run_one(&mut self, sql: &str) -> Result<Outcome, SqlError> {
        let statements = self.wait_for(async |session| session.split(sql).await)?;
        match &statements[..] {
            [] => Ok(Outcome::Empty),
            [statement] => self.wait_for(async |session| session.execute(statement).await),
            several => Err(SqlError::new(
                ErrorKind::SyntaxError,
                format!("{} statements were given where one is run", several.len()),
            )
            .with_hint("Connection::execute runs several.")),
        }
    }

    /// Prepares one statement, with parameters `$1`, `$2` and so on if it has any. A text that
    /// was prepared before is only looked up.
    ///
    /// # Errors
    /// Anything that can be wrong with a statement before it runs.
    pub fn prepare(&mut self, sql: &str) -> Result<Statement, SqlError> {
        let prepared = self.wait_for(async |session| session.prepare(sql, &[]).await);
        let prepared = self.end(prepared)?;
        Ok(Statement::new(prepared, Arc::clone(&self.identity)))
    }

    /// Runs a statement that this connection has prepared.
    pub(crate) fn run_prepared(
        &mut self,
        statement: &Statement,
        parameters: &Arc<[Value]>,
    ) -> Result<Rows<'_>, SqlError> {
        let prepared = statement.prepared();
        let outcome =
            self.wait_for(async |session| session.execute_prepared(prepared, parameters).await);
        self.rows(outcome)
    }

    /// Whether it is the one with this identity.
    pub(crate) fn is(&self, identity: &Arc<()>) -> bool {
        Arc::ptr_eq(&self.identity, identity)
    }

    pub(crate) fn zone(&self) -> Zone {
        self.session.time_zone()
    }

    /// Begins `COPY table (columns) FROM STDIN`: the fastest way for many rows.
    ///
    /// # Errors
    /// Anything that can be wrong with the statement, or that it is another.
    pub fn copy_in(&mut self, sql: &str) -> Result<CopyIn<'_>, SqlError> {
        let outcome = self.run_one(sql).and_then(|outcome| match outcome {
            Outcome::CopyIn(copy) => Ok(copy),
            _ => Err(SqlError::new(
                ErrorKind::WrongObjectType,
                "the statement is no COPY FROM STDIN",
            )),
        });
        match outcome {
            Ok(copy) => Ok(CopyIn {
                copy: Some(copy),
                connection: self,
            }),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// The way to stop the running statement from another thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.session.cancel_handle()
    }

    /// Whether a transaction block is open.
    pub fn status(&self) -> TransactionStatus {
        self.session.status()
    }

    /// What was said beside the results since the last call: notices and warnings.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.session.take_notices()
    }

    /// The zone in which `timestamptz` values are read, and should be shown.
    pub fn time_zone(&self) -> Zone {
        self.zone()
    }

    fn wait_for<T>(&mut self, work: impl AsyncFnOnce(&mut Session) -> T) -> T {
        block_on(self.database.queries(), work(&mut self.session))
    }

    /// Takes what a statement came to as its rows.
    fn rows(&mut self, outcome: Result<Outcome, SqlError>) -> Result<Rows<'_>, SqlError> {
        match outcome.and_then(Reading::of) {
            Ok((reading, columns)) => Ok(Rows {
                reading,
                columns,
                connection: self,
            }),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// After a statement without rows that are still to come.
    fn end<T>(&mut self, result: Result<T, SqlError>) -> Result<T, SqlError> {
        match result {
            Ok(done) => {
                self.session.rest();
                Ok(done)
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed(&mut self, error: SqlError) -> SqlError {
        self.session.fail();
        self.session.rest();
        error
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("database", &self.session.database())
            .field("number", &self.session.number())
            .finish_non_exhaustive()
    }
}

/// Rows that are read, and how they end.
struct Reading {
    /// Until the last row has come.
    batches: Option<RowStream>,
    end: End,
    rows: u64,
}

enum End {
    Rows(RowsTag),
    Copy,
    Done(String),
}

type Columns = Option<Arc<[ColumnDescription]>>;

impl Reading {
    fn of(outcome: Outcome) -> Result<(Self, Columns), SqlError> {
        let (batches, end, columns) = match outcome {
            Outcome::Rows {
                columns,
                batches,
                tag,
            } => (Some(batches), End::Rows(tag), Some(columns)),
            Outcome::CopyOut(copy) => (Some(copy.batches), End::Copy, Some(copy.columns)),
            Outcome::Command { tag } => (None, End::Done(tag), None),
            Outcome::Empty => (None, End::Done(String::new()), None),
            // Dropping it takes the COPY back.
            Outcome::CopyIn(_) => {
                return Err(SqlError::new(
                    ErrorKind::FeatureNotSupported,
                    "COPY FROM STDIN has no data here",
                )
                .with_hint("Connection::copy_in takes them as Arrow batches."));
            }
        };
        let reading = Self {
            batches,
            end,
            rows: 0,
        };
        Ok((reading, columns))
    }

    fn next(&mut self, queries: &Handle) -> Option<Result<RecordBatch, SqlError>> {
        let next = block_on(queries, self.batches.as_mut()?.next());
        match &next {
            Some(Ok(batch)) => self.rows += batch.num_rows() as u64,
            Some(Err(_)) | None => self.batches = None,
        }
        next
    }

    fn done(&self) -> Done {
        match &self.end {
            End::Rows(tag) => Done {
                tag: tag.after(self.rows),
                rows: self.rows,
            },
            End::Copy => Done {
                tag: format!("COPY {}", self.rows),
                rows: self.rows,
            },
            End::Done(tag) => Done::of(tag.clone()),
        }
    }
}

/// The rows of a statement, as Arrow batches in their order. Dropping them ends the statement.
pub struct Rows<'c> {
    // Ends before the connection goes on.
    reading: Reading,
    columns: Columns,
    connection: &'c mut Connection,
}

impl Rows<'_> {
    /// The columns, as many as each batch has; `None` if the statement returns no rows.
    pub fn columns(&self) -> Option<&Arc<[ColumnDescription]>> {
        self.columns.as_ref()
    }

    /// Reads what is left, and says how the statement ended.
    ///
    /// # Errors
    /// The statement has failed meanwhile.
    pub fn finish(mut self) -> Result<Done, SqlError> {
        self.by_ref().try_for_each(|batch| batch.map(drop))?;
        Ok(self.reading.done())
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<RecordBatch, SqlError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.reading.next(self.connection.database.queries());
        if matches!(next, Some(Err(_))) {
            self.connection.session.fail();
        }
        next
    }
}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        self.reading.batches = None;
        self.connection.session.rest();
    }
}

impl fmt::Debug for Rows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows")
            .field("columns", &self.columns)
            .field("rows", &self.reading.rows)
            .finish_non_exhaustive()
    }
}

/// COPY FROM under way. Dropping it copies nothing.
pub struct CopyIn<'c> {
    /// Until it is finished.
    copy: Option<aerostat_api::CopyIn>,
    connection: &'c mut Connection,
}

impl CopyIn<'_> {
    /// The columns that a batch has, in order; each as [`aerostat_types::SqlType::arrow`] says.
    pub fn columns(&self) -> &[aerostat_api::CopyColumn] {
        self.copy.as_ref().map_or(&[], |copy| &copy.columns)
    }

    /// Takes rows, and waits while the engine is behind.
    ///
    /// # Errors
    /// A batch that is none of these columns, or has a value that its column's type does not:
    /// nothing of it is taken, and other batches may follow. What the engine refuses: the
    /// statement has failed then.
    pub fn write(&mut self, batch: RecordBatch) -> Result<(), SqlError> {
        let copy = self.copy.as_mut().ok_or_else(failed_before)?;
        let batch = fitted(&copy.columns, &batch)?;
        let written = block_on(self.connection.database.queries(), copy.write(batch));
        if written.is_err() {
            self.copy = None;
            self.connection.session.fail();
        }
        written
    }

    /// Commits the rows, or keeps them for their block.
    ///
    /// # Errors
    /// What the engine refuses; nothing was copied then.
    pub fn finish(mut self) -> Result<Done, SqlError> {
        let copy = self.copy.take().ok_or_else(failed_before)?;
        let tag = block_on(self.connection.database.queries(), copy.finish());
        if tag.is_err() {
            self.connection.session.fail();
        }
        tag.map(Done::of)
    }
}

impl Drop for CopyIn<'_> {
    fn drop(&mut self) {
        if let Some(copy) = self.copy.take() {
            block_on(self.connection.database.queries(), copy.abort());
            self.connection.session.fail();
        }
        self.connection.session.rest();
    }
}

fn failed_before() -> SqlError {
    SqlError::new(
        ErrorKind::ObjectNotInPrerequisiteState,
        "the COPY has failed before",
    )
}

/// The rows as their columns keep them.
fn fitted(
    columns: &[aerostat_api::CopyColumn],
    batch: &RecordBatch,
) -> Result<RecordBatch, SqlError> {
    let mismatch = |message| SqlError::new(ErrorKind::DatatypeMismatch, message);
    if batch.num_columns() != columns.len() {
        return Err(mismatch(format!(
            "a batch has {} columns where {} are copied",
            batch.num_columns(),
            columns.len()
        )));
    }
    let arrays = columns.iter().zip(batch.columns()).map(|(column, array)| {
        if *array.data_type() != column.ty.arrow() {
            return Err(mismatch(format!(
                "column \"{}\" is {} in Arrow, not {}",
                column.name,
                column.ty.arrow(),
                array.data_type()
            )));
        }
        values::fitted(array, column.ty).map_err(|mut error| {
            let at = format!("COPY, column \"{}\", type {}.", column.name, column.ty);
            error.detail.get_or_insert(at);
            error
        })
    });
    let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), arrays, &options)
        .map_err(|error| mismatch(error.to_string()))
}
