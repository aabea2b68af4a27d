//! The ledger: which program was granted how much of the budget.
//!
//! ```text
//!  budget ├─ reserve ─┼─ granted to a ─┼─ granted to b ─┼─ in transit ─┼─ free ─┤
//! ```
//!
//! The parts never exceed the budget ([`Ledger::assert_fits`]), unless the budget was lowered since;
//! nothing is free then. Every change is durable before anybody is told of it, so that a broker that
//! dies and starts again knows at least what it has promised.
//!
//! A share is a program's by name. It ends when the program's process has gone, not when the program
//! is silent: memory that a stopped process holds is not free.

use std::collections::BTreeMap;

use aerostat_balloon::message::Limits;
use serde::{Deserialize, Serialize};

/// The format of the ledger's file.
const VERSION: u32 = 1;

/// Who was granted how much. All amounts are bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    version: u32,
    /// What all programs together may have, the reserve included.
    pub budget: u64,
    /// What is never granted.
    pub reserve: u64,
    /// The last epoch that was given to a target.
    pub epoch: u64,
    /// By name.
    pub shares: BTreeMap<String, Share>,
    /// Memory that was given back, on its way to whom it is granted next.
    pub in_transit: Vec<Transit>,
}

/// What one program was granted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The kind of program, for people.
    pub kind: String,
    /// Tells this run of the program from another one.
    pub instance: String,
    /// Whose memory it is.
    pub owner: Owner,
    /// What the program cannot work without.
    pub floor: u64,
    /// The most that it can use.
    pub ceiling: u64,
    /// Whether it cannot give memory back.
    pub is_fixed: bool,
    /// What an administrator wants it to have, whatever the policy does.
    #[serde(default)]
    pub pinned: Option<u64>,
    /// What it may have.
    pub granted: u64,
    /// What it was told to have: less than `granted` while it gives back.
    pub target: u64,
    /// Of the message that told it.
    pub epoch: u64,
}

/// Whose memory a share is, as the kernel knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// A process of this machine.
    #[serde(default)]
    pub process: Option<Process>,
    /// A control group, whose limit follows the grant.
    #[serde(default)]
    pub cgroup: Option<String>,
}

/// A process. Its number alone may belong to another one by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started, in ticks since the machine did.
    pub started: u64,
}

/// Memory between two programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transit {
    /// Who gave it.
    pub from: String,
    /// Who is to have it.
    pub to: String,
    /// How much.
    pub bytes: u64,
}

/// Why a ledger cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// It is no ledger.
    #[error("the ledger is damaged")]
    Damaged(#[from] serde_json::Error),
    /// It is of another version.
    #[error("the ledger has version {0}, this broker reads {VERSION}")]
    Version(u32),
}

impl Share {
    /// Takes other limits. A floor above the whole budget is one of all of it.
    pub(crate) fn set_limits(&mut self, limits: Limits, budget: u64) {
        (self.floor, self.ceiling) = (limits.floor.min(budget), limits.ceiling);
        self.is_fixed = limits.is_fixed;
    }

    /// Whether these are its limits.
    pub(crate) fn has_limits(&self, limits: Limits, budget: u64) -> bool {
        let own = (self.floor, self.ceiling, self.is_fixed);
        own == (limits.floor.min(budget), limits.ceiling, limits.is_fixed)
    }
}

impl Ledger {
    /// A ledger in which nothing is granted.
    pub fn new(budget: u64, reserve: u64) -> Ledger {
        Ledger {
            version: VERSION,
            budget,
            reserve,
            epoch: 0,
            shares: BTreeMap::new(),
            in_transit: Vec::new(),
        }
    }

