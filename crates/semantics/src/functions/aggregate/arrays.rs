//! The least and the greatest array, by PostgreSQL's order of items, in which NULL is the
//! greatest and intervals compare by length.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;

use crate::functions::array_order::sort_keys;
use crate::growth::Growth;

/// `min` or `max` of one group. Of several that are equal it is the last.
#[derive(Debug)]
pub(super) struct ExtremeArray {
    is_max: bool,
    data_type: DataType,
    /// The sort key, and the array.
    found: Option<(Vec<u8>, ScalarValue)>,
}

impl ExtremeArray {
    pub(super) fn new(is_max: bool, data_type: DataType) -> Self {
        Self {
            is_max,
            data_type,
            found: None,
        }
    }

    /// Whether a later key is in the place of one before.
    fn wins(&self, key: &[u8], before: &[u8]) -> bool {
        match self.is_max {
            true => key >= before,
            false => key <= before,
        }
    }
}

impl Accumulator for ExtremeArray {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let lists = &values[0];
        let mut growth = Growth::new();
        let keys = sort_keys(lists, &mut growth)?;
        let valid = (0..keys.len()).filter(|row| keys.is_valid(*row));
        let best = valid.reduce(
            |best, row| match self.wins(keys.value(row), keys.value(best)) {
                true => row,
                false => best,
            },
        );
        let Some(row) = best else {
            return Ok(());
        };
        let key = keys.value(row);
        let is_better = match &self.found {
            Some((before, _)) => self.wins(key, before),
            None => true,
        };
        if is_better {
            let value = ScalarValue::try_from_array(lists, row)?.compacted();
            self.found = Some((key.to_vec(), value));
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match &self.found {
            Some((_, value)) => Ok(value.clone()),
            None => ScalarValue::try_new_null(&self.data_type),
        }
    }

    fn size(&self) -> usize {
        let found = self.found.as_ref();
        size_of_val(self) + found.map_or(0, |(key, value)| key.capacity() + value.size())
    }
}
