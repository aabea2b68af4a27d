//! What a copy does that does not lead: follows, and takes its leader's place.

use std::{collections::VecDeque, time::Duration};

use aerostat_types::CommitTs;

use super::{Effect, Replica, Role, due::NEVER};
use crate::{Config, Epoch, Member, Message, NodeId, Position};

/// A process that does not lead.
#[derive(Debug, Default)]
pub(super) struct Following {
    /// When it heard its leader last, or of it.
    heard_at: Option<Duration>,
    /// Whether it has begun to take its leader's place: it answers no more, for each answer is a lease.
    pub(super) takes_over: bool,
    joined_at: Option<Duration>,
    /// What is answered once it is written.
    answers: VecDeque<(CommitTs, NodeId, Epoch, Duration)>,
}

impl Following {
    pub(super) fn since(now: Duration) -> Following {
        Following {
            heard_at: Some(now),
            ..Following::default()
        }
    }

    /// When time alone has something done next, beside reading the store.
    pub(super) fn due(&self, replica: &Replica, now: Duration) -> Duration {
        let Some(config) = &replica.config else {
            return NEVER;
        };
        let silent_after = |after: Duration| self.heard_at.map_or(now, |at| at + after);
        if config.has(replica.me) {
            return match self.takes_over {
                true if replica.swap.is_none() => now,
                true => NEVER,
                false => silent_after(replica.settings.grace_of_leader()),
            };
        }
        let again = replica.settings.again;
        let joins = match config.leader == replica.me.node {
            true => NEVER,
            false => {
                let joined = self.joined_at.map_or(now, |at| at + again);
                joined.max(silent_after(again))
            }
        };
        match replica.starts_now(config) {
            true => now,
            false => joins,
        }
    }

    /// When it heard its leader last, or of it.
    pub(super) fn heard_at(&self) -> Option<Duration> {
        self.heard_at
    }
}

/// Records that came, or none.
pub(super) struct Sent {
    pub(super) from: Member,
    pub(super) after: Position,
    pub(super) through: CommitTs,
    pub(super) starts: Vec<(Epoch, CommitTs)>,
    pub(super) committed: CommitTs,
    pub(super) sent: Duration,
}

impl Replica {
    /// Takes a leader's records.
    pub(super) fn append(&mut self, now: Duration, config: Config, sent: Sent) {
        let (from, epoch) = (sent.from, config.epoch);
        if !config.is_led_by(from) {
            return;
        }
        if self.config.is_none() {
            // What is over is not known before the store has been read.
            return self.effects.push(Effect::Read);
        }
        if epoch < self.epoch() {
            if self.settings.protections.fencing {
                let epoch = self.epoch();
                return self.send(from.node, Message::Over { epoch });
            }
        } else if config.is_led_by(self.me) {
            return;
        } else if epoch == self.epoch() && self.config.as_ref() != Some(&config) {
            // There is one of each number.
            return;
        }
        self.adopt(now, config);
        if let Role::Following(following) = &mut self.role {
            if following.takes_over && self.settings.protections.fencing {
                return;
            }
            following.heard_at = Some(now);
        }
        if !self.history.has(sent.after) {
            return self.join(now, from.node);
        }
        let theirs = self
            .history
            .followed_by(sent.after.lsn, &sent.starts, sent.through);
        let common = self.history.common(&theirs);
        if common < theirs.last() {
            if common < self.history.last() {
                // Of a leader before, and never committed.
                self.effects.push(Effect::Cut(common));
                self.history.cut(common);
                self.written = self.written.min(common);
                self.durable = self.durable.min(common);
                self.committed = self.committed.min(common);
                self.drop_answers(common);
            }
            self.effects.push(Effect::Store(common));
            self.history = theirs;
        }
        let has = sent.through;
        self.told = self.told.max(sent.committed);
        self.committed = self.committed.max(sent.committed.min(has));
        match &mut self.role {
            Role::Following(following) => {
                let answer = (has, from.node, epoch, sent.sent);
                following.answers.push_back(answer);
            }
            // Only where nothing is refused.
            Role::Leading(_) => {
                let has = Message::Has {
                    epoch,
                    through: has,
                    sent: sent.sent,
                };
                self.send(from.node, has);
            }
        }
        self.answer();
    }

    fn drop_answers(&mut self, through: CommitTs) {
        if let Role::Following(following) = &mut self.role {
            following.answers.retain(|answer| answer.0 <= through);
        }
    }

    /// Says what is written.
    pub(super) fn answer(&mut self) {
        let written = self.written;
        let Role::Following(following) = &mut self.role else {
            return;
        };
        if following.takes_over {
            return;
        }
        while let Some(&(through, to, epoch, sent)) = following.answers.front()
            && through <= written
        {
            following.answers.pop_front();
            let has = Message::Has {
                epoch,
                through,
                sent,
            };
            self.effects.push(Effect::Send(to, has));
        }
    }

    pub(super) fn join(&mut self, now: Duration, leader: NodeId) {
        if let Role::Following(following) = &mut self.role {
            following.joined_at = Some(now);
            let join = Message::Join {
                member: self.me,
                history: self.history.clone(),
            };
            self.send(leader, join);
        }
    }

    /// What is due: to join, or to take a silent leader's place.
    pub(super) fn follow(&mut self, now: Duration) {
        let Some(config) = self.config.clone() else {
            return;
        };
        let (again, me) = (self.settings.again, self.me);
        let grace = self.settings.grace_of_leader();
        let Role::Following(following) = &mut self.role else {
            return;
        };
        let is_silent = |after: Duration| following.heard_at.is_none_or(|at| now >= at + after);
        if config.has(me) {
            if is_silent(grace) {
                following.takes_over = true;
            }
            return self.take_over(now);
        }
        let is_due = following.joined_at.is_none_or(|at| now >= at + again);
        if config.leader != me.node && is_due && is_silent(again) {
            self.join(now, config.leader);
        }
        self.start(now, &config);
    }

    /// Asks for the leader's place, once everything is on disk: nobody else may have it.
    pub(super) fn take_over(&mut self, now: Duration) {
        let takes_over = matches!(&self.role, Role::Following(following) if following.takes_over);
        if !takes_over || self.swap.is_some() {
            return;
        }
        let is_safe = !self.settings.protections.degraded_sync || self.is_synced();
        if is_safe && let Some(config) = &self.config {
            let after = config.epoch;
            self.claim(now, after);
        }
    }
}
