//! What the engine and the code that serves its clients exchange: descriptions of columns,
//! outcomes of statements, streams of rows, and both directions of COPY. Plain data and small
//! traits; nothing here knows how a statement is planned or which protocol the client speaks.
//! A gateway asks an engine and its sessions through the traits [`Backend`] and [`BackendSession`].
//!
//! ```text
//!  Session::execute ──► Outcome ─┬─ Rows     columns, stream of batches, tag
//!                                ├─ Command  tag
//!                                ├─ CopyIn   the client sends batches ──► CopySink
//!                                ├─ CopyOut  stream of batches to the client
//!                                └─ Empty
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod backend;
mod notification;
mod password;
mod scram;

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use aerostat_types::{Charset, ErrorKind, NUMERIC_DEFAULT, RelationId, SqlError, SqlType, text};
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use futures::Stream;

pub use aerostat_fast::{Rows, Value, check_value_bytes, fitted_text};
pub use aerostat_types::{
    CopyFormat, CopyHeader, CopyOptions, ForceQuote, Notice, NoticeSeverity, Zone,
};
pub use backend::{
    Backend, BackendSession, Canceller, Controls, Copies, Kept, Leader, OtherNodes, OwnCopy, Reads,
    Resumed,
};
pub use notification::Notification;
pub use password::{ITERATIONS, hash_password};
pub use scram::{ScramVerifier, ScramVerifierError};

/// What a word of a statement takes once it is prepared: its part of the syntax tree, of types
/// and of columns. Measured: 410 bytes a number of an IN list, 900 a column with a name, 1,100
/// a number in a sum of products.
const WORD_BYTES: usize = 512;

/// The same of a word that looks like one within a literal. Such a word takes nothing, but that a
/// quote begins a literal is not certain without reading the whole statement.
const QUOTED_WORD_BYTES: usize = WORD_BYTES / 8;

/// What a statement of this text is charged as while it is prepared.
pub fn prepared_bytes(text: &str) -> usize {
    let (mut is_word, mut is_quoted) = (false, false);
    let mut bytes = 2 * text.len();
    for byte in text.bytes() {
        is_quoted ^= byte == b'\'';
        let was_word = is_word;
        is_word = byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii();
        bytes += match (is_word && !was_word, is_quoted) {
            (false, _) => 0,
            (true, false) => WORD_BYTES,
            (true, true) => QUOTED_WORD_BYTES,
        };
    }
    bytes
}

/// Batches of rows, in order. Dropping the stream ends the statement and frees what it holds.
pub struct RowStream(Source);

enum Source {
    Batches(Pin<Box<dyn Stream<Item = Result<RecordBatch, SqlError>> + Send>>),
    /// A few rows that are there already; `None` once they were taken.
    Rows(Option<Rows>),
}

impl RowStream {
    /// Batches that come from somewhere.
    pub fn new(
        batches: impl Stream<Item = Result<RecordBatch, SqlError>> + Send + 'static,
    ) -> Self {
        Self(Source::Batches(Box::pin(batches)))
    }

    /// Rows that are there.
    pub fn of_rows(rows: Rows) -> Self {
        Self(Source::Rows(Some(rows)))
    }

    /// All rows, if they are there as plain values: no batches come then.
    pub fn take_rows(&mut self) -> Option<Rows> {
        match &mut self.0 {
            Source::Batches(_) => None,
            Source::Rows(rows) => rows.take(),
        }
    }
}

impl Stream for RowStream {
    type Item = Result<RecordBatch, SqlError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match &mut self.0 {
            Source::Batches(batches) => batches.as_mut().poll_next(context),
            Source::Rows(rows) => {
                let rows = rows.take().filter(|rows| !rows.is_empty());
                Poll::Ready(rows.map(|rows| {
                    let batch = rows.batch();
                    batch.map_err(|error| SqlError::new(ErrorKind::Internal, error.to_string()))
                }))
            }
        }
    }
}

