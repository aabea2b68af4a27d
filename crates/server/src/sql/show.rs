//! Results as tables, CSV and JSON.

use std::io::{self, Write};
use std::sync::Arc;

use aerostat_embedded::{ColumnDescription, SqlError, SqlType};
use aerostat_gateway::Texts;
use comfy_table::CellAlignment;
use serde_json::{Value, json};

use super::Format;
use super::answer::{Answer, Done};
use crate::client::table::plain_table;

/// Shows what a statement came to.
///
/// # Errors
/// It cannot be written.
pub(super) fn put(answer: &Answer, format: Format, out: &mut impl Write) -> io::Result<()> {
    match (answer, format) {
        (_, Format::Json) => put_json(answer, true, out),
        (Answer::Failed(error), _) => {
            eprint!("{}", complaint(error));
            Ok(())
        }
        (Answer::Done(done), Format::Table) => put_table(done, out),
        (Answer::Done(done), Format::Csv) => put_csv(done, out),
    }
}

/// An error as `psql` shows it, with its SQLSTATE.
fn complaint(error: &SqlError) -> String {
    let mut text = format!("ERROR:  {}: {}\n", error.kind.sqlstate(), error.message);
    for (name, part) in [("DETAIL", &error.detail), ("HINT", &error.hint)] {
        if let Some(part) = part {
            text.push_str(&format!("{name}:  {part}\n"));
        }
    }
    text
}

fn put_table(done: &Done, out: &mut impl Write) -> io::Result<()> {
    let Some(columns) = &done.columns else {
        return match done.tag.is_empty() {
            true => Ok(()),
            false => writeln!(out, "{}", done.tag),
        };
    };
    let mut rows = Vec::new();
    each_row(done, columns, |row| {
        let cells = row.iter().map(|cell| cell.clone().unwrap_or_default());
        rows.push(cells.collect::<Vec<_>>());
        Ok(())
    })?;
    let count = rows.len();
    let mut table = plain_table(columns.iter().map(|column| column.name.as_str()), rows);
    for (at, column) in columns.iter().enumerate() {
        if column.ty.is_some_and(is_number)
            && let Some(shown) = table.column_mut(at)
        {
            shown.set_cell_alignment(CellAlignment::Right);
        }
    }
    let rows = if count == 1 { "row" } else { "rows" };
    writeln!(out, "{table}\n({count} {rows})\n")
}

fn put_csv(done: &Done, out: &mut impl Write) -> io::Result<()> {
    let Some(columns) = &done.columns else {
        return Ok(());
    };
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(columns.iter().map(|column| column.name.as_str()))?;
    each_row(done, columns, |row| {
        let cells = row.iter().map(|cell| cell.as_deref().unwrap_or_default());
        Ok(csv.write_record(cells)?)
    })?;
    csv.flush()
}

/// One line: `columns` and `rows` where there are any, `tag`, `ms`; or `error`.
///
/// # Errors
/// It cannot be written.
pub(super) fn put_json(answer: &Answer, rows: bool, out: &mut impl Write) -> io::Result<()> {
    let done = match answer {
        Answer::Done(done) => done,
        Answer::Failed(error) => return writeln!(out, "{}", json!({ "error": described(error) })),
    };
    out.write_all(b"{")?;
    if let Some(columns) = &done.columns {
        let described: Vec<Value> = columns
            .iter()
            .map(|column| json!({ "name": column.name, "type": type_name(column) }))
            .collect();
        write!(out, "\"columns\":{},", Value::from(described))?;
        if rows {
            put_json_rows(done, columns, out)?;
        }
    }
    writeln!(
        out,
        "\"tag\":{},\"ms\":{}}}",
        Value::from(done.tag.as_str()),
        done.ms
    )
}

fn put_json_rows(
    done: &Done,
    columns: &Arc<[ColumnDescription]>,
    out: &mut impl Write,
) -> io::Result<()> {
    out.write_all(b"\"rows\":[")?;
    let mut between = "";
    each_row(done, columns, |row| {
        write!(out, "{between}[")?;
        between = ",";
        for (at, (cell, column)) in row.iter().zip(columns.iter()).enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match (cell, column.ty) {
                (None, _) => write!(out, "{comma}null")?,
                (Some(text), Some(SqlType::Boolean)) => write!(out, "{comma}{}", text == "t")?,
                // JSON's numbers have as many digits as they like, but are finite.
                (Some(text), Some(ty)) if is_number(ty) && is_finite(text) => {
                    write!(out, "{comma}{text}")?;
                }
                (Some(text), _) => write!(out, "{comma}{}", Value::from(text.as_str()))?,
            }
        }
        out.write_all(b"]")
    })?;
    out.write_all(b"],")
}

fn described(error: &SqlError) -> Value {
    let mut described = json!({ "code": error.kind.sqlstate(), "message": error.message });
    for (name, part) in [("detail", &error.detail), ("hint", &error.hint)] {
        if let Some(part) = part {
            described[name] = part.as_str().into();
        }
    }
    described
}

/// `None` for types that only the catalogue shows.
fn type_name(column: &ColumnDescription) -> Option<String> {
    column.ty.map(|ty| ty.to_string())
}

fn is_number(ty: SqlType) -> bool {
    matches!(
        ty,
        SqlType::SmallInt
            | SqlType::Integer
            | SqlType::BigInt
            | SqlType::Real
            | SqlType::Double
            | SqlType::Numeric { .. }
    )
}

/// Whether a number's text is not `NaN` or `Infinity`.
fn is_finite(text: &str) -> bool {
    text.ends_with(|last: char| last.is_ascii_digit())
}

fn each_row(
    done: &Done,
    columns: &Arc<[ColumnDescription]>,
    mut row_is: impl FnMut(&[Option<String>]) -> io::Result<()>,
) -> io::Result<()> {
    let texts = Texts::new(Arc::clone(columns), done.zone);
    let mut result = Ok(());
    for batch in &done.batches {
        let each = |row: &[Option<String>]| {
            if result.is_ok() {
                result = row_is(row);
            }
        };
        texts.each_row(batch, each).map_err(io::Error::other)?;
    }
    result
}
