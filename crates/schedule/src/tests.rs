//! Tests of who is polled when: with a clock that only work advances, with threads, and when
//! tasks are dropped.

use std::{
    collections::BTreeMap,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, mpsc},
    task::{Context, Wake, Waker},
};

use aerostat_sync::{AtomicBool, AtomicU64, Ordering};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::sync::mpsc::channel;

use super::*;

const MS: u64 = 1_000_000;

fn tenant(number: u32) -> TenantId {
    TenantId(number)
}

/// A scheduler whose time is what tasks say they work.
struct Bench {
    scheduler: Arc<Scheduler>,
    shares: BTreeMap<u32, Arc<Share>>,
    time: Arc<AtomicU64>,
    /// Who worked, in order.
    turns: Arc<Mutex<Vec<&'static str>>>,
    tasks: Tasks,
}

/// An executor's tasks.
type Tasks = Vec<(Pin<Box<dyn Future<Output = ()> + Send>>, Arc<Woken>)>;

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl Bench {
    fn new() -> Self {
        let time = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&time);
        Self {
            scheduler: Scheduler::with_clock(1, Box::new(move || clock.load(Ordering::Relaxed))),
            shares: BTreeMap::new(),
            time,
            turns: Arc::default(),
            tasks: Vec::new(),
        }
    }

    fn share(&mut self, number: u32) -> &Arc<Share> {
        let scheduler = &self.scheduler;
        let share = self.shares.entry(number);
        share.or_insert_with(|| scheduler.share(tenant(number)))
    }

    /// A statement of a tenant.
    fn work(&mut self, number: u32) -> Arc<Work> {
        self.share(number).work()
    }

    /// What a tenant has taken.
    fn used(&mut self, number: u32) -> Duration {
        self.share(number).used()
    }

    /// A task that works so many turns of so long.
    fn task(&mut self, name: &'static str, work: &Arc<Work>, turns: u32, turn_ms: u64) {
        let (time, log) = (Arc::clone(&self.time), Arc::clone(&self.turns));
        let body = async move {
            for _ in 0..turns {
                log.lock().push(name);
                time.fetch_add(turn_ms * MS, Ordering::Relaxed);
                give_way().await;
            }
        };
        self.spawn(Scheduled::new(Arc::clone(work), body));
    }

    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        self.tasks.push((Box::pin(task), woken));
    }

    /// Polls what is woken, once, and gives how many have ended.
    fn round(&mut self) -> usize {
        let before = self.tasks.len();
        self.tasks.retain_mut(|(task, woken)| {
            let is_woken = woken.0.swap(false, Ordering::Acquire);
            let waker = Waker::from(Arc::clone(woken));
            !is_woken
                || task
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
        });
        before - self.tasks.len()
    }

    /// Runs all to the end.
    fn run(&mut self) -> Vec<&'static str> {
        while !self.tasks.is_empty() {
            let is_woken = |(_, woken): &(_, Arc<Woken>)| woken.0.load(Ordering::Acquire);
            assert!(self.tasks.iter().any(is_woken), "nobody is called");
            self.round();
        }
        std::mem::take(&mut self.turns.lock())
    }
}

fn count(turns: &[&'static str]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for name in turns {
        *counts.entry(*name).or_default() += 1;
    }
    counts
}

#[test]
fn tenants_share_whatever_they_run() {
    let mut bench = Bench::new();
    // Nine statements of one tenant, one of another.
    for _ in 0..9 {
        let work = bench.work(1);
        bench.task("many", &work, 1_000, 1);
    }
    let work = bench.work(2);
    bench.task("one", &work, 1_000, 1);
    while bench.turns.lock().len() < 1_000 {
        bench.round();
    }
    let counts = count(&bench.turns.lock());
    assert!(counts["one"].abs_diff(500) < 5, "{counts:?}");
    let (many, one) = (bench.used(1), bench.used(2));
    assert!(
        many.abs_diff(one) < Duration::from_millis(5),
        "{many:?} {one:?}"
    );
}

