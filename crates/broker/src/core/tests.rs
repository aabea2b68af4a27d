//! The broker's decisions on a model of a machine.
//!
//! Programs of the model are honest, slow, stopped, killed, restarted, or lie about what they gave; sockets
//! break; the broker dies at any step, and its disk refuses or loses what it did not take. After each step:
//!
//! * the memory of all programs is within the budget: no byte was granted twice;
//! * nobody who keeps to its word has more than its share on disk.

mod scenes;
mod world;

use std::collections::BTreeMap;

use aerostat_balloon::message::{
    Cost, Demand, FromBroker, FromParticipant, Hello, Limits, Report, VERSION,
};
use rand::{Rng, SeedableRng, rngs::StdRng};

use self::world::Shared;
use super::*;
use crate::ledger::Process;

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 4_096 * MIB;
/// Between two ticks, in milliseconds.
const TICK_MS: u64 = 250;

/// How a program of the model behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nature {
    Honest,
    /// Gives back a little at a time.
    Slow,
    /// Says that it has given back what it has not.
    Liar,
    /// Gives nothing back, and says so.
    Stubborn,
}

/// A program of the model.
#[derive(Debug)]
struct Program {
    name: String,
    nature: Nature,
    floor: u64,
    /// Its process, while it lives.
    process: Option<Process>,
    session: Option<SessionId>,
    is_stopped: bool,
    memory: u64,
    target: u64,
    epoch: u64,
    /// What it would like to have.
    wanted: u64,
    costs: Vec<Cost>,
    /// What it has been told and has not read yet.
    inbox: Vec<FromBroker>,
    is_told_done: bool,
}

impl Program {
    fn report(&self) -> Report {
        let used = match self.nature {
            Nature::Liar => self.memory.min(self.target),
            _ => self.memory,
        };
        Report {
            epoch: self.epoch,
            used,
            target: self.target,
        }
    }

    /// Moves its memory towards its target for a tick; whether it is there.
    fn work(&mut self) -> bool {
        let goal = self.target.min(self.wanted.max(self.floor));
        match self.nature {
            // It begins when it has its floor.
            _ if self.epoch == 0 => return true,
            _ if self.memory <= goal => self.memory = goal,
            Nature::Honest => self.memory = goal,
            Nature::Slow => self.memory -= (self.memory - goal).min(16 * MIB),
            Nature::Liar | Nature::Stubborn => return true,
        }
        self.memory <= self.target
    }
}

/// A machine with programs and a broker.
struct Scene {
    machine: Shared,
    core: Core<Shared>,
    programs: Vec<Program>,
    settings: Settings,
    now: u64,
    next_session: SessionId,
    next_pid: u32,
    /// How many messages a program reads in a step.
    messages_at_once: usize,
    rng: StdRng,
}

impl Scene {
    fn new(seed: u64, settings: Settings) -> Scene {
        let machine = Shared::default();
        let core = Core::new(settings.clone(), machine.clone(), None, 0).unwrap();
        Scene {
            machine,
            core,
            programs: Vec::new(),
            settings,
            now: 0,
            next_session: 1,
            next_pid: 1,
            messages_at_once: usize::MAX,
            rng: StdRng::seed_from_u64(seed),
        }
    }

    /// Adds a program that asks for `memory` MiB when it connects.
    fn program(
        &mut self,
        name: &str,
        nature: Nature,
        floor: u64,
        memory: u64,
        wanted: u64,
    ) -> usize {
        self.programs.push(Program {
            name: name.to_owned(),
            nature,
            floor: floor * MIB,
            process: None,
            session: None,
            is_stopped: false,
            memory: 0,
            target: memory * MIB,
            epoch: 0,
            wanted: wanted * MIB,
            costs: Vec::new(),
            inbox: Vec::new(),
            is_told_done: true,
        });
        let at = self.programs.len() - 1;
        self.start(at);
        at
    }

    fn start(&mut self, at: usize) {
        let process = Process {
            pid: self.next_pid,
            started: self.now,
        };
        self.next_pid += 1;
        self.programs[at].process = Some(process);
        self.publish();
    }

    fn kill(&mut self, at: usize) {
        let program = &mut self.programs[at];
        program.process = None;
        (program.memory, program.target) = (0, program.floor);
        (program.epoch, program.is_stopped) = (0, false);
        program.inbox.clear();
        if let Some(session) = program.session.take() {
            self.core.disconnected(session);
        }
        self.publish();
    }

