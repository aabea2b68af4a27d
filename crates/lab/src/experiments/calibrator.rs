//! Source 000, table 1: a calibrator's results in a guest and natively.

use std::time::Instant;

use crate::environment::in_turn;
use crate::results::Results;
use crate::stats::{Estimate, estimate};
use crate::{
    About, Bench, Cell, Conclusion, Content, Environment, Experiment, Laid, Outcome, Run, Table,
};
use aerostat_calibrate::{
    APART_PAGES, Axis, Buffer, Chart, Curve, PAGE_BYTES, Pages, Point, STEP_BYTES, Scale,
    caches_of, cores,
};
use aerostat_micro_vm::{Kernel, MicroVm, Paging};
use anyhow::Result;

/// Table 1 of source 000, on this machine.
pub(crate) struct Calibrator;

const CACHES: &str = "lines, 2 MiB pages";
const SMALL_PAGES: &str = "a line of each page, 4 KiB pages";
const SMALL_CONTROL: &str = "as many lines side by side, for 4 KiB pages";
const HUGE_PAGES: &str = "a line of each page, 2 MiB pages";
const HUGE_CONTROL: &str = "as many lines side by side, for 2 MiB pages";
const TOUCH: &str = "first touch of a 4 KiB page";
const TOUCH_TOUCHED: &str = "first touch in the guest, memory touched by the process before";
const READY: &str = "making a guest ready";
const ENTER: &str = "entering and leaving a guest";

/// A plateau in a guest is that of the process if it is within this share of it.
const PLATEAU_NEAR: f64 = 0.05;

/// The share of a knee up to which its plateau counts: away from it, a little more or less
/// memory changes nothing.
const TO_KNEE: f64 = 0.5;

/// Walks end where nothing is found in caches.
const MEMORY_BYTES: usize = 128 << 20;

/// Where walks are long: these are taken in every other round, unless there are few.
const LONG_BYTES: usize = 4 << 20;

/// Windows of a round, and the loads of a window: as `aerostat calibrate`, whose chains these
/// are.
const WINDOWS: usize = 6;
const WINDOW_LOADS_MIN: usize = 8192;
const WINDOW_LOADS_MAX: usize = 1 << 15;

/// Loads of the untimed walk: a whole turn through what caches hold.
const WARM_LOADS_MAX: usize = 1 << 19;

/// Bytes whose pages are touched for the first time.
const TOUCH_BYTES: usize = 8 << 20;

/// Pages that are walked through.
const PAGES: [usize; 10] = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192];
const PAGES_HUGE_MAX: usize = 64;

impl Experiment for Calibrator {
    fn about(&self) -> About {
        About {
            name: "calibrator",
            question: "Are caches and memory as fast in a guest as beside it, and what does address translation cost there?",
            source: "000 §3.2, table 1",
            parameters: "8 KiB to 128 MiB walked through, four sizes per doubling, two from 4 MiB on; 16 to 8,192 pages of 4 KiB and 16 to 64 of 2 MiB; environments in turns, kvm-micro over the same memory as native",
            expected: "the plateaus of caches and memory within 5% of native (000: the same sizes and latencies); a TLB miss costs more in the guest (000: 23 cycles, hidden natively)",
            environments: &Environment::TIMED,
        }
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        cores::settled(None, |_| measure(run))?
    }

    fn conclude(&self, results: &Results) -> Conclusion {
        conclude(results)
    }
}

