//! The versions of each list, as far as committed transactions have read them: the longest read
//! has all others as its beginnings, unless something is wrong. Also who wrote what, and which
//! transactions are known to have been committed.

use std::collections::HashMap;

use crate::history::{History, Operation, Outcome, Transaction};
use crate::report::TransactionId;

/// A read by a transaction that was committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read<'a> {
    /// Whose, by its place in the history.
    pub(crate) transaction: usize,
    /// What was read.
    pub(crate) list: &'a [u64],
    /// Whether the transaction had appended to the list before.
    pub(crate) behind_own: bool,
}

/// Who appended a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    /// By its place in the history.
    pub(crate) transaction: usize,
    /// Whether the transaction appended nothing more to the list.
    pub(crate) is_its_last: bool,
}

/// One list.
#[derive(Debug)]
pub(crate) struct List<'a> {
    /// Its key.
    pub(crate) key: u64,
    /// The longest of its reads that do not contradict one another.
    pub(crate) order: &'a [u64],
    /// Who read `order` first.
    pub(crate) order_reader: usize,
    /// Reads that contradict, each with whom.
    pub(crate) contradicting: Vec<(Read<'a>, usize)>,
    /// Reads of committed transactions.
    pub(crate) reads: Vec<Read<'a>>,
    /// Every append of whatever outcome: value and transaction.
    pub(crate) appends: Vec<(u64, usize)>,
}

/// What is known of all lists.
pub(crate) struct Versions<'a> {
    /// The history it is about.
    pub(crate) history: &'a History,
    /// Lists in the order in which they come in the history.
    pub(crate) lists: Vec<List<'a>>,
    /// Whether each transaction was committed: it was acknowledged, or a committed one has read
    /// what it appended.
    pub(crate) committed: Vec<bool>,
    /// Values that were appended twice: key, value and both transactions.
    pub(crate) not_unique: Vec<(u64, u64, usize, usize)>,
    numbers: HashMap<u64, usize>,
    writers: HashMap<(u64, u64), Writer>,
}

impl<'a> Versions<'a> {
    pub(crate) fn of(history: &'a History) -> Self {
        let mut versions = Self {
            history,
            lists: Vec::new(),
            committed: vec![false; history.transactions.len()],
            not_unique: Vec::new(),
            numbers: HashMap::new(),
            writers: HashMap::new(),
        };
        for (at, transaction) in history.transactions.iter().enumerate() {
            versions.note_appends(at, transaction);
        }
        let acknowledged = |transaction: &Transaction| transaction.outcome == Outcome::Ok;
        let mut waiting: Vec<usize> = (0..history.transactions.len())
            .filter(|&at| acknowledged(&history.transactions[at]))
            .rev()
            .collect();
        for &at in &waiting {
            versions.committed[at] = true;
        }
        while let Some(at) = waiting.pop() {
            versions.note_reads(at, &mut waiting);
        }
        versions
    }

    /// How many transactions are known to have been committed, and how many there are.
    pub(crate) fn committed(&self) -> (usize, usize) {
        let committed = self.committed.iter().filter(|&&is| is).count();
        (committed, self.committed.len())
    }

    /// The transaction at a place.
    pub(crate) fn transaction(&self, at: usize) -> &'a Transaction {
        &self.history.transactions[at]
    }

    /// Who appended the value to the list.
    pub(crate) fn writer(&self, key: u64, value: u64) -> Option<Writer> {
        self.writers.get(&(key, value)).copied()
    }

    /// Who appended the value to the list, if that was committed.
    pub(crate) fn committed_writer(&self, key: u64, value: u64) -> Option<usize> {
        let writer = self.writer(key, value)?.transaction;
        self.committed[writer].then_some(writer)
    }

    /// The list of a key.
    pub(crate) fn list(&self, key: u64) -> Option<&List<'a>> {
        self.numbers.get(&key).map(|&number| &self.lists[number])
    }

    fn list_mut(&mut self, key: u64) -> &mut List<'a> {
        let next = self.lists.len();
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.lists.push(List {
                key,
                order: &[],
                order_reader: 0,
                contradicting: Vec::new(),
                reads: Vec::new(),
                appends: Vec::new(),
            });
        }
        &mut self.lists[number]
    }

    fn note_appends(&mut self, at: usize, transaction: &Transaction) {
        let mut seen: Vec<u64> = Vec::new();
        for operation in transaction.operations.iter().rev() {
            let &Operation::Append { key, value } = operation else {
                continue;
            };
            let writer = Writer {
                transaction: at,
                is_its_last: !seen.contains(&key),
            };
            seen.push(key);
            if let Some(other) = self.writers.insert((key, value), writer) {
                self.not_unique.push((key, value, other.transaction, at));
            }
            self.list_mut(key).appends.push((value, at));
        }
    }

    /// Takes in what a committed transaction has read; whoever is thereby known to be committed
    /// goes among the waiting.
    fn note_reads(&mut self, at: usize, waiting: &mut Vec<usize>) {
        let history = self.history;
        let mut appended: Vec<u64> = Vec::new();
        for operation in &history.transactions[at].operations {
            match operation {
                Operation::Append { key, .. } => appended.push(*key),
                Operation::Read { key, list } => {
                    let read = Read {
                        transaction: at,
                        list,
                        behind_own: appended.contains(key),
                    };
                    for &value in self.take_in(*key, read) {
                        let Some(writer) = self.writer(*key, value) else {
                            continue;
                        };
                        let writer = writer.transaction;
                        let unknown = history.transactions[writer].outcome == Outcome::Info;
                        if unknown && !self.committed[writer] {
                            self.committed[writer] = true;
                            waiting.push(writer);
                        }
                    }
                }
            }
        }
    }

    /// What of a read is new.
    fn take_in(&mut self, key: u64, read: Read<'a>) -> &'a [u64] {
        let list = self.list_mut(key);
        list.reads.push(read);
        if list.order.starts_with(read.list) {
            return &[];
        }
        if read.list.starts_with(list.order) {
            let new = &read.list[list.order.len()..];
            list.order = read.list;
            list.order_reader = read.transaction;
            return new;
        }
        list.contradicting.push((read, list.order_reader));
        read.list
    }
}

/// How reports name the transaction at a place.
pub(crate) fn id(at: usize) -> TransactionId {
    TransactionId(at + 1)
}
