//! The report of a drive: plain data, for JSON or a table.

use std::time::Duration;

use serde::Serialize;

use super::QueryName;
use super::options::Options;
use super::record::{Recorder, Tally};

/// What users saw.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The load, in words.
    pub load: String,
    /// Warm-up, seconds.
    pub warm_up_s: f64,
    /// Measured time, seconds.
    pub duration_s: f64,
    /// The goal: this share of requests …
    pub goal_share: f64,
    /// … within this many milliseconds.
    pub goal_ms: f64,
    /// Whether every tenant's goal was met.
    pub goal_met: bool,
    /// All requests.
    pub total: Summary,
    /// Per tenant, in the order given.
    pub tenants: Vec<TenantReport>,
    /// Per flight, in the order of the first query of each.
    pub flights: Vec<Summary>,
    /// Per query, in the order given.
    pub queries: Vec<Summary>,
}

/// One tenant's part of a report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TenantReport {
    /// Counts and latencies.
    #[serde(flatten)]
    pub summary: Summary,
    /// Whether the goal was met.
    pub goal_met: bool,
    /// Longest queue of an open loop; zero in a closed one.
    pub backlog_max: u64,
}

/// Counts and latencies of a set of requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Whose.
    pub name: String,
    /// Requests that were due in the measured time.
    pub requests: u64,
    /// Requests answered.
    pub done: u64,
    /// Rows of all answers.
    pub rows: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests given up at the end of the drain.
    pub unfinished: u64,
    /// Requests that found the queue full.
    pub refused: u64,
    /// Answers per second, until the last of them.
    pub throughput_per_s: f64,
    /// Share of all requests answered within the goal, 1 where there was none.
    pub within_goal_share: f64,
    /// Latencies of answered and unfinished requests.
    pub latency: Latency,
}

/// Latencies in milliseconds, zero where nothing was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 90th percentile.
    pub p90_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Maximum.
    pub max_ms: f64,
}

impl Report {
    /// Headings of [`Report::rows`].
    pub const HEADINGS: [&'static str; 10] = [
        "", "requests", "errors", "per s", "p50 ms", "p90 ms", "p99 ms", "max ms", "in goal",
        "goal",
    ];

    /// The report as rows of text: tenants, flights (where there are several),
    /// queries, and the total.
    pub fn rows(&self) -> Vec<[String; 10]> {
        let tenants = self.tenants.iter().map(|tenant| {
            let met = if tenant.goal_met { "met" } else { "missed" };
            tenant.summary.row(met)
        });
        let flights = self.flights.iter().filter(|_| self.flights.len() > 1);
        let rest = flights.chain(&self.queries).map(|summary| summary.row(""));
        let met = if self.goal_met { "met" } else { "missed" };
        tenants
            .chain(rest)
            .chain(std::iter::once(self.total.row(met)))
            .collect()
    }
}

impl Summary {
    /// Requests without an answer.
    pub fn errors(&self) -> u64 {
        self.failed + self.unfinished + self.refused
    }

    fn new(name: String, tally: &Tally, duration: Duration) -> Self {
        let requests = tally.requests();
        let share = match requests {
            0 => 1.0,
            _ => tally.within_goal as f64 / requests as f64,
        };
        // An overloaded server finishes after the measured time; dividing by that
        // time alone would credit it with more than it can do.
        let elapsed = duration.max(tally.last_end);
        Self {
            name,
            requests,
            done: tally.done,
            rows: tally.rows,
            failed: tally.failed,
            unfinished: tally.unfinished,
            refused: tally.refused,
            throughput_per_s: tally.done as f64 / elapsed.as_secs_f64(),
            within_goal_share: share,
            latency: Latency::new(tally),
        }
    }

    fn row(&self, goal: &str) -> [String; 10] {
        [
            self.name.clone(),
            self.requests.to_string(),
            self.errors().to_string(),
            format!("{:.1}", self.throughput_per_s),
            milliseconds(self.latency.p50_ms),
            milliseconds(self.latency.p90_ms),
            milliseconds(self.latency.p99_ms),
            milliseconds(self.latency.max_ms),
            format!("{:.2} %", 100.0 * self.within_goal_share),
            goal.to_owned(),
        ]
    }
}

impl Latency {
    fn new(tally: &Tally) -> Self {
        let histogram = &tally.latencies_us;
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1_000.0;
        Self {
            mean_ms: histogram.mean() / 1_000.0,
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            max_ms: histogram.max() as f64 / 1_000.0,
        }
    }
}

/// Three significant digits are all the histogram has.
fn milliseconds(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.2}"),
        ms if ms < 100.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

/// Makes the report of a finished drive.
pub(super) fn build(
    recorder: &Recorder,
    tenants: &[String],
    queries: &[QueryName],
    options: &Options,
) -> Report {
    let duration = options.duration;
    let tallies: Vec<Tally> = (0..queries.len())
        .map(|query| recorder.query(query))
        .collect();
    let mut total = Tally::new();
    tallies.iter().for_each(|tally| total.add(tally));
    let tenants: Vec<TenantReport> = tenants
        .iter()
        .enumerate()
        .map(|(tenant, name)| {
            let tally = recorder.tenant(tenant);
            let summary = Summary::new(name.clone(), &tally, duration);
            TenantReport {
                goal_met: summary.within_goal_share >= options.goal.share,
                backlog_max: tally.backlog_max,
                summary,
            }
        })
        .collect();
    Report {
        load: options.mode.to_string(),
        warm_up_s: options.warm_up.as_secs_f64(),
        duration_s: duration.as_secs_f64(),
        goal_share: options.goal.share,
        goal_ms: options.goal.latency.as_secs_f64() * 1_000.0,
        goal_met: tenants.iter().all(|tenant| tenant.goal_met),
        total: Summary::new("total".to_owned(), &total, duration),
        tenants,
        flights: flights(queries, &tallies, duration),
        queries: queries
            .iter()
            .zip(&tallies)
            .map(|(query, tally)| Summary::new(query.id.clone(), tally, duration))
            .collect(),
    }
}

fn flights(queries: &[QueryName], tallies: &[Tally], duration: Duration) -> Vec<Summary> {
    let mut flights: Vec<(&str, Tally)> = Vec::new();
    for (query, tally) in queries.iter().zip(tallies) {
        let known = flights.iter().position(|(name, _)| *name == query.flight);
        let at = known.unwrap_or_else(|| {
            flights.push((&query.flight, Tally::new()));
            flights.len() - 1
        });
        flights[at].1.add(tally);
    }
    flights
        .into_iter()
        .map(|(name, tally)| Summary::new(name.to_owned(), &tally, duration))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_shown() {
        assert_eq!(milliseconds(0.0), "0.00");
        assert_eq!(milliseconds(1.234), "1.23");
        assert_eq!(milliseconds(12.34), "12.3");
        assert_eq!(milliseconds(1_234.4), "1234");
    }
}
