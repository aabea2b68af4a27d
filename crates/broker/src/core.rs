//! The broker's decisions, without a clock, a socket or a disk of their own.
//!
//! ```text
//!  connected, message, disconnected, tick ──► Core ──► World: ledger made durable, messages, limits
//!                                              ├── sessions   who is connected
//!                                              ├── members    what each share's program said and has
//!                                              └── ledger     what each was granted
//!
//!  a move:  donor's target ─► it says done ─► the kernel counts it ─► ledger ─► donor's limit
//!                                               ledger ─► receiver's limit ─► receiver's target
//! ```
//!
//! * **Give before take.** Memory counts as given when the kernel's own account of the donor has
//!   fallen, and the donor has acknowledged the target. Only then the ledger lowers its grant.
//! * **Durable before told.** No message that grants memory leaves before the ledger says so on disk.
//!   Where the disk refuses, nothing changes and nobody is told anything.
//! * **Silence frees nothing.** A share ends when its owner has gone.
//! * **What a program has beyond its grant is not free** for others, whoever is to blame.
//!
//! The module decides with the time that it is told, so that the tests run years of faults in seconds.

mod join;
mod moving;
mod pace;
mod status;
mod world;

use std::collections::BTreeMap;

use aerostat_balloon::message::{
    Demand, FromBroker, FromParticipant, Refused, RefusedCode, Report, Target,
};

use self::{moving::Giving, pace::Pace};
pub use self::{
    status::{AdminError, ParticipantStatus, Status},
    world::{Account, AuditEntry, SessionId, World},
};
use crate::{
    ledger::{Ledger, Share},
    policy::Policy,
};

/// How a broker behaves. Amounts are bytes, times milliseconds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What all participants may have together, the reserve included.
    pub budget: u64,
    /// What is never granted: the system's, and what programs need for a moment.
    pub reserve: u64,
    /// How memory is divided.
    pub policy: Policy,
    /// Whether moves are only written to the audit log.
    pub is_dry_run: bool,
    /// How often both sides say that they are alive.
    pub heartbeat_ms: u64,
    /// After how much silence a participant is taken for lost.
    pub lease_ms: u64,
    /// How long a participant has to give memory back.
    pub deadline_ms: u64,
    /// The least time between two moves.
    pub dwell_ms: u64,
    /// The share of time in which tasks of the machine wait for memory, in percent over ten seconds, from
    /// which on memory is taken back from participants.
    pub pressure_percent: f64,
}

impl Settings {
    /// Customary settings for a budget, of which a 32nd is the reserve.
    pub fn of_budget(budget: u64) -> Settings {
        Settings {
            budget,
            reserve: budget / 32,
            policy: Policy::default(),
            is_dry_run: false,
            heartbeat_ms: 1_000,
            lease_ms: 5_000,
            deadline_ms: 30_000,
            dwell_ms: 30_000,
            pressure_percent: 10.0,
        }
    }
}

/// The most participants.
pub const PARTICIPANTS_MAX: usize = 256;

/// Decides who has how much memory.
pub struct Core<W> {
    settings: Settings,
    world: W,
    ledger: Ledger,
    sessions: BTreeMap<SessionId, Session>,
    /// Of each share in the ledger.
    members: BTreeMap<String, Member>,
    /// Who was refused for want of memory: its floor, and until when it is remembered.
    waiting: BTreeMap<String, (u64, u64)>,
    pace: Pace,
    /// When heartbeats were sent last.
    beat_at: u64,
}

/// A connection.
struct Session {
    /// The process at the other end, if it is on this machine.
    peer: Option<u32>,
    /// Whose it is, once welcomed.
    name: Option<String>,
    heard_at: u64,
}

/// What is known of a share's program.
#[derive(Default)]
struct Member {
    session: Option<SessionId>,
    report: Option<Report>,
    /// Whether the report says that the target of its epoch is reached as far as can be.
    is_done: bool,
    demand: Option<(Demand, u64)>,
    /// What the kernel counted last.
    account: Option<u64>,
    gives_bytes_per_s: Option<u64>,
    giving: Option<Giving>,
    /// Until when it is not asked for memory again.
    unwilling_until: u64,
    /// Since when it has had more than its grant.
    overdrawn_since: Option<u64>,
    /// Why it has what it has.
    why: String,
}

