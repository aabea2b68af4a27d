//! Batches that stand for few bytes.

use std::{collections::HashSet, sync::Arc};

use aerostat_semantics::growth::{Growth, bytes_of, go_on};
use datafusion::{
    arrow::{
        array::{Array, AsArray, RecordBatch},
        datatypes::DataType,
    },
    common::{Result, tree_node::Transformed},
    physical_expr::{PhysicalExpr, utils::collect_columns},
    physical_plan::{
        ExecutionPlan,
        aggregates::{AggregateExec, AggregateMode},
        repartition::RepartitionExec,
        replace_children_if_necessary,
        sorts::{sort::SortExec, sort_preserving_merge::SortPreservingMergeExec},
        windows::{BoundedWindowAggExec, WindowAggExec},
        work_table::WorkTableExec,
    },
};

use super::{
    PiecesExec, Work,
    long::{BYTES_MAX, bytes_in, columns_of, is_copied, is_long},
    sorted,
};
use crate::plan::cooperate::{is_join, multiplies_rows};

/// How often rows must share a text before the memory that they stand for is reserved.
const SHARED_TIMES: usize = 4;

/// How many rows a join may make at once if each has a copy of an array: 13 MB for arrays of 50,000
/// integers.
const COPIED_ROWS: usize = 64;

/// Bounds the batches below an operator that has texts as keys, and those around a join that copies
/// arrays.
pub(super) fn bounded(
    node: Arc<dyn ExecutionPlan>,
    batch_rows: usize,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if is_join(node.as_ref()) && !columns_of(&node.schema(), is_copied).is_empty() {
        return copying(node, batch_rows).map(Transformed::yes);
    }
    if let Some(repartition) = node.downcast_ref::<RepartitionExec>() {
        let input = repartition.input();
        let long = columns_of(&input.schema(), is_long);
        if long.is_empty() || !repeats(input.as_ref()) {
            return Ok(Transformed::no(node));
        }
        let input = PiecesExec::over(input, Work::Written(long));
        return replace_children_if_necessary(node, vec![input]).map(Transformed::yes);
    }
    let spills = sorted::spills_long_rows(node.as_ref());
    let node = match keys_of(node.as_ref()) {
        Some((input, keys)) if !keys.is_empty() => {
            let input = PiecesExec::over(input, Work::Keys(keys));
            Transformed::yes(replace_children_if_necessary(node, vec![input])?)
        }
        _ => Transformed::no(node),
    };
    Ok(match spills {
        true => Transformed::yes(PiecesExec::over(&node.data, Work::Sorted)),
        false => node,
    })
}

/// Whether rows of a plan may share texts that were read separately.
fn repeats(plan: &dyn ExecutionPlan) -> bool {
    multiplies_rows(plan)
        || plan.is::<WorkTableExec>()
        || plan
            .children()
            .into_iter()
            .any(|input| repeats(input.as_ref()))
}

/// A join that makes few rows at once.
fn copying(join: Arc<dyn ExecutionPlan>, batch_rows: usize) -> Result<Arc<dyn ExecutionPlan>> {
    let mut inputs: Vec<_> = join.children().into_iter().map(Arc::clone).collect();
    for input in &mut inputs {
        *input = PiecesExec::over(input, Work::Batches(batch_rows));
    }
    // A cross join returns as many rows at once as it gets.
    if let Some(right) = inputs.get_mut(1) {
        *right = PiecesExec::over(right, Work::Rows(COPIED_ROWS));
    }
    let join = replace_children_if_necessary(join, inputs)?;
    Ok(PiecesExec::over(&join, Work::Batches(COPIED_ROWS)))
}

/// The input of a node that sorts, groups, partitions or aggregates, and the columns of any length
/// by which it does so.
fn keys_of(node: &dyn ExecutionPlan) -> Option<(&Arc<dyn ExecutionPlan>, Vec<usize>)> {
    let (keys, input): (Vec<_>, _) = if let Some(sort) = node.downcast_ref::<SortExec>() {
        let keys = sort.expr().iter().map(|key| Arc::clone(&key.expr));
        (keys.collect(), sort.input())
    } else if let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() {
        let keys = merge.expr().iter().map(|key| Arc::clone(&key.expr));
        (keys.collect(), merge.input())
    } else if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        let keys = aggregate.group_expr().expr().iter();
        let keys = keys.map(|(key, _)| Arc::clone(key));
        // An aggregate may keep its arguments. A final one has partial results instead of
        // arguments.
        let takes_rows = matches!(
            aggregate.mode(),
            AggregateMode::Partial | AggregateMode::Single | AggregateMode::SinglePartitioned
        );
        let arguments = aggregate.aggr_expr().iter().filter(|_| takes_rows);
        let arguments = arguments.flat_map(|call| call.expressions());
        (keys.chain(arguments).collect(), aggregate.input())
    } else if let Some(window) = node.downcast_ref::<BoundedWindowAggExec>() {
        (window.partition_keys(), window.input())
    } else if let Some(window) = node.downcast_ref::<WindowAggExec>() {
        (window.partition_keys(), window.input())
    } else {
        return None;
    };
    Some((input, long_columns(&keys, input)))
}

