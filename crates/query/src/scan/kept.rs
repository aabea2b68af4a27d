//! A scan in a physical plan that is kept, and as a statement runs it.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use aerostat_catalog::TableEntry;
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
use crate::plan::{StatementContext, cache::known};

/// A scan without a snapshot and without its table, whose memory does not wait for it.
pub(crate) struct KeptScan {
    table: Weak<TableEntry>,
    wanted: Arc<Wanted>,
    properties: Arc<PlanProperties>,
}

impl KeptScan {
    /// Of a scan of one of these tables; `None` if a scan takes part in what other operators
    /// do at run time, or reads something else.
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

    /// The scan of what a statement sees; `None` if storage does not take its values.
    ///
    /// # Errors
    /// The table is gone.
    pub(crate) fn revive(
        &self,
        context: &StatementContext,
        values: Option<&ParamValues>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let entry = known(&self.table)?;
        let (view, usage) = (context.table_view(&entry), Arc::clone(&entry.usage));
        let wanted = match self.wanted.conditions.is_open() {
            false => Arc::clone(&self.wanted),
            true => {
                let table = view.table().schema();
                let Some(closed) = self.wanted.conditions.close(table, values) else {
                    return Ok(None);
                };
                let (conditions, shown_filters) = closed;
                Arc::new(Wanted {
                    conditions,
                    shown_filters,
                    ..(*self.wanted).clone()
                })
            }
        };
        let scan = TableScan::new(view, usage, wanted);
        Ok(Some(Arc::new(RevivedScanExec {
            scan: DataSourceExec::from_data_source(scan),
            properties: Arc::clone(&self.properties),
        })))
    }
}

/// Whether it reads a table and does nothing else.
pub(crate) fn reads_table(plan: &dyn ExecutionPlan) -> bool {
    match plan.downcast_ref::<DataSourceExec>() {
        Some(source) => source.data_source().is::<TableScan>(),
        None => plan.is::<RevivedScanExec>(),
    }
}

/// A scan with the properties that the kept plan's scan has. As they are the same object,
/// nothing above has to work out its own again.
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
