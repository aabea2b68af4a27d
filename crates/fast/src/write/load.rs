//! INSERT of the rows that a statement lists, any number of them, chunk by chunk; with ON
//! CONFLICT, conflicting rows are left alone or updated.

use std::collections::HashSet;

use aerostat_storage::{InTheWay, RowId, RowReader, RowView, StorageError, ValueRef};
use aerostat_txn::Transaction;
use aerostat_types::SqlType;
use arrow_array::RecordBatch;

use super::Write;
use crate::{
    Stop, Written,
    arrays::Arrays,
    expression::{Condition, Expr, NoRow, Row, evaluate, fitted},
    fit::fit_of_sql,
    input::Values,
    rows::{Cell, Cells},
    target::Target,
};

/// Bytes of texts after which rows are written: a parameter may stand in each of them.
const BATCH_BYTES: usize = 4 << 20;

/// Values after which rows are written: a table may have many columns beside those that the
/// statement lists.
const BATCH_VALUES: usize = 64 << 10;

/// Where the rows of a VALUES go.
#[derive(Debug)]
pub(crate) struct Load {
    /// The types of the columns that the cells of a row go to.
    pub(crate) types: Vec<SqlType>,
    /// The parameters that are the rows' columns; none where the rows are in the text.
    pub(crate) arrays: Vec<(usize, SqlType)>,
    /// What each column of the table takes.
    pub(crate) sources: Vec<Source>,
    pub(crate) on_conflict: Option<OnConflict>,
}

/// What a column takes.
#[derive(Debug)]
pub(crate) struct Source {
    /// The cell; `None` for a column that the statement does not list.
    pub(crate) cell: Option<usize>,
    /// Its own value; `None` if that is not known here, and then the statement lists it.
    pub(crate) default: Option<Expr>,
}

/// What is done about rows that are in the way.
#[derive(Debug)]
pub(crate) struct OnConflict {
    /// The constraints whose keys count, by name.
    pub(crate) constraints: Vec<String>,
    /// DO UPDATE; `None` for DO NOTHING.
    pub(crate) update: Option<Update>,
}

/// Columns from the table's first on are those of the row that is there, behind them come
/// those of the row that was to be inserted.
#[derive(Debug)]
pub(crate) struct Update {
    /// The new values of all columns.
    pub(crate) columns: Vec<Expr>,
    /// All must be true, or the row is left alone.
    pub(crate) conditions: Vec<Condition>,
}

impl Update {
    /// Computes what reads no column, for that is an error also where no row is in the way.
    fn settle<'a>(&'a self, values: &Values<'a>) -> Result<(), Stop> {
        let sides = self.conditions.iter();
        let sides = sides.flat_map(|condition| [&condition.left, &condition.right]);
        let mut all = self.columns.iter().chain(sides);
        all.try_for_each(|expr| expr.settle(values))
    }
}

/// A row that is there beside the one that was to be inserted.
struct Pair<'r, 'a> {
    old: RowView<'a>,
    new: &'r [ValueRef<'a>],
}

impl<'a> Row<'a> for Pair<'_, 'a> {
    fn value(&self, column: usize) -> ValueRef<'a> {
        match column.checked_sub(self.new.len()) {
            None => self.old.value(column),
            Some(at) => self.new[at],
        }
    }
}

impl Load {
    pub(crate) fn run(
        &self,
        write: &Write,
        target: &Target,
        transaction: &Transaction,
        values: &Values<'_>,
    ) -> Result<Written, Stop> {
        if let Some(update) = self.on_conflict.as_ref().and_then(|it| it.update.as_ref()) {
            update.settle(values)?;
        }
        let cancel = transaction.cancel_token();
        let mut reader = match &self.arrays[..] {
            [] => Reader::Cells(values.inputs.rows.as_ref().ok_or(Stop::Unfit)?.cells()),
            arrays => Reader::Arrays(Arrays::of(arrays, values)?),
        };
        let mut returned = Vec::new();
        let (mut written, mut goes_on) = (0, true);
        while goes_on {
            if cancel.is_cancelled() {
                return Err(Stop::Cancelled);
            }
            let mut chunk = Vec::new();
            let zone = &values.inputs.zone;
            goes_on = match &mut reader {
                Reader::Cells(cells) => cells.chunk(&self.types, zone, &mut chunk)?,
                Reader::Arrays(arrays) => arrays.chunk(&self.types, zone, &mut chunk)?,
            };
            if chunk.is_empty() {
                break;
            }
            let place = LoadTarget {
                load: self,
                write,
                target,
                transaction,
            };
            let (rows, batch) = place.write_chunk(&chunk, values)?;
            written += rows;
            returned.extend(batch);
        }
        if let (None, [], Some(listed)) = (&self.on_conflict, &self.arrays[..], &values.inputs.rows)
        {
            assert_eq!(
                written,
                listed.len() as u64,
                "the rows that are listed are written"
            );
        }
        Ok(Written {
            rows: written,
            returned: write.returning.is_some().then_some(returned),
        })
    }

