//! What PostgreSQL 15 does in every state, as a table, and what holds over all orders of events.

use aerostat_types::NodeId;
use proptest::prelude::*;

use super::*;

struct Known {
    has_begun: bool,
    read_only: bool,
    copy: Option<&'static CopyState>,
}

impl Facts for Known {
    fn defaults(&self) -> Modes {
        Modes {
            isolation: Isolation::ReadCommitted,
            read_only: self.read_only,
        }
    }

    fn has_begun(&self) -> bool {
        self.has_begun
    }

    fn copy(&self) -> Option<&CopyState> {
        self.copy.filter(|copy| !copy.leads())
    }
}

const FRESH: Known = Known {
    has_begun: false,
    read_only: false,
    copy: None,
};

const NONE: TransactionModes = TransactionModes {
    isolation: None,
    read_only: None,
    deferrable: None,
};

const REPEATABLE: TransactionModes = TransactionModes {
    isolation: Some(Isolation::RepeatableRead),
    ..NONE
};

const SERIALIZABLE: TransactionModes = TransactionModes {
    isolation: Some(Isolation::Serializable),
    ..NONE
};

const ONLY: TransactionModes = TransactionModes {
    read_only: Some(true),
    ..NONE
};

const WRITE: TransactionModes = TransactionModes {
    read_only: Some(false),
    ..NONE
};

fn event(name: &str) -> Event<'static> {
    match name {
        "message" => Event::GroupBegins(Group::Message),
        "pipeline" => Event::GroupBegins(Group::Pipeline),
        "group ends" => Event::GroupEnds,
        "empty" => Event::Starts(Kind::Nothing),
        "select" => Event::Starts(Kind::Other),
        "create" => Event::Starts(Kind::Definition),
        "vacuum" => Event::Starts(Kind::Outside("VACUUM")),
        "create role" => Event::Starts(Kind::OfNode("CREATE ROLE")),
        "done" => Event::Done,
        "failed" => Event::Failed,
        "ended" => Event::Ended,
        "end failed" => Event::EndFailed,
        "begin" => Event::Begin(NONE),
        "begin repeatable" => Event::Begin(REPEATABLE),
        "begin serializable" => Event::Begin(SERIALIZABLE),
        "begin only" => Event::Begin(ONLY),
        "commit" => Event::Commit { chain: false },
        "commit chain" => Event::Commit { chain: true },
        "rollback" => Event::RollBack { chain: false },
        "rollback chain" => Event::RollBack { chain: true },
        "savepoint" => Event::Savepoint("s"),
        "release" => Event::Release("s"),
        "rollback to" => Event::RollBackTo("s"),
        "set repeatable" => Event::SetModes(REPEATABLE),
        "set only" => Event::SetModes(ONLY),
        "set write" => Event::SetModes(WRITE),
        other => panic!("no event: {other}"),
    }
}

/// The state's letter: as `ReadyForQuery` has it, `i` and `m` for implicit blocks at their first
/// statement and later, `~` for one that ends.
fn letter(machine: &Machine) -> char {
    match machine.state {
        State::Idle => '-',
        State::Implicit { is_first: true } => 'i',
        State::Implicit { is_first: false } => 'm',
        State::Open => 'T',
        State::Failed => 'E',
        State::Ending { .. } => '~',
    }
}

/// A machine after these events, `;` between them.
fn after(events: &str) -> Machine {
    let mut machine = Machine::default();
    for name in events
        .split(';')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        let answer = machine.on(event(name), &FRESH);
        assert!(answer.effect.is_ok(), "{events}: {name}: {answer:?}");
    }
    machine
}

/// What an answer asks for, and the state after it.
fn shown(answer: &Answer, machine: &Machine) -> String {
    let effect = match &answer.effect {
        Err(error) => error.kind.sqlstate().to_owned(),
        Ok(Effect::Nothing) => ".".to_owned(),
        Ok(Effect::Hush) => "hush".to_owned(),
        Ok(Effect::Open(_)) => "open".to_owned(),
        Ok(Effect::Tell(_)) => "tell".to_owned(),
        Ok(Effect::Commit) => "commit".to_owned(),
        Ok(Effect::Undo) => "undo".to_owned(),
        Ok(Effect::Abandon) => "drop".to_owned(),
        Ok(Effect::PutBack(at)) => format!("back{at}"),
        Ok(Effect::Mark) => "mark".to_owned(),
        Ok(Effect::Release(at, _)) => format!("rel{at}"),
        Ok(Effect::UndoTo(at)) => format!("to{at}"),
    };
    let warning = answer.warning.map(|warning| warning.kind().sqlstate());
    let warning = warning
        .map(|state| format!("w{state} "))
        .unwrap_or_default();
    match answer.effect {
        Ok(_) => format!("{warning}{effect} {}", letter(machine)),
        Err(_) => format!("{warning}{effect}"),
    }
}

