//! `tests/slt` against the node, every table in row, column and mixed layout, in the simple and
//! the extended protocol.
//!
//! The expectations are PostgreSQL's (scripts/slt-expect wrote them). The files run against a
//! PostgreSQL, too ([`Postgres::find`]), so that no record can say what only Aerostat does.
//! `FILES` has others run in their place, of whoever.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner, default_column_validator};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use crate::harness::Aerostat;
use crate::postgres::Postgres;
use crate::raw::{Raw, errors, values};

type Output = DBOutput<DefaultColumnType>;

/// A connection that runs records.
struct Session {
    protocol: Protocol,
    engine: &'static str,
}

enum Protocol {
    Simple(Client),
    Extended(Raw),
}

/// Why a record failed.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Failure {
    state: Option<String>,
    text: String,
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        let text = error.as_db_error().map(ToString::to_string);
        Self {
            state: error.code().map(|code| code.code().to_owned()),
            text: text.unwrap_or_else(|| error.to_string()),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self {
            state: None,
            text: error.to_string(),
        }
    }
}

#[async_trait]
impl AsyncDB for Session {
    type Error = Failure;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<Output, Failure> {
        match &mut self.protocol {
            Protocol::Simple(client) => Ok(simple(client, sql).await?),
            Protocol::Extended(raw) => tokio::task::block_in_place(|| extended(raw, sql)),
        }
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        self.engine
    }

    fn error_sql_state(error: &Failure) -> Option<String> {
        error.state.clone()
    }
}

async fn simple(client: &Client, sql: &str) -> Result<Output, tokio_postgres::Error> {
    let mut output = None;
    let mut count = 0;
    for message in client.simple_query(sql).await? {
        match message {
            SimpleQueryMessage::RowDescription(columns) => {
                output = Some((columns.len(), Vec::new()));
            }
            SimpleQueryMessage::Row(row) => {
                let (columns, rows) = output.as_mut().expect("a row follows its description");
                rows.push(
                    (0..*columns)
                        .map(|at| show(row.get(at)))
                        .collect::<Vec<_>>(),
                );
            }
            SimpleQueryMessage::CommandComplete(affected) => count = affected,
            _ => {}
        }
    }
    let Some((columns, rows)) = output else {
        return Ok(DBOutput::StatementComplete(count));
    };
    let types = types(client, sql, columns).await?;
    Ok(DBOutput::Rows { types, rows })
}

/// The columns' types as a driver learns them; the simple protocol does not say.
async fn types(
    client: &Client,
    sql: &str,
    columns: usize,
) -> Result<Vec<DefaultColumnType>, tokio_postgres::Error> {
    let head = sql
        .trim_start()
        .split(|char: char| !char.is_ascii_alphabetic())
        .next()
        .unwrap_or_default();
    let describes =
        ["select", "values", "with", "table"].contains(&head.to_ascii_lowercase().as_str());
    if !describes || sql.contains(';') {
        return Ok(vec![DefaultColumnType::Any; columns]);
    }
    let statement = client.prepare(sql).await?;
    Ok(statement
        .columns()
        .iter()
        .map(|column| kind(Some(column.type_().clone())))
        .collect())
}

