//! How soon the operating system runs a thread that has woken.

use std::{io, mem::size_of, panic, thread, time::Duration};

/// The least slice that Linux takes.
const SHORT: Duration = Duration::from_micros(100);

/// How far a thread goes ahead of others: it has ten times their share.
const AHEAD: i32 = -10;

/// How far a thread stays behind others: it has a tenth of their share.
const BEHIND: i32 = 10;

/// The least share that a thread may have.
const NICE_MAX: i32 = 19;

/// From now on this thread runs at most a tenth of a millisecond before others have their turn, and so is let
/// in at once when it wakes beside threads that compute: a virtual deadline is a slice away, and who has the
/// earliest is next (EEVDF, Stoica and Abdel-Wahab 1995). Its share of the processor stays what it was. Threads
/// that it starts are as others.
///
/// Linux before 6.12 takes the wish and does nothing; its threads that sleep most of the time are let in soon
/// anyway.
///
/// # Errors
/// The system does not let the thread say so.
pub fn prefer_latency() -> io::Result<()> {
    wish(attributes()?.sched_nice)
}

/// [`prefer_latency`], and a share without which a thread that has just run is let in only once others have
/// caught up with it.
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_NICE` or a limit of `nice` (`RLIMIT_NICE`) that allows −10.
pub fn take_precedence() -> io::Result<()> {
    wish(attributes()?.sched_nice.min(AHEAD))
}

/// Does something in a thread of its own that has a tenth of others' share of the processors, and so have those that it
/// starts; nobody gives a share back without a privilege, so none of these may live on. It takes what nobody else
/// wants. Where the system does not let it, it is done as usual.
pub fn behind_others<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let behind = || {
        // Without it the work is done, too.
        let _ = attributes().and_then(|now| {
            set(&libc::sched_attr {
                sched_nice: (now.sched_nice + BEHIND).min(NICE_MAX),
                ..USUAL
            })
        });
        work()
    };
    thread::scope(|scope| {
        let done = scope.spawn(behind).join();
        done.unwrap_or_else(|why| panic::resume_unwind(why))
    })
}

/// What threads have that wish for nothing.
const USUAL: libc::sched_attr = libc::sched_attr {
    size: size_of::<libc::sched_attr>() as u32,
    sched_policy: libc::SCHED_OTHER as u32,
    sched_flags: 0,
    sched_nice: 0,
    sched_priority: 0,
    sched_runtime: 0,
    sched_deadline: 0,
    sched_period: 0,
};

fn wish(nice: i32) -> io::Result<()> {
    set(&libc::sched_attr {
        sched_flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
        sched_nice: nice,
        sched_runtime: SHORT.as_nanos() as u64,
        ..USUAL
    })
}

/// What the system knows of this thread.
fn attributes() -> io::Result<libc::sched_attr> {
    let mut found = std::mem::MaybeUninit::<libc::sched_attr>::zeroed();
    // SAFETY: the kernel writes at most as many bytes as there are.
    let done = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            0,
            found.as_mut_ptr(),
            size_of::<libc::sched_attr>(),
            0,
        )
    };
    match done {
        // SAFETY: it has been written, and of zeros all values are valid.
        0 => Ok(unsafe { found.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set(wish: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as the value says that it has.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, wish, 0) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_a_short_slice_and_those_it_starts_have_not() {
        let usual = thread::spawn(attributes).join().unwrap().unwrap();
        if usual.sched_runtime == 0 {
            eprintln!("skipped: slices of threads (Linux before 6.12 has none)");
            return;
        }
        let (own, started) = thread::spawn(|| {
            prefer_latency().unwrap();
            (attributes(), thread::spawn(attributes).join().unwrap())
        })
        .join()
        .unwrap();
        let (own, started) = (own.unwrap(), started.unwrap());
        assert_eq!(own.sched_runtime, SHORT.as_nanos() as u64);
        assert_eq!(own.sched_nice, usual.sched_nice);
        assert_eq!(started.sched_nice, usual.sched_nice);
        assert_eq!(started.sched_runtime, usual.sched_runtime);
        assert_eq!(
            started.sched_flags & libc::SCHED_FLAG_RESET_ON_FORK as u64,
            0
        );
    }

    #[test]
    fn what_is_done_behind_others_has_a_smaller_share_and_nobody_else() {
        let usual = attributes().unwrap().sched_nice;
        let (own, started) = behind_others(|| {
            let started = thread::scope(|scope| scope.spawn(attributes).join().unwrap());
            (attributes().unwrap(), started.unwrap())
        });
        let expected = (usual + BEHIND).min(NICE_MAX);
        assert_eq!((own.sched_nice, started.sched_nice), (expected, expected));
        assert_eq!(attributes().unwrap().sched_nice, usual);
        let panicked = panic::catch_unwind(|| behind_others(|| panic!("as planned")));
        assert!(panicked.is_err());
    }

    #[test]
    fn a_thread_with_precedence_keeps_it_to_itself() {
        let usual = attributes().unwrap().sched_nice;
        let (taken, own, started) = thread::spawn(|| {
            let taken = take_precedence();
            let started = thread::spawn(attributes).join().unwrap();
            (taken, attributes().unwrap(), started.unwrap())
        })
        .join()
        .unwrap();
        match taken {
            Ok(()) => assert_eq!(own.sched_nice, usual.min(AHEAD)),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
                eprintln!("skipped: threads with a greater share (the system does not allow it)");
            }
        }
        assert_eq!(started.sched_nice, usual);
    }
}
