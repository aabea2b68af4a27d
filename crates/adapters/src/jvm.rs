//! The HotSpot Java virtual machine: its heap, by the attach protocol.
//!
//! | collector | gives memory back | how |
//! |---|---|---|
//! | ZGC | if `ZUncommit` is on, `ZUncommitDelay` is at most 30 s and `-Xms` is below `-Xmx` | `SoftMaxHeapSize`, then a collection |
//! | Shenandoah | if `ShenandoahUncommit` is on and `-Xms` is below `-Xmx` | the same; other collections interrupt it, so it is asked again |
//! | G1 | yes, in a pause, 0.7 to 1.3 s for 6 GB | `MinHeapFreeRatio`, `MaxHeapFreeRatio`, two collections |
//! | Parallel, Serial, Epsilon | no: the kernel counted as much after it | reported as fixed |
//!
//! * G1 takes no limit beside `-Xmx`. After it has given memory back it may grow again, and is then made
//!   smaller again, at most twice a minute.
//! * A collector that maps its heap several times (ZGC without generations) is counted several times by the
//!   kernel, between once and three times. The adapter observes the factor and converts with it.
//! * The adapter must run as the virtual machine's user or as root.

mod attach;
mod demand;
mod facts;

use std::time::{Duration, Instant};

use aerostat_broker::{
    kernel,
    ledger::{Owner, Process},
};
use aerostat_types::ByteSize;

use self::{
    attach::Machine,
    demand::Work,
    facts::{Collector, Flags, Heap},
};
use crate::{
    drive::{Aim, Program},
    error::{AdapterError, OptionsError},
    options::{Common, Options},
    proxy::View,
    scale::Scale,
};

/// The room that a collector needs beyond the live set, so that it does not collect all the time: a
/// quarter.
const ROOM_SHARE: u64 = 4;

/// The least heap that the adapter sets.
const HEAP_BYTES_MIN: u64 = 16 << 20;

/// How long ZGC may take to give back after a collection, beside its own delay.
const PATIENCE: Duration = Duration::from_secs(4);

/// By how much a limit is changed only to have it changed.
const NUDGE_BYTES: u64 = 64 << 10;

/// How a Java virtual machine is reached.
#[derive(Clone, Debug)]
pub struct JvmOptions {
    /// Its process.
    pub pid: u32,
}

impl JvmOptions {
    pub(crate) fn take(options: &mut Options) -> Result<JvmOptions, OptionsError> {
        let pid = options.take_parsed("pid")?;
        Ok(JvmOptions {
            pid: pid.ok_or(OptionsError::Missing("pid"))?,
        })
    }
}

/// A virtual machine that answers.
pub(crate) struct Jvm {
    common: Common,
    process: Process,
    machine: Machine,
    flags: Flags,
    collector: Collector,
    /// `SoftMaxHeapSize`, or the size that G1 was told last.
    heap_max: u64,
    scale: Scale,
    work: Work,
}

pub(crate) async fn connect(common: &Common, options: JvmOptions) -> Result<Jvm, AdapterError> {
    let process = kernel::process(options.pid).ok_or(AdapterError::NoProcess)?;
    let machine = Machine::find(process)?;
    let flags = Flags::parse(&machine.command("VM.flags -all").await?);
    let collector = flags.collector();
    let heap_max = flags.heap_max()?;
    let soft_max = flags.number("SoftMaxHeapSize").filter(|bytes| *bytes > 0);
    let mut jvm = Jvm {
        common: common.clone(),
        process,
        machine,
        heap_max: soft_max.unwrap_or(heap_max),
        collector,
        scale: Scale::known(0, 1.0),
        work: Work::default(),
        flags,
    };
    let account = crate::proxy::account(&jvm.owner()).ok_or(AdapterError::NoProcess)?;
    let heap = jvm.heap().await?;
    jvm.scale = Scale::new(account, heap.used, heap.committed);
    jvm.measure(account, heap);
    Ok(jvm)
}

impl Jvm {
    async fn heap(&self) -> Result<Heap, AdapterError> {
        let text = self.machine.command("GC.heap_info").await?;
        Heap::parse(&text).ok_or(AdapterError::Answer("size of the heap"))
    }

    /// Learns how the kernel counts the heap.
    fn measure(&mut self, account: u64, heap: Heap) {
        let shared = match self.collector {
            // Its heap, and hardly anything else, is shared memory.
            Collector::Z => self.machine.shared_bytes(),
            _ => None,
        };
        match shared {
            Some(shared) if shared > 0 && heap.committed > 0 => {
                let factor = shared as f64 / heap.committed as f64;
                let overhead = account.saturating_sub(shared);
                self.scale = Scale::known(overhead, factor.clamp(1.0, 3.0));
            }
            _ => self.scale.observe(account, heap.used, heap.committed),
        }
    }

    /// Whether the collector gives nothing back, or not in a time in which anyone waits.
    fn is_fixed(&self) -> bool {
        !self.flags.may_give()
    }

    /// The least heap for a live set of so many bytes.
    fn least(&self, live: u64) -> u64 {
        let room = live.saturating_add(live / ROOM_SHARE);
        let start = self.flags.number("MinHeapSize").unwrap_or(0);
        let of_floor = self
            .common
            .floor
            .map(|floor| self.scale.to_adjustable(floor));
        let least = room.max(of_floor.unwrap_or(0)).max(start);
        least.max(HEAP_BYTES_MIN)
    }

