//! Imports a PostgreSQL database into Aerostat: first its rows, then their changes, by logical replication.
//!
//! ```text
//!  PostgreSQL ── COPY under the slot's snapshot ──► rows ────┐
//!      │                                                     ├─► Aerostat, over the wire
//!      └──────── pgoutput, from the slot's position ► changes┘     rows and aerostat_import.progress
//!      ◄──────── confirmed: what the target committed ────────     in one transaction
//! ```
//!
//! Invariants:
//!
//! * The target is as of the end of a transaction of the source, and `aerostat_import.progress` says of which: both
//!   are in the same transaction. So each change is made exactly once, however often an importer dies.
//! * The source may forget only what the target has committed.
//! * Nothing is changed on either side before everything is known to fit; what does not is told by name.
//! * A table that changes its definition stops the import before the first row of the new form, with the statement
//!   that makes the target's table alike.
//!
//! The crate knows nothing of Aerostat's insides: the target is whoever answers. Values go by their texts. What a user
//! needs to know is in `docs/import.md`.

#![forbid(unsafe_code)]

mod apply;
mod catalog;
mod compared;
mod connect;
mod copy;
mod counters;
mod differences;
mod error;
mod follow;
mod following;
mod lsn;
pub mod pgoutput;
mod plan;
mod record;
mod run;
mod slot;
mod sql;
mod statements;
mod tables;
mod task;
mod types;
mod watch;
mod wire;

use std::{path::PathBuf, time::Duration};

pub use error::{Complaint, ImportError};
pub use lsn::{Lsn, LsnSyntax};
pub use run::run;

/// What to import, from where and to where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The source: a URL or a list of `key=value`, as libpq takes them, with its database. With `sslmode=require` the
    /// connection is encrypted, and the source's certificate is checked; with no other mode it is encrypted.
    pub source: String,
    /// The target: an Aerostat node and a database of it. The same of encryption.
    pub target: tokio_postgres::Config,
    /// A file in PEM with the certificates to trust, of servers or of their issuers. If `None`, those of the system.
    pub trust: Option<PathBuf>,
    /// The name of the import, by which it is found again: lower-case letters, digits and underscores, at most 63
    /// bytes. It also names the slot and the publication. If `None`, it is `aerostat_` and the target's database.
    pub name: Option<String>,
    /// A publication of the source to use. If `None`, one is made of the tables, which must be the role's own.
    pub publication: Option<String>,
    /// Schemas to import; together with `tables`, all of them if both are empty.
    pub schemas: Vec<String>,
    /// Tables to import: `schema.table`, or `table` of `public`.
    pub tables: Vec<String>,
    /// Tables to leave out.
    pub exclude: Vec<String>,
    /// What to do.
    pub action: Action,
    /// Takes columns of types that the target has not as texts, instead of refusing them.
    pub as_text: bool,
    /// Empties tables of the target that have rows, instead of refusing them.
    pub truncate: bool,
    /// How long an import that is under way waits for a source or a target that does not answer. Zero does not wait.
    pub patience: Duration,
}

impl Options {
    /// Copies everything and follows it, with an hour of patience.
    pub fn new(source: impl Into<String>, target: tokio_postgres::Config) -> Options {
        Options {
            source: source.into(),
            target,
            trust: None,
            name: None,
            publication: None,
            schemas: Vec::new(),
            tables: Vec::new(),
            exclude: Vec::new(),
            action: Action::Follow,
            as_text: false,
            truncate: false,
            patience: Duration::from_secs(3600),
        }
    }
}

/// What an import does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Copies, or goes on where it was, and follows until it is stopped.
    Follow,
    /// Copies once. It needs nothing of replication, and leaves nothing behind.
    Once,
    /// Follows up to where the source is now, sets sequences, adds foreign keys, and takes slot, publication and
    /// progress away: the last step of a switch-over, after the last writer of the source.
    Finish,
    /// Takes slot, publication and progress away, and leaves the target's tables as they are.
    Drop,
}

/// What happens while an import runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Something to know that stops nothing: what differs at the target, a table that is new at the source.
    Note(String),
    /// A slot is made, for which the source waits until the transactions that write at the moment have ended.
    MakingSlot,
    /// Rows of a table are at the target.
    Copied {
        /// The table, with its schema.
        table: String,
        /// How many so far.
        rows: u64,
        /// Bytes of their texts so far.
        bytes: u64,
        /// Whether these are all.
        whole: bool,
    },
    /// Changes are followed. Told every second.
    Following {
        /// Where the target is in the source's log.
        lsn: Lsn,
        /// How many bytes of log the source has that are not at the target.
        lag_bytes: u64,
        /// How long ago, by the source's clock, the target was as the source.
        lag: Duration,
        /// Transactions made at the target by this run.
        transactions: u64,
        /// Changes of rows made by this run.
        changes: u64,
    },
    /// The connection to one side failed, and the import goes on after a wait.
    Waiting {
        /// Why, with its causes.
        reason: String,
        /// How long.
        wait: Duration,
    },
}

/// Who is told what happens.
pub trait Progress: Send {
    /// Something happened. The import waits for the return.
    fn tell(&mut self, event: &Event);
}

impl<F: FnMut(&Event) + Send> Progress for F {
    fn tell(&mut self, event: &Event) {
        self(event);
    }
}

/// What a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The name of the import.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Rows copied by this run.
    pub rows: u64,
    /// Transactions of the source made at the target by this run.
    pub transactions: u64,
    /// Changes of rows made at the target by this run.
    pub changes: u64,
    /// Where the target is in the source's log, if changes are followed.
    pub lsn: Option<Lsn>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All rows are copied.
    Copied,
    /// The target is its own master.
    Finished,
    /// The import is gone.
    Dropped,
    /// It was stopped, and goes on where it was when it is run again.
    Stopped,
}
