//! Clients that append to lists and read them, and note what they saw.
//!
//! A list of an even key is one row, `value || ',' || number`; one of an odd key is a row for each
//! number, with its position as a part of the key. A transaction that finds a list longer than its
//! snapshot says fails by a serialization failure in the one, by a duplicate key in the other.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use aerostat_histories::{Operation, Outcome, Transaction};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use tokio::sync::RwLock;
use tokio::time::timeout;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

/// How long a statement may take before its client gives up: lock waits are in it.
const STATEMENT_MAX: Duration = Duration::from_secs(15);

/// How long a client waits for a connection and its first answer.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// How many lists are in use at once, and how many numbers each gets before the next ones are: with
/// 8 writers about a third of the transactions meet others, and a list is read in one packet.
const LISTS: u64 = 10;
const NUMBERS_MAX: u64 = 40;

/// What all clients and the nemesis share.
pub(crate) struct Shared {
    pub(crate) addresses: Vec<SocketAddr>,
    began: Instant,
    history: Mutex<Vec<Transaction>>,
    next_number: AtomicU64,
    /// How many transactions that append were acknowledged.
    pub(crate) acknowledged: AtomicU64,
    acknowledged_ns: AtomicU64,
    longest_gap_ns: AtomicU64,
    pub(crate) stop: AtomicBool,
    /// Held by each transaction, and alone by whoever wants a pause.
    pub(crate) gate: RwLock<()>,
    /// Where a writer was served last.
    leader: AtomicUsize,
    /// Whether clients that write connect to any node.
    any_node: bool,
}

/// A connection to a node.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) node: usize,
}

/// Why a statement has no answer: an SQLSTATE, or that the connection is gone.
pub(crate) type Failure = String;

impl Shared {
    pub(crate) fn new(addresses: Vec<SocketAddr>) -> Self {
        Self {
            addresses,
            began: Instant::now(),
            history: Mutex::default(),
            next_number: AtomicU64::new(1),
            acknowledged: AtomicU64::new(0),
            acknowledged_ns: AtomicU64::new(0),
            longest_gap_ns: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            gate: RwLock::default(),
            leader: AtomicUsize::new(0),
            any_node: std::env::var_os("COPIES_GATEWAYS").is_some(),
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap()
    }

    /// The longest time between two acknowledged commits since this was asked last.
    pub(crate) fn take_longest_gap(&self) -> Duration {
        Duration::from_nanos(self.longest_gap_ns.swap(0, Ordering::Relaxed))
    }

    pub(crate) fn note(&self, transaction: Transaction) {
        self.history.lock().unwrap().push(transaction);
    }

    pub(crate) fn take_history(&self) -> Vec<Transaction> {
        std::mem::take(&mut self.history.lock().unwrap())
    }

    /// A session at a node, and whether it is a copy there.
    pub(crate) async fn connect(&self, node: usize) -> Result<(Session, bool), Failure> {
        self.connect_through(node, "-c aerostat.read_from=any")
            .await
    }

    /// A connection to a node, whose session may be at another, and whether it is a copy there.
    async fn connect_through(
        &self,
        node: usize,
        options: &str,
    ) -> Result<(Session, bool), Failure> {
        let address = self.addresses[node];
        let mut config = Config::new();
        config
            .host(address.ip().to_string())
            .port(address.port())
            .user("aerostat")
            .dbname("aerostat")
            .options(options);
        let connecting = timeout(CONNECT_MAX, config.connect(NoTls)).await;
        let (client, connection) = connecting
            .map_err(|_| "no connection in time")?
            .map_err(code)?;
        tokio::spawn(connection);
        let session = Session { client, node };
        let asking = session.rows("SELECT pg_is_in_recovery()");
        let answer = timeout(CONNECT_MAX, asking)
            .await
            .map_err(|_| "no answer in time")??;
        Ok((session, answer[0][0] == "t"))
    }

    /// A connection to the node that is writable, if one is.
    pub(crate) async fn connect_writable(&self) -> Option<Session> {
        let first = self.leader.load(Ordering::Relaxed);
        for node in (0..self.addresses.len()).map(|at| (first + at) % self.addresses.len()) {
            if let Ok((session, false)) = self.connect(node).await {
                self.leader.store(node, Ordering::Relaxed);
                return Some(session);
            }
        }
        None
    }

    /// A connection for changes: where nodes serve each other's databases, to any of them.
    async fn connect_to_write(&self, dice: &mut Pcg32) -> Option<Session> {
        if !self.any_node {
            return self.connect_writable().await;
        }
        let node = dice.random_range(0..self.addresses.len());
        match self.connect_through(node, "").await {
            Ok((session, false)) => Some(session),
            _ => None,
        }
    }

    /// A list that is in use, and the number to append to one.
    fn key(&self, dice: &mut Pcg32) -> u64 {
        let round = self.next_number.load(Ordering::Relaxed) / (LISTS * NUMBERS_MAX);
        round * LISTS + dice.random_range(0..LISTS)
    }

    fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }
}

