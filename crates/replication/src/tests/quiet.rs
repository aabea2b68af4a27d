//! A leader that is to hand over, step by step: what its sessions are told, and when another is asked to lead.

use std::{collections::BTreeSet, time::Duration};

use aerostat_types::CommitTs;

use crate::{
    Config, Effect, Epoch, Event, History, Incarnation, Member, Message, NodeId, Replica, Settings,
};

/// A divisor of all that is waited for.
const TICK: Duration = Duration::from_millis(25);

fn member(node: u32, incarnation: u64) -> Member {
    Member {
        node: NodeId(node),
        incarnation: Incarnation(incarnation),
    }
}

fn config(epoch: u64, leader: u32, members: &[u32]) -> Config {
    Config {
        epoch: Epoch(epoch),
        leader: NodeId(leader),
        members: members.iter().map(|node| member(*node, 1)).collect(),
    }
}

/// What matters here of what a leader does.
fn is_told(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::Quieten(_) | Effect::Swap(_) | Effect::Deposed(_)
    )
}

/// A leader of epoch 1, and the nodes that answer it.
struct Led {
    replica: Replica,
    now: Duration,
    alive: Vec<u32>,
}

impl Led {
    /// Node 0 leads, with these others.
    fn by(settings: Settings, others: &[u32]) -> Led {
        let mut led = Led {
            replica: Replica::new(member(0, 1), settings, History::default(), false),
            now: Duration::from_secs(10),
            alive: others.to_vec(),
        };
        let members: Vec<u32> = std::iter::once(0).chain(others.iter().copied()).collect();
        led.leads_by(config(1, 0, &members));
        led
    }

    fn usual() -> Led {
        Led::by(Settings::default(), &[1, 2])
    }

    fn step(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = self.replica.step(self.now, event);
        effects.retain(is_told);
        effects
    }

    /// The store has a configuration by which node 0 leads, and the log says so, and the others have it.
    fn leads_by(&mut self, config: Config) -> Vec<Effect> {
        let place = CommitTs(self.replica.history().last().0 + 1);
        let epoch = config.epoch;
        let mut told = self.step(Event::Swapped(Some(config)));
        told.extend(self.step(Event::Began(epoch, place)));
        told.extend(self.step(Event::Synced(place)));
        told.extend(self.answers());
        told
    }

    /// Those that are alive answer.
    fn answers(&mut self) -> Vec<Effect> {
        let (epoch, through) = (
            self.replica.config().unwrap().epoch,
            self.replica.history().last(),
        );
        let mut told = Vec::new();
        for node in self.alive.clone() {
            let has = Message::Has {
                epoch,
                through,
                sent: self.now,
            };
            told.extend(self.step(Event::Received(member(node, 1), has)));
        }
        told
    }

    /// Time passes: what is done, and after how many milliseconds.
    fn pass(&mut self, millis: u64) -> Vec<(u64, Effect)> {
        let began = self.now;
        let mut told = Vec::new();
        while self.now < began + Duration::from_millis(millis) {
            self.now += TICK;
            let at = (self.now - began).as_millis() as u64;
            let mut done = self.answers();
            done.extend(self.step(Event::Tick));
            told.extend(done.into_iter().map(|effect| (at, effect)));
        }
        told
    }

    fn commits(&mut self) {
        let before = self.replica.committed();
        let place = CommitTs(self.replica.history().last().0 + 1);
        self.step(Event::Appended(place));
        self.step(Event::Synced(place));
        self.answers();
        assert!(self.replica.committed() > before, "nothing is committed");
    }
}

fn wants(nodes: &[u32]) -> Event {
    let nodes: BTreeSet<NodeId> = nodes.iter().copied().map(NodeId).collect();
    Event::Wanted(nodes)
}

const LEAVE: Effect = Effect::Quieten(true);
const STAY: Effect = Effect::Quieten(false);

