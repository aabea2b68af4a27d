//! From storage's errors to the one a user sees, and the common failures of the layers above.

use std::{error::Error, io, iter::successors, sync::Arc};

use aerostat_memory::MemoryError;
use aerostat_storage::{SegmentError, StorageError};
use aerostat_txn::CommitError;
use aerostat_types::{ErrorKind, SqlError};

/// How a client comes to the node that takes changes.
pub(crate) const CHANGES_HINT: &str =
    "Connect with target_session_attrs=read-write and all nodes' addresses.";

/// The user's error for one of storage's.
pub fn from_storage(error: StorageError) -> SqlError {
    let message = error.to_string();
    match error {
        StorageError::NotNull { table, column } => {
            let mut error = SqlError::new(ErrorKind::NotNullViolation, message);
            error.object = Some(Box::new((String::new(), table, Some(column))));
            error
        }
        StorageError::UniqueViolation {
            table,
            constraint,
            detail,
        } => {
            let mut error = SqlError::new(
                ErrorKind::UniqueViolation,
                format!("duplicate key value violates unique constraint \"{constraint}\""),
            )
            .with_detail(detail)
            .with_constraint(constraint);
            error.object = Some(Box::new((String::new(), table, None)));
            error
        }
        StorageError::IndexNotUnique { detail, .. } => {
            SqlError::new(ErrorKind::UniqueViolation, message).with_detail(detail)
        }
        StorageError::IndexExists { .. } => SqlError::new(ErrorKind::DuplicateTable, message),
        StorageError::Conflict => SqlError::new(
            ErrorKind::SerializationFailure,
            "could not serialize access due to concurrent update",
        )
        .with_hint("Run the statement again."),
        StorageError::Deadlock => SqlError::new(ErrorKind::DeadlockDetected, "deadlock detected")
            .with_hint("Run the statement again."),
        StorageError::LockTimeout => SqlError::new(
            ErrorKind::LockNotAvailable,
            "canceling statement due to lock timeout",
        ),
        StorageError::LockNotAvailable { table } => SqlError::new(
            ErrorKind::LockNotAvailable,
            format!("could not obtain lock on row in relation \"{table}\""),
        ),
        StorageError::TooManyLocks(_) => SqlError::new(ErrorKind::OutOfMemory, message)
            .with_hint("Lock fewer rows together with other transactions, or end some of these."),
        StorageError::Cancelled => canceled(),
        StorageError::OutOfMemory(cause) => SqlError::new(ErrorKind::OutOfMemory, "out of memory")
            .with_detail(cause.to_string())
            .with_hint("Raise the database's memory_max or the server's --memory, or remove data."),
        StorageError::Map(cause) => no_mapping(&cause),
        StorageError::ValueTooLong { .. } | StorageError::RowTooWide { .. } => {
            SqlError::new(ErrorKind::ProgramLimitExceeded, message)
        }
        StorageError::TooManyColumns { .. } => SqlError::new(ErrorKind::TooManyColumns, message),
        StorageError::Commit(CommitError::Cancelled) => canceled(),
        error @ StorageError::Commit(CommitError::InDoubt(_)) => {
            SqlError::new(ErrorKind::TransactionResolutionUnknown, message)
                .with_detail(causes(&error))
        }
        StorageError::Commit(CommitError::Refused(failure)) | StorageError::Log(failure)
            if failure.is_by_another_leader() =>
        {
            SqlError::new(
                ErrorKind::ReadOnlyTransaction,
                "cannot commit: another node has taken over the database",
            )
            .with_detail("The transaction was rolled back.")
            .with_hint(CHANGES_HINT)
        }
        error @ (StorageError::Commit(_) | StorageError::Log(_) | StorageError::Checkpoint(_)) => {
            let is_full = chain(&error).any(is_full);
            let (kind, hint) = match is_full {
                true => (
                    ErrorKind::DiskFull,
                    "Free space on the disk of the data folder; changes are taken again within seconds.",
                ),
                false => (
                    ErrorKind::IoError,
                    "See to the disk of the data folder; once it works, changes are taken again within seconds.",
                ),
            };
            SqlError::new(kind, message)
                .with_detail(causes(&error))
                .with_hint(hint)
        }
        error @ StorageError::ReadBack(_) => SqlError::new(ErrorKind::IoError, message)
            .with_detail(causes(&error))
            .with_hint("See to the disk of the data folder; the values are read again when they are asked for."),
        error @ StorageError::Segment(SegmentError::Corrupt(_)) => {
            SqlError::new(ErrorKind::DataCorrupted, "values that were read back are damaged")
                .with_detail(causes(&error))
                .with_hint("See to the disk of the data folder, and restore the database from a backup.")
        }
        _ => SqlError::new(ErrorKind::Internal, message),
    }
}

