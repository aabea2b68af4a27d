//! Threads that the copies of a process share: what a copy has to do is done by one of them at a time.
//!
//! ```text
//!  whoever has word ──┐                       ┌─► thread ─ run ─► rests, or is ready again
//!  the clock ─ due ───┴─► ready: first come ──┼─► thread ─ run ──────── waits for a session, a disk: stuck
//!                                             └─► another thread, while one is stuck
//! ```
//!
//! * **A phase** for each ([`Phase`]): one that runs is run again if word came meanwhile, and never by two threads.
//! * **The clock** is a thread of its own, which runs nothing: it has ready what is due, and sees to threads that are
//!   stuck. So whatever one copy waits for, others are held up for [`STUCK`] at most, until there are as many threads
//!   stuck as there may be ([`Limits::threads_max`]).
//! * **A panic** ends a run and not the thread: whoever panicked is run once more, to see to it.

mod entry;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle, ThreadId},
    time::{Duration, Instant},
};

use aerostat_memory::trim_heap;
use aerostat_types::{Clock, SystemClock};

pub(crate) use self::entry::{Entry, Next, Work};

/// A run that has lasted so long holds up others: another thread does their work. Longer than a turn that waits for
/// nothing, a small part of a heartbeat.
const STUCK: Duration = Duration::from_millis(10);

/// Deadlines are met together, and so late at most: a thousand copies wake the clock 200 times a second, not 4,000.
const GRAIN: Duration = Duration::from_millis(5);

/// A thread that nobody has needed for so long ends, where there are more than stay.
const LINGERS: Duration = Duration::from_secs(2);

/// How often a thread gives back what it has freed.
const TRIM: Duration = Duration::from_secs(2);

/// Not at any time.
const NEVER: u64 = u64::MAX;

/// How many threads there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// What they are called.
    pub(crate) name: &'static str,
    /// So many work.
    pub(crate) threads: usize,
    /// So many there are, with those that are stuck.
    pub(crate) threads_max: usize,
    /// So many stay when there is nothing to do.
    pub(crate) threads_idle: usize,
    /// What the clock is called, where something is due at times, or threads may be stuck.
    pub(crate) clock: Option<&'static str>,
}

/// The threads. They end with the last that has this.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Owned>);

struct Owned(Arc<Shared>);

/// What the threads share.
pub(crate) struct Shared {
    limits: Limits,
    began: Instant,
    state: Mutex<State>,
    /// Something is ready, or it ends.
    is_ready: Condvar,
    /// The clock is to look.
    looks: Condvar,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Arc<Entry>>,
    /// What is before that.
    urgent: VecDeque<Arc<Entry>>,
    /// By when they are due, in nanoseconds since the pool began, and their numbers.
    timers: BTreeMap<(u64, u64), Arc<Entry>>,
    /// Since when the threads that run something do, by their numbers.
    running: BTreeMap<u64, u64>,
    /// Threads that wait for something to do.
    idle: usize,
    /// Of those, who were woken and have not come yet: each does one thing that is ready.
    woken: usize,
    threads: usize,
    /// Since when there are more than stay that have nothing to do.
    surplus_since: Option<u64>,
    numbers: u64,
    /// When the clock looks next by itself.
    looks_at: u64,
    ends: bool,
    handles: Vec<JoinHandle<()>>,
}

impl State {
    fn next(&mut self) -> Option<Arc<Entry>> {
        self.urgent.pop_front().or_else(|| self.ready.pop_front())
    }

    fn has_some(&self) -> bool {
        !(self.urgent.is_empty() && self.ready.is_empty())
    }
}

