//! Calls with a special meaning: casts by the type's name, arguments by name, and digits after
//! the second's point.

use aerostat_types::text::{IntervalField, IntervalType, format_interval, parse_interval_as};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, DataType, DateTimeField, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgOperator, FunctionArguments, Interval, IntervalFields, Value,
    ValueWithSpan,
};

use super::{call, cast_to};
use crate::functions::datetime::{KEEP_FIELDS, ROUND_TIME, code_of};
use crate::precision::{digits, keeps_part};

/// Takes the digits out of a type.
pub(super) fn take_digits(data_type: &mut DataType) -> u64 {
    let found = digits(data_type);
    match data_type {
        DataType::Timestamp(digits, _) | DataType::Time(digits, _) => *digits = None,
        DataType::Custom(_, modifiers) => modifiers.clear(),
        _ => {}
    }
    found.unwrap_or(6)
}

/// A time with so many digits after the second's point.
pub(super) fn rounded(time: Expr, digits: u64) -> Expr {
    let digits = Expr::value(Value::Number(digits.min(6).to_string(), false));
    call(
        ROUND_TIME,
        vec![time, cast_to(digits, DataType::Int4(None))],
    )
}

/// Refuses digits of an interval's type whose last field is not the second.
///
/// # Errors
/// `SyntaxError`.
pub(super) fn check_digits(data_type: &DataType) -> Result<(), SqlError> {
    use IntervalFields as F;
    match data_type {
        DataType::Interval {
            fields:
                Some(
                    F::Year
                    | F::Month
                    | F::Day
                    | F::Hour
                    | F::Minute
                    | F::YearToMonth
                    | F::DayToHour
                    | F::DayToMinute
                    | F::HourToMinute,
                ),
            precision: Some(_),
        } => Err(syntax_error("(")),
        _ => Ok(()),
    }
}

fn syntax_error(near: &str) -> SqlError {
    let message = format!("syntax error at or near \"{near}\"");
    SqlError::new(ErrorKind::SyntaxError, message)
}

/// Takes out of an array's type what its items keep: their type, as it was.
pub(super) fn take_item_type(data_type: &mut DataType) -> Option<DataType> {
    let DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) = data_type else {
        return None;
    };
    if !keeps_part(item) {
        return None;
    }
    let own = (**item).clone();
    match &mut **item {
        DataType::Interval { fields, precision } => (*fields, *precision) = (None, None),
        other => {
            take_digits(other);
        }
    }
    Some(own)
}

/// What `INTERVAL '…' DAY TO SECOND(2)` and its like keep.
///
/// # Errors
/// Fields that do not go together, and digits of others than the second.
pub(super) fn interval_literal_type(interval: &Interval) -> Result<Option<IntervalType>, SqlError> {
    use DateTimeField as F;
    if let (Some(first), Some(last)) = (&interval.leading_field, &interval.last_field) {
        let go_together = matches!(
            (first, last),
            (F::Year, F::Month)
                | (F::Day, F::Hour | F::Minute | F::Second)
                | (F::Hour, F::Minute | F::Second)
                | (F::Minute, F::Second)
        );
        if !go_together {
            return Err(syntax_error(&last.to_string()));
        }
    }
    // Only of a single second the parser takes its digits for the width of the first field.
    let is_second = interval.leading_field == Some(F::Second) && interval.last_field.is_none();
    match interval.leading_precision {
        Some(_) if !is_second => return Err(syntax_error("(")),
        Some(_) if interval.fractional_seconds_precision.is_some() => {
            return Err(syntax_error(","));
        }
        _ => {}
    }
    Ok(literal_type_of_fields(interval))
}

fn literal_type_of_fields(interval: &Interval) -> Option<IntervalType> {
    use DateTimeField as F;
    let single = |field: &F| {
        Some(match field {
            F::Year => IntervalField::Year,
            F::Month => IntervalField::Month,
            F::Day => IntervalField::Day,
            F::Hour => IntervalField::Hour,
            F::Minute => IntervalField::Minute,
            F::Second => IntervalField::Second,
            _ => return None,
        })
    };
    let last = match (&interval.leading_field, &interval.last_field) {
        (Some(F::Minute), Some(F::Second)) => IntervalField::MinuteToSecond,
        (Some(_), Some(last)) => single(last)?,
        (Some(only), None) => single(only)?,
        (None, _) => return None,
    };
    // Of a single field the digits stand where others have their width.
    let digits = interval
        .fractional_seconds_precision
        .or(interval.leading_precision);
    Some(IntervalType {
        last,
        digits: digits.map(|digits| digits.min(6) as u32),
    })
}

/// A text as an interval of a type.
///
/// # Errors
/// It is no interval.
pub(super) fn interval_of(text: &str, ty: IntervalType) -> Result<Expr, SqlError> {
    let mut kept = String::new();
    format_interval(parse_interval_as(text, ty)?, &mut kept);
    Ok(cast_to(super::text_value(kept), interval()))
}

/// What a type keeps of an interval.
pub(super) fn kept_fields(value: Expr, ty: IntervalType) -> Expr {
    let number = |number: i32| {
        let number = Expr::value(Value::Number(number.unsigned_abs().to_string(), false));
        cast_to(number, DataType::Int4(None))
    };
    let digits = number(ty.digits.map_or(6, |digits| digits as i32));
    let last = number(code_of(ty.last));
    call(KEEP_FIELDS, vec![cast_to(value, interval()), last, digits])
}

