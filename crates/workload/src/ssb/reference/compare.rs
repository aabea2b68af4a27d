//! Comparing a server's result with the reference.
//!
//! SQL leaves the order of ties open, so equality of lists is too strict and
//! equality of sets too lax. A result is right when it holds the same rows the
//! same number of times, and its own rows stand in the query's order.

use std::cmp::Ordering;

use super::Row;
use crate::ssb::queries::{Direction, Kind, Query};

/// A value of a result. Text is compared without trailing blanks, because a
/// `char(n)` arrives padded, and by bytes, as under the "C" collation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(untagged)]
pub enum Value {
    /// SQL NULL; a sum over no rows.
    Null,
    /// An integer.
    Int(i64),
    /// Text, without trailing blanks.
    Text(String),
}

/// How an actual result differs from the expected one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// A value cannot be what its column should hold.
    #[error("row {row}, column {column}: {text:?} is no {kind:?}")]
    Unreadable {
        /// Row number, from 0.
        row: usize,
        /// Column number, from 0.
        column: usize,
        /// The value as received.
        text: String,
        /// What the column should hold.
        kind: Kind,
    },
    /// A row has too many or too few columns.
    #[error("row {row} has {actual} columns, {expected} are expected")]
    ColumnCount {
        /// Row number, from 0.
        row: usize,
        /// Expected number of columns.
        expected: usize,
        /// Received number of columns.
        actual: usize,
    },
    /// A row is missing, or occurs too rarely.
    #[error("expected row {0:?} is missing ({1} rows expected, {2} received)")]
    Missing(Row, usize, usize),
    /// A row is wrong, or occurs too often.
    #[error("row {0:?} is not expected ({1} rows expected, {2} received)")]
    Unexpected(Row, usize, usize),
    /// The rows are right but not in the query's order.
    #[error("row {row} should stand before the row above it")]
    Order {
        /// Row number, from 0.
        row: usize,
    },
}

/// Turns a result in text form into values, by the query's column kinds.
///
/// # Errors
/// [`Mismatch::ColumnCount`] or [`Mismatch::Unreadable`] when the result cannot
/// belong to this query.
pub fn parse_rows(query: &Query, rows: &[Vec<Option<String>>]) -> Result<Vec<Row>, Mismatch> {
    let parse = |(row, fields): (usize, &Vec<Option<String>>)| {
        if fields.len() != query.columns.len() {
            return Err(Mismatch::ColumnCount {
                row,
                expected: query.columns.len(),
                actual: fields.len(),
            });
        }
        let kinds = query.columns.iter().zip(fields).enumerate();
        kinds
            .map(|(column, (&kind, text))| parse_value(kind, text.as_deref(), row, column))
            .collect()
    };
    rows.iter().enumerate().map(parse).collect()
}

fn parse_value(
    kind: Kind,
    text: Option<&str>,
    row: usize,
    column: usize,
) -> Result<Value, Mismatch> {
    let Some(text) = text else {
        return Ok(Value::Null);
    };
    match kind {
        Kind::Text => Ok(Value::Text(text.trim_end_matches(' ').to_owned())),
        Kind::Int => text
            .parse()
            .map(Value::Int)
            .map_err(|_| Mismatch::Unreadable {
                row,
                column,
                text: text.to_owned(),
                kind,
            }),
    }
}

/// Checks that `actual` is an answer to `query` that agrees with `expected`: the
/// same rows the same number of times, in an order the query's ORDER BY allows.
///
/// # Errors
/// The first [`Mismatch`] found; wrong rows are reported before wrong order.
pub fn compare(query: &Query, expected: &[Row], actual: &[Row]) -> Result<(), Mismatch> {
    compare_multisets(expected, actual)?;
    for (row, pair) in actual.windows(2).enumerate() {
        if order(query, &pair[0], &pair[1]) == Ordering::Greater {
            return Err(Mismatch::Order { row: row + 1 });
        }
    }
    Ok(())
}