/// The number of the catalogue entry that a name means, by the number of the type that shows
/// it, such as that of `regclass`; 0 for one that is not there.
pub type EntryNumbers = Arc<dyn Fn(u32, &str) -> i64 + Send + Sync>;

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterType {
    /// Of a value that a column can have.
    Value(SqlType),
    /// Of an array of such values.
    Array(SqlType),
    /// The number of a catalogue entry, `oid`, which travels as a `bigint`.
    Oid,
    /// An array of such numbers.
    OidArray,
}

impl ParameterType {
    /// The type with this number of PostgreSQL's, if a parameter can have it.
    pub fn from_oid(oid: u32) -> Option<Self> {
        match oid {
            26 => Some(Self::Oid),
            1028 => Some(Self::OidArray),
            _ => SqlType::from_oid(oid)
                .map(Self::Value)
                .or_else(|| SqlType::from_array_oid(oid).map(Self::Array)),
        }
    }

    /// PostgreSQL's number for it.
    pub const fn oid(self) -> u32 {
        match self {
            Self::Value(ty) => ty.oid(),
            Self::Array(item) => item.array_oid(),
            Self::Oid => 26,
            Self::OidArray => 1028,
        }
    }

    /// The type of its values; `None` of an array.
    pub const fn value(self) -> Option<SqlType> {
        match self {
            Self::Value(ty) => Some(ty),
            Self::Oid => Some(SqlType::BigInt),
            Self::Array(_) | Self::OidArray => None,
        }
    }

    /// The type of the items of an array; `None` of any other.
    pub const fn item(self) -> Option<SqlType> {
        match self {
            Self::Array(item) => Some(item),
            Self::OidArray => Some(SqlType::BigInt),
            Self::Value(_) | Self::Oid => None,
        }
    }

    /// The type without the length or digits that it was declared with, which PostgreSQL does not keep.
    pub const fn of_any_length(self) -> Self {
        match self {
            Self::Value(SqlType::Varchar(_)) => Self::Value(SqlType::Varchar(None)),
            Self::Value(SqlType::Char(_)) => Self::Value(SqlType::BPCHAR),
            Self::Value(SqlType::Numeric { .. }) => Self::Value(NUMERIC_DEFAULT),
            other => other,
        }
    }

    /// The type that values have when they are handed over: that of an array is its text.
    pub const fn carrier(self) -> SqlType {
        match self.value() {
            Some(ty) => ty,
            None => SqlType::Text,
        }
    }
}

impl fmt::Display for ParameterType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(ty) => ty.fmt(f),
            Self::Array(item) => write!(f, "{item}[]"),
            Self::Oid => f.write_str("oid"),
            Self::OidArray => f.write_str("oid[]"),
        }
    }
}

/// A column of a result, as a client is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnDescription {
    /// The column's name.
    pub name: String,
    /// The SQL type, where the column has one of ours. `None` for arrays, `oid`,
    /// `name`, `"char"` and the other types that only the catalogue shows.
    pub ty: Option<SqlType>,
    /// PostgreSQL's number for the type; decides the form of values on the wire.
    pub oid: u32,
    /// PostgreSQL's type modifier, −1 for none.
    pub typmod: i32,
    /// PostgreSQL's `typlen`: bytes of a fixed-width value, −1 otherwise.
    pub typlen: i16,
    /// The OID of the table the column comes from; none for an expression.
    pub table_oid: RelationId,
    /// The column's number in that table from 1, 0 for an expression.
    pub attnum: i16,
}

/// Statements that are one transaction, if the client has opened none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Several, of one message: each is in a transaction block.
    Message,
    /// Those up to a Sync, which may be one. As in PostgreSQL the first is in no transaction block,
    /// whether others follow or not: what it may do must not depend on when the next one comes.
    Pipeline,
}

/// What a statement says whose result has become another since a client was told of it, as in
/// PostgreSQL.
pub const RESULT_CHANGED: &str = "cached plan must not change result type";

