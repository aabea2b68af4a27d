//! Closing a database in a node that goes on: from being served to nothing but its folder.
//!
//! ```text
//!  Leaving   nobody is let in; background work ends at the next segment
//!     │      sessions go, by themselves or because they are told to
//!     │      whoever keeps something for it lets go
//!     │      nobody has it any more, and the disk has its log    ── else: Open, as before
//!  Ending    catalogue and rows are dropped, the log is closed, the folder is unlocked
//!  Closed    the next who connects opens it
//! ```
//!
//! What is committed stays, and what is not is rolled back with its session. A process that dies
//! meanwhile leaves what it would have left at any time: closing changes nothing that recovery
//! reads.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use aerostat_sql::grants::PredefinedRole;
use aerostat_storage::Ended;
use aerostat_txn::CancelToken;
use aerostat_types::{ErrorKind, SqlError};

use super::{
    databases::{Closed, Stage, passing},
    node::{Node, role_in, undefined_database},
};
use crate::{
    actor::Actor,
    failure::{canceled, with_causes},
    state::{Database, NamedRoles},
};

/// How often it is looked whether those that are waited for have gone.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// How long sessions of a database that is to be dropped or renamed get to end, as in
/// PostgreSQL: one whose client has gone a moment ago may not have.
pub(super) const DISCONNECT_WAIT: Duration = Duration::from_secs(5);

/// How long sessions that were told to end get for it: a statement ends between two batches, and
/// what it has written is rolled back.
const END_WAIT: Duration = Duration::from_secs(30);

/// How long until those that are still there are told again.
pub(super) const TELL_AGAIN: Duration = Duration::from_millis(500);

/// How long background work and statements of other databases' sessions get, a backup say. All but
/// those end at the next segment.
pub(super) const WORK_WAIT: Duration = Duration::from_secs(60);

/// Who has sessions of a database, and keeps things for it.
pub trait Holders {
    /// Tells the sessions of a database to end. Does not wait for them.
    fn end_sessions(&self, database: &Database);

    /// Has the sessions of a database go to the node that is about to lead it, each as soon as it can. Does not wait for
    /// them.
    fn have_leave(&self, database: &Database);

    /// Lets go of all that is kept for a database. It has no sessions, and gets none.
    fn let_go(&self, database: &Database);
}

/// Nobody.
pub struct NoHolders;

impl Holders for NoHolders {
    fn end_sessions(&self, _database: &Database) {}

    fn have_leave(&self, _database: &Database) {}

    fn let_go(&self, _database: &Database) {}
}

/// What closing has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// It is closed.
    Done,
    /// It was not open.
    WasClosed,
}

impl Node {
    /// Closes a database, which the next who connects opens again. Without `force` its sessions get
    /// some seconds to end by themselves, with it they are told to end.
    ///
    /// # Errors
    /// Only superusers and operators may. `ObjectInUse` when sessions stay or work on it goes on,
    /// `IoError` when its log cannot be synced: it is served on then. Also when the statement is
    /// cancelled.
    pub fn close_database(
        &self,
        actor: &Actor,
        current: &Database,
        name: &str,
        force: bool,
        holders: &dyn Holders,
        cancel: &CancelToken,
    ) -> Result<Closing, SqlError> {
        if !role_in(&self.record(), &actor.role)?.is_member_of(PredefinedRole::AerostatOperator) {
            return Err(SqlError::new(
                ErrorKind::InsufficientPrivilege,
                "permission denied to close a database",
            )
            .with_detail("Only superusers and members of aerostat_operator close databases."));
        }
        if self.host.shared.is_some() {
            return Err(SqlError::new(
                ErrorKind::FeatureNotSupported,
                "a database of a cluster stays open",
            )
            .with_detail("This node has a copy of it, which other nodes rely on."));
        }
        let Some(leaving) = self.leave(name, current)? else {
            return Ok(Closing::WasClosed);
        };
        match force {
            true => leaving.end_sessions(holders, cancel)?,
            false => leaving.await_sessions(DISCONNECT_WAIT, cancel)?,
        }
        holders.let_go(&leaving.database);
        leaving.finish(cancel)?;
        Ok(Closing::Done)
    }

    /// Nobody is let into the database any more; `None` if it is not open.
    fn leave(&self, name: &str, current: &Database) -> Result<Option<Leaving<'_>>, SqlError> {
        self.with_databases_mut(|databases, _| {
            let stage = databases.stage(name);
            let database = match stage.ok_or_else(|| undefined_database(name))? {
                Stage::Open(database) if database.id == current.id => {
                    return Err(SqlError::new(
                        ErrorKind::ObjectInUse,
                        "cannot close the currently open database",
                    ));
                }
                Stage::Open(database) => Arc::clone(database),
                stage if stage.is_passing() => return Err(passing(name)),
                _ => return Ok(None),
            };
            database.store.set_leaving(true);
            databases.put(name, Stage::Leaving(Arc::clone(&database)));
            Ok(Some(Leaving {
                node: self,
                name: name.to_owned(),
                database,
            }))
        })
    }
}

