//! Several sums of one column that differ by constants are computed from one sum and one count.
//!
//! ```text
//! sum(x + 1), sum(x + 2), sum(x - 3)   ─▶   s + 1 * c, s + 2 * c, s - 3 * c
//!                                           of s = sum(x), c = count(x)
//! ```
//!
//! This is valid only if none of the additions can overflow, which is an error in PostgreSQL: for
//! a smallint and a constant that leave integer room for every smallint. Over no values both
//! forms are NULL.

use std::collections::HashMap;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, ExprSchema, Result, ScalarValue};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{Aggregate, Cast, Expr, LogicalPlan, LogicalPlanBuilder, Operator};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::functions::{aggregate, arithmetic};

/// The rule.
#[derive(Debug)]
pub(super) struct ShiftSums;

impl OptimizerRule for ShiftSums {
    fn name(&self) -> &str {
        "shift_sums"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(all) = &plan else {
            return Ok(Transformed::no(plan));
        };
        // Each set of groups has columns of its own, which the rows say.
        if matches!(&all.group_expr[..], [Expr::GroupingSet(_)]) {
            return Ok(Transformed::no(plan));
        }
        let shifted: Vec<Option<Shifted>> = all.aggr_expr.iter().map(|e| shifted(e, all)).collect();
        let mut times: HashMap<&Column, u32> = HashMap::new();
        for sum in shifted.iter().flatten() {
            *times.entry(&sum.column).or_default() += 1;
        }
        // One alone would become two.
        let is_worth = |sum: &&Shifted| times.get(&sum.column).is_some_and(|times| *times > 1);
        if shifted.iter().flatten().all(|sum| !is_worth(&sum)) {
            return Ok(Transformed::no(plan));
        }
        let groups = all.group_expr_len()?;
        let mut inner: Vec<Expr> = Vec::new();
        let mut position = |expr: Expr| {
            let found = inner.iter().position(|other| *other == expr);
            found.unwrap_or_else(|| {
                inner.push(expr);
                inner.len() - 1
            })
        };
        // Of each output its aggregate, or the positions of sum and count, and the constant.
        let parts: Vec<(usize, Option<(usize, i64)>)> = all
            .aggr_expr
            .iter()
            .zip(&shifted)
            .map(|(own, shifted)| match shifted.as_ref().filter(is_worth) {
                None => (position(own.clone()), None),
                Some(sum) => {
                    let of = || vec![Expr::Column(sum.column.clone())];
                    let total = AggregateFunction::new_udf(
                        aggregate::sum(),
                        of(),
                        false,
                        None,
                        Vec::new(),
                        None,
                    );
                    let count = AggregateFunction::new_udf(
                        count_udaf(),
                        of(),
                        false,
                        None,
                        Vec::new(),
                        None,
                    );
                    let total = position(Expr::AggregateFunction(total));
                    let count = position(Expr::AggregateFunction(count));
                    (total, Some((count, sum.by)))
                }
            })
            .collect();
        let aggregate = LogicalPlan::Aggregate(Aggregate::try_new(
            all.input.clone(),
            all.group_expr.clone(),
            inner,
        )?);
        let column = |at: usize| Expr::Column(Column::from(aggregate.schema().qualified_field(at)));
        let mut outputs: Vec<Expr> = (0..groups).map(column).collect();
        for (nth, (own, shift)) in parts.into_iter().enumerate() {
            let (qualifier, field) = all.schema.qualified_field(groups + nth);
            let own = column(groups + own);
            let value = match shift {
                None => own,
                Some((count, by)) => {
                    let by = Expr::Literal(ScalarValue::Int64(Some(by)), None);
                    let shift = arithmetic::call(Operator::Multiply, by, column(groups + count));
                    arithmetic::call(Operator::Plus, own, shift)
                }
            };
            outputs.push(value.alias_qualified(qualifier.cloned(), field.name()));
        }
        assert_eq!(
            outputs.len(),
            all.schema.fields().len(),
            "the columns of an aggregate stay"
        );
        let plan = LogicalPlanBuilder::from(aggregate).project(outputs)?;
        Ok(Transformed::yes(plan.build()?))
    }
}

/// `sum(column + by)`, where the addition cannot fail.
#[derive(Debug)]
struct Shifted {
    column: Column,
    by: i64,
}

