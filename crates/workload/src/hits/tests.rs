//! The table is what it is said to be, and what the queries look for is in it.

use std::collections::{HashMap, HashSet};

use super::columns::{COLUMNS, PRIMARY_KEY};
use super::queries::QUERIES;
use super::*;

const ROWS: u64 = 50_000;

fn rows(hits: &Hits) -> Vec<Vec<String>> {
    let mut out = Vec::new();
    let count: u64 = (0..hits.chunks())
        .map(|chunk| hits.copy_chunk(chunk, &mut out))
        .sum();
    assert_eq!(count, hits.rows());
    let text = String::from_utf8(out).unwrap();
    let split = |line: &str| line.split('\t').map(str::to_owned).collect();
    text.lines().map(split).collect()
}

fn at(name: &str) -> usize {
    (COLUMNS.iter().position(|(column, ..)| *column == name)).unwrap()
}

#[test]
fn rows_have_all_columns_in_the_order_of_the_primary_key() {
    let rows = rows(&Hits::new(ROWS, 7));
    assert!(rows.iter().all(|row| row.len() == COLUMNS.len()));
    assert!(PRIMARY_KEY.starts_with(&["site_id", "viewed_at"]));
    let key = |row: &Vec<String>| {
        let site: u64 = row[at("site_id")].parse().unwrap();
        (site, row[at("viewed_at")].clone())
    };
    assert!(rows.is_sorted_by_key(key));
    let ids: HashSet<_> = rows.iter().map(|row| &row[at("view_id")]).collect();
    assert_eq!(ids.len(), rows.len());
}

#[test]
fn rows_do_not_depend_on_chunking_and_follow_the_seed() {
    let hits = Hits::new(ROWS, 7);
    let (mut whole, mut parts) = (Vec::new(), Vec::new());
    hits.copy_rows(0..10_000, &mut whole);
    for start in (0..10_000).step_by(1_250) {
        hits.copy_rows(start..start + 1_250, &mut parts);
    }
    assert!(whole == parts);
    let mut other = Vec::new();
    Hits::new(ROWS, 8).copy_rows(0..10_000, &mut other);
    assert!(whole != other);
    assert_eq!(hits.copy_chunk(hits.chunks(), &mut other), 0);
}

#[test]
fn texts_and_numbers_are_as_skewed_as_a_log() {
    let rows = rows(&Hits::new(ROWS, 7));
    let counts = |name: &str| {
        let mut counts = HashMap::new();
        for row in &rows {
            *counts.entry(&row[at(name)]).or_insert(0_u64) += 1;
        }
        counts
    };
    let share = |count: u64| count as f64 / ROWS as f64;
    let empty = |name: &str| share(counts(name)[&String::new()]);
    assert!((0.85..0.89).contains(&empty("search_text")));
    assert!((0.33..0.37).contains(&empty("referrer")));
    assert!(empty("phone_model") > 0.9);
    // Many URLs, some of them frequent; the largest site has a fiftieth of all views.
    let urls = counts("url");
    assert!(
        (0.1..0.6).contains(&share(urls.len() as u64)),
        "{}",
        urls.len()
    );
    let largest = counts("site_id").into_values().max().unwrap();
    assert!((0.015..0.03).contains(&share(largest)), "{largest}");
    // Five views a visitor, and few visitors without any.
    assert!((0.15..0.21).contains(&share(counts("visitor_id").len() as u64)));
    // A visitor has one screen.
    let screens: HashSet<_> = (rows.iter())
        .map(|row| (&row[at("visitor_id")], &row[at("screen_width")]))
        .collect();
    assert_eq!(screens.len(), counts("visitor_id").len());
    assert!(rows.iter().any(|row| row[at("url")].contains("balloon")));
}

#[test]
fn values_fit_their_types() {
    let rows = rows(&Hits::new(ROWS, 7));
    for (index, (name, kind, _)) in COLUMNS.iter().enumerate() {
        for row in &rows {
            let value = &row[index];
            let fits = match *kind {
                "smallint" => value.parse::<i16>().is_ok(),
                "integer" => value.parse::<i32>().is_ok(),
                "bigint" => value.parse::<i64>().is_ok(),
                "date" => value.len() == 10 && value.starts_with("2026-03-"),
                "timestamp" => value.len() == 19 && value.starts_with("2026-03-"),
                _ => true,
            };
            assert!(fits, "{name}: {value}");
        }
    }
}

#[test]
fn queries_are_single_statements_of_known_columns() {
    let hits = Hits::new(ROWS, 7);
    for (index, query) in QUERIES.iter().enumerate() {
        assert_eq!(query.id, format!("H{}", index + 1));
        let sql = query.sql(&hits);
        assert!(sql.starts_with("SELECT "));
        assert!(!sql.contains(';'), "{sql}");
        let placeholder = |word: &str| word.starts_with(':');
        assert!(
            !sql.split([' ', '(', '%', '.', '\n']).any(placeholder),
            "{sql}"
        );
        assert_eq!(
            query.order_by.is_empty(),
            !sql.contains("ORDER BY"),
            "{sql}"
        );
    }
}

#[test]
fn what_queries_look_for_is_there() {
    let hits = Hits::new(ROWS, 7);
    let rows = rows(&hits);
    let number = |sql: &str, before: &str| -> String {
        let rest = sql.split_once(before).unwrap().1;
        rest.split_whitespace().next().unwrap().to_owned()
    };
    let sql = |id: &str| {
        QUERIES
            .iter()
            .find(|query| query.id == id)
            .unwrap()
            .sql(&hits)
    };
    let found =
        |column: &str, value: &str| rows.iter().filter(|row| row[at(column)] == value).count();
    assert!(found("visitor_id", &number(&sql("H20"), "visitor_id = ")) > 0);
    assert!(found("site_id", &number(&sql("H37"), "site_id = ")) > 500);
    assert!(found("referrer_hash", &number(&sql("H41"), "referrer_hash = ")) > 5);
    assert!(found("url_hash", &number(&sql("H42"), "url_hash = ")) > 20);
}