fn measure(run: &mut Run<'_>) -> Result<()> {
    let run_is_quick = run.is_quick();
    let rounds = if run_is_quick { 5 } else { 11 };
    {
        let mut buffer = Buffer::new(MEMORY_BYTES, Pages::Huge)?;
        buffer.populate();
        let environments = run.environments();
        let mut bench = Bench::new(&mut buffer, Paging::Huge, &run.places())?;
        for round in 0..rounds {
            let seed = run.seed() ^ round as u64;
            run.cell(
                &format!("caches, round {} of {rounds}", round + 1),
                |cell| {
                    let is_long = |bytes: &usize| *bytes > LONG_BYTES;
                    let is_due = round % 2 == 0 || run_is_quick;
                    for bytes in sizes()
                        .into_iter()
                        .filter(|bytes| is_due || !is_long(bytes))
                    {
                        let lines = bytes / STEP_BYTES;
                        let chain = bench.fill(Content::Lines { lines, seed })?;
                        let point = (CACHES, bytes as f64, round);
                        walk(cell, &mut bench, &environments, point, chain)?;
                    }
                    Ok(())
                },
            )?;
        }
    }
    pages(run, rounds, Pages::Small)?;
    pages(run, rounds, Pages::Huge)?;
    touches(run, rounds)
}

/// Whole lines: four sizes per doubling, two where walks are long.
fn sizes() -> Vec<usize> {
    let doublings = MEMORY_BYTES.ilog2() - 13;
    let size = |step: u32| (8192.0 * (f64::from(step) / 4.0).exp2()) as usize / 64 * 64;
    let is_taken = |(step, bytes): &(u32, usize)| *bytes <= LONG_BYTES || step % 2 == 0;
    let steps = (0..=doublings * 4).map(|step| (step, size(step)));
    steps.filter(is_taken).map(|(_, bytes)| bytes).collect()
}

/// A round at one point, in each environment.
fn walk(
    cell: &mut Cell,
    bench: &mut Bench<'_>,
    environments: &[Environment],
    (series, x, round): (&str, f64, usize),
    chain: Laid,
) -> Result<()> {
    let turns = WINDOW_LOADS_MIN.div_ceil(chain.loads);
    let loads = (chain.loads * turns).min(WINDOW_LOADS_MAX);
    let loads = loads.next_multiple_of(16);
    for environment in in_turn(environments, round) {
        let at = chain.at;
        // A whole turn untimed, so that all is where it will be.
        let whole = chain.loads.next_multiple_of(16).min(WARM_LOADS_MAX);
        bench.windows(environment, Kernel::Chase { at, loads: whole }, 1)?;
        let ns = bench.ns(environment, Kernel::Chase { at, loads }, WINDOWS)?;
        cell.put(environment, series, x, ns / loads as f64);
    }
    Ok(())
}

/// Walks over a line of each page, and their control.
fn pages(run: &mut Run<'_>, rounds: usize, pages: Pages) -> Result<()> {
    let (of_pages, control, apart, counts, paging) = match pages {
        Pages::Small => (
            SMALL_PAGES,
            SMALL_CONTROL,
            APART_PAGES * PAGE_BYTES,
            &PAGES[..],
            Paging::Small,
        ),
        Pages::Huge => {
            let some = PAGES.partition_point(|count| *count <= PAGES_HUGE_MAX);
            (
                HUGE_PAGES,
                HUGE_CONTROL,
                2 << 20,
                &PAGES[..some],
                Paging::Huge,
            )
        }
    };
    let most = counts.last().copied().unwrap_or(1);
    let mut apart_buffer = Buffer::new(most * apart, pages)?;
    let mut beside_buffer = Buffer::new(most * STEP_BYTES, Pages::Huge)?;
    beside_buffer.populate();
    let (environments, places) = (run.environments(), run.places());
    let mut apart_bench = Bench::new(&mut apart_buffer, paging, &places)?;
    let mut beside = Bench::new(&mut beside_buffer, Paging::Huge, &places)?;
    for round in 0..rounds {
        let seed = run.seed() ^ round as u64;
        run.cell(
            &format!("{of_pages}, round {} of {rounds}", round + 1),
            |cell| {
                for &count in counts {
                    let x = count as f64;
                    let pages = Content::Pages {
                        pages: count,
                        apart_bytes: apart,
                        seed,
                    };
                    let chain = apart_bench.fill(pages)?;
                    let point = (of_pages, x, round);
                    walk(cell, &mut apart_bench, &environments, point, chain)?;
                    let chain = beside.fill(Content::Lines { lines: count, seed })?;
                    let point = (control, x, round);
                    walk(cell, &mut beside, &environments, point, chain)?;
                }
                Ok(())
            },
        )?;
    }
    Ok(())
}

