//! Which roles the databases that are closed name: whoever drops or renames a role has to know.
//!
//! Nothing is opened for that: the last catalogue is in the log, or in the checkpoint before it.
//! What was read is kept as long as the database stays closed. A role that is renamed is renamed in
//! catalogues, so those that name it are opened.

use std::sync::{Arc, OnceLock};

use aerostat_storage::{SystemDisk, TenantStore};
use aerostat_types::{SqlError, TenantId};

use super::{
    attempt::Attempt,
    databases::{Databases, Stage, Unopened},
    leaving::LOOK,
    node::Node,
    record::OpenError,
};
use crate::state::{NamedRoles, NodeRecord};

/// What a look into all databases has come to.
pub(super) enum Look<T> {
    /// It has seen all of them.
    Seen(T),
    /// It is not known of one which roles it names.
    Unknown,
    /// These are to be open for it.
    Shut(Vec<String>),
}

/// Why it is not known of a database which roles it names.
enum Unknown {
    Closed {
        id: TenantId,
        named: Arc<OnceLock<NamedRoles>>,
    },
    Opening(Arc<Attempt>),
    Ending,
}

impl Databases {
    /// Of every database it is known which roles it names: it is open, or somebody has read them.
    pub(super) fn are_known(&self) -> bool {
        self.stages().all(|(_, stage)| match stage {
            Stage::Closed(closed) => closed.named.get().is_some(),
            Stage::Opening(_) | Stage::Ending(_) => false,
            Stage::Open(_) | Stage::Leaving(_) | Stage::Failed(_) => true,
        })
    }

    /// None of them is one that could not be opened.
    ///
    /// # Errors
    /// One is.
    pub(super) fn require_readable(&self, doing: &str) -> Result<(), SqlError> {
        let mut failed = self.stages().filter_map(|(name, stage)| match stage {
            Stage::Failed(failed) => Some((name, failed)),
            _ => None,
        });
        match failed.next() {
            Some((name, failed)) => Err(failed.why.bars(name, doing)),
            None => Ok(()),
        }
    }

    /// Those that are closed and name the role.
    pub(super) fn shut_with(&self, role: &str) -> Vec<String> {
        let names_it = |stage: &Stage| match stage {
            Stage::Closed(closed) => closed.named.get().is_some_and(|named| named.has(role)),
            _ => false,
        };
        let shut = self.stages().filter(|(_, stage)| names_it(stage));
        shut.map(|(name, _)| name.clone()).collect()
    }
}

impl Node {
    /// As [`Self::change_databases`], for a change that depends on which roles the databases name:
    /// `change` says whether it has seen all it wants, and is called again until it has.
    ///
    /// # Errors
    /// Also when a database cannot be read, or not be opened if that is wanted.
    pub(super) fn change_knowing<T, D>(
        &self,
        doing: &str,
        change: impl Fn(&mut NodeRecord, &Databases) -> Result<Look<D>, SqlError>,
        show: impl Fn(&Databases, D) -> T,
    ) -> Result<T, SqlError> {
        loop {
            let look = self.change_databases(
                |record, databases| match databases.are_known() {
                    true => change(record, databases),
                    false => Ok(Look::Unknown),
                },
                |databases, look| match look {
                    Look::Seen(done) => Look::Seen(show(&databases, done)),
                    Look::Unknown => Look::Unknown,
                    Look::Shut(names) => Look::Shut(names),
                },
            )?;
            match look {
                Look::Seen(done) => return Ok(done),
                Look::Unknown => self.learn_names(doing)?,
                Look::Shut(names) => {
                    for name in names {
                        self.opened_on_demand(&name)?;
                    }
                }
            }
        }
    }

    /// Reads which roles closed databases name, and waits for those that are being opened or closed.
    fn learn_names(&self, doing: &str) -> Result<(), SqlError> {
        let unknown = self.with_databases_mut(|databases, record| {
            databases.settle();
            unknown(databases, record)
        });
        for (name, unknown) in unknown {
            match unknown {
                Unknown::Closed { id, named } => match self.read_names(id) {
                    // Another may have read the same.
                    Ok(read) => drop(named.set(read)),
                    // The error of one that was opened meanwhile says nothing.
                    Err(error) if self.is_still_closed(&name, &named) => {
                        return Err(Unopened::of(&error).bars(&name, doing));
                    }
                    Err(_) => {}
                },
                // One that fails is told of when it is looked at.
                Unknown::Opening(attempt) => drop(attempt.wait()),
                Unknown::Ending => std::thread::sleep(LOOK),
            }
        }
        Ok(())
    }

    fn read_names(&self, id: TenantId) -> Result<NamedRoles, OpenError> {
        let folder = self.folder_of(id);
        let log = folder.join("log");
        if !log.is_dir() {
            return Err(OpenError::Missing { path: log });
        }
        match TenantStore::read_catalog(id, &folder, &SystemDisk)? {
            Some(document) => Ok(NamedRoles::read(&document)?),
            None => Ok(NamedRoles::default()),
        }
    }

    fn is_still_closed(&self, name: &str, named: &Arc<OnceLock<NamedRoles>>) -> bool {
        self.with_databases(|databases, _| match databases.stage(name) {
            Some(Stage::Closed(closed)) => Arc::ptr_eq(&closed.named, named),
            _ => false,
        })
    }
}

fn unknown(databases: &Databases, record: &NodeRecord) -> Vec<(String, Unknown)> {
    let mut found = Vec::new();
    for (name, stage) in databases.stages() {
        let unknown = match stage {
            Stage::Closed(closed) if closed.named.get().is_none() => {
                let Some(entry) = record.databases.get(name) else {
                    continue;
                };
                Unknown::Closed {
                    id: entry.oid,
                    named: Arc::clone(&closed.named),
                }
            }
            Stage::Opening(attempt) => Unknown::Opening(Arc::clone(attempt)),
            Stage::Ending(_) => Unknown::Ending,
            _ => continue,
        };
        found.push((name.clone(), unknown));
    }
    found
}
