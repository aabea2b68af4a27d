//! A control group with a program in it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::{PATIENCE, Started};

pub(crate) struct Group {
    pub(crate) process: Started,
    pub(crate) folder: PathBuf,
}

impl Group {
    /// A group whose program has so many MiB, or why there is none.
    pub(crate) fn start(mib: u64) -> Result<Group, String> {
        let hierarchies = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"];
        let is_one = |root: &&&str| {
            let root = Path::new(root);
            let files = ["memory.usage_in_bytes", "memory.current"];
            files.iter().any(|file| root.join(file).exists())
                || root.join("cgroup.controllers").exists()
        };
        let root = hierarchies.iter().find(is_one);
        let root = root.ok_or("this machine has no control groups for memory")?;
        let folder = Path::new(root).join(format!("aerostat-test-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        // The shell moves itself before it allocates, so that what it allocates is the group's.
        let script = format!(
            "echo $$ > {}/cgroup.procs && x=$(head -c {} /dev/zero | tr '\\0' a) && echo ready && sleep 60",
            folder.display(),
            mib << 20
        );
        let mut process = Started::new(
            Command::new("sh")
                .args(["-c", &script])
                .stdout(Stdio::piped()),
        );
        let stdout = process.0.stdout.take().expect("it is piped");
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        let group = Group { process, folder };
        match line.trim() {
            "ready" => Ok(group),
            _ => Err("processes cannot be moved into a group".to_owned()),
        }
    }

    /// What the group may have.
    pub(crate) fn limit(&self) -> u64 {
        let files = ["memory.high", "memory.limit_in_bytes"];
        let texts = files
            .iter()
            .filter_map(|file| fs::read_to_string(self.folder.join(file)).ok());
        let text = texts.into_iter().next().unwrap();
        text.trim().parse().unwrap_or(u64::MAX)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What the shell has started is in the group, too, and in no other.
        let text = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for pid in text.lines().filter_map(|line| line.parse().ok()) {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        self.process.kill();
        let started = Instant::now();
        while fs::remove_dir(&self.folder).is_err() && started.elapsed() < PATIENCE / 10 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
