//! A copy of a database in one process: what it does about what happens.
//!
//! ```text
//!            config has others, dead ─► Starting ─ the longest log ─┐
//!   begins ──┤                                                      │ swap
//!            └─► Following ── a member, and its leader's lease over ┴──► Leading
//!                    ▲                                                    │
//!                    └──────────────── another configuration ─────────────┘
//! ```

mod due;
mod following;
mod handover;
mod leading;
mod starting;

use std::{collections::BTreeSet, time::Duration};

use aerostat_types::CommitTs;

use self::{following::Following, handover::By, leading::Leading};
use crate::{Config, Epoch, History, Member, Message, NodeId, Position, Protections};

/// How copies behave. Processes' clocks may differ in speed by a fifth.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How often a leader says that it is alive.
    pub heartbeat: Duration,
    /// How long a leader may answer strong reads after it has sent what a member answered.
    pub lease: Duration,
    /// How long a member leaves a silent leader its place, from when it heard it last. Longer than the
    /// lease by more than clocks differ.
    pub grace: Duration,
    /// After how much silence a member is taken for lost.
    pub lost: Duration,
    /// How often the store is looked at, and what nobody answered is said again.
    pub again: Duration,
    /// How often the store is looked at while the other nodes are heard: a change of the configuration is heard from
    /// them, and a thousand databases that are idle ask nobody.
    pub seldom: Duration,
    /// How soon what is written is on disk.
    pub flush: Duration,
    /// How long sessions are told to leave at a time, before another is asked to lead on purpose. 0: it is asked at
    /// once, and they are told nothing.
    pub quiet: Duration,
    /// How long they are served before they are told so again, if some have stayed.
    pub unquiet: Duration,
    /// After how long since it was wished first another is asked to lead although sessions have stayed; and how long a
    /// wish waits for another configuration.
    pub patience: Duration,
    /// Whether the leader's disk must have a commit, too.
    pub and_sync: bool,
    /// In tests, rules may be taken out.
    pub protections: Protections,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(250),
            lease: Duration::from_millis(1_500),
            grace: Duration::from_millis(2_000),
            lost: Duration::from_millis(1_000),
            again: Duration::from_millis(500),
            seldom: Duration::from_secs(10),
            flush: Duration::from_millis(200),
            quiet: Duration::from_millis(150),
            unquiet: Duration::from_millis(400),
            patience: Duration::from_millis(2_000),
            and_sync: false,
            protections: Protections::default(),
        }
    }
}