/// The states of the table, by the events that lead there.
const STATES: [&str; 9] = [
    "",
    "message",
    "pipeline",
    "pipeline; select",
    "message; select",
    "begin",
    "begin; savepoint",
    "begin; failed",
    "begin; savepoint; failed",
];

/// One line for each event. A refused event leaves the state as it is.
const TABLE: &str = "
                     idle           idle, message  idle, pipeline first       several        open           savepoint      failed  failed, savepoint
empty              | . -          | . -          | . -          | . i          | . m          | . T          | . T          | . E   | . E
select             | . -          | open m       | open i       | . m          | . m          | . T          | . T          | 25P02 | 25P02
create             | open i       | open m       | open i       | . m          | . m          | . T          | . T          | 25P02 | 25P02
vacuum             | . -          | . -          | . -          | commit ~     | commit ~     | 25001        | 25001        | 25P02 | 25P02
create role        | . -          | . -          | . -          | commit ~     | commit ~     | 0A000        | 0A000        | 25P02 | 25P02
done               | . -          | . -          | . -          | . i          | . m          | . T          | . T          | . E   | . E
failed             | hush -       | hush -       | hush -       | drop -       | drop -       | drop E       | back0 E      | . E   | . E
group ends         | . -          | . -          | . -          | commit ~     | commit ~     | . T          | . T          | . E   | . E
begin              | open T       | open T       | open T       | tell T       | tell T       | w25001 tell T | w25001 tell T | 25P02 | 25P02
begin repeatable   | open T       | open T       | open T       | tell T       | tell T       | w25001 tell T | w25001 25001 | 25P02 | 25P02
begin serializable | 0A000        | 0A000        | 0A000        | 0A000        | 0A000        | w25001 0A000 | w25001 0A000 | 25P02 | 25P02
commit             | w25P01 . -   | w25P01 . -   | w25P01 . -   | w25P01 commit ~ | w25P01 commit ~ | commit ~ | commit ~ | . -   | undo ~
commit chain       | 25P01        | 25P01        | 25P01        | 25P01        | 25P01        | commit ~     | commit ~     | open T | undo ~
rollback           | w25P01 . -   | w25P01 . -   | w25P01 . -   | w25P01 undo ~ | w25P01 undo ~ | undo ~     | undo ~       | . -   | undo ~
rollback chain     | 25P01        | 25P01        | 25P01        | 25P01        | 25P01        | undo ~       | undo ~       | open T | undo ~
savepoint          | 25P01        | 25P01        | 25P01        | 25P01        | 25P01        | mark T       | mark T       | 25P02 | 25P02
release            | 25P01        | 25P01        | 25P01        | 25P01        | 25P01        | 3B001        | rel0 T       | 25P02 | 25P02
rollback to        | 25P01        | 25P01        | 25P01        | 25P01        | 25P01        | 3B001        | to0 T        | 3B001 | to0 T
set repeatable     | w25P01 . -   | open m       | w25P01 open i | tell i      | tell m       | tell T       | 25001        | 25P02 | 25P02
set only           | w25P01 . -   | open m       | w25P01 open i | tell i      | tell m       | tell T       | tell T       | 25P02 | 25P02
";

#[test]
fn every_state_takes_every_event_as_postgresql_does() {
    let lines = TABLE.lines().filter(|line| line.contains('|'));
    for line in lines {
        let (name, cells) = line.split_once('|').unwrap();
        let cells: Vec<&str> = cells.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), STATES.len(), "{line}");
        for (state, expected) in STATES.into_iter().zip(cells) {
            let mut machine = after(state);
            let before = letter(&machine);
            let answer = machine.on(event(name.trim()), &FRESH);
            let found = shown(&answer, &machine);
            assert_eq!(found, expected, "{name}after \"{state}\"");
            if answer.effect.is_err() {
                assert_eq!(letter(&machine), before, "{name}after \"{state}\"");
            }
        }
    }
}

