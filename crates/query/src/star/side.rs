//! A side that has been read whole: its keys and their codes, the keys of groups, and other values.

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, RecordBatch},
        compute::{cast, concat_batches},
        datatypes::{DataType, Date32Type, Int16Type, Int32Type, Int64Type, SchemaRef},
    },
    common::{DataFusionError, Result},
    execution::{TaskContext, memory_pool::MemoryReservation},
    logical_expr::EmitTo,
    physical_plan::{
        ExecutionPlan,
        aggregates::{group_values::new_group_values, order::GroupOrdering},
        execute_stream,
    },
};
use futures::TryStreamExt;

use aerostat_storage::LookupTable;

/// A side in the form in which the fact's rows are joined with it.
pub(super) struct GatheredSide {
    pub(super) table: Arc<LookupTable>,
    /// How many groups the side has, at least 1.
    pub(super) radix: u64,
    /// For each column that is grouped by, its value in each group.
    pub(super) groups: Vec<ArrayRef>,
    /// The values that joined rows need, by row. Codes are rows then.
    pub(super) values: Vec<ArrayRef>,
    /// The group of each row, if codes are rows and the side has several groups.
    pub(super) group_of_row: Vec<u32>,
    /// Whether the code of a key is the position of its row.
    pub(super) has_rows: bool,
    memory: Option<MemoryReservation>,
}

/// The error for a star that cannot be joined as one.
pub(super) fn unfit(why: &str) -> DataFusionError {
    DataFusionError::ResourcesExhausted(why.to_owned())
}

/// Reads a side. Its first column is the key, and the next `groups` columns are keys of groups.
///
/// # Errors
/// The errors of its plan; not enough memory; a key that is there twice.
pub(super) async fn gather(
    plan: Arc<dyn ExecutionPlan>,
    groups: usize,
    context: Arc<TaskContext>,
    reservation: MemoryReservation,
) -> Result<GatheredSide> {
    let schema = plan.schema();
    let mut stream = execute_stream(plan, context)?;
    let mut batches = Vec::new();
    while let Some(batch) = stream.try_next().await? {
        reservation.try_grow(batch.get_array_memory_size())?;
        batches.push(batch);
    }
    let mut side = gathered(&schema, &batches, groups, &reservation)?;
    side.memory = Some(reservation);
    Ok(side)
}

fn gathered(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    groups: usize,
    reservation: &MemoryReservation,
) -> Result<GatheredSide> {
    assert!(
        schema.fields().len() > groups,
        "a side of {} columns has a key and {groups} keys of groups",
        schema.fields().len()
    );
    let rows = batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    reservation.try_grow(rows * size_of::<(i64, u32, usize)>())?;
    let mut keys = Keys::with_capacity(rows);
    for batch in batches {
        keys.add(batch.column(0))?;
    }
    let codes_of_rows = schema.fields().len() > 1 + groups;
    let mut radix = 1;
    let (mut group_columns, mut group_of_row) = (Vec::new(), Vec::new());
    if groups > 0 {
        let fields = Arc::new(schema.project(&(1..=groups).collect::<Vec<_>>())?);
        let mut values = new_group_values(fields, &GroupOrdering::None)?;
        let mut found = Vec::new();
        for batch in batches {
            values.intern(&batch.columns()[1..=groups], &mut found)?;
            group_of_row.extend(found.iter().map(|&group| group as u32));
        }
        assert_eq!(group_of_row.len(), rows, "each row of a side has a group");
        radix = values.len().max(1) as u64;
        reservation.try_grow(values.size())?;
        group_columns = match values.is_empty() {
            true => Vec::new(),
            false => values.emit(EmitTo::All)?,
        };
    }
    if rows >= u32::MAX as usize {
        return Err(unfit("a side has more rows than codes"));
    }
    let codes: Option<Vec<u32>> = match (codes_of_rows, radix > 1) {
        (true, _) => Some((0..rows as u32).collect()),
        (false, true) => Some(std::mem::take(&mut group_of_row)),
        (false, false) => None,
    };
    let (keys, codes) = keys.with_codes(codes);
    reservation.try_grow(LookupTable::bytes_for(&keys, codes.is_some()))?;
    let table =
        LookupTable::new(&keys, codes.as_deref()).map_err(|_| unfit("a side has a key twice"))?;
    let mut values = Vec::new();
    if codes_of_rows {
        let wanted = (1 + groups..schema.fields().len()).collect::<Vec<_>>();
        let projected = batches.iter().map(|batch| batch.project(&wanted));
        let projected = projected.collect::<std::result::Result<Vec<_>, _>>()?;
        let all = concat_batches(&Arc::new(schema.project(&wanted)?), &projected)?;
        reservation.try_grow(all.get_array_memory_size())?;
        values = all.columns().to_vec();
    }
    Ok(GatheredSide {
        table: Arc::new(table),
        radix,
        groups: group_columns,
        values,
        group_of_row: match radix {
            1 => Vec::new(),
            _ => group_of_row,
        },
        has_rows: codes_of_rows,
        memory: None,
    })
}

/// The keys of rows.
struct Keys {
    /// The key of each row.
    all: Vec<i64>,
    /// The rows whose key is NULL, in ascending order: NULL equals no key.
    missing: Vec<usize>,
}

impl Keys {
    fn with_capacity(rows: usize) -> Self {
        Self {
            all: Vec::with_capacity(rows),
            missing: Vec::new(),
        }
    }

    fn add(&mut self, column: &ArrayRef) -> Result<()> {
        let before = self.all.len();
        if let Some(nulls) = column.nulls() {
            let missing = (0..column.len()).filter(|&row| nulls.is_null(row));
            self.missing.extend(missing.map(|row| before + row));
        }
        match column.data_type() {
            DataType::Int16 => self.extend(column.as_primitive::<Int16Type>().values()),
            DataType::Int32 => self.extend(column.as_primitive::<Int32Type>().values()),
            DataType::Date32 => self.extend(column.as_primitive::<Date32Type>().values()),
            _ => {
                let numbers = cast(column, &DataType::Int64)?;
                self.extend(numbers.as_primitive::<Int64Type>().values());
            }
        }
        Ok(())
    }

    fn extend<T: Copy + Into<i64>>(&mut self, values: &[T]) {
        self.all.extend(values.iter().map(|&value| value.into()));
    }

    /// The keys other than NULL, and the codes of their rows.
    fn with_codes(self, codes: Option<Vec<u32>>) -> (Vec<i64>, Option<Vec<u32>>) {
        let missing = &self.missing;
        let codes = codes.map(|codes| without(codes, missing));
        (without(self.all, missing), codes)
    }
}

/// The values without those at `places`, which are in ascending order.
fn without<T: Copy>(values: Vec<T>, places: &[usize]) -> Vec<T> {
    if places.is_empty() {
        return values;
    }
    let mut left = places.iter().peekable();
    let stays = |(at, _): &(usize, T)| left.next_if(|place| *place == at).is_none();
    let kept = values.into_iter().enumerate().filter(stays);
    kept.map(|(_, value)| value).collect()
}