impl Settings {
    /// How long a member leaves a silent leader its place, by the rules that there are.
    fn grace_of_leader(&self) -> Duration {
        match self.protections.promotion_lease {
            true => self.grace,
            false => self.heartbeat * 2,
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time has passed. To be told soon after [`Replica::due`]; told before, it has no effect.
    Tick,
    /// A message has come from a process.
    Received(Member, Message),
    /// The leader's log has new records of its own through a place, written.
    Appended(CommitTs),
    /// The record that was asked for by [`Effect::Begin`] is written, at this place.
    Began(Epoch, CommitTs),
    /// What [`Effect::Store`] asked for is written through a place. Of records that were cut off since
    /// nothing is told.
    Stored(CommitTs),
    /// Everything that was written through a place is on disk. Of records that were cut off since nothing is
    /// told.
    Synced(CommitTs),
    /// The member of this node is to lead, if this process does and knows it to be alive: soon, for sessions may leave
    /// first.
    HandOver(NodeId),
    /// Whether no session is left, since they were told to leave by [`Effect::Quieten`]; told again as they come and
    /// go. While they are not told to leave it means nothing.
    Quiet(bool),
    /// Which nodes are to have the database; none: all that ask to. Told again after each start.
    Wanted(BTreeSet<NodeId>),
    /// What the store has; `None`: nothing yet.
    Config(Option<Config>),
    /// What became of a swap: the store has this now.
    Swapped(Option<Config>),
}

/// Something to be done, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A message is to be sent; to [`Message::Append`] the driver adds the records.
    Send(NodeId, Message),
    /// The log ends with this place. It may be before what was told as [`Effect::Committed`], where all that
    /// had it lost their power: then what was applied of it is to be undone.
    Cut(CommitTs),
    /// The records behind this place that came with the message are the log's.
    Store(CommitTs),
    /// Everything that is written is to be on disk.
    Sync,
    /// The log is to have a record with which an epoch begins, and may have the leader's own behind it.
    Begin(Epoch),
    /// The store is to have this if it has the epoch before it, or nothing where that is 0.
    Swap(Config),
    /// The store is to be read.
    Read,
    /// Everything through this place is committed.
    Committed(CommitTs),
    /// Whether another is about to lead on purpose: sessions are to leave between their transactions, and new ones to
    /// wait. Where not, this process leads on, and they are served again. The two alternate, and the first is true;
    /// with [`Effect::Deposed`] it is over, whatever was said.
    Quieten(bool),
    /// The process leads no more: what becomes of its records behind what is committed is not known yet. Those
    /// behind this place, of which it has not told ([`Event::Appended`]), are cut off.
    Deposed(CommitTs),
}

/// What a leader knows of another copy.
#[derive(Clone, Copy, Debug)]
pub struct PeerState {
    /// Its process.
    pub member: Member,
    /// It has the log through this.
    pub has: CommitTs,
    /// When it was heard last.
    pub heard_at: Duration,
    /// Commits wait for it: it is a member, or about to be one.
    pub is_required: bool,
}

/// What a process does.
#[derive(Debug)]
enum Role {
    Following(Following),
    Leading(Leading),
}

/// A copy of a database in one process.
#[derive(Debug)]
pub struct Replica {
    me: Member,
    settings: Settings,
    /// Where nobody leads yet, whether this one may begin.
    is_first: bool,
    /// Whether the node has lost what it had on its disk.
    has_lost: bool,
    role: Role,
    config: Option<Config>,
    history: History,
    written: CommitTs,
    durable: CommitTs,
    committed: CommitTs,
    /// What the leader of the configuration has said to be committed, whether or not it is here.
    told: CommitTs,
    /// The configuration that the store is asked to have, until it is known whether it has, and when.
    swap: Option<(Config, Duration)>,
    read_at: Option<Duration>,
    synced_at: Duration,
    /// What the copies of a configuration whose members have all ended said.
    started: Vec<(Member, Position)>,
    /// The nodes that are to have it; empty: whoever asks to.
    wanted: BTreeSet<NodeId>,
    effects: Vec<Effect>,
}

impl Replica {
    /// A process that has this log on its disk, and nothing of which it is not sure. `is_first` if it may
    /// begin where there is no configuration.
    pub fn new(me: Member, settings: Settings, history: History, is_first: bool) -> Replica {
        let last = history.last();
        Replica {
            me,
            settings,
            is_first,
            has_lost: false,
            role: Role::Following(Following::default()),
            config: None,
            history,
            written: last,
            durable: last,
            committed: CommitTs(0),
            told: CommitTs(0),
            swap: None,
            read_at: None,
            synced_at: Duration::ZERO,
            started: Vec::new(),
            wanted: BTreeSet::new(),
            effects: Vec::new(),
        }
    }

    /// Of a node that has lost what it had on its disk, and may be counted as a member that has it: where all
    /// members have ended it says what it has, and goes on with nothing by itself.
    pub fn set_lost(&mut self) {
        self.has_lost = true;
    }

    /// Does what follows from something that happened at a time, by a clock that only goes on.
    pub fn step(&mut self, now: Duration, event: Event) -> Vec<Effect> {
        match event {
            Event::Tick => self.tick(now),
            Event::Received(from, message) => self.receive(now, from, message),
            Event::Appended(through) => {
                self.history.extend(through);
                self.written = through;
                self.ship(now);
            }
            Event::Began(epoch, at) => {
                self.history.begin(epoch, at);
                self.written = at;
                self.begun(epoch, at);
                self.ship(now);
            }
            Event::Stored(through) => {
                self.written = self.written.max(through);
                self.answer();
            }
            Event::Synced(through) => {
                self.durable = self.durable.max(through).min(self.history.last());
                self.go_on(now);
            }
            Event::HandOver(to) => self.hand_over(now, to, By::Command),
            Event::Quiet(all) => self.sessions_left(now, all),
            Event::Wanted(nodes) => self.wanted = nodes,
            Event::Config(config) | Event::Swapped(config) => self.learn(now, config),
        }
        self.settle();
        assert!(
            self.committed <= self.history.last() && self.durable <= self.history.last(),
            "committed through {}, durable through {}, of a log through {}",
            self.committed,
            self.durable,
            self.history.last()
        );
        std::mem::take(&mut self.effects)
    }

