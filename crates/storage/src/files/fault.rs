//! Places where a test can kill the process.
//!
//! `AEROSTAT_FAULT=log.before_sync:3` aborts the process when it passes that place for the third
//! time. `AEROSTAT_SLOW=2000` makes each passage take up to that many microseconds, like a disk
//! that is slow to a varying degree. Without the variables a passage costs a load or two.
//!
//! Tests of this crate can hook each passage of their thread ([`visit`]), and do there what other
//! threads might do at that moment.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

struct Armed {
    place: String,
    passages_left: AtomicU64,
}

fn armed() -> Option<&'static Armed> {
    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
    ARMED
        .get_or_init(|| {
            let text = std::env::var("AEROSTAT_FAULT").ok()?;
            let (place, passage) = text.split_once(':').unwrap_or((&text, "1"));
            Some(Armed {
                place: place.to_owned(),
                passages_left: AtomicU64::new(passage.parse().ok()?),
            })
        })
        .as_ref()
}

/// Whether the process is to die here and now. For places that do half of something first.
pub(crate) fn strikes(place: &str) -> bool {
    armed().is_some_and(|armed| {
        armed.place == place && armed.passages_left.fetch_sub(1, Ordering::Relaxed) == 1
    })
}

/// The longest a passage takes.
fn slowness() -> Option<Duration> {
    static SLOWNESS: OnceLock<Option<Duration>> = OnceLock::new();
    *SLOWNESS.get_or_init(|| {
        let micros = std::env::var("AEROSTAT_SLOW").ok()?;
        Some(Duration::from_micros(micros.parse().ok()?))
    })
}

/// Dies here if it is time.
pub(crate) fn pass(place: &str) {
    #[cfg(test)]
    visit::passed(place);
    if let Some(slowness) = slowness() {
        // Mostly quick, at times much slower: the fourth power of what is even.
        let even = RandomState::new().hash_one(place) as f64 / u64::MAX as f64;
        #[expect(clippy::disallowed_methods, reason = "as slow a disk as this one")]
        thread::sleep(slowness.mul_f64(even.powi(4)));
    }
    if strikes(place) {
        std::process::abort();
    }
}

/// Whether a test of this crate has built in this fault, to see that its simulation finds it.
pub(crate) fn is_planted(fault: &str) -> bool {
    #[cfg(test)]
    return PLANTED.get() == Some(fault);
    #[cfg(not(test))]
    {
        let _ = fault;
        false
    }
}

#[cfg(test)]
thread_local! {
    /// The fault that is built in for this thread.
    pub(crate) static PLANTED: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}

/// Looking in on passages.
#[cfg(test)]
pub(crate) mod visit {
    use std::cell::RefCell;

    type Visitor = Box<dyn FnMut(&str)>;

    thread_local! {
        static VISITOR: RefCell<Option<Visitor>> = const { RefCell::new(None) };
    }

    /// Has this thread call the visitor at each place it passes, but for those it passes in
    /// the visitor itself; `None`: nobody any more.
    pub(crate) fn set(visitor: Option<Visitor>) {
        VISITOR.set(visitor);
    }

    pub(super) fn passed(place: &str) {
        if let Some(mut visitor) = VISITOR.take() {
            visitor(place);
            VISITOR.set(Some(visitor));
        }
    }
}
