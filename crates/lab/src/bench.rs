//! Words on which kernels are timed, in every environment: this process's own, which a guest sees
//! as well, and each worker's, with the same layout.

use std::time::{Duration, Instant};

use aerostat_calibrate::{Buffer, Chain, PAGE_BYTES, Pages, STEP_BYTES, cores, low_quantile};
use aerostat_micro_vm::{Kernel, MicroVm, Paging, native, ticks_per_ns};
use anyhow::{Context, Result, ensure};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::Environment;
use crate::place::{Places, Request, Shared};

/// What lies in the words: told by a seed, so that every worker lays out the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// A chain through the first lines, group by group.
    Lines {
        /// How many.
        lines: usize,
        /// The seed of its order.
        seed: u64,
    },
    /// A chain through a line of each page.
    Pages {
        /// How many pages.
        pages: usize,
        /// Bytes from one to the next.
        apart_bytes: usize,
        /// The seed of its order.
        seed: u64,
    },
    /// Numbers below some other.
    Values {
        /// Where the first is, in words.
        at: usize,
        /// How many.
        count: usize,
        /// What they are below; not zero.
        below: u32,
        /// Their seed.
        seed: u64,
    },
}

/// Where a walk begins, and how long it is; zeros for what is no chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Laid {
    /// The word where it begins.
    pub at: u32,
    /// Loads until it comes round.
    pub loads: usize,
}

impl Content {
    /// Lays it out.
    ///
    /// # Errors
    /// When it has no room.
    pub(crate) fn lay(self, words: &mut [u32]) -> Result<Laid> {
        let bytes = size_of_val(words);
        let fits = |need: Option<usize>| {
            let has_room = need.is_some_and(|need| need <= bytes);
            ensure!(has_room, "{self:?} does not fit into {bytes} bytes");
            Ok(())
        };
        let laid = |chain: Chain| Laid {
            at: chain.at,
            loads: chain.loads,
        };
        match self {
            Content::Lines { lines, seed } => {
                ensure!(lines > 0, "a chain has lines");
                fits(lines.checked_mul(STEP_BYTES))?;
                Ok(laid(Chain::lines(words, lines, &mut random(seed))))
            }
            Content::Pages {
                pages,
                apart_bytes,
                seed,
            } => {
                ensure!(pages > 0 && apart_bytes >= PAGE_BYTES, "a chain has pages");
                fits(pages.checked_mul(apart_bytes))?;
                let mut random = random(seed);
                Ok(laid(Chain::pages(words, pages, apart_bytes, &mut random)))
            }
            Content::Values {
                at,
                count,
                below,
                seed,
            } => {
                ensure!(below > 0, "no number is below 0");
                let end = at.checked_add(count).and_then(|end| end.checked_mul(4));
                fits(end)?;
                let mut random = random(seed);
                words[at..at + count].fill_with(|| random.random_range(0..below));
                Ok(Laid::default())
            }
        }
    }
}

fn random(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed)
}

/// Words on which kernels are timed, in each of some places.
pub struct Bench<'m> {
    memory: Memory<'m>,
    native_rate: f64,
    guest_rate: f64,
    workers: Workers,
}

/// Workers, each with the number of the memory that it has for a bench and gives back with it.
struct Workers(Vec<(Environment, Shared, u32)>);

