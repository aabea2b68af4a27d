//! How much of the processors other work uses meanwhile.
//!
//! Other work only makes responses later, never sooner: a disturbed measurement is repeated, and
//! of several the quickest counts.

use std::time::Instant;

/// `/proc` counts processor time in hundredths of a second (`USER_HZ`), on every Linux.
const TICKS_PER_S: f64 = 100.0;

/// Other work on more processors than this disturbs. Less is what the system itself does, and
/// what has to yield to the node (measured: with 0.15 to 0.25 beside a node of higher priority,
/// highest rates of two rounds were within 5%).
pub(crate) const DISTURBS: f64 = 0.3;

/// The processor time of everything, and of some processes, at a moment.
pub(crate) struct Moment {
    at: Instant,
    busy_s: f64,
    own_s: f64,
}

impl Moment {
    /// Now, with these processes as our own.
    pub(crate) fn now(own: &[u32]) -> Moment {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let own = own
            .iter()
            .filter_map(|pid| process_s(&read(&format!("/proc/{pid}/stat"))));
        Moment {
            at: Instant::now(),
            busy_s: busy_s(&read("/proc/stat")).unwrap_or(0.0),
            own_s: own.sum(),
        }
    }

    /// Processors that were busy with something else from then to a later moment, or taken by
    /// the hypervisor.
    pub(crate) fn others_until(&self, later: &Moment) -> f64 {
        let passed_s = (later.at - self.at).as_secs_f64();
        let others_s = (later.busy_s - self.busy_s) - (later.own_s - self.own_s);
        (others_s / passed_s).max(0.0)
    }
}

/// Seconds that all processors together were busy: all but idle and waiting for disks.
fn busy_s(stat: &str) -> Option<f64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<f64> = line
        .split_whitespace()
        .map_while(|one| one.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal; guests are in user already.
    let busy = [0, 1, 2, 5, 6, 7].into_iter().map(|at| ticks.get(at));
    Some(busy.sum::<Option<f64>>()? / TICKS_PER_S)
}

/// Seconds of a process, in itself and in the kernel.
fn process_s(stat: &str) -> Option<f64> {
    // The name, in brackets, may have anything in it.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn processor_time_is_read_as_the_kernel_writes_it() {
        let stat = "cpu  100 20 30 4000 500 6 7 8 90 0\ncpu0 1 2 3\n";
        assert_eq!(busy_s(stat), Some(1.71));
        assert_eq!(busy_s("cpu  1 2 3\n"), None);
        let process = "17 (a) b) S 1 17 17 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 4 0 5 6";
        assert_eq!(process_s(process), Some(3.0));
        assert_eq!(process_s("gone"), None);
    }

    #[test]
    fn others_are_what_is_neither_ours_nor_idle() {
        let first = Moment {
            at: Instant::now(),
            busy_s: 10.0,
            own_s: 4.0,
        };
        let later = Moment {
            at: first.at + Duration::from_secs(2),
            busy_s: 14.0,
            own_s: 7.0,
        };
        assert_eq!(first.others_until(&later), 0.5);
        let idle = Moment {
            busy_s: 12.9,
            ..later
        };
        assert_eq!(
            first.others_until(&idle),
            0.0,
            "the counters' grain is no work"
        );
    }

    #[test]
    fn own_work_is_seen_here() {
        let me = [std::process::id()];
        let before = Moment::now(&me);
        while Moment::now(&me).own_s - before.own_s < 0.05 {
            std::hint::black_box(before.busy_s.sqrt());
        }
        assert!(Moment::now(&[]).own_s == 0.0 && before.busy_s > 0.0);
    }
}
