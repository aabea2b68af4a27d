//! Which plans may be cached, and how far they may be planned before their values are known.

use std::sync::Arc;

use aerostat_catalog::TableEntry;
use aerostat_semantics::functions;
use aerostat_types::SqlType;
use datafusion::{
    common::{
        DFSchema, Result,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    logical_expr::{
        Between, BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Volatility,
        utils::{merge_schema, split_conjunction},
    },
};

use crate::{detach::scanned, scan::compare_op, work::Work};

/// What the examination of a plan that may be cached has found.
#[derive(Clone, Copy, Debug)]
pub struct Fitness {
    /// Whether no function in the plan has another result for each statement, such as `now()`:
    /// the optimizer would put the first result into the plan.
    pub is_settled: bool,
    /// Whether the plan can be analysed and optimised before the values of its parameters are
    /// known, because each parameter stands where its type decides everything: compared with
    /// a value of a similar type in a condition that must hold, in LIMIT, and as a new value of a
    /// column.
    ///
    /// Elsewhere the value decides, too. The number of digits makes the type of `round`; a text
    /// that is not a number is an error even over no rows; and the lists that `x = $1 OR x = $2`
    /// becomes must not be merged with others.
    pub(crate) is_plain: bool,
}

/// Examines bound work over these tables; `None` if its plan may not be cached.
///
/// # Errors
/// The errors of walking a plan.
pub fn examine(work: &Work, tables: &[Arc<TableEntry>]) -> Result<Option<Fitness>> {
    let mut examiner = Examiner {
        tables,
        assigns: matches!(work, Work::Dml(_)),
        fitness: Fitness {
            is_settled: true,
            is_plain: true,
        },
    };
    let is_fit = match work {
        Work::Query(plan, _) => examiner.takes(plan)?,
        Work::Dml(bound) => {
            let mut is_fit = true;
            for plan in bound.plans() {
                is_fit = is_fit && examiner.takes(plan)?;
            }
            is_fit
        }
    };
    Ok(is_fit.then_some(examiner.fitness))
}

struct Examiner<'t> {
    tables: &'t [Arc<TableEntry>],
    /// Whether the outputs of queries are new values of columns.
    assigns: bool,
    fitness: Fitness,
}

impl Examiner<'_> {
    /// Whether a plan contains nothing that belongs to one statement.
    fn takes(&mut self, plan: &LogicalPlan) -> Result<bool> {
        let mut is_fit = true;
        plan.apply_with_subqueries(|node| {
            is_fit = is_fit && is_keepable(node, self.tables) && self.takes_expressions(node)?;
            Ok(match is_fit {
                true => TreeNodeRecursion::Continue,
                false => TreeNodeRecursion::Stop,
            })
        })?;
        Ok(is_fit)
    }

    /// Examines a node's expressions; `false` if one of them belongs to one statement.
    fn takes_expressions(&mut self, node: &LogicalPlan) -> Result<bool> {
        let (mut is_fit, mut parameters) = (true, 0);
        let fitness = &mut self.fitness;
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                match part {
                    Expr::ScalarFunction(call) => {
                        is_fit &= !aerostat_pgcatalog::is_bound(&call.func);
                        fitness.is_settled &=
                            call.func.signature().volatility != Volatility::Stable;
                    }
                    Expr::HigherOrderFunction(_) => is_fit = false,
                    Expr::Placeholder(_) => parameters += 1,
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        if is_fit && parameters > 0 {
            fitness.is_plain &= parameters == plain_parameters(node, self.assigns);
        }
        Ok(is_fit)
    }
}

/// Whether a node may be cached. Nodes that are not listed may hold anything.
fn is_keepable(node: &LogicalPlan, tables: &[Arc<TableEntry>]) -> bool {
    match node {
        LogicalPlan::TableScan(scan) => scanned(scan, tables).is_some(),
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Unnest(_) => true,
        _ => false,
    }
}

