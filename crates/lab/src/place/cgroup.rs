//! A control group with limits of processor time and memory, in whichever hierarchy the
//! system has: version 2, or two of version 1.
//!
//! A group is made below the lab's own, or below the nearest one above it where that is
//! allowed. A process of its own waits for the lab's end, however that comes, and removes the
//! group when it is empty (`sweep`).

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::environment::Limits;

/// The time over which processor time is counted, in µs: the kernel's default.
const PERIOD_US: u64 = 100_000;

/// How long a group may be in use after its end was told, and how long until what is in it is killed.
const EMPTY: Duration = Duration::from_secs(5);
const ENDS: Duration = Duration::from_secs(1);

/// A group for one worker. It is removed with this value, after the worker's end.
pub(crate) struct Group {
    folders: Vec<PathBuf>,
    sweeper: Child,
}

impl Group {
    /// A group with these limits.
    ///
    /// # Errors
    /// When there is no hierarchy in which one can be made, with the reasons.
    pub(crate) fn new(
        limits: Limits,
        (program, before): &(PathBuf, Vec<String>),
        name: &str,
    ) -> Result<Group> {
        let read = |path| fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
        let hierarchies = hierarchies(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?);
        let folders = make(&hierarchies, limits, name)?;
        let mut command = Command::new(program);
        command.args(before).args(["helper", "sweep"]);
        for folder in &folders {
            command.arg("--cgroup").arg(folder);
        }
        // In a process group of its own no key that ends the lab reaches it.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let sweeper = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match sweeper {
            Ok(sweeper) => Ok(Group { folders, sweeper }),
            Err(error) => {
                remove(&folders);
                Err(error).context("cannot start the process that removes the cgroup")
            }
        }
    }

    /// Its folders, one for each hierarchy.
    pub(crate) fn folders(&self) -> &[PathBuf] {
        &self.folders
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        drop(self.sweeper.stdin.take());
        let _ = self.sweeper.wait();
    }
}

/// Moves this process into a group.
///
/// # Errors
/// The system's.
pub(crate) fn join(folders: &[PathBuf]) -> Result<()> {
    for folder in folders {
        let file = folder.join("cgroup.procs");
        fs::write(&file, std::process::id().to_string())
            .with_context(|| format!("cannot join {}", folder.display()))?;
    }
    Ok(())
}

/// Kills what is in groups.
fn kill(folders: &[PathBuf]) {
    for folder in folders {
        let listed = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        for process in listed.lines() {
            let _ = Command::new("kill").args(["-KILL", process]).status();
        }
    }
}

/// Waits until the input ends, and removes groups as soon as they are empty. What does not end is killed.
///
/// # Errors
/// When they do not get empty.
pub(crate) fn sweep(folders: &[PathBuf]) -> Result<()> {
    // Whatever it reads, only the end matters.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let started = Instant::now();
    while !remove(folders) {
        // Whatever hears of the lab's end by itself has ended.
        if started.elapsed() > ENDS {
            kill(folders);
        }
        if started.elapsed() > EMPTY {
            bail!("{folders:?} are in use");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Whether none of them is left.
fn remove(folders: &[PathBuf]) -> bool {
    folders
        .iter()
        .filter(|folder| fs::remove_dir(folder).is_err() && folder.exists())
        .count()
        == 0
}

/// A place for groups that limit some things.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    /// `None`: version 2, which has all controllers.
    controller: Option<&'static str>,
    mount: PathBuf,
    /// Where the lab is in it.
    own: PathBuf,
}

/// The hierarchies that matter, from the texts that the system has on mounts and on this
/// process's groups.
fn hierarchies(mounts: &str, own: &str) -> Vec<Hierarchy> {
    let mut found = Vec::new();
    for line in mounts.lines() {
        let Some((before, behind)) = line.split_once(" - ") else {
            continue;
        };
        let (mut before, mut behind) = (before.split(' ').skip(3), behind.split(' '));
        let (Some(root), Some(mount)) = (before.next(), before.next()) else {
            continue;
        };
        let (kind, options) = (behind.next(), behind.nth(1).unwrap_or_default());
        let has = |controller: &&&str| options.split(',').any(|option| option == **controller);
        let controllers: Vec<Option<&'static str>> = match kind {
            Some("cgroup2") => vec![None],
            Some("cgroup") => ["cpu", "memory"]
                .iter()
                .filter(has)
                .copied()
                .map(Some)
                .collect(),
            _ => continue,
        };
        for controller in controllers {
            let path = path_in(own, controller).unwrap_or("/");
            let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
            let mount = PathBuf::from(mount);
            found.push(Hierarchy {
                controller,
                own: mount.join(below),
                mount,
            });
        }
    }
    found
}

/// This process's group in a hierarchy: a line is `number:controllers:path`.
fn path_in<'a>(own: &'a str, controller: Option<&str>) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let is_it = match controller {
            None => controllers.is_empty(),
            Some(controller) => controllers.split(',').any(|one| one == controller),
        };
        is_it.then_some(path)
    })
}

