//! Source 001's workload model: highest request rate by tenant size.

use aerostat_calibrate::{Axis, Chart, ChartPoint, Line, Scale};
use aerostat_capacity::{FILE, Fits, Interval, Law, fit};
use anyhow::Result;

use super::bed::{
    ALIKE, Bed, Effort, GOAL_MS, MODEL, SOURCE_GOAL_MS, disturbance, model, observations, rates,
    undisturbed,
};
use super::search::Search;
use crate::results::Results;
use crate::{About, Conclusion, Environment, Experiment, Outcome, Run, Table};

/// The source's figures 4.1 and 4.2, on this machine.
pub(crate) struct WorkloadModel;

/// The source's exponent.
const SOURCE_EXPONENT: f64 = 0.945;

/// An exponent as near as this to the source's is the source's.
const NEAR: f64 = 0.1;

/// A law that explains less than this share of the variance is none.
const R_SQUARED_MIN: f64 = 0.95;

/// Response times are measured at these shares of the highest rate.
const SHARES: [f64; 6] = [0.2, 0.4, 0.6, 0.8, 0.95, 1.1];

/// The same in quick runs.
const SHARES_QUICK: [f64; 3] = [0.4, 0.8, 1.1];

/// Seconds of each rate that is tried for the source's goal: an overload by less than the goal's
/// share of it is not seen.
const SOURCE_SECONDS: f64 = 6.0;

fn response(rows: f64) -> String {
    format!("99th percentile, ms, {rows:.0} rows")
}

impl Experiment for WorkloadModel {
    fn about(&self) -> About {
        About {
            name: MODEL,
            question: "What is the highest request rate of tenants of a given size, if 99% of the responses have to come in time?",
            source: "001, \"Second question\", section 4.1, figures 4.1 and 4.2",
            parameters: "four tenants of a size at a time, of 120 thousand to 6 million rows each (to 3 million with --quick), at work together; the star schema benchmark's queries, arriving as a Poisson process, response times from when they were due; the 99th percentile within 50 ms, and within the source's 1,000 ms if not --quick",
            expected: "rate · size^m = C with m = 0.945 (001: C = 4144 on its servers)",
            environments: &[Environment::Native],
        }
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        let (scales, rounds): (&[f64], usize) = if run.is_quick() {
            (&[0.02, 0.1, 0.5], 2)
        } else {
            (&[0.02, 0.05, 0.1, 0.3, 1.0], 3)
        };
        let effort = Effort::of(run);
        let quick = run.is_quick();
        let shares: &[f64] = if quick { &SHARES_QUICK } else { &SHARES };
        let Some(mut bed) = Bed::alike(run, scales)? else {
            return Ok(());
        };
        for round in 0..rounds {
            for size in 0..scales.len() {
                let rows = bed.rows[size * ALIKE];
                let name = format!("{rows:.0} rows, round {} of {rounds}", round + 1);
                run.cell(&name, |cell| {
                    let Some(highest) = bed.highest(size, effort, cell)? else {
                        return Ok(());
                    };
                    for &share in shares {
                        let seen = bed.at_work(size, share * highest, GOAL_MS, effort)?;
                        // Who is not answered at all counts as that long.
                        let p99_ms = seen.p99_ms().min(GOAL_MS * 10.0);
                        cell.put(Environment::Native, &response(rows), share, p99_ms);
                    }
                    Ok(())
                })?;
            }
        }
        if !quick {
            source_goals(run, &mut bed, effort)?;
        }
        keep(run)
    }

    fn conclude(&self, results: &Results) -> Conclusion {
        conclude(results)
    }
}

/// The highest rates that keep the source's goal, once.
fn source_goals(run: &mut Run<'_>, bed: &mut Bed, effort: Effort) -> Result<()> {
    let effort = Effort {
        seconds: SOURCE_SECONDS,
        search: Search {
            probes: 4,
            near: 1.06,
        },
        ..effort
    };
    for known in observations(&run.results()?, GOAL_MS) {
        let Some(tenant) = bed.rows.iter().position(|rows| *rows == known.rows) else {
            continue;
        };
        let size = tenant / ALIKE;
        let first = known.rates.iter().fold(0.0, |a: f64, b| a.max(*b)) * 1.05;
        run.cell(
            &format!("{:.0} rows, the source's goal", known.rows),
            |cell| {
                let found = effort.search.highest(first, SOURCE_GOAL_MS, |rate| {
                    Ok(bed.at_work(size, rate, SOURCE_GOAL_MS, effort)?.p99_ms())
                })?;
                if let Some(rate) = found {
                    cell.put(
                        Environment::Native,
                        &rates(SOURCE_GOAL_MS),
                        known.rows,
                        rate,
                    );
                }
                Ok(())
            },
        )?;
    }
    Ok(())
}

/// Keeps the model in the run's folder and, of a run that is not quick, in the data folder.
fn keep(run: &Run<'_>) -> Result<()> {
    let Some(model) = model(&run.results()?, run.is_quick()) else {
        return Ok(());
    };
    let json = model.to_json()?;
    run.write(FILE, &json)?;
    run.write_data(FILE, &json)
}

