//! CREATE, ALTER and DROP DATABASE.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use aerostat_api::{Notice, NoticeSeverity};
use aerostat_sql::{
    grants::PredefinedRole,
    utility::{DatabaseChange, DatabaseCommand, DatabaseOptions, RoleName},
};
use aerostat_storage::backup::{BackupSink, Places};
use aerostat_txn::CancelToken;
use aerostat_types::{ErrorKind, SqlError, TenantId};

use super::{
    backup::from_backup,
    databases::{Stage, passing},
    leaving::{Closing, DISCONNECT_WAIT, Holders, in_use, require_unconnected},
    limits::{self, Limits},
    node::{Node, allocate_oid, role_in, undefined_database},
};
use crate::{
    actor::Actor,
    ddl::CommandResult,
    failure::canceled,
    state::{Database, DatabaseRecord, NodeRecord, PUBLIC, RoleRecord},
};

/// How often it is looked whether they have.
const DISCONNECT_LOOK: Duration = Duration::from_millis(20);

impl Node {
    /// Runs CREATE, ALTER or DROP DATABASE for a session of the database `current`. May wait
    /// some seconds for other sessions to end, or until it is cancelled; `holders` end them.
    ///
    /// # Errors
    /// As PostgreSQL: names, rights, sessions that are connected; `IoError` when it cannot be stored.
    pub fn execute_database(
        &self,
        actor: &Actor,
        current: &Database,
        command: &DatabaseCommand,
        holders: &dyn Holders,
        cancel: &CancelToken,
    ) -> Result<CommandResult, SqlError> {
        let done = CommandResult::new(command.tag());
        match command {
            DatabaseCommand::Create {
                name,
                owner,
                options,
            } => {
                self.create_database(actor, current, name, owner.as_ref(), options)?;
                self.await_begun(name, cancel)?;
            }
            DatabaseCommand::Alter {
                name,
                change: DatabaseChange::Rename(to),
            } => {
                self.await_disconnects(actor, current, name, cancel)?;
                self.rename_database(actor, current, name, to)?;
            }
            DatabaseCommand::Alter {
                name,
                change: DatabaseChange::Owner(to),
            } => {
                self.give_database(actor, name, to)?;
            }
            DatabaseCommand::Alter {
                name,
                change: DatabaseChange::Options(options),
            } => {
                self.limit_database(actor, name, options)?;
            }
            DatabaseCommand::Alter {
                name,
                change: DatabaseChange::Close { force },
            } => {
                let closing = self.close_database(actor, current, name, *force, holders, cancel)?;
                if closing == Closing::WasClosed {
                    let message = format!("database \"{name}\" is not open");
                    let notice = Notice::new(NoticeSeverity::Notice, message);
                    return Ok(done.with_notices(vec![notice]));
                }
            }
            DatabaseCommand::Drop {
                name,
                if_exists,
                force,
            } => match self
                .await_disconnects(actor, current, name, cancel)
                .and_then(|()| self.drop_database(actor, current, name, *force, holders))
            {
                Err(error) if *if_exists && error.kind == ErrorKind::InvalidCatalogName => {
                    let message = format!("{}, skipping", error.message);
                    return Ok(
                        done.with_notices(vec![Notice::new(NoticeSeverity::Notice, message)])
                    );
                }
                result => result?,
            },
        }
        Ok(done)
    }

    /// Waits for the sessions of somebody's own other database to end, and for whoever opens or
    /// closes it, but not for ever.
    fn await_disconnects(
        &self,
        actor: &Actor,
        current: &Database,
        name: &str,
        cancel: &CancelToken,
    ) -> Result<(), SqlError> {
        let record = self.record();
        let owns = |entry: &DatabaseRecord| actor.owns(&entry.owner);
        if !record.databases.get(name).is_some_and(owns) {
            return Ok(());
        }
        let is_busy = || {
            self.with_databases(|databases, _| match databases.stage(name) {
                Some(Stage::Open(database)) => {
                    database.id != current.id && database.connection_count() > 0
                }
                Some(stage) => stage.is_passing(),
                None => false,
            })
        };
        let deadline = Instant::now() + DISCONNECT_WAIT;
        while is_busy() && Instant::now() < deadline {
            if cancel.is_cancelled() {
                return Err(canceled());
            }
            thread::sleep(DISCONNECT_LOOK);
        }
        Ok(())
    }

