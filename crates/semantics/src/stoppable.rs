//! Optimizer rules before each of which a statement is asked whether it may go on.
//!
//! A plan of hundreds of thousands of literals takes seconds to analyse and optimise, and a
//! gigabyte. No rule can be stopped, but the next one need not begin.

use std::sync::Arc;

use datafusion::{
    common::{Result, config::ConfigOptions, tree_node::Transformed},
    logical_expr::LogicalPlan,
    optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule},
};

use crate::growth::go_on;

#[derive(Debug)]
struct Stoppable<R: ?Sized>(Arc<R>);

type Analysis = dyn AnalyzerRule + Send + Sync;
type Optimization = dyn OptimizerRule + Send + Sync;

pub(crate) fn analyzer(rule: Arc<Analysis>) -> Arc<Analysis> {
    Arc::new(Stoppable(rule))
}

pub(crate) fn optimizer(rule: Arc<Optimization>) -> Arc<Optimization> {
    Arc::new(Stoppable(rule))
}

impl AnalyzerRule for Stoppable<Analysis> {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        go_on()?;
        let columns = plan.schema().fields().len();
        let analyzed = self.0.analyze(plan, config)?;
        assert_eq!(
            analyzed.schema().fields().len(),
            columns,
            "{} leaves a plan its columns",
            self.name()
        );
        Ok(analyzed)
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

impl OptimizerRule for Stoppable<Optimization> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        go_on()?;
        self.0.rewrite(plan, config)
    }
}
