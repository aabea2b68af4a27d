//! The place of a statement among those of its database that run at once (`aerostat_schedule::admission`).
//!
//! ```text
//!  statement ─► works in the database? ─► holds a lock? ─► room? ─► runs
//!                   no: runs               goes ahead,      no: waits, until it has its place, is
//!                                          counted              cancelled, or has waited too long
//! ```
//!
//! *Whoever waits here holds nothing that another may wait for*: no lock on a relation or row, and no advisory lock. So
//! statements that run never wait for one that does not, and the queue adds no deadlock to those that the lock table
//! finds. A transaction block thus waits before it has locked something, which is mostly its first statement, and
//! is let through to its end.
//!
//! BEGIN, COMMIT, SET, SHOW and statements about the node, such as ALTER DATABASE, take no place: they work on nothing
//! that others wait for, and are how somebody ends what holds a place. Superusers have a way in for the same reason: their statements are in no bound of the
//! database's, and have places of the node that are reserved for them.
//!
//! A place is kept until the client is told that it may send its next statement. One that fetches its rows part by part,
//! with a Sync after each, has none between its fetches; without Sync it keeps its place, and a portal that goes on
//! needs no other.

use std::time::Duration;

use aerostat_query::Cancellation;
use aerostat_schedule::admission::{Entry, Full, Needs, Place, Waiting};
use aerostat_sql::{
    statement::StatementKind,
    utility::{CursorCommand, PreparedCommand, Utility},
};
use aerostat_types::{ErrorKind, SqlError};
use tokio::time::Instant;

use super::{ClientState, Executor, Session, TransactionState, fast::ByKey};

/// What a statement that runs has: its place, and what it has waited for it.
pub(super) struct Admitted {
    place: Place,
    waited: Duration,
}

impl ClientState {
    /// How long the statement at hand has waited for its place, which its time includes.
    pub(super) fn waited_for(&self) -> Duration {
        let admitted = self.admitted.as_ref();
        admitted.map_or(Duration::ZERO, |admitted| admitted.waited)
    }
}

impl TransactionState {
    /// Whether somebody may wait for the session.
    fn holds_locks(&self, client: &ClientState) -> bool {
        let holds = self.block.as_ref().is_some_and(|open| match open.parts() {
            Ok(parts) => parts.block.relation_locks().hold_some(),
            // It goes back to a savepoint.
            Err(_) => true,
        });
        holds || client.advisory.has_some()
    }
}

impl Session {
    /// Whether a statement by its key that comes now needs a place.
    pub(super) fn counts_by_key(&self) -> bool {
        self.executor.tenant.entrance().is_limited() && self.transaction.machine.admits_by_key()
    }

    /// Gives a statement by its key its place, where the database counts such; waits for it if it has to.
    ///
    /// # Errors
    /// No place was to be had, or the statement was stopped meanwhile.
    pub(super) async fn enter_by_key(&mut self, by_key: &ByKey<'_>) -> Result<(), SqlError> {
        let Self {
            client,
            transaction,
            executor,
        } = self;
        let Some(waiting) = executor.enter(client, transaction, Needs::Tenant)? else {
            return Ok(());
        };
        client.note_active(by_key.text());
        let cancellation = client.cancel.begin(client.statement_timeout());
        executor.await_place(client, waiting, &cancellation).await
    }

    /// The same for a statement that is planned, if it works in the database. Gives whether it has waited.
    ///
    /// # Errors
    /// As there.
    pub(super) async fn enter_planned(
        &mut self,
        kind: &StatementKind,
        cancellation: &Cancellation,
    ) -> Result<bool, SqlError> {
        if !needs_place(kind) {
            return Ok(false);
        }
        let Self {
            client,
            transaction,
            executor,
        } = self;
        let Some(waiting) = executor.enter(client, transaction, Needs::Node)? else {
            return Ok(false);
        };
        let waiting = executor.await_place(client, waiting, cancellation);
        Box::pin(waiting).await.map(|()| true)
    }
}