impl Pool {
    /// # Errors
    /// The system has no thread.
    pub(crate) fn new(limits: Limits) -> io::Result<Pool> {
        let shared = Arc::new(Shared {
            limits,
            began: SystemClock.now(),
            state: Mutex::default(),
            is_ready: Condvar::new(),
            looks: Condvar::new(),
        });
        let owned = Owned(Arc::clone(&shared));
        if let Some(name) = limits.clock {
            let clock = Arc::clone(&shared);
            let thread = thread::Builder::new().name(name.to_owned());
            let handle = thread.spawn(move || clock.keep_time())?;
            shared.lock().handles.push(handle);
        }
        {
            // One there is from the beginning: where the system has none, it is said now.
            let mut state = shared.lock();
            shared.add_thread(&mut state)?;
        }
        Ok(Pool(Arc::new(owned)))
    }

    /// What has something to do for this. It rests.
    pub(crate) fn entry(&self, work: Arc<dyn Work>) -> Arc<Entry> {
        let shared = &self.0.0;
        let number = {
            let mut state = shared.lock();
            state.numbers += 1;
            state.numbers
        };
        Arc::new(Entry::new(Arc::clone(shared), number, work))
    }

    /// How many threads there are that do what there is to do.
    #[cfg(test)]
    fn threads(&self) -> usize {
        self.0.0.lock().threads
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let handles = {
            let mut state = self.0.lock();
            state.ends = true;
            std::mem::take(&mut state.handles)
        };
        self.0.is_ready.notify_all();
        self.0.looks.notify_all();
        let own: ThreadId = thread::current().id();
        for handle in handles {
            if handle.thread().id() != own {
                // One that panicked has said so.
                let _ = handle.join();
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nobody leaves it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nanos(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.began);
        u64::try_from(since.as_nanos()).unwrap_or(NEVER)
    }

    fn now(&self) -> u64 {
        self.nanos(SystemClock.now())
    }

    /// When something is seen to that is due then.
    fn rounded(&self, due: Option<Instant>) -> u64 {
        let grain = GRAIN.as_nanos() as u64;
        due.map_or(NEVER, |at| {
            self.nanos(at)
                .div_ceil(grain)
                .checked_mul(grain)
                .unwrap_or(NEVER)
        })
    }

    /// A thread is to run this, before others where it is urgent.
    fn push(self: &Arc<Self>, entry: Arc<Entry>, is_urgent: bool) {
        let mut state = self.lock();
        match is_urgent {
            true => state.urgent.push_back(entry),
            false => state.ready.push_back(entry),
        }
        if state.idle > state.woken {
            state.woken += 1;
            drop(state);
            return self.is_ready.notify_one();
        }
        if state.threads < self.limits.threads {
            self.add_thread_or_say(&mut state);
        } else if state.looks_at > self.now() + STUCK.as_nanos() as u64 {
            // It is to see that nobody is stuck for longer.
            drop(state);
            self.looks.notify_one();
        }
    }

    /// What is ready has become urgent, unless a thread has taken it.
    fn hurry(&self, entry: &Entry) {
        let mut state = self.lock();
        let is_it = |other: &Arc<Entry>| other.number() == entry.number();
        let at = state.ready.iter().position(is_it);
        if let Some(entry) = at.and_then(|at| state.ready.remove(at)) {
            state.urgent.push_back(entry);
        }
    }

    /// Has the clock see to this when it is due, if that is before it would.
    fn schedule(&self, entry: &Arc<Entry>) {
        if self.rounded(entry.due()) >= entry.timer() {
            return;
        }
        let mut state = self.lock();
        // Whoever changes it does so with the lock, and nobody misses what became due meanwhile.
        let (due, before) = (self.rounded(entry.due()), entry.timer());
        if due >= before {
            return;
        }
        state.timers.remove(&(before, entry.number()));
        state
            .timers
            .insert((due, entry.number()), Arc::clone(entry));
        entry.set_timer(due);
        let is_early = due < state.looks_at;
        drop(state);
        if is_early {
            self.looks.notify_one();
        }
    }

    /// It is due at no time any more.
    fn unschedule(&self, entry: &Entry) {
        let mut state = self.lock();
        let timer = (entry.timer(), entry.number());
        entry.set_timer(NEVER);
        let gone = state.timers.remove(&timer);
        drop(state);
        drop(gone);
    }

    fn add_thread(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        state.numbers += 1;
        let (shared, number) = (Arc::clone(self), state.numbers);
        let thread = thread::Builder::new().name(self.limits.name.to_owned());
        let handle = thread.spawn(move || shared.serve(number))?;
        state.handles.retain(|handle| !handle.is_finished());
        state.handles.push(handle);
        state.threads += 1;
        Ok(())
    }

    fn add_thread_or_say(self: &Arc<Self>, state: &mut State) {
        if let Err(error) = self.add_thread(state) {
            tracing::error!(%error, name = self.limits.name, "no thread for copies");
        }
    }

    /// A thread.
    fn serve(&self, number: u64) {
        let mut trimmed = self.now();
        let mut state = self.lock();
        loop {
            if let Some(entry) = state.next() {
                state.running.insert(number, self.now());
                drop(state);
                entry.run();
                drop(entry);
                state = self.lock();
                state.running.remove(&number);
                continue;
            }
            if state.ends {
                break;
            }
            if self.now() >= trimmed + TRIM.as_nanos() as u64 {
                drop(state);
                trim_heap();
                trimmed = self.now();
                state = self.lock();
                if state.has_some() {
                    continue;
                }
            }
            if self.is_surplus(&mut state) {
                break;
            }
            state.idle += 1;
            let waited = self.is_ready.wait_timeout(state, LINGERS);
            let timeout;
            (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            state.woken = state.woken.saturating_sub(1);
            let is_over = timeout.timed_out() && !state.has_some();
            if is_over && state.threads > self.limits.threads_idle {
                break;
            }
        }
        state.threads -= 1;
        drop(state);
        trim_heap();
    }

    /// Whether a thread that has nothing to do is one too many, and has been for a while: where there is a little to do
    /// all the time, each has some of it.
    fn is_surplus(&self, state: &mut State) -> bool {
        if state.idle < self.limits.threads_idle {
            state.surplus_since = None;
            return false;
        }
        let now = self.now();
        let since = *state.surplus_since.get_or_insert(now);
        let is_surplus = now >= since + LINGERS.as_nanos() as u64;
        if is_surplus {
            state.surplus_since = None;
        }
        is_surplus
    }

    /// The clock.
    fn keep_time(self: Arc<Self>) {
        let mut state = self.lock();
        while !state.ends {
            let now = self.now();
            let mut due = Vec::new();
            while let Some(first) = state.timers.first_entry()
                && first.key().0 <= now
            {
                let entry = first.remove();
                entry.set_timer(NEVER);
                due.push(entry);
            }
            if !due.is_empty() {
                drop(state);
                due.into_iter().for_each(|entry| entry.is_time());
                state = self.lock();
                continue;
            }
            let next_timer = state.timers.first_key_value().map(|(key, _)| key.0);
            let next_stuck = self.see_to_stuck(&mut state, now);
            let next = next_timer.unwrap_or(NEVER).min(next_stuck);
            state.looks_at = next;
            let wait = Duration::from_nanos(next.saturating_sub(now));
            let waited = self.looks.wait_timeout(state, wait);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            // Until it has looked, nobody need have it look.
            state.looks_at = 0;
        }
    }

    /// Has other threads do what waits for those that are stuck. When it is to be looked again.
    fn see_to_stuck(self: &Arc<Self>, state: &mut State, now: u64) -> u64 {
        if !state.has_some() {
            // Whoever has more than the threads come to says so.
            return NEVER;
        }
        let stuck_at = |since: &u64| since + STUCK.as_nanos() as u64;
        let stuck = |state: &State| {
            let all = state.running.values();
            all.filter(|since| stuck_at(since) <= now).count()
        };
        while state.threads < self.limits.threads_max
            && state.threads - stuck(state).min(state.threads) < self.limits.threads
        {
            let before = state.threads;
            self.add_thread_or_say(state);
            if state.threads == before {
                break;
            }
        }
        let others = state.running.values().map(stuck_at);
        let next = others.filter(|at| *at > now).min();
        next.unwrap_or(now + STUCK.as_nanos() as u64)
    }
}
