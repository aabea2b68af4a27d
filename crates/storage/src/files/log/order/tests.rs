//! The order by example, and against a model of what each commit needs.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::Arc,
};

use proptest::{prelude::*, sample::Index};

use super::*;
use crate::files::log::record::Record;

const FIRST: Member = Member(1);
const SECOND: Member = Member(2);

fn order(rule: Rule) -> Order {
    Order::after(CommitTs(0), 1, 0, rule)
}

fn failure() -> LogFailure {
    LogFailure {
        doing: "write".to_owned(),
        source: Arc::new(io::ErrorKind::StorageFull.into()),
    }
}

fn entry(kind: Kind, lsn: u64, txn: u64, payload: &[u8], wall_micros: u64) -> Entry {
    let head = Head {
        kind,
        lsn: CommitTs(lsn),
        txn: TxnId(txn),
        wall_micros,
    };
    Entry {
        head,
        payload: payload.to_vec(),
    }
}

/// A commit with rows.
fn commit(order: &mut Order, lsn: u64) {
    let entry = entry(Kind::Commit, lsn, 100 + lsn, b"rows", 0);
    order.enqueue(entry, &[]).unwrap();
}

/// A commit of temporary relations alone.
fn passing(order: &mut Order, lsn: u64) {
    let entry = entry(Kind::Commit, lsn, 100 + lsn, b"", 0);
    order.enqueue(entry, &[]).unwrap();
}

fn written(order: &mut Order) -> Group {
    let group = order.next_group(false, false);
    order.written(group.through, group.file_number);
    group
}

#[test]
fn each_rule_asks_for_its_own() {
    let members = |count, and_fsync| Rule::Members { count, and_fsync };
    // After the group was written, was synced, was acknowledged by one member and by another.
    let cases = [
        (Rule::Written, [1, 1, 1, 1]),
        (Rule::Fsync, [0, 1, 1, 1]),
        (members(0, true), [0, 1, 1, 1]),
        (members(1, false), [0, 0, 1, 1]),
        (members(2, false), [0, 0, 0, 1]),
        (members(2, true), [0, 0, 0, 1]),
        (members(3, false), [0, 0, 0, 0]),
    ];
    for (rule, expected) in cases {
        let mut order = order(rule);
        commit(&mut order, 1);
        let mut found = Vec::new();
        let group = written(&mut order);
        found.push(order.acknowledged().0);
        order.synced(group.through);
        found.push(order.acknowledged().0);
        for member in [FIRST, SECOND] {
            order.acknowledged_by(member, group.through);
            found.push(order.acknowledged().0);
        }
        assert_eq!(found, expected, "{rule:?}");
    }
}

#[test]
fn who_is_ahead_of_this_nodes_disk_acknowledges_nothing_for_it() {
    let mut order = order(Rule::Members {
        count: 1,
        and_fsync: true,
    });
    commit(&mut order, 1);
    let group = written(&mut order);
    order.acknowledged_by(FIRST, group.through);
    assert_eq!(order.acknowledged(), CommitTs(0));
    order.synced(group.through);
    assert_eq!(order.acknowledged(), CommitTs(1));
    // What a member says late says nothing less.
    order.acknowledged_by(FIRST, CommitTs(0));
    assert_eq!(order.fate(CommitTs(1)), Some(Ok(CommitTs(1))));
}

#[test]
fn commits_of_temporary_relations_alone_owe_no_sync() {
    let mut order = order(Rule::Fsync);
    passing(&mut order, 1);
    assert!(!order.syncs() && !written(&mut order).syncs);
    assert_eq!(order.acknowledged(), CommitTs(1));
    // With one that owes a sync they wait for it.
    passing(&mut order, 2);
    commit(&mut order, 3);
    passing(&mut order, 4);
    let group = written(&mut order);
    assert!(group.syncs);
    assert_eq!(order.acknowledged(), CommitTs(1));
    order.synced(group.through);
    assert_eq!(order.acknowledged(), CommitTs(4));
    // A chunk before a commit of nothing else is what the commit owes a sync for.
    let chunk = entry(Kind::Rows, 0, 9, b"rows", 0);
    order.enqueue(chunk, &[]).unwrap();
    assert!(!order.syncs());
    let last = entry(Kind::Commit, 5, 9, b"", 0);
    order.enqueue(last, &[]).unwrap();
    assert!(order.syncs());
}

