//! The guard: every statement that runs has come through [`Session::pass`], and nothing else decides
//! whether it may, or what becomes of its transaction.
//!
//! ```text
//!  execute           a message of the simple protocol ──┐
//!  execute_prepared  Execute, and in process ───────────┤
//!                                                       ▼
//!                                                          by key  control  planned
//!   1  the transaction's time, if no block is open            ●       ●        ●
//!   2  what may stop it: a request, its timeout             waits              ●
//!   3  a failed block takes only its exits      (25P02)     plans     ●        ●
//!   4  a read-only one takes no changes         (25006)     plans              ●
//!   5  its place among those that run   (53300, 57014)       limited           ●
//!   6  blocks: entered, committed, or no place  (25001)     plans     ●        ●
//!   7  it runs                                                ●       ●        ●
//!   8  an error undoes it; a block of its own commits         ●       ●        ●
//!   9  outside of blocks what was SET LOCAL ends                      ●        ●
//!  10  pg_stat_activity                                       ●       ●        ●
//!  11  the observer, of rows that come yet with the last      ●       ●        ●
//! ```
//!
//! The three ways differ in what a statement can do. One *by key* ([`Executor::run_fast`]) is declined where
//! a step has something to say to it, and comes again as a planned one; it begins to be stopped when it
//! begins to wait, sets nothing, and has a place only where its database has a bound ([`places`](super::places)). *Control* is BEGIN, COMMIT and their like: they plan nothing and
//! change nothing by themselves, and no request stops what they wait for; their step 6 is an event of
//! their own.
//!
//! A statement within another has passed as a part of it: the statement of EXECUTE, the query or change of
//! COPY and EXPLAIN, the query of DECLARE. The outer statement does not tell what the inner one changes, so
//! these do step 4 again ([`SessionView::admit_dml`]). Preparing, and going on with a portal, do step 3 alone
//! ([`Machine::admit`](super::machine::Machine::admit)).

use std::{sync::Arc, time::Instant};

use aerostat_api::{Outcome, Value};
use aerostat_sql::{
    statement::{Statement, StatementKind},
    utility::{TransactionCommand, Utility},
};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::ast;

use super::{
    Executor, Running, Session,
    admission::kind_of,
    command::run_utility,
    fast::ByKey,
    planning::Plans,
    prepared::{Bound, Prepared, without_blanks},
    reading::{Form, Sent, Tree},
    stream::observed,
};
use crate::engine::StatementRecord;

