//! Where experiments run.

use std::fmt;

use aerostat_calibrate::{Buffer, Pages};
use aerostat_micro_vm::{Kernel, MicroVm, Paging};
use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Where an experiment runs.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Environment {
    /// As a process of this system.
    Native,
    /// In a virtual machine of our own, without a kernel.
    KvmMicro,
    /// As a process in a control group with limits.
    Cgroup,
    /// As a process in namespaces of its own and a control group with limits.
    Container,
    /// In a virtual machine with Linux in it.
    KvmLinux,
    /// In a machine with Linux in it that is emulated, instruction by instruction.
    Tcg,
}

impl Environment {
    /// All there are.
    pub const ALL: [Environment; 6] = [
        Environment::Native,
        Environment::KvmMicro,
        Environment::Cgroup,
        Environment::Container,
        Environment::KvmLinux,
        Environment::Tcg,
    ];

    /// Those whose times may be compared.
    pub const TIMED: [Environment; 5] = [
        Environment::Native,
        Environment::KvmMicro,
        Environment::Cgroup,
        Environment::Container,
        Environment::KvmLinux,
    ];

    /// Whether a time there beside the native one is an overhead: not of the native one itself,
    /// and not of an emulator's, which says nothing of any machine.
    pub fn has_overhead(self) -> bool {
        !matches!(self, Environment::Native | Environment::Tcg)
    }

    /// Its name with the limits that it has, for figures.
    pub fn label(self, limits: Limits) -> String {
        match self {
            Environment::Cgroup | Environment::Container => format!("{self} ({limits})"),
            Environment::Tcg => format!("{self} (function only)"),
            _ => self.to_string(),
        }
    }

    /// What it is, for reports.
    pub fn describe(self) -> &'static str {
        match self {
            Environment::Native => "a process of this system",
            Environment::KvmMicro => {
                "a guest of KVM in 64-bit user mode without a kernel: this program's machine code on this process's pages, at the same addresses"
            }
            Environment::Cgroup => {
                "a process in a control group of its own, with limits of processor time and memory; on pages of its own"
            }
            Environment::Container => {
                "the same in namespaces of its own: user, mount, pid, net, ipc, uts, cgroup"
            }
            Environment::KvmLinux => {
                "a guest of KVM in qemu with Debian's kernel: a process of that kernel, on its pages"
            }
            Environment::Tcg => {
                "the same guest in qemu's emulator: that all works is shown there, how fast it is means nothing"
            }
        }
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Environment::Native => "native",
            Environment::KvmMicro => "kvm-micro",
            Environment::Cgroup => "cgroup",
            Environment::Container => "container",
            Environment::KvmLinux => "kvm-linux",
            Environment::Tcg => "tcg",
        })
    }
}

/// What processes in a cgroup or container may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Hundredths of a processor.
    pub cpu_hundredths: u32,
    /// MiB of memory.
    pub memory_mib: u32,
}

impl Default for Limits {
    /// A core, and twice as much memory as the largest walks and tables need.
    fn default() -> Limits {
        Limits {
            cpu_hundredths: 100,
            memory_mib: 1024,
        }
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus = f64::from(self.cpu_hundredths) / 100.0;
        write!(f, "{cpus} CPU, {} MiB", self.memory_mib)
    }
}

/// Whether there can be a guest here.
///
/// # Errors
/// Why not.
pub(crate) fn has_guest() -> Result<()> {
    let mut buffer = Buffer::new(1, Pages::Small)?;
    let mut vm = MicroVm::new(buffer.words_mut(), Paging::Small)?;
    vm.guest(Kernel::Clock, 1)?;
    Ok(())
}

/// The environments in the order in which a round takes them: each is first in turn, so that
/// none gets what another has warmed.
pub(crate) fn in_turn(environments: &[Environment], round: usize) -> Vec<Environment> {
    let mut order = environments.to_vec();
    order.rotate_left(round % environments.len().max(1));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_environment_is_first_in_turn() {
        let both = [Environment::Native, Environment::KvmMicro];
        assert_eq!(in_turn(&both, 2), both);
        assert_eq!(in_turn(&both, 3)[0], Environment::KvmMicro);
        assert_eq!(in_turn(&[], 3), []);
    }

    #[test]
    fn names_are_those_of_the_command_line_and_of_files() {
        for environment in Environment::ALL {
            let name = environment.to_string();
            assert_eq!(Environment::from_str(&name, false), Ok(environment));
            let json = serde_json::to_string(&environment).unwrap();
            assert_eq!(json, format!("{name:?}"));
        }
    }

    #[test]
    fn limits_are_in_the_labels_and_an_emulators_times_are_no_overhead() {
        let limits = Limits {
            cpu_hundredths: 50,
            memory_mib: 256,
        };
        assert_eq!(
            Environment::Cgroup.label(limits),
            "cgroup (0.5 CPU, 256 MiB)"
        );
        assert_eq!(Environment::Native.label(limits), "native");
        assert!(!Environment::Tcg.has_overhead() && !Environment::Native.has_overhead());
        assert!(!Environment::TIMED.contains(&Environment::Tcg));
        assert!(Environment::KvmLinux.has_overhead());
    }
}
