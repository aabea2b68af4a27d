//! A node in a cluster: its record of roles and databases is one that it shares with others, and its databases
//! are copies.
//!
//! ```text
//!  the shared record ──► refresh ──► stages: new names, gone ones, limits
//!        ▲                              │ Closed
//!        │ compare and swap             ▼
//!  CREATE, ALTER, DROP        whoever keeps copies: open_copy ─► Open ─► close_copy ─► Closed
//! ```
//!
//! * A statement that changes the record catches up with it first. Where another node was quicker nothing
//!   has happened, and the statement is run again.
//! * Databases are opened by whoever keeps their copies, not by who connects.
//! * A folder that was a single node's brings its databases into a cluster that has none yet.

use std::{collections::HashMap, path::Path, sync::Arc, time::Duration};

use aerostat_storage::{
    Applier, CopyOf, OpenOptions, RecoverError, TenantStore, Timeline, Version, make_folder,
};
use aerostat_txn::CancelToken;
use aerostat_types::{CommitTs, ErrorKind, SqlError, TenantId};

use super::{
    attempt::Attempt,
    databases::{Databases, Failed, Stage, Unopened},
    leaving::{Holders, TELL_AGAIN, WORK_WAIT, wait_for},
    limits,
    node::{Node, remove_folder},
    opening::follow,
    record::{NodeError, OpenError, read_record},
};
use crate::{
    ddl,
    failure::with_causes,
    state::{CopiesRecord, CopyState, Database, DatabaseRecord, NodeRecord, Standing},
};

/// How long CREATE DATABASE waits until it can be connected to.
const BEGIN_WAIT: Duration = Duration::from_secs(10);

/// A copy that was opened.
pub struct OpenedCopy {
    /// The database. Its sessions are read-only.
    pub database: Arc<Database>,
    /// What does its leader's commits.
    pub applier: Applier,
    /// The last catalogue in its log.
    pub catalog: Option<Arc<[u8]>>,
}

impl Node {
    /// What a database that is made here begins with: in a cluster this node leads it first.
    pub(super) fn copies_from_here(&self) -> Option<CopiesRecord> {
        let shared = self.host.shared.as_ref()?;
        Some(CopiesRecord {
            timeline: Timeline::begin(&*self.host.clock),
            home: shared.me,
        })
    }

    /// Follows what others have made of the record that is shared; whether there was something.
    ///
    /// # Errors
    /// `IoError` when it cannot be read.
    pub fn refresh(&self) -> Result<bool, SqlError> {
        let mut version = self.changing.lock();
        let Some(newer) = self.newer(*version)? else {
            return Ok(false);
        };
        // Whoever connects need not wait for the store.
        self.take_over_record(newer, &mut version, &mut self.databases.write());
        Ok(true)
    }

    /// The record that is shared, if it is newer than this; none at a node that is alone, which knows what it has
    /// written.
    pub(super) fn newer(
        &self,
        version: Version,
    ) -> Result<Option<(Version, NodeRecord)>, SqlError> {
        if self.host.shared.is_none() {
            return Ok(None);
        }
        let found = read_record(self.meta()).map_err(|error| {
            SqlError::new(ErrorKind::IoError, "could not read the cluster's catalogue")
                .with_detail(with_causes(&error))
        })?;
        Ok(found.filter(|(newer, _)| *newer > version))
    }

