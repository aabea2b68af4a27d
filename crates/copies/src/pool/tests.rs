//! Copies that block, panic, or have much to do, beside others.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{Entry, Limits, Next, Pool, Work};

const LIMITS: Limits = Limits {
    name: "pool-test",
    threads: 2,
    threads_max: 8,
    threads_idle: 2,
    clock: Some("pool-clock"),
};

fn pool() -> Pool {
    Pool::new(LIMITS).unwrap()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "not {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Work that does what a test says, and counts its runs.
struct Doing<F> {
    runs: AtomicUsize,
    /// Whether somebody is in it.
    is_in: AtomicBool,
    due: Mutex<Option<Instant>>,
    run: F,
}

fn doing<F: Fn(usize) -> Next + Send + Sync>(run: F) -> Arc<Doing<F>> {
    Arc::new(Doing {
        runs: AtomicUsize::new(0),
        is_in: AtomicBool::new(false),
        due: Mutex::default(),
        run,
    })
}

impl<F> Doing<F> {
    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    fn due_at(&self, due: Option<Instant>) {
        *self.due.lock().unwrap() = due;
    }
}

impl<F: Fn(usize) -> Next + Send + Sync> Work for Doing<F> {
    fn run(&self) -> Next {
        assert!(
            !self.is_in.swap(true, Ordering::SeqCst),
            "two threads run it"
        );
        struct Leaves<'a>(&'a AtomicBool);
        impl Drop for Leaves<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::SeqCst);
            }
        }
        let _leaves = Leaves(&self.is_in);
        self.due_at(None);
        let run = self.runs.fetch_add(1, Ordering::SeqCst);
        (self.run)(run)
    }

    fn due(&self) -> Option<Instant> {
        *self.due.lock().unwrap()
    }
}

/// A door that is opened once, at the end of a test at the latest: then the pool's threads are waited for.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
}

struct Opens<'a>(&'a Gate);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let open = self.is_open.lock().unwrap();
        drop(self.changed.wait_while(open, |open| !*open).unwrap());
    }
}

#[test]
fn those_that_block_hold_up_no_others_until_there_are_as_many_as_may_be() {
    let pool = pool();
    let gate = Arc::new(Gate::default());
    let _opens = Opens(&gate);
    let blocked: Vec<_> = (0..LIMITS.threads_max - 1)
        .map(|_| {
            let gate = Arc::clone(&gate);
            let work = doing(move |_| {
                gate.wait();
                Next::Rest
            });
            let entry = pool.entry(Arc::clone(&work) as _);
            entry.has_word(false);
            (work, entry)
        })
        .collect();
    wait_until("all block", || {
        blocked.iter().all(|(work, _)| work.runs() == 1)
    });
    let free = doing(|_| Next::Rest);
    let entry = pool.entry(Arc::clone(&free) as _);
    for runs in 1..100 {
        entry.has_word(false);
        wait_until("the other runs", || free.runs() == runs);
    }
    assert_eq!(pool.threads(), LIMITS.threads_max);

    // One more, and it waits for them.
    let last = {
        let gate = Arc::clone(&gate);
        doing(move |_| {
            gate.wait();
            Next::Rest
        })
    };
    let last_entry = pool.entry(Arc::clone(&last) as _);
    last_entry.has_word(false);
    wait_until("the last blocks", || last.runs() == 1);
    entry.has_word(false);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(free.runs(), 99);
    assert_eq!(pool.threads(), LIMITS.threads_max);
    gate.open();
    wait_until("it runs when they have gone on", || free.runs() == 100);
    // Also where there is always a little to do, for whichever thread.
    wait_until("threads that nobody needs end", || {
        entry.has_word(false);
        pool.threads() == LIMITS.threads_idle
    });
}

#[test]
fn who_is_due_is_run_at_times_while_others_block() {
    let pool = pool();
    let gate = Arc::new(Gate::default());
    let _opens = Opens(&gate);
    for _ in 0..4 {
        let gate = Arc::clone(&gate);
        let blocks = doing(move |_| {
            gate.wait();
            Next::Rest
        });
        pool.entry(blocks).has_word(false);
    }
    let often = doing(|_| Next::Rest);
    let entry = pool.entry(Arc::clone(&often) as _);
    for runs in 1..20 {
        often.due_at(Some(Instant::now() + Duration::from_millis(7)));
        entry.may_be_due();
        wait_until("it runs", || often.runs() == runs);
    }
    // Later than was said first: nobody runs it then.
    often.due_at(Some(Instant::now() + Duration::from_millis(10)));
    entry.may_be_due();
    often.due_at(Some(Instant::now() + Duration::from_secs(600)));
    thread::sleep(Duration::from_millis(50));
    assert_eq!(often.runs(), 19);
    // And earlier.
    often.due_at(Some(Instant::now()));
    entry.may_be_due();
    wait_until("it runs at once", || often.runs() == 20);
}

