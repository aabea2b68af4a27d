//! The highest rate that meets a goal, by bisection.

use anyhow::Result;

/// How to search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// Rates tried.
    pub(super) probes: usize,
    /// The search ends when the lowest rate that breaks the goal is within this factor of
    /// the highest that keeps it.
    pub(super) near: f64,
}

impl Search {
    /// The rate between the highest that keeps the goal and the lowest that breaks it, by
    /// their logarithms; `None` if no such two are found. `first` is tried first; `try_rate`
    /// tells the 99th percentile at a rate, ms.
    ///
    /// # Errors
    /// Those of trying.
    pub(super) fn highest(
        &self,
        first: f64,
        goal_ms: f64,
        mut try_rate: impl FnMut(f64) -> Result<f64>,
    ) -> Result<Option<f64>> {
        let (mut keeps, mut breaks): (Option<f64>, Option<f64>) = (None, None);
        for _ in 0..self.probes {
            let rate = match (keeps, breaks) {
                (None, None) => first,
                (Some(keeps), None) => keeps * 1.2,
                (None, Some(breaks)) => breaks / 1.3,
                (Some(keeps), Some(breaks)) if breaks <= keeps * self.near => break,
                (Some(keeps), Some(breaks)) => (keeps * breaks).sqrt(),
            };
            let p99_ms = try_rate(rate)?;
            if p99_ms <= goal_ms {
                keeps = Some(rate);
            } else {
                breaks = Some(rate);
            }
        }
        Ok(keeps
            .zip(breaks)
            .map(|(keeps, breaks)| (keeps * breaks).sqrt()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue with one server: response times grow as 1 / (1 − load).
    fn queue(capacity: f64) -> impl Fn(f64) -> Result<f64> {
        move |rate| {
            Ok(if rate < capacity {
                5.0 / (1.0 - rate / capacity)
            } else {
                f64::INFINITY
            })
        }
    }

    #[test]
    fn the_rate_is_found_from_below_and_from_above() {
        let search = Search {
            probes: 30,
            near: 1.01,
        };
        // 50 ms at 90% of 100 per second.
        for first in [3.0, 85.0, 110.0, 900.0] {
            let found = search.highest(first, 50.0, queue(100.0)).unwrap().unwrap();
            assert!((found / 90.0 - 1.0).abs() < 0.01, "{first}: {found}");
        }
    }

    #[test]
    fn a_search_is_as_long_as_told() {
        let mut tried = Vec::new();
        let search = Search {
            probes: 4,
            near: 1.01,
        };
        let found = search.highest(100.0, 50.0, |rate| {
            tried.push(rate);
            queue(100.0)(rate)
        });
        assert_eq!(tried.len(), 4);
        assert!(tried.windows(2).all(|pair| pair[0] != pair[1]), "{tried:?}");
        let found = found.unwrap().unwrap();
        assert!((80.0..100.0).contains(&found), "{found}");
        // Nothing keeps a goal that is below any response time.
        assert_eq!(search.highest(100.0, 1.0, queue(100.0)).unwrap(), None);
    }
}
