//! Loads that do not wait for each other: in order, and at random.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::buffer::{Buffer, Pages};
use super::chase::{STEP_BYTES, grouped};
use super::{SEED, cores};
use crate::CalibrateError;
use crate::curve::low_quantile;
use crate::levels::Detected;
use crate::steps::Step;

/// Words of a line.
const LINE_WORDS: usize = STEP_BYTES / 4;

/// The least a window reads: some 20 µs.
const WINDOW_BYTES: usize = 256 << 10;

/// Windows that are timed at least.
const WINDOWS_MIN: usize = 8;

/// Windows within this factor of the low quantile agree with it. Memory's bandwidth is
/// shared with all other cores.
const NEAR: f64 = 1.5;

/// Parts of the time in which all cores read; the best counts.
const PARTS: u32 = 3;

/// Bytes that each thread reads when all do: beyond its share of any cache.
const SATURATED_BYTES: usize = 64 << 20;

/// ns per line in the memory behind a level.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Streams {
    /// In order.
    pub(crate) sequential_ns: Detected,
    /// At random, by a list of positions.
    pub(crate) random_ns: Detected,
}

/// ns per line read from behind each level: between its size and the next one's, and behind
/// the last from memory.
pub(crate) fn levels(
    buffer: &Buffer,
    levels: &[(Step, Detected)],
    budget: Duration,
) -> Vec<Streams> {
    let whole = buffer.words().len();
    let count = levels.len().max(1);
    let sizes = (0..count).map(|level| match levels.get(level + 1) {
        Some((next, _)) => ((levels[level].0.knee * next.knee).sqrt() as usize / 4).min(whole),
        None => whole,
    });
    sizes
        .map(|words| one(&buffer.words()[..words], budget / count as u32))
        .collect()
}

fn one(words: &[u32], budget: Duration) -> Streams {
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let order = grouped(words.len() / LINE_WORDS, &mut random);
    Streams {
        sequential_ns: sequential_ns(words, budget / 2),
        random_ns: ns_per_line(
            order.chunks(window_words(words) / LINE_WORDS),
            budget / 2,
            |places| (gather(words, places), places.len()),
        ),
    }
}

/// ns per line in order.
pub(crate) fn sequential_ns(words: &[u32], budget: Duration) -> Detected {
    ns_per_line(words.chunks(window_words(words)), budget, |part| {
        (sum(part), part.len() / LINE_WORDS)
    })
}

fn window_words(words: &[u32]) -> usize {
    (WINDOW_BYTES / 4).min(words.len()).max(LINE_WORDS)
}

/// The low quantile of windows' ns per line, after a first turn that is not timed. As sure
/// as the share of windows that are near it.
fn ns_per_line<'a, T: ?Sized + 'a>(
    windows: impl Iterator<Item = &'a T> + Clone,
    budget: Duration,
    read: impl Fn(&T) -> (u32, usize),
) -> Detected {
    let started = Instant::now();
    let first_turn = windows.clone().count();
    let mut values = Vec::new();
    for (nth, window) in windows.cycle().enumerate() {
        let from = Instant::now();
        let (sum, lines) = read(window);
        std::hint::black_box(sum);
        if nth >= first_turn {
            values.push(from.elapsed().as_nanos() as f64 / lines.max(1) as f64);
        }
        if started.elapsed() > budget && values.len() >= WINDOWS_MIN {
            break;
        }
    }
    let Some(ns) = low_quantile(&mut values) else {
        return Detected::default();
    };
    let near = values.iter().filter(|value| **value < ns * NEAR).count();
    Detected::sure(ns, near as f64 / values.len() as f64)
}

#[inline(never)]
fn sum(words: &[u32]) -> u32 {
    let mut sums = [0_u32; LINE_WORDS];
    for line in words.chunks_exact(LINE_WORDS) {
        for (sum, word) in sums.iter_mut().zip(line) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
}

#[inline(never)]
fn gather(words: &[u32], places: &[u32]) -> u32 {
    let load = |all: u32, at: &u32| all.wrapping_add(words[*at as usize]);
    places.iter().fold(0, load)
}

/// What all cores read at once, bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Saturated {
    pub(crate) threads: usize,
    /// In order.
    pub(crate) sequential: Detected,
    /// In lines at random.
    pub(crate) random: Detected,
}

