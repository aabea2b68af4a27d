//! What a shape becomes once it is bound to a table.

use std::sync::Arc;

use aerostat_storage::{
    CompareOp, Key, Literal as KeyValue, Predicate, RowView, Table, TableView, ValueRef,
};
use aerostat_txn::{Snapshot, Transaction};
use aerostat_types::{Physical, SqlType};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;

use crate::{
    INDEX_ROWS_MAX, Inputs, Kind, RANGE_KEYS_MAX, Rows, Stop, Value, Written,
    columns::{array, as_wide},
    expression::{Condition, Expr, NoRow},
    input::Values,
    select::Selection,
    shape::Operator,
    write::Write,
};

/// An output column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its name, as PostgreSQL would give it.
    pub name: String,
    /// Its type.
    pub ty: SqlType,
    /// The column of the table that it is, from 0; `None` for one that is computed.
    pub column: Option<usize>,
}

/// A shape bound to a table, ready to run any number of times at once.
#[derive(Debug)]
pub struct Program {
    pub(crate) table: Arc<Table>,
    pub(crate) action: Action,
    pub(crate) outputs: Vec<Output>,
    /// Of the outputs.
    pub(crate) types: Arc<[SqlType]>,
    /// Of the outputs.
    pub(crate) schema: SchemaRef,
    /// The columns that it reads of rows it finds.
    pub(crate) read: Vec<usize>,
    /// The sequences that it takes numbers of.
    pub(crate) sequences: Vec<u32>,
}

#[derive(Debug)]
pub(crate) enum Action {
    Select(Selection),
    Write(Write),
}

impl Program {
    /// What it does.
    pub fn kind(&self) -> Kind {
        match &self.action {
            Action::Select(_) => Kind::Select,
            Action::Write(write) => write.kind(),
        }
    }

    /// The columns it returns; none for a write without RETURNING.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// The table it is about.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The columns that it reads of the rows it finds by key, for who counts that; none for
    /// an INSERT, which looks for nothing.
    pub fn columns_read(&self) -> &[usize] {
        &self.read
    }

    /// Whether it shows, or decides by, what rows have: all it finds by key, and what a write
    /// returns. Such a program needs the right to read its table beside the one to change it.
    pub fn reads(&self) -> bool {
        self.kind() != Kind::Insert || !self.outputs.is_empty()
    }

    /// The sequences that it takes numbers of, by number.
    pub fn sequences(&self) -> &[u32] {
        &self.sequences
    }

    /// Runs a SELECT. The caller knows how many bytes a short range of rows has at most.
    ///
    /// # Errors
    /// [`Stop::Unfit`], also of a program that writes.
    pub fn read(&self, snapshot: Snapshot, inputs: &Inputs) -> Result<Rows, Stop> {
        let Action::Select(selection) = &self.action else {
            return Err(Stop::Unfit);
        };
        let values = Values::of(inputs).ok_or(Stop::Unfit)?;
        selection.run(self, &self.table.view(snapshot), &values)
    }

    /// Runs a write under a transaction, which the caller then commits, or after an error
    /// rolls back.
    ///
    /// # Errors
    /// Any [`Stop`].
    pub fn write(&self, transaction: &Transaction, inputs: &Inputs) -> Result<Written, Stop> {
        let Action::Write(write) = &self.action else {
            return Err(Stop::Unfit);
        };
        let values = Values::of(inputs).ok_or(Stop::Unfit)?;
        if let Some(numbers) = &inputs.numbers {
            numbers.again();
        }
        write.run(self, transaction, &values)
    }

