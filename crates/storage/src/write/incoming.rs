//! Rows on their way into a table: checked, sorted by key, keys encoded once.

use std::{borrow::Cow, ops::Range};

use aerostat_segment::{KeyRef, Keys, NewRows, ValueRef};
use aerostat_types::{Physical, SqlType};
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array, cast::AsArray};
use arrow_schema::DataType;
use arrow_select::take::take;

use crate::{StorageError, Table, read::describe, store::shape::Shape};

/// Rows that may be appended in this order.
pub(crate) struct Incoming<'a> {
    data: Data<'a>,
    /// Strictly ascending, or all empty for a table without a key.
    pub(crate) keys: Keys,
    pub(crate) rows: usize,
    /// Heap bytes that all of them take at most.
    heap_bytes: usize,
}

enum Data<'a> {
    Columns(Cow<'a, [ArrayRef]>),
    Row(&'a [ValueRef<'a>]),
}

/// Rows as a caller gives them.
#[derive(Clone, Copy)]
pub(crate) enum Given<'a> {
    Batch(&'a RecordBatch),
    Row(&'a [ValueRef<'a>]),
}

impl<'a> Given<'a> {
    pub(crate) fn new_rows(self) -> NewRows<'a> {
        match self {
            Given::Batch(batch) => NewRows::from(batch.columns()),
            Given::Row(values) => NewRows::Row(values),
        }
    }

    pub(crate) fn len(self) -> usize {
        match self {
            // There may be rows without columns.
            Given::Batch(batch) => batch.num_rows(),
            Given::Row(_) => 1,
        }
    }
}

impl<'a> Incoming<'a> {
    /// Checks columns, NULLs, widths and that no key is there twice.
    pub(crate) fn prepare(table: &Table, given: Given<'a>) -> Result<Self, StorageError> {
        let schema = table.schema();
        let new = given.new_rows();
        assert_eq!(
            new.width(),
            schema.columns.len(),
            "rows have the table's columns"
        );
        let shape = table.shape();
        let attributes = shape.segment_schema.attributes();
        // The definition may refuse NULL where segments have room for it.
        let takes_null = |at: usize| schema.columns[at].nullable && attributes[at].nullable;
        if let Some(column) = (0..attributes.len()).find(|&at| !takes_null(at) && new.has_null(at))
        {
            return Err(table.not_null(column));
        }
        let heap_bytes = check_widths(table, &shape, given)?;
        match given {
            Given::Batch(batch) => {
                let columns = Cow::Borrowed(batch.columns());
                Self::sorted(table, &shape, columns, batch.num_rows(), heap_bytes)
            }
            Given::Row(values) => Ok(Self {
                data: Data::Row(values),
                keys: keys(table, &shape, new)?,
                rows: 1,
                heap_bytes,
            }),
        }
    }

    /// Rows that were in the table before: checks only that no key is there twice.
    pub(crate) fn of_columns(
        table: &Table,
        columns: Vec<ArrayRef>,
        rows: usize,
    ) -> Result<Self, StorageError> {
        let shape = table.shape();
        assert_eq!(
            columns.len(),
            table.types().len(),
            "rows have the table's columns"
        );
        let heap_bytes = heap_bytes(table, &shape, NewRows::from(&columns), 0..rows)?;
        Self::sorted(table, &shape, Cow::Owned(columns), rows, heap_bytes)
    }

    fn sorted(
        table: &Table,
        shape: &Shape,
        columns: Cow<'a, [ArrayRef]>,
        rows: usize,
        heap_bytes: usize,
    ) -> Result<Self, StorageError> {
        let encode = |columns: &[ArrayRef]| keys(table, shape, NewRows::from(columns));
        let keys = encode(&columns)?;
        assert!(
            columns.iter().all(|column| column.len() == rows),
            "each column has a value for each of {rows} rows"
        );
        assert!(
            !table.is_keyed() || keys.len() == rows,
            "{rows} rows have {} keys",
            keys.len()
        );
        if !table.is_keyed() || keys.is_strictly_ascending() {
            return Ok(Self {
                data: Data::Columns(columns),
                keys,
                rows,
                heap_bytes,
            });
        }
        let mut order: Vec<u32> = (0..rows as u32).collect();
        order.sort_unstable_by_key(|&row| keys.get(row as usize));
        if let Some(pair) = order
            .windows(2)
            .find(|pair| keys.get(pair[0] as usize) == keys.get(pair[1] as usize))
        {
            let columns = NewRows::from(&*columns);
            return Err(unique_violation(table, columns, pair[1] as usize));
        }
        let order = UInt32Array::from(order);
        let columns: Vec<ArrayRef> = columns
            .iter()
            .map(|column| {
                take(column, &order, None).expect("the order is a permutation of the rows")
            })
            .collect();
        let keys = encode(&columns)?;
        debug_assert!(keys.is_strictly_ascending(), "no key is there twice");
        Ok(Self {
            data: Data::Columns(Cow::Owned(columns)),
            keys,
            rows,
            heap_bytes,
        })
    }

