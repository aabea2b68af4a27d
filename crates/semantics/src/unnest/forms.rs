//! Every form of subquery rewritten as a scalar one, except for those that DataFusion plans: IN
//! and EXISTS in WHERE, where only the truth of the condition counts.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlError};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, JoinType, Result, ScalarValue, Spans};
use datafusion::functions_aggregate::expr_fn::{bool_and, bool_or, count};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, merge_schema};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Case, Expr, ExprSchemable, FetchType, Filter, Join, Limit, LogicalPlan,
    LogicalPlanBuilder, Operator, Projection, SkipType, Sort, Subquery, lit,
};

use super::domain::{EXISTENCE, substitute};
use super::place::{only, references};
use super::push::fresh;
use super::scope::partition_conjuncts;
use super::{row, scope, unsupported};

/// The rule's state over one statement.
#[derive(Default)]
pub(super) struct Forms {
    names: usize,
}

/// What the expressions of a node see.
struct Scope {
    schema: DFSchema,
    /// Operands that must be evaluated once, as columns below the node.
    operands: Vec<Expr>,
}

/// An operand of IN, ANY or ALL.
struct Operand {
    /// Where it stands.
    here: Expr,
    /// The same from within the subquery.
    inside: Expr,
}

impl Forms {
    pub(super) fn rewrite(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let plan = plan
            .map_children(|child| Ok(Transformed::yes(self.rewrite(child)?)))?
            .data;
        if let LogicalPlan::Aggregate(node) = &plan {
            refuse_outer_aggregates(node)?;
        }
        let mut found = false;
        plan.apply_expressions(|expr| {
            found |= scope::contains_subquery(expr)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !found {
            return Ok(plan);
        }
        let plan = plan
            .map_subqueries(|subquery| match subquery {
                LogicalPlan::Subquery(subquery) => {
                    let inner = self.rewrite(LogicalPlan::clone(&subquery.subquery))?;
                    Ok(Transformed::yes(LogicalPlan::Subquery(subquery_over(
                        inner,
                    )?)))
                }
                other => Ok(Transformed::no(other)),
            })?
            .data;
        match plan {
            LogicalPlan::Filter(filter) => self.filter(filter),
            LogicalPlan::Join(join) if join.join_type == JoinType::Inner => self.inner_join(join),
            LogicalPlan::Sort(sort) => self.sort(sort),
            other => self.expressions(other),
        }
    }

    fn filter(&mut self, filter: Filter) -> Result<LogicalPlan> {
        let mut scope = Scope::new(&[&filter.input]);
        let columns = filter.input.schema().columns();
        let predicate = self.condition(filter.predicate, &mut scope, true)?;
        let input = scope.with_operands(filter.input)?;
        let filter = LogicalPlan::Filter(Filter::try_new(predicate, input)?);
        only(filter, &columns)
    }

    /// Conditions of an inner join that hold correlated subqueries are a filter over it.
    fn inner_join(&mut self, mut join: Join) -> Result<LogicalPlan> {
        let Some(condition) = join.filter.take() else {
            return Ok(LogicalPlan::Join(join));
        };
        let (ours, others) = partition_conjuncts(condition, needs_rewriting)?;
        join.filter = conjunction(others);
        let joined = LogicalPlan::Join(join);
        match conjunction(ours) {
            Some(predicate) => self.filter(Filter::try_new(predicate, Arc::new(joined))?),
            None => Ok(joined),
        }
    }

    /// A sort over a projection whose subqueries refer to what is projected
    /// away: it sorts before that. As in PostgreSQL the names are the input's.
    fn sort(&mut self, sort: Sort) -> Result<LogicalPlan> {
        let mut needed = Vec::new();
        for key in &sort.expr {
            key.expr.apply(|node| {
                if let Some(subquery) = scope::subquery_of(node) {
                    needed.extend(scope::free_references(&subquery.subquery)?);
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        let LogicalPlan::Projection(projection) = &*sort.input else {
            return self.expressions(LogicalPlan::Sort(sort));
        };
        let below = projection.input.schema();
        if !needed.iter().any(|(_, column)| below.has_column(column)) {
            return self.expressions(LogicalPlan::Sort(sort));
        }
        let outputs = Arc::clone(&projection.schema);
        let mut exprs = Vec::new();
        let mut hidden = Vec::new();
        for expr in &projection.expr {
            let name = fresh(&mut self.names, "output");
            exprs.push(expr.clone().unalias().alias(&name));
            hidden.push(Expr::Column(Column::new_unqualified(name)));
        }
        for (_, column) in needed {
            if let Ok(pair) = below.qualified_field_from_column(&column)
                && !exprs.contains(&Expr::from(pair))
            {
                exprs.push(Expr::from(pair));
            }
        }
        let keys = sort
            .expr
            .iter()
            .map(|key| Ok(key.with_expr(substitute(key.expr.clone(), &sort.input, &hidden)?)))
            .collect::<Result<Vec<_>>>()?;
        let wide = Projection::try_new(exprs, Arc::clone(&projection.input))?;
        let sorted = self.expressions(LogicalPlan::Sort(Sort {
            expr: keys,
            input: Arc::new(LogicalPlan::Projection(wide)),
            fetch: sort.fetch,
        }))?;
        let named = hidden.into_iter().zip(outputs.iter());
        let exprs = named
            .map(|(expr, (qualifier, field))| {
                expr.alias_qualified(qualifier.cloned(), field.name())
            })
            .collect();
        Ok(LogicalPlan::Projection(Projection::try_new(
            exprs,
            Arc::new(sorted),
        )?))
    }

    fn expressions(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let inputs = plan.inputs();
        let mut scope = Scope::new(&inputs);
        let names = NamePreserver::new(&plan);
        let columns = plan.schema().columns();
        let plan = plan
            .map_expressions(|expr| {
                let name = names.save(&expr);
                let value = self.value(expr, &mut scope, false)?;
                Ok(Transformed::yes(name.restore(value)))
            })?
            .data;
        if scope.operands.is_empty() {
            return Ok(plan);
        }
        let inputs = plan.inputs();
        let [input] = inputs.as_slice() else {
            return Err(unsupported("a volatile operand of IN in this place"));
        };
        let input = scope.with_operands(Arc::new(LogicalPlan::clone(input)))?;
        let exprs = plan.expressions();
        let plan = plan.with_new_exprs(exprs, vec![Arc::unwrap_or_clone(input)])?;
        only(plan, &columns)
    }

    /// A condition of which only the truth counts: NULL is as good as false.
    /// `alone` says that nothing but ANDs are around it.
    fn condition(&mut self, expr: Expr, scope: &mut Scope, alone: bool) -> Result<Expr> {
        match expr {
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: op @ (Operator::And | Operator::Or),
                right,
            }) => {
                let alone = alone && op == Operator::And;
                let left = self.condition(*left, scope, alone)?;
                let right = self.condition(*right, scope, alone)?;
                Ok(Expr::BinaryExpr(BinaryExpr::new(
                    Box::new(left),
                    op,
                    Box::new(right),
                )))
            }
            Expr::Not(inner) => match *inner {
                Expr::Exists(Exists { subquery, negated }) => self.condition(
                    Expr::Exists(Exists {
                        subquery,
                        negated: !negated,
                    }),
                    scope,
                    alone,
                ),
                Expr::InSubquery(InSubquery {
                    expr,
                    subquery,
                    negated,
                }) => self.is_member((*expr, subquery, !negated), scope, alone),
                call if row::parts(&call).is_some() => self.is_row_member(call, true, scope),
                other => self.value(Expr::Not(Box::new(other)), scope, true),
            },
            Expr::InSubquery(InSubquery {
                expr,
                subquery,
                negated,
            }) => self.is_member((*expr, subquery, negated), scope, alone),
            Expr::SetComparison(comparison) => match member_of(&comparison) {
                Some(negated) => self.is_member(
                    (*comparison.expr, comparison.subquery, negated),
                    scope,
                    alone,
                ),
                None => self.value(Expr::SetComparison(comparison), scope, true),
            },
            call if row::parts(&call).is_some() => self.is_row_member(call, false, scope),
            other => self.value(other, scope, true),
        }
    }

    /// `x [NOT] IN (S)` in WHERE.
    fn is_member(
        &mut self,
        (operand, mut subquery, negated): (Expr, Subquery, bool),
        scope: &mut Scope,
        alone: bool,
    ) -> Result<Expr> {
        let operand = self.value(operand, scope, false)?;
        let uncorrelated = scope::free_references(&subquery.subquery)?.is_empty();
        let plain = scope.leaves(&subquery.subquery)?;
        if !alone {
            // DataFusion's mark join finds a column without a qualifier twice.
            subquery.subquery = self.renamed(&subquery.subquery)?;
        }
        let own = Expr::InSubquery(InSubquery::new(
            Box::new(operand.clone()),
            subquery.clone(),
            negated,
        ));
        let simple = !has_correlated(&operand)?;
        // A mark join says false for unknown, which negated is not as good. An anti join compares
        // columns of both sides: a constant it looks for on one side alone, and finds no NULL there.
        let null_aware = uncorrelated && (!negated || alone && operand.any_column_refs());
        if simple && (null_aware || (!negated && plain)) {
            return Ok(own);
        }
        if uncorrelated || !negated || !plain {
            return self.value(own, scope, false);
        }
        // DataFusion's anti join knows NULLs in one column only.
        let operand = self.operand(operand, scope)?;
        let rows = self.renamed(&subquery.subquery)?;
        let equal = operand.inside.eq(output(&rows, 0));
        absent(&rows, equal)
    }

    /// The rows under names that no outer column has: DataFusion, when it
    /// takes a condition out of a subquery, tells columns apart by name alone.
    fn renamed(&mut self, plan: &Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        let exprs = plan
            .schema()
            .iter()
            .map(|pair| Expr::from(pair).alias(fresh(&mut self.names, "member")))
            .collect();
        let plan = Projection::try_new(exprs, Arc::clone(plan))?;
        Ok(Arc::new(LogicalPlan::Projection(plan)))
    }

    /// `(x, y) [NOT] IN (S)` in WHERE: a row of S that equals it, or none that may.
    fn is_row_member(&mut self, call: Expr, negated: bool, scope: &mut Scope) -> Result<Expr> {
        let Some((subquery, members)) = row::parts(&call) else {
            return Ok(call);
        };
        if !scope.leaves(&subquery.subquery)? {
            let value = self.value(call, scope, false)?;
            return Ok(if negated {
                Expr::Not(Box::new(value))
            } else {
                value
            });
        }
        let rows = self.renamed(&subquery.subquery)?;
        let equal = self.row_equality(&rows, members.to_vec(), scope)?;
        if negated {
            return absent(&rows, equal);
        }
        let found = filter(&rows, equal)?;
        Ok(Expr::Exists(Exists::new(subquery_over(found)?, false)))
    }

    /// The comparison of a row with the outputs of a subquery.
    fn row_equality(
        &mut self,
        rows: &LogicalPlan,
        members: Vec<Expr>,
        scope: &mut Scope,
    ) -> Result<Expr> {
        let width = rows.schema().fields().len();
        if width != members.len() {
            let few = if width < members.len() { "few" } else { "many" };
            return Err(crate::external(SqlError::new(
                ErrorKind::SyntaxError,
                format!("subquery has too {few} columns"),
            )));
        }
        let mut operands = Vec::with_capacity(width);
        for member in members {
            let member = self.value(member, scope, false)?;
            operands.push(self.operand(member, scope)?);
        }
        let pairs = operands
            .into_iter()
            .enumerate()
            .map(|(at, operand)| operand.inside.eq(output(rows, at)));
        Ok(conjunction(pairs).unwrap_or_else(|| lit(true)))
    }

    /// An expression whose value counts, NULL included.
    fn value(&mut self, expr: Expr, scope: &mut Scope, keeps_exists: bool) -> Result<Expr> {
        expr.transform_down(|node| {
            let value = match node {
                Expr::Exists(Exists { subquery, negated }) => {
                    if keeps_exists && scope.leaves(&subquery.subquery)? {
                        Expr::Exists(Exists::new(without_limit(subquery)?, negated))
                    } else {
                        not_if(negated, exists(&subquery.subquery)?)
                    }
                }
                Expr::InSubquery(InSubquery {
                    expr,
                    subquery,
                    negated,
                }) => not_if(negated, self.member(*expr, &subquery, scope)?),
                Expr::SetComparison(comparison) => self.comparison(comparison, scope)?,
                call if row::parts(&call).is_some() => self.row_member(&call, scope)?,
                other => return Ok(Transformed::no(other)),
            };
            Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
        })
        .map(|rewritten| rewritten.data)
    }

    /// `x IN (S)`. For an S without references to the outer row, a lookup of x
    /// among the rows and two answers for all rows: whether there are any, and
    /// whether a NULL is among them. Else x is a reference like the others.
    fn member(&mut self, operand: Expr, subquery: &Subquery, scope: &mut Scope) -> Result<Expr> {
        let operand = self.value(operand, scope, false)?;
        let operand = self.operand(operand, scope)?;
        let plan = &self.renamed(&subquery.subquery)?;
        let output = output(plan, 0);
        let lookup = scope::free_references(plan)?.is_empty()
            && operand.here.any_column_refs()
            && !scope::contains_subquery(&operand.here)?
            && !scope::is_volatile(plan)?;
        let equal = operand.inside.eq(output.clone());
        if !lookup {
            return three_valued(plan, equal, SetQuantifier::Any);
        }
        let found = exists(&filter(plan, equal)?)?;
        let mut unknown = Vec::new();
        if plan.schema().field(0).is_nullable() {
            unknown.push(exists(&filter(plan, output.is_null())?)?);
        }
        if operand.here.nullable(&scope.schema).unwrap_or(true) {
            unknown.push(operand.here.is_null().and(exists(plan)?));
        }
        Ok(match unknown.into_iter().reduce(Expr::or) {
            Some(unknown) => choose(found, true, unknown),
            None => found,
        })
    }

    fn row_member(&mut self, call: &Expr, scope: &mut Scope) -> Result<Expr> {
        let Some((subquery, members)) = row::parts(call) else {
            return Ok(call.clone());
        };
        let equal = self.row_equality(&subquery.subquery, members.to_vec(), scope)?;
        three_valued(&subquery.subquery, equal, SetQuantifier::Any)
    }

    /// `x θ ANY (S)`, `x θ ALL (S)`.
    fn comparison(&mut self, comparison: SetComparison, scope: &mut Scope) -> Result<Expr> {
        if let Some(negated) = member_of(&comparison) {
            let member = self.member(*comparison.expr, &comparison.subquery, scope)?;
            return Ok(not_if(negated, member));
        }
        let SetComparison {
            expr,
            subquery,
            op,
            quantifier,
        } = comparison;
        let operand = self.value(*expr, scope, false)?;
        let operand = self.operand(operand, scope)?;
        let compared = Expr::BinaryExpr(BinaryExpr::new(
            Box::new(operand.inside),
            op,
            Box::new(output(&subquery.subquery, 0)),
        ));
        three_valued(&subquery.subquery, compared, quantifier)
    }

    /// An operand here and within the subquery. One that is volatile or holds
    /// subqueries of its own becomes a column first.
    fn operand(&mut self, expr: Expr, scope: &mut Scope) -> Result<Operand> {
        let here = expr;
        if here.is_volatile() || has_correlated(&here)? {
            let name = fresh(&mut self.names, "operand");
            let (_, field) = here.to_field(&scope.schema)?;
            scope.operands.push(here.alias(&name));
            let column = Column::new_unqualified(name);
            return Ok(Operand {
                here: Expr::Column(column.clone()),
                inside: Expr::OuterReferenceColumn(field, column),
            });
        }
        let inside = here
            .clone()
            .transform(|node| match node {
                Expr::Column(column) => {
                    let field = Arc::clone(scope.schema.field_from_column(&column)?);
                    Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
                }
                other => Ok(Transformed::no(other)),
            })?
            .data;
        Ok(Operand { here, inside })
    }
}

impl Scope {
    fn new(inputs: &[&LogicalPlan]) -> Scope {
        Scope {
            schema: merge_schema(inputs),
            operands: Vec::new(),
        }
    }

    /// Whether DataFusion takes a subquery of this node: it refers to nothing
    /// further out, and to this in a form that DataFusion knows.
    fn leaves(&self, plan: &LogicalPlan) -> Result<bool> {
        let near = scope::free_references(plan)?
            .iter()
            .all(|(_, column)| self.schema.has_column(column));
        Ok(near && scope::is_plain(plan)?)
    }

    fn with_operands(&mut self, input: Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        if self.operands.is_empty() {
            return Ok(input);
        }
        let mut exprs: Vec<Expr> = input.schema().iter().map(Expr::from).collect();
        exprs.append(&mut self.operands);
        let projection = Projection::try_new(exprs, input)?;
        Ok(Arc::new(LogicalPlan::Projection(projection)))
    }
}

/// PostgreSQL computes an aggregate whose columns are all of an outer query in that query.
fn refuse_outer_aggregates(node: &Aggregate) -> Result<()> {
    for expr in &node.aggr_expr {
        if expr.contains_outer() && !expr.any_column_refs() {
            return Err(unsupported(
                "an aggregate of an outer query's columns in a subquery",
            ));
        }
    }
    Ok(())
}

/// Whether a condition holds more than uncorrelated scalar subqueries.
fn needs_rewriting(expr: &Expr) -> Result<bool> {
    expr.exists(|node| match scope::subquery_of(node) {
        Some(subquery) => Ok(!matches!(node, Expr::ScalarSubquery(_))
            || !scope::free_references(&subquery.subquery)?.is_empty()),
        None => Ok(false),
    })
}

fn has_correlated(expr: &Expr) -> Result<bool> {
    expr.exists(|node| match scope::subquery_of(node) {
        Some(subquery) => Ok(!scope::free_references(&subquery.subquery)?.is_empty()),
        None => Ok(false),
    })
}

/// `= ANY` is IN and `<> ALL` is NOT IN: whether it is the latter, if it is one.
fn member_of(comparison: &SetComparison) -> Option<bool> {
    match (comparison.op, &comparison.quantifier) {
        (Operator::Eq, SetQuantifier::Any) => Some(false),
        (Operator::NotEq, SetQuantifier::All) => Some(true),
        _ => None,
    }
}

fn not_if(negated: bool, expr: Expr) -> Expr {
    if negated {
        Expr::Not(Box::new(expr))
    } else {
        expr
    }
}

/// An output column of a subquery.
fn output(plan: &LogicalPlan, at: usize) -> Expr {
    Expr::Column(Column::from(plan.schema().qualified_field(at)))
}

fn filter(plan: &Arc<LogicalPlan>, predicate: Expr) -> Result<LogicalPlan> {
    Ok(LogicalPlan::Filter(Filter::try_new(
        predicate,
        Arc::clone(plan),
    )?))
}

pub(super) fn subquery_over(plan: LogicalPlan) -> Result<Subquery> {
    Ok(Subquery {
        outer_ref_columns: references(&plan)?,
        subquery: Arc::new(plan),
        spans: Spans::new(),
    })
}

fn scalar(plan: LogicalPlan) -> Result<Expr> {
    Ok(Expr::ScalarSubquery(subquery_over(plan)?))
}

/// `NOT EXISTS` of rows of which the condition is true or unknown.
fn absent(plan: &Arc<LogicalPlan>, condition: Expr) -> Result<Expr> {
    let possible = filter(plan, Expr::IsNotFalse(Box::new(condition)))?;
    Ok(Expr::Exists(Exists::new(subquery_over(possible)?, true)))
}

/// A correlated subquery of EXISTS whose LIMIT, if any, makes no difference.
fn without_limit(subquery: Subquery) -> Result<Subquery> {
    match &*subquery.subquery {
        LogicalPlan::Limit(node)
            if keeps_a_row(node) && !scope::free_references(&node.input)?.is_empty() =>
        {
            subquery_over(LogicalPlan::clone(&node.input))
        }
        _ => Ok(subquery),
    }
}

/// Whether a LIMIT leaves one of the rows, if there are any.
fn keeps_a_row(limit: &Limit) -> bool {
    let skips_none = matches!(limit.get_skip_type(), Ok(SkipType::Literal(0)));
    let fetch = limit.get_fetch_type();
    skips_none && matches!(fetch, Ok(FetchType::Literal(count)) if count != Some(0))
}

/// `EXISTS (S)` as a scalar subquery. What S selects, how it sorts and at which row it ends
/// does not matter.
fn exists(plan: &LogicalPlan) -> Result<Expr> {
    let mut plan = plan;
    loop {
        plan = match plan {
            LogicalPlan::Projection(node) if !node.expr.iter().any(has_unnest) => &node.input,
            LogicalPlan::Sort(node) if node.fetch.is_none() => &node.input,
            LogicalPlan::Limit(node) if keeps_a_row(node) => &node.input,
            _ => break,
        };
    }
    let mut rows = LogicalPlanBuilder::from(plan.clone());
    if scope::free_references(plan)?.is_empty() {
        rows = rows.limit(0, Some(1))?;
    }
    let counted = rows
        .aggregate(Vec::<Expr>::new(), [count(lit(1_i64)).alias(EXISTENCE)])?
        .project([Expr::Column(Column::new_unqualified(EXISTENCE))
            .gt(lit(0_i64))
            .alias("exists")])?
        .build()?;
    scalar(counted)
}

fn has_unnest(expr: &Expr) -> bool {
    expr.exists(|node| Ok(matches!(node, Expr::Unnest(_))))
        .unwrap_or(true)
}

/// What a comparison says of all rows of a subquery: ANY is true for one true
/// and ALL false for one false, else NULL for one unknown.
fn three_valued(
    plan: &Arc<LogicalPlan>,
    condition: Expr,
    quantifier: SetQuantifier,
) -> Result<Expr> {
    let column = |name: &str| Expr::Column(Column::new_unqualified(name));
    let compared = "\u{1}compared";
    let any = quantifier == SetQuantifier::Any;
    let decided = if any {
        bool_or(column(compared))
    } else {
        bool_and(column(compared))
    };
    let unknown = column("rows").gt(column("known"));
    let decision = if any {
        column("decided")
    } else {
        Expr::Not(Box::new(column("decided")))
    };
    let plan = LogicalPlanBuilder::from(LogicalPlan::clone(plan))
        .project([condition.alias(compared)])?
        .aggregate(
            Vec::<Expr>::new(),
            [
                decided.alias("decided"),
                count(lit(1_i64)).alias("rows"),
                count(column(compared)).alias("known"),
            ],
        )?
        .project([choose(decision, any, unknown).alias("compared")])?
        .build()?;
    scalar(plan)
}

/// `CASE WHEN decided THEN result WHEN unknown THEN NULL ELSE NOT result END`
fn choose(decided: Expr, result: bool, unknown: Expr) -> Expr {
    let null = Expr::Literal(ScalarValue::Boolean(None), None);
    Expr::Case(Case::new(
        None,
        vec![
            (Box::new(decided), Box::new(lit(result))),
            (Box::new(unknown), Box::new(null)),
        ],
        Some(Box::new(lit(!result))),
    ))
}
