//! Expressions that DataFusion confuses with one another.
//!
//! DataFusion's constants are equal if their instants are, whatever their time zone: to its rules
//! `'2024-02-29 12:00'::timestamp` is `'2024-02-29 12:00+00'::timestamptz`, and an expression
//! over one replaces the same expression over the other, with its type. It also computes repeated
//! expressions once, in a projection, where no window function can be. Both matter when the
//! windows of a SELECT are distinguished only until their types are known: `max(1) OVER (),
//! max('1'::int) OVER ()`.
//!
//! So these rules do not run on such plans:
//!
//! | rule | what it would do |
//! |---|---|
//! | `common_sub_expression_eliminate` | computes one of two that look equal |
//! | `simplify_expressions`, `push_down_filter` | keep one of two conditions that look equal |
//! | `eliminate_duplicated_expr` | keeps one of two keys that look equal |
//! | `single_distinct_aggregation_to_group_by` | confuses the arguments of two DISTINCTs |
//!
//! `coalesce` is rewritten as CASE even then, because nothing evaluates it in its own form.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use datafusion::{
    common::{
        Result, ScalarValue,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    logical_expr::{
        Expr, LogicalPlan, Window,
        expr_rewriter::NamePreserver,
        simplify::{ExprSimplifyResult, SimplifyContext},
    },
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
};

use crate::repeated::stop_if;
use crate::totals;

/// The rule itself, or one that leaves alone what it would spoil.
pub(crate) fn apart(
    rule: Arc<dyn OptimizerRule + Send + Sync>,
) -> Arc<dyn OptimizerRule + Send + Sync> {
    match rule.name() {
        // It sees the whole plan at once.
        "common_sub_expression_eliminate" => {
            totals::unless(
                rule,
                |plan| Ok(has_a_window_twice(plan)? || mixes_up(plan)?),
            )
        }
        "simplify_expressions" => Arc::new(Simplify(rule)),
        // It makes one of two filters, and puts them into joins and scans.
        "push_down_filter" => totals::unless(rule, |plan| {
            let LogicalPlan::Filter(filter) = plan else {
                return look_alike(&[plan]);
            };
            look_alike(&[plan, filter.input.as_ref()])
        }),
        "eliminate_duplicated_expr" | "single_distinct_aggregation_to_group_by" => {
            totals::unless(rule, |plan| match plan {
                LogicalPlan::Sort(_) | LogicalPlan::Aggregate(_) => has_an_instant_twice(&[plan]),
                _ => Ok(false),
            })
        }
        _ => rule,
    }
}

/// `simplify_expressions` where nothing looks alike, and what of it every plan needs where something does.
#[derive(Debug)]
struct Simplify(Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for Simplify {
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
        if !look_alike(&[&plan])? {
            return self.0.rewrite(plan, config);
        }
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let written = expr.transform_up(coalesce_written_out)?;
            Ok(written.update_data(|expr| name.restore(expr)))
        })
    }
}

