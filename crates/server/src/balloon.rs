//! The node as a participant of a broker: what it is granted is a cap on its memory.
//!
//! ```text
//!  broker ── target, as the kernel counts ──► NodeMemory ── less the program's own ──► Governor's cap
//!         ◄── what is read back from disk, and would not be with more memory ── Engine
//! ```
//!
//! A target counts beside the node's own setting (`memory`, ALTER SYSTEM): the lower of the two is
//! what the node lives by. It stays while no broker can be reached.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use aerostat_balloon::{
    message::{Cost, Demand, Hello},
    participant::{Connection, Participant},
};
use aerostat_broker::{core::Account, kernel, ledger::Owner};
use aerostat_embedded::{ByteSize, Engine, MEMORY_BYTES_MIN};

/// How fast values of frozen segments are given up, measured (docs/benchmarks.md, "Values that are
/// evicted"): some 0.12 seconds for a GiB.
const GIVES_BYTES_PER_S: u64 = 8 << 30;

/// What reading back costs: a MiB from a disk of a gigabyte a second.
const MS_PER_MIB: f64 = 1.0;

/// What of a target is left for heap that is free for a moment, as a divisor.
const SLACK_PARTS: u64 = 32;

/// How far above what it uses a node that lacks nothing wants to be, as a divisor and at least: room for
/// the next load until the broker has heard of it.
const HEADROOM_PARTS: u64 = 4;
const HEADROOM_BYTES_MIN: u64 = 256 << 20;

/// Between two samples of what was read back.
const SAMPLE: Duration = Duration::from_secs(1);

/// The weight of the newest sample: bursts of a second are no reason to move memory.
const NEWEST: f64 = 0.3;

/// What a node says of itself that is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its name on the broker.
    pub(crate) name: String,
    /// What it cannot work without, in bytes.
    pub(crate) floor: u64,
}

/// A node's memory.
pub(crate) struct NodeMemory {
    engine: Arc<Engine>,
    identity: Identity,
    owner: Owner,
    /// What the process had when it began that is not the engine's.
    base: u64,
    /// What the broker has granted; 0 before it has.
    target: AtomicU64,
    reads: Mutex<Reads>,
}

/// What is read back from disk in a second, and would not be with more memory.
#[derive(Default)]
struct Reads {
    sampled: Option<(Instant, Totals)>,
    bytes_per_s: f64,
    /// By how much more memory, in bytes, and what of it would not be read, ascending.
    saved_per_s: Vec<(u64, f64)>,
}

#[derive(Clone, Default)]
struct Totals {
    read_back: u64,
    saved: Vec<(u64, u64)>,
}

impl NodeMemory {
    pub(crate) fn new(engine: Arc<Engine>, identity: Identity) -> NodeMemory {
        let process = kernel::process(std::process::id());
        let owner = Owner {
            process,
            cgroup: None,
        };
        let held = engine.governor().used() + engine.governor().unreserved();
        let base = account(&owner).saturating_sub(held);
        NodeMemory {
            engine,
            identity,
            owner,
            base,
            target: AtomicU64::new(0),
            reads: Mutex::default(),
        }
    }

    fn granted(&self) -> Option<u64> {
        let target = self.target.load(Ordering::Relaxed);
        (target > 0).then_some(target)
    }

    /// What the engine may reserve of a target. While the kernel counts more than that, it is so much
    /// less.
    fn cap(&self, target: u64) -> u64 {
        let own = self.base + target / SLACK_PARTS;
        let beyond = account(&self.owner).saturating_sub(target);
        target.saturating_sub(own + beyond).max(MEMORY_BYTES_MIN)
    }

    /// Has the engine live by its target.
    fn settle(&self) {
        if let Some(target) = self.granted() {
            let cap = ByteSize(self.cap(target));
            self.engine.governor().set_cap(Some(cap));
        }
    }

    fn totals(&self) -> (Totals, u64) {
        let mut totals = Totals::default();
        let mut evicted_now = 0;
        for of in self.engine.evictions() {
            evicted_now += of.evicted_now;
            totals.read_back += of.read_back;
            for (at, (more, saved)) in of.worth.into_iter().enumerate() {
                match totals.saved.get_mut(at) {
                    Some(sum) => sum.1 += saved,
                    None => totals.saved.push((more, saved)),
                }
            }
        }
        (totals, evicted_now)
    }
}

/// What the kernel counts; 0 where it does not say.
fn account(owner: &Owner) -> u64 {
    match kernel::account(owner) {
        Account::Bytes(bytes) => bytes,
        Account::Gone | Account::Unknown => 0,
    }
}

impl Reads {
    /// Takes a sample into account.
    fn sample(&mut self, now: Instant, totals: Totals) {
        let Some((at, before)) = &self.sampled else {
            self.sampled = Some((now, totals));
            return;
        };
        let elapsed = now.saturating_duration_since(*at);
        if elapsed < SAMPLE {
            return;
        }
        // Less than before where a database was dropped.
        let rate =
            |now: u64, before: u64| now.saturating_sub(before) as f64 / elapsed.as_secs_f64();
        let smooth = |old: f64, new: f64| old + NEWEST * (new - old);
        self.bytes_per_s = smooth(self.bytes_per_s, rate(totals.read_back, before.read_back));
        let known = std::mem::take(&mut self.saved_per_s);
        let saved = totals.saved.iter().enumerate().map(|(at, &(more, saved))| {
            let before = before.saved.get(at).map_or(0, |(_, saved)| *saved);
            let old = known.get(at).map_or(0.0, |(_, rate)| *rate);
            (more, smooth(old, rate(saved, before)))
        });
        self.saved_per_s = saved.collect();
        self.sampled = Some((now, totals));
    }

