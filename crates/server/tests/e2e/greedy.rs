//! A tenant that asks for everything a statement can ask for, and its neighbour.
//!
//! ```text
//! neighbour   point reads, one after another, first alone and then beside the greedy one
//! greedy      sessions that draw statements from a seed (`statements`): growing values, joins, sorts,
//!             recursion, long texts, prepared statements, settings, results that nobody reads
//! node        --memory 1GB in a control group of 3 GiB
//! ```
//!
//! The node must stay, far below what the group allows, and each statement must end with rows or with an
//! error that is not the node's own. How long the neighbour waits, and how long after its timeout a
//! statement ends, is printed, for a time is no assertion on a machine that others share;
//! docs/benchmarks.md has the figures.
//!
//! `AEROSTAT_GREEDY_STATEMENTS` says how many statements there are, `AEROSTAT_GREEDY_SEED` where to
//! begin. Each statement follows from the seed, its session and its number; which ones meet does not.

mod statements;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::cgroup::Group;
use crate::dice::Dice;
use crate::harness::Aerostat;
use crate::raw::{Message, Raw, errors};
use statements::{Request, SETUP, request};

/// Statements of `make test`, about 40 s.
const STATEMENTS: u64 = 160;

/// Sessions that draw statements; `AEROSTAT_GREEDY_SESSIONS=1` tells which statement it was.
const SESSIONS: u64 = 4;

/// Sockets with a result that nobody reads, at once.
const UNREAD_MAX: usize = 10;

/// What the node is given and may take at most, in MB, and what its control group allows. The aim is a
/// quarter more than it is given, for its code, what is free, and what grows between two looks at it;
/// the bound leaves room for a machine that others use.
const MEMORY_MB: u64 = 1_000;
const PEAK_MB_MAX: u64 = 1_450;
const GROUP_MB: u64 = 3 << 10;

/// How many of the largest peaks are shown.
const PEAKS: usize = 5;

/// `statement_timeout` of the greedy sessions.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How long the neighbour reads alone.
const QUIET: Duration = Duration::from_secs(2);

/// The neighbour's point reads at most so often, as its users would send them.
const BETWEEN_READS: Duration = Duration::from_millis(1);

#[test]
fn a_greedy_tenant_neither_ends_the_node_nor_fills_it() {
    let group = match Group::new(GROUP_MB) {
        Ok(group) => group,
        Err(reasons) => {
            eprintln!("skipped: a greedy tenant in a control group (cannot make one: {reasons})");
            return;
        }
    };
    let total = setting("AEROSTAT_GREEDY_STATEMENTS", STATEMENTS);
    let seed = setting("AEROSTAT_GREEDY_SEED", 1);
    let sessions = setting("AEROSTAT_GREEDY_SESSIONS", SESSIONS);
    let mut node = Aerostat::start_within(
        tempfile::tempdir().unwrap(),
        &[
            "--memory",
            &format!("{MEMORY_MB}MB"),
            "--io-precedence",
            "on",
        ],
        &[group.joined()],
    );
    make(&node);
    let (quiet, beside, log) = run(&node, seed, sessions, total);

    if !node.is_running() {
        panic!(
            "AEROSTAT_GREEDY_SEED={seed}: the node has ended\n{}",
            log.complaints.join("\n")
        );
    }
    eprintln!("{total} statements, AEROSTAT_GREEDY_SEED={seed}");
    for (code, (count, shown)) in &log.codes {
        eprintln!("  {code} {count}, such as {shown}");
    }
    eprintln!("killed by the kernel: {}; at most", group.kills());
    for (peak_mb, shown) in &log.peaks_mb {
        eprintln!("  {peak_mb} MB of {MEMORY_MB} beside {shown}");
    }
    eprintln!("neighbour alone {quiet}; beside {beside}");
    eprintln!("latest end after the timeout: {:?}", log.latest);
    assert!(
        log.complaints.is_empty(),
        "AEROSTAT_GREEDY_SEED={seed}:\n{}",
        log.complaints.join("\n")
    );
    assert_eq!(group.kills(), 0);
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().unwrap())
}

/// Both tenants.
fn make(node: &Aerostat) {
    let mut operator = Raw::session(node.sql, "aerostat");
    for database in ["greedy", "neighbour"] {
        operator
            .query(&format!("CREATE DATABASE {database}"))
            .unwrap();
    }
    let mut greedy = Raw::session(node.sql, "greedy");
    for sql in SETUP {
        greedy.query(sql).unwrap();
    }
    let mut neighbour = Raw::session(node.sql, "neighbour");
    for sql in [
        "CREATE TABLE points (id integer PRIMARY KEY, name text)",
        "INSERT INTO points SELECT g, 'name ' || g FROM generate_series(1, 10000) AS g",
    ] {
        neighbour.query(sql).unwrap();
    }
}

