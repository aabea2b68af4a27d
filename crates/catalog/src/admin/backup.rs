//! BACKUP DATABASE and RESTORE DATABASE.
//!
//! A backup is written by the server, into a folder of its machine or to an object store, while
//! clients go on. A restore creates a new database beside the others; nobody can connect to it
//! before it is complete.

use std::{
    cell::Cell,
    time::{Duration, Instant, UNIX_EPOCH},
};

use aerostat_api::{Notice, NoticeSeverity};
use aerostat_sql::utility::RestorePoint;
use aerostat_storage::{
    SystemDisk, TenantStore,
    backup::{BackupError, BackupInfo, BackupSource, FolderSource, Restore, Until, restore},
};
use aerostat_txn::CancelToken;
use aerostat_types::{CommitTs, ErrorKind, SqlError, TenantId, Zone, text::parse_timestamptz};

use super::{
    database::duplicate,
    databases::{Stage, closing},
    leaving::wait_for,
    node::{Node, allocate_oid},
    stoppable::Stoppable,
};
use crate::{
    actor::Actor,
    ddl::CommandResult,
    failure::{canceled, causes, from_storage, with_causes},
    state::{CopiesRecord, Database, DatabaseRecord},
};

/// How long a backup of a copy waits for what the leader has acknowledged.
const CURRENT_WAIT: Duration = Duration::from_secs(10);

/// What RESTORE DATABASE says.
pub struct RestoreRequest<'a> {
    /// The new database's name.
    pub database: &'a str,
    /// Where the backup is.
    pub from: &'a str,
    /// Where the log after it is; if nothing is given, where the node knows of.
    pub logs: &'a [String],
    /// How far to go.
    pub until: Option<&'a RestorePoint>,
    /// The session's time zone.
    pub zone: Zone,
    /// Cancelled with the statement.
    pub cancel: &'a CancelToken,
}

impl Node {
    /// BACKUP DATABASE, as of now: of a copy that another node leads, too.
    ///
    /// # Errors
    /// Only superusers may: the server writes with its own rights. The database is not there, or
    /// its copy here does not get what its leader has;
    /// the place is not empty or cannot be written; the statement was cancelled. Nothing is
    /// left of the backup then.
    pub fn back_up(
        &self,
        actor: &Actor,
        name: &str,
        to: &str,
        base: Option<&str>,
        cancel: &CancelToken,
    ) -> Result<CommandResult, SqlError> {
        require_superuser(actor, "back up a database")?;
        let database = self.opened_on_demand(name)?;
        await_current(name, &database, cancel)?;
        let sink = self.host.places.for_backup(to, base).map_err(from_backup)?;
        let sink = Stoppable {
            place: &*sink,
            cancel,
        };
        let info = database.store.backup(name, &sink);
        let info = info.map_err(|error| match database.store.is_leaving() {
            true => closing(name),
            false => from_stoppable(error, cancel),
        })?;
        Ok(CommandResult::new("BACKUP").with_notices(vec![told(
            format!("backup of database \"{name}\" at commit {}", info.at),
            &info,
        )]))
    }