    /// What the lack of memory costs at `bytes` and above, and where more is of no use any more.
    fn costs(&self, bytes: u64) -> Vec<Cost> {
        let of = |rate: f64| rate / f64::from(1 << 20) * MS_PER_MIB;
        let total = of(self.bytes_per_s);
        // Below a millisecond in a second there is nothing to gain.
        if total < 1.0 {
            return Vec::new();
        }
        let mut costs = vec![Cost {
            bytes,
            ms_per_s: total,
        }];
        for &(more, saved) in &self.saved_per_s {
            let ms_per_s = (total - of(saved)).max(0.0);
            let last = costs.last().map_or(total, |cost| cost.ms_per_s);
            if ms_per_s < last {
                costs.push(Cost {
                    bytes: bytes.saturating_add(more),
                    ms_per_s,
                });
            }
        }
        costs
    }
}

impl Participant for NodeMemory {
    fn hello(&self) -> Hello {
        let governor = self.engine.governor();
        let started = self.owner.process.map_or(0, |process| process.started);
        let own = |bytes: u64| bytes + self.base + bytes / SLACK_PARTS;
        // What is kept for databases is kept from other programs, too.
        let floor = self.identity.floor.max(match governor.minima() {
            0 => 0,
            minima => own(minima),
        });
        let ceiling = own(governor.configured_target()).max(floor);
        Hello {
            version: 0,
            token: None,
            name: self.identity.name.clone(),
            kind: "aerostat".to_owned(),
            instance: format!("{}-{started}", std::process::id()),
            pid: None,
            cgroup: None,
            floor,
            ceiling,
            used: self.used(),
            target: self.granted().unwrap_or_else(|| self.used()),
            gives_bytes_per_s: Some(GIVES_BYTES_PER_S),
            is_fixed: false,
        }
    }

    fn used(&self) -> u64 {
        account(&self.owner)
    }

    fn target(&self) -> u64 {
        self.granted().unwrap_or_else(|| self.used())
    }

    fn set_target(&self, bytes: u64) {
        self.target.store(bytes, Ordering::Relaxed);
        self.settle();
    }

    fn is_reached(&self) -> bool {
        self.settle();
        self.granted().is_none_or(|target| self.used() <= target)
    }

    fn demand(&self) -> Option<Demand> {
        self.settle();
        let used = self.used();
        let (totals, evicted_now) = self.totals();
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        reads.sample(Instant::now(), totals);
        let costs = reads.costs(used);
        let governor = self.engine.governor();
        let (held, limit) = (governor.used() + governor.unreserved(), governor.limit());
        let headroom = (used / HEADROOM_PARTS).max(HEADROOM_BYTES_MIN);
        let wanted = match costs.is_empty() {
            true => used + headroom,
            false => used + evicted_now.max(headroom),
        };
        Some(Demand {
            used,
            wanted,
            // Nothing but what is granted is in the way of the next row.
            is_stalled: evicted_now == 0 && held >= limit - limit / 32,
            costs,
        })
    }

    fn connection(&self, connection: Connection<'_>) {
        match connection {
            Connection::Welcomed(welcome) => {
                tracing::info!(granted = %ByteSize(welcome.bytes), "a broker decides on the memory");
            }
            Connection::Targeted { epoch } => {
                let target = ByteSize(self.target());
                tracing::info!(epoch, target = %target, "the broker has set the memory");
            }
            Connection::Lost(error) => {
                let error = error as &dyn std::error::Error;
                tracing::warn!(error, "no broker; the memory stays as it is");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_again_and_again_costs_until_it_fits() {
        const MIB: u64 = 1 << 20;
        let mut reads = Reads::default();
        let begin = Instant::now();
        let totals = |seconds: u64| Totals {
            read_back: 100 * MIB * seconds,
            // Half of it would not be read with 64 MiB more, all with 256.
            saved: vec![
                (64 * MIB, 50 * MIB * seconds),
                (128 * MIB, 50 * MIB * seconds),
                (256 * MIB, 100 * MIB * seconds),
            ],
        };
        for second in 0..30 {
            reads.sample(begin + Duration::from_secs(second), totals(second));
        }
        let costs = reads.costs(1_000 * MIB);
        let shown: Vec<(u64, u64)> = costs
            .iter()
            .map(|cost| (cost.bytes / MIB, cost.ms_per_s.round() as u64))
            .collect();
        assert_eq!(shown, [(1_000, 100), (1_064, 50), (1_256, 0)]);
        let demand = Demand {
            used: 0,
            wanted: 0,
            is_stalled: false,
            costs,
        };
        assert_eq!(demand.check(), Ok(()));
        // Where nothing is read any more, nothing is to be gained.
        for second in 30..60 {
            reads.sample(begin + Duration::from_secs(second), totals(29));
        }
        assert!(reads.costs(1_000 * MIB).is_empty());
    }
}
