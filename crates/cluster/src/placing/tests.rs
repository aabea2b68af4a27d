//! Pictures and what is needed in them. `PLACING_SEED` chooses the first seed of those that are drawn.

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;

fn count(copies: u8) -> NonZeroU8 {
    NonZeroU8::new(copies).unwrap()
}

fn node(id: u32) -> PictureNode {
    PictureNode {
        name: format!("n{id}"),
        id: NodeId(id),
        is_up: true,
        is_lost: false,
        is_draining: false,
        memory_bytes: 1 << 34,
    }
}

pub(crate) fn database(id: u32, copies: Option<u8>, nodes: &[u32]) -> PictureDatabase {
    PictureDatabase {
        name: format!("d{id}"),
        id: TenantId(id),
        copies: copies.map(count),
        nodes: nodes.iter().map(|id| NodeId(*id)).collect(),
        members: nodes.iter().map(|id| NodeId(*id)).collect(),
        leader: nodes.first().map(|id| NodeId(*id)),
        bytes: 1 << 20,
        load: 0.001,
        load_beside_leader: 0.0,
    }
}

pub(crate) fn cluster(nodes: u32, databases: Vec<PictureDatabase>) -> Picture {
    Picture {
        nodes: (0..nodes).map(node).collect(),
        databases,
    }
}

fn ids(nodes: &[u32]) -> BTreeSet<NodeId> {
    nodes.iter().map(|id| NodeId(*id)).collect()
}

/// Where what is needed has databases go, by number.
fn needed(picture: &Picture) -> BTreeMap<u32, BTreeSet<NodeId>> {
    let going = picture.needed().unwrap().into_iter();
    going.map(|going| (going.database.0, going.nodes)).collect()
}

#[test]
fn new_databases_spread_over_the_nodes() {
    let mut picture = cluster(4, Vec::new());
    for id in 0..60 {
        let placing = place_new(picture.clone(), count(2), Some(NodeId(0)), false).unwrap();
        assert_eq!(placing.leader, NodeId(0));
        assert_eq!(placing.nodes.len(), 2);
        let number = |name: &String| name[1..].parse().unwrap();
        let nodes: Vec<u32> = placing.nodes.iter().map(number).collect();
        let mut new = database(id, Some(2), &nodes);
        new.leader = Some(placing.leader);
        (new.load, new.bytes) = (0.0, 0);
        picture.databases.push(new);
    }
    for id in 1..4 {
        let on = picture.databases.iter();
        let on = on.filter(|of| of.nodes.contains(&NodeId(id))).count();
        assert!((18..=22).contains(&on), "node {id} has {on} of 60");
    }
}

#[test]
fn new_databases_are_led_by_all() {
    let mut picture = cluster(3, Vec::new());
    for id in 0..30 {
        let placing = place_new(picture.clone(), count(2), None, false).unwrap();
        let number = |name: &String| name[1..].parse().unwrap();
        let nodes: Vec<u32> = placing.nodes.iter().map(number).collect();
        let mut new = database(id, Some(2), &nodes);
        assert!(new.nodes.contains(&placing.leader));
        new.leader = Some(placing.leader);
        (new.load, new.bytes) = (0.0, 0);
        picture.databases.push(new);
    }
    for id in 0..3 {
        let all = picture.databases.iter();
        let led = all.filter(|of| of.leader == Some(NodeId(id))).count();
        assert!((8..=12).contains(&led), "node {id} leads {led} of 30");
    }
}

#[test]
fn new_databases_go_where_there_is_somebody() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let mut picture = cluster(3, Vec::new());
    picture.nodes[0].is_draining = true;
    picture.nodes[1].is_up = false;
    // Who makes it drains: it begins elsewhere, alone.
    let placing = place_new(picture.clone(), count(2), Some(NodeId(0)), false).unwrap();
    assert_eq!(placing.nodes, names(&["n2"]));
    assert_eq!(placing.leader, NodeId(2));
    // Unless its files are there already.
    let placing = place_new(picture.clone(), count(2), Some(NodeId(0)), true).unwrap();
    assert_eq!(placing.nodes, names(&["n0", "n2"]));
    assert_eq!(placing.leader, NodeId(0));
    picture.nodes[2].memory_bytes = 0;
    let refused = place_new(picture.clone(), count(1), Some(NodeId(0)), false).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::ObjectNotInPrerequisiteState);
    let placing = place_new(picture, count(1), Some(NodeId(0)), true).unwrap();
    assert_eq!(placing.nodes, names(&["n0"]));
}

