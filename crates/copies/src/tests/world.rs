//! Nodes, the network between them, the store of configurations, and what befalls them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    path::Path,
    sync::Arc,
    time::Duration,
};

use aerostat_replication::{Config, Epoch, NodeId, Position, Settings};
use aerostat_storage::{
    RowId, StorageError, Timeline,
    seed::{Seed, SeedError, SeedFolder, SeedOf, WantedImage},
    simulated::{Handle, SimDisk},
};
use aerostat_types::{CommitTs, TenantId};
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{
    due::Due,
    judge::{Delta, Judge},
    node::{BAG, FOLDER, KEYED, Process, Waiting, batch, first, listed},
};
use crate::{CopyError, Packet, Standing};

pub(super) const MS: u64 = 1_000;
pub(super) const NODES: u32 = 3;

/// How long things go wrong, and how long all is well afterwards, in microseconds.
pub(super) const TROUBLE: u64 = 10_000 * MS;
const CALM: u64 = 10_000 * MS;

/// More than goes to the log with a commit alone.
const WIDE_ROWS: i32 = 60;
const WIDE_BYTES: usize = 12_000;

/// What came of it.
pub(super) struct Played {
    pub(super) acknowledged: u64,
    pub(super) compared: u64,
    pub(super) epochs: u64,
    /// Copies that were made anew, and how often one was begun.
    pub(super) seeds: (u64, u64),
    /// How often a copy was told that the log does not lead to it.
    pub(super) lacking: u64,
    /// Nodes that gave up its files.
    pub(super) left: u64,
}

pub(super) enum What {
    Tick(u32, u64),
    Packet(u32, Packet),
    Synced(u32, u64),
    /// A copy has more to apply.
    More(u32, u64),
    /// A thread has time for one of a copy's jobs.
    Job(u32, u64),
    /// Whether a process has no session left.
    Quiet(u32, u64, bool),
    /// A request has come to the store.
    Ask(u32, u64, Option<Config>),
    /// Its answer.
    Answer(u32, u64, bool, Option<Config>),
    Client,
    Upkeep,
    Trouble,
    Up(u32),
    /// A node whose process has ended begins to be made anew.
    Fetch(u32, u64),
    /// Something of that comes.
    Part(u32, u64),
    /// See [`World::moving`].
    Move,
    Look(u32),
}

pub(super) struct Node {
    pub(super) disk: Arc<SimDisk>,
    pub(super) process: Option<Process>,
    /// Counts processes.
    pub(super) number: u64,
    pub(super) paused_until: u64,
    pub(super) power_at: u64,
    pub(super) seeding: Option<Seeding>,
}

/// A seed on its way.
pub(super) struct Seeding {
    seed: Seed,
    folder: SeedFolder,
    wanted: Vec<WantedImage>,
}

