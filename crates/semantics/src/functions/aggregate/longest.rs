//! The longest and the shortest interval, with months of 30 days as in comparisons. Arrow orders
//! intervals field by field, months first, so that 31 days would be less than a month.

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{IntervalMonthDayNano, IntervalMonthDayNanoType};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;

use crate::functions::temporal::order;

/// `min` or `max` of one group. Of several that are as long it is the last, as PostgreSQL's
/// `interval_larger` and `interval_smaller` have it.
#[derive(Debug)]
pub(super) struct Longest {
    is_max: bool,
    found: Option<IntervalMonthDayNano>,
}

impl Longest {
    pub(super) fn new(is_max: bool) -> Self {
        Self {
            is_max,
            found: None,
        }
    }

    fn add(&mut self, value: IntervalMonthDayNano) {
        let wins = self.found.is_none_or(|found| match self.is_max {
            true => order(value) >= order(found),
            false => order(value) <= order(found),
        });
        if wins {
            self.found = Some(value);
        }
    }
}

impl Accumulator for Longest {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<IntervalMonthDayNanoType>();
        values.iter().flatten().for_each(|value| self.add(value));
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::IntervalMonthDayNano(self.found))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}
