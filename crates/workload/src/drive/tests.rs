//! The driver against a simulated server on a paused clock: seconds of load run
//! in no time, and every latency is known in advance.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::{sleep, sleep_until};

use super::report::Summary;
use super::*;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// A server that answers after a fixed service time, but not during a stall.
struct Server {
    started: Mutex<Option<Instant>>,
    service: Duration,
    /// From and until, counted from the first connection.
    stall: (Duration, Duration),
    /// Every n-th query fails.
    fail_every: usize,
    calls: AtomicUsize,
}

impl Server {
    fn new(service: Duration, stall: (Duration, Duration)) -> Arc<Self> {
        Arc::new(Self {
            started: Mutex::new(None),
            service,
            stall,
            fail_every: usize::MAX,
            calls: AtomicUsize::new(0),
        })
    }

    fn steady(service: Duration) -> Arc<Self> {
        Self::new(service, (Duration::ZERO, Duration::ZERO))
    }
}

struct Sim(Arc<Server>);

struct SimClient {
    server: Arc<Server>,
    origin: Instant,
}

impl Connect for Sim {
    type Client = SimClient;

    async fn connect(&self, tenant: usize) -> Result<SimClient, ClientError> {
        if tenant == 99 {
            return Err(ClientError::Connect("no such tenant".into()));
        }
        let origin = *self.0.started.lock().unwrap().get_or_insert(Instant::now());
        Ok(SimClient {
            server: Arc::clone(&self.0),
            origin,
        })
    }
}

impl Client for SimClient {
    async fn run(&mut self, query: usize) -> Result<u64, ClientError> {
        let server = &self.server;
        let call = server.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if call.is_multiple_of(server.fail_every) {
            return Err(ClientError::Query("simulated".into()));
        }
        let (from, until) = server.stall;
        if (self.origin + from..self.origin + until).contains(&Instant::now()) {
            sleep_until(self.origin + until).await;
        }
        sleep(server.service).await;
        Ok(query as u64)
    }
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("{prefix}{at}")).collect()
}

fn queries(count: usize) -> Vec<QueryName> {
    (0..count)
        .map(|at| QueryName::new(format!("q{at}"), format!("flight {}", at / 2)))
        .collect()
}

async fn run(server: &Arc<Server>, tenants: usize, options: &Options) -> Report {
    let sim = Arc::new(Sim(Arc::clone(server)));
    let tenants = names("t", tenants);
    drive(sim, &tenants, &queries(4), options, Arc::new(()))
        .await
        .unwrap()
}

fn open(rate: f64, connections: usize) -> Options {
    Options {
        mode: Mode::Open {
            rate,
            arrivals: Arrivals::Fixed,
            connections,
        },
        ..Options::default()
    }
}

fn closed(users: usize, think_time: Duration) -> Options {
    Options {
        mode: Mode::Closed { users, think_time },
        ..Options::default()
    }
}

