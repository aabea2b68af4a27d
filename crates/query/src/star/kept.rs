//! Star joins in cached physical plans, and how a statement runs them.

use std::sync::{Arc, Weak};

use aerostat_catalog::TableEntry;
use datafusion::{
    common::{ParamValues, Result},
    logical_expr::LogicalPlan,
    physical_plan::{ExecutionPlan, PlanProperties},
};

use super::exec::{Fact, Original, StarJoinExec, StarParts};
use crate::{
    detach::{detached, known},
    plan::StatementContext,
};

/// A star join without a snapshot, which holds its tables weakly. Its sides are cached beside it.
pub(crate) struct KeptStar {
    fact: Weak<TableEntry>,
    parts: Arc<StarParts>,
    original: Arc<LogicalPlan>,
    properties: Arc<PlanProperties>,
}

impl KeptStar {
    /// The cached form of a star join over these tables; `None` if the join comes from a cached
    /// plan, or is over other tables.
    ///
    /// # Errors
    /// Its original plan reads something else than these tables.
    pub(crate) fn of(star: &StarJoinExec, tables: &[Arc<TableEntry>]) -> Result<Option<Self>> {
        let fact = star.fact.view.table();
        let entry = tables.iter().find(|entry| Arc::ptr_eq(&entry.table, fact));
        let (Some(entry), Original::New { plan, .. }) = (entry, &*star.original) else {
            return Ok(None);
        };
        Ok(Some(Self {
            fact: Arc::downgrade(entry),
            parts: Arc::clone(&star.parts),
            original: Arc::new(detached(plan.clone(), tables)?),
            properties: Arc::clone(&star.properties),
        }))
    }

    /// The plan that takes over when the star join fails.
    pub(crate) fn original(&self) -> &LogicalPlan {
        &self.original
    }

    /// The star join of a statement's view of the fact, over sides for the same statement; `None`
    /// if storage does not take the values.
    ///
    /// # Errors
    /// The table is gone.
    pub(crate) fn revive(
        &self,
        context: &Arc<StatementContext>,
        values: Option<&ParamValues>,
        sides: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let entry = known(&self.fact)?;
        let parts = match self.parts.of_fact.is_open() {
            false => Arc::clone(&self.parts),
            true => {
                let table = entry.table.schema();
                let Some((of_fact, _)) = self.parts.of_fact.close(table, values) else {
                    return Ok(None);
                };
                Arc::new(StarParts {
                    of_fact,
                    ..(*self.parts).clone()
                })
            }
        };
        let fact = Fact {
            view: context.table_view(&entry),
            usage: Arc::clone(&entry.usage),
        };
        let original = Original::Kept {
            plan: Arc::clone(&self.original),
            values: values.cloned(),
            context: Arc::clone(context),
        };
        Ok(Some(Arc::new(StarJoinExec::with_properties(
            parts,
            fact,
            sides,
            Arc::new(original),
            Arc::clone(&self.properties),
        ))))
    }
}