/// Parse, Bind, Describe, Execute and Sync, all unnamed, values as text. Several statements at
/// once, and parameters that nobody gives, are for the simple protocol alone.
fn extended(raw: &mut Raw, sql: &str) -> Result<Output, Failure> {
    let is_several = sql.trim_end().trim_end_matches(';').contains(';');
    // Without values it is another mistake there.
    let has_parameters = sql.contains('$') && !sql.starts_with("PREPARE");
    if is_several || has_parameters {
        raw.send_query(sql.as_bytes())?;
    } else {
        raw.send(b'P', &[b"\0", sql.as_bytes(), b"\0\0\0"].concat())?;
        raw.send(b'B', b"\0\0\0\0\0\0\0\0")?;
        raw.send(b'D', b"P\0")?;
        raw.send(b'E', b"\0\0\0\0\0")?;
        raw.send(b'S', b"")?;
    }
    let messages = raw.read_until_ready()?;
    if let Some(error) = errors(&messages).into_iter().next() {
        let field = |name| error.get(&name).cloned();
        return Err(Failure {
            state: field('C'),
            text: field('M').unwrap_or_default(),
        });
    }
    let (mut types, mut rows, mut count) = (None, Vec::new(), 0);
    for (kind, body) in &messages {
        match kind {
            b'T' => {
                // The last of several statements is what counts.
                types = Some(described(body));
                rows.clear();
            }
            b'D' => {
                let shown = values(body).into_iter();
                rows.push(shown.map(|value| show(value.as_deref())).collect());
            }
            b'C' => {
                let tag = String::from_utf8_lossy(body);
                let last = tag.trim_end_matches('\0').rsplit(' ').next();
                count = last.and_then(|last| last.parse().ok()).unwrap_or(0);
            }
            _ => {}
        }
    }
    Ok(match types {
        Some(types) => DBOutput::Rows { types, rows },
        None => DBOutput::StatementComplete(count),
    })
}

/// The types that a RowDescription names.
fn described(body: &[u8]) -> Vec<DefaultColumnType> {
    let mut rest = &body[2..];
    let mut types = Vec::new();
    while let Some(name_end) = rest.iter().position(|byte| *byte == 0) {
        // Table and attribute, the type, its length and modifier, the format.
        let oid = rest[name_end + 7..].first_chunk().unwrap();
        types.push(kind(Type::from_oid(u32::from_be_bytes(*oid))));
        rest = &rest[name_end + 19..];
    }
    types
}

fn kind(ty: Option<Type>) -> DefaultColumnType {
    match ty {
        Some(Type::INT2 | Type::INT4 | Type::INT8) => DefaultColumnType::Integer,
        Some(Type::FLOAT4 | Type::FLOAT8 | Type::NUMERIC) => DefaultColumnType::FloatingPoint,
        _ => DefaultColumnType::Text,
    }
}

fn show(value: Option<&str>) -> String {
    match value {
        None => "NULL".to_owned(),
        Some("") => "(empty)".to_owned(),
        Some(text) => text.to_owned(),
    }
}

/// Types must agree, where the connection knows them.
#[allow(clippy::ptr_arg)] // The runner asks for exactly this signature.
fn types_agree(actual: &Vec<DefaultColumnType>, expected: &Vec<DefaultColumnType>) -> bool {
    actual.len() == expected.len()
        && actual.iter().zip(expected).all(|(actual, expected)| {
            *actual == DefaultColumnType::Any
                || *expected == DefaultColumnType::Any
                || actual == expected
        })
}

/// Where and how files run.
struct RecordTarget {
    engine: &'static str,
    config: Config,
    setup: Option<String>,
    /// What CREATE DATABASE says besides.
    options: &'static str,
    /// Where the extended protocol is spoken; otherwise the simple one is.
    extended: Option<SocketAddr>,
}