/// What follows what, where one event does not show it.
#[test]
fn courses_of_several_events() {
    let courses = [
        // A definition by itself commits with its end, one of a group with the group's.
        ("create; done", "commit ~"),
        ("create; done; ended", ". -"),
        ("message; create; done", ". m"),
        ("create; failed", "drop -"),
        // A commit that fails leaves nothing to undo.
        ("begin; commit; end failed", ". -"),
        ("begin; commit chain; end failed", ". -"),
        ("begin; commit chain; ended", "open T"),
        ("begin; commit; failed", "drop -"),
        // After a COMMIT among a group's statements the next one opens a block again.
        ("message; select; commit; ended; select", "open m"),
        // BEGIN makes the group's block its client's, which the group's end leaves open.
        ("pipeline; select; begin; group ends", ". T"),
        // An error ends the group.
        ("message; select; failed; select", ". -"),
        // The newest of a name hides the others, which come to light with its release.
        ("begin; savepoint; savepoint; rollback to", "to1 T"),
        ("begin; savepoint; savepoint; release; rollback to", "to0 T"),
        ("begin; savepoint; savepoint; failed", "back1 E"),
        ("begin; savepoint; failed; rollback to; failed", "back0 E"),
        ("begin; savepoint; release; failed", "drop E"),
        ("begin; savepoint; commit; ended; begin; failed", "drop E"),
        // Not after the first snapshot, and not within a savepoint.
        ("begin only; set write", "tell T"),
        ("begin; savepoint; set only", "tell T"),
    ];
    for (events, expected) in courses {
        let (before, last) = events.rsplit_once(';').unwrap();
        let mut machine = after(before);
        let answer = machine.on(event(last.trim()), &FRESH);
        assert_eq!(shown(&answer, &machine), expected, "{events}");
    }
}

#[test]
fn modes_change_before_the_first_snapshot_and_outside_of_savepoints() {
    let message = |events: &str, last: &str, has_begun: bool| {
        let facts = Known { has_begun, ..FRESH };
        let answer = after(events).on(event(last), &facts);
        answer.effect.map_err(|error| error.message)
    };
    let refused = [
        (
            "begin",
            "set repeatable",
            "SET TRANSACTION ISOLATION LEVEL must be called before any query",
        ),
        (
            "begin only",
            "set write",
            "transaction read-write mode must be set before any query",
        ),
        (
            "message; select",
            "begin repeatable",
            "SET TRANSACTION ISOLATION LEVEL must be called before any query",
        ),
    ];
    for (events, last, expected) in refused {
        assert!(message(events, last, false).is_ok(), "{events}; {last}");
        assert_eq!(message(events, last, true).unwrap_err(), expected);
    }
    assert_eq!(
        message("begin; savepoint", "set repeatable", false).unwrap_err(),
        "SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction"
    );
    for events in ["begin only; savepoint", "begin; savepoint; set only"] {
        assert_eq!(
            message(events, "set write", false).unwrap_err(),
            "cannot set transaction read-write mode inside a read-only transaction"
        );
    }
    // What is so already may be asked for.
    assert!(message("begin repeatable; savepoint", "set repeatable", true).is_ok());
    assert!(message("begin; savepoint", "set write", true).is_ok());
}

/// What a savepoint made read-only is so no longer behind it; a chained block has the modes of the
/// one before, and after a ROLLBACK those that it had outside of its savepoints.
#[test]
fn modes_follow_savepoints_and_chains() {
    let read_only = |events: &str| after(events).modes().map(|modes| modes.read_only);
    let cases = [
        ("begin; savepoint; set only", Some(true)),
        ("begin; savepoint; set only; release", Some(false)),
        ("begin; savepoint; set only; rollback to", Some(false)),
        ("begin; savepoint; set only; failed", Some(false)),
        ("begin; savepoint; set only; savepoint; release", Some(true)),
        (
            "begin; savepoint; set only; savepoint; release; release",
            Some(false),
        ),
        (
            "begin; savepoint; set only; commit chain; ended",
            Some(true),
        ),
        (
            "begin; savepoint; set only; rollback chain; ended",
            Some(false),
        ),
        (
            "begin; savepoint; set only; savepoint; failed; rollback chain; ended",
            Some(false),
        ),
        ("begin only; rollback chain; ended", Some(true)),
        // PostgreSQL 15 forgets the modes of a failed block here, against its own documentation.
        ("begin only; failed; rollback chain", Some(true)),
        ("begin only; failed; commit", None),
        ("set only", None),
        ("message; set only", Some(true)),
    ];
    for (events, expected) in cases {
        assert_eq!(read_only(events), expected, "{events}");
    }
    let defaults = Known {
        read_only: true,
        ..FRESH
    };
    let mut machine = Machine::default();
    let opened = machine
        .on(Event::Begin(REPEATABLE), &defaults)
        .effect
        .unwrap();
    let modes = Modes {
        isolation: Isolation::RepeatableRead,
        read_only: true,
    };
    assert_eq!(opened, Effect::Open(modes));
}

