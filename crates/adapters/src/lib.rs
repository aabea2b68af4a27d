//! Adapters: participants of the balloon protocol that stand for programs which do not speak it.
//!
//! ```text
//!  broker ◄─ balloon protocol ─► Proxy ◄─ views, targets ─► drive ◄─ the program's own interface ─► program
//!                                  │                                   SQL, RESP, attach, cgroup files, QMP
//!                                  └── what the kernel counts of the program's process
//! ```
//!
//! * The amounts that an adapter tells a broker are those that the kernel counts of the program, so they
//!   include memory that the program cannot adjust. The module `scale` converts between the two.
//! * The participant never waits for the program: one task (`drive`) talks to the program and leaves
//!   its observations in the participant (`proxy`).
//! * An adapter changes settings of a running program only, and no file of its configuration.
//! * An adapter does not start, restart or kill a program. It ends when the program has gone.
//!
//! The abilities of each program were measured before: MariaDB moves its buffer pool online, Redis evicts,
//! a JVM uncommits parts of its heap with some collectors and none with others.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod cgroup;
mod drive;
mod error;
mod jvm;
mod mariadb;
mod options;
mod proxy;
mod rate;
mod redis;
mod scale;
mod vm;

use std::sync::Arc;

use aerostat_balloon::{
    endpoint::Endpoint,
    participant::{self, Participant},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use self::{
    cgroup::CgroupOptions,
    error::{AdapterError, OptionsError},
    jvm::JvmOptions,
    mariadb::MariaDbOptions,
    options::{Address, Common},
    redis::RedisOptions,
    vm::VmOptions,
};

/// A program, how it is reached, and how it is known to the broker.
#[derive(Clone, Debug)]
pub enum Adapter {
    /// MariaDB or MySQL, whose buffer pool is moved.
    MariaDb(Common, MariaDbOptions),
    /// Redis or Valkey, whose `maxmemory` is moved.
    Redis(Common, RedisOptions),
    /// A HotSpot Java virtual machine, whose heap is moved where its collector can give memory back.
    Jvm(Common, JvmOptions),
    /// All processes of a control group, whose limit is moved.
    Cgroup(Common, CgroupOptions),
    /// A virtual machine in QEMU, whose balloon is moved.
    Vm(Common, VmOptions),
}

/// Why an adapter has ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to stop. The program keeps the size that it has.
    Stopped,
    /// The program's process has gone.
    Gone,
}

/// An adapter that has found its program.
pub struct Running {
    /// The participant that stands for the program. Its methods do not wait.
    pub participant: Arc<dyn Participant>,
    /// The task that talks to the program.
    pub ended: JoinHandle<Ended>,
}

impl Adapter {
    /// The adapter for a program of a kind: `mariadb` (or `mysql`), `redis` (or `valkey`), `jvm`,
    /// `cgroup` or `vm`. The options are `key=value` with commas between them; a value contains no comma.
    ///
    /// | kind | options |
    /// |---|---|
    /// | all | `name` (required), `floor` and `ceiling` in bytes with units, as the kernel counts |
    /// | `mariadb` | `socket` or `host` and `port`; `user`, `password` or `password_file`; `pid`; `miss_ms` |
    /// | `redis` | `socket` or `host` and `port`; `user`, `password` or `password_file`; `pid`; `miss_ms` |
    /// | `jvm` | `pid` (required) |
    /// | `cgroup` | `path` (required), the group's folder below `/sys/fs/cgroup`; `pid` |
    /// | `vm` | `qmp` (required), the socket of QEMU's monitor; `pid`; `device`; `miss_ms` |
    ///
    /// # Errors
    /// See [`OptionsError`].
    pub fn parse(kind: &str, options: &str) -> Result<Adapter, OptionsError> {
        let mut options = options::Options::parse(options)?;
        let common = Common::take(&mut options)?;
        let adapter = match kind {
            "mariadb" | "mysql" => Adapter::MariaDb(common, MariaDbOptions::take(&mut options)?),
            "redis" | "valkey" => Adapter::Redis(common, RedisOptions::take(&mut options)?),
            "jvm" => Adapter::Jvm(common, JvmOptions::take(&mut options)?),
            "cgroup" => Adapter::Cgroup(common, CgroupOptions::take(&mut options)?),
            "vm" => Adapter::Vm(common, VmOptions::take(&mut options)?),
            _ => return Err(OptionsError::Kind(kind.to_owned())),
        };
        options.finish()?;
        Ok(adapter)
    }

    /// Finds the program and begins to talk to it. The task ends when the program has gone or
    /// `stopping` is cancelled; it finishes a change of size that it has begun, however long that takes.
    ///
    /// # Errors
    /// The program is not there, is not of this kind, or does not let the adapter in.
    pub async fn start(self, stopping: CancellationToken) -> Result<Running, AdapterError> {
        match self {
            Adapter::MariaDb(common, options) => {
                drive::start(mariadb::connect(&common, options).await?, common, stopping).await
            }
            Adapter::Redis(common, options) => {
                drive::start(redis::connect(&common, options).await?, common, stopping).await
            }
            Adapter::Jvm(common, options) => {
                drive::start(jvm::connect(&common, options).await?, common, stopping).await
            }
            Adapter::Cgroup(common, options) => {
                drive::start(cgroup::connect(&common, &options)?, common, stopping).await
            }
            Adapter::Vm(common, options) => {
                drive::start(vm::connect(&common, options).await?, common, stopping).await
            }
        }
    }
}

/// Represents a program to the broker at an endpoint until the program has gone or `stopping` is
/// cancelled. The token is for brokers of other machines.
///
/// # Errors
/// The program cannot be reached in the beginning, see [`Adapter::start`]. Later the adapter waits
/// for a program whose process lives but that does not answer.
pub async fn run_adapter(
    adapter: Adapter,
    endpoint: Endpoint,
    token: Option<String>,
    stopping: CancellationToken,
) -> Result<Ended, AdapterError> {
    // The connection to the broker ends with the program, too.
    let of_program = stopping.child_token();
    let Running { participant, ended } = adapter.start(stopping).await?;
    let speaking = tokio::spawn(participant::run(
        participant,
        endpoint,
        token,
        of_program.clone(),
    ));
    let ended = ended.await.map_err(|_| AdapterError::Broken)?;
    of_program.cancel();
    speaking.await.map_err(|_| AdapterError::Broken)?;
    Ok(ended)
}
