//! How a program becomes a participant, and comes back after its connection or the broker ended.

use aerostat_balloon::message::{FromBroker, Hello, Limits, RefusedCode, VERSION, Welcome};

use super::{Account, Core, Member, PARTICIPANTS_MAX, SessionId, World};
use crate::ledger::{Owner, Share};

/// How long somebody who found no room is remembered, in milliseconds. It tries again every few
/// seconds.
const WAITS_MS: u64 = 30_000;

/// The disk refuses; the program may try again.
const NOT_WRITTEN: &str = "the ledger cannot be written";

impl<W: World> Core<W> {
    pub(super) fn hello(&mut self, session: SessionId, hello: Hello, now: u64) {
        if let Err((code, message)) = self.admit(session, &hello, now) {
            self.audit("refused", &hello.name, hello.floor, &message);
            self.refuse(session, code, &message);
        }
    }

    fn admit(
        &mut self,
        session: SessionId,
        hello: &Hello,
        now: u64,
    ) -> Result<(), (RefusedCode, String)> {
        let invalid = |message: String| (RefusedCode::Invalid, message);
        if hello.version != VERSION {
            let message = format!("this broker speaks version {VERSION}");
            return Err((RefusedCode::Version, message));
        }
        hello.check().map_err(|error| invalid(error.to_string()))?;
        let owner = self.owner(session, hello).map_err(invalid)?;
        if let Some(share) = self.ledger.shares.get(&hello.name) {
            let is_same = match (share.owner.process, owner.process) {
                (Some(known), Some(process)) => known == process,
                // Another machine's programs are told apart by name alone.
                (None, None) => true,
                _ => false,
            };
            if is_same {
                return self.rejoin(session, hello, owner, now);
            }
            if self.world.account(&share.owner) != Account::Gone {
                let message = format!("{} is another process that lives", hello.name);
                return Err((RefusedCode::NameInUse, message));
            }
            self.free(&hello.name, "its process has gone");
        }
        self.join(session, hello, owner, now)
    }

    /// Whose memory it is.
    fn owner(&mut self, session: SessionId, hello: &Hello) -> Result<Owner, String> {
        let peer = self.sessions.get(&session).and_then(|of| of.peer);
        let Some(peer) = peer else {
            // Another machine's processes and groups are not this kernel's.
            return Ok(Owner::default());
        };
        let pid = hello.pid.unwrap_or(peer);
        let process = self.world.process(pid);
        let process = process.ok_or_else(|| format!("there is no process {pid}"))?;
        let owner = Owner {
            process: Some(process),
            cgroup: hello.cgroup.clone(),
        };
        let mut others = self.ledger.shares.iter();
        let twice = others.find(|(name, share)| {
            let is_of_group = owner.cgroup.is_some() && share.owner.cgroup == owner.cgroup;
            let is_of_process = owner.cgroup.is_none() && share.owner == owner;
            **name != hello.name && (is_of_process || is_of_group)
        });
        match twice {
            Some((name, _)) => Err(format!("this memory has a share already, {name}")),
            None => Ok(owner),
        }
    }

    fn join(
        &mut self,
        session: SessionId,
        hello: &Hello,
        owner: Owner,
        now: u64,
    ) -> Result<(), (RefusedCode, String)> {
        if self.ledger.shares.len() >= PARTICIPANTS_MAX {
            let message = format!("there are {PARTICIPANTS_MAX} participants already");
            return Err((RefusedCode::Full, message));
        }
        let wishes = hello
            .target
            .max(hello.used)
            .clamp(hello.floor, hello.ceiling);
        let free = self.free_now();
        let granted = wishes.min(free);
        if granted < hello.floor {
            self.wait_for(hello, now);
            let message = format!("{free} bytes are free, and its floor is {}", hello.floor);
            return Err((RefusedCode::NoRoom, message));
        }
        let share = Share {
            kind: hello.kind.chars().take(64).collect(),
            instance: hello.instance.clone(),
            owner,
            floor: hello.floor,
            ceiling: hello.ceiling,
            is_fixed: hello.is_fixed,
            pinned: None,
            granted: 0,
            target: 0,
            epoch: 0,
        };
        let name = hello.name.clone();
        let is_kept = self.commit(|ledger| {
            ledger.shares.insert(name.clone(), share);
            ledger.grant(&name, granted);
        });
        if !is_kept {
            return Err((RefusedCode::NoRoom, NOT_WRITTEN.to_owned()));
        }
        self.waiting.remove(&hello.name);
        self.members.insert(hello.name.clone(), Member::default());
        self.audit(
            "joined",
            &hello.name,
            granted,
            "it asked for that, or that was free",
        );
        self.welcome(session, hello);
        Ok(())
    }

