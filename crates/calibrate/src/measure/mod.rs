//! The part that touches the machine: which walks are done, how often, within how many seconds.
//!
//! Rounds go over all sizes of a curve again and again, so that a burst of noise spoils one round
//! of many sizes and not all rounds of one. Each round builds its chain anew, walks it once
//! untimed, and keeps the low quantile of a few short windows, shorter than the time slices of
//! the machine's other work.

mod buffer;
mod chase;
pub mod cores;
mod numa;
mod stream;

use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

pub use buffer::{Buffer, PAGE_BYTES, Pages};
pub use chase::{APART_PAGES, Chain, STEP_BYTES};
pub use numa::NumaPair;
pub(crate) use stream::{Saturated, Streams};

use crate::CalibrateError;
use crate::claims::Claims;
use crate::curve::{Curve, geometric, low_quantile, rounded};
use crate::levels::{caches_of, line_of};
use crate::report::{Identity, Measured, Report};
use buffer::HUGE_PAGE_BYTES;
use chase::PAIR_BLOCK_BYTES;

/// The least budget: a round or two of every curve.
pub const SECONDS_MIN: f64 = 1.0;

/// The greatest budget.
pub const SECONDS_MAX: f64 = 600.0;

/// How to calibrate.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seconds of wall time, nearly.
    pub seconds: f64,
    /// The core to measure on; `None`: where the scheduler puts a busy thread.
    pub core: Option<usize>,
}

/// Windows of a round.
const WINDOWS: usize = 6;

/// Loads of a window, at least: 10 µs in the first cache, a two-hundredth of it the clock's.
const WINDOW_LOADS_MIN: usize = 8192;

/// Loads of a window, at most: a whole turn through all second-level caches but the largest,
/// and some milliseconds in memory.
const WINDOW_LOADS_MAX: usize = 1 << 15;

/// Sizes per doubling where caches and TLBs of one core end.
const SIZES_FINE: usize = 12;

/// Sizes per doubling in the last-level cache, where a round takes long.
const SIZES_COARSE: usize = 4;

/// The smallest walk, half of the smallest first-level cache there is.
const CACHE_BYTES_MIN: f64 = 8192.0;

/// Where fine sizes end and coarse ones begin: beyond nearly all second-level caches.
const CACHE_BYTES_FINE: f64 = (4 << 20) as f64;

/// The largest walk that is warmed up.
const CACHE_BYTES_WARM: usize = 64 << 20;

/// A walk so large that it finds nothing in any cache.
const MEMORY_BYTES: usize = 256 << 20;

/// A window in memory is taken once in so many sizes: every 20 ms or so.
const MEMORY_EVERY: usize = 8;

/// Rounds at most: then the low quantile is as good as it gets.
const ROUNDS_MAX: usize = 24;

/// The fewest pages walked through: a quarter of the smallest first-level TLB.
const PAGES_MIN: f64 = 8.0;

/// Loads of a window in memory: half a millisecond.
const MEMORY_LOADS: usize = 4096;

/// Small pages walked through: two and a half times the largest second-level TLB.
const PAGES_MAX: usize = 10_240;

/// Small pages walked through inside huge ones: fewer, for all between them is touched too.
const REACH_PAGES_MAX: usize = 6144;

/// Huge pages walked through.
const HUGE_PAGES_MAX: usize = 256;

/// Distances of pairs, in bytes.
const PAIR_BYTES: [usize; 7] = [8, 16, 32, 64, 128, 256, 512 - 4];

/// Shares of the budget; the rest goes into making memory ready.
const SHARE_LINE: f64 = 0.02;
const SHARE_FINE: f64 = 0.2;
const SHARE_COARSE: f64 = 0.28;
const SHARE_PAGES: f64 = 0.14;
const SHARE_REACH: f64 = 0.07;
const SHARE_HUGE: f64 = 0.05;
const SHARE_STREAMS: f64 = 0.06;
const SHARE_SATURATED: f64 = 0.05;

/// Calibrates this machine.
///
/// # Errors
/// [`CalibrateError`] when there is no memory, the core cannot be used, or the budget is out
/// of range.
pub fn calibrate(options: &Options) -> Result<Report, CalibrateError> {
    let Options { seconds, core } = *options;
    if !(SECONDS_MIN..=SECONDS_MAX).contains(&seconds) {
        return Err(CalibrateError::Seconds { seconds });
    }
    let started = Instant::now();
    let allowed = cores::allowed();
    let mut bench = Bench {
        seconds,
        random: Pcg64Mcg::seed_from_u64(SEED),
    };
    let measured = cores::settled(core, |core| (core, bench.measure(&allowed)));
    let (core, measured) = measured?;
    let mut measured = measured?;
    measured.core = core;
    measured.seconds = started.elapsed().as_secs_f64();
    Ok(Report::new(Identity::here(), &Claims::here(core), measured))
}

