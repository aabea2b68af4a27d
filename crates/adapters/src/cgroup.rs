//! All processes of a control group, whatever programs they are.
//!
//! The group gives nothing by itself: only the memory that it does not use can be had from it. Its
//! limit follows the target only when its usage allows that, since a limit below the usage makes the
//! kernel take pages (version 1 refuses with EBUSY, version 2 slows the group down) instead of the
//! program.

use std::{fs, io, path::Path};

use aerostat_balloon::message::Demand;
use aerostat_broker::{
    kernel,
    ledger::{Owner, Process},
};

use crate::{
    drive::{Aim, Program},
    error::{AdapterError, OptionsError},
    options::{Common, Options},
    proxy::{self, View},
};

/// A group that is not told to have less may grow by this share of its usage, as a divisor, before it is
/// looked at again.
const GROWTH_SHARE: u64 = 8;

/// How a control group is found.
#[derive(Clone, Debug)]
pub struct CgroupOptions {
    /// Its folder, below `/sys/fs/cgroup`.
    pub path: String,
    /// A process that belongs to it and lives as long as it; the oldest one in it if not given.
    pub pid: Option<u32>,
}

impl CgroupOptions {
    pub(crate) fn take(options: &mut Options) -> Result<CgroupOptions, OptionsError> {
        Ok(CgroupOptions {
            path: options.take("path").ok_or(OptionsError::Missing("path"))?,
            pid: options.take_parsed("pid")?,
        })
    }
}

/// A control group with at least one process.
pub(crate) struct Cgroup {
    common: Common,
    owner: Owner,
    /// The usage in the beginning, the floor of a group that is given none.
    used_first: u64,
    /// The limit that the adapter has set last.
    limit: Option<u64>,
}

pub(crate) fn connect(common: &Common, options: &CgroupOptions) -> Result<Cgroup, AdapterError> {
    let folder = kernel::cgroup_folder(&options.path)?;
    let process = match options.pid {
        Some(pid) => kernel::process(pid),
        None => oldest(&folder)?,
    };
    let owner = Owner {
        process: Some(process.ok_or(AdapterError::NoProcess)?),
        cgroup: Some(options.path.clone()),
    };
    let used = proxy::account(&owner);
    Ok(Cgroup {
        common: common.clone(),
        owner,
        used_first: used.ok_or(AdapterError::Answer("usage of the control group"))?,
        limit: None,
    })
}

/// The process of a group that started first.
fn oldest(folder: &Path) -> io::Result<Option<Process>> {
    let text = fs::read_to_string(folder.join("cgroup.procs"))?;
    let pids = text.lines().filter_map(|line| line.trim().parse().ok());
    let processes = pids.filter_map(kernel::process);
    Ok(processes.min_by_key(|process| (process.started, process.pid)))
}

impl Cgroup {
    /// Limits the group to so much if it uses no more; whether it is limited then.
    fn try_limit(&mut self, bytes: u64) -> Result<bool, AdapterError> {
        if self.limit == Some(bytes) {
            return Ok(true);
        }
        if proxy::account(&self.owner).is_none_or(|used| used > bytes) {
            return Ok(false);
        }
        match kernel::limit(&self.owner, bytes) {
            Ok(()) => {
                self.limit = Some(bytes);
                Ok(true)
            }
            // It has grown meanwhile: that is an answer.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Program for Cgroup {
    const KIND: &'static str = "cgroup";

    fn owner(&self) -> Owner {
        self.owner.clone()
    }

    async fn connect(&mut self) -> Result<(), AdapterError> {
        Ok(())
    }

    async fn look(&mut self, account: u64) -> Result<View, AdapterError> {
        let (floor, ceiling) = self
            .common
            .limits(self.used_first, proxy::memory_of_machine());
        let wanted = account.saturating_add(account / GROWTH_SHARE);
        Ok(View {
            floor,
            ceiling,
            limit: self.limit.unwrap_or(account),
            gives_bytes_per_s: None,
            is_fixed: false,
            demand: Some(Demand {
                used: account,
                wanted: wanted.min(ceiling),
                is_stalled: self.limit.is_some_and(|limit| wanted > limit),
                costs: Vec::new(),
            }),
        })
    }

    async fn approach(&mut self, aim: Aim<'_>) -> Result<u64, AdapterError> {
        let is_limited = self.try_limit(aim.target)?;
        Ok(match is_limited {
            true => aim.target,
            false => aim.account().max(aim.target),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_process_stands_for_a_group() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let procs = format!("{}\n{}\n4194305\n", child.id(), std::process::id());
        fs::write(folder.path().join("cgroup.procs"), procs).unwrap();
        let found = oldest(folder.path()).unwrap().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.pid, std::process::id());
        fs::write(folder.path().join("cgroup.procs"), "").unwrap();
        assert!(oldest(folder.path()).unwrap().is_none());
    }
}
