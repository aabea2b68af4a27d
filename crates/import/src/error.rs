//! Why an import does not begin, stops, or cannot go on.

use std::{fmt, io};

use tokio_postgres::error::SqlState;

use crate::{lsn::Lsn, pgoutput::DecodeError};

/// Why an import does not begin, or stops. Nothing is half applied: the target is as of the end of a transaction of
/// the source, and the import can be run again.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// An option says nothing that can be done.
    #[error("{0}")]
    Options(String),
    /// The source, or what it has, cannot be imported. Nothing was changed.
    #[error("this cannot be imported:{}", lines(.0))]
    Unfit(Vec<Complaint>),
    /// The source gave an error.
    #[error("the source fails: {what}")]
    Source {
        /// What was asked of it.
        what: String,
        /// The error.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The source gave an error on the connection of replication.
    #[error("the source refuses {what}: {message} (SQLSTATE {code}){}", also(.hint))]
    SourceRefused {
        /// What was asked of it.
        what: String,
        /// Its SQLSTATE.
        code: String,
        /// Its message.
        message: String,
        /// Its detail and hint.
        hint: Option<String>,
    },
    /// The connection of replication cannot be made, or ended.
    #[error("the source cannot be reached: {what}")]
    SourceLost {
        /// What was being done.
        what: String,
        /// The error.
        #[source]
        source: io::Error,
    },
    /// The source says what the protocol does not have.
    #[error("the source sends what the protocol does not have: {0}")]
    Protocol(String),
    /// A message of the output plugin cannot be read.
    #[error("the source sends what cannot be read")]
    Decode(#[from] DecodeError),
    /// The target gave an error.
    #[error("the target fails: {what}")]
    Target {
        /// What was asked of it.
        what: String,
        /// The error.
        #[source]
        source: tokio_postgres::Error,
    },
    /// A table is not the same on both sides any more. What came before is applied.
    #[error("{table} differs at the source:{}{}", lines(.differences), run(.statements))]
    Difference {
        /// The table, at the source.
        table: String,
        /// What differs.
        differences: Vec<String>,
        /// What makes the target's table the same.
        statements: Vec<String>,
    },
    /// A row that the source changed is not at the target.
    #[error(
        "{table} has no row {key} at the target, which the source {action}; somebody else changed the target"
    )]
    Missing {
        /// The table.
        table: String,
        /// The row's key and its value.
        key: String,
        /// What the source did with the row.
        action: &'static str,
    },
    /// The target refuses a row of the source.
    #[error("{table} cannot take a row of the source at the target: {message}{}", also(.detail))]
    Conflict {
        /// The table.
        table: String,
        /// The target's message.
        message: String,
        /// The target's detail, which names the key.
        detail: Option<String>,
    },
    /// A number has more digits than the target's column.
    #[error(
        "{table}: the target's column {column} has {scale} digits after the point, and {value} more of them; \
        give it a type with more digits, such as numeric(38,20), before the import begins"
    )]
    Digits {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// How many digits after the point the target's column has.
        scale: u32,
        /// A value.
        value: String,
    },
    /// The slot is gone, and with it changes that were not applied.
    #[error(
        "the replication slot {slot} {reason}; the changes since {lsn} are gone: \
        drop the import, empty its tables and begin again"
    )]
    SlotLost {
        /// The slot.
        slot: String,
        /// What happened to it.
        reason: String,
        /// Where the target is.
        lsn: Lsn,
    },
    /// The target lost commits that it had acknowledged, or was restored from a backup.
    #[error(
        "the target is as of {lsn}, and the slot {slot} at {confirmed}: the target was restored, or lost commits \
        that it had acknowledged; drop the import, empty its tables and begin again"
    )]
    TargetBehind {
        /// The slot.
        slot: String,
        /// Where the target is.
        lsn: Lsn,
        /// Where the slot is.
        confirmed: Lsn,
    },
    /// Another importer of this name runs.
    #[error("another import named {name} is running")]
    Busy {
        /// The import.
        name: String,
    },
    /// Another importer of this name has begun since.
    #[error("another import named {name} has taken over")]
    Superseded {
        /// The import.
        name: String,
    },
    /// The definitions at the source changed between the check and the snapshot.
    #[error("definitions at the source changed while the import began; run it again")]
    Changed,
    /// Nothing is known of the import at the target.
    #[error("the target knows of no import named {name}")]
    Unknown {
        /// The import.
        name: String,
    },
}

