//! Examining the databases of a data folder that no node has open, and repairing those that
//! cannot be opened.
//!
//! Each database is opened as a node would. If that fails it is copied, and damage is cut out of
//! the copy until the copy opens ([`aerostat_storage::repair`]): the parts that were cut are the
//! price of a repair. If that is accepted the copy, with a checkpoint and a history of its own,
//! takes the damaged folder's place, which is set aside unchanged.

use std::{
    io,
    path::{Path, PathBuf},
};

use aerostat_storage::{
    DataFolder, MetaFile, RecoverError, make_folder,
    repair::{Loss, copy_folder, cut_damage, exchange_folders, unused_name},
};

use super::{
    databases::Unopened,
    host::Host,
    joining,
    node::{open_database, open_existing},
    record::{NodeError, OpenError, folder_of, read_record},
};
use crate::{failure::with_causes, state::DatabaseRecord};

/// The folder in the data folder for the damaged folders of repaired databases.
const DAMAGED: &str = "damaged";

/// What was found of a database.
#[derive(Clone, Debug)]
pub struct Examined {
    /// Its name.
    pub database: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Whether it can be opened.
    pub verdict: Verdict,
}

/// Whether a database can be opened.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// As it is.
    Sound,
    /// For this reason it cannot, and could after losing this.
    Repairable {
        /// Why it cannot be opened.
        reason: String,
        /// What would be given up.
        losses: Vec<Loss>,
    },
    /// It could not, and can now.
    Repaired {
        /// Why it could not be opened.
        reason: String,
        /// What was given up.
        losses: Vec<Loss>,
        /// Where the damaged folder is.
        aside: PathBuf,
    },
    /// It cannot, and no repair is known.
    Hopeless {
        /// Why it cannot be opened.
        reason: String,
    },
}

/// Examines every database of a data folder, or the one of this name, and repairs what is
/// damaged if the loss is accepted. Without that the data folder stays as it was, but for torn
/// tails of logs, which a node would cut off as well.
///
/// # Errors
/// A node has the folder, or it is one of a cluster, its catalogue cannot be read, there is no database of this name, or
/// the disk refuses.
pub fn repair(
    data: &Path,
    host: &Host,
    only: Option<&str>,
    accept_loss: bool,
) -> Result<Vec<Examined>, NodeError> {
    let folder = DataFolder::open(data)?;
    joining::require_alone(data)?;
    let read = read_record(&MetaFile::of(&folder))?;
    let record = read.map(|(_, record)| record).unwrap_or_default();
    if let Some(name) = only.filter(|name| !record.databases.contains_key(*name)) {
        let name = name.to_owned();
        return Err(NodeError::NoDatabase { name });
    }
    let mut found = Vec::new();
    for (name, entry) in &record.databases {
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let patient = Patient {
            data,
            host,
            name,
            // A repaired copy is in nobody's archive.
            entry: DatabaseRecord {
                log_archive: None,
                ..entry.clone()
            },
            folder: folder_of(data, entry.oid),
        };
        found.push(Examined {
            database: name.clone(),
            folder: patient.folder.clone(),
            verdict: patient.examine(accept_loss)?,
        });
    }
    Ok(found)
}

/// A database that is examined.
struct Patient<'a> {
    data: &'a Path,
    host: &'a Host,
    name: &'a str,
    entry: DatabaseRecord,
    folder: PathBuf,
}

impl Patient<'_> {
    fn examine(&self, accept_loss: bool) -> Result<Verdict, NodeError> {
        let opened = open_existing(&self.folder, self.host, self.name, &self.entry);
        let Err(error) = opened else {
            return Ok(Verdict::Sound);
        };
        let reason = with_causes(&error);
        if !is_curable(&error) {
            return Ok(Verdict::Hopeless { reason });
        }
        let copy = self.folder.with_extension("repair");
        let verdict = self.treat(&copy, reason, accept_loss);
        // After an exchange it is not there any more.
        match std::fs::remove_dir_all(&copy) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(&copy)(error)),
            _ => verdict,
        }
    }

    fn treat(&self, copy: &Path, reason: String, accept_loss: bool) -> Result<Verdict, NodeError> {
        copy_folder(&self.folder, copy).map_err(at(copy))?;
        let Some(losses) = self.cut_out(copy) else {
            return Ok(Verdict::Hopeless { reason });
        };
        if !accept_loss {
            return Ok(Verdict::Repairable { reason, losses });
        }
        let damaged = self.data.join(DAMAGED);
        make_folder(&damaged).map_err(at(&damaged))?;
        make_folder(&self.folder).map_err(at(&self.folder))?;
        let aside = unused_name(&damaged, &self.entry.oid.to_string());
        exchange_folders(&self.folder, copy).map_err(at(&self.folder))?;
        std::fs::rename(copy, &aside).map_err(at(copy))?;
        Ok(Verdict::Repaired {
            reason,
            losses,
            aside,
        })
    }

    /// Cuts damage out of the copy until it opens, and gives it a checkpoint. `None` if it
    /// never does.
    fn cut_out(&self, copy: &Path) -> Option<Vec<Loss>> {
        let mut losses = Vec::new();
        if !self.folder.join("log").is_dir() {
            losses.push(Loss::Everything);
        }
        loop {
            match self.open_leniently(copy) {
                Ok(()) => return Some(losses),
                Err(OpenError::Recover(error)) => {
                    // The same again is no progress.
                    let loss = self.cut(copy, &error).filter(|loss| !losses.contains(loss));
                    losses.push(loss?);
                }
                Err(error) => {
                    tracing::debug!(error = with_causes(&error), "the copy does not open");
                    return None;
                }
            }
        }
    }

    fn open_leniently(&self, copy: &Path) -> Result<(), OpenError> {
        let database = open_database(copy, self.host, self.name, &self.entry, true)?;
        database.store.checkpoint()?;
        Ok(())
    }

    fn cut(&self, copy: &Path, error: &RecoverError) -> Option<Loss> {
        match cut_damage(copy, self.entry.oid, error) {
            Ok(loss) => loss,
            Err(error) => {
                tracing::debug!(error = with_causes(&error), "the damage cannot be cut out");
                None
            }
        }
    }
}

/// Whether less of it might open.
fn is_curable(error: &OpenError) -> bool {
    Unopened::of(error).is_damaged() || matches!(error, OpenError::Recover(RecoverError::Io { .. }))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> NodeError {
    let path = path.to_owned();
    move |source| NodeError::Repair { path, source }
}
