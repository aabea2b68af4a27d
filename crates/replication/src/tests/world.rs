//! Nodes, the network between them, the store, and what befalls them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    ops::RangeInclusive,
    time::Duration,
};

use aerostat_types::CommitTs;
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{
    disk::{Disk, Record},
    due::{Due, Told, What},
    judge::Judge,
    sessions::Sessions,
};
use crate::{
    Config, Effect, Epoch, Event, Incarnation, Member, Message, NodeId, Protections, Replica,
    Settings,
};

pub(super) const MS: u64 = 1_000;
pub(super) const NODES: u32 = 3;

/// How long things go wrong, and how long all is well afterwards, in microseconds.
pub(super) const TROUBLE: u64 = 20_000 * MS;
const CALM: u64 = 12_000 * MS;

/// What is played.
#[derive(Clone, Copy, Default)]
pub(super) struct Plan {
    pub(super) protections: Protections,
    pub(super) and_sync: bool,
    /// Whether it is decided again and again which nodes have the database, two or one of them.
    pub(super) moves: bool,
    /// Whether another leads as soon as that is wished, whatever sessions there are.
    pub(super) at_once: bool,
    /// Whether time is told only when it has something done, and the store read seldom.
    pub(super) idle: bool,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Played {
    /// Commits.
    pub(super) acknowledged: u64,
    /// Strong reads that were answered.
    pub(super) reads: u64,
    /// Configurations.
    pub(super) epochs: u64,
    /// Commits that were lost as they may be: with the power of all members, before a sync was due.
    pub(super) lost: u64,
    /// Nodes that had the database, and gave up its files.
    pub(super) left: u64,
    /// How often sessions were told to leave.
    pub(super) quietened: u64,
    /// How often another was asked to lead because they had.
    pub(super) peaceful: u64,
}

impl Played {
    pub(super) fn add(&mut self, other: &Played) {
        self.acknowledged += other.acknowledged;
        self.reads += other.reads;
        self.epochs += other.epochs;
        self.lost += other.lost;
        self.left += other.left;
        self.quietened += other.quietened;
        self.peaceful += other.peaceful;
    }
}

pub(super) struct Node {
    disk: Disk,
    pub(super) replica: Option<Replica>,
    pub(super) sessions: Sessions,
    process: u64,
    /// Its clock, beside true time.
    speed: f64,
    paused_until: u64,
    slow_until: u64,
    /// When its machine lost its power.
    power_failures: Vec<u64>,
    /// Its own changes that are not acknowledged.
    waiting: BTreeMap<CommitTs, u64>,
    /// The end of what is being written.
    busy_until: u64,
}

impl Node {
    /// Of the configuration that its process knows.
    fn epoch(&self) -> Epoch {
        let config = self.replica.as_ref().and_then(Replica::config);
        config.map_or(Epoch(0), |config| config.epoch)
    }
}

/// Everything.
pub(super) struct World {
    pub(super) random: StdRng,
    plan: Plan,
    pub(super) now: u64,
    serial: u64,
    due: BinaryHeap<Reverse<Due>>,
    pub(super) nodes: Vec<Node>,
    store: Option<Config>,
    /// For each node.
    store_away_until: [u64; NODES as usize],
    /// Between which two nodes nothing goes, until when.
    cut_until: BTreeMap<(u32, u32), u64>,
    changes: u64,
    reads: u64,
    left: u64,
    pub(super) quietened: u64,
    pub(super) peaceful: u64,
    /// The nodes that are to have the database; none: all.
    wanted: BTreeSet<NodeId>,
    judge: Judge,
    trace: Vec<String>,
}

impl World {
    pub(super) fn new(seed: u64, plan: Plan) -> World {
        let mut random = StdRng::seed_from_u64(seed);
        let nodes = (0..NODES).map(|_| Node {
            disk: Disk::default(),
            replica: None,
            sessions: Sessions::default(),
            process: 0,
            speed: random.random_range(0.95..1.05),
            paused_until: 0,
            slow_until: 0,
            power_failures: Vec::new(),
            waiting: BTreeMap::new(),
            busy_until: 0,
        });
        let nodes = nodes.collect();
        let mut world = World {
            random,
            plan,
            now: 0,
            serial: 0,
            due: BinaryHeap::new(),
            nodes,
            store: None,
            store_away_until: [0; NODES as usize],
            cut_until: BTreeMap::new(),
            changes: 0,
            reads: 0,
            left: 0,
            quietened: 0,
            peaceful: 0,
            wanted: BTreeSet::new(),
            judge: Judge::default(),
            trace: Vec::new(),
        };
        for node in 0..NODES {
            world.start(node);
        }
        world.at(0, What::Client);
        world.at(1_000 * MS, What::Trouble);
        if !plan.at_once {
            world.at(1_500 * MS, What::Wish);
        }
        if plan.moves {
            world.at(2_000 * MS, What::Move);
            (0..NODES).for_each(|node| world.at(2_000 * MS, What::Look(node)));
        }
        world
    }

