//! Source 001's impact of writes: queries while the fact table grows by batches.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use aerostat_calibrate::{Axis, Chart, Line, Scale as AxisScale};
use aerostat_workload::Scale;
use aerostat_workload::copy::Format;
use aerostat_workload::load::{connect, copy_bytes};
use aerostat_workload::ssb::{SEED_DEFAULT, Ssb, Table as SsbTable};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::stream;
use tokio_postgres::Config;

use super::bed::{Bed, GOAL_MS, OTHERS, disturbance, undisturbed};
use crate::experiment::Cell;
use crate::results::Results;
use crate::stats::Estimate;
use crate::traffic::{Seen, Stream, WARM_UP, p99};
use crate::{About, Conclusion, Environment, Experiment, Outcome, Run, Table};

/// What batches and merges do to response times.
pub(crate) struct BatchWrites;

/// The fact table grows by this share of itself with each batch (source 001).
const GROWTH: f64 = 0.005;

/// The requests' share of what the node can do at most: what a plan leaves room beside.
const LOAD: f64 = 0.4;

/// Seconds of a point over time.
const BIN_S: f64 = 0.5;

/// Batches, and merges in the middle between them, per round.
const BATCHES: usize = 5;

const OVER_TIME: &str = "99th percentile over time, ms";
const BATCH: &str = "99th percentile of requests beside a batch, ms";
const MERGE: &str = "99th percentile of requests beside a merge, ms";
const NEITHER: &str = "99th percentile of requests beside neither, ms";
const BATCH_MS: &str = "a batch, ms";
const MERGE_MS: &str = "a merge, ms";

/// What the writer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Adds a batch of rows.
    Batch,
    /// Merges them into the frozen rows.
    Merge,
}

/// A work of the writer's, from when to when, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Done {
    work: Work,
    from_s: f64,
    to_s: f64,
}

/// Plans of time.
#[derive(Clone, Copy)]
struct Plan {
    scale: f64,
    /// Seconds between batches.
    every_s: f64,
}

impl Plan {
    fn seconds(self) -> f64 {
        self.every_s * BATCHES as f64
    }
}

impl Experiment for BatchWrites {
    fn about(&self) -> About {
        About {
            name: "batch-writes",
            question: "What do batches of writes, and merging them, do to the response times of queries?",
            source: "001, \"Impact of writes\": the fact table grows by 0.5% every 5 minutes",
            parameters: "one tenant of 6 million rows (1.8 million with --quick) at 40% of the most its node can do; every 12 s (4 s) COPY adds 0.5% of the fact table's rows, spread over its keys, and in the middle between VACUUM FREEZE merges them into the frozen ones; response times from when requests were due",
            expected: "batches and merges are seen, and 99% of the responses still come within 50 ms (001: merges can be done during normal operation)",
            environments: &[Environment::Native],
        }
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        let (plan, rounds) = if run.is_quick() {
            let (scale, every_s) = (0.3, 4.0);
            (Plan { scale, every_s }, 2)
        } else {
            let (scale, every_s) = (1.0, 12.0);
            (Plan { scale, every_s }, 3)
        };
        let Some(mut bed) = Bed::new(run, &[plan.scale])? else {
            return Ok(());
        };
        let mut batches = batches(plan.scale, BATCHES * rounds)?.into_iter();
        for round in 0..rounds {
            let next: Vec<_> = batches.by_ref().take(BATCHES).collect();
            run.cell(&format!("round {} of {rounds}", round + 1), |cell| {
                one(&mut bed, next, plan, cell)
            })?;
        }
        Ok(())
    }

    fn conclude(&self, results: &Results) -> Conclusion {
        conclude(results)
    }
}

/// A round: requests, and a writer beside them.
fn one(bed: &mut Bed, batches: Vec<(Bytes, u64)>, plan: Plan, cell: &mut Cell) -> Result<()> {
    let rate = LOAD * bed.traffic.saturate(0, 1.0)?;
    let config = bed.node.config(&bed.names[0])?;
    let writer = write(config, batches, plan);
    let patience = Duration::from_secs(2);
    let streams = [Stream { tenant: 0, rate }];
    let seen = bed.traffic.send(&streams, plan.seconds(), patience)?;
    let written = writer.join();
    let done = written.map_err(|_| anyhow::anyhow!("the writer has panicked"))??;
    put(&seen, &done, plan, cell);
    Ok(())
}

fn put(seen: &Seen, done: &[Done], plan: Plan, cell: &mut Cell) {
    let native = Environment::Native;
    let bins = (plan.seconds() / BIN_S) as u32;
    for bin in 0..bins {
        let from_s = f64::from(bin) * BIN_S;
        let due = seen.requests.iter().filter(|one| {
            one.due_s >= from_s && one.due_s < from_s + BIN_S && one.waited_ms.is_finite()
        });
        let p99_ms = p99(due.map(|one| one.waited_ms));
        if p99_ms > 0.0 {
            cell.put(native, OVER_TIME, from_s + BIN_S / 2.0, p99_ms);
        }
    }
    for (series, work) in [
        (BATCH, Some(Work::Batch)),
        (MERGE, Some(Work::Merge)),
        (NEITHER, None),
    ] {
        let of = seen.requests.iter().filter(|one| {
            let to_s = one.due_s + one.waited_ms.min(1e6) / 1e3;
            beside(done, one.due_s, to_s) == work
        });
        cell.put(native, series, 0.0, p99(of.map(|one| one.waited_ms)));
    }
    for one in done {
        let series = match one.work {
            Work::Batch => BATCH_MS,
            Work::Merge => MERGE_MS,
        };
        cell.put(native, series, 0.0, (one.to_s - one.from_s) * 1e3);
    }
    cell.put(native, OTHERS, 0.0, seen.others);
}

