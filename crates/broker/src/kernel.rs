//! What the Linux kernel says of processes, control groups and pressure.
//!
//! A process is counted by `RssAnon` and `RssShmem` of `/proc/PID/status`: what it holds and only it, or the
//! programs that it shares it with, can give back. Pages of files are not counted, since the kernel takes
//! them back by itself. A control group is counted by its usage without such pages. Memory that was
//! swapped out is not in memory.
//!
//! Control groups of version 2 are limited by `memory.high`, which slows a group down that exceeds it,
//! never by `memory.max`, which kills. Version 1 has `memory.limit_in_bytes`, which the kernel refuses
//! to set below what cannot be taken back.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use crate::{
    core::Account,
    ledger::{Owner, Process},
};

/// Where control groups are.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// The process of a number, unless it is gone or only waits to be reaped.
pub fn process(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let started = parse_stat(&stat)?;
    Some(Process { pid, started })
}

/// When a process started, from `/proc/PID/stat`; `None` where its memory is gone already.
fn parse_stat(stat: &str) -> Option<u64> {
    // The name is in parentheses and may contain anything.
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace();
    // The third field is the state, the 22nd the start.
    let state = fields.next()?;
    let started = fields.nth(18)?;
    match state {
        "Z" | "X" | "x" => None,
        _ => started.parse().ok(),
    }
}

/// What an owner has in memory.
pub fn account(owner: &Owner) -> Account {
    if let Some(known) = owner.process {
        // Another process may have the number by now.
        if process(known.pid) != Some(known) {
            return Account::Gone;
        }
    }
    let bytes = match (&owner.cgroup, owner.process) {
        (Some(cgroup), _) => of_cgroup(cgroup),
        (None, Some(process)) => of_process(process.pid),
        (None, None) => None,
    };
    bytes.map_or(Account::Unknown, Account::Bytes)
}

fn of_process(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    parse_status(&status)
}

/// The bytes of `RssAnon` and `RssShmem`.
fn parse_status(status: &str) -> Option<u64> {
    let of = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(of("RssAnon:")? + of("RssShmem:")?)
}

/// The folder of a control group, if it is one.
///
/// # Errors
/// The path is not below the root of control groups.
pub fn cgroup_folder(cgroup: &str) -> io::Result<PathBuf> {
    let path = Path::new(cgroup);
    let is_plain = path
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !is_plain || !path.starts_with(CGROUP_ROOT) {
        let message = format!("{cgroup:?} is no folder below {CGROUP_ROOT}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(path.to_owned())
}

fn of_cgroup(cgroup: &str) -> Option<u64> {
    let folder = cgroup_folder(cgroup).ok()?;
    let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
    let stat = read("memory.stat")?;
    match (read("memory.current"), read("memory.usage_in_bytes")) {
        (Some(current), _) => {
            let files = stat_of(&stat, "file")?.saturating_sub(stat_of(&stat, "shmem")?);
            let slab = stat_of(&stat, "slab_reclaimable").unwrap_or(0);
            Some(
                current
                    .trim()
                    .parse::<u64>()
                    .ok()?
                    .saturating_sub(files + slab),
            )
        }
        (None, Some(usage)) => {
            let shared = stat_of(&stat, "total_shmem").unwrap_or(0);
            let files = stat_of(&stat, "total_cache")?.saturating_sub(shared);
            Some(usage.trim().parse::<u64>().ok()?.saturating_sub(files))
        }
        (None, None) => None,
    }
}

fn stat_of(stat: &str, field: &str) -> Option<u64> {
    let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
    lines
        .find(|(name, _)| *name == field)?
        .1
        .trim()
        .parse()
        .ok()
}

/// Sets the limit of an owner's control group; nothing where it has none.
///
/// # Errors
/// The kernel refuses.
pub fn limit(owner: &Owner, bytes: u64) -> io::Result<()> {
    let Some(cgroup) = &owner.cgroup else {
        return Ok(());
    };
    let folder = cgroup_folder(cgroup)?;
    let high = folder.join("memory.high");
    let file = match high.exists() {
        true => high,
        false => folder.join("memory.limit_in_bytes"),
    };
    fs::write(file, bytes.to_string())
}

/// The share of time in which some task of the machine waited for memory, in percent over the last ten
/// seconds; 0 where the kernel does not say.
pub fn pressure() -> f64 {
    let text = fs::read_to_string("/proc/pressure/memory");
    text.ok()
        .and_then(|text| parse_pressure(&text))
        .unwrap_or(0.0)
}

fn parse_pressure(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let mut fields = line.split_ascii_whitespace();
    fields
        .find_map(|field| field.strip_prefix("avg10="))?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_known_and_counted() {
        let pid = std::process::id();
        let process = process(pid).unwrap();
        let owner = Owner {
            process: Some(process),
            cgroup: None,
        };
        let before = match account(&owner) {
            Account::Bytes(bytes) => bytes,
            other => panic!("{other:?}"),
        };
        let filled = vec![1u8; 64 << 20];
        let after = match account(&owner) {
            Account::Bytes(bytes) => bytes,
            other => panic!("{other:?}"),
        };
        assert!(after >= before + (60 << 20), "{before}, {after}");
        drop(filled);
        let other = Process {
            started: process.started + 1,
            ..process
        };
        let owner = Owner {
            process: Some(other),
            cgroup: None,
        };
        assert_eq!(account(&owner), Account::Gone);
        assert_eq!(account(&Owner::default()), Account::Unknown);
    }

    #[test]
    fn a_process_that_waits_to_be_reaped_has_gone() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let started = process(child.id()).unwrap();
        child.kill().unwrap();
        let waited = (0..1_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            process(child.id()) != Some(started)
        });
        assert!(waited, "it is a zombie");
        child.wait().unwrap();
    }

    #[test]
    fn names_of_processes_may_be_strange() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        assert_eq!(parse_stat(&format!("7 (a) b (c) {fields}")), Some(777));
        assert_eq!(parse_stat(&format!("7 (a) Z{}", &fields[1..])), None);
        assert_eq!(parse_stat("7 (a"), None);
    }

    #[test]
    fn files_of_the_kernel_are_read() {
        let status = "Name:\tx\nRssAnon:\t    1024 kB\nRssFile:\t  9 kB\nRssShmem:\t  1 kB\n";
        assert_eq!(parse_status(status), Some(1025 * 1024));
        assert_eq!(parse_status("Name:\tkthreadd\n"), None);
        let pressure = "some avg10=12.50 avg60=1.00 avg300=0.00 total=7\nfull avg10=3.00 total=1\n";
        assert_eq!(parse_pressure(pressure), Some(12.5));
        assert_eq!(stat_of("anon 5\nfile 7\n", "file"), Some(7));
    }

    #[test]
    fn other_folders_are_no_control_groups() {
        for wrong in ["/etc", "/sys/fs/cgroup/../../../etc", "a/b", ""] {
            assert!(cgroup_folder(wrong).is_err(), "{wrong}");
        }
        assert!(cgroup_folder("/sys/fs/cgroup/memory/shop").is_ok());
    }
}
