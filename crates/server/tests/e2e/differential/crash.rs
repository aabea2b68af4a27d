//! The node killed: between two statements, or while one is under way.
//!
//! PostgreSQL stays up. It holds what was under way open in a block; once the node is back,
//! its tables say whether that happened, and PostgreSQL commits or undoes it likewise. What
//! the node acknowledged must be there.

use std::time::Duration;

use super::answers::{Answer, ask, difference};
use super::statements::{self, Statement};
use super::{Round, Stand, Stop, Upkeep};
use crate::harness::Aerostat;

/// How a statement came out during which the node was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The node said it was done.
    Acknowledged,
    /// Nobody heard.
    Unknown,
    /// It is to leave nothing: it failed, or there was none.
    Undone,
}

impl Round<'_> {
    /// Kills the node, starts it again and compares the tables.
    pub(super) async fn crash(&mut self) -> Result<(), Stop> {
        self.done.crashes += 1;
        self.reader = None;
        let under_way = match self.stand {
            Stand::Failed => None,
            _ if self.dice.one_in(3) => None,
            Stand::Idle => Some(statements::change(&mut self.dice, &mut self.tables)),
            Stand::Open => Some(Statement::new("COMMIT")),
        };
        let fate = match under_way {
            Some(statement) => self.crash_during(&statement).await?,
            None => {
                self.history.push("-- killed".to_owned());
                let node = self.node.take().expect("a node runs in a round");
                self.start_again(node.kill()).await;
                Fate::Undone
            }
        };
        self.settle(fate).await
    }

    async fn crash_during(&mut self, statement: &Statement) -> Result<Fate, Stop> {
        self.history.push("-- killed during the next".to_owned());
        self.note(statement);
        let theirs = if self.stand == Stand::Idle {
            ask(&self.theirs, &Statement::new("BEGIN")).await;
            ask(&self.theirs, statement).await
        } else {
            Answer::Parts(Vec::new())
        };
        let node = self.node.take().expect("a node runs in a round");
        let moments = Duration::from_millis(self.dice.below(8));
        let killed = async {
            tokio::time::sleep(moments).await;
            node.kill()
        };
        let (ours, data) = tokio::join!(ask(&self.ours, statement), killed);
        self.start_again(data).await;
        match (&ours, theirs.failed()) {
            (Answer::Parts(_), false) => Ok(Fate::Acknowledged),
            (Answer::Gone(_), false) => Ok(Fate::Unknown),
            (Answer::Gone(_) | Answer::Error(..), true) => Ok(Fate::Undone),
            (Answer::Error(..), false) | (Answer::Parts(_), true) => {
                let found = difference(statement, &ours, &theirs);
                self.complain(&statement.sql, &found.unwrap_or_default());
                Err(Stop)
            }
        }
    }

    /// A node on what the killed one left, and sessions with it.
    async fn start_again(&mut self, data: tempfile::TempDir) {
        self.upkeep.abandon();
        // In case the node does not come back.
        self.keep_script();
        let node = Aerostat::start_on(data, &[]);
        self.connect(&node).await;
        self.node = Some(node);
    }

    /// PostgreSQL ends its block as the node's tables say, and then both are the same.
    async fn settle(&mut self, fate: Fate) -> Result<(), Stop> {
        let happened = match fate {
            Fate::Acknowledged => true,
            Fate::Undone => false,
            Fate::Unknown => self.tables_are_the_same().await,
        };
        let end = if happened { "COMMIT" } else { "ROLLBACK" };
        self.history.push(format!("-- {fate:?}: {end}"));
        ask(&self.theirs, &Statement::new(end)).await;
        self.compare_tables(&format!("after a crash, {fate:?}"))
            .await
    }

    async fn tables_are_the_same(&self) -> bool {
        for table in &self.tables {
            let statement = Statement::new(table.everything()).ordered();
            let ours = ask(&self.ours, &statement).await;
            let theirs = ask(&self.theirs, &statement).await;
            if difference(&statement, &ours, &theirs).is_some() {
                return false;
            }
        }
        true
    }

    /// New sessions with the node; what the old ones had open is undone.
    pub(super) async fn connect(&mut self, node: &Aerostat) {
        self.ours = node.connect(super::DATABASE).await;
        self.upkeep = Upkeep::new(node.connect(super::DATABASE).await);
        self.stand = Stand::Idle;
        self.savepoints.clear();
        set_zone(&self.ours, self.zone).await;
    }
}

/// The time zone of a session.
pub(super) async fn set_zone(client: &tokio_postgres::Client, zone: &str) {
    let sql = format!("SET timezone = '{zone}'");
    client.batch_execute(&sql).await.unwrap();
}
