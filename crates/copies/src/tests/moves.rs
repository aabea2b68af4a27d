//! Nodes that are to have the database, and others, again and again: those that are not to have it give it up.

use aerostat_replication::{Config, NodeId};
use aerostat_storage::simulated::SimDisk;
use rand::Rng;

use super::world::{MS, NODES, TROUBLE, What, World};

impl World {
    /// Has the database move.
    pub(super) fn moving(mut self) -> World {
        self.moves = true;
        self.at(1_500 * MS, What::Move);
        (0..NODES).for_each(|node| self.at(1_500 * MS, What::Look(node)));
        self
    }

    /// Whether a node is to have it, or is counted with.
    pub(super) fn is_of_use(&self, node: u32) -> bool {
        let node = NodeId(node);
        let is_member = |config: &Config| config.of(node).is_some();
        self.wanted.is_empty()
            || self.wanted.contains(&node)
            || self.store.as_ref().is_none_or(is_member)
    }

    /// Other nodes are to have it: two, or one.
    pub(super) fn decide(&mut self) {
        if self.now >= TROUBLE {
            return;
        }
        let count = self.random.random_range(1..=2);
        self.wanted.clear();
        while self.wanted.len() < count {
            let node = self.random.random_range(0..NODES);
            self.wanted.insert(NodeId(node));
        }
        self.note(|| format!("wanted: {:?}", self.wanted));
        let after = self.within(500 * MS..4_000 * MS);
        self.at(self.now + after, What::Move);
    }

    /// What a node's keeper does: tells its copy who is wanted, and gives it up where nobody counts with it.
    pub(super) fn look(&mut self, node: u32) {
        let after = self.within(50 * MS..500 * MS);
        self.at(self.now + after, What::Look(node));
        let wanted = self.wanted.clone();
        self.with(node, |process, now| {
            process.driver.wanted(now, wanted, &mut process.host)
        });
        let own = &mut self.nodes[node as usize];
        let Some(process) = &own.process else {
            return;
        };
        let known = process.driver.replica().config();
        let is_none = known.is_some_and(|config| config.of(NodeId(node)).is_none());
        let is_wanted = self.wanted.is_empty() || self.wanted.contains(&NodeId(node));
        if is_wanted || !is_none || own.paused_until > self.now {
            return;
        }
        // First its process: from here on it says to nobody that it has something.
        own.process = None;
        own.number += 1;
        let may_go = self
            .store
            .as_ref()
            .is_some_and(|config| config.of(NodeId(node)).is_none());
        if may_go {
            self.left += 1;
            own.disk = SimDisk::new(self.random.random());
            self.note(|| format!("node {node} gives up its files"));
        }
        let after = self.within(10 * MS..500 * MS);
        self.at(self.now + after, What::Up(node));
    }
}