/// READ WRITE is refused while another node takes the changes, and changes nothing; READ ONLY is what it is.
#[test]
fn no_transaction_writes_on_a_copy() {
    let copy: &'static CopyState = Box::leak(Box::new(CopyState::new(NodeId(2))));
    let here = Known {
        copy: Some(copy),
        ..FRESH
    };
    let before = [
        "",
        "message",
        "begin",
        "begin only",
        "begin; savepoint",
        "message; select",
    ];
    for events in before {
        for event in [Event::Begin(WRITE), Event::SetModes(WRITE)] {
            let mut machine = after(events);
            let state = (machine.state, machine.modes());
            let answer = machine.on(event, &here);
            let error = answer.effect.unwrap_err();
            assert_eq!(error.kind, ErrorKind::FeatureNotSupported, "{events}");
            assert_eq!((machine.state, machine.modes()), state, "{events}");
        }
        for event in [
            Event::Begin(ONLY),
            Event::SetModes(ONLY),
            Event::Begin(NONE),
        ] {
            let taken = after(events).on(event, &here);
            assert!(taken.effect.is_ok(), "{events}: {event:?}");
        }
    }
    copy.set_leads(true);
    assert!(after("").on(Event::Begin(WRITE), &here).effect.is_ok());
}

/// Whoever drives the machine, in a few words: what an effect would have done.
#[derive(Debug, Default)]
struct Driven {
    machine: Machine,
    is_open: bool,
    opened: usize,
    ended: usize,
    marks: usize,
    /// Another account of the savepoints.
    names: Vec<String>,
}

#[derive(Clone, Debug)]
enum Move {
    Group(Group),
    GroupEnds,
    Starts(Kind),
    Done,
    Failed,
    Begin(TransactionModes),
    Commit(bool),
    RollBack(bool),
    Savepoint(u8),
    Release(u8),
    RollBackTo(u8),
    SetModes(TransactionModes),
}

fn moves() -> impl Strategy<Value = Move> {
    let modes = prop_oneof![
        3 => Just(NONE),
        1 => Just(REPEATABLE),
        1 => Just(SERIALIZABLE),
        1 => Just(ONLY),
        1 => Just(WRITE),
    ];
    let kind = prop_oneof![
        Just(Kind::Nothing),
        Just(Kind::Other),
        Just(Kind::Definition),
        Just(Kind::Outside("VACUUM")),
        Just(Kind::OfNode("CREATE ROLE")),
    ];
    prop_oneof![
        1 => prop_oneof![Just(Group::Message), Just(Group::Pipeline)].prop_map(Move::Group),
        1 => Just(Move::GroupEnds),
        3 => kind.prop_map(Move::Starts),
        2 => Just(Move::Done),
        2 => Just(Move::Failed),
        3 => modes.clone().prop_map(Move::Begin),
        1 => any::<bool>().prop_map(Move::Commit),
        1 => any::<bool>().prop_map(Move::RollBack),
        3 => (0..3_u8).prop_map(Move::Savepoint),
        1 => (0..3_u8).prop_map(Move::Release),
        2 => (0..3_u8).prop_map(Move::RollBackTo),
        1 => modes.prop_map(Move::SetModes),
    ]
}

impl Driven {
    fn send(&mut self, event: Event<'_>, facts: &Known, commits: bool) -> bool {
        let answer = self.machine.on(event, facts);
        let Ok(effect) = answer.effect else {
            return false;
        };
        match effect {
            Effect::Nothing | Effect::Tell(_) => {}
            Effect::Hush => assert!(!self.is_open),
            Effect::Open(_) => {
                assert!(!self.is_open, "two blocks");
                (self.is_open, self.marks) = (true, 0);
                self.names.clear();
                self.opened += 1;
            }
            Effect::Abandon => self.close(),
            Effect::Commit | Effect::Undo => {
                self.close();
                let failed = effect == Effect::Commit && !commits;
                let next = match failed {
                    true => Event::EndFailed,
                    false => Event::Ended,
                };
                assert!(self.send(next, facts, commits));
            }
            Effect::Mark => self.marks += 1,
            Effect::Release(at, _) => {
                assert!(at < self.marks);
                self.marks = at;
            }
            Effect::UndoTo(at) => {
                assert!(at < self.marks);
                self.marks = at + 1;
            }
            Effect::PutBack(at) => assert_eq!(at + 1, self.marks),
        }
        true
    }