/// First touches of fresh memory, and what a guest costs to have.
fn touches(run: &mut Run<'_>, rounds: usize) -> Result<()> {
    let (environments, places) = (run.environments(), run.places());
    let pages = TOUCH_BYTES / PAGE_BYTES;
    let touch = Kernel::Touch { pages };
    for round in 0..rounds {
        run.cell(
            &format!("first touch, round {} of {rounds}", round + 1),
            |cell| {
                for &environment in &environments {
                    let mut buffer = Buffer::new(TOUCH_BYTES, Pages::Small)?;
                    let mut bench = Bench::new(&mut buffer, Paging::Small, &places)?;
                    let ns: f64 = bench.windows(environment, touch, 1)?.0.iter().sum();
                    cell.put(environment, TOUCH, 1.0, ns / pages as f64);
                }
                if environments.contains(&Environment::KvmMicro) {
                    let mut buffer = Buffer::new(TOUCH_BYTES, Pages::Small)?;
                    buffer.populate();
                    guest_alone(cell, &mut buffer, touch, pages)?;
                }
                Ok(())
            },
        )?;
    }
    Ok(())
}

/// What only a guest costs.
fn guest_alone(cell: &mut Cell, buffer: &mut Buffer, touch: Kernel, pages: usize) -> Result<()> {
    let started = Instant::now();
    let mut vm = MicroVm::new(buffer.words_mut(), Paging::Small)?;
    vm.guest(Kernel::Clock, 1)?;
    let ready = started.elapsed().as_nanos() as f64;
    let entries = 32;
    let started = Instant::now();
    for _ in 0..entries {
        vm.guest(Kernel::Clock, 1)?;
    }
    let enter = started.elapsed().as_nanos() as f64 / f64::from(entries);
    let rate = vm.ticks_per_ns()?;
    let ticks: u64 = vm.guest(touch, 1)?.ticks.iter().sum();
    let guest = Environment::KvmMicro;
    cell.put(
        guest,
        TOUCH_TOUCHED,
        1.0,
        ticks as f64 / rate / pages as f64,
    );
    cell.put(guest, READY, 1.0, ready);
    cell.put(guest, ENTER, 1.0, enter);
    Ok(())
}

/// Sizes that a cache holds, or that none does.
struct Plateau {
    name: String,
    from: f64,
    to: f64,
}

/// The plateaus that the native curve has: below each knee that is sure, and in memory.
fn plateaus(results: &Results) -> Vec<Plateau> {
    let native = |x: &f64| Point {
        x: *x,
        ns: results.values(Environment::Native, CACHES, *x),
    };
    let xs = results.xs(Environment::Native, CACHES);
    let curve = Curve {
        points: xs.iter().map(native).collect(),
    };
    let mut plateaus = Vec::new();
    let mut from = 0.0;
    for (level, (step, size)) in caches_of(&curve).into_iter().enumerate() {
        let to = step.knee * TO_KNEE;
        if size.value.is_some() && from < to {
            plateaus.push(Plateau {
                name: format!("L{}", level + 1),
                from,
                to,
            });
        }
        from = step.knee * 2.0;
    }
    if let Some(last) = xs.last().filter(|last| **last == MEMORY_BYTES as f64) {
        plateaus.push(Plateau {
            name: "memory".to_owned(),
            from: last / 2.0,
            to: *last,
        });
    }
    plateaus
}

/// A plateau's ns per load in an environment, and how many times as long that is as natively.
fn on_plateau(
    results: &Results,
    plateau: &Plateau,
    environment: Environment,
) -> [Option<Estimate>; 2] {
    let xs = results.xs(Environment::Native, CACHES);
    let inside = |x: &f64| (plateau.from..=plateau.to).contains(x);
    let xs: Vec<f64> = xs.into_iter().filter(inside).collect();
    let values = |environment| -> Vec<f64> {
        let at = |x: &f64| results.values(environment, CACHES, *x);
        xs.iter().flat_map(at).collect()
    };
    let (native, there) = (values(Environment::Native), values(environment));
    [estimate(&there), crate::stats::ratio(&there, &native)]
}

