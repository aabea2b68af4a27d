//! A node's log on its disk.

use aerostat_types::CommitTs;

use crate::{Epoch, History};

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// An epoch begins.
    Begin(Epoch),
    /// A client's change.
    Change(u64),
}

/// A log: what the operating system has, and how much of it the disk has.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    records: Vec<Record>,
    durable: usize,
    /// Counts cuts: what was begun before one is no answer after it.
    pub(super) cuts: u64,
}

impl Disk {
    pub(super) fn last(&self) -> CommitTs {
        CommitTs(self.records.len() as u64)
    }

    pub(super) fn push(&mut self, record: Record) -> CommitTs {
        self.records.push(record);
        self.last()
    }

    pub(super) fn get(&self, lsn: CommitTs) -> Option<Record> {
        self.records.get((lsn.0 as usize).checked_sub(1)?).copied()
    }

    pub(super) fn between(&self, after: CommitTs, through: CommitTs) -> Vec<Record> {
        self.records[after.0 as usize..through.0 as usize].to_vec()
    }

    pub(super) fn store(&mut self, records: &[Record]) {
        self.records.extend_from_slice(records);
    }

    pub(super) fn cut(&mut self, to: CommitTs) {
        self.records.truncate(to.0 as usize);
        self.durable = self.durable.min(self.records.len());
        self.cuts += 1;
    }

    pub(super) fn synced(&mut self, through: CommitTs) {
        self.durable = self.durable.max(through.0 as usize).min(self.records.len());
    }

    /// The power fails: of what is not durable a part is left.
    pub(super) fn lose(&mut self, part: f64) {
        let beyond = (self.records.len() - self.durable) as f64;
        let left = self.durable + (beyond * part) as usize;
        self.records.truncate(left);
        self.restart();
    }

    /// A process begins: what it finds it makes durable first.
    pub(super) fn restart(&mut self) {
        self.durable = self.records.len();
        self.cuts += 1;
    }

    pub(super) fn history(&self) -> History {
        let starts = self
            .records
            .iter()
            .zip(1..)
            .filter_map(|(record, lsn)| match record {
                Record::Begin(epoch) => Some((*epoch, CommitTs(lsn))),
                Record::Change(_) => None,
            });
        History::new(starts.collect(), self.last())
    }
}
