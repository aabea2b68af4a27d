//! What befalls nodes: processes and machines that end, disks that are lost, partitions, pauses.

use std::cmp::Reverse;

use aerostat_storage::simulated::SimDisk;
use rand::Rng;

use super::{
    due::Due,
    world::{MS, NODES, Node, TROUBLE, What, World},
};

impl World {
    /// Whether all that a node has is at other members, whose processes go on for a while.
    fn may_lose_its_disk(&self, node: u32) -> bool {
        let Some(config) = &self.store else {
            return false;
        };
        let others = config.members.iter().filter(|one| one.node.0 != node);
        let are_well = others.clone().all(|member| {
            let own = &self.nodes[member.node.0 as usize];
            let is_long_ago = own.power_at == 0 || own.power_at + 3_000 * MS < self.now;
            own.process.is_some() && own.number == member.incarnation.0 && is_long_ago
        });
        // It may be alone by a configuration that is on its way.
        let asks = |due: &Reverse<Due<What>>| matches!(&due.0.2, What::Ask(from, _, Some(_)) if *from == node);
        others.count() > 0 && are_well && !self.due.iter().any(asks)
    }

    /// A node's machine ends, and another one with empty disks takes its place.
    fn lose_disk(&mut self, node: u32) {
        if !self.may_lose_its_disk(node) {
            return;
        }
        self.note(|| format!("node {node} loses its disk"));
        let disk = SimDisk::new(self.random.random());
        let own = &mut self.nodes[node as usize];
        (own.process, own.seeding) = (None, None);
        own.number += 1;
        own.disk = disk;
        own.power_at = self.now;
        let after = self.within(10 * MS..1_000 * MS);
        let next = match self.random.random_bool(0.8) {
            true => What::Fetch(node, 0),
            false => What::Up(node),
        };
        self.at(self.now + after, next);
    }

    pub(super) fn trouble(&mut self) {
        if self.now >= TROUBLE {
            return;
        }
        let after = self.within(100 * MS..2_000 * MS);
        self.at(self.now + after, What::Trouble);
        let node = self.random.random_range(0..NODES);
        let lasts = self.within(50 * MS..3_000 * MS);
        match self.random.random_range(0..11) {
            8 | 9 => self.lose_disk(node),
            0..3 => self.end(node, false),
            3 | 4 => {
                // Without syncs a second one within the time of a sync may lose what it may.
                let is_alone = |other: &Node| {
                    other.process.is_some() && other.power_at + 3_000 * MS < self.now
                        || other.power_at == 0 && other.process.is_some()
                };
                let mut nodes = (0..NODES).zip(&self.nodes);
                let counts = |no: u32| !self.moves || self.is_of_use(no);
                let is_well = nodes.all(|(no, other)| !counts(no) || is_alone(other));
                if self.settings.and_sync || is_well {
                    self.end(node, true);
                }
            }
            5 | 6 => {
                let other = (node + self.random.random_range(1..NODES)) % NODES;
                let until = self.now + lasts;
                self.cut_until.insert((node, other), until);
                if self.random.random_bool(0.8) {
                    self.cut_until.insert((other, node), until);
                }
                self.note(|| format!("nothing goes from {node} to {other}"));
            }
            7 => {
                if let Some(process) = &mut self.nodes[node as usize].process {
                    process.driver.ask_to_lead(&mut process.host);
                }
                self.note(|| format!("node {node} is told to lead"));
            }
            _ => {
                let own = &mut self.nodes[node as usize];
                own.paused_until = own.paused_until.max(self.now + lasts);
                self.note(|| format!("node {node} is stopped"));
            }
        }
    }

    /// Sessions are to leave: they do at once, or soon, or too late, or never; others may come.
    pub(super) fn sessions_leave(&mut self, node: u32, number: u64) {
        let after = match self.random.random_range(0..4) {
            0 => 0,
            1 => self.within(MS..50 * MS),
            2 => self.within(50 * MS..400 * MS),
            _ => return,
        };
        self.at(self.now + after, What::Quiet(node, number, true));
        if self.random.random_bool(0.3) {
            let after = self.within(0..200 * MS);
            self.at(self.now + after, What::Quiet(node, number, false));
        }
    }

    /// A process ends, or its machine; it is there again after a while.
    fn end(&mut self, node: u32, power: bool) {
        let own = &mut self.nodes[node as usize];
        if power && own.seeding.take().is_some() {
            own.disk = own.disk.crash_now();
            let after = self.within(10 * MS..1_000 * MS);
            self.at(self.now + after, What::Fetch(node, 0));
            return;
        }
        let Some(process) = own.process.take() else {
            return;
        };
        let left = power.then(|| own.disk.crash_now());
        drop(process);
        if let Some(left) = left {
            own.disk = left;
            own.power_at = self.now;
        }
        self.note(|| format!("node {node} ends, power failure: {power}"));
        let after = self.within(10 * MS..3_000 * MS);
        self.at(self.now + after, What::Up(node));
    }

    /// Nothing goes wrong any more.
    pub(super) fn heal(&mut self) {
        self.cut_until.clear();
        for node in 0..NODES {
            self.nodes[node as usize].paused_until = 0;
            if self.is_down(node) {
                self.start(node);
            }
        }
    }
}
