//! What a server answers, and how two answers differ.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use futures::{SinkExt, TryStreamExt};
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use super::statements::{Statement, Way};
use crate::harness::PATIENCE;

/// A row as texts; `None` is NULL.
type Row = Vec<Option<String>>;

/// What one statement of a message gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Rows {
        columns: Vec<String>,
        rows: Vec<Row>,
    },
    /// The number in the command's tag.
    Done(u64),
    Copied(Vec<u8>),
}

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Parts(Vec<Part>),
    /// SQLSTATE and message.
    Error(String, String),
    /// The connection broke.
    Gone(String),
}

impl Answer {
    pub(super) fn failed(&self) -> bool {
        !matches!(self, Answer::Parts(_))
    }

    /// Rows that the statement wrote or gave.
    pub(super) fn count(&self) -> u64 {
        let Answer::Parts(parts) = self else { return 0 };
        let counts = parts.iter().map(|part| match part {
            Part::Done(count) => *count,
            _ => 0,
        });
        counts.sum()
    }
}

/// Runs a statement. One that takes longer than a test waits is a hang.
pub(super) async fn ask(client: &Client, statement: &Statement) -> Answer {
    let asked = async {
        match &statement.way {
            Way::Message => message(client, &statement.sql).await,
            Way::CopyIn(data) => copy_in(client, &statement.sql, data).await,
            Way::CopyOut => copy_out(client, &statement.sql).await,
        }
    };
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok(parts)) => Answer::Parts(parts),
        Ok(Err(error)) => match error.as_db_error() {
            Some(error) => Answer::Error(error.code().code().into(), error.message().into()),
            None => Answer::Gone(format!("{error:?}")),
        },
        Err(_) => Answer::Gone(format!("no answer for {PATIENCE:?}")),
    }
}

async fn message(client: &Client, sql: &str) -> Result<Vec<Part>, Error> {
    let mut parts = Vec::new();
    for message in client.simple_query(sql).await? {
        match message {
            SimpleQueryMessage::RowDescription(described) => {
                let columns = described.iter().map(|column| column.name().to_owned());
                parts.push(Part::Rows {
                    columns: columns.collect(),
                    rows: Vec::new(),
                });
            }
            SimpleQueryMessage::Row(row) => {
                if let Some(Part::Rows { rows, .. }) = parts.last_mut() {
                    let field = |at| Some(row.get(at)?.to_owned());
                    let fields = (0..row.len()).map(field);
                    rows.push(fields.collect());
                }
            }
            SimpleQueryMessage::CommandComplete(count) => parts.push(Part::Done(count)),
            _ => {}
        }
    }
    Ok(parts)
}

async fn copy_in(client: &Client, sql: &str, data: &[u8]) -> Result<Vec<Part>, Error> {
    let sink = client.copy_in::<_, Bytes>(sql).await?;
    let mut sink = std::pin::pin!(sink);
    // In pieces, so that rows lie across them.
    for piece in data.chunks(1_000) {
        sink.send(Bytes::copy_from_slice(piece)).await?;
    }
    Ok(vec![Part::Done(sink.finish().await?)])
}

async fn copy_out(client: &Client, sql: &str) -> Result<Vec<Part>, Error> {
    let stream = client.copy_out(sql).await?;
    let pieces: Vec<Bytes> = stream.try_collect().await?;
    Ok(vec![Part::Copied(pieces.concat())])
}

/// How the node's answer differs from PostgreSQL's; `None` where it does not.
pub(super) fn difference(statement: &Statement, ours: &Answer, theirs: &Answer) -> Option<String> {
    match (ours, theirs) {
        (Answer::Parts(ours), Answer::Parts(theirs)) if ours.len() == theirs.len() => {
            let pairs = ours.iter().zip(theirs);
            pairs
                .map(|(ours, theirs)| part(statement, ours, theirs))
                .find_map(|found| found)
        }
        (Answer::Error(ours_code, _), Answer::Error(theirs_code, _))
            if ours_code == theirs_code
                || (statement.many_reasons && of_values(ours_code) && of_values(theirs_code)) =>
        {
            None
        }
        _ => Some(format!(
            "  aerostat:   {}\n  postgresql: {}",
            outline(ours),
            outline(theirs)
        )),
    }
}

