//! When time alone has a copy do something: a copy that is idle is told the time as rarely as that.
//!
//! ```text
//!  leads      heartbeats, if there is another copy ─ a member's silence ─┐
//!  follows    its leader's silence ──────────────────────────────────────┼─► the earliest
//!  each       the store: often, or seldom while all hear each other ─────┘
//! ```
//!
//! [`Event::Tick`](super::Event) before that time has no effect. Simulations assert it.

use std::time::Duration;

use super::{Replica, Role};

/// How often less a member of three or more reads the store that hears its leader.
const SELDOM_OF_THREE: u32 = 4;

/// At no time.
pub(super) const NEVER: Duration = Duration::MAX;

impl Replica {
    /// When time alone has something done next, as far as it is known at this time; not after it if that is due
    /// already. To be asked again after each event.
    pub fn due(&self, now: Duration) -> Duration {
        let flush = match self.durable < self.written {
            true => self.synced_at + self.settings.flush,
            false => NEVER,
        };
        let asks = match &self.swap {
            Some((_, asked_at)) => *asked_at + self.settings.again,
            None => self.reads_at(),
        };
        let role = match &self.role {
            Role::Leading(leading) => leading.due(self, now),
            Role::Following(following) => following.due(self, now),
        };
        flush.min(asks).min(role)
    }

    /// When the store is to be read: often, but seldom as long as the other nodes of the configuration are heard.
    /// Whoever replaces it is one of them, or they hear of it; where they are silent it is read at once.
    pub(super) fn reads_at(&self) -> Duration {
        let Some(read_at) = self.read_at else {
            return Duration::ZERO;
        };
        let often = read_at + self.settings.again;
        // Of three or more, one that hears its leader may be all that does: another may have taken over whom it does not
        // hear from, since those who follow tell each other nothing.
        let is_large = (self.config.as_ref()).is_some_and(|config| config.members.len() > 2);
        let seldom = match is_large {
            true => (self.settings.seldom).min(self.settings.again * SELDOM_OF_THREE),
            false => self.settings.seldom,
        };
        let seldom = read_at + seldom;
        seldom.min(often.max(self.is_calm_until()))
    }

    /// Until when nothing is missed of those on whom the configuration depends.
    fn is_calm_until(&self) -> Duration {
        let Some(config) = &self.config else {
            return Duration::ZERO;
        };
        let again = self.settings.again;
        match &self.role {
            Role::Leading(leading) if leading.has_begun && !leading.hands_over => {
                let others = config.members.iter().filter(|one| **one != self.me);
                let heard = others.map(|member| leading.heard_at(*member));
                heard
                    .map(|at| at.map_or(Duration::ZERO, |at| at + again))
                    .min()
                    .unwrap_or(NEVER)
            }
            Role::Following(following) if !following.takes_over => {
                let heard = following.heard_at();
                heard.map_or(Duration::ZERO, |at| at + again)
            }
            _ => Duration::ZERO,
        }
    }
}