#[test]
fn tenants_share_by_their_weights() {
    for (weights, parts) in [
        ([100, 300], [250, 750]),
        ([1, 10_000], [0, 1_000]),
        // Any number is a weight, as long as it is one for all.
        ([7, 7], [500, 500]),
        ([0, 1], [500, 500]),
    ] {
        let mut bench = Bench::new();
        for (number, name) in [(1, "first"), (2, "second")] {
            bench.share(number).set_weight(weights[number as usize - 1]);
            // However many statements it has.
            for _ in 0..if number == 1 { 5 } else { 1 } {
                let work = bench.work(number);
                bench.task(name, &work, 1_000, 1);
            }
        }
        while bench.turns.lock().len() < 1_000 {
            bench.round();
        }
        let counts = count(&bench.turns.lock());
        for (name, part) in ["first", "second"].into_iter().zip(parts) {
            let had = counts.get(name).copied().unwrap_or(0);
            assert!(had.abs_diff(part) < 7, "{weights:?}: {counts:?}");
        }
    }
}

#[test]
fn another_weight_counts_from_now_on() {
    let mut bench = Bench::new();
    for (number, name) in [(1, "first"), (2, "second")] {
        let work = bench.work(number);
        bench.task(name, &work, 2_000, 1);
    }
    let part_of_first = |bench: &mut Bench, turns: usize| {
        bench.turns.lock().clear();
        while bench.turns.lock().len() < turns {
            bench.round();
        }
        count(&bench.turns.lock())["first"]
    };
    assert!(part_of_first(&mut bench, 400).abs_diff(200) < 5);
    bench.share(1).set_weight(400);
    assert!(part_of_first(&mut bench, 400).abs_diff(320) < 8);
    // What it has had more of is not taken back.
    bench.share(1).set_weight(WEIGHT_DEFAULT);
    assert!(part_of_first(&mut bench, 400).abs_diff(200) < 5);
    let used = bench.used(1) + bench.used(2);
    assert!(
        used >= Duration::from_millis(1_200),
        "weights change no clock: {used:?}"
    );
}

#[test]
fn who_was_idle_is_owed_nothing() {
    let mut bench = Bench::new();
    let first = bench.work(1);
    bench.task("first", &first, 3, 100);
    bench.run();
    let (first, second) = (bench.work(1), bench.work(2));
    bench.task("first", &first, 40, 1);
    bench.task("second", &second, 40, 1);
    let turns = bench.run();
    let counts = count(&turns[..40]);
    assert!(counts["first"].abs_diff(20) <= 2, "{counts:?}");
}

#[test]
fn short_statements_pass_long_ones() {
    let mut bench = Bench::new();
    let long = bench.work(1);
    bench.task("long", &long, 1_500, 1);
    while bench.turns.lock().len() < 1_400 {
        bench.round();
    }
    bench.turns.lock().clear();
    let short = bench.work(1);
    bench.task("short", &short, 10, 1);
    let turns = bench.run();
    let end = turns.iter().rposition(|name| *name == "short");
    // An eighth of the time is the long one's all the same.
    assert!(end.is_some_and(|end| end <= 13), "{:?}", &turns[..20]);
}

#[test]
fn equal_statements_are_done_one_after_the_other() {
    let mut bench = Bench::new();
    for name in ["a", "b", "c"] {
        let work = bench.work(1);
        bench.task(name, &work, 5, 1);
    }
    let turns = bench.run();
    let expected = [["a"; 5], ["b"; 5], ["c"; 5]].concat();
    assert_eq!(turns, expected);
}

#[test]
fn long_statements_all_get_on_beside_short_ones() {
    let mut bench = Bench::new();
    let long = bench.work(1);
    bench.task("long", &long, 500, 10);
    while bench.turns.lock().len() < 200 {
        bench.round();
    }
    bench.turns.lock().clear();
    for _ in 0..100 {
        let work = bench.work(1);
        bench.task("short", &work, 2, 1);
    }
    let turns = bench.run();
    let counts = count(&turns[..160]);
    // It has a turn, of ten milliseconds, already, one after eight of others, and one after
    // eighty more.
    assert_eq!(counts["long"], 3, "{counts:?}");
    // Once both are of the last class, two long ones have the same.
    let (one, other) = (bench.work(1), bench.work(1));
    bench.task("one", &one, 300, 10);
    bench.task("other", &other, 300, 10);
    let turns = bench.run();
    let counts = count(&turns[..400]);
    assert!(counts["one"].abs_diff(counts["other"]) <= 2, "{counts:?}");
}

