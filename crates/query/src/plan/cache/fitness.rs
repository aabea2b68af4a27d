//! Which plans may be kept, and how far they may be worked out before they are.

use std::sync::Arc;

use aerostat_types::SqlType;
use datafusion::{
    common::{
        DFSchema, Result,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    datasource::DefaultTableSource,
    logical_expr::{
        Between, BinaryExpr, Expr, ExprSchemable, LogicalPlan, TableScan, Volatility,
        utils::{merge_schema, split_conjunction},
    },
};

use crate::{
    catalog::TableEntry,
    pgcatalog,
    scan::{TableScanProvider, compare_op},
};

/// What is known of a plan that may be kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fitness {
    /// Whether it calls nothing that tells each statement something else, such as `now()`:
    /// the optimizer would write down the first answer.
    pub(crate) is_settled: bool,
    /// Whether its parameters stand only where their types decide everything, so that it can
    /// be analysed and optimised before their values are known: compared with values of a like
    /// type in conditions that all must hold, and in LIMIT.
    ///
    /// Elsewhere a constant means more than its type. A digit count makes the type of `round`,
    /// a text that is no number is an error over no rows, and the lists that
    /// `x = $1 OR x = $2` becomes must be kept apart from others.
    pub(crate) is_plain: bool,
}

/// What is known of a bound plan over these tables; `None` if it may not be kept.
///
/// # Errors
/// Those of walking a plan.
pub(crate) fn examine(plan: &LogicalPlan, tables: &[Arc<TableEntry>]) -> Result<Option<Fitness>> {
    let mut is_fit = true;
    let mut fitness = Fitness {
        is_settled: true,
        is_plain: true,
    };
    plan.apply_with_subqueries(|node| {
        is_fit = is_fit && is_keepable(node, tables) && examine_expressions(node, &mut fitness)?;
        Ok(match is_fit {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    })?;
    Ok(is_fit.then_some(fitness))
}

/// The table that a scan reads, if it is a plain one of these.
pub(super) fn table_of<'t>(
    scan: &TableScan,
    tables: &'t [Arc<TableEntry>],
) -> Option<&'t Arc<TableEntry>> {
    let source = scan.source.downcast_ref::<DefaultTableSource>()?;
    let provider = source.table_provider.downcast_ref::<TableScanProvider>()?;
    let table = provider.plain_table()?;
    tables.iter().find(|entry| Arc::ptr_eq(&entry.table, table))
}

/// A node that is not listed holds what nobody here knows.
fn is_keepable(node: &LogicalPlan, tables: &[Arc<TableEntry>]) -> bool {
    match node {
        LogicalPlan::TableScan(scan) => table_of(scan, tables).is_some(),
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

/// Looks at a node's expressions; `false` if one belongs to its statement.
fn examine_expressions(node: &LogicalPlan, fitness: &mut Fitness) -> Result<bool> {
    let (mut is_fit, mut parameters) = (true, 0);
    node.apply_expressions(|expression| {
        expression.apply(|part| {
            match part {
                Expr::ScalarFunction(call) => {
                    is_fit &= !pgcatalog::is_bound(&call.func);
                    fitness.is_settled &= call.func.signature().volatility != Volatility::Stable;
                }
                Expr::HigherOrderFunction(_) => is_fit = false,
                Expr::Placeholder(_) => parameters += 1,
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if is_fit && parameters > 0 {
        fitness.is_plain &= parameters == plain_parameters(node);
    }
    Ok(is_fit)
}

/// How many parameters of a node stand where their types decide everything.
fn plain_parameters(node: &LogicalPlan) -> usize {
    let condition = match node {
        LogicalPlan::Filter(filter) => Some(&filter.predicate),
        LogicalPlan::Join(join) => join.filter.as_ref(),
        LogicalPlan::Limit(limit) => {
            let counts = [&limit.skip, &limit.fetch].into_iter().flatten();
            return counts
                .filter(|count| parameter_type(count) == Some(SqlType::BigInt))
                .count();
        }
        _ => None,
    };
    let Some(condition) = condition else { return 0 };
    let schema = merge_schema(&node.inputs());
    let terms = split_conjunction(condition).into_iter();
    terms.map(|term| plain_in_term(term, &schema)).sum()
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

/// Whether this is a parameter, and compares with the other side as it is.
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

/// Numerics of different scale, blanks of `char(n)` and intervals compare in ways of their own.
fn is_alike(a: SqlType, b: SqlType) -> bool {
    use SqlType::{BigInt, Char, Integer, Interval, Numeric, SmallInt};
    let is_own = |ty| matches!(ty, Numeric { .. } | Char(_) | Interval);
    let is_integer = |ty| matches!(ty, SmallInt | Integer | BigInt);
    !is_own(a)
        && !is_own(b)
        && (a.oid() == b.oid() || a.is_text() && b.is_text() || is_integer(a) && is_integer(b))
}
