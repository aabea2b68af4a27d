//! A plan that is kept: without its statement's tables, snapshot and values.
//!
//! ```text
//!             first time                     second time           from then on
//!  no values  bound ► analysed ► optimised   optimised             optimised
//!  values     bound                          bound ► … ► optimised   optimised, then for the values
//!             (each planned for its values)  (with parameters)
//! ```
//!
//! A plan whose functions are not settled is kept analysed, one whose parameters do not stand
//! plainly is kept bound. What is missing is done for every statement.
//!
//! Beside it a physical plan may be kept, of no values or for all values (`physical`).

use std::sync::{Arc, LazyLock, Weak};

use aerostat_catalog::TableEntry;
use aerostat_semantics::growth::planning;
use aerostat_txn::LockMode;
use datafusion::{
    arrow::datatypes::SchemaRef,
    catalog::TableProvider,
    common::{
        DataFusionError, Result,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    datasource::{DefaultTableSource, provider_as_source},
    execution::SessionState,
    logical_expr::{Expr, LogicalPlan, TableScan, TableSource},
    optimizer::{
        Optimizer, OptimizerRule, eliminate_filter::EliminateFilter,
        optimize_projections::OptimizeProjections, push_down_filter::PushDownFilter,
        push_down_limit::PushDownLimit, simplify_expressions::SimplifyExpressions,
    },
};

use super::{
    super::{Origins, StatementContext, Target, Work},
    Fitness,
    fitness::{Scanned, scanned},
    physical::{Fit, KeptPhysical},
};
use crate::{
    dml::{BoundDml, Pairs},
    error::external,
    scan::{TableScanProvider, conditions::Compared},
};

/// What a node of a plan takes beside its expressions and columns.
const NODE_BYTES: u64 = 512;

/// A column of a node's schema: its field is shared with others, its name often is not.
pub(super) const COLUMN_BYTES: u64 = 96;

/// A part of an expression, with the names and values in it.
const EXPRESSION_BYTES: u64 = size_of::<Expr>() as u64 + 64;

/// How far a plan has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Names are resolved.
    Bound,
    /// Types, operators and subqueries are PostgreSQL's.
    Analysed,
    /// It is optimised, as far as it goes without values.
    Optimised,
}

/// A plan that is kept.
#[derive(Clone)]
pub(crate) struct KeptPlan {
    work: KeptWork,
    stage: Stage,
    fitness: Fitness,
    /// The relations that it reads, which were locked when it was made.
    relations: Box<[u32]>,
    bytes: u64,
    /// What was made of it, if that may be run again.
    physical: Option<Arc<KeptPhysical>>,
    /// Whether a physical plan for all values of its parameters may be made.
    is_generic: bool,
}

/// A [`Work`] without what its statement sees.
#[derive(Clone)]
enum KeptWork {
    Query(LogicalPlan, Origins),
    Dml(Box<BoundDml<KeptTarget>>),
}

/// A [`Target`] whose memory does not wait for the plan.
#[derive(Clone)]
struct KeptTarget {
    table: Weak<TableEntry>,
    schema: String,
    alias: String,
}

impl KeptPlan {
    /// Of what was planned in this context.
    ///
    /// # Errors
    /// It reads what is no table of the context's.
    pub(crate) fn new(
        context: &StatementContext,
        work: Work,
        stage: Stage,
        fitness: Fitness,
    ) -> Result<Self> {
        let met = context.met.lock();
        let work = work.map_plans(|plan| detached(plan, &met.tables))?;
        let (work, bytes) = match work {
            Work::Query(plan, origins) => {
                let bytes = bytes_of(&plan)?;
                (KeptWork::Query(plan, origins), bytes)
            }
            Work::Dml(bound) => {
                let bytes = bound.plans().map(bytes_of).sum::<Result<u64>>()?;
                let kept = bound.with_target(&|target| Ok(KeptTarget::of(target)))?;
                (KeptWork::Dml(Box::new(kept)), bytes)
            }
        };
        Ok(Self {
            work,
            stage,
            fitness,
            relations: met.relations.iter().copied().collect(),
            bytes,
            physical: None,
            is_generic: fitness.is_settled,
        })
    }