    /// Rows of the outputs, whose values come row by row.
    pub(crate) fn rows(&self, values: &[ValueRef<'_>], rows: usize) -> Rows {
        debug_assert_eq!(values.len(), self.types.len() * rows);
        let types = self.types.iter().cycle();
        let values = types.zip(values).map(|(ty, value)| Value::of(*ty, *value));
        Rows {
            values: values.collect(),
            schema: Arc::clone(&self.schema),
            types: Arc::clone(&self.types),
            rows,
        }
    }

    /// A batch of the outputs, whose values come row by row.
    pub(crate) fn batch(&self, values: &[ValueRef<'_>], rows: usize) -> Result<RecordBatch, Stop> {
        let width = self.outputs.len();
        debug_assert_eq!(values.len(), width * rows);
        let columns: Vec<ArrayRef> = self
            .outputs
            .iter()
            .enumerate()
            .map(|(at, output)| {
                array(
                    output.ty,
                    values[at.min(values.len())..]
                        .iter()
                        .step_by(width)
                        .copied(),
                )
            })
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|_| Stop::Unfit)
    }
}

/// How rows are found: by key, and what else must be true of them.
#[derive(Debug)]
pub(crate) struct Find {
    pub(crate) by: By,
    pub(crate) conditions: Vec<Condition>,
}

#[derive(Debug)]
pub(crate) enum By {
    /// The values of the key's columns, in key order.
    Point(Vec<(Physical, Expr)>),
    /// The bounds of the key's only column, an integer of so many bits.
    Range {
        physical: Physical,
        bounds: Vec<(Operator, Expr)>,
    },
    /// Columns that are equal to something, among them those of a secondary index.
    Index(Vec<(usize, Physical, Expr)>),
}

impl Find {
    /// Calls `take` with each row; ascending by key, if they are found by key.
    pub(crate) fn each<'v>(
        &'v self,
        view: &'v TableView,
        values: &Values<'v>,
        mut take: impl FnMut(RowView<'v>) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let mut check = |row: RowView<'v>| {
            for condition in &self.conditions {
                if condition.truth(&row, values)? != Some(true) {
                    return Ok(());
                }
            }
            take(row)
        };
        match &self.by {
            By::Point(columns) => {
                let mut literals = Vec::with_capacity(columns.len());
                for (physical, expr) in columns {
                    let value = expr.eval(&NoRow, values)?;
                    if matches!(value, ValueRef::Null) {
                        // Nothing is equal to NULL.
                        return Ok(());
                    }
                    literals.push(key_value(*physical, value)?);
                }
                match find(view, &literals) {
                    Some(row) => check(row),
                    None => Ok(()),
                }
            }
            By::Index(columns) => {
                let mut predicates = Vec::with_capacity(columns.len());
                for (attribute, physical, expr) in columns {
                    let value = expr.eval(&NoRow, values)?;
                    if matches!(value, ValueRef::Null) {
                        return Ok(());
                    }
                    predicates.push(Predicate::Compare {
                        attribute: *attribute,
                        op: CompareOp::Eq,
                        value: key_value(*physical, value)?,
                    });
                }
                let rows = view.rows_by_index(&predicates, INDEX_ROWS_MAX);
                for row in rows.ok_or(Stop::Unfit)? {
                    check(row)?;
                }
                Ok(())
            }
            By::Range { physical, bounds } => {
                let Some((low, high)) = limits(*physical, bounds, values)? else {
                    return Ok(());
                };
                if high - low >= RANGE_KEYS_MAX {
                    return Err(Stop::Unfit);
                }
                for key in low..=high {
                    if let Some(row) = find(view, &[KeyValue::Int(key)]) {
                        check(row)?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// The visible row with these values of the key's columns. A value beyond its column's
/// range makes no key.
fn find<'v>(view: &'v TableView, literals: &[KeyValue]) -> Option<RowView<'v>> {
    let key: Key = view.table().key(literals)?;
    view.row(key.borrow())
}

fn key_value(physical: Physical, value: ValueRef<'_>) -> Result<KeyValue, Stop> {
    Ok(match (physical, value) {
        (Physical::Bool, ValueRef::Bool(value)) => KeyValue::Bool(value),
        (Physical::Variable, ValueRef::Bytes(bytes)) => KeyValue::Bytes(bytes.to_vec()),
        (Physical::Bytes16, ValueRef::Bytes16(bytes)) => KeyValue::Bytes(bytes.to_vec()),
        (Physical::I16 | Physical::I32 | Physical::I64 | Physical::I128, value) => {
            KeyValue::Int(as_wide(value).ok_or(Stop::Unfit)?)
        }
        _ => return Err(Stop::Unfit),
    })
}

/// The least and the greatest key within all bounds; `None` when there is none.
fn limits(
    physical: Physical,
    bounds: &[(Operator, Expr)],
    values: &Values<'_>,
) -> Result<Option<(i128, i128)>, Stop> {
    let (mut low, mut high) = match physical {
        Physical::I16 => (i128::from(i16::MIN), i128::from(i16::MAX)),
        Physical::I32 => (i128::from(i32::MIN), i128::from(i32::MAX)),
        _ => (i128::from(i64::MIN), i128::from(i64::MAX)),
    };
    for (operator, bound) in bounds {
        let Some(bound) = as_wide(bound.eval(&NoRow, values)?) else {
            return Ok(None);
        };
        match operator {
            Operator::Less => high = high.min(bound - 1),
            Operator::LessEqual => high = high.min(bound),
            Operator::Greater => low = low.max(bound + 1),
            Operator::GreaterEqual => low = low.max(bound),
            Operator::Equal | Operator::Unequal => return Err(Stop::Unfit),
        }
    }
    Ok((low <= high).then_some((low, high)))
}
