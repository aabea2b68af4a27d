//! What a leader does: ships its log, counts what others have, and changes who they are.

use std::{collections::BTreeMap, time::Duration};

use aerostat_types::CommitTs;

use super::{
    Effect, PeerState, Replica, Role, Settings,
    due::NEVER,
    handover::{By, Wish},
};
use crate::{Config, Epoch, History, Member, Message, NodeId};

/// After so many times of the silence by which a member is lost nothing is sent any more to a copy that is none.
const SILENCES: u32 = 5;

/// A process that leads.
#[derive(Debug, Default)]
pub(super) struct Leading {
    /// Whether the log says so: before that nothing is told, asked or committed.
    pub(super) has_begun: bool,
    /// Where its first epoch begins: what was committed by leaders before is all committed once this is.
    pub(super) began_at: CommitTs,
    /// The epoch that the log is to begin.
    begins: Option<Epoch>,
    peers: BTreeMap<NodeId, Peer>,
    beat_at: Option<Duration>,
    /// What was told to be committed last.
    told: CommitTs,
    /// Whether another may lead at any time, because this one has asked for it: it reads no more.
    pub(super) hands_over: bool,
    /// Who is to lead, once sessions have left.
    pub(super) wish: Option<Wish>,
    /// Whether sessions were told last to leave.
    pub(super) is_quieted: bool,
}

/// Another copy.
#[derive(Debug)]
struct Peer {
    member: Member,
    /// The log was sent through here.
    next: CommitTs,
    /// It has the log through here.
    has: CommitTs,
    heard_at: Duration,
    /// When the newest message was sent that it has answered.
    lease_from: Option<Duration>,
    /// Whether commits and reads wait for it: it is a member, or may be one at any time.
    is_required: bool,
}

impl Leading {
    /// Until when no member can have taken the leader's place: for ever where there is none; `None` where one has not
    /// answered yet.
    pub(super) fn leased_until(&self, settings: &Settings) -> Option<Duration> {
        let mut required = self.peers.values().filter(|peer| peer.is_required);
        required.try_fold(Duration::MAX, |until, peer| {
            Some(until.min(peer.lease_from? + settings.lease))
        })
    }

    /// What is known of others.
    pub(super) fn states(&self) -> impl Iterator<Item = PeerState> {
        self.peers.values().map(|peer| PeerState {
            member: peer.member,
            has: peer.has,
            heard_at: peer.heard_at,
            is_required: peer.is_required,
        })
    }

    /// The process of a node that is sent the log.
    pub(super) fn member(&self, node: NodeId) -> Option<Member> {
        self.peers.get(&node).map(|peer| peer.member)
    }

    /// When a process was heard last.
    pub(super) fn heard_at(&self, member: Member) -> Option<Duration> {
        let peer = self.peers.get(&member.node);
        peer.filter(|peer| peer.member == member)
            .map(|peer| peer.heard_at)
    }

    /// When time alone has something done next.
    pub(super) fn due(&self, replica: &Replica, now: Duration) -> Duration {
        let Some(config) = replica.config.as_ref() else {
            return NEVER;
        };
        let waits_to_be_told = !self.peers.is_empty() && self.told < replica.committed;
        let waits_to_be_sent = self.peers.values().any(|peer| peer.next < replica.written);
        let changes = replica.swap.is_none() && self.has_begun;
        if self.wish.is_some()
            || waits_to_be_told
            || waits_to_be_sent
            || changes && (replica.next_member(now).is_some() || replica.has_to_let_go(config))
        {
            return now;
        }
        let beat = match (self.peers.is_empty(), self.beat_at) {
            (true, _) => NEVER,
            (false, None) => now,
            (false, Some(at)) => at + replica.settings.heartbeat,
        };
        let others = config.members.iter().filter(|one| **one != replica.me);
        let lost = others.map(|member| {
            let peer = self.peers.get(&member.node);
            peer.map_or(now, |peer| peer.heard_at + replica.settings.lost)
        });
        match changes {
            true => lost.fold(beat, Duration::min),
            false => beat,
        }
    }

