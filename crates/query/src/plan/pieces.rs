//! Operators that work on rows in pieces, because the rows' texts and arrays may be large.
//!
//! DataFusion evaluates expressions for 8,192 rows at once, whose values may have 16 MB each. A
//! projection that makes texts or arrays is evaluated for as many rows as fit
//! ([`growth::in_pieces`]): all of a batch if possible, otherwise half of them, and so on down to
//! one row, which is refused only if the budget itself has no room.
//!
//! UNNEST repeats the rest of a row for each item of its array. So it gets only as many rows at
//! once as make a batch of moderate size, and its output is reserved while it works on them.
//!
//! A join repeats rows, and with them their texts, of which Arrow has views: a batch of 8,192 rows
//! may stand for 130 GB. An operator that then writes the texts out makes that much memory before
//! anybody can stop it. So rows that are sorted or grouped by texts come in batches that stand for
//! few bytes. A repartition writes rows to files when memory runs out, so there must be memory for
//! a whole batch of its input ([`keys`]). A sort makes batches of few bytes ([`sorted`]). A join
//! copies arrays for each row itself, so it is made to return few rows at once.

mod keys;
mod long;
mod sorted;

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use aerostat_semantics::growth::{self, FREE_BYTES, Growth, bytes_of};
use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions},
        datatypes::{DataType, SchemaRef},
    },
    common::{
        Result,
        config::ConfigOptions,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext},
    logical_expr::ColumnarValue,
    physical_expr::{
        PhysicalExpr,
        expressions::{Column, Literal},
    },
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, projection::ProjectionExec,
        replace_children_if_necessary, unnest::UnnestExec,
    },
};
use futures::{Stream, StreamExt};

/// How many bytes an operator may make of several rows that it is given at once.
const MADE_BYTES_MAX: usize = 16 << 20;

/// Replaces projections that make texts and arrays by a [`PiecesExec`], and puts others where the
/// module says.
#[derive(Debug)]
pub(crate) struct MakeInPieces;

