//! Rows found by the values in foreign keys, on either side: the lookups of foreign-key checks.

use std::{
    collections::{HashMap, hash_map},
    ops::ControlFlow,
    sync::Arc,
};

use aerostat_segment::{KeyRef, Keys, Literal, NewRows, Predicate};
use aerostat_types::TableSchema;
use arrow_array::{Array, ArrayRef, UInt64Array, cast::AsArray};

use crate::{
    RowId, ScanSpec, StorageError, Table, TableView,
    read::describe,
    store::{
        directory::Access,
        index::{Index, Piece},
    },
};

/// More values than this are looked for by a scan of the table rather than by predicates.
const VALUES_MAX: usize = 1_024;

/// `Key (a, b)=(1, x)`, of the columns at these positions and their values in one row.
pub fn describe_key(
    schema: &TableSchema,
    positions: &[usize],
    values: &[ArrayRef],
    row: usize,
) -> String {
    describe::key(
        schema,
        positions,
        NewRows::from(&placed(schema.columns.len(), positions, values)),
        row,
    )
}

/// The values at their positions among all columns; what stands at the others means nothing.
pub(crate) fn placed(width: usize, positions: &[usize], values: &[ArrayRef]) -> Vec<ArrayRef> {
    let mut columns = vec![Arc::clone(&values[0]); width];
    for (&at, values) in positions.iter().zip(values) {
        columns[at] = Arc::clone(values);
    }
    columns
}

impl Table {
    /// The keys that values of these columns, of the columns' types, make.
    fn keys_of(&self, positions: &[usize], values: &[ArrayRef]) -> Result<Keys, StorageError> {
        let columns = placed(self.schema().columns.len(), positions, values);
        Keys::of(&self.segment_schema(), positions, &columns)
            .map_err(|error| self.segment_error(error))
    }
}

impl TableView {
    /// For each row of `values` the row of the table that has them: values of the columns of
    /// a constraint, in its order, the primary key's or a unique index's. A row with a NULL
    /// has none.
    ///
    /// # Errors
    /// [`StorageError::Conflict`] when there is no such constraint any more; values that are
    /// out of range.
    pub fn find_by_key(
        &self,
        constraint: &str,
        values: &[ArrayRef],
    ) -> Result<Vec<Option<RowId>>, StorageError> {
        let table = self.table();
        let rows = values.first().map_or(0, |values| values.len());
        assert!(
            values.iter().all(|values| values.len() == rows),
            "each column of a key has a value for each row"
        );
        let has_null = |row: usize| values.iter().any(|values| values.is_null(row));
        let complete: Vec<bool> = (0..rows).map(|row| !has_null(row)).collect();
        if !complete.contains(&true) {
            return Ok(vec![None; rows]);
        }
        let primary = &table.schema().primary_key;
        if table.is_keyed() && table.schema().primary_key_name == constraint {
            let values = without_nulls(values, &complete);
            let keys = table.keys_of(primary, &values.columns)?;
            return values.spread(|nth| self.lookup(keys.get(nth)));
        }
        let shape = Arc::clone(&table.shape());
        let named = |index: &&Arc<Index>| index.description.name == constraint;
        let index = shape.indexes.iter().find(named);
        let index = index.ok_or(StorageError::Conflict)?;
        let values = without_nulls(values, &complete);
        let keys = table.keys_of(&index.spec.attributes, &values.columns)?;
        let schema = &shape.segment_schema;
        let within = index.within(self.directory(), schema, Access::Rows);
        values.spread(|nth| self.find_indexed(&within, keys.get(nth)))
    }

    fn find_indexed(
        &self,
        within: &[Piece<'_>],
        key: KeyRef<'_>,
    ) -> Result<Option<RowId>, StorageError> {
        for piece in within {
            let (segment, mut found) = (piece.segment(), None);
            piece.find(key, &mut |row| {
                if self.sees(segment, row) {
                    found = Some(RowId::new(segment.no(), row));
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The rows of the table that have one of the rows of `values` in these columns, each
    /// with the first of those, in no certain order. Values are of the columns' types, and
    /// none is NULL.
    ///
    /// # Errors
    /// Values that are out of range.
    pub fn find_by_values(
        &self,
        positions: &[usize],
        values: &[ArrayRef],
    ) -> Result<Vec<(RowId, usize)>, StorageError> {
        let table = self.table();
        let rows = values.first().map_or(0, |values| values.len());
        assert_eq!(
            positions.len(),
            values.len(),
            "each of the columns has its values"
        );
        let wanted = table.keys_of(positions, values)?;
        let mut first: HashMap<KeyRef<'_>, usize> = HashMap::with_capacity(rows);
        for row in 0..rows {
            if let hash_map::Entry::Vacant(free) = first.entry(wanted.get(row)) {
                free.insert(row);
            }
        }
        let mut found = Vec::new();
        if first.is_empty() {
            return Ok(found);
        }
        let scan = self.scan(ScanSpec {
            projection: positions.to_vec(),
            predicates: self.predicates(positions, values, first.len()),
            row_ids: true,
            ..ScanSpec::default()
        })?;
        let mut reader = scan.reader();
        while let Some(batch) = reader.next_batch()? {
            let (ids, columns) = batch.columns().split_last().expect("row ids come last");
            let ids: &UInt64Array = ids.as_primitive();
            let keys = table.keys_of(positions, columns)?;
            let of = |row: usize| {
                first
                    .get(&keys.get(row))
                    .map(|nth| (RowId(ids.value(row)), *nth))
            };
            found.extend((0..batch.num_rows()).filter_map(of));
        }
        Ok(found)
    }

    /// What all rows with such values satisfy, so that indexes and zones help; nothing when
    /// the values are too many.
    fn predicates(
        &self,
        positions: &[usize],
        values: &[ArrayRef],
        distinct: usize,
    ) -> Vec<Predicate> {
        let schema = self.table().schema();
        if distinct > VALUES_MAX {
            return Vec::new();
        }
        let of_column = |(&attribute, values): (&usize, &ArrayRef)| {
            let ty = schema.columns[attribute].ty;
            let literals = (0..values.len()).map(|row| describe::literal_of(ty, values, row));
            let values = literals.collect::<Option<Vec<Literal>>>()?;
            Some(Predicate::InList {
                attribute,
                values,
                negated: false,
            })
        };
        let all = positions.iter().zip(values).filter_map(of_column);
        all.filter(|predicate| self.accepts(predicate)).collect()
    }
}

/// Values of the rows that have no NULL.
struct Complete<'a> {
    columns: Vec<ArrayRef>,
    complete: &'a [bool],
}

fn without_nulls<'a>(values: &[ArrayRef], complete: &'a [bool]) -> Complete<'a> {
    let columns = if complete.contains(&false) {
        let mask = arrow_array::BooleanArray::from(complete.to_vec());
        let filtered = values.iter().map(|values| {
            arrow_select::filter::filter(values, &mask)
                .expect("the mask has one value for each row")
        });
        filtered.collect()
    } else {
        values.to_vec()
    };
    Complete { columns, complete }
}

impl Complete<'_> {
    /// The answers for these rows, and none for the others.
    fn spread<T, E>(
        &self,
        answer: impl Fn(usize) -> Result<Option<T>, E>,
    ) -> Result<Vec<Option<T>>, E> {
        let mut nth = 0..;
        let of = |complete: &bool| match complete.then(|| nth.next()).flatten() {
            Some(nth) => answer(nth),
            None => Ok(None),
        };
        self.complete.iter().map(of).collect()
    }
}