/// The operating system gave no memory, though the budgets had some.
fn no_mapping(cause: &MemoryError) -> SqlError {
    let hint = match cause {
        MemoryError::TooManyMappings { .. } => {
            "Raise the system's limit: sysctl -w vm.max_map_count=1048576, and in /etc/sysctl.d."
        }
        _ => {
            "Lower the server's --memory, or look at the system's limits: ulimit -v, vm.max_map_count."
        }
    };
    SqlError::new(ErrorKind::OutOfMemory, "out of memory")
        .with_detail(cause.to_string())
        .with_hint(hint)
}

/// What caused an error, from the nearest cause to the farthest.
pub fn causes(error: &dyn Error) -> String {
    let mut texts = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        texts.push(cause.to_string());
        next = cause.source();
    }
    texts.join(": ")
}

/// What an error says, and then what its causes say.
pub fn with_causes(error: &dyn Error) -> String {
    match error.source() {
        Some(_) => format!("{error}: {}", causes(error)),
        None => error.to_string(),
    }
}

/// The error of a statement that the user cancelled.
pub fn canceled() -> SqlError {
    SqlError::new(
        ErrorKind::QueryCanceled,
        "canceling statement due to user request",
    )
}

/// The error of a statement that asks for more than there is.
pub fn out_of_memory(detail: String) -> SqlError {
    SqlError::new(ErrorKind::OutOfMemory, "out of memory")
        .with_detail(detail)
        .with_hint(
            "Raise the database's memory_max or the server's --memory, or ask for less at once.",
        )
}

/// Whether the disk took no more.
pub fn is_full(error: &(dyn Error + 'static)) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let shared = error.downcast_ref::<Arc<io::Error>>().map(|error| &**error);
    let error = shared.or_else(|| error.downcast_ref());
    error.is_some_and(|error| matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge))
}

/// An error and those that caused it, from the nearest to the farthest.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |error| cause(*error))
}

/// What caused an error. One of a file holds its cause inside.
pub fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let inner = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    match inner {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

#[cfg(test)]
mod tests {
    use aerostat_txn::LogFailure;

    use super::*;

    fn failure(kind: io::ErrorKind) -> LogFailure {
        LogFailure {
            doing: "write it".to_owned(),
            source: Arc::new(kind.into()),
        }
    }

    /// Whoever commits at a node that was deposed goes to another; no disk is to blame.
    #[test]
    fn another_leader_is_no_fault_of_the_disk() {
        let taken_over = || failure(io::ErrorKind::ConnectionAborted);
        for error in [
            StorageError::Commit(CommitError::Refused(taken_over())),
            StorageError::Log(taken_over()),
        ] {
            let error = from_storage(error);
            assert_eq!(error.kind, ErrorKind::ReadOnlyTransaction);
            assert_eq!(
                error.message,
                "cannot commit: another node has taken over the database"
            );
            assert!(error.hint.unwrap().contains("target_session_attrs"));
        }
        // What waited for others may have happened.
        let in_doubt = StorageError::Commit(CommitError::InDoubt(taken_over()));
        assert_eq!(
            from_storage(in_doubt).kind,
            ErrorKind::TransactionResolutionUnknown
        );
        let of_disk = failure(io::ErrorKind::PermissionDenied);
        let error = from_storage(StorageError::Commit(CommitError::Refused(of_disk)));
        assert_eq!(error.kind, ErrorKind::IoError);
        let full = failure(io::ErrorKind::StorageFull);
        let error = from_storage(StorageError::Log(full));
        assert_eq!(error.kind, ErrorKind::DiskFull);
    }
}
