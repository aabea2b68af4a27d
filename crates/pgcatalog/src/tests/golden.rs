//! The queries in `testdata`, each with its answer.
//!
//! An answer without rows shows little: any missing object gives it. So the sample has one of
//! everything that the catalogue can have, and an empty answer states why it is right: `(no rows:
//! REASON)`, with one of the [`REASONS`].

use super::{Asker, line, sample::OIDS};

/// A query of a golden file.
struct Case {
    name: String,
    sql: String,
    expected: Vec<String>,
}

fn read(text: &str) -> (String, Vec<Case>) {
    let mut blocks = text.split("\n== ");
    let header = blocks.next().unwrap_or_default().to_owned();
    let cases = blocks
        .map(|block| {
            let (name, rest) = block.split_once('\n').unwrap();
            let (sql, expected) = rest.split_once("\n----\n").unwrap();
            Case {
                name: name.to_owned(),
                sql: sql.to_owned(),
                expected: expected
                    .lines()
                    .filter(|line| !line.is_empty())
                    .map(str::to_owned)
                    .collect(),
            }
        })
        .collect();
    (header, cases)
}

fn with_oids(sql: &str) -> String {
    OIDS.iter().fold(sql.to_owned(), |sql, (name, oid)| {
        sql.replace(&format!("{{{name}}}"), &oid.to_string())
    })
}

/// Long answers are cut: what matters is that they are there and how they begin.
const LINES_MAX: usize = 40;

/// Why an answer may have no rows. Those of the second part are rows that PostgreSQL has, or can
/// have, and Aerostat cannot.
const REASONS: [&str; 24] = [
    "the client asks for a name that is not there",
    "PostgreSQL's own ones are left out, and users make none",
    "the sample has no temporary tables",
    "nobody listens",
    // What there is not.
    "no conversions here",
    "no default privileges here",
    "no extended statistics here",
    "no extensions here",
    "no foreign data here",
    "no inheritance and no partitions here",
    "no large objects here",
    "no logical replication here",
    "no materialized views here",
    "no members of operator families here",
    "no procedures here",
    "no row policies here",
    "no rules here",
    "no settings of roles here",
    "no triggers here",
    "no types but built-in ones here",
    "system relations have no indexes here",
    "no text search here",
    "no languages but internal here",
    "no such type here",
];

/// The lines of an empty answer: the reason is the file's to give.
fn no_rows(expected: &[String]) -> Vec<String> {
    let reason = expected
        .first()
        .and_then(|line| line.strip_prefix("(no rows: ")?.strip_suffix(')'));
    vec![match reason {
        Some(reason) if REASONS.contains(&reason) => expected[0].clone(),
        _ => "(no rows: say why, with one of the REASONS)".to_owned(),
    }]
}

/// Checks the answers of a file; their order too, where `ordered`.
async fn check(file: &str, text: &str, ordered: bool) {
    let asker = Asker::new("alice");
    let (header, cases) = read(text);
    let mut failures = Vec::new();
    let mut renewed = header;
    for case in &cases {
        let lines: Vec<String> = match asker.try_ask(&with_oids(&case.sql)).await {
            Ok(answer) => {
                let mut lines: Vec<String> = answer.rows.iter().map(|row| line(row)).collect();
                if lines.len() > LINES_MAX {
                    let more = lines.len() - LINES_MAX;
                    lines.truncate(LINES_MAX);
                    lines.push(format!("… and {more} more"));
                }
                if lines.is_empty() {
                    no_rows(&case.expected)
                } else {
                    lines
                }
            }
            Err(error) => vec![format!("ERROR: {}", error.replace('\n', "⏎"))],
        };
        let same = if ordered {
            lines == case.expected
        } else {
            sorted(&lines) == sorted(&case.expected)
        };
        if !same {
            failures.push(format!(
                "{}\n{}\nexpected:\n{}\ngot:\n{}\n",
                case.name,
                case.sql,
                case.expected.join("\n"),
                lines.join("\n")
            ));
        }
        renewed.push_str(&format!(
            "\n== {}\n{}\n----\n{}\n",
            case.name,
            case.sql,
            lines.join("\n")
        ));
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let path = format!("{}/src/testdata/{file}", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(path, renewed).unwrap();
        return;
    }
    assert!(
        failures.is_empty(),
        "{} of {} answers differ\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}

fn sorted(lines: &[String]) -> Vec<&String> {
    let mut lines: Vec<&String> = lines.iter().collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn psql_commands() {
    check("psql.txt", include_str!("../testdata/psql.txt"), true).await;
}

#[tokio::test]
async fn psql_tab_completion() {
    check(
        "tab_completion.txt",
        include_str!("../testdata/tab_completion.txt"),
        true,
    )
    .await;
}

#[tokio::test]
async fn drivers() {
    check(
        "drivers.txt",
        include_str!("../testdata/drivers.txt"),
        false,
    )
    .await;
}
