//! The measurements: samples by environment, series and x.

use serde::{Deserialize, Serialize};

use aerostat_calibrate::{ChartPoint, Line};

use crate::stats::{Estimate, estimate, ratio};
use crate::{Environment, Limits};

/// A measured value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The part of the experiment that took it; parts are taken whole or not at all.
    pub cell: String,
    /// Where.
    pub environment: Environment,
    /// Of what, with the layout, page size or whatever tells series apart.
    pub series: String,
    /// The parameter that varies along the series.
    pub x: f64,
    /// The value, in the experiment's unit.
    pub value: f64,
}

/// All samples of an experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// In the order in which they were taken.
    pub samples: Vec<Sample>,
    /// The environments that were asked for and are here.
    pub environments: Vec<Environment>,
    /// What cgroups and containers could use.
    pub limits: Limits,
}

/// A point for other programs: medians with 95% intervals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PointSummary {
    environment: Environment,
    /// The environment with its limits.
    label: String,
    series: String,
    x: f64,
    #[serde(flatten)]
    at: Estimate,
    /// The time there as a multiple of the native one, where that is an overhead and sure.
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead: Option<Estimate>,
}

impl Results {
    /// The values at a point, in the order in which they were taken.
    pub fn values(&self, environment: Environment, series: &str, x: f64) -> Vec<f64> {
        let of_point = |sample: &&Sample| {
            sample.environment == environment && sample.series == series && sample.x == x
        };
        let samples = self.samples.iter().filter(of_point);
        samples.map(|sample| sample.value).collect()
    }

    /// The xs of a series, rising.
    pub fn xs(&self, environment: Environment, series: &str) -> Vec<f64> {
        let of_series =
            |sample: &&Sample| sample.environment == environment && sample.series == series;
        let mut xs: Vec<f64> = self.samples.iter().filter(of_series).map(|s| s.x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }

    /// The value at a point.
    pub fn at(&self, environment: Environment, series: &str, x: f64) -> Option<Estimate> {
        estimate(&self.values(environment, series, x))
    }

    /// An environment's time as a multiple of the native one, of samples taken in pairs;
    /// never of an emulator's.
    pub fn overhead(&self, environment: Environment, series: &str, x: f64) -> Option<Estimate> {
        if !environment.has_overhead() {
            return None;
        }
        ratio(
            &self.values(environment, series, x),
            &self.values(Environment::Native, series, x),
        )
    }

    /// An environment's name with its limits.
    pub fn label(&self, environment: Environment) -> String {
        environment.label(self.limits)
    }

    /// The environments that have samples, but for the native one, if their times may be
    /// compared.
    pub fn compared(&self) -> Vec<Environment> {
        let has_samples = |environment: &Environment| {
            let mut samples = self.samples.iter();
            samples.any(|sample| sample.environment == *environment)
        };
        let all = Environment::ALL.into_iter();
        all.filter(|one| one.has_overhead() && has_samples(one))
            .collect()
    }

    /// All points.
    pub(crate) fn summary(&self) -> Vec<PointSummary> {
        let mut series: Vec<(Environment, &str)> = Vec::new();
        for sample in &self.samples {
            let key = (sample.environment, sample.series.as_str());
            if !series.contains(&key) {
                series.push(key);
            }
        }
        let points = |(environment, series): (Environment, &str)| {
            let xs = self.xs(environment, series).into_iter();
            let point = |x| {
                Some(PointSummary {
                    environment,
                    label: self.label(environment),
                    series: series.to_owned(),
                    x,
                    at: self.at(environment, series, x)?,
                    overhead: self
                        .overhead(environment, series, x)
                        .filter(Estimate::is_sure),
                })
            };
            xs.filter_map(point).collect::<Vec<_>>()
        };
        series.into_iter().flat_map(points).collect()
    }

    /// A series as a chart has it, its values times `scale`.
    pub fn line(&self, environment: Environment, series: &str, scale: f64) -> Line {
        let xs = self.xs(environment, series).into_iter();
        let estimates = xs.filter_map(|x| Some((x, self.at(environment, series, x)?)));
        Line {
            name: format!("{}: {series}", self.label(environment)),
            points: estimates.map(|(x, at)| point(x, at, scale)).collect(),
        }
    }

    /// A series' overhead in percent as a chart has it, where it is sure.
    pub fn overhead_line(&self, environment: Environment, series: &str) -> Line {
        let xs = self.xs(environment, series).into_iter();
        let sure = xs.filter_map(|x| {
            let overhead = self
                .overhead(environment, series, x)
                .filter(Estimate::is_sure)?;
            let percent = |ratio: f64| (ratio - 1.0) * 100.0;
            Some(ChartPoint {
                x,
                y: percent(overhead.median),
                interval: Some((percent(overhead.low), percent(overhead.high))),
            })
        });
        Line {
            name: format!("{}: {series}", self.label(environment)),
            points: sure.collect(),
        }
    }
}

fn point(x: f64, at: Estimate, scale: f64) -> ChartPoint {
    ChartPoint {
        x,
        y: at.median * scale,
        interval: Some((at.low * scale, at.high * scale)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_found_by_place_series_and_x() {
        let sample = |environment, series: &str, x, value| Sample {
            cell: "c".to_owned(),
            environment,
            series: series.to_owned(),
            x,
            value,
        };
        let mut results = Results::default();
        for round in [1.0, 3.0, 2.0] {
            let row = [
                sample(Environment::Native, "row", 8.0, round),
                sample(Environment::Native, "row", 4.0, 0.5),
                sample(Environment::KvmMicro, "row", 8.0, round * 1.5),
                sample(Environment::Native, "column", 8.0, 9.0),
            ];
            results.samples.extend(row);
        }
        assert_eq!(results.xs(Environment::Native, "row"), [4.0, 8.0]);
        let at = results.at(Environment::Native, "row", 8.0).unwrap();
        assert_eq!((at.median, at.count), (2.0, 3));
        let overhead = |x| results.overhead(Environment::KvmMicro, "row", x);
        assert_eq!(overhead(8.0).unwrap().median, 1.5);
        assert_eq!(overhead(4.0), None);
        let line = results.overhead_line(Environment::KvmMicro, "row");
        assert_eq!(line.points.len(), 1);
        assert_eq!(line.points[0].y, 50.0);
    }

    #[test]
    fn an_emulators_figures_have_no_overhead() {
        let mut results = Results::default();
        for round in [1.0, 1.01, 0.99, 1.0] {
            for (environment, factor) in [
                (Environment::Native, 1.0),
                (Environment::Cgroup, 1.1),
                (Environment::Tcg, 30.0),
            ] {
                results.samples.push(Sample {
                    cell: "c".to_owned(),
                    environment,
                    series: "row".to_owned(),
                    x: 1.0,
                    value: round * factor,
                });
            }
        }
        assert_eq!(results.compared(), [Environment::Cgroup]);
        assert_eq!(results.overhead(Environment::Tcg, "row", 1.0), None);
        let json = serde_json::to_value(results.summary()).unwrap();
        let has_overhead = |nth: usize| json[nth].get("overhead").is_some();
        assert_eq!([0, 1, 2].map(has_overhead), [false, true, false], "{json}");
        assert_eq!(json[2]["label"], "tcg (function only)");
        assert_eq!(json[1]["label"], "cgroup (1 CPU, 1024 MiB)");
    }
}
