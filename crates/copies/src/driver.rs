//! The driver: the machine's effects, done to the store in order.

mod looks;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use aerostat_replication::{
    Config, Effect, Epoch, Event, History, Member, Message, NodeId, Replica, Settings,
};
use aerostat_storage::{Applier, LogWatch, StreamPoint, TenantStore, last_place, unplaced};
use aerostat_types::CommitTs;

use crate::{
    CopyError, Host, Packet, Records, Standing,
    applying::{Applying, apply},
    outbox::{Kept, Outbox, Told},
    pacing::Pacing,
};

pub(crate) use self::looks::Gist;

/// What the process does with the tenant now.
enum Role {
    Follows(Applying),
    Leads(Leadership),
    /// Between two openings.
    Closed,
}

/// What a leader has.
struct Leadership {
    /// With which it began.
    tenure: Epoch,
    peers: BTreeMap<NodeId, (Member, Outbox)>,
    pacing: Pacing,
    /// Has the host told of commits.
    _watch: LogWatch,
}

/// A tenant's copy.
pub struct Driver {
    replica: Replica,
    store: Option<Arc<TenantStore>>,
    /// Keeps what another member may ask for, if this one leads by then.
    kept: Option<Kept>,
    role: Role,
    /// What its disk has of the log, as far as the machine was told.
    durable: CommitTs,
    /// Whose records without a place are behind the last place: those of another leader are not the same.
    tail_of: Option<(Member, Epoch)>,
    /// Whether there is more to apply.
    has_more: bool,
    /// When its leader was heard last of those times that it had everything which that said to be committed; `None`
    /// since it was opened.
    current_at: Option<Duration>,
    /// Whether the log was told that a commit waits for this node's disk; `None` while it does not lead.
    by_disk: Option<bool>,
}

impl Driver {
    /// A copy that was opened in this process, and what its disk has of the log: all. `is_first` if it may lead
    /// where there is no configuration.
    pub fn new(
        me: Member,
        settings: Settings,
        (store, applier): (Arc<TenantStore>, Applier),
        is_first: bool,
    ) -> Driver {
        let history = history_of(&store);
        Driver {
            durable: history.last(),
            replica: Replica::new(me, settings, history, is_first),
            kept: Some(Kept::of(&store)),
            store: Some(store),
            role: Role::Follows(Applying::new(applier)),
            tail_of: None,
            has_more: false,
            current_at: None,
            by_disk: None,
        }
    }

    /// See [`Replica::set_lost`].
    pub fn set_lost(&mut self) {
        self.replica.set_lost();
    }

    /// Whether [`Self::written`] is to be told again soon: a copy applies in parts, and a leader sends in parts, for both
    /// have to answer.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether the copy is to do some of what it has before it takes large parts of the log.
    pub(crate) fn is_far_behind(&self) -> bool {
        matches!(&self.role, Role::Follows(applying) if applying.is_far_behind())
    }

    /// Waits a little while it is far behind, before it takes so many bytes.
    pub(crate) fn wait_if_behind(&self, bytes: usize) {
        if let Role::Follows(applying) = &self.role {
            applying.wait(bytes);
        }
    }

    /// The machine, to be looked at.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// The tenant, as it is open now.
    pub fn store(&self) -> Option<&Arc<TenantStore>> {
        self.store.as_ref()
    }

    /// What the process does with it.
    pub fn standing(&self) -> Standing {
        match self.role {
            Role::Leads(_) => Standing::Leads,
            _ => Standing::Follows,
        }
    }

    /// The tables of a copy, whether or not a catalogue names them.
    #[cfg(test)]
    pub(crate) fn applied_tables(
        &self,
    ) -> Option<BTreeMap<aerostat_types::TableId, Arc<aerostat_storage::Table>>> {
        match &self.role {
            Role::Follows(applying) => applying.look(|applier| applier.tables().clone()),
            _ => None,
        }
    }

