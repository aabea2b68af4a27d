//! How memory moves: asked for, given, counted, granted.

use aerostat_balloon::message::Demand;

use super::{Account, Core, Member, Settings, World, believed};
use crate::{
    ledger::{Share, Transit},
    policy::{Candidate, Costs, Policy, Transfer},
};

/// What is given back is granted on as soon as there is so much of it, and not only in the end.
const HARVEST_BYTES_MIN: u64 = 64 << 20;

/// For how long after a program has said that it is done the kernel may still count what it has given
/// back, in milliseconds.
const GRACE_MS: u64 = 2_000;

/// For how long a program that did not give what it was asked for is not asked again, in milliseconds.
const UNWILLING_MS: u64 = 60_000;

/// Memory that is missing is asked for in such units: programs that grow by a page at a time cost no message
/// for each.
const ASK_BYTES: u64 = 4 << 20;

/// Less is not granted by itself, so that wishes that waver cost no messages.
const GRANT_BYTES_MIN: u64 = 4 << 20;

/// A demand that is older, in heartbeats, is not believed.
const DEMAND_BEATS_MAX: u64 = 5;

/// What is assumed of a program that does not say how much it wants: so much more than it uses, as a
/// divisor. When it uses all of its target it is offered more, and when it does not, less.
const HEADROOM_SHARE: u64 = 8;

/// A target that is being approached.
pub(super) struct Giving {
    deadline: u64,
    done_at: Option<u64>,
    /// Whom it is for, in this order; the rest is free.
    parts: Vec<(Option<String>, u64)>,
}

impl Giving {
    fn new(parts: Vec<(Option<String>, u64)>, now: u64, settings: &Settings) -> Giving {
        Giving {
            deadline: now + settings.deadline_ms,
            done_at: None,
            parts,
        }
    }

    /// One that another run of the broker began.
    pub(super) fn resumed(now: u64, settings: &Settings) -> Giving {
        Giving::new(Vec::new(), now, settings)
    }

    /// The program is told of it again.
    pub(super) fn begin_again(&mut self, now: u64, settings: &Settings) {
        self.deadline = now + settings.deadline_ms;
        self.done_at = None;
    }
}

impl<W: World> Core<W> {
    /// Takes what was given back, and grants it to whom it is for.
    pub(super) fn harvest(&mut self, now: u64) {
        self.settle_transits();
        let giving = self.members.iter();
        let giving = giving.filter(|(_, member)| member.giving.is_some());
        let giving: Vec<String> = giving.map(|(name, _)| name.clone()).collect();
        for name in giving {
            self.harvest_from(&name, now);
        }
    }

    fn harvest_from(&mut self, name: &str, now: u64) {
        let Some(share) = self.ledger.shares.get(name).cloned() else {
            return;
        };
        let Some(member) = self.members.get_mut(name) else {
            return;
        };
        // Only what it lives by counts: it could take again what it has not promised to leave.
        let report = member
            .report
            .filter(|report| report.epoch == share.epoch && report.target <= share.target);
        let held = match (report, self.world.account(&share.owner)) {
            (None, _) => share.granted,
            (Some(_), Account::Bytes(bytes)) => bytes,
            (Some(report), Account::Unknown) => believed(&report, &share),
            // The next look ends its share.
            (Some(_), Account::Gone) => return,
        };
        member.account = report.map_or(member.account, |_| Some(held));
        let kept = held.clamp(share.target, share.granted);
        let is_done = member.is_done && report.is_some();
        let Some(giving) = &mut member.giving else {
            return;
        };
        if is_done {
            giving.done_at = giving.done_at.or(Some(now));
        }
        let is_over =
            giving.done_at.is_some_and(|at| now >= at + GRACE_MS) || now >= giving.deadline;
        let is_reached = kept == share.target;
        if is_reached || is_over || share.granted - kept >= HARVEST_BYTES_MIN {
            self.take(name, kept);
        }
        let granted = self
            .ledger
            .shares
            .get(name)
            .map_or(0, |share| share.granted);
        if granted == share.target {
            self.gave(name);
        } else if is_over {
            self.give_up(name, granted - share.target, held, now);
        }
    }

    fn gave(&mut self, name: &str) {
        if let Some(member) = self.members.get_mut(name) {
            member.giving = None;
        }
        let granted = self.ledger.shares[name].granted;
        self.audit("gave", name, granted, "it has given what it was asked for");
    }

    /// The program has not given all of it: it keeps the rest, and is left alone for a while.
    fn give_up(&mut self, name: &str, missing: u64, held: u64, now: u64) {
        let is_kept = self.commit(|ledger| {
            let granted = ledger.shares[name].granted;
            ledger.ask_back(name, granted);
        });
        if !is_kept {
            return;
        }
        let Some(member) = self.members.get_mut(name) else {
            return;
        };
        member.giving = None;
        member.unwilling_until = now + UNWILLING_MS;
        let why = match member.report {
            Some(report) if member.is_done => {
                format!(
                    "it says that it uses {}, the kernel counts {held}",
                    report.used
                )
            }
            Some(_) => format!("it was not done in time, the kernel counts {held}"),
            None => "it said nothing in time".to_owned(),
        };
        self.audit("kept", name, missing, &why);
        self.tell(name);
    }

