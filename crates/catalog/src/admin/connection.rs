//! Connections: the privileges and limits that a session must pass, and the counts of connected
//! sessions.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};

use aerostat_api::{Leader, OwnCopy};
use aerostat_types::{ErrorKind, NodeId, SqlError};
use parking_lot::Mutex;

use super::{
    databases::{Databases, Stage, closing},
    node::{Node, undefined_database},
};
use crate::state::{CopyState, Database, DatabaseRecord, NodeRecord, PUBLIC};

/// Connections by role. Those by database are counted in [`Database`].
#[derive(Default)]
pub(super) struct Counts {
    roles: Mutex<HashMap<String, i64>>,
}

impl Counts {
    pub(super) fn of_role(&self, role: &str) -> i64 {
        self.roles.lock().get(role).copied().unwrap_or(0)
    }
}

/// A session's place in its database. Dropping it is disconnecting.
pub struct Connection {
    counts: Arc<Counts>,
    database: Arc<Database>,
    role: String,
}

impl Connection {
    /// The database.
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// The role that connected.
    pub fn role(&self) -> &str {
        &self.role
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("role", &self.role)
            .field("database", &self.database.id)
            .finish()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut roles = self.counts.roles.lock();
        if let Some(count) = roles.get_mut(&self.role) {
            *count -= 1;
            if *count == 0 {
                roles.remove(&self.role);
            }
        }
        let before = self.database.connections.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a connection is counted until it is dropped");
    }
}

impl Node {
    /// Connects a role, which has proved who it is, to a database. The
    /// connection counts until it is dropped, and keeps the database from being dropped. A database
    /// that is closed is opened first, by this thread or by another.
    ///
    /// # Errors
    /// `InvalidAuthorization` for a role that is not there or has no LOGIN,
    /// `InvalidCatalogName`, `InsufficientPrivilege` without CONNECT,
    /// `TooManyConnections` at a limit, which superusers pass, `CannotConnectNow` while the database
    /// is closed; why it cannot be opened.
    pub fn connect(&self, role: &str, database: &str) -> Result<Connection, SqlError> {
        loop {
            if let Some(connection) = self.try_connect(role, database)? {
                return Ok(connection);
            }
            self.opened_on_demand(database)?;
        }
    }

    /// Which node leads a database. Waits for nobody.
    pub fn leader(&self, database: &str) -> Leader {
        let leader = self.try_with_databases(|databases, record| {
            let Some(entry) = record.databases.get(database) else {
                return Leader::NoDatabase;
            };
            if entry.copies.is_none() {
                return Leader::Here;
            }
            match databases.get(database).map(|open| &open.copy) {
                // Its sessions wait for the next.
                Some(Some(copy)) if copy.is_parting() => Leader::Unknown,
                Some(Some(copy)) if !copy.leads() => match copy.facts().leader {
                    Some(node) if node != copy.me() => Leader::Node(node),
                    _ => Leader::Unknown,
                },
                // It leads, or another one does by now, which others may know.
                Some(Some(copy)) if copy.is_in_doubt() => Leader::Unknown,
                Some(_) => Leader::Here,
                None => Leader::Unknown,
            }
        });
        leader.unwrap_or(Leader::Unknown)
    }

    /// This node's copy of a database, and the nodes whose copies commits wait for, as far as that one knows. `None`:
    /// there is no such database, or it is not copied.
    pub fn own_copy(&self, database: &str) -> Option<(OwnCopy, Vec<NodeId>)> {
        self.with_databases(|databases, record| own_copy(databases, record, database))
    }

    /// The same where the node has a copy, and that can be told at once. Waits for nobody.
    pub fn try_own_copy(&self, database: &str) -> Option<(OwnCopy, Vec<NodeId>)> {
        let look =
            |databases: &Databases, record: &NodeRecord| own_copy(databases, record, database);
        let found = self.try_with_databases(look).flatten();
        found.filter(|(own, _)| *own != OwnCopy::Missing)
    }

