//! The measured values beside the claimed ones.

mod rows;

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::CalibrateError;
use crate::claims::Claims;
use crate::curve::{Curve, rounded};
use crate::levels::{Detected, caches_of, tlbs_of};
use crate::measure::{PageWalks, Saturated, Streams};
use crate::steps::{Step, sure_low};

pub use crate::measure::NumaPair;
pub use rows::Row;
pub(crate) use rows::{bytes, short};

/// The format of a report as JSON. A reader refuses others.
pub const FORMAT: u32 = 1;

/// How far a measured size may be from the claimed one, as a share of it.
const FIRST_CACHE_NEAR: f64 = 0.15;
const CACHE_NEAR: f64 = 0.25;
const TLB_NEAR: f64 = 0.15;

/// Times within this factor are the same, for the confidence in them.
const TIME_NEAR: f64 = 1.25;

/// How far from a knee, as a factor, a level's own time is looked for.
const RISE: f64 = 1.5;

/// How far behind its knee, as a factor, a level's miss is looked for.
const BEHIND: f64 = 8.0;

/// A last step that ends at less than the memory's latency by this factor leads to a level
/// that was not found. Prefetchers help walks through lines, not the one through memory.
const MEMORY_SHARE: f64 = 3.0;

/// Bytes of a small page.
const SMALL_PAGE: u64 = 4 << 10;

/// Bytes of a huge page.
const HUGE_PAGE: u64 = 2 << 20;

/// What is to be made of a value and its claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Not sure enough to be told.
    #[default]
    NotDetected,
    /// Nothing is claimed.
    Unclaimed,
    /// Both are near each other.
    Agrees,
    /// Less than claimed, of what is shared with others or behind a hypervisor: what this
    /// process can have of it.
    Effective,
    /// Neither.
    Differs,
}

/// A value, how sure it is, and what the system claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The value, in the unit of the field's name; `None`: not detected.
    pub value: Option<f64>,
    /// From 0 to 1.
    pub confidence: f64,
    /// What the system claims.
    pub claimed: Option<f64>,
    /// What is to be made of both.
    pub verdict: Verdict,
}

impl Finding {
    /// A value for which there is no claim.
    fn alone(detected: Detected) -> Finding {
        Finding::beside(detected, None, 0.0, false)
    }

    /// A value beside its claim; `near` as a share of the claim. Of what `is_shared`, this
    /// process may have less.
    fn beside(detected: Detected, claimed: Option<f64>, near: f64, is_shared: bool) -> Finding {
        let Detected { value, confidence } = detected;
        let verdict = match (value, claimed) {
            (None, _) => Verdict::NotDetected,
            (Some(_), None) => Verdict::Unclaimed,
            (Some(value), Some(claimed)) if (value - claimed).abs() <= claimed * near => {
                Verdict::Agrees
            }
            (Some(value), Some(claimed)) if is_shared && value < claimed => Verdict::Effective,
            _ => Verdict::Differs,
        };
        Finding {
            value,
            confidence,
            claimed,
            verdict,
        }
    }
}

/// A cache for data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheLevel {
    /// From 1, the fastest.
    pub level: u32,
    /// Bytes it holds.
    pub size_bytes: Finding,
    /// Bytes of a line. Told for the first level; prefetchers hide the others'.
    pub line_bytes: Finding,
    /// ns of a load that finds its line here.
    pub latency_ns: Finding,
    /// ns more of a load that finds its line in the next level.
    pub miss_ns: Finding,
    /// ns per line when lines of the next level replace each other, at random.
    pub replace_ns: Finding,
    /// ns per line when lines of the next level are read in order.
    pub streamed_ns: Finding,
}

/// A TLB for data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TlbLevel {
    /// From 1, the fastest.
    pub level: u32,
    /// Bytes of the pages it was measured with.
    pub page_bytes: u64,
    /// Pages it holds.
    pub entries: Finding,
    /// ns more of a load whose page is not in it.
    pub miss_ns: Finding,
}

/// Bytes per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// Threads that read.
    pub threads: usize,
    /// In order.
    pub sequential_bytes_per_s: Finding,
    /// Whole lines at random.
    pub random_bytes_per_s: Finding,
}

