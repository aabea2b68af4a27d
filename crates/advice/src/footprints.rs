//! Collects what statements do to a table: once per scan, not per row.
//!
//! Executions of the same shape (with the same predicates' and projected attributes) are one
//! footprint; their selectivities and shares are averaged. Weights decay by half every
//! [`DECAY_HALF_LIFE_S`], so advice follows the load, and stay bounded: a footprint that comes r
//! times per second tends to r · half-life / ln 2.
//!
//! ```text
//! record(access, now)   weight ← weight · 2^((last − now) / half-life) + 1
//!                       mean   ← mean + (value − mean) / weight
//! ```
//!
//! When a limit is reached the lightest footprints are dropped, and their weights are counted. A
//! new footprint stays at least until the next one comes: if it is repeated soon it grows,
//! otherwise it is the next to go.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::{Access, Filter, Footprint, Scan, Workload};

/// Footprints kept of a table. The SSB has 13, TPC-C 30 over all its tables; 256 is the
/// number that ad-hoc loads do not exhaust between two half-lives, and for which a
/// search with pairs of 64 atoms stays within [`crate::WORK_MAX`].
pub const FOOTPRINTS_MAX: usize = 256;

/// Attribute positions kept in all footprints of a table: 256 KiB, or six different
/// `SELECT *` of 10,000 attributes.
pub const FOOTPRINT_ATTRIBUTES_MAX: usize = 65_536;

/// Seconds in which an execution comes to count half: short enough to follow the
/// shift from a day's reports to a night's loads, long enough to see either.
pub const DECAY_HALF_LIFE_S: f64 = 1800.0;

/// What statements did to one table.
#[derive(Debug)]
pub struct Footprints {
    state: Mutex<State>,
}

/// How full a collector is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FootprintsStatus {
    /// Footprints kept.
    pub footprints: usize,
    /// Attribute positions kept.
    pub attributes: usize,
    /// Executions recorded since the start, not decayed.
    pub executions: u64,
    /// Executions whose footprints gave way, as they weighed then.
    pub evicted_weight: f64,
}

#[derive(Debug)]
struct State {
    started_s: f64,
    entries: HashMap<Key, Entry>,
    attributes: usize,
    executions: u64,
    evicted_weight: f64,
}

/// What makes executions one footprint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    kind: AccessKind,
    predicates: Box<[u32]>,
    attributes: Box<[u32]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum AccessKind {
    Scan,
    Read,
    Insert,
    Update,
}

#[derive(Debug)]
struct Entry {
    weight: f64,
    at_s: f64,
    /// Scan: the share scanned, then a selectivity per predicate. Insert: rows.
    means: Box<[f64]>,
}

impl Footprints {
    /// An empty collector. `now_s` is seconds on any clock that does not go back, the
    /// same for all calls.
    pub fn new(now_s: f64) -> Footprints {
        Footprints {
            state: Mutex::new(State {
                started_s: now_s,
                entries: HashMap::new(),
                attributes: 0,
                executions: 0,
                evicted_weight: 0.0,
            }),
        }
    }

    /// Counts an execution. Takes well under a microsecond while the footprint is
    /// known, a few when another gives way.
    pub fn record(&self, access: &Access, now_s: f64) {
        self.record_times(access, 1, now_s);
    }

    /// Counts executions that were alike.
    pub fn record_times(&self, access: &Access, times: u32, now_s: f64) {
        let (key, values) = taken_apart(access);
        self.state.lock().record(key, &values, times, now_s);
    }

    /// What is known now, heaviest first.
    pub fn workload(&self, now_s: f64) -> Workload {
        let state = self.state.lock();
        let mut entries: Vec<(f64, &Key, &Entry)> = state
            .entries
            .iter()
            .map(|(key, entry)| (entry.weight_at(now_s), key, entry))
            .collect();
        entries.sort_by(|(a, key, _), (b, other, _)| b.total_cmp(a).then(key.cmp(other)));
        let footprint = |(weight, key, entry): (f64, &Key, &Entry)| Footprint {
            access: put_together(key, &entry.means),
            weight,
        };
        Workload {
            footprints: entries.into_iter().map(footprint).collect(),
            window_s: window_s(now_s - state.started_s),
        }
    }

    /// Forgets everything: the table's attributes have changed.
    pub fn clear(&self, now_s: f64) {
        let fresh = Footprints::new(now_s).state.into_inner();
        *self.state.lock() = fresh;
    }

    /// How full the collector is.
    pub fn status(&self) -> FootprintsStatus {
        let state = self.state.lock();
        FootprintsStatus {
            footprints: state.entries.len(),
            attributes: state.attributes,
            executions: state.executions,
            evicted_weight: state.evicted_weight,
        }
    }
}

