//! Cursors: DECLARE, FETCH, MOVE, CLOSE.
//!
//! ```text
//!  query ──► source ──► kept batches ──► FETCH
//!                       first .. read    position 0 = before the first row,
//!                                        n + 1 = after the last of n
//! ```
//!
//! A cursor's query runs while rows are fetched, and sees what its transaction saw at
//! DECLARE. Rows that were read are let go as they are passed, unless the cursor can
//! SCROLL. A cursor WITH HOLD reads all its rows when its transaction commits. Kept rows are
//! charged to the tenant's memory.

use std::{collections::HashMap, sync::Arc};

use aerostat_api::{ColumnDescription, Outcome, RowStream, RowsTag};
use aerostat_pgcatalog::CursorDescription;
use aerostat_query::Cancellation;
use aerostat_sql::{
    statement::{Source, Statement, StatementKind},
    tree::modifying::{is_dml, modifies_in_with},
    utility::{CursorCommand, Direction, Fragment},
};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    arrow::{
        array::{RecordBatch, UInt32Array},
        compute::take_record_batch,
    },
    execution::memory_pool::{MemoryConsumer, MemoryReservation},
    sql::sqlparser::ast,
};
use futures::StreamExt;
use parking_lot::Mutex;

use super::{
    ClientState, Executor, SessionView, TransactionState, plain,
    planning::Plans,
    prepared::Bound,
    reading::nested_statement,
    run::{Told, unsupported},
    stream::ready_within,
    too_many,
};

/// Open cursors of one session; as many as the protocol's portals.
const CURSORS_MAX: usize = 1_000;

/// The session's cursors by name.
#[derive(Default)]
pub(super) struct Cursors {
    by_name: HashMap<String, Cursor>,
    /// How many cursors the session has made.
    made: u64,
}

struct Cursor {
    /// The text that it was declared in, and when that was, in microseconds since 1970 UTC.
    statement: Arc<str>,
    declared_at_us: i64,
    columns: Arc<[ColumnDescription]>,
    /// Where rows come from; `None` once all are read.
    source: Option<Mutex<RowStream>>,
    kept: Vec<RecordBatch>,
    /// The number of the first kept row, from 1.
    first: u64,
    /// How many rows were read.
    read: u64,
    /// The row it stands on; 0 before the first, one more than there are after the last.
    position: u64,
    scroll: bool,
    hold: bool,
    /// Its number among all of the session's, if the transaction at hand has made it.
    made: Option<u64>,
    /// A FETCH has failed: it takes no other.
    failed: bool,
    reservation: MemoryReservation,
    /// The charge for the rows that were let go last, until the client has them.
    passed: MemoryReservation,
}

impl Cursors {
    /// A point to which [`Self::undo_since`] goes back.
    pub(super) fn mark(&self) -> u64 {
        self.made
    }

    /// Closes those made since the mark in the transaction at hand.
    pub(super) fn undo_since(&mut self, mark: u64) {
        self.by_name
            .retain(|_, cursor| cursor.made.is_none_or(|made| made < mark));
    }

    /// The transaction is rolled back.
    pub(super) fn rolled_back(&mut self) {
        self.undo_since(0);
    }

    /// Whether [`Self::hold`] has something to read.
    pub(super) fn must_read(&self) -> bool {
        let is_unread = |cursor: &Cursor| cursor.hold && cursor.source.is_some();
        self.by_name.values().any(is_unread)
    }

    /// The transaction is about to commit: cursors to be held are read to their end.
    ///
    /// # Errors
    /// Errors of the cursors' queries. Nothing may be committed then.
    pub(super) async fn hold(&mut self, cancellation: &Cancellation) -> Result<(), SqlError> {
        for cursor in self.by_name.values_mut().filter(|cursor| cursor.hold) {
            cursor.read_to(u64::MAX, cancellation).await?;
        }
        Ok(())
    }

    /// The transaction has committed.
    pub(super) fn committed(&mut self) {
        self.by_name.retain(|_, cursor| {
            cursor.made = None;
            cursor.hold
        });
    }

    pub(super) fn close_all(&mut self) {
        self.by_name.clear();
    }

    /// The columns of an open cursor.
    pub(super) fn columns(&self, name: &str) -> Option<Arc<[ColumnDescription]>> {
        let cursor = self.by_name.get(name)?;
        Some(Arc::clone(&cursor.columns))
    }

    /// The open cursors, by their names.
    pub(super) fn describe(&self) -> Vec<CursorDescription> {
        let describe = |(name, cursor): (&String, &Cursor)| CursorDescription {
            name: name.clone(),
            statement: Arc::clone(&cursor.statement),
            is_holdable: cursor.hold,
            is_scrollable: cursor.scroll,
            created_at_us: cursor.declared_at_us,
        };
        self.by_name.iter().map(describe).collect()
    }

