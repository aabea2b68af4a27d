//! A fake engine, which does what a statement's words say.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use aerostat_types::{ErrorKind, SqlError, SqlType};
use arrow::{
    array::{ArrayRef, Int32Array, RecordBatch, StringViewArray},
    datatypes::Schema,
};
use async_trait::async_trait;
use futures::{StreamExt, stream};
use tokio::sync::watch;

use crate::api::{
    Backend, BackendSession, Canceller, Client, ClientSettings, ColumnDescription, Controls,
    CopyColumn, CopyFormat, CopyIn, CopyOptions, CopyOut, CopySink, EntryNumbers, Group, IdleLimit,
    Kept, Notice, NoticeSeverity, Notification, Outcome, ParameterType, Resumed, RoleInfo,
    RowStream, Rows, RowsTag, ScramVerifier, TransactionStatus, Value, Zone,
};

/// What the fake engine has seen.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) copied: Mutex<Vec<RecordBatch>>,
    pub(super) copies_finished: AtomicUsize,
    pub(super) copies_aborted: AtomicUsize,
    pub(super) cancels: AtomicUsize,
    pub(super) statements: AtomicUsize,
    pub(super) streams_dropped: AtomicUsize,
    pub(super) batches_streamed: AtomicUsize,
    pub(super) sessions_opened: AtomicUsize,
    pub(super) sessions_dropped: AtomicUsize,
    pub(super) client: Mutex<Option<Client>>,
    pub(super) held_bytes: AtomicUsize,
    /// How often memory was asked for and granted.
    pub(super) holds: AtomicUsize,
}

/// How much memory all sessions of the fake engine may hold.
pub(super) const HELD_BYTES_MAX: usize = 200 << 20;

/// Memory that a session of the fake engine has granted.
pub(super) struct Held(Arc<Seen>, usize);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.held_bytes.fetch_sub(self.1, Ordering::SeqCst);
    }
}

#[derive(Default)]
pub(super) struct Fake {
    pub(super) seen: Arc<Seen>,
    pub(super) password: Option<ScramVerifier>,
}

pub(super) struct FakeSession {
    number: i32,
    seen: Arc<Seen>,
    cancel: watch::Sender<u64>,
    status: TransactionStatus,
    notices: Vec<Notice>,
    changes: Vec<(String, String)>,
    zone: Zone,
    idle: Option<IdleLimit>,
    kept: HashMap<String, (Kept<FakePrepared>, Held)>,
}

pub(super) struct FakePrepared {
    sql: String,
    parameters: Vec<ParameterType>,
    columns: Option<Arc<[ColumnDescription]>>,
}

pub(super) const ALL_TYPES: [SqlType; 17] = [
    SqlType::Boolean,
    SqlType::SmallInt,
    SqlType::Integer,
    SqlType::BigInt,
    SqlType::Real,
    SqlType::Double,
    SqlType::Numeric {
        precision: 20,
        scale: 4,
    },
    SqlType::Char(5),
    SqlType::Varchar(Some(40)),
    SqlType::Text,
    SqlType::Bytea,
    SqlType::Uuid,
    SqlType::Date,
    SqlType::Time,
    SqlType::Timestamp,
    SqlType::TimestampTz,
    SqlType::Interval,
];

impl Backend for Fake {
    type Session = FakeSession;

    fn role(&self, name: &str) -> Option<RoleInfo> {
        let known = ["ann", "bob", "nologin", "limited"].contains(&name);
        known.then(|| RoleInfo {
            name: name.to_owned(),
            login: name != "nologin",
            superuser: name == "ann",
            scram: (name == "bob").then(|| self.password.clone()).flatten(),
            connection_limit: (name == "limited").then_some(1),
        })
    }

    async fn connect(
        self: &Arc<Self>,
        _: &str,
        database: &str,
        settings: &[(String, String)],
    ) -> Result<FakeSession, SqlError> {
        if database == "missing" {
            return Err(SqlError::new(
                ErrorKind::InvalidCatalogName,
                "database \"missing\" does not exist",
            ));
        }
        let zone = settings
            .iter()
            .find(|(name, _)| name == "TimeZone")
            .and_then(|(_, zone)| Zone::named(zone));
        // The numbers do not begin at 1, so that they differ from a count of the gateway's own.
        let before = self.seen.sessions_opened.fetch_add(1, Ordering::SeqCst);
        Ok(FakeSession {
            number: 1_000 + i32::try_from(before).unwrap(),
            seen: self.seen.clone(),
            cancel: watch::channel(0).0,
            status: TransactionStatus::Idle,
            notices: Vec::new(),
            changes: Vec::new(),
            zone: zone.unwrap_or_default(),
            idle: None,
            kept: HashMap::new(),
        })
    }

