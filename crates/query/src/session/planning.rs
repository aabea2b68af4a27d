//! From a query to its physical plan, by way of the kept plans where it may have one.

use std::{borrow::Cow, sync::Arc};

use datafusion::{
    common::Result as PlanResult, execution::SessionState, logical_expr::LogicalPlan,
    physical_plan::ExecutionPlan, sql::sqlparser::ast,
};

use super::{
    Session,
    prepared::Bound,
    run::{Parameters, bind_query},
};
use crate::{
    api::{ColumnDescription, ParameterType},
    catalog::node::NodeRecord,
    plan::{
        Origins, StatementContext,
        cache::{KeptPlan, PlanCache, Sought, Stage, examine, optimize_for_values},
        describe_columns, in_order, origins,
    },
    statement::Source,
};

/// Whether a statement's plan may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plans {
    /// It is what its text says.
    Kept,
    /// It was changed since it was read.
    Anew,
}

/// By what a query's plan is kept.
pub(super) struct Identity {
    cache: Arc<PlanCache>,
    text: Arc<str>,
    /// Whether its message begins with its text.
    is_first: bool,
    parameters: Vec<ParameterType>,
    /// The node's roles before the actor's rights were asked for.
    node: Arc<NodeRecord>,
}

impl Session {
    /// By what the plan of a query is kept; `None` if it is to be planned anew.
    pub(super) fn identity(
        &self,
        source: &Source,
        bound: Option<&Bound<'_>>,
        plans: Plans,
    ) -> Option<Identity> {
        let is_kept = plans == Plans::Kept
            && self.keeps_plans()
            && PlanCache::takes(&source.text)
            && bound.is_none_or(Bound::is_as_written);
        is_kept.then(|| Identity {
            cache: Arc::clone(&self.plans),
            text: Arc::clone(&source.text),
            is_first: source.offset == 0,
            parameters: bound.map(Bound::types).unwrap_or_default().to_vec(),
            node: self.engine.node().record(),
        })
    }

    /// Whether plans of the session's statements are kept and found again.
    pub(super) fn keeps_plans(&self) -> bool {
        self.settings.lock().keeps_plans()
    }
}

/// The physical plan of a query, and the columns of its result.
pub(super) async fn plan(
    context: &StatementContext,
    parsed: &Arc<ast::Statement>,
    parameters: &Parameters,
    identity: Option<&Identity>,
) -> PlanResult<(Arc<[ColumnDescription]>, Arc<dyn ExecutionPlan>)> {
    let Planned {
        plan,
        state,
        origins,
    } = match identity.filter(|identity| identity.is_of(context)) {
        Some(identity) => planned(context, parsed, parameters, identity)?,
        None => Planned::anew(
            context,
            bind_query(context, parsed, parameters)?,
            parameters,
        )?,
    };
    let physical = state
        .query_planner()
        .create_physical_plan(&plan, state.as_ref())
        .await?;
    Ok((describe_columns(&origins, &physical.schema()), physical))
}

/// An optimised plan.
struct Planned<'c> {
    plan: LogicalPlan,
    state: Cow<'c, SessionState>,
    origins: Origins,
}

impl<'c> Planned<'c> {
    fn anew(
        context: &'c StatementContext,
        bound: LogicalPlan,
        parameters: &Parameters,
    ) -> PlanResult<Self> {
        let origins = origins(context, &bound);
        let filled = parameters.fill(bound)?;
        let state = in_order(&context.state, &filled)?;
        Ok(Self {
            plan: state.optimize(&filled)?,
            state,
            origins,
        })
    }

    /// What acts belongs to its statement, so that the state of a kept plan is the session's.
    fn of(context: &'c StatementContext, plan: LogicalPlan, origins: Origins) -> Self {
        Self {
            plan,
            state: Cow::Borrowed(&*context.state),
            origins,
        }
    }
}

impl Identity {
    /// Whether what the context sees is what its database's others see.
    fn is_of(&self, context: &StatementContext) -> bool {
        context.gate.is_committed() && Arc::ptr_eq(&self.node, &context.system.node)
    }

