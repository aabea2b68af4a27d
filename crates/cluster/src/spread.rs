//! Leads that are spread over the nodes: one that has most gives some away.
//!
//! After a node was away the others lead all that it led, and no rule is broken by that: each of them can bear it. So that
//! nobody works while others rest, a node looks at times whether a member of one of its databases leads less than it
//! does, and hands that one over. Its sessions go along.
//!
//! *It comes to rest*: what is handed over is at most half of what the two differ by, so that the other does not give it
//! back, and no more than one goes before all have spoken again.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use aerostat_types::{NodeId, TenantId};

use crate::placing::{Picture, PictureDatabase};

/// What leading a database weighs that does nothing.
const LEAD_MIN: f64 = 0.002;

/// A node that leads more than another by less than this share lets it be.
const SHARE_MIN: f64 = 0.1;

/// What a node remembers of the others.
#[derive(Default)]
pub(crate) struct Spread {
    /// Since when they have run.
    up: HashMap<NodeId, Instant>,
    /// When something was handed over.
    gave: Option<Instant>,
}

impl Spread {
    /// Which database another node is to lead, if one is. Nodes that have come less than `settled` ago are not asked, and
    /// `pause` lies between two.
    pub(crate) fn next(
        &mut self,
        me: NodeId,
        picture: &Picture,
        (settled, pause): (Duration, Duration),
    ) -> Option<(TenantId, NodeId)> {
        let now = Instant::now();
        let is_up = |id: &NodeId| {
            let mut nodes = picture.nodes.iter();
            nodes.any(|node| node.id == *id && node.is_up && !node.is_draining)
        };
        self.up.retain(|id, _| is_up(id));
        for node in picture.nodes.iter().filter(|node| is_up(&node.id)) {
            self.up.entry(node.id).or_insert(now);
        }
        if self.gave.is_some_and(|gave| gave.elapsed() < pause) {
            return None;
        }
        let is_settled = |id: &NodeId| {
            let since = self.up.get(id);
            since.is_some_and(|since| now.saturating_duration_since(*since) >= settled)
        };
        let next = lighter(me, picture, is_settled);
        if next.is_some() {
            self.gave = Some(now);
        }
        next
    }
}

/// What a node leads of a database.
fn weight(database: &PictureDatabase) -> f64 {
    (database.load - database.load_beside_leader).max(0.0) + LEAD_MIN
}