pub(super) struct World {
    pub(super) random: StdRng,
    pub(super) settings: Settings,
    timeline: Timeline,
    pub(super) now: u64,
    serial: u64,
    pub(super) due: BinaryHeap<Reverse<Due<What>>>,
    pub(super) nodes: Vec<Node>,
    pub(super) store: Option<Config>,
    /// Whether the database moves, and the nodes that are to have it; none: all.
    pub(super) moves: bool,
    pub(super) wanted: BTreeSet<NodeId>,
    pub(super) left: u64,
    pub(super) cut_until: BTreeMap<(u32, u32), u64>,
    /// Until when clients change nothing, so that a checkpoint may begin.
    hushed_until: u64,
    next_key: i32,
    next_number: i64,
    judge: Judge,
    seeds: (u64, u64),
    lacking: u64,
    trace: bool,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let mut random = StdRng::seed_from_u64(seed);
        let disks: Vec<Arc<SimDisk>> = (0..NODES).map(|_| SimDisk::new(random.random())).collect();
        let timeline = first(&disks[0]);
        let nodes = disks.into_iter().map(|disk| Node {
            disk,
            process: None,
            number: 0,
            paused_until: 0,
            power_at: 0,
            seeding: None,
        });
        let mut world = World {
            settings: Settings {
                and_sync: seed.is_multiple_of(3),
                ..Settings::default()
            },
            nodes: nodes.collect(),
            random,
            timeline,
            now: 0,
            serial: 0,
            due: BinaryHeap::new(),
            store: None,
            moves: false,
            wanted: BTreeSet::new(),
            left: 0,
            cut_until: BTreeMap::new(),
            hushed_until: 0,
            next_key: 0,
            next_number: 0,
            judge: Judge::default(),
            seeds: (0, 0),
            lacking: 0,
            trace: std::env::var_os("COPIES_TRACE").is_some(),
        };
        for node in 0..NODES {
            world.start(node);
        }
        world.at(0, What::Client);
        world.at(0, What::Upkeep);
        world.at(2_000 * MS, What::Trouble);
        world
    }

    pub(super) fn play(mut self) -> Played {
        let (mut is_calm, mut count_before) = (false, None);
        while let Some(Reverse(Due(at, _, what))) = self.due.pop() {
            self.now = at;
            if at >= TROUBLE && !is_calm {
                is_calm = true;
                self.heal();
            }
            if at >= TROUBLE + CALM / 2 && count_before.is_none() {
                count_before = Some(self.judge.count());
            }
            if at >= TROUBLE + CALM {
                break;
            }
            self.happen(what);
        }
        // All is well: somebody leads, has other members, and takes changes.
        let members = self.store.iter().flat_map(|config| &config.members);
        let members: BTreeSet<NodeId> = members.map(|member| member.node).collect();
        let is_there = match self.wanted.is_empty() {
            true => members.len() == NODES as usize,
            false => members == self.wanted,
        };
        assert!(
            is_there && Some(self.judge.count()) > count_before,
            "all is well, and {:?} does not go on, wanted: {:?}",
            self.store,
            self.wanted
        );
        let leader = (0..NODES).find(|node| self.leads(*node));
        let leader = leader.expect("somebody leads");
        for node in 0..NODES {
            self.compare(node);
        }
        let process = self.nodes[leader as usize].process.as_ref();
        let history = process.unwrap().driver.replica().history();
        self.judge.examine(leader, history, Epoch(u64::MAX));
        Played {
            acknowledged: self.judge.count(),
            compared: self.judge.compared,
            epochs: self.store.map_or(0, |config| config.epoch.0),
            seeds: self.seeds,
            lacking: self.lacking,
            left: self.left,
        }
    }

    pub(super) fn note(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>12} {}", self.now, what());
        }
    }

    fn leads(&self, node: u32) -> bool {
        let process = self.nodes[node as usize].process.as_ref();
        process.is_some_and(|process| process.driver.replica().takes_changes())
    }

    pub(super) fn at(&mut self, at: u64, what: What) {
        self.serial += 1;
        self.due.push(Reverse(Due(at, self.serial, what)));
    }

    pub(super) fn within(&mut self, micros: std::ops::Range<u64>) -> u64 {
        self.random.random_range(micros)
    }

    pub(super) fn start(&mut self, node: u32) {
        if !self.is_of_use(node) {
            // Nobody opens it there.
            return self.at(self.now + 100 * MS, What::Up(node));
        }
        let own = &mut self.nodes[node as usize];
        own.number += 1;
        let (disk, number) = (Arc::clone(&own.disk), own.number);
        let process = Process::start(&disk, self.timeline, node, number, self.settings);
        own.process = Some(process.unwrap_or_else(|error| panic!("node {node}: {error:?}")));
        self.note(|| format!("node {node} starts as {number}"));
        let after = self.within(1..20 * MS);
        self.at(self.now + after, What::Tick(node, number));
    }

    fn local(&self) -> Duration {
        Duration::from_micros(self.now)
    }

    fn happen(&mut self, what: What) {
        let own = |world: &World, node: u32, number: u64| {
            let own = &world.nodes[node as usize];
            own.number == number && own.process.is_some()
        };
        let node = match &what {
            What::Tick(node, _)
            | What::Packet(node, _)
            | What::Synced(node, _)
            | What::More(node, _)
            | What::Job(node, _)
            | What::Quiet(node, ..)
            | What::Answer(node, ..) => Some(*node),
            _ => None,
        };
        if let Some(until) = node.map(|node| self.nodes[node as usize].paused_until)
            && until > self.now
        {
            // It all comes when the process goes on.
            return self.at(until, what);
        }
        match what {
            What::Tick(node, number) if own(self, node, number) => {
                let after = self.within(20 * MS..60 * MS);
                self.at(self.now + after, What::Tick(node, number));
                self.with(node, |process, now| match now >= process.driver.due(now) {
                    true => process.driver.tick(now, &mut process.host),
                    false => Ok(()),
                });
            }
            What::Packet(node, packet) if self.nodes[node as usize].process.is_some() => {
                self.with(node, move |process, now| {
                    process.driver.receive(now, packet, &mut process.host)
                });
            }
            What::Synced(node, number) if own(self, node, number) => {
                self.with(node, |process, now| {
                    if let Some(store) = process.driver.store() {
                        store.sync_log().unwrap();
                    }
                    process.driver.written(now, &mut process.host)
                });
            }
            What::More(node, number) if own(self, node, number) => {
                self.with(node, |process, now| {
                    process.driver.written(now, &mut process.host)
                });
            }
            What::Job(node, number) if own(self, node, number) => {
                self.with(node, |process, now| {
                    if let Some(job) = process.host.jobs.pop() {
                        job.run();
                    }
                    process.driver.written(now, &mut process.host)
                });
            }
            What::Quiet(node, number, quiet) if own(self, node, number) => {
                self.with(node, move |process, now| {
                    process.driver.quiet(now, quiet, &mut process.host)
                });
            }
            What::Answer(node, number, is_swap, config) if own(self, node, number) => {
                self.with(node, move |process, now| match is_swap {
                    true => process.driver.swapped(now, config, &mut process.host),
                    false => process.driver.config(now, config, &mut process.host),
                });
            }
            What::Ask(node, number, swap) => self.ask(node, number, swap),
            What::Client => self.client(),
            What::Upkeep => self.upkeep(),
            What::Trouble => self.trouble(),
            What::Up(node) if self.is_down(node) => self.start(node),
            What::Fetch(node, tries) if self.is_down(node) => self.fetch(node, tries),
            What::Part(node, tries) => self.part(node, tries),
            What::Move => self.decide(),
            What::Look(node) => self.look(node),
            _ => {}
        }
    }

    /// Has a process do something, and sees to what it asks for.
    pub(super) fn with(
        &mut self,
        node: u32,
        act: impl FnOnce(&mut Process, Duration) -> Result<(), CopyError>,
    ) {
        let (now, at) = (self.local(), node as usize);
        let Some(mut process) = self.nodes[at].process.take() else {
            return;
        };
        let led = process.driver.replica().takes_changes();
        let jobs = process.host.jobs.len();
        if let Err(error) = act(&mut process, now) {
            self.note(|| format!("node {node} fails: {error:?}"));
            let needs_seed = error.needs_seed();
            // Who hands over a database that moves may lack what the next one had without a place before it led.
            let is_late = needs_seed || self.moves && matches!(error, CopyError::Gap);
            assert!(
                self.now < TROUBLE + CALM / 4 || is_late && self.now < TROUBLE + CALM / 2,
                "all is well, and node {node} fails: {error:?}"
            );
            drop(process);
            self.lacking += u64::from(matches!(error, CopyError::LacksLog));
            let after = self.within(10 * MS..200 * MS);
            let next = match needs_seed && self.random.random_bool(0.9) {
                true => What::Fetch(node, 0),
                false => What::Up(node),
            };
            self.at(self.now + after, next);
            return;
        }
        process.note_tables();
        let leads = process.driver.replica().takes_changes();
        if leads && !led {
            self.note(|| format!("node {node} leads"));
            let replica = process.driver.replica();
            let epoch = replica.config().map_or(Epoch(0), |config| config.epoch);
            self.judge.examine(node, replica.history(), epoch);
        }
        let number = self.nodes[at].number;
        for (to, packet) in std::mem::take(&mut process.host.sent) {
            process.left(to, packet.records.bytes.len());
            self.send(node, to, packet);
        }
        for swap in std::mem::take(&mut process.host.asked) {
            let after = self.within(500..5 * MS);
            self.at(self.now + after, What::Ask(node, number, swap));
        }
        if process.driver.has_more() {
            let after = self.within(10..2 * MS);
            self.at(self.now + after, What::More(node, number));
        }
        for _ in jobs..process.host.jobs.len() {
            let after = self.within(10..30 * MS);
            self.at(self.now + after, What::Job(node, number));
        }
        if std::mem::take(&mut process.host.syncs) {
            let after = self.within(100..20 * MS);
            self.at(self.now + after, What::Synced(node, number));
        }
        if std::mem::take(&mut process.host.quietened).last() == Some(&true) {
            self.sessions_leave(node, number);
        }
        self.acknowledge(&mut process);
        self.nodes[at].process = Some(process);
    }

    /// Whether a node has no process, and is not being made anew.
    pub(super) fn is_down(&self, node: u32) -> bool {
        let own = &self.nodes[node as usize];
        own.process.is_none() && own.seeding.is_none()
    }

    /// Begins to make a copy anew, as its owner would. If that cannot be for long, it goes on with what it has.
    fn fetch(&mut self, node: u32, tries: u64) {
        let begun = self.begin_seed(node);
        self.note(|| format!("node {node} is to be made anew: {:?}", begun.as_ref().err()));
        match begun {
            Ok(seeding) => {
                self.seeds.1 += 1;
                self.nodes[node as usize].seeding = Some(seeding);
                self.at(self.now + MS, What::Part(node, tries));
            }
            Err(_) if tries > 30 => self.at(self.now + MS, What::Up(node)),
            Err(_) => {
                let after = self.within(20 * MS..200 * MS);
                self.at(self.now + after, What::Fetch(node, tries + 1));
            }
        }
    }

    fn begin_seed(&mut self, node: u32) -> Result<Seeding, SeedError> {
        let config = self.store.clone().ok_or(SeedError::Gone)?;
        let leader = config.leader.0;
        // One that is alone tells who waits only when its disk has everything.
        if self.leads(leader) && self.nodes[leader as usize].paused_until <= self.now {
            self.with(leader, |process, now| {
                if let Some(store) = process.driver.store() {
                    store.sync_log().unwrap();
                }
                process.driver.written(now, &mut process.host)
            });
        }
        let is_reached = |from: u32, to: u32| {
            let until = self.cut_until.get(&(from, to));
            until.is_none_or(|until| *until <= self.now)
        };
        let other = &self.nodes[leader as usize];
        let (Some(process), true) = (&other.process, leader != node) else {
            return Err(SeedError::Gone);
        };
        let is_well = other.paused_until <= self.now
            && process.driver.replica().takes_changes()
            && is_reached(node, leader)
            && is_reached(leader, node);
        let store = process.driver.store().ok_or(SeedError::Gone)?;
        // A checkpoint waits for what is written to be committed, which nobody would see to meanwhile.
        let is_quiet = process.host.waiting.is_empty()
            && store.txns().last_commit() == store.written_through();
        let begun = store.epochs().last().map_or(Epoch(0), |start| start.0);
        if !is_well || !is_quiet || begun < config.epoch {
            if is_well && !is_quiet {
                self.hushed_until = self.now + 200 * MS;
            }
            return Err(SeedError::Gone);
        }
        let seed = store.seed()?;
        let of = SeedOf {
            tenant: TenantId(1),
            timeline: Some(self.timeline),
            epoch: config.epoch,
        };
        let disk = Arc::new(Handle(Arc::clone(&self.nodes[node as usize].disk)));
        let mut folder = SeedFolder::begin(disk, Path::new(FOLDER), of)?;
        let wanted = folder.plan(seed.manifest())?;
        Ok(Seeding {
            seed,
            folder,
            wanted,
        })
    }

    /// An image comes, or the log; then the copy is there.
    fn part(&mut self, node: u32, tries: u64) {
        let Some(mut seeding) = self.nodes[node as usize].seeding.take() else {
            return;
        };
        let after = self.within(MS..400 * MS);
        if let Some(image) = seeding.wanted.pop() {
            let come = seeding.image(&image).is_ok();
            let next = match come {
                true => What::Part(node, tries),
                false => What::Fetch(node, tries + 1),
            };
            self.nodes[node as usize].seeding = Some(seeding).filter(|_| come);
            return self.at(self.now + after, next);
        }
        let done = seeding.log().and_then(|()| seeding.folder.finish());
        self.note(|| format!("node {node} was made anew: {done:?}"));
        match done {
            Ok(_) => {
                self.seeds.0 += 1;
                self.at(self.now + after, What::Up(node));
            }
            Err(SeedError::Gone | SeedError::Over { .. }) => {
                self.at(self.now + after, What::Fetch(node, tries + 1));
            }
            Err(error) => panic!("node {node}: {error:?}"),
        }
    }

    /// Tells clients what is acknowledged.
    fn acknowledge(&mut self, process: &mut Process) {
        let Some(store) = process.driver.store() else {
            return;
        };
        let through = store.txns().last_commit();
        let later = process.host.waiting.split_off(&CommitTs(through.0 + 1));
        for (lsn, waiting) in std::mem::replace(&mut process.host.waiting, later) {
            let place = waiting.committing.finish().unwrap();
            assert_eq!(place, lsn);
            let epoch = waiting.epoch;
            self.judge.acknowledge(Position { epoch, lsn });
        }
    }

    fn send(&mut self, from: u32, to: NodeId, packet: Packet) {
        let troubled = self.now < TROUBLE;
        let cut = self.cut_until.get(&(from, to.0));
        let is_cut = cut.is_some_and(|until| self.now < *until);
        if is_cut || (troubled && self.random.random_bool(0.02)) {
            return;
        }
        let times = 1 + u32::from(troubled && self.random.random_bool(0.02));
        for _ in 0..times {
            let late = troubled && self.random.random_bool(0.02);
            let after = match late {
                true => self.within(5 * MS..2_000 * MS),
                false => self.within(100..3 * MS),
            };
            self.at(self.now + after, What::Packet(to.0, packet.clone()));
        }
    }

    fn ask(&mut self, node: u32, number: u64, swap: Option<Config>) {
        let is_swap = swap.is_some();
        if let Some(config) = swap {
            let epoch = self.store.as_ref().map_or(Epoch(0), |config| config.epoch);
            if epoch.0 + 1 == config.epoch.0 {
                self.note(|| format!("the store has {config:?}"));
                self.store = Some(config);
            }
        }
        if self.now >= TROUBLE || !self.random.random_bool(0.05) {
            let after = self.within(500..5 * MS);
            let answer = What::Answer(node, number, is_swap, self.store.clone());
            self.at(self.now + after, answer);
        }
    }

    /// A change, at whoever takes it.
    fn client(&mut self) {
        let after = self.within(5 * MS..40 * MS);
        self.at(self.now + after, What::Client);
        if self.now < self.hushed_until {
            return;
        }
        for node in 0..NODES {
            if self.leads(node) && self.nodes[node as usize].paused_until <= self.now {
                self.change(node);
            }
        }
    }

    fn change(&mut self, node: u32) {
        let is_wide = self.random.random_bool(0.06);
        let count = match is_wide {
            true => WIDE_ROWS,
            false => self.random.random_range(1..4),
        };
        let rolls_back = self.random.random_bool(0.1);
        self.next_number += 1;
        let number = self.next_number;
        let from = self.next_key;
        self.next_key += count;
        let rows: Vec<(i32, i64)> = (from..from + count).map(|key| (key, number)).collect();
        let ends = self.random.random_range(0..3);
        let skip = self.random.random_range(0..20);
        let goes_on = is_wide && self.random.random_bool(0.7);
        let ends_other = self.random.random_bool(0.1);
        let stays_open = is_wide && self.random.random_bool(0.6);
        let process = self.nodes[node as usize].process.as_mut().unwrap();
        let store = Arc::clone(process.driver.store().unwrap());
        let (txn, mut delta) = match process.host.open.pop() {
            Some(open) if goes_on || ends_other => open,
            open => {
                process.host.open.extend(open);
                let delta = Delta {
                    number,
                    ..Delta::default()
                };
                (store.txns().begin(), delta)
            }
        };
        let rows: Vec<(i32, i64)> = rows.iter().map(|row| (row.0, delta.number)).collect();
        delta.inserted.extend(rows.iter().map(|row| row.0));
        // What somebody else is about to end would be waited for.
        let may_end = process.host.waiting.is_empty() && process.host.open.is_empty();
        let may_end = may_end && delta.ended.is_empty();
        let mut ended = Vec::new();
        for id in [KEYED, BAG] {
            let table = Arc::clone(&process.host.tables[&id]);
            if may_end {
                let chosen: Vec<(i32, u64)> = listed(&table)
                    .into_iter()
                    .skip(skip)
                    .take(ends)
                    .map(|(key, row)| (key, row.1))
                    .collect();
                let view = table.view(txn.snapshot().clone());
                let ids: Vec<RowId> = chosen.iter().map(|row| RowId(row.1)).collect();
                view.delete(&txn, &ids).unwrap();
                ended = chosen.iter().map(|row| row.0).collect();
            }
            let bytes = if is_wide { WIDE_BYTES } else { 20 };
            table.insert(&txn, &batch(&table, &rows, bytes)).unwrap();
        }
        delta.ended.extend(ended);
        if stays_open {
            process.host.open.push((txn, delta));
        } else if rolls_back {
            txn.rollback();
        } else {
            let epoch = process.driver.replica().history().end().epoch;
            let committing = txn.enqueue().unwrap();
            let lsn = committing.place();
            self.judge.ask(Position { epoch, lsn }, delta);
            match committing.try_finish() {
                Ok(done) => {
                    done.unwrap();
                    self.judge.acknowledge(Position { epoch, lsn });
                }
                Err(committing) => {
                    let waiting = Waiting { committing, epoch };
                    process.host.waiting.insert(lsn, waiting);
                }
            }
            if is_wide {
                store.sync_log().unwrap();
            }
        }
        drop(store);
        self.with(node, |process, now| {
            process.driver.written(now, &mut process.host)
        });
    }

    /// What each node does for itself; and what it shows is looked at.
    fn upkeep(&mut self) {
        let after = self.within(50 * MS..300 * MS);
        self.at(self.now + after, What::Upkeep);
        let node = self.random.random_range(0..NODES);
        self.compare(node);
        let choice = self.random.random_range(0..6);
        let Some(process) = &self.nodes[node as usize].process else {
            return;
        };
        let Some(store) = process.driver.store() else {
            return;
        };
        let table = process
            .host
            .tables
            .get(&[KEYED, BAG][self.random.random_range(0..2)]);
        let is_quiet = process.host.waiting.is_empty();
        let follows = process.driver.standing() == Standing::Follows;
        match (choice, table) {
            (0, Some(table)) if is_quiet => drop(table.freeze().unwrap()),
            (1, Some(table)) if is_quiet => drop(table.vacuum().unwrap()),
            // It waits for what is written to be committed, which nobody would see to meanwhile.
            (2, _)
                if follows || is_quiet && store.txns().last_commit() == store.written_through() =>
            {
                let done = store.checkpoint();
                let is_done = matches!(&done, Ok(Some(_)));
                // A copy may not know yet that it is all committed.
                let is_put_off = matches!(&done, Err(StorageError::Cancelled)) && follows;
                assert!(is_done || is_put_off, "{done:?}");
            }
            _ => {}
        }
    }

    fn compare(&mut self, node: u32) {
        let Some(process) = &self.nodes[node as usize].process else {
            return;
        };
        let is_shown = process.driver.shows_what_is_committed();
        let (true, Some(store), Some(rows)) = (is_shown, process.driver.store(), process.rows())
        else {
            return;
        };
        let at = store.txns().last_commit();
        let history = process.driver.replica().history();
        if process.driver.standing() == Standing::Leads && at > history.last() {
            return;
        }
        self.judge.compare(node, history, at, &rows);
    }
}

impl Seeding {
    fn image(&self, image: &WantedImage) -> Result<(), SeedError> {
        let mut taker = self.folder.image(image)?;
        while !taker.is_whole() {
            let part = self.seed.read_image(&image.name, taker.at(), 100_000)?;
            taker.take(&part)?;
        }
        // What a power failure has left of a part is asked for again.
        taker.finish()
    }

    fn log(&mut self) -> Result<(), SeedError> {
        loop {
            let (file, from) = self.folder.log_position()?;
            let part = self.seed.read_log(file, from, 100_000)?;
            self.folder.take_log(&part)?;
            if (file, from + part.bytes.len() as u64) == part.end {
                return Ok(());
            }
        }
    }
}