    /// Whether a member has been heard of late.
    pub(super) fn is_alive(&self, member: Member, now: Duration, lost: Duration) -> bool {
        let peer = self.peers.get(&member.node);
        peer.is_some_and(|peer| {
            peer.member == member && peer.is_required && now < peer.heard_at + lost
        })
    }

    /// Through where all have the log that must.
    pub(super) fn committed(&self, replica: &Replica) -> CommitTs {
        let settings = &replica.settings;
        // Also where it may be alone at any time, or without a member that has everything: the store may have what it was
        // asked for long ago.
        let is_alone = |config: &Config| config.members.len() == 1;
        let lets_go = |asked: &Config| {
            let config = replica.config.as_ref();
            config.is_some_and(|config| {
                config
                    .members
                    .iter()
                    .any(|one| !asked.members.contains(one))
            })
        };
        let may_have_fewer = replica.config.as_ref().is_some_and(is_alone)
            || replica
                .swap
                .as_ref()
                .is_some_and(|(asked, _)| is_alone(asked) || lets_go(asked));
        let by_disk = settings.and_sync || (may_have_fewer && settings.protections.degraded_sync);
        let own = match by_disk {
            true => replica.durable.min(replica.written),
            false => replica.written,
        };
        let required = self.peers.values().filter(|peer| peer.is_required);
        required.fold(own, |least, peer| least.min(peer.has))
    }
}

impl Replica {
    pub(super) fn leading(&mut self) -> Option<&mut Leading> {
        match &mut self.role {
            Role::Leading(leading) => Some(leading),
            Role::Following(_) => None,
        }
    }

    pub(super) fn begins_to_lead(&mut self, now: Duration) {
        self.role = Role::Leading(Leading::default());
        self.goes_on_leading(now);
    }

    /// The store has a configuration that this process leads.
    pub(super) fn goes_on_leading(&mut self, now: Duration) {
        let (config, last) = (self.config.clone(), self.history.last());
        let (me, Some(config)) = (self.me, config) else {
            return;
        };
        let Some(leading) = self.leading() else {
            return;
        };
        leading.begins = Some(config.epoch);
        leading.hands_over = false;
        for member in config.members.iter().filter(|one| **one != me) {
            let known = leading.peers.get(&member.node);
            // Another process of the node may have asked to join meanwhile.
            if known.is_none_or(|peer| peer.member != *member) {
                let peer = Peer::new(*member, last, now);
                leading.peers.insert(member.node, peer);
            }
        }
        for peer in leading.peers.values_mut() {
            peer.is_required = config.has(peer.member);
        }
        self.effects.push(Effect::Begin(config.epoch));
        // Where another was to lead, and does not: sessions are served until the next attempt, if there is one.
        self.tell_sessions();
        self.lead(now);
    }

    /// The log says that an epoch has begun.
    pub(super) fn begun(&mut self, epoch: Epoch, at: CommitTs) {
        if let Some(leading) = self.leading()
            && leading.begins == Some(epoch)
        {
            leading.begins = None;
            if !leading.has_begun {
                leading.began_at = at;
            }
            leading.has_begun = true;
        }
    }

    /// Sends what others have not been sent, and at times that the leader is alive.
    pub(super) fn ship(&mut self, now: Duration) {
        let (heartbeat, silence) = (self.settings.heartbeat, self.settings.lost * SILENCES);
        let (history, written) = (&self.history, self.written);
        let (Role::Leading(leading), Some(config)) = (&mut self.role, &self.config) else {
            return;
        };
        let beats = leading.beat_at.is_none_or(|at| now >= at + heartbeat);
        if beats {
            leading.beat_at = Some(now);
            // It has gone, or asks to join when it is back.
            leading
                .peers
                .retain(|_, peer| peer.is_required || now < peer.heard_at + silence);
        }
        leading.told = self.committed;
        for (node, peer) in &mut leading.peers {
            if peer.next > written {
                // It was received when this process began to lead, and is not written yet.
                continue;
            }
            if peer.next < written || beats {
                // What was lost on its way is found out by the next message, which does not follow.
                let after = history.at(peer.next);
                let starts = history.starts_between(peer.next, written);
                let append = Message::Append {
                    config: config.clone(),
                    after,
                    through: written,
                    starts,
                    committed: self.committed,
                    sent: now,
                };
                self.effects.push(Effect::Send(*node, append));
                peer.next = written;
            }
        }
    }