/// ∫ 2^(−t / half-life) dt over the collector's age: what a rate of 1/s weighs.
fn window_s(age_s: f64) -> f64 {
    let tail = (-age_s.max(0.0) / DECAY_HALF_LIFE_S).exp2();
    DECAY_HALF_LIFE_S / std::f64::consts::LN_2 * (1.0 - tail)
}

impl Entry {
    fn weight_at(&self, now_s: f64) -> f64 {
        // A clock read by another thread may be a little behind.
        self.weight * (-(now_s - self.at_s).max(0.0) / DECAY_HALF_LIFE_S).exp2()
    }
}

impl State {
    fn record(&mut self, key: Key, values: &[f64], times: u32, now_s: f64) {
        let times = f64::from(times);
        self.executions += times as u64;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.weight = entry.weight_at(now_s) + times;
            entry.at_s = entry.at_s.max(now_s);
            for (mean, value) in entry.means.iter_mut().zip(values) {
                *mean += (value - *mean) * times / entry.weight;
            }
            return;
        }
        let wanted = key.size();
        if wanted > FOOTPRINT_ATTRIBUTES_MAX {
            self.evicted_weight += times;
            return;
        }
        while self.entries.len() >= FOOTPRINTS_MAX
            || self.attributes + wanted > FOOTPRINT_ATTRIBUTES_MAX
        {
            self.evict_lightest(now_s);
        }
        self.attributes += wanted;
        let entry = Entry {
            weight: times,
            at_s: now_s,
            means: values.into(),
        };
        self.entries.insert(key, entry);
    }

    fn evict_lightest(&mut self, now_s: f64) {
        let weights = self
            .entries
            .iter()
            .map(|(key, entry)| (entry.weight_at(now_s), key));
        let lightest = weights
            .min_by(|(a, key), (b, other)| a.total_cmp(b).then(key.cmp(other)))
            .map(|(weight, key)| (weight, key.clone()))
            .expect("a full collector has an entry: the newcomer alone would fit");
        self.entries.remove(&lightest.1);
        self.attributes -= lightest.1.size();
        self.evicted_weight += lightest.0;
    }
}

impl Key {
    fn size(&self) -> usize {
        self.predicates.len() + self.attributes.len()
    }
}

fn positions(attributes: impl Iterator<Item = usize>) -> Box<[u32]> {
    let position = |at| u32::try_from(at).unwrap_or(u32::MAX);
    attributes.map(position).collect()
}

/// A set: sorted, each once.
fn set(attributes: &[usize]) -> Box<[u32]> {
    let mut set = positions(attributes.iter().copied()).into_vec();
    set.sort_unstable();
    set.dedup();
    set.into()
}

fn taken_apart(access: &Access) -> (Key, Vec<f64>) {
    let key = |kind, predicates, attributes| Key {
        kind,
        predicates,
        attributes,
    };
    let none: Box<[u32]> = Box::default();
    match access {
        Access::Scan(scan) => {
            let predicates = positions(scan.predicates.iter().map(|p| p.attribute));
            let selectivities = scan.predicates.iter().map(|p| usable(p.selectivity));
            let values = std::iter::once(usable(scan.share)).chain(selectivities);
            let values = values.collect();
            (
                key(AccessKind::Scan, predicates, set(&scan.projection)),
                values,
            )
        }
        Access::Read { attributes } => (key(AccessKind::Read, none, set(attributes)), Vec::new()),
        Access::Update { attributes } => {
            (key(AccessKind::Update, none, set(attributes)), Vec::new())
        }
        Access::Insert { rows } => {
            let rows = if rows.is_finite() { rows.max(0.0) } else { 0.0 };
            (key(AccessKind::Insert, none.clone(), none), vec![rows])
        }
    }
}

/// A share that a mean can take: what is no number counts as everything.
fn usable(share: f64) -> f64 {
    if share.is_nan() {
        1.0
    } else {
        share.clamp(0.0, 1.0)
    }
}

fn put_together(key: &Key, means: &[f64]) -> Access {
    let attributes = || key.attributes.iter().map(|&at| at as usize).collect();
    match key.kind {
        AccessKind::Scan => Access::Scan(Scan {
            share: means[0].clamp(0.0, 1.0),
            predicates: key
                .predicates
                .iter()
                .zip(&means[1..])
                .map(|(&attribute, mean)| Filter {
                    attribute: attribute as usize,
                    selectivity: mean.clamp(0.0, 1.0),
                })
                .collect(),
            projection: attributes(),
        }),
        AccessKind::Read => Access::Read {
            attributes: attributes(),
        },
        AccessKind::Update => Access::Update {
            attributes: attributes(),
        },
        AccessKind::Insert => Access::Insert { rows: means[0] },
    }
}

#[cfg(test)]
mod tests;