/// Whether an error is about values, of which one row or another may be the first to fail.
fn of_values(code: &str) -> bool {
    code.starts_with("22") || code.starts_with("23")
}

fn part(statement: &Statement, ours: &Part, theirs: &Part) -> Option<String> {
    match (ours, theirs) {
        (
            Part::Rows { columns, rows },
            Part::Rows {
                columns: their_columns,
                rows: their_rows,
            },
        ) if columns == their_columns => rows_difference(rows, their_rows).or_else(|| {
            (statement.ordered && rows != their_rows).then(|| order_difference(rows, their_rows))
        }),
        (Part::Copied(ours), Part::Copied(theirs)) if ours != theirs => {
            let at = ours
                .iter()
                .zip(theirs)
                .take_while(|(one, two)| one == two)
                .count();
            let around = |bytes: &[u8]| {
                let piece = &bytes[at.saturating_sub(60)..bytes.len().min(at + 60)];
                piece.escape_ascii().to_string()
            };
            Some(format!(
                "  byte {at} of {} and {}\n  aerostat:   {}\n  postgresql: {}",
                ours.len(),
                theirs.len(),
                around(ours),
                around(theirs)
            ))
        }
        _ if ours == theirs => None,
        _ => Some(format!(
            "  aerostat:   {}\n  postgresql: {}",
            part_outline(ours),
            part_outline(theirs)
        )),
    }
}

/// Rows of the one that the other lacks, however often they are there.
fn rows_difference(ours: &[Row], theirs: &[Row]) -> Option<String> {
    let mut counts: BTreeMap<&Row, i64> = BTreeMap::new();
    for row in ours {
        *counts.entry(row).or_default() += 1;
    }
    for row in theirs {
        *counts.entry(row).or_default() -= 1;
    }
    counts.retain(|_, count| *count != 0);
    if counts.is_empty() {
        return None;
    }
    let mut text = format!(
        "  aerostat {} rows, postgresql {}",
        ours.len(),
        theirs.len()
    );
    for (side, sign) in [("aerostat:  ", 1), ("postgresql:", -1)] {
        let only = counts.iter().filter(|(_, count)| count.signum() == sign);
        for (row, count) in only.clone().take(4) {
            write!(text, "\n  only {side} {}× {}", count.abs(), shown(row)).unwrap();
        }
        if only.clone().count() > 4 {
            write!(text, "\n  only {side} and {} more", only.count() - 4).unwrap();
        }
    }
    Some(text)
}

fn order_difference(ours: &[Row], theirs: &[Row]) -> String {
    let at = ours
        .iter()
        .zip(theirs)
        .take_while(|(ours, theirs)| ours == theirs)
        .count();
    format!(
        "  the same rows in another order, from row {at}\n  aerostat:   {}\n  postgresql: {}",
        shown(&ours[at]),
        shown(&theirs[at])
    )
}

fn shown(row: &Row) -> String {
    let fields: Vec<String> = row
        .iter()
        .map(|field| match field {
            None => "NULL".to_owned(),
            Some(text) => text
                .chars()
                .take(60)
                .collect::<String>()
                .escape_debug()
                .to_string(),
        })
        .collect();
    fields.join(" | ")
}

fn outline(answer: &Answer) -> String {
    match answer {
        Answer::Parts(parts) => parts
            .iter()
            .map(part_outline)
            .collect::<Vec<_>>()
            .join("; "),
        Answer::Error(code, message) => format!("{code} {message}"),
        Answer::Gone(why) => format!("gone: {why}"),
    }
}

fn part_outline(part: &Part) -> String {
    match part {
        Part::Rows { columns, rows } => format!("{} rows of {}", rows.len(), columns.join(", ")),
        Part::Done(count) => format!("done, {count}"),
        Part::Copied(bytes) => format!("{} bytes", bytes.len()),
    }
}
