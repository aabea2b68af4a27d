//! A node's sessions, as far as they are told to leave and do.

use std::time::Duration;

use rand::Rng;

use super::{
    due::{Told, What},
    world::{MS, NODES, TROUBLE, World},
};
use crate::{Event, NodeId};

/// What a process's sessions were told since it began to lead.
#[derive(Default)]
pub(super) struct Sessions {
    /// That they are to leave, since then.
    quieted_since: Option<Duration>,
    /// Since when it leads, and nothing is about to change.
    rests_since: Option<Duration>,
}

impl World {
    /// Somebody has another node lead, once or again and again.
    pub(super) fn wish(&mut self) {
        if self.now >= TROUBLE {
            return;
        }
        let again = self.random.random_bool(0.3);
        let after = match again {
            true => self.within(20 * MS..200 * MS),
            false => self.within(500 * MS..6_000 * MS),
        };
        self.at(self.now + after, What::Wish);
        let to = NodeId(self.random.random_range(0..NODES));
        let leader = (0..NODES).find(|at| self.leads(&self.nodes[*at as usize]));
        if let Some(leader) = leader {
            self.tell(leader, 1, Told::Event(Event::HandOver(to)));
            self.note(|| format!("node {} is to lead", to.0));
        }
    }

    /// Sessions are to leave: they do at once, or soon, or too late, or never, and others may come.
    pub(super) fn quieten(&mut self, node: u32, quiet: bool) -> Result<(), String> {
        let now = self.local(node);
        let own = &mut self.nodes[node as usize];
        let before = std::mem::replace(&mut own.sessions.quieted_since, quiet.then_some(now));
        if before.is_some() == quiet {
            return Err(format!("sessions of node {node} are told twice: {quiet}"));
        }
        if !quiet {
            return Ok(());
        }
        self.quietened += 1;
        let after = match self.random.random_range(0..4) {
            0 => 0,
            1 => self.within(MS..50 * MS),
            2 => self.within(50 * MS..400 * MS),
            _ => return Ok(()),
        };
        self.tell(node, after, Told::Event(Event::Quiet(true)));
        if self.random.random_bool(0.3) {
            let after = self.within(0..200 * MS);
            self.tell(node, after, Told::Event(Event::Quiet(false)));
        }
        Ok(())
    }

    /// Sessions are to leave for no longer than they should, and where somebody else is about to lead.
    pub(super) fn look_at_sessions(
        &mut self,
        node: u32,
        now: Duration,
        is_tick: bool,
    ) -> Result<(), String> {
        let settings = self.settings();
        let own = &mut self.nodes[node as usize];
        let Some(replica) = &own.replica else {
            return Ok(());
        };
        let (leads, swaps) = (replica.takes_changes(), replica.swaps());
        let sessions = &mut own.sessions;
        sessions.rests_since = match leads && !replica.is_about_to_change() {
            true => sessions.rests_since.or(Some(now)),
            false => None,
        };
        let Some(since) = sessions.quieted_since else {
            return Ok(());
        };
        let most = settings.patience + settings.unquiet + settings.quiet;
        let is_idle = sessions.rests_since.is_some_and(|since| now > since + most);
        let is_late = is_tick && !swaps && now >= since + settings.quiet;
        match is_late || is_idle || !leads {
            true => Err(format!(
                "sessions of node {node} are to leave since {since:?}, at {now:?}, leads: {leads}, swaps: {swaps}"
            )),
            false => Ok(()),
        }
    }
}