/// The work during which a request was under way, the first if several.
fn beside(done: &[Done], from_s: f64, to_s: f64) -> Option<Work> {
    let overlaps = |one: &&Done| one.from_s <= to_s && from_s <= one.to_s;
    done.iter().find(overlaps).map(|one| one.work)
}

/// Rows to come as COPY text, batch by batch: every two-hundredth row of the fact table once
/// more, another one in each batch, as a further line of its order. So each batch reaches
/// into all of the frozen rows, and merging it builds them anew.
fn batches(scale: f64, count: usize) -> Result<Vec<(Bytes, u64)>> {
    let scale = Scale::new(scale).with_context(|| format!("{scale} is no scale"))?;
    let ssb = Ssb::new(scale, SEED_DEFAULT);
    let every = (1.0 / GROWTH) as usize;
    let mut batches = vec![(String::new(), 0); count.min(every)];
    let mut row = 0;
    let mut chunk_text = Vec::new();
    for chunk in 0..ssb.chunks(SsbTable::Lineorder) {
        chunk_text.clear();
        ssb.copy_chunk(SsbTable::Lineorder, chunk, Format::Text, &mut chunk_text);
        let text = std::str::from_utf8(&chunk_text).context("COPY text is no UTF-8")?;
        for line in text.lines() {
            if let Some((batch, rows)) = batches.get_mut(row % every) {
                let mut columns = line.splitn(3, '\t');
                let mut column = || columns.next().context("a row has too few columns");
                let (order, number, rest) = (column()?, column()?, column()?);
                // An order has up to seven lines.
                let number = number.parse::<u32>().context("a line's number is none")? + 10;
                *batch += &format!("{order}\t{number}\t{rest}\n");
                *rows += 1;
            }
            row += 1;
        }
    }
    Ok(batches
        .into_iter()
        .map(|(text, rows)| (text.into(), rows))
        .collect())
}

/// Writes batches and merges them, beside the requests that begin now.
fn write(config: Config, batches: Vec<(Bytes, u64)>, plan: Plan) -> JoinHandle<Result<Vec<Done>>> {
    let start = Instant::now() + WARM_UP;
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the writer")?;
        runtime.block_on(async {
            let client = connect(&config.into()).await?;
            let statement = Format::Text.copy_statement("lineorder");
            let mut done = Vec::new();
            let now_s = || start.elapsed().as_secs_f64();
            for (number, (batch, rows)) in batches.into_iter().enumerate() {
                for work in [Work::Batch, Work::Merge] {
                    let at = start + Duration::from_secs_f64(begins_s(number, work, plan.every_s));
                    tokio::time::sleep_until(at.into()).await;
                    let from_s = now_s();
                    match work {
                        Work::Batch => {
                            let text = stream::iter([Ok::<_, std::io::Error>(batch.clone())]);
                            let copied = copy_bytes(&client, &statement, text).await?;
                            ensure!(
                                copied.rows == rows,
                                "{} of {rows} rows were taken",
                                copied.rows
                            );
                        }
                        Work::Merge => client.batch_execute("VACUUM FREEZE").await?,
                    }
                    let to_s = now_s();
                    done.push(Done { work, from_s, to_s });
                }
            }
            Ok(done)
        })
    })
}

fn conclude(all: &Results) -> Conclusion {
    let results = &undisturbed(all);
    let native = Environment::Native;
    let at = |series| results.at(native, series, 0.0);
    let (Some(batch), Some(merge), Some(neither)) = (at(BATCH), at(MERGE), at(NEITHER)) else {
        return Conclusion {
            outcome: Outcome::Unclear,
            verdict: "Not enough was measured.".to_owned(),
            tables: Vec::new(),
            charts: Vec::new(),
        };
    };
    let is_kept = [batch, merge].iter().all(|one| one.median <= GOAL_MS);
    let ms = |series| at(series).map_or(f64::NAN, |one: Estimate| one.median);
    Conclusion {
        outcome: if is_kept {
            Outcome::AsExpected
        } else {
            Outcome::Differs
        },
        verdict: format!(
            "99% of the responses come within {:.1} ms beside neither, {:.1} ms beside a batch and {:.1} ms beside a merge. A batch takes {:.0} ms, a merge {:.0} ms.{}",
            neither.median,
            batch.median,
            merge.median,
            ms(BATCH_MS),
            ms(MERGE_MS),
            disturbance(all),
        ),
        tables: vec![table(results)],
        charts: chart(results)
            .map(|chart| ("time", chart))
            .into_iter()
            .collect(),
    }
}

