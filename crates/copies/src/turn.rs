//! Whose turn it is with a copy's driver: its own thread's, that of whoever has a packet for it, or of whoever
//! wrote its log.
//!
//! ```text
//!  its thread        all that is told, ticks, whatever takes long          waits for its turn
//!  a connection      the next packet, where none waits before it           takes it, or leaves the packet
//!  who wrote the log what was written goes to copies                       takes it, or leaves word
//! ```
//!
//! So a commit needs no other thread on its way out, and none between the socket and who waits for the copies.
//! Word that is left is looked at by whoever has the turn, before nobody has it.

use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use aerostat_types::{Clock, SystemClock};

use crate::{
    CopyError, Driver, Host, Packet, Standing,
    inbox::{Taken, Takes, Turns},
};

/// What somebody else's turn sends at most: he has things of his own to do.
const SHORT_TURN_BYTES: usize = 256 << 10;

/// A copy that is far behind takes more than this later, in its thread's turn.
pub(crate) const LARGE_BYTES: usize = 32 << 10;

/// A driver, and what it needs.
pub(crate) struct Core<H> {
    pub(crate) driver: Driver,
    pub(crate) host: H,
    pub(crate) began: Instant,
    /// Why it cannot go on: its thread ends it.
    pub(crate) failed: Option<CopyError>,
}

/// Whose turn it is.
pub(crate) struct Turn<H> {
    /// `None` once it has ended.
    core: Mutex<Option<Core<H>>>,
    /// The log has more that nobody has looked at.
    woken: AtomicBool,
    /// Packets that wait for the thread.
    waiting: AtomicUsize,
    /// Whether it leads, as of the last turn.
    leads: AtomicBool,
}

/// What a driver needs, also in turns that are not its thread's.
pub(crate) trait TurnHost: Host + Send {
    /// Somebody's turn begins who sends no more than this.
    fn begin_short_turn(&self, bytes: usize);

    /// It ends; whether there may be more to send.
    fn end_short_turn(&self) -> bool;
}

impl<H: TurnHost> Core<H> {
    /// Since when the machine counts.
    pub(crate) fn now(&self) -> Duration {
        SystemClock.now().saturating_duration_since(self.began)
    }

    /// Does something, unless it cannot go on.
    pub(crate) fn step(
        &mut self,
        step: impl FnOnce(&mut Driver, Duration, &mut H) -> Result<(), CopyError>,
    ) {
        if self.failed.is_some() {
            return;
        }
        let now = self.now();
        if let Err(error) = step(&mut self.driver, now, &mut self.host) {
            self.failed = Some(error);
        }
    }

    /// Whether its thread has something to do.
    fn needs_thread(&mut self) -> bool {
        let was_cut_short = self.host.end_short_turn();
        was_cut_short || self.failed.is_some() || self.driver.has_more()
    }
}

impl<H: TurnHost> Turn<H> {
    pub(crate) fn new() -> Turn<H> {
        Turn {
            core: Mutex::new(None),
            woken: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            leads: AtomicBool::new(false),
        }
    }

    /// Gives it what it is about.
    pub(crate) fn begin(&self, core: Core<H>) {
        *self
            .core
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(core);
    }

    /// The thread's turn. Somebody may have panicked in his: then it cannot go on.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Core<H>>> {
        self.core.lock().unwrap_or_else(|poisoned| {
            self.core.clear_poison();
            let mut core = poisoned.into_inner();
            if let Some(core) = &mut *core {
                core.failed = Some(CopyError::Panicked);
            }
            core
        })
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Option<Core<H>>>> {
        // Where somebody has panicked the thread sees to it.
        self.core.try_lock().ok()
    }

    /// Whether word was left that nobody has looked at. Whoever asks looks at it.
    pub(crate) fn take_word(&self) -> bool {
        self.woken.swap(false, Ordering::SeqCst)
    }

    /// Whether word was left.
    pub(crate) fn has_word(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }

    /// The thread has done one.
    pub(crate) fn packet_done(&self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Looks at what was left, if it is nobody's turn; whether the thread is to go on.
    fn look(&self) -> bool {
        let mut go_on = false;
        // Whoever has the turn looks at it once more before he ends it.
        while self.has_word()
            && let Some(mut guard) = self.try_lock()
        {
            let Some(core) = &mut *guard else {
                return false;
            };
            core.host.begin_short_turn(SHORT_TURN_BYTES);
            self.look_at(core);
            go_on |= core.needs_thread();
        }
        go_on
    }

    /// Looks at what was left.
    pub(crate) fn look_at(&self, core: &mut Core<H>) {
        while self.take_word() && core.failed.is_none() {
            core.step(|driver, now, host| driver.written(now, host));
        }
        let leads = core.driver.standing() == Standing::Leads;
        self.leads.store(leads, Ordering::Relaxed);
    }
}

impl<H: TurnHost> Turns for Turn<H> {
    fn wake(&self) -> bool {
        self.woken.store(true, Ordering::SeqCst);
        self.look()
    }

    fn leave_packet(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
    }

    fn leads(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }

    fn receive(&self, packet: Packet, takes: Takes) -> Taken {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            return Taken::Left(Box::new(packet));
        }
        let go_on = {
            let Some(mut guard) = self.try_lock() else {
                return Taken::Left(Box::new(packet));
            };
            let Some(core) = guard.as_mut().filter(|core| core.failed.is_none()) else {
                return Taken::Left(Box::new(packet));
            };
            if packet.records.bytes.len() > LARGE_BYTES && core.driver.is_far_behind() {
                return Taken::Left(Box::new(packet));
            }
            let leads = core.driver.standing() == Standing::Leads;
            if takes == Takes::Answers && !(leads && packet.is_answer()) {
                return Taken::Left(Box::new(packet));
            }
            core.host.begin_short_turn(SHORT_TURN_BYTES);
            core.step(|driver, now, host| driver.receive(now, packet, host));
            self.look_at(core);
            core.needs_thread()
        };
        match self.look() || go_on {
            true => Taken::GoOn,
            false => Taken::Done,
        }
    }
}
