//! Items that are looked for among others.

use arrow::array::{Array, ArrayRef};
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::Result;

/// Arrays of one type, whose values compare by where they are: the array, and the place in it.
pub(super) struct Items {
    rows: Vec<Rows>,
    arrays: Vec<ArrayRef>,
}

impl Items {
    pub(super) fn of(arrays: &[&ArrayRef]) -> Result<Self> {
        let converter = RowConverter::new(vec![SortField::new(arrays[0].data_type().clone())])?;
        let rows = arrays
            .iter()
            .map(|array| converter.convert_columns(&[ArrayRef::clone(array)]))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            rows,
            arrays: arrays.iter().map(|array| ArrayRef::clone(array)).collect(),
        })
    }

    /// Whether two values are not distinct.
    pub(super) fn same(&self, (a, at): (usize, usize), (b, other): (usize, usize)) -> bool {
        self.rows[a].row(at) == self.rows[b].row(other)
    }

    pub(super) fn is_valid(&self, array: usize, at: usize) -> bool {
        self.arrays[array].is_valid(at)
    }
}
