//! Reading a table from DataFusion: a table provider whose scans pass predicates, projections and
//! limits to storage as a whole.
//!
//! One execution of a scan has one queue of morsels in storage, which all its partitions share:
//! whichever thread is free takes the next morsel, so that a skewed filter leaves no core idle.

pub(crate) mod conditions;
mod domain;
mod kept;
pub(crate) mod locked;
mod predicate;
mod run_time;

pub(crate) use kept::KeptScan;
pub use kept::reads_table;
pub(crate) use predicate::compare_op;
pub(crate) use run_time::RunTimeFilter;

use std::{
    any::Any,
    collections::BTreeSet,
    fmt,
    sync::{Arc, OnceLock},
    task::Poll,
};

use aerostat_catalog::{RecordedScan, Usage, failure::from_storage};
use aerostat_pgcatalog::Planning;
use aerostat_schedule::turn_is_over;
use aerostat_storage::{Predicate, Scan, ScanSpec, Table, TableView};
use datafusion::{
    arrow::datatypes::{DataType, Field, Schema, SchemaRef},
    catalog::{Session, TableProvider},
    common::{
        ColumnStatistics, DataFusionError, Result, Statistics, config::ConfigOptions,
        stats::Precision, tree_node::TreeNodeRecursion,
    },
    datasource::{
        TableType,
        source::{DataSource, DataSourceExec, OpenArgs},
    },
    execution::{SendableRecordBatchStream, TaskContext},
    logical_expr::{Expr, TableProviderFilterPushDown},
    physical_expr::{EquivalenceProperties, PhysicalExpr, projection::ProjectionExprs},
    physical_plan::{
        DisplayFormatType, ExecutionPlan, Partitioning,
        metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder},
        stream::RecordBatchStreamAdapter,
    },
};
use futures::{future::ready, stream};

use self::{
    conditions::{Compared, Conditions},
    domain::Attribute,
    run_time::Narrower,
};
use crate::error::external;

/// A table as one statement sees it.
#[derive(Clone)]
pub(crate) struct TableScanProvider {
    view: TableView,
    usage: Arc<Usage>,
    schema: SchemaRef,
    row_ids: bool,
    /// Whether it takes filters before their parameters have values.
    takes_open: bool,
}

impl TableScanProvider {
    pub(crate) fn new(view: TableView, usage: Arc<Usage>) -> Self {
        let schema = Arc::clone(view.table().arrow_schema());
        Self {
            view,
            usage,
            schema,
            row_ids: false,
            takes_open: false,
        }
    }

    /// The table with a further column of row ids, which DML and locks need.
    pub(crate) fn with_row_ids(view: TableView, usage: Arc<Usage>, column: &str) -> Self {
        let mut fields: Vec<_> = view
            .table()
            .arrow_schema()
            .fields()
            .iter()
            .cloned()
            .collect();
        fields.push(Arc::new(Field::new(column, DataType::UInt64, false)));
        Self {
            view,
            usage,
            schema: Arc::new(Schema::new(fields)),
            row_ids: true,
            takes_open: false,
        }
    }

    /// The same table in a plan that is made before its parameters have values.
    pub(crate) fn open(&self) -> Self {
        Self {
            takes_open: true,
            ..self.clone()
        }
    }

    /// The table.
    pub(crate) fn table(&self) -> &Arc<Table> {
        self.view.table()
    }

    /// The table as the statement sees it.
    pub(crate) fn view(&self) -> &TableView {
        &self.view
    }

    /// The record of what is done to the table.
    pub(crate) fn usage(&self) -> &Arc<Usage> {
        &self.usage
    }

    /// Filters in storage's form; `None` if storage does not take one of them.
    pub(crate) fn conditions(&self, filters: &[Expr]) -> Option<Conditions> {
        Conditions::of(filters, self.view.table().schema(), self.takes_open)
    }

    /// Whether it has a further column of row ids.
    pub(crate) fn has_row_ids(&self) -> bool {
        self.row_ids
    }

    /// A scan of these columns, for the rows that pass the filters. Storage must take all of these.
    fn plan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = projection
            .cloned()
            .unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let conditions = self.conditions(filters).ok_or_else(|| {
            let filters = conditions::shown(filters);
            DataFusionError::Internal(format!("storage cannot evaluate {filters}"))
        })?;
        let wanted = Wanted {
            schema: Arc::new(self.schema.project(&columns)?),
            columns,
            row_id_at: self.row_ids.then(|| self.schema.fields().len() - 1),
            conditions,
            shown_filters: conditions::shown(filters),
            limit,
            partitions: state.config().target_partitions(),
        };
        let (view, usage) = (self.view.clone(), Arc::clone(&self.usage));
        let source = TableScan::new(view, usage, Arc::new(wanted));
        Ok(DataSourceExec::from_data_source(source))
    }
}

