//! Advisory locks and sleep: functions that may wait.

use std::time::{Duration, Instant};

use aerostat_txn::{AdvisoryKey, AdvisoryLock, AdvisoryMode};
use aerostat_types::{ErrorKind, SqlError, SqlType, text};

use super::{Call, Definition, function};
use crate::{
    cell::Cell,
    view::waits::{Waits, lock_name},
};

/// One number of 64 bits, or two of 32.
const KEY: &[&str] = &["int8", "int4?"];

/// Clients are told `void`, whose only value is shown as nothing.
const VOID: &str = "shown:void";

const NOTHING: Cell = Cell::Text(std::borrow::Cow::Borrowed(""));

const DAY_MICROS: i64 = 86_400_000_000;

pub(super) fn definitions() -> Vec<Definition> {
    use AdvisoryMode::{Exclusive, Shared};

    let all = [
        function("pg_advisory_lock", KEY, VOID, |call| {
            lock(call, Exclusive, true)
        }),
        function("pg_advisory_lock_shared", KEY, VOID, |call| {
            lock(call, Shared, true)
        }),
        function("pg_advisory_xact_lock", KEY, VOID, |call| {
            lock(call, Exclusive, false)
        }),
        function("pg_advisory_xact_lock_shared", KEY, VOID, |call| {
            lock(call, Shared, false)
        }),
        function("pg_try_advisory_lock", KEY, "bool", |call| {
            try_lock(call, Exclusive, true)
        }),
        function("pg_try_advisory_lock_shared", KEY, "bool", |call| {
            try_lock(call, Shared, true)
        }),
        function("pg_try_advisory_xact_lock", KEY, "bool", |call| {
            try_lock(call, Exclusive, false)
        }),
        function("pg_try_advisory_xact_lock_shared", KEY, "bool", |call| {
            try_lock(call, Shared, false)
        }),
        function("pg_advisory_unlock", KEY, "bool", |call| {
            unlock(call, Exclusive)
        }),
        function("pg_advisory_unlock_shared", KEY, "bool", |call| {
            unlock(call, Shared)
        }),
        function("pg_advisory_unlock_all", &[], VOID, |call| {
            waiting(call)?.unlock_all();
            Ok(NOTHING)
        }),
        function("pg_sleep", &["float8"], VOID, |call| {
            let seconds = match call.at(0) {
                Cell::Float(seconds) => *seconds,
                Cell::Int(seconds) => *seconds as f64,
                Cell::Text(seconds) => text::parse_f64(seconds).map_err(unread)?,
                other => return Err(undefined("pg_sleep", other)),
            };
            sleep(call, seconds)
        }),
        function("pg_sleep_for", &["interval"], VOID, |call| {
            let Cell::Text(written) = call.at(0) else {
                return Err(undefined("pg_sleep_for", call.at(0)));
            };
            let interval = text::parse_interval(written).map_err(unread)?;
            // A month of sleep has 30 days.
            let days = i64::from(interval.months) * 30 + i64::from(interval.days);
            let micros = days.saturating_mul(DAY_MICROS);
            sleep(call, micros.saturating_add(interval.micros) as f64 / 1e6)
        }),
        function("pg_sleep_until", &["timestamptz"], VOID, |call| {
            let Cell::Time(until) = call.at(0) else {
                return Err(undefined("pg_sleep_until", call.at(0)));
            };
            let micros = until.saturating_sub(chrono::Utc::now().timestamp_micros());
            sleep(call, micros as f64 / 1e6)
        }),
    ];
    all.into_iter()
        .map(|definition| Definition {
            acts: true,
            ..definition
        })
        .collect()
}