fn conclude(all: &Results) -> Conclusion {
    let results = &undisturbed(all);
    let observed = observations(results, GOAL_MS);
    let Some(fits) = fit(&observed) else {
        return Conclusion {
            outcome: Outcome::Unclear,
            verdict: "Not enough was measured.".to_owned(),
            tables: Vec::new(),
            charts: Vec::new(),
        };
    };
    let is_source = fits.power.r_squared >= R_SQUARED_MIN
        && (fits.power.exponent.value - SOURCE_EXPONENT).abs() <= NEAR;
    Conclusion {
        outcome: if is_source {
            Outcome::AsExpected
        } else {
            Outcome::Differs
        },
        verdict: verdict(&fits) + &disturbance(all),
        tables: vec![by_size(results, &fits), parameters(&fits)],
        charts: charts(results, &fits),
    }
}

fn verdict(fits: &Fits) -> String {
    let (power, linear) = (&fits.power, &fits.linear);
    let law = format!(
        "rate · size^m = C with m = {:.3} [{:.3}, {:.3}] and C = {:.0} requests/s at a million rows; R² = {:.3} (001: m = 0.945).",
        power.exponent.value,
        power.exponent_t.low,
        power.exponent_t.high,
        power.scale.value,
        power.r_squared,
    );
    let other = format!(
        "A request's time of {:.2} ms and {:.2} ms for each million rows gives R² = {:.3}",
        linear.fixed_s.value * 1e3,
        linear.per_million_s.value * 1e3,
        linear.r_squared,
    );
    let choice = if fits.is_power() {
        "; the power law is the nearer one."
    } else {
        ", nearer than the power law: small requests cost what every request does, and plans go by this law."
    };
    format!("{law} {other}{choice}")
}

fn interval(at: Interval, digits: usize) -> String {
    format!(
        "{:.digits$} [{:.digits$}, {:.digits$}]",
        at.value, at.low, at.high
    )
}

fn by_size(results: &Results, fits: &Fits) -> Table {
    let native = Environment::Native;
    let goals = [GOAL_MS, SOURCE_GOAL_MS];
    let text = |goal: f64, rows: f64| {
        let at = results.at(native, &rates(goal), rows);
        at.map_or("–".to_owned(), |at| {
            format!("{:.1} [{:.1}, {:.1}]", at.median, at.low, at.high)
        })
    };
    let xs = results.xs(native, &rates(GOAL_MS));
    let row = |(at, rows): (usize, &f64)| {
        let residual = |all: &[f64]| {
            all.get(at).map_or("–".to_owned(), |one| {
                format!("{:+.1}%", (one.exp() - 1.0) * 100.0)
            })
        };
        vec![
            format!("{rows:.0}"),
            text(goals[0], *rows),
            format!("{:.1}", fits.power_law().rate(*rows)),
            residual(&fits.power.residuals),
            format!("{:.1}", fits.linear_law().rate(*rows)),
            residual(&fits.linear.residuals),
            text(goals[1], *rows),
        ]
    };
    let headings = [
        "rows",
        "requests/s, goal 50 ms",
        "power law",
        "off by",
        "fixed and by row",
        "off by",
        "requests/s, goal 1,000 ms (up to 1/6 too high)",
    ];
    Table {
        title: "Highest rates by tenant size".to_owned(),
        headings: headings.map(str::to_owned).to_vec(),
        rows: xs.iter().enumerate().map(row).collect(),
    }
}

