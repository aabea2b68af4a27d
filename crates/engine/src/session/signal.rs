//! What one session does to another: `pg_cancel_backend` and `pg_terminate_backend`.

use aerostat_catalog::NodeRecord;
use aerostat_pgcatalog::Signal;
use aerostat_types::{ErrorKind, SqlError};

/// Whether a role may stop sessions of another, as in PostgreSQL.
///
/// # Errors
/// `InsufficientPrivilege` in PostgreSQL's words.
pub(super) fn require_right(
    node: &NodeRecord,
    actor: &str,
    owner: &str,
    signal: Signal,
) -> Result<(), SqlError> {
    let is_superuser = |role: &str| node.roles.get(role).is_some_and(|role| role.superuser);
    if is_superuser(actor) || actor == owner && !is_superuser(owner) {
        return Ok(());
    }
    let (does, what, is_done) = match signal {
        Signal::Cancel => ("cancel", "query", "canceled"),
        Signal::Terminate => ("terminate", "process", "terminated"),
    };
    let message = match is_superuser(owner) {
        true => format!("must be a superuser to {does} superuser {what}"),
        false => format!(
            "must be a member of the role whose {what} is being {is_done} or member of pg_signal_backend"
        ),
    };
    Err(SqlError::new(ErrorKind::InsufficientPrivilege, message))
}
