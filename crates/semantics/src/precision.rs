//! Which fields and digits of a value the written type of a time or an interval keeps.

use aerostat_types::text::{IntervalField, IntervalType};
use datafusion::sql::sqlparser::ast::{ArrayElemTypeDef, DataType, IntervalFields, ObjectName};

/// The digits that a type of times keeps, if it says so and they are not all.
pub(crate) fn digits(data_type: &DataType) -> Option<u64> {
    match data_type {
        DataType::Timestamp(digits, _) | DataType::Time(digits, _) => *digits,
        DataType::Custom(name, modifiers) if is_times(name) => modifiers.first()?.parse().ok(),
        _ => None,
    }
}

fn is_times(name: &ObjectName) -> bool {
    let name = name.to_string().to_ascii_lowercase();
    matches!(name.as_str(), "timestamptz" | "timestamp" | "time")
}

/// What an interval's type keeps, if that is not everything.
pub(crate) fn interval_type(data_type: &DataType) -> Option<IntervalType> {
    use IntervalFields as F;
    let DataType::Interval { fields, precision } = data_type else {
        return None;
    };
    if fields.is_none() && precision.is_none() {
        return None;
    }
    let last = match fields {
        Some(F::Year) => IntervalField::Year,
        Some(F::Month | F::YearToMonth) => IntervalField::Month,
        Some(F::Day) => IntervalField::Day,
        Some(F::Hour | F::DayToHour) => IntervalField::Hour,
        Some(F::Minute | F::DayToMinute | F::HourToMinute) => IntervalField::Minute,
        Some(F::MinuteToSecond) => IntervalField::MinuteToSecond,
        Some(F::Second | F::DayToSecond | F::HourToSecond) | None => IntervalField::Second,
    };
    Some(IntervalType {
        last,
        digits: precision.map(|digits| digits.min(6) as u32),
    })
}

/// Whether a type says what it keeps of its values, if that is not everything.
pub(crate) fn keeps_part(data_type: &DataType) -> bool {
    interval_type(data_type).is_some() || digits(data_type).is_some_and(|digits| digits < 6)
}

/// Whether the items of an array's type keep a part of their values.
pub(crate) fn items_keep_part(data_type: &DataType) -> bool {
    match data_type {
        DataType::Array(
            ArrayElemTypeDef::SquareBracket(item, _) | ArrayElemTypeDef::AngleBracket(item),
        ) => keeps_part(item),
        _ => false,
    }
}
