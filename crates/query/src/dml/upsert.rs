//! Running INSERT … ON CONFLICT, batch by batch.
//!
//! Storage says of each row what is in its way. A row with nothing in its way is inserted; the
//! others are paired with the existing rows, and the query of DO UPDATE makes new rows of the
//! pairs. The rows in the way are the newest versions. If the snapshot does not see one of them,
//! the statement runs again, or fails under REPEATABLE READ; the same happens if one appears
//! between the question and the insert.

use std::{collections::HashMap, sync::Arc};

use aerostat_catalog::failure::from_storage;
use aerostat_semantics::growth::go_on;
use aerostat_storage::{InTheWay, RowId, StorageError, TableView};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    arrow::{
        array::{ArrayRef, AsArray, BooleanArray, RecordBatch, UInt32Array, UInt64Array},
        compute::{cast, concat_batches, filter_record_batch, sort_to_indices, take_record_batch},
        datatypes::{Schema, SchemaRef, UInt64Type},
    },
    common::Result,
    physical_plan::collect,
};

use super::{
    on_conflict::{ConflictUpdate, OnConflict},
    pieces::pieces,
    referential::Part,
    rows::{blocking, check, table_rows},
    sink::Sink,
};
use crate::{
    again::below,
    error::external,
    physical::{plan_physical, task_context},
};

/// An existing row, and the position in a batch of the row that was to be inserted.
type Pair = (RowId, usize);

/// RETURNING rows, with the ordinals of the statement's rows that they belong to.
#[derive(Default)]
struct Returned {
    rows: Vec<RecordBatch>,
    ordinals: Vec<u64>,
}