/// Makes a group in version 2, or else one for each controller in version 1.
fn make(hierarchies: &[Hierarchy], limits: Limits, name: &str) -> Result<Vec<PathBuf>> {
    let quota = (u64::from(limits.cpu_hundredths) * PERIOD_US / 100).to_string();
    let bytes = (u64::from(limits.memory_mib) << 20).to_string();
    let both = format!("{quota} {PERIOD_US}");
    let mut reasons = Vec::new();
    if let Some(unified) = hierarchies.iter().find(|one| one.controller.is_none()) {
        let settings = [("cpu.max", &both), ("memory.max", &bytes)];
        match make_in(unified, name, &settings) {
            Ok(folder) => return Ok(vec![folder]),
            Err(error) => reasons.push(format!("version 2: {error:#}")),
        }
    }
    let of_version_1 = [
        ("cpu", [("cpu.cfs_quota_us", &quota)]),
        ("memory", [("memory.limit_in_bytes", &bytes)]),
    ];
    let mut folders = Vec::new();
    for (controller, settings) in of_version_1 {
        let hierarchy = hierarchies
            .iter()
            .find(|one| one.controller == Some(controller));
        let made = hierarchy
            .with_context(|| format!("no hierarchy for {controller}"))
            .and_then(|hierarchy| make_in(hierarchy, name, &settings));
        match made {
            Ok(folder) => folders.push(folder),
            Err(error) => {
                remove(&folders);
                reasons.push(format!("version 1: {error:#}"));
                bail!("no cgroup can be made: {}", reasons.join("; "));
            }
        }
    }
    Ok(folders)
}

/// Makes a group with these settings below the lab's own, or the nearest above it that can
/// have one.
fn make_in(hierarchy: &Hierarchy, name: &str, settings: &[(&str, &String)]) -> Result<PathBuf> {
    let own = match hierarchy.own.is_dir() {
        true => &hierarchy.own,
        // Seen from within a container it may be out of sight.
        false => &hierarchy.mount,
    };
    let mut reason = None;
    for parent in own.ancestors() {
        if !parent.starts_with(&hierarchy.mount) {
            break;
        }
        if hierarchy.controller.is_none() {
            // Refused where it is set already, and where the lab itself is in the way.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+cpu +memory");
        }
        let folder = parent.join(name);
        let made = fs::create_dir(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))
            .and_then(|()| limit(&folder, settings));
        match made {
            Ok(()) => return Ok(folder),
            Err(error) => {
                let _ = fs::remove_dir(&folder);
                reason = Some(error);
            }
        }
    }
    Err(reason.unwrap_or_else(|| anyhow::anyhow!("{} is no folder", own.display())))
}

fn limit(folder: &Path, settings: &[(&str, &String)]) -> Result<()> {
    for (file, value) in settings {
        let path = folder.join(file);
        // Written only where the kernel has put it: otherwise the controller is not there.
        let mut options = fs::OpenOptions::new();
        let written = options
            .write(true)
            .open(&path)
            .and_then(|mut file| std::io::Write::write_all(&mut file, value.as_bytes()));
        written.with_context(|| format!("cannot set {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        cpu_hundredths: 50,
        memory_mib: 64,
    };

    #[test]
    fn hierarchies_are_found_where_they_are_mounted() {
        let mounts = "23 1 0:2 / /proc rw - proc proc rw\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      35 31 0:32 /job /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let own = "4:memory:/job/one\n2:cpu,cpuacct:/\n0::/user.slice/a b\n";
        let found = hierarchies(mounts, own);
        let told: Vec<(Option<&str>, &str)> = found
            .iter()
            .map(|one| (one.controller, one.own.to_str().unwrap()))
            .collect();
        assert_eq!(
            told,
            [
                (Some("cpu"), "/sys/fs/cgroup/cpu,cpuacct/"),
                (Some("memory"), "/sys/fs/cgroup/memory/one"),
                (None, "/sys/fs/cgroup/unified/user.slice/a b"),
            ]
        );
    }

    #[test]
    fn without_controllers_there_is_a_reason_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let hierarchy = |controller| Hierarchy {
            controller,
            mount: folder.path().to_owned(),
            own: folder.path().join("gone"),
        };
        for all in [
            vec![hierarchy(None)],
            vec![hierarchy(Some("cpu")), hierarchy(Some("memory"))],
            vec![],
        ] {
            let error = make(&all, LIMITS, "aerostat-lab-x").unwrap_err();
            let text = format!("{error:#}");
            assert!(text.starts_with("no cgroup can be made: "), "{text}");
            assert!(!folder.path().join("aerostat-lab-x").exists());
        }
    }
}