impl<W: World> Core<W> {
    /// Goes on with a ledger at a time. Memory that was in transit is free.
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub fn new(
        settings: Settings,
        world: W,
        ledger: Option<Ledger>,
        now: u64,
    ) -> std::io::Result<Self> {
        let fresh = || Ledger::new(settings.budget, settings.reserve);
        let mut ledger = ledger.unwrap_or_else(fresh);
        let members = ledger.shares.iter().map(|(name, share)| {
            let giving = (share.target < share.granted).then(|| Giving::resumed(now, &settings));
            let member = Member {
                giving,
                why: "it had it when the broker started".to_owned(),
                ..Member::default()
            };
            (name.clone(), member)
        });
        let members = members.collect();
        ledger.in_transit.clear();
        (ledger.budget, ledger.reserve) = (settings.budget, settings.reserve);
        let mut core = Core {
            settings,
            world,
            ledger,
            sessions: BTreeMap::new(),
            members,
            waiting: BTreeMap::new(),
            pace: Pace::default(),
            beat_at: now,
        };
        core.world.persist(&core.ledger)?;
        core.look_at_accounts(now);
        Ok(core)
    }

    /// What it has written down.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What it acts on.
    pub fn world_mut(&mut self) -> &mut W {
        &mut self.world
    }

    /// Somebody has connected; `peer` is the process, if it is on this machine.
    pub fn connected(&mut self, session: SessionId, peer: Option<u32>, now: u64) {
        let of = Session {
            peer,
            name: None,
            heard_at: now,
        };
        let known = self.sessions.insert(session, of);
        assert!(known.is_none(), "sessions have numbers of their own");
    }

    /// A connection is closed.
    pub fn disconnected(&mut self, session: SessionId) {
        let Some(name) = self.sessions.remove(&session).and_then(|of| of.name) else {
            return;
        };
        if let Some(member) = self.members.get_mut(&name)
            && member.session == Some(session)
        {
            member.session = None;
            self.audit("disconnected", &name, 0, "its connection ended");
        }
    }

    /// A message has come.
    pub fn message(&mut self, session: SessionId, message: FromParticipant, now: u64) {
        let Some(of) = self.sessions.get_mut(&session) else {
            // It was closed meanwhile.
            return;
        };
        of.heard_at = now;
        let name = of.name.clone();
        match (message, name) {
            (FromParticipant::Hello(hello), None) => self.hello(session, hello, now),
            (FromParticipant::Hello(_), Some(_)) => {
                self.refuse(session, RefusedCode::Invalid, "it has said hello already");
            }
            (_, None) => self.refuse(
                session,
                RefusedCode::Invalid,
                "the first message is a hello",
            ),
            (
                FromParticipant::Progress(report) | FromParticipant::Heartbeat(report),
                Some(name),
            ) => {
                self.report(&name, report, false, now);
            }
            (FromParticipant::Done(report), Some(name)) => self.report(&name, report, true, now),
            (FromParticipant::Demand(demand), Some(name)) => match demand.check() {
                Ok(()) => {
                    if let Some(member) = self.members.get_mut(&name) {
                        member.demand = Some((demand, now));
                    }
                }
                Err(error) => self.refuse(session, RefusedCode::Invalid, &error.to_string()),
            },
            (FromParticipant::Limits(limits), Some(name)) => match limits.check() {
                Ok(()) => self.limits(&name, limits),
                Err(error) => self.refuse(session, RefusedCode::Invalid, &error.to_string()),
            },
            (FromParticipant::Bye, Some(name)) => self.bye(session, &name),
        }
    }

    /// What is due. To be called several times a second.
    pub fn tick(&mut self, now: u64) {
        self.look_at_accounts(now);
        self.end_leases(now);
        self.beat(now);
        self.harvest(now);
        self.plan(now);
    }

    /// Refuses everybody, since the broker ends.
    pub fn close(&mut self) {
        let sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        for session in sessions {
            self.refuse(session, RefusedCode::Closing, "the broker ends");
        }
    }

    fn report(&mut self, name: &str, report: Report, is_done: bool, now: u64) {
        let Some(member) = self.members.get_mut(name) else {
            return;
        };
        let is_same = member
            .report
            .is_some_and(|known| known.epoch == report.epoch);
        member.is_done = is_done || (member.is_done && is_same);
        member.report = Some(report);
        if is_done {
            self.harvest(now);
        }
    }

    fn bye(&mut self, session: SessionId, name: &str) {
        self.world.close(session);
        self.disconnected(session);
        let is_remote =
            |share: &Share| share.owner.process.is_none() && share.owner.cgroup.is_none();
        if self.ledger.shares.get(name).is_some_and(is_remote) {
            self.free(name, "it has left, and its memory is another machine's");
        }
    }