    fn close(&mut self) {
        assert!(self.is_open, "no block to end");
        self.is_open = false;
        self.ended += 1;
    }

    fn run(&mut self, step: &Move, facts: &Known, commits: bool) {
        let before = (self.machine.state, self.names.clone());
        let name = |n: &u8| format!("s{n}");
        let named = match step {
            Move::Savepoint(n) | Move::Release(n) | Move::RollBackTo(n) => name(n),
            _ => String::new(),
        };
        let event = match step {
            Move::Group(group) => Event::GroupBegins(*group),
            Move::GroupEnds => Event::GroupEnds,
            Move::Starts(kind) => Event::Starts(*kind),
            Move::Done => Event::Done,
            Move::Failed => Event::Failed,
            Move::Begin(modes) => Event::Begin(*modes),
            Move::Commit(chain) => Event::Commit { chain: *chain },
            Move::RollBack(chain) => Event::RollBack { chain: *chain },
            Move::Savepoint(_) => Event::Savepoint(&named),
            Move::Release(_) => Event::Release(&named),
            Move::RollBackTo(_) => Event::RollBackTo(&named),
            Move::SetModes(modes) => Event::SetModes(*modes),
        };
        let is_taken = self.send(event, facts, commits);
        if !is_taken {
            assert_eq!((self.machine.state, self.names.clone()), before);
        }
        let is_exit = matches!(
            step,
            Move::Commit(_) | Move::RollBack(_) | Move::RollBackTo(_)
        );
        if before.0 == State::Failed && !is_exit {
            assert_eq!(self.machine.state, State::Failed, "{step:?}");
            let is_silent = matches!(
                step,
                Move::Group(_)
                    | Move::GroupEnds
                    | Move::Done
                    | Move::Failed
                    | Move::Starts(Kind::Nothing)
            );
            assert_eq!(is_taken, is_silent, "{step:?}");
        }
        if is_taken {
            self.follow(step);
        }
    }

    /// The other account.
    fn follow(&mut self, step: &Move) {
        let find = |names: &[String], n: &u8| {
            let name = format!("s{n}");
            names.iter().rposition(|known| *known == name)
        };
        match step {
            Move::Savepoint(n) => self.names.push(format!("s{n}")),
            Move::Release(n) => {
                let at = find(&self.names, n).unwrap();
                self.names.truncate(at);
            }
            Move::RollBackTo(n) => {
                let at = find(&self.names, n).unwrap();
                self.names.truncate(at + 1);
            }
            _ if self.machine.is_idle() => self.names.clear(),
            _ => {}
        }
    }

    fn check(&self) {
        let machine = &self.machine;
        let names: Vec<&String> = machine.savepoints.iter().map(|kept| &kept.name).collect();
        assert_eq!(names, self.names.iter().collect::<Vec<_>>());
        assert_eq!(machine.modes.is_some(), !machine.is_idle());
        let has_block = match machine.state {
            State::Idle => false,
            State::Implicit { .. } | State::Open => true,
            State::Failed => !self.names.is_empty(),
            State::Ending { .. } => panic!("a block still ends"),
        };
        assert_eq!(self.is_open, has_block);
        assert_eq!(self.opened, self.ended + usize::from(self.is_open));
        if self.is_open {
            assert_eq!(self.marks, self.names.len());
        }
        if !matches!(machine.state, State::Open | State::Failed) {
            assert!(self.names.is_empty());
        }
        assert!(!(machine.admits_by_key() && machine.state == State::Failed));
    }
}

proptest! {
    #[test]
    fn a_block_is_opened_once_and_ended_once(
        steps in prop::collection::vec((moves(), any::<bool>(), any::<bool>(), any::<bool>()), 1..60),
    ) {
        let mut driven = Driven::default();
        for (step, commits, has_begun, read_only) in &steps {
            let facts = Known { has_begun: *has_begun, read_only: *read_only, copy: None };
            driven.run(step, &facts, *commits);
            driven.check();
        }
        // The client goes.
        driven.run(&Move::Failed, &FRESH, true);
        driven.run(&Move::RollBack(false), &FRESH, true);
        driven.check();
        prop_assert_eq!(driven.opened, driven.ended);
    }
}