/// One reason why something cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// What it is about: a setting, a table, a column.
    pub subject: String,
    /// What is wrong with it.
    pub problem: String,
    /// What to do about it.
    pub hint: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.problem)?;
        if !self.hint.is_empty() {
            write!(f, " ({})", self.hint)?;
        }
        Ok(())
    }
}

impl ImportError {
    /// Whether the same may succeed later without anybody doing anything: a server that restarts, a connection that
    /// breaks, a deadlock, a slot whose reader is still going away.
    pub fn is_transient(&self) -> bool {
        match self {
            ImportError::Source { source, .. } => {
                passes(source) || source.code() == Some(&SqlState::OBJECT_IN_USE)
            }
            ImportError::Target { source, .. } => passes(source),
            ImportError::SourceRefused { code, .. } => {
                passing_state(code) || code == SqlState::OBJECT_IN_USE.code()
            }
            ImportError::SourceLost { .. } | ImportError::Changed => true,
            _ => false,
        }
    }

    pub(crate) fn source(
        what: impl Into<String>,
    ) -> impl FnOnce(tokio_postgres::Error) -> ImportError {
        let what = what.into();
        move |source| ImportError::Source { what, source }
    }

    pub(crate) fn target(
        what: impl Into<String>,
    ) -> impl FnOnce(tokio_postgres::Error) -> ImportError {
        let what = what.into();
        move |source| ImportError::Target { what, source }
    }

    /// An error of the target over a row: one about the row itself names the table.
    pub(crate) fn row(table: &str) -> impl FnOnce(tokio_postgres::Error) -> ImportError {
        let table = table.to_owned();
        move |source| match source.as_db_error() {
            // Constraints, and values that the target's types do not have.
            Some(error)
                if ["23", "22", "0A"]
                    .iter()
                    .any(|class| error.code().code().starts_with(class)) =>
            {
                ImportError::Conflict {
                    table,
                    message: error.message().to_owned(),
                    detail: error.detail().map(str::to_owned),
                }
            }
            _ => ImportError::Target {
                what: format!("changing {table}"),
                source,
            },
        }
    }
}

fn passes(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        Some(code) => passing_state(code.code()),
        None => error.is_closed() || is_io(error),
    }
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.is::<io::Error>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Connections (08), transactions that were rolled back (40), resources (53), an operator (57), and a lock that was
/// not had in time.
fn passing_state(code: &str) -> bool {
    ["08", "40", "53", "57"]
        .iter()
        .any(|class| code.starts_with(class))
        || code == SqlState::LOCK_NOT_AVAILABLE.code()
}

fn lines<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(|item| format!("\n  {item}")).collect()
}

fn run(statements: &[String]) -> String {
    if statements.is_empty() {
        return String::new();
    }
    format!(
        "\nrun at the target, and then the import again:{}",
        lines(statements)
    )
}

fn also(text: &Option<String>) -> String {
    text.as_ref()
        .map(|text| format!("; {text}"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_restarts_passes_and_a_missing_slot_does_not() {
        for (code, passes) in [
            ("57P01", true),
            ("57P03", true),
            ("40P01", true),
            ("42704", false),
            ("55000", false),
        ] {
            let error = ImportError::SourceRefused {
                what: "the slot".to_owned(),
                code: code.to_owned(),
                message: "m".to_owned(),
                hint: None,
            };
            assert_eq!(error.is_transient(), passes, "{code}");
        }
    }

    #[test]
    fn complaints_stand_one_in_a_line() {
        let complaint = |subject: &str| Complaint {
            subject: subject.to_owned(),
            problem: "is not there".to_owned(),
            hint: "make it".to_owned(),
        };
        assert_eq!(
            ImportError::Unfit(vec![complaint("a"), complaint("b")]).to_string(),
            "this cannot be imported:\n  a: is not there (make it)\n  b: is not there (make it)"
        );
    }
}
