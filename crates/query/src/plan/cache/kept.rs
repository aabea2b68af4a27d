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

use std::sync::{Arc, LazyLock, Weak};

use aerostat_txn::LockMode;
use datafusion::{
    arrow::datatypes::SchemaRef,
    common::{
        DataFusionError, Result,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    datasource::provider_as_source,
    execution::SessionState,
    logical_expr::{Expr, LogicalPlan, TableSource},
    optimizer::{
        Optimizer, OptimizerRule, eliminate_filter::EliminateFilter,
        optimize_projections::OptimizeProjections, push_down_filter::PushDownFilter,
        push_down_limit::PushDownLimit, simplify_expressions::SimplifyExpressions,
    },
};

use super::{
    super::{Origins, StatementContext},
    Fitness,
    fitness::table_of,
};
use crate::{catalog::TableEntry, error::external, scan::TableScanProvider};

/// What a node of a plan takes beside its expressions and columns.
const NODE_BYTES: u64 = 512;

/// A column of a node's schema: its field is shared with others, its name often is not.
const COLUMN_BYTES: u64 = 96;

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
    plan: LogicalPlan,
    stage: Stage,
    fitness: Fitness,
    /// The relations that it needs, which were locked when it was made.
    relations: Box<[u32]>,
    origins: Origins,
    bytes: u64,
}

impl KeptPlan {
    /// Of a plan that was made in this context.
    ///
    /// # Errors
    /// It reads what is no table of the context's.
    pub(crate) fn new(
        context: &StatementContext,
        plan: LogicalPlan,
        stage: Stage,
        fitness: Fitness,
        origins: Origins,
    ) -> Result<Self> {
        let met = context.met.lock();
        let plan = detached(plan, &met.tables)?;
        Ok(Self {
            bytes: bytes_of(&plan)?,
            plan,
            stage,
            fitness,
            relations: met.relations.iter().copied().collect(),
            origins,
        })
    }

    /// The same, further on.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn at(
        &self,
        context: &StatementContext,
        plan: LogicalPlan,
        stage: Stage,
    ) -> Result<Self> {
        let further = Self::new(context, plan, stage, self.fitness, self.origins.clone())?;
        Ok(Self {
            relations: self.relations.clone(),
            ..further
        })
    }

    /// The same, never to be worked out before the values are known.
    pub(crate) fn without_more(&self) -> Self {
        let mut kept = self.clone();
        kept.fitness.is_plain = false;
        kept
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

    /// Where the columns of its result come from.
    pub(crate) fn origins(&self) -> &Origins {
        &self.origins
    }

    /// What it takes in memory, estimated.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The plan over the tables as a statement sees them, which are locked for it.
    ///
    /// # Errors
    /// Somebody is in the way: the statement is planned again.
    pub(crate) fn revive(&self, context: &StatementContext) -> Result<LogicalPlan> {
        for &oid in &self.relations {
            let locked = context.gate.require(oid, LockMode::AccessShare);
            locked.map_err(external)?;
        }
        let attached = self
            .plan
            .clone()
            .transform_down_with_subqueries(|node| match node {
                LogicalPlan::TableScan(mut scan) => {
                    let kept = scan.source.downcast_ref::<KeptSource>();
                    let entry = kept.and_then(|kept| kept.table.upgrade());
                    // It was found under the catalogue that it was made under.
                    let entry = entry.ok_or_else(|| internal("a kept plan without its table"))?;
                    context.met.lock().note_table(&entry);
                    scan.source = provider_as_source(Arc::new(TableScanProvider::new(
                        context.table_view(&entry),
                        Arc::clone(&entry.usage),
                    )));
                    Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
                }
                other => Ok(Transformed::no(other)),
            });
        Ok(attached?.data)
    }
}

/// A table in a kept plan.
struct KeptSource {
    table: Weak<TableEntry>,
    schema: SchemaRef,
}

impl TableSource for KeptSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// The plan without what its statement sees.
fn detached(plan: LogicalPlan, tables: &[Arc<TableEntry>]) -> Result<LogicalPlan> {
    let detached = plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::TableScan(mut scan) => {
            let entry = table_of(&scan, tables);
            let entry = entry.ok_or_else(|| internal("a plan of an unknown table is kept"))?;
            scan.source = Arc::new(KeptSource {
                table: Arc::downgrade(entry),
                schema: scan.source.schema(),
            });
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        }
        other => Ok(Transformed::no(other)),
    });
    Ok(detached?.data)
}

/// What depends on the values of parameters: constants are folded, conditions go to the scans
/// that take them, which then read fewer columns. Everything else is done.
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
    RULES.optimize(plan, state, |_, _| {})
}

fn bytes_of(plan: &LogicalPlan) -> Result<u64> {
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

fn internal(what: &str) -> DataFusionError {
    DataFusionError::Internal(what.to_owned())
}
