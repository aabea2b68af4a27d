//! Constant expressions that fail.
//!
//! PostgreSQL computes the constant parts of a statement when it plans it: `1 / 0` in a SELECT
//! list, a condition or a SET is an error over no rows, too. DataFusion leaves failing constants
//! to the execution, and drops them from a query that cannot return rows. So constants are
//! computed here where PostgreSQL computes them. This happens before the optimizer, which would
//! blur the difference: `10 / a` of a row whose `a` is set to 0 is no constant.
//!
//! ```text
//! CASE WHEN a THEN 1 / 0 END   an error       CASE WHEN false THEN 1 / 0 END   not computed
//! a AND 1 / 0 = 1              an error       false AND 1 / 0 = 1              not computed
//! ```
//!
//! Outputs of a subquery that the outer query does not read are not computed either. Subqueries
//! in expressions are left to their execution.

use std::collections::BTreeSet;
use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlError};
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, JoinType, Result, ScalarValue};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    BinaryExpr, Case, Distinct, Expr, Limit, LogicalPlan, Operator, Volatility,
};
use datafusion::physical_expr::create_physical_expr;

use crate::external;

/// Computes the constants of an analysed plan, and forgets them.
///
/// # Errors
/// PostgreSQL's, of the first that cannot be computed.
pub fn compute_constants(plan: &LogicalPlan, config: &Arc<ConfigOptions>) -> Result<()> {
    let mut props = ExecutionProps::new();
    props.config_options = Some(Arc::clone(config));
    Search { props }.plan(plan, all_of(plan))
}

/// Positions of a plan's outputs.
type Outputs = BTreeSet<usize>;

fn all_of(plan: &LogicalPlan) -> Outputs {
    (0..plan.schema().fields().len()).collect()
}

/// The outputs of a plan that an expression over it reads.
fn read_by(expr: &Expr, plan: &LogicalPlan) -> Outputs {
    let columns = expr.column_refs().into_iter();
    columns
        .filter_map(|column| plan.schema().maybe_index_of_column(column))
        .collect()
}

struct Search {
    props: ExecutionProps,
}