    /// RESTORE DATABASE.
    ///
    /// # Errors
    /// Only superusers may; the name is taken; the backup or its log is missing, damaged, or
    /// does not reach the point; no files or memory for the new database. There is no
    /// database of that name then.
    pub fn restore(
        &self,
        actor: &Actor,
        request: &RestoreRequest<'_>,
    ) -> Result<CommandResult, SqlError> {
        require_superuser(actor, "restore a database")?;
        let until = request
            .until
            .map(|point| until(point, request.zone))
            .transpose()?;
        let cancel = request.cancel;
        let backup = self.host.places.source(request.from).map_err(from_backup)?;
        let backup = Stoppable {
            place: &*backup,
            cancel,
        };
        let info = BackupInfo::read(&backup).map_err(|error| from_stoppable(error, cancel))?;
        let logs = self.logs_after(&info, request, until.is_some())?;
        let logs: Vec<Stoppable<'_, dyn BackupSource>> = logs
            .iter()
            .map(|log| Stoppable {
                place: &**log,
                cancel,
            })
            .collect();
        let logs: Vec<&dyn BackupSource> = logs.iter().map(|log| log as _).collect();

        // Its number, so that its files are in nobody's way.
        let number = self.change(|record| {
            if record.databases.contains_key(request.database) {
                return Err(duplicate(request.database));
            }
            allocate_oid(record)
        })?;
        let id = TenantId(number);
        let what = Restore {
            backup: &backup,
            logs: &logs,
            until,
        };
        let restored = restore(&what, id, &self.folder_of(id))
            .map_err(|error| from_stoppable(error, cancel))?;
        let mut entry = DatabaseRecord::new(id, &actor.role);
        let shown = self.restored_stage(request.database, &mut entry);
        let shown = shown.and_then(|stage| self.show_restored(request.database, entry, stage));
        if shown.is_err()
            && let Err(error) = self.remove_files(id)
        {
            tracing::warn!(%error, tenant = %id, "the files of a restore stay until a restart");
        }
        shown?;
        self.await_begun(request.database, cancel)?;
        Ok(CommandResult::new("RESTORE").with_notices(vec![told(
            format!(
                "database \"{}\" is what \"{}\" was at commit {}",
                request.database, info.database, restored.at
            ),
            &info,
        )]))
    }

    /// Where a database that was restored begins: open, or in a cluster as one that this node leads first.
    fn restored_stage(&self, name: &str, entry: &mut DatabaseRecord) -> Result<Stage, SqlError> {
        let Some(copies) = self.copies_from_here() else {
            return self.opened(name, entry).map(Stage::Open);
        };
        let folder = self.folder_of(entry.oid);
        let timeline = TenantStore::read_timeline(entry.oid, &folder, &SystemDisk);
        let timeline = timeline.map_err(|error| {
            SqlError::new(ErrorKind::IoError, "could not read what was restored")
                .with_detail(with_causes(&error))
        })?;
        entry.copies = Some(CopiesRecord {
            timeline: timeline.unwrap_or(copies.timeline),
            ..copies
        });
        self.place_restored(entry)?;
        Ok(Stage::closed())
    }

    fn show_restored(
        &self,
        name: &str,
        entry: DatabaseRecord,
        stage: Stage,
    ) -> Result<(), SqlError> {
        self.change_databases(
            |record, _| {
                // Somebody may have taken the name meanwhile.
                if record.databases.contains_key(name) {
                    return Err(duplicate(name));
                }
                record.databases.insert(name.to_owned(), entry);
                Ok(stage)
            },
            |mut databases, stage| {
                databases.put(name, stage);
            },
        )
    }

    /// Where the log after the backup is: as the statement says, else, if it asks for a
    /// point after the backup, the archive and the log of the database it is of.
    fn logs_after(
        &self,
        info: &BackupInfo,
        request: &RestoreRequest<'_>,
        beyond: bool,
    ) -> Result<Vec<Box<dyn BackupSource>>, SqlError> {
        if !request.logs.is_empty() {
            let places = request.logs.iter().map(|log| self.host.places.source(log));
            return places.collect::<Result<_, _>>().map_err(from_backup);
        }
        if !beyond {
            return Ok(Vec::new());
        }
        let record = self.record();
        let origin = record
            .databases
            .iter()
            .find(|(_, entry)| entry.oid == info.tenant);
        let Some((name, entry)) = origin else {
            return Ok(Vec::new());
        };
        // What is committed by now is in complete files then.
        // Of one that cannot be opened the files are what they are.
        if let Ok(database) = self.opened_on_demand(name) {
            database.store.archive_log().map_err(from_backup)?;
        }
        let archive = entry.log_archive.iter();
        let mut logs = archive
            .map(|archive| self.host.places.source(archive))
            .collect::<Result<Vec<_>, _>>()
            .map_err(from_backup)?;
        let own = self.folder_of(info.tenant).join("log");
        logs.push(Box::new(FolderSource::new(&own)));
        Ok(logs)
    }
}

