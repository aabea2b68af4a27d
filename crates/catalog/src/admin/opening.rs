//! Opening databases when somebody wants them.
//!
//! ```text
//!   claim ─┬─ Open                    somebody was there before
//!          ├─ Due(Ticket) ─► carry_out    reads the files, with no lock of the node
//!          └─ Underway(Attempt)       wait, by a thread or by a future, and claim again
//! ```
//!
//! One opens and the others wait, however many there are; all of them have one error if it fails.
//! Meanwhile the database keeps its name, and is not dropped; options that are set are followed once
//! it is open. A ticket that is dropped leaves the next one to begin.

use std::{sync::Arc, time::Instant};

use aerostat_storage::backup::Places;
use aerostat_types::SqlError;

use super::{
    attempt::Attempt,
    databases::{Failed, Stage, Unopened, closing},
    node::{Node, open_existing, undefined_database},
};
use crate::state::{Database, DatabaseRecord};

/// The right, and the duty, to open a database. Dropped, it leaves both to the next who comes.
#[must_use = "others wait for the database"]
pub struct Ticket {
    name: String,
    /// What is opened. Who renames or drops it has to wait.
    entry: Box<DatabaseRecord>,
    attempt: Arc<Attempt>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Nothing happens if it was carried out.
        self.attempt.end(Ok(()));
    }
}

/// What is to be done by who wants a database.
pub enum Claim {
    /// Nothing: it is open.
    Open(Arc<Database>),
    /// [`Node::carry_out`].
    Due(Ticket),
    /// To wait, and to claim it again.
    Underway(Arc<Attempt>),
}

impl Node {
    /// What is to be done to have a database open.
    ///
    /// # Errors
    /// `InvalidCatalogName` if it is not there, `CannotConnectNow` while it is closed, and why it
    /// could not be opened, if that was a moment ago.
    pub fn claim(&self, name: &str) -> Result<Claim, SqlError> {
        if let Some(open) = self.database(name) {
            return Ok(Claim::Open(open));
        }
        self.with_databases_mut(|databases, record| {
            match databases.stage(name) {
                None => return Err(undefined_database(name)),
                Some(Stage::Open(database)) => return Ok(Claim::Open(Arc::clone(database))),
                Some(Stage::Opening(attempt)) if !attempt.is_over() => {
                    return Ok(Claim::Underway(Arc::clone(attempt)));
                }
                Some(Stage::Failed(failed)) if !failed.is_due() => {
                    return Err(failed.why.refusal(name));
                }
                Some(stage) if stage.is_passing() => return Err(closing(name)),
                // Whoever keeps its copies opens it.
                Some(_) if self.host.shared.is_some() => {
                    return Err(self.not_open(name, record.databases.get(name)));
                }
                Some(_) => {}
            }
            let entry = record.databases.get(name);
            let ticket = Ticket {
                name: name.to_owned(),
                entry: Box::new(entry.ok_or_else(|| undefined_database(name))?.clone()),
                attempt: Arc::default(),
            };
            databases.put(name, Stage::Opening(Arc::clone(&ticket.attempt)));
            Ok(Claim::Due(ticket))
        })
    }

    /// Opens a database. Takes as long as its files are large; the thread is the caller's.
    ///
    /// # Errors
    /// Why it could not be opened.
    pub fn carry_out(&self, ticket: Ticket) -> Result<Arc<Database>, SqlError> {
        let Ticket {
            name,
            entry,
            attempt,
        } = &ticket;
        let started = Instant::now();
        let folder = self.folder_of(entry.oid);
        let opened = open_existing(&folder, &self.host, name, entry);
        let took = started.elapsed();
        let (stage, result) = match opened {
            Ok(database) => {
                tracing::info!(database = name, seconds = took.as_secs_f64(), "opened");
                (Stage::Open(Arc::clone(&database)), Ok(database))
            }
            Err(error) => {
                tracing::error!(
                    database = name,
                    error = &error as &dyn std::error::Error,
                    "the database could not be opened"
                );
                let why = Unopened::of(&error);
                let refusal = why.refusal(name);
                (Stage::Failed(Failed::now(why, took)), Err(refusal))
            }
        };
        self.with_databases_mut(|databases, record| {
            if let (Ok(database), Some(now)) = (&result, record.databases.get(name)) {
                follow(database, entry, now, &*self.host.places);
            }
            databases.put(name, stage);
        });
        attempt.end(result.as_ref().map(drop).map_err(Clone::clone));
        result
    }

    /// The database of this name, opened if it is not.
    ///
    /// # Errors
    /// It is not there, it is being closed, or it cannot be opened.
    pub(super) fn opened_on_demand(&self, name: &str) -> Result<Arc<Database>, SqlError> {
        loop {
            match self.claim(name)? {
                Claim::Open(database) => return Ok(database),
                Claim::Due(ticket) => return self.carry_out(ticket),
                Claim::Underway(attempt) => attempt.wait()?,
            }
        }
    }
}

/// Gives a database the options that were set while it was opened.
pub(super) fn follow(
    database: &Database,
    then: &DatabaseRecord,
    now: &DatabaseRecord,
    places: &dyn Places,
) {
    let store = &database.store;
    store.budget().set_max(now.memory_ceiling());
    database.statements.follow(now.statement_limits());
    // A copy's driver may have begun with what was said before it.
    if database.copy.is_some() || now.commit_durability() != then.commit_durability() {
        database.set_durability(now.commit_durability());
    }
    if now.log_archive == then.log_archive || database.copy.is_some() {
        return;
    }
    let archive = now.log_archive.as_deref();
    match archive.map(|place| places.for_archive(place)).transpose() {
        Ok(sink) => store.archive_log_to(sink),
        // The statement that set it has used it a moment ago.
        Err(error) => tracing::error!(tenant = %database.id, %error, "the log is not archived"),
    }
}
