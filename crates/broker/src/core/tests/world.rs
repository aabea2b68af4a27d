//! The model of a machine.

use std::{cell::RefCell, io, rc::Rc};

use super::*;
use crate::ledger::Owner;

/// What the broker of a scene acts on.
#[derive(Default)]
pub(super) struct Machine {
    /// The ledger's file.
    pub(super) disk: Option<Vec<u8>>,
    pub(super) refuses: bool,
    pub(super) sent: Vec<(SessionId, FromBroker)>,
    pub(super) closed: Vec<SessionId>,
    /// Of each process that lives, what it has.
    pub(super) memory: BTreeMap<ProcessKey, u64>,
    /// The process that the kernel does not count: of another machine.
    pub(super) remote: Option<u32>,
    pub(super) pressure: f64,
    pub(super) audit: Vec<String>,
}

/// A process that orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProcessKey(pub(super) u32, u64);

impl From<Process> for ProcessKey {
    fn from(process: Process) -> Self {
        Self(process.pid, process.started)
    }
}

#[derive(Clone, Default)]
pub(super) struct Shared(pub(super) Rc<RefCell<Machine>>);

impl World for Shared {
    fn persist(&mut self, ledger: &Ledger) -> io::Result<()> {
        let mut machine = self.0.borrow_mut();
        if machine.refuses {
            return Err(io::ErrorKind::StorageFull.into());
        }
        machine.disk = Some(ledger.render());
        Ok(())
    }

    fn send(&mut self, session: SessionId, message: FromBroker) {
        self.0.borrow_mut().sent.push((session, message));
    }

    fn close(&mut self, session: SessionId) {
        self.0.borrow_mut().closed.push(session);
    }

    fn process(&mut self, pid: u32) -> Option<Process> {
        let machine = self.0.borrow();
        let found = machine.memory.keys().find(|key| key.0 == pid);
        found.map(|key| Process {
            pid,
            started: key.1,
        })
    }

    fn account(&mut self, owner: &Owner) -> Account {
        let process = owner.process.expect("all of the model are of one machine");
        if self.0.borrow().remote == Some(process.pid) {
            return Account::Unknown;
        }
        let memory = self.0.borrow().memory.get(&process.into()).copied();
        memory.map_or(Account::Gone, Account::Bytes)
    }

    fn limit(&mut self, _: &Owner, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn pressure(&mut self) -> f64 {
        self.0.borrow().pressure
    }

    fn audit(&mut self, entry: AuditEntry<'_>) {
        let AuditEntry {
            what,
            name,
            bytes,
            why,
        } = entry;
        let line = format!("{what} {name} {}: {why}", bytes / MIB);
        self.0.borrow_mut().audit.push(line);
    }
}