    pub(crate) fn new_rows(&self) -> NewRows<'_> {
        match &self.data {
            Data::Columns(columns) => NewRows::from(&**columns),
            Data::Row(values) => NewRows::Row(values),
        }
    }

    pub(crate) fn key(&self, row: usize) -> KeyRef<'_> {
        self.keys.get(row)
    }

    /// The first row from `from` on whose key is not below `upper`.
    pub(crate) fn run_end(&self, from: usize, upper: Option<&[u8]>) -> usize {
        let Some(upper) = upper.filter(|upper| !upper.is_empty()) else {
            return self.rows;
        };
        let (mut low, mut high) = (from, self.rows);
        while low < high {
            let middle = low.midpoint(high);
            if *self.key(middle).0 < *upper {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Heap bytes these rows take at most.
    pub(crate) fn heap_bytes(
        &self,
        table: &Table,
        rows: Range<usize>,
    ) -> Result<usize, StorageError> {
        if rows == (0..self.rows) {
            return Ok(self.heap_bytes);
        }
        heap_bytes(table, &table.shape(), self.new_rows(), rows)
    }

    /// Bytes of these rows' variable-length values as the user counts them, of each
    /// variable-length column.
    pub(crate) fn variable_bytes<'b>(
        &'b self,
        table: &'b Table,
        rows: &'b Range<usize>,
    ) -> impl Iterator<Item = u64> + 'b {
        let columns = table.schema().columns.iter().enumerate();
        columns
            .filter(|(_, column)| column.ty.physical() == Physical::Variable)
            .map(|(at, column)| match (&self.data, column.ty) {
                (Data::Columns(columns), SqlType::Char(n)) => {
                    u64::from(n) * valid_count(&columns[at], rows) as u64
                }
                (Data::Columns(columns), _) => value_bytes(&columns[at], rows),
                (Data::Row(values), ty) => match (values[at], ty) {
                    (ValueRef::Bytes(_), SqlType::Char(n)) => n.into(),
                    (ValueRef::Bytes(bytes), _) => bytes.len() as u64,
                    _ => 0,
                },
            })
    }
}

fn keys(table: &Table, shape: &Shape, new: NewRows<'_>) -> Result<Keys, StorageError> {
    Keys::encode(&shape.segment_schema, new).map_err(|error| table.segment_error(error))
}

fn heap_bytes(
    table: &Table,
    shape: &Shape,
    new: NewRows<'_>,
    rows: Range<usize>,
) -> Result<usize, StorageError> {
    let bytes = shape.segment_schema.heap_bytes(new, rows);
    bytes.map_err(|error| table.segment_error(error))
}

/// Checks that no row is too wide, and gives the heap bytes that all take at most.
fn check_widths(table: &Table, shape: &Shape, given: Given<'_>) -> Result<usize, StorageError> {
    let fixed = shape.segment_schema.row_bytes_fixed();
    let all = heap_bytes(table, shape, given.new_rows(), 0..given.len())?;
    // Only when all rows together are too wide for one can a single one be.
    let bytes_max = shape.row_bytes_max;
    if fixed + all > bytes_max {
        for row in 0..given.len() {
            let bytes = fixed + heap_bytes(table, shape, given.new_rows(), row..row + 1)?;
            if bytes > bytes_max {
                return Err(StorageError::RowTooWide { bytes, bytes_max });
            }
        }
    }
    Ok(all)
}

/// How many of these values are not NULL.
fn valid_count(values: &ArrayRef, rows: &Range<usize>) -> usize {
    let nulls = values.nulls();
    rows.len() - nulls.map_or(0, |nulls| nulls.slice(rows.start, rows.len()).null_count())
}

/// The lengths of strings or byte strings in all; 0 for NULL.
fn value_bytes(values: &ArrayRef, rows: &Range<usize>) -> u64 {
    fn sum(values: &ArrayRef, rows: &Range<usize>, len: impl Fn(usize) -> usize) -> u64 {
        let len = |row| len(row) as u64;
        match values.nulls() {
            None => rows.clone().map(len).sum(),
            Some(nulls) => rows
                .clone()
                .filter(|&row| nulls.is_valid(row))
                .map(len)
                .sum(),
        }
    }
    match values.data_type() {
        DataType::Utf8View => {
            let views = values.as_string_view().views();
            sum(values, rows, |row| views[row] as u32 as usize)
        }
        DataType::Utf8 => {
            let texts = values.as_string::<i32>();
            sum(values, rows, |row| texts.value_length(row) as usize)
        }
        DataType::LargeUtf8 => {
            let texts = values.as_string::<i64>();
            sum(values, rows, |row| texts.value_length(row) as usize)
        }
        DataType::BinaryView => {
            let views = values.as_binary_view().views();
            sum(values, rows, |row| views[row] as u32 as usize)
        }
        DataType::Binary => {
            let strings = values.as_binary::<i32>();
            sum(values, rows, |row| strings.value_length(row) as usize)
        }
        DataType::LargeBinary => {
            let strings = values.as_binary::<i64>();
            sum(values, rows, |row| strings.value_length(row) as usize)
        }
        _ => 0,
    }
}

pub(crate) fn unique_violation(table: &Table, new: NewRows<'_>, row: usize) -> StorageError {
    let schema = table.schema();
    StorageError::UniqueViolation {
        table: schema.name.clone(),
        constraint: schema.primary_key_name.clone(),
        detail: format!(
            "{} already exists.",
            describe::key(schema, &schema.primary_key, new, row)
        ),
    }
}
