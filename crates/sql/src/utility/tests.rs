//! The parser against golden files: statements and their parse results.
//!
//! A line `> statement` is followed by the result of parsing it: the [`Utility`], `sqlparser`
//! when the statement is not ours, or the error as `Kind@position: message [hint]`. To accept new
//! output, run the test with `AEROSTAT_GOLDEN=write` and read the difference.

use std::{fmt::Write as _, fs, path::PathBuf};

use super::*;

fn outcome(statement: &str) -> String {
    match parse(statement) {
        Ok(None) => "sqlparser".to_owned(),
        Ok(Some(utility)) => format!("{utility:?}"),
        Err(error) => {
            let mut text = format!("{:?}", error.kind);
            if let Some(position) = error.position {
                write!(text, "@{position}").unwrap();
            }
            write!(text, ": {}", error.message).unwrap();
            if let Some(hint) = error.hint {
                write!(text, " [{hint}]").unwrap();
            }
            text
        }
    }
}

fn check(name: &str) {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "src/utility/testdata", name]
        .iter()
        .collect();
    let golden = fs::read_to_string(&path).unwrap();
    let mut actual = String::new();
    for line in golden.lines() {
        if let Some(statement) = line.strip_prefix("> ") {
            let unescaped = statement.replace("\\n", "\n");
            writeln!(actual, "> {statement}\n{}", outcome(&unescaped)).unwrap();
        } else if line.is_empty() || line.starts_with('#') {
            writeln!(actual, "{line}").unwrap();
        }
    }
    if std::env::var_os("AEROSTAT_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(&path, &actual).unwrap();
    }
    for (expected, actual) in golden.lines().zip(actual.lines()) {
        assert_eq!(actual, expected, "{name}");
    }
    assert_eq!(actual.lines().count(), golden.lines().count(), "{name}");
}

#[test]
fn sessions() {
    check("session.txt");
}

#[test]
fn copies() {
    check("copy.txt");
}

#[test]
fn objects() {
    check("object.txt");
}

#[test]
fn refusals() {
    check("refused.txt");
}

#[test]
fn any_text_gives_an_answer() {
    let words = [
        "create", "alter", "drop", "copy", "t", "(", ")", "with", "set", "database", "role",
        "grant", "on", "to", "from", "'x'", "5", "-", ",", "=", "\"Q\"", "stdin", ".", "is",
        "null", "\"", "'", "$1", "ä", "/*", ";",
    ];
    let mut seed = 1u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..8 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            text.push_str(words[usize::try_from(seed >> 33).unwrap() % words.len()]);
            text.push(' ');
        }
        if let Err(error) = parse(&text)
            && let Some(position) = error.position
        {
            assert!(
                usize::try_from(position).unwrap() <= text.chars().count() + 1,
                "{text}"
            );
        }
    }
}