    /// Whether what a copy shows is committed, and it has once had all that was, as far as it knows: before that
    /// nobody reads it.
    pub fn shows_what_is_committed(&self) -> bool {
        match &self.store {
            Some(store) => {
                self.current_at.is_some() && store.txns().last_commit() <= self.replica.committed()
            }
            None => false,
        }
    }

    /// Has a member ask its leader for its place. Nothing happens if it is none, or nobody leads.
    pub fn ask_to_lead(&mut self, host: &mut dyn Host) {
        let me = self.replica.member();
        let leader = self.replica.config().map(|config| config.leader);
        if let Some(leader) = leader.filter(|leader| *leader != me.node) {
            self.send(leader, Message::HandOver, host);
        }
    }

    /// Has another member lead, if this one does: soon, for sessions may leave first.
    ///
    /// # Errors
    /// See [`Self::tick`].
    pub fn hand_over(
        &mut self,
        now: Duration,
        to: NodeId,
        host: &mut dyn Host,
    ) -> Result<(), CopyError> {
        self.tell(now, Event::HandOver(to), None, host)?;
        self.settle(now, host)
    }

    /// Whether no session is left, while they are to leave ([`Host::quieten`]).
    ///
    /// # Errors
    /// See [`Self::tick`].
    pub fn quiet(
        &mut self,
        now: Duration,
        quiet: bool,
        host: &mut dyn Host,
    ) -> Result<(), CopyError> {
        self.tell(now, Event::Quiet(quiet), None, host)?;
        self.settle(now, host)
    }

    /// Commits wait for the leader's disk from now on, or not.
    ///
    /// # Errors
    /// See [`Self::tick`].
    pub fn and_sync(
        &mut self,
        now: Duration,
        and_sync: bool,
        host: &mut dyn Host,
    ) -> Result<(), CopyError> {
        self.replica.set_and_sync(and_sync);
        self.tell(now, Event::Tick, None, host)?;
        self.settle(now, host)
    }

    /// These nodes are to have the database; none: all that ask to.
    ///
    /// # Errors
    /// See [`Self::tick`].
    pub fn wanted(
        &mut self,
        now: Duration,
        nodes: BTreeSet<NodeId>,
        host: &mut dyn Host,
    ) -> Result<(), CopyError> {
        self.tell(now, Event::Wanted(nodes), None, host)?;
        self.tell(now, Event::Tick, None, host)?;
        self.settle(now, host)
    }

    /// Time has passed.
    ///
    /// # Errors
    /// [`CopyError`], as all here: the driver is to be dropped.
    pub fn tick(&mut self, now: Duration, host: &mut dyn Host) -> Result<(), CopyError> {
        if let (Role::Leads(_), Some(store)) = (&self.role, &self.store)
            && let Some(failure) = store.log_failure()
            && self
                .replica
                .config()
                .is_some_and(|config| config.members.len() > 1)
        {
            // Another's disk may do better.
            return Err(CopyError::Failed(failure));
        }
        if let Role::Leads(leadership) = &mut self.role {
            let outboxes = leadership.peers.values_mut().map(|(_, outbox)| outbox);
            let paces = outboxes.map(|outbox| {
                outbox.hurry();
                outbox.pace()
            });
            leadership.pacing.tick(now, paces);
        }
        self.tell(now, Event::Tick, None, host)?;
        self.note_durable(now, host)?;
        self.settle(now, host)
    }

    /// The log has more, or the disk has more of it, or there is room for more to be sent.
    ///
    /// # Errors
    /// See [`Self::tick`].
    pub fn written(&mut self, now: Duration, host: &mut dyn Host) -> Result<(), CopyError> {
        if let Some(event) = self.appended(None) {
            self.tell(now, event, None, host)?;
        }
        self.note_durable(now, host)?;
        self.settle(now, host)
    }

    /// Tells the machine what the disk has, as far as it knows that it is there.
    fn note_durable(&mut self, now: Duration, host: &mut dyn Host) -> Result<(), CopyError> {
        let last = self.replica.history().last();
        let durable = self
            .store
            .as_ref()
            .map(|store| store.durable_through().min(last));
        match durable.filter(|durable| *durable > self.durable) {
            Some(durable) => {
                self.durable = durable;
                self.tell(now, Event::Synced(durable), None, host)
            }
            None => Ok(()),
        }
    }