/// Attempts of 150 ms with 400 ms between them, as far as they begin within 2 s; then no more is waited.
fn all_attempts(to: u32) -> Vec<(u64, Effect)> {
    vec![
        (150, STAY),
        (550, LEAVE),
        (700, STAY),
        (1_100, LEAVE),
        (1_250, STAY),
        (1_650, LEAVE),
        (1_800, STAY),
        (2_200, LEAVE),
        (2_350, Effect::Swap(config(2, to, &[0, 1, 2]))),
    ]
}

#[test]
fn another_leads_once_no_session_is_left() {
    let mut led = Led::usual();
    assert_eq!(led.step(Event::HandOver(NodeId(1))), [LEAVE]);
    assert_eq!(led.pass(50), []);
    led.commits();
    assert_eq!(led.step(Event::Quiet(false)), []);
    let next = config(2, 1, &[0, 1, 2]);
    assert_eq!(led.step(Event::Quiet(true)), [Effect::Swap(next.clone())]);
    led.commits();
    let last = led.replica.history().last();
    assert_eq!(
        led.step(Event::Swapped(Some(next))),
        [Effect::Deposed(last)]
    );
}

#[test]
fn a_member_that_asks_leads_once_no_session_is_left() {
    let mut led = Led::usual();
    let asks = Event::Received(member(2, 1), Message::HandOver);
    assert_eq!(led.step(asks), [LEAVE]);
    let next = config(2, 2, &[0, 1, 2]);
    assert_eq!(led.step(Event::Quiet(true)), [Effect::Swap(next)]);
}

#[test]
fn sessions_that_stay_are_told_again_and_not_waited_for_in_the_end() {
    let mut led = Led::usual();
    assert_eq!(led.step(Event::HandOver(NodeId(1))), [LEAVE]);
    assert_eq!(led.pass(2_400), all_attempts(1));
}

#[test]
fn a_wish_that_is_repeated_begins_nothing_anew() {
    let mut led = Led::usual();
    assert_eq!(led.step(Event::HandOver(NodeId(2))), [LEAVE]);
    let mut told = Vec::new();
    for after in (0..2_400).step_by(50) {
        // At first it is another's.
        let to = if after < 1_000 { 2 } else { 1 };
        assert_eq!(led.step(Event::HandOver(NodeId(to))), []);
        let more = led.pass(50);
        told.extend(more.into_iter().map(|(at, effect)| (after + at, effect)));
    }
    assert_eq!(told, all_attempts(1));
}

#[test]
fn sessions_that_left_in_the_attempt_before_may_be_back() {
    let mut led = Led::usual();
    assert_eq!(led.step(Event::HandOver(NodeId(1))), [LEAVE]);
    assert_eq!(led.pass(200), [(150, STAY)]);
    assert_eq!(led.step(Event::Quiet(true)), []);
    assert_eq!(led.pass(500), [(350, LEAVE), (500, STAY)]);
}

#[test]
fn sessions_stay_where_the_next_leader_ends() {
    let mut led = Led::by(Settings::default(), &[1]);
    assert_eq!(led.step(Event::HandOver(NodeId(1))), [LEAVE]);
    led.alive.clear();
    let join = Message::Join {
        member: member(1, 2),
        history: History::default(),
    };
    let alone = config(2, 0, &[0]);
    assert_eq!(
        led.step(Event::Received(member(1, 2), join)),
        [Effect::Swap(alone.clone()), STAY]
    );
    assert_eq!(led.leads_by(alone), []);
    led.commits();
    assert_eq!(led.pass(3_000), []);
}

#[test]
fn sessions_stay_where_the_next_leader_falls_silent() {
    let mut led = Led::usual();
    assert_eq!(led.pass(100), []);
    led.alive = vec![2];
    // It is silent for 1 s in the middle of an attempt.
    assert_eq!(led.pass(400), []);
    assert_eq!(led.step(Event::HandOver(NodeId(1))), [LEAVE]);
    let without = Effect::Swap(config(2, 0, &[0, 2]));
    assert_eq!(
        led.pass(650),
        [(150, STAY), (550, LEAVE), (600, without), (600, STAY)]
    );
}

