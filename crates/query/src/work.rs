//! What is planned for a statement: a query, or a change of rows with its queries.

use aerostat_types::{ErrorKind, SqlError};
use datafusion::{common::Result, logical_expr::LogicalPlan};

use crate::{dml::BoundDml, error::external, plan::Origins};

/// A query or a change, anywhere between binding and the physical plan.
#[derive(Clone)]
pub enum Work {
    /// A query's plan, and the origins of its result's columns.
    Query(LogicalPlan, Origins),
    /// A change.
    Dml(Box<BoundDml>),
}

impl Work {
    /// Its queries.
    pub fn plans(&self) -> Vec<&LogicalPlan> {
        match self {
            Work::Query(plan, _) => vec![plan],
            Work::Dml(bound) => bound.plans().collect(),
        }
    }

    /// The query itself, or the one that finds the rows of a change.
    pub fn found(&self) -> &LogicalPlan {
        match self {
            Work::Query(plan, _) => plan,
            Work::Dml(bound) => &bound.source,
        }
    }

    /// The work with `map` applied to its plans.
    ///
    /// # Errors
    /// The errors of `map`.
    pub fn map_plans(
        self,
        mut map: impl FnMut(LogicalPlan) -> Result<LogicalPlan>,
    ) -> Result<Self> {
        Ok(match self {
            Work::Query(plan, origins) => Work::Query(map(plan)?, origins),
            Work::Dml(bound) => Work::Dml(Box::new(bound.map_plans(map)?)),
        })
    }

    /// The query that it is.
    ///
    /// # Errors
    /// It is a change.
    pub fn into_query(self) -> Result<(LogicalPlan, Origins)> {
        match self {
            Work::Query(plan, origins) => Ok((plan, origins)),
            Work::Dml(_) => Err(external(internal("a change was planned as a query"))),
        }
    }

    /// The change that it is.
    ///
    /// # Errors
    /// It is a query.
    pub fn into_dml(self) -> Result<BoundDml> {
        match self {
            Work::Dml(bound) => Ok(*bound),
            Work::Query(..) => Err(external(internal("a query was planned as a change"))),
        }
    }
}

fn internal(message: &str) -> SqlError {
    SqlError::new(ErrorKind::Internal, message)
}