    fn cut(&mut self, at: usize) {
        if let Some(session) = self.programs[at].session.take() {
            self.core.disconnected(session);
        }
        self.programs[at].inbox.clear();
    }

    /// Lets the kernel of the model know what everybody has.
    fn publish(&mut self) {
        let living = self.programs.iter();
        let living = living.filter_map(|one| Some((one.process?.into(), one.memory)));
        self.machine.0.borrow_mut().memory = living.collect();
    }

    fn connect(&mut self, at: usize) {
        let session = self.next_session;
        self.next_session += 1;
        let program = &mut self.programs[at];
        let Some(process) = program.process else {
            return;
        };
        program.session = Some(session);
        let hello = Hello {
            version: VERSION,
            token: None,
            name: program.name.clone(),
            kind: "model".to_owned(),
            instance: process.pid.to_string(),
            pid: None,
            cgroup: None,
            floor: program.floor,
            ceiling: BUDGET.max(program.floor),
            used: program.memory,
            target: program.target,
            gives_bytes_per_s: None,
            is_fixed: false,
        };
        self.core.connected(session, Some(process.pid), self.now);
        self.say(at, FromParticipant::Hello(hello));
    }

    fn say(&mut self, at: usize, message: FromParticipant) {
        if let Some(session) = self.programs[at].session {
            self.core.message(session, message, self.now);
        }
        self.deliver();
    }

    /// Brings what the broker has sent to whom it is for.
    fn deliver(&mut self) {
        let (sent, closed) = {
            let mut machine = self.machine.0.borrow_mut();
            (
                std::mem::take(&mut machine.sent),
                std::mem::take(&mut machine.closed),
            )
        };
        for (session, message) in sent {
            let to = self
                .programs
                .iter_mut()
                .find(|one| one.session == Some(session));
            if let Some(program) = to {
                program.inbox.push(message);
            }
        }
        for session in closed {
            let of = self
                .programs
                .iter_mut()
                .find(|one| one.session == Some(session));
            if let Some(program) = of {
                program.session = None;
            }
        }
    }

    /// A quarter of a second of everybody's.
    fn step(&mut self) {
        self.now += TICK_MS;
        for at in 0..self.programs.len() {
            self.act(at);
        }
        self.core.tick(self.now);
        self.deliver();
        self.check();
    }

    fn act(&mut self, at: usize) {
        let program = &mut self.programs[at];
        if program.is_stopped || program.process.is_none() {
            return;
        }
        // It works between messages, so it lives by each of them for a moment.
        let read = program.inbox.len().min(self.messages_at_once);
        for message in program.inbox.drain(..read) {
            let (epoch, bytes) = match message {
                FromBroker::Welcome(welcome) => (welcome.epoch, welcome.bytes),
                FromBroker::Target(target) if target.epoch > program.epoch => {
                    (target.epoch, target.bytes)
                }
                _ => continue,
            };
            (program.epoch, program.target) = (epoch, bytes);
            program.is_told_done = false;
        }
        let is_reached = program.work();
        self.publish();
        if self.programs[at].session.is_none() {
            return self.connect(at);
        }
        let report = self.programs[at].report();
        if is_reached && !self.programs[at].is_told_done {
            self.programs[at].is_told_done = true;
            self.say(at, FromParticipant::Done(report));
        } else {
            self.say(at, FromParticipant::Heartbeat(report));
        }
        let demand = Demand {
            used: report.used,
            wanted: self.programs[at].wanted,
            is_stalled: false,
            costs: self.programs[at].costs.clone(),
        };
        self.say(at, FromParticipant::Demand(demand));
    }

    /// The broker dies, and another one goes on with what is on disk.
    fn crash(&mut self) {
        for program in &mut self.programs {
            program.session = None;
            program.inbox.clear();
        }
        let disk = self.machine.0.borrow().disk.clone();
        let ledger = disk.map(|bytes| Ledger::parse(&bytes).unwrap());
        self.machine.0.borrow_mut().refuses = false;
        let (settings, machine) = (self.settings.clone(), self.machine.clone());
        self.core = Core::new(settings, machine, ledger, self.now).unwrap();
        self.deliver();
    }

