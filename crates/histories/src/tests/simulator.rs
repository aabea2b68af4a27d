//! A database of lists in memory with snapshot isolation, in which processes take steps in an
//! order from a seed; and the same with one thing wrong.
//!
//! Commits publish whole lists, each with the number of the commit. A transaction reads what was
//! published by its snapshot, and fails if a list that it appends to has grown since.

use std::collections::VecDeque;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg32;

use crate::{History, Operation, Outcome, Transaction};

/// What is wrong with the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    /// Nothing.
    None,
    /// Reads show what others have not committed yet.
    DirtyReads,
    /// Nobody looks whether a list has grown; what others appended is overwritten.
    Overwrites,
    /// Nobody looks whether a list has grown; appends come behind those of others.
    NoConflicts,
    /// Each read takes a snapshot of its own.
    ReadSkew,
    /// A commit shows its first list before its others.
    FracturedReads,
    /// A crash loses the newest commits, though they were acknowledged.
    LostCommits,
    /// What a crash left in doubt is done twice.
    DoneTwice,
    /// Transactions do not see their own appends.
    ForgetsOwn,
    /// What failed is published.
    FailedAppends,
    /// Snapshots are older than they must be: still snapshot isolation, but not strict.
    StaleSnapshots,
    /// Two sites see the commits of the other later: parallel snapshot isolation.
    LongFork,
}

/// How large a history is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) processes: usize,
    pub(super) keys: usize,
    pub(super) transactions: usize,
    /// A list is left alone once it has this many values, and another begun.
    pub(super) values_max: usize,
}

/// A list as of a commit.
type Version = (u64, Vec<u64>);

struct Open {
    invoked_ns: u64,
    snapshot: u64,
    /// What is still to do: a key, and whether to append.
    plan: VecDeque<(usize, bool)>,
    operations: Vec<Operation>,
    appends: Vec<(usize, u64)>,
    /// Committed, and not yet acknowledged.
    committed: bool,
}

struct Simulator {
    mutant: Mutant,
    size: Size,
    dice: Pcg32,
    clock_ns: u64,
    commits: u64,
    next_value: u64,
    /// The names of the lists in use: they change when a list is long.
    names: Vec<u64>,
    /// By site and key.
    versions: Vec<Vec<Vec<Version>>>,
    /// Appends to each key that were committed.
    lengths: Vec<usize>,
    /// What a site does not see yet: site, key, values.
    late: VecDeque<(usize, usize, Vec<u64>)>,
    open: Vec<Option<Open>>,
    history: Vec<Transaction>,
    /// Acknowledged lists that are left alone.
    retired: Vec<(u64, Vec<u64>)>,
}

/// A history of the database from a seed.
pub(super) fn simulate(seed: u64, mutant: Mutant, size: Size) -> History {
    let sites = if mutant == Mutant::LongFork { 2 } else { 1 };
    let mut simulator = Simulator {
        mutant,
        size,
        dice: Pcg32::seed_from_u64(seed),
        clock_ns: 0,
        commits: 0,
        next_value: 1,
        names: (0..size.keys as u64).collect(),
        versions: vec![vec![vec![(0, Vec::new())]; size.keys]; sites],
        lengths: vec![0; size.keys],
        late: VecDeque::new(),
        open: (0..size.processes).map(|_| None).collect(),
        history: Vec::new(),
        retired: Vec::new(),
    };
    simulator.run();
    History {
        transactions: simulator.history,
    }
}

