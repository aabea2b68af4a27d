//! The order against a model of what each commit needs.

use std::collections::{BTreeMap, VecDeque};

use proptest::{prelude::*, sample::Index};

use super::*;
use crate::files::log::record::Record;

/// So many transactions at a time.
const PLACES: u64 = 4;

/// Something that happens to a log.
#[derive(Clone, Debug)]
enum Event {
    Chunk(u64),
    /// Of a transaction, with rows or without; as a block with the other transactions' chunks.
    Commit(u64, bool, bool),
    Forget(u64),
    /// The medium takes a group, with the end of its file or not.
    Take(bool),
    /// It has written it, and has begun the next file if it became full.
    Written(bool),
    Synced,
    Failed,
    Mended,
    Committed(Index),
    Rule(Rule),
    Released,
}

fn rules() -> impl Strategy<Value = Rule> {
    prop_oneof![
        Just(Rule::Written),
        Just(Rule::Fsync),
        any::<bool>().prop_map(|and_fsync| Rule::Copies { and_fsync }),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => (0..PLACES).prop_map(Event::Chunk),
        8 => (0..PLACES, any::<bool>(), any::<bool>()).prop_map(|(txn, rows, block)| Event::Commit(txn, rows, block)),
        1 => (0..PLACES).prop_map(Event::Forget),
        8 => prop::bool::weighted(0.2).prop_map(Event::Take),
        8 => prop::bool::weighted(0.2).prop_map(Event::Written),
        6 => Just(Event::Synced),
        1 => Just(Event::Failed),
        2 => Just(Event::Mended),
        4 => any::<Index>().prop_map(Event::Committed),
        1 => rules().prop_map(Event::Rule),
        1 => Just(Event::Released),
    ];
    prop::collection::vec(event, 0..120)
}

/// What is known of a commit.
#[derive(Clone, Copy, Default)]
struct Known {
    owes: bool,
    needs_disk: bool,
    is_lost: bool,
    /// What its committer was told.
    told: Option<bool>,
}

/// Where a group is on its way.
enum Stage {
    Idle,
    Taken(Group),
    Written(Group),
}

/// The same log by what each single record needs and has.
struct Model {
    order: Order,
    rule: Rule,
    commits: Vec<Known>,
    written: u64,
    durable: u64,
    stage: Stage,
    /// Serial numbers of what is queued.
    queued: VecDeque<u64>,
    serial: u64,
    committed: u64,
    /// Of unfinished transactions, whether one may commit and the file that has its first chunk,
    /// once it is written.
    open: BTreeMap<u64, Option<u64>>,
    doomed: Vec<u64>,
    ended: Vec<u64>,
    /// Of what is taken the log speaks of the places through this.
    said: u64,
    aborted: Vec<u64>,
    /// Where who committed.
    endings: Vec<(u64, u64)>,
    acknowledged: u64,
    is_failed: bool,
    /// What the last cut keeps, and whether its file has been begun.
    cut: (u64, bool),
}

impl Model {
    fn new(rule: Rule) -> Model {
        Model {
            order: order(rule),
            rule,
            commits: Vec::new(),
            written: 0,
            durable: 0,
            stage: Stage::Idle,
            queued: VecDeque::new(),
            serial: 0,
            committed: 0,
            open: BTreeMap::new(),
            doomed: Vec::new(),
            ended: Vec::new(),
            said: 0,
            aborted: Vec::new(),
            endings: Vec::new(),
            acknowledged: 0,
            is_failed: false,
            cut: (0, false),
        }
    }

    fn asks_the_disk(&self) -> bool {
        match self.rule {
            Rule::Written => false,
            Rule::Fsync => true,
            Rule::Copies { and_fsync } => and_fsync,
        }
    }

    fn enqueued(&self) -> u64 {
        self.commits.len() as u64
    }