    /// The store of configurations has this.
    ///
    /// # Errors
    /// See [`Self::tick`].
    pub fn config(
        &mut self,
        now: Duration,
        config: Option<Config>,
        host: &mut dyn Host,
    ) -> Result<(), CopyError> {
        self.tell(now, Event::Config(config), None, host)?;
        self.settle(now, host)
    }

    /// A swap has come to an end, and the store has this.
    ///
    /// # Errors
    /// See [`Self::tick`].
    pub fn swapped(
        &mut self,
        now: Duration,
        config: Option<Config>,
        host: &mut dyn Host,
    ) -> Result<(), CopyError> {
        self.tell(now, Event::Swapped(config), None, host)?;
        self.settle(now, host)
    }

    /// A packet has come.
    ///
    /// # Errors
    /// See [`Self::tick`].
    pub fn receive(
        &mut self,
        now: Duration,
        packet: Packet,
        host: &mut dyn Host,
    ) -> Result<(), CopyError> {
        let Packet {
            from,
            epoch,
            tenure,
            durable,
            settled,
            lacking,
            message,
            records,
        } = packet;
        if lacking == Some(self.replica.member())
            && matches!(self.role, Role::Follows(_))
            && self.is_led_by(from, epoch)
        {
            return Err(CopyError::LacksLog);
        }
        if self.is_led_by(from, epoch) {
            self.release(settled);
        }
        if let Role::Leads(leadership) = &mut self.role
            && let Some((member, outbox)) = leadership.peers.get_mut(&from.node)
            && *member == from
        {
            outbox.is_durable(durable);
            if let Some(Message::Join { .. }) = message {
                outbox.restart();
            }
        }
        let Some(message) = message else {
            return self.take_ahead((from, tenure), epoch, &records, host);
        };
        if let Err(odd) = message.check() {
            tracing::warn!(?from, odd, "a message of another node is left out");
            return Ok(());
        }
        if let Message::Append { after, .. } = &message
            && self.lacks((from, tenure), &records)
            && self.replica.history().has(*after)
        {
            // The machine knows of no gap where records have no places: they were for a process before this one.
            let join = Message::Join {
                member: self.replica.member(),
                history: self.replica.history().clone(),
            };
            self.send(from.node, join, host);
            return Ok(());
        }
        let carried = Some((&records, (from, tenure)));
        self.tell(now, Event::Received(from, message), carried, host)?;
        self.take_ahead((from, tenure), epoch, &records, host)?;
        self.settle(now, host)
    }

    /// Whether a process leads by the configuration that this one knows, which has this epoch.
    fn is_led_by(&self, member: Member, epoch: Epoch) -> bool {
        let config = self.replica.config();
        config.is_some_and(|config| config.epoch == epoch && config.is_led_by(member))
    }

    /// All members' disks have the log through a place.
    fn release(&mut self, settled: CommitTs) {
        if let Some(kept) = &mut self.kept {
            kept.release(settled);
        }
    }

    /// Whether records begin behind what was received, as far as they go on from it.
    fn lacks(&self, source: (Member, Epoch), records: &Records) -> bool {
        let (Role::Follows(_), Some(store)) = (&self.role, &self.store) else {
            return false;
        };
        let received = store.received();
        let since = match self.tail_of == Some(source) {
            true => received.since,
            false => 0,
        };
        records.from > StreamPoint { since, ..received }
    }

    /// Takes what goes on from what was received and has no place, if it is from the process that leads.
    fn take_ahead(
        &mut self,
        source: (Member, Epoch),
        epoch: Epoch,
        records: &Records,
        host: &mut dyn Host,
    ) -> Result<(), CopyError> {
        if !self.is_led_by(source.0, epoch) || !matches!(self.role, Role::Follows(_)) {
            return Ok(());
        }
        if unplaced(&records.bytes).is_empty() {
            return Ok(());
        }
        self.goes_on_from(source, host)?;
        if let Some(store) = self.store.clone()
            && let Some(bytes) = records.from.skip_to(store.received(), &records.bytes)
        {
            let ahead = unplaced(bytes);
            if !ahead.is_empty() {
                store.receive(ahead)?;
                self.is_here(ahead.len());
            }
        }
        Ok(())
    }