    pub(super) fn play(mut self) -> Result<Played, String> {
        let result = self.run();
        if let Err(violation) = result {
            if std::env::var("REPLICATION_TRACE").is_ok() {
                self.trace.iter().for_each(|line| println!("{line}"));
            }
            return Err(violation);
        }
        Ok(Played {
            acknowledged: self.judge.count,
            reads: self.reads,
            epochs: self.store.map_or(0, |config| config.epoch.0),
            lost: self.judge.lost,
            left: self.left,
            quietened: self.quietened,
            peaceful: self.peaceful,
        })
    }

    fn run(&mut self) -> Result<(), String> {
        let (mut calm_from, mut count_before) = (0, 0);
        while let Some(Reverse(Due(at, _, what))) = self.due.pop() {
            self.now = at;
            if at >= TROUBLE && calm_from == 0 {
                calm_from = at;
                self.heal();
            }
            if at >= TROUBLE + CALM / 2 && count_before == 0 {
                count_before = self.judge.count.max(1);
            }
            if at >= TROUBLE + CALM {
                break;
            }
            self.happen(what)?;
        }
        // All is well, so somebody leads, has another member, and takes changes.
        let members = self.store.iter().flat_map(|config| &config.members);
        let members: BTreeSet<NodeId> = members.map(|member| member.node).collect();
        let is_there = match self.wanted.is_empty() {
            true => members.len() >= 2,
            false => members == self.wanted,
        };
        if !is_there || self.judge.count <= count_before {
            let (store, wanted) = (&self.store, &self.wanted);
            return Err(format!(
                "all is well, and {store:?} does not go on, wanted: {wanted:?}"
            ));
        }
        let led = self
            .nodes
            .iter()
            .zip(0..)
            .find(|(node, _)| self.leads(node));
        match led {
            Some((node, who)) => self.judge.examine(who, &node.disk, Epoch(u64::MAX)),
            None => Err("nobody leads".to_owned()),
        }
    }

    pub(super) fn leads(&self, node: &Node) -> bool {
        node.replica.as_ref().is_some_and(Replica::takes_changes)
    }

    pub(super) fn at(&mut self, at: u64, what: What) {
        self.serial += 1;
        self.due.push(Reverse(Due(at, self.serial, what)));
    }

    pub(super) fn within(&mut self, micros: std::ops::Range<u64>) -> u64 {
        self.random.random_range(micros)
    }

    pub(super) fn tell(&mut self, node: u32, after: u64, told: Told) {
        let process = self.nodes[node as usize].process;
        self.at(self.now + after, What::Tell(node, process, told));
    }

    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if std::env::var_os("REPLICATION_TRACE").is_some() {
            let line = format!("{:>12} {}", self.now, what());
            self.trace.push(line);
        }
    }

    fn happen(&mut self, what: What) -> Result<(), String> {
        match what {
            What::Tell(node, process, told) => self.deliver(node, process, told),
            What::Ask(node, process, swap) => self.ask(node, process, swap),
            What::Client => self.client(),
            What::Trouble => self.trouble(),
            What::Wish => {
                self.wish();
                Ok(())
            }
            What::Up(node) => {
                if self.nodes[node as usize].replica.is_none() {
                    self.start(node);
                }
                Ok(())
            }
            What::Move => {
                self.decide();
                Ok(())
            }
            What::Look(node) => self.look(node),
        }
    }