    fn create_database(
        &self,
        actor: &Actor,
        current: &Database,
        name: &str,
        owner: Option<&RoleName>,
        options: &DatabaseOptions,
    ) -> Result<(), SqlError> {
        // Who may not is told before anybody is asked.
        require_creator(&self.record(), actor)?;
        let place = self.place_new(actor, options, current)?;
        self.change_databases(
            |record, _| {
                let rights = require_creator(record, actor)?;
                let owner = new_owner(record, actor, owner.unwrap_or(&RoleName::Current))?;
                if record.databases.contains_key(name) {
                    return Err(duplicate(name));
                }
                let is_operator = rights.is_member_of(PredefinedRole::AerostatOperator);
                let given = match is_operator {
                    true => Limits::default(),
                    false => Limits::of(record_of(record, current)?),
                };
                if options.log_archive.is_some() {
                    self.require_archivable()?;
                }
                let mut entry = DatabaseRecord {
                    memory_max: given.memory_max,
                    memory_weight: given.memory_weight,
                    cpu_weight: given.cpu_weight,
                    connection_limit: given.connection_limit,
                    statements: given.statements,
                    durability: given.durability,
                    log_archive: archive(&*self.host.places, is_operator, options)?.flatten(),
                    ..DatabaseRecord::new(TenantId(allocate_oid(record)?), &owner)
                };
                match is_operator {
                    true => limits::give(&mut entry, options),
                    false => limits::lower(&mut entry, options, self.host.statements)?,
                }
                if let Some(place) = place {
                    place.give(&mut entry);
                }
                limits::check_minima(record, &entry, self.target())?;
                // In a cluster it is opened by whoever keeps its copies.
                let stage = match entry.copies {
                    Some(_) => Stage::closed(),
                    None => Stage::Open(self.opened(name, &entry)?),
                };
                record.databases.insert(name.to_owned(), entry);
                Ok(stage)
            },
            |mut databases, stage| {
                databases.put(name, stage);
            },
        )
    }

    fn drop_database(
        &self,
        actor: &Actor,
        current: &Database,
        name: &str,
        force: bool,
        holders: &dyn Holders,
    ) -> Result<(), SqlError> {
        let (id, dropped) = self.change_databases(
            |record, databases| {
                let entry = record
                    .databases
                    .get(name)
                    .ok_or_else(|| undefined_database(name))?;
                require_owner(actor, name, entry)?;
                let id = entry.oid;
                let stage = databases.stage(name);
                if stage.is_some_and(Stage::is_passing) {
                    return Err(passing(name));
                }
                // One that is not open has no sessions.
                if let Some(database) = databases.get(name) {
                    if database.id == current.id {
                        return Err(in_use("cannot drop the currently open database"));
                    }
                    require_unconnected(database, name).map_err(|error| {
                        if force {
                            error.with_hint("WITH (FORCE) does not end sessions; end them first.")
                        } else {
                            error
                        }
                    })?;
                }
                record.databases.remove(name);
                // Other nodes may have folders of theirs, and be away.
                if self.host.shared.is_none() {
                    record.dropped.retain(|id| self.folder_of(*id).exists());
                }
                record.dropped.insert(id);
                Ok(id)
            },
            |mut databases, id| (id, databases.remove(name)),
        )?;
        if let Some(database) = dropped.as_ref().and_then(Stage::inside) {
            holders.let_go(database);
        }
        // The last reference, so its rows go here, after the locks. Files that stay
        // because of an error go at the next start, for the record says that it was dropped.
        drop(dropped);
        if self.host.shared.is_some() {
            // Whoever keeps its copies has them go.
            return Ok(());
        }
        if let Err(error) = self.remove_files(id) {
            tracing::warn!(%error, tenant = %id, "the files of a dropped database stay until a restart");
        }
        Ok(())
    }

    fn rename_database(
        &self,
        actor: &Actor,
        current: &Database,
        name: &str,
        to: &str,
    ) -> Result<(), SqlError> {
        self.change_databases(
            |record, databases| {
                let entry = record
                    .databases
                    .get(name)
                    .ok_or_else(|| undefined_database(name))?;
                require_owner(actor, name, entry)?;
                let rights = role_in(record, &actor.role)?;
                if !rights.superuser && !rights.create_database {
                    return Err(denied("permission denied to rename database"));
                }
                if record.databases.contains_key(to) {
                    return Err(duplicate(to));
                }
                match databases.stage(name) {
                    // It is renamed where it is known.
                    Some(Stage::Closed(_)) => {}
                    Some(Stage::Open(database)) if database.id == current.id => {
                        return Err(SqlError::new(
                            ErrorKind::FeatureNotSupported,
                            "current database cannot be renamed",
                        ));
                    }
                    _ => require_unconnected(databases.find(name)?, name)?,
                }
                if let Some(entry) = record.databases.remove(name) {
                    record.databases.insert(to.to_owned(), entry);
                }
                Ok(())
            },
            |mut databases, ()| {
                if let Some(stage) = databases.remove(name) {
                    if let Some(database) = stage.inside() {
                        to.clone_into(&mut database.name.write());
                    }
                    databases.put(to, stage);
                }
            },
        )
    }

