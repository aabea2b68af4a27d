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

/// A leader's, for all copies that catch up.
pub(crate) struct Pacing {
    watch: CommitWatch,
    usual: VecDeque<Duration>,
    pace: Option<Pace>,
}

struct Pace {
    pacer: Pacer,
    doubled_at: Duration,
    used_at: Duration,
}

impl Pacing {
    pub(crate) fn of(store: &TenantStore) -> Pacing {
        Pacing {
            watch: store.watch_commits(),
            usual: VecDeque::new(),
            pace: None,
        }
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Duration) {
        let times = self.watch.take();
        self.observe(now, &times);
    }

    fn observe(&mut self, now: Duration, times: &CommitTimes) {
        self.pace = self
            .pace
            .take()
            .filter(|pace| now < pace.used_at + ENDS_AFTER);
        let Some(pace) = &mut self.pace else {
            self.usual.extend(&times.done);
            let more = self.usual.len().saturating_sub(USUAL_COMMITS);
            self.usual.drain(..more);
            return;
        };
        pace.pacer.observe(now, times);
        while now >= pace.doubled_at + DOUBLES_EVERY {
            pace.doubled_at += DOUBLES_EVERY;
            pace.pacer.double_least();
        }
    }

    /// Whether something may be sent.
    pub(crate) fn may_send(&self, now: Duration) -> bool {
        let pace = self.pace.as_ref();
        pace.is_none_or(|pace| pace.pacer.wait(now) < BURST)
    }

    /// So many bytes are sent.
    pub(crate) fn sent(&mut self, now: Duration, bytes: usize) {
        let usual = self.usual.make_contiguous();
        let pace = self.pace.get_or_insert_with(|| Pace {
            pacer: Pacer::new(LIMITS, usual, now),
            doubled_at: now,
            used_at: now,
        });
        pace.used_at = now;
        pace.pacer.sent(now, bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(25);

    fn pacing() -> Pacing {
        Pacing {
            watch: CommitWatch::default(),
            usual: VecDeque::new(),
            pace: None,
        }
    }

    /// Bytes that are sent in a second of ticks, of a copy that lacks much, while commits take so long for it.
    fn second(pacing: &mut Pacing, now: &mut Duration, commit: Duration) -> usize {
        let part = 256 << 10;
        let mut bytes = 0;
        for _ in 0..40 {
            while pacing.may_send(*now) {
                pacing.sent(*now, part);
                bytes += part;
            }
            commits(pacing, now, commit);
        }
        bytes
    }

    fn quiet(pacing: &mut Pacing, now: &mut Duration, commit: Duration) {
        for _ in 0..100 {
            commits(pacing, now, commit);
        }
    }

    fn commits(pacing: &mut Pacing, now: &mut Duration, commit: Duration) {
        *now += TICK;
        let times = CommitTimes {
            done: vec![commit; 10],
            waiting: None,
        };
        pacing.observe(*now, &times);
    }

    #[test]
    fn a_copy_comes_back_slowly_while_commits_suffer_and_the_faster_the_longer_it_takes() {
        let (mut pacing, mut now) = (pacing(), Duration::ZERO);
        let (usual, slow) = (Duration::from_millis(2), Duration::from_millis(20));
        quiet(&mut pacing, &mut now, usual);
        let least = LIMITS.bytes_per_s_min as usize;
        for doublings in [0, 1, 2, 3] {
            for _ in 0..10 {
                let bytes = second(&mut pacing, &mut now, slow);
                let expected = least << doublings;
                assert!(
                    (expected * 9 / 10..expected * 23 / 10).contains(&bytes),
                    "{bytes} for {expected}"
                );
            }
        }
        for _ in 0..20 {
            second(&mut pacing, &mut now, slow);
        }
        let bytes = second(&mut pacing, &mut now, slow);
        let most = LIMITS.bytes_per_s_max as usize;
        assert!((most * 9 / 10..most * 11 / 10).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_copy_comes_back_at_once_while_commits_do_not_suffer() {
        let (mut pacing, mut now) = (pacing(), Duration::ZERO);
        let usual = Duration::from_millis(2);
        quiet(&mut pacing, &mut now, usual);
        for _ in 0..5 {
            second(&mut pacing, &mut now, usual);
        }
        let bytes = second(&mut pacing, &mut now, usual);
        let most = LIMITS.bytes_per_s_max as usize;
        assert!((most * 9 / 10..most * 11 / 10).contains(&bytes), "{bytes}");
    }

    #[test]
    fn what_is_usual_is_learnt_while_no_copy_catches_up() {
        let (mut pacing, mut now) = (pacing(), Duration::ZERO);
        quiet(&mut pacing, &mut now, Duration::from_millis(20));
        second(&mut pacing, &mut now, Duration::from_millis(20));
        assert_eq!(pacing.usual.len(), USUAL_COMMITS);
        // The pace is over, and commits are quicker from now on.
        quiet(&mut pacing, &mut now, Duration::from_millis(2));
        assert!(pacing.pace.is_none());
        assert!(
            pacing
                .usual
                .iter()
                .all(|took| *took == Duration::from_millis(2))
        );
    }
}
