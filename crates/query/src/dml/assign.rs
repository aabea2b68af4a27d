//! The right sides of SET: values, DEFAULT, and members of rows.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    arrow::datatypes::DataType,
    common::{DFSchema, Result},
    functions::core::{get_field, named_struct},
    logical_expr::{Expr, ExprSchemable, LogicalPlanBuilder, Subquery, expr::Exists, lit},
    sql::{
        planner::PlannerContext,
        sqlparser::ast::{self, AssignmentTarget},
    },
};

use super::values::{
    assign, default_value, is_always_generated, is_default, not_default, unsupported,
};
use crate::{
    error::external,
    plan::{StatementContext, Target, column_identifiers},
};

/// For each column of the target, the value that SET assigns, over rows of this schema.
pub(super) fn assigned_values(
    context: &StatementContext,
    target: &Target,
    set: &[ast::Assignment],
    schema: &DFSchema,
    parameters: &mut PlannerContext,
) -> Result<Vec<Option<Expr>>> {
    let mut assigned: Vec<Option<Expr>> = vec![None; target.entry.table.schema().columns.len()];
    for (name, value) in assignments(set)? {
        let at = target.column(&name).map_err(external)?;
        if assigned[at].is_some() {
            return Err(external(SqlError::new(
                ErrorKind::SyntaxError,
                format!("multiple assignments to same column \"{name}\""),
            )));
        }
        assigned[at] = Some(match value {
            Assigned::Value(value) if is_default(value) => default_value(context, target, at)?,
            _ if is_always_generated(target, at) => return Err(not_default(target, at, false)),
            value => {
                let expression = value.plan(context, schema, parameters)?;
                assign(context, expression, schema, target, at)?
            }
        });
    }
    Ok(assigned)
}

/// The value that a column is assigned.
#[derive(Clone, Copy)]
enum Assigned<'a> {
    Value(&'a ast::Expr),
    /// The column `at` of the only row of a subquery with `width` columns.
    Member {
        query: &'a ast::Query,
        at: usize,
        width: usize,
    },
}

impl Assigned<'_> {
    /// Plans the value over the rows found. Members of one subquery share it as one scalar
    /// subquery, whose value is the row.
    fn plan(
        self,
        context: &StatementContext,
        schema: &DFSchema,
        parameters: &mut PlannerContext,
    ) -> Result<Expr> {
        let (query, at, width) = match self {
            Assigned::Value(value) => {
                return context
                    .planner()
                    .sql_to_expr(value.clone(), schema, parameters);
            }
            Assigned::Member { query, at, width } => (query, at, width),
        };
        // Only in an EXISTS may a subquery have any number of columns for the planner.
        let exists = ast::Expr::Exists {
            subquery: Box::new(query.clone()),
            negated: false,
        };
        let planned = context.planner().sql_to_expr(exists, schema, parameters)?;
        let Expr::Exists(Exists { subquery, .. }) = planned else {
            return Err(unsupported("assigning a row from this subquery"));
        };
        let plan = subquery.subquery;
        if plan.schema().fields().len() != width {
            return Err(external(SqlError::new(
                ErrorKind::SyntaxError,
                "number of columns does not match number of values",
            )));
        }
        let mut members = Vec::with_capacity(width * 2);
        for (at, pair) in plan.schema().iter().enumerate() {
            let mut member = Expr::from(pair);
            if *pair.1.data_type() == DataType::Utf8 {
                // A string literal that a subquery selects is a text.
                member = member.cast_to(&DataType::Utf8View, plan.schema())?;
            }
            members.extend([lit(member_name(at)), member]);
        }
        let row = LogicalPlanBuilder::from(Arc::unwrap_or_clone(plan))
            .project([named_struct().call(members).alias("row")])?
            .build()?;
        let row = Expr::ScalarSubquery(Subquery {
            outer_ref_columns: row.all_out_ref_exprs(),
            subquery: Arc::new(row),
            spans: subquery.spans,
        });
        Ok(get_field().call(vec![row, lit(member_name(at))]))
    }
}

fn member_name(at: usize) -> String {
    format!("c{at}")
}

/// Each assigned column with its value.
fn assignments(assignments: &[ast::Assignment]) -> Result<Vec<(String, Assigned<'_>)>> {
    let mut pairs = Vec::new();
    for assignment in assignments {
        match (&assignment.target, &assignment.value) {
            (AssignmentTarget::ColumnName(name), value) => {
                pairs.push((
                    column_identifiers(std::slice::from_ref(name))
                        .map_err(external)?
                        .remove(0),
                    Assigned::Value(value),
                ));
            }
            (AssignmentTarget::Tuple(names), ast::Expr::Tuple(values)) => {
                if names.len() != values.len() {
                    return Err(external(SqlError::new(
                        ErrorKind::SyntaxError,
                        "number of columns does not match number of values",
                    )));
                }
                pairs.extend(
                    column_identifiers(names)
                        .map_err(external)?
                        .into_iter()
                        .zip(values.iter().map(Assigned::Value)),
                );
            }
            (AssignmentTarget::Tuple(names), ast::Expr::Subquery(query)) => {
                let width = names.len();
                let names = column_identifiers(names).map_err(external)?;
                pairs.extend(
                    names
                        .into_iter()
                        .enumerate()
                        .map(|(at, name)| (name, Assigned::Member { query, at, width })),
                );
            }
            (AssignmentTarget::Tuple(names), value) if names.len() == 1 => {
                pairs.push((
                    column_identifiers(names).map_err(external)?.remove(0),
                    Assigned::Value(value),
                ));
            }
            _ => return Err(unsupported("assigning this form of row")),
        }
    }
    Ok(pairs)
}