impl RecordTarget {
    async fn connect(&self, database: &str) -> Client {
        let mut config = self.config.clone();
        config.dbname(database);
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Runs a file in a database of its own; gives its number of records and the complaints.
    async fn run(&self, file: &Path) -> (usize, String) {
        let name: String = file.file_stem().unwrap().to_string_lossy().to_lowercase();
        let plain = |char: char| {
            if char.is_ascii_alphanumeric() {
                char
            } else {
                '_'
            }
        };
        let database: String = format!("slt_{name}").chars().map(plain).collect();
        let admin = self.connect(&self.maintenance()).await;
        admin
            .batch_execute(&format!("DROP DATABASE IF EXISTS {database}"))
            .await
            .unwrap();
        admin
            .batch_execute(&format!("CREATE DATABASE {database} {}", self.options))
            .await
            .unwrap();
        let mut runner = Runner::new(async || self.session(&database).await);
        match others().is_empty() {
            true => runner.with_column_validator(types_agree),
            false => runner.with_column_validator(default_column_validator),
        }
        let mut complaints = String::new();
        let records = sqllogictest::parse_file::<DefaultColumnType>(file).unwrap();
        let count = records.len();
        for record in records {
            if let Err(error) = runner.run_async(record).await {
                writeln!(complaints, "{}", error.display(false)).unwrap();
            }
        }
        drop(runner);
        // Sessions end when the server notices; a database in use cannot be dropped.
        drop(admin);
        (count, complaints)
    }

    async fn session(&self, database: &str) -> Result<Session, Failure> {
        let mut setup = vec!["SET timezone = 'UTC'"];
        setup.extend(self.setup.as_deref());
        let protocol = match self.extended {
            Some(address) => {
                let mut raw = Raw::session(address, database);
                for statements in setup {
                    extended(&mut raw, statements)?;
                }
                Protocol::Extended(raw)
            }
            None => {
                let client = self.connect(database).await;
                for statements in setup {
                    client.batch_execute(statements).await?;
                }
                Protocol::Simple(client)
            }
        };
        Ok(Session {
            protocol,
            engine: self.engine,
        })
    }

    fn maintenance(&self) -> String {
        self.config.get_dbname().unwrap_or("aerostat").to_owned()
    }

    async fn run_all(&self) {
        let mut report = String::new();
        let mut records = 0;
        for file in files() {
            let (count, complaints) = self.run(&file).await;
            records += count;
            if !complaints.is_empty() {
                writeln!(report, "== {}\n{complaints}", file.display()).unwrap();
            }
            if self.config.connect(NoTls).await.is_err() {
                writeln!(report, "the node is down after {}", file.display()).unwrap();
                break;
            }
        }
        assert!(
            report.is_empty(),
            "of {records} records, some are not PostgreSQL's:\n{report}"
        );
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// `FILES="a.slt folder"`: these and what is in these, from the project's folder on.
fn others() -> Vec<PathBuf> {
    let named = std::env::var("FILES").unwrap_or_default();
    named
        .split_whitespace()
        .map(|path| root().join(path))
        .collect()
}

fn files() -> Vec<PathBuf> {
    // SLT=joins runs one file.
    let only = std::env::var("SLT").unwrap_or_default();
    let mut left = others();
    let are_ours = left.is_empty();
    if are_ours {
        left.push(root().join("tests/slt"));
    }
    let mut files = Vec::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let inside = std::fs::read_dir(path).unwrap();
            left.extend(inside.map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|ending| ending == "slt") {
            files.push(path);
        }
    }
    files.retain(|path| !are_ours || path.to_string_lossy().contains(&only));
    files.sort();
    assert!(!files.is_empty(), "no file ends in .slt");
    files
}

async fn run_with_layout(layout: &str, fast_path: &str, is_extended: bool) {
    let node = Aerostat::start();
    let setup = Some(format!(
        "SET aerostat.default_layout = '{layout}'; SET enable_fast_path = {fast_path}"
    ));
    let place = RecordTarget {
        engine: "aerostat",
        config: node.config("aerostat"),
        setup,
        options: "",
        extended: is_extended.then_some(node.sql),
    };
    place.run_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_layout_answers_as_postgresql() {
    run_with_layout("row", "on", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn column_layout_answers_as_postgresql() {
    run_with_layout("column", "on", true).await;
}

/// Here without the fast path: both ways are PostgreSQL's.
#[tokio::test(flavor = "multi_thread")]
async fn mixed_layout_answers_as_postgresql() {
    run_with_layout("pairs", "off", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_answers_as_postgresql() {
    let Some(postgres) = Postgres::find().await else {
        return;
    };
    let place = RecordTarget {
        engine: "postgres",
        config: postgres.config("postgres"),
        setup: None,
        // The locale that Aerostat's databases have.
        options: "TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'",
        extended: None,
    };
    place.run_all().await;
}