fn interval() -> DataType {
    DataType::Interval {
        fields: None,
        precision: None,
    }
}

/// The name of `CURRENT_TIMESTAMP(0)` and its like, and the digits.
pub(super) fn clock_with_digits(function: &Function) -> Option<(&'static str, u64)> {
    const CLOCKS: [&str; 4] = [
        "current_timestamp",
        "localtimestamp",
        "localtime",
        "current_time",
    ];
    let name = function.name.to_string();
    let name = CLOCKS
        .into_iter()
        .find(|known| name.eq_ignore_ascii_case(known))?;
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(digits))] = &list.args[..] else {
        return None;
    };
    let digits = match digits {
        Expr::Cast { expr, .. } => expr,
        bare => bare,
    };
    let Expr::Value(ValueWithSpan {
        value: Value::Number(digits, _),
        ..
    }) = digits
    else {
        return None;
    };
    Some((name, digits.parse().ok()?))
}

/// Puts the current day before the only argument of `age`.
pub(super) fn age_until_today(function: &mut Function) {
    if let FunctionArguments::List(list) = &mut function.args
        && list.args.len() == 1
    {
        let today = FunctionArg::Unnamed(FunctionArgExpr::Expr(call("current_date", vec![])));
        list.args.insert(0, today);
    }
}

/// A cast that is written as a call: what is cast, and to which type.
pub(super) fn as_cast(function: &Function) -> Option<(Expr, DataType)> {
    let [name] = &function.name.0[..] else {
        return None;
    };
    let data_type = match name.as_ident()?.value.to_ascii_lowercase().as_str() {
        "text" => DataType::Text,
        "int2" => DataType::Int2(None),
        "int4" => DataType::Int4(None),
        "int8" => DataType::Int8(None),
        "float4" => DataType::Float4,
        "float8" => DataType::Float8,
        "bool" => DataType::Bool,
        "date" => DataType::Date,
        _ => return None,
    };
    let is_plain = function.over.is_none() && function.filter.is_none();
    match &function.args {
        FunctionArguments::List(list) if is_plain && list.clauses.is_empty() => {
            match &list.args[..] {
                [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] => {
                    Some((argument.clone(), data_type))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// The name and the value of `name => value` and `name := value`.
fn named(argument: &FunctionArg) -> Option<(String, &Expr)> {
    let (name, value) = match argument {
        FunctionArg::Named {
            name,
            arg: FunctionArgExpr::Expr(value),
            operator: FunctionArgOperator::RightArrow | FunctionArgOperator::Assignment,
        } => (name, value),
        FunctionArg::ExprNamed {
            name: Expr::Identifier(name),
            arg: FunctionArgExpr::Expr(value),
            operator: FunctionArgOperator::RightArrow | FunctionArgOperator::Assignment,
        } => (name, value),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp {
            left,
            op: BinaryOperator::Assignment,
            right,
        })) => match &**left {
            Expr::Identifier(name) => (name, &**right),
            _ => return None,
        },
        _ => return None,
    };
    Some((name.value.to_ascii_lowercase(), value))
}

/// The parameters of `make_interval`.
const PARTS: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];

/// Puts the arguments of `make_interval` in order, with 0 for those that are not there.
///
/// # Errors
/// `UndefinedFunction` for names that are no parameters; `SyntaxError` for arguments without
/// a name behind some with.
pub(super) fn fill_interval(function: &mut Function) -> Result<(), SqlError> {
    let FunctionArguments::List(list) = &mut function.args else {
        return Ok(());
    };
    if list.args.len() > PARTS.len() {
        return Ok(());
    }
    let mut parts: Vec<Option<Expr>> = vec![None; PARTS.len()];
    let mut is_named = false;
    let no_such = || {
        let message = "function make_interval does not exist for these arguments";
        SqlError::new(ErrorKind::UndefinedFunction, message)
    };
    for (at, argument) in list.args.iter().enumerate() {
        let (at, value) = match (named(argument), argument) {
            (Some((name, value)), _) => {
                is_named = true;
                (PARTS.iter().position(|part| *part == name), value)
            }
            (None, FunctionArg::Unnamed(_)) if is_named => {
                let message = "positional argument cannot follow named argument";
                return Err(SqlError::new(ErrorKind::SyntaxError, message));
            }
            (None, FunctionArg::Unnamed(FunctionArgExpr::Expr(value))) => (Some(at), value),
            _ => return Err(no_such()),
        };
        match at {
            Some(at) if parts[at].is_none() => parts[at] = Some(value.clone()),
            _ => return Err(no_such()),
        }
    }
    let zero = |at: usize| {
        let data_type = match at {
            6 => DataType::Float8,
            _ => DataType::Int4(None),
        };
        cast_to(Expr::value(Value::Number("0".to_owned(), false)), data_type)
    };
    let filled = parts.into_iter().enumerate();
    let filled = filled.map(|(at, part)| part.unwrap_or_else(|| zero(at)));
    list.args = filled
        .map(|part| FunctionArg::Unnamed(FunctionArgExpr::Expr(part)))
        .collect();
    Ok(())
}
