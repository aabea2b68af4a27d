//! The node's record and its open databases, and how both are changed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use aerostat_api::RoleInfo;
use aerostat_memory::Governor;
use aerostat_sql::grants::PredefinedRole;
use aerostat_storage::{
    DataFolder, MetaFile, MetaStore, OpenOptions, Swapped, TenantStore, Version, make_folder,
    repair,
};
use aerostat_types::{ByteSize, ErrorKind, SqlError, TenantId};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockWriteGuard};

use super::{
    connection::Counts,
    databases::{Databases, Failed, Opening, Stage, Unopened},
    host::Host,
    joining, limits,
    record::{NodeError, OpenError, TENANTS, first_record, folder_of, read_record, write_record},
};
use crate::{
    actor::Actor,
    admin::DatabaseState,
    ddl,
    failure::with_causes,
    state::{
        Database, DatabaseRecord, NodeRecord, PUBLIC, RoleRecord, StatementsRecord, undefined_role,
    },
};

/// The folder in the data folder for databases' folders that no record names: they are moved
/// there, and nobody removes them but the operator.
const UNCLAIMED: &str = "unclaimed";

/// The node's roles and databases. Locks are taken in the order of the fields.
pub struct Node {
    /// The record's version in the store. Held while a change is made, stored and shown.
    pub(super) changing: Mutex<Version>,
    pub(super) databases: RwLock<Databases>,
    record: RwLock<Arc<NodeRecord>>,
    pub(super) counts: Arc<Counts>,
    /// Its lock is held as long as this is there.
    data: DataFolder,
    meta: Arc<dyn MetaStore>,
    pub(super) host: Host,
}

impl Node {
    /// Opens the node of a data folder; makes superuser and database
    /// [`BOOTSTRAP`](super::BOOTSTRAP), and the database `postgres`, in a new one. With [`Opening::Eager`] every database
    /// is recovered from its log; one that cannot be is not served, and the others are. With
    /// [`Opening::Lazy`] none is read.
    ///
    /// # Errors
    /// Another process has the folder, it cannot be read or written, or its catalogue is
    /// damaged or missing.
    pub fn open(data: &Path, host: Host, opening: Opening) -> Result<Self, NodeError> {
        let folder = DataFolder::open(data)?;
        let meta: Arc<dyn MetaStore> = match &host.shared {
            Some(shared) => Arc::clone(&shared.record),
            None => {
                joining::require_alone(data)?;
                Arc::new(MetaFile::of(&folder))
            }
        };
        let (version, record) = match (&host.shared, read_record(&*meta)?) {
            (None, Some(read)) => read,
            (None, None) => first_start(data, &*meta)?,
            (Some(shared), found) => joining::join(&folder, shared, found)?,
        };
        settle_folders(data, &record)?;
        if let Some(memory) = record.memory
            && !host.governor.is_given()
        {
            host.governor.set_target(memory);
        }
        let mut databases = Databases::default();
        for (name, entry) in &record.databases {
            let stage = match opening {
                _ if host.shared.is_some() => Stage::closed(),
                Opening::Eager => open_at_start(data, &host, name, entry),
                Opening::Lazy => Stage::closed(),
            };
            databases.put(name, stage);
        }
        Ok(Self {
            changing: Mutex::new(version),
            databases: RwLock::new(databases),
            record: RwLock::new(Arc::new(record)),
            counts: Arc::default(),
            data: folder,
            meta,
            host,
        })
    }

    /// The roles and databases as they are now.
    pub fn record(&self) -> Arc<NodeRecord> {
        Arc::clone(&self.record.read())
    }

    /// How many statements of a database run and wait where its record says nothing of it.
    pub fn statement_defaults(&self) -> StatementsRecord {
        self.host.statements
    }

    pub(super) fn show(&self, record: NodeRecord) {
        *self.record.write() = Arc::new(record);
    }

    pub(super) fn meta(&self) -> &dyn MetaStore {
        &*self.meta
    }

    /// Every database that is in memory, in order of names: those that are open, and those that are
    /// about to be closed.
    pub fn open_databases(&self) -> Vec<Arc<Database>> {
        let mut open: Vec<(String, Arc<Database>)> = self
            .databases
            .read()
            .stages()
            .filter_map(|(name, stage)| Some((name.clone(), Arc::clone(stage.inside()?))))
            .collect();
        open.sort_by(|a, b| a.0.cmp(&b.0));
        open.into_iter().map(|(_, database)| database).collect()
    }