impl Search {
    /// Looks at a plan of which these outputs are read.
    fn plan(&self, plan: &LogicalPlan, mut read: Outputs) -> Result<()> {
        assert!(
            read.last()
                .is_none_or(|last| *last < plan.schema().fields().len()),
            "what is read of a plan is there"
        );
        match plan {
            LogicalPlan::Projection(projection) => {
                let mut below = Outputs::new();
                for expr in read.iter().filter_map(|&at| projection.expr.get(at)) {
                    self.expression(expr)?;
                    below.extend(read_by(expr, &projection.input));
                }
                self.plan(&projection.input, below)
            }
            LogicalPlan::Filter(filter) => {
                self.expression(&filter.predicate)?;
                read.extend(read_by(&filter.predicate, &filter.input));
                self.plan(&filter.input, read)
            }
            LogicalPlan::Sort(sort) => {
                for key in &sort.expr {
                    self.expression(&key.expr)?;
                    read.extend(read_by(&key.expr, &sort.input));
                }
                self.plan(&sort.input, read)
            }
            LogicalPlan::Limit(limit) => {
                self.row_counts(limit)?;
                self.plan(&limit.input, read)
            }
            LogicalPlan::SubqueryAlias(alias) => self.plan(&alias.input, read),
            LogicalPlan::Distinct(Distinct::All(input)) => self.plan(input, all_of(input)),
            LogicalPlan::Union(union) => {
                let mut inputs = union.inputs.iter();
                inputs.try_for_each(|input| self.plan(input, read.clone()))
            }
            LogicalPlan::Aggregate(aggregate) => {
                let of_groups = aggregate.group_expr.iter();
                let mut below = Outputs::new();
                for expr in of_groups.chain(&aggregate.aggr_expr) {
                    self.expression(expr)?;
                    below.extend(read_by(expr, &aggregate.input));
                }
                self.plan(&aggregate.input, below)
            }
            LogicalPlan::Join(join) => {
                let width = join.left.schema().fields().len();
                let right = match join.join_type {
                    JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
                        read.split_off(&width)
                    }
                    JoinType::LeftSemi | JoinType::LeftAnti => Outputs::new(),
                    _ => return Ok(()),
                };
                let mut right: Outputs = right.into_iter().map(|at| at - width).collect();
                let mut left = read;
                let pairs = join.on.iter().flat_map(|(l, r)| [l, r]);
                for expr in pairs.chain(&join.filter) {
                    self.expression(expr)?;
                    left.extend(read_by(expr, &join.left));
                    right.extend(read_by(expr, &join.right));
                }
                self.plan(&join.left, left)?;
                self.plan(&join.right, right)
            }
            _ => Ok(()),
        }
    }

    /// Computes how many rows are left out and how many are given. OFFSET is the first to be
    /// told to be negative, as where parameters fill in both while the rows are sought.
    fn row_counts(&self, limit: &Limit) -> Result<()> {
        let clauses = [
            (&limit.skip, ErrorKind::InvalidRowCountInOffset, "OFFSET"),
            (&limit.fetch, ErrorKind::InvalidRowCountInLimit, "LIMIT"),
        ];
        for (count, kind, clause) in clauses {
            let Some(count) = count else { continue };
            self.expression(count)?;
            if is_constant(count)?
                && let Some(ScalarValue::Int64(Some(..0))) = self.value(count)?
            {
                let message = format!("{clause} must not be negative");
                return Err(external(SqlError::new(kind, message)));
            }
        }
        Ok(())
    }

    /// Computes the constants in an expression, as far as PostgreSQL does.
    fn expression(&self, expr: &Expr) -> Result<()> {
        match expr {
            Expr::Column(_) | Expr::Literal(..) => Ok(()),
            Expr::Case(case) => self.case(case),
            Expr::BinaryExpr(BinaryExpr {
                op: op @ (Operator::And | Operator::Or),
                ..
            }) => {
                for term in terms(expr, *op) {
                    self.expression(term)?;
                    if self.truth(term)? == Some(Some(*op == Operator::Or)) {
                        break;
                    }
                }
                Ok(())
            }
            // COALESCE asks no argument behind a constant.
            Expr::ScalarFunction(call) if call.func.short_circuits() => {
                for arg in &call.args {
                    self.expression(arg)?;
                    let value = match is_constant(arg)? {
                        true => self.value(arg)?,
                        false => None,
                    };
                    if value.is_some_and(|value| !value.is_null()) {
                        break;
                    }
                }
                Ok(())
            }
            _ if is_constant(expr)? => self.value(expr).map(drop),
            _ => {
                let look = |child: &Expr| {
                    self.expression(child)?;
                    Ok(TreeNodeRecursion::Continue)
                };
                expr.apply_children(look).map(drop)
            }
        }
    }

    fn case(&self, case: &Case) -> Result<()> {
        if let Some(subject) = &case.expr {
            self.expression(subject)?;
        }
        for (when, then) in &case.when_then_expr {
            self.expression(when)?;
            let condition = match &case.expr {
                Some(subject) => subject.as_ref().clone().eq(when.as_ref().clone()),
                None => when.as_ref().clone(),
            };
            match self.truth(&condition)? {
                Some(Some(true)) => return self.expression(then),
                Some(_) => {}
                None => self.expression(then)?,
            }
        }
        let otherwise = case.else_expr.as_ref();
        otherwise.map_or(Ok(()), |expr| self.expression(expr))
    }

    /// The truth of a constant condition, which may be unknown; `None` of another.
    fn truth(&self, condition: &Expr) -> Result<Option<Option<bool>>> {
        if !is_constant(condition)? {
            return Ok(None);
        }
        Ok(match self.value(condition)? {
            Some(ScalarValue::Boolean(truth)) => Some(truth),
            _ => None,
        })
    }

    /// A constant's value; `None` if only its execution can tell.
    fn value(&self, constant: &Expr) -> Result<Option<ScalarValue>> {
        if let Expr::Literal(value, _) = constant {
            return Ok(Some(value.clone()));
        }
        let context = PhysicalPlanningContext::default();
        let expr = create_physical_expr(constant, &DFSchema::empty(), &self.props, &context);
        let Ok(expr) = expr else { return Ok(None) };
        let one_row = RecordBatchOptions::new().with_row_count(Some(1));
        let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &one_row)?;
        let value = expr.evaluate(&row);
        match value.and_then(|value| value.to_array(1)) {
            Ok(value) => ScalarValue::try_from_array(&value, 0).map(Some),
            // What another engine would not do is told when it is done.
            Err(error) if is_told(&error) => Err(error),
            Err(_) => Ok(None),
        }
    }
}

/// What AND or OR joins, from left to right. Programs write thousands of terms, each of which
/// is a level of the expression.
fn terms(expr: &Expr, joined_by: Operator) -> Vec<&Expr> {
    let (mut terms, mut open) = (Vec::new(), vec![expr]);
    while let Some(expr) = open.pop() {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if *op == joined_by => {
                open.extend([&**right, &**left]);
            }
            term => terms.push(term),
        }
    }
    terms
}

/// Whether an error is one of PostgreSQL's.
fn is_told(error: &DataFusionError) -> bool {
    match error {
        DataFusionError::External(inner) => inner.is::<SqlError>(),
        DataFusionError::Context(_, inner) => is_told(inner),
        DataFusionError::Shared(inner) => is_told(inner),
        _ => false,
    }
}