    async fn resume(
        self: &Arc<Self>,
        role: &str,
        database: &str,
        settings: &[(String, String)],
        _: &[u8],
    ) -> Result<Resumed<FakeSession>, SqlError> {
        Ok((self.connect(role, database, settings).await?, None))
    }
}

fn cancelled() -> SqlError {
    SqlError::new(
        ErrorKind::QueryCanceled,
        "canceling statement due to user request",
    )
}

pub(super) fn numbers(range: std::ops::Range<i32>) -> RecordBatch {
    let schema = Arc::new(Schema::new(vec![SqlType::Integer.field("n", false)]));
    RecordBatch::try_new(schema, vec![Arc::new(Int32Array::from_iter_values(range))]).unwrap()
}

struct CountDrop(Arc<Seen>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.streams_dropped.fetch_add(1, Ordering::SeqCst);
    }
}

struct Sink {
    seen: Arc<Seen>,
    rows: usize,
    done: bool,
}

#[async_trait]
impl CopySink for Sink {
    async fn write(&mut self, batch: RecordBatch) -> Result<(), SqlError> {
        self.rows += batch.num_rows();
        self.seen.copied.lock().unwrap().push(batch);
        Ok(())
    }

    async fn finish(mut self: Box<Self>) -> Result<String, SqlError> {
        self.done = true;
        self.seen.copies_finished.fetch_add(1, Ordering::SeqCst);
        Ok(format!("COPY {}", self.rows))
    }

    async fn abort(mut self: Box<Self>) {}
}