impl Executor {
    /// A place for the session's statement, or the wait for it; neither for one that needs none.
    fn enter(
        &self,
        client: &mut ClientState,
        transaction: &TransactionState,
        needs: Needs,
    ) -> Result<Option<Waiting>, SqlError> {
        if let Some(admitted) = &mut client.admitted {
            // A statement by its key that has to be planned, or the next of a pipeline.
            if needs == Needs::Node {
                admitted.place.take_of_node();
            }
            return Ok(None);
        }
        let needs = match (self.engine.node().is_superuser(&client.role), needs) {
            (true, Needs::Tenant) => return Ok(None),
            (true, _) => Needs::Reserve,
            (false, needs) => needs,
        };
        let entrance = self.tenant.entrance();
        let place = match transaction.holds_locks(client) {
            true => entrance.enter_ahead(needs),
            false => match entrance.enter(needs) {
                Ok(Entry::Admitted(place)) => place,
                Ok(Entry::Waits(waiting)) => return Ok(Some(waiting)),
                Err(full) => return Err(self.refusal(full)),
            },
        };
        client.admitted = Some(Admitted {
            place,
            waited: Duration::ZERO,
        });
        Ok(None)
    }

    /// Waits for a place, as long as the database lets its statements wait.
    async fn await_place(
        &self,
        client: &mut ClientState,
        waiting: Waiting,
        cancellation: &Cancellation,
    ) -> Result<(), SqlError> {
        let began = Instant::now();
        let timeout = self.database().statements.limits().timeout();
        let is_of_node = waiting.is_for_node();
        client.note_wait(true);
        // Whatever comes first: a place that comes together with an end goes back.
        let place = tokio::select! {
            biased;
            error = cancellation.stopped() => Err(error),
            place = waiting => Ok(place),
            () = sleep(timeout) => {
                self.tenant.entrance().count_timeout();
                Err(self.timed_out(timeout.unwrap_or_default(), is_of_node))
            }
        };
        client.note_wait(false);
        client.admitted = Some(Admitted {
            place: place?,
            waited: began.elapsed(),
        });
        Ok(())
    }

    /// The error for a statement that finds no room to wait.
    fn refusal(&self, full: Full) -> SqlError {
        let name = self.database().name.read().clone();
        let Full {
            running, waiting, ..
        } = full;
        let detail = match full.is_of_node {
            true => format!(
                "The node runs as many statements as it may (node-statements-max); {running} of this database run and {waiting} wait, as many as may (queue_max)."
            ),
            false => format!(
                "{running} statements run, as many as may (statements_max), and {waiting} wait, as many as may (queue_max)."
            ),
        };
        SqlError::new(
            ErrorKind::TooManyConnections,
            format!("too many statements for database \"{name}\""),
        )
        .with_detail(detail)
        .with_hint(
            "Try again later, or raise statements_max or queue_max with ALTER DATABASE … SET (…).",
        )
    }

    /// The error for a statement that has waited too long.
    fn timed_out(&self, timeout: Duration, is_of_node: bool) -> SqlError {
        let name = self.database().name.read().clone();
        let what = match is_of_node {
            true => "the node runs as many statements as it may (node-statements-max)".to_owned(),
            false => {
                format!("database \"{name}\" runs as many statements as it may (statements_max)")
            }
        };
        SqlError::new(
            ErrorKind::QueryCanceled,
            "canceling statement due to queue timeout",
        )
        .with_detail(format!(
            "It has waited {} ms (queue_timeout) for a place: {what}.",
            timeout.as_millis()
        ))
        .with_hint("Try again later, or raise queue_timeout or statements_max with ALTER DATABASE … SET (…).")
    }
}

async fn sleep(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

/// Whether a statement works in the database, or locks something of it.
fn needs_place(kind: &StatementKind) -> bool {
    let utility = match kind {
        StatementKind::Sql(_) => return true,
        StatementKind::Utility(utility) => &**utility,
        StatementKind::Empty | StatementKind::Unread => return false,
    };
    match utility {
        Utility::Copy(_) | Utility::Maintenance(_) | Utility::Lock(_) => true,
        Utility::Cursor(command) => {
            matches!(
                command,
                CursorCommand::Declare { .. } | CursorCommand::Fetch { .. }
            )
        }
        Utility::Prepared(command) => matches!(command, PreparedCommand::Execute { .. }),
        other => other.defines_in_database(),
    }
}
