//! What the system catalogue asks of the running node and this session.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use aerostat_advice::Machine;
use aerostat_catalog::{SequenceEntry, admin::DatabaseState, sequence::Taken};
use aerostat_pgcatalog::{
    CursorDescription, EvictionUse, Facts, MemoryLimit, MemoryUse, PreparedDescription,
    SessionDescription, Setting, Signal, Waits,
};
use aerostat_query::plan::Gate;
use aerostat_types::{ByteSize, RelationId, SqlError};
use parking_lot::Mutex;

use super::{
    admission::read_only,
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
    pub(super) read_only: bool,
    pub(super) waiting: Waiting,
    /// The role whose rights count.
    pub(super) role: String,
    /// The role that connected.
    pub(super) authenticated: String,
    pub(super) sayings: Sayings,
    pub(super) listening: Arc<Mutex<BTreeSet<String>>>,
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
        let mut settings = self.settings.lock();
        let folded = name.to_ascii_lowercase();
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
        match self.read_only {
            true => Err(read_only(function)),
            false => Ok(()),
        }
    }

    fn notify(&self, channel: &str, payload: &str) -> Result<(), SqlError> {
        self.sayings.say(channel, payload)
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