    /// The open database of this name.
    pub fn database(&self, name: &str) -> Option<Arc<Database>> {
        self.databases.read().get(name).cloned()
    }

    /// Whether a database can be used. One that is not there is closed.
    pub fn state_of(&self, name: &str) -> DatabaseState {
        let databases = self.databases.read();
        let stage = databases.stage(name);
        stage.map_or(DatabaseState::Closed, Stage::state)
    }

    /// Whether there is a role of this name.
    pub fn has_role(&self, name: &str) -> bool {
        self.record.read().roles.contains_key(name)
    }

    /// Whether the role is there and may do everything.
    pub fn is_superuser(&self, name: &str) -> bool {
        self.record
            .read()
            .roles
            .get(name)
            .is_some_and(|role| role.superuser)
    }

    /// Whether the role is there and may do what members of a predefined role may.
    pub fn is_member(&self, name: &str, of: PredefinedRole) -> bool {
        let record = self.record();
        let role = record.roles.get(name);
        role.is_some_and(|role| role.is_member_of(of))
    }

    /// What must be known of a role before it is let in.
    pub fn role(&self, name: &str) -> Option<RoleInfo> {
        let record = self.record();
        let role = record.roles.get(name)?;
        Some(RoleInfo {
            name: name.to_owned(),
            login: role.login,
            superuser: role.superuser,
            scram: role
                .verifier
                .as_deref()
                .and_then(|verifier| verifier.parse().ok()),
            connection_limit: u32::try_from(role.connection_limit).ok(),
        })
    }

    /// The role's rights in the database as they are now.
    ///
    /// # Errors
    /// The role or the database has been dropped since the session began.
    pub fn actor(
        &self,
        role: &str,
        database: &Database,
        search_path: Vec<String>,
    ) -> Result<Actor, SqlError> {
        let record = self.record();
        let name = database.name.read().clone();
        let rights = role_in(&record, role)?;
        let entry = record
            .databases
            .get(&name)
            .ok_or_else(|| undefined_database(&name))?;
        let everyone = |grantee: &String| grantee == role || grantee == PUBLIC;
        Ok(Actor {
            role: role.to_owned(),
            superuser: rights.superuser,
            database_owner: entry.owner == role,
            create_in_database: entry.create.iter().any(everyone),
            database: name,
            search_path,
            temporary: None,
            zone: aerostat_types::Zone::UTC,
        })
    }

    /// Looks at the open databases and the record that belongs to them.
    pub(super) fn with_databases<T>(&self, look: impl FnOnce(&Databases, &NodeRecord) -> T) -> T {
        let databases = self.databases.read();
        let record = self.record();
        look(&databases, &record)
    }

    /// The same, unless somebody changes them at the moment, who may wait for the cluster's record meanwhile.
    pub(super) fn try_with_databases<T>(
        &self,
        look: impl FnOnce(&Databases, &NodeRecord) -> T,
    ) -> Option<T> {
        let databases = self.databases.try_read()?;
        let record = self.record();
        Some(look(&databases, &record))
    }

    /// Has databases change their stages, with the record that belongs to them. Takes no longer than
    /// that.
    pub(super) fn with_databases_mut<T>(
        &self,
        change: impl FnOnce(&mut Databases, &NodeRecord) -> T,
    ) -> T {
        let mut databases = self.databases.write();
        let record = self.record();
        change(&mut databases, &record)
    }