/// Whether an expression has one value, whatever the row and whenever it is asked.
fn is_constant(expr: &Expr) -> Result<bool> {
    let varies = expr.exists(|part| {
        Ok(match part {
            Expr::ScalarFunction(call) => {
                call.func.signature().volatility != Volatility::Immutable
                    || call.func.short_circuits()
            }
            Expr::Literal(..)
            | Expr::Alias(_)
            | Expr::BinaryExpr(_)
            | Expr::Not(_)
            | Expr::Negative(_)
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsTrue(_)
            | Expr::IsFalse(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotTrue(_)
            | Expr::IsNotFalse(_)
            | Expr::IsNotUnknown(_)
            | Expr::Between(_)
            | Expr::Like(_)
            | Expr::SimilarTo(_)
            | Expr::InList(_)
            | Expr::Cast(_)
            | Expr::Case(_) => false,
            _ => true,
        })
    })?;
    Ok(!varies)
}

#[cfg(test)]
mod tests {
    use crate::tests::{context, plan, sql_error};

    /// The error of computing the constants of a query, if there is one.
    async fn error_of(sql: &str) -> Option<String> {
        let context = context();
        let plan = plan(&context, sql).await.unwrap();
        let state = context.state();
        let config = state.config_options();
        let analyzed = state.analyzer().execute_and_check(plan, config, |_, _| {});
        let computed = super::compute_constants(&analyzed.unwrap(), config);
        computed.err().map(|error| sql_error(&error).message)
    }

    #[tokio::test]
    async fn a_negative_offset_is_told_before_a_limit() {
        for (clauses, clause) in [
            ("LIMIT -1 OFFSET -1", "OFFSET"),
            ("LIMIT 0 OFFSET -1", "OFFSET"),
            ("LIMIT 1 - 2 OFFSET 1", "LIMIT"),
        ] {
            let sql = format!("SELECT i FROM t {clauses}");
            let message = error_of(&sql).await.expect(clauses);
            assert_eq!(message, format!("{clause} must not be negative"));
        }
    }

    #[tokio::test]
    async fn a_constant_that_fails_is_an_error_over_no_rows() {
        for sql in [
            "SELECT 1 / 0 FROM empty",
            "SELECT i FROM empty WHERE 1 / 0 = 1",
            "SELECT i FROM empty WHERE i = 1 AND 1 / 0 = 1",
            "SELECT i FROM t WHERE 1 / 0 = 1 AND false",
            "SELECT 1 / 0 FROM t WHERE false",
            "SELECT CASE WHEN i = 1 THEN 1 / 0 END FROM empty",
            "SELECT CASE i WHEN 1 / 0 THEN 1 END FROM empty",
            "SELECT coalesce(1 / 0, i) FROM empty",
            "SELECT coalesce(i, 1 / 0) FROM empty",
            "SELECT i FROM empty GROUP BY i HAVING count(*) = 1 / 0",
            "SELECT sum(1 / 0) FROM empty",
            "SELECT x FROM (SELECT i, 1 / 0 AS x FROM empty) AS s",
            "SELECT i FROM empty UNION ALL SELECT 1 / 0 FROM empty",
            "SELECT i FROM empty ORDER BY 1 / 0 + i",
            "SELECT a.i FROM empty AS a JOIN empty AS b ON a.i = b.i + 1 / 0",
        ] {
            let error = error_of(sql).await;
            assert_eq!(error.as_deref(), Some("division by zero"), "{sql}");
        }
    }

    #[tokio::test]
    async fn what_is_not_reached_is_not_computed() {
        for sql in [
            "SELECT i FROM empty WHERE false AND 1 / 0 = 1",
            "SELECT i FROM empty WHERE i = 1 AND false AND 1 / 0 = 1",
            "SELECT i FROM empty WHERE (true OR 1 / 0 = 1) AND i = 1",
            "SELECT CASE WHEN true THEN 1 ELSE 1 / 0 END FROM empty",
            "SELECT CASE WHEN false THEN 1 / 0 WHEN NULL THEN 1 / 0 ELSE i END FROM empty",
            "SELECT CASE 1 WHEN 2 THEN 1 / 0 WHEN 1 THEN i ELSE 1 / 0 END FROM empty",
            "SELECT coalesce(1, 1 / 0) FROM empty",
            "SELECT i FROM (SELECT i, 1 / 0 AS x FROM empty) AS s",
            "SELECT i / 0 FROM empty",
        ] {
            assert_eq!(error_of(sql).await, None, "{sql}");
        }
    }
}
