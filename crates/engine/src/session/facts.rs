//! What the system catalogue asks of the running node and this session.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use aerostat_advice::Machine;
use aerostat_catalog::{
    ClusterFacts, CopyState, Database, SequenceEntry, StatementsRecord, admin::DatabaseState,
    sequence::Taken,
};
use aerostat_pgcatalog::{
    CopyDescription, CursorDescription, EvictionUse, Facts, LogPlaces, MemoryLimit, MemoryUse,
    PreparedDescription, SessionDescription, Setting, Signal, StatementUse, Waits,
};
use aerostat_query::plan::Gate;
use aerostat_sql::utility::{SettingValue, TransactionModes};
use aerostat_types::{ByteSize, RelationId, SqlError};
use parking_lot::Mutex;

use super::{
    admission::{read_only, refused_change},
    named::NamedStatements,
    notify::Sayings,
    roles::{Asking, is_role},
    settings::Settings,
    signal::require_right,
    waiting::Waiting,
};
use crate::engine::Engine;

/// One statement's access to its session and the node.
pub(super) struct SessionFacts {
    pub(super) engine: Arc<Engine>,
    pub(super) settings: Arc<Mutex<Settings>>,
    pub(super) prepared: NamedStatements,
    pub(super) cursors: Vec<CursorDescription>,
    /// The session's own line in `pg_stat_activity`.
    pub(super) told: Arc<Mutex<SessionDescription>>,
    pub(super) gate: Arc<Gate>,
    /// The sequences that the statement has asked for.
    pub(super) sequences: Mutex<BTreeMap<RelationId, Arc<SequenceEntry>>>,
    pub(super) taken: Arc<Mutex<Taken>>,
    pub(super) database: Arc<Database>,
    /// Whether the statement is on a copy, where nothing is changed.
    pub(super) is_on_copy: bool,
    pub(super) read_only: bool,
    pub(super) waiting: Waiting,
    /// The role whose rights count.
    pub(super) role: String,
    /// The role that connected.
    pub(super) authenticated: String,
    pub(super) sayings: Sayings,
    pub(super) listening: Arc<Mutex<BTreeSet<String>>>,
}

impl SessionFacts {
    /// The copy that the database is, while another node takes its changes.
    fn following(&self) -> Option<&CopyState> {
        let copy = self.database.copy.as_deref();
        copy.filter(|copy| !copy.leads())
    }
}

impl Facts for SessionFacts {
    fn version(&self) -> String {
        format!("PostgreSQL {}", crate::SERVER_VERSION)
    }

    fn machine(&self) -> Arc<Machine> {
        Arc::clone(self.engine.machine())
    }

    fn settings(&self) -> Vec<Setting> {
        let all = self.settings.lock().all();
        all.into_iter()
            .map(|(name, value, description)| Setting {
                boot_value: description.default.to_owned(),
                name,
                value,
                unit: None,
                category: description.category(),
                description: description.description,
                context: description.context(),
                kind: description.kind(),
            })
            .collect()
    }

    fn set(&self, name: &str, value: &str, is_local: bool) -> Result<String, SqlError> {
        let folded = name.to_ascii_lowercase();
        let asked = SettingValue::Values(vec![value.to_owned()]);
        if let Ok(Some(modes)) = TransactionModes::of_setting(&folded, &asked)
            && modes.read_only == Some(false)
            && let Some(copy) = self.following()
        {
            return Err(copy.no_read_write());
        }
        let mut settings = self.settings.lock();
        if is_role(&folded) {
            let asking = Asking {
                node: &self.engine.node().record(),
                authenticated: &self.authenticated,
                is_local,
            };
            asking.set(&mut settings, &folded, Some(value))?;
            return Ok(settings.get(name)?.to_owned());
        }
        let values = [value.to_owned()];
        if is_local {
            settings.set_local(name, &values)?;
        } else {
            settings.set(name, &values)?;
        }
        Ok(settings.get(name)?.to_owned())
    }

    fn sequence(&self, oid: RelationId) -> Result<Option<Arc<SequenceEntry>>, SqlError> {
        let mut known = self.sequences.lock();
        if let Some(entry) = known.get(&oid) {
            return Ok(Some(Arc::clone(entry)));
        }
        let found = self.gate.sequence(oid)?;
        if let Some(entry) = &found {
            known.insert(oid, Arc::clone(entry));
        }
        Ok(found)
    }

