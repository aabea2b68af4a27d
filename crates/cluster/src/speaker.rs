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

use aerostat_catalog::{ClusterNodes, admin::Node};
use aerostat_types::{NodeId, TenantId};

use crate::{
    Census, JoinError, census::TimeUsed, coordinator::Coordinator, placing::Picture, spread::Spread,
};

/// How soon it ends that is told to.
const LOOK: Duration = Duration::from_millis(50);

/// How often a node speaks of itself, and when others are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Reports are this far apart.
    pub every: Duration,
    /// A node that was silent for so long is lost, and its copies are made elsewhere.
    pub replace_after: Duration,
    /// Whether a node that leads most has others lead some of it: its sessions have to be able to go along.
    pub spreads: bool,
}

impl Default for Pace {
    /// Five minutes: a restart, or a new binary, makes nobody copy.
    fn default() -> Self {
        Self {
            every: Duration::from_secs(3),
            replace_after: Duration::from_secs(300),
            spreads: false,
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
    /// Has another node lead a database that this one does.
    pub(crate) hand_over: Box<dyn Fn(TenantId, NodeId) + Send>,
}

/// A node is settled after so many reports, and gives something away every so many.
const SETTLED: u32 = 15;
const SPREADS: u32 = 5;

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
        let mut spread = Spread::default();
        while !self.stops.load(Ordering::Acquire) {
            let began = Instant::now();
            if self.hear() {
                coordinator.step(&self.node, &self.census, self.pace.replace_after);
                if self.pace.spreads {
                    self.spread(&mut spread);
                }
            }
            while began.elapsed() < self.pace.every && !self.stops.load(Ordering::Acquire) {
                thread::sleep(LOOK.min(self.pace.every));
            }
        }
        if let Err(error) = self.census.tell(&self.node, &*self.time_used, true) {
            warn(&error);
        }
    }

    /// Has others lead some of what this node does, if that is most.
    fn spread(&self, spread: &mut Spread) {
        let facts = self.census.facts();
        let picture = Picture::of(&self.node.record(), &facts, None);
        let every = self.pace.every;
        let times = (every * SETTLED, every * SPREADS);
        let next = spread.next(self.census.me(), &picture, times);
        if let Some((database, node)) = next {
            tracing::info!(tenant = %database, to = picture.name_of(node), "another node leads less, and is to lead this");
            (self.hand_over)(database, node);
        }
    }

    /// Speaks and listens; whether that could be done.
    fn hear(&self) -> bool {
        let told = self.census.tell(&self.node, &*self.time_used, false);
        let heard = told.and_then(|()| self.census.look(Some(self.pace.every)));
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