fn code(error: tokio_postgres::Error) -> Failure {
    match error.code() {
        Some(code) => code.code().to_owned(),
        None => "connection lost".to_owned(),
    }
}

impl Session {
    /// The rows of a statement, as text.
    pub(crate) async fn rows(&self, sql: &str) -> Result<Vec<Vec<String>>, Failure> {
        let answer = timeout(STATEMENT_MAX, self.client.simple_query(sql)).await;
        let messages = answer.map_err(|_| "no answer in time")?.map_err(code)?;
        let row = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => {
                let value = |at| row.get(at).unwrap_or("NULL").to_owned();
                Some((0..row.len()).map(value).collect())
            }
            _ => None,
        };
        Ok(messages.iter().filter_map(row).collect())
    }

    async fn append(&self, key: u64, number: u64) -> Result<(), Failure> {
        if key.is_multiple_of(2) {
            let sql = format!(
                "INSERT INTO lists (key, value) VALUES ({key}, ',{number}') \
                 ON CONFLICT (key) DO UPDATE SET value = lists.value || excluded.value"
            );
            return self.rows(&sql).await.map(|_| ());
        }
        let sql = "INSERT INTO items (key, position, value) \
                   SELECT $1::bigint, coalesce(max(position), 0) + 1, $2::bigint FROM items WHERE key = $1";
        let (key, number) = (key.cast_signed(), number.cast_signed());
        let answer = timeout(STATEMENT_MAX, self.client.execute(sql, &[&key, &number])).await;
        answer.map_err(|_| "no answer in time")?.map_err(code)?;
        Ok(())
    }

    async fn read(&self, key: u64) -> Result<Vec<u64>, Failure> {
        if key.is_multiple_of(2) {
            let sql = format!("SELECT value FROM lists WHERE key = {key}");
            let rows = self.rows(&sql).await?;
            return Ok(rows.first().map(|row| numbers(&row[0])).unwrap_or_default());
        }
        let sql = format!("SELECT value FROM items WHERE key = {key} ORDER BY position");
        let rows = self.rows(&sql).await?;
        Ok(rows.iter().map(|row| row[0].parse().unwrap()).collect())
    }

    /// Every list, of both kinds.
    pub(crate) async fn read_all(&self) -> Result<Vec<(u64, Vec<u64>)>, Failure> {
        self.rows("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            .await?;
        let rows = self
            .rows("SELECT key, value FROM lists ORDER BY key")
            .await?;
        let items = self
            .rows("SELECT key, value FROM items ORDER BY key, position")
            .await?;
        self.rows("COMMIT").await?;
        let list = |row: &Vec<String>| (row[0].parse().unwrap(), numbers(&row[1]));
        let mut lists: Vec<(u64, Vec<u64>)> = rows.iter().map(list).collect();
        for row in items {
            let (key, number) = (row[0].parse().unwrap(), row[1].parse().unwrap());
            match lists.last_mut() {
                Some((last, list)) if *last == key => list.push(number),
                _ => lists.push((key, vec![number])),
            }
        }
        Ok(lists)
    }
}

/// `,1,2` as numbers.
fn numbers(text: &str) -> Vec<u64> {
    let numbers = text.split(',').skip(1);
    numbers.map(|number| number.parse().unwrap()).collect()
}

/// What a transaction does.
#[derive(Clone, Copy)]
enum Step {
    Append { key: u64, number: u64 },
    Read { key: u64 },
}

/// A transaction that is being noted.
struct Noted {
    operations: Vec<Operation>,
    outcome: Outcome,
    note: String,
}

/// Whether a statement that is refused in this way certainly changed nothing: what clients did
/// (22, 23, 25, 42), and what has to be tried again (40), but for 40003.
pub(crate) fn is_certain(failure: &str) -> bool {
    let class = failure.get(..2).unwrap_or_default();
    let is_state = failure.len() == 5;
    is_state && matches!(class, "0A" | "22" | "23" | "25" | "40" | "42") && failure != "40003"
}

async fn take_steps(session: &Session, steps: &[Step], noted: &mut Noted) -> Result<(), Failure> {
    for step in steps {
        match *step {
            Step::Append { key, number } => {
                noted
                    .operations
                    .push(Operation::Append { key, value: number });
                session.append(key, number).await?;
            }
            Step::Read { key } => {
                let list = session.read(key).await?;
                noted.operations.push(Operation::Read { key, list });
            }
        }
    }
    Ok(())
}

