//! A cached plan: without the tables, snapshot and values of its statement.
//!
//! ```text
//!             first time                     second time           from then on
//!  no values  bound ► analysed ► optimised   optimised             optimised
//!  values     bound                          bound ► … ► optimised   optimised, then for the values
//!             (each planned for its values)  (with parameters)
//! ```
//!
//! A plan whose functions are not settled is cached as it was analysed; one whose parameters do
//! not stand plainly, as it was bound. The remaining steps are repeated for every statement.
//!
//! A physical plan may be cached beside it, if there are no values or it serves all values
//! (`physical`).

use std::sync::{Arc, LazyLock, Weak};

use aerostat_catalog::TableEntry;
use aerostat_semantics::growth::planning;
use aerostat_txn::LockMode;
use aerostat_types::RelationId;
use datafusion::{
    common::Result,
    execution::SessionState,
    logical_expr::LogicalPlan,
    optimizer::{
        Optimizer, OptimizerRule, eliminate_filter::EliminateFilter,
        optimize_projections::OptimizeProjections, push_down_filter::PushDownFilter,
        push_down_limit::PushDownLimit, simplify_expressions::SimplifyExpressions,
    },
};

use super::{
    Fitness,
    physical::{Fit, KeptPhysical},
    size::bytes_of,
};
use crate::{
    detach::{attached, attached_with, detached, known},
    dml::BoundDml,
    error::external,
    plan::{Origins, StatementContext, Target},
    scan::conditions::Compared,
    work::Work,
};

/// How far a plan has come on its way to the physical one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Names are resolved.
    Bound,
    /// Types, operators and subqueries are PostgreSQL's.
    Analysed,
    /// It is optimised, as far as that is possible without values.
    Optimised,
}

/// A cached plan.
#[derive(Clone)]
pub struct KeptPlan {
    work: KeptWork,
    stage: Stage,
    fitness: Fitness,
    /// The relations that it reads, which were locked when it was made.
    relations: Box<[RelationId]>,
    bytes: u64,
    /// The physical plan made of it, if that may be run again.
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

/// A [`Target`] that holds its table weakly, so that the plan does not keep the table's memory.
#[derive(Clone)]
struct KeptTarget {
    table: Weak<TableEntry>,
    schema: String,
    alias: String,
}

impl KeptPlan {
    /// A cached plan of what was planned in this context.
    ///
    /// # Errors
    /// The plan reads something that is not a table of the context.
    pub fn new(
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

    /// This cached plan at a later stage.
    ///
    /// # Errors
    /// The errors of [`Self::new`].
    pub fn at(&self, context: &StatementContext, work: Work, stage: Stage) -> Result<Self> {
        Ok(Self {
            relations: self.relations.clone(),
            physical: self.physical.clone(),
            is_generic: self.is_generic,
            ..Self::new(context, work, stage, self.fitness)?
        })
    }

    /// This cached plan with the physical plan that was made of it.
    pub fn with_physical(&self, physical: KeptPhysical) -> Self {
        let mut kept = self.clone();
        kept.physical = Some(Arc::new(physical));
        kept
    }

    /// This cached plan, marked so that it is never planned further before the values are known.
    pub fn without_more(&self) -> Self {
        let mut kept = self.clone();
        kept.fitness.is_plain = false;
        kept
    }

    /// This cached plan without a physical plan for all values, and never to get one.
    pub fn never_generic(&self) -> Self {
        let mut kept = self.clone();
        (kept.is_generic, kept.physical) = (false, None);
        kept
    }

    /// Whether a physical plan for all values of its parameters may be made.
    pub fn is_generic(&self) -> bool {
        self.is_generic
    }

    /// How far it is planned.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// How far it may be planned without values.
    pub fn stage_max(&self) -> Stage {
        match (self.fitness.is_plain, self.fitness.is_settled) {
            (true, true) => Stage::Optimised,
            (true, false) => Stage::Analysed,
            (false, _) => self.stage,
        }
    }

    /// Its estimated size in memory.
    pub(crate) fn bytes(&self) -> u64 {
        let physical = self.physical.as_ref();
        self.bytes + physical.map_or(0, |physical| physical.bytes())
    }

    /// The plan over the tables as a statement sees them. It locks them for the statement.
    ///
    /// # Errors
    /// Another transaction is in the way; the statement is planned again.
    pub fn revive(&self, context: &StatementContext) -> Result<Work> {
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
    /// that uses the parameters for nothing else.
    pub fn compared(&self) -> Option<&Compared> {
        self.physical.as_ref()?.compared()
    }

    /// The cached physical plan, if it is the one that would be planned now. It locks the plan's
    /// relations for the statement.
    ///
    /// # Errors
    /// The errors of [`Self::revive`].
    pub fn physical(&self, context: &StatementContext) -> Result<Fit<'_>> {
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

    /// The target, locked for the statement.
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

/// Optimises a plan once more, for the values of its parameters: constants are folded, and
/// conditions go to the scans that take them, which then read fewer columns. All other rules
/// have run before. Parameters that stand plainly make no constants that cannot be computed.
///
/// # Errors
/// The errors of the optimizer.
pub fn optimize_for_values(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
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
