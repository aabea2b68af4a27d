//! The total of one group: for plain aggregation and window frames.

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;

use super::kind::{SumKind, overflow};
use super::{Finish, state_type};

/// A running sum and count.
#[derive(Debug)]
pub(super) struct SingleTotal<K: SumKind> {
    finish: Finish,
    output: DataType,
    scale: i8,
    sum: <K::Acc as ArrowPrimitiveType>::Native,
    count: i64,
}

impl<K: SumKind> SingleTotal<K> {
    pub(super) fn new(finish: Finish, output: DataType, scale: i8) -> Self {
        Self {
            finish,
            output,
            scale,
            sum: Default::default(),
            count: 0,
        }
    }

    fn check(&self, overflowed: bool) -> Result<()> {
        if overflowed {
            Err(overflow(&self.output))
        } else {
            Ok(())
        }
    }

    fn add_states(&mut self, sums: &ArrayRef) -> Result<i64> {
        let sums = sums.as_primitive::<K::Acc>();
        let mut bad = false;
        for value in sums.iter().flatten() {
            bad |= K::add(&mut self.sum, value);
        }
        self.check(bad)?;
        Ok((sums.len() - sums.null_count()) as i64)
    }
}

impl<K: SumKind> Accumulator for SingleTotal<K> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<K::In>();
        let bad = if values.null_count() == 0 {
            K::add_slice(&mut self.sum, values.values())
        } else {
            let mut bad = false;
            for value in values.iter().flatten() {
                bad |= K::add(&mut self.sum, K::widen(value));
            }
            bad
        };
        self.count += (values.len() - values.null_count()) as i64;
        self.check(bad)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<K::In>();
        let mut bad = false;
        for value in values.iter().flatten() {
            bad |= K::subtract(&mut self.sum, K::widen(value));
        }
        self.count -= (values.len() - values.null_count()) as i64;
        assert!(self.count >= 0, "a frame loses rows that it has");
        self.check(bad)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let partial_states = self.add_states(&states[0])?;
        self.count += match self.finish {
            Finish::Sum => partial_states,
            Finish::Average => states[1].as_primitive::<Int64Type>().iter().flatten().sum(),
        };
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let input = <K::In as ArrowPrimitiveType>::DATA_TYPE;
        let state = match state_type(&input) {
            DataType::Decimal128(precision, _) => DataType::Decimal128(precision, self.scale),
            other => other,
        };
        let sum =
            ScalarValue::new_primitive::<K::Acc>((self.count > 0).then_some(self.sum), &state)?;
        Ok(match self.finish {
            Finish::Sum => vec![sum],
            Finish::Average => vec![sum, ScalarValue::Int64(Some(self.count))],
        })
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.count == 0 {
            return ScalarValue::try_new_null(&self.output);
        }
        let result = match self.finish {
            Finish::Sum => K::sums(vec![self.sum], None, &self.output)?,
            Finish::Average => K::averages(&[self.sum], &[self.count], self.scale, &self.output)?,
        };
        ScalarValue::try_from_array(&result, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}
