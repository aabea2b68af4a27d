//! Leading no more on purpose: another member is to lead, and first sessions may leave in peace.
//!
//! ```text
//!              wished, and could be done
//!                        │
//!                        ▼   quiet is over      patience is not
//!   Quieten(true) ── attempt ──────────────► Quieten(false) ── pause
//!                     │    ▲                                     │
//!       nobody left,  │    └───────── unquiet is over ───────────┘
//!   or patience over  ▼
//!              swap ── another leads: deposed
//!                └──── this one does after all: Quieten(false)
//! ```
//!
//! * A wish lasts as long as its target is a live member, it is wanted, and nothing else keeps it waiting for longer
//!   than [`Settings::patience`](super::Settings). The leader serves on meanwhile, and commits.
//! * What sessions are told follows at one place ([`Replica::tell_sessions`]) from what is so at the end of a step: so
//!   it alternates, and sessions are told to leave only while an attempt is on or the swap under way.
//! * A leader that is deposed says nothing, and forgets all of this with its leadership.

use std::time::Duration;

use super::{Effect, Replica, Role};
use crate::NodeId;

/// A hand-over that is wished.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    to: NodeId,
    by: By,
    /// When there was a wish first.
    since: Duration,
    /// Since when it could not be done, for another configuration is asked for.
    held_since: Option<Duration>,
    phase: Phase,
}

/// Whose wish it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Somebody has asked for it, once or again.
    Command,
    /// The database is to be elsewhere, as long as that is so.
    Move,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Sessions are to leave.
    Attempt { began: Duration, is_quiet: bool },
    /// They are served.
    Pause { began: Duration },
}

impl Wish {
    fn is_attempted(&self) -> bool {
        matches!(self.phase, Phase::Attempt { .. })
    }
}

impl Replica {
    /// Has another member lead, if that is alive: it has everything that is committed. First sessions are to leave, but
    /// where no time is left to them.
    pub(super) fn hand_over(&mut self, now: Duration, to: NodeId, by: By) {
        if self.swap.is_some() || !self.may_lead(now, to) {
            return;
        }
        if self.settings.quiet.is_zero() {
            return self.swap_leader(now, to);
        }
        let Some(leading) = self.leading() else {
            return;
        };
        let phase = Phase::Attempt {
            began: now,
            is_quiet: false,
        };
        let wish = leading.wish.get_or_insert(Wish {
            to,
            by,
            since: now,
            held_since: None,
            phase,
        });
        if wish.to != to || by == By::Command {
            (wish.to, wish.by) = (to, by);
        }
        self.see_to_wish(now);
    }

    /// Whether a member that could lead now is wished to.
    pub(super) fn is_handing_over_to(&self, now: Duration, to: impl Fn(NodeId) -> bool) -> bool {
        let wish = self.wish();
        wish.is_some_and(|wish| to(wish.to) && self.may_lead(now, wish.to))
    }

    /// The database is to be here.
    pub(super) fn forget_move(&mut self) {
        let is_move = self.wish().is_some_and(|wish| wish.by == By::Move);
        if is_move && let Some(leading) = self.leading() {
            leading.wish = None;
        }
    }

    /// No session is left, or some are there.
    pub(super) fn sessions_left(&mut self, now: Duration, all: bool) {
        if let Some(Wish {
            phase: Phase::Attempt { is_quiet, .. },
            ..
        }) = self.leading().and_then(|leading| leading.wish.as_mut())
        {
            *is_quiet = all;
            self.see_to_wish(now);
        }
    }

    /// Does what is due of a hand-over that is wished.
    pub(super) fn see_to_wish(&mut self, now: Duration) {
        let (settings, is_held) = (self.settings, self.swap.is_some());
        let Some(mut wish) = self.wish().copied() else {
            return;
        };
        wish.held_since = is_held.then(|| wish.held_since.unwrap_or(now));
        let is_held_for_long = wish
            .held_since
            .is_some_and(|since| now >= since + settings.patience);
        if is_held_for_long || !self.may_lead(now, wish.to) {
            return self.set_wish(None);
        }
        match wish.phase {
            Phase::Attempt { is_quiet: true, .. } if !is_held => {
                return self.swap_leader(now, wish.to);
            }
            Phase::Attempt { began, .. } if now >= began + settings.quiet => {
                if !is_held && now >= wish.since + settings.patience {
                    return self.swap_leader(now, wish.to);
                }
                wish.phase = Phase::Pause { began: now };
            }
            Phase::Pause { began } if !is_held && now >= began + settings.unquiet => {
                wish.phase = Phase::Attempt {
                    began: now,
                    is_quiet: false,
                };
            }
            _ => {}
        }
        self.set_wish(Some(wish));
    }

    /// Says to sessions whether they are to leave, if they were told something else.
    pub(super) fn tell_sessions(&mut self) {
        let (takes_time, is_asked) = (!self.settings.quiet.is_zero(), self.swap.is_some());
        let Some(leading) = self.leading() else {
            return;
        };
        let is_attempted = leading.wish.as_ref().is_some_and(Wish::is_attempted);
        let is_quieted = is_attempted || takes_time && leading.hands_over && is_asked;
        if std::mem::replace(&mut leading.is_quieted, is_quieted) != is_quieted {
            self.effects.push(Effect::Quieten(is_quieted));
        }
    }

    /// Whether a hand-over is wished, or another configuration is asked for.
    #[cfg(test)]
    pub(crate) fn is_about_to_change(&self) -> bool {
        self.wish().is_some() || self.swap.is_some()
    }

    /// Whether another configuration is asked for.
    #[cfg(test)]
    pub(crate) fn swaps(&self) -> bool {
        self.swap.is_some()
    }

    fn wish(&self) -> Option<&Wish> {
        match &self.role {
            Role::Leading(leading) => leading.wish.as_ref(),
            Role::Following(_) => None,
        }
    }

    fn set_wish(&mut self, wish: Option<Wish>) {
        if let Some(leading) = self.leading() {
            leading.wish = wish;
        }
    }

    /// Whether another member is alive, and this one leads.
    fn may_lead(&self, now: Duration, to: NodeId) -> bool {
        let (Role::Leading(leading), Some(config)) = (&self.role, &self.config) else {
            return false;
        };
        let member = config.of(to).filter(|_| to != self.me.node);
        let is_alive = |member| leading.is_alive(member, now, self.settings.lost);
        leading.has_begun && member.is_some_and(is_alive)
    }

    /// Asks for another leader.
    fn swap_leader(&mut self, now: Duration, to: NodeId) {
        let (Role::Leading(leading), Some(config)) = (&mut self.role, &self.config) else {
            return;
        };
        leading.wish = None;
        leading.hands_over = true;
        let next = config.next(to, config.members.clone());
        self.swap(now, next);
    }
}