fn shifted(expr: &Expr, of: &Aggregate) -> Option<Shifted> {
    let mut expr = expr;
    while let Expr::Alias(alias) = expr {
        expr = &alias.expr;
    }
    let Expr::AggregateFunction(AggregateFunction { func, params }) = expr else {
        return None;
    };
    let AggregateFunctionParams {
        args,
        distinct: false,
        filter: None,
        order_by,
        null_treatment: None,
    } = params
    else {
        return None;
    };
    let [Expr::ScalarFunction(sum)] = &args[..] else {
        return None;
    };
    if *func != aggregate::sum() || !order_by.is_empty() {
        return None;
    }
    let (column, by) = match (arithmetic::operator_of(&sum.func)?, &sum.args[..]) {
        (Operator::Plus, [Expr::Literal(by, _), column] | [column, Expr::Literal(by, _)]) => {
            (column, i64::from(integer(by)?))
        }
        (Operator::Minus, [column, Expr::Literal(by, _)]) => (column, -i64::from(integer(by)?)),
        _ => return None,
    };
    let Expr::Cast(Cast { expr, field }) = column else {
        return None;
    };
    let Expr::Column(column) = &**expr else {
        return None;
    };
    let own = of.input.schema().data_type(column).ok()?;
    let has_room = i32::try_from(i64::from(i16::MIN) + by).is_ok()
        && i32::try_from(i64::from(i16::MAX) + by).is_ok();
    let is_widened = *own == DataType::Int16 && *field.data_type() == DataType::Int32;
    (is_widened && has_room).then(|| Shifted {
        column: column.clone(),
        by,
    })
}

fn integer(value: &ScalarValue) -> Option<i32> {
    match value {
        ScalarValue::Int32(value) => *value,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{context, plan, query};

    /// How often the optimised plan adds to a column below its aggregate.
    async fn is_shifted(sql: &str) -> bool {
        let context = context();
        let plan = plan(&context, sql).await.unwrap();
        let plan = context.state().optimize(&plan).unwrap();
        format!("{plan}").contains("sum(t.s), count(t.s)")
    }

    async fn texts(sql: &str) -> Vec<String> {
        let (types, rows) = query(&context(), sql).await.unwrap();
        let types = format!("{types:?}");
        let line = |row: Vec<Option<String>>| {
            let values = row.into_iter().map(|value| value.unwrap_or_default());
            values.collect::<Vec<_>>().join("|")
        };
        [types]
            .into_iter()
            .chain(rows.into_iter().map(line))
            .collect()
    }

    #[tokio::test]
    async fn sums_that_differ_by_constants_are_one() {
        for (sql, row) in [
            ("select sum(s + 1), sum(s + 2), sum(7 + s) from t", "5|8|23"),
            (
                "select sum(s - 1) as a, count(*), sum(s), sum(s + 40000) + 1 from t",
                "-1|4|2|120003",
            ),
            ("select sum(s + 1), sum(s + 2) from t where s > 90", "|"),
            (
                "select sum(s + 1), sum(s + 2) from t having sum(s + 2) > 1",
                "5|8",
            ),
        ] {
            assert!(is_shifted(sql).await, "{sql}");
            let found = texts(sql).await;
            assert_eq!(found[1..], [row], "{sql}");
            assert!(!found[0].contains("Numeric"), "sums are bigint: {found:?}");
        }
        let sql = "select i is null, sum(s + 1), sum(s + 2), min(x) from t group by 1 order by 1";
        assert!(is_shifted(sql).await);
        assert_eq!(texts(sql).await[1..], ["false|1|3|1", "true|4|5|"]);
    }

    #[tokio::test]
    async fn what_may_overflow_is_added_row_by_row() {
        for sql in [
            "select sum(i + 1), sum(i + 2) from t",
            "select sum(s + 2147483647), sum(s + 2147483646) from t where s < 1",
            "select sum(s + 1::smallint), sum(s + 2::smallint) from t",
            "select sum(s + 1) from t",
            "select sum(distinct s + 1), sum(distinct s + 2) from t",
            "select sum(s + 1) filter (where s > 1), sum(s + 2) filter (where s > 2) from t",
            "select sum(s + i), sum(s * 2), sum(1 - s) from t where i < 9",
            "select sum(s + 1), sum(s + 2) from t group by rollup (i)",
        ] {
            assert!(!is_shifted(sql).await, "{sql}");
            texts(sql).await;
        }
        let sql = "select sum(s + 2147483647), sum(s + 2147483646) from t";
        let error = query(&context(), sql).await.unwrap_err();
        assert_eq!(error.message, "integer out of range");
    }
}