/// Reads on all these cores at once, each memory of its own.
///
/// # Errors
/// [`CalibrateError::Memory`] when there is no memory for that.
pub(crate) fn saturated(allowed: &[usize], budget: Duration) -> Result<Saturated, CalibrateError> {
    let affordable = super::affordable_bytes() / allowed.len().max(1);
    let bytes = SATURATED_BYTES.min(affordable);
    let start = Barrier::new(allowed.len());
    let part = budget / (2 * PARTS);
    let work = |core: usize| -> Result<Vec<[f64; 2]>, CalibrateError> {
        // Where it cannot be pinned it runs all the same.
        let _ = cores::pin(&[core]);
        let buffer = Buffer::new(bytes, Pages::Huge).map(|mut buffer| {
            buffer.populate();
            buffer
        });
        let words = buffer.as_ref().map_or(&[][..], Buffer::words);
        let mut random = Pcg64Mcg::seed_from_u64(SEED ^ core as u64);
        let order = grouped(words.len() / LINE_WORDS, &mut random);
        let rates = (0..PARTS).map(|_| {
            // Also one that has no memory comes here, or the others would wait for it.
            start.wait();
            let sequential = rate(words.chunks(window_words(words)), part, |part| {
                (sum(part), part.len() / LINE_WORDS)
            });
            start.wait();
            let places = order.chunks(window_words(words) / LINE_WORDS);
            let random = rate(places, part, |places| (gather(words, places), places.len()));
            [sequential, random]
        });
        let rates = rates.collect();
        buffer.map(|_| rates)
    };
    let rates = std::thread::scope(|scope| {
        let threads: Vec<_> = allowed
            .iter()
            .map(|core| scope.spawn(|| work(*core)))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().expect("reading memory does not panic")
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, _>>()
    })?;
    let all = |way: usize| {
        let parts =
            (0..PARTS as usize).map(|part| rates.iter().map(|rates| rates[part][way]).sum());
        best(parts.collect())
    };
    Ok(Saturated {
        threads: rates.len(),
        sequential: all(0),
        random: all(1),
    })
}

/// The best of some parts' rates; as sure as the middle one is near it.
fn best(mut rates: Vec<f64>) -> Detected {
    rates.sort_by(f64::total_cmp);
    let Some(best) = rates.last() else {
        return Detected::default();
    };
    Detected::sure(*best, rates[rates.len() / 2] / best)
}

/// Bytes per second read in turns over the windows until the budget is used up.
fn rate<'a, T: ?Sized + 'a>(
    windows: impl Iterator<Item = &'a T> + Clone,
    budget: Duration,
    read: impl Fn(&T) -> (u32, usize),
) -> f64 {
    let started = Instant::now();
    let mut lines = 0;
    for window in windows.cycle() {
        let (sum, read) = read(window);
        std::hint::black_box(sum);
        lines += read;
        if started.elapsed() > budget {
            break;
        }
    }
    (lines * STEP_BYTES) as f64 / started.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_read_in_both_ways() {
        let words: Vec<u32> = (0..4096).collect();
        let places = grouped(words.len() / LINE_WORDS, &mut Pcg64Mcg::seed_from_u64(1));
        assert_eq!(sum(&words), words.iter().sum::<u32>());
        let first_words: u32 = words.iter().step_by(LINE_WORDS).sum();
        assert_eq!(gather(&words, &places), first_words);
    }

    #[test]
    fn an_empty_budget_still_gives_values() {
        let one = one(&vec![1; 1 << 16], Duration::ZERO);
        assert!(one.sequential_ns.confidence > 0.0 && one.random_ns.confidence > 0.0);
    }
}
