//! What a broker says of itself, and what administrators have it do.

use serde::{Deserialize, Serialize};

use super::{Core, World};
use crate::policy::Policy;

/// How the budget is divided now. Amounts are bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// What there is, the reserve included.
    pub budget: u64,
    /// What is never granted.
    pub reserve: u64,
    /// What may be granted.
    pub free: u64,
    /// What is between two participants.
    pub in_transit: u64,
    /// What is held back since tasks of the machine wait for memory.
    pub held_back: u64,
    /// How memory is divided.
    pub policy: Policy,
    /// Whether moves are only written down.
    pub is_dry_run: bool,
    /// By name.
    pub participants: Vec<ParticipantStatus>,
    /// Programs that wait for their floor.
    pub waiting: Vec<String>,
}

/// How one participant stands. Amounts are bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParticipantStatus {
    /// Its name.
    pub name: String,
    /// The kind of program.
    pub kind: String,
    /// Its process, if it is one of this machine.
    pub pid: Option<u32>,
    /// `connected`, `giving`, `fixed` or `lost`.
    pub state: String,
    /// What it cannot work without.
    pub floor: u64,
    /// The most that it can use.
    pub ceiling: u64,
    /// What it may have.
    pub granted: u64,
    /// What it was told to have.
    pub target: u64,
    /// What the kernel counts.
    pub account: Option<u64>,
    /// What it says that it uses.
    pub used: Option<u64>,
    /// What it says that it wants.
    pub wanted: Option<u64>,
    /// What an administrator has set.
    pub pinned: Option<u64>,
    /// Why it has what it has.
    pub why: String,
}

/// An administrator named somebody who is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// Nobody has this name.
    #[error("there is no participant {0}")]
    Unknown(String),
    /// The participant is connected.
    #[error("{0} is connected: stop it first")]
    Connected(String),
    /// The disk refuses.
    #[error("the ledger cannot be written")]
    NotWritten,
}

impl<W: World> Core<W> {
    /// How the budget is divided now.
    pub fn status(&self) -> Status {
        let in_transit = self.ledger.in_transit.iter().map(|transit| transit.bytes);
        let participants = self.ledger.shares.iter().filter_map(|(name, share)| {
            let member = self.members.get(name)?;
            let state = match member.session {
                None => "lost",
                Some(_) if member.giving.is_some() => "giving",
                Some(_) if share.is_fixed => "fixed",
                Some(_) => "connected",
            };
            Some(ParticipantStatus {
                name: name.clone(),
                kind: share.kind.clone(),
                pid: share.owner.process.map(|process| process.pid),
                state: state.to_owned(),
                floor: share.floor,
                ceiling: share.ceiling,
                granted: share.granted,
                target: share.target,
                account: member.account,
                used: member.report.map(|report| report.used),
                wanted: member.demand.as_ref().map(|(demand, _)| demand.wanted),
                pinned: share.pinned,
                why: member.why.clone(),
            })
        });
        Status {
            budget: self.ledger.budget,
            reserve: self.ledger.reserve,
            free: self.free_now(),
            in_transit: in_transit.sum(),
            held_back: self.pace.held_back(&self.settings),
            policy: self.settings.policy,
            is_dry_run: self.settings.is_dry_run,
            participants: participants.collect(),
            waiting: self.waiting.keys().cloned().collect(),
        }
    }

    /// Has a participant live by so many bytes, within its limits, whatever the policy does; or by the
    /// policy again.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn pin(&mut self, name: &str, bytes: Option<u64>) -> Result<(), AdminError> {
        if !self.ledger.shares.contains_key(name) {
            return Err(AdminError::Unknown(name.to_owned()));
        }
        let is_kept = self.commit(|ledger| {
            if let Some(share) = ledger.shares.get_mut(name) {
                share.pinned = bytes;
            }
        });
        if !is_kept {
            return Err(AdminError::NotWritten);
        }
        let what = if bytes.is_some() {
            "pinned"
        } else {
            "unpinned"
        };
        self.audit(
            what,
            name,
            bytes.unwrap_or(0),
            "an administrator has set it",
        );
        Ok(())
    }

    /// Frees the share of somebody who is lost and whose end the kernel does not tell.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn forget(&mut self, name: &str) -> Result<(), AdminError> {
        match self.members.get(name) {
            None => Err(AdminError::Unknown(name.to_owned())),
            Some(member) if member.session.is_some() => Err(AdminError::Connected(name.to_owned())),
            Some(_) => {
                self.free(name, "an administrator says that it has gone");
                match self.ledger.shares.contains_key(name) {
                    true => Err(AdminError::NotWritten),
                    false => Ok(()),
                }
            }
        }
    }

    /// Divides memory by another policy from now on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.settings.policy = policy;
        self.audit(
            "policy",
            "",
            0,
            &format!("{policy}, as an administrator has set it"),
        );
    }
}