impl fmt::Debug for TableScanProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableScanProvider")
            .field("table", &self.view.table().schema().name)
            .finish_non_exhaustive()
    }
}

impl TableProvider for TableScanProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let table = self.view.table().schema();
        let takes = |filter: &Expr| match self.takes_open {
            true => conditions::is_open(filter, table),
            false => predicate::from_expr(filter, table).is_some(),
        };
        Ok(filters
            .iter()
            .map(|filter| match takes(filter) {
                true => TableProviderFilterPushDown::Exact,
                false => TableProviderFilterPushDown::Unsupported,
            })
            .collect())
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(statistics(&self.view, self.schema.fields().len()))
    }

    fn scan<'s, 't, 'p, 'f, 'r>(
        &'s self,
        state: &'t dyn Session,
        projection: Option<&'p Vec<usize>>,
        filters: &'f [Expr],
        limit: Option<usize>,
    ) -> Planning<'r>
    where
        's: 'r,
        't: 'r,
        'p: 'r,
        'f: 'r,
        Self: 'r,
    {
        Box::pin(ready(self.plan(state, projection, filters, limit)))
    }
}

/// What a scan reads of its table, regardless of the rows that the table has.
#[derive(Clone)]
pub(crate) struct Wanted {
    schema: SchemaRef,
    /// Positions in the provider's schema.
    columns: Vec<usize>,
    /// The position in the provider's schema that stands for the row id.
    row_id_at: Option<usize>,
    conditions: Conditions,
    shown_filters: String,
    limit: Option<usize>,
    partitions: usize,
}

/// One scan in a physical plan.
#[derive(Clone)]
pub(crate) struct TableScan {
    view: TableView,
    usage: Arc<Usage>,
    wanted: Arc<Wanted>,
    /// Filters on output columns.
    run_time_filters: Vec<RunTimeFilter>,
    metrics: ExecutionPlanMetricsSet,
    /// The estimated number of rows that satisfy the predicates, once it has been asked for.
    estimate: OnceLock<u64>,
}

impl fmt::Debug for TableScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableScan")
            .field("table", &self.view.table().schema().name)
            .field("columns", &self.wanted.columns)
            .field("conditions", &self.wanted.conditions)
            .finish_non_exhaustive()
    }
}

/// A running scan, which its partitions share.
struct Running {
    recorded: Arc<RecordedScan>,
    narrower: Option<Narrower>,
}

impl Running {
    fn scan(&self) -> &Arc<Scan> {
        self.recorded.scan()
    }
}

impl TableScan {
    fn new(view: TableView, usage: Arc<Usage>, wanted: Arc<Wanted>) -> Self {
        assert_eq!(
            wanted.columns.len(),
            wanted.schema.fields().len(),
            "each output of a scan is a column"
        );
        Self {
            view,
            usage,
            wanted,
            run_time_filters: Vec::new(),
            metrics: ExecutionPlanMetricsSet::new(),
            estimate: OnceLock::new(),
        }
    }

    /// The table.
    pub(crate) fn table(&self) -> &Arc<Table> {
        self.view.table()
    }

    /// Notes which columns parameters are compared with; `false` if a parameter is compared with
    /// columns of different types.
    pub(crate) fn note_compared(&self, compared: &mut Compared) -> bool {
        let table = self.view.table().schema();
        self.wanted.conditions.note_compared(table, compared)
    }

    /// What the scan reads, if that is the same in each execution: the scan uses no filter of
    /// another operator, and returns no row ids.
    pub(crate) fn lasting(&self) -> Option<&Arc<Wanted>> {
        let is_lasting = self.run_time_filters.is_empty() && self.wanted.row_id_at.is_none();
        is_lasting.then_some(&self.wanted)
    }

    /// The scan with filters on its output columns; `None` if it takes none of them. A scan with a
    /// limit takes none, because its limit counts the rows that it returns.
    pub(crate) fn with_run_time_filters(&self, filters: Vec<RunTimeFilter>) -> Option<TableScan> {
        let is_stored = |at: usize| self.attribute(at).map(|_| at);
        let filters = filters.iter();
        let filters: Vec<_> = filters
            .filter_map(|filter| filter.through(is_stored))
            .collect();
        (self.wanted.limit.is_none() && !filters.is_empty()).then(|| TableScan {
            run_time_filters: filters,
            ..self.clone()
        })
    }

    /// Whether it uses this filter.
    pub(crate) fn takes(&self, filter: &RunTimeFilter) -> bool {
        self.run_time_filters
            .iter()
            .any(|taken| Arc::ptr_eq(&taken.filter, &filter.filter))
    }

