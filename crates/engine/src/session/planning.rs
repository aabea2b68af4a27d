//! From a query or DML to its physical plan, by way of the cached plans where it may have one.

use std::sync::Arc;

use aerostat_api::{ColumnDescription, ParameterType};
use aerostat_catalog::NodeRecord;
use aerostat_query::{
    Work,
    cache::{
        KeptPhysical, KeptPlan, PlanCache, Revived, Sought, Stage, examine, optimize_for_values,
    },
    dml::BoundDml,
    physical::{analyze, optimize_analyzed, plan_physical},
    plan::{StatementContext, describe_columns},
};
use aerostat_sql::statement::Source;
use datafusion::{
    common::Result as PlanResult, logical_expr::LogicalPlan, physical_plan::ExecutionPlan,
    sql::sqlparser::ast,
};

use super::{
    ClientState, Executor, generic,
    prepared::Bound,
    run::{Parameters, bind_work},
};

/// Whether a statement's plan may be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plans {
    /// It is what its text says.
    Kept,
    /// It was changed since it was read.
    Anew,
}

/// The key that a statement's plan is cached by.
pub(super) struct Identity {
    cache: Arc<PlanCache>,
    text: Arc<str>,
    parsed: Arc<ast::Statement>,
    /// Whether its message begins with its text.
    is_first: bool,
    parameters: Vec<ParameterType>,
    /// The node's roles before the actor's rights were asked for.
    node: Arc<NodeRecord>,
}

impl ClientState {
    /// Whether plans of the session's statements are cached.
    pub(super) fn keeps_plans(&self) -> bool {
        self.settings.lock().keeps_plans()
    }
}

impl Executor {
    /// The key of a statement's plan; `None` if the statement is to be planned anew.
    pub(super) fn identity(
        &self,
        client: &ClientState,
        parsed: &Arc<ast::Statement>,
        source: &Source,
        bound: Option<&Bound<'_>>,
        plans: Plans,
    ) -> Option<Identity> {
        let is_kept = plans == Plans::Kept
            && client.keeps_plans()
            && PlanCache::takes(&source.text)
            && bound.is_none_or(Bound::is_as_written);
        is_kept.then(|| Identity {
            cache: Arc::clone(self.tenant.plans()),
            text: Arc::clone(&source.text),
            parsed: Arc::clone(parsed),
            is_first: source.offset == 0,
            parameters: bound.map(Bound::types).unwrap_or_default().to_vec(),
            node: self.engine.node().record(),
        })
    }
}

/// The physical plan of a query, and the columns of its result.
pub(super) async fn plan(
    context: &Arc<StatementContext>,
    parsed: &ast::Statement,
    parameters: &Parameters,
    identity: Option<&Identity>,
) -> PlanResult<Revived> {
    let place = CacheSlot::of(context, identity);
    if let Some(place) = &place
        && let Some(revived) = place.revived(context, parameters).await?
    {
        return Ok(revived);
    }
    let work = worked_out(context, parsed, parameters, place.as_ref())?;
    let (plan, origins) = work.into_query()?;
    let physical = plan_physical(&context.state, &plan).await?;
    let columns = describe_columns(&origins, &physical.schema());
    if let (Some(place), None) = (&place, &parameters.values) {
        place.keep_physical(context, &plan, &physical, &columns)?;
    }
    Ok((columns, physical))
}

/// INSERT, UPDATE, DELETE or MERGE with its queries optimised, and the physical plan of the
/// one that finds its rows.
pub(super) async fn plan_dml(
    context: &StatementContext,
    parsed: &ast::Statement,
    parameters: &Parameters,
    identity: Option<&Identity>,
) -> PlanResult<(BoundDml, Arc<dyn ExecutionPlan>)> {
    let place = CacheSlot::of(context, identity);
    if let Some(place) = &place
        && place.kept.is_none()
    {
        place.identity.cache.note_miss();
    }
    let work = worked_out(context, parsed, parameters, place.as_ref())?;
    let bound = work.into_dml()?;
    let physical = plan_physical(&context.state, &bound.source).await?;
    Ok((bound, physical))
}

impl Identity {
    /// Whether the context sees what other sessions of its database see.
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

/// A statement's place in the cache, and its plan if there is one.
struct CacheSlot<'a> {
    identity: &'a Identity,
    kept: Option<Arc<KeptPlan>>,
}

impl<'a> CacheSlot<'a> {
    fn of(context: &StatementContext, identity: Option<&'a Identity>) -> Option<Self> {
        let identity = identity.filter(|identity| identity.is_of(context))?;
        Some(Self {
            identity,
            kept: identity.cache.find(&identity.sought(context)),
        })
    }

    /// The cached physical plan of a query, if it fits the statement's values: of its own text, or of the
    /// same with other constants.
    async fn revived(
        &self,
        context: &Arc<StatementContext>,
        parameters: &Parameters,
    ) -> PlanResult<Option<Revived>> {
        let cache = &self.identity.cache;
        if let Some(kept) = &self.kept {
            let sought = self.identity.sought(context);
            return generic::revived(context, cache, &sought, kept, parameters.values.as_ref())
                .await;
        }
        let revived = match parameters.values {
            Some(_) => None,
            None => generic::lifted(context, cache, &self.identity.parsed).await?,
        };
        if revived.is_none() {
            cache.note_miss();
        }
        Ok(revived)
    }

