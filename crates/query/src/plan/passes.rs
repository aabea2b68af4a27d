//! The passes that rewrite a statement's syntax tree before DataFusion plans it. They run over the
//! whole tree, in an order in which each may rely on the passes before it.
//!
//! | pass | does | after |
//! |---|---|---|
//! | sequences | locks the sequences that `nextval` names in its text | nothing has been renamed |
//! | forms | rewrites syntax that DataFusion lacks ([`super::forms`]) | |
//! | target | calls the table that is changed by its name alone ([`super::target`]) | |
//! | names | rewrites what depends on the relations that exist: functions, samples, `*`, USING, keys, aliases ([`super::calls`] to [`super::names`]) | forms; the target's name |
//! | outputs | gives a query's outputs PostgreSQL's names ([`super::names`]) | `*` is written out where that is needed |
//! | locks | turns FOR UPDATE and similar clauses into marks that the planner sees ([`super::locking`]) | outputs have their names |
//! | system | rewrites what asks the system catalogue: `regclass`, `'t'::regtype` ([`aerostat_pgcatalog::rewrite`]) | |
//! | literals | gives literals PostgreSQL's types | system names are numbers |
//! | outer | tells relations of outer queries from columns ([`super::outer_names`]) | no pass looks at names any more |
//! | chains | makes long chains of AND and OR shallow ([`super::chains`]) | no pass looks at conditions any more |

use aerostat_semantics::type_literals;
use aerostat_types::SqlError;
use datafusion::{
    common::Result,
    logical_expr::LogicalPlan,
    sql::{
        planner::PlannerContext,
        sqlparser::ast::{Query, SetExpr, Statement, Visit, VisitMut},
    },
};

use super::{
    StatementContext, calls, chains, dependent, forms, locking, names, outer_names, sampling,
    sources, target, wildcards,
};
use crate::error::external;

impl StatementContext {
    /// The logical plan of a query.
    ///
    /// # Errors
    /// The errors of the passes and of the planner.
    pub fn plan_query(&self, query: Query, parameters: &mut PlannerContext) -> Result<LogicalPlan> {
        let mut statement = Statement::Query(Box::new(query));
        self.rewrite(&mut statement, parameters)?;
        self.planner()
            .sql_statement_to_plan_with_context(statement, parameters)
    }

    /// Rewrites a query or a change as the module says.
    ///
    /// # Errors
    /// The errors of the passes; another transaction is in the way of a lock.
    pub fn rewrite(
        &self,
        statement: &mut Statement,
        parameters: &mut PlannerContext,
    ) -> Result<()> {
        self.lock_sequences(statement).map_err(external)?;
        forms::rewrite_forms(statement).map_err(external)?;
        target::unqualify_target(self, statement);
        self.rewrite_names(statement).map_err(external)?;
        if let Some(query) = as_query(statement) {
            names::name_outputs(query);
            locking::rewrite_query(self, query, parameters)?;
        } else {
            locking::rewrite_statement(self, statement, parameters)?;
        }
        aerostat_pgcatalog::rewrite(statement, &self.system).map_err(external)?;
        type_literals(statement).map_err(external)?;
        outer_names::rewrite(statement);
        chains::balance(statement);
        Ok(())
    }

    fn rewrite_names(&self, statement: &mut Statement) -> std::result::Result<(), SqlError> {
        calls::check(self, statement)?;
        sampling::rewrite(self, statement)?;
        sources::rewrite_values(&self.state, statement);
        wildcards::rewrite(self, statement)?;
        dependent::rewrite(self, statement);
        names::name_derived(statement);
        Ok(())
    }
}

/// Rewrites an expression that names no relation: forms and literals.
///
/// # Errors
/// The errors of the passes.
pub(crate) fn rewrite_expression<N: Visit + VisitMut>(expression: &mut N) -> Result<()> {
    forms::rewrite_forms(expression).map_err(external)?;
    type_literals(expression).map_err(external)
}

/// The query that a statement is; `None` for a change behind WITH.
fn as_query(statement: &mut Statement) -> Option<&mut Query> {
    match statement {
        Statement::Query(query) => match &*query.body {
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                None
            }
            _ => Some(query),
        },
        _ => None,
    }
}