/// A statement, and the way it takes.
enum Asked<'a> {
    ByKey(ByKey<'a>),
    Control(&'a TransactionCommand, &'a Statement),
    /// With its parameters, if it has been prepared.
    Planned(&'a Statement, Option<&'a Bound<'a>>),
}

/// What a statement that ran has given.
struct Ran {
    outcome: Outcome,
    /// How many rows it concerned; `None` while they come or go.
    rows: Option<u64>,
}

impl Session {
    /// Runs a statement without parameters.
    ///
    /// # Errors
    /// Anything that can be wrong with a statement. Nothing of it has happened then.
    pub async fn execute(&mut self, sent: &Sent) -> Result<Outcome, SqlError> {
        let fast = match sent.form() {
            Form::Parsed(tree) => return self.pass_read(&tree.statement, None).await,
            Form::Fast(fast) => fast,
        };
        let by_key = ByKey::sent(fast);
        if let Some(outcome) = self.pass_by_key(by_key).await? {
            return Ok(outcome);
        }
        let statement = Box::pin(self.executor.read_single(&self.client, &fast.text)).await?;
        let tree = Tree { statement };
        Box::pin(self.pass_read(&tree.statement, None)).await
    }

    /// Runs a prepared statement with values of its parameters, each of the type that
    /// [`ParameterType::carrier`](aerostat_api::ParameterType::carrier) has.
    ///
    /// # Errors
    /// Anything that can be wrong with a statement. Nothing of it has happened then.
    pub async fn execute_prepared(
        &mut self,
        prepared: &Prepared,
        parameters: &Arc<[Value]>,
    ) -> Result<Outcome, SqlError> {
        prepared.require_values(parameters)?;
        let without_blanks = without_blanks(&prepared.parameters, parameters);
        let parameters = without_blanks.as_ref().unwrap_or(parameters);
        if let Some(fast) = &prepared.fast {
            let by_key = ByKey::prepared(fast, parameters, prepared);
            if let Some(outcome) = self.pass_by_key(by_key).await? {
                return Ok(outcome);
            }
        }
        if prepared.is_unread() {
            self.executor.follow_time_zone(&self.client);
        }
        let planned = self
            .client
            .as_planned(&self.transaction, &self.executor, prepared);
        if let Some(planned) = Box::pin(planned).await? {
            return Box::pin(self.run_bound(&planned, parameters)).await;
        }
        Box::pin(self.run_bound(prepared, parameters)).await
    }

    /// Runs a prepared statement the planner's way.
    async fn run_bound(
        &mut self,
        prepared: &Prepared,
        parameters: &[Value],
    ) -> Result<Outcome, SqlError> {
        let bound = Bound::new(prepared, parameters)?;
        self.pass_read(&prepared.statement, Some(&bound)).await
    }

    /// Runs a statement; `None` if it is one by key that has to be planned, and then nothing has
    /// happened.
    ///
    /// # Errors
    /// Anything that can be wrong with a statement. Nothing of it has happened then.
    async fn pass(&mut self, asked: Asked<'_>) -> Result<Option<Outcome>, SqlError> {
        let started = Instant::now();
        if self.transaction.machine.is_idle() {
            self.transaction.mark_time(&mut self.client);
        }
        let ran = match &asked {
            Asked::ByKey(by_key) if self.counts_by_key() => {
                match Box::pin(self.run_counted(by_key)).await {
                    Ok(None) => return Ok(None),
                    Ok(Some(ran)) => Ok(ran),
                    Err(error) => Err(error),
                }
            }
            Asked::ByKey(by_key) => match self
                .executor
                .run_fast(&mut self.client, &self.transaction, by_key)
                .await
            {
                Ok(None) => return Ok(None),
                Ok(Some((outcome, rows))) => Ok(Ran {
                    outcome,
                    rows: Some(rows),
                }),
                Err(error) => Err(error),
            },
            Asked::Control(command, statement) => self.run_control(command, statement).await,
            Asked::Planned(statement, bound) => Box::pin(self.run_planned(statement, *bound)).await,
        };
        if ran.is_err() {
            self.fail();
        }
        let sets = ran.is_err() || !matches!(asked, Asked::ByKey(_));
        if sets && self.transaction.machine.is_idle() {
            self.client.settings.lock().end_local();
        }
        self.client.is_busy = matches!(&ran, Ok(Ran { rows: None, .. }));
        if !self.client.is_busy {
            self.client.admitted = None;
        }
        match &asked {
            Asked::Planned(..) if self.client.is_busy => {}
            Asked::Planned(..) => self.client.note_idle(self.transaction.status()),
            Asked::Control(_, statement) => self
                .client
                .note_done(statement.text(), self.transaction.status()),
            Asked::ByKey(by_key) => self
                .client
                .note_done(by_key.text(), self.transaction.status()),
        }
        let kind = asked.observed_kind();
        self.executor.observe(kind, started, ran).map(Some)
    }

    /// Runs a statement by its key in a database that has a bound for how many run at once.
    async fn run_counted(&mut self, by_key: &ByKey<'_>) -> Result<Option<Ran>, SqlError> {
        self.enter_by_key(by_key).await?;
        let run = self
            .executor
            .run_fast(&mut self.client, &self.transaction, by_key);
        let ran = run.await?;
        Ok(ran.map(|(outcome, rows)| Ran {
            outcome,
            rows: Some(rows),
        }))
    }

    /// [`Self::pass`] of a statement by its key.
    ///
    /// # Errors
    /// As there.
    async fn pass_by_key(&mut self, by_key: ByKey<'_>) -> Result<Option<Outcome>, SqlError> {
        self.pass(Asked::ByKey(by_key)).await
    }

    /// [`Self::pass`] of a statement that has been read.
    ///
    /// # Errors
    /// As there.
    async fn pass_read(
        &mut self,
        statement: &Statement,
        bound: Option<&Bound<'_>>,
    ) -> Result<Outcome, SqlError> {
        let asked = match control(&statement.kind) {
            Some(command) => Asked::Control(command, statement),
            None => Asked::Planned(statement, bound),
        };
        let passed = self.pass(asked).await?;
        passed.ok_or_else(|| SqlError::new(ErrorKind::Internal, "a statement came to no end"))
    }

    /// Runs BEGIN, COMMIT and their like.
    async fn run_control(
        &mut self,
        command: &TransactionCommand,
        statement: &Statement,
    ) -> Result<Ran, SqlError> {
        // The machine, whose event this is, does steps 3 and 6.
        let tag = match *command {
            TransactionCommand::Begin { modes, .. } => {
                self.transaction
                    .begin(&mut self.client, &self.executor, modes)?;
                command.tag()
            }
            TransactionCommand::Commit { chain } => {
                self.client.note_active(statement.text());
                self.transaction
                    .commit(&mut self.client, &self.executor, chain)
                    .await?
            }
            _ => {
                self.client.note_active(statement.text());
                // A request to stop this stops no portal that is open.
                self.client.cancel.begin(None);
                // Boxed, or the future of every COMMIT has room for it.
                let run =
                    self.transaction
                        .run_transaction(&mut self.client, &self.executor, command);
                Box::pin(run).await?
            }
        };
        let tag = tag.to_owned();
        Ok(Ran {
            outcome: Outcome::Command { tag },
            rows: Some(0),
        })
    }

    /// Runs any other statement.
    async fn run_planned(
        &mut self,
        statement: &Statement,
        bound: Option<&Bound<'_>>,
    ) -> Result<Ran, SqlError> {
        let cancellation = self.client.cancel.begin(self.client.statement_timeout());
        self.executor.follow_settings(&self.client);
        self.executor.tell_times(&self.transaction);
        self.client.note_active(statement.text());
        self.view().admit(&statement.kind)?;
        if self.enter_planned(&statement.kind, &cancellation).await? {
            // Another node may lead the database meanwhile.
            self.view().admit(&statement.kind)?;
        }
        self.transaction
            .start_in_block(&mut self.client, &self.executor, kind_of(&statement.kind))
            .await?;
        let source = &statement.source;
        let outcome = match &statement.kind {
            StatementKind::Empty => Outcome::Empty,
            StatementKind::Unread => {
                return Err(SqlError::new(
                    ErrorKind::Internal,
                    "a statement is run that has not been read",
                ));
            }
            StatementKind::Utility(utility) => {
                let run = run_utility(
                    &mut self.client,
                    &mut self.transaction,
                    &self.executor,
                    utility,
                    source,
                    bound,
                    &cancellation,
                );
                Box::pin(run).await?
            }
            StatementKind::Sql(parsed) => {
                let mut running = Running {
                    client: &self.client,
                    transaction: &mut self.transaction,
                    executor: &self.executor,
                };
                running
                    .run_sql(parsed, source, bound, Plans::Kept, &cancellation)
                    .await?
            }
        };
        self.transaction
            .end_in_block(&mut self.client, &self.executor)
            .await?;
        let rows = match &outcome {
            Outcome::Rows { .. } | Outcome::CopyIn(_) | Outcome::CopyOut(_) => None,
            Outcome::Command { tag } => {
                let last = tag.rsplit(' ').next();
                Some(last.and_then(|word| word.parse().ok()).unwrap_or(0))
            }
            Outcome::Empty => Some(0),
        };
        Ok(Ran { outcome, rows })
    }
}

impl Executor {
    /// Tells the observer of a statement: of one whose rows come yet, with the last of them.
    fn observe(
        &self,
        kind: &'static str,
        started: Instant,
        ran: Result<Ran, SqlError>,
    ) -> Result<Outcome, SqlError> {
        let observer = self.engine.observer();
        match ran {
            Ok(Ran {
                outcome:
                    Outcome::Rows {
                        columns,
                        batches,
                        tag,
                    },
                rows: None,
            }) => {
                let observer = Arc::clone(observer);
                let batches = observed(
                    batches,
                    observer,
                    self.database().name.read().clone(),
                    kind,
                    started,
                );
                Ok(Outcome::Rows {
                    columns,
                    batches,
                    tag,
                })
            }
            ran => {
                let database = self.database().name.read();
                observer.statement(&StatementRecord {
                    database: &database,
                    kind,
                    elapsed: started.elapsed(),
                    rows: ran.as_ref().map_or(0, |ran| ran.rows.unwrap_or(0)),
                    error: ran.as_ref().err().map(|error| error.kind),
                });
                ran.map(|ran| ran.outcome)
            }
        }
    }
}

impl Asked<'_> {
    /// The kind that metrics tell apart.
    fn observed_kind(&self) -> &'static str {
        match self {
            Asked::ByKey(by_key) => by_key.kind(),
            Asked::Control(..) => "other",
            Asked::Planned(statement, _) => observed_kind(&statement.kind),
        }
    }
}

