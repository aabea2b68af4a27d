//! The machine and the program that measured.

use std::path::Path;
use std::process::Command;

use aerostat_calibrate::Identity;
use aerostat_calibrate::cores;
use serde::{Deserialize, Serialize};

/// The machine and the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The processor, as the system names it.
    pub(crate) processor: String,
    /// Cores that this process may use.
    pub(crate) cores: usize,
    /// The operating system's kernel.
    pub(crate) kernel: String,
    /// What KVM is here: its modules.
    pub(crate) hypervisor: String,
    /// This program's version.
    pub(crate) version: String,
    /// The commit it was built from, where the sources are still at hand.
    pub(crate) commit: String,
    /// Whether it was built without debug assertions.
    pub(crate) is_release: bool,
}

impl Machine {
    /// This one.
    pub(crate) fn here() -> Machine {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Machine {
            processor: Identity::here().processor,
            cores: cores::allowed().len(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            hypervisor: modules(&read("/proc/modules"), Path::new("/sys/module")),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit().unwrap_or_else(|| "unknown".to_owned()),
            is_release: !cfg!(debug_assertions),
        }
    }
}

/// The number of threads that wanted to run in the last minute, on average.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// KVM's modules, loaded or built in.
fn modules(loaded: &str, built_in: &Path) -> String {
    let known = ["kvm_intel", "kvm_amd", "kvm_pvm", "kvm"];
    let is_here = |name: &&str| {
        let listed = |line: &str| line.split(' ').next() == Some(name);
        loaded.lines().any(listed) || built_in.join(name).exists()
    };
    let here: Vec<&str> = known.into_iter().filter(is_here).collect();
    if here.is_empty() {
        return "none".to_owned();
    }
    here.join(", ")
}

fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(["-C", env!("CARGO_MANIFEST_DIR")])
            .args(arguments)
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    let mark = if changed.is_empty() {
        ""
    } else {
        " with changes"
    };
    Some(format!("{commit}{mark}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_loaded_or_built_in() {
        let folder = tempfile::tempdir().unwrap();
        let loaded = "kvm_amd 200 0 - Live 0x0\nkvm 900 1 kvm_amd, Live 0x0\n";
        assert_eq!(modules(loaded, folder.path()), "kvm_amd, kvm");
        std::fs::create_dir(folder.path().join("kvm_pvm")).unwrap();
        assert_eq!(modules("", folder.path()), "kvm_pvm");
        std::fs::remove_dir(folder.path().join("kvm_pvm")).unwrap();
        assert_eq!(modules("nfs 1", folder.path()), "none");
    }
}