/// Waits until a copy has everything that was acknowledged anywhere before now.
///
/// What the leader says that is heard from now on may have been sent before its last commit. But each member has written a
/// commit before it is acknowledged, so what is written here by then has all of them.
fn await_current(name: &str, database: &Database, cancel: &CancelToken) -> Result<(), SqlError> {
    let Some(copy) = &database.copy else {
        return Ok(());
    };
    let since = Instant::now();
    let wanted = Cell::new(None);
    let is_current = || {
        if copy.leads() {
            return true;
        }
        let facts = copy.facts();
        if facts.current.is_none_or(|current| current < since) {
            return false;
        }
        // The end of a log may be taken back.
        let through = facts.written.min(wanted.get().unwrap_or(facts.written));
        wanted.set(Some(through));
        database.store.txns().last_commit() >= through
    };
    if wait_for(is_current, CURRENT_WAIT, cancel)? {
        return Ok(());
    }
    Err(SqlError::new(
        ErrorKind::ObjectNotInPrerequisiteState,
        format!("the copy of database \"{name}\" here does not have all that its leader has"),
    )
    .with_hint(
        "Back it up in a session of the database itself, which the node that leads it has, or try again.",
    ))
}

fn told(message: String, info: &BackupInfo) -> Notice {
    let mut notice = Notice::new(NoticeSeverity::Info, message);
    notice.detail = Some(format!(
        "{} rows, {} files, {} bytes.",
        info.rows,
        info.files.len(),
        info.bytes
    ));
    notice
}

fn require_superuser(actor: &Actor, what: &str) -> Result<(), SqlError> {
    if actor.superuser {
        return Ok(());
    }
    Err(SqlError::new(
        ErrorKind::InsufficientPrivilege,
        format!("must be superuser to {what}"),
    )
    .with_hint("The server reads or writes files with its own rights."))
}

fn until(point: &RestorePoint, zone: Zone) -> Result<Until, SqlError> {
    match point {
        RestorePoint::Commit(number) => Ok(Until::Commit(CommitTs(*number))),
        RestorePoint::Time(text) => {
            let micros = parse_timestamptz(text, &zone)?;
            let since = u64::try_from(micros).map_err(|_| {
                SqlError::new(
                    ErrorKind::InvalidParameterValue,
                    format!("there was no backup at {text}"),
                )
            })?;
            Ok(Until::Time(UNIX_EPOCH + Duration::from_micros(since)))
        }
    }
}

/// The error of reading or writing that a cancelled statement stops.
fn from_stoppable(error: BackupError, cancel: &CancelToken) -> SqlError {
    if cancel.is_cancelled() {
        return canceled();
    }
    from_backup(error)
}

pub(super) fn from_backup(error: BackupError) -> SqlError {
    let message = error.to_string();
    let (kind, hint) = match error {
        BackupError::Storage(error) => return from_storage(error),
        BackupError::NotDurable => (ErrorKind::ObjectNotInPrerequisiteState, None),
        BackupError::NotEmpty { .. } => (
            ErrorKind::InvalidParameterValue,
            Some("Name a place where nothing is yet."),
        ),
        BackupError::NotAPlace { .. } => (
            ErrorKind::InvalidParameterValue,
            Some("Name an absolute path of the server's machine, or the URL of an object store."),
        ),
        BackupError::BeforeBackup { .. } => (
            ErrorKind::InvalidParameterValue,
            Some("Use an earlier backup."),
        ),
        BackupError::BeyondLog { .. } | BackupError::LogMissing { .. } => (
            ErrorKind::InvalidParameterValue,
            Some("Name the places with the log files after the backup: RESTORE … LOG 'place'."),
        ),
        BackupError::NotABackup => (ErrorKind::InvalidParameterValue, None),
        _ => (ErrorKind::IoError, None),
    };
    let detail = causes(&error);
    let mut error = SqlError::new(kind, message);
    if !detail.is_empty() {
        error = error.with_detail(detail);
    }
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}