/// Orders of walks do not matter, so any will do.
const SEED: u64 = 0xca11_b8a7;

/// Bytes that may be touched at once: a quarter of what is free, for others need memory too.
fn affordable_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok());
    kib.map_or(MEMORY_BYTES, |kib: usize| kib / 4 * 1024)
}

struct Bench {
    seconds: f64,
    random: Pcg64Mcg,
}

impl Bench {
    fn measure(&mut self, allowed: &[usize]) -> Result<Measured, CalibrateError> {
        let affordable = affordable_bytes();
        let bytes = MEMORY_BYTES
            .min(affordable)
            .max(2 * CACHE_BYTES_FINE as usize);
        let mut memory = Buffer::new(bytes, Pages::Huge)?;
        let mut buffer = Buffer::new(bytes.min(CACHE_BYTES_WARM), Pages::Huge)?;
        buffer.populate();
        let huge_share = buffer.huge_share();
        let (caches, last) = self.caches(&mut buffer, &mut memory);
        let levels = caches_of(&caches);
        let line = self.line(&mut buffer, levels.first().map(|(step, _)| step.knee));
        drop(buffer);
        let streams = stream::levels(&memory, &levels, self.share(SHARE_STREAMS));
        drop(memory);
        let small = self.pages(
            PAGES_MAX,
            APART_PAGES * PAGE_BYTES,
            Pages::Small,
            SHARE_PAGES,
        )?;
        let reach = APART_PAGES * PAGE_BYTES * REACH_PAGES_MAX;
        let reach = if reach <= affordable {
            Some(self.pages(
                REACH_PAGES_MAX,
                APART_PAGES * PAGE_BYTES,
                Pages::Huge,
                SHARE_REACH,
            )?)
        } else {
            None
        };
        let pages = HUGE_PAGES_MAX.min(affordable / HUGE_PAGE_BYTES);
        let huge = self.pages(pages, HUGE_PAGE_BYTES, Pages::Huge, SHARE_HUGE)?;
        let saturated = stream::saturated(allowed, self.share(SHARE_SATURATED))?;
        let numa = numa::pairs(allowed)?;
        Ok(Measured {
            core: 0,
            seconds: 0.0,
            huge_share,
            line_is: line_of(&line),
            line,
            caches,
            memory: last,
            small,
            reach,
            huge,
            streams,
            saturated,
            numa,
        })
    }

    fn share(&self, share: f64) -> Duration {
        Duration::from_secs_f64(self.seconds * share)
    }

    /// Walks over bytes, from the first cache to memory; and a walk through memory that finds
    /// nothing in any cache, which is another, since prefetchers help it less.
    fn caches(&mut self, buffer: &mut Buffer, memory: &mut Buffer) -> (Curve, Curve) {
        let warm = (buffer.words().len() * 4) as f64;
        let whole = memory.words().len() * 4;
        let mut sizes = geometric(CACHE_BYTES_MIN, CACHE_BYTES_FINE, SIZES_FINE);
        let fine = sizes.len();
        let coarse = geometric(CACHE_BYTES_FINE, warm, SIZES_COARSE);
        sizes.extend(coarse.into_iter().skip(1));
        // Whole lines.
        let sizes = sizes
            .into_iter()
            .map(|bytes| bytes - bytes % STEP_BYTES as f64);
        let mut curve = Curve::over(sizes);
        let mut last = Curve::over([whole as f64]);
        // Never walked to its end, so it needs no warming and finds nothing in a cache.
        let mut far = Chain::sparse(memory.words_mut(), &mut self.random);
        let (fine, coarse) = curve.points.split_at_mut(fine);
        for (points, share) in [(fine, SHARE_FINE), (coarse, SHARE_COARSE)] {
            self.rounds(share, points.len(), |random, at| {
                let point = &mut points[at];
                let lines = point.x as usize / STEP_BYTES;
                let mut chain = Chain::lines(buffer.words_mut(), lines, random);
                point.ns.extend(round(buffer.words(), &mut chain));
                if at.is_multiple_of(MEMORY_EVERY) {
                    let ns = windows(memory.words(), &mut far, MEMORY_LOADS);
                    last.points[0].ns.extend(ns);
                }
            });
        }
        (curve, last)
    }