/// BEGIN, COMMIT and their like: what the transaction itself is about.
fn control(kind: &StatementKind) -> Option<&TransactionCommand> {
    match kind {
        StatementKind::Utility(utility) => match &**utility {
            Utility::Transaction(
                TransactionCommand::SetDefaults(_) | TransactionCommand::SetConstraints { .. },
            ) => None,
            Utility::Transaction(command) => Some(command),
            _ => None,
        },
        StatementKind::Sql(_) | StatementKind::Empty | StatementKind::Unread => None,
    }
}

fn observed_kind(kind: &StatementKind) -> &'static str {
    match kind {
        StatementKind::Empty | StatementKind::Unread => "other",
        StatementKind::Utility(utility) => match &**utility {
            Utility::Copy(_) => "copy",
            Utility::Schema(_)
            | Utility::Database(_)
            | Utility::System(_)
            | Utility::Node(_)
            | Utility::Role(_)
            | Utility::Grant(_)
            | Utility::Comment(_) => "ddl",
            _ => "other",
        },
        StatementKind::Sql(parsed) => match &**parsed {
            ast::Statement::Query(_) => "select",
            ast::Statement::Insert(_) => "insert",
            ast::Statement::Update(_) => "update",
            ast::Statement::Delete(_) => "delete",
            ast::Statement::Merge(_) => "merge",
            ast::Statement::CreateTable(_) | ast::Statement::CreateView(_) => "ddl",
            _ => "other",
        },
    }
}
