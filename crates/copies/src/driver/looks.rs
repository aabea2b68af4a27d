//! What a driver has to be told the time for, and what may be shown of it.

use std::time::Duration;

use aerostat_replication::Epoch;
use aerostat_types::CommitTs;

use super::{Driver, Role};
use crate::{Known, KnownPeer, Standing, outbox::Outbox};

/// What [`Known`] is about, without when others were heard.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gist {
    pub(crate) is_shown: bool,
    standing: Standing,
    epoch: Option<Epoch>,
    may_read: bool,
    written: CommitTs,
    durable: CommitTs,
    committed: CommitTs,
}

impl Driver {
    /// When [`Self::tick`] has something to do next, as far as it is known at this time; not after it if that is so
    /// already.
    pub fn due(&self, now: Duration) -> Duration {
        match self.is_busy() {
            true => now,
            false => self.replica.due(now),
        }
    }

    /// Whether something is under way that is to be looked at again soon.
    fn is_busy(&self) -> bool {
        match (&self.role, &self.store) {
            (Role::Follows(applying), Some(store)) => {
                let told = self.replica.told();
                applying.is_busy() || told > store.txns().last_commit()
            }
            (Role::Leads(leadership), _) => {
                let mut outboxes = leadership.peers.values();
                outboxes.any(|(_, outbox)| outbox.is_busy())
            }
            _ => false,
        }
    }

    /// What of it the process is to be told before long.
    pub(crate) fn gist(&self, now: Duration) -> Gist {
        Gist {
            is_shown: self.shows_what_is_committed(),
            standing: self.standing(),
            epoch: self.replica.config().map(|config| config.epoch),
            may_read: self.replica.may_read(now),
            written: self.replica.history().last(),
            durable: self.durable,
            committed: self.replica.committed(),
        }
    }

    /// What the process may show others.
    pub fn known(&self, now: Duration) -> Known {
        let outboxes = match &self.role {
            Role::Leads(leadership) => Some(&leadership.peers),
            _ => None,
        };
        let peers = self.replica.peers().map(|peer| {
            let outbox = outboxes.and_then(|all| all.get(&peer.member.node));
            let outbox = outbox.map(|(_, outbox)| outbox);
            KnownPeer {
                node: peer.member.node,
                heard: now.saturating_sub(peer.heard_at),
                written: peer.has,
                sent: outbox.map_or(CommitTs(0), Outbox::sent),
                durable: outbox.map_or(CommitTs(0), Outbox::durable),
            }
        });
        let heard_at = self.replica.heard_at();
        Known {
            peers: peers.collect(),
            config: self.replica.config().cloned(),
            counts: (self.replica.config()).is_some_and(|config| config.has(self.replica.member())),
            is_shown: self.shows_what_is_committed(),
            written: self.replica.history().last(),
            durable: self.durable,
            committed: self.replica.committed(),
            heard: heard_at.map(|at| now.saturating_sub(at)),
            lease: self
                .replica
                .may_read_until()
                .and_then(|until| until.checked_sub(now)),
            current: heard_at
                .and(self.current_at)
                .map(|at| now.saturating_sub(at)),
        }
    }
}