/// Whether rows of the one description can be read by the other: names and types are the same.
/// Which tables the columns come from is no part of a row.
pub fn is_shape_of(described: &[ColumnDescription], columns: &[ColumnDescription]) -> bool {
    let key = |column: &ColumnDescription| (column.oid, column.typmod);
    let is_same = |(one, other): (&ColumnDescription, &ColumnDescription)| {
        key(one) == key(other) && one.name == other.name
    };
    std::ptr::eq(described, columns)
        || described.len() == columns.len() && described.iter().zip(columns).all(is_same)
}

impl ColumnDescription {
    /// A column of one of our types that comes from no table.
    pub fn new(name: impl Into<String>, ty: SqlType) -> Self {
        Self {
            name: name.into(),
            ty: Some(ty),
            oid: ty.oid(),
            typmod: ty.typmod(),
            typlen: ty.typlen(),
            table_oid: RelationId::NONE,
            attnum: 0,
        }
    }

    /// A column of another PostgreSQL type, such as `name[]`.
    pub fn of_oid(name: impl Into<String>, oid: u32, typlen: i16) -> Self {
        Self {
            name: name.into(),
            ty: None,
            oid,
            typmod: -1,
            typlen,
            table_oid: RelationId::NONE,
            attnum: 0,
        }
    }
}

/// The words that end a statement which returned rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowsTag {
    /// `SELECT n`; also VALUES and TABLE.
    Select,
    /// `INSERT 0 n`, with RETURNING.
    Insert,
    /// `UPDATE n`, with RETURNING.
    Update,
    /// `DELETE n`, with RETURNING.
    Delete,
    /// `MERGE n`.
    Merge,
    /// `FETCH n`.
    Fetch,
    /// Words without a number: `SHOW`, `EXPLAIN`.
    Words(String),
}

impl RowsTag {
    /// The tag after `rows` rows.
    pub fn after(&self, rows: u64) -> String {
        let words = match self {
            RowsTag::Select => "SELECT ",
            RowsTag::Insert => "INSERT 0 ",
            RowsTag::Update => "UPDATE ",
            RowsTag::Delete => "DELETE ",
            RowsTag::Merge => "MERGE ",
            RowsTag::Fetch => "FETCH ",
            RowsTag::Words(words) => return words.clone(),
        };
        let mut tag = String::with_capacity(words.len() + 20);
        tag.push_str(words);
        text::format_int(i64::try_from(rows).unwrap_or(i64::MAX), &mut tag);
        tag
    }
}

/// What a statement came to.
pub enum Outcome {
    /// Rows, which come while the statement still runs.
    Rows {
        /// The columns, as many as each batch has.
        columns: Arc<[ColumnDescription]>,
        /// The rows.
        batches: RowStream,
        /// How the statement ends.
        tag: RowsTag,
    },
    /// A statement without rows, done.
    Command {
        /// The command tag: `CREATE TABLE`, `INSERT 0 5`.
        tag: String,
    },
    /// COPY FROM STDIN waits for rows.
    CopyIn(CopyIn),
    /// COPY TO STDOUT has rows.
    CopyOut(CopyOut),
    /// An empty statement.
    Empty,
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Rows { columns, tag, .. } => f
                .debug_struct("Rows")
                .field("columns", columns)
                .field("tag", tag)
                .finish_non_exhaustive(),
            Outcome::Command { tag } => f.debug_struct("Command").field("tag", tag).finish(),
            Outcome::CopyIn(copy) => f
                .debug_struct("CopyIn")
                .field("columns", &copy.columns)
                .finish_non_exhaustive(),
            Outcome::CopyOut(copy) => f
                .debug_struct("CopyOut")
                .field("columns", &copy.columns)
                .finish_non_exhaustive(),
            Outcome::Empty => f.write_str("Empty"),
        }
    }
}

/// A column that COPY FROM fills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyColumn {
    /// Its name.
    pub name: String,
    /// Its type; batches carry it as [`SqlType::arrow`]. The reader sees to it that texts are
    /// as long as `char(n)` and `varchar(n)` allow, and says where in the data one is not.
    pub ty: SqlType,
    /// Whether it takes NULL. The engine checks; the reader need not.
    pub nullable: bool,
}

