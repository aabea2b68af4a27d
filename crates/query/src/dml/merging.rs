//! Running MERGE, batch by batch.
//!
//! Each row comes with the number of its clause, or NULL. The row ids of rows to be updated and
//! deleted are gathered, and so are new rows: old versions end before new rows are inserted, so
//! that a statement may delete a key and insert it again. A MERGE that only inserts does not
//! gather its rows.

use aerostat_storage::RowId;
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    arrow::{
        array::{Array, AsArray, BooleanArray, RecordBatch},
        compute::filter_record_batch,
        datatypes::{Int32Type, UInt64Type},
    },
    common::Result,
};

use super::{
    BoundDml, DmlKind,
    rows::{check, table_rows},
    sink::Sink,
};
use crate::error::external;

impl Sink<'_> {
    /// Applies to the rows of a batch what their clauses say.
    pub(super) async fn merge(&mut self, batch: RecordBatch) -> Result<()> {
        let kinds = kinds_of(self.bound, &batch);
        let met_again = self.claim_once(&batch, &kinds)?;
        let rows = met_again.unwrap_or(batch.num_rows());
        let batch = batch.slice(0, rows);
        let of_kind = |wanted: &[DmlKind]| {
            let is_wanted = |kind: &Option<DmlKind>| kind.is_some_and(|k| wanted.contains(&k));
            let mask: BooleanArray = kinds[..rows].iter().map(is_wanted).map(Some).collect();
            filter_record_batch(&batch, &mask)
        };
        // Errors of the rows before the one that was met again come first.
        check(self.bound, &of_kind(&[DmlKind::Insert, DmlKind::Update])?)?;
        if met_again.is_some() {
            return Err(external(second_time()));
        }
        let updates = of_kind(&[DmlKind::Update])?;
        if updates.num_rows() > 0 {
            let rows = table_rows(self.bound, &updates)?;
            self.keep(rows, |sink, rows| sink.new_rows.push(rows))?;
        }
        let inserts = of_kind(&[DmlKind::Insert])?;
        if inserts.num_rows() == 0 {
            return Ok(());
        }
        let rows = table_rows(self.bound, &inserts)?;
        if self.bound.does(DmlKind::Update) || self.bound.does(DmlKind::Delete) {
            return self.keep(rows, |sink, rows| sink.added.push(rows));
        }
        self.insert(rows).await
    }

    /// Notes the rows that end, up to the first that has ended before. Returns that row's position.
    fn claim_once(
        &mut self,
        batch: &RecordBatch,
        kinds: &[Option<DmlKind>],
    ) -> Result<Option<usize>> {
        let ids = batch.column(0).as_primitive::<UInt64Type>();
        let concerned =
            |kind: &Option<DmlKind>| matches!(kind, Some(DmlKind::Update | DmlKind::Delete));
        let of_rows = kinds.iter().zip(ids.values());
        let old = of_rows.filter(|(kind, _)| concerned(kind));
        let old: Vec<u64> = old.map(|(_, &id)| id).collect();
        let mut changed_before = self.changed_before(&old)?.into_iter();
        debug_assert!(
            (0..ids.len()).all(|row| !concerned(&kinds[row]) || ids.is_valid(row)),
            "a row that is updated or deleted has a row id"
        );
        for (at, (kind, &id)) in kinds.iter().zip(ids.values()).enumerate() {
            let ending = match kind {
                Some(DmlKind::Update) => &mut self.updated,
                Some(DmlKind::Delete) => &mut self.deleted,
                _ => continue,
            };
            if !self.seen.insert(id) || changed_before.next().unwrap_or(false) {
                return Ok(Some(at));
            }
            ending.push(RowId(id));
        }
        self.reserve_ids(ids.len())?;
        Ok(None)
    }
}

/// What happens to each row of a batch; `None` for nothing.
fn kinds_of(bound: &BoundDml, batch: &RecordBatch) -> Vec<Option<DmlKind>> {
    let numbers = batch.column(batch.num_columns() - 1);
    let numbers = numbers.as_primitive::<Int32Type>();
    let kind = |number: Option<i32>| {
        let number = usize::try_from(number?).ok()?;
        *bound.clauses.get(number)?
    };
    numbers.iter().map(kind).collect()
}

fn second_time() -> SqlError {
    SqlError::new(
        ErrorKind::CardinalityViolation,
        "MERGE command cannot affect row a second time",
    )
    .with_hint("Ensure that not more than one source row matches any one target row.")
}
