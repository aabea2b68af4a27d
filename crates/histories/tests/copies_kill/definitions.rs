//! Definitions beside the load, and whether what was acknowledged of them is there at the end.

use std::collections::BTreeMap;

use rand::Rng;
use rand_pcg::Pcg32;

use crate::client::{Session, is_certain};

/// How many names of each kind there are: each comes and goes many times.
const NAMES: u32 = 3;

/// What must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    There,
    Gone,
    /// Nobody was told.
    InDoubt,
}

/// What was made and dropped, by how it is asked for.
pub(crate) struct Definitions {
    /// Whether columns come to the tables of the lists, too. Adding one writes all rows anew, and
    /// whoever has an older snapshot finds the table empty: clients that read lists see that, and
    /// the checker says so.
    rewrite_lists: bool,
    states: BTreeMap<String, State>,
    /// How many were acknowledged.
    pub(crate) acknowledged: u32,
}

impl Definitions {
    /// Nothing yet.
    pub(crate) fn new(rewrite_lists: bool) -> Self {
        Self {
            rewrite_lists,
            states: BTreeMap::new(),
            acknowledged: 0,
        }
    }

    fn altered(&self, dice: &mut Pcg32) -> &'static str {
        match dice.random_range(0..3) {
            0 if self.rewrite_lists => "lists",
            1 if self.rewrite_lists => "items",
            _ => "beside",
        }
    }

    /// Makes or drops something, if it can.
    pub(crate) async fn change(&mut self, session: &Session, dice: &mut Pcg32) {
        let number = dice.random_range(0..NAMES);
        let (name, make, unmake) = match dice.random_range(0..5) {
            0 => (
                format!("index by_value_{number}"),
                format!("CREATE INDEX by_value_{number} ON items (value)"),
                format!("DROP INDEX by_value_{number}"),
            ),
            1 => {
                let table = self.altered(dice);
                (
                    format!("column {table}.more_{number}"),
                    format!(
                        "ALTER TABLE {table} ADD COLUMN more_{number} integer DEFAULT {number}"
                    ),
                    format!("ALTER TABLE {table} DROP COLUMN more_{number}"),
                )
            }
            2 => (
                format!("index beside_{number}"),
                format!("CREATE UNIQUE INDEX beside_{number} ON beside (key, n)"),
                format!("DROP INDEX beside_{number}"),
            ),
            3 => (
                format!("table made_{number}"),
                format!("CREATE TABLE made_{number} AS SELECT key, length(value) AS n FROM lists"),
                format!("DROP TABLE made_{number}"),
            ),
            _ => {
                session.rows("CHECKPOINT").await.ok();
                return;
            }
        };
        let state = self.states.entry(name).or_insert(State::Gone);
        let to = match state {
            State::There => State::Gone,
            State::Gone => State::There,
            State::InDoubt => return,
        };
        let sql = if to == State::There { make } else { unmake };
        match session.rows(&sql).await {
            Ok(_) => {
                *state = to;
                self.acknowledged += 1;
            }
            // What the node refused it did not do.
            Err(failure) if is_certain(&failure) => {}
            Err(_) => *state = State::InDoubt,
        }
    }

    /// What there is and must not be, and the other way round. What was in doubt is as it is, for
    /// whoever was asked is not there any more.
    pub(crate) async fn wrong(&mut self, session: &Session) -> Result<Vec<String>, String> {
        let there = objects(session).await?;
        let mut wrong = Vec::new();
        for (name, state) in &mut self.states {
            match (*state, there.contains(name)) {
                (State::There, false) => wrong.push(format!("{name} was made and is not there")),
                (State::Gone, true) => wrong.push(format!("{name} was dropped and is there")),
                (State::InDoubt, true) => *state = State::There,
                (State::InDoubt, false) => *state = State::Gone,
                _ => {}
            }
        }
        Ok(wrong)
    }
}

/// The names of all tables, columns and indexes.
pub(crate) async fn objects(session: &Session) -> Result<Vec<String>, String> {
    let sql = "SELECT 'table ' || table_name FROM information_schema.tables WHERE table_schema = 'public' \
               UNION ALL SELECT 'column ' || table_name || '.' || column_name \
                   FROM information_schema.columns WHERE table_schema = 'public' \
               UNION ALL SELECT 'index ' || indexname FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1";
    let rows = session
        .rows(sql)
        .await
        .map_err(|failure| format!("{sql}: {failure}"))?;
    Ok(rows.into_iter().map(|mut row| row.remove(0)).collect())
}