    /// What comes now is of this leader: what another had behind the last place is cut off.
    fn goes_on_from(
        &mut self,
        source: (Member, Epoch),
        host: &mut dyn Host,
    ) -> Result<(), CopyError> {
        if self.tail_of == Some(source) {
            return Ok(());
        }
        let received = self.store.as_ref().map(|store| store.received());
        if let Some(received) = received.filter(|received| received.since > 0) {
            self.reopen(received.after, host)?;
        }
        self.tail_of = Some(source);
        Ok(())
    }

    fn send(&self, to: NodeId, message: Message, host: &mut dyn Host) {
        let packet = self.packet(Some(message));
        host.send(to, packet);
    }

    fn epoch(&self) -> Epoch {
        let config = self.replica.config();
        config.map_or(Epoch(0), |config| config.epoch)
    }

    fn packet(&self, message: Option<Message>) -> Packet {
        Packet {
            from: self.replica.member(),
            epoch: self.epoch(),
            tenure: self.tenure(),
            durable: self.durable,
            settled: CommitTs(0),
            lacking: None,
            message,
            records: Records::default(),
        }
    }

    /// Tells a copy that the log does not go back to what it has.
    fn send_lacking(&self, member: Member, host: &mut dyn Host) {
        let packet = Packet {
            lacking: Some(member),
            ..self.packet(None)
        };
        host.send(member.node, packet);
    }

    fn tenure(&self) -> Epoch {
        match &self.role {
            Role::Leads(leadership) => leadership.tenure,
            _ => Epoch(0),
        }
    }

    /// What the log has that the machine has not been told of, before a place if there is one.
    fn appended(&self, before: Option<CommitTs>) -> Option<Event> {
        let (Role::Leads(_), Some(store)) = (&self.role, &self.store) else {
            return None;
        };
        let through = match before {
            Some(before) => CommitTs(before.0 - 1),
            None => store.written_through(),
        };
        (through > self.replica.history().last()).then_some(Event::Appended(through))
    }