    fn sought<'a>(&'a self, context: &'a StatementContext) -> Sought<'a> {
        Sought {
            text: &self.text,
            parameters: &self.parameters,
            context,
        }
    }
}

fn planned<'c>(
    context: &'c StatementContext,
    parsed: &Arc<ast::Statement>,
    parameters: &Parameters,
    identity: &Identity,
) -> PlanResult<Planned<'c>> {
    let sought = identity.sought(context);
    let cache = &identity.cache;
    if let Some(kept) = cache.find(&sought) {
        let (plan, stage) = further(context, &kept, &sought, cache)?;
        let plan = finished(context, plan, stage, parameters)?;
        return Ok(Planned::of(context, plan, kept.origins().clone()));
    }
    let bound = bind_query(context, parsed, parameters)?;
    let fitness = examine(&bound, &context.met.lock().tables)?;
    let Some(fitness) = fitness else {
        return Planned::anew(context, bound, parameters);
    };
    let origins = origins(context, &bound);
    let keep = |plan: &LogicalPlan, stage: Stage| -> PlanResult<()> {
        let origins = origins.clone();
        let kept = KeptPlan::new(context, plan.clone(), stage, fitness, origins)?;
        let parsed = identity.is_first.then_some(parsed);
        cache.keep(&sought, parsed, Arc::new(kept));
        Ok(())
    };
    if parameters.values.is_some() {
        keep(&bound, Stage::Bound)?;
        let plan = finished(context, bound, Stage::Bound, parameters)?;
        return Ok(Planned::of(context, plan, origins));
    }
    let analyzed = analyzed(context, bound)?;
    let plan = if fitness.is_settled {
        let plan = optimized(context, analyzed)?;
        keep(&plan, Stage::Optimised)?;
        plan
    } else {
        keep(&analyzed, Stage::Analysed)?;
        optimized(context, analyzed)?
    };
    Ok(Planned::of(context, plan, origins))
}

/// A kept plan over the statement's tables. One that comes again is worked out as far as it
/// goes without values, and kept so.
fn further(
    context: &StatementContext,
    kept: &KeptPlan,
    sought: &Sought<'_>,
    cache: &PlanCache,
) -> PlanResult<(LogicalPlan, Stage)> {
    let plan = kept.revive(context)?;
    let stage = kept.stage_max();
    if kept.stage() != Stage::Bound || stage == Stage::Bound {
        return Ok((plan, kept.stage()));
    }
    let worked_out = analyzed(context, plan.clone()).and_then(|plan| match stage {
        Stage::Optimised => optimized(context, plan),
        _ => Ok(plan),
    });
    match worked_out {
        Ok(plan) => {
            let better = kept.at(context, plan.clone(), stage)?;
            cache.keep(sought, None, Arc::new(better));
            Ok((plan, stage))
        }
        // What cannot be done without values is done with them.
        Err(_) => {
            cache.keep(sought, None, Arc::new(kept.without_more()));
            Ok((plan, kept.stage()))
        }
    }
}

/// What a plan of this stage lacks, for these values.
fn finished(
    context: &StatementContext,
    plan: LogicalPlan,
    stage: Stage,
    parameters: &Parameters,
) -> PlanResult<LogicalPlan> {
    let filled = parameters.fill(plan)?;
    match stage {
        Stage::Bound => optimized(context, analyzed(context, filled)?),
        Stage::Analysed => optimized(context, filled),
        Stage::Optimised if parameters.values.is_some() => {
            optimize_for_values(&context.state, filled)
        }
        Stage::Optimised => Ok(filled),
    }
}

fn analyzed(context: &StatementContext, plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let state = &context.state;
    state
        .analyzer()
        .execute_and_check(plan, state.config_options(), |_, _| {})
}

fn optimized(context: &StatementContext, plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let state = &*context.state;
    state.optimizer().optimize(plan, state, |_, _| {})
}
