//! What goes on beside the statements: upkeep of the node, and a reader that holds a
//! snapshot.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::answers::{Answer, ask, difference};
use super::statements::Statement;
use super::{DATABASE, Round, Stop};

/// One statement at a time that only the node gets.
pub(super) struct Upkeep {
    client: Arc<Client>,
    running: Option<(String, JoinHandle<Answer>)>,
}

impl Upkeep {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client: Arc::new(client),
            running: None,
        }
    }

    fn start(&mut self, sql: String) {
        let (client, statement) = (Arc::clone(&self.client), Statement::new(sql.clone()));
        let work = tokio::spawn(async move { ask(&client, &statement).await });
        self.running = Some((sql, work));
    }

    fn is_busy(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|(_, work)| !work.is_finished())
    }

    /// What the last statement gave.
    async fn finish(&mut self) -> Option<(String, Answer)> {
        let (sql, work) = self.running.take()?;
        Some((sql, work.await.expect("asking does not panic")))
    }

    /// Forgets what runs.
    pub(super) fn abandon(&mut self) {
        self.running = None;
    }
}

/// A session in a REPEATABLE READ block, and what it has seen.
pub(super) struct Reader {
    client: Client,
    seen: Vec<(Statement, Answer)>,
}

impl Round<'_> {
    /// Starts upkeep now and then, lets the reader look, changes readers.
    pub(super) async fn meanwhile(&mut self) -> Result<(), Stop> {
        if self.dice.one_in(3) {
            // Drawn in any case: no other choice may hang on how long upkeep takes.
            let sql = self.choose_upkeep();
            if !self.upkeep.is_busy() {
                self.finish_upkeep().await?;
                self.history.push(format!("-- meanwhile: {sql}"));
                self.done.upkeep += 1;
                self.upkeep.start(sql);
            }
        }
        if self.dice.one_in(6) {
            // Now what follows begins after it.
            self.finish_upkeep().await?;
        }
        if self.reader.is_none() {
            if self.dice.one_in(10) {
                self.begin_reader().await?;
            }
        } else if self.dice.one_in(8) {
            self.look_again().await?;
            if self.dice.one_in(2) {
                self.reader = None;
            }
        }
        Ok(())
    }

    fn choose_upkeep(&mut self) -> String {
        let at = self.dice.below(self.tables.len() as u64) as usize;
        let table = &self.tables[at];
        match self.dice.below(8) {
            0 => "CHECKPOINT".to_owned(),
            1 => format!("VACUUM {}", table.name),
            2..=4 => format!("VACUUM FREEZE {}", table.name),
            _ => {
                let layout = table.layout(&mut self.dice);
                format!("ALTER TABLE {} SET (layout = '{layout}')", table.name)
            }
        }
    }

    async fn finish_upkeep(&mut self) -> Result<(), Stop> {
        match self.upkeep.finish().await {
            Some((sql, answer)) if answer.failed() => {
                self.complain(&sql, &format!("  aerostat: {answer:?}"));
                Err(Stop)
            }
            _ => Ok(()),
        }
    }

    /// Waits for upkeep, and lets the reader look once more.
    pub(super) async fn finish_meanwhile(&mut self) -> Result<(), Stop> {
        self.finish_upkeep().await?;
        if self.reader.is_some() {
            self.look_again().await?;
            self.reader = None;
        }
        Ok(())
    }

    /// A snapshot of all tables: what is committed, as PostgreSQL says.
    async fn begin_reader(&mut self) -> Result<(), Stop> {
        let Some(node) = &self.node else {
            return Ok(());
        };
        let (client, witness) =
            tokio::join!(node.connect(DATABASE), self.postgres.connect(DATABASE));
        self.history.push("-- a reader's snapshot".to_owned());
        self.done.snapshots += 1;
        let zone = format!("SET timezone = '{}'", self.zone);
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ".to_owned();
        for sql in [zone, begin] {
            let answer = ask(&client, &Statement::new(sql.clone())).await;
            ask(&witness, &Statement::new(sql.clone())).await;
            if answer.failed() {
                self.complain(&sql, &format!("  a reader of aerostat: {answer:?}"));
                return Err(Stop);
            }
        }
        let mut seen = Vec::new();
        for at in 0..self.tables.len() {
            let statement = Statement::new(self.tables[at].everything()).ordered();
            let answer = ask(&client, &statement).await;
            let expected = ask(&witness, &statement).await;
            if let Some(found) = difference(&statement, &answer, &expected) {
                self.complain(&format!("a reader's {}", statement.sql), &found);
                return Err(Stop);
            }
            seen.push((statement, answer));
        }
        self.reader = Some(Reader { client, seen });
        Ok(())
    }

    /// The reader sees what it saw.
    async fn look_again(&mut self) -> Result<(), Stop> {
        let Some(reader) = &self.reader else {
            return Ok(());
        };
        let mut found = None;
        for (statement, before) in &reader.seen {
            let now = ask(&reader.client, statement).await;
            if let Some(how) = difference(statement, &now, before) {
                found = Some((statement.sql.clone(), how));
                break;
            }
        }
        match found {
            None => Ok(()),
            Some((sql, how)) => {
                let what = format!("a reader's snapshot has changed: {sql}");
                let how = how.replace("postgresql:", "before:    ");
                self.complain(&what, &how);
                Err(Stop)
            }
        }
    }
}