    /// Which process it is.
    pub fn member(&self) -> Member {
        self.me
    }

    /// The newest configuration that it knows.
    pub fn config(&self) -> Option<&Config> {
        self.config.as_ref()
    }

    /// Whether it takes changes: it leads, and its log says so.
    pub fn takes_changes(&self) -> bool {
        matches!(&self.role, Role::Leading(leading) if leading.has_begun)
    }

    /// Whether it may answer strong reads, with what is committed, at this time.
    pub fn may_read(&self, now: Duration) -> bool {
        self.may_read_until().is_some_and(|until| now < until)
    }

    /// Until when it may answer strong reads, as far as it is known now; `None`: it may not.
    pub fn may_read_until(&self) -> Option<Duration> {
        match &self.role {
            Role::Leading(leading) if leading.has_begun && !leading.hands_over => {
                // What a leader before has acknowledged may be here, and not be known to be committed.
                if self.committed < leading.began_at {
                    return None;
                }
                match self.settings.protections.read_lease {
                    true => leading.leased_until(&self.settings),
                    false => Some(Duration::MAX),
                }
            }
            _ => None,
        }
    }

    /// The process of a node that a leader sends its log to.
    pub fn peer(&self, node: NodeId) -> Option<Member> {
        match &self.role {
            Role::Leading(leading) => leading.member(node),
            Role::Following(_) => None,
        }
    }

    /// What a leader knows of others.
    pub fn peers(&self) -> impl Iterator<Item = PeerState> {
        let leading = match &self.role {
            Role::Leading(leading) => Some(leading),
            Role::Following(_) => None,
        };
        leading.into_iter().flat_map(Leading::states)
    }

    /// When its leader was heard last; `None` at the leader, and where none was heard.
    pub fn heard_at(&self) -> Option<Duration> {
        match &self.role {
            Role::Leading(_) => None,
            Role::Following(following) => following.heard_at(),
        }
    }

    /// Whether commits wait for the leader's disk, too.
    pub fn and_sync(&self) -> bool {
        self.settings.and_sync
    }

    /// Commits wait for the leader's disk from now on, or not.
    pub fn set_and_sync(&mut self, and_sync: bool) {
        self.settings.and_sync = and_sync;
    }

    /// Everything through this place is committed, as far as it knows.
    pub fn committed(&self) -> CommitTs {
        self.committed
    }

    /// Everything through this place is committed, as the leader of the configuration has said, whether or not
    /// it is here; 0: it has said nothing.
    pub fn told(&self) -> CommitTs {
        self.told
    }

    /// What its log has.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Whether a node is to have the database.
    fn is_wanted(&self, node: NodeId) -> bool {
        self.wanted.is_empty() || self.wanted.contains(&node)
    }

    fn epoch(&self) -> Epoch {
        self.config.as_ref().map_or(Epoch(0), |config| config.epoch)
    }

    fn send(&mut self, to: NodeId, message: Message) {
        self.effects.push(Effect::Send(to, message));
    }

    /// Has the disk have everything, if it has not; whether it has.
    fn is_synced(&mut self) -> bool {
        let is_synced = self.durable == self.history.last();
        if !is_synced && self.effects.last() != Some(&Effect::Sync) {
            self.effects.push(Effect::Sync);
        }
        is_synced
    }

    /// Asks for another configuration. It may come to be at any time from now on, whatever is said meanwhile.
    fn swap(&mut self, now: Duration, config: Config) {
        self.effects.push(Effect::Swap(config.clone()));
        self.swap = Some((config, now));
    }

