//! The machine that a running broker acts on.

use std::{collections::BTreeMap, io};

use aerostat_balloon::message::FromBroker;
use tokio::sync::mpsc;

use crate::{
    core::{Account, AuditEntry, SessionId, World},
    files::Files,
    kernel,
    ledger::{Ledger, Owner, Process},
};

/// Messages that wait for a participant: some targets and a minute's heartbeats.
pub(super) const MESSAGES_MAX: usize = 64;

/// The kernel, the broker's folder and the connections.
pub struct Machine {
    files: Files,
    queues: BTreeMap<SessionId, mpsc::Sender<FromBroker>>,
    /// Connections that take no messages, and that the core has not been told of.
    broken: Vec<SessionId>,
}

impl Machine {
    pub(super) fn new(files: Files) -> Machine {
        Machine {
            files,
            queues: BTreeMap::new(),
            broken: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, session: SessionId, queue: mpsc::Sender<FromBroker>) {
        self.queues.insert(session, queue);
    }

    pub(super) fn remove(&mut self, session: SessionId) {
        self.queues.remove(&session);
    }

    pub(super) fn take_broken(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.broken)
    }
}

impl World for Machine {
    fn persist(&mut self, ledger: &Ledger) -> io::Result<()> {
        self.files.persist(ledger)
    }

    fn send(&mut self, session: SessionId, message: FromBroker) {
        let Some(queue) = self.queues.get(&session) else {
            return;
        };
        // Whoever does not read for a minute has lost its lease as well.
        if queue.try_send(message).is_err() {
            self.queues.remove(&session);
            self.broken.push(session);
        }
    }

    fn close(&mut self, session: SessionId) {
        self.queues.remove(&session);
    }

    fn process(&mut self, pid: u32) -> Option<Process> {
        kernel::process(pid)
    }

    fn account(&mut self, owner: &Owner) -> Account {
        kernel::account(owner)
    }

    fn limit(&mut self, owner: &Owner, bytes: u64) -> io::Result<()> {
        kernel::limit(owner, bytes)
    }

    fn pressure(&mut self) -> f64 {
        kernel::pressure()
    }

    fn audit(&mut self, entry: AuditEntry<'_>) {
        self.files.audit(entry);
    }
}
