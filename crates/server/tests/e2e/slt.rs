//! `tests/slt` against the node, every table in row, column and mixed layout.
//!
//! The expectations are PostgreSQL's (scripts/slt-expect wrote them). With
//! `POSTGRES_URL` set, the files also run against that PostgreSQL, which tests the
//! tests.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use crate::harness::Aerostat;

/// A connection that runs records.
struct Session {
    client: Client,
    engine: &'static str,
}

#[async_trait]
impl AsyncDB for Session {
    type Error = tokio_postgres::Error;
    type ColumnType = DefaultColumnType;

    async fn run(
        &mut self,
        sql: &str,
    ) -> Result<DBOutput<DefaultColumnType>, tokio_postgres::Error> {
        let mut output = None;
        let mut count = 0;
        for message in self.client.simple_query(sql).await? {
            match message {
                SimpleQueryMessage::RowDescription(columns) => {
                    output = Some((columns.len(), Vec::new()))
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
        let types = self.types(sql, columns).await?;
        Ok(DBOutput::Rows { types, rows })
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        self.engine
    }

    fn error_sql_state(error: &tokio_postgres::Error) -> Option<String> {
        error.code().map(|code| code.code().to_owned())
    }
}

impl Session {
    /// The columns' types as a driver learns them; the simple protocol does not say.
    async fn types(
        &self,
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
        let statement = self.client.prepare(sql).await?;
        Ok(statement
            .columns()
            .iter()
            .map(|column| kind(column.type_()))
            .collect())
    }
}

fn kind(ty: &Type) -> DefaultColumnType {
    match *ty {
        Type::INT2 | Type::INT4 | Type::INT8 => DefaultColumnType::Integer,
        Type::FLOAT4 | Type::FLOAT8 | Type::NUMERIC => DefaultColumnType::FloatingPoint,
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
struct Place {
    engine: &'static str,
    config: Config,
    setup: Option<String>,
}

impl Place {
    async fn connect(&self, database: &str) -> Client {
        let mut config = self.config.clone();
        config.dbname(database);
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Runs a file in a database of its own; gives its number of records and the complaints.
    async fn run(&self, file: &Path) -> (usize, String) {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let database = format!("slt_{name}");
        let admin = self.connect(&self.maintenance()).await;
        admin
            .batch_execute(&format!("DROP DATABASE IF EXISTS {database}"))
            .await
            .unwrap();
        admin
            .batch_execute(&format!("CREATE DATABASE {database}"))
            .await
            .unwrap();
        let mut runner = Runner::new(async || {
            let client = self.connect(&database).await;
            client.batch_execute("SET timezone = 'UTC'").await?;
            if let Some(setup) = &self.setup {
                client.batch_execute(setup).await?;
            }
            Ok(Session {
                client,
                engine: self.engine,
            })
        });
        runner.with_column_validator(types_agree);
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

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/slt");
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    // SLT=joins runs one file.
    let only = std::env::var("SLT").unwrap_or_default();
    let mut files: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|ending| ending == "slt"))
        .filter(|path| path.to_string_lossy().contains(&only))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

async fn run_with_layout(layout: &str, fast_path: &str) {
    let node = Aerostat::start();
    let setup = Some(format!(
        "SET aerostat.default_layout = '{layout}'; SET enable_fast_path = {fast_path}"
    ));
    let place = Place {
        engine: "aerostat",
        config: node.config("aerostat"),
        setup,
    };
    place.run_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_layout_answers_as_postgresql() {
    run_with_layout("row", "on").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn column_layout_answers_as_postgresql() {
    run_with_layout("column", "on").await;
}

/// Here without the fast path: both ways are PostgreSQL's.
#[tokio::test(flavor = "multi_thread")]
async fn mixed_layout_answers_as_postgresql() {
    run_with_layout("pairs", "off").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_answers_as_postgresql() {
    let Ok(url) = std::env::var("POSTGRES_URL") else {
        eprintln!("skipped: no POSTGRES_URL");
        return;
    };
    let place = Place {
        engine: "postgres",
        config: url.parse().unwrap(),
        setup: None,
    };
    place.run_all().await;
}
