//! Tasks on the threads of an executor, in every order (`scripts/loom`).
//!
//! Each thread polls one task and sleeps until its waker is called, as a worker of an executor
//! does; a wake that is lost is a model in which all threads wait. Each model says by which
//! mistakes it was seen to fail.

use std::{
    future,
    task::{Poll, Waker},
};

use aerostat_sync::{AtomicBool, block_on, model, thread};

use super::*;

const TENANT: TenantId = TenantId(1);

fn scheduler(threads: usize) -> Arc<Scheduler> {
    // Time does not pass in models.
    Scheduler::with_clock(threads, Box::new(|| 0))
}

/// Nothing waits or runs any more.
fn assert_idle(scheduler: &Scheduler) {
    assert_eq!(scheduler.waiting(), 0);
    let state = scheduler.state.lock();
    assert_eq!((state.running, state.queue.len()), (0, 0));
}

/// How many tasks are polled at once.
#[derive(Default)]
struct Inside(AtomicUsize);

impl Inside {
    fn work(&self, threads: usize) {
        assert!(self.0.fetch_add(1, Ordering::Relaxed) < threads);
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// No more tasks are polled at once than there are threads, and each that gives way goes on. Seen
/// to fail: a task that is polled without having been called; a turn that ends without
/// calling the next, a wake during a poll that is not noted, an executor's waker that is
/// kept only after `begins` has said no (all threads wait).
#[test]
fn tasks_take_turns() {
    model(|| {
        let (scheduler, inside) = (scheduler(1), Arc::new(Inside::default()));
        let share = scheduler.share(TENANT);
        let task = || {
            let inside = Arc::clone(&inside);
            Scheduled::new(share.work(), async move {
                inside.work(1);
                give_way().await;
                inside.work(1);
            })
        };
        let (first, second) = (task(), task());
        let other = thread::spawn(move || block_on(second));
        block_on(first);
        other.join().expect("no panic");
        assert_idle(&scheduler);
    });
}

/// What a task waits for.
#[derive(Default)]
struct Event {
    has_happened: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// A task that sleeps is polled again, whenever it is woken: before, in or after its poll. Seen to
/// fail (all threads wait): a wake during a poll that is not noted; a woken task that is put into
/// the queue without calling what there are threads for.
#[test]
fn a_woken_task_is_polled() {
    model(|| {
        let (scheduler, event) = (scheduler(1), Arc::new(Event::default()));
        let happens = {
            let event = Arc::clone(&event);
            thread::spawn(move || {
                event.has_happened.store(true, Ordering::Release);
                let waker = event.waker.lock().take();
                if let Some(waker) = waker {
                    waker.wake();
                }
            })
        };
        block_on(Scheduled::new(
            scheduler.share(TENANT).work(),
            future::poll_fn(|context| {
                *event.waker.lock() = Some(context.waker().clone());
                match event.has_happened.load(Ordering::Acquire) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            }),
        ));
        happens.join().expect("no panic");
        assert_idle(&scheduler);
    });
}

/// A task that is dropped, waiting or called, leaves its place to others. Seen to fail (all threads
/// wait): a drop that does not give back that it was called, or leaves the task in the queue.
#[test]
fn a_task_that_is_dropped_is_in_nobodys_way() {
    let check = |comes_first: bool| {
        let scheduler = scheduler(1);
        let share = scheduler.share(TENANT);
        let works = || Scheduled::new(share.work(), future::ready(()));
        let before = comes_first.then(works);
        let dropped = Scheduled::new(share.work(), future::pending::<()>());
        let works = before.unwrap_or_else(works);
        let drops = thread::spawn(move || drop(dropped));
        block_on(works);
        drops.join().expect("no panic");
        assert_idle(&scheduler);
    };
    model(move || check(false));
    model(move || check(true));
}

/// Who sleeps in a poll lets another work meanwhile, which may be what is waited for. Seen to fail: a
/// sleep that gives its place to nobody, or does not take it back.
#[test]
fn who_sleeps_in_a_poll_lets_others_work() {
    model(|| {
        let scheduler = scheduler(1);
        let share = scheduler.share(TENANT);
        let (wakes, sleeps) = {
            let event = Arc::new((Mutex::new(false), aerostat_sync::Condvar::new()));
            let own = Arc::clone(&event);
            let wakes = Scheduled::new(share.work(), async move {
                *event.0.lock() = true;
                event.1.notify_all();
            });
            let sleeps = Scheduled::new(share.work(), async move {
                asleep(|| {
                    let mut has_happened = own.0.lock();
                    while !*has_happened {
                        own.1.wait(&mut has_happened);
                    }
                });
            });
            (wakes, sleeps)
        };
        let other = thread::spawn(move || block_on(wakes));
        block_on(sleeps);
        other.join().expect("no panic");
        assert_idle(&scheduler);
    });
}

/// A place goes on to whoever still waits, whichever of those before gives up at that moment. Seen to fail: one who
/// gives up and has been let in meanwhile, and keeps the place.
#[test]
fn a_place_goes_to_whoever_still_waits() {
    use crate::admission::{Admission, Entry, Limits, Needs};

    model(|| {
        let entrance = Admission::new(None).entrance();
        let limits = Limits {
            running_max: Some(1),
            waiting_max: None,
        };
        entrance.set_limits(limits, 1);
        let enters = || entrance.enter(Needs::Tenant).expect("there is a queue");
        let (Entry::Admitted(place), Entry::Waits(first), Entry::Waits(second)) =
            (enters(), enters(), enters())
        else {
            unreachable!("one runs at a time");
        };
        let ends = thread::spawn(move || drop(place));
        let gives_up = thread::spawn(move || drop(first));
        drop(block_on(second));
        ends.join().expect("no panic");
        gives_up.join().expect("no panic");
        assert_eq!(entrance.counts().running, 0);
    });
}