    /// Takes what a program has beyond `kept` out of its grant, for whom it is.
    fn take(&mut self, name: &str, kept: u64) {
        loop {
            let granted = self
                .ledger
                .shares
                .get(name)
                .map_or(0, |share| share.granted);
            let ready = granted.saturating_sub(kept);
            if ready == 0 {
                return;
            }
            let member = self.members.get_mut(name);
            let part = member.and_then(|member| member.giving.as_mut()?.parts.first().cloned());
            let (to, wanted) = part.unwrap_or((None, u64::MAX));
            let bytes = ready.min(wanted);
            let is_kept = self.commit(|ledger| {
                ledger.take_back(name, granted - bytes, to.as_deref());
            });
            if !is_kept {
                return;
            }
            let parts = self
                .members
                .get_mut(name)
                .and_then(|member| member.giving.as_mut());
            if let Some(parts) = parts.map(|giving| &mut giving.parts)
                && let Some(part) = parts.first_mut()
            {
                part.1 -= bytes;
                if part.1 == 0 {
                    parts.remove(0);
                }
            }
            let owner = self.ledger.shares[name].owner.clone();
            if let Err(error) = self.world.limit(&owner, granted - bytes) {
                self.audit("not limited", name, granted - bytes, &error.to_string());
            }
            self.settle_transits();
        }
    }

    /// Grants what is in transit to whom it is for.
    fn settle_transits(&mut self) {
        for transit in self.ledger.in_transit.clone() {
            let Transit { from, to, bytes } = &transit;
            let takes = |share: &Share| share.target == share.granted;
            let share = self.ledger.shares.get(to).filter(|share| takes(share));
            let room = share.map_or(0, |share| share.ceiling.saturating_sub(share.granted));
            let granted = room.min(*bytes);
            let is_kept = self.commit(|ledger| {
                ledger.arrive(&transit);
                if granted > 0 {
                    ledger.grant(to, granted);
                }
            });
            if is_kept && granted > 0 {
                self.granted(to, granted, &format!("{from} has given it"));
            }
        }
    }

    /// Lets a program know what it was granted.
    fn granted(&mut self, name: &str, bytes: u64, why: &str) {
        let share = &self.ledger.shares[name];
        let (owner, granted) = (share.owner.clone(), share.granted);
        if let Err(error) = self.world.limit(&owner, granted) {
            self.audit("not limited", name, granted, &error.to_string());
        }
        self.audit("granted", name, bytes, why);
        self.tell(name);
    }

    /// Begins what is due to be moved.
    pub(super) fn plan(&mut self, now: u64) {
        let pressure = self.world.pressure();
        self.pace.feel(pressure, now, &self.settings);
        if self.members.values().any(|member| member.giving.is_some()) {
            return;
        }
        let candidates = self.candidates(now);
        let budget = self.settings.budget;
        let (missing, why) = self.missing();
        if missing > 0 {
            let missing = missing.next_multiple_of(ASK_BYTES);
            let transfers = Policy::plan_to_free(budget, missing, &candidates, why);
            return self.execute(transfers, now);
        }
        let floors = self.waiting_floors();
        let set_aside = self.pace.held_back(&self.settings).saturating_add(floors);
        let free = self.free_now().saturating_sub(set_aside);
        let mut transfers = self.settings.policy.plan(budget, free, &candidates);
        transfers.extend(self.pins(free));
        let may_move = self.pace.may_move(now, &self.settings);
        let is_due = |one: &Transfer| match (&one.from, &one.to) {
            (None, _) => one.bytes >= GRANT_BYTES_MIN,
            (Some(_), Some(_)) => may_move,
            (Some(_), None) => true,
        };
        transfers.retain(is_due);
        if transfers
            .iter()
            .any(|one| one.from.is_some() && one.to.is_some())
        {
            self.pace.moved(now);
        }
        self.execute(transfers, now);
    }

    /// How much must come back, whoever wants memory, and why.
    fn missing(&self) -> (u64, &'static str) {
        let budget = self.settings.budget;
        let spent = self.ledger.taken().saturating_add(self.ledger.reserve);
        let spent = spent.saturating_add(self.overdraft());
        if spent > budget {
            return (spent - budget, "more is used than there is");
        }
        let held_back = self.pace.held_back(&self.settings);
        if spent + held_back > budget {
            return (
                spent + held_back - budget,
                "tasks of the machine wait for memory",
            );
        }
        let floors = self.waiting_floors().saturating_add(self.lacking_floors());
        let missing = (spent + held_back)
            .saturating_add(floors)
            .saturating_sub(budget);
        (missing, "a program waits for its floor")
    }