/// A call of `coalesce` as CASE.
fn coalesce_written_out(expr: Expr) -> Result<Transformed<Expr>> {
    match expr {
        Expr::ScalarFunction(call) if call.name() == "coalesce" => {
            let written = call.func.simplify(call.args, &SimplifyContext::default())?;
            Ok(match written {
                ExprSimplifyResult::Simplified(expr) => Transformed::yes(expr),
                ExprSimplifyResult::Original(args) => Transformed::no(call.func.call(args)),
            })
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Whether a whole plan has expressions that only look equal.
fn mixes_up(plan: &LogicalPlan) -> Result<bool> {
    let (mut instants, mut found) = (Instants::default(), false);
    plan.apply_with_subqueries(|node| {
        found = instants.meet(node)?;
        Ok(stop_if(found))
    })?;
    if !found {
        return Ok(false);
    }
    let mut exprs = Vec::new();
    plan.apply_with_subqueries(|node| {
        exprs.extend(node.expressions());
        Ok(TreeNodeRecursion::Continue)
    })?;
    are_alike(&exprs)
}

/// Whether these nodes have expressions that only look equal.
fn look_alike(nodes: &[&LogicalPlan]) -> Result<bool> {
    if !has_an_instant_twice(nodes)? {
        return Ok(false);
    }
    let exprs: Vec<Expr> = nodes.iter().flat_map(|node| node.expressions()).collect();
    are_alike(&exprs)
}

/// Whether these nodes have two constants of one instant and of different zones.
fn has_an_instant_twice(nodes: &[&LogicalPlan]) -> Result<bool> {
    let mut instants = Instants::default();
    for node in nodes {
        if instants.meet(node)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A time zone, which a local time has none of.
type Zone = Option<Arc<str>>;

/// The constants that have been met, and the zone of each.
#[derive(Default)]
struct Instants(HashMap<Option<i64>, Zone>);

impl Instants {
    /// Meets those of a node; whether one has been met with another zone.
    fn meet(&mut self, node: &LogicalPlan) -> Result<bool> {
        let mut found = false;
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if let Some((instant, zone)) = instant(part) {
                    found |= match self.0.entry(instant) {
                        Entry::Occupied(known) => known.get() != zone,
                        Entry::Vacant(place) => {
                            place.insert(zone.clone());
                            false
                        }
                    };
                }
                Ok(stop_if(found))
            })
        })?;
        Ok(found)
    }
}

fn instant(expr: &Expr) -> Option<(Option<i64>, &Zone)> {
    let Expr::Literal(value, _) = expr else {
        return None;
    };
    match value {
        ScalarValue::TimestampSecond(instant, zone)
        | ScalarValue::TimestampMillisecond(instant, zone)
        | ScalarValue::TimestampMicrosecond(instant, zone)
        | ScalarValue::TimestampNanosecond(instant, zone) => Some((*instant, zone)),
        _ => None,
    }
}

/// Whether two parts of these are equal but for the zones of their constants. Constants by themselves
/// are not looked for.
fn are_alike(exprs: &[Expr]) -> Result<bool> {
    // By the hash of a part, which is blind to zones, that of its zones.
    let mut known: HashMap<u64, u64> = HashMap::new();
    let mut found = false;
    for expr in exprs {
        expr.apply(|part| {
            if matches!(part, Expr::Literal(..) | Expr::Column(_) | Expr::Alias(_)) {
                return Ok(TreeNodeRecursion::Continue);
            }
            if let Some(zones) = zones(part)? {
                found |= *known.entry(hash_of(part)).or_insert(zones) != zones;
            }
            Ok(stop_if(found))
        })?;
    }
    Ok(found)
}

/// A hash of the zones of the constants in an expression, in their order; nothing without such.
fn zones(expr: &Expr) -> Result<Option<u64>> {
    let (mut hasher, mut found) = (DefaultHasher::new(), false);
    expr.apply(|part| {
        if let Some((_, zone)) = instant(part) {
            zone.hash(&mut hasher);
            found = true;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found.then(|| hasher.finish()))
}

fn hash_of(expr: &Expr) -> u64 {
    let mut hasher = DefaultHasher::new();
    expr.hash(&mut hasher);
    hasher.finish()
}

/// Whether windows that follow one another have a function twice, under other names.
fn has_a_window_twice(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Window(window) = node {
            found = computes_twice(window);
        }
        Ok(stop_if(found))
    })?;
    Ok(found)
}

fn computes_twice(mut window: &Window) -> bool {
    let mut calls = HashSet::new();
    loop {
        for expr in &window.window_expr {
            let call = match expr {
                Expr::Alias(alias) => &*alias.expr,
                call => call,
            };
            if !calls.insert(hash_of(call)) {
                return true;
            }
        }
        match &*window.input {
            LogicalPlan::Window(below) => window = below,
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::growth::planning;
    use crate::tests::{context, plan};

    async fn optimized(sql: &str) -> String {
        let context = context();
        let planned = plan(&context, sql).await.unwrap();
        let optimized = planning(|| context.state().optimize(&planned)).unwrap();
        optimized.display_indent_schema().to_string()
    }

    #[tokio::test]
    async fn constants_of_one_instant_keep_their_types() {
        let (local, zoned) = (
            "'2024-02-29 12:00'::timestamp",
            "'2024-02-29 12:00+00'::timestamptz",
        );
        for sql in [
            format!("SELECT min({local}) AS a, min({zoned}) AS b FROM t"),
            format!("SELECT max({zoned}) AS a, max({local}) AS b FROM t GROUP BY i"),
            format!("SELECT count(DISTINCT {local}) AS a, count(DISTINCT {zoned}) AS b FROM t"),
        ] {
            let plan = optimized(&sql).await;
            let is_merged = plan.contains("__common_expr") || plan.contains("alias1");
            assert!(!is_merged, "{plan}");
        }
        // What is equal is still computed once.
        let plan = optimized(&format!(
            "SELECT i + 1 AS a, i + 1 AS b FROM t WHERE at <> {local}"
        ))
        .await;
        assert!(plan.contains("__common_expr"), "{plan}");
    }

    #[tokio::test]
    async fn coalesce_is_written_out_beside_them() {
        let (local, zoned) = (
            "'2024-02-29 12:00'::timestamp",
            "'2024-02-29 12:00+00'::timestamptz",
        );
        let plan = optimized(&format!(
            "SELECT coalesce(i, 1) AS c, coalesce(i, coalesce(i, 2)) AS d, CASE WHEN i > 3 THEN {local} END AS a, \
             CASE WHEN i > 3 THEN {zoned} END AS b FROM t"
        ))
        .await;
        assert!(!plan.contains("coalesce("), "{plan}");
    }

    #[tokio::test]
    async fn windows_stay_where_they_are() {
        let plan = optimized("SELECT max(1) OVER () AS a, max('1'::int) OVER () AS b FROM t").await;
        assert!(!plan.contains("__common_expr"), "{plan}");
    }
}