    /// The values of a row's columns.
    fn fill<'a>(
        &'a self,
        cells: &'a [Cell<'a>],
        target: &Target,
        values: &Values<'a>,
        row: &mut Vec<ValueRef<'a>>,
    ) -> Result<(), Stop> {
        let columns = &target.table.schema().columns;
        assert_eq!(
            self.sources.len(),
            columns.len(),
            "each column takes something"
        );
        for (source, column) in self.sources.iter().zip(columns) {
            let own = || {
                source
                    .default
                    .as_ref()
                    .ok_or(Stop::Unfit)?
                    .eval(&NoRow, values)
            };
            row.push(match source.cell.map(|at| &cells[at]) {
                None | Some(Cell::Default) => own()?,
                Some(Cell::Value(value)) => value.borrowed(),
                Some(Cell::Text(text)) => ValueRef::Bytes(text.as_bytes()),
                Some(Cell::Now) => match column.ty {
                    SqlType::TimestampTz => Expr::Now.eval(&NoRow, values)?,
                    SqlType::Timestamp => Expr::LocalNow.eval(&NoRow, values)?,
                    _ => return Err(Stop::Unfit),
                },
                Some(Cell::Parameter(number)) => {
                    let from = *values.inputs.types.get(*number).ok_or(Stop::Unfit)?;
                    let fit = fit_of_sql(from, column.ty).ok_or(Stop::Unfit)?;
                    match (values.get(*number), fit) {
                        (ValueRef::Null, _) => ValueRef::Null,
                        (value, Some(fit)) => fitted(value, fit, values)?,
                        (value, None) => value,
                    }
                }
            });
        }
        Ok(())
    }
}

/// Where rows come from.
enum Reader<'t> {
    Cells(Cells<'t>),
    Arrays(Arrays<'t>),
}

/// Where a chunk of rows is written.
struct LoadTarget<'p> {
    load: &'p Load,
    write: &'p Write,
    target: &'p Target,
    transaction: &'p Transaction,
}

