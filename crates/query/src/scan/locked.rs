//! The scan of a query that locks the rows it returns.
//!
//! The query is planned by itself, with row ids among its outputs. The optimizer of the query
//! around it does not reach it, so order and filters stay below the locks. Batches are locked as
//! they come, and only as many rows as are wanted: with SKIP LOCKED and a LIMIT the scan goes on
//! until it has that many.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Weak},
};

use aerostat_pgcatalog::Planning;
use aerostat_sql::tree::locking::shown;
use aerostat_storage::{RowId, StorageError, TableView, WaitPolicy};
use aerostat_txn::{RowLock, Transaction};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    arrow::{
        array::{Array, AsArray, BooleanArray, RecordBatch, RecordBatchOptions},
        compute::filter_record_batch,
        datatypes::{Field, Schema, SchemaRef, UInt64Type},
    },
    catalog::{Session, TableProvider},
    common::{DFSchema, DataFusionError, Result, tree_node::TreeNodeRecursion},
    datasource::TableType,
    execution::{SendableRecordBatchStream, TaskContext},
    logical_expr::{Expr, LogicalPlan, TableProviderFilterPushDown},
    physical_expr::{EquivalenceProperties, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
        display::DisplayableExecutionPlan,
        execute_stream,
        execution_plan::{Boundedness, EmissionType},
        stream::RecordBatchStreamAdapter,
    },
};
use futures::{StreamExt, stream};

use crate::{again::below, error::external};

/// A table whose rows a query locks.
#[derive(Clone)]
pub(crate) struct Mark {
    /// The beginning of the name of the query's output that has its row ids.
    pub(crate) column: String,
    pub(crate) view: TableView,
    pub(crate) mode: RowLock,
    pub(crate) policy: WaitPolicy,
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mark").field(&self.column).finish()
    }
}

/// The position of a mark's row ids among the outputs, and the mark.
type PlacedMark = (usize, Mark);

/// A query that locks, as a table.
#[derive(Debug)]
pub(crate) struct LockedProvider {
    /// The query's plan, with row ids among its outputs.
    plan: LogicalPlan,
    marks: Arc<[PlacedMark]>,
    /// Positions of its other outputs.
    outputs: Vec<usize>,
    schema: SchemaRef,
    transaction: Weak<Transaction>,
}

impl LockedProvider {
    /// A table for the plan of a query, which has an output for each mark. `schema` has the types
    /// of the plan's outputs.
    pub(crate) fn new(
        plan: LogicalPlan,
        schema: &DFSchema,
        marks: Vec<Mark>,
        transaction: Weak<Transaction>,
    ) -> Result<Self> {
        let fields = schema.fields();
        let is_of = |field: &Field, mark: &Mark| field.name().starts_with(&mark.column);
        let place = |mark: Mark| {
            let at = fields.iter().position(|field| is_of(field, &mark));
            at.map(|at| (at, mark)).ok_or_else(|| {
                external(SqlError::new(
                    ErrorKind::Internal,
                    "a locking clause has lost its rows",
                ))
            })
        };
        let marks = marks.into_iter().map(place).collect::<Result<Vec<_>>>()?;
        let outputs: Vec<usize> = (0..fields.len())
            .filter(|at| !marks.iter().any(|(mark, _)| mark == at))
            .collect();
        assert_eq!(
            outputs.len() + marks.len(),
            fields.len(),
            "each locked table has row ids of its own"
        );
        let mut names: HashMap<&str, usize> = HashMap::new();
        let named = outputs.iter().map(|&at| {
            let field = fields[at].as_ref().clone();
            let same = names.entry(fields[at].name()).or_default();
            *same += 1;
            match *same {
                1 => field,
                // The planner tells outputs with one name apart in the same way.
                _ => field.with_name(format!("{}\u{1}{at}", fields[at].name())),
            }
        });
        Ok(Self {
            schema: Arc::new(Schema::new(named.collect::<Vec<_>>())),
            plan,
            marks: marks.into(),
            outputs,
            transaction,
        })
    }

    /// The positions of the projected columns in the query's rows, and their schema.
    fn columns(&self, projection: Option<&Vec<usize>>) -> Result<(Vec<usize>, SchemaRef)> {
        Ok(match projection {
            None => (self.outputs.clone(), Arc::clone(&self.schema)),
            Some(columns) => (
                columns.iter().map(|&at| self.outputs[at]).collect(),
                Arc::new(self.schema.project(columns)?),
            ),
        })
    }
}

impl TableProvider for LockedProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![
            TableProviderFilterPushDown::Unsupported;
            filters.len()
        ])
    }

    fn scan<'s, 't, 'p, 'f, 'r>(
        &'s self,
        state: &'t dyn Session,
        projection: Option<&'p Vec<usize>>,
        _filters: &'f [Expr],
        limit: Option<usize>,
    ) -> Planning<'r>
    where
        's: 'r,
        't: 'r,
        'p: 'r,
        'f: 'r,
        Self: 'r,
    {
        let columns = self.columns(projection);
        let input = state.create_physical_plan(&self.plan);
        let (marks, transaction) = (Arc::clone(&self.marks), self.transaction.clone());
        Box::pin(async move {
            let (outputs, schema) = columns?;
            let plan: Arc<dyn ExecutionPlan> = Arc::new(LockExec {
                properties: Arc::new(PlanProperties::new(
                    EquivalenceProperties::new(Arc::clone(&schema)),
                    Partitioning::UnknownPartitioning(1),
                    EmissionType::Incremental,
                    Boundedness::Bounded,
                )),
                input: input.await?,
                marks,
                outputs,
                schema,
                limit,
                transaction,
            });
            Ok(plan)
        })
    }
}

