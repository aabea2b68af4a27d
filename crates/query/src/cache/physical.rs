//! Cached physical plans, which stand beside optimised ones.
//!
//! ```text
//!  planned                      cached                      run, each time
//!  Sort                         Sort over a gap             Sort, new state
//!    └ StarJoin (snapshot)        └ star, table weakly        └ StarJoin (its snapshot)
//!        └ Scan (snapshot)            └ scan, table weakly        └ Scan (its snapshot)
//! ```
//!
//! A cached operator has gaps in the place of its inputs. An execution puts its own inputs there,
//! which makes a new operator, so all state of an operator (filters, metrics, queues between
//! tasks) belongs to one execution. Inputs and gaps share the objects that describe their
//! properties, so operators take these over and nothing is computed again.
//!
//! An operator is cached only if it is known to work so ([`is_known`]). A filter that one operator
//! gives to another at run time is never cached, because it would be the first execution's; nor is
//! the plan of a statement with volatile functions.
//!
//! A plan depends on settings and on the sizes of tables. When these have changed, a new plan is
//! made and replaces the cached one.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use aerostat_api::ColumnDescription;
use aerostat_catalog::TableEntry;
use datafusion::{
    common::{DataFusionError, ParamValues, Result, tree_node::TreeNodeRecursion},
    datasource::source::DataSourceExec,
    execution::{SendableRecordBatchStream, SessionState, TaskContext},
    logical_expr::LogicalPlan,
    physical_expr::PhysicalExpr,
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
        aggregates::AggregateExec,
        coalesce_partitions::CoalescePartitionsExec,
        coop::CooperativeExec,
        filter::FilterExec,
        limit::{GlobalLimitExec, LocalLimitExec},
        projection::ProjectionExec,
        repartition::RepartitionExec,
        replace_children_if_necessary,
        sorts::{sort::SortExec, sort_preserving_merge::SortPreservingMergeExec},
        union::UnionExec,
    },
};

use super::size::{COLUMN_BYTES, bytes_of};
use crate::{
    detach::known,
    plan::{PiecesExec, StatementContext},
    scan::{KeptScan, TableScan, conditions::Compared},
    star::{KeptStar, StarJoinExec, StarJoins},
};

/// The size of an operator without its columns: itself, its properties, its expressions.
const OPERATOR_BYTES: u64 = 2_048;

/// Tables whose sizes differ by less than a morsel get the same plan.
const ROWS_ALIKE: u64 = 8_192;

/// The physical plan of a query, for all values of its parameters.
pub struct KeptPhysical {
    root: KeptOperator,
    /// The columns that its parameters are compared with; `None` if a parameter is compared with
    /// columns of different types.
    compared: Option<Compared>,
    columns: Arc<[ColumnDescription]>,
    settings: Settings,
    tables: Box<[Sized]>,
    bytes: u64,
}

/// Whether a statement may run the cached physical plan.
pub enum Fit<'k> {
    /// It may run this one.
    Runs(&'k KeptPhysical),
    /// It was planned under settings that the statement's session does not have.
    OtherSettings,
    /// Tables have grown or shrunk since it was made.
    OtherSizes,
    /// No physical plan is cached.
    Missing,
}

/// The settings that a physical plan depends on, and a logical one does not.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Settings {
    star_joins: bool,
    run_time_filters: bool,
    partitions: usize,
    batch_rows: usize,
}

impl Settings {
    fn of(state: &SessionState) -> Self {
        let star_joins = state.config().get_extension::<StarJoins>();
        Self {
            star_joins: star_joins.is_some_and(|star_joins| star_joins.0),
            run_time_filters: state
                .config_options()
                .optimizer
                .enable_dynamic_filter_pushdown,
            partitions: state.config().target_partitions(),
            batch_rows: state.config().batch_size(),
        }
    }
}

/// A table, and how many rows it had when the plan was made.
struct Sized {
    table: Weak<TableEntry>,
    rows: u64,
}

impl Sized {
    fn of(context: &StatementContext, entry: &Arc<TableEntry>) -> Self {
        Self {
            table: Arc::downgrade(entry),
            rows: context.table_view(entry).statistics().rows,
        }
    }

