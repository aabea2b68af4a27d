//! Physical plans for all values of their parameters, as PostgreSQL's generic plans.
//!
//! ```text
//!  query with parameters    second execution ─► planned with open filters ─► kept
//!  query with constants     lifted; second text ─► the same, its parameters typed by columns
//!  from then on             kept ─► locks ─► tables, values ─► run
//! ```
//!
//! Such a plan exists where parameters are in nothing but filters that scans take whatever the
//! values are (`scan::conditions`): what the planner then knows does not depend on them, and
//! indexes, zone maps and lookups get them as if they were constants. A join whose sides are
//! chosen by how many rows a filter leaves is not among the plans that are kept
//! (`cache::physical`), so nothing that values would have changed is lost.

use std::sync::Arc;

use aerostat_api::ParameterType;
use aerostat_query::{
    Work,
    cache::{
        Fit, KeptPhysical, KeptPlan, Lifted, PlanCache, Revived, Sight, Sought, Stage, examine,
        lifted as lift,
    },
    opened,
    physical::{optimize, optimize_analyzed, plan_physical},
    plan::{StatementContext, describe_columns},
};
use datafusion::{
    common::{ParamValues, Result as PlanResult},
    sql::sqlparser::ast,
};

use super::{
    infer::{infer, parameter_field},
    run::{Parameters, bind_work},
};

/// The physical plan that is kept of a query, with the statement's values; made now, if that has
/// not been done. `None` if there is none for these values.
///
/// # Errors
/// Another transaction is in the way: the statement is planned again.
pub(super) async fn revived(
    context: &Arc<StatementContext>,
    cache: &PlanCache,
    sought: &Sought<'_>,
    kept: &KeptPlan,
    values: Option<&ParamValues>,
) -> PlanResult<Option<Revived>> {
    let revived = match kept.physical(context)? {
        Fit::Runs(physical) => physical.revive(context, values)?,
        // Two sessions would take turns in planning it.
        Fit::OtherSettings => None,
        Fit::Missing | Fit::OtherSizes if values.is_some() && kept.is_generic() => {
            return made(context, cache, sought, kept, values).await;
        }
        Fit::Missing | Fit::OtherSizes => None,
    };
    if revived.is_some() {
        cache.note_physical();
    }
    Ok(revived)
}

/// As [`revived`], of a plan that is made now.
async fn made(
    context: &Arc<StatementContext>,
    cache: &PlanCache,
    sought: &Sought<'_>,
    kept: &KeptPlan,
    values: Option<&ParamValues>,
) -> PlanResult<Option<Revived>> {
    let work = kept.revive(context)?;
    let Some(better) = generic(context, kept, work).await else {
        keep_none(context, cache, sought, kept);
        return Ok(None);
    };
    let revived = match better.physical(context)? {
        Fit::Runs(physical) => physical.revive(context, values)?,
        _ => None,
    };
    cache.keep(sought, None, Arc::new(better));
    Ok(revived)
}

/// Notes that a query has no plan for all values, unless somebody was in the way of making one.
fn keep_none(context: &StatementContext, cache: &PlanCache, sought: &Sought<'_>, kept: &KeptPlan) {
    if context.gate.obstacle().is_none() {
        cache.keep(sought, None, Arc::new(kept.never_generic()));
    }
}

/// A kept plan with its physical plan for all values. What is wrong is left to the plan for the
/// statement's own values to say.
async fn generic(context: &Arc<StatementContext>, kept: &KeptPlan, work: Work) -> Option<KeptPlan> {
    let physical = planned(context, kept.stage(), work).await.ok()??;
    Some(kept.with_physical(physical))
}

async fn planned(
    context: &Arc<StatementContext>,
    stage: Stage,
    work: Work,
) -> PlanResult<Option<KeptPhysical>> {
    let (plan, origins) = work.into_query()?;
    let plan = opened(plan)?;
    let plan = match stage {
        Stage::Bound => optimize(&context.state, plan)?,
        Stage::Analysed | Stage::Optimised => optimize_analyzed(&context.state, plan)?,
    };
    let physical = plan_physical(&context.state, &plan).await?;
    let columns = describe_columns(&origins, &physical.schema());
    KeptPhysical::new(context, &plan, &physical, &columns)
}

/// The physical plan of a query that has come before with other constants; `None` if it is to be
/// planned with its own.
///
/// # Errors
/// As [`revived`].
pub(super) async fn lifted(
    context: &Arc<StatementContext>,
    cache: &PlanCache,
    parsed: &ast::Statement,
) -> PlanResult<Option<Revived>> {
    let Some(lifted) = lift(parsed) else {
        return Ok(None);
    };
    let sought = Sought {
        text: &lifted.text,
        parameters: &[],
        context,
    };
    let kept = match cache.find(&sought) {
        Some(kept) => kept,
        None => match cache.sight(&lifted.text) {
            Sight::First | Sight::Unfit => return Ok(None),
            Sight::Again => match template(context, &lifted).await {
                Some(kept) => {
                    let kept = Arc::new(kept);
                    cache.keep(&sought, None, Arc::clone(&kept));
                    kept
                }
                None => {
                    if context.gate.obstacle().is_none() {
                        cache.note_unfit(&lifted.text);
                    }
                    return Ok(None);
                }
            },
        },
    };
    let compared = kept.compared();
    match compared.and_then(|compared| lifted.values(compared)) {
        Some(values) => revived(context, cache, &sought, &kept, Some(&values)).await,
        None => Ok(None),
    }
}

/// What is kept of a query without its constants, if its plan is for all values and each
/// of them is compared with a column.
async fn template(context: &Arc<StatementContext>, lifted: &Lifted) -> Option<KeptPlan> {
    let parameters = typed(context, lifted)?;
    let bound = bind_work(context, &lifted.statement, &parameters).ok()?;
    let fitness = examine(&bound, &context.met.lock().tables).ok()??;
    let kept = KeptPlan::new(context, bound.clone(), Stage::Bound, fitness).ok()?;
    if !kept.is_generic() {
        return None;
    }
    let kept = generic(context, &kept, bound).await?;
    let compared = kept.compared()?;
    (compared.len() == parameters.fields.len()).then_some(kept)
}

/// The parameters in the place of the constants, with the types that follow from where they stand.
fn typed(context: &StatementContext, lifted: &Lifted) -> Option<Parameters> {
    let types = lifted.types().map(|ty| ty.map(ParameterType::Value));
    let mut types: Vec<_> = types.collect();
    infer(context, &lifted.statement, &mut types).ok()?;
    let fields = types.into_iter().map(|ty| ty.map(parameter_field));
    Some(Parameters {
        fields: fields.collect(),
        ..Parameters::default()
    })
}
