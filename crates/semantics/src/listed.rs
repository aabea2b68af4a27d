//! Lists of floats, which DataFusion compares bit by bit: for it `-0` is not in `(0, 1)`.
//!
//! DataFusion also makes such lists of alternatives: `round(f) = 0 OR round(f) = 1`. So, after
//! all other rules, the operand and each item become keys ([`equal::key`]). A scan compares its
//! columns with the items of a list as `=` does, so lists that a scan has taken stay as they are.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::equal;
use crate::functions::float_order;
use crate::repeated::stop_if;

/// The rule.
#[derive(Debug)]
pub(super) struct ListsByKey;

impl OptimizerRule for ListsByKey {
    fn name(&self) -> &str {
        "lists_by_key"
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
        if matches!(plan, LogicalPlan::TableScan(_)) {
            return Ok(Transformed::no(plan));
        }
        let mut has_lists = false;
        plan.apply_expressions(|expr| {
            has_lists |= expr.exists(|part| Ok(is_list_of_floats(part)))?;
            Ok(stop_if(has_lists))
        })?;
        if !has_lists {
            return Ok(Transformed::no(plan));
        }
        let schema = merge_schema(&plan.inputs());
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let keyed = expr.transform_up(|part| by_key(part, &schema))?;
            Ok(keyed.update_data(|expr| name.restore(expr)))
        })
    }
}

fn is_list_of_floats(expr: &Expr) -> bool {
    let is_float = |item: &Expr| {
        matches!(
            item,
            Expr::Literal(ScalarValue::Float32(_) | ScalarValue::Float64(_), _)
        )
    };
    matches!(expr, Expr::InList(list) if list.list.iter().any(is_float))
}

fn by_key(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if !is_list_of_floats(&expr) {
        return Ok(Transformed::no(expr));
    }
    let Expr::InList(InList {
        expr,
        list,
        negated,
    }) = expr
    else {
        return Ok(Transformed::no(expr));
    };
    let sought = equal::key((*expr).clone(), schema)?;
    // A later pass finds it as this one has left it.
    let mut changed = sought != *expr;
    let mut items = Vec::with_capacity(list.len());
    for item in list {
        let key = match item {
            Expr::Literal(ScalarValue::Float32(Some(value)), metadata) => {
                let key = ScalarValue::Float32(Some(float_order::real(value)));
                Expr::Literal(key, metadata)
            }
            Expr::Literal(ScalarValue::Float64(Some(value)), metadata) => {
                let key = ScalarValue::Float64(Some(float_order::double(value)));
                Expr::Literal(key, metadata)
            }
            null @ Expr::Literal(..) => null,
            other => {
                changed = true;
                equal::key(other, schema)?
            }
        };
        items.push(key);
    }
    let list = Expr::InList(InList::new(Box::new(sought), items, negated));
    Ok(Transformed::new_transformed(list, changed))
}
