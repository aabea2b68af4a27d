//! Averages of intervals: months, days and time are summed apart, and the sum is divided as
//! PostgreSQL divides an interval.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Field, FieldRef, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalUnit,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::utils::format_state_name;

use crate::functions::temporal;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// An average of one group, or of a window.
pub(super) fn average() -> Box<dyn Accumulator> {
    Box::new(Average {
        sum: IntervalMonthDayNano::ZERO,
        count: 0,
    })
}

/// A sum and a count.
pub(super) fn state_fields(name: &str) -> Vec<FieldRef> {
    let field =
        |part, data_type| Arc::new(Field::new(format_state_name(name, part), data_type, true));
    vec![field("sum", INTERVAL), field("count", DataType::Int64)]
}

#[derive(Debug)]
struct Average {
    sum: IntervalMonthDayNano,
    count: i64,
}

impl Average {
    fn add(&mut self, values: &ArrayRef, sign: i64) -> Result<i64> {
        let mut count = 0;
        for value in values
            .as_primitive::<IntervalMonthDayNanoType>()
            .iter()
            .flatten()
        {
            self.sum = temporal::add(self.sum, value, sign)?;
            count += 1;
        }
        Ok(count)
    }
}

impl Accumulator for Average {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count += self.add(&values[0], 1)?;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count -= self.add(&values[0], -1)?;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.add(&states[0], 1)?;
        let counts = states[1].as_primitive::<Int64Type>();
        self.count += counts.iter().flatten().sum::<i64>();
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![
            ScalarValue::IntervalMonthDayNano(Some(self.sum)),
            ScalarValue::Int64(Some(self.count)),
        ])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let average = match self.count {
            0 => None,
            count => Some(temporal::over(self.sum, count as f64)?),
        };
        Ok(ScalarValue::IntervalMonthDayNano(average))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}
