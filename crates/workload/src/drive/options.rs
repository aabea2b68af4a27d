//! The options of a load.

use std::fmt;
use std::time::Duration;

use crate::rng::RowRng;

/// Most arrivals that may wait per tenant in an open loop: at 24 bytes each this
/// bounds the driver's memory, and a backlog of that length already says that the
/// rate is beyond the server.
pub const QUEUE_ARRIVALS_MAX: usize = 100_000;

/// Options of a drive.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Closed or open loop.
    pub mode: Mode,
    /// How each user, or each arrival, chooses its query.
    pub selection: Selection,
    /// Time before measuring.
    pub warm_up: Duration,
    /// Measured time.
    pub duration: Duration,
    /// Time that open requests get after the end.
    pub drain: Duration,
    /// The response-time goal.
    pub goal: Goal,
    /// Seed of arrivals and selection.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::Closed {
                users: 1,
                think_time: Duration::ZERO,
            },
            selection: Selection::InTurn,
            warm_up: Duration::ZERO,
            duration: Duration::from_secs(10),
            drain: Duration::from_secs(30),
            goal: Goal::default(),
            seed: 1,
        }
    }
}

/// Who sends when.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    /// A number of users who wait for their answers.
    Closed {
        /// Users, and so connections, per tenant.
        users: usize,
        /// Pause between an answer and the next query.
        think_time: Duration,
    },
    /// Arrivals at a rate, whatever the server does.
    Open {
        /// Arrivals per second and tenant.
        rate: f64,
        /// How arrivals are spread.
        arrivals: Arrivals,
        /// Connections per tenant, which is the number of queries it has open at
        /// once; further arrivals queue in the driver.
        connections: usize,
    },
}

impl Mode {
    /// Connections per tenant.
    pub(super) fn connections(&self) -> usize {
        match *self {
            Self::Closed { users, .. } => users,
            Self::Open { connections, .. } => connections,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed { users, think_time } if think_time.is_zero() => {
                write!(f, "closed loop, {users} users per tenant")
            }
            Self::Closed { users, think_time } => write!(
                f,
                "closed loop, {users} users per tenant, {think_time:?} think time"
            ),
            Self::Open {
                rate,
                arrivals,
                connections,
            } => write!(
                f,
                "open loop, {rate} queries/s per tenant ({arrivals}), {connections} connections per tenant"
            ),
        }
    }
}

/// How arrivals of an open loop are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arrivals {
    /// Independent users: exponential times between arrivals.
    #[default]
    Poisson,
    /// Equal times between arrivals.
    Fixed,
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Poisson => "poisson",
            Self::Fixed => "fixed",
        })
    }
}

/// How the next query is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Selection {
    /// One after another, each user from another start, so that all queries run
    /// equally often.
    #[default]
    InTurn,
    /// Uniformly at random.
    Random,
}

/// A response-time goal: a share of all requests within a latency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal {
    /// Share of requests in (0, 1].
    pub share: f64,
    /// Within this time.
    pub latency: Duration,
}

impl Default for Goal {
    /// 99 % within one second.
    fn default() -> Self {
        Self {
            share: 0.99,
            latency: Duration::from_secs(1),
        }
    }
}

/// Why options make no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum OptionsError {
    /// No user or connection.
    #[error("each tenant needs at least one connection")]
    NoConnection,
    /// The rate is not a positive number.
    #[error("rate {0} is not a positive number of queries per second")]
    Rate(f64),
    /// The share is outside (0, 1].
    #[error("goal share {0} is outside 0 < share <= 1")]
    Share(f64),
    /// There is nothing to measure.
    #[error("the measured time is zero")]
    NoDuration,
}

impl Options {
    pub(super) fn check(&self) -> Result<(), OptionsError> {
        if self.mode.connections() == 0 {
            return Err(OptionsError::NoConnection);
        }
        if let Mode::Open { rate, .. } = self.mode
            && !(rate.is_finite() && rate > 0.0)
        {
            return Err(OptionsError::Rate(rate));
        }
        if !(self.goal.share > 0.0 && self.goal.share <= 1.0) {
            return Err(OptionsError::Share(self.goal.share));
        }
        if self.duration.is_zero() {
            return Err(OptionsError::NoDuration);
        }
        Ok(())
    }
}

