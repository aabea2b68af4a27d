//! Where experiments run.

use std::fmt;

use aerostat_calibrate::{Buffer, Pages, low_quantile};
use aerostat_micro_vm::{Kernel, MicroVm, Paging, native, ticks_per_ns};
use anyhow::{Context, Result};
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
}

impl Environment {
    /// All there are.
    pub const ALL: [Environment; 2] = [Environment::Native, Environment::KvmMicro];

    /// What it is, for reports.
    pub fn describe(self) -> &'static str {
        match self {
            Environment::Native => "a process of this system",
            Environment::KvmMicro => {
                "a guest of KVM in 64-bit user mode without a kernel: this program's machine code on this process's pages, at the same addresses"
            }
        }
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Environment::Native => "native",
            Environment::KvmMicro => "kvm-micro",
        })
    }
}

/// Why there can be no guest here; `None`: there can.
pub(crate) fn no_guest() -> Option<String> {
    let tried = || -> Result<()> {
        let mut buffer = Buffer::new(1, Pages::Small)?;
        let mut vm = MicroVm::new(buffer.words_mut(), Paging::Small)?;
        vm.guest(Kernel::Clock, 1)?;
        Ok(())
    };
    tried().err().map(|error| format!("{error:#}"))
}

/// Words on which kernels are timed, native and in a guest that sees them.
pub struct Bench<'m> {
    memory: Memory<'m>,
    native_rate: f64,
    guest_rate: f64,
}

enum Memory<'m> {
    Process(&'m mut [u32]),
    Guest(Box<MicroVm<'m>>),
}

impl<'m> Bench<'m> {
    /// A bench over `words`, with a guest that sees them by such pages if one is among the
    /// environments.
    ///
    /// # Errors
    /// When there can be no guest.
    pub fn new(
        words: &'m mut [u32],
        paging: Paging,
        environments: &[Environment],
    ) -> Result<Bench<'m>> {
        let native_rate = ticks_per_ns()?;
        if !environments.contains(&Environment::KvmMicro) {
            return Ok(Bench {
                memory: Memory::Process(words),
                native_rate,
                guest_rate: native_rate,
            });
        }
        let mut vm = MicroVm::new(words, paging)?;
        Ok(Bench {
            guest_rate: vm.ticks_per_ns()?,
            memory: Memory::Guest(Box::new(vm)),
            native_rate,
        })
    }

    /// The words.
    pub fn words_mut(&mut self) -> &mut [u32] {
        match &mut self.memory {
            Memory::Process(words) => words,
            Memory::Guest(vm) => vm.words_mut(),
        }
    }

    /// ns of a kernel: the low quantile of some windows, behind one that is not counted.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ns(&mut self, environment: Environment, kernel: Kernel, windows: usize) -> Result<f64> {
        let mut all = self.windows(environment, kernel, windows + 1)?;
        all.remove(0);
        low_quantile(&mut all).context("the clock stands still")
    }

    /// ns of each window of a kernel.
    ///
    /// # Errors
    /// The kernel's.
    pub fn windows(
        &mut self,
        environment: Environment,
        kernel: Kernel,
        windows: usize,
    ) -> Result<Vec<f64>> {
        let (timing, rate) = match (environment, &mut self.memory) {
            (Environment::KvmMicro, Memory::Guest(vm)) => {
                (vm.guest(kernel, windows)?, self.guest_rate)
            }
            (Environment::KvmMicro, Memory::Process(_)) => {
                anyhow::bail!("this bench was made without a guest")
            }
            (Environment::Native, Memory::Guest(vm)) => {
                (vm.native(kernel, windows)?, self.native_rate)
            }
            (Environment::Native, Memory::Process(words)) => {
                (native(words, kernel, windows)?, self.native_rate)
            }
        };
        let ns = timing.ticks.into_iter().map(|ticks| ticks as f64 / rate);
        Ok(ns.collect())
    }
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
        let both = Environment::ALL;
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
}
