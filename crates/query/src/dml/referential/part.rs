//! Values of rows, as foreign keys compare them.

use std::sync::Arc;

use aerostat_catalog::TableEntry;
use datafusion::{
    arrow::{
        array::{Array, ArrayRef, BooleanArray, RecordBatch},
        compute::{
            CastOptions, and, cast_with_options, filter, filter_record_batch, is_not_null,
            kernels::cmp::{distinct, not_distinct},
            not, nullif, or,
        },
        datatypes::{Field, Schema},
    },
    common::Result,
};

/// Some columns of some rows of a table.
#[derive(Clone)]
pub(in crate::dml) struct Part {
    positions: Vec<usize>,
    rows: RecordBatch,
}

impl Part {
    /// Columns of a table, which are at these positions of it.
    pub(in crate::dml) fn new(positions: Vec<usize>, rows: RecordBatch) -> Self {
        assert_eq!(
            positions.len(),
            rows.num_columns(),
            "each column of a part has its position in the table"
        );
        Self { positions, rows }
    }

    /// All columns of a table.
    pub(in crate::dml) fn all(rows: RecordBatch) -> Self {
        let positions = (0..rows.num_columns()).collect();
        Self { positions, rows }
    }

    /// The columns at these positions of the table, all of which the part must have.
    pub(super) fn values(&self, positions: &[usize]) -> Vec<ArrayRef> {
        let of = |wanted: &usize| self.positions.iter().position(|at| at == wanted);
        let found = positions.iter().filter_map(of);
        let found: Vec<ArrayRef> = found.map(|at| Arc::clone(self.rows.column(at))).collect();
        assert_eq!(
            found.len(),
            positions.len(),
            "a part has columns {:?} of a table, and {positions:?} are needed",
            self.positions
        );
        found
    }

    pub(super) fn filtered(&self, mask: &BooleanArray) -> Result<Self> {
        Ok(Self {
            positions: self.positions.clone(),
            rows: filter_record_batch(&self.rows, mask)?,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.rows.num_rows()
    }

    /// The size of its values in memory.
    pub(super) fn bytes(&self) -> usize {
        self.rows.get_array_memory_size()
    }
}

/// Which rows differ in one of the columns.
pub(super) fn changed(old: &Part, new: &Part, positions: &[usize]) -> Result<BooleanArray> {
    let (old_values, new_values) = (old.values(positions), new.values(positions));
    let mut changed = BooleanArray::from(vec![false; old.rows.num_rows()]);
    for (old, new) in old_values.iter().zip(&new_values) {
        changed = or(&changed, &distinct(old, new)?)?;
    }
    Ok(changed)
}

pub(super) fn all_valid(values: &[ArrayRef]) -> Result<BooleanArray> {
    let rows = values.first().map_or(0, |values| values.len());
    let mut valid = BooleanArray::from(vec![true; rows]);
    for values in values.iter().filter(|values| values.null_count() > 0) {
        valid = and(&valid, &is_not_null(values)?)?;
    }
    Ok(valid)
}

/// Whether rows have NULLs in the columns of a foreign key.
pub(super) enum Completeness {
    /// No row has a NULL.
    All,
    /// Every row has NULL in all columns.
    None,
    /// Some rows have NULLs: the rows that have none, and whether a row has NULLs beside values.
    Some {
        filtered: Vec<ArrayRef>,
        is_mixed: bool,
    },
}

pub(super) fn complete(values: &[ArrayRef]) -> Result<Completeness> {
    let valid = all_valid(values)?;
    if valid.false_count() == 0 {
        return Ok(Completeness::All);
    }
    let is_mixed = (0..valid.len())
        .any(|row| !valid.value(row) && values.iter().any(|values| values.is_valid(row)));
    if valid.true_count() == 0 && !is_mixed {
        return Ok(Completeness::None);
    }
    let filtered = values
        .iter()
        .map(|values| Ok(filter(values, &valid)?))
        .collect::<Result<Vec<_>>>()?;
    Ok(Completeness::Some { filtered, is_mixed })
}

/// The rows of some values that have no NULL: their values, and their positions.
pub(super) struct Found {
    pub(super) values: Vec<ArrayRef>,
    pub(super) rows: Vec<u32>,
}

pub(super) fn complete_only(values: Vec<ArrayRef>) -> Result<Found> {
    let valid = all_valid(&values)?;
    let rows: Vec<u32> = (0..valid.len() as u32)
        .filter(|&row| valid.value(row as usize))
        .collect();
    if valid.false_count() == 0 {
        return Ok(Found { values, rows });
    }
    let filtered = values
        .iter()
        .map(|values| Ok(filter(values, &valid)?))
        .collect::<Result<Vec<_>>>()?;
    Ok(Found {
        values: filtered,
        rows,
    })
}

/// Values converted to the types of a table's columns at these positions; NULL where the column's
/// type does not have the value.
pub(super) fn converted(
    values: &[ArrayRef],
    entry: &TableEntry,
    positions: &[usize],
) -> Result<Vec<ArrayRef>> {
    let schema = entry.table.arrow_schema();
    assert_eq!(
        values.len(),
        positions.len(),
        "each column of {} has its values",
        entry.name
    );
    values
        .iter()
        .zip(positions)
        .map(|(values, &at)| {
            let to = schema.field(at).data_type();
            if values.data_type() == to {
                return Ok(Arc::clone(values));
            }
            let safe = CastOptions {
                safe: true,
                ..CastOptions::default()
            };
            let there = cast_with_options(values, to, &safe)?;
            let back = cast_with_options(&there, values.data_type(), &safe)?;
            let is_other = not(&not_distinct(&back, values)?)?;
            Ok(nullif(&there, &is_other)?)
        })
        .collect()
}

/// Rows with other values in these columns.
pub(super) fn replaced(
    rows: &RecordBatch,
    positions: &[usize],
    given: Vec<ArrayRef>,
) -> Result<RecordBatch> {
    assert_eq!(
        positions.len(),
        given.len(),
        "each replaced column has its values"
    );
    let mut columns = rows.columns().to_vec();
    for (&at, values) in positions.iter().zip(given) {
        columns[at] = values;
    }
    let schema = rows.schema();
    let fields = schema.fields().iter();
    let nullable = fields.map(|field| field.as_ref().clone().with_nullable(true));
    let schema = Schema::new(nullable.collect::<Vec<Field>>());
    Ok(RecordBatch::try_new(Arc::new(schema), columns)?)
}
