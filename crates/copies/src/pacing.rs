//! How fast the log goes to copies that commits do not wait for yet: one that comes back shares its disk and its
//! processors with nobody, or with its leader.
//!
//! A database has one copy less until it is there. So the least pace is a brisk one, and doubles: what is sent
//! overtakes what is written.

use std::{collections::VecDeque, time::Duration};

use aerostat_storage::{CommitTimes, CommitWatch, TenantStore};

use crate::pace::{PaceLimits, Pacer};

/// As many commits say how long they take without this.
const USUAL_COMMITS: usize = 256;

/// A pace that nobody goes by for so long is over.
const ENDS_AFTER: Duration = Duration::from_secs(1);

/// How often the least pace doubles.
const DOUBLES_EVERY: Duration = Duration::from_secs(10);

/// How far ahead of its pace it is sent: the driver looks again by its next tick.
const BURST: Duration = Duration::from_millis(25);

const LIMITS: PaceLimits = PaceLimits {
    bytes_per_s_min: 32 << 20,
    bytes_per_s_max: 320 << 20,
};

/// What a leader goes by.
pub(crate) struct Pacing {
    watch: CommitWatch,
    usual: VecDeque<Duration>,
}

/// Of one copy that catches up.
pub(crate) struct Pace {
    pacer: Pacer,
    doubled_at: Duration,
    used_at: Duration,
}

impl Pacing {
    pub(crate) fn of(store: &TenantStore) -> Pacing {
        Pacing {
            watch: store.watch_commits(),
            usual: VecDeque::new(),
        }
    }

    /// Time has passed, for these, too.
    pub(crate) fn tick<'a>(
        &mut self,
        now: Duration,
        paces: impl Iterator<Item = &'a mut Option<Pace>>,
    ) {
        let times = self.watch.take();
        self.observe(now, &times, paces);
    }

    fn observe<'a>(
        &mut self,
        now: Duration,
        times: &CommitTimes,
        paces: impl Iterator<Item = &'a mut Option<Pace>>,
    ) {
        let mut is_usual = true;
        for pace in paces {
            match pace {
                Some(current) if now < current.used_at + ENDS_AFTER => {
                    current.observe(now, times);
                    is_usual = false;
                }
                _ => *pace = None,
            }
        }
        if is_usual {
            self.usual.extend(&times.done);
            let more = self.usual.len().saturating_sub(USUAL_COMMITS);
            self.usual.drain(..more);
        }
    }

    /// That of a copy that begins to catch up.
    pub(crate) fn begin(&self, now: Duration) -> Pace {
        let usual: Vec<Duration> = self.usual.iter().copied().collect();
        Pace {
            pacer: Pacer::new(LIMITS, &usual, now),
            doubled_at: now,
            used_at: now,
        }
    }
}

impl Pace {
    fn observe(&mut self, now: Duration, times: &CommitTimes) {
        self.pacer.observe(now, times);
        while now >= self.doubled_at + DOUBLES_EVERY {
            self.doubled_at += DOUBLES_EVERY;
            self.pacer.double_least();
        }
    }

    /// Whether something may be sent.
    pub(crate) fn may_send(&self, now: Duration) -> bool {
        self.pacer.wait(now) < BURST
    }

    /// So many bytes are sent.
    pub(crate) fn sent(&mut self, now: Duration, bytes: usize) {
        self.used_at = now;
        self.pacer.sent(now, bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(25);

    struct Leader {
        now: Duration,
        pacing: Pacing,
        paces: [Option<Pace>; 2],
    }

    impl Leader {
        fn new() -> Leader {
            Leader {
                now: Duration::ZERO,
                pacing: Pacing {
                    watch: CommitWatch::default(),
                    usual: VecDeque::new(),
                },
                paces: [None, None],
            }
        }

        /// Bytes that are sent to each in a second of ticks, of copies that lack much, while commits take so long for
        /// it.
        fn second(&mut self, copies: usize, commit: Duration) -> [usize; 2] {
            let part = 256 << 10;
            let mut bytes = [0; 2];
            for _ in 0..40 {
                for (pace, bytes) in self.paces.iter_mut().zip(&mut bytes).take(copies) {
                    while pace.as_ref().is_none_or(|pace| pace.may_send(self.now)) {
                        let pace = pace.get_or_insert_with(|| self.pacing.begin(self.now));
                        pace.sent(self.now, part);
                        *bytes += part;
                    }
                }
                self.commits(commit);
            }
            bytes
        }

        fn quiet(&mut self, commit: Duration) {
            for _ in 0..100 {
                self.commits(commit);
            }
        }

        fn commits(&mut self, commit: Duration) {
            self.now += TICK;
            let times = CommitTimes {
                done: vec![commit; 10],
                waiting: None,
            };
            self.pacing.observe(self.now, &times, self.paces.iter_mut());
        }
    }

    const USUAL: Duration = Duration::from_millis(2);
    const SLOW: Duration = Duration::from_millis(20);
    const MOST: usize = LIMITS.bytes_per_s_max as usize;

    fn is_about(bytes: usize, expected: usize) -> bool {
        (expected * 9 / 10..expected * 23 / 20).contains(&bytes)
    }

    #[test]
    fn a_copy_comes_back_slowly_while_commits_suffer_and_the_faster_the_longer_it_takes() {
        let mut leader = Leader::new();
        leader.quiet(USUAL);
        let least = LIMITS.bytes_per_s_min as usize;
        for doublings in [0, 1, 2, 3] {
            for _ in 0..9 {
                let [bytes, _] = leader.second(1, SLOW);
                assert!(
                    is_about(bytes, least << doublings),
                    "{bytes} after {doublings}"
                );
            }
            leader.second(1, SLOW);
        }
        for _ in 0..20 {
            leader.second(1, SLOW);
        }
        let [bytes, _] = leader.second(1, SLOW);
        assert!(is_about(bytes, MOST), "{bytes}");
    }

    #[test]
    fn each_copy_has_a_pace_of_its_own() {
        let mut leader = Leader::new();
        leader.quiet(USUAL);
        let least = LIMITS.bytes_per_s_min as usize;
        for _ in 0..5 {
            let bytes = leader.second(2, SLOW);
            assert!(
                bytes.into_iter().all(|bytes| is_about(bytes, least)),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn a_copy_comes_back_at_once_while_commits_do_not_suffer() {
        let mut leader = Leader::new();
        leader.quiet(USUAL);
        for _ in 0..5 {
            leader.second(1, USUAL);
        }
        let [bytes, _] = leader.second(1, USUAL);
        assert!(is_about(bytes, MOST), "{bytes}");
    }

    #[test]
    fn what_is_usual_is_learnt_while_no_copy_catches_up() {
        let mut leader = Leader::new();
        leader.quiet(SLOW);
        leader.second(1, USUAL);
        assert_eq!(leader.pacing.usual, [SLOW; USUAL_COMMITS]);
        // The pace is over.
        leader.quiet(USUAL);
        assert!(leader.paces[0].is_none());
        assert_eq!(leader.pacing.usual, [USUAL; USUAL_COMMITS]);
    }
}