/// COPY FROM STDIN under way. Dropping it aborts the statement.
pub struct CopyIn {
    /// The table's name, for the context of errors.
    pub table: String,
    /// The columns of the batches, in order.
    pub columns: Vec<CopyColumn>,
    /// How the data are written.
    pub options: CopyOptions,
    sink: Box<dyn CopySink>,
}

impl CopyIn {
    /// A COPY into `table` whose rows go to `sink`.
    pub fn new(
        table: String,
        columns: Vec<CopyColumn>,
        options: CopyOptions,
        sink: Box<dyn CopySink>,
    ) -> Self {
        Self {
            table,
            columns,
            options,
            sink,
        }
    }

    /// Takes rows. Waits while the engine is behind, which is the back-pressure.
    ///
    /// # Errors
    /// What the engine refuses; the statement has failed then.
    pub async fn write(&mut self, batch: RecordBatch) -> Result<(), SqlError> {
        self.sink.write(batch).await
    }

    /// Ends the statement and gives its tag, `COPY n`.
    ///
    /// # Errors
    /// What the engine refuses; nothing was copied then.
    pub async fn finish(self) -> Result<String, SqlError> {
        self.sink.finish().await
    }

    /// Ends the statement without effect.
    pub async fn abort(self) {
        self.sink.abort().await;
    }
}

/// Where the rows of a COPY FROM go. Dropping it is the same as `abort`.
#[async_trait]
pub trait CopySink: Send {
    /// Takes rows, in the order and types of [`CopyIn::columns`].
    async fn write(&mut self, batch: RecordBatch) -> Result<(), SqlError>;
    /// Commits and gives the tag.
    async fn finish(self: Box<Self>) -> Result<String, SqlError>;
    /// Undoes.
    async fn abort(self: Box<Self>);
}

/// COPY TO STDOUT under way. Its tag is `COPY` and the number of rows.
pub struct CopyOut {
    /// The columns of the batches, in order.
    pub columns: Arc<[ColumnDescription]>,
    /// How the data are to be written.
    pub options: CopyOptions,
    /// The rows.
    pub batches: RowStream,
}

/// Where a session stands, for `ReadyForQuery`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionStatus {
    /// No transaction block.
    #[default]
    Idle,
    /// In a transaction block.
    InTransaction,
    /// In a transaction block that has failed.
    Failed,
}

/// How a client is written to.
#[derive(Clone, Copy, Debug)]
pub struct ClientSettings {
    /// The time zone that `timestamptz` values are shown in.
    pub zone: Zone,
    /// How the client's texts are converted; `None` if they are as the server's.
    pub charset: Option<&'static Charset>,
}

/// How long a client may send nothing, and the error that ends its session then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleLimit {
    /// From `ReadyForQuery` on.
    pub timeout: Duration,
    /// Whether the client is in a transaction meanwhile, and holds others up.
    pub in_transaction: bool,
}

/// How a client has reached the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Its address and port; `None` for a Unix-domain socket.
    pub address: Option<(String, u16)>,
    /// The encryption, if there is any.
    pub tls: Option<TlsDescription>,
}

/// What a client and the node have agreed on in TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsDescription {
    /// The version as PostgreSQL writes it: `TLSv1.3`.
    pub version: &'static str,
    /// The name of the cipher suite.
    pub cipher: String,
    /// Bits of the cipher's key.
    pub bits: u16,
}

/// What the gateway needs to know of a role before it lets a client in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleInfo {
    /// The role's name.
    pub name: String,
    /// Whether it may connect at all.
    pub login: bool,
    /// Whether it is a superuser.
    pub superuser: bool,
    /// What proves its password; `None` when it has none.
    pub scram: Option<ScramVerifier>,
    /// How many connections it may have at once; `None` for no limit.
    pub connection_limit: Option<u32>,
}