    /// Other nodes are to have the database: two, or one.
    fn decide(&mut self) {
        if self.now >= TROUBLE {
            return;
        }
        let count = self.random.random_range(1..=2);
        self.wanted.clear();
        while self.wanted.len() < count {
            self.wanted
                .insert(NodeId(self.random.random_range(0..NODES)));
        }
        let wanted = &self.wanted;
        let said = format!("wanted: {wanted:?}");
        self.note(|| said);
        let after = self.within(500 * MS..6_000 * MS);
        self.at(self.now + after, What::Move);
    }

    /// A node hears where the database is to be; where that is not here, and the store says that it is not, it gives it
    /// up: first its process, so that nobody takes it for one that has what it is sent.
    fn look(&mut self, node: u32) -> Result<(), String> {
        let after = self.within(50 * MS..1_000 * MS);
        self.at(self.now + after, What::Look(node));
        let is_wanted = self.wanted.is_empty() || self.wanted.contains(&NodeId(node));
        let is_member = |config: &Config| config.of(NodeId(node)).is_some();
        if self.nodes[node as usize].replica.is_none() {
            return Ok(());
        }
        let wanted = Event::Wanted(self.wanted.clone());
        self.tell(node, 1, Told::Event(wanted));
        let knows_to_be_none = {
            let replica = self.nodes[node as usize].replica.as_ref();
            let config = replica.and_then(Replica::config);
            config.is_some_and(|config| !is_member(config))
        };
        let in_order = self.plan.protections.leave_order;
        if is_wanted
            || in_order && !knows_to_be_none
            || self.store_away_until[node as usize] > self.now
        {
            return Ok(());
        }
        self.end(node, false)?;
        if !in_order || self.store.as_ref().is_some_and(|config| !is_member(config)) {
            self.left += 1;
            self.nodes[node as usize].disk = Disk::default();
            self.note(|| format!("node {node} gives up its files"));
        }
        Ok(())
    }

    fn start(&mut self, node: u32) {
        let is_member = |config: &Config| config.of(NodeId(node)).is_some();
        let is_wanted = self.wanted.is_empty() || self.wanted.contains(&NodeId(node));
        if !is_wanted && !self.store.as_ref().is_none_or(is_member) {
            let after = self.within(50 * MS..1_000 * MS);
            return self.at(self.now + after, What::Up(node));
        }
        let settings = self.settings();
        let own = &mut self.nodes[node as usize];
        own.process += 1;
        own.disk.restart();
        own.waiting.clear();
        own.sessions = Sessions::default();
        own.busy_until = 0;
        let incarnation = match self.plan.protections.incarnation {
            true => own.process,
            false => 1,
        };
        let me = Member {
            node: NodeId(node),
            incarnation: Incarnation(incarnation),
        };
        own.replica = Some(Replica::new(me, settings, own.disk.history(), node == 0));
        let after = self.within(1..20 * MS);
        self.tell(node, after, Told::Tick);
        self.note(|| format!("node {node} starts"));
    }

    pub(super) fn settings(&self) -> Settings {
        let settings = Settings::default();
        Settings {
            and_sync: self.plan.and_sync,
            protections: self.plan.protections,
            quiet: match self.plan.at_once {
                true => Duration::ZERO,
                false => settings.quiet,
            },
            seldom: match self.plan.idle {
                true => settings.seldom,
                false => settings.again,
            },
            ..settings
        }
    }

    pub(super) fn local(&self, node: u32) -> Duration {
        Duration::from_micros((self.now as f64 * self.nodes[node as usize].speed) as u64)
    }

    fn deliver(&mut self, node: u32, process: u64, told: Told) -> Result<(), String> {
        let own = &self.nodes[node as usize];
        let is_message = matches!(told, Told::Message(..));
        if (own.process != process && !is_message) || own.replica.is_none() {
            return Ok(());
        }
        if own.paused_until > self.now {
            // It all comes when the process goes on.
            let until = own.paused_until;
            self.at(until, What::Tell(node, process, told));
            return Ok(());
        }
        let mut records = Vec::new();
        let event = match told {
            Told::Tick => {
                let after = self.within(20 * MS..60 * MS);
                self.tell(node, after, Told::Tick);
                let now = self.local(node);
                let is_due = |replica: &Replica| now >= replica.due(now);
                let own = &self.nodes[node as usize];
                if self.plan.idle && !own.replica.as_ref().is_some_and(is_due) {
                    return Ok(());
                }
                Event::Tick
            }
            Told::Event(event) => event,
            Told::Message(from, message, carried) => {
                records = carried;
                Event::Received(from, message)
            }
            Told::Disk(cuts, event) => {
                if cuts != own.disk.cuts {
                    return Ok(());
                }
                if let Event::Synced(through) = event {
                    self.nodes[node as usize].disk.synced(through);
                }
                event
            }
            Told::Change(cuts, through) => {
                if cuts != own.disk.cuts {
                    return Ok(());
                }
                Event::Appended(through)
            }
        };
        self.step(node, event, &records)
    }

