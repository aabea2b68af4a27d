//! Sums and averages of intervals: months, days and time are summed separately, and a sum is
//! divided as PostgreSQL divides an interval.
//!
//! The time is summed in more bits than an interval has, so an average is right whatever the sum.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Int64Type, IntervalMonthDayNanoType,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::utils::format_state_name;

use super::Finish;
use crate::functions::temporal;

/// Digits of a sum of nanoseconds: those of 2^64 intervals, the longest there are.
const NANOS_DIGITS: u8 = 38;

/// A sum or an average of one group, or of a window.
pub(super) fn total(finish: Finish) -> Box<dyn Accumulator> {
    Box::new(Total {
        finish,
        months: 0,
        days: 0,
        nanos: 0,
        count: 0,
    })
}

/// The three sums and a count.
pub(super) fn state_fields(name: &str) -> Vec<FieldRef> {
    let field =
        |part, data_type| Arc::new(Field::new(format_state_name(name, part), data_type, true));
    vec![
        field("months", DataType::Int64),
        field("days", DataType::Int64),
        field("nanoseconds", DataType::Decimal128(NANOS_DIGITS, 0)),
        field("count", DataType::Int64),
    ]
}

#[derive(Debug)]
struct Total {
    finish: Finish,
    months: i64,
    days: i64,
    nanos: i128,
    count: i64,
}

impl Total {
    fn add(&mut self, values: &ArrayRef, sign: i64) {
        let intervals = values.as_primitive::<IntervalMonthDayNanoType>();
        for value in intervals.iter().flatten() {
            self.months += sign * i64::from(value.months);
            self.days += sign * i64::from(value.days);
            self.nanos += i128::from(sign) * i128::from(value.nanoseconds);
            self.count += sign;
        }
    }
}

impl Accumulator for Total {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0], 1);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0], -1);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let sum = |at: usize| -> i64 {
            let sums = states[at].as_primitive::<Int64Type>();
            sums.iter().flatten().sum()
        };
        self.months += sum(0);
        self.days += sum(1);
        let nanos = states[2].as_primitive::<Decimal128Type>();
        self.nanos += nanos.iter().flatten().sum::<i128>();
        self.count += sum(3);
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![
            ScalarValue::Int64(Some(self.months)),
            ScalarValue::Int64(Some(self.days)),
            ScalarValue::Decimal128(Some(self.nanos), NANOS_DIGITS, 0),
            ScalarValue::Int64(Some(self.count)),
        ])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.count == 0 {
            return Ok(ScalarValue::IntervalMonthDayNano(None));
        }
        let value = match self.finish {
            Finish::Sum => temporal::interval(self.months, self.days, self.nanos)?,
            Finish::Average => {
                // PostgreSQL's sums of months and days have 32 bits, too.
                let whole = temporal::interval(self.months, self.days, 0)?;
                temporal::share(whole.months, whole.days, self.nanos, self.count as f64)?
            }
        };
        Ok(ScalarValue::IntervalMonthDayNano(Some(value)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}