/// How many parameters of a node stand where their types decide everything.
fn plain_parameters(node: &LogicalPlan, assigns: bool) -> usize {
    let condition = match node {
        LogicalPlan::Filter(filter) => Some(&filter.predicate),
        LogicalPlan::Join(join) => join.filter.as_ref(),
        LogicalPlan::Limit(limit) => {
            let counts = [&limit.skip, &limit.fetch].into_iter().flatten();
            return counts
                .filter(|count| parameter_type(count) == Some(SqlType::BigInt))
                .count();
        }
        LogicalPlan::Projection(projection) if assigns => {
            let schema = projection.input.schema();
            let outputs = projection.expr.iter();
            return outputs.map(|output| plain_in_output(output, schema)).sum();
        }
        LogicalPlan::Values(values) if assigns => {
            let cells = values.values.iter().flatten();
            let cells = cells.map(|cell| plain_in_output(cell, &values.schema));
            return cells.sum();
        }
        _ => None,
    };
    let Some(condition) = condition else { return 0 };
    let schema = merge_schema(&node.inputs());
    let terms = split_conjunction(condition).into_iter();
    terms.map(|term| plain_in_term(term, &schema)).sum()
}

/// How many parameters of a column's new value stand plainly. One does by itself, or beside a
/// column in integer arithmetic, which fails only for a row.
fn plain_in_output(output: &Expr, schema: &DFSchema) -> usize {
    match output {
        Expr::Alias(alias) => plain_in_output(&alias.expr, schema),
        Expr::Placeholder(_) => usize::from(parameter_type(output).is_some()),
        Expr::ScalarFunction(call) => match &call.args[..] {
            [left, right] if functions::is_arithmetic(&call.func) => {
                let is_plain = |parameter: &Expr, other: &Expr| {
                    matches!(other, Expr::Column(_))
                        && parameter_type(parameter).is_some_and(is_integer)
                        && compares_alike(parameter, other, schema)
                };
                usize::from(is_plain(left, right) || is_plain(right, left))
            }
            // An assignment cast of the sum.
            [inner @ Expr::ScalarFunction(_)] => plain_in_output(inner, schema),
            _ => 0,
        },
        Expr::Cast(Cast { expr, .. }) if matches!(**expr, Expr::ScalarFunction(_)) => {
            plain_in_output(expr, schema)
        }
        _ => 0,
    }
}

fn plain_in_term(term: &Expr, schema: &DFSchema) -> usize {
    match term {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compare_op(*op).is_some() => {
            let is_plain =
                compares_alike(left, right, schema) || compares_alike(right, left, schema);
            usize::from(is_plain)
        }
        Expr::Between(Between {
            expr,
            negated: false,
            low,
            high,
        }) => {
            let bounds = [low, high].into_iter();
            bounds
                .filter(|bound| compares_alike(bound, expr, schema))
                .count()
        }
        _ => 0,
    }
}

/// Whether `parameter` is a parameter that is compared with the other side without a conversion.
fn compares_alike(parameter: &Expr, other: &Expr, schema: &DFSchema) -> bool {
    let ours = parameter_type(parameter);
    let theirs = other.to_field(schema);
    let theirs = theirs.ok().and_then(|(_, field)| SqlType::of_field(&field));
    ours.zip(theirs)
        .is_some_and(|(ours, theirs)| is_alike(ours, theirs))
}

fn parameter_type(expression: &Expr) -> Option<SqlType> {
    match expression {
        Expr::Placeholder(placeholder) => SqlType::of_field(placeholder.field.as_ref()?),
        _ => None,
    }
}

/// Whether types compare without a conversion. Numerics of different scale, blanks of `char(n)`
/// and intervals have comparisons of their own.
fn is_alike(a: SqlType, b: SqlType) -> bool {
    use SqlType::{Char, Interval, Numeric};
    let is_own = |ty| matches!(ty, Numeric { .. } | Char(_) | Interval);
    !is_own(a)
        && !is_own(b)
        && (a.oid() == b.oid() || a.is_text() && b.is_text() || is_integer(a) && is_integer(b))
}

fn is_integer(ty: SqlType) -> bool {
    matches!(ty, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt)
}
