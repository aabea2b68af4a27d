//! Statements as lines of JSON, each answered with a line: for programs that run the engine as a
//! child process.

use std::io::{self, BufRead, Write};

use aerostat_embedded::{Connection, ErrorKind, SqlError};
use serde::Deserialize;

use super::answer::Answer;
use super::show;

/// A line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    /// One statement. A text that comes again is not parsed and planned again.
    sql: String,
    /// Whether its rows are wanted, or only how long they took.
    #[serde(default = "yes")]
    rows: bool,
}

fn yes() -> bool {
    true
}

/// Answers until there are no more lines. Errors are answers.
///
/// # Errors
/// Standard input or output fail.
pub(super) fn serve(connection: &mut Connection) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let (answer, rows) = match serde_json::from_str::<Order>(&line) {
            Ok(order) => (run(connection, &order.sql), order.rows),
            Err(error) => {
                let message = format!("the line is no order: {error}");
                let error = SqlError::new(ErrorKind::ProtocolViolation, message).with_hint(
                    r#"A line is {"sql": "SELECT 1"} or {"sql": "SELECT 1", "rows": false}."#,
                );
                (Answer::Failed(error), false)
            }
        };
        show::put_json(&answer, rows, &mut out)?;
        out.flush()?;
        super::tell(&connection.take_notices());
    }
    Ok(())
}

/// The session keeps what it has prepared, by text.
fn run(connection: &mut Connection, sql: &str) -> Answer {
    Answer::to(connection, |connection| {
        let statement = connection.prepare(sql)?;
        statement.query(connection, &[])
    })
}