/// The type of each parameter in a call with so many arguments, of a function of this module.
pub fn parameter(name: &str, count: usize) -> Option<SqlType> {
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "pg_sleep" => Some(SqlType::Double),
        "wait_for_lsn" => Some(SqlType::Text),
        "pg_cancel_backend" | "pg_blocking_pids" => Some(SqlType::Integer),
        "pg_terminate_backend" if count == 1 => Some(SqlType::Integer),
        "pg_sleep_for" => Some(SqlType::Interval),
        "pg_sleep_until" => Some(SqlType::TimestampTz),
        name if name.starts_with("pg_advisory_") || name.starts_with("pg_try_advisory_") => {
            Some(match count {
                1 => SqlType::BigInt,
                _ => SqlType::Integer,
            })
        }
        _ => None,
    }
}

pub(super) fn waiting<'c>(call: &'c Call<'_>) -> Result<&'c dyn Waits, SqlError> {
    call.view.facts.waiting().ok_or_else(|| {
        SqlError::new(
            ErrorKind::Internal,
            "a function waits, and no statement runs",
        )
    })
}

fn lock(call: &Call<'_>, mode: AdvisoryMode, is_session: bool) -> Result<Cell, SqlError> {
    let key = key(call)?;
    waiting(call)?.lock(AdvisoryLock { key, mode }, is_session, true)?;
    Ok(NOTHING)
}

fn try_lock(call: &Call<'_>, mode: AdvisoryMode, is_session: bool) -> Result<Cell, SqlError> {
    let key = key(call)?;
    let granted = waiting(call)?.lock(AdvisoryLock { key, mode }, is_session, false)?;
    Ok(granted.into())
}

fn unlock(call: &Call<'_>, mode: AdvisoryMode) -> Result<Cell, SqlError> {
    let key = key(call)?;
    let waiting = waiting(call)?;
    let owned = waiting.unlock(AdvisoryLock { key, mode });
    if !owned {
        let name = lock_name(mode.lock_mode());
        waiting.warn(format!("you don't own a lock of type {name}"));
    }
    Ok(owned.into())
}

fn key(call: &Call<'_>) -> Result<AdvisoryKey, SqlError> {
    match call.arguments {
        [key] => Ok(AdvisoryKey::One(whole(key)?)),
        [first, second] => {
            let half = |cell| {
                i32::try_from(whole(cell)?).map_err(|_| {
                    not_there("function pg_advisory_lock(bigint, bigint) does not exist")
                })
            };
            Ok(AdvisoryKey::Two(half(first)?, half(second)?))
        }
        _ => Err(not_there("an advisory lock is on one number or two")),
    }
}

fn whole(cell: &Cell) -> Result<i64, SqlError> {
    match cell {
        Cell::Int(number) => Ok(*number),
        Cell::Text(written) => text::parse_i64(written).map_err(unread),
        other => Err(undefined("pg_advisory_lock", other)),
    }
}

/// Sleeps so many seconds, if they are any.
fn sleep(call: &Call<'_>, seconds: f64) -> Result<Cell, SqlError> {
    if seconds > 0.0 {
        // A time beyond the clock's end never comes.
        let duration = Duration::try_from_secs_f64(seconds).ok();
        let until = duration.and_then(|duration| Instant::now().checked_add(duration));
        waiting(call)?.sleep_until(until)?;
    }
    Ok(NOTHING)
}

fn undefined(function: &str, argument: &Cell) -> SqlError {
    let ty = match argument {
        Cell::Bool(_) => "boolean",
        Cell::Int(_) => "bigint",
        Cell::Float(_) => "double precision",
        Cell::Time(_) => "timestamp with time zone",
        Cell::List(_) => "anyarray",
        Cell::Text(_) | Cell::Null => "text",
    };
    not_there(&format!("function {function}({ty}) does not exist"))
}

fn not_there(message: &str) -> SqlError {
    SqlError::new(ErrorKind::UndefinedFunction, message).with_hint(
        "No function matches the given name and argument types. You might need to add explicit type casts.",
    )
}

fn unread(error: text::TextError) -> SqlError {
    SqlError::new(error.kind, error.message)
}