    /// As [`Self::connect`], if the database is open; `None` if it is to be opened first
    /// ([`Self::claim`]), which the role may ask for.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn try_connect(&self, role: &str, database: &str) -> Result<Option<Connection>, SqlError> {
        self.with_databases(|databases, record| {
            let refused = |message: String| SqlError::new(ErrorKind::InvalidAuthorization, message);
            let rights = record
                .roles
                .get(role)
                .ok_or_else(|| refused(format!("role \"{role}\" does not exist")))?;
            if !rights.login {
                return Err(refused(format!(
                    "role \"{role}\" is not permitted to log in"
                )));
            }
            let Some(entry) = record.databases.get(database) else {
                return Err(undefined_database(database));
            };
            if !may_connect(record, role, entry) {
                return Err(SqlError::new(
                    ErrorKind::InsufficientPrivilege,
                    format!("permission denied for database \"{database}\""),
                )
                .with_detail("User does not have CONNECT privilege."));
            }
            let open = match databases.stage(database) {
                None => return Err(undefined_database(database)),
                Some(Stage::Open(open)) => open,
                Some(Stage::Closed(_)) if self.host.shared.is_some() => {
                    return Err(self.not_open(database, Some(entry)));
                }
                Some(Stage::Leaving(_)) => return Err(closing(database)),
                Some(Stage::Ending(ended)) if !ended.is_over() => return Err(closing(database)),
                Some(Stage::Failed(failed)) if !failed.is_due() => {
                    return Err(failed.why.refusal(database));
                }
                Some(_) => return Ok(None),
            };
            if open.copy.as_ref().is_some_and(|copy| !copy.is_shown()) {
                return Err(CopyState::not_shown(database));
            }
            // Held over check and count, so that two sessions cannot both take the last place.
            let mut roles = self.counts.roles.lock();
            let of_role = roles.get(role).copied().unwrap_or(0);
            if !rights.superuser {
                check_limit(rights.connection_limit, of_role, || {
                    format!("role \"{role}\"")
                })?;
                check_limit(entry.connections_max(), open.connection_count(), || {
                    format!("database \"{database}\"")
                })?;
            }
            *roles.entry(role.to_owned()).or_default() += 1;
            open.connections.fetch_add(1, Ordering::Relaxed);
            Ok(Some(Connection {
                counts: Arc::clone(&self.counts),
                database: Arc::clone(open),
                role: role.to_owned(),
            }))
        })
    }

    /// Whether the role may connect to the database.
    pub fn may_connect(&self, role: &str, database: &str) -> bool {
        let record = self.record();
        record
            .databases
            .get(database)
            .is_some_and(|entry| may_connect(&record, role, entry))
    }
}

fn check_limit(limit: i32, count: i64, what: impl FnOnce() -> String) -> Result<(), SqlError> {
    if limit < 0 || count < i64::from(limit) {
        return Ok(());
    }
    Err(SqlError::new(
        ErrorKind::TooManyConnections,
        format!("too many connections for {}", what()),
    ))
}

fn may_connect(record: &NodeRecord, role: &str, database: &DatabaseRecord) -> bool {
    record.roles.get(role).is_some_and(|rights| {
        rights.superuser
            || database.owner == role
            || database
                .connect
                .iter()
                .any(|grantee| grantee == role || grantee == PUBLIC)
    })
}

/// A node's copy of a database; see [`Node::own_copy`].
fn own_copy(
    databases: &Databases,
    record: &NodeRecord,
    database: &str,
) -> Option<(OwnCopy, Vec<NodeId>)> {
    let entry = record.databases.get(database)?;
    entry.copies.as_ref()?;
    let open = databases.get(database);
    let Some(copy) = open.and_then(|open| open.copy.as_ref()) else {
        return Some((OwnCopy::Missing, Vec::new()));
    };
    let facts = copy.facts();
    let own = if copy.is_parting() || !copy.is_shown() {
        OwnCopy::Closed
    } else if copy.leads() || facts.counts {
        OwnCopy::Current
    } else {
        OwnCopy::Behind
    };
    Some((own, facts.members))
}