#[test]
fn who_is_deposed_meanwhile_begins_anew_when_it_leads_again() {
    let mut led = Led::usual();
    assert_eq!(led.step(Event::HandOver(NodeId(1))), [LEAVE]);
    let last = led.replica.history().last();
    let other = config(2, 2, &[0, 1, 2]);
    assert_eq!(
        led.step(Event::Config(Some(other))),
        [Effect::Deposed(last)]
    );
    assert_eq!(led.step(Event::Quiet(true)), []);
    assert_eq!(led.leads_by(config(3, 0, &[0, 1, 2])), []);
    assert_eq!(led.step(Event::Quiet(true)), []);
    assert_eq!(led.pass(3_000), []);
    assert_eq!(led.step(Event::HandOver(NodeId(1))), [LEAVE]);
}

#[test]
fn sessions_are_served_again_where_another_does_not_lead_after_all() {
    let mut led = Led::usual();
    assert_eq!(led.step(Event::HandOver(NodeId(1))), [LEAVE]);
    let next = Effect::Swap(config(2, 1, &[0, 1, 2]));
    assert_eq!(led.step(Event::Quiet(true)), std::slice::from_ref(&next));
    // The store is away, and what becomes of it is not known.
    assert_eq!(
        led.pass(1_000),
        [(500, next.clone()), (1_000, next.clone())]
    );
    // It has what was asked for before.
    assert_eq!(led.leads_by(config(2, 0, &[0, 1, 2])), [STAY]);
    led.commits();
    assert_eq!(led.pass(3_000), []);
}

#[test]
fn a_move_is_tried_again_where_another_does_not_lead_after_all() {
    let mut led = Led::by(Settings::default(), &[1, 2]);
    led.step(wants(&[1, 2]));
    assert_eq!(led.step(Event::Tick), [LEAVE]);
    let next = config(2, 2, &[0, 1, 2]);
    assert_eq!(led.step(Event::Quiet(true)), [Effect::Swap(next)]);
    // Sessions hear of each attempt.
    assert_eq!(led.leads_by(config(2, 0, &[0, 1, 2])), [STAY, LEAVE]);
    let next = config(3, 2, &[0, 1, 2]);
    assert_eq!(led.step(Event::Quiet(true)), [Effect::Swap(next)]);
}

#[test]
fn sessions_stay_where_the_database_is_to_stay() {
    let mut led = Led::by(Settings::default(), &[1]);
    led.step(wants(&[1]));
    assert_eq!(led.pass(100), [(25, LEAVE)]);
    assert_eq!(led.step(wants(&[0, 1])), []);
    assert_eq!(led.pass(3_000), [(25, STAY)]);
    // What was asked for by somebody is, whatever is wanted.
    assert_eq!(led.step(Event::HandOver(NodeId(1))), [LEAVE]);
    assert_eq!(led.pass(100), []);
    let next = config(2, 1, &[0, 1]);
    assert_eq!(led.step(Event::Quiet(true)), [Effect::Swap(next)]);
}

#[test]
fn a_move_waits_no_longer_than_a_command() {
    let mut led = Led::usual();
    led.step(wants(&[1, 2]));
    assert_eq!(led.step(Event::Tick), [LEAVE]);
    assert_eq!(led.pass(2_400), all_attempts(2));
}

/// A process of node 2 is admitted, and the store does not say whether it is a member.
fn admits(led: &mut Led) -> Config {
    led.alive.push(2);
    let join = Message::Join {
        member: member(2, 1),
        history: History::default(),
    };
    assert_eq!(led.step(Event::Received(member(2, 1), join)), []);
    let next = config(2, 0, &[0, 1, 2]);
    assert_eq!(led.answers(), [Effect::Swap(next.clone())]);
    next
}