fn near(actual: f64, expected: f64, tolerance: f64) {
    assert!(
        (actual - expected).abs() <= tolerance,
        "{actual} is not {expected} ± {tolerance}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_open_loop_sees_the_whole_of_a_stall() {
    // 100 arrivals a second, 5 ms each, and a stall of two seconds: 200 arrivals
    // wait for its end, and catching up delays about 200 more.
    let server = Server::new(5 * MS, (4 * S, 6 * S));
    let report = run(&server, 1, &open(100.0, 1)).await;
    assert_eq!(report.total.done, 999);
    near(report.total.latency.max_ms, 2_005.0, 20.0);
    near(report.total.latency.p50_ms, 6.0, 1.5);
    // 40 % of the requests wait, evenly between nothing and two seconds, so the
    // 90th percentile waits 1.5 s and the 99th 1.95 s.
    near(report.total.latency.p90_ms, 1_500.0, 30.0);
    near(report.total.latency.p99_ms, 1_950.0, 30.0);
    near(report.tenants[0].backlog_max as f64, 200.0, 3.0);
    assert!(!report.goal_met);
}

#[tokio::test(start_paused = true)]
async fn a_closed_loop_sees_one_slow_query_in_the_same_stall() {
    let server = Server::new(5 * MS, (4 * S, 6 * S));
    let report = run(&server, 1, &closed(1, 5 * MS)).await;
    near(report.total.latency.max_ms, 2_005.0, 15.0);
    near(report.total.latency.p99_ms, 5.0, 1.1);
    near(report.total.done as f64, 800.0, 80.0);
    assert!(report.goal_met);
}

#[tokio::test(start_paused = true)]
async fn overload_shows_in_latency_throughput_and_backlog() {
    // Twice what one connection can do: the queue grows until the end and is then
    // worked off, so the last arrival waits as long as the load lasted.
    let server = Server::steady(10 * MS);
    let report = run(&server, 1, &open(200.0, 1)).await;
    // The timer's grain of one millisecond makes a 10 ms sleep up to 11 ms.
    near(report.total.throughput_per_s, 95.0, 6.0);
    near(report.total.latency.max_ms, 10_500.0, 1_600.0);
    assert_eq!((report.total.done, report.total.errors()), (1_999, 0));
    // A second connection is enough.
    let report = run(&Server::steady(9 * MS), 1, &open(200.0, 2)).await;
    near(report.total.throughput_per_s, 200.0, 2.0);
    assert!(report.goal_met && report.total.latency.max_ms < 20.0);
}

#[tokio::test(start_paused = true)]
async fn what_the_drain_cannot_finish_counts_against_the_goal() {
    let server = Server::new(MS, (5 * S, 500 * S));
    let options = Options {
        drain: 2 * S,
        ..open(10.0, 1)
    };
    let report = run(&server, 1, &options).await;
    near(report.total.unfinished as f64, 50.0, 1.0);
    assert_eq!(report.total.done + report.total.unfinished, 99);
    // The first one caught waited for five seconds of load and two of drain.
    near(report.total.latency.max_ms, 7_000.0, 120.0);
    near(report.total.within_goal_share, 0.5, 0.02);
    assert!(!report.goal_met);
    // Only the query under way was ever sent; the queue was not.
    assert_eq!(
        server.calls.load(Ordering::Relaxed) as u64,
        report.total.done + 1
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_and_says_so() {
    let server = Server::new(MS, (Duration::ZERO, 500 * S));
    let options = Options {
        duration: 3 * S,
        drain: S,
        ..open(40_000.0, 1)
    };
    let report = run(&server, 1, &options).await;
    let waiting = options::QUEUE_ARRIVALS_MAX as u64;
    assert_eq!(report.tenants[0].backlog_max, waiting);
    // One more than the queue holds is under way.
    assert_eq!(report.total.unfinished, waiting + 1);
    assert_eq!(report.total.requests, report.total.refused + waiting + 1);
    near(report.total.refused as f64, 20_000.0, 5.0);
}

#[tokio::test(start_paused = true)]
async fn warm_up_is_driven_but_not_measured() {
    let server = Server::new(5 * MS, (Duration::ZERO, S));
    let mut options = open(100.0, 4);
    options.warm_up = 3 * S;
    let report = run(&server, 1, &options).await;
    assert!(report.total.latency.max_ms < 10.0);
    assert_eq!(report.total.requests, 1_000);
    assert_eq!(server.calls.load(Ordering::Relaxed), 1_299);
    near(report.total.throughput_per_s, 100.0, 0.5);
}

#[tokio::test(start_paused = true)]
async fn tenants_queries_and_flights_add_up() {
    let server = Server::steady(5 * MS);
    let report = run(&server, 3, &closed(2, 45 * MS)).await;
    let sum = |summaries: &[Summary]| summaries.iter().map(|s| s.done).sum::<u64>();
    assert_eq!(report.tenants.len(), 3);
    assert_eq!((report.queries.len(), report.flights.len()), (4, 2));
    assert_eq!(sum(&report.queries), report.total.done);
    assert_eq!(sum(&report.flights), report.total.done);
    let tenants = report.tenants.iter().map(|t| t.summary.done).sum::<u64>();
    assert_eq!(tenants, report.total.done);
    // The simulated answer to query n has n rows, and all queries run equally often.
    near(
        report.total.rows as f64 / report.total.done as f64,
        1.5,
        0.02,
    );
    assert_eq!(report.flights[1].name, "flight 1");

    let rows = report.rows();
    assert_eq!(rows.len(), 3 + 2 + 4 + 1);
    assert_eq!(rows[0][0], "t0");
    assert_eq!(rows[0][9], "met");
    assert_eq!(rows[9][0], "total");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["tenants"][2]["name"], "t2");
    assert!(json["total"]["latency"]["p99_ms"].as_f64().unwrap() > 0.0);
}

#[tokio::test(start_paused = true)]
async fn failures_are_counted_and_do_not_spin() {
    let server = Arc::new(Server {
        fail_every: 2,
        ..Arc::into_inner(Server::steady(10 * MS)).unwrap()
    });
    let report = run(&server, 1, &closed(1, Duration::ZERO)).await;
    near(report.total.failed as f64, report.total.done as f64, 1.0);
    near(report.total.within_goal_share, 0.5, 0.01);
    assert!(!report.goal_met);
    let server = Arc::new(Server {
        fail_every: 1,
        ..Arc::into_inner(Server::steady(10 * MS)).unwrap()
    });
    let report = run(&server, 1, &closed(1, Duration::ZERO)).await;
    // One attempt per pause.
    assert!((900..=1_000).contains(&report.total.failed));
}

#[tokio::test(start_paused = true)]
async fn poisson_arrivals_keep_the_rate_and_the_seed() {
    let poisson = |seed| Options {
        mode: Mode::Open {
            rate: 100.0,
            arrivals: Arrivals::Poisson,
            connections: 64,
        },
        duration: 100 * S,
        seed,
        ..Options::default()
    };
    let server = Server::steady(MS);
    let first = run(&server, 1, &poisson(1)).await;
    // Four standard deviations of a Poisson count of 10,000.
    near(first.total.requests as f64, 10_000.0, 400.0);
    assert_eq!(run(&server, 1, &poisson(1)).await, first);
    assert_ne!(run(&server, 1, &poisson(2)).await, first);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_cannot_start_is_an_error() {
    let sim = || Arc::new(Sim(Server::steady(MS)));
    let start = |tenants: usize, queries_count: usize, options: Options| async move {
        let tenants = names("t", tenants);
        drive(
            sim(),
            &tenants,
            &queries(queries_count),
            &options,
            Arc::new(()),
        )
        .await
    };
    assert!(matches!(
        start(0, 1, closed(1, MS)).await,
        Err(DriveError::NothingToDo)
    ));
    assert!(matches!(
        start(1, 0, closed(1, MS)).await,
        Err(DriveError::NothingToDo)
    ));
    assert!(matches!(
        start(1, 1, closed(0, MS)).await,
        Err(DriveError::Options(OptionsError::NoConnection))
    ));
    assert!(matches!(
        start(100, 1, closed(1, MS)).await,
        Err(DriveError::Connect { tenant, .. }) if tenant == "t99"
    ));
}

#[tokio::test(start_paused = true)]
async fn an_observer_sees_every_measured_request() {
    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Observer for Count {
        fn finished(&self, sample: &Sample) {
            assert!(!sample.outcome.is_failure() && sample.latency >= 5 * MS);
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let seen = Arc::new(Count::default());
    let sim = Arc::new(Sim(Server::steady(5 * MS)));
    let mut options = open(50.0, 2);
    options.warm_up = S;
    let observer: Arc<dyn Observer> = Arc::<Count>::clone(&seen);
    let report = drive(sim, &names("t", 2), &queries(1), &options, observer).await;
    assert_eq!(report.unwrap().total.requests, 1_000);
    assert_eq!(seen.0.load(Ordering::Relaxed), 1_000);
}
