//! Places where a test can have the process die.
//!
//! `AEROSTAT_FAULT=log.before_sync:3` aborts the process when it passes that place for
//! the third time. Without the variable a passage costs a load.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
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

/// Dies here if it is time.
pub(crate) fn pass(place: &str) {
    if strikes(place) {
        std::process::abort();
    }
}