    /// Tells the machine, and does what it wants done. Whoever calls this settles in the end.
    fn tell(
        &mut self,
        now: Duration,
        event: Event,
        records: Option<Carried<'_>>,
        host: &mut dyn Host,
    ) -> Result<(), CopyError> {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let before = self.epoch();
            let effects = self.replica.step(now, event);
            if self.epoch() != before
                && let Some(config) = self.replica.config()
            {
                tracing::debug!(me = ?self.replica.member(), ?config, "a configuration");
            }
            for effect in effects {
                match &effect {
                    Effect::Swap(_)
                    | Effect::Begin(_)
                    | Effect::Cut(_)
                    | Effect::Deposed(_)
                    | Effect::Quieten(_) => {
                        tracing::debug!(me = ?self.replica.member(), ?effect, "a copy's part in a change");
                    }
                    _ => {}
                }
                self.carry_out(effect, records, &mut events, host)?;
            }
        }
        Ok(())
    }

    fn carry_out(
        &mut self,
        effect: Effect,
        records: Option<Carried<'_>>,
        events: &mut VecDeque<Event>,
        host: &mut dyn Host,
    ) -> Result<(), CopyError> {
        match effect {
            Effect::Send(
                to,
                Message::Append {
                    config,
                    after,
                    through,
                    sent,
                    ..
                },
            ) => self.append(to, config, (after.lsn, through), sent, host)?,
            Effect::Send(to, message) => {
                if let (Message::Unknown | Message::Over { .. }, Role::Leads(leadership)) =
                    (&message, &mut self.role)
                {
                    leadership.peers.remove(&to);
                }
                self.send(to, message, host);
            }
            Effect::Cut(through) => self.reopen(through, host)?,
            Effect::Store(after) => {
                let (records, source) = records.ok_or(CopyError::Gap)?;
                self.goes_on_from(source, host)?;
                let through = self.store_behind(after, records)?;
                events.push_back(Event::Stored(through));
            }
            Effect::Sync => {
                if let Some(store) = &self.store {
                    host.sync(store);
                }
            }
            Effect::Begin(epoch) => {
                let began = self.begin(epoch, host)?;
                events.extend(self.appended(Some(began)));
                events.push_back(Event::Began(epoch, began));
                let later = self.store.as_ref().map(|store| store.written_through());
                if let Some(later) = later.filter(|later| *later > began) {
                    events.push_back(Event::Appended(later));
                }
            }
            Effect::Swap(config) => host.ask(Some(config)),
            Effect::Read => host.ask(None),
            Effect::Committed(_) => {}
            Effect::Quieten(quiet) => host.quieten(quiet),
            Effect::Deposed(through) => {
                if let Some(store) = &self.store {
                    store.depose();
                }
                self.reopen(through, host)?;
            }
        }
        Ok(())
    }

    fn append(
        &mut self,
        to: NodeId,
        config: Config,
        (after, through): (CommitTs, CommitTs),
        sent: Duration,
        host: &mut dyn Host,
    ) -> Result<(), CopyError> {
        let member = self.replica.peer(to);
        let (Role::Leads(leadership), Some(store), Some(member)) =
            (&mut self.role, &self.store, member)
        else {
            return Ok(());
        };
        let (known, outbox) = leadership
            .peers
            .entry(to)
            .or_insert_with(|| (member, Outbox::of(store)));
        if *known != member {
            (*known, *outbox) = (member, Outbox::of(store));
        }
        let done = outbox.append(store, config, after, through, sent);
        if let Err(error) = done
            && outbox.fails(to, &error, host)
        {
            self.send_lacking(member, host);
        }
        Ok(())
    }

    /// Takes the records of a packet that are behind a place, which is the last that the log has.
    fn store_behind(&mut self, after: CommitTs, records: &Records) -> Result<CommitTs, CopyError> {
        let store = self.store.as_ref().ok_or(CopyError::Gap)?;
        let received = store.received();
        if received.after != after {
            return Err(CopyError::Gap);
        }
        let bytes = records.from.skip_to(received, &records.bytes);
        let bytes = bytes.ok_or(CopyError::Gap)?;
        // What the machine has been told of, and no more.
        if last_place(bytes) != Some(self.replica.history().last()) {
            return Err(CopyError::Gap);
        }
        let through = store.receive(bytes)?;
        self.is_here(bytes.len());
        Ok(through)
    }

    /// More of the log was received.
    fn is_here(&mut self, bytes: usize) {
        if let Role::Follows(applying) = &mut self.role {
            applying.received(bytes);
        }
    }

    /// Has the log say that an epoch begins.
    fn begin(&mut self, epoch: Epoch, host: &mut dyn Host) -> Result<CommitTs, CopyError> {
        let store = self.store.as_ref().ok_or(CopyError::Gap)?;
        match std::mem::replace(&mut self.role, Role::Closed) {
            Role::Follows(applying) => {
                let mut applier = applying.rest(host)?;
                while apply(&mut applier, self.replica.history().last(), host)? {}
                let tables = applier.tables().clone();
                // Before it takes anything: what it may lead alone by its disk has.
                store.await_copies(true);
                self.by_disk = Some(true);
                let began = applier.lead(epoch)?;
                self.role = Role::Leads(Leadership {
                    tenure: epoch,
                    peers: BTreeMap::new(),
                    pacing: Pacing::of(store),
                    _watch: store.watch_log(host.wake()),
                });
                self.tail_of = None;
                host.leads(store, &tables);
                Ok(began)
            }
            role => {
                self.role = role;
                Ok(store.begin_epoch(epoch)?)
            }
        }
    }

    /// Opens the tenant again, as a copy that counts through a place.
    fn reopen(&mut self, through: CommitTs, host: &mut dyn Host) -> Result<(), CopyError> {
        let led = matches!(self.role, Role::Leads(_));
        let mut before = Some(std::mem::replace(&mut self.role, Role::Closed));
        // A job may be in the middle of something.
        host.wait(&mut || drop(before.take()));
        self.store = None;
        self.kept = None;
        self.current_at = None;
        self.by_disk = None;
        if led {
            host.follows();
        }
        let (store, applier) = host.reopen(through)?;
        tracing::debug!(me = ?self.replica.member(), ?through, "a copy was opened again");
        let last = store.received().after;
        if last != through {
            return Err(CopyError::Gap);
        }
        // What it has is on disk, and the machine is to be told.
        self.durable = CommitTs(0);
        self.tail_of = None;
        self.kept = Some(Kept::of(&store));
        self.store = Some(store);
        self.role = Role::Follows(Applying::new(applier));
        Ok(())
    }

    /// Does what follows from what is known now: a copy applies what is committed, a leader tells who waits, and
    /// sends.
    fn settle(&mut self, now: Duration, host: &mut dyn Host) -> Result<(), CopyError> {
        let committed = self.replica.committed();
        match &mut self.role {
            Role::Follows(applying) => {
                self.has_more = applying.go_on(committed, host)?;
                let told = self.replica.told();
                let applied = self
                    .store
                    .as_ref()
                    .map_or(CommitTs(0), |store| store.txns().last_commit());
                if told > CommitTs(0) && applied >= told {
                    self.current_at = self.replica.heard_at().or(self.current_at);
                }
            }
            Role::Leads(leadership) => {
                self.has_more = false;
                let Some(store) = &self.store else {
                    return Ok(());
                };
                let replica = &self.replica;
                let is_served = |node: &NodeId, member| replica.peer(*node) == Some(member);
                leadership
                    .peers
                    .retain(|node, (member, _)| is_served(node, *member));
                let is_alone = self
                    .replica
                    .config()
                    .is_none_or(|config| config.members.len() == 1);
                let by_disk = self.replica.and_sync() || is_alone;
                if self.by_disk != Some(by_disk) {
                    self.by_disk = Some(by_disk);
                    store.await_copies(by_disk);
                }
                store.committed(committed);
                let me = self.replica.member();
                let config = self.replica.config();
                let members = config.map_or(&[][..], |config| &config.members);
                let others = members.iter().filter(|member| **member != me);
                let others = others.map(|member| {
                    let outbox = leadership.peers.get(&member.node);
                    outbox.map_or(CommitTs(0), |(_, outbox)| outbox.durable())
                });
                let settled = others.fold(self.durable, CommitTs::min);
                let known = Told {
                    tenure: leadership.tenure,
                    durable: self.durable,
                    settled,
                };
                for peer in self.replica.peers() {
                    if let Some((member, outbox)) = leadership.peers.get_mut(&peer.member.node)
                        && *member == peer.member
                    {
                        outbox.answered(peer.has, peer.is_required);
                    }
                }
                let mut lacking = Vec::new();
                for (member, outbox) in leadership.peers.values_mut() {
                    match outbox.pump(
                        (me, *member),
                        &self.replica,
                        known,
                        (now, &leadership.pacing),
                        host,
                    ) {
                        Ok(has_more) => self.has_more |= has_more,
                        Err(error) if outbox.fails(member.node, &error, host) => {
                            lacking.push(*member);
                        }
                        Err(_) => {}
                    }
                }
                self.release(settled);
                for member in lacking {
                    self.send_lacking(member, host);
                }
            }
            Role::Closed => {}
        }
        Ok(())
    }
}

impl Drop for Driver {
    /// Nobody is told any more whether a commit is one.
    fn drop(&mut self) {
        if let (Role::Leads(_), Some(store)) = (&self.role, &self.store) {
            store.depose();
        }
    }
}

/// Records that came with a message, and whose they are: the process's, since it began to lead.
type Carried<'a> = (&'a Records, (Member, Epoch));

fn history_of(store: &TenantStore) -> History {
    History::new(store.epochs(), store.received().after)
}