fn long_columns(keys: &[Arc<dyn PhysicalExpr>], input: &Arc<dyn ExecutionPlan>) -> Vec<usize> {
    let schema = input.schema();
    let columns = keys.iter().flat_map(collect_columns);
    let columns = columns.map(|column| column.index());
    let mut long: Vec<usize> = columns
        .filter(|at| {
            let field = schema.fields().get(*at);
            field.is_some_and(|field| is_long(field.data_type()))
        })
        .collect();
    long.sort_unstable();
    long.dedup();
    long
}

/// As many of the first rows as have few bytes in some columns, and how many these are. The memory
/// for writing them out is reserved if they share it.
pub(super) fn of_few_bytes(
    batch: &RecordBatch,
    columns: &[usize],
    written: &mut Growth,
) -> Result<(usize, RecordBatch)> {
    let all = batch.num_rows();
    let (mut rows, mut bytes) = (all, bytes_in(batch, columns));
    let mut is_shared = false;
    if bytes > BYTES_MAX {
        go_on()?;
        let mut held = Held::default();
        columns
            .iter()
            .for_each(|at| held.add(batch.column(*at).as_ref()));
        is_shared = bytes / SHARED_TIMES > held.bytes;
        (rows, bytes) = (0, 0);
        while rows < all {
            let of_row = columns
                .iter()
                .map(|at| bytes_of_row(batch.column(*at), rows));
            let with_row = of_row.fold(bytes, usize::saturating_add);
            if rows > 0 && with_row > BYTES_MAX {
                break;
            }
            (rows, bytes) = (rows + 1, with_row);
        }
    }
    // An operator that holds all memory there is would spill for a reservation. These rows are no
    // reason to, unless they share texts.
    if is_shared {
        written.make(bytes)?;
    }
    Ok((rows, batch.slice(0, rows)))
}

/// The bytes that the rows of one batch to be written stand for.
#[derive(Default)]
pub(super) struct Written {
    rows: usize,
    bytes: usize,
    held: Held,
}

/// The bytes that rows have in memory, each buffer counted once.
#[derive(Default)]
struct Held {
    bytes: usize,
    buffers: HashSet<usize>,
}

impl Written {
    /// Checks that there is memory for these rows, too, if they stand for more than they have:
    /// otherwise writing them to a file would need it.
    pub(super) fn check(
        &mut self,
        batch: &RecordBatch,
        columns: &[usize],
        batch_rows: usize,
    ) -> Result<()> {
        self.rows += batch.num_rows();
        self.bytes = self.bytes.saturating_add(bytes_in(batch, columns));
        for at in columns {
            self.held.add(batch.column(*at).as_ref());
        }
        let (bytes, held) = (self.bytes, self.held.bytes);
        if self.rows >= batch_rows {
            *self = Self::default();
        }
        if bytes <= BYTES_MAX {
            return Ok(());
        }
        go_on()?;
        match bytes / SHARED_TIMES > held {
            true => Growth::new().make(bytes),
            false => Ok(()),
        }
    }
}

impl Held {
    fn add(&mut self, column: &dyn Array) {
        let buffers = match column.data_type() {
            DataType::Utf8View => column.as_string_view().data_buffers(),
            DataType::BinaryView => column.as_binary_view().data_buffers(),
            // Values of other types are not shared.
            _ => {
                self.bytes = self.bytes.saturating_add(bytes_of(column));
                return;
            }
        };
        for buffer in buffers {
            if self.buffers.insert(buffer.as_ptr() as usize) {
                self.bytes = self.bytes.saturating_add(buffer.len());
            }
        }
    }
}

fn bytes_of_row(column: &dyn Array, row: usize) -> usize {
    // A view begins with its length.
    let length = |view: u128| view as u32 as usize + size_of::<u128>();
    match column.data_type() {
        DataType::Utf8View => length(column.as_string_view().views()[row]),
        DataType::BinaryView => length(column.as_binary_view().views()[row]),
        _ => bytes_of(column.slice(row, 1).as_ref()),
    }
}
