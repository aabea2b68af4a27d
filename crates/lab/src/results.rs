//! What was measured: samples by environment, series and x.

use serde::{Deserialize, Serialize};

use aerostat_calibrate::{ChartPoint, Line};

use crate::Environment;
use crate::stats::{Estimate, estimate, ratio};

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

    /// The guest's time as a multiple of the native one, of samples taken in pairs.
    pub fn overhead(&self, series: &str, x: f64) -> Option<Estimate> {
        ratio(
            &self.values(Environment::KvmMicro, series, x),
            &self.values(Environment::Native, series, x),
        )
    }

    /// A series as a chart has it, its values times `scale`.
    pub fn line(&self, environment: Environment, series: &str, scale: f64) -> Line {
        let xs = self.xs(environment, series).into_iter();
        let estimates = xs.filter_map(|x| Some((x, self.at(environment, series, x)?)));
        Line {
            name: format!("{environment}: {series}"),
            points: estimates.map(|(x, at)| point(x, at, scale)).collect(),
        }
    }

    /// A series' overhead in percent as a chart has it, where it is sure.
    pub fn overhead_line(&self, series: &str) -> Line {
        let xs = self.xs(Environment::KvmMicro, series).into_iter();
        let sure = xs.filter_map(|x| {
            let overhead = self.overhead(series, x).filter(Estimate::is_sure)?;
            let percent = |ratio: f64| (ratio - 1.0) * 100.0;
            Some(ChartPoint {
                x,
                y: percent(overhead.median),
                interval: Some((percent(overhead.low), percent(overhead.high))),
            })
        });
        Line {
            name: series.to_owned(),
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
        assert_eq!(results.overhead("row", 8.0).unwrap().median, 1.5);
        assert_eq!(results.overhead("row", 4.0), None);
        let line = results.overhead_line("row");
        assert_eq!(line.points.len(), 1);
        assert_eq!(line.points[0].y, 50.0);
    }
}