    /// What a file says.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub fn parse(bytes: &[u8]) -> Result<Ledger, LedgerError> {
        let ledger: Ledger = serde_json::from_slice(bytes)?;
        if ledger.version != VERSION {
            return Err(LedgerError::Version(ledger.version));
        }
        Ok(ledger)
    }

    /// The file's bytes.
    pub fn render(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("a ledger has nothing that JSON has not")
    }

    /// What is granted or in transit.
    pub fn taken(&self) -> u64 {
        let granted = self.shares.values().map(|share| share.granted);
        let in_transit = self.in_transit.iter().map(|transit| transit.bytes);
        granted.chain(in_transit).fold(0, u64::saturating_add)
    }

    /// What may still be granted.
    pub fn free(&self) -> u64 {
        let spent = self.taken().saturating_add(self.reserve);
        self.budget.saturating_sub(spent)
    }

    /// The next epoch.
    pub fn next_epoch(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }

    /// Grants a part of what is free, and sets the target accordingly.
    ///
    /// # Panics
    /// When there is not that much, or nobody of this name.
    pub fn grant(&mut self, name: &str, bytes: u64) {
        assert!(bytes <= self.free(), "{bytes} of {} bytes", self.free());
        let epoch = self.next_epoch();
        let share = self.share_mut(name);
        share.granted += bytes;
        share.target = share.granted;
        share.epoch = epoch;
    }

    /// Wants some of a share back: its target falls, its grant does not yet.
    ///
    /// # Panics
    /// When the target is above what is granted, or nobody has this name.
    pub fn ask_back(&mut self, name: &str, target: u64) {
        let epoch = self.next_epoch();
        let share = self.share_mut(name);
        assert!(target <= share.granted, "{target} of {}", share.granted);
        share.target = target;
        share.epoch = epoch;
    }

    /// Takes what a program has given back, which is in transit to `to` then, or free.
    ///
    /// # Panics
    /// When the program was told to have more than that, or nobody has this name.
    pub fn take_back(&mut self, name: &str, granted: u64, to: Option<&str>) -> u64 {
        let share = self.share_mut(name);
        assert!(
            share.target <= granted && granted <= share.granted,
            "{granted} is between {} and {}",
            share.target,
            share.granted
        );
        let bytes = share.granted - granted;
        share.granted = granted;
        if let Some(to) = to
            && bytes > 0
        {
            self.in_transit.push(Transit {
                from: name.to_owned(),
                to: to.to_owned(),
                bytes,
            });
        }
        bytes
    }

    /// Ends a transit, so that its bytes are free.
    pub fn arrive(&mut self, transit: &Transit) {
        let at = self.in_transit.iter().position(|one| one == transit);
        if let Some(at) = at {
            self.in_transit.swap_remove(at);
        }
    }

    /// Panics when more is granted than there is, which no operation brings about. A budget that was
    /// lowered may be exceeded: `taken_max` is what was taken before.
    pub fn assert_fits(&self, taken_max: u64) {
        let taken = self.taken();
        let fits = taken.saturating_add(self.reserve) <= self.budget || taken <= taken_max;
        assert!(fits, "{taken} of {} bytes are taken", self.budget);
        for (name, share) in &self.shares {
            let (target, granted) = (share.target, share.granted);
            assert!(target <= granted, "{name}: {target} of {granted}");
            assert!(share.epoch <= self.epoch, "{name}: an epoch to come");
        }
    }

    fn share_mut(&mut self, name: &str) -> &mut Share {
        self.shares
            .get_mut(name)
            .expect("the caller knows the name")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(granted: u64) -> Share {
        Share {
            kind: String::new(),
            instance: "1".to_owned(),
            owner: Owner::default(),
            floor: 0,
            ceiling: 1_000,
            is_fixed: false,
            pinned: None,
            granted,
            target: granted,
            epoch: 0,
        }
    }

    fn of(shares: &[(&str, u64)]) -> Ledger {
        let mut ledger = Ledger::new(1_000, 100);
        let shares = shares.iter();
        ledger.shares = shares
            .map(|&(name, granted)| (name.to_owned(), share(granted)))
            .collect();
        ledger
    }

    #[test]
    fn a_move_never_counts_twice() {
        let mut ledger = of(&[("a", 500), ("b", 300)]);
        assert_eq!((ledger.taken(), ledger.free()), (800, 100));
        ledger.ask_back("a", 400);
        assert_eq!(ledger.free(), 100, "what is asked for is not there yet");
        assert_eq!(ledger.take_back("a", 450, Some("b")), 50);
        assert_eq!(ledger.free(), 100, "what is in transit is not free");
        let transit = ledger.in_transit[0].clone();
        ledger.arrive(&transit);
        ledger.grant("b", transit.bytes);
        ledger.assert_fits(0);
        let b = &ledger.shares["b"];
        assert_eq!(
            (b.granted, b.target, b.epoch, ledger.epoch),
            (350, 350, 2, 2)
        );
        assert_eq!(Ledger::parse(&ledger.render()).unwrap(), ledger);
    }

    #[test]
    #[should_panic(expected = "101 of 100 bytes")]
    fn what_is_not_free_is_not_granted() {
        of(&[("a", 500), ("b", 300)]).grant("a", 101);
    }

    #[test]
    #[should_panic(expected = "901 of 1000 bytes are taken")]
    fn the_reserve_is_kept() {
        of(&[("a", 901)]).assert_fits(0);
    }

    #[test]
    fn a_lowered_budget_is_exceeded_and_nothing_is_free() {
        let mut ledger = of(&[("a", 500)]);
        ledger.budget = 300;
        assert_eq!(ledger.free(), 0);
        ledger.assert_fits(500);
    }

    #[test]
    fn other_files_are_refused() {
        let of = |text: &str| Ledger::parse(text.as_bytes());
        assert!(matches!(of(""), Err(LedgerError::Damaged(_))));
        assert!(matches!(of("{}"), Err(LedgerError::Damaged(_))));
        let mut other = Ledger::new(1, 0);
        other.version = 2;
        let text = String::from_utf8(other.render()).unwrap();
        assert!(matches!(of(&text), Err(LedgerError::Version(2))));
    }
}