impl Sink<'_> {
    /// Inserts the rows of a batch, or updates the rows in their way.
    pub(super) async fn upsert(&mut self, conflict: &OnConflict, batch: RecordBatch) -> Result<()> {
        let first = self.ordinal;
        self.ordinal += batch.num_rows() as u64;
        let rows = table_rows(self.bound, &batch)?;
        // Rows that were written since the statement began may be in newer segments.
        let view = self.view.table().view(self.view.snapshot().clone());
        let (asked, transaction) = (view.clone(), Arc::clone(&self.transaction));
        let (new, constraints) = (rows.clone(), conflict.constraints.clone());
        let found = blocking(&self.bound.target, move || {
            asked.in_the_way(&transaction, &new, &constraints)
        })
        .await?;
        assert_eq!(
            found.len(),
            rows.num_rows(),
            "storage says of each row what is in its way"
        );
        let (free, pairs) = sorted(&found, conflict)?;
        let mut returned = Returned::default();
        self.insert_free(conflict, &batch, &rows, free, first, &mut returned)
            .await?;
        if let Some(update) = &conflict.update
            && !pairs.is_empty()
        {
            self.update_pairs(update, view, &rows, pairs, first, &mut returned)
                .await?;
        }
        if let Some(rows) = returned.in_order()? {
            self.keep(rows, |sink, rows| sink.returned.push(rows))?;
        }
        Ok(())
    }

    async fn insert_free(
        &mut self,
        conflict: &OnConflict,
        batch: &RecordBatch,
        rows: &RecordBatch,
        free: Vec<bool>,
        first: u64,
        returned: &mut Returned,
    ) -> Result<()> {
        let positions = free.iter().enumerate().filter(|(_, free)| **free);
        let ordinals: Vec<u64> = positions.map(|(at, _)| first + at as u64).collect();
        if ordinals.is_empty() {
            return Ok(());
        }
        let mask = BooleanArray::from(free);
        if let Some(range) = self.bound.returning.clone() {
            let columns: Vec<usize> = range.collect();
            let kept = filter_record_batch(&batch.project(&columns)?, &mask)?;
            returned.push(kept, ordinals);
        }
        let rows = filter_record_batch(rows, &mask)?;
        let new = rows.clone();
        for rows in pieces(rows) {
            go_on()?;
            self.inserted += self.insert_piece(conflict, rows).await?;
        }
        if let Some(referential) = &mut self.referential {
            referential.inserted(&self.bound.target.entry, &new).await?;
        }
        Ok(())
    }

    /// Inserts rows that had nothing in their way a moment ago.
    async fn insert_piece(&self, conflict: &OnConflict, rows: RecordBatch) -> Result<u64> {
        let table = Arc::clone(self.view.table());
        let transaction = Arc::clone(&self.transaction);
        let (constraints, put_off) = (conflict.constraints.clone(), Arc::clone(&self.put_off));
        let inserted = blocking(&self.bound.target, move || {
            table.store().make_way(&transaction.cancel_token())?;
            let inserted = table.insert_but(&transaction, &rows, &put_off);
            inserted.map_err(|error| match error {
                // Another transaction has inserted the key since.
                StorageError::UniqueViolation { constraint, .. }
                    if constraints.contains(&constraint) =>
                {
                    StorageError::Conflict
                }
                error => error,
            })
        });
        inserted.await
    }

    async fn update_pairs(
        &mut self,
        update: &ConflictUpdate,
        view: TableView,
        rows: &RecordBatch,
        pairs: Vec<Pair>,
        first: u64,
        returned: &mut Returned,
    ) -> Result<()> {
        let bound = &*update.bound;
        update
            .pairs
            .put(paired(update, &view, rows, &pairs, first)?);
        let plan = plan_physical(self.state, &bound.source).await?;
        let schema = plan.schema();
        let batches = collect(plan, task_context(self.state)).await?;
        let batch = concat_batches(&schema, &batches)?;
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let ids: Vec<u64> = batch
            .column(0)
            .as_primitive::<UInt64Type>()
            .values()
            .to_vec();
        let ordinals = batch.column(batch.num_columns() - 1);
        let ordinals = ordinals.as_primitive::<UInt64Type>().values().to_vec();
        refuse_second_update(&pairs, &ids, &ordinals, first)?;
        check(bound, &batch)?;
        if let Some(range) = bound.returning.clone() {
            let columns: Vec<usize> = range.collect();
            returned.push(batch.project(&columns)?, ordinals);
        }
        let rows = table_rows(bound, &batch)?;
        let ids: Vec<RowId> = ids.into_iter().map(RowId).collect();
        if let Some(referential) = &mut self.referential {
            let positions = referential.columns(&bound.target.entry);
            let old = view.fetch(&ids, &positions);
            let old = old.map_err(|error| external(from_storage(error)))?;
            let new = Part::new(positions.clone(), rows.project(&positions)?);
            let old = Part::new(positions, old);
            referential.updated(&bound.target.entry, old, new)?;
        }
        let (transaction, put_off) = (Arc::clone(&self.transaction), Arc::clone(&self.put_off));
        let updated = blocking(&bound.target, move || {
            view.table().store().make_way(&transaction.cancel_token())?;
            view.update_but(&transaction, &ids, &rows, &put_off)
        });
        self.inserted += updated.await?;
        Ok(())
    }
}

/// Which rows can be inserted, and which pairs DO UPDATE is about.
fn sorted(found: &[InTheWay], conflict: &OnConflict) -> Result<(Vec<bool>, Vec<Pair>)> {
    let free = found.iter().map(|found| *found == InTheWay::Nothing);
    let mut pairs = Vec::new();
    for (at, found) in found.iter().enumerate() {
        match found {
            InTheWay::Unseen => {
                return Err(below(StorageError::Conflict, std::convert::identity));
            }
            InTheWay::New if conflict.update.is_some() => return Err(external(second_time())),
            InTheWay::New if conflict.is_unordered => return Err(external(not_the_first())),
            InTheWay::Row(id) if conflict.update.is_some() => pairs.push((*id, at)),
            InTheWay::Nothing | InTheWay::New | InTheWay::Row(_) => {}
        }
    }
    Ok((free.collect(), pairs))
}

