//! DISTINCT: each value counts once.

use std::collections::HashSet;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;

/// Keeps the values seen and hands them to another accumulator at the end.
#[derive(Debug)]
pub(super) struct Distinct {
    inner: Box<dyn Accumulator>,
    element: DataType,
    values: HashSet<ScalarValue>,
    /// Values that were handed over before, by a window frame that only grows.
    handed_over: bool,
}

impl Distinct {
    pub(super) fn new(inner: Box<dyn Accumulator>, element: DataType) -> Self {
        Self {
            inner,
            element,
            values: HashSet::new(),
            handed_over: false,
        }
    }

    fn insert_all(&mut self, array: &ArrayRef) -> Result<()> {
        for row in 0..array.len() {
            if array.is_null(row) {
                continue;
            }
            let value = ScalarValue::try_from_array(array, row)?;
            if self.handed_over && !self.values.contains(&value) {
                self.inner.update_batch(&[value.to_array()?])?;
            }
            self.values.insert(value);
        }
        Ok(())
    }
}

impl Accumulator for Distinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.insert_all(&values[0])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for list in states[0].as_list::<i32>().iter().flatten() {
            self.insert_all(&list)?;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: Vec<ScalarValue> = self.values.iter().cloned().collect();
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(
            &values,
            &self.element,
        ))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if !self.handed_over && !self.values.is_empty() {
            self.inner
                .update_batch(&[ScalarValue::iter_to_array(self.values.iter().cloned())?])?;
            self.handed_over = true;
        }
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size() + ScalarValue::size_of_hashset(&self.values)
    }
}