    /// Pairs of loads over their distance, in memory that the second cache holds and the
    /// first does not.
    fn line(&mut self, buffer: &mut Buffer, first_bytes: Option<f64>) -> Curve {
        /// Where the first cache was not found, as most have it.
        const FIRST_BYTES: f64 = (32 << 10) as f64;
        let bytes = first_bytes.unwrap_or(FIRST_BYTES) * 8.0;
        let blocks = bytes as usize / PAIR_BLOCK_BYTES;
        let mut curve = Curve::over(PAIR_BYTES.map(|bytes| bytes as f64));
        self.rounds(SHARE_LINE, PAIR_BYTES.len(), |random, at| {
            let mut chain = Chain::pairs(buffer.words_mut(), blocks, PAIR_BYTES[at], random);
            curve.points[at]
                .ns
                .extend(round(buffer.words(), &mut chain));
        });
        curve
    }

    /// Walks over a line of each page, and their control.
    fn pages(
        &mut self,
        pages_max: usize,
        apart_bytes: usize,
        pages: Pages,
        share: f64,
    ) -> Result<PageWalks, CalibrateError> {
        let mut apart = Buffer::new(pages_max * apart_bytes, pages)?;
        let mut beside = Buffer::new(pages_max * STEP_BYTES, Pages::Huge)?;
        beside.populate();
        // Page faults are not part of any round.
        Chain::pages(apart.words_mut(), pages_max, apart_bytes, &mut self.random);
        let sizes = geometric(PAGES_MIN, pages_max as f64, SIZES_FINE);
        let mut sizes: Vec<f64> = sizes.into_iter().map(f64::round).collect();
        sizes.dedup();
        let mut walks = PageWalks {
            pages: Curve::over(sizes.iter().copied()),
            control: Curve::over(sizes),
            huge_share: None,
        };
        self.rounds(share, walks.pages.points.len(), |random, at| {
            let page = &mut walks.pages.points[at];
            let pages = page.x as usize;
            let mut chain = Chain::pages(apart.words_mut(), pages, apart_bytes, random);
            page.ns.extend(round(apart.words(), &mut chain));
            let mut chain = Chain::lines(beside.words_mut(), pages, random);
            walks.control.points[at]
                .ns
                .extend(round(beside.words(), &mut chain));
        });
        walks.huge_share = apart.huge_share();
        Ok(walks)
    }

    /// Runs rounds over `sizes` sizes until the budget is used up, if need be in the middle of
    /// a round: two whole ones at least, so that they can differ, or one where the machine
    /// is so busy that it takes twice the budget.
    fn rounds(&mut self, share: f64, sizes: usize, mut take: impl FnMut(&mut Pcg64Mcg, usize)) {
        let budget = self.share(share);
        let started = Instant::now();
        for round in 0..ROUNDS_MAX {
            for at in 0..sizes {
                let taken = started.elapsed();
                if (round >= 2 && taken > budget) || (round == 1 && taken > budget * 2) {
                    return;
                }
                take(&mut self.random, at);
            }
        }
    }
}

/// A walk over pages with its control.
pub(crate) struct PageWalks {
    /// ns per load over pages.
    pub(crate) pages: Curve,
    /// ns per load over as many lines.
    pub(crate) control: Curve,
    /// The share of the memory that lay in huge pages.
    pub(crate) huge_share: Option<f64>,
}

/// A round at one size: walks once untimed, then windows.
fn round(words: &[u32], chain: &mut Chain) -> Option<f64> {
    chain.walk(words, chain.loads);
    // Whole turns, where these are short.
    let turns = WINDOW_LOADS_MIN.div_ceil(chain.loads);
    windows(words, chain, (chain.loads * turns).min(WINDOW_LOADS_MAX))
}

/// ns per load, the low quantile of some windows of `loads` loads.
fn windows(words: &[u32], chain: &mut Chain, loads: usize) -> Option<f64> {
    let loads = loads.next_multiple_of(16);
    let window = |_| {
        let started = Instant::now();
        chain.walk(words, loads);
        rounded(started.elapsed().as_nanos() as f64 / loads as f64)
    };
    low_quantile(&mut (0..WINDOWS).map(window).collect())
}