/// Which machine it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The processor, as the system names it.
    pub processor: String,
    /// Hardware threads of the machine.
    pub threads: usize,
}

impl Identity {
    /// This machine.
    pub fn here() -> Identity {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Identity {
            processor: processor(&text),
            threads: text
                .lines()
                .filter(|line| line.starts_with("processor"))
                .count(),
        }
    }
}

/// Model name and numbers: guests of different hosts may have one name.
fn processor(cpuinfo: &str) -> String {
    let keys = [
        "model name",
        "cpu family",
        "model",
        "stepping",
        "CPU implementer",
        "CPU part",
    ];
    let value = |key: &&str| {
        let mut pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = pairs.find(|(name, _)| name.trim() == *key)?;
        Some(format!("{key} {}", value.trim()))
    };
    let known: Vec<String> = keys.iter().filter_map(value).collect();
    known
        .join(", ")
        .trim_start_matches("model name ")
        .to_owned()
}

/// All that was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// The machine.
    pub machine: Identity,
    /// Whether it is a guest of a hypervisor, as it says.
    pub is_guest: bool,
    /// When, in seconds since 1970.
    pub measured_at_s: u64,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// The core it was measured on.
    pub core: usize,
    /// The share of the memory walked through for caches that lay in huge pages, as the
    /// kernel says.
    pub huge_share: Option<f64>,
    /// Caches, fastest first.
    pub caches: Vec<CacheLevel>,
    /// TLBs for 4 KiB pages, then for 2 MiB pages.
    pub tlbs: Vec<TlbLevel>,
    /// 4 KiB pieces of 2 MiB pages that can be used in turn before a translation is missing:
    /// where this is as little as the first-level TLB holds small pages, the hypervisor backs
    /// huge pages by small ones, and they widen nothing. No value: all that were tried.
    pub huge_reach_pieces: Finding,
    /// ns of a load from memory.
    pub memory_latency_ns: Finding,
    /// One thread, and all at once.
    pub bandwidth: Vec<Bandwidth>,
    /// NUMA nodes, as claimed.
    pub numa_nodes: usize,
    /// What nodes see of each other; empty where there is one.
    pub numa: Vec<NumaPair>,
    /// The curves, by name.
    pub curves: Vec<(String, Curve)>,
}

/// What the measuring part hands over.
pub(crate) struct Measured {
    pub(crate) core: usize,
    pub(crate) seconds: f64,
    pub(crate) huge_share: Option<f64>,
    pub(crate) line: Curve,
    pub(crate) line_is: Detected,
    pub(crate) caches: Curve,
    pub(crate) memory: Curve,
    pub(crate) small: PageWalks,
    pub(crate) reach: Option<PageWalks>,
    pub(crate) huge: PageWalks,
    pub(crate) streams: Vec<Streams>,
    pub(crate) saturated: Saturated,
    pub(crate) numa: Vec<NumaPair>,
}