/// Runs a query and locks its rows.
#[derive(Debug)]
struct LockExec {
    input: Arc<dyn ExecutionPlan>,
    marks: Arc<[PlacedMark]>,
    outputs: Vec<usize>,
    schema: SchemaRef,
    limit: Option<usize>,
    transaction: Weak<Transaction>,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for LockExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockRows:")?;
        for (_, mark) in &*self.marks {
            let table = &mark.view.table().schema().name;
            write!(f, " {} of {table}", shown(mark.mode))?;
        }
        if let Some(limit) = self.limit {
            write!(f, ", limit={limit}")?;
        }
        let input = DisplayableExecutionPlan::new(self.input.as_ref());
        for line in input.indent(false).to_string().lines() {
            write!(f, "\n    {line}")?;
        }
        Ok(())
    }
}

impl ExecutionPlan for LockExec {
    fn name(&self) -> &str {
        "LockExec"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    /// None: the plan below has been optimised, and must stay as it is.
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        _partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let transaction = self.transaction.upgrade().ok_or_else(|| {
            let strength = self
                .marks
                .first()
                .map_or("FOR UPDATE", |mark| shown(mark.1.mode));
            let message = format!("{strength} is not supported in this statement");
            external(SqlError::new(ErrorKind::FeatureNotSupported, message))
        })?;
        let locker = Locker {
            // The transaction must end with its statement, even if somebody still holds the plan.
            transaction: Arc::downgrade(&transaction),
            marks: Arc::clone(&self.marks),
            outputs: self.outputs.clone(),
            schema: Arc::clone(&self.schema),
            left: self.limit.unwrap_or(usize::MAX),
            input: execute_stream(Arc::clone(&self.input), context)?,
        };
        let batches = stream::try_unfold(locker, |mut locker| async move {
            Ok(locker.next().await?.map(|batch| (batch, locker)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            batches,
        )))
    }
}

/// A running [`LockExec`].
struct Locker {
    transaction: Weak<Transaction>,
    marks: Arc<[PlacedMark]>,
    outputs: Vec<usize>,
    schema: SchemaRef,
    /// How many rows are still wanted.
    left: usize,
    input: SendableRecordBatchStream,
}

impl Locker {
    /// The next locked rows; `None` at the end.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while self.left > 0 {
            let Some(batch) = self.input.next().await else {
                return Ok(None);
            };
            let (batch, mut at) = (batch?, 0);
            let mut locked = Vec::new();
            while at < batch.num_rows() && self.left > 0 {
                let rows = self.left.min(batch.num_rows() - at);
                let some = self.lock(batch.slice(at, rows)).await?;
                at += rows;
                self.left -= some.num_rows();
                locked.push(some);
            }
            let locked = arrow::compute::concat_batches(&batch.schema(), &locked)?;
            if locked.num_rows() > 0 {
                return Ok(Some(self.output(&locked)?));
            }
        }
        Ok(None)
    }

    /// The rows of a batch that could be locked. Tables are locked one after the other.
    async fn lock(&mut self, mut batch: RecordBatch) -> Result<RecordBatch> {
        for (at, mark) in &*self.marks {
            let ids = batch.column(*at).as_primitive::<UInt64Type>();
            let rows: Vec<RowId> = ids.values().iter().map(|id| RowId(*id)).collect();
            let (view, mode, policy) = (mark.view.clone(), mark.mode, mark.policy);
            let transaction = self.transaction.upgrade();
            let lock = move || match transaction {
                Some(transaction) => view.lock(&transaction, &rows, mode, policy),
                // The statement has been given up.
                None => Err(StorageError::Cancelled),
            };
            let locked = waiting(lock, std::convert::identity).await?;
            assert_eq!(
                locked.len(),
                batch.num_rows(),
                "storage says of each row whether it is locked"
            );
            if !locked.iter().all(|locked| *locked) {
                batch = filter_record_batch(&batch, &BooleanArray::from(locked))?;
            }
        }
        Ok(batch)
    }

    fn output(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let fields = self.schema.fields().iter();
        let columns = self.outputs.iter().zip(fields).map(|(&at, field)| {
            let column = batch.column(at);
            match column.data_type() == field.data_type() {
                true => Ok(Arc::clone(column)),
                false => arrow::compute::cast(column, field.data_type()),
            }
        });
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            columns.collect::<std::result::Result<_, _>>()?,
            &options,
        )?)
    }
}

/// Runs work that may wait for another transaction off the query threads. `refine` may add to its
/// error.
pub(crate) async fn waiting<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
    refine: impl FnOnce(SqlError) -> SqlError,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(below(error, refine)),
        Err(error) => Err(DataFusionError::Internal(format!(
            "a write ended early: {error}"
        ))),
    }
}