    fn give_database(&self, actor: &Actor, name: &str, to: &RoleName) -> Result<(), SqlError> {
        if let Some(entry) = self.record().databases.get(name) {
            require_owner(actor, name, entry)?;
            let database = self.opened_on_demand(name)?;
            self.require_changeable(&database, "ALTER DATABASE")?;
        }
        self.change_databases(
            |record, databases| {
                let owner = new_owner(record, actor, to)?;
                let entry = record
                    .databases
                    .get_mut(name)
                    .ok_or_else(|| undefined_database(name))?;
                require_owner(actor, name, entry)?;
                // Its schema is given away with it.
                databases.find(name)?;
                Ok(std::mem::replace(&mut entry.owner, owner.clone())).map(|before| (before, owner))
            },
            |databases, (before, owner)| match databases.get(name) {
                Some(database) => give_public(database, &before, &owner),
                None => Ok(()),
            },
        )?
    }

    fn limit_database(
        &self,
        actor: &Actor,
        name: &str,
        options: &DatabaseOptions,
    ) -> Result<(), SqlError> {
        let placed = self.placed(actor, options)?;
        self.change_databases(
            |record, _| {
                let rights = role_in(record, &actor.role)?;
                let is_operator = rights.is_member_of(PredefinedRole::AerostatOperator);
                let entry = record
                    .databases
                    .get_mut(name)
                    .ok_or_else(|| undefined_database(name))?;
                if is_operator {
                    limits::give(entry, options);
                } else {
                    require_owner(actor, name, entry)?;
                    limits::lower(entry, options, self.host.statements)?;
                }
                if let Some(placed) = &placed {
                    placed.give(entry);
                }
                let mut sink = None;
                if let Some(archive) = archive(&*self.host.places, is_operator, options)? {
                    self.require_archivable()?;
                    sink = Some(sink_of(&*self.host.places, archive.as_deref())?);
                    entry.log_archive = archive;
                }
                let entry = entry.clone();
                limits::check_minima(record, &entry, self.target())?;
                Ok((entry, sink))
            },
            |databases, (entry, sink)| {
                if let Some(database) = databases.stage(name).and_then(Stage::inside) {
                    limits::set(database.store.budget(), &entry);
                    database.statements.follow(entry.statement_limits());
                    database.set_durability(entry.commit_durability());
                    if let Some(sink) = sink {
                        database.store.archive_log_to(sink);
                    }
                }
            },
        )
    }
}

/// The rights of a role that may make databases.
fn require_creator<'r>(record: &'r NodeRecord, actor: &Actor) -> Result<&'r RoleRecord, SqlError> {
    let rights = role_in(record, &actor.role)?;
    match rights.superuser || rights.create_database {
        true => Ok(rights),
        false => Err(denied("permission denied to create database")),
    }
}

/// The record of a database that is open.
pub(super) fn record_of<'r>(
    record: &'r NodeRecord,
    database: &Database,
) -> Result<&'r DatabaseRecord, SqlError> {
    let name = database.name.read();
    let entry = record.databases.get(&*name);
    entry.ok_or_else(|| undefined_database(&name))
}

/// What the options say of the log's archive. The server writes there, so only operators choose.
fn archive(
    places: &dyn Places,
    is_operator: bool,
    options: &DatabaseOptions,
) -> Result<Option<Option<String>>, SqlError> {
    if options.log_archive.is_some() && !is_operator {
        return Err(denied("permission denied to set log_archive").with_detail(
            "Only superusers and members of aerostat_operator choose where the server writes.",
        ));
    }
    if let Some(Some(text)) = &options.log_archive {
        places.check(text).map_err(from_backup)?;
    }
    Ok(options.log_archive.clone())
}

fn sink_of(
    places: &dyn Places,
    archive: Option<&str>,
) -> Result<Option<Arc<dyn BackupSink>>, SqlError> {
    let sink = archive.map(|text| places.for_archive(text)).transpose();
    sink.map_err(from_backup)
}

/// The schema `public` belongs to the database's owner.
fn give_public(database: &Arc<Database>, before: &str, owner: &str) -> Result<(), SqlError> {
    database.define(|draft| {
        let mut change = draft.change()?;
        if let Ok(public) = change.state.schema_mut(PUBLIC)
            && public.owner == before
        {
            owner.clone_into(&mut public.owner);
            change.publish()?;
        }
        Ok(())
    })
}

fn new_owner(record: &NodeRecord, actor: &Actor, owner: &RoleName) -> Result<String, SqlError> {
    actor.new_owner(owner, &|name| record.roles.contains_key(name))
}

pub(super) fn require_owner(
    actor: &Actor,
    name: &str,
    entry: &DatabaseRecord,
) -> Result<(), SqlError> {
    if actor.owns(&entry.owner) {
        return Ok(());
    }
    Err(denied(&format!("must be owner of database {name}")))
}

pub(super) fn duplicate(name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::DuplicateDatabase,
        format!("database \"{name}\" already exists"),
    )
}

pub(super) fn denied(message: &str) -> SqlError {
    SqlError::new(ErrorKind::InsufficientPrivilege, message)
}
