//! Functions about databases that several nodes have: where a copy stands, waiting for it, promoting it.
//! Their names, errors and rights are those of PostgreSQL's functions for hot standbys.

use std::time::{Duration, Instant};

use aerostat_catalog::CopyState;
use aerostat_sql::grants::PredefinedRole;
use aerostat_types::{CommitTs, ErrorKind, SqlError};

use super::{Call, Definition, function, waiting::waiting};
use crate::{
    cell::Cell,
    view::copies::{lsn, read_lsn},
};

/// PostgreSQL's default.
const PROMOTE_SECONDS: i64 = 60;

/// How long `aerostat.wait_for_lsn` waits if it is not told.
const WAIT_MS: i64 = 5_000;

pub(super) fn definitions() -> Vec<Definition> {
    let acts = |definition: Definition| Definition {
        acts: true,
        ..definition
    };
    vec![
        function("pg_is_in_recovery", &[], "bool", |call| {
            Ok(following(call, |_| ()).is_some().into())
        }),
        function("pg_last_wal_receive_lsn", &[], "text", |call| {
            let written = following(call, |copy| copy.facts().written);
            Ok(written.map(lsn).into())
        }),
        function("pg_last_wal_replay_lsn", &[], "text", |call| {
            let applied = following(call, |_| call.view.facts.places().shown);
            Ok(applied.map(lsn).into())
        }),
        // Commits have no times in the log.
        function("pg_last_xact_replay_timestamp", &[], "timestamptz", |_| {
            Ok(Cell::Null)
        }),
        function("pg_current_wal_lsn", &[], "text", current),
        function("pg_current_wal_insert_lsn", &[], "text", current),
        function("pg_current_wal_flush_lsn", &[], "text", |call| {
            require_leader(call)?;
            Ok(call.view.facts.places().durable.map(lsn).into())
        }),
        function("pg_wal_lsn_diff", &["text", "text"], "numeric", |call| {
            let (CommitTs(one), CommitTs(other)) = (place(call, 0)?, place(call, 1)?);
            let difference = i128::from(one) - i128::from(other);
            let difference = i64::try_from(difference).map_err(|_| {
                SqlError::new(ErrorKind::NumericValueOutOfRange, "bigint out of range")
            })?;
            Ok(difference.into())
        }),
        acts(function("pg_promote", &["bool?", "int4?"], "bool", promote)),
        acts(function(
            "aerostat.wait_for_lsn",
            &["text", "int4?"],
            "bool",
            wait_for,
        )),
    ]
}

/// Something of the copy that the database is, while another node takes its changes.
fn following<T>(call: &Call<'_>, of: impl FnOnce(&CopyState) -> T) -> Option<T> {
    let copy = call.view.facts.copy()?;
    (!copy.leads()).then(|| of(&copy))
}

fn require_leader(call: &Call<'_>) -> Result<(), SqlError> {
    match following(call, |_| ()) {
        None => Ok(()),
        Some(()) => Err(SqlError::new(
            ErrorKind::ObjectNotInPrerequisiteState,
            "recovery is in progress",
        )
        .with_hint("WAL control functions cannot be executed during recovery.")),
    }
}

/// Whatever was acknowledged is at this place or before it.
fn current(call: &Call<'_>) -> Result<Cell, SqlError> {
    require_leader(call)?;
    Ok(lsn(call.view.facts.places().shown).into())
}

fn place(call: &Call<'_>, at: usize) -> Result<CommitTs, SqlError> {
    match call.at(at) {
        Cell::Text(written) => read_lsn(written),
        other => read_lsn(&other.shown().unwrap_or_default()),
    }
}

fn promote(call: &Call<'_>) -> Result<Cell, SqlError> {
    let view = call.view;
    if !view.superuser && !view.is_member(PredefinedRole::AerostatOperator) {
        return Err(SqlError::new(
            ErrorKind::InsufficientPrivilege,
            "permission denied for function pg_promote",
        ));
    }
    let copy = view.facts.copy().filter(|copy| !copy.leads());
    let copy = copy.ok_or_else(|| {
        SqlError::new(
            ErrorKind::ObjectNotInPrerequisiteState,
            "recovery is not in progress",
        )
        .with_hint("Recovery control functions can only be executed during recovery.")
    })?;
    let waits = call.arguments.is_empty() || call.truth(0);
    let seconds = match call.arguments.len() {
        0 | 1 => PROMOTE_SECONDS,
        _ => call.int(1).unwrap_or(0),
    };
    let at_most = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
    let Some(at_most) = at_most else {
        return Err(SqlError::new(
            ErrorKind::NumericValueOutOfRange,
            "\"wait_seconds\" must not be negative or zero",
        ));
    };
    if !waits {
        copy.order(aerostat_catalog::Order::Lead);
        return Ok(true.into());
    }
    let waiting = waiting(call)?;
    let leads = waiting.promote(&copy, Duration::from_secs(at_most))?;
    if !leads {
        waiting.warn(format!("server did not promote within {seconds} seconds"));
    }
    Ok(leads.into())
}

fn wait_for(call: &Call<'_>) -> Result<Cell, SqlError> {
    let place = place(call, 0)?;
    let timeout_ms = match call.arguments.len() {
        0 | 1 => WAIT_MS,
        _ => call.int(1).unwrap_or(0),
    };
    let timeout_ms = u64::try_from(timeout_ms).map_err(|_| {
        SqlError::new(
            ErrorKind::NumericValueOutOfRange,
            "\"timeout_ms\" must not be negative",
        )
    })?;
    let until = Instant::now() + Duration::from_millis(timeout_ms);
    Ok(waiting(call)?.reach(place, until)?.into())
}