/// ns of a load beyond its control, when far more pages are in use than a TLB holds.
fn page_walk(results: &Results, environment: Environment, huge: bool) -> Option<Estimate> {
    let (pages, control) = if huge {
        (HUGE_PAGES, HUGE_CONTROL)
    } else {
        (SMALL_PAGES, SMALL_CONTROL)
    };
    let most = *results.xs(environment, pages).last()?;
    let walks = results.values(environment, pages, most);
    let controls = results.values(environment, control, most);
    let beyond: Vec<f64> = walks.iter().zip(&controls).map(|(a, b)| a - b).collect();
    estimate(&beyond)
}

/// How the plateaus of an environment compare with the native ones, of those that are sure.
#[derive(Default)]
struct Compared {
    told: Vec<String>,
    off: Vec<String>,
}

fn conclude(results: &Results) -> Conclusion {
    let others = results.compared();
    let mut compared: Vec<(Environment, Compared)> = others
        .iter()
        .map(|one| (*one, Compared::default()))
        .collect();
    let mut rows = Vec::new();
    for plateau in plateaus(results) {
        let [native, _] = on_plateau(results, &plateau, Environment::Native);
        let mut row = vec![format!("a load from {}", plateau.name), text(native)];
        for (environment, compared) in &mut compared {
            let [there, ratio] = on_plateau(results, &plateau, *environment);
            row.extend([text(there), overhead(ratio)]);
            if let Some(ratio) = ratio.filter(Estimate::is_sure) {
                let percent = (ratio.median - 1.0) * 100.0;
                compared
                    .told
                    .push(format!("{} {percent:+.1}%", plateau.name));
                if percent.abs() > PLATEAU_NEAR * 100.0 {
                    compared.off.push(plateau.name.clone());
                }
            }
        }
        rows.push(row);
    }
    rows.extend(costs(results, &others));
    compared.retain(|(_, compared)| !compared.told.is_empty());
    let is_off = compared
        .iter()
        .any(|(_, compared)| !compared.off.is_empty());
    let outcome = match (compared.is_empty(), is_off) {
        (true, _) => Outcome::Unclear,
        (_, false) => Outcome::AsExpected,
        _ => Outcome::Differs,
    };
    let mut headings = vec![String::new(), "native".to_owned()];
    for environment in &others {
        headings.extend([results.label(*environment), "to native".to_owned()]);
    }
    Conclusion {
        outcome,
        verdict: verdict(results, &compared),
        tables: vec![Table {
            title: "Native against other environments (000, table 1)".to_owned(),
            headings,
            rows,
        }],
        charts: charts(results),
    }
}

/// What address translation and a guest cost: of each a row of texts.
fn costs(results: &Results, others: &[Environment]) -> Vec<Vec<String>> {
    let walk = |huge| move |environment| page_walk(results, environment, huge);
    let at = |series| move |environment| results.at(environment, series, 1.0);
    let mut rows = Vec::new();
    let mut row = |what: &str, value: &dyn Fn(Environment) -> Option<Estimate>| {
        let there: Vec<Option<Estimate>> = others.iter().map(|one| value(*one)).collect();
        let native = value(Environment::Native);
        if native.is_some() || there.iter().any(Option::is_some) {
            let mut row = vec![what.to_owned(), text(native)];
            row.extend(there.into_iter().flat_map(|one| [text(one), String::new()]));
            rows.push(row);
        }
    };
    row(
        "a page walk, 8,192 pages of 4 KiB in use, beyond its control",
        &walk(false),
    );
    row(
        "a page walk, 64 pages of 2 MiB in use, beyond its control",
        &walk(true),
    );
    row("first touch of a page, 4 KiB", &at(TOUCH));
    row(
        "the same, touched by the process before",
        &at(TOUCH_TOUCHED),
    );
    row("making a guest ready", &at(READY));
    row("entering and leaving a guest", &at(ENTER));
    rows
}

