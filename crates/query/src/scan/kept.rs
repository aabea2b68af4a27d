//! Scans in cached physical plans, and how a statement runs them.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use aerostat_catalog::{TableEntry, Usage};
use aerostat_storage::TableView;
use datafusion::{
    common::{ParamValues, Result, tree_node::TreeNodeRecursion},
    datasource::source::DataSourceExec,
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::PhysicalExpr,
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, metrics::MetricsSet,
    },
};

use super::{TableScan, Wanted};

/// A scan without a snapshot, which holds its table weakly.
pub(crate) struct KeptScan {
    table: Weak<TableEntry>,
    wanted: Arc<Wanted>,
    properties: Arc<PlanProperties>,
}

impl KeptScan {
    /// A cached scan of one of these tables; `None` if the scan uses run-time filters of other
    /// operators, or reads something else.
    pub(crate) fn of(source: &DataSourceExec, tables: &[Arc<TableEntry>]) -> Option<Self> {
        let scan = source.data_source().downcast_ref::<TableScan>()?;
        let entry = tables
            .iter()
            .find(|entry| Arc::ptr_eq(&entry.table, scan.table()))?;
        Some(Self {
            table: Arc::downgrade(entry),
            wanted: Arc::clone(scan.lasting()?),
            properties: Arc::clone(source.properties()),
        })
    }

    /// How many columns it gives.
    pub(crate) fn columns(&self) -> usize {
        self.wanted.columns.len()
    }

    /// The scanned table.
    pub(crate) fn table(&self) -> &Weak<TableEntry> {
        &self.table
    }

    /// The scan of a statement's view of the table; `None` if storage does not take the values.
    pub(crate) fn revive(
        &self,
        view: TableView,
        usage: Arc<Usage>,
        values: Option<&ParamValues>,
    ) -> Option<Arc<dyn ExecutionPlan>> {
        let wanted = match self.wanted.conditions.is_open() {
            false => Arc::clone(&self.wanted),
            true => {
                let table = view.table().schema();
                let (conditions, shown_filters) = self.wanted.conditions.close(table, values)?;
                Arc::new(Wanted {
                    conditions,
                    shown_filters,
                    ..(*self.wanted).clone()
                })
            }
        };
        let scan = TableScan::new(view, usage, wanted);
        Some(Arc::new(RevivedScanExec {
            scan: DataSourceExec::from_data_source(scan),
            properties: Arc::clone(&self.properties),
        }))
    }
}

/// Whether a plan consists of a table's scan.
pub fn reads_table(plan: &dyn ExecutionPlan) -> bool {
    match plan.downcast_ref::<DataSourceExec>() {
        Some(source) => source.data_source().is::<TableScan>(),
        None => plan.is::<RevivedScanExec>(),
    }
}

/// A scan with the properties of the cached scan. They are the same object, so that the operators
/// above need not compute theirs again.
struct RevivedScanExec {
    scan: Arc<DataSourceExec>,
    properties: Arc<PlanProperties>,
}

impl fmt::Debug for RevivedScanExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.scan.fmt(f)
    }
}

impl DisplayAs for RevivedScanExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.scan.fmt_as(format, f)
    }
}

impl ExecutionPlan for RevivedScanExec {
    fn name(&self) -> &str {
        self.scan.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.scan.apply_expressions(f)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.scan.execute(partition, context)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.scan.metrics()
    }
}