    fn step(&mut self, node: u32, event: Event, records: &[Record]) -> Result<(), String> {
        let now = self.local(node);
        let what = format!("{event:?}");
        let Some(replica) = &mut self.nodes[node as usize].replica else {
            return Ok(());
        };
        let (led, swapped) = (replica.takes_changes(), replica.swaps());
        let (is_tick, is_quiet) = (
            matches!(event, Event::Tick),
            matches!(event, Event::Quiet(true)),
        );
        let through = match &event {
            Event::Received(_, Message::Append { through, .. }) => *through,
            _ => CommitTs(0),
        };
        let due = replica.due(now);
        let effects = replica.step(now, event);
        if is_tick && now < due && !effects.is_empty() {
            return Err(format!(
                "at {now:?} node {node} has nothing to do before {due:?}, and does {effects:?}"
            ));
        }
        let leads = replica.takes_changes();
        self.peaceful += u64::from(is_quiet && !swapped && replica.swaps());
        if !effects.is_empty() {
            self.note(|| format!("node {node} {what}: {effects:?}"));
        }
        for effect in effects {
            self.act(node, effect, through, records)?;
        }
        self.look_at_sessions(node, now, is_tick)?;
        if leads && !led {
            let own = &self.nodes[node as usize];
            self.judge.examine(node, &own.disk, own.epoch())?;
        }
        Ok(())
    }

    fn act(
        &mut self,
        node: u32,
        effect: Effect,
        through: CommitTs,
        records: &[Record],
    ) -> Result<(), String> {
        let at = node as usize;
        match effect {
            Effect::Send(to, message) => self.send(node, to, message),
            Effect::Cut(to) => self.nodes[at].disk.cut(to),
            Effect::Store(after) => {
                let count = (through.0 - after.0) as usize;
                let own = &mut self.nodes[at];
                let last = own.disk.last();
                if last != after {
                    return Err(format!(
                        "node {node} stores after {after}, and its log ends at {last}"
                    ));
                }
                own.disk.store(&records[records.len() - count..]);
                let cuts = own.disk.cuts;
                let after = self.writes(node);
                self.tell(node, after, Told::Disk(cuts, Event::Stored(through)));
            }
            Effect::Sync => {
                let through = self.nodes[at].disk.last();
                let cuts = self.nodes[at].disk.cuts;
                let slow = self.nodes[at].slow_until > self.now;
                let after = match slow {
                    true => self.within(50 * MS..300 * MS),
                    false => self.within(MS..20 * MS),
                };
                // What is being written is written first.
                let after = after + self.nodes[at].busy_until.saturating_sub(self.now);
                self.tell(node, after, Told::Disk(cuts, Event::Synced(through)));
            }
            Effect::Begin(epoch) => {
                let own = &mut self.nodes[at];
                let place = own.disk.push(Record::Begin(epoch));
                let cuts = own.disk.cuts;
                let after = self.writes(node);
                self.tell(node, after, Told::Disk(cuts, Event::Began(epoch, place)));
            }
            Effect::Swap(config) => self.request(node, Some(config)),
            Effect::Read => self.request(node, None),
            Effect::Committed(through) => {
                let own = &mut self.nodes[at];
                let epoch = own.epoch();
                let later = own.waiting.split_off(&CommitTs(through.0 + 1));
                let done = std::mem::replace(&mut own.waiting, later);
                for (lsn, change) in done {
                    self.judge.acknowledge(lsn, change, self.now, epoch)?;
                }
            }
            Effect::Quieten(quiet) => self.quieten(node, quiet)?,
            Effect::Deposed(told) => {
                let own = &mut self.nodes[at];
                own.waiting.clear();
                own.sessions = Sessions::default();
                if told < own.disk.last() {
                    own.disk.cut(told);
                }
            }
        }
        Ok(())
    }