    /// The column of the table that an output column shows; `None` for the row id.
    fn attribute(&self, output: usize) -> Option<Attribute> {
        let position = *self.wanted.columns.get(output)?;
        let column = self.view.table().schema().columns.get(position)?;
        Some(Attribute {
            position,
            ty: column.ty,
            is_nullable: column.nullable,
        })
    }

    /// The estimated number of rows that satisfy the scan's predicates, computed once.
    fn estimated_rows(&self, predicates: &[Predicate]) -> Result<u64> {
        if let Some(rows) = self.estimate.get() {
            return Ok(*rows);
        }
        let rows = self.view.estimated_rows(predicates);
        let rows = rows.map_err(|error| external(from_storage(error)))?;
        Ok(*self.estimate.get_or_init(|| rows))
    }

    fn start(&self, batch_rows: usize) -> Result<Arc<Running>> {
        let stored = |at: &usize| Some(*at) != self.wanted.row_id_at;
        let scan = self.view.scan(ScanSpec {
            projection: self.wanted.columns.iter().copied().filter(stored).collect(),
            predicates: self.wanted.conditions.closed()?.to_vec(),
            row_ids: self.wanted.columns.iter().any(|at| !stored(at)),
            batch_rows,
            limit: self.wanted.limit.map(|limit| limit as u64),
            lookups: Vec::new(),
        });
        let scan = scan.map_err(|error| external(from_storage(error)))?;
        let attribute = |at| self.attribute(at);
        Ok(Arc::new(Running {
            recorded: RecordedScan::new(scan, Arc::clone(&self.usage)),
            narrower: Narrower::new(&self.run_time_filters, attribute, &self.metrics),
        }))
    }

    /// Where each output column is in storage's batches, which have the row id last; `None` without
    /// a row id.
    fn order(&self) -> Option<Vec<usize>> {
        let row_id = self
            .wanted
            .columns
            .iter()
            .position(|&at| Some(at) == self.wanted.row_id_at)?;
        let last = self.wanted.columns.len() - 1;
        let order = (0..self.wanted.columns.len()).map(|at| match at.cmp(&row_id) {
            std::cmp::Ordering::Less => at,
            std::cmp::Ordering::Equal => last,
            std::cmp::Ordering::Greater => at - 1,
        });
        Some(order.collect())
    }
}

impl DataSource for TableScan {
    fn open(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.open_with_args(OpenArgs::new(partition, context))
    }