#[test]
fn what_is_lost_is_replaced_and_what_is_silent_is_waited_for() {
    let mut picture = cluster(
        4,
        vec![
            database(1, Some(2), &[0, 1]),
            database(2, Some(2), &[2, 3]),
            database(3, None, &[0, 1]),
            database(4, None, &[0, 1, 2, 3]),
        ],
    );
    assert!(needed(&picture).is_empty());
    picture.nodes[1].is_up = false;
    assert!(needed(&picture).is_empty(), "it may come back");
    picture.nodes[1].is_lost = true;
    let going = needed(&picture);
    // Nobody touches what the operator has placed.
    assert_eq!(going.keys().collect::<Vec<_>>(), [&1]);
    assert!(going[&1].contains(&NodeId(0)) && !going[&1].contains(&NodeId(1)));
    assert_eq!(going[&1].len(), 2);
    // Nobody else is there: what is left stays named, for it may come back.
    picture.nodes[2].is_draining = true;
    picture.nodes[3].is_up = false;
    let going = needed(&picture);
    assert!(!going.contains_key(&1), "{going:?}");
}

#[test]
fn draining_nodes_are_left_and_surplus_copies_go() {
    let mut picture = cluster(
        3,
        vec![
            database(1, Some(2), &[0, 1]),
            database(2, Some(1), &[1]),
            database(3, Some(2), &[0, 1, 2]),
            database(4, Some(3), &[0, 2]),
            database(5, None, &[1]),
        ],
    );
    picture.nodes[1].is_draining = true;
    let going = needed(&picture);
    assert_eq!(going[&1], ids(&[0, 2]));
    assert!(going[&2] == ids(&[0]) || going[&2] == ids(&[2]));
    assert_eq!(going[&3], ids(&[0, 2]));
    assert!(!going.contains_key(&4), "there is no third");
    assert!(!going.contains_key(&5));
}

/// A picture of any kind: nodes in every state, databases anywhere.
fn drawn(seed: u64) -> Picture {
    let random = &mut StdRng::seed_from_u64(seed);
    let count = random.random_range(1..8_u32);
    let mut picture = cluster(count, Vec::new());
    for node in &mut picture.nodes {
        node.is_lost = random.random_bool(0.15);
        node.is_up = !node.is_lost && random.random_bool(0.85);
        node.is_draining = random.random_bool(0.15);
        if random.random_bool(0.2) {
            node.memory_bytes = random.random_range(0..64) << 20;
        }
    }
    for id in 0..random.random_range(0..30) {
        let on: Vec<u32> = (0..count).filter(|_| random.random_bool(0.4)).collect();
        let copies = random
            .random_bool(0.8)
            .then(|| random.random_range(1..=3_u8));
        if copies.is_none() && on.is_empty() {
            continue;
        }
        let mut one = database(id, copies, &on);
        one.bytes = random.random_range(0..16) << 20;
        one.load = random.random_range(0.0..0.3);
        one.load_beside_leader = one.load * random.random_range(0.0..1.0);
        picture.databases.push(one);
    }
    picture
}

#[test]
fn whatever_there_is_nothing_is_taken_away_that_is_needed() {
    let first = std::env::var("PLACING_SEED").ok();
    let first: u64 = first.and_then(|text| text.parse().ok()).unwrap_or(0);
    for seed in first..first + 1_000 {
        let mut picture = drawn(seed);
        let is = |picture: &Picture, id: &NodeId, what: fn(&PictureNode) -> bool| {
            picture
                .nodes
                .iter()
                .any(|node| node.id == *id && what(node))
        };
        for round in 0.. {
            assert!(round < 10, "seed {seed}: it does not come to rest");
            let going = picture.needed().unwrap();
            if going.is_empty() {
                break;
            }
            for going in going {
                let mut all = picture.databases.iter();
                let place = all.position(|of| of.id == going.database).unwrap();
                let before = picture.databases[place].clone();
                let copies = usize::from(before.copies.expect("the cluster's").get());
                let live = |nodes: &BTreeSet<NodeId>| {
                    let live = nodes.iter().filter(|id| is(&picture, id, |of| !of.is_lost));
                    live.count()
                };
                let least = live(&before.nodes).min(copies);
                assert!(
                    live(&going.nodes) >= least,
                    "seed {seed}: {before:?} {going:?}"
                );
                for id in going.nodes.difference(&before.nodes) {
                    let takes = |of: &PictureNode| of.is_up && !of.is_lost && !of.is_draining;
                    assert!(is(&picture, id, takes), "seed {seed}: {going:?}");
                }
                assert!(!going.reasons.is_empty());
                picture.databases[place].nodes = going.nodes;
                let led = &mut picture.databases[place];
                led.leader = led.leader.filter(|leader| led.nodes.contains(leader));
            }
        }
    }
}
