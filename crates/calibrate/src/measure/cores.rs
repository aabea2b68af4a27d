//! The core that the work runs on.

use std::io;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::CalibrateError;

/// How long a busy thread runs before its core is taken as the one that is least disturbed.
const SETTLE: Duration = Duration::from_millis(30);

/// The cores this thread may use.
pub fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|core| set.is_set(*core))
        .collect();
    if cores.is_empty() { vec![0] } else { cores }
}

/// Pins this thread to a core: this one, or that to which the scheduler has moved it after
/// it was busy for a moment.
///
/// # Errors
/// [`CalibrateError::Core`] when there is no such core.
pub fn settle(core: Option<usize>) -> Result<usize, CalibrateError> {
    let core = core.unwrap_or_else(|| {
        let started = Instant::now();
        while started.elapsed() < SETTLE {
            std::hint::spin_loop();
        }
        sched_getcpu()
    });
    pin(&[core]).map_err(|source| CalibrateError::Core { core, source })?;
    Ok(core)
}

/// Does something on one core, as [`settle`] finds it, which the work is told; afterwards this
/// thread may run where it could before.
///
/// # Errors
/// [`CalibrateError::Core`] when there is no such core; then nothing is done.
pub fn settled<T>(core: Option<usize>, work: impl FnOnce(usize) -> T) -> Result<T, CalibrateError> {
    let allowed = allowed();
    let done = work(settle(core)?);
    // That it could run there before is known.
    let _ = pin(&allowed);
    Ok(done)
}

/// Pins this thread to these cores.
///
/// # Errors
/// The operating system's, when there is none of them.
pub fn pin(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        if *core >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set.set(*core);
    }
    Ok(sched_setaffinity(None, &set)?)
}
