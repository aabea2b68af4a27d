//! How fast a seed, or the log behind a copy that comes back, is sent: as fast as commits at the leader do not
//! suffer from it.
//!
//! ```text
//!  rate ▲      ╱│    ╱│            grows by a share of the most for each window in which
//!       │    ╱  │  ╱  │  ╱         the p99 of commits is within half as long again as before,
//!       │  ╱    │╱    │╱           is halved by a window in which it is not
//!       └────────────────► time
//! ```
//!
//! Pure: it is told the time, and what commits took. After AIMD (Chiu and Jain, 1989), as TCP has it.

use std::time::Duration;

use aerostat_storage::CommitTimes;

/// How long the pace stays as it is: several commits' time, and short enough that nobody notices one that is too
/// quick.
const WINDOW: Duration = Duration::from_millis(250);

/// Where commits are few a window is longer than that: fewer of them say nothing of a p99.
const COMMITS_MIN: usize = 20;
const WINDOW_MAX: Duration = Duration::from_secs(1);

/// By which share of the most the pace grows in a window.
const STEP_SHARE: u64 = 16;

/// Commits of some microseconds are no slower for anybody when they take twice that.
const SLACK: Duration = Duration::from_micros(500);

/// Between which rates it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceLimits {
    /// However slow commits are: else it would never end.
    pub bytes_per_s_min: u64,
    /// However quick they are.
    pub bytes_per_s_max: u64,
}

impl Default for PaceLimits {
    /// At least a GiB in four minutes, at most what a quarter of ten gigabits carries.
    fn default() -> Self {
        PaceLimits {
            bytes_per_s_min: 4 << 20,
            bytes_per_s_max: 320 << 20,
        }
    }
}

/// A pace.
pub(crate) struct Pacer {
    limits: PaceLimits,
    bytes_per_s: u64,
    /// What commits may take, once it is known what they took before.
    allowed: Option<Duration>,
    window_began: Duration,
    commits: Vec<Duration>,
    /// When what was sent has been sent at the pace.
    sent_at: Duration,
}

impl Pacer {
    /// Of a leader whose commits took so long before.
    pub(crate) fn new(limits: PaceLimits, before: &[Duration], now: Duration) -> Pacer {
        let limits = PaceLimits {
            bytes_per_s_min: limits
                .bytes_per_s_min
                .clamp(1, limits.bytes_per_s_max.max(1)),
            bytes_per_s_max: limits.bytes_per_s_max.max(1),
        };
        let mut pacer = Pacer {
            limits,
            bytes_per_s: 0,
            allowed: None,
            window_began: now,
            commits: Vec::new(),
            sent_at: now,
        };
        pacer.allow(before);
        pacer.bytes_per_s = pacer.bounded(limits.bytes_per_s_max / STEP_SHARE);
        pacer
    }

    fn bounded(&self, bytes_per_s: u64) -> u64 {
        bytes_per_s.clamp(self.limits.bytes_per_s_min, self.limits.bytes_per_s_max)
    }

    fn allow(&mut self, commits: &[Duration]) {
        if commits.len() >= COMMITS_MIN {
            let before = p99(commits);
            self.allowed = Some((before * 3 / 2).max(before + SLACK));
        }
    }

    /// The rate by now.
    #[cfg(test)]
    fn bytes_per_s(&self) -> u64 {
        self.bytes_per_s
    }

    /// What commits took since this was told last.
    pub(crate) fn observe(&mut self, now: Duration, times: &CommitTimes) {
        self.commits.extend(&times.done);
        let is_stuck = |allowed| times.waiting.is_some_and(|waiting| waiting > allowed);
        if self.allowed.is_some_and(is_stuck) && now >= self.window_began + WINDOW {
            return self.turn(now, true);
        }
        let age = now.saturating_sub(self.window_began);
        // Nobody suffers where nobody commits.
        let are_few = (1..COMMITS_MIN).contains(&self.commits.len());
        if age < WINDOW || are_few && age < WINDOW_MAX {
            return;
        }
        match self.allowed {
            // There was nobody before: what they take from now on is what there is to go by.
            None => {
                let commits = std::mem::take(&mut self.commits);
                self.allow(&commits);
                self.turn(now, false);
            }
            Some(allowed) => {
                let is_slow = !self.commits.is_empty() && p99(&self.commits) > allowed;
                self.turn(now, is_slow);
            }
        }
    }

    fn turn(&mut self, now: Duration, is_slow: bool) {
        self.commits.clear();
        self.window_began = now;
        let step = self.limits.bytes_per_s_max / STEP_SHARE;
        self.bytes_per_s = self.bounded(match is_slow {
            true => self.bytes_per_s / 2,
            false => self.bytes_per_s.saturating_add(step),
        });
    }

    /// So many bytes are sent: how long to wait before more are.
    pub(crate) fn sent(&mut self, now: Duration, bytes: u64) -> Duration {
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s as f64);
        self.sent_at = self.sent_at.max(now) + takes;
        self.sent_at - now
    }

    /// How long to wait before anything is sent.
    pub(crate) fn wait(&self, now: Duration) -> Duration {
        self.sent_at.saturating_sub(now)
    }

    /// It is not so slow any more, however slow commits are.
    pub(crate) fn double_least(&mut self) {
        let least = self.limits.bytes_per_s_min.saturating_mul(2);
        self.limits.bytes_per_s_min = least.min(self.limits.bytes_per_s_max);
        self.bytes_per_s = self.bounded(self.bytes_per_s);
    }
}