    /// Changes the record: on a copy, which is stored and then shown. With an
    /// error from `change` or from storing, nothing has changed.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&mut NodeRecord) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        self.change_databases(|record, _| change(record), |_, done| done)
    }

    /// Changes the record and the open databases: `change` the copy of the
    /// record, and `show` the databases once it is stored. Nobody connects meanwhile.
    pub(super) fn change_databases<T, D>(
        &self,
        change: impl FnOnce(&mut NodeRecord, &Databases) -> Result<D, SqlError>,
        show: impl FnOnce(RwLockWriteGuard<'_, Databases>, D) -> T,
    ) -> Result<T, SqlError> {
        let mut version = self.changing.lock();
        // What is shared may not answer for long; whoever connects need not wait for that.
        let newer = self.newer(*version)?;
        let mut databases = self.databases.write();
        databases.settle();
        if let Some(newer) = newer {
            self.take_over_record(newer, &mut version, &mut databases);
        }
        let before = self.record();
        let mut record = NodeRecord::clone(&before);
        let done = change(&mut record, &databases)?;
        if record != *before {
            self.persist(&mut version, &record)?;
            self.show(record);
        }
        Ok(show(databases, done))
    }

    /// Keeps the record, and with it what belongs to it in databases, as it is until this is dropped.
    /// Nobody who has it locks databases for longer than a look.
    pub(super) fn unchanged(&self) -> MutexGuard<'_, Version> {
        self.changing.lock()
    }

    fn persist(&self, version: &mut Version, record: &NodeRecord) -> Result<(), SqlError> {
        match write_record(&*self.meta, Some(*version), record) {
            Ok(Swapped::Done(next)) => {
                *version = next;
                Ok(())
            }
            // The folder's lock keeps others from a file. What is shared has been caught up with a moment ago.
            Ok(Swapped::Lost(_)) => Err(SqlError::new(
                ErrorKind::SerializationFailure,
                "the node's catalogue has been changed by another node",
            )
            .with_hint("Run the statement again.")),
            Err(error) => Err(SqlError::new(
                ErrorKind::IoError,
                "could not write the node's catalogue",
            )
            .with_detail(with_causes(&error))),
        }
    }

    /// A database's files and place in memory, for a record that is about to be stored.
    pub(super) fn opened(
        &self,
        name: &str,
        entry: &DatabaseRecord,
    ) -> Result<Arc<Database>, SqlError> {
        let folder = self.folder_of(entry.oid);
        open_database(&folder, &self.host, name, entry, false).map_err(|error| {
            SqlError::new(ErrorKind::IoError, "could not make the database's files")
                .with_detail(with_causes(&error))
        })
    }

    /// What its databases and queries may use of memory, and what they use, in bytes.
    pub fn memory(&self) -> (u64, u64) {
        (self.host.governor.limit(), self.host.governor.used())
    }

    pub(super) fn governor(&self) -> &Arc<Governor> {
        &self.host.governor
    }

    /// What the node's settings say of its memory.
    pub(super) fn target(&self) -> ByteSize {
        ByteSize(self.host.governor.configured_target())
    }

    /// Where a database's files are.
    pub(super) fn folder_of(&self, id: TenantId) -> PathBuf {
        folder_of(self.data.path(), id)
    }

    /// Removes the files of a database that no record names any more.
    pub(super) fn remove_files(&self, id: TenantId) -> Result<(), NodeError> {
        remove_folder(&self.folder_of(id))
    }
}

/// Where a database stands once it was tried to open it at the start.
fn open_at_start(data: &Path, host: &Host, name: &str, entry: &DatabaseRecord) -> Stage {
    let (folder, started) = (folder_of(data, entry.oid), Instant::now());
    match open_existing(&folder, host, name, entry) {
        Ok(database) => Stage::Open(database),
        Err(error) => {
            tracing::error!(
                database = name,
                error = &error as &dyn std::error::Error,
                "the database could not be opened; the others are served"
            );
            Stage::Failed(Failed::now(Unopened::of(&error), started.elapsed()))
        }
    }
}

/// Opens a database that the record names. Its log was made with it.
pub(super) fn open_existing(
    folder: &Path,
    host: &Host,
    name: &str,
    entry: &DatabaseRecord,
) -> Result<Arc<Database>, OpenError> {
    let log = folder.join("log");
    if !log.is_dir() {
        return Err(OpenError::Missing { path: log });
    }
    open_database(folder, host, name, entry, false)
}

/// Opens a database in a folder, which is made if it is missing; leniently after some of it was lost
/// ([`OpenOptions::lenient`]).
pub(super) fn open_database(
    folder: &Path,
    host: &Host,
    name: &str,
    entry: &DatabaseRecord,
    lenient: bool,
) -> Result<Arc<Database>, OpenError> {
    let id = entry.oid;
    let budget = host.governor.budget(name, entry.memory_ceiling());
    limits::set(&budget, entry);
    let mut options = OpenOptions::default();
    options.lenient = lenient;
    options.durability = entry.commit_durability();
    options.clock = Arc::clone(&host.clock);
    let (store, recovered) = TenantStore::open(id, budget, folder, &options)?;
    if recovered.records > 0 {
        tracing::info!(
            database = name,
            records = recovered.records,
            bytes = recovered.bytes,
            checkpoint = recovered.checkpoint_at.0,
            truncated_bytes = recovered.truncated_bytes,
            seconds = recovered.duration.as_secs_f64(),
            "recovered"
        );
    }
    let database = Database::recover(id, name, &entry.owner, store, &recovered, None)?;
    database
        .statements
        .begin(host.statements, entry.statement_limits());
    if let Some(archive) = &entry.log_archive {
        let sink = host.places.for_archive(archive)?;
        database.store.archive_log_to(Some(sink));
    }
    ddl::settle_indexes(&database.catalog.load());
    // Tables that a statement made and did not live to publish.
    database
        .store
        .retain_tables(&database.catalog.load().table_ids())?;
    Ok(database)
}