    /// Ends a share, whose memory is free from now on.
    fn free(&mut self, name: &str, why: &str) {
        let bytes = self
            .ledger
            .shares
            .get(name)
            .map_or(0, |share| share.granted);
        let is_kept = self.commit(|ledger| {
            ledger.shares.remove(name);
        });
        if is_kept {
            if let Some(session) = self.members.remove(name).and_then(|member| member.session) {
                self.refuse(session, RefusedCode::Closing, why);
            }
            self.audit("freed", name, bytes, why);
        }
    }

    /// Has the kernel count what everybody has, and ends the shares of those that have gone.
    fn look_at_accounts(&mut self, now: u64) {
        let mut gone = Vec::new();
        for (name, share) in &self.ledger.shares {
            let Some(member) = self.members.get_mut(name) else {
                continue;
            };
            match self.world.account(&share.owner) {
                Account::Gone => gone.push(name.clone()),
                Account::Bytes(bytes) => member.account = Some(bytes),
                Account::Unknown => {
                    let told = member.report.map(|report| believed(&report, share));
                    member.account = told;
                }
            }
            let is_over = member.account > Some(share.granted.saturating_add(OVERDRAFT_BYTES));
            member.overdrawn_since = match member.overdrawn_since {
                since if is_over => since.or(Some(now)),
                _ => None,
            };
        }
        for name in gone {
            self.free(&name, "its process has gone");
        }
        self.waiting.retain(|_, (_, until)| now < *until);
    }

    fn end_leases(&mut self, now: u64) {
        let lease_ms = self.settings.lease_ms;
        let silent = self.sessions.iter();
        let silent: Vec<SessionId> = silent
            .filter(|(_, session)| now.saturating_sub(session.heard_at) > lease_ms)
            .map(|(id, _)| *id)
            .collect();
        for session in silent {
            self.world.close(session);
            self.disconnected(session);
        }
    }

    fn beat(&mut self, now: u64) {
        if now.saturating_sub(self.beat_at) < self.settings.heartbeat_ms {
            return;
        }
        self.beat_at = now;
        for (id, session) in &self.sessions {
            if session.name.is_some() {
                self.world.send(*id, FromBroker::Heartbeat);
            }
        }
    }

    /// What is free and nobody has: memory that somebody uses without a grant is not.
    fn free_now(&self) -> u64 {
        self.ledger.free().saturating_sub(self.overdraft())
    }

    /// What the kernel counts beyond the grants.
    fn overdraft(&self) -> u64 {
        let shares = self.ledger.shares.iter();
        let over = shares.map(|(name, share)| {
            let account = self.members.get(name).and_then(|member| member.account);
            account.unwrap_or(0).saturating_sub(share.granted)
        });
        over.fold(0, u64::saturating_add)
    }

    /// Changes the ledger as a whole or not at all; whether it is changed.
    fn commit(&mut self, change: impl FnOnce(&mut Ledger)) -> bool {
        let mut next = self.ledger.clone();
        change(&mut next);
        next.assert_fits(self.ledger.taken());
        match self.world.persist(&next) {
            Ok(()) => {
                self.ledger = next;
                true
            }
            Err(error) => {
                self.audit("not written", "", 0, &format!("the ledger: {error}"));
                false
            }
        }
    }

    /// Says what a share's target is.
    fn tell(&mut self, name: &str) {
        let (Some(share), Some(member)) = (self.ledger.shares.get(name), self.members.get(name))
        else {
            return;
        };
        if let Some(session) = member.session {
            let target = Target {
                epoch: share.epoch,
                bytes: share.target,
                deadline_ms: self.settings.deadline_ms,
            };
            self.world.send(session, FromBroker::Target(target));
        }
    }

    fn refuse(&mut self, session: SessionId, code: RefusedCode, message: &str) {
        let message = message.to_owned();
        let refused = FromBroker::Refused(Refused { code, message });
        self.world.send(session, refused);
        self.world.close(session);
        self.disconnected(session);
    }

    fn audit(&mut self, what: &'static str, name: &str, bytes: u64, why: &str) {
        if let Some(member) = self.members.get_mut(name) {
            why.clone_into(&mut member.why);
        }
        self.world.audit(AuditEntry {
            what,
            name,
            bytes,
            why,
        });
    }
}

/// What a program says that it has and the kernel does not count: others pay for little of it.
fn believed(report: &Report, share: &Share) -> u64 {
    let most = share.granted.saturating_add(OVERDRAFT_BYTES + 1);
    report.used.min(most)
}

/// By how much a program may be above its grant without being said to be: the kernel counts a
/// program's code, stacks and what its allocator keeps.
const OVERDRAFT_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests;