/// Runs a block; before COMMIT is sent, whatever goes wrong is a failure.
async fn block(session: &Session, begin: &str, steps: &[Step]) -> Noted {
    let mut noted = Noted {
        operations: Vec::new(),
        outcome: Outcome::Fail,
        note: String::new(),
    };
    let before = match session.rows(begin).await {
        Ok(_) => take_steps(session, steps, &mut noted).await,
        Err(failure) => Err(failure),
    };
    if let Err(failure) = before {
        noted.note = failure;
        return noted;
    }
    match session.rows("COMMIT").await {
        Ok(_) => noted.outcome = Outcome::Ok,
        Err(failure) => {
            if !is_certain(&failure) {
                noted.outcome = Outcome::Info;
            }
            noted.note = format!("COMMIT: {failure}");
        }
    }
    noted
}

/// One statement that is its own transaction.
async fn statement(session: &Session, step: Step) -> Noted {
    let mut noted = Noted {
        operations: Vec::new(),
        outcome: Outcome::Ok,
        note: String::new(),
    };
    if let Err(failure) = take_steps(session, &[step], &mut noted).await {
        noted.outcome = match is_certain(&failure) {
            true => Outcome::Fail,
            false => Outcome::Info,
        };
        noted.note = format!("alone: {failure}");
    }
    noted
}

impl Shared {
    fn finish(&self, process: u32, invoked_ns: u64, copy: bool, noted: Noted) {
        let appends = |operation: &Operation| matches!(operation, Operation::Append { .. });
        if noted.outcome == Outcome::Ok && noted.operations.iter().any(appends) {
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
            let now_ns = self.now_ns();
            let gap_ns =
                now_ns.saturating_sub(self.acknowledged_ns.swap(now_ns, Ordering::Relaxed));
            self.longest_gap_ns.fetch_max(gap_ns, Ordering::Relaxed);
        }
        self.note(Transaction {
            process,
            invoked_ns,
            completed_ns: self.now_ns(),
            outcome: noted.outcome,
            copy,
            last: false,
            note: noted.note,
            operations: noted.operations,
        });
    }
}

/// Whether the session may go on after this: a failed block is rolled back, and what says that the
/// node is no leader any more, or nothing, asks for another connection.
async fn goes_on(session: &Session, noted: &Noted) -> bool {
    if noted.outcome == Outcome::Ok {
        return true;
    }
    let failure = noted.note.rsplit(' ').next().unwrap_or_default();
    is_certain(failure) && !failure.starts_with("25") && session.rows("ROLLBACK").await.is_ok()
}

/// Appends and reads until it is told to stop.
pub(crate) async fn write(shared: &Shared, process: u32, seed: u64) {
    let mut dice = Pcg32::seed_from_u64(seed ^ u64::from(process) << 32);
    let mut session: Option<Session> = None;
    while !shared.stop.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_micros(dice.random_range(0..4000))).await;
        if session.is_none() {
            session = shared.connect_to_write(&mut dice).await;
        }
        let Some(connected) = &session else {
            continue;
        };
        let pass = shared.gate.read().await;
        let steps: Vec<Step> = (0..dice.random_range(1..5))
            .map(|_| match dice.random_range(0..2) {
                0 => Step::Read {
                    key: shared.key(&mut dice),
                },
                _ => Step::Append {
                    key: shared.key(&mut dice),
                    number: shared.number(),
                },
            })
            .collect();
        let invoked_ns = shared.now_ns();
        let noted = match dice.random_range(0..5) {
            0 => statement(connected, steps[0]).await,
            _ => block(connected, "BEGIN ISOLATION LEVEL REPEATABLE READ", &steps).await,
        };
        let keep = goes_on(connected, &noted).await;
        shared.finish(process, invoked_ns, false, noted);
        drop(pass);
        if !keep {
            session = None;
        }
    }
}

/// Reads until it is told to stop: a copy where there are copies. Each connection is a process of
/// its own, since the next may be to a node that is behind the last one.
pub(crate) async fn read(shared: &Shared, first_process: u32, seed: u64) {
    let copies = shared.addresses.len() > 1;
    let mut dice = Pcg32::seed_from_u64(seed ^ u64::from(first_process) << 32);
    let mut process = first_process;
    let mut session: Option<Session> = None;
    while !shared.stop.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_micros(dice.random_range(0..8000))).await;
        let Some(connected) = &session else {
            let node = dice.random_range(0..shared.addresses.len());
            match shared.connect(node).await {
                Ok((connected, in_recovery)) if in_recovery == copies => session = Some(connected),
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
            process += 1;
            continue;
        };
        let pass = shared.gate.read().await;
        let steps: Vec<Step> = (0..dice.random_range(2..6))
            .map(|_| Step::Read {
                key: shared.key(&mut dice),
            })
            .collect();
        let invoked_ns = shared.now_ns();
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";
        let noted = block(connected, begin, &steps).await;
        let keep = goes_on(connected, &noted).await;
        shared.finish(process, invoked_ns, copies, noted);
        drop(pass);
        if !keep {
            session = None;
        }
    }
}