impl Simulator {
    fn run(&mut self) {
        while self.history.len() < self.size.transactions {
            self.clock_ns += 1;
            match self.dice.random_range(0..400) {
                0 => self.crash(),
                1..40 => self.catch_up(),
                _ => {}
            }
            let process = self.dice.random_range(0..self.size.processes);
            match self.open[process].take() {
                None => self.begin(process),
                Some(open) => self.proceed(process, open),
            }
        }
        for process in 0..self.size.processes {
            if let Some(open) = self.open[process].take() {
                self.finish_open(process, open);
            }
        }
        while !self.late.is_empty() {
            self.catch_up();
        }
        self.clock_ns += 1;
        let newest = (0..self.size.keys).map(|key| {
            let (_, list) = self.versions[0][key].last().unwrap();
            (self.names[key], list.clone())
        });
        let lists: Vec<(u64, Vec<u64>)> = self.retired.iter().cloned().chain(newest).collect();
        self.history.push(Transaction {
            process: self.size.processes as u32,
            invoked_ns: self.clock_ns,
            completed_ns: self.clock_ns + 1,
            outcome: Outcome::Ok,
            copy: false,
            last: true,
            note: String::new(),
            operations: lists
                .into_iter()
                .map(|(key, list)| Operation::Read { key, list })
                .collect(),
        });
    }

    fn site(&self, process: usize) -> usize {
        process % self.versions.len()
    }

    fn begin(&mut self, process: usize) {
        if self.open.iter().all(Option::is_none) && self.late.is_empty() {
            self.retire();
        }
        let back = match self.mutant {
            Mutant::StaleSnapshots => self.dice.random_range(0..4),
            _ => 0,
        };
        let plan = (0..self.dice.random_range(1..5))
            .map(|_| {
                let key = self.dice.random_range(0..self.size.keys);
                (key, self.dice.random_range(0..2) == 0)
            })
            .collect();
        self.open[process] = Some(Open {
            invoked_ns: self.clock_ns,
            snapshot: self.commits.saturating_sub(back),
            plan,
            operations: Vec::new(),
            appends: Vec::new(),
            committed: false,
        });
    }

    /// Leaves long lists alone; nobody has read one of the new lists yet.
    fn retire(&mut self) {
        for key in 0..self.size.keys {
            if self.lengths[key] >= self.size.values_max {
                let (_, list) = self.versions[0][key].last().unwrap().clone();
                self.retired.push((self.names[key], list));
                self.names[key] += self.size.keys as u64;
                self.lengths[key] = 0;
                for site in &mut self.versions {
                    site[key] = vec![(0, Vec::new())];
                }
            }
        }
    }

    fn proceed(&mut self, process: usize, mut open: Open) {
        if open.committed {
            return self.complete(process, open, Outcome::Ok);
        }
        let Some((key, append)) = open.plan.pop_front() else {
            return self.commit(process, open);
        };
        let name = self.names[key];
        if append {
            let value = self.next_value;
            self.next_value += 1;
            open.appends.push((key, value));
            open.operations.push(Operation::Append { key: name, value });
        } else {
            let list = self.read(process, &open, key);
            open.operations.push(Operation::Read { key: name, list });
        }
        if self.dice.random_range(0..50) == 0 {
            return self.fail(process, open);
        }
        self.open[process] = Some(open);
    }

    fn fail(&mut self, process: usize, open: Open) {
        if self.mutant == Mutant::FailedAppends && !self.conflicts(process, &open) {
            self.publish(process, &open);
        }
        self.complete(process, open, Outcome::Fail);
    }

    fn read(&mut self, process: usize, open: &Open, key: usize) -> Vec<u64> {
        let snapshot = match self.mutant {
            Mutant::ReadSkew => u64::MAX,
            _ => open.snapshot,
        };
        let mut list = self.visible(process, snapshot, key).to_vec();
        if self.mutant == Mutant::DirtyReads {
            let others = self.open.iter().flatten().filter(|other| !other.committed);
            let dirty = others.flat_map(|other| &other.appends);
            list.extend(dirty.filter(|(to, _)| *to == key).map(|(_, value)| value));
        }
        if self.mutant != Mutant::ForgetsOwn {
            list.extend(own(open, key));
        }
        list
    }

    fn visible(&self, process: usize, snapshot: u64, key: usize) -> &[u64] {
        let mut versions = self.versions[self.site(process)][key].iter().rev();
        let version = versions.find(|(commit, _)| *commit <= snapshot);
        &version.unwrap().1
    }