    /// The same, further on.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn at(&self, context: &StatementContext, work: Work, stage: Stage) -> Result<Self> {
        Ok(Self {
            relations: self.relations.clone(),
            physical: self.physical.clone(),
            is_generic: self.is_generic,
            ..Self::new(context, work, stage, self.fitness)?
        })
    }

    /// The same, with the physical plan that was made of it.
    pub(crate) fn with_physical(&self, physical: KeptPhysical) -> Self {
        let mut kept = self.clone();
        kept.physical = Some(Arc::new(physical));
        kept
    }

    /// The same, never to be worked out before the values are known.
    pub(crate) fn without_more(&self) -> Self {
        let mut kept = self.clone();
        kept.fitness.is_plain = false;
        kept
    }

    /// The same, which has no physical plan for all values.
    pub(crate) fn never_generic(&self) -> Self {
        let mut kept = self.clone();
        (kept.is_generic, kept.physical) = (false, None);
        kept
    }

    /// Whether a physical plan for all values of its parameters may be made.
    pub(crate) fn is_generic(&self) -> bool {
        self.is_generic
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// How far it may go without values.
    pub(crate) fn stage_max(&self) -> Stage {
        match (self.fitness.is_plain, self.fitness.is_settled) {
            (true, true) => Stage::Optimised,
            (true, false) => Stage::Analysed,
            (false, _) => self.stage,
        }
    }

    /// What it takes in memory, estimated.
    pub(crate) fn bytes(&self) -> u64 {
        let physical = self.physical.as_ref();
        self.bytes + physical.map_or(0, |physical| physical.bytes())
    }

    /// The plan over the tables as a statement sees them, which are locked for it.
    ///
    /// # Errors
    /// Somebody is in the way: the statement is planned again.
    pub(crate) fn revive(&self, context: &StatementContext) -> Result<Work> {
        self.lock(context)?;
        Ok(match &self.work {
            KeptWork::Query(plan, origins) => {
                Work::Query(attached(plan.clone(), context)?, origins.clone())
            }
            KeptWork::Dml(kept) => {
                let bound = (**kept).clone();
                let bound = bound.with_target(&|target: KeptTarget| target.revive(context))?;
                let pairs = bound.pairs();
                let bound = bound.map_plans(|plan| attached_with(plan, context, pairs.as_ref()))?;
                Work::Dml(Box::new(bound))
            }
        })
    }
}

impl KeptPlan {
    /// The columns that its parameters are compared with, if it has a physical plan for all values
    /// and nothing else happens to them.
    pub(crate) fn compared(&self) -> Option<&Compared> {
        self.physical.as_ref()?.compared()
    }

    /// The physical plan that is kept, if that is what would be planned now. Its relations are
    /// locked for the statement then.
    ///
    /// # Errors
    /// As [`Self::revive`].
    pub(crate) fn physical(&self, context: &StatementContext) -> Result<Fit<'_>> {
        let Some(physical) = &self.physical else {
            return Ok(Fit::Missing);
        };
        self.lock(context)?;
        physical.fit(context)
    }

    fn lock(&self, context: &StatementContext) -> Result<()> {
        for &oid in &self.relations {
            let locked = context.gate.require(oid, LockMode::AccessShare);
            locked.map_err(external)?;
        }
        Ok(())
    }
}

impl KeptTarget {
    fn of(target: Target) -> Self {
        Self {
            table: Arc::downgrade(&target.entry),
            schema: target.schema,
            alias: target.alias,
        }
    }

    /// The target, locked.
    fn revive(self, context: &StatementContext) -> Result<Target> {
        let entry = known(&self.table)?;
        let locked = context.gate.require(entry.oid, LockMode::RowExclusive);
        locked.map_err(external)?;
        Ok(Target {
            entry,
            schema: self.schema,
            alias: self.alias,
        })
    }
}

/// A table of a plan that was found under the catalogue that it was made under.
///
/// # Errors
/// It is gone, which that catalogue keeps from happening.
pub(crate) fn known(table: &Weak<TableEntry>) -> Result<Arc<TableEntry>> {
    let entry = table.upgrade();
    entry.ok_or_else(|| internal("a kept plan without its table"))
}

/// What a scan in a kept plan reads.
enum Reads {
    Table {
        table: Weak<TableEntry>,
        row_ids: bool,
    },
    /// The pairs of DO UPDATE.
    Pairs,
}

/// The source of a scan in a kept plan.
struct KeptSource {
    reads: Reads,
    schema: SchemaRef,
}