#[test]
fn tasks_that_are_dropped_leave_their_place() {
    let mut bench = Bench::new();
    let work = bench.work(1);
    bench.task("called", &work, 5, 1);
    bench.task("waiting", &work, 5, 1);
    bench.task("last", &work, 2, 1);
    // Two wait; one is called, and goes away before it is polled.
    assert_eq!(bench.scheduler.waiting(), 2);
    drop(bench.tasks.remove(1));
    assert_eq!(bench.scheduler.waiting(), 1);
    drop(bench.tasks.remove(0));
    assert_eq!(bench.run(), ["last", "last"]);
    assert_eq!(bench.scheduler.state.lock().running, 0);
    assert_eq!(bench.scheduler.waiting(), 0);
}

#[test]
fn a_task_that_panics_gives_its_place_back() {
    let mut bench = Bench::new();
    let work = bench.work(1);
    bench.spawn(Scheduled::new(Arc::clone(&work), async {
        panic!("on purpose")
    }));
    let result = catch_unwind(AssertUnwindSafe(|| bench.round()));
    assert!(result.is_err());
    bench.tasks.clear();
    bench.task("next", &work, 2, 1);
    assert_eq!(bench.run(), ["next", "next"]);
}

#[test]
fn turns_end_when_somebody_waits() {
    let mut bench = Bench::new();
    assert_eq!(turn_is_over(), None, "outside of tasks");
    let time = Arc::clone(&bench.time);
    let body = async move {
        assert_eq!(turn_is_over(), Some(false));
        time.fetch_add(10 * MS, Ordering::Relaxed);
        assert_eq!(turn_is_over(), Some(false), "nobody waits");
        time.fetch_add(10 * MS, Ordering::Relaxed);
        assert_eq!(turn_is_over(), Some(true), "it may be given up");
        give_way().await;
        time.fetch_add(MS / 2, Ordering::Relaxed);
        assert_eq!(turn_is_over(), Some(false));
        let work = current().expect("a task of one");
        let other = Scheduled::new(Arc::clone(&work), async {});
        let mut other = Box::pin(other);
        let woken = Waker::from(Arc::new(Woken(AtomicBool::new(false))));
        assert!(
            other
                .as_mut()
                .poll(&mut Context::from_waker(&woken))
                .is_pending()
        );
        assert_eq!(turn_is_over(), Some(false));
        time.fetch_add(MS / 2, Ordering::Relaxed);
        assert_eq!(turn_is_over(), Some(true), "another waits");
        drop(other);
        assert_eq!(turn_is_over(), Some(false));
        assert_eq!(
            asleep(|| time.fetch_add(90 * MS, Ordering::Relaxed)),
            21 * MS
        );
        assert_eq!(turn_is_over(), Some(false), "sleep is not work");
    };
    let work = bench.work(7);
    bench.spawn(Scheduled::new(work, body));
    bench.run();
    assert_eq!(bench.used(7), Duration::from_millis(21));
}

#[test]
fn a_share_goes_with_the_last_statement_and_a_tenant_comes_again_with_another() {
    let mut bench = Bench::new();
    let known = |bench: &Bench| bench.scheduler.state.lock().queue.shares();
    let work = bench.work(1);
    bench.task("old", &work, 4, 1);
    bench.round();
    // The owner lets go while a statement has work to do.
    drop(bench.shares.remove(&1));
    drop(work);
    assert_eq!(known(&bench), 1);
    let work = bench.work(1);
    bench.task("new", &work, 4, 1);
    drop(work);
    assert_eq!(bench.used(1), Duration::ZERO);
    let turns = bench.run();
    assert_eq!(count(&turns[1..]), [("new", 4), ("old", 3)].into());
    assert_eq!(bench.used(1), Duration::from_millis(4));
    assert_eq!(known(&bench), 1);
    bench.shares.clear();
    assert_eq!(known(&bench), 0);
    // One that never ran anything, and one whose task is dropped where it waits.
    let idle = bench.scheduler.share(tenant(2));
    let waits = Scheduled::new(bench.work(3), std::future::ready(()));
    let waits_too = Scheduled::new(bench.work(3), std::future::ready(()));
    bench.shares.clear();
    drop((idle, waits, waits_too));
    assert_eq!(known(&bench), 0);
}

