//! Functions by which one session acts on another, and which report who blocks whom.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use aerostat_types::{ErrorKind, SqlError};

use super::{Call, Definition, function, waiting::waiting};
use crate::{Signal, cell::Cell, view::waits::LockDescription};

/// How often it is looked whether a session that is to end has ended.
const END_LOOK: Duration = Duration::from_millis(10);

pub(super) fn definitions() -> Vec<Definition> {
    let all = [
        function("pg_cancel_backend", &["int4"], "bool", |call| {
            let signalled = call.view.facts.signal(pid(call)?, Signal::Cancel)?;
            Ok(signalled.into())
        }),
        function(
            "pg_terminate_backend",
            &["int4", "int8?"],
            "bool",
            terminate,
        ),
        function("pg_blocking_pids", &["int4"], "_int4", |call| {
            let locks = waiting(call)?.locks();
            let pids: Vec<u32> = blocking(&locks, pid(call)?).collect();
            Ok(pids.into())
        }),
    ];
    all.into_iter()
        .map(|definition| Definition {
            acts: true,
            ..definition
        })
        .collect()
}

fn pid(call: &Call<'_>) -> Result<i32, SqlError> {
    let number = match call.at(0) {
        Cell::Text(written) => written.trim().parse().ok(),
        other => other.int(),
    };
    let pid = number.and_then(|number: i64| i32::try_from(number).ok());
    pid.ok_or_else(|| SqlError::new(ErrorKind::NumericValueOutOfRange, "integer out of range"))
}

fn terminate(call: &Call<'_>) -> Result<Cell, SqlError> {
    let (pid, timeout) = (pid(call)?, call.int(1).unwrap_or(0));
    let Ok(timeout_ms) = u64::try_from(timeout) else {
        return Err(SqlError::new(
            ErrorKind::NumericValueOutOfRange,
            "\"timeout\" must not be negative",
        ));
    };
    let facts = &call.view.facts;
    let signalled = facts.signal(pid, Signal::Terminate)?;
    if !signalled || timeout_ms == 0 {
        return Ok(signalled.into());
    }
    let end = Instant::now() + Duration::from_millis(timeout_ms);
    let is_there = || facts.sessions().iter().any(|session| session.pid == pid);
    while is_there() {
        if Instant::now() >= end {
            waiting(call)?.warn(format!(
                "backend with PID {pid} did not terminate within {timeout_ms} milliseconds"
            ));
            return Ok(false.into());
        }
        let next = (Instant::now() + END_LOOK).min(end);
        waiting(call)?.sleep_until(Some(next))?;
    }
    Ok(true.into())
}

/// The sessions that have what a session waits for, and those that wait for it before.
fn blocking(locks: &[LockDescription], pid: i32) -> impl Iterator<Item = u32> {
    let mut found = BTreeSet::new();
    for wanted in locks.iter().filter(|lock| lock.pid == Some(pid)) {
        let Some(since) = wanted.lock.waits_since else {
            continue;
        };
        for other in locks.iter().filter(|other| other.pid != Some(pid)) {
            let is_before = other.lock.waits_since.is_none_or(|other| other < since);
            let is_in_the_way =
                other.lock.on == wanted.lock.on && other.lock.mode.conflicts_with(wanted.lock.mode);
            if is_before && is_in_the_way {
                found.extend(other.pid.and_then(|pid| u32::try_from(pid).ok()));
            }
        }
    }
    found.into_iter()
}