    fn check(&mut self) {
        self.publish();
        let machine = self.machine.0.borrow();
        let counted = machine.memory.iter();
        let counted = counted.filter(|(process, _)| machine.remote != Some(process.0));
        let total: u64 = counted.map(|(_, bytes)| bytes).sum();
        assert!(
            total <= BUDGET,
            "{total} of {BUDGET} at {}: {:#?}",
            self.now,
            self.programs
        );
        let disk = machine.disk.as_ref().expect("it was written at the start");
        let ledger = Ledger::parse(disk).unwrap();
        let is_lowered = self.settings.budget < BUDGET;
        assert!(is_lowered || ledger.taken() + ledger.reserve <= ledger.budget);
        assert_eq!(&ledger, self.core.ledger(), "what is decided is on disk");
        for program in self.programs.iter().filter(|one| one.epoch > 0) {
            let Some(process) = program.process else {
                continue;
            };
            let share = ledger.shares.get(&program.name);
            let share = share.filter(|share| share.owner.process == Some(process));
            // It lives by no more than it was granted, or has not read yet that it has less.
            let has_all = program.session.is_some() && program.inbox.is_empty();
            if let Some(share) = share.filter(|share| has_all && program.epoch == share.epoch) {
                assert!(program.target <= share.granted, "{program:?}, {share:?}");
            }
        }
    }

    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds * 1_000 / TICK_MS {
            self.step();
        }
    }

    fn granted(&self, at: usize) -> u64 {
        let name = &self.programs[at].name;
        self.core
            .ledger()
            .shares
            .get(name)
            .map_or(0, |share| share.granted / MIB)
    }

    fn audited(&self) -> Vec<String> {
        self.machine.0.borrow().audit.clone()
    }
}

/// Years of bad luck, from a seed.
fn suffer(seed: u64, steps: u64) {
    let mut scene = Scene::new(
        seed,
        Settings {
            dwell_ms: 2_000,
            ..Settings::of_budget(BUDGET)
        },
    );
    let natures = [
        Nature::Honest,
        Nature::Honest,
        Nature::Slow,
        Nature::Liar,
        Nature::Stubborn,
    ];
    for at in 0..scene.rng.random_range(2..6) {
        let nature = natures[scene.rng.random_range(0..natures.len())];
        let floor = scene.rng.random_range(1..256);
        scene.program(&format!("p{at}"), nature, floor, floor, floor);
    }
    for _ in 0..steps {
        scene.messages_at_once = scene.rng.random_range(1..4);
        scene.step();
        let at = scene.rng.random_range(0..scene.programs.len());
        match scene.rng.random_range(0..60) {
            0 => scene.kill(at),
            1 => scene.cut(at),
            2 => scene.programs[at].is_stopped = true,
            3..6 => scene.programs[at].is_stopped = false,
            6 => scene.crash(),
            7 => scene.machine.0.borrow_mut().refuses = true,
            8..12 => scene.machine.0.borrow_mut().refuses = false,
            12 => scene.machine.0.borrow_mut().pressure = 50.0,
            13..16 => scene.machine.0.borrow_mut().pressure = 0.0,
            16..22 => scene.programs[at].wanted = scene.rng.random_range(0..4_096) * MIB,
            22..28 if scene.programs[at].process.is_none() => scene.start(at),
            28..31 => {
                let floor = scene.rng.random_range(1..512) * MIB;
                scene.programs[at].floor = floor;
                let limits = Limits {
                    floor: if scene.rng.random_bool(0.1) {
                        u64::MAX
                    } else {
                        floor
                    },
                    ceiling: u64::MAX,
                    is_fixed: scene.rng.random_bool(0.1),
                };
                scene.say(at, FromParticipant::Limits(limits));
            }
            _ => {}
        }
        scene.check();
    }
}

#[test]
fn no_byte_is_granted_twice_whatever_happens() {
    let seeds: u64 = std::env::var("BROKER_SEEDS").map_or(60, |seeds| seeds.parse().unwrap());
    let first: u64 = std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap());
    for seed in first..first + seeds {
        let result = std::panic::catch_unwind(|| suffer(seed, 1_000));
        assert!(result.is_ok(), "SEED={seed} BROKER_SEEDS=1");
    }
}