#[test]
fn a_rule_counts_from_the_next_group_on() {
    let mut order = order(Rule::Written);
    commit(&mut order, 1);
    written(&mut order);
    order.set_rule(Rule::Fsync);
    assert_eq!(order.acknowledged(), CommitTs(1));
    // What was acknowledged without a sync owes none.
    passing(&mut order, 2);
    written(&mut order);
    assert_eq!(order.acknowledged(), CommitTs(2));
    commit(&mut order, 3);
    let group = written(&mut order);
    assert_eq!(order.acknowledged(), CommitTs(2));
    order.synced(group.through);
    assert_eq!(order.acknowledged(), CommitTs(3));
}

#[test]
fn a_failure_takes_what_is_not_secured_and_leaves_the_rest_to_the_members() {
    let mut order = order(Rule::Members {
        count: 1,
        and_fsync: false,
    });
    commit(&mut order, 1);
    written(&mut order);
    commit(&mut order, 2);
    let group = order.next_group(false, false);
    commit(&mut order, 3);
    let failure = failure();
    order.failed(group.file_number, failure.clone());
    // The first is in this node's log: what becomes of it is for the member to say.
    assert_eq!(order.fate(CommitTs(1)), None);
    let taken = Some(Err(failure.clone()));
    assert_eq!(
        [2, 3].map(|ts| order.fate(CommitTs(ts))),
        [taken.clone(), taken.clone()]
    );
    let more = entry(Kind::Commit, 4, 8, b"", 0);
    assert!(order.enqueue(more, &[]) == Err(failure));
    let doubt = order.doubt().unwrap();
    assert_eq!((doubt.after, doubt.through), (CommitTs(1), CommitTs(3)));
    order.mended(doubt);
    order.acknowledged_by(FIRST, CommitTs(3));
    assert_eq!(order.fate(CommitTs(1)), Some(Ok(CommitTs(3))));
    assert_eq!(
        [2, 3].map(|ts| order.fate(CommitTs(ts))),
        [taken.clone(), taken]
    );
    commit(&mut order, 4);
    written(&mut order);
    order.acknowledged_by(SECOND, CommitTs(4));
    assert_eq!(order.fate(CommitTs(4)), Some(Ok(CommitTs(4))));
}

#[test]
fn who_had_chunks_when_the_log_failed_is_refused_until_forgotten() {
    let mut order = order(Rule::Fsync);
    let chunk = |txn| entry(Kind::Rows, 0, txn, b"rows", 0);
    order.enqueue(chunk(7), &[]).unwrap();
    order.enqueue(chunk(8), &[]).unwrap();
    let group = order.next_group(false, false);
    order.failed(group.file_number, failure());
    let doubt = order.doubt().unwrap();
    order.mended(doubt);
    assert_eq!(order.doomed(), 2);
    let block = |lsn| entry(Kind::Block, lsn, 20, b"rows", 0);
    order.enqueue(chunk(7), &[]).unwrap_err();
    order.enqueue(block(1), &[TxnId(8)]).unwrap_err();
    order.forget(TxnId(8));
    order.enqueue(block(1), &[TxnId(9)]).unwrap();
}

#[test]
#[should_panic(expected = "LSNs have no gaps")]
fn a_gap_is_a_bug() {
    let mut order = order(Rule::Written);
    commit(&mut order, 2);
}

#[test]
#[should_panic(expected = "which an earlier one has removed")]
fn a_file_that_went_is_not_asked_for() {
    let mut order = order(Rule::Written);
    let chunk = entry(Kind::Rows, 0, 7, b"rows", 0);
    order.enqueue(chunk, &[]).unwrap();
    order.next_group(true, false);
    order.release_before(2);
    order.cut();
}

