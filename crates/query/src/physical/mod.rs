//! From a bound plan to a physical one.

mod numbering;
mod run_time_filters;

use std::{collections::HashMap, sync::Arc};

use aerostat_semantics::growth::planning;
use datafusion::{
    common::Result,
    execution::{SessionState, TaskContext},
    logical_expr::LogicalPlan,
    physical_plan::ExecutionPlan,
};

use crate::star;
use numbering::in_order;
pub(crate) use run_time_filters::RunTimeFilters;

/// The plan with PostgreSQL's types, operators and subqueries.
///
/// # Errors
/// Everything that PostgreSQL refuses when it analyses a statement.
pub fn analyze(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    let analyzer = state.analyzer();
    planning(|| analyzer.execute_and_check(plan, state.config_options(), |_, _| {}))
}

/// An analysed plan, optimised.
///
/// # Errors
/// The errors of the optimizer, and of constants that cannot be computed.
pub fn optimize_analyzed(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    aerostat_semantics::compute_constants(&plan, state.config_options())?;
    planning(|| state.optimizer().optimize(plan, state, |_, _| {}))
}

/// A bound plan, analysed and optimised.
///
/// # Errors
/// The errors of [`analyze`] and [`optimize_analyzed`].
pub fn optimize(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    optimize_analyzed(state, analyze(state, plan)?)
}

/// The physical plan of an optimised one.
///
/// # Errors
/// The errors of the physical planner.
pub async fn plan_physical(
    state: &SessionState,
    plan: &LogicalPlan,
) -> Result<Arc<dyn ExecutionPlan>> {
    let state = in_order(state, plan)?;
    let plan = star::rewritten(&state, plan)?;
    let plan = aerostat_semantics::count_repeated(plan)?;
    let planner = state.query_planner();
    let physical = planner.create_physical_plan(&plan, state.as_ref()).await?;
    assert_eq!(
        physical.schema().fields().len(),
        plan.schema().fields().len(),
        "a physical plan has the outputs of its logical plan"
    );
    Ok(physical)
}

/// The context that a physical plan runs in. Plans hold their functions themselves; DataFusion's
/// own context would copy the lists of all functions.
pub fn task_context(state: &SessionState) -> Arc<TaskContext> {
    Arc::new(TaskContext::new(
        None,
        state.session_id().to_owned(),
        state.config().clone(),
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        Arc::clone(state.runtime_env()),
    ))
}