/// A database that nobody is let into. Dropped, it is served again, unless it has been closed.
struct Leaving<'n> {
    node: &'n Node,
    name: String,
    database: Arc<Database>,
}

impl Leaving<'_> {
    /// Tells sessions to end, and waits until they have.
    fn end_sessions(&self, holders: &dyn Holders, cancel: &CancelToken) -> Result<(), SqlError> {
        let deadline = Instant::now() + END_WAIT;
        loop {
            holders.end_sessions(&self.database);
            match self.await_sessions(TELL_AGAIN, cancel) {
                // One was let in a moment before, and nobody knew of it yet.
                Err(error) if error.kind == ErrorKind::ObjectInUse && Instant::now() < deadline => {
                }
                result => return result,
            }
        }
    }

    /// Waits until nobody is connected.
    fn await_sessions(&self, at_most: Duration, cancel: &CancelToken) -> Result<(), SqlError> {
        let is_empty = || self.database.connection_count() <= 0;
        match wait_for(is_empty, at_most, cancel)? {
            true => Ok(()),
            false => require_unconnected(&self.database, &self.name),
        }
    }

    /// Closes it once nobody has it, and waits for its end.
    fn finish(self, cancel: &CancelToken) -> Result<(), SqlError> {
        // Its place among the node's databases, and this.
        let is_ours = || Arc::strong_count(&self.database) <= 2;
        let in_use = || {
            SqlError::new(
                ErrorKind::ObjectInUse,
                format!("database \"{}\" is in use", self.name),
            )
            .with_detail("Something that was begun on it before has not ended.")
        };
        let ended = self.database.store.ended();
        let (taken, named) = loop {
            if !wait_for(is_ours, WORK_WAIT, cancel)? {
                return Err(in_use());
            }
            // A role that is renamed is renamed in it as well.
            let _unchanged = self.node.unchanged();
            if !is_ours() {
                continue;
            }
            self.sync()?;
            let named = NamedRoles::of(&self.database.catalog.load());
            // Nobody gets it meanwhile who is not counted: that takes the same lock.
            let taken = self.node.with_databases_mut(|databases, _| {
                let end = || ended.clone().map_or_else(Stage::closed, Stage::Ending);
                is_ours().then(|| databases.put(&self.name, end()))
            });
            // Somebody may have had a look, at its memory say.
            if let Some(taken) = taken {
                break (taken, named);
            }
        };
        let (node, name) = (self.node, self.name.clone());
        // The last references, so its rows go here, with no lock held.
        drop((taken, self));
        if let Some(ended) = &ended {
            let is_over = || ended.is_over();
            if !wait_for(is_over, WORK_WAIT, cancel)? {
                // It will be closed once they are gone, and is not opened before.
                return Err(SqlError::new(
                    ErrorKind::ObjectInUse,
                    format!("database \"{name}\" is not closed yet"),
                )
                .with_detail("A statement that was told to end still has rows of it."));
            }
        }
        node.with_databases_mut(|databases, _| {
            let is_it = |known: &Ended| ended.as_ref().is_some_and(|ended| known.is(ended));
            let is_left = |stage: &Stage| matches!(stage, Stage::Ending(known) if is_it(known));
            if databases.stage(&name).is_some_and(is_left) {
                databases.put(&name, Stage::Closed(Closed::knowing(named)));
            }
        });
        tracing::info!(database = name, "closed");
        Ok(())
    }

    /// Has the disk have what was committed. Of a log that has failed it has what it has: closing
    /// and opening is what brings such a database back.
    fn sync(&self) -> Result<(), SqlError> {
        let store = &self.database.store;
        if store.log_failure().is_some() {
            return Ok(());
        }
        store.sync_log().map_err(|failure| {
            SqlError::new(
                ErrorKind::IoError,
                format!("the log of database \"{}\" could not be synced", self.name),
            )
            .with_detail(with_causes(&failure))
        })
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.node.with_databases_mut(|databases, _| {
            if let Some(Stage::Leaving(_)) = databases.stage(&self.name) {
                self.database.store.set_leaving(false);
                databases.put(&self.name, Stage::Open(Arc::clone(&self.database)));
            }
        });
    }
}

/// Waits for it, but not longer, and says whether it has come.
pub(super) fn wait_for(
    has_come: impl Fn() -> bool,
    at_most: Duration,
    cancel: &CancelToken,
) -> Result<bool, SqlError> {
    let deadline = Instant::now() + at_most;
    while !has_come() {
        if cancel.is_cancelled() {
            return Err(canceled());
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        thread::sleep(LOOK);
    }
    Ok(true)
}

/// Nobody is connected.
///
/// # Errors
/// Somebody is.
pub(super) fn require_unconnected(database: &Arc<Database>, name: &str) -> Result<(), SqlError> {
    let detail = match database.connection_count() {
        ..=0 => return Ok(()),
        1 => "There is 1 other session using the database.".to_owned(),
        count => format!("There are {count} other sessions using the database."),
    };
    Err(in_use(&format!(
        "database \"{name}\" is being accessed by other users"
    ))
    .with_detail(detail))
}

pub(super) fn in_use(message: &str) -> SqlError {
    SqlError::new(ErrorKind::ObjectInUse, message)
}