impl Drop for Sink {
    fn drop(&mut self) {
        if !self.done {
            self.seen.copies_aborted.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn copy_format(word: &str) -> CopyOptions {
    CopyOptions::new(match word {
        "csv" => CopyFormat::Csv,
        "binary" => CopyFormat::Binary,
        _ => CopyFormat::Text,
    })
}

impl FakeSession {
    fn rows(&self, batches: Vec<RecordBatch>, columns: Vec<ColumnDescription>) -> Outcome {
        let seen = self.seen.clone();
        let guard = CountDrop(seen.clone());
        let stream = stream::iter(batches.into_iter().map(Ok)).inspect(move |_| {
            let _ = &guard;
            seen.batches_streamed.fetch_add(1, Ordering::SeqCst);
        });
        Outcome::Rows {
            columns: columns.into(),
            batches: RowStream::new(stream),
            tag: RowsTag::Select,
        }
    }

    async fn run(&mut self, sql: &str, parameters: &[Value]) -> Result<Outcome, SqlError> {
        self.seen.statements.fetch_add(1, Ordering::SeqCst);
        let words: Vec<&str> = sql.split_whitespace().collect();
        let n = || vec![ColumnDescription::new("n", SqlType::Integer)];
        let command = |tag: &str| {
            Ok(Outcome::Command {
                tag: tag.to_owned(),
            })
        };
        match words[..] {
            [] => Ok(Outcome::Empty),
            ["begin"] => {
                self.status = TransactionStatus::InTransaction;
                command("BEGIN")
            }
            ["commit"] => {
                self.status = TransactionStatus::Idle;
                command("COMMIT")
            }
            ["notice"] => {
                self.notices
                    .push(Notice::new(NoticeSeverity::Warning, "look out"));
                command("NOTICE")
            }
            ["idle", millis, place] => {
                self.idle = Some(IdleLimit {
                    timeout: Duration::from_millis(millis.parse().unwrap()),
                    in_transaction: place == "transaction",
                });
                command("SET")
            }
            ["zone", zone] => {
                self.zone = Zone::named(zone).unwrap();
                self.changes.push(("TimeZone".to_owned(), zone.to_owned()));
                command("SET")
            }
            ["error"] => Err(SqlError {
                object: Some(Box::new((
                    "public".to_owned(),
                    "t".to_owned(),
                    Some("a".to_owned()),
                ))),
                ..SqlError::new(
                    ErrorKind::UniqueViolation,
                    "duplicate key value violates unique constraint \"t_pkey\"",
                )
                .with_detail("Key (a)=(1) already exists.")
                .with_hint("Choose another.")
                .with_position(7)
                .with_constraint("t_pkey")
            }),
            ["count", count] => {
                let count: i32 = count.parse().unwrap();
                let batches = (0..count)
                    .step_by(100)
                    .map(|from| numbers(from..count.min(from + 100)))
                    .collect();
                Ok(self.rows(batches, n()))
            }
            ["sleep"] => {
                let mut cancel = self.cancel.subscribe();
                match tokio::time::timeout(Duration::from_secs(30), cancel.changed()).await {
                    Ok(_) => Err(cancelled()),
                    Err(_) => command("SLEEP"),
                }
            }
            ["forever"] => {
                let guard = CountDrop(self.seen.clone());
                let stream = stream::repeat_with(move || {
                    let _ = &guard;
                    Ok(numbers(0..8192))
                });
                Ok(Outcome::Rows {
                    columns: n().into(),
                    batches: RowStream::new(stream),
                    tag: RowsTag::Select,
                })
            }
            ["stall"] => {
                let guard = CountDrop(self.seen.clone());
                let stream = stream::iter([Ok(numbers(0..3))])
                    .chain(stream::pending())
                    .inspect(move |_| {
                        let _ = &guard;
                    });
                Ok(Outcome::Rows {
                    columns: n().into(),
                    batches: RowStream::new(stream),
                    tag: RowsTag::Select,
                })
            }
            ["fail-late"] => {
                let failing = stream::iter([
                    Ok(numbers(0..3)),
                    Err(SqlError::new(ErrorKind::DivisionByZero, "division by zero")),
                ]);
                Ok(Outcome::Rows {
                    columns: n().into(),
                    batches: RowStream::new(failing),
                    tag: RowsTag::Select,
                })
            }
            // The parameters are returned, as plain values or as columns.
            [word @ ("echo" | "echo-columns"), ..] => {
                let types = &ALL_TYPES[..parameters.len()];
                let fields: Vec<_> = types.iter().map(|ty| ty.field("v", true)).collect();
                let schema = Arc::new(Schema::new(fields));
                let rows = Rows::new(schema, types.into(), parameters.to_vec());
                let columns = types.iter().map(|ty| ColumnDescription::new("v", *ty));
                if word == "echo-columns" {
                    return Ok(self.rows(vec![rows.batch().unwrap()], columns.collect()));
                }
                Ok(Outcome::Rows {
                    columns: columns.collect(),
                    batches: RowStream::of_rows(rows),
                    tag: RowsTag::Select,
                })
            }
            ["copy", "in", format] => {
                let columns = vec![
                    CopyColumn {
                        name: "a".to_owned(),
                        ty: SqlType::Integer,
                        nullable: true,
                    },
                    CopyColumn {
                        name: "b".to_owned(),
                        ty: SqlType::Text,
                        nullable: true,
                    },
                ];
                let sink = Sink {
                    seen: self.seen.clone(),
                    rows: 0,
                    done: false,
                };
                Ok(Outcome::CopyIn(CopyIn::new(
                    "t".to_owned(),
                    columns,
                    copy_format(format),
                    Box::new(sink),
                )))
            }
            ["copy", "out", format] => {
                let schema = Schema::new(vec![
                    SqlType::Integer.field("a", true),
                    SqlType::Text.field("b", true),
                ]);
                let texts = StringViewArray::from(vec![Some("x\ty"), None, Some("a,\"b\"\nc")]);
                let columns: Vec<ArrayRef> =
                    vec![Arc::new(Int32Array::from(vec![1, 2, 3])), Arc::new(texts)];
                let batch = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
                let columns = vec![
                    ColumnDescription::new("a", SqlType::Integer),
                    ColumnDescription::new("b", SqlType::Text),
                ];
                Ok(Outcome::CopyOut(CopyOut {
                    columns: columns.into(),
                    options: copy_format(format),
                    batches: RowStream::new(stream::iter([Ok(batch)])),
                }))
            }
            _ => Err(SqlError::new(
                ErrorKind::SyntaxError,
                format!("syntax error at or near \"{sql}\""),
            )),
        }
    }
}

impl Drop for FakeSession {
    fn drop(&mut self) {
        self.seen.sessions_dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl BackendSession for FakeSession {
    type Statement = String;
    type Prepared = FakePrepared;

    type Held = Held;

    fn hold(&self, bytes: usize) -> Result<Held, SqlError> {
        let before = self.seen.held_bytes.fetch_add(bytes, Ordering::SeqCst);
        let held = Held(self.seen.clone(), bytes);
        if before + bytes <= HELD_BYTES_MAX {
            self.seen.holds.fetch_add(1, Ordering::SeqCst);
            return Ok(held);
        }
        Err(SqlError::new(ErrorKind::OutOfMemory, "no memory"))
    }

    fn number(&self) -> i32 {
        self.number
    }

    fn canceller(&self) -> Canceller {
        let (cancel, seen) = (self.cancel.clone(), self.seen.clone());
        Arc::new(move || {
            seen.cancels.fetch_add(1, Ordering::SeqCst);
            cancel.send_modify(|count| *count += 1);
        })
    }

    async fn split(&mut self, sql: &str) -> Result<Vec<String>, SqlError> {
        Ok(sql
            .split(';')
            .map(|part| part.trim().to_owned())
            .filter(|part| !part.is_empty())
            .collect())
    }

    async fn prepare(&mut self, sql: &str, _: &[u32]) -> Result<FakePrepared, SqlError> {
        let words: Vec<&str> = sql.split_whitespace().collect();
        let count = if matches!(words.first(), Some(&"echo" | &"echo-columns")) {
            words[1].parse().unwrap()
        } else {
            0
        };
        let types = &ALL_TYPES[..count];
        let columns = match words.first() {
            Some(&"echo" | &"echo-columns") => Some(
                types
                    .iter()
                    .map(|ty| ColumnDescription::new("v", *ty))
                    .collect(),
            ),
            Some(&"count" | &"forever" | &"stall" | &"fail-late") => {
                Some(vec![ColumnDescription::new("n", SqlType::Integer)])
            }
            Some(&"nonsense") => {
                return Err(SqlError::new(ErrorKind::SyntaxError, "syntax error").with_position(1));
            }
            _ => None,
        };
        Ok(FakePrepared {
            sql: sql.to_owned(),
            parameters: types.iter().copied().map(ParameterType::Value).collect(),
            columns: columns.map(Into::into),
        })
    }

    fn admit_name(&self, name: &str) -> Result<(), SqlError> {
        match self.kept.contains_key(name) {
            true => Err(SqlError::new(
                ErrorKind::DuplicatePreparedStatement,
                format!("prepared statement \"{name}\" already exists"),
            )),
            false => Ok(()),
        }
    }

    fn keep(&mut self, name: &str, prepared: Arc<FakePrepared>, oids: Arc<[u32]>, held: Held) {
        let kept = ((prepared, oids), held);
        self.kept.insert(name.to_owned(), kept);
    }

    fn kept(&self, name: &str) -> Option<Kept<FakePrepared>> {
        self.kept.get(name).map(|(kept, _)| kept.clone())
    }

    fn kept_to_run(&self, name: &str) -> Option<Arc<FakePrepared>> {
        self.kept(name).map(|(prepared, _)| prepared)
    }

    fn forget(&mut self, name: &str) {
        self.kept.remove(name);
    }

    fn parameters(prepared: &FakePrepared) -> &[ParameterType] {
        &prepared.parameters
    }

    fn columns(prepared: &FakePrepared) -> Option<Arc<[ColumnDescription]>> {
        prepared.columns.clone()
    }

    async fn execute(&mut self, statement: &String) -> Result<Outcome, SqlError> {
        self.run(statement, &[]).await
    }

    async fn execute_prepared(
        &mut self,
        prepared: &FakePrepared,
        parameters: &Arc<[Value]>,
    ) -> Result<Outcome, SqlError> {
        self.run(&prepared.sql, parameters).await
    }

    fn cursor_columns(&self, _: &str) -> Option<Arc<[ColumnDescription]>> {
        None
    }

    fn entry_numbers(&self) -> Result<EntryNumbers, SqlError> {
        Ok(Arc::new(|_, name| name.len() as i64))
    }

    fn begin_group(&mut self, _: Group) {}

    async fn end_group(&mut self) -> Result<(), SqlError> {
        Ok(())
    }

    fn fail(&mut self) {
        if self.status == TransactionStatus::InTransaction {
            self.status = TransactionStatus::Failed;
        }
    }

    fn rest(&mut self) -> TransactionStatus {
        self.status
    }

    fn idle_limit(&mut self) -> Option<IdleLimit> {
        self.idle
    }

    fn set_client(&mut self, client: Client) {
        *self.seen.client.lock().unwrap() = Some(client);
    }

    fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    fn parameter_changes(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.changes)
    }

    fn reported_parameters(&self) -> Vec<(String, String)> {
        vec![("search_path".to_owned(), "public".to_owned())]
    }

    fn client_settings(&mut self) -> ClientSettings {
        ClientSettings {
            zone: self.zone,
            charset: None,
        }
    }

    fn set_controls(&mut self, _controls: Controls) {}

    fn notified(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    fn take_notifications(&mut self) -> Vec<Arc<Notification>> {
        Vec::new()
    }
}