/// The kinds and places of what is taken, and the first place of which a record speaks.
fn taken(order: &mut Order) -> Vec<(Kind, u64, u64)> {
    let entries = written(order).entries.into_iter();
    let taken = entries.map(|Entry { head, payload }| {
        let first = match head.kind {
            Kind::Nothing => u64::from_le_bytes(payload.try_into().unwrap()),
            _ => head.lsn.0,
        };
        (head.kind, head.lsn.0, first)
    });
    taken.collect()
}

#[test]
fn commits_of_nothing_take_no_place_in_the_log() {
    let mut order = order(Rule::Written);
    passing(&mut order, 1);
    passing(&mut order, 2);
    assert_eq!(taken(&mut order), []);
    assert_eq!(order.acknowledged(), CommitTs(2));
    passing(&mut order, 3);
    commit(&mut order, 4);
    passing(&mut order, 5);
    commit(&mut order, 6);
    passing(&mut order, 7);
    // The last one too, for the file may end behind them.
    let expected = [
        (Kind::Nothing, 3, 1),
        (Kind::Commit, 4, 4),
        (Kind::Nothing, 5, 5),
        (Kind::Commit, 6, 6),
        (Kind::Nothing, 7, 7),
    ];
    assert_eq!(taken(&mut order), expected);
    passing(&mut order, 8);
    let group = order.next_group(true, false);
    order.written(group.through, group.file_number + 1);
    assert_eq!(group.entries.len(), 1, "a file that ends speaks of all");
    // So is one that the disk is to have for good.
    passing(&mut order, 9);
    let group = order.next_group(false, true);
    order.written(group.through, group.file_number);
    assert!(group.syncs && group.entries.len() == 1);
}

#[test]
fn members_need_not_hear_of_places_of_nothing() {
    let mut order = order(Rule::Members {
        count: 1,
        and_fsync: false,
    });
    commit(&mut order, 1);
    written(&mut order);
    passing(&mut order, 2);
    written(&mut order);
    assert_eq!(order.acknowledged(), CommitTs(0));
    order.acknowledged_by(FIRST, CommitTs(1));
    assert_eq!(order.acknowledged(), CommitTs(2));
    passing(&mut order, 3);
    written(&mut order);
    assert_eq!(order.fate(CommitTs(3)), Some(Ok(CommitTs(3))));
}

#[test]
fn who_lost_a_chunk_to_a_failure_does_not_commit_without_it() {
    let mut order = order(Rule::Fsync);
    let chunk = |txn| entry(Kind::Rows, 0, txn, b"rows", 0);
    commit(&mut order, 1);
    let group = order.next_group(false, false);
    order.failed(group.file_number, failure());
    order.enqueue(chunk(7), &[]).unwrap_err();
    let doubt = order.doubt().unwrap();
    order.mended(doubt);
    let block = |lsn| entry(Kind::Block, lsn, 20, b"rows", 0);
    order.enqueue(block(2), &[TxnId(7)]).unwrap_err();
    order.forget(TxnId(7));
    order.enqueue(block(2), &[TxnId(8)]).unwrap();
}

#[test]
fn aborts_that_a_failure_kept_back_are_said_when_it_is_mended() {
    let mut order = order(Rule::Fsync);
    let chunk = |txn| entry(Kind::Rows, 0, txn, b"rows", 0);
    for txn in [7, 8] {
        order.enqueue(chunk(txn), &[]).unwrap();
    }
    let group = written(&mut order);
    order.synced(group.through);
    // One is about to commit, the other is rolled back while the log has failed.
    let last = entry(Kind::Commit, 1, 7, b"", 0);
    order.enqueue(last, &[]).unwrap();
    let group = order.next_group(false, false);
    order.failed(group.file_number, failure());
    order.forget(TxnId(8));
    let doubt = order.doubt().unwrap();
    order.mended(doubt);
    let entries = written(&mut order).entries.into_iter();
    let mut said: Vec<(Kind, u64)> = entries
        .map(|entry| (entry.head.kind, entry.head.txn.0))
        .collect();
    said.sort_by_key(|(_, txn)| *txn);
    assert_eq!(said, [(Kind::Abort, 7), (Kind::Abort, 8)]);
}

