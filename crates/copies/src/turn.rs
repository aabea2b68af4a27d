//! Whose turn it is with a copy's driver: that of a thread for copies, of whoever has a packet for it, or of whoever
//! wrote its log.
//!
//! ```text
//!  a thread          all that is told, ticks, whatever takes long          waits for its turn
//!  a connection      the next packet, where none waits before it           takes it, or leaves the packet
//!  who wrote the log what was written goes to copies                       takes it, or leaves word
//! ```
//!
//! So a commit needs no other thread on its way out, and none between the socket and who waits for the copies.
//! Word that is left is looked at by whoever has the turn, before nobody has it. At its end each turn says when time
//! alone has something done next, and tells the owner what is known by now, unless it did a moment ago.

use std::{
    sync::{
        Mutex, MutexGuard, TryLockError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use aerostat_types::{Clock, SystemClock};

use crate::{
    CopyError, Driver, Host, Known, Packet, Standing,
    driver::Gist,
    inbox::{Taken, Takes, Turns},
};

/// How often the machine is told the time at most, and the owner what is known.
const TICK: Duration = Duration::from_millis(25);

/// How soon the machine is told the time when that has something to do at once: what comes meanwhile goes with it.
const SOON: Duration = Duration::from_millis(12);

/// What somebody else's turn sends at most: he has things of his own to do.
const SHORT_TURN_BYTES: usize = 256 << 10;

/// A copy that is far behind takes more than this later, in a thread's turn.
pub(crate) const LARGE_BYTES: usize = 32 << 10;

/// A driver, and what it needs.
pub(crate) struct Core<H> {
    pub(crate) driver: Driver,
    pub(crate) host: H,
    began: Instant,
    /// Why it cannot go on: a thread ends it.
    pub(crate) failed: Option<CopyError>,
    clock: Ticks,
    told: Telling,
}

/// When the machine is told the time.
#[derive(Default)]
struct Ticks {
    last: Option<Duration>,
    /// Since it has something to do at once.
    soon: Option<Duration>,
    next: Duration,
}

/// When the owner is told what is known.
#[derive(Default)]
struct Telling {
    last: Option<(Duration, Gist)>,
    /// Somebody was heard since.
    has_heard: bool,
    /// `None`: when somebody is heard.
    next: Option<Duration>,
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
    began: Instant,
    /// When time has something done next, in nanoseconds since then, as of the last turn.
    due: AtomicU64,
}

/// At no time.
const NEVER: u64 = u64::MAX;

/// What a driver needs, also in turns that are not its thread's.
pub(crate) trait TurnHost: Host + Send {
    /// Somebody's turn begins who sends no more than this.
    fn begin_short_turn(&self, bytes: usize);

    /// It ends; whether there may be more to send.
    fn end_short_turn(&self) -> bool;

    /// See [`crate::Owner::knows`].
    fn knows(&mut self, known: &Known);

    /// See [`crate::Owner::ended`].
    fn ended(&mut self, error: CopyError);
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

    /// Takes a packet.
    pub(crate) fn receive(&mut self, packet: Packet) {
        self.step(|driver, now, host| driver.receive(now, packet, host));
        self.told.has_heard = true;
    }

    /// Tells the machine the time, if that has something to do.
    pub(crate) fn tick(&mut self) {
        let now = self.now();
        if now < self.clock.next {
            return;
        }
        (self.clock.last, self.clock.soon) = (Some(now), None);
        self.step(|driver, now, host| driver.tick(now, host));
    }

    /// A turn ends, of a thread for copies or of somebody else. When time has something done next.
    fn end_turn(&mut self, is_own: bool) -> Duration {
        if self.failed.is_some() {
            return Duration::ZERO;
        }
        let now = self.now();
        self.tell(now, is_own);
        let due = self.driver.due(now);
        let clock = &mut self.clock;
        let earliest = clock.last.map_or(Duration::ZERO, |last| last + TICK);
        clock.soon = match due <= now {
            true => clock.soon.or(Some(earliest.max(now + SOON))),
            false => None,
        };
        clock.next = clock.soon.unwrap_or(due.max(earliest));
        self.told
            .next
            .map_or(clock.next, |tells| tells.min(clock.next))
    }

    /// Tells the owner what is known, if it is something else, and was not told a moment ago.
    fn tell(&mut self, now: Duration, is_own: bool) {
        let gist = self.driver.gist(now);
        let is_other = self.told.last.is_none_or(|(_, told)| told != gist);
        self.told.next = None;
        if !is_other && !self.told.has_heard {
            return;
        }
        // What is shown for the first time is seen to by the owner, who may have to wait for a disk.
        let is_allowed = is_own
            || self
                .told
                .last
                .is_some_and(|(_, told)| told.is_shown == gist.is_shown);
        let may_at = self.told.last.map_or(now, |(at, _)| at + TICK);
        if now >= may_at && is_allowed {
            self.host.knows(&self.driver.known(now));
            self.told.last = Some((now, gist));
            self.told.has_heard = false;
        } else if is_other {
            self.told.next = Some(may_at);
        }
    }

    /// Whether a thread has something to do.
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
            began: SystemClock.now(),
            due: AtomicU64::new(NEVER),
        }
    }

    /// Gives it what it is about.
    pub(crate) fn begin(&self, driver: Driver, host: H) {
        let core = Core {
            driver,
            host,
            began: self.began,
            failed: None,
            clock: Ticks::default(),
            told: Telling::default(),
        };
        *self
            .core
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(core);
    }

    /// When time has something done next, as of the last turn.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self.due.load(Ordering::SeqCst) {
            NEVER => None,
            nanos => Some(self.began + Duration::from_nanos(nanos)),
        }
    }

    /// It has ended.
    pub(crate) fn take(&self, core: &mut Option<Core<H>>) -> Option<Core<H>> {
        self.due.store(NEVER, Ordering::SeqCst);
        core.take()
    }

    /// A thread's turn. Somebody may have panicked in his: then it cannot go on.
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
        while self.has_word() {
            let mut guard = match self.core.try_lock() {
                Ok(guard) => guard,
                Err(TryLockError::WouldBlock) => break,
                // A thread sees to it.
                Err(TryLockError::Poisoned(_)) => return true,
            };
            let Some(core) = &mut *guard else {
                return false;
            };
            core.host.begin_short_turn(SHORT_TURN_BYTES);
            self.look_at(core, false);
            go_on |= core.needs_thread();
        }
        go_on
    }

    /// Looks at what was left, at the end of a turn: a thread's or somebody else's.
    pub(crate) fn look_at(&self, core: &mut Core<H>, is_own: bool) {
        while self.take_word() && core.failed.is_none() {
            core.step(|driver, now, host| driver.written(now, host));
        }
        let leads = core.driver.standing() == Standing::Leads;
        self.leads.store(leads, Ordering::Relaxed);
        let due = core.end_turn(is_own).as_nanos();
        let due = u64::try_from(due).unwrap_or(NEVER);
        self.due.store(due, Ordering::SeqCst);
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
            // Where somebody has panicked a thread sees to it.
            let Ok(mut guard) = self.core.try_lock() else {
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
            core.receive(packet);
            self.look_at(core, false);
            core.needs_thread()
        };
        match self.look() || go_on {
            true => Taken::GoOn,
            false => Taken::Done,
        }
    }
}