/// The database of which another node's lead would even things out most.
fn lighter(
    me: NodeId,
    picture: &Picture,
    is_settled: impl Fn(&NodeId) -> bool,
) -> Option<(TenantId, NodeId)> {
    let mut led: BTreeMap<NodeId, f64> = BTreeMap::new();
    for database in &picture.databases {
        if let Some(leader) = database.leader {
            *led.entry(leader).or_default() += weight(database);
        }
    }
    let led_by = |id: NodeId| led.get(&id).copied().unwrap_or(0.0);
    let mine = led_by(me);
    let kept = picture.databases.iter().filter(|of| of.copies.is_some());
    let of_me = kept.filter(|of| of.leader == Some(me));
    let options = of_me.flat_map(|database| {
        // While a copy is being made, or is away, nothing else moves.
        let is_whole = database.members == database.nodes;
        let others = database.nodes.iter().filter(move |_| is_whole);
        others
            .filter(|node| **node != me)
            .map(move |node| (database, *node))
    });
    let even = options.filter(|(database, node)| {
        let difference = mine - led_by(*node);
        is_settled(node)
            && difference >= 2.0 * weight(database) * (1.0 - 1e-9)
            && difference > SHARE_MIN * mine
    });
    let best = even.max_by(|(one, at), (other, there)| {
        let by = |database: &PictureDatabase, node: NodeId| (-led_by(node), weight(database));
        let (one, other) = (by(one, *at), by(other, *there));
        one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1))
    });
    best.map(|(database, node)| (database.id, node))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{Rng, SeedableRng, rngs::StdRng};

    use super::*;
    use crate::placing::tests::{cluster, database};

    fn add(picture: &mut Picture, nodes: &[u32], load: f64) {
        let id = picture.databases.len() as u32;
        let mut one = database(id, Some(2), nodes);
        one.load = load;
        picture.databases.push(one);
    }

    /// Has every node give away what it would, until none does; how often.
    fn settle(picture: &mut Picture) -> usize {
        for count in 0.. {
            let nodes: Vec<NodeId> = picture.nodes.iter().map(|node| node.id).collect();
            // All decide by the same news, as nodes do.
            let given: Vec<(TenantId, NodeId)> = nodes
                .iter()
                .filter_map(|me| lighter(*me, picture, |_| true))
                .collect();
            if given.is_empty() {
                return count;
            }
            assert!(count < 500, "it does not come to rest");
            for (id, to) in given {
                let of = picture.databases.iter_mut().find(|of| of.id == id).unwrap();
                assert!(of.nodes.contains(&to));
                of.leader = Some(to);
            }
        }
        unreachable!()
    }

    fn led(picture: &Picture, node: u32) -> f64 {
        let of_node = picture.databases.iter();
        let of_node = of_node.filter(|of| of.leader == Some(NodeId(node)));
        of_node.map(weight).sum()
    }

    #[test]
    fn leads_are_spread_after_a_node_was_away() {
        let mut picture = cluster(3, Vec::new());
        for _ in 0..10 {
            add(&mut picture, &[0, 1], 0.0);
            add(&mut picture, &[1, 2], 0.0);
            add(&mut picture, &[0, 2], 0.0);
        }
        assert!(settle(&mut picture) > 0);
        for node in 0..3 {
            let count = led(&picture, node) / LEAD_MIN;
            assert!((9.0..=11.0).contains(&count), "node {node} leads {count}");
        }
    }

    #[test]
    fn who_is_not_ready_gets_nothing() {
        let mut picture = cluster(2, Vec::new());
        for _ in 0..4 {
            add(&mut picture, &[0, 1], 0.1);
        }
        let me = NodeId(0);
        assert!(lighter(me, &picture, |_| true).is_some());
        assert!(lighter(me, &picture, |_| false).is_none());
        let mut away = picture.clone();
        for database in &mut away.databases {
            database.members = BTreeSet::from([me]);
        }
        assert!(lighter(me, &away, |_| true).is_none());
        let mut spread = Spread::default();
        let none = Duration::ZERO;
        picture.nodes[1].is_draining = true;
        assert!(spread.next(me, &picture, (none, none)).is_none());
        picture.nodes[1].is_draining = false;
        let long = Duration::from_secs(1_000);
        assert!(spread.next(me, &picture, (long, none)).is_none());
        assert!(spread.next(me, &picture, (none, long)).is_some());
        assert!(spread.next(me, &picture, (none, long)).is_none());
        // The operator's stay with whom they are.
        for database in &mut picture.databases {
            database.copies = None;
        }
        assert!(lighter(me, &picture, |_| true).is_none());
    }

    #[test]
    fn whatever_there_is_it_comes_to_rest() {
        for seed in 0..300 {
            let random = &mut StdRng::seed_from_u64(seed);
            let count = random.random_range(2..6);
            let mut picture = cluster(count, Vec::new());
            for _ in 0..random.random_range(1..40) {
                let first = random.random_range(0..count);
                let second = (first + random.random_range(1..count)) % count;
                let load = random.random_range(0.0..0.2) * f64::from(random.random_range(0..2));
                add(&mut picture, &[first, second], load);
            }
            let before: BTreeSet<TenantId> = picture.databases.iter().map(|of| of.id).collect();
            let most = |picture: &Picture| {
                (0..count)
                    .map(|node| led(picture, node))
                    .fold(0.0, f64::max)
            };
            let fullest = most(&picture);
            settle(&mut picture);
            assert!(
                most(&picture) <= fullest * 1.5 + 2.0 * LEAD_MIN,
                "seed {seed}"
            );
            assert_eq!(before.len(), picture.databases.len());
        }
    }
}
