//! `tests/hostile/statements.sql`: each statement gets an error, never a crash and
//! never an internal error, and the session answers the next query.

use std::fmt::Write;
use std::path::Path;

use crate::harness::Aerostat;
use crate::raw::{Raw, errors};

/// A record of the file.
struct Record {
    line: usize,
    setup: bool,
    sql: Vec<u8>,
    data: Vec<u8>,
}

/// The least number of statements, so that a broken reader cannot pass.
const STATEMENTS_MIN: usize = 200;

#[test]
fn every_hostile_statement_gets_an_error_and_the_node_stays_up() {
    let mut node = Aerostat::start();
    let records = records();
    assert!(records.iter().filter(|record| !record.setup).count() >= STATEMENTS_MIN);
    let mut session = Raw::session(node.sql, "aerostat");
    let mut complaints = String::new();
    for record in &records {
        if let Some(complaint) = try_record(&mut session, record) {
            writeln!(
                complaints,
                "line {}: {complaint}: {}",
                record.line,
                shown(&record.sql)
            )
            .unwrap();
        }
        if !session.query("SELECT 1").is_ok_and(|rows| rows == ["1"]) {
            writeln!(
                complaints,
                "line {}: the session is gone after: {}",
                record.line,
                shown(&record.sql)
            )
            .unwrap();
            assert!(
                node.is_running(),
                "the node is down; complaints so far:\n{complaints}"
            );
            session = Raw::session(node.sql, "aerostat");
        }
    }
    assert!(
        complaints.is_empty(),
        "{} complaints:\n{complaints}",
        complaints.lines().count()
    );
    assert_eq!(
        session.query("SELECT count(*) FROM h").unwrap(),
        ["2"],
        "a failed statement left rows behind"
    );
    assert_eq!(session.query("SELECT count(*) FROM two").unwrap(), ["0"]);
    assert_eq!(node.ask("/healthz").0, 200);
}

fn try_record(session: &mut Raw, record: &Record) -> Option<String> {
    let answer = session
        .send_query(&record.sql)
        .and_then(|()| session.answer(&record.data));
    let messages = match answer {
        Ok(messages) => messages,
        Err(error) => return Some(format!("no answer ({error})")),
    };
    let errors = errors(&messages);
    match (record.setup, errors.first()) {
        (true, None) => None,
        (true, Some(error)) => Some(format!("setup failed {error:?}")),
        (false, None) => Some("no error".to_owned()),
        (false, Some(error)) => {
            let code = error.get(&'C').map_or("", String::as_str);
            let bad = code.len() != 5 || code == "XX000";
            bad.then(|| format!("{code} {}", error.get(&'M').map_or("", String::as_str)))
        }
    }
}

fn shown(sql: &[u8]) -> String {
    let text = String::from_utf8_lossy(sql);
    let start: String = text.chars().take(100).collect();
    start.replace('\n', " ")
}

fn records() -> Vec<Record> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hostile/statements.sql");
    let text = std::fs::read_to_string(path).unwrap();
    let mut records = Vec::new();
    let (mut block, mut start) = (Vec::new(), 1);
    for (at, line) in text.lines().chain(["----"]).enumerate() {
        if line == "----" {
            records.extend(record(&block, start));
            block.clear();
            start = at + 2;
        } else {
            block.push(line);
        }
    }
    records
}

fn record(block: &[&str], line: usize) -> Option<Record> {
    let comments = block
        .iter()
        .take_while(|line| line.starts_with("# ") || **line == "#")
        .count();
    let block = &block[comments.min(block.len())..];
    // `SELECT #` style statements start with their own text, a lone comment block with none.
    let setup = block.first() == Some(&"@setup");
    let block = if setup { &block[1..] } else { block };
    if block.is_empty() {
        return None;
    }
    let cut = block
        .iter()
        .position(|line| *line == "@data")
        .unwrap_or(block.len());
    let sql = expand(&block[..cut].join("\n"));
    let data = block
        .get(cut + 1..)
        .map(|lines| expand(&(lines.join("\n") + "\n")))
        .unwrap_or_default();
    Some(Record {
        line: line + comments,
        setup,
        sql,
        data,
    })
}

/// Expands `@{N*text}`, `@{N,text}` and `@{hex:..}`.
fn expand(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("@{") {
        out.extend(before.bytes());
        let (macro_text, tail) = after.split_once('}').expect("a macro ends with }");
        out.extend(expand_macro(macro_text));
        rest = tail;
    }
    out.extend(rest.bytes());
    out
}

fn expand_macro(text: &str) -> Vec<u8> {
    if let Some(hex) = text.strip_prefix("hex:") {
        return hex
            .split_whitespace()
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect();
    }
    let at = text.find(['*', ',']).expect("a macro has a count");
    let count: usize = text[..at].parse().unwrap();
    let body = &text[at + 1..];
    if text.as_bytes()[at] == b'*' {
        return body.repeat(count).into_bytes();
    }
    let parts: Vec<String> = (1..=count)
        .map(|n| body.replace('#', &n.to_string()))
        .collect();
    parts.join(",").into_bytes()
}

#[test]
fn macros_expand() {
    assert_eq!(expand("a@{3*x}b"), b"axxxb");
    assert_eq!(expand("@{3,c# int}"), b"c1 int,c2 int,c3 int");
    assert_eq!(expand("'@{hex:ff 00}'"), b"'\xff\0'");
}
