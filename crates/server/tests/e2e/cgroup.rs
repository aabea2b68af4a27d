//! Control groups with a limit of memory, in which a node that takes too much is ended by the kernel.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A control group with a limit of memory, in version 2 or 1, whichever is there.
pub(crate) struct Group {
    folder: PathBuf,
    /// The file and the line that count processes which were ended.
    kills: (&'static str, &'static str),
}

impl Group {
    /// A group below this process's own, or why there can be none.
    pub(crate) fn new(limit_mb: u64) -> Result<Group, String> {
        let name = format!("aerostat-test-{}-{limit_mb}", std::process::id());
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        // `number:controllers:path`, the path of this process in the hierarchy.
        let path = |controller: &str| {
            own.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let (controllers, path) = (parts.next()?, parts.next()?);
                (controllers == controller).then(|| path.trim_start_matches('/').to_owned())
            })
        };
        let limit = (limit_mb << 20).to_string();
        let mut reasons = Vec::new();
        for (mount, controller, file, kills) in [
            (
                "/sys/fs/cgroup",
                "",
                "memory.max",
                ("memory.events", "oom_kill "),
            ),
            (
                "/sys/fs/cgroup/memory",
                "memory",
                "memory.limit_in_bytes",
                ("memory.oom_control", "oom_kill "),
            ),
        ] {
            let own = path(controller).unwrap_or_default();
            // Below this process's own group, or where that is not visible, at the top.
            for parent in [Path::new(mount).join(own), PathBuf::from(mount)] {
                let folder = parent.join(&name);
                if let Err(error) = fs::create_dir(&folder) {
                    reasons.push(format!("{}: {error}", folder.display()));
                    continue;
                }
                let group = Group { folder, kills };
                // Where there is no such file already, this is no control group.
                let limited = File::options()
                    .write(true)
                    .open(group.folder.join(file))
                    .and_then(|mut file| file.write_all(limit.as_bytes()));
                match limited {
                    Ok(()) => return Ok(group),
                    Err(error) => {
                        reasons.push(format!("{}/{file}: {error}", group.folder.display()));
                    }
                }
            }
        }
        Err(reasons.join("; "))
    }

    /// What a node's environment says so that it joins the group.
    pub(crate) fn joined(&self) -> (String, String) {
        let members = self.folder.join("cgroup.procs").display().to_string();
        ("JOINED_CGROUP".to_owned(), members)
    }

    /// The processes that the system has ended because of the limit.
    pub(crate) fn kills(&self) -> u64 {
        let (file, line) = self.kills;
        let text = fs::read_to_string(self.folder.join(file)).unwrap();
        let count = text.lines().find_map(|found| found.strip_prefix(line));
        count.unwrap().trim().parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The node has ended; its last thread may take a moment.
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("{} is left", self.folder.display());
    }
}
