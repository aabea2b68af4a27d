//! How fast counters of programs rise.

use std::time::{Duration, Instant};

/// The time over which rates are smoothed: long enough that one second without work does not end a
/// wish for memory, short against the 30 seconds between two moves of a broker.
const SMOOTHING: Duration = Duration::from_secs(5);

/// A counter's rate, smoothed exponentially.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    last: Option<(Instant, f64)>,
    per_s: f64,
}

impl Rate {
    /// Takes the counter's value at a moment. A counter that falls was reset.
    pub(crate) fn observe(&mut self, counter: f64, now: Instant) {
        if let Some((at, before)) = self.last {
            let elapsed = now.saturating_duration_since(at);
            if elapsed < Duration::from_millis(100) {
                return;
            }
            if counter >= before {
                let elapsed_s = elapsed.as_secs_f64();
                let weight = 1.0 - (-elapsed_s / SMOOTHING.as_secs_f64()).exp();
                let current = (counter - before) / elapsed_s;
                self.per_s += (current - self.per_s) * weight;
            }
        }
        self.last = Some((now, counter));
    }

    /// Each second.
    pub(crate) fn per_s(self) -> f64 {
        self.per_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_approached_and_resets_are_ignored() {
        let start = Instant::now();
        let mut rate = Rate::default();
        for second in 0..30 {
            let now = start + Duration::from_secs(second);
            rate.observe(second as f64 * 100.0, now);
        }
        assert!((95.0..=100.0).contains(&rate.per_s()), "{}", rate.per_s());
        rate.observe(0.0, start + Duration::from_secs(31));
        assert!(rate.per_s() > 95.0);
    }
}