impl KeptSource {
    /// As a statement sees it.
    fn revive(
        &self,
        context: &StatementContext,
        pairs: Option<&Arc<Pairs>>,
    ) -> Result<Arc<dyn TableSource>> {
        let (table, row_ids) = match &self.reads {
            Reads::Table { table, row_ids } => (table, *row_ids),
            Reads::Pairs => {
                let pairs = pairs.ok_or_else(|| internal("a kept plan without its pairs"))?;
                return Ok(provider_as_source(
                    Arc::clone(pairs) as Arc<dyn TableProvider>
                ));
            }
        };
        let entry = known(table)?;
        context.met.lock().note_table(&entry);
        Ok(context.scan_of(&entry, row_ids))
    }
}

impl TableSource for KeptSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// A query's plan with what its statement sees.
///
/// # Errors
/// A table is gone.
pub(crate) fn attached(plan: LogicalPlan, context: &StatementContext) -> Result<LogicalPlan> {
    attached_with(plan, context, None)
}

/// The plan with what its statement sees.
fn attached_with(
    plan: LogicalPlan,
    context: &StatementContext,
    pairs: Option<&Arc<Pairs>>,
) -> Result<LogicalPlan> {
    map_scans(plan, |scan| {
        let kept = scan.source.downcast_ref::<KeptSource>();
        let kept = kept.ok_or_else(|| internal("a kept plan with a source of its own"))?;
        kept.revive(context, pairs)
    })
}

/// The plan without what its statement sees.
///
/// # Errors
/// It reads what is none of these tables.
pub(crate) fn detached(plan: LogicalPlan, tables: &[Arc<TableEntry>]) -> Result<LogicalPlan> {
    map_scans(plan, |scan| {
        let reads = match scanned(scan, tables) {
            Some(Scanned::Table { entry, row_ids }) => Reads::Table {
                table: Arc::downgrade(entry),
                row_ids,
            },
            Some(Scanned::Pairs) => Reads::Pairs,
            None => return Err(internal("a plan of an unknown table is kept")),
        };
        let schema = scan.source.schema();
        Ok(Arc::new(KeptSource { reads, schema }))
    })
}

/// A plan whose scans take filters with parameters that have no values yet.
///
/// # Errors
/// Those of walking a plan.
pub(crate) fn opened(plan: LogicalPlan) -> Result<LogicalPlan> {
    map_scans(plan, |scan| {
        let source = scan.source.downcast_ref::<DefaultTableSource>();
        let provider =
            source.and_then(|source| source.table_provider.downcast_ref::<TableScanProvider>());
        Ok(match provider {
            Some(provider) => provider_as_source(Arc::new(provider.open())),
            None => Arc::clone(&scan.source),
        })
    })
}

/// The plan with other sources of its scans.
fn map_scans(
    plan: LogicalPlan,
    mut source: impl FnMut(&TableScan) -> Result<Arc<dyn TableSource>>,
) -> Result<LogicalPlan> {
    let mapped = plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::TableScan(mut scan) => {
            scan.source = source(&scan)?;
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        }
        other => Ok(Transformed::no(other)),
    });
    Ok(mapped?.data)
}

/// What depends on the values of parameters: constants are folded, conditions go to the scans
/// that take them, which then read fewer columns. Everything else is done. Parameters that
/// stand plainly make no constants that cannot be computed.
///
/// # Errors
/// Those of the optimizer.
pub(crate) fn optimize_for_values(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    static RULES: LazyLock<Optimizer> = LazyLock::new(|| {
        let mut rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![
            Arc::new(SimplifyExpressions::new()),
            Arc::new(EliminateFilter::new()),
            Arc::new(PushDownLimit::new()),
            Arc::new(PushDownFilter::new()),
            Arc::new(OptimizeProjections::new()),
        ];
        rules.extend(aerostat_semantics::optimizer_rules());
        Optimizer::with_rules(rules)
    });
    planning(|| RULES.optimize(plan, state, |_, _| {}))
}

/// What a logical plan takes in memory, estimated.
pub(super) fn bytes_of(plan: &LogicalPlan) -> Result<u64> {
    let mut bytes = 0;
    plan.apply_with_subqueries(|node| {
        bytes += NODE_BYTES + COLUMN_BYTES * node.schema().fields().len() as u64;
        node.apply_expressions(|expression| {
            expression.apply(|_| {
                bytes += EXPRESSION_BYTES;
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(bytes)
}

pub(super) fn internal(what: &str) -> DataFusionError {
    DataFusionError::Internal(what.to_owned())
}