    /// Remembers who found no room, unless there never could be as much: nobody is asked for memory that
    /// helps nobody.
    fn wait_for(&mut self, hello: &Hello, now: u64) {
        self.waiting.remove(&hello.name);
        let floors = self.waiting_floors().saturating_add(hello.floor);
        let shares = self.ledger.shares.values().filter(|share| !share.is_fixed);
        let spare = shares.map(|share| share.granted.saturating_sub(share.floor));
        let could_be = spare.fold(self.free_now(), u64::saturating_add);
        if floors <= could_be {
            let waits = (hello.floor, now + WAITS_MS);
            self.waiting.insert(hello.name.clone(), waits);
        }
    }

    /// What those need who wait for room.
    pub(super) fn waiting_floors(&self) -> u64 {
        let floors = self.waiting.values().map(|(floor, _)| *floor);
        floors.fold(0, u64::saturating_add)
    }

    /// A program that the ledger knows. It goes on with its share, by its limits of now.
    fn rejoin(
        &mut self,
        session: SessionId,
        hello: &Hello,
        owner: Owner,
        now: u64,
    ) -> Result<(), (RefusedCode, String)> {
        let name = hello.name.as_str();
        let budget = self.settings.budget;
        let is_kept = self.commit(|ledger| {
            if let Some(share) = ledger.shares.get_mut(name) {
                share.owner = owner;
                share.instance.clone_from(&hello.instance);
                share.set_limits(hello.limits(), budget);
            }
        });
        if !is_kept {
            // Its share is kept for it.
            return Err((RefusedCode::Closing, NOT_WRITTEN.to_owned()));
        }
        let settings = &self.settings;
        if let Some(member) = self.members.get_mut(name) {
            // What it said on another connection says nothing of what it will do now.
            (member.report, member.is_done, member.demand) = (None, false, None);
            if let Some(giving) = &mut member.giving {
                giving.begin_again(now, settings);
            }
            if let Some(other) = member.session.take() {
                self.world.close(other);
                self.sessions.remove(&other);
            }
        }
        self.audit("rejoined", name, 0, "it came back");
        self.welcome(session, hello);
        Ok(())
    }

    /// A program has other limits. Where the ledger cannot be written those of before go on.
    pub(super) fn limits(&mut self, name: &str, limits: Limits) {
        let budget = self.settings.budget;
        let share = self.ledger.shares.get(name);
        if share.is_none_or(|share| share.has_limits(limits, budget)) {
            return;
        }
        self.commit(|ledger| {
            if let Some(share) = ledger.shares.get_mut(name) {
                share.set_limits(limits, budget);
            }
        });
    }

    /// What connected programs lack to their floors, if others can give so much: nobody is asked for
    /// memory that helps nobody.
    pub(super) fn lacking_floors(&self) -> u64 {
        let connected = self.ledger.shares.iter().filter(|(name, _)| {
            let member = self.members.get(*name);
            member.is_some_and(|member| member.session.is_some())
        });
        let (mut lacks, mut could_be) = (0_u64, self.free_now());
        for (_, share) in connected {
            lacks = lacks.saturating_add(share.floor.saturating_sub(share.granted));
            if !share.is_fixed && share.pinned.is_none() {
                let spare = share.granted.saturating_sub(share.floor);
                could_be = could_be.saturating_add(spare);
            }
        }
        if lacks <= could_be { lacks } else { 0 }
    }

    fn welcome(&mut self, session: SessionId, hello: &Hello) {
        let name = hello.name.as_str();
        let share = &self.ledger.shares[name];
        let owner = share.owner.clone();
        let welcome = Welcome {
            version: VERSION,
            epoch: share.epoch,
            bytes: share.target,
            heartbeat_ms: self.settings.heartbeat_ms,
            lease_ms: self.settings.lease_ms,
        };
        let granted = share.granted;
        if let Some(member) = self.members.get_mut(name) {
            member.session = Some(session);
            member.gives_bytes_per_s = hello.gives_bytes_per_s;
        }
        if let Some(of) = self.sessions.get_mut(&session) {
            of.name = Some(name.to_owned());
        }
        if let Err(error) = self.world.limit(&owner, granted) {
            self.audit("not limited", name, granted, &error.to_string());
        }
        self.world.send(session, FromBroker::Welcome(welcome));
    }
}