    /// Whether the table is about as large as it was.
    fn is_alike(&self, context: &StatementContext) -> Result<bool> {
        let entry = known(&self.table)?;
        let rows = context.table_view(&entry).statistics().rows;
        let (less, more) = (rows.min(self.rows), rows.max(self.rows));
        Ok(more - less < ROWS_ALIKE || more / 2 < less)
    }
}

/// An operator without its statement's snapshot and tables.
enum KeptOperator {
    Scan(KeptScan),
    Star {
        star: KeptStar,
        sides: Vec<KeptOperator>,
    },
    /// Any other operator, over gaps.
    Other {
        operator: Arc<dyn ExecutionPlan>,
        inputs: Vec<KeptOperator>,
    },
}

impl KeptPhysical {
    /// Caches the physical plan that was made in this context for an optimised plan, beside which
    /// it will be found; `None` if it may not be cached.
    ///
    /// # Errors
    /// The errors of walking plans.
    pub fn new(
        context: &StatementContext,
        logical: &LogicalPlan,
        physical: &Arc<dyn ExecutionPlan>,
        columns: &Arc<[ColumnDescription]>,
    ) -> Result<Option<Self>> {
        if is_volatile(logical)? {
            return Ok(None);
        }
        let tables = context.met.lock().tables.clone();
        let mut bytes = 0;
        let Some(root) = kept(physical, &tables, &mut bytes)? else {
            return Ok(None);
        };
        let mut compared = Compared::new();
        let is_clear = note_compared(physical.as_ref(), &mut compared);
        let sizes = tables.iter().map(|entry| Sized::of(context, entry));
        Ok(Some(Self {
            root,
            compared: is_clear.then_some(compared),
            columns: Arc::clone(columns),
            settings: Settings::of(&context.state),
            tables: sizes.collect(),
            bytes,
        }))
    }

    /// Its estimated size in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The columns that its parameters are compared with, if they are used for nothing else;
    /// `None` if a parameter is compared with columns of different types.
    pub fn compared(&self) -> Option<&Compared> {
        self.compared.as_ref()
    }

    /// Whether planning would give this plan now.
    ///
    /// # Errors
    /// A table is gone.
    pub(super) fn fit(&self, context: &StatementContext) -> Result<Fit<'_>> {
        if self.settings != Settings::of(&context.state) {
            return Ok(Fit::OtherSettings);
        }
        for table in &self.tables {
            if !table.is_alike(context)? {
                return Ok(Fit::OtherSizes);
            }
        }
        Ok(Fit::Runs(self))
    }

    /// The plan over the rows that a statement sees, with its values, and the columns of its
    /// result; `None` if it does not fit these values. The statement has locked the relations.
    ///
    /// # Errors
    /// A table is gone.
    pub fn revive(
        &self,
        context: &Arc<StatementContext>,
        values: Option<&ParamValues>,
    ) -> Result<Option<Revived>> {
        let physical = self.root.revive(context, values)?;
        Ok(physical.map(|physical| (Arc::clone(&self.columns), physical)))
    }
}

/// As [`Conditions::note_compared`](crate::scan::conditions::Conditions::note_compared), for all
/// scans of a plan.
fn note_compared(plan: &dyn ExecutionPlan, compared: &mut Compared) -> bool {
    let mut is_clear = true;
    if let Some(source) = plan.downcast_ref::<DataSourceExec>()
        && let Some(scan) = source.data_source().downcast_ref::<TableScan>()
    {
        is_clear &= scan.note_compared(compared);
    }
    if let Some(star) = plan.downcast_ref::<StarJoinExec>() {
        is_clear &= star.note_compared(compared);
    }
    for input in plan.children() {
        is_clear &= note_compared(input.as_ref(), compared);
    }
    is_clear
}

/// The columns of a result, and the plan that gives it.
pub type Revived = (Arc<[ColumnDescription]>, Arc<dyn ExecutionPlan>);