    fn get(&mut self, name: &str) -> Result<&mut Cursor, SqlError> {
        self.by_name.get_mut(name).ok_or_else(|| missing(name))
    }
}

impl ClientState {
    pub(super) async fn run_cursor(
        &mut self,
        transaction: &TransactionState,
        executor: &Executor,
        command: &CursorCommand,
        source: &Source,
        bound: Option<&Bound<'_>>,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        match command {
            CursorCommand::Declare {
                name,
                scroll,
                hold,
                query,
            } => {
                if !hold && !transaction.machine.is_in_block() {
                    return Err(SqlError::new(
                        ErrorKind::NoActiveTransaction,
                        "DECLARE CURSOR can only be used in transaction blocks",
                    ));
                }
                let view = SessionView::of(self, transaction, executor);
                let mut cursor = view
                    .declare(name, query, source, bound, cancellation)
                    .await?;
                (cursor.scroll, cursor.hold) = (*scroll, *hold);
                if transaction.machine.is_idle() {
                    cursor.read_to(u64::MAX, cancellation).await?;
                } else {
                    cursor.made = Some(self.cursors.made);
                }
                self.cursors.made += 1;
                self.cursors.by_name.insert(name.clone(), cursor);
            }
            CursorCommand::Fetch {
                name,
                direction,
                is_move,
            } => {
                let cursor = self.cursors.get(name)?;
                if cursor.failed {
                    return Err(SqlError::new(
                        ErrorKind::ObjectNotInPrerequisiteState,
                        format!("portal \"{name}\" cannot be run"),
                    ));
                }
                let rows = cursor.fetch(*direction, cancellation).await;
                cursor.failed = rows.is_err();
                let rows = rows?;
                let passed = cursor.passed.take();
                if !is_move {
                    return Ok(Outcome::Rows {
                        columns: Arc::clone(&cursor.columns),
                        batches: ready_within(rows, passed),
                        tag: RowsTag::Fetch,
                    });
                }
                let passed: usize = rows.iter().map(RecordBatch::num_rows).sum();
                return Ok(Outcome::Command {
                    tag: format!("MOVE {passed}"),
                });
            }
            CursorCommand::Close(name) => {
                self.cursors.get(name)?;
                self.cursors.by_name.remove(name);
            }
            CursorCommand::CloseAll => self.cursors.close_all(),
        }
        Ok(Outcome::Command {
            tag: command.tag().to_owned(),
        })
    }
}

impl SessionView<'_> {
    /// Starts the cursor's query, with a life of its own: it is not stopped with DECLARE.
    async fn declare(
        self,
        name: &str,
        query: &Fragment,
        source: &Source,
        bound: Option<&Bound<'_>>,
        cancellation: &Cancellation,
    ) -> Result<Cursor, SqlError> {
        if self.client.cursors.by_name.len() >= CURSORS_MAX {
            return Err(too_many("cursors", CURSORS_MAX)
                .with_hint("Close those that are not needed any more."));
        }
        if self.client.cursors.by_name.contains_key(name) {
            return Err(SqlError::new(
                ErrorKind::DuplicateCursor,
                format!("cursor \"{name}\" already exists"),
            ));
        }
        let statement = cursor_query(query, source)?;
        let StatementKind::Sql(parsed) = &statement.kind else {
            return Err(SqlError::new(ErrorKind::Internal, "a cursor has no query"));
        };
        let parsed = &Bound::write_arrays(bound, parsed);
        let own = Cancellation::without_timeout();
        let started = tokio::select! {
            biased;
            error = cancellation.stopped() => return Err(error),
            started = self.run_query(parsed, &statement.source, bound, Plans::Kept, Told::AtOnce, &own) => started?,
        };
        let Outcome::Rows {
            columns, batches, ..
        } = started
        else {
            return Err(SqlError::new(ErrorKind::Internal, "a query gave no rows"));
        };
        let pool = &self.executor.state.runtime_env().memory_pool;
        let reservation = MemoryConsumer::new("cursor").register(pool);
        Ok(Cursor {
            statement: Arc::clone(&source.text),
            declared_at_us: chrono::Utc::now().timestamp_micros(),
            columns,
            source: Some(Mutex::new(batches)),
            kept: Vec::new(),
            first: 1,
            read: 0,
            position: 0,
            scroll: false,
            hold: false,
            made: None,
            failed: false,
            passed: reservation.new_empty(),
            reservation,
        })
    }
}