#[test]
fn whoever_sleeps_within_a_sleep_gives_one_place() {
    let mut bench = Bench::new();
    let (scheduler, time) = (Arc::clone(&bench.scheduler), Arc::clone(&bench.time));
    let running = move || scheduler.state.lock().running;
    let work = bench.work(1);
    bench.spawn(Scheduled::new(work, async move {
        let awake = running();
        asleep(|| {
            assert_eq!(running(), awake - 1);
            asleep(|| {
                assert_eq!(running(), awake - 1);
                time.fetch_add(90 * MS, Ordering::Relaxed);
            });
            assert_eq!(running(), awake - 1);
        });
        assert_eq!(running(), awake);
    }));
    bench.run();
    assert!(bench.used(1) < Duration::from_millis(1), "sleep is no work");
}

#[test]
fn another_has_the_place_of_one_that_sleeps() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let share = Scheduler::new(1).share(tenant(1));
    let (send, receive) = mpsc::channel();
    let sleeper = runtime.spawn(Scheduled::new(share.work(), async move {
        asleep(|| receive.recv()).unwrap()
    }));
    let waker = runtime.spawn(Scheduled::new(share.work(), async move {
        send.send(7).unwrap();
    }));
    runtime.block_on(async {
        waker.await.unwrap();
        assert_eq!(sleeper.await.unwrap(), 7);
    });
}

/// Tasks that send each other numbers, give way, sleep and are dropped: all that are not
/// dropped come to their end.
#[test]
fn no_wake_up_is_lost() {
    for seed in 0..if cfg!(miri) { 2 } else { 60 } {
        let mut random = StdRng::seed_from_u64(seed);
        let threads = random.random_range(1..=4);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .build()
            .unwrap();
        let scheduler = Scheduler::new(threads);
        let shares: Vec<Arc<Share>> = (0..3).map(|own| scheduler.share(tenant(own))).collect();
        let mut ends = Vec::new();
        for pair in 0..20 {
            let work = shares[pair % 3].work();
            let (sender, mut receiver) = channel::<u64>(2);
            let numbers: Vec<u32> = (0..50).map(|_| random.random_range(0..8)).collect();
            let is_dropped = random.random_bool(0.2);
            let all = numbers.len() as u64;
            let source = runtime.spawn(Scheduled::new(Arc::clone(&work), async move {
                for (number, way) in numbers.into_iter().enumerate() {
                    if sender.send(number as u64).await.is_err() {
                        return;
                    }
                    match way {
                        0 => give_way().await,
                        1 => asleep(std::thread::yield_now),
                        2 => tokio::task::yield_now().await,
                        _ => {}
                    }
                }
            }));
            let sink = runtime.spawn(Scheduled::new(work, async move {
                let mut sum = 0;
                while let Some(number) = receiver.recv().await {
                    sum += number;
                    if sum % 5 == 0 {
                        give_way().await;
                    }
                }
                sum
            }));
            if is_dropped {
                source.abort();
            }
            ends.push((sink, is_dropped, all));
        }
        runtime.block_on(async {
            for (sink, is_dropped, all) in ends {
                let sum = sink.await.unwrap();
                assert!(is_dropped || sum == all * (all - 1) / 2, "seed {seed}");
            }
        });
        drop(runtime);
        assert_eq!(scheduler.state.lock().running, 0, "seed {seed}");
        assert_eq!(scheduler.waiting(), 0, "seed {seed}");
        assert_eq!(scheduler.state.lock().queue.shares(), 3, "seed {seed}");
        drop(shares);
        assert_eq!(scheduler.state.lock().queue.shares(), 0, "seed {seed}");
    }
}