    /// Caches the physical plan of a query without parameters that has come again.
    fn keep_physical(
        &self,
        context: &StatementContext,
        logical: &LogicalPlan,
        physical: &Arc<dyn ExecutionPlan>,
        columns: &Arc<[ColumnDescription]>,
    ) -> PlanResult<()> {
        let optimised = self.kept.as_ref();
        let optimised = optimised.filter(|kept| kept.stage() == Stage::Optimised);
        let Some(kept) = optimised else { return Ok(()) };
        if let Some(physical) = KeptPhysical::new(context, logical, physical, columns)? {
            let kept = Arc::new(kept.with_physical(physical));
            let sought = self.identity.sought(context);
            self.identity.cache.keep(&sought, None, kept);
        }
        Ok(())
    }
}

/// A statement, optimised for its values.
fn worked_out(
    context: &StatementContext,
    parsed: &ast::Statement,
    parameters: &Parameters,
    place: Option<&CacheSlot<'_>>,
) -> PlanResult<Work> {
    let Some(CacheSlot { identity, kept }) = place else {
        let bound = bind_work(context, parsed, parameters)?;
        return finished(context, bound, Stage::Bound, parameters);
    };
    let sought = identity.sought(context);
    let cache = &identity.cache;
    if let Some(kept) = kept {
        let (work, stage) = further(context, kept, &sought, cache)?;
        return finished(context, work, stage, parameters);
    }
    let bound = bind_work(context, parsed, parameters)?;
    let fitness = examine(&bound, &context.met.lock().tables)?;
    let Some(fitness) = fitness else {
        return finished(context, bound, Stage::Bound, parameters);
    };
    let keep = |work: &Work, stage: Stage| -> PlanResult<()> {
        let kept = KeptPlan::new(context, work.clone(), stage, fitness)?;
        let parsed = identity.is_first.then_some(&identity.parsed);
        cache.keep(&sought, parsed, Arc::new(kept));
        Ok(())
    };
    if parameters.values.is_some() {
        keep(&bound, Stage::Bound)?;
        return finished(context, bound, Stage::Bound, parameters);
    }
    let analyzed = analyzed(context, bound)?;
    if !fitness.is_settled {
        keep(&analyzed, Stage::Analysed)?;
        return optimized(context, analyzed);
    }
    let work = optimized(context, analyzed)?;
    keep(&work, Stage::Optimised)?;
    Ok(work)
}

/// A cached plan over the statement's tables. One that comes again is optimised as far as it goes
/// without values, and cached so.
fn further(
    context: &StatementContext,
    kept: &KeptPlan,
    sought: &Sought<'_>,
    cache: &PlanCache,
) -> PlanResult<(Work, Stage)> {
    let work = kept.revive(context)?;
    let stage = kept.stage_max();
    if kept.stage() != Stage::Bound || stage == Stage::Bound {
        return Ok((work, kept.stage()));
    }
    let worked_out = analyzed(context, work.clone()).and_then(|work| match stage {
        Stage::Optimised => optimized(context, work),
        _ => Ok(work),
    });
    match worked_out {
        Ok(work) => {
            let better = kept.at(context, work.clone(), stage)?;
            cache.keep(sought, None, Arc::new(better));
            Ok((work, stage))
        }
        // It cannot be done without values.
        Err(_) => {
            cache.keep(sought, None, Arc::new(kept.without_more()));
            Ok((work, kept.stage()))
        }
    }
}

/// Bound work, optimised for these values.
pub(super) fn optimized_for(
    context: &StatementContext,
    work: Work,
    parameters: &Parameters,
) -> PlanResult<Work> {
    finished(context, work, Stage::Bound, parameters)
}

/// Optimises work of this stage for these values.
fn finished(
    context: &StatementContext,
    work: Work,
    stage: Stage,
    parameters: &Parameters,
) -> PlanResult<Work> {
    let filled = work.map_plans(|plan| parameters.fill(plan))?;
    match stage {
        Stage::Bound => optimized(context, analyzed(context, filled)?),
        Stage::Analysed => optimized(context, filled),
        Stage::Optimised if parameters.values.is_some() => {
            filled.map_plans(|plan| optimize_for_values(&context.state, plan))
        }
        Stage::Optimised => Ok(filled),
    }
}

fn analyzed(context: &StatementContext, work: Work) -> PlanResult<Work> {
    let mut work = work.map_plans(|plan| analyze(&context.state, plan))?;
    if let Work::Dml(bound) = &mut work {
        bound.note_returned();
    }
    Ok(work)
}

fn optimized(context: &StatementContext, work: Work) -> PlanResult<Work> {
    work.map_plans(|plan| optimize_analyzed(&context.state, plan))
}