#[test]
fn another_leads_after_a_configuration_that_is_on_its_way() {
    let mut led = Led::by(Settings::default(), &[1]);
    assert_eq!(led.step(Event::HandOver(NodeId(1))), [LEAVE]);
    let next = admits(&mut led);
    assert_eq!(led.step(Event::Quiet(true)), []);
    let last = config(3, 1, &[0, 1, 2]);
    assert_eq!(led.leads_by(next), [Effect::Swap(last)]);
}

#[test]
fn a_wish_does_not_wait_for_the_store_for_ever() {
    let mut led = Led::by(Settings::default(), &[1]);
    assert_eq!(led.step(Event::HandOver(NodeId(1))), [LEAVE]);
    let next = admits(&mut led);
    let mut told = led.pass(2_100);
    told.retain(|(_, effect)| !matches!(effect, Effect::Swap(_)));
    assert_eq!(told, [(150, STAY)]);
    assert_eq!(led.leads_by(next), []);
    assert_eq!(led.pass(3_000), []);
}

#[test]
fn nobody_waits_where_sessions_have_no_time() {
    let settings = Settings {
        quiet: Duration::ZERO,
        ..Settings::default()
    };
    let mut led = Led::by(settings, &[1, 2]);
    let next = config(2, 1, &[0, 1, 2]);
    assert_eq!(
        led.step(Event::HandOver(NodeId(1))),
        [Effect::Swap(next.clone())]
    );
    assert_eq!(led.leads_by(config(2, 0, &[0, 1, 2])), []);
    led.step(wants(&[1, 2]));
    let next = config(3, 2, &[0, 1, 2]);
    assert_eq!(led.step(Event::Tick), [Effect::Swap(next.clone())]);
    let last = led.replica.history().last();
    assert_eq!(
        led.step(Event::Swapped(Some(next))),
        [Effect::Deposed(last)]
    );
}

/// Opening its copy again takes a leader time, and the next one is not to wait for it.
#[test]
fn the_next_leader_hears_of_it_before_the_copy_is_opened_again() {
    let mut led = Led::usual();
    let next = config(2, 1, &[0, 1, 2]);
    let effects = led.replica.step(led.now, Event::Swapped(Some(next)));
    let over = Effect::Send(NodeId(1), Message::Over { epoch: Epoch(2) });
    let at = |wanted: &Effect| effects.iter().position(|effect| effect == wanted);
    let is_deposed = |effect: &Effect| matches!(effect, Effect::Deposed(_));
    let deposed = effects.iter().position(is_deposed);
    assert!(at(&over).is_some() && at(&over) < deposed, "{effects:?}");
}

/// A copy that was moved away has nobody who answers: nothing is sent there for ever.
#[test]
fn a_copy_that_is_no_member_and_silent_is_sent_nothing() {
    let mut led = Led::usual();
    led.alive = vec![1];
    led.step(Event::Wanted([0, 1].map(NodeId).into()));
    led.leads_by(config(2, 0, &[0, 1]));
    assert!(led.replica.peer(NodeId(2)).is_some());
    let mut sent_at = led.now;
    let until = led.now + Duration::from_secs(20);
    while led.now < until {
        led.now += TICK;
        let effects = led.replica.step(led.now, Event::Tick);
        let is_sent = |effect: &Effect| matches!(effect, Effect::Send(NodeId(2), _));
        if effects.iter().any(is_sent) {
            sent_at = led.now;
        }
        led.answers();
    }
    assert!(sent_at + Duration::from_secs(10) < until, "{sent_at:?}");
    assert!(led.replica.peer(NodeId(2)).is_none());
    // Members are sent what there is, however long.
    assert!(led.replica.peer(NodeId(1)).is_some());
    // It asks to join, and is sent the log.
    let join = Message::Join {
        member: member(2, 2),
        history: History::default(),
    };
    let effects = led
        .replica
        .step(led.now, Event::Received(member(2, 2), join));
    let is_sent =
        |effect: &Effect| matches!(effect, Effect::Send(NodeId(2), Message::Append { .. }));
    assert!(effects.iter().any(is_sent), "{effects:?}");
}