/// The query of a DECLARE.
///
/// # Errors
/// It is no query, or one that changes rows.
pub(super) fn cursor_query(query: &Fragment, source: &Source) -> Result<Statement, SqlError> {
    let statement = nested_statement(query, source)?;
    match &statement.kind {
        StatementKind::Sql(parsed) => match &**parsed {
            ast::Statement::Query(query) if modifies_in_with(query) => Err(SqlError::new(
                ErrorKind::FeatureNotSupported,
                "DECLARE CURSOR must not contain data-modifying statements in WITH",
            )),
            ast::Statement::Query(query) if !is_dml(query) => Ok(statement),
            other => Err(unsupported(other)),
        },
        _ => Err(SqlError::new(
            ErrorKind::SyntaxError,
            "a cursor takes a query",
        )),
    }
}

impl Cursor {
    /// Reads on until there are so many rows, or no more.
    async fn read_to(&mut self, row: u64, cancellation: &Cancellation) -> Result<(), SqlError> {
        while self.read < row
            && let Some(source) = &mut self.source
        {
            let next = tokio::select! {
                biased;
                error = cancellation.stopped() => return Err(error),
                next = source.get_mut().next() => next,
            };
            let Some(batch) = next.transpose()? else {
                self.source = None;
                break;
            };
            self.reservation
                .try_grow(batch.get_array_memory_size())
                .map_err(plain)?;
            self.read += batch.num_rows() as u64;
            self.kept.push(batch);
        }
        Ok(())
    }

    /// Goes where the direction says, and gives the rows on the way that FETCH returns.
    async fn fetch(
        &mut self,
        direction: Direction,
        cancellation: &Cancellation,
    ) -> Result<Vec<RecordBatch>, SqlError> {
        let at = self.position;
        match direction {
            Direction::Forward(count) => {
                let to = count.map_or(u64::MAX, |count| at.saturating_add(count));
                self.read_to(to, cancellation).await?;
                let rows = self.rows(at + 1, to.min(self.read));
                self.stand_on(to);
                Ok(rows)
            }
            Direction::Backward(count) => {
                self.require_scroll()?;
                let down = count.map_or(0, |count| at.saturating_sub(count));
                let rows = self.rows(down.max(1), at.saturating_sub(1));
                self.stand_on(down);
                rows.iter().rev().map(reversed).collect()
            }
            Direction::Absolute(row) if row < 0 => {
                self.require_scroll()?;
                self.read_to(u64::MAX, cancellation).await?;
                let row = (self.read + 1).saturating_sub(row.unsigned_abs());
                self.fetch_row(row, cancellation).await
            }
            Direction::Absolute(row) => self.fetch_row(row.unsigned_abs(), cancellation).await,
            Direction::Relative(by) => {
                let row = at.saturating_add_signed(by);
                self.fetch_row(row, cancellation).await
            }
        }
    }

    /// The one row of this number, if there is one.
    async fn fetch_row(
        &mut self,
        row: u64,
        cancellation: &Cancellation,
    ) -> Result<Vec<RecordBatch>, SqlError> {
        if row <= self.position {
            self.require_scroll()?;
        }
        self.read_to(row, cancellation).await?;
        let rows = if (1..=self.read).contains(&row) {
            self.rows(row, row)
        } else {
            Vec::new()
        };
        self.stand_on(row);
        Ok(rows)
    }

    /// Moves, to after the last row at most. A cursor that cannot go back lets go of the rows that it
    /// has passed.
    fn stand_on(&mut self, row: u64) {
        self.position = row.min(self.read + 1);
        if self.scroll {
            return;
        }
        let passed = self.position.min(self.read);
        let (mut kept, mut bytes) = (0, 0);
        while let Some(batch) = self.kept.get(kept)
            && self.first + batch.num_rows() as u64 <= passed + 1
        {
            self.first += batch.num_rows() as u64;
            bytes += batch.get_array_memory_size();
            kept += 1;
        }
        self.passed = self.reservation.split(bytes);
        self.kept.drain(..kept);
    }

    /// The kept rows of these numbers, both included.
    fn rows(&self, from: u64, to: u64) -> Vec<RecordBatch> {
        let mut rows = Vec::new();
        let mut begin = self.first;
        for batch in &self.kept {
            let end = begin + batch.num_rows() as u64;
            let (low, high) = (from.max(begin), (to + 1).min(end));
            if low < high {
                rows.push(batch.slice((low - begin) as usize, (high - low) as usize));
            }
            begin = end;
        }
        rows
    }

    fn require_scroll(&self) -> Result<(), SqlError> {
        if self.scroll {
            return Ok(());
        }
        Err(SqlError::new(
            ErrorKind::ObjectNotInPrerequisiteState,
            "cursor can only scan forward",
        )
        .with_hint("Declare it with SCROLL option to enable backward scan."))
    }
}

fn reversed(batch: &RecordBatch) -> Result<RecordBatch, SqlError> {
    let order: UInt32Array = (0..batch.num_rows() as u32).rev().collect();
    take_record_batch(batch, &order).map_err(|error| plain(error.into()))
}

fn missing(name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::InvalidCursorName,
        format!("cursor \"{name}\" does not exist"),
    )
}