    fn taken(&self) -> &Mutex<Taken> {
        &self.taken
    }

    fn admit_change(&self, function: &str) -> Result<(), SqlError> {
        if self.is_on_copy {
            return Err(refused_change(self.following(), function));
        }
        if let Some(copy) = self
            .database
            .copy
            .as_deref()
            .filter(|copy| copy.is_cut_off())
        {
            return Err(copy.cut_off(function));
        }
        match self.read_only {
            true => Err(read_only(function)),
            false => Ok(()),
        }
    }

    fn notify(&self, channel: &str, payload: &str) -> Result<(), SqlError> {
        if let Some(copy) = self.following() {
            return Err(copy.in_recovery("NOTIFY"));
        }
        self.sayings.say(channel, payload)
    }

    fn copy(&self) -> Option<Arc<CopyState>> {
        self.database.copy.clone()
    }

    fn places(&self) -> LogPlaces {
        LogPlaces::of(&self.database)
    }

    fn copies(&self) -> Vec<CopyDescription> {
        let mut open = self.engine.node().open_databases();
        // The session's own, as it has it.
        open.retain(|database| database.id != self.database.id);
        open.push(Arc::clone(&self.database));
        let described = open.iter().map(|database| CopyDescription {
            database: database.name.read().clone(),
            standing: database.standing(),
            node: database.copy.as_ref().map(|copy| copy.me()),
            facts: database.copy.as_ref().map(|copy| copy.facts()),
            places: LogPlaces::of(database),
        });
        described.collect()
    }

    fn cluster(&self) -> Option<ClusterFacts> {
        self.engine.node().cluster_facts()
    }

    fn listening(&self) -> Vec<String> {
        self.listening.lock().iter().cloned().collect()
    }

    fn signal(&self, pid: i32, signal: Signal) -> Result<bool, SqlError> {
        let told = self.engine.sessions().lock().get(&pid).cloned();
        let controls = self.engine.controls_of(pid);
        let (Some(told), Some(controls)) = (told, controls) else {
            let message = format!("PID {pid} is not a PostgreSQL backend process");
            self.waiting.warn(message);
            return Ok(false);
        };
        let owner = told.lock().role.clone();
        require_right(&self.engine.node().record(), &self.role, &owner, signal)?;
        match (signal, controls.terminate) {
            (Signal::Cancel, _) => (controls.cancel)(),
            (Signal::Terminate, Some(terminate)) => terminate(),
            (Signal::Terminate, None) => {
                let message = format!("session {pid} has no connection that could be ended");
                self.waiting.warn(message);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn waiting(&self) -> Option<&dyn Waits> {
        Some(&self.waiting)
    }

    fn sessions(&self) -> Vec<SessionDescription> {
        let sessions = self.engine.sessions().lock();
        sessions.values().map(|told| told.lock().clone()).collect()
    }

    fn prepared_statements(&self) -> Vec<PreparedDescription> {
        self.prepared.describe()
    }

    fn cursors(&self) -> Vec<CursorDescription> {
        self.cursors.clone()
    }

    fn database_state(&self, database: &str) -> DatabaseState {
        self.engine.node().state_of(database)
    }

    fn database_bytes(&self, database: &str) -> Option<u64> {
        self.engine
            .databases()
            .into_iter()
            .find(|known| known.name == database)
            .map(|known| known.memory_used)
    }

    fn memory(&self) -> Vec<MemoryUse> {
        self.engine.memory_ledger()
    }

    fn memory_limits(&self) -> Vec<MemoryLimit> {
        self.engine.memory_limits()
    }

    fn set_balloon(&self, bytes: Option<ByteSize>) -> Result<(), SqlError> {
        self.engine.set_balloon(&self.role, bytes)
    }

    fn statements(&self) -> Vec<StatementUse> {
        self.engine.statements()
    }

    fn statement_defaults(&self) -> StatementsRecord {
        self.engine.node().statement_defaults()
    }

    fn evictions(&self) -> Vec<EvictionUse> {
        self.engine.evictions()
    }

    fn started_at_us(&self) -> i64 {
        self.engine.started_at_us()
    }

    fn server_address(&self) -> Option<(String, u16)> {
        None
    }

    fn client_address(&self) -> Option<(String, u16)> {
        self.told.lock().client.as_ref()?.address.clone()
    }
}