fn compare_multisets(expected: &[Row], actual: &[Row]) -> Result<(), Mismatch> {
    let counts = (expected.len(), actual.len());
    let (mut expected, mut actual) = (sorted(expected), sorted(actual));
    let (expected, actual) = (expected.drain(..), actual.drain(..));
    let (mut expected, mut actual) = (expected.peekable(), actual.peekable());
    loop {
        let ordering = match (expected.peek(), actual.peek()) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(left), Some(right)) => left.cmp(right),
        };
        let missing = match ordering {
            Ordering::Less => expected.next(),
            Ordering::Greater => {
                let row = actual.next().expect("peeked");
                return Err(Mismatch::Unexpected(row.clone(), counts.0, counts.1));
            }
            Ordering::Equal => {
                expected.next();
                actual.next();
                continue;
            }
        };
        let row = missing.expect("peeked");
        return Err(Mismatch::Missing(row.clone(), counts.0, counts.1));
    }
}

fn sorted(rows: &[Row]) -> Vec<&Row> {
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_unstable();
    rows
}

/// Sorts by the query's ORDER BY, ties by the whole row so that the reference
/// itself is deterministic.
pub(super) fn sort(query: &Query, rows: &mut [Row]) {
    rows.sort_unstable_by(|left, right| order(query, left, right).then_with(|| left.cmp(right)));
}

fn order(query: &Query, left: &Row, right: &Row) -> Ordering {
    let by_key = query.order_by.iter().map(|&(column, direction)| {
        let ordering = left[column].cmp(&right[column]);
        match direction {
            Direction::Ascending => ordering,
            Direction::Descending => ordering.reverse(),
        }
    });
    by_key.fold(Ordering::Equal, Ordering::then)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssb::queries::by_id;

    fn row(customer: &str, year: i64, revenue: i64) -> Row {
        vec![
            Value::Text(customer.to_owned()),
            Value::Text("CHINA".to_owned()),
            Value::Int(year),
            Value::Int(revenue),
        ]
    }

    #[test]
    fn ties_may_come_in_any_order() {
        let query = by_id("Q3.1").unwrap();
        let (a, b, c) = (row("A", 1992, 5), row("B", 1992, 5), row("A", 1993, 9));
        let expected = [a.clone(), b.clone(), c.clone()];
        let swapped = [b.clone(), a.clone(), c.clone()];
        assert_eq!(compare(query, &expected, &swapped), Ok(()));
        assert_eq!(
            compare(query, &expected, &[a, c, b]),
            Err(Mismatch::Order { row: 2 })
        );
    }

    #[test]
    fn descending_keys_are_descending() {
        let query = by_id("Q3.1").unwrap();
        let (low, high) = (row("A", 1992, 1), row("A", 1992, 2));
        let mut rows = vec![low.clone(), high.clone()];
        sort(query, &mut rows);
        assert_eq!(rows, [high.clone(), low.clone()]);
        assert_eq!(
            compare(query, &rows, &[low, high]),
            Err(Mismatch::Order { row: 1 })
        );
    }

    #[test]
    fn missing_unexpected_and_repeated_rows_are_found() {
        let query = by_id("Q3.1").unwrap();
        let (a, b) = (row("A", 1992, 5), row("B", 1992, 4));
        let expected = [a.clone(), b.clone()];
        assert_eq!(
            compare(query, &expected, std::slice::from_ref(&a)),
            Err(Mismatch::Missing(b.clone(), 2, 1))
        );
        assert_eq!(
            compare(query, &expected, &[a.clone(), b.clone(), b.clone()]),
            Err(Mismatch::Unexpected(b.clone(), 2, 3))
        );
        assert_eq!(
            compare(query, &expected, &[a, row("B", 1992, 3)]),
            Err(Mismatch::Unexpected(row("B", 1992, 3), 2, 2))
        );
    }

    #[test]
    fn text_results_become_values() {
        let query = by_id("Q4.1").unwrap();
        let text = |fields: &[&str]| fields.iter().map(|f| Some((*f).to_owned())).collect();
        let rows: Vec<Vec<Option<String>>> = vec![text(&["1997", "PERU           ", "-3"])];
        assert_eq!(
            parse_rows(query, &rows).unwrap(),
            [vec![
                Value::Int(1997),
                Value::Text("PERU".to_owned()),
                Value::Int(-3)
            ]]
        );
        assert!(matches!(
            parse_rows(query, &[text(&["1997", "PERU", "1.5"])]),
            Err(Mismatch::Unreadable { column: 2, .. })
        ));
        assert!(matches!(
            parse_rows(query, &[text(&["1997"])]),
            Err(Mismatch::ColumnCount { .. })
        ));
    }
}