#[test]
fn what_the_log_spoke_of_is_known_when_it_is_mended() {
    let mut order = order(Rule::Fsync);
    commit(&mut order, 1);
    let group = written(&mut order);
    order.synced(group.through);
    passing(&mut order, 2);
    passing(&mut order, 3);
    written(&mut order);
    passing(&mut order, 4);
    commit(&mut order, 5);
    let group = order.next_group(false, false);
    order.failed(group.file_number, failure());
    let doubt = order.doubt().unwrap();
    let found = [doubt.said, doubt.after, doubt.through].map(|ts| ts.0);
    assert_eq!(found, [1, 3, 5]);
    order.mended(doubt);
    commit(&mut order, 6);
    let group = written(&mut order);
    assert_eq!(group.entries.len(), 1);
    order.synced(group.through);
    assert_eq!(order.fate(CommitTs(3)).map(|fate| fate.is_ok()), Some(true));
    assert_eq!(order.fate(CommitTs(6)).map(|fate| fate.is_ok()), Some(true));
}

#[test]
fn transactions_with_chunks_that_do_not_commit_are_told_of() {
    let mut order = order(Rule::Fsync);
    let chunk = |txn| entry(Kind::Rows, 0, txn, b"rows", 0);
    order.enqueue(chunk(7), &[]).unwrap();
    order.enqueue(chunk(8), &[]).unwrap();
    order.forget(TxnId(7));
    // Who had none is not spoken of, nor who has committed.
    order.forget(TxnId(9));
    order
        .enqueue(entry(Kind::Commit, 1, 8, b"", 0), &[])
        .unwrap();
    order.forget(TxnId(8));
    let entries = written(&mut order).entries.into_iter();
    let kinds: Vec<(Kind, u64)> = entries
        .map(|entry| (entry.head.kind, entry.head.txn.0))
        .collect();
    assert_eq!(
        kinds,
        [
            (Kind::Rows, 7),
            (Kind::Rows, 8),
            (Kind::Abort, 7),
            (Kind::Commit, 8)
        ]
    );
    order.synced(CommitTs(1));
    // Of one that a failure has doomed a chunk may have stayed.
    order.enqueue(chunk(10), &[]).unwrap();
    let group = order.next_group(false, false);
    order.failed(group.file_number, failure());
    let doubt = order.doubt().unwrap();
    order.mended(doubt);
    order.forget(TxnId(10));
    assert_eq!(taken(&mut order), [(Kind::Abort, 0, 0)]);
}

#[test]
#[should_panic(expected = "file 1 is being written, and those before 2 are to go")]
fn a_file_that_is_written_does_not_go() {
    order(Rule::Written).release_before(2);
}

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
    Ack(u32, Index),
    Rule(Rule),
    Released,
}

fn rules() -> impl Strategy<Value = Rule> {
    prop_oneof![
        Just(Rule::Written),
        Just(Rule::Fsync),
        (0..3_usize, any::<bool>())
            .prop_map(|(count, and_fsync)| Rule::Members { count, and_fsync }),
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
        4 => (0..3_u32, any::<Index>()).prop_map(|(member, through)| Event::Ack(member, through)),
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
    acks: BTreeMap<u32, u64>,
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
            acks: BTreeMap::new(),
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
            Rule::Members { and_fsync, .. } => and_fsync,
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
            Event::Ack(member, through) => {
                // A member has no more than what was sent to it.
                let through = through.index(self.written as usize + 1) as u64;
                self.order
                    .acknowledged_by(Member(member), CommitTs(through));
                let ack = self.acks.entry(member).or_default();
                *ack = through.max(*ack);
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
            if let Rule::Members { count, .. } = self.rule {
                // Of a commit of nothing they hear nothing: what counts is the last before it.
                let before = self.commits[..lsn as usize]
                    .iter()
                    .rposition(|one| one.owes);
                let needed = before.map_or(0, |at| at as u64 + 1);
                let have = self.acks.values().filter(|ack| **ack >= needed).count();
                assert!(
                    needed == 0 || have >= count,
                    "{have} of {count} have {needed}"
                );
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
        for member in 0..3 {
            let all = CommitTs(self.written);
            self.order.acknowledged_by(Member(member), all);
            self.acks.insert(member, self.written);
        }
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