    /// How long until what is written now is; one after the other.
    fn writes(&mut self, node: u32) -> u64 {
        let takes = self.within(20..500);
        let own = &mut self.nodes[node as usize];
        own.busy_until = own.busy_until.max(self.now) + takes;
        own.busy_until - self.now
    }

    fn send(&mut self, from: u32, to: NodeId, message: Message) {
        let to = to.0;
        let own = &self.nodes[from as usize];
        let Some(member) = own.replica.as_ref().map(Replica::member) else {
            return;
        };
        let records = match &message {
            Message::Append { after, through, .. } => own.disk.between(after.lsn, *through),
            _ => Vec::new(),
        };
        let troubled = self.now < TROUBLE;
        let is_cut = self
            .cut_until
            .get(&(from, to))
            .is_some_and(|until| self.now < *until);
        if is_cut || (troubled && self.random.random_bool(0.02)) {
            return;
        }
        let copies = match troubled && self.random.random_bool(0.02) {
            true => 2,
            false => 1,
        };
        for _ in 0..copies {
            let late = troubled && self.random.random_bool(0.02);
            let after = match late {
                true => self.within(5 * MS..3_000 * MS),
                false => self.within(100..3 * MS),
            };
            let told = Told::Message(member, message.clone(), records.clone());
            self.tell(to, after, told);
        }
    }

    fn request(&mut self, node: u32, swap: Option<Config>) {
        let process = self.nodes[node as usize].process;
        let troubled = self.now < TROUBLE;
        if troubled && self.random.random_bool(0.02) {
            return;
        }
        let late = troubled && self.random.random_bool(0.05);
        let after = match late {
            true => self.within(5 * MS..1_500 * MS),
            false => self.within(500..5 * MS),
        };
        self.at(self.now + after, What::Ask(node, process, swap));
    }

    fn ask(&mut self, node: u32, process: u64, swap: Option<Config>) -> Result<(), String> {
        if self.store_away_until[node as usize] > self.now {
            return Ok(());
        }
        let is_swap = swap.is_some();
        if let Some(config) = swap {
            let epoch = self.store.as_ref().map_or(Epoch(0), |config| config.epoch);
            if epoch.0 + 1 == config.epoch.0 {
                self.note(|| format!("the store has {config:?}"));
                self.take(config)?;
            }
        }
        let found = self.store.clone();
        let event = match is_swap {
            true => Event::Swapped(found),
            false => Event::Config(found),
        };
        // The answer may be lost.
        if self.now >= TROUBLE || !self.random.random_bool(0.05) {
            let after = self.within(500..5 * MS);
            self.at(
                self.now + after,
                What::Tell(node, process, Told::Event(event)),
            );
        }
        Ok(())
    }

    /// The store has another configuration from now on.
    fn take(&mut self, config: Config) -> Result<(), String> {
        let new = members(&self.nodes, Some(&config));
        let old = members(&self.nodes, self.store.as_ref());
        let lost_power = |within: RangeInclusive<u64>| {
            let fails = |node: &&Node| node.power_failures.iter().any(|at| within.contains(at));
            old.iter().chain(&new).all(fails)
        };
        let disks: Vec<&Disk> = new.iter().map(|node| &node.disk).collect();
        let and_sync = self.plan.and_sync;
        self.judge.account_for_swap(&disks, and_sync, &lost_power)?;
        self.store = Some(config);
        Ok(())
    }

    /// Changes at whoever takes them, and reads at whoever answers.
    fn client(&mut self) -> Result<(), String> {
        let after = self.within(2 * MS..20 * MS);
        self.at(self.now + after, What::Client);
        for node in 0..NODES {
            let (now, at) = (self.local(node), node as usize);
            let own = &self.nodes[at];
            let Some(replica) = &own.replica else {
                continue;
            };
            if own.paused_until > self.now {
                continue;
            }
            if replica.may_read(now) {
                self.reads += 1;
                self.judge.read(node, &own.disk, replica.committed())?;
            }
            if replica.takes_changes() && self.random.random_bool(0.8) {
                self.changes += 1;
                let change = self.changes;
                let own = &mut self.nodes[at];
                let lsn = own.disk.push(Record::Change(change));
                own.waiting.insert(lsn, change);
                let cuts = own.disk.cuts;
                let after = self.writes(node);
                self.tell(node, after, Told::Change(cuts, lsn));
            }
        }
        Ok(())
    }