    /// Another copy has the log through a place.
    pub(super) fn acknowledged(
        &mut self,
        now: Duration,
        from: Member,
        epoch: Epoch,
        through: CommitTs,
        sent: Duration,
    ) {
        let (own, last) = (self.epoch(), self.history.last());
        // Of an epoch before, it may be of another log.
        let Role::Leading(leading) = &mut self.role else {
            return;
        };
        if epoch != own {
            return;
        }
        let peer = match leading.peers.get_mut(&from.node) {
            Some(peer) if peer.member == from => peer,
            // From a process that has ended since.
            Some(peer) if peer.member.incarnation > from.incarnation => return,
            _ => return self.send(from.node, Message::Unknown),
        };
        if through > last {
            // Nobody was sent that.
            return;
        }
        peer.has = peer.has.max(through);
        peer.heard_at = now;
        peer.lease_from = peer.lease_from.max(Some(sent));
        self.admit(now);
    }

    /// A copy says where its log is to go on.
    pub(super) fn joins(&mut self, now: Duration, member: Member, history: &History) {
        let common = self.history.common(history);
        let Some(leading) = self.leading() else {
            return;
        };
        let known = leading.peers.get(&member.node).map(|peer| peer.member);
        match known {
            Some(known) if known == member => {}
            // From a process that has ended since.
            Some(known) if known.incarnation > member.incarnation => return,
            // Its process before has ended: it is lost, and this one waits until that is settled.
            Some(_) if leading.peers[&member.node].is_required => {
                if let Some(peer) = leading.peers.get_mut(&member.node) {
                    peer.is_gone();
                }
                return self.lead(now);
            }
            _ => {
                let peer = Peer::new(member, common, now);
                leading.peers.insert(member.node, peer);
            }
        }
        if let Some(peer) = leading.peers.get_mut(&member.node) {
            peer.next = common;
            if !peer.is_required {
                // A member is heard of by what it has: else one that never gets there holds up all others.
                peer.heard_at = now;
            }
        }
        leading.beat_at = None;
        self.ship(now);
        if !self.settings.protections.join_order {
            self.admit(now);
        }
    }

    /// The copy that is to become a member next.
    fn next_member(&self, now: Duration) -> Option<Member> {
        let in_order = self.settings.protections.join_order;
        let (committed, lost) = (self.committed, self.settings.lost);
        let (Role::Leading(leading), Some(config)) = (&self.role, &self.config) else {
            return None;
        };
        if self.swap.is_some() || !leading.has_begun {
            return None;
        }
        let ready = |peer: &&Peer| {
            let is_alive = now < peer.heard_at + lost;
            let has_all = peer.has >= committed && peer.lease_from.is_some();
            !peer.is_required && is_alive && (has_all || !in_order)
        };
        let mut others = leading.peers.values().filter(|peer| {
            let node = peer.member.node;
            config.of(node).is_none() && self.is_wanted(node)
        });
        others.find(ready).map(|peer| peer.member)
    }

    /// Has a copy that has everything become a member.
    fn admit(&mut self, now: Duration) {
        let in_order = self.settings.protections.join_order;
        let Some(member) = self.next_member(now) else {
            return;
        };
        let (Role::Leading(leading), Some(config)) = (&mut self.role, &self.config) else {
            return;
        };
        if let Some(peer) = leading.peers.get_mut(&member.node) {
            // From here on it may be one, whatever is heard of the swap.
            peer.is_required = in_order;
        }
        let mut members = config.members.clone();
        members.push(member);
        let next = config.next(self.me.node, members);
        self.swap(now, next);
    }