#[test]
fn a_word_that_comes_while_it_runs_has_it_run_again_and_by_one_thread() {
    let pool = pool();
    let (told, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let work = {
        let (told, seen) = (Arc::clone(&told), Arc::clone(&seen));
        doing(move |_| {
            seen.store(told.load(Ordering::SeqCst), Ordering::SeqCst);
            Next::Rest
        })
    };
    let entry = pool.entry(Arc::clone(&work) as _);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    told.fetch_add(1, Ordering::SeqCst);
                    entry.has_word(false);
                }
            });
        }
    });
    wait_until("the last word is heard", || {
        seen.load(Ordering::SeqCst) == 20_000
    });
    assert!(work.runs() <= 20_000);
}

#[test]
fn who_has_more_to_do_lets_others_in() {
    let pool = Pool::new(Limits {
        threads: 1,
        threads_idle: 1,
        threads_max: 1,
        ..LIMITS
    })
    .unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    let busy = doing(move |_| match ends.load(Ordering::SeqCst) {
        true => Next::Over,
        false => Next::Again,
    });
    let busy_entry = pool.entry(Arc::clone(&busy) as _);
    busy_entry.has_word(false);
    let other = doing(|_| Next::Rest);
    let entry = pool.entry(Arc::clone(&other) as _);
    for runs in 1..50 {
        entry.has_word(false);
        wait_until("the other runs", || other.runs() == runs);
    }
    is_over.store(true, Ordering::SeqCst);
    busy_entry.await_over();
    let runs = busy.runs();
    busy_entry.has_word(false);
    entry.has_word(false);
    wait_until("the other runs", || other.runs() == 50);
    assert_eq!(busy.runs(), runs, "it was over");
}

#[test]
fn who_is_over_is_not_run_again_when_it_was_due() {
    let pool = pool();
    let work = doing(|_| Next::Over);
    let entry = pool.entry(Arc::clone(&work) as _);
    work.due_at(Some(Instant::now() + Duration::from_millis(10)));
    entry.may_be_due();
    entry.has_word(false);
    entry.await_over();
    thread::sleep(Duration::from_millis(40));
    assert_eq!(work.runs(), 1);
}

#[test]
fn a_panic_ends_a_run_and_nothing_else() {
    let pool = pool();
    let work = doing(|run| match run {
        0..8 => panic!("in the middle of a run"),
        _ => Next::Rest,
    });
    let entry = pool.entry(Arc::clone(&work) as _);
    let other = doing(|_| Next::Rest);
    let beside = pool.entry(Arc::clone(&other) as _);
    entry.has_word(false);
    for runs in 1..20 {
        beside.has_word(false);
        wait_until("others run", || other.runs() == runs);
    }
    wait_until("it is run until it does not panic", || work.runs() == 9);
    entry.has_word(false);
    wait_until("it runs again", || work.runs() == 10);
    // Whoever says of a panic where it was is stuck for a moment.
    wait_until("there are as many threads as before", || {
        pool.threads() == LIMITS.threads
    });
}

#[test]
fn what_is_urgent_is_done_first() {
    let pool = Pool::new(Limits {
        threads: 1,
        threads_idle: 1,
        threads_max: 1,
        clock: None,
        ..LIMITS
    })
    .unwrap();
    let gate = Arc::new(Gate::default());
    let _opens = Opens(&gate);
    let order: Arc<Mutex<Vec<usize>>> = Arc::default();
    let waits = {
        let gate = Arc::clone(&gate);
        doing(move |_| {
            gate.wait();
            Next::Rest
        })
    };
    pool.entry(waits.clone() as Arc<dyn Work>).has_word(false);
    wait_until("the thread is taken", || waits.runs() == 1);
    let entries: Vec<Arc<Entry>> = (0..10)
        .map(|number| {
            let order = Arc::clone(&order);
            let work = doing(move |_| {
                order.lock().unwrap().push(number);
                Next::Rest
            });
            pool.entry(work)
        })
        .collect();
    for (number, entry) in entries.iter().enumerate() {
        entry.has_word(number == 7);
    }
    // One that waits already may become urgent, and the first that are come first.
    entries[4].has_word(true);
    entries[7].has_word(true);
    gate.open();
    wait_until("all have run", || order.lock().unwrap().len() == 10);
    assert_eq!(*order.lock().unwrap(), [7, 4, 0, 1, 2, 3, 5, 6, 8, 9]);
}
