//! Types with values of any length, and the bytes of such values.

use std::sync::Arc;

use aerostat_semantics::growth::bytes_of;
use datafusion::{
    arrow::{
        array::RecordBatch,
        datatypes::{DataType, Schema},
    },
    execution::TaskContext,
};

/// How many bytes the rows of a batch stand for at most, if it has several rows: as many as take a
/// few milliseconds.
pub(super) const BYTES_MAX: usize = 4 << 20;

pub(super) fn columns_of(schema: &Schema, has: fn(&DataType) -> bool) -> Vec<usize> {
    let fields = schema.fields().iter().enumerate();
    let found = fields.filter(|(_, field)| has(field.data_type()));
    found.map(|(at, _)| at).collect()
}

/// Whether values of this type have any length.
pub(super) fn is_long(ty: &DataType) -> bool {
    matches!(ty, DataType::Utf8View | DataType::BinaryView) || is_copied(ty)
}

/// Whether each row has a copy of its value, even if it is another row's.
pub(super) fn is_copied(ty: &DataType) -> bool {
    ty.is_nested()
        || matches!(
            ty,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary
        )
}

/// A context in which operators make this many rows at once.
pub(super) fn making(context: &TaskContext, rows: usize) -> Arc<TaskContext> {
    Arc::new(TaskContext::new(
        context.task_id(),
        context.session_id(),
        context.session_config().clone().with_batch_size(rows),
        context.scalar_functions().clone(),
        context.higher_order_functions().clone(),
        context.aggregate_functions().clone(),
        context.window_functions().clone(),
        context.runtime_env(),
    ))
}

pub(super) fn bytes_in(batch: &RecordBatch, columns: &[usize]) -> usize {
    let columns = columns.iter();
    columns
        .map(|at| bytes_of(batch.column(*at).as_ref()))
        .fold(0, usize::saturating_add)
}