    fn conflicts(&self, process: usize, open: &Open) -> bool {
        open.appends
            .iter()
            .any(|(key, _)| self.visible(process, open.snapshot, *key).len() != self.lengths[*key])
    }

    fn commit(&mut self, process: usize, mut open: Open) {
        let careless = matches!(self.mutant, Mutant::Overwrites | Mutant::NoConflicts);
        if !careless && self.conflicts(process, &open) {
            return self.complete(process, open, Outcome::Fail);
        }
        self.publish(process, &open);
        open.committed = true;
        self.open[process] = Some(open);
    }

    fn publish(&mut self, process: usize, open: &Open) {
        if open.appends.is_empty() {
            return;
        }
        self.commits += 1;
        let here = self.site(process);
        let mut keys: Vec<usize> = open.appends.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys.dedup();
        for (nth, &key) in keys.iter().enumerate() {
            let values: Vec<u64> = own(open, key).collect();
            self.lengths[key] += values.len();
            if self.mutant == Mutant::Overwrites {
                let mut list = self.visible(process, open.snapshot, key).to_vec();
                list.extend(&values);
                self.lengths[key] = list.len();
                self.versions[here][key].push((self.commits, list));
                continue;
            }
            if self.mutant == Mutant::FracturedReads && nth > 0 {
                self.late.push_back((here, key, values));
                continue;
            }
            if self.versions.len() > 1 {
                self.late.push_back((1 - here, key, values.clone()));
            }
            self.grow(here, key, &values);
        }
        if self.versions.len() > 1 {
            // Marks the end of a commit: it comes to the other site as a whole.
            self.late.push_back((1 - here, usize::MAX, Vec::new()));
        }
    }

    fn grow(&mut self, site: usize, key: usize, values: &[u64]) {
        let (_, list) = self.versions[site][key].last().unwrap();
        let list = [list.as_slice(), values].concat();
        self.versions[site][key].push((self.commits, list));
    }

    /// Shows something of what is late.
    fn catch_up(&mut self) {
        if self.late.is_empty() {
            return;
        }
        self.commits += 1;
        while let Some((site, key, values)) = self.late.pop_front() {
            if key == usize::MAX {
                break;
            }
            self.grow(site, key, &values);
            if self.versions.len() == 1 {
                break;
            }
        }
    }

    fn crash(&mut self) {
        if self.mutant == Mutant::LostCommits {
            let kept = self.commits.saturating_sub(2);
            for key in 0..self.size.keys {
                self.versions[0][key].retain(|(commit, _)| *commit <= kept);
                self.lengths[key] = self.versions[0][key].last().unwrap().1.len();
            }
        }
        for process in 0..self.size.processes {
            if let Some(open) = self.open[process].take() {
                self.finish_open(process, open);
            }
        }
    }

    /// What a process hears of its transaction at a crash.
    fn finish_open(&mut self, process: usize, open: Open) {
        let committing = !open.committed && open.plan.is_empty();
        let twice = self.mutant == Mutant::DoneTwice && !open.appends.is_empty();
        if (committing && self.dice.random_range(0..2) == 0 && !self.conflicts(process, &open))
            || (open.committed && twice)
        {
            self.publish(process, &open);
        }
        let outcome = match open.committed || committing {
            true => Outcome::Info,
            false => Outcome::Fail,
        };
        self.complete(process, open, outcome);
    }

    fn complete(&mut self, process: usize, open: Open, outcome: Outcome) {
        self.clock_ns += 1;
        self.history.push(Transaction {
            process: process as u32,
            invoked_ns: open.invoked_ns,
            completed_ns: self.clock_ns,
            outcome,
            copy: false,
            last: false,
            note: String::new(),
            operations: open.operations,
        });
    }
}

fn own(open: &Open, key: usize) -> impl Iterator<Item = u64> {
    let appends = open.appends.iter().filter(move |(to, _)| *to == key);
    appends.map(|(_, value)| *value)
}