    /// What brings programs with a fixed share to it, out of what is free.
    fn pins(&self, free: u64) -> Vec<Transfer> {
        let mut left = free;
        let mut transfers = Vec::new();
        for (name, share) in &self.ledger.shares {
            let Some(pinned) = share.pinned else { continue };
            let should = pinned.clamp(share.floor, share.ceiling);
            let why = "an administrator has set it".to_owned();
            let more = should.saturating_sub(share.granted).min(left);
            let less = share.granted.saturating_sub(should);
            let is_connected = self
                .members
                .get(name)
                .is_some_and(|one| one.session.is_some());
            if more > 0 {
                left -= more;
                let (from, to) = (None, Some(name.clone()));
                transfers.push(Transfer {
                    from,
                    to,
                    bytes: more,
                    why,
                });
            } else if less > 0 && !share.is_fixed && is_connected {
                let (from, to) = (Some(name.clone()), None);
                transfers.push(Transfer {
                    from,
                    to,
                    bytes: less,
                    why,
                });
            }
        }
        transfers
    }

    fn execute(&mut self, transfers: Vec<Transfer>, now: u64) {
        if self.settings.is_dry_run {
            for Transfer {
                from,
                to,
                bytes,
                why,
            } in transfers
            {
                let name = to.or(from).unwrap_or_default();
                self.audit("would move", &name, bytes, &why);
            }
            return;
        }
        let (granted, asked): (Vec<Transfer>, Vec<Transfer>) =
            transfers.into_iter().partition(|one| one.from.is_none());
        for Transfer { to, bytes, why, .. } in granted {
            let Some(to) = to else { continue };
            let bytes = bytes.min(self.ledger.free());
            if bytes > 0 && self.commit(|ledger| ledger.grant(&to, bytes)) {
                self.granted(&to, bytes, &why);
            }
        }
        let mut donors: Vec<&String> = asked.iter().filter_map(|one| one.from.as_ref()).collect();
        donors.sort();
        donors.dedup();
        for donor in donors {
            let of_donor = asked.iter().filter(|one| one.from.as_ref() == Some(donor));
            let parts: Vec<(Option<String>, u64)> = of_donor
                .clone()
                .map(|one| (one.to.clone(), one.bytes))
                .collect();
            let why = of_donor
                .map(|one| one.why.as_str())
                .next()
                .unwrap_or_default();
            self.ask(donor, parts, why, now);
        }
    }

    fn ask(&mut self, name: &str, parts: Vec<(Option<String>, u64)>, why: &str, now: u64) {
        let bytes: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
        let is_kept = self.commit(|ledger| {
            let granted = ledger.shares[name].granted;
            ledger.ask_back(name, granted - bytes);
        });
        if !is_kept {
            return;
        }
        if let Some(member) = self.members.get_mut(name) {
            member.giving = Some(Giving::new(parts, now, &self.settings));
            member.is_done = false;
        }
        self.audit("asked", name, bytes, why);
        self.tell(name);
    }

    fn candidates(&self, now: u64) -> Vec<Candidate> {
        let shares = self.ledger.shares.iter();
        let with_members =
            shares.filter_map(|(name, share)| Some((name, share, self.members.get(name)?)));
        with_members
            .map(|(name, share, member)| self.candidate(name, share, member, now))
            .collect()
    }

    fn candidate(&self, name: &str, share: &Share, member: &Member, now: u64) -> Candidate {
        let fresh_ms = DEMAND_BEATS_MAX * self.settings.heartbeat_ms;
        let told = member.demand.as_ref();
        let told = told.filter(|(_, at)| now.saturating_sub(*at) <= fresh_ms);
        let demand = match told {
            Some((demand, _)) => demand.clone(),
            None => assumed(share, member),
        };
        let takes_part = member.session.is_some() && share.pinned.is_none();
        Candidate {
            name: name.to_owned(),
            floor: share.floor,
            ceiling: share.ceiling,
            granted: share.granted,
            wanted: demand.wanted,
            costs: Costs::of(&demand),
            gives_bytes_per_s: member.gives_bytes_per_s,
            may_give: takes_part && !share.is_fixed && now >= member.unwilling_until,
            may_take: takes_part && member.overdrawn_since.is_none(),
        }
    }
}

/// What a program would say that does not say what it wants.
fn assumed(share: &Share, member: &Member) -> Demand {
    let used = member.report.map_or(share.granted, |report| report.used);
    // Before its first report nothing is known of it: it keeps what it has.
    let wanted = match member.report {
        Some(report) => report.used.saturating_add(report.used / HEADROOM_SHARE),
        None => share.granted,
    };
    Demand {
        used,
        wanted,
        is_stalled: false,
        costs: Vec::new(),
    }
}
