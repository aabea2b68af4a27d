//! The thread in which a node speaks of itself, listens to others, and coordinates.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use aerostat_catalog::admin::Node;

use crate::{Census, JoinError, census::TimeUsed, coordinator::Coordinator};

/// How soon it ends that is told to.
const LOOK: Duration = Duration::from_millis(50);

/// How often a node speaks of itself, and when others are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Reports are this far apart.
    pub every: Duration,
    /// A node that was silent for so long is lost, and its copies are made elsewhere.
    pub replace_after: Duration,
}

impl Default for Pace {
    /// Five minutes: a restart, or a new binary, makes nobody copy.
    fn default() -> Self {
        Self {
            every: Duration::from_secs(2),
            replace_after: Duration::from_secs(300),
        }
    }
}

/// What speaks of a node.
pub(crate) struct Speaker {
    pub(crate) node: Arc<Node>,
    pub(crate) census: Arc<Census>,
    pub(crate) time_used: Arc<TimeUsed>,
    pub(crate) pace: Pace,
    pub(crate) stops: Arc<AtomicBool>,
}

impl Speaker {
    /// Speaks once now, and then in a thread of its own.
    ///
    /// # Errors
    /// The system has no thread.
    pub(crate) fn start(self) -> io::Result<JoinHandle<()>> {
        self.hear();
        let thread = thread::Builder::new().name("aerostat-census".to_owned());
        thread.spawn(move || self.run())
    }

    fn run(self) {
        let mut coordinator = Coordinator::default();
        while !self.stops.load(Ordering::Acquire) {
            let began = Instant::now();
            if self.hear() {
                coordinator.step(&self.node, &self.census, self.pace.replace_after);
            }
            while began.elapsed() < self.pace.every && !self.stops.load(Ordering::Acquire) {
                thread::sleep(LOOK.min(self.pace.every));
            }
        }
        if let Err(error) = self.census.tell(&self.node, &*self.time_used, true) {
            warn(&error);
        }
    }

    /// Speaks and listens; whether that could be done.
    fn hear(&self) -> bool {
        let told = self.census.tell(&self.node, &*self.time_used, false);
        let heard = told.and_then(|()| self.census.look(self.pace.every));
        if let Err(error) = &heard {
            warn(error);
        }
        heard.is_ok()
    }
}

fn warn(error: &JoinError) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "nodes do not hear of each other"
    );
}