    /// Waits until the shared record may be another than it was, but no longer than this; whether it may: then
    /// [`Self::refresh`] follows it.
    pub fn await_change(&self, at_most: Duration) -> bool {
        let known = *self.changing.lock();
        match self.meta().wait_newer(Some(known), at_most) {
            Ok(newer) => newer.is_some(),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the cluster's catalogue cannot be read"
                );
                std::thread::sleep(at_most);
                true
            }
        }
    }

    /// Shows a record that another node has written, and has databases follow it.
    pub(super) fn take_over_record(
        &self,
        (newer, record): (Version, NodeRecord),
        version: &mut Version,
        databases: &mut Databases,
    ) {
        let before = self.record();
        if record.memory != before.memory
            && let Some(memory) = record.memory
            && !self.host.governor.is_given()
        {
            self.host.governor.set_target(memory);
        }
        let now: HashMap<TenantId, (&String, &DatabaseRecord)> = record
            .databases
            .iter()
            .map(|(name, entry)| (entry.oid, (name, entry)))
            .collect();
        // All names first: two may have changed theirs.
        let mut stages = HashMap::new();
        for (name, entry) in &before.databases {
            if let Some(stage) = databases.remove(name) {
                stages.insert(entry.oid, (entry, stage));
            }
        }
        for (id, (name, entry)) in &now {
            let stage = match stages.remove(id) {
                None => Stage::closed(),
                Some((then, stage)) => {
                    if let Some(database) = stage.inside() {
                        String::clone_from(&mut database.name.write(), name);
                        limits::set(database.store.budget(), entry);
                        follow(database, then, entry, &*self.host.places);
                    }
                    stage
                }
            };
            databases.put(name, stage);
        }
        *version = newer;
        self.show(record);
        // What was dropped goes with whoever keeps its copies.
        drop(stages);
    }

    /// Waits until a database that was made a moment ago can be connected to. Does not wait for one that is
    /// no copy, or that another node begins to lead: whoever connects waits for that.
    pub(super) fn await_begun(&self, name: &str, cancel: &CancelToken) -> Result<(), SqlError> {
        let record = self.record();
        let entry = record.databases.get(name);
        match (&self.host.shared, entry) {
            (Some(shared), Some(entry)) if entry.copies.is_some_and(|of| of.home == shared.me) => {}
            // Whoever connects to it is passed on.
            _ => return Ok(()),
        }
        let has_begun = || {
            let database = self.database(name);
            database.is_some_and(|database| database.takes_changes())
        };
        if !wait_for(has_begun, BEGIN_WAIT, cancel)? {
            tracing::warn!(database = name, "made, and nobody leads it yet");
        }
        Ok(())
    }

    /// A database whose catalogue this node can change.
    ///
    /// # Errors
    /// Another node leads it.
    pub(super) fn require_changeable(
        &self,
        database: &Database,
        doing: &str,
    ) -> Result<(), SqlError> {
        match database.standing() {
            Standing::Alone | Standing::Leads => Ok(()),
            Standing::Follows => Err(SqlError::new(
                ErrorKind::ReadOnlyTransaction,
                format!(
                    "{doing} has to change database \"{}\", which another node leads",
                    database.name.read()
                ),
            )
            .with_hint(
                "Run it on the node that leads the database; aerostat.copies says which that is.",
            )),
        }
    }

    /// In a cluster, databases that this node leads, each: a copy may lack what its leader has a moment before.
    ///
    /// # Errors
    /// Another node leads one, or this node has one not open.
    pub(super) fn require_all_changeable(
        &self,
        databases: &Databases,
        doing: &str,
    ) -> Result<(), SqlError> {
        if self.host.shared.is_none() {
            return Ok(());
        }
        let record = self.record();
        databases
            .stages()
            .try_for_each(|(name, stage)| match stage.inside() {
                Some(database) => self.require_changeable(database, doing),
                None => Err(self.not_open(name, record.databases.get(name))),
            })
    }

    /// A node whose databases' logs can be archived.
    ///
    /// # Errors
    /// Those of a cluster cannot: each node's log files have numbers of their own.
    pub(super) fn require_archivable(&self) -> Result<(), SqlError> {
        match self.host.shared {
            None => Ok(()),
            Some(_) => Err(SqlError::new(
                ErrorKind::FeatureNotSupported,
                "log_archive is not available for a database of a cluster",
            )
            .with_hint("Back the database up with BACKUP DATABASE.")),
        }
    }

    /// Opens a database as a copy of others', with everything that its log has through a place, and lets
    /// sessions in as soon as `copy` is shown. It is closed, or could not be opened before.
    ///
    /// # Errors
    /// Why it could not be opened. It is known as such then.
    pub fn open_copy(
        &self,
        id: TenantId,
        copy: &Arc<CopyState>,
        through: Option<CommitTs>,
    ) -> Result<OpenedCopy, Unopened> {
        let attempt = Arc::new(Attempt::default());
        let started = std::time::Instant::now();
        let claimed = self.with_databases_mut(|databases, record| {
            databases.settle();
            let (name, entry) = record.database_of(id)?;
            if let Some(Stage::Open(_) | Stage::Leaving(_)) = databases.stage(name) {
                return None;
            }
            databases.put(name, Stage::Opening(Arc::clone(&attempt)));
            Some((name.clone(), entry.clone()))
        });
        let Some((name, entry)) = claimed else {
            return Err(Unopened::ended("it is open, or was dropped".to_owned()));
        };
        let opened = open(
            &self.folder_of(id),
            &self.host,
            &name,
            &entry,
            copy,
            through,
        );
        let took = started.elapsed();
        let (stage, result) = match opened {
            Ok(opened) => (Stage::Open(Arc::clone(&opened.database)), Ok(opened)),
            Err(error) => {
                tracing::error!(
                    database = name,
                    error = &error as &dyn std::error::Error,
                    "the copy could not be opened"
                );
                let why = Unopened::of(&error);
                (Stage::Failed(Failed::now(why.clone(), took)), Err(why))
            }
        };
        self.put_by_id(id, stage, |opened, now| {
            follow(opened, &entry, now, &*self.host.places);
        });
        let ending = match &result {
            Ok(_) => Ok(()),
            Err(why) => Err(why.refusal(&name)),
        };
        attempt.end(ending);
        result
    }

    /// Says of a copy that is closed why it is not open.
    pub fn fail_copy(&self, id: TenantId, why: Unopened) {
        self.put_by_id(
            id,
            Stage::Failed(Failed::now(why, Duration::ZERO)),
            |_, _| {},
        );
    }

    /// Puts a database at a stage, if the record has it.
    fn put_by_id(
        &self,
        id: TenantId,
        stage: Stage,
        opened: impl FnOnce(&Database, &DatabaseRecord),
    ) {
        self.with_databases_mut(|databases, record| {
            if let Some((name, entry)) = record.database_of(id) {
                if let Stage::Open(database) = &stage {
                    name.clone_into(&mut database.name.write());
                    opened(database, entry);
                }
                databases.put(name, stage);
            }
        });
    }

    /// Ends a copy's sessions, and waits until nobody has anything of it; whoever drives it has let go before.
    /// Also one that was dropped: then `database` is what is left of it.
    pub fn close_copy(&self, id: TenantId, database: Arc<Database>, holders: &dyn Holders) {
        database.store.set_leaving(true);
        // What comes next, if it is served as this opening of it.
        let pass = |next: Stage| {
            self.with_databases_mut(|databases, record| {
                if let Some((name, _)) = record.database_of(id)
                    && let Some(inside) = databases.stage(name).and_then(Stage::inside)
                    && Arc::ptr_eq(inside, &database)
                {
                    databases.put(name, next);
                }
            });
        };
        pass(Stage::Leaving(Arc::clone(&database)));
        let cancel = CancelToken::new();
        let has_none = || database.connection_count() <= 0;
        loop {
            holders.end_sessions(&database);
            match wait_for(has_none, TELL_AGAIN, &cancel) {
                Ok(true) => break,
                _ => tracing::debug!(tenant = %id, "sessions of a copy go on"),
            }
        }
        holders.let_go(&database);
        let ended = database.store.ended();
        pass(ended.clone().map_or_else(Stage::closed, Stage::Ending));
        drop(database);
        let Some(ended) = ended else { return };
        while !ended.wait(WORK_WAIT) {
            tracing::warn!(tenant = %id, "something that was begun on a copy has not ended");
        }
    }

    /// Removes the files of a database that was dropped.
    ///
    /// # Errors
    /// They stay until a restart.
    pub fn remove_copy(&self, id: TenantId) -> Result<(), NodeError> {
        if !self.record().dropped.contains(&id) {
            return Ok(());
        }
        self.give_up_copy(id)
    }

    /// Removes the files of a database that is closed here, and has its copies on other nodes.
    ///
    /// # Errors
    /// They stay, as a whole or under another name, until it is tried again.
    pub fn give_up_copy(&self, id: TenantId) -> Result<(), NodeError> {
        let folder = self.folder_of(id);
        let gone = folder.with_extension("gone");
        // What a copy that was made anew has left beside it, and what was given up when the process ended.
        for beside in ["seed", "replaced", "gone"] {
            remove_folder(&folder.with_extension(beside))?;
        }
        // As a whole: half of them would be taken for a copy.
        match std::fs::rename(&folder, &gone) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(NodeError::Remove {
                    path: folder,
                    source,
                });
            }
            _ => {}
        }
        self.found(id);
        remove_folder(&gone)
    }

    /// Whether a database has a log here.
    pub fn has_log(&self, id: TenantId) -> bool {
        let files = self.folder_of(id).join("log").read_dir();
        files.is_ok_and(|mut files| files.next().is_some())
    }

    /// Says durably that the files of a database are lost that others take this node to have, until
    /// [`Self::found`].
    ///
    /// # Errors
    /// The disk takes it not.
    pub fn set_lost(&self, id: TenantId) -> std::io::Result<()> {
        let mark = self.lost_mark(id);
        if let Some(folder) = mark.parent() {
            make_folder(folder)?;
            std::fs::File::create(&mark)?.sync_all()?;
            std::fs::File::open(folder)?.sync_all()?;
        }
        Ok(())
    }

    /// Whether they are lost, and have not come back.
    pub fn is_lost(&self, id: TenantId) -> bool {
        self.lost_mark(id).exists()
    }

    /// The database has what its leader has.
    pub fn found(&self, id: TenantId) {
        let removed = std::fs::remove_file(self.lost_mark(id));
        if let Err(error) = removed
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(tenant = %id, %error, "a database is taken for lost that is not");
        }
    }

    fn lost_mark(&self, id: TenantId) -> std::path::PathBuf {
        self.folder_of(id).with_extension("lost")
    }

    /// Where the files of a database's copy are.
    pub fn copy_folder(&self, id: TenantId) -> std::path::PathBuf {
        self.folder_of(id)
    }
}

