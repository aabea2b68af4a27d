//! RANGE frames of windows over types to which DataFusion cannot add offsets.
//!
//! | ordered by | frame | becomes |
//! |---|---|---|
//! | an interval | any | its length, to which offsets are added in the same way |
//! | a time | with offsets | the same of the time as an interval |
//! | a time, uuid, bytea, array | without | GROUPS, which means the same |
//! | a date, a timestamp | with offsets | offsets that are read as PostgreSQL reads intervals |
//!
//! The values that a call then makes, row by row, are watched ([`watched`]).

use std::sync::Arc;

use aerostat_types::text::parse_interval;
use aerostat_types::{ErrorKind, SqlError, SqlType};
use arrow::datatypes::IntervalMonthDayNano;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Sort, WindowFunction};
use datafusion::logical_expr::{ExprSchemable, WindowFrame, WindowFrameBound, WindowFrameUnits};

use crate::functions::cast::{self, Zone};
use crate::functions::temporal::{Temporal, order};
use crate::functions::watched;
use crate::{Operand, equal, external, operand, raise};

/// Gives a call's frame the meaning that it has in PostgreSQL.
///
/// # Errors
/// `InvalidPrecedingOrFollowingSize` for offsets below zero, `FeatureNotSupported` for days over
/// instants where days differ in length, and errors of texts that are no intervals.
pub(super) fn resolve(
    call: WindowFunction,
    schema: &DFSchema,
    zone: &Zone,
) -> Result<WindowFunction> {
    Ok(watched::call(framed(call, schema, zone)?, schema))
}

fn framed(mut call: WindowFunction, schema: &DFSchema, zone: &Zone) -> Result<WindowFunction> {
    let params = &mut call.params;
    equal::keys(&mut params.partition_by, schema)?;
    if params.window_frame.units != WindowFrameUnits::Range {
        equal::order_by(&mut params.order_by, schema)?;
        return Ok(call);
    }
    let (WindowFrameUnits::Range, Some(first)) =
        (params.window_frame.units, params.order_by.first_mut())
    else {
        return Ok(call);
    };
    let Operand::Typed(ty) = operand(&first.expr, schema)? else {
        let ty = first.expr.get_type(schema);
        if ty.is_ok_and(|ty| ty.is_list()) {
            if has_offset(&mut params.window_frame) {
                let message = "RANGE with offset PRECEDING/FOLLOWING is not supported for column type anyarray";
                return Err(raise(ErrorKind::FeatureNotSupported, message));
            }
            params.window_frame.units = WindowFrameUnits::Groups;
        }
        equal::order_by(&mut params.order_by, schema)?;
        return Ok(call);
    };
    let frame = &mut params.window_frame;
    match (ty, has_offset(frame)) {
        (SqlType::Interval, _) => by_length(first, ty, frame, zone)?,
        (SqlType::Time, true) => by_length(first, ty, frame, zone)?,
        (SqlType::Time | SqlType::Uuid | SqlType::Bytea, false) => {
            frame.units = WindowFrameUnits::Groups;
        }
        (SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz, true) => {
            each_offset(frame, |offset| {
                check_days(offset, ty, zone)?;
                Ok(ScalarValue::IntervalMonthDayNano(Some(offset)))
            })?;
        }
        _ => {}
    }
    equal::order_by(&mut params.order_by, schema)?;
    Ok(call)
}

fn offset_of(bound: &mut WindowFrameBound) -> Option<&mut ScalarValue> {
    match bound {
        WindowFrameBound::Preceding(offset) | WindowFrameBound::Following(offset)
            if !offset.is_null() =>
        {
            Some(offset)
        }
        _ => None,
    }
}

fn has_offset(frame: &mut WindowFrame) -> bool {
    offset_of(&mut frame.start_bound).is_some() || offset_of(&mut frame.end_bound).is_some()
}

/// Orders by the length of an interval, and counts offsets so.
fn by_length(key: &mut Sort, ty: SqlType, frame: &mut WindowFrame, zone: &Zone) -> Result<()> {
    let interval = Arc::new(SqlType::Interval.field("", true));
    let expr = cast::resolve(key.expr.clone(), &ty.field("", true), &interval, zone)?;
    key.expr = Temporal::IntervalOrder.call(vec![expr]);
    each_offset(frame, |offset| {
        // Days do not move a time of day.
        let length = match ty {
            SqlType::Time => offset.nanoseconds.into(),
            _ => order(offset),
        };
        Ok(ScalarValue::Decimal128(Some(length), 38, 0))
    })
}

fn each_offset(
    frame: &mut WindowFrame,
    f: impl Fn(IntervalMonthDayNano) -> Result<ScalarValue>,
) -> Result<()> {
    for bound in [&mut frame.start_bound, &mut frame.end_bound] {
        let Some(offset) = offset_of(bound) else {
            continue;
        };
        let ScalarValue::Utf8(Some(text)) = &*offset else {
            continue;
        };
        let read = parse_interval(text).map_err(external)?;
        let overflow = || raise(ErrorKind::DatetimeFieldOverflow, "interval out of range");
        let nanos = read.nanos().ok_or_else(overflow)?;
        let interval = IntervalMonthDayNano::new(read.months, read.days, nanos);
        if order(interval) < 0 {
            let message = "invalid preceding or following size in window function";
            return Err(raise(ErrorKind::InvalidPrecedingOrFollowingSize, message));
        }
        *offset = f(interval)?;
    }
    Ok(())
}

/// Days and months are added in UTC, which is right where no clock changes.
fn check_days(offset: IntervalMonthDayNano, ty: SqlType, zone: &Zone) -> Result<()> {
    let has_days = offset.months != 0 || offset.days != 0;
    if ty != SqlType::TimestampTz || !has_days || zone.get().is_fixed() {
        return Ok(());
    }
    let message = "RANGE with days over timestamp with time zone is not supported in a zone whose clocks change";
    Err(external(
        SqlError::new(ErrorKind::FeatureNotSupported, message)
            .with_hint("Give the offset in hours, or order by a timestamp without time zone."),
    ))
}
