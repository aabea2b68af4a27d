//! A virtual machine in QEMU: its own size, moved by virtio-balloon through QMP.
//!
//! ```text
//!  broker's target ─► less QEMU's own ─► QMP `balloon` ─► the guest's driver takes pages out of use
//!                                                          └─► QEMU gives them back to the host
//!  guest's statistics ─► what it needs: its size less what is available ─► floor, wanted, costs
//! ```
//!
//! * The balloon's driver takes what it is told to, and the guest's kernel ends programs where that is too
//!   much. So a guest is never made smaller than what it needs and a reserve, by its newest statistics,
//!   and is given back memory while it shrinks if it needs more than before.
//! * A guest without the driver, or one that tells no statistics, is fixed.
//! * What a guest frees stays in QEMU's memory until the balloon has it.
//! * A monitor serves one client: QEMU needs a socket for the adapter alone
//!   (`-qmp unix:/run/vm.qmp,server=on,wait=off`, `-device virtio-balloon-pci`).
//!
//! Sources: QEMU's "QMP Reference Manual" (`balloon`, `query-balloon`), its `docs/interop/virtio-balloon-stats.rst`,
//! and section 5.5 of the virtio specification, 1.2.

mod facts;
mod monitor;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use aerostat_broker::{
    kernel,
    ledger::{Owner, Process},
};
use aerostat_types::ByteSize;
use tokio::time::sleep;

use self::{facts::Facts, monitor::Monitor};
use crate::{
    drive::{Aim, Program},
    error::{AdapterError, OptionsError},
    options::{Common, Options},
    proxy::{self, View},
    rate::Rate,
    scale::Scale,
};

/// What QEMU has for itself, until an observation shows that it is more or less: some 30 MiB for a small guest.
const OVERHEAD_BYTES: u64 = 32 << 20;

/// What a page costs that the guest reads from its disk, if it is not given.
const MISS_MS: f64 = 1.0;

/// How long a balloon may make no progress before its size is left as it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two looks at a balloon that moves.
const LOOK: Duration = Duration::from_millis(100);

/// How often a target is tried, each time with what QEMU itself was found to have.
const ROUNDS_MAX: usize = 3;

/// How long the host's account may take to follow the balloon.
const SETTLES: Duration = Duration::from_millis(500);

/// How a virtual machine is reached.
#[derive(Clone, Debug)]
pub struct VmOptions {
    /// QEMU's monitor, a Unix socket that speaks QMP.
    pub qmp: PathBuf,
    /// QEMU's process, if the socket does not tell.
    pub pid: Option<u32>,
    /// The balloon in QEMU's tree of objects, such as `/machine/peripheral/balloon0`; searched for if it is not
    /// given.
    pub device: Option<String>,
    /// Milliseconds that a page costs that the guest reads from its disk; 1 if not given.
    pub miss_ms: Option<f64>,
}

impl VmOptions {
    pub(crate) fn take(options: &mut Options) -> Result<VmOptions, OptionsError> {
        let qmp = options.take("qmp").ok_or(OptionsError::Missing("qmp"))?;
        Ok(VmOptions {
            qmp: qmp.into(),
            pid: options.take_parsed("pid")?,
            device: options.take("device"),
            miss_ms: options.take_ms("miss_ms")?,
        })
    }
}

/// A virtual machine whose monitor is connected.
pub(crate) struct Vm {
    common: Common,
    options: VmOptions,
    process: Process,
    monitor: Monitor,
    scale: Scale,
    faults: Rate,
}

pub(crate) async fn connect(common: &Common, options: VmOptions) -> Result<Vm, AdapterError> {
    let mut monitor = Monitor::open(&options).await?;
    let pid = options.pid.or(monitor.pid());
    let process = pid.and_then(kernel::process);
    let process = process.ok_or(AdapterError::NoProcess)?;
    let owner = Owner {
        process: Some(process),
        cgroup: None,
    };
    let account = proxy::account(&owner).ok_or(AdapterError::NoProcess)?;
    let facts = monitor.facts().await?;
    let mut scale = Scale::known(OVERHEAD_BYTES, 1.0);
    scale.observe(account, facts.touched(), facts.size);
    Ok(Vm {
        common: common.clone(),
        scale,
        options,
        process,
        monitor,
        faults: Rate::default(),
    })
}

