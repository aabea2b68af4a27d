//! The node as a participant of a broker: what it is granted is a cap on its memory.
//!
//! ```text
//!  broker ── target, as the kernel counts ──► NodeMemory ── less the program's own ──► Governor's cap
//!         ◄── what is read back from disk, and would not be with more memory ── Engine
//! ```
//!
//! A target counts beside the node's own setting (`memory`, ALTER SYSTEM): the lower of the two is
//! what the node lives by. It stays while no broker can be reached. A broker that has no room for the node
//! counts none of its memory: the node lives by its floor until it is let in.
//!
//! The broker is asked before the databases are opened, so that what they load fits into the grant
//! ([`Granted::ask`]). Asked for is what the node had before it ended, which stands in its data folder.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use aerostat_balloon::{
    endpoint::Endpoint,
    message::{Cost, Demand, Hello, RefusedCode},
    participant::{self, Connection, ConnectionError, Participant},
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

/// How much more than what is granted is asked for while a statement waits, as a divisor.
const ASKED_PARTS: u64 = 2;

/// Between two samples of what was read back.
const SAMPLE: Duration = Duration::from_secs(1);

/// The weight of the newest sample: bursts of a second are no reason to move memory.
const NEWEST: f64 = 0.3;

/// How long a node that starts waits for its broker, and between two attempts.
const BEGIN_MAX: Duration = Duration::from_secs(3);
const BEGIN_AGAIN: Duration = Duration::from_millis(100);

/// The file of the data folder with the last grant, in bytes.
const GRANT_FILE: &str = "grant";

/// What a node says of itself that is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its name on the broker.
    pub(crate) name: String,
    /// What it cannot work without, in bytes.
    pub(crate) floor: u64,
}

/// What a broker grants a node before it has opened its databases.
pub(crate) struct Granted {
    identity: Identity,
    owner: Owner,
    /// What the process has that is not the engine's.
    base: u64,
    /// Where the last grant is kept.
    file: PathBuf,
    /// 0 where no broker has granted anything.
    bytes: u64,
}

impl Granted {
    /// Asks a broker that divides memory for this node, which has a data folder and may have `memory` at
    /// most.
    pub(crate) async fn ask(
        identity: Identity,
        data: &Path,
        memory: ByteSize,
        endpoint: &Endpoint,
        token: Option<String>,
    ) -> Granted {
        let owner = Owner {
            process: kernel::process(std::process::id()),
            cgroup: None,
        };
        let mut granted = Granted {
            base: account(&owner),
            file: data.join(GRANT_FILE),
            identity,
            owner,
            bytes: 0,
        };
        let last = granted.last();
        let ceiling = granted.own(memory.0).max(granted.identity.floor);
        let mut hello = granted.hello(granted.identity.floor, ceiling);
        hello.target = last.unwrap_or(0).max(hello.used);
        let begun = Instant::now();
        let error = loop {
            let asked = participant::ask(hello.clone(), endpoint, token.clone());
            let left = BEGIN_MAX.saturating_sub(begun.elapsed());
            match tokio::time::timeout(left, asked).await {
                Ok(Ok(welcome)) => {
                    granted.bytes = welcome.bytes;
                    return granted;
                }
                Ok(Err(error)) if begun.elapsed() + BEGIN_AGAIN >= BEGIN_MAX => break error,
                Ok(Err(_)) => tokio::time::sleep(BEGIN_AGAIN).await,
                Err(_) => break ConnectionError::Silent,
            }
        };
        let floor = granted.identity.floor;
        granted.bytes = match (&error, last) {
            // It has nothing for the node, which needs its floor.
            (ConnectionError::Refused(_), _) => floor,
            // What it lived by before is the best guess at what the broker has for it.
            (_, Some(last)) => last.max(floor),
            (_, None) => 0,
        };
        let begins_with = match granted.cap() {
            Some(cap) => cap.min(memory),
            None => memory,
        };
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, memory = %begins_with, "no grant; the node begins without the broker's word");
        granted
    }

    /// What the node had before it ended, if a broker had granted it.
    fn last(&self) -> Option<u64> {
        let text = fs::read_to_string(&self.file).ok()?;
        text.trim().parse().ok()
    }

    /// What the engine may reserve at first; `None`: as if there were no broker.
    pub(crate) fn cap(&self) -> Option<ByteSize> {
        (self.bytes > 0).then(|| ByteSize(self.reserved_of(self.bytes, account(&self.owner))))
    }

    /// What the engine may reserve of a target while the kernel counts so much. While that is more than the
    /// target, it is so much less.
    fn reserved_of(&self, target: u64, counted: u64) -> u64 {
        let own = self.base + target / SLACK_PARTS;
        let beyond = counted.saturating_sub(target);
        target.saturating_sub(own + beyond).max(MEMORY_BYTES_MIN)
    }

    /// What the process takes whose engine reserves so much.
    fn own(&self, reserved: u64) -> u64 {
        reserved + self.base + reserved / SLACK_PARTS
    }

    fn hello(&self, floor: u64, ceiling: u64) -> Hello {
        let started = self.owner.process.map_or(0, |process| process.started);
        let used = account(&self.owner);
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
            used,
            target: used,
            gives_bytes_per_s: Some(GIVES_BYTES_PER_S),
            is_fixed: false,
        }
    }

    /// Writes a grant down for the next start.
    fn keep(&self, bytes: u64) -> io::Result<()> {
        let beside = self.file.with_extension("new");
        fs::write(&beside, format!("{bytes}\n"))?;
        fs::rename(&beside, &self.file)
    }
}