/// What at most one in a hundred takes longer than; of few the longest.
fn p99(commits: &[Duration]) -> Duration {
    let mut sorted = commits.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * 99).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const LIMITS: PaceLimits = PaceLimits {
        bytes_per_s_min: 1_000_000,
        bytes_per_s_max: 160_000_000,
    };

    fn times(count: usize, each: Duration) -> CommitTimes {
        CommitTimes {
            done: vec![each; count],
            waiting: None,
        }
    }

    #[test]
    fn the_pace_grows_while_commits_are_as_quick_as_before_and_is_halved_when_they_are_not() {
        let mut now = Duration::ZERO;
        let mut pacer = Pacer::new(LIMITS, &[10 * MS; 100], now);
        let mut next = |pacer: &mut Pacer, took: Duration| {
            now += WINDOW;
            pacer.observe(now, &times(50, took));
            pacer.bytes_per_s()
        };
        assert_eq!(pacer.bytes_per_s(), 10_000_000);
        assert_eq!(next(&mut pacer, 14 * MS), 20_000_000);
        assert_eq!(next(&mut pacer, 15 * MS), 30_000_000);
        assert_eq!(next(&mut pacer, 16 * MS), 15_000_000);
        assert_eq!(next(&mut pacer, 100 * MS), 7_500_000);
        for _ in 0..10 {
            next(&mut pacer, 100 * MS);
        }
        assert_eq!(pacer.bytes_per_s(), LIMITS.bytes_per_s_min);
        for _ in 0..30 {
            next(&mut pacer, MS);
        }
        assert_eq!(pacer.bytes_per_s(), LIMITS.bytes_per_s_max);
    }

    #[test]
    fn a_few_slow_commits_of_many_change_nothing_and_a_stuck_one_does() {
        let mut pacer = Pacer::new(LIMITS, &[10 * MS; 100], Duration::ZERO);
        let mut some = times(1_000, 10 * MS);
        some.done.extend([MS * 500; 9]);
        pacer.observe(WINDOW, &some);
        assert_eq!(pacer.bytes_per_s(), 20_000_000);
        let stuck = CommitTimes {
            done: Vec::new(),
            waiting: Some(40 * MS),
        };
        pacer.observe(WINDOW + MS, &stuck);
        assert_eq!(pacer.bytes_per_s(), 20_000_000, "not within a window");
        pacer.observe(WINDOW * 2, &stuck);
        assert_eq!(pacer.bytes_per_s(), 10_000_000);
    }

    #[test]
    fn without_commits_it_goes_as_fast_as_it_may_until_some_come() {
        let mut pacer = Pacer::new(LIMITS, &[10 * MS; 3], Duration::ZERO);
        let mut now = Duration::ZERO;
        for _ in 0..20 {
            now += WINDOW;
            pacer.observe(now, &CommitTimes::default());
        }
        assert_eq!(pacer.bytes_per_s(), LIMITS.bytes_per_s_max);
        // The first that come are what others are held against.
        now += WINDOW;
        pacer.observe(now, &times(30, 20 * MS));
        now += WINDOW;
        pacer.observe(now, &times(30, 29 * MS));
        assert_eq!(pacer.bytes_per_s(), LIMITS.bytes_per_s_max);
        now += WINDOW;
        pacer.observe(now, &times(30, 31 * MS));
        assert_eq!(pacer.bytes_per_s(), LIMITS.bytes_per_s_max / 2);
    }

    #[test]
    fn commits_of_microseconds_may_take_some_more() {
        let micro = Duration::from_micros(1);
        let mut pacer = Pacer::new(LIMITS, &[20 * micro; 100], Duration::ZERO);
        pacer.observe(WINDOW, &times(100, 400 * micro));
        assert_eq!(pacer.bytes_per_s(), 20_000_000);
        pacer.observe(WINDOW * 2, &times(100, 600 * micro));
        assert_eq!(pacer.bytes_per_s(), 10_000_000);
    }

    #[test]
    fn what_is_sent_takes_as_long_as_the_pace_has_it() {
        let mut pacer = Pacer::new(LIMITS, &[MS; 100], Duration::ZERO);
        let wait = pacer.sent(Duration::ZERO, 1_000_000);
        assert_eq!(wait, 100 * MS);
        // Not waited for, and sent again.
        assert_eq!(pacer.sent(50 * MS, 1_000_000), 150 * MS);
        // What was not used is not made up for.
        assert_eq!(pacer.sent(MS * 10_000, 1_000_000), 100 * MS);
    }

    #[test]
    fn odd_limits_are_bounded() {
        for (min, max) in [(0, 0), (10, 5), (u64::MAX, u64::MAX), (0, u64::MAX)] {
            let limits = PaceLimits {
                bytes_per_s_min: min,
                bytes_per_s_max: max,
            };
            let mut pacer = Pacer::new(limits, &[MS; 100], Duration::ZERO);
            for round in 1..50 {
                pacer.observe(WINDOW * round, &times(100, MS * (round % 3)));
                pacer.sent(WINDOW * round, 1);
            }
        }
    }
}