fn table(results: &Results) -> Table {
    let row = |series: &str| {
        let at = results.at(Environment::Native, series, 0.0);
        let text = at.map_or("–".to_owned(), |at| {
            format!("{:.1} [{:.1}, {:.1}]", at.median, at.low, at.high)
        });
        vec![series.to_owned(), text]
    };
    Table {
        title: "Response times beside writes".to_owned(),
        headings: ["", "ms"].map(str::to_owned).to_vec(),
        rows: [NEITHER, BATCH, MERGE, BATCH_MS, MERGE_MS]
            .map(row)
            .to_vec(),
    }
}

/// Response times over time, with the moments at which batches and merges begin.
fn chart(results: &Results) -> Option<Chart> {
    let line = results.line(Environment::Native, OVER_TIME, 1.0);
    let end_s = line.points.last()?.x + BIN_S / 2.0;
    let every_s = end_s / BATCHES as f64;
    let marks = (0..BATCHES).flat_map(|number| {
        let batch_s = begins_s(number, Work::Batch, every_s);
        let merge_s = begins_s(number, Work::Merge, every_s);
        [(batch_s, "batch".to_owned()), (merge_s, "merge".to_owned())]
    });
    Some(Chart {
        title: "Response times while a fact table grows by batches".to_owned(),
        x: Axis::new("seconds", AxisScale::Linear),
        y: Axis::new(
            "99th percentile of response times in half a second, ms",
            AxisScale::Log,
        ),
        lines: vec![Line {
            name: "requests at 40% of the most".to_owned(),
            ..line
        }],
        marks: marks.collect(),
        levels: vec![(GOAL_MS, "goal: 50 ms".to_owned())],
    })
}

/// When a work begins: batches in the first quarter of each interval, merges in the third.
fn begins_s(number: usize, work: Work, every_s: f64) -> f64 {
    let part = match work {
        Work::Batch => 0.25,
        Work::Merge => 0.75,
    };
    (number as f64 + part) * every_s
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::bed::tests::sample;
    use super::*;

    fn results(batch: f64, merge: f64) -> Results {
        let mut samples = vec![
            sample(NEITHER, 0.0, 8.0),
            sample(BATCH, 0.0, batch),
            sample(MERGE, 0.0, merge),
            sample(BATCH_MS, 0.0, 60.0),
            sample(MERGE_MS, 0.0, 150.0),
        ];
        let bins = (0..40).map(|bin| sample(OVER_TIME, f64::from(bin) / 2.0 + 0.25, 9.0));
        samples.extend(bins);
        Results {
            samples,
            ..Results::default()
        }
    }

    #[test]
    fn a_goal_that_is_kept_beside_writes_is_as_expected() {
        let kept = conclude(&results(20.0, 31.0));
        assert_eq!(kept.outcome, Outcome::AsExpected);
        for text in [
            "8.0 ms beside neither",
            "20.0 ms beside a batch",
            "a merge 150 ms",
        ] {
            assert!(kept.verdict.contains(text), "{text}: {}", kept.verdict);
        }
        let chart = &kept.charts[0].1;
        assert_eq!(chart.marks[0], (1.0, "batch".to_owned()));
        assert_eq!(chart.marks[1], (3.0, "merge".to_owned()));
        assert!(chart.svg().is_ok());
        assert_eq!(conclude(&results(20.0, 80.0)).outcome, Outcome::Differs);
    }

    #[test]
    fn requests_are_beside_the_work_they_overlap() {
        let done = |work, from_s, to_s| Done { work, from_s, to_s };
        let all = [done(Work::Batch, 1.0, 1.1), done(Work::Merge, 3.0, 3.5)];
        assert_eq!(beside(&all, 0.5, 0.9), None);
        assert_eq!(beside(&all, 0.5, 1.05), Some(Work::Batch));
        assert_eq!(beside(&all, 3.4, 9.0), Some(Work::Merge));
        assert_eq!(beside(&all, 0.0, 9.0), Some(Work::Batch));
        assert_eq!(beside(&[], 0.0, 9.0), None);
    }

    #[test]
    fn batches_are_of_rows_that_are_not_there_yet() {
        let batches = batches(0.01, 3).unwrap();
        assert_eq!(batches.len(), 3);
        let mut keys = HashSet::new();
        for (batch, rows) in batches {
            assert_eq!(rows, 300);
            let text = std::str::from_utf8(&batch).unwrap();
            assert_eq!(text.lines().count(), 300);
            for line in text.lines() {
                let columns: Vec<&str> = line.split('\t').collect();
                assert_eq!(columns.len(), 17);
                let key: [u64; 2] = [0, 1].map(|at: usize| columns[at].parse().unwrap());
                assert!(key[1] > 7 && keys.insert(key), "{key:?}");
            }
        }
        // From one end of the table to the other.
        let orders = keys.iter().map(|key| key[0]);
        assert!(orders.clone().min() < Some(100) && orders.max() > Some(14_900));
    }
}