impl Database {
    /// Drops what a leader before has left: indexes that were never finished, tables that nothing names. The
    /// log takes changes.
    ///
    /// # Errors
    /// It takes none any more.
    pub fn settle_as_leader(&self) -> Result<(), aerostat_storage::StorageError> {
        self.catalog.pass_tables(self.store.highest_table());
        let catalog = self.catalog.load();
        ddl::settle_indexes(&catalog);
        self.store.retain_tables(&catalog.table_ids())
    }
}

fn open(
    folder: &Path,
    host: &super::Host,
    name: &str,
    entry: &DatabaseRecord,
    copy: &Arc<CopyState>,
    through: Option<CommitTs>,
) -> Result<OpenedCopy, OpenError> {
    let copies = entry.copies.ok_or_else(|| OpenError::Missing {
        path: folder.to_owned(),
    })?;
    let budget = host.governor.budget(name, entry.memory_ceiling());
    limits::set(&budget, entry);
    let mut options = OpenOptions::default();
    options.durability = entry.commit_durability();
    options.clock = Arc::clone(&host.clock);
    let of = CopyOf {
        timeline: copies.timeline,
        through,
    };
    let opened = TenantStore::open_copy(entry.oid, budget, folder, &options, of);
    let (store, recovered, applier) = opened.map_err(|error: RecoverError| error)?;
    let catalog = recovered.catalog.as_deref().map(Arc::from);
    let database = Database::recover(
        entry.oid,
        name,
        &entry.owner,
        store,
        &recovered,
        Some(Arc::clone(copy)),
    )?;
    database
        .statements
        .begin(host.statements, entry.statement_limits());
    tracing::info!(
        database = name,
        records = recovered.records,
        checkpoint = recovered.checkpoint_at.0,
        seconds = recovered.duration.as_secs_f64(),
        "opened a copy"
    );
    if entry.log_archive.is_some() {
        tracing::warn!(
            database = name,
            "the log of a database with copies is not archived"
        );
    }
    Ok(OpenedCopy {
        database,
        applier,
        catalog,
    })
}