/// What the sessions found.
#[derive(Default)]
struct Log {
    /// Statements by SQLSTATE, 00000 where there was no error, and one of each.
    codes: BTreeMap<String, (u64, String)>,
    complaints: Vec<String>,
    /// The longest that a statement took beyond its timeout, and its text's beginning.
    latest: (Duration, String),
    /// What the process had in memory at most, and beside which request, largest first.
    peaks_mb: Vec<(u64, String)>,
}

impl Log {
    fn merge(&mut self, other: Self) {
        for (code, (count, shown)) in other.codes {
            self.count(&code, count, || shown);
        }
        self.complaints.extend(other.complaints);
        self.peaks_mb.extend(other.peaks_mb);
        self.keep_largest();
        if other.latest.0 > self.latest.0 {
            self.latest = other.latest;
        }
    }

    fn keep_largest(&mut self) {
        self.peaks_mb.sort_by(|a, b| b.cmp(a));
        self.peaks_mb.truncate(PEAKS);
    }

    fn count(&mut self, code: &str, count: u64, shown: impl FnOnce() -> String) {
        let noted = self.codes.entry(code.to_owned());
        noted.or_insert_with(|| (0, shown())).0 += count;
    }

    fn note(&mut self, request: &Request, messages: &[Message], took: Duration) {
        let late = took.saturating_sub(TIMEOUT);
        if late > self.latest.0 {
            self.latest = (late, request.shown());
        }
        let error = errors(messages).into_iter().next().unwrap_or_default();
        let code = error.get(&'C').map_or("00000", String::as_str);
        self.count(code, 1, || request.shown());
        if code.starts_with("XX") || code == "57P01" {
            self.complaints
                .push(format!("{error:?}: {}", request.shown()));
        }
    }
}

/// Runs the neighbour alone, then beside all greedy sessions.
fn run(node: &Aerostat, seed: u64, sessions: u64, total: u64) -> (Waits, Waits, Log) {
    let (sql, process, done) = (node.sql, node.process_id(), AtomicBool::new(false));
    let quiet = Arc::new(AtomicBool::new(true));
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        let is_quiet = Arc::clone(&quiet);
        let neighbour = scope.spawn(|| read_points(sql, seed, &done, is_quiet));
        thread::sleep(QUIET);
        quiet.store(false, Ordering::Relaxed);
        let sessions: Vec<_> = (0..sessions)
            .map(|session| {
                let next = &next;
                scope.spawn(move || {
                    let mut greedy = Greedy::new(sql, process);
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let goes_on = number < total
                            && greedy.step(&mut Dice::of_step(seed, number), session);
                        if !goes_on {
                            return greedy.log;
                        }
                    }
                })
            })
            .collect();
        let mut log = Log::default();
        for session in sessions {
            log.merge(session.join().unwrap());
        }
        done.store(true, Ordering::Relaxed);
        let (alone, beside) = neighbour.join().unwrap();
        (alone, beside, log)
    })
}

/// A session that asks for too much.
struct Greedy {
    node: SocketAddr,
    process: u32,
    session: Raw,
    unread: Vec<Raw>,
    log: Log,
}

impl Greedy {
    fn new(node: SocketAddr, process: u32) -> Self {
        Self {
            node,
            process,
            session: session(node).unwrap(),
            unread: Vec::new(),
            log: Log::default(),
        }
    }

    /// Sends one request and takes its answer; false when the node is gone.
    fn step(&mut self, dice: &mut Dice, number: u64) -> bool {
        // Now and then a session of its own, without what the last one held.
        let is_fresh = dice.one_in(20);
        let request = request(dice, number);
        let done = match is_fresh {
            true => session(self.node).map(|fresh| self.session = fresh),
            false => Ok(()),
        }
        .and_then(|()| match &request {
            Request::Block(statements) => self.try_block(statements),
            single => self.try_step(single),
        });
        if let Err(error) = &done {
            let complaint = format!("no session ({error}): {}", request.shown());
            self.log.complaints.push(complaint);
        }
        self.watch(&request);
        done.is_ok()
    }

    /// Statements of a transaction block up to the first that fails, each with its own timeout.
    fn try_block(&mut self, statements: &[String]) -> io::Result<()> {
        for statement in statements {
            self.try_step(&Request::Query(statement.clone()))?;
            if self.session.status() != 'T' {
                break;
            }
        }
        match self.session.status() {
            'I' => Ok(()),
            _ => self.session.query("ROLLBACK").map(drop),
        }
    }

