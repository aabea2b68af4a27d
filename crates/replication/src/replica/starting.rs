//! How a process goes on that was a member before it ended, where no other member is left.

use std::time::Duration;

use super::{Replica, Role};
use crate::{Config, Member, Message, Position};

impl Replica {
    /// Looks whether all members have ended, and whether this process has the longest of their logs.
    pub(super) fn start(&mut self, now: Duration, config: &Config) {
        let Some(before) = config.of(self.me.node) else {
            return;
        };
        if before == self.me || self.swap.is_some() || !self.is_synced() {
            return;
        }
        // Said at the same times as it asks to join.
        let is_due = self.read_at == Some(now);
        let end = self.history.end();
        if is_due {
            let me = self.me.node;
            for member in config.members.iter().filter(|one| one.node != me) {
                let started = Message::Started {
                    member: self.me,
                    end,
                };
                self.send(member.node, started);
            }
        }
        if self.is_longest_of_ended(config) {
            self.claim(now, config.epoch);
        }
    }

    /// Whether time has [`Self::start`] do something now, beside what it says when the store is read.
    pub(super) fn starts_now(&self, config: &Config) -> bool {
        let before = config.of(self.me.node);
        before.is_some_and(|before| before != self.me)
            && self.swap.is_none()
            && (self.durable != self.history.last() || self.is_longest_of_ended(config))
    }

    /// Whether all members have ended, and this process has the longest of their logs.
    fn is_longest_of_ended(&self, config: &Config) -> bool {
        let end = self.history.end();
        let has_ended = |member: &Member| {
            let mut started = self.started.iter();
            member.node == self.me.node
                || started
                    .any(|(one, _)| one.node == member.node && one.incarnation > member.incarnation)
        };
        let is_longest = |(other, their): &(Member, Position)| {
            (*their, other.node) < (end, self.me.node) || config.of(other.node).is_none()
        };
        !self.has_lost
            && config.members.iter().all(has_ended)
            && self.started.iter().all(is_longest)
    }

    /// Another process says what it had on disk when it began.
    pub(super) fn has_started(&mut self, now: Duration, member: Member, end: Position) {
        if let Role::Leading(_) = &self.role {
            // It will ask to join.
            return;
        }
        self.started.retain(|(known, _)| known.node != member.node);
        self.started.push((member, end));
        let Some(config) = self.config.clone() else {
            return;
        };
        if !config.has(self.me) {
            return self.start(now, &config);
        }
        let before = config.of(member.node);
        let has_ended = before.is_some_and(|before| before.incarnation < member.incarnation);
        if config.leader == member.node
            && has_ended
            && let Role::Following(following) = &mut self.role
        {
            // Who has ended reads no more.
            following.takes_over = true;
            self.take_over(now);
        }
    }
}