impl Report {
    pub(crate) fn new(machine: Identity, claims: &Claims, measured: Measured) -> Report {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let steps = caches_of(&measured.caches);
        let memory = memory_latency(&measured.memory);
        let mut tlbs = tlb_levels(&measured.small, SMALL_PAGE, claims);
        let first_entries = tlbs.first().and_then(|tlb| tlb.entries.value);
        tlbs.extend(tlb_levels(&measured.huge, HUGE_PAGE, claims));
        let reach = measured.reach.as_ref().filter(|walks| is_huge(walks));
        Report {
            format: FORMAT,
            machine,
            is_guest: claims.is_guest,
            measured_at_s: now.map_or(0, |since| since.as_secs()),
            took_s: rounded(measured.seconds),
            core: measured.core,
            huge_share: measured.huge_share.map(rounded),
            caches: cache_levels(&steps, &measured, memory, claims),
            tlbs,
            huge_reach_pieces: reach.map_or_else(Finding::default, |walks| {
                reach_of(walks, first_entries, claims)
            }),
            memory_latency_ns: Finding::alone(memory),
            bandwidth: bandwidths(&measured),
            numa_nodes: claims.nodes,
            curves: named_curves(&measured)
                .into_iter()
                .chain(named_walks("pages_4k", measured.small))
                .chain(named_walks("pages_2m", measured.huge))
                .chain(
                    measured
                        .reach
                        .into_iter()
                        .flat_map(|walks| named_walks("pieces_of_2m", walks)),
                )
                .collect(),
            numa: measured.numa,
        }
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// [`CalibrateError::NoReport`] when a number is not finite.
    pub fn to_json(&self) -> Result<String, CalibrateError> {
        serde_json::to_string(self).map_err(CalibrateError::NoReport)
    }

    /// Reads a report.
    ///
    /// # Errors
    /// [`CalibrateError::Format`] when it is of another format,
    /// [`CalibrateError::NoReport`] when it is none.
    pub fn from_json(text: &str) -> Result<Report, CalibrateError> {
        #[derive(Deserialize)]
        struct Formatted {
            format: u32,
        }
        let Formatted { format } = serde_json::from_str(text).map_err(CalibrateError::NoReport)?;
        if format != FORMAT {
            return Err(CalibrateError::Format { found: format });
        }
        serde_json::from_str(text).map_err(CalibrateError::NoReport)
    }

    /// The curve of this name.
    pub fn curve(&self, name: &str) -> Option<&Curve> {
        let mut curves = self.curves.iter();
        curves.find(|(of, _)| of == name).map(|(_, curve)| curve)
    }
}

fn named_curves(measured: &Measured) -> [(String, Curve); 3] {
    [
        ("caches".to_owned(), measured.caches.clone()),
        ("memory".to_owned(), measured.memory.clone()),
        ("line".to_owned(), measured.line.clone()),
    ]
}

fn named_walks(name: &str, walks: PageWalks) -> [(String, Curve); 2] {
    [
        (name.to_owned(), walks.pages),
        (format!("{name}_control"), walks.control),
    ]
}

/// The time between two sizes.
fn time(curve: &Curve, between: (f64, f64)) -> Detected {
    let inside = |x: f64| x > between.0 && x < between.1;
    let points = curve.points.iter().filter(|point| inside(point.x));
    let values: Vec<f64> = points.flat_map(|point| point.ns.iter().copied()).collect();
    sure_low(&values, TIME_NEAR)
}

fn cache_levels(
    steps: &[(Step, Detected)],
    measured: &Measured,
    memory: Detected,
    claims: &Claims,
) -> Vec<CacheLevel> {
    let knee = |at: usize| steps.get(at).map_or(f64::INFINITY, |(step, _)| step.knee);
    let levels = steps.iter().enumerate().map(|(at, (step, size))| {
        let level = at as u32 + 1;
        let claim = claims.cache(level);
        let near = if level == 1 {
            FIRST_CACHE_NEAR
        } else {
            CACHE_NEAR
        };
        let is_shared = claim.is_some_and(|claim| claim.shared_by > 1);
        let before = at.checked_sub(1).map_or(0.0, knee);
        // A cache that is nearly full begins to miss.
        let latency = time(&measured.caches, (before * RISE, step.knee / RISE));
        let is_last = at + 1 == steps.len();
        let above = match memory.value {
            Some(memory_ns) if is_last && step.above_ns > memory_ns / MEMORY_SHARE => memory,
            _ => {
                let end = knee(at + 1).min(step.knee * BEHIND);
                time(&measured.caches, (step.knee * RISE, end / RISE))
            }
        };
        let streams = measured.streams.get(at).copied().unwrap_or_default();
        let line_claim = claim.map(|claim| claim.line_bytes as f64);
        let line = if level == 1 {
            measured.line_is
        } else {
            Detected::default()
        };
        CacheLevel {
            level,
            size_bytes: Finding::beside(
                *size,
                claim.map(|claim| claim.size_bytes as f64),
                near,
                is_shared,
            ),
            line_bytes: Finding::beside(line, line_claim, 0.0, false),
            latency_ns: Finding::alone(latency),
            miss_ns: Finding::alone(less(above, latency)),
            replace_ns: Finding::alone(streams.random_ns),
            streamed_ns: Finding::alone(streams.sequential_ns),
        }
    });
    let mut levels: Vec<_> = levels.collect();
    // Behind the last sure level it is memory's noise.
    while levels
        .last()
        .is_some_and(|level| level.size_bytes.value.is_none())
    {
        levels.pop();
    }
    let missing = claims.caches.iter().skip(levels.len());
    levels.extend(missing.map(|claim| CacheLevel {
        level: claim.level,
        size_bytes: Finding::beside(
            Detected::default(),
            Some(claim.size_bytes as f64),
            CACHE_NEAR,
            false,
        ),
        ..CacheLevel::default()
    }));
    levels
}

/// What one time is more than another, as sure as the less sure of both.
fn less(more: Detected, less: Detected) -> Detected {
    match (more.value, less.value) {
        (Some(more_ns), Some(less_ns)) => Detected::sure(
            (more_ns - less_ns).max(0.0),
            more.confidence.min(less.confidence),
        ),
        _ => Detected {
            value: None,
            confidence: more.confidence.min(less.confidence),
        },
    }
}

fn memory_latency(curve: &Curve) -> Detected {
    let last = curve.points.last();
    last.map_or_else(Detected::default, |last| sure_low(&last.ns, TIME_NEAR))
}

fn tlb_levels(walks: &PageWalks, page_bytes: u64, claims: &Claims) -> Vec<TlbLevel> {
    if page_bytes == HUGE_PAGE && !is_huge(walks) {
        return Vec::new();
    }
    let beyond = walks.pages.beyond(&walks.control);
    let steps = tlbs_of(&walks.pages, &walks.control);
    let level = |(at, (step, entries)): (usize, &(Step, Detected))| {
        let level = at as u32 + 1;
        let claim = claims.tlb(level, page_bytes);
        // The next level's knee, or a doubling: what rises on behind it is not its cost.
        let next = steps
            .get(at + 1)
            .map_or(step.knee * 2.0, |(next, _)| next.knee);
        let above = miss_ns_behind(&beyond, step, next);
        TlbLevel {
            level,
            page_bytes,
            entries: Finding::beside(
                *entries,
                claim.map(|claim| claim.entries as f64),
                TLB_NEAR,
                page_bytes == HUGE_PAGE && claims.is_guest,
            ),
            miss_ns: Finding::alone(above),
        }
    };
    steps.iter().enumerate().map(level).collect()
}

/// ns that a miss adds, around the middle between the knee and the next one.
fn miss_ns_behind(beyond: &Curve, step: &Step, next: f64) -> Detected {
    let middle = (step.knee * next).sqrt();
    let above = time(beyond, (middle * 0.9, middle * 1.1));
    let below = Detected::sure(step.below_ns, 1.0);
    less(above, below)
}

/// Whether the kernel gave huge pages, as far as it says.
fn is_huge(walks: &PageWalks) -> bool {
    walks.huge_share.is_some_and(|share| share > 0.5)
}

fn reach_of(walks: &PageWalks, first_entries: Option<f64>, claims: &Claims) -> Finding {
    let steps = tlbs_of(&walks.pages, &walks.control);
    let found = steps
        .first()
        .map_or_else(Detected::default, |(_, pieces)| *pieces);
    // With huge pages as wide as they are, all entries' pieces are reached.
    let wide = first_entries.map(|entries| rounded(entries * (HUGE_PAGE / SMALL_PAGE) as f64));
    Finding::beside(found, wide, TLB_NEAR, claims.is_guest)
}

fn bandwidths(measured: &Measured) -> Vec<Bandwidth> {
    let per_line = 64.0;
    let rate = |ns: Detected| {
        Finding::alone(Detected {
            value: ns.value.map(|ns| rounded(per_line / ns * 1e9)),
            ..ns
        })
    };
    let memory = measured.streams.last().copied().unwrap_or_default();
    let all = &measured.saturated;
    vec![
        Bandwidth {
            threads: 1,
            sequential_bytes_per_s: rate(memory.sequential_ns),
            random_bytes_per_s: rate(memory.random_ns),
        },
        Bandwidth {
            threads: all.threads,
            sequential_bytes_per_s: Finding::alone(all.sequential),
            random_bytes_per_s: Finding::alone(all.random),
        },
    ]
}

#[cfg(test)]
mod tests;
