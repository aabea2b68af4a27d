//! Searching for items in arrays, and ordering them.

use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef};
use arrow::compute::SortOptions;
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::Result;

/// Arrays of one type, whose values compare by where they are: the array, and the place in it.
pub(in crate::functions) struct Items {
    rows: Vec<Rows>,
    arrays: Vec<ArrayRef>,
}

impl Items {
    pub(in crate::functions) fn of(arrays: &[&ArrayRef]) -> Result<Self> {
        let options = SortOptions {
            descending: false,
            nulls_first: false,
        };
        let field = SortField::new_with_options(arrays[0].data_type().clone(), options);
        let converter = RowConverter::new(vec![field])?;
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
    pub(in crate::functions) fn same(
        &self,
        (a, at): (usize, usize),
        (b, other): (usize, usize),
    ) -> bool {
        self.rows[a].row(at) == self.rows[b].row(other)
    }

    /// Which of two values is the greater. NULL is greater than any.
    pub(super) fn compare(&self, (a, at): (usize, usize), (b, other): (usize, usize)) -> Ordering {
        self.rows[a].row(at).cmp(&self.rows[b].row(other))
    }

    pub(super) fn is_valid(&self, array: usize, at: usize) -> bool {
        self.arrays[array].is_valid(at)
    }
}