    /// The members that stay, and those that go, where the database is wanted elsewhere.
    fn parted(&self, config: &Config) -> (Vec<Member>, Vec<Member>) {
        let members = config.members.iter();
        members.partition(|member| self.is_wanted(member.node))
    }

    /// Whether members are to go, and all nodes that are to have the database do.
    fn has_to_let_go(&self, config: &Config) -> bool {
        let (stay, go) = self.parted(config);
        !go.is_empty() && stay.len() >= self.wanted.len()
    }

    /// What is due: heartbeats, members that are lost, and a hand-over.
    pub(super) fn lead(&mut self, now: Duration) {
        let committed = self.committed;
        if let Some(leading) = self.leading()
            && leading.told < committed
        {
            // Copies show what is committed, and may have heard of nothing since.
            leading.beat_at = None;
        }
        self.ship(now);
        self.drop_lost(now);
        self.admit(now);
        self.let_go(now);
        self.see_to_wish(now);
    }

    /// Has the database be where it is wanted, once all nodes that are to have it do: one of them leads, and the others
    /// are members no more.
    fn let_go(&mut self, now: Duration) {
        let Some(config) = self.config.clone() else {
            return;
        };
        let (stay, _) = self.parted(&config);
        let is_settled = !self.has_to_let_go(&config);
        let leaves = !self.is_wanted(self.me.node);
        if is_settled || !leaves {
            self.forget_move();
        }
        let Role::Leading(leading) = &self.role else {
            return;
        };
        if is_settled || self.swap.is_some() || !leading.has_begun {
            return;
        }
        if leaves {
            let stays = |node: NodeId| stay.iter().any(|member| member.node == node);
            if self.is_handing_over_to(now, stays) {
                return;
            }
            let lost = self.settings.lost;
            let alive = stay.iter().filter_map(|member| {
                let peer = leading.peers.get(&member.node)?;
                (now < peer.heard_at + lost).then_some((peer.has, member.node))
            });
            if let Some((_, next)) = alive.max() {
                self.hand_over(now, next, By::Move);
            }
            return;
        }
        if !self.has_all_on_disk() {
            return;
        }
        let next = config.next(self.me.node, stay);
        self.swap(now, next);
    }

    /// Whether the leader's disk has everything that is committed, before members go that may be all that have some of
    /// it; has the disk have it. What leaders before have acknowledged may be here, and not be known to be committed.
    fn has_all_on_disk(&mut self) -> bool {
        let began_at = match &self.role {
            Role::Leading(leading) => leading.began_at,
            Role::Following(_) => CommitTs(0),
        };
        let has_all = self.durable >= self.committed.max(began_at);
        let is_safe = has_all || !self.settings.protections.degraded_sync;
        if !is_safe {
            self.is_synced();
        }
        is_safe
    }

    /// Goes on without members that are silent. First everything that is committed is on disk, for the
    /// others may be all that have it.
    fn drop_lost(&mut self, now: Duration) {
        let lost = self.settings.lost;
        let (Role::Leading(leading), Some(config)) = (&self.role, self.config.clone()) else {
            return;
        };
        if self.swap.is_some() || !leading.has_begun {
            return;
        }
        let is_lost = |member: &Member| {
            let peer = leading.peers.get(&member.node);
            *member != self.me && peer.is_none_or(|peer| now >= peer.heard_at + lost)
        };
        let (gone, left): (Vec<Member>, Vec<Member>) =
            config.members.iter().partition(|one| is_lost(one));
        if gone.is_empty() {
            return;
        }
        if !self.has_all_on_disk() {
            return;
        }
        let next: Config = config.next(self.me.node, left);
        self.swap(now, next);
    }
}

impl Peer {
    fn new(member: Member, next: CommitTs, now: Duration) -> Peer {
        Peer {
            member,
            next,
            has: CommitTs(0),
            heard_at: now,
            lease_from: None,
            is_required: false,
        }
    }

    /// Its process has ended.
    fn is_gone(&mut self) {
        self.heard_at = Duration::ZERO;
    }
}