    fn trouble(&mut self) -> Result<(), String> {
        if self.now >= TROUBLE {
            return Ok(());
        }
        let after = self.within(100 * MS..2_500 * MS);
        self.at(self.now + after, What::Trouble);
        let node = self.random.random_range(0..NODES);
        let lasts = self.within(50 * MS..4_000 * MS);
        match self.random.random_range(0..11) {
            0 | 1 => self.end(node, false)?,
            2 | 3 => self.end(node, true)?,
            4 => {
                // Some or all, at once.
                for node in 0..NODES {
                    if self.random.random_bool(0.7) {
                        let power = self.random.random_bool(0.5);
                        match power {
                            true => self.end(node, true)?,
                            false => self.end(node, false)?,
                        }
                    }
                }
                return Ok(());
            }
            5 | 6 => {
                let other = (node + self.random.random_range(1..NODES)) % NODES;
                let until = self.now + lasts;
                self.cut_until.insert((node, other), until);
                // Often in both directions.
                if self.random.random_bool(0.8) {
                    self.cut_until.insert((other, node), until);
                }
                self.note(|| format!("nothing goes from {node} to {other}"));
            }
            7 => {
                // What waits for the end of an earlier pause comes first.
                let own = &mut self.nodes[node as usize];
                own.paused_until = own.paused_until.max(self.now + lasts);
                self.note(|| format!("node {node} is stopped"));
            }
            8 => self.nodes[node as usize].slow_until = self.now + lasts,
            9 => {
                // Somebody is told to lead.
                let leader = (0..NODES).find(|at| self.leads(&self.nodes[*at as usize]));
                let member = self.nodes[node as usize]
                    .replica
                    .as_ref()
                    .map(Replica::member);
                if let (Some(leader), Some(member)) = (leader, member) {
                    let told = Event::Received(member, Message::HandOver);
                    self.tell(leader, 1, Told::Event(told));
                    self.note(|| format!("node {node} is told to lead"));
                }
            }
            _ => {
                // For one or for all.
                let all = self.random.random_bool(0.5);
                let until = self.now + lasts;
                for (of, away) in (0..NODES).zip(&mut self.store_away_until) {
                    if all || of == node {
                        *away = until;
                    }
                }
                self.note(|| format!("the store is away, for all: {all}, for {node}"));
            }
        }
        Ok(())
    }

    /// A process ends, or its machine; it is there again after a while.
    fn end(&mut self, node: u32, power: bool) -> Result<(), String> {
        let own = &mut self.nodes[node as usize];
        if own.replica.take().is_none() {
            return Ok(());
        }
        own.process += 1;
        own.waiting.clear();
        if power {
            let part = match self.random.random_bool(0.5) {
                true => 0.0,
                false => self.random.random_range(0.0..1.0),
            };
            let own = &mut self.nodes[node as usize];
            own.disk.lose(part);
            own.power_failures.push(self.now);
        }
        self.note(|| format!("node {node} ends, power failure: {power}"));
        let after = self.within(10 * MS..5_000 * MS);
        self.at(self.now + after, What::Up(node));
        let nodes = members(&self.nodes, self.store.as_ref());
        let disks: Vec<&Disk> = nodes.iter().map(|node| &node.disk).collect();
        let was_stopped = |since: u64| nodes.iter().any(|node| node.paused_until >= since);
        let and_sync = self.plan.and_sync;
        self.judge.account(&disks, self.now, and_sync, &was_stopped)
    }

    /// Nothing goes wrong any more.
    fn heal(&mut self) {
        self.cut_until.clear();
        self.store_away_until = [0; NODES as usize];
        for node in 0..NODES {
            let own = &mut self.nodes[node as usize];
            own.slow_until = 0;
            if own.replica.is_none() {
                self.start(node);
            }
        }
    }
}

/// The nodes of a configuration's members.
fn members<'a>(nodes: &'a [Node], config: Option<&Config>) -> Vec<&'a Node> {
    let members = config.into_iter().flat_map(|config| &config.members);
    members
        .map(|member| &nodes[member.node.0 as usize])
        .collect()
}