/// Removes the folders of databases that were dropped, or never finished, when the node
/// stopped, and sets aside those that nobody knows: a catalogue that was put back from a copy
/// may be older than they are.
fn settle_folders(data: &Path, record: &NodeRecord) -> Result<(), NodeError> {
    for folder in folders_in(data)? {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        // A restore that did not end leaves one with a suffix. Only folders of our naming
        // are ours to remove.
        if let Some(oid) = name.strip_suffix(".partial") {
            if oid.parse::<u32>().is_ok() {
                remove_folder(&folder)?;
            }
            continue;
        }
        let Some(id) = tenant_of(&folder) else {
            continue;
        };
        let known = record.databases.values().any(|entry| entry.oid == id);
        if known {
            continue;
        }
        if record.dropped.contains(&id) || repair::is_vacant(&folder).map_err(at(&folder))? {
            remove_folder(&folder)?;
        } else {
            set_aside(data, &folder, &name)?;
        }
    }
    Ok(())
}

/// The entries of the folder with the databases' folders.
fn folders_in(data: &Path) -> Result<Vec<PathBuf>, NodeError> {
    let tenants = data.join(TENANTS);
    let entries = match fs::read_dir(&tenants) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(at(&tenants)(error)),
    };
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

/// The database whose folder it is.
fn tenant_of(folder: &Path) -> Option<TenantId> {
    let number = folder.file_name()?.to_str()?.parse().ok()?;
    Some(TenantId(number))
}

pub(super) fn set_aside(data: &Path, folder: &Path, name: &str) -> Result<(), NodeError> {
    let unclaimed = data.join(UNCLAIMED);
    make_folder(&unclaimed).map_err(at(&unclaimed))?;
    let target = repair::unused_name(&unclaimed, name);
    fs::rename(folder, &target).map_err(at(folder))?;
    tracing::error!(
        folder = %folder.display(), to = %target.display(),
        "a database's folder that the catalogue does not name was set aside"
    );
    Ok(())
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> NodeError {
    let path = path.to_owned();
    move |source| NodeError::Remove { path, source }
}

pub(super) fn remove_folder(path: &Path) -> Result<(), NodeError> {
    match fs::remove_dir_all(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(NodeError::Remove {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

/// What a folder without a catalogue begins with. Its database is made before the record
/// says that it is there.
fn first_start(data: &Path, meta: &dyn MetaStore) -> Result<(Version, NodeRecord), NodeError> {
    for folder in folders_in(data)? {
        if tenant_of(&folder).is_some() && !repair::is_vacant(&folder).map_err(at(&folder))? {
            let path = data.to_owned();
            return Err(NodeError::NoCatalog { path });
        }
    }
    let record = first_record();
    for entry in record.databases.values() {
        let log = folder_of(data, entry.oid).join("log");
        make_folder(&log).map_err(at(&log))?;
    }
    match write_record(meta, None, &record)? {
        Swapped::Done(version) => Ok((version, record)),
        // Another node was there first.
        Swapped::Lost(_) => read_record(meta)?.ok_or_else(|| NodeError::NoCatalog {
            path: data.to_owned(),
        }),
    }
}

/// The role, which a session or a statement names.
pub(super) fn role_in<'r>(record: &'r NodeRecord, name: &str) -> Result<&'r RoleRecord, SqlError> {
    record.roles.get(name).ok_or_else(|| undefined_role(name))
}

pub(super) fn undefined_database(name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::InvalidCatalogName,
        format!("database \"{name}\" does not exist"),
    )
}

/// A new OID of a role or database.
pub(super) fn allocate_oid(record: &mut NodeRecord) -> Result<u32, SqlError> {
    let oid = record.next_oid;
    record.next_oid = oid.checked_add(1).ok_or_else(|| {
        SqlError::new(
            ErrorKind::ProgramLimitExceeded,
            "the node has used up its object numbers",
        )
    })?;
    Ok(oid)
}