impl LoadTarget<'_> {
    /// Writes rows; gives how many, and those of RETURNING.
    fn write_chunk<'a>(
        &self,
        chunk: &'a [Cell<'a>],
        values: &Values<'a>,
    ) -> Result<(u64, Option<RecordBatch>), Stop> {
        let LoadTarget {
            load,
            write,
            target,
            ..
        } = *self;
        assert!(
            chunk.len().is_multiple_of(load.types.len()),
            "{} cells are no rows of {}",
            chunk.len(),
            load.types.len()
        );
        let (mut rows, mut returned) = (Vec::new(), Vec::new());
        let (mut written, mut bytes) = (0, 0);
        for cells in chunk.chunks(load.types.len()) {
            let from = rows.len();
            load.fill(cells, target, values, &mut rows)?;
            write.check(&rows[from..], values, &mut returned)?;
            bytes += bytes_of(&rows[from..]);
            if bytes >= BATCH_BYTES || rows.len() >= BATCH_VALUES {
                written += self.write_rows(&mut rows, values)?;
                bytes = 0;
            }
        }
        if !rows.is_empty() {
            written += self.write_rows(&mut rows, values)?;
        }
        let returned = match &write.returning {
            // The planner's way reserves the memory of what is returned.
            Some(_) if bytes_of(&returned) > BATCH_BYTES => return Err(Stop::Unfit),
            Some(outputs) => Some(target.batch(&returned, returned.len() / outputs.len())?),
            None => None,
        };
        Ok((written, returned))
    }

    /// Writes whole rows, and leaves none.
    fn write_rows(&self, rows: &mut Vec<ValueRef<'_>>, values: &Values<'_>) -> Result<u64, Stop> {
        let LoadTarget {
            load,
            write,
            target,
            transaction,
        } = *self;
        let written = match &load.on_conflict {
            Some(on_conflict) => self.upsert(on_conflict, rows, values)?,
            // A single row is written where its values lie, however long these are.
            None if rows.len() == load.sources.len() => {
                target.settle(rows)?;
                target.table.insert_row(transaction, rows)?
            }
            None => {
                let batch = write.batch(target, rows)?;
                target.table.insert(transaction, &batch)?
            }
        };
        rows.clear();
        Ok(written)
    }

    /// Inserts the rows that nothing is in the way of, and updates what is in the way of the
    /// others.
    fn upsert<'a>(
        &self,
        on_conflict: &'a OnConflict,
        rows: &[ValueRef<'a>],
        values: &Values<'a>,
    ) -> Result<u64, Stop> {
        let LoadTarget {
            write,
            target,
            transaction,
            ..
        } = *self;
        let columns = &target.table.schema().columns;
        let width = columns.len();
        // A NULL that may not be is an error also of a row that is not inserted.
        let is_refused = |(value, at): (&ValueRef<'_>, usize)| {
            matches!(value, ValueRef::Null) && !columns[at].nullable
        };
        if rows.iter().zip((0..width).cycle()).any(is_refused) {
            return Err(Stop::Unfit);
        }
        let view = target.table.view(transaction.snapshot().clone());
        let batch = write.batch(target, rows)?;
        let constraints = &on_conflict.constraints;
        let found = view.in_the_way(transaction, &batch, constraints)?;
        assert_eq!(
            found.len() * width,
            rows.len(),
            "each row is told what is in its way"
        );
        let mut free = Vec::with_capacity(rows.len());
        let mut pairs = Vec::new();
        for (new, found) in rows.chunks(width).zip(&found) {
            match found {
                InTheWay::Nothing => free.extend_from_slice(new),
                InTheWay::Unseen => return Err(Stop::Conflict),
                InTheWay::New | InTheWay::Row(_) if on_conflict.update.is_none() => {}
                InTheWay::Row(id) => pairs.push((*id, new)),
                // A second time, which is an error.
                InTheWay::New => return Err(Stop::Unfit),
            }
        }
        let mut written = match free.len() {
            0 => 0,
            all if all == rows.len() => self.insert_free(&batch, constraints)?,
            _ => self.insert_free(&write.batch(target, &free)?, constraints)?,
        };
        if let Some(update) = &on_conflict.update {
            let columns: Vec<usize> = (0..width).collect();
            let old_rows = view.rows(&columns, transaction.waits());
            written += self.update(update, &old_rows, &pairs, values)?;
        }
        Ok(written)
    }

    fn insert_free(&self, rows: &RecordBatch, constraints: &[String]) -> Result<u64, Stop> {
        let inserted = self.target.table.insert(self.transaction, rows);
        inserted.map_err(|error| match error {
            // Somebody was faster.
            StorageError::UniqueViolation { constraint, .. }
                if constraints.contains(&constraint) =>
            {
                Stop::Conflict
            }
            error => error.into(),
        })
    }

    fn update<'a>(
        &self,
        update: &'a Update,
        old_rows: &'a RowReader<'_>,
        pairs: &[(RowId, &[ValueRef<'a>])],
        values: &Values<'a>,
    ) -> Result<u64, Stop> {
        let mut met = HashSet::with_capacity(pairs.len());
        let mut ids = Vec::with_capacity(pairs.len());
        let mut rows = Vec::new();
        for &(id, new) in pairs {
            // A row is updated once; whether that is an error is the planner's to say.
            if !met.insert(id.0) {
                return Err(Stop::Unfit);
            }
            let old = old_rows.row_by_id(id)?;
            let pair = Pair { old, new };
            if !holds(&update.conditions, &pair, values)? {
                continue;
            }
            ids.push(id);
            let from = rows.len();
            evaluate(&update.columns, &pair, values, &mut rows)?;
            self.write.check(&rows[from..], values, &mut Vec::new())?;
        }
        if ids.is_empty() {
            return Ok(0);
        }
        let batch = self.write.batch(self.target, &rows)?;
        Ok(old_rows.view().update(self.transaction, &ids, &batch)?)
    }
}

fn bytes_of(values: &[ValueRef<'_>]) -> usize {
    let bytes = values.iter().map(|value| match value {
        ValueRef::Bytes(bytes) => bytes.len(),
        _ => 0,
    });
    bytes.sum()
}

fn holds<'a>(
    conditions: &'a [Condition],
    row: &impl Row<'a>,
    values: &Values<'a>,
) -> Result<bool, Stop> {
    for condition in conditions {
        if condition.truth(row, values)? != Some(true) {
            return Ok(false);
        }
    }
    Ok(true)
}