impl PhysicalOptimizerRule for MakeInPieces {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            if let Some(projection) = node.downcast_ref::<ProjectionExec>()
                && projection
                    .expr()
                    .iter()
                    .any(|column| makes_much(&column.expr, projection))
            {
                let work = Work::Project(Arc::clone(&node));
                return Ok(Transformed::yes(PiecesExec::over(projection.input(), work)));
            }
            let Some(unnest) = node.downcast_ref::<UnnestExec>() else {
                return keys::bounded(node, config.execution.batch_size.get());
            };
            let lists = unnest.list_column_indices().iter();
            let lists = lists.map(|list| list.index_in_input_schema).collect();
            let input = node.children()[0];
            let paced = PiecesExec::over(input, Work::Unnest(lists));
            replace_children_if_necessary(node, vec![paced]).map(Transformed::yes)
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "make_in_pieces"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether an expression makes values of any length.
fn makes_much(expr: &Arc<dyn PhysicalExpr>, projection: &ProjectionExec) -> bool {
    if expr.is::<Column>() {
        return false;
    }
    let is_long = |ty: &DataType| {
        matches!(
            ty,
            DataType::Utf8View
                | DataType::Utf8
                | DataType::LargeUtf8
                | DataType::BinaryView
                | DataType::List(_)
                | DataType::Struct(_)
        )
    };
    if let Some(literal) = expr.downcast_ref::<Literal>() {
        return is_long(&literal.value().data_type())
            && literal.value().size() > FREE_BYTES / 8_192;
    }
    let ty = expr.data_type(&projection.input().schema());
    ty.as_ref().is_ok_and(is_long)
}

/// What a [`PiecesExec`] does with its input.
#[derive(Clone, Debug)]
enum Work {
    /// Evaluates this projection.
    Project(Arc<dyn ExecutionPlan>),
    /// Hands rows on to UNNEST of these columns.
    Unnest(Vec<usize>),
    /// Hands rows on to an operator that writes these columns out, as many at once as have few
    /// bytes in them.
    Keys(Vec<usize>),
    /// Hands rows on if there is memory for the bytes that these columns stand for.
    Written(Vec<usize>),
    /// Hands on at most this many rows at once.
    Rows(usize),
    /// Tells its input to make this many rows at once.
    Batches(usize),
    /// Runs its input, a sort, with bounded batches ([`sorted`]).
    Sorted,
}

impl Work {
    fn name(&self) -> &'static str {
        match self {
            Work::Project(_) => "ProjectionExec",
            _ => "PiecesExec",
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct PiecesExec {
    input: Arc<dyn ExecutionPlan>,
    work: Work,
    properties: Arc<PlanProperties>,
}

impl PiecesExec {
    fn over(input: &Arc<dyn ExecutionPlan>, work: Work) -> Arc<dyn ExecutionPlan> {
        let properties = match &work {
            Work::Project(projection) => Arc::clone(projection.properties()),
            _ => Arc::clone(input.properties()),
        };
        Arc::new(Self {
            input: Arc::clone(input),
            work,
            properties,
        })
    }
}

impl DisplayAs for PiecesExec {
    fn fmt_as(&self, form: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.work {
            Work::Project(projection) => projection.fmt_as(form, f),
            other => f.write_str(other.name()),
        }
    }
}

impl ExecutionPlan for PiecesExec {
    fn name(&self) -> &str {
        self.work.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(input) = children.first() else {
            return Ok(self);
        };
        let work = match &self.work {
            Work::Project(projection) => {
                let input = vec![Arc::clone(input)];
                Work::Project(replace_children_if_necessary(
                    Arc::clone(projection),
                    input,
                )?)
            }
            other => other.clone(),
        };
        Ok(Self::over(input, work))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        match &self.work {
            Work::Project(projection) => projection.apply_expressions(f),
            _ => Ok(TreeNodeRecursion::Continue),
        }
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let step = match &self.work {
            Work::Batches(rows) => {
                return self.input.execute(partition, long::making(&context, *rows));
            }
            Work::Sorted => return sorted::execute(&self.input, partition, context),
            Work::Rows(rows) => Step::Rows(*rows),
            Work::Written(columns) => Step::Written {
                columns: columns.clone(),
                batch_rows: context.session_config().batch_size(),
                written: keys::Written::default(),
            },
            Work::Keys(columns) => Step::Keys {
                columns: columns.clone(),
                made: Growth::new(),
            },
            Work::Unnest(lists) => Step::Unnest {
                lists: lists.clone(),
                made: Growth::new(),
            },
            Work::Project(plan) => {
                let projection = plan.downcast_ref::<ProjectionExec>();
                let columns = projection.map(ProjectionExec::expr).unwrap_or_default();
                let exprs: Vec<_> = columns.iter().map(|c| Arc::clone(&c.expr)).collect();
                Step::Project {
                    // Volatile expressions may not be evaluated twice for a row.
                    divides: !exprs.iter().any(is_volatile),
                    exprs,
                }
            }
        };
        Ok(Box::pin(Pieces {
            input: self.input.execute(partition, context)?,
            schema: self.schema(),
            step,
            rest: None,
            rows: usize::MAX,
        }))
    }
}

/// Whether an expression may have another value each time that it is computed.
pub(super) fn is_volatile(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.is_volatile_node() || expr.children().into_iter().any(is_volatile)
}

enum Step {
    Project {
        exprs: Vec<Arc<dyn PhysicalExpr>>,
        /// Whether the rows of a batch may be divided.
        divides: bool,
    },
    Unnest {
        lists: Vec<usize>,
        /// The memory that UNNEST makes of the last rows.
        made: Growth,
    },
    Keys {
        columns: Vec<usize>,
        /// The memory that is made of the last rows.
        made: Growth,
    },
    Written {
        columns: Vec<usize>,
        batch_rows: usize,
        written: keys::Written,
    },
    Rows(usize),
}

/// A running [`PiecesExec`].
struct Pieces {
    input: SendableRecordBatchStream,
    schema: SchemaRef,
    step: Step,
    /// The rest of the last batch.
    rest: Option<RecordBatch>,
    /// How many rows at once have fitted before.
    rows: usize,
}

impl Stream for Pieces {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        match &mut this.step {
            Step::Unnest { made, .. } | Step::Keys { made, .. } => *made = Growth::new(),
            _ => {}
        }
        let batch = match this.rest.take() {
            Some(rest) => rest,
            None => match ready!(this.input.poll_next_unpin(context)) {
                Some(Ok(batch)) => batch,
                ended => return Poll::Ready(ended),
            },
        };
        let rows = batch.num_rows();
        let done = match &mut this.step {
            Step::Unnest { lists, made } => for_unnest(&batch, lists, made),
            Step::Keys { columns, made } => keys::of_few_bytes(&batch, columns, made),
            Step::Written {
                columns,
                batch_rows,
                written,
            } => written
                .check(&batch, columns, *batch_rows)
                .map(|()| (rows, batch.clone())),
            Step::Rows(most) => {
                let rows = rows.min(*most);
                Ok((rows, batch.slice(0, rows)))
            }
            Step::Project { exprs, divides } => {
                let most = if *divides { this.rows } else { usize::MAX };
                projected(&batch, &this.schema, exprs, most, *divides)
            }
        };
        Poll::Ready(Some(done.map(|(taken, piece)| {
            assert!(
                (taken > 0 || rows == 0) && taken <= rows && piece.num_rows() == taken,
                "a piece of {} rows was made of {taken} of {rows} rows",
                piece.num_rows()
            );
            if taken < rows {
                this.rest = Some(batch.slice(taken, rows - taken));
            }
            this.rows = rows_next(taken, rows, &piece);
            piece
        })))
    }
}

/// How many rows to try next, after `taken` of a batch's `of` rows have fitted. More are tried only
/// if twice as many are likely to fit, because an evaluation that does not fit is wasted.
fn rows_next(taken: usize, of: usize, piece: &RecordBatch) -> usize {
    if taken == of {
        return usize::MAX;
    }
    let columns = piece.columns().iter();
    let made: usize = columns.map(|column| bytes_of(column.as_ref())).sum();
    match made < MADE_BYTES_MAX / 4 {
        true => taken * 2,
        false => taken,
    }
}

impl RecordBatchStream for Pieces {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// The projection's columns for as many of the first rows as fit, and how many rows these are.
fn projected(
    batch: &RecordBatch,
    schema: &SchemaRef,
    exprs: &[Arc<dyn PhysicalExpr>],
    most: usize,
    divides: bool,
) -> Result<(usize, RecordBatch)> {
    let mut rows = batch.num_rows().min(most);
    loop {
        let piece = batch.slice(0, rows);
        let evaluated = match divides && rows > 1 {
            true => growth::in_pieces(|| evaluated(&piece, exprs)),
            false => evaluated(&piece, exprs),
        };
        match evaluated {
            Err(error) if divides && rows > 1 && growth::is_too_much(&error) => {
                growth::go_on()?;
                rows /= 2;
            }
            evaluated => {
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                let schema = Arc::clone(schema);
                let columns = evaluated?;
                let piece = RecordBatch::try_new_with_options(schema, columns, &options)?;
                return Ok((rows, piece));
            }
        }
    }
}

fn evaluated(rows: &RecordBatch, exprs: &[Arc<dyn PhysicalExpr>]) -> Result<Vec<ArrayRef>> {
    let columns = exprs.iter().map(|expr| match expr.evaluate(rows)? {
        // Functions reserve what they make themselves.
        ColumnarValue::Array(array) => Ok(array),
        ColumnarValue::Scalar(value) => {
            let mut growth = Growth::new();
            let bytes = match value.data_type() {
                // Rows share the value of a text or byte string.
                DataType::Utf8View | DataType::BinaryView => value.size() + 16 * rows.num_rows(),
                _ => value.size().saturating_mul(rows.num_rows()),
            };
            growth.make(bytes)?;
            growth.keep(value.to_array_of_size(rows.num_rows())?)
        }
    });
    columns.collect()
}

/// As many of the first rows of a batch as UNNEST makes a batch of moderate size of, and how many
/// these are. UNNEST's output is reserved.
fn for_unnest(
    batch: &RecordBatch,
    lists: &[usize],
    made: &mut Growth,
) -> Result<(usize, RecordBatch)> {
    let mut bytes = 0usize;
    let mut rows = 0;
    while rows < batch.num_rows() {
        let of_row = unnested_bytes(batch, lists, rows);
        if rows > 0 && bytes.saturating_add(of_row) > MADE_BYTES_MAX {
            break;
        }
        bytes = bytes.saturating_add(of_row);
        rows += 1;
    }
    made.make(bytes)?;
    Ok((rows, batch.slice(0, rows)))
}

/// How many bytes UNNEST makes of a row: for each item of the longest list, the row's other values.
fn unnested_bytes(batch: &RecordBatch, lists: &[usize], row: usize) -> usize {
    let length = |at: &usize| {
        let list = batch.column(*at).as_list_opt::<i32>()?;
        list.is_valid(row).then(|| list.value_length(row) as usize)
    };
    let items = lists.iter().filter_map(length).max().unwrap_or(0);
    let columns = batch.columns().iter().enumerate();
    let others = columns.filter(|(at, _)| !lists.contains(at));
    let repeated = others.map(|(_, column)| match column.data_type() {
        DataType::Utf8View | DataType::BinaryView => 16,
        DataType::List(_) | DataType::Struct(_) | DataType::Utf8 | DataType::Binary => {
            bytes_of(column.slice(row, 1).as_ref())
        }
        other => other.primitive_width().unwrap_or(16),
    });
    let of_item = repeated.sum::<usize>() + 16 * lists.len();
    items.max(1).saturating_mul(of_item)
}