/// A node's memory.
pub(crate) struct NodeMemory {
    engine: Arc<Engine>,
    begun: Granted,
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
    pub(crate) fn new(engine: Arc<Engine>, begun: Granted) -> NodeMemory {
        NodeMemory {
            engine,
            target: begun.bytes.into(),
            begun,
            reads: Mutex::default(),
        }
    }

    fn granted(&self) -> Option<u64> {
        let target = self.target.load(Ordering::Relaxed);
        (target > 0).then_some(target)
    }

    /// Has the engine live by its target.
    fn settle(&self) {
        if let Some(target) = self.granted() {
            let cap = self.begun.reserved_of(target, self.used());
            self.engine.governor().set_cap(Some(ByteSize(cap)));
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
        // What is kept for databases is kept from other programs, too.
        let floor = self.begun.identity.floor.max(match governor.minima() {
            0 => 0,
            minima => self.begun.own(minima),
        });
        let ceiling = self.begun.own(governor.configured_target()).max(floor);
        let hello = self.begun.hello(floor, ceiling);
        let target = self.granted().unwrap_or(hello.used);
        Hello { target, ..hello }
    }

    fn used(&self) -> u64 {
        account(&self.begun.owner)
    }

    fn target(&self) -> u64 {
        self.granted().unwrap_or_else(|| self.used())
    }

    fn set_target(&self, bytes: u64) {
        let before = self.target.swap(bytes, Ordering::Relaxed);
        self.settle();
        if before != bytes
            && let Err(error) = self.begun.keep(bytes)
        {
            tracing::warn!(%error, "the grant cannot be written down for the next start");
        }
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
        // What a statement that waits has asked for it has given back: it needs more than is granted, and
        // nobody knows how much.
        let waits = self.engine.waits_for_memory();
        let asked = match (waits, self.granted()) {
            (true, Some(granted)) => granted + (granted / ASKED_PARTS).max(HEADROOM_BYTES_MIN),
            _ => 0,
        };
        Some(Demand {
            used,
            wanted: wanted.max(asked),
            // Nothing but what is granted is in the way of the next row.
            is_stalled: waits || evicted_now == 0 && held >= limit - limit / 32,
            costs: if waits { Vec::new() } else { costs },
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
            Connection::Lost(ConnectionError::Refused(refused))
                if refused.code == RefusedCode::NoRoom =>
            {
                let floor = self.begun.identity.floor;
                if self.target.swap(floor, Ordering::Relaxed) != floor {
                    let memory = ByteSize(floor);
                    tracing::warn!(why = refused.message, %memory, "the broker has no room; the node lives by its floor");
                }
                self.settle();
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