/// Chooses the queries of one user, or of one tenant's arrivals.
#[derive(Debug)]
pub(super) struct Picker {
    selection: Selection,
    queries: usize,
    next: usize,
    rng: RowRng,
}

/// Streams of random numbers of a drive.
const STREAM_SELECTION: u64 = 101;
const STREAM_ARRIVALS: u64 = 102;

impl Picker {
    /// The picker of user number `user` of all users.
    pub(super) fn new(options: &Options, queries: usize, user: usize) -> Self {
        Self {
            selection: options.selection,
            queries,
            next: user % queries,
            rng: RowRng::new(options.seed, STREAM_SELECTION, user as u64),
        }
    }

    pub(super) fn pick(&mut self) -> usize {
        match self.selection {
            Selection::Random => self.rng.below(self.queries as u64) as usize,
            Selection::InTurn => {
                let query = self.next;
                self.next = (query + 1) % self.queries;
                query
            }
        }
    }
}

/// The times between arrivals of one tenant.
#[derive(Debug)]
pub(super) struct Gaps {
    arrivals: Arrivals,
    mean_s: f64,
    rng: RowRng,
}

impl Gaps {
    pub(super) fn new(arrivals: Arrivals, rate: f64, seed: u64, tenant: usize) -> Self {
        Self {
            arrivals,
            mean_s: 1.0 / rate,
            rng: RowRng::new(seed, STREAM_ARRIVALS, tenant as u64),
        }
    }

    /// Time to the next arrival, in seconds.
    pub(super) fn next_s(&mut self) -> f64 {
        match self.arrivals {
            Arrivals::Fixed => self.mean_s,
            Arrivals::Poisson => -self.rng.unit().ln() * self.mean_s,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
        let open = |rate| Mode::Open {
            rate,
            arrivals: Arrivals::Fixed,
            connections: 1,
        };
        let check = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            options.check()
        };
        assert_eq!(check(|_| ()), Ok(()));
        for rate in [0.0, -1.0, f64::INFINITY] {
            let options = Options {
                mode: open(rate),
                ..Options::default()
            };
            assert_eq!(options.check(), Err(OptionsError::Rate(rate)));
        }
        assert_eq!(check(|o| o.goal.share = 1.5), Err(OptionsError::Share(1.5)));
        assert_eq!(
            check(|o| o.duration = Duration::ZERO),
            Err(OptionsError::NoDuration)
        );
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_spread_of_an_exponential() {
        const DRAWS: usize = 100_000;
        let mut gaps = Gaps::new(Arrivals::Poisson, 50.0, 1, 0);
        let drawn: Vec<f64> = (0..DRAWS).map(|_| gaps.next_s()).collect();
        let mean = drawn.iter().sum::<f64>() / DRAWS as f64;
        assert!((mean - 0.02).abs() < 0.0004, "{mean}");
        let above_mean = drawn.iter().filter(|&&gap| gap > 0.02).count() as f64;
        // e^-1 of all gaps exceed the mean.
        assert!((above_mean / DRAWS as f64 - 0.3679).abs() < 0.01);
        let other = Gaps::new(Arrivals::Poisson, 50.0, 1, 1).next_s();
        assert_ne!(drawn[0].to_bits(), other.to_bits());
    }

    #[test]
    fn in_turn_takes_every_query_equally_often() {
        let mut picker = Picker::new(&Options::default(), 3, 4);
        let picked: Vec<usize> = (0..6).map(|_| picker.pick()).collect();
        assert_eq!(picked, [1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn random_selection_reaches_every_query() {
        let options = Options {
            selection: Selection::Random,
            ..Options::default()
        };
        let mut picker = Picker::new(&options, 3, 0);
        let mut counts = [0; 3];
        (0..3_000).for_each(|_| counts[picker.pick()] += 1);
        assert!(counts.iter().all(|count| (900..1_100).contains(count)));
    }
}