enum Memory<'m> {
    Process(&'m mut [u32]),
    Guest(Box<MicroVm<'m>>),
}

impl<'m> Bench<'m> {
    /// A bench over a buffer, with a guest that sees it by such pages if one is among the
    /// places, and as much memory of such pages for each worker. Workers go to the cores of
    /// this thread.
    ///
    /// # Errors
    /// When there can be no guest, or a worker has no memory.
    pub fn new(buffer: &'m mut Buffer, paging: Paging, places: &Places) -> Result<Bench<'m>> {
        let words = buffer.words_mut();
        let native_rate = ticks_per_ns()?;
        let (bytes, cores) = (size_of_val(words), cores::allowed());
        let is_huge = paging == Paging::Huge;
        let pages = if is_huge { Pages::Huge } else { Pages::Small };
        let mut workers = Workers(Vec::new());
        for (environment, shared) in &places.all {
            let Some(shared) = shared else { continue };
            let worker = &mut shared.borrow_mut().worker;
            if matches!(environment, Environment::Cgroup | Environment::Container) {
                let cores = cores.clone();
                worker.ask(&Request::Pin { cores })?;
            }
            let id = worker.open(bytes, pages, is_huge)?;
            workers.0.push((*environment, shared.clone(), id));
        }
        let (memory, guest_rate) = if places.environments().contains(&Environment::KvmMicro) {
            let mut vm = MicroVm::new(words, paging)?;
            let rate = vm.ticks_per_ns()?;
            (Memory::Guest(Box::new(vm)), rate)
        } else {
            (Memory::Process(words), native_rate)
        };
        Ok(Bench {
            memory,
            native_rate,
            guest_rate,
            workers,
        })
    }

    /// Lays something into the words, everywhere.
    ///
    /// # Errors
    /// When it has no room, or a worker has ended.
    pub fn fill(&mut self, content: Content) -> Result<Laid> {
        for (_, shared, id) in &self.workers.0 {
            let id = *id;
            shared
                .borrow_mut()
                .worker
                .ask(&Request::Fill { id, content })?;
        }
        content.lay(match &mut self.memory {
            Memory::Process(words) => words,
            Memory::Guest(vm) => vm.words_mut(),
        })
    }

    /// ns of a kernel: the low quantile of some windows, behind one that is not counted.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ns(&mut self, environment: Environment, kernel: Kernel, windows: usize) -> Result<f64> {
        let (mut all, _) = self.windows(environment, kernel, windows + 1)?;
        all.remove(0);
        low_quantile(&mut all).context("the clock stands still")
    }

    /// ns of each window of a kernel, and what it computed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn windows(
        &mut self,
        environment: Environment,
        kernel: Kernel,
        windows: usize,
    ) -> Result<(Vec<f64>, u64)> {
        let (timing, rate) = match (environment, &mut self.memory) {
            (Environment::KvmMicro, Memory::Guest(vm)) => {
                (vm.guest(kernel, windows)?, self.guest_rate)
            }
            (Environment::Native, Memory::Guest(vm)) => {
                (vm.native(kernel, windows)?, self.native_rate)
            }
            (Environment::Native, Memory::Process(words)) => {
                (native(words, kernel, windows)?, self.native_rate)
            }
            _ => {
                let mut workers = self.workers.0.iter();
                let found = workers.find(|(place, ..)| *place == environment);
                let (_, shared, id) =
                    found.with_context(|| format!("this bench was made without {environment}"))?;
                let answer = shared.borrow_mut().worker.ask(&Request::Run {
                    id: *id,
                    kernel,
                    windows,
                })?;
                return Ok((answer.ns, answer.result));
            }
        };
        let ns = timing.ticks.into_iter().map(|ticks| ticks as f64 / rate);
        Ok((ns.collect(), timing.result))
    }

    /// How often a second a kernel ends that runs again and again for so long, and the share
    /// of the time that its process had a core.
    ///
    /// # Errors
    /// The kernel's.
    pub fn per_second(
        &mut self,
        environment: Environment,
        kernel: Kernel,
        seconds: f64,
    ) -> Result<(f64, f64)> {
        let mut workers = self.workers.0.iter();
        if let Some((_, shared, id)) = workers.find(|(place, ..)| *place == environment) {
            let answer = shared.borrow_mut().worker.ask(&Request::Repeat {
                id: *id,
                kernel,
                seconds,
            })?;
            return Ok((answer.count as f64 / seconds, answer.core_share));
        }
        let (count, core_share) = repeat(seconds, || {
            self.windows(environment, kernel, 1)?;
            Ok(())
        })?;
        Ok((count as f64 / seconds, core_share))
    }
}

/// How long work goes on before it is counted: longer than the period in which a cgroup's
/// processor time is counted, so that whatever was saved up is used up.
const BEFORE_COUNTED: Duration = Duration::from_millis(150);

/// How often work ends within so many seconds, and the share of them that this process had a
/// core. Whole periods of a cgroup have as much processor
/// time whenever they begin, so nothing is rounded but the last piece of work.
///
/// # Errors
/// The work's.
pub(crate) fn repeat(seconds: f64, mut work: impl FnMut() -> Result<()>) -> Result<(usize, f64)> {
    let started = Instant::now();
    while started.elapsed() < BEFORE_COUNTED {
        work()?;
    }
    let (started, used_s, mut count) = (Instant::now(), processor_s(), 0);
    loop {
        work()?;
        if started.elapsed().as_secs_f64() > seconds {
            let used_s = processor_s() - used_s;
            return Ok((count, used_s / started.elapsed().as_secs_f64()));
        }
        count += 1;
    }
}

/// Seconds of processor time that this process has used, in hundredths; 0 where the system does
/// not say.
fn processor_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may have anything in it; from there the 12th and 13th word are
    // time in user and in kernel mode.
    let words = stat.rsplit(')').next().unwrap_or_default();
    let words = words.split_ascii_whitespace().skip(11).take(2);
    words
        .filter_map(|word| word.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}

impl Drop for Workers {
    fn drop(&mut self) {
        for (_, shared, id) in &self.0 {
            let worker = &mut shared.borrow_mut().worker;
            if !worker.is_dead() {
                // A worker that cannot has ended, and its memory with it.
                let _ = worker.ask(&Request::Close { id: *id });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_told_by_their_seeds() {
        let mut words = vec![0; 1 << 20];
        let mut again = words.clone();
        let all = [
            Content::Lines {
                lines: 100,
                seed: 1,
            },
            Content::Pages {
                pages: 9,
                apart_bytes: 8192,
                seed: 2,
            },
            Content::Values {
                at: 5,
                count: 7,
                below: 10,
                seed: 3,
            },
        ];
        for content in all {
            let laid = content.lay(&mut words).unwrap();
            assert_eq!(content.lay(&mut again).unwrap(), laid);
            assert_eq!(words, again, "{content:?}");
            let text = serde_json::to_string(&content).unwrap();
            assert_eq!(serde_json::from_str::<Content>(&text).unwrap(), content);
        }
        assert!(words[5..12].iter().all(|value| *value < 10));
    }

    #[test]
    fn what_has_no_room_is_refused() {
        let mut words = vec![0; 16];
        let values = |at, count, below| Content::Values {
            at,
            count,
            below,
            seed: 1,
        };
        for content in [
            Content::Lines { lines: 2, seed: 1 },
            Content::Lines { lines: 0, seed: 1 },
            Content::Pages {
                pages: usize::MAX,
                apart_bytes: 4096,
                seed: 1,
            },
            values(10, 7, 10),
            values(usize::MAX, 2, 10),
            values(0, 1, 0),
        ] {
            assert!(content.lay(&mut words).is_err(), "{content:?}");
        }
        assert!(values(10, 6, 10).lay(&mut words).is_ok());
    }
}
