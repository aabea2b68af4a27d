//! How often a copy has something to do when nobody uses its database.

use std::time::Duration;

use aerostat_types::CommitTs;

use crate::{
    Config, Effect, Epoch, Event, History, Incarnation, Member, Message, NodeId, Replica, Settings,
};

const TICK: Duration = Duration::from_millis(25);

fn member(node: u32) -> Member {
    Member {
        node: NodeId(node),
        incarnation: Incarnation(1),
    }
}

fn config(members: &[u32]) -> Config {
    Config {
        epoch: Epoch(1),
        leader: NodeId(0),
        members: members.iter().copied().map(member).collect(),
    }
}

/// One that leads these, and has everything on its disk.
fn leader(members: &[u32]) -> Replica {
    let mut replica = Replica::new(member(0), Settings::default(), History::default(), true);
    replica.step(TICK, Event::Config(Some(config(members))));
    replica.step(TICK, Event::Began(Epoch(1), CommitTs(1)));
    replica.step(TICK, Event::Synced(CommitTs(1)));
    replica
}

/// What a while of the time is told for, and how often: `hears` is told at each of them.
fn pass(
    replica: &mut Replica,
    from: Duration,
    lasts: Duration,
    hears: impl Fn(&mut Replica, Duration),
) -> (usize, Vec<Effect>) {
    let (mut now, mut ticks, mut effects) = (from, 0, Vec::new());
    while now < from + lasts {
        now += TICK;
        hears(replica, now);
        if now >= replica.due(now) {
            ticks += 1;
            effects.extend(replica.step(now, Event::Tick));
        }
    }
    (ticks, effects)
}

fn reads(effects: &[Effect]) -> usize {
    let read = |effect: &&Effect| **effect == Effect::Read;
    effects.iter().filter(read).count()
}

#[test]
fn a_leader_is_told_the_time_for_heartbeats_and_reads_seldom() {
    let mut replica = leader(&[0, 1]);
    let answers = |replica: &mut Replica, now: Duration| {
        let has = Message::Has {
            epoch: Epoch(1),
            through: CommitTs(1),
            sent: now,
        };
        replica.step(now, Event::Received(member(1), has));
    };
    let second = Duration::from_secs(1);
    pass(&mut replica, TICK, second, answers);
    let (ticks, effects) = pass(&mut replica, second, 20 * second, answers);
    assert!((70..=90).contains(&ticks), "{ticks} in 20 s");
    assert!((1..=3).contains(&reads(&effects)), "{effects:?}");
    // It hears nothing: whoever leads now may be known to the store.
    let silent = |_: &mut Replica, _| {};
    let (_, effects) = pass(&mut replica, 21 * second, 3 * second / 4, silent);
    assert_eq!(reads(&effects), 1, "{effects:?}");
}

#[test]
fn a_leader_that_is_alone_has_nothing_to_do_but_to_read_seldom() {
    let mut replica = leader(&[0]);
    let (ticks, effects) = pass(&mut replica, TICK, Duration::from_secs(100), |_, _| {});
    assert!(ticks <= 12, "{ticks} in 100 s");
    assert!((9..=12).contains(&reads(&effects)), "{effects:?}");
}

#[test]
fn a_member_that_hears_its_leader_has_nothing_to_do_but_to_read_seldom() {
    let mut replica = Replica::new(member(1), Settings::default(), History::default(), false);
    replica.step(TICK, Event::Config(Some(config(&[0, 1]))));
    let beats = |replica: &mut Replica, now: Duration| {
        let append = Message::Append {
            config: config(&[0, 1]),
            after: History::default().at(CommitTs(0)),
            through: CommitTs(0),
            starts: Vec::new(),
            committed: CommitTs(0),
            sent: now,
        };
        replica.step(now, Event::Received(member(0), append));
    };
    let (ticks, effects) = pass(&mut replica, TICK, Duration::from_secs(100), beats);
    assert!(ticks <= 12, "{ticks} in 100 s");
    assert!((9..=12).contains(&reads(&effects)), "{effects:?}");
}
