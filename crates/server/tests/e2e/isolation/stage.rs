//! Sessions that play a scenario, each on a thread of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::script::{Action, Step};
use crate::harness::PATIENCE;
use crate::raw::{Message, Raw, fields, values};

/// What a message that must wait is given to end all the same, once it runs. A message
/// that ends later than this goes unnoticed; none is blamed for being slow.
const WAIT: Duration = Duration::from_millis(100);

/// Where a scenario runs.
#[derive(Clone)]
pub(super) struct ScenarioTarget {
    pub(super) address: SocketAddr,
    pub(super) role: String,
    pub(super) database: String,
    pub(super) schema: String,
    pub(super) level: &'static str,
}

impl ScenarioTarget {
    /// A session as every scenario's begins.
    fn session(&self) -> Raw {
        let mut raw = Raw::session_as(self.address, &self.role, &self.database);
        for sql in [
            format!("SET search_path = {}", self.schema),
            format!("SET default_transaction_isolation = '{}'", self.level),
            "SET timezone = 'UTC'".to_owned(),
        ] {
            raw.query(&sql)
                .unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        raw
    }
}

/// One session: messages go in, answers come out.
struct Actor {
    number: String,
    messages: Sender<String>,
    answers: Receiver<Vec<String>>,
    /// An answer that came before it was asked for.
    early: Option<Vec<String>>,
}

impl Actor {
    fn new(place: &ScenarioTarget) -> Self {
        let mut raw = place.session();
        let number = raw.query("SELECT pg_backend_pid()").unwrap().swap_remove(0);
        let (messages, orders) = mpsc::channel::<String>();
        let (replies, answers) = mpsc::channel();
        thread::spawn(move || {
            for sql in orders {
                // The test may have ended meanwhile.
                if replies.send(answer(&mut raw, &sql)).is_err() {
                    return;
                }
            }
        });
        Self {
            number,
            messages,
            answers,
            early: None,
        }
    }

    fn send(&self, sql: &str) {
        self.messages
            .send(sql.to_owned())
            .expect("the session's thread ended early");
    }

    /// Whether the answer is there already.
    fn has_ended(&mut self, within: Duration) -> bool {
        if self.early.is_none() {
            self.early = self.answers.recv_timeout(within).ok();
        }
        self.early.is_some()
    }

    fn receive(&mut self) -> Result<Vec<String>, RecvTimeoutError> {
        match self.early.take() {
            Some(answer) => Ok(answer),
            None => self.answers.recv_timeout(PATIENCE),
        }
    }
}

/// The sessions of a scenario, and one that sets it up and looks on.
pub(super) struct Stage {
    place: ScenarioTarget,
    actors: BTreeMap<char, Actor>,
    onlooker: Raw,
}

/// A session that does not answer: the scenario cannot go on.
pub(super) struct Stuck;

impl Stage {
    /// Makes the scenario's schema and what the script sets up in it.
    pub(super) fn new(place: ScenarioTarget, setup: &str) -> Self {
        let mut onlooker = place.session();
        let schema = format!("CREATE SCHEMA {}", place.schema);
        for sql in [&schema, setup] {
            onlooker
                .query(sql)
                .unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        Self {
            place,
            actors: BTreeMap::new(),
            onlooker,
        }
    }

    /// Plays a step and gives its results.
    pub(super) fn play(&mut self, step: &Step) -> (Vec<String>, Option<Stuck>) {
        let mut answers = Vec::new();
        for name in &step.sessions {
            let actor = self
                .actors
                .entry(*name)
                .or_insert_with(|| Actor::new(&self.place));
            match &step.action {
                Action::Send(sql) => actor.send(sql),
                Action::Wait(sql) | Action::MayWait(sql) => {
                    actor.send(sql);
                    let ended = wait_until_it_runs(&mut self.onlooker, actor);
                    let must_wait = matches!(step.action, Action::Wait(_));
                    if must_wait && (ended || actor.has_ended(WAIT)) {
                        answers.push(vec!["ends, but must wait for another session".to_owned()]);
                    }
                    continue;
                }
                Action::Collect => {}
            }
            match actor.receive() {
                Ok(answer) => answers.push(answer),
                Err(_) => {
                    answers.push(vec![format!("{name} does not end within {PATIENCE:?}")]);
                    return (answers.concat(), Some(Stuck));
                }
            }
        }
        // Which of several sessions gave which answer is left open.
        answers.sort();
        (answers.concat(), None)
    }
}

/// Waits until the server works on the session's message; whether it has ended it.
fn wait_until_it_runs(onlooker: &mut Raw, actor: &mut Actor) -> bool {
    let sql = format!(
        "SELECT state FROM pg_stat_activity WHERE pid = {}",
        actor.number
    );
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if actor.has_ended(Duration::from_millis(1)) {
            return true;
        }
        if onlooker.query(&sql).unwrap() == ["active"] {
            return false;
        }
    }
    panic!("a message was sent, but its session is not active");
}

/// Sends a message and shows what comes back.
fn answer(raw: &mut Raw, sql: &str) -> Vec<String> {
    let answered = raw
        .send_query(sql.as_bytes())
        .and_then(|()| raw.read_until_ready());
    match answered {
        Ok(messages) => {
            let mut lines: Vec<String> = messages.iter().filter_map(show).collect();
            match lines.last_mut() {
                Some(last) => *last += &format!(" [{}]", raw.status()),
                None => lines.push(format!("[{}]", raw.status())),
            }
            lines
        }
        Err(error) => vec![format!("the connection failed: {error}")],
    }
}

fn show((kind, body): &Message) -> Option<String> {
    match kind {
        b'D' => {
            let cells = values(body).into_iter().map(|value| match value {
                None => "NULL".to_owned(),
                Some(text) if text.is_empty() => "(empty)".to_owned(),
                Some(text) => text,
            });
            Some(cells.collect::<Vec<_>>().join(" | "))
        }
        b'C' => Some(
            String::from_utf8_lossy(body)
                .trim_end_matches('\0')
                .to_owned(),
        ),
        b'I' => Some("(empty query)".to_owned()),
        b'E' | b'N' => {
            let fields = fields(body);
            Some(format!(
                "{} {} {}",
                fields[&'S'], fields[&'C'], fields[&'M']
            ))
        }
        _ => None,
    }
}