impl KeptOperator {
    fn revive(
        &self,
        context: &Arc<StatementContext>,
        values: Option<&ParamValues>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let revived = |inputs: &[KeptOperator]| {
            let inputs = inputs.iter().map(|input| input.revive(context, values));
            inputs.collect::<Result<Option<Vec<_>>>>()
        };
        match self {
            KeptOperator::Scan(scan) => {
                let entry = known(scan.table())?;
                let (view, usage) = (context.table_view(&entry), Arc::clone(&entry.usage));
                Ok(scan.revive(view, usage, values))
            }
            KeptOperator::Star { star, sides } => match revived(sides)? {
                Some(sides) => star.revive(context, values, sides),
                None => Ok(None),
            },
            KeptOperator::Other { operator, inputs } => {
                let Some(inputs) = revived(inputs)? else {
                    return Ok(None);
                };
                let shape = |input: &Arc<dyn ExecutionPlan>| {
                    let partitions = input.output_partitioning().partition_count();
                    (input.schema().fields().len(), partitions)
                };
                let gaps = operator.children().into_iter().map(shape);
                assert!(
                    gaps.eq(inputs.iter().map(shape)),
                    "an input of {} has other columns or partitions than its gap",
                    operator.name()
                );
                let new = replace_children_if_necessary(Arc::clone(operator), inputs)?;
                // A sort would still have the cached operator's filter and metrics.
                Ok(Some(match new.is::<SortExec>() {
                    true => new.reset_state()?,
                    false => new,
                }))
            }
        }
    }
}

/// An operator and its inputs, without their statement's snapshot and tables; `None` if one of
/// them may not be cached.
fn kept(
    operator: &Arc<dyn ExecutionPlan>,
    tables: &[Arc<TableEntry>],
    bytes: &mut u64,
) -> Result<Option<KeptOperator>> {
    if let Some(source) = operator.downcast_ref::<DataSourceExec>() {
        let scan = KeptScan::of(source, tables);
        *bytes += scan.as_ref().map_or(0, |scan| size(scan.columns()));
        return Ok(scan.map(KeptOperator::Scan));
    }
    *bytes += size(operator.schema().fields().len());
    let mut inputs = Vec::new();
    for input in operator.children() {
        match kept(input, tables, bytes)? {
            Some(input) => inputs.push(input),
            None => return Ok(None),
        }
    }
    if let Some(star) = operator.downcast_ref::<StarJoinExec>() {
        let Some(star) = KeptStar::of(star, tables)? else {
            return Ok(None);
        };
        *bytes += bytes_of(star.original())?;
        return Ok(Some(KeptOperator::Star {
            star,
            sides: inputs,
        }));
    }
    if inputs.is_empty() || !is_known(operator.as_ref()) {
        return Ok(None);
    }
    let gaps = operator.children().into_iter().map(GapExec::of).collect();
    let operator = replace_children_if_necessary(Arc::clone(operator), gaps)?;
    Ok(Some(KeptOperator::Other { operator, inputs }))
}

fn size(columns: usize) -> u64 {
    OPERATOR_BYTES + COLUMN_BYTES * columns as u64
}

/// Whether an operator with other inputs shares nothing that an execution changes. A sort with
/// a limit has a filter, which is made anew for it; an aggregate is known if it has no filter.
fn is_known(operator: &dyn ExecutionPlan) -> bool {
    if operator.is::<AggregateExec>() {
        return operator.dynamic_expressions_produced().is_empty();
    }
    operator.is::<SortExec>()
        || operator.is::<ProjectionExec>()
        || operator.is::<PiecesExec>()
        || operator.is::<FilterExec>()
        || operator.is::<SortPreservingMergeExec>()
        || operator.is::<CoalescePartitionsExec>()
        || operator.is::<RepartitionExec>()
        || operator.is::<GlobalLimitExec>()
        || operator.is::<LocalLimitExec>()
        || operator.is::<CooperativeExec>()
        || operator.is::<UnionExec>()
}

/// Whether a plan computes something that belongs to one execution.
fn is_volatile(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            found |= expression.is_volatile();
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

/// Stands for an input, with the input's properties.
struct GapExec {
    properties: Arc<PlanProperties>,
}

impl GapExec {
    fn of(input: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let properties = Arc::clone(input.properties());
        Arc::new(Self { properties })
    }
}

impl fmt::Debug for GapExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GapExec").finish_non_exhaustive()
    }
}

impl DisplayAs for GapExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GapExec")
    }
}

impl ExecutionPlan for GapExec {
    fn name(&self) -> &str {
        "GapExec"
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
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        Err(DataFusionError::Internal(
            "a kept plan runs without its inputs".to_owned(),
        ))
    }
}