    /// The transaction at a place: the next one once it has ended.
    fn at(&self, place: u64) -> u64 {
        let ended = self.ended.iter().filter(|txn| *txn % PLACES == place);
        place + PLACES * ended.count() as u64
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Chunk(place) => self.chunk(self.at(place)),
            Event::Commit(place, rows, block) => self.commit(self.at(place), rows, block),
            Event::Forget(place) => {
                let txn = self.at(place);
                self.ended.push(txn);
                self.order.forget(TxnId(txn));
                self.aborted.push(txn);
                self.open.remove(&txn);
                self.doomed.retain(|doomed| *doomed != txn);
            }
            Event::Take(ends_file) => self.take(ends_file),
            Event::Written(is_full) => self.write(is_full),
            Event::Synced => self.sync(),
            Event::Failed => self.fail(),
            Event::Mended => self.mend(),
            Event::Committed(through) => {
                // Members have no more than what was sent to them.
                let through = through.index(self.written as usize + 1) as u64;
                self.order.committed(CommitTs(through));
                self.committed = self.committed.max(through);
            }
            Event::Rule(rule) => {
                self.rule = rule;
                self.order.set_rule(rule);
            }
            Event::Released => {
                if let (keep_from, true) = self.cut {
                    self.order.release_before(keep_from);
                }
            }
        }
        self.check();
    }

    fn put(&mut self, kind: Kind, lsn: u64, txn: u64, payload: &[u8], parts: &[TxnId]) -> bool {
        let parts_doomed = parts.iter().any(|part| self.doomed.contains(&part.0));
        let is_refused = self.is_failed || self.doomed.contains(&txn) || parts_doomed;
        self.serial += 1;
        let entry = entry(kind, lsn, txn, payload, self.serial);
        let done = self.order.enqueue(entry, parts);
        assert_eq!(done.is_err(), is_refused);
        if is_refused && kind == Kind::Rows && !self.doomed.contains(&txn) {
            self.doomed.push(txn);
        }
        // Of a commit of nothing the log says nothing.
        let is_there = kind != Kind::Commit || !payload.is_empty() || self.open.contains_key(&txn);
        if done.is_ok() && is_there {
            self.queued.push_back(self.serial);
        }
        done.is_ok()
    }

    fn chunk(&mut self, txn: u64) {
        if self.put(Kind::Rows, 0, txn, b"chunk", &[]) {
            self.open.entry(txn).or_insert(None);
        }
    }

    fn commit(&mut self, txn: u64, rows: bool, block: bool) {
        let others = self.open.keys().filter(|other| **other != txn);
        let parts: Vec<TxnId> = match block {
            true => others.map(|other| TxnId(*other)).collect(),
            false => Vec::new(),
        };
        let kind = if block { Kind::Block } else { Kind::Commit };
        let payload: &[u8] = if rows { b"rows" } else { b"" };
        let owes = rows || block || self.open.contains_key(&txn);
        if self.put(kind, self.enqueued() + 1, txn, payload, &parts) {
            self.commits.push(Known {
                owes,
                ..Known::default()
            });
            for ended in parts.iter().map(|part| part.0).chain([txn]) {
                self.endings.push((self.commits.len() as u64, ended));
                self.open.remove(&ended);
                self.ended.push(ended);
            }
        }
    }

    fn take(&mut self, ends_file: bool) {
        if self.is_failed || !matches!(self.stage, Stage::Idle) {
            return;
        }
        let syncs = self.asks_the_disk();
        let taken = self.written as usize..self.commits.len();
        for commit in &mut self.commits[taken] {
            commit.needs_disk = commit.owes && syncs;
        }
        if ends_file {
            let cut = self.order.cut();
            assert_eq!(cut.through.0, self.enqueued());
            self.cut = (cut.keep_from, false);
            for (txn, file) in &self.open {
                // What is queued still goes to the file that ends.
                let file = file.unwrap_or(cut.next - 1);
                assert!(
                    cut.keep_from <= file,
                    "transaction {txn} has chunks in {file}"
                );
            }
        }
        let group = self.order.next_group(ends_file, false);
        let told = |entry: &&Entry| !matches!(entry.head.kind, Kind::Abort | Kind::Nothing);
        let serials = group.entries.iter().filter(told);
        let serials = serials.map(|entry| entry.head.wall_micros);
        assert!(serials.eq(self.queued.drain(..)), "all, in order");
        assert_eq!(group.through.0, self.enqueued());
        for (head, payload) in group
            .entries
            .iter()
            .map(|entry| (entry.head, &entry.payload))
        {
            let record = Record {
                head,
                synced: 0,
                payload,
            };
            if head.kind.has_place() {
                let places = record::places(&record).unwrap();
                assert_eq!(*places.start(), self.said + 1, "every place is spoken of");
                self.said = *places.end();
            }
            if head.kind == Kind::Abort {
                assert!(self.aborted.contains(&head.txn.0), "{:?} goes on", head.txn);
            }
        }
        let speaks = ends_file || !group.entries.is_empty();
        assert!(
            !speaks || self.said == group.through.0,
            "a file speaks of all"
        );
        let needs_disk = self.commits[self.written as usize..].iter();
        let needs_disk = needs_disk.clone().any(|commit| commit.needs_disk);
        assert_eq!(group.syncs, needs_disk || ends_file);
        self.stage = Stage::Taken(group);
    }

    fn stage(&mut self) -> Stage {
        std::mem::replace(&mut self.stage, Stage::Idle)
    }

    fn write(&mut self, is_full: bool) {
        let group = match self.stage() {
            Stage::Taken(group) => group,
            other => return self.stage = other,
        };
        for Entry { head, .. } in &group.entries {
            if let Some(file) = self.open.get_mut(&head.txn.0)
                && head.kind == Kind::Rows
            {
                file.get_or_insert(group.file_number);
            }
        }
        self.written = group.through.0;
        let next = group.file_number + u64::from(is_full || group.ends_file);
        self.order.written(group.through, next);
        self.cut.1 |= group.ends_file;
        self.stage = match group.syncs {
            true => Stage::Written(group),
            false => Stage::Idle,
        };
    }

    fn sync(&mut self) {
        match self.stage() {
            Stage::Written(group) => {
                self.durable = group.through.0;
                self.order.synced(group.through);
            }
            other => self.stage = other,
        }
    }

    fn fail(&mut self) {
        // A file that could not be ended is told of as one step.
        let group = match self.stage() {
            Stage::Taken(group) => group,
            Stage::Written(group) if !group.ends_file => group,
            other => return self.stage = other,
        };
        self.is_failed = true;
        self.queued.clear();
        self.doomed
            .extend(std::mem::take(&mut self.open).into_keys());
        self.order.failed(group.file_number, failure());
    }

    fn mend(&mut self) {
        let doubt = self.order.doubt();
        assert_eq!(doubt.is_some(), self.is_failed);
        let Some(doubt) = doubt else {
            return;
        };
        assert!(
            doubt.after.0 >= self.acknowledged,
            "an acknowledged commit is in doubt"
        );
        for at in doubt.after.0..doubt.through.0 {
            self.commits[at as usize].is_lost = true;
        }
        let lost = |(lsn, _): &&(u64, u64)| (doubt.after.0 + 1..=doubt.through.0).contains(lsn);
        let lost = self.endings.iter().filter(lost).map(|(_, txn)| *txn);
        self.aborted.extend(lost);
        assert!(
            doubt.said <= doubt.after,
            "the log speaks of {}, which is in doubt",
            doubt.said
        );
        let unsaid = &self.commits[doubt.said.0 as usize..doubt.after.0 as usize];
        assert!(
            unsaid.iter().all(|commit| !commit.owes),
            "the log does not speak of a commit that it has"
        );
        self.order.mended(doubt);
        self.is_failed = false;
        self.said = self.enqueued();
        (self.written, self.durable) = (self.enqueued(), self.enqueued());
    }

    /// What the rule allows, commit by commit.
    fn check(&mut self) {
        // A rule that asks for less is at once enough.
        if !self.asks_the_disk() && !self.is_failed {
            let written = &mut self.commits[..self.written as usize];
            written
                .iter_mut()
                .for_each(|commit| commit.needs_disk = false);
        }
        let through = self.order.acknowledged().0;
        assert!(through >= self.acknowledged, "acknowledged, and taken back");
        for lsn in self.acknowledged + 1..=through {
            let commit = &self.commits[lsn as usize - 1];
            assert!(lsn <= self.written, "{lsn} was not written");
            assert!(
                lsn <= self.durable || !commit.needs_disk,
                "{lsn} was not synced"
            );
            if let Rule::Copies { .. } = self.rule {
                // Of a commit of nothing they hear nothing: what counts is the last before it.
                let before = self.commits[..lsn as usize]
                    .iter()
                    .rposition(|one| one.owes);
                let needed = before.map_or(0, |at| at as u64 + 1);
                let committed = self.committed;
                assert!(needed <= committed, "{lsn} of {committed} needs {needed}");
            }
        }
        self.acknowledged = through;
        for (at, commit) in self.commits.iter_mut().enumerate() {
            let lsn = at as u64 + 1;
            let fate = self.order.fate(CommitTs(lsn));
            let fate = fate.map(|fate| fate.is_ok());
            assert!(
                commit.told.is_none() || commit.told == fate,
                "{lsn} is told otherwise"
            );
            match fate {
                Some(true) => assert!(lsn <= through && !commit.is_lost),
                Some(false) => assert!(self.is_failed || commit.is_lost),
                None => assert!(lsn > through),
            }
            commit.told = fate;
        }
    }

    /// Once nothing is on its way and everybody has everything, everything is acknowledged.
    fn end(mut self) {
        self.happen(Event::Written(false));
        self.happen(Event::Synced);
        self.happen(Event::Mended);
        for _ in 0..2 {
            self.happen(Event::Take(false));
            self.happen(Event::Written(false));
            self.happen(Event::Synced);
        }
        self.order.committed(CommitTs(self.written));
        self.committed = self.written;
        self.check();
        assert_eq!(self.acknowledged, self.enqueued());
        assert!(
            self.commits
                .iter()
                .all(|commit| commit.told == Some(!commit.is_lost))
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_acknowledged_that_the_rule_does_not_allow(rule in rules(), events in events()) {
        let mut model = Model::new(rule);
        for event in events {
            model.happen(event);
        }
        model.end();
    }
}