    fn tick(&mut self, now: Duration) {
        if self.durable < self.written && now >= self.synced_at + self.settings.flush {
            self.synced_at = now;
            self.effects.push(Effect::Sync);
        }
        let again = self.settings.again;
        if let Some((config, asked_at)) = &mut self.swap {
            // The answer may be lost. Asked for twice it comes to be once.
            if now >= *asked_at + again {
                *asked_at = now;
                let config = config.clone();
                self.effects.push(Effect::Swap(config));
            }
        } else if now >= self.reads_at() {
            self.read_at = Some(now);
            self.effects.push(Effect::Read);
        }
        match &self.role {
            Role::Leading(_) => self.lead(now),
            Role::Following(_) => self.follow(now),
        }
    }

    fn receive(&mut self, now: Duration, from: Member, message: Message) {
        match message {
            Message::Append {
                config,
                after,
                through,
                starts,
                committed,
                sent,
            } => {
                let sent = following::Sent {
                    from,
                    after,
                    through,
                    starts,
                    committed,
                    sent,
                };
                self.append(now, config, sent);
            }
            Message::Has {
                epoch,
                through,
                sent,
            } => self.acknowledged(now, from, epoch, through, sent),
            Message::Over { epoch } => {
                if epoch > self.epoch() {
                    self.effects.push(Effect::Read);
                }
            }
            Message::HandOver => self.hand_over(now, from.node, By::Command),
            Message::Unknown => self.join(now, from.node),
            Message::Join { member, history } => self.joins(now, member, &history),
            Message::Started { member, end } => self.has_started(now, member, end),
        }
    }

    /// Goes on with what waited for the disk.
    fn go_on(&mut self, now: Duration) {
        match &self.role {
            Role::Leading(_) => self.lead(now),
            Role::Following(_) => self.take_over(now),
        }
    }

    /// The store has this configuration, or had it a moment ago.
    fn learn(&mut self, now: Duration, config: Option<Config>) {
        let Some(config) = config else {
            if self.is_first && self.config.is_none() && self.swap.is_none() {
                self.claim(now, Epoch(0));
            }
            return;
        };
        if self
            .swap
            .as_ref()
            .is_some_and(|(asked, _)| config.epoch >= asked.epoch)
        {
            // It came to be, or cannot any more.
            self.swap = None;
        }
        self.adopt(now, config);
    }

    /// Lives by a configuration, if it is newer than what is known.
    fn adopt(&mut self, now: Duration, config: Config) {
        if config.epoch <= self.epoch() && self.config.is_some() {
            return;
        }
        let leads = config.is_led_by(self.me);
        if !config.is_sound() || leads && config.epoch <= self.history.end().epoch {
            // The store has lost what it had: nobody leads by that.
            return;
        }
        self.started.clear();
        self.told = CommitTs(0);
        self.config = Some(config);
        match (&self.role, leads) {
            (Role::Leading(_), true) => return self.goes_on_leading(now),
            (Role::Following(_), true) => return self.begins_to_lead(now),
            (Role::Leading(_), false) => {
                // Whoever was handed the lead need not find it out by itself, nor wait until the tenant is open here again.
                if let Some(leader) = self.config.as_ref().map(|config| config.leader) {
                    let epoch = self.epoch();
                    self.send(leader, Message::Over { epoch });
                }
                let told = self.history.last();
                self.effects.push(Effect::Deposed(told));
            }
            (Role::Following(_), false) => {}
        }
        // Whatever was under way is settled.
        self.role = Role::Following(Following::since(now));
    }

    /// Asks to lead alone.
    fn claim(&mut self, now: Duration, after: Epoch) {
        let alone = Config {
            epoch: Epoch(after.0 + 1),
            leader: self.me.node,
            members: vec![self.me],
        };
        self.swap(now, alone);
    }

    fn settle(&mut self) {
        let before = self.committed;
        if let Role::Leading(leading) = &self.role
            && leading.has_begun
        {
            let through = leading.committed(self);
            self.committed = self.committed.max(through);
        }
        if self.committed > before {
            self.effects.push(Effect::Committed(self.committed));
        }
        self.tell_sessions();
    }
}