    fn try_step(&mut self, request: &Request) -> io::Result<()> {
        if let Request::Unread(sql) = request {
            let mut raw = session(self.node)?;
            raw.send_query(sql.as_bytes())?;
            self.unread.push(raw);
            if self.unread.len() > UNREAD_MAX {
                self.unread.remove(0);
            }
            return Ok(());
        }
        let started = Instant::now();
        let (answer, took) = match self.send(request) {
            Ok(()) => {
                let sent = Instant::now();
                (self.session.read_without_rows(), sent.elapsed())
            }
            Err(error) => (Err(error), started.elapsed()),
        };
        match answer {
            Ok(messages) => {
                self.log.note(request, &messages, took);
                Ok(())
            }
            Err(error) => {
                let hung = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                if hung {
                    let complaint = format!("no answer ({error}): {}", request.shown());
                    self.log.complaints.push(complaint);
                }
                // A session may be ended for what it holds.
                self.log.count("closed", 1, || request.shown());
                session(self.node).map(|fresh| self.session = fresh)
            }
        }
    }

    /// Notes the process's peak and begins a new one.
    fn watch(&mut self, request: &Request) {
        let Some(peak_mb) = peak_mb(self.process) else {
            return;
        };
        std::fs::write(format!("/proc/{}/clear_refs", self.process), "5").ok();
        if peak_mb > PEAK_MB_MAX {
            let complaint = format!("the node took {peak_mb} MB: {}", request.shown());
            self.log.complaints.push(complaint);
        }
        self.log.peaks_mb.push((peak_mb, request.shown()));
        self.log.keep_largest();
    }

    fn send(&mut self, request: &Request) -> io::Result<()> {
        match request {
            Request::Query(sql) | Request::Unread(sql) => self.session.send_query(sql.as_bytes()),
            Request::Block(statements) => self.session.send_query(statements.join("; ").as_bytes()),
            Request::Parse { name, sql } => {
                let mut body = name.as_bytes().to_vec();
                body.push(0);
                body.extend(sql.as_bytes());
                body.extend([0, 0, 0]);
                self.session.send(b'P', &body)?;
                self.session.send(b'S', &[])
            }
        }
    }
}

/// A session of the greedy tenant, with its timeout.
fn session(node: SocketAddr) -> io::Result<Raw> {
    let mut raw = Raw::try_session(node, "greedy")?;
    raw.query(&format!("SET statement_timeout = {}", TIMEOUT.as_millis()))?;
    Ok(raw)
}

/// How long point reads took.
#[derive(Default)]
struct Waits(Vec<Duration>);

impl std::fmt::Display for Waits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
        write!(
            f,
            "p50 {:?}, p99 {:?}, longest {:?} of {} reads",
            at(0.5),
            at(0.99),
            at(1.0),
            sorted.len()
        )
    }
}

/// Reads points until all is done: those while it was quiet, and those after.
fn read_points(
    node: SocketAddr,
    seed: u64,
    done: &AtomicBool,
    quiet: Arc<AtomicBool>,
) -> (Waits, Waits) {
    // What it waits for is to be the node.
    scheduled("chrt", &["--fifo", "--pid", "1"]);
    let mut raw = Raw::session(node, "neighbour");
    let mut dice = Dice::new(seed);
    let (mut alone, mut beside) = (Waits::default(), Waits::default());
    while !done.load(Ordering::Relaxed) {
        let id = 1 + dice.below(10_000);
        let started = Instant::now();
        let Ok(rows) = raw.query(&format!("SELECT name FROM points WHERE id = {id}")) else {
            break;
        };
        let took = started.elapsed();
        assert_eq!(rows, [format!("name {id}")]);
        match quiet.load(Ordering::Relaxed) {
            true => alone.0.push(took),
            false => beside.0.push(took),
        }
        thread::sleep(BETWEEN_READS);
    }
    (alone, beside)
}

/// Has the system schedule this thread in another way, if it may: clients would be on machines of their own, and
/// here they have the node's cores.
fn scheduled(program: &str, arguments: &[&str]) {
    let thread = std::fs::read_link("/proc/thread-self").unwrap();
    let output = Command::new(program)
        .args(arguments)
        .arg(thread.file_name().unwrap())
        .output();
    if !output.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: clients that do not disturb each other ({program} may not)");
    }
}

/// The most that the process had in memory since this was last forgotten; `None` when it is gone.
fn peak_mb(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    Some(kib >> 10)
}