    fn open_with_args(&self, args: OpenArgs) -> Result<SendableRecordBatchStream> {
        assert!(
            args.partition < self.wanted.partitions,
            "partition {} of {} is opened",
            args.partition,
            self.wanted.partitions
        );
        let batch_rows = args.context.session_config().batch_size();
        let shared = args
            .sibling_state
            .and_then(|state| state.downcast::<Running>().ok());
        let scan = match shared {
            Some(scan) => scan,
            None => self.start(batch_rows)?,
        };
        let metrics = BaselineMetrics::new(&self.metrics, args.partition);
        // The partitions share the scan, so only the first one reports its counts.
        let by_index = (args.partition == 0)
            .then(|| MetricBuilder::new(&self.metrics).gauge("segments_by_index", 0));
        let order = self.order();
        let schema = Arc::clone(&self.wanted.schema);
        let pool = Arc::clone(args.context.memory_pool());
        let mut reader = scan.scan().reader();
        let mut next = move || {
            let timer = metrics.elapsed_compute().timer();
            if let Some(narrower) = &scan.narrower {
                narrower.narrow(scan.scan(), &pool);
            }
            let batch = reader
                .next_batch()
                .map_err(|error| external(from_storage(error)))
                .transpose();
            timer.done();
            if let (None, Some(by_index)) = (&batch, &by_index) {
                by_index.set(scan.scan().counts().segments_by_index);
            }
            if let (None, Some(narrower)) = (&batch, &scan.narrower) {
                narrower.record(scan.scan());
            }
            let batch = batch?;
            Some(batch.and_then(|batch| {
                metrics.record_output(batch.num_rows());
                let columns = match &order {
                    Some(order) => order
                        .iter()
                        .map(|&at| Arc::clone(batch.column(at)))
                        .collect(),
                    None => batch.columns().to_vec(),
                };
                let options = arrow::record_batch::RecordBatchOptions::new()
                    .with_row_count(Some(batch.num_rows()));
                Ok(arrow::record_batch::RecordBatch::try_new_with_options(
                    Arc::clone(&schema),
                    columns,
                    &options,
                )?)
            }))
        };
        let mut has_given_way = false;
        let batches = stream::poll_fn(move |context| {
            if !std::mem::take(&mut has_given_way) && turn_is_over() == Some(true) {
                has_given_way = true;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(next())
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.wanted.schema),
            batches,
        )))
    }

    fn create_sibling_state(&self, config: &ConfigOptions) -> Option<Arc<dyn Any + Send + Sync>> {
        // An error is reported when the scan is opened.
        let scan = self.start(config.execution.batch_size.into()).ok()?;
        Some(scan)
    }

    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self
            .wanted
            .schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        write!(
            f,
            "table={}, columns=[{}]",
            self.view.table().schema().name,
            names.join(", ")
        )?;
        if !self.wanted.shown_filters.is_empty() {
            write!(f, ", filters=[{}]", self.wanted.shown_filters)?;
        }
        if let Some(limit) = self.wanted.limit {
            write!(f, ", limit={limit}")?;
        }
        if !self.run_time_filters.is_empty() {
            let columns = self
                .run_time_filters
                .iter()
                .flat_map(|filter| &filter.columns);
            let columns: BTreeSet<usize> = columns.map(|(_, at)| *at).collect();
            let names: Vec<&str> = columns.into_iter().map(|at| names[at]).collect();
            write!(f, ", run_time_filters=[{}]", names.join(", "))?;
        }
        Ok(())
    }

    fn output_partitioning(&self) -> Partitioning {
        Partitioning::UnknownPartitioning(self.wanted.partitions)
    }

    fn eq_properties(&self) -> EquivalenceProperties {
        EquivalenceProperties::new(Arc::clone(&self.wanted.schema))
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        let mut statistics = statistics(&self.view, self.wanted.columns.len());
        let predicates = match &self.wanted.conditions {
            Conditions::Closed(predicates) => &predicates[..],
            // A plan for all values is planned for the whole table.
            Conditions::Open(_) => &[],
        };
        if predicates.is_empty() {
            if partition.is_some() {
                statistics = statistics.to_inexact();
            }
        } else {
            let rows = self.estimated_rows(predicates)?;
            let all = statistics.num_rows.get_value().copied().unwrap_or(0);
            let rows = usize::try_from(rows).unwrap_or(usize::MAX).min(all);
            let bytes = statistics.total_byte_size.get_value().copied();
            let share = rows as f64 / all.max(1) as f64;
            statistics.num_rows = Precision::Inexact(rows);
            statistics.total_byte_size =
                Precision::Inexact((bytes.unwrap_or(0) as f64 * share) as usize);
        }
        Ok(Arc::new(statistics))
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn DataSource>> {
        let mut limited = self.clone();
        Arc::make_mut(&mut limited.wanted).limit = limit;
        if limit.is_some() {
            limited.run_time_filters.clear();
        }
        Some(Arc::new(limited))
    }

    fn fetch(&self) -> Option<usize> {
        self.wanted.limit
    }

    fn metrics(&self) -> ExecutionPlanMetricsSet {
        self.metrics.clone()
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn DataSource>>> {
        // Run-time filters refer to the columns by their current positions.
        if !self.run_time_filters.is_empty() {
            return Ok(None);
        }
        // A projection of plain columns under their own names is a narrower scan.
        let mut columns = Vec::new();
        for output in projection.iter() {
            let Some(column) = output
                .expr
                .downcast_ref::<datafusion::physical_expr::expressions::Column>()
            else {
                return Ok(None);
            };
            let at = self.wanted.columns[column.index()];
            if column.name() != output.alias || columns.contains(&at) {
                return Ok(None);
            }
            columns.push(at);
        }
        let kept: Vec<usize> = columns
            .iter()
            .filter_map(|at| self.wanted.columns.iter().position(|column| column == at))
            .collect();
        assert_eq!(
            kept.len(),
            columns.len(),
            "a narrower scan has columns of the wider one"
        );
        let mut narrower = self.clone();
        let wanted = Arc::make_mut(&mut narrower.wanted);
        wanted.schema = Arc::new(wanted.schema.project(&kept)?);
        wanted.columns = columns;
        Ok(Some(Arc::new(narrower)))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        // These expressions tell a join that its filter has a user.
        for filter in &self.run_time_filters {
            let filter: Arc<dyn PhysicalExpr> = Arc::clone(&filter.filter) as _;
            if f(&filter)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }
}

/// The assumed size of a table for the planner. It is inexact, because rows come and go meanwhile.
fn statistics(view: &TableView, columns: usize) -> Statistics {
    let table = view.statistics();
    Statistics {
        num_rows: Precision::Inexact(usize::try_from(table.rows).unwrap_or(usize::MAX)),
        total_byte_size: Precision::Inexact(
            usize::try_from(table.bytes_used).unwrap_or(usize::MAX),
        ),
        column_statistics: vec![ColumnStatistics::new_unknown(); columns],
    }
}