/// The pairs as a batch.
fn paired(
    update: &ConflictUpdate,
    view: &TableView,
    rows: &RecordBatch,
    pairs: &[Pair],
    first: u64,
) -> Result<RecordBatch> {
    let ids: Vec<RowId> = pairs.iter().map(|(id, _)| *id).collect();
    let all: Vec<usize> = (0..rows.num_columns()).collect();
    let old = view.fetch(&ids, &all).map_err(from_storage);
    let old = old.map_err(external)?;
    let positions = UInt32Array::from_iter_values(pairs.iter().map(|(_, at)| *at as u32));
    let new = take_record_batch(rows, &positions)?;
    let ordinals = pairs.iter().map(|(_, at)| first + *at as u64);
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from_iter_values(ids.iter().map(|id| id.0))),
        Arc::new(UInt64Array::from_iter_values(ordinals)),
    ];
    columns.extend(old.columns().iter().cloned());
    columns.extend(new.columns().iter().cloned());
    let schema = update.pairs.schema();
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// Refuses a row that meets a row which an earlier row has updated.
fn refuse_second_update(pairs: &[Pair], ids: &[u64], ordinals: &[u64], first: u64) -> Result<()> {
    let mut updated: HashMap<u64, u64> = HashMap::with_capacity(ids.len());
    for (&id, &ordinal) in ids.iter().zip(ordinals) {
        let earliest = updated.entry(id).or_insert(ordinal);
        *earliest = ordinal.min(*earliest);
    }
    let is_later = |(id, at): &Pair| {
        let earliest = updated.get(&id.0);
        earliest.is_some_and(|&earliest| first + *at as u64 > earliest)
    };
    if pairs.iter().any(is_later) {
        return Err(external(second_time()));
    }
    Ok(())
}

fn not_the_first() -> SqlError {
    SqlError::new(
        ErrorKind::FeatureNotSupported,
        "ON CONFLICT DO NOTHING of several rows of one key is not supported beside a subquery in RETURNING",
    )
    .with_hint("Leave out the rows that are not the first of their key.")
}

fn second_time() -> SqlError {
    SqlError::new(
        ErrorKind::CardinalityViolation,
        "ON CONFLICT DO UPDATE command cannot affect row a second time",
    )
    .with_hint(
        "Ensure that no rows proposed for insertion within the same command have duplicate constrained values.",
    )
}

impl Returned {
    fn push(&mut self, rows: RecordBatch, ordinals: Vec<u64>) {
        self.rows.push(rows);
        self.ordinals.extend(ordinals);
    }

    /// All rows, in the order of their ordinals.
    fn in_order(self) -> Result<Option<RecordBatch>> {
        let Some(first) = self.rows.first() else {
            return Ok(None);
        };
        let schema = Arc::new(nullable(&first.schema()));
        let same = |rows: &RecordBatch| under(rows, &schema);
        let all = self.rows.iter().map(same).collect::<Result<Vec<_>>>()?;
        let rows = concat_batches(&schema, &all)?;
        assert_eq!(
            rows.num_rows(),
            self.ordinals.len(),
            "each RETURNING row has an ordinal"
        );
        if self.ordinals.is_sorted() {
            return Ok(Some(rows));
        }
        let order = sort_to_indices(&UInt64Array::from(self.ordinals), None, None)?;
        Ok(Some(take_record_batch(&rows, &order)?))
    }
}

fn nullable(schema: &Schema) -> Schema {
    let fields = schema.fields().iter();
    let nullable = fields.map(|field| field.as_ref().clone().with_nullable(true));
    Schema::new(nullable.collect::<Vec<_>>())
}

/// The rows in the types of this schema: two queries may use different types of texts.
fn under(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = rows.columns().iter().zip(schema.fields());
    let columns = columns
        .map(|(column, field)| Ok(cast(column, field.data_type())?))
        .collect::<Result<Vec<_>>>()?;
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}