    async fn set_flag(&self, name: &str, value: u64) -> Result<(), AdapterError> {
        self.machine.set_flag(name, &value.to_string()).await
    }

    async fn collect(&self) -> Result<(), AdapterError> {
        let answer = self.machine.command("GC.run").await?;
        match answer.contains("disabled") {
            false => Ok(()),
            true => Err(AdapterError::Refused {
                what: "GC.run".to_owned(),
                answer: answer.trim().to_owned(),
            }),
        }
    }

    /// Tells the collector how large the heap may be.
    async fn limit(&mut self, heap: Heap, bytes: u64) -> Result<(), AdapterError> {
        match self.collector {
            Collector::Z | Collector::Shenandoah => {
                // The server rounds down to its own unit at most.
                self.set_flag("SoftMaxHeapSize", bytes).await?;
            }
            Collector::G1 => {
                let (min, max) = facts::free_ratios(heap.used, bytes);
                // Neither may cross the other on the way.
                self.set_flag("MinHeapFreeRatio", 0).await?;
                self.set_flag("MaxHeapFreeRatio", max).await?;
                self.set_flag("MinHeapFreeRatio", min).await?;
            }
            Collector::Other => return Ok(()),
        }
        self.heap_max = bytes;
        Ok(())
    }

    /// Collects and waits until the kernel counts no more than the target.
    async fn shrink(&mut self, aim: Aim<'_>) -> Result<(), AdapterError> {
        let (rounds, patience) = self.rounds();
        for round in 0..rounds {
            let is_shenandoah = self.collector == Collector::Shenandoah;
            if round == 0 || !is_shenandoah {
                self.collect().await?;
            }
            if round == 0 && is_shenandoah {
                // It collects some times more to learn, and each time interrupts its uncommit. A limit that
                // is changed in this time is forgotten (JDK 25); later it begins another uncommit.
                aim.settled(patience).await;
            }
            let nudge = if is_shenandoah {
                round * NUDGE_BYTES
            } else {
                0
            };
            let heap = self.heap().await?;
            self.work.collected(heap.used);
            // The live set was not known before.
            let goal = self
                .scale
                .to_adjustable(aim.target)
                .max(self.least(heap.used))
                .min(self.flags.heap_max()?);
            self.limit(heap, goal.saturating_sub(nudge)).await?;
            if aim.settled(patience).await || aim.is_outdated() {
                break;
            }
            let heap = self.heap().await?;
            self.measure(aim.account(), heap);
        }
        Ok(())
    }

    /// How often the collector is asked for one target, and how long it is waited for each time.
    fn rounds(&self) -> (u64, Duration) {
        match self.collector {
            // It gives by its new ratios in the second collection, and then no more.
            Collector::G1 => (3, Duration::from_millis(200)),
            Collector::Shenandoah => (10, Duration::from_secs(1)),
            Collector::Z | Collector::Other => (3, PATIENCE + self.flags.delay() / 2),
        }
    }
}

impl Program for Jvm {
    const KIND: &'static str = "jvm";

    /// Collections of G1 stop the program.
    const CORRECT: Duration = Duration::from_secs(30);

    fn owner(&self) -> Owner {
        Owner {
            process: Some(self.process),
            cgroup: None,
        }
    }

    async fn connect(&mut self) -> Result<(), AdapterError> {
        // Each command has a connection of its own.
        self.heap().await.map(|_| ())
    }

    async fn look(&mut self, account: u64) -> Result<View, AdapterError> {
        let heap = self.heap().await?;
        self.measure(account, heap);
        self.work.observe(heap.used, Instant::now());
        let heap_max = self.flags.heap_max()?;
        let start = self.flags.number("MinHeapSize").unwrap_or(0);
        let floor = self.scale.to_account(start.max(HEAP_BYTES_MIN));
        let (floor, ceiling) = self.common.limits(floor, self.scale.to_account(heap_max));
        let limit = match self.is_fixed() {
            true => account,
            false => self.scale.to_account(self.heap_max),
        };
        Ok(View {
            floor,
            ceiling,
            limit,
            gives_bytes_per_s: self.flags.gives_bytes_per_s(),
            is_fixed: self.is_fixed(),
            demand: Some(self.work.demand(heap, heap_max, self.scale)),
        })
    }

    async fn approach(&mut self, aim: Aim<'_>) -> Result<u64, AdapterError> {
        let heap = self.heap().await?;
        self.measure(aim.account(), heap);
        let heap_max = self.flags.heap_max()?;
        let asked = self.scale.to_adjustable(aim.target);
        // Without a collection the live set is not known; less than this was never seen.
        let goal = asked.max(self.least(self.work.live())).min(heap_max);
        match aim.account() > aim.target {
            true => self.shrink(aim).await?,
            false => self.limit(heap, goal).await?,
        }
        tracing::info!(
            target = %ByteSize(aim.target),
            heap = %ByteSize(self.heap_max),
            "the heap follows a target"
        );
        // It promises the target, or more where it cannot go as low.
        let is_clamped = self.heap_max > self.scale.to_adjustable(aim.target);
        Ok(match is_clamped && aim.account() > aim.target {
            true => self.scale.to_account(self.heap_max).max(aim.target),
            false => aim.target,
        })
    }
}