fn text(value: Option<Estimate>) -> String {
    value.map_or("–".to_owned(), told)
}

fn verdict(results: &Results, compared: &[(Environment, Compared)]) -> String {
    if compared.is_empty() {
        return "No plateau was measured surely in two environments.".to_owned();
    }
    let mut text = String::new();
    for (environment, Compared { told, off }) in compared {
        text += &format!(
            "A load in {} beside a native one: {}. ",
            results.label(*environment),
            told.join(", ")
        );
        text += &match &off[..] {
            [] => "All are within 5%. ".to_owned(),
            off => format!("Not within 5%: {}. ", off.join(", ")),
        };
    }
    let walk = |environment| page_walk(results, environment, false);
    let touch = |environment| results.at(environment, TOUCH, 1.0);
    type Value<'a> = &'a dyn Fn(Environment) -> Option<Estimate>;
    let of: [(&str, Value<'_>); 2] = [
        ("A page walk takes", &walk),
        ("The first touch of a page takes", &touch),
    ];
    for (what, value) in of {
        let Some(native) = value(Environment::Native) else {
            continue;
        };
        let there = compared.iter().filter_map(|(environment, _)| {
            Some(format!(
                "{} in {}",
                told(value(*environment)?),
                results.label(*environment)
            ))
        });
        let there: Vec<String> = there.collect();
        if !there.is_empty() {
            let native = told(native);
            text += &format!("{what} {native} natively, {}. ", there.join(", "));
        }
    }
    text.trim_end().to_owned()
}

/// `5.02 ns [4.98, 5.10]`; from 10,000 ns on in µs.
fn told(value: Estimate) -> String {
    let (scale, unit) = if value.median > 10_000.0 {
        (1e-3, "µs")
    } else {
        (1.0, "ns")
    };
    let [median, low, high] = [value.median, value.low, value.high].map(|x| x * scale);
    format!("{median:.2} {unit} [{low:.2}, {high:.2}]")
}

/// The ratio, if it is sure.
pub(super) fn overhead(ratio: Option<Estimate>) -> String {
    match ratio {
        None => String::new(),
        Some(ratio) if !ratio.is_sure() => "not told: the interval is 10% wide or more".to_owned(),
        Some(ratio) => {
            let [median, low, high] =
                [ratio.median, ratio.low, ratio.high].map(|x| (x - 1.0) * 100.0);
            format!("{median:+.1}% [{low:+.1}, {high:+.1}]")
        }
    }
}

fn charts(results: &Results) -> Vec<(&'static str, Chart)> {
    let lines = |all: &[&str]| {
        let pairs = all.iter().flat_map(|series| {
            Environment::TIMED.map(|environment| results.line(environment, series, 1.0))
        });
        pairs.filter(|line| !line.points.is_empty()).collect()
    };
    let marks = plateaus(results);
    let marks = marks.iter().filter(|plateau| plateau.name != "memory");
    let caches = Chart {
        title: "A load by the memory walked through, by environment".to_owned(),
        x: Axis::bytes("memory walked through"),
        y: Axis::new("ns per load", Scale::Log),
        lines: lines(&[CACHES]),
        marks: marks
            .map(|plateau| (plateau.to / TO_KNEE, plateau.name.clone()))
            .collect(),
        levels: Vec::new(),
    };
    let pages = Chart {
        title: "A load by the 4 KiB pages in use, by environment".to_owned(),
        x: Axis::new("pages of 4 KiB in use", Scale::Log),
        y: Axis::new("ns per load", Scale::Log),
        lines: lines(&[SMALL_PAGES, SMALL_CONTROL]),
        marks: Vec::new(),
        levels: Vec::new(),
    };
    [("caches", caches), ("pages-4k", pages)]
        .into_iter()
        .filter(|(_, chart)| !chart.lines.is_empty())
        .collect()
}

#[cfg(test)]
mod tests;