fn parameters(fits: &Fits) -> Table {
    let (power, linear) = (&fits.power, &fits.linear);
    let row = |name: &str, texts: [String; 3]| {
        let mut row = vec![name.to_owned()];
        row.extend(texts);
        row
    };
    let ms = |at: Interval| Interval {
        low: at.low * 1e3,
        value: at.value * 1e3,
        high: at.high * 1e3,
    };
    let none = String::new;
    Table {
        title: "Parameters with 95% intervals".to_owned(),
        headings: [
            "",
            "by rounds drawn anew",
            "by Student's t over sizes",
            "source 001",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: vec![
            row(
                "m",
                [
                    interval(power.exponent, 3),
                    interval(power.exponent_t, 3),
                    "0.945".to_owned(),
                ],
            ),
            row(
                "C, requests/s at a million rows",
                [
                    interval(power.scale, 1),
                    interval(power.scale_t, 1),
                    "another unit: 4144".to_owned(),
                ],
            ),
            row(
                "R² of the power law",
                [format!("{:.4}", power.r_squared), none(), none()],
            ),
            row(
                "ms of a request over no rows",
                [interval(ms(linear.fixed_s), 3), none(), none()],
            ),
            row(
                "ms more for a million rows",
                [interval(ms(linear.per_million_s), 3), none(), none()],
            ),
            row(
                "R² of fixed and by row",
                [format!("{:.4}", linear.r_squared), none(), none()],
            ),
        ],
    }
}

/// A law's line over the sizes measured.
fn law_line(name: &str, law: Law, xs: &[f64]) -> Line {
    let (first, last) = (xs[0], xs[xs.len() - 1]);
    let at = |step: i32| first * (last / first).powf(f64::from(step) / 24.0);
    let point = |step| ChartPoint {
        x: at(step),
        y: law.rate(at(step)),
        interval: None,
    };
    Line {
        name: name.to_owned(),
        points: (0..=24).map(point).collect(),
    }
}

fn charts(results: &Results, fits: &Fits) -> Vec<(&'static str, Chart)> {
    let native = Environment::Native;
    let measured = results.line(native, &rates(GOAL_MS), 1.0);
    let xs: Vec<f64> = measured.points.iter().map(|point| point.x).collect();
    // The source's slope through the middle of what was measured.
    let logs = measured
        .points
        .iter()
        .map(|point| point.y.ln() + SOURCE_EXPONENT * (point.x / 1e6).ln());
    let source = Law::Power {
        exponent: SOURCE_EXPONENT,
        scale: (logs.sum::<f64>() / xs.len() as f64).exp(),
    };
    let mut lines = vec![
        Line {
            name: "measured, goal 50 ms".to_owned(),
            ..measured
        },
        law_line(
            &format!("power law, m = {:.3}", fits.power.exponent.value),
            fits.power_law(),
            &xs,
        ),
        law_line("fixed time and time by row", fits.linear_law(), &xs),
        law_line("the slope of 001, m = 0.945", source, &xs),
    ];
    let of_source = results.line(native, &rates(SOURCE_GOAL_MS), 1.0);
    if !of_source.points.is_empty() {
        lines.push(Line {
            name: "measured, goal 1,000 ms".to_owned(),
            ..of_source
        });
    }
    for point in lines.iter_mut().flat_map(|line| &mut line.points) {
        point.x /= 1e3;
    }
    let law = Chart {
        title: "Highest request rate by tenant size".to_owned(),
        x: Axis::new("thousand rows of the tenant's fact table", Scale::Log),
        y: Axis::new("requests per second", Scale::Log),
        lines,
        marks: Vec::new(),
        levels: Vec::new(),
    };
    let responses = Chart {
        title: "Response time by request rate".to_owned(),
        x: Axis::new("requests per second", Scale::Log),
        y: Axis::new("99th percentile of response times, ms", Scale::Log),
        lines: xs
            .iter()
            .filter_map(|rows| by_rate(results, *rows))
            .collect(),
        marks: Vec::new(),
        levels: vec![(GOAL_MS, "goal: 50 ms".to_owned())],
    };
    let mut charts = vec![("law", law)];
    if !responses.lines.is_empty() {
        charts.push(("response", responses));
    }
    charts
}

/// Response times of a size, by rate: a share of the median of its highest rates.
fn by_rate(results: &Results, rows: f64) -> Option<Line> {
    let highest = results
        .at(Environment::Native, &rates(GOAL_MS), rows)?
        .median;
    let mut line = results.line(Environment::Native, &response(rows), 1.0);
    line.name = format!("{rows:.0} rows");
    line.points.iter_mut().for_each(|point| point.x *= highest);
    (!line.points.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::super::bed::tests::{by_law, sample};
    use super::*;

    fn results(rate: impl Fn(f64) -> f64) -> Results {
        Results {
            samples: by_law(rate),
            ..Results::default()
        }
    }

    #[test]
    fn the_sources_law_is_as_expected() {
        let mut results = results(|rows| 80.0 * (rows / 1e6).powf(-0.93));
        let rows = 1e6;
        for share in SHARES {
            results
                .samples
                .push(sample(&response(rows), share, 5.0 / (1.2 - share)));
        }
        let conclusion = conclude(&results);
        assert_eq!(conclusion.outcome, Outcome::AsExpected);
        for text in [
            "m = 0.930",
            "C = 80 requests/s",
            "R² = 1.000",
            "the power law is the nearer",
        ] {
            assert!(
                conclusion.verdict.contains(text),
                "{text}: {}",
                conclusion.verdict
            );
        }
        let names: Vec<&str> = conclusion.charts.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["law", "response"]);
        // The curve is over rates, not over shares.
        let line = &conclusion.charts[1].1.lines[0];
        assert!(
            (line.points[0].x - SHARES[0] * 80.0).abs() < 1e-6,
            "{line:?}"
        );
        assert!(
            conclusion
                .charts
                .iter()
                .all(|(_, chart)| chart.svg().is_ok())
        );
    }

    #[test]
    fn a_fixed_cost_differs_and_is_told() {
        let conclusion = conclude(&results(|rows| 1.0 / (0.0004 + 0.002 * rows / 1e6)));
        assert_eq!(conclusion.outcome, Outcome::Differs);
        for text in ["0.40 ms and 2.00 ms", "plans go by this law"] {
            assert!(
                conclusion.verdict.contains(text),
                "{text}: {}",
                conclusion.verdict
            );
        }
        assert_eq!(conclusion.tables[0].rows.len(), 4);
    }
}
