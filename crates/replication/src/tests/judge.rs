//! What must hold, whatever happens.

use std::{collections::BTreeMap, ops::RangeInclusive};

use aerostat_types::CommitTs;

use super::disk::{Disk, Record};
use crate::Epoch;

/// How long after its acknowledgement a commit may still be on no disk, in microseconds: the machine has
/// it synced within 200 ms, and a sync takes a while.
const UNSYNCED_MAX: u64 = 700_000;

/// What clients were told.
#[derive(Default)]
pub(super) struct Judge {
    /// What was acknowledged: its change, when, and in which epoch.
    acknowledged: BTreeMap<CommitTs, (u64, u64, Epoch)>,
    pub(super) count: u64,
    pub(super) lost: u64,
}

impl Judge {
    pub(super) fn newest(&self) -> CommitTs {
        let newest = self.acknowledged.last_key_value();
        newest.map_or(CommitTs(0), |(lsn, _)| *lsn)
    }

    /// A client was told that its change is committed.
    pub(super) fn acknowledge(
        &mut self,
        lsn: CommitTs,
        change: u64,
        now: u64,
        epoch: Epoch,
    ) -> Result<(), String> {
        self.count += 1;
        match self.acknowledged.insert(lsn, (change, now, epoch)) {
            Some((other, ..)) if other != change => Err(format!(
                "{lsn} was acknowledged for change {other} and for {change}"
            )),
            _ => Ok(()),
        }
    }

    /// Whoever leads an epoch has everything that was acknowledged until then. One that was paused may begin to lead
    /// when others have led since: it has no member that answers it.
    pub(super) fn examine(&self, who: u32, disk: &Disk, epoch: Epoch) -> Result<(), String> {
        for (lsn, (change, at, of)) in &self.acknowledged {
            if *of > epoch {
                continue;
            }
            let found = disk.get(*lsn);
            if found != Some(Record::Change(*change)) {
                return Err(format!(
                    "node {who} leads and has {found:?} at {lsn}, where change {change} was acknowledged at {at}"
                ));
            }
        }
        Ok(())
    }

    /// A leader answers a strong read with what is committed through a place.
    pub(super) fn read(&self, who: u32, disk: &Disk, committed: CommitTs) -> Result<(), String> {
        let newest = self.newest();
        if newest > committed {
            return Err(format!(
                "node {who} answers a read with {committed}, and {newest} was acknowledged before it"
            ));
        }
        self.examine(who, disk, Epoch(u64::MAX))
    }

    /// Processes have ended, or machines: what no member has any more is lost, if it may be. `members` are the
    /// disks of the members of the configuration that the store has.
    pub(super) fn account(
        &mut self,
        members: &[&Disk],
        now: u64,
        and_sync: bool,
        was_stopped_since: &dyn Fn(u64) -> bool,
    ) -> Result<(), String> {
        let Some((first, change, at)) = self.first_gone(members) else {
            return Ok(());
        };
        if and_sync || members.len() == 1 {
            return Err(format!(
                "change {change} at {first} was on a disk, and is on none"
            ));
        }
        // Who is stopped syncs nothing meanwhile.
        if now > at + UNSYNCED_MAX && !was_stopped_since(at) {
            let waited = (now - at) / 1_000;
            return Err(format!(
                "change {change} at {first} was on no disk {waited} ms after its acknowledgement"
            ));
        }
        self.lose(first);
        Ok(())
    }

    /// The store takes a configuration, perhaps long after a leader asked for it. A node that is no member any more
    /// may be the only one that still has a commit. Such a commit may be lost if every node that had it lost its power
    /// before a sync was due, and not where one of them kept its power. `members` are the disks of the new members;
    /// `lost_power` says whether all members, before and now, lost their power within a span of time.
    pub(super) fn account_for_swap(
        &mut self,
        members: &[&Disk],
        and_sync: bool,
        lost_power: &dyn Fn(RangeInclusive<u64>) -> bool,
    ) -> Result<(), String> {
        let Some((first, change, at)) = self.first_gone(members) else {
            return Ok(());
        };
        let may_be = !and_sync && members.len() > 1 && lost_power(at..=at + UNSYNCED_MAX);
        if !may_be {
            return Err(format!(
                "the store takes members of which none has change {change} at {first}, acknowledged at {at}"
            ));
        }
        self.lose(first);
        Ok(())
    }

    /// The first commit that is on none of these disks: its place, its change, and when it was acknowledged.
    fn first_gone(&self, disks: &[&Disk]) -> Option<(CommitTs, u64, u64)> {
        let is_gone = |lsn: CommitTs, change: u64| {
            let mut disks = disks.iter();
            disks.all(|disk| disk.get(lsn) != Some(Record::Change(change)))
        };
        let mut acknowledged = self.acknowledged.iter();
        acknowledged
            .find_map(|(&lsn, &(change, at, _))| is_gone(lsn, change).then_some((lsn, change, at)))
    }

    /// This commit is lost, and all behind it.
    fn lose(&mut self, first: CommitTs) {
        self.lost += self.acknowledged.split_off(&first).len() as u64;
    }
}