impl Vm {
    async fn facts(&mut self, account: u64) -> Result<Facts, AdapterError> {
        let facts = self.monitor.facts().await?;
        self.scale.observe(account, facts.touched(), facts.size);
        Ok(facts)
    }

    /// Moves the guest to a size, or as near as it can; what it has then.
    async fn resize(&mut self, mut goal: u64, aim: Aim<'_>) -> Result<Facts, AdapterError> {
        self.monitor.set_size(goal).await?;
        let mut facts = self.monitor.facts().await?;
        let (mut distance, mut progress_at) = (facts.size.abs_diff(goal), Instant::now());
        // The driver moves whole pages of its own.
        while !facts.has_size(goal) && !aim.is_outdated() {
            sleep(LOOK).await;
            facts = self.monitor.facts().await?;
            if facts.least() > goal {
                // It needs more than it did: it is to have that at once.
                goal = facts.least().min(facts.size_max);
                self.monitor.set_size(goal).await?;
                distance = u64::MAX;
            }
            let now = facts.size.abs_diff(goal);
            if now < distance {
                (distance, progress_at) = (now, Instant::now());
            }
            if progress_at.elapsed() > PATIENCE {
                break;
            }
        }
        if !facts.has_size(goal) {
            // The driver goes on until it has what it was told, whatever the guest needs then.
            self.monitor.set_size(facts.size).await?;
        }
        Ok(facts)
    }
}

impl Program for Vm {
    const KIND: &'static str = "vm";

    fn owner(&self) -> Owner {
        Owner {
            process: Some(self.process),
            cgroup: None,
        }
    }

    async fn connect(&mut self) -> Result<(), AdapterError> {
        // It greets nobody else before.
        self.monitor.close().await;
        self.monitor = Monitor::open(&self.options).await?;
        Ok(())
    }

    async fn look(&mut self, account: u64) -> Result<View, AdapterError> {
        let facts = self.facts(account).await?;
        if let Some(guest) = &facts.guest {
            self.faults.observe(guest.major_faults, Instant::now());
        }
        let floor = self.scale.to_account(facts.least());
        let most = self.scale.to_account(facts.size_max);
        let (floor, ceiling) = self.common.limits(floor, most);
        let lost_ms_per_s = self.faults.per_s() * self.options.miss_ms.unwrap_or(MISS_MS);
        Ok(View {
            floor,
            ceiling,
            limit: self.scale.to_account(facts.size),
            gives_bytes_per_s: None,
            is_fixed: facts.guest.is_none(),
            demand: facts.demand(account, self.scale, lost_ms_per_s),
        })
    }

    async fn approach(&mut self, aim: Aim<'_>) -> Result<u64, AdapterError> {
        let mut facts = self.facts(aim.account()).await?;
        for _ in 0..ROUNDS_MAX {
            let most = match self.common.ceiling {
                Some(ceiling) => self.scale.to_adjustable(ceiling).min(facts.size_max),
                None => facts.size_max,
            };
            let asked = self.scale.to_adjustable(aim.target);
            let goal = asked.clamp(facts.least().min(most), most);
            facts = self.resize(goal, aim).await?;
            if aim.settled(SETTLES).await || aim.is_outdated() || goal > asked {
                break;
            }
            self.scale
                .observe(aim.account(), facts.touched(), facts.size);
        }
        tracing::info!(
            target = %ByteSize(aim.target),
            size = %ByteSize(facts.size),
            "the virtual machine follows a target"
        );
        // It promises the target, or more where it cannot go as low, even if the guest has not touched all
        // that it is left.
        let asked = self.scale.to_adjustable(aim.target);
        let is_there = facts.size <= asked || facts.has_size(asked);
        Ok(match is_there && aim.account() <= aim.target {
            true => aim.target,
            false => self.scale.to_account(facts.size).max(aim.account()),
        })
    }
}
