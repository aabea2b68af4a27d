//! Constants that are repeated for each row.
//!
//! A constant that is too large to be folded is computed once per batch, as one value. DataFusion
//! makes a column of it where it needs one: an aggregate's argument, a key, a branch of CASE.
//! Rows then share a text, but each row has a copy of an array, and 8,192 copies of a value of 16
//! MB are requested at once, which ends the process.
//!
//! ```text
//!  max(array_fill(1, ARRAY[3000000]))  ─►  max(repeated(array_fill(1, ARRAY[3000000])))
//! ```
//!
//! [`count_repeated`] wraps such a constant in a function that reserves the column before it
//! makes it. The function has its argument's name, so nothing above it changes. It is not used
//! where a function takes the constant, which knows what it does with it, nor where a projection
//! outputs it, which makes its rows in pieces.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::growth::{FREE_BYTES, Growth};

/// A plan that is optimised, its repeated constants counted.
///
/// # Errors
/// A constant's type cannot be told.
pub fn count_repeated(plan: Cow<'_, LogicalPlan>) -> Result<Cow<'_, LogicalPlan>> {
    if !repeats(&plan)? {
        return Ok(plan);
    }
    let columns = plan.schema().fields().len();
    let counted = plan.into_owned().transform_down_with_subqueries(|node| {
        let Some(role) = Role::of(&node) else {
            return Ok(Transformed::no(node));
        };
        node.map_expressions(|expr| {
            let inner = counted_below(expr)?;
            match role {
                Role::GivesOut => Ok(inner),
                Role::MakesColumns => inner.transform_data(counted),
            }
        })
    })?;
    assert_eq!(
        counted.data.schema().fields().len(),
        columns,
        "a plan has its columns when its constants are counted"
    );
    Ok(Cow::Owned(counted.data))
}

/// What a node does with the values of its expressions.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// They are its rows, or only said to be true.
    GivesOut,
    /// It works on columns of them.
    MakesColumns,
}

impl Role {
    /// Of a node whose expressions are looked into.
    fn of(node: &LogicalPlan) -> Option<Self> {
        match node {
            LogicalPlan::Projection(_) | LogicalPlan::Filter(_) => Some(Self::GivesOut),
            LogicalPlan::Aggregate(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Join(_) => Some(Self::MakesColumns),
            _ => None,
        }
    }
}

/// Whether a plan repeats any constant: most do not, and are not copied.
fn repeats(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        let Some(role) = Role::of(node) else {
            return Ok(TreeNodeRecursion::Continue);
        };
        node.apply_expressions(|root| {
            found |= role == Role::MakesColumns && is_repeated(root)?;
            root.apply(|expr| {
                if !takes_one(expr) {
                    expr.apply_children(|child| {
                        found |= is_repeated(child)?;
                        Ok(TreeNodeRecursion::Continue)
                    })?;
                }
                Ok(stop_if(found))
            })
        })
    })?;
    Ok(found)
}

/// How a walk goes on that looks for one thing.
pub(crate) fn stop_if(found: bool) -> TreeNodeRecursion {
    match found {
        true => TreeNodeRecursion::Stop,
        false => TreeNodeRecursion::Continue,
    }
}

/// Whether an expression takes a constant as one value.
fn takes_one(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::ScalarFunction(_) | Expr::Cast(_) | Expr::Alias(_)
    )
}

/// An expression, counted where one of its operators repeats a constant.
fn counted_below(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_down(|expr| match takes_one(&expr) {
        true => Ok(Transformed::no(expr)),
        false => expr.map_children(counted),
    })
}

/// An expression that its parent makes a column of.
fn counted(expr: Expr) -> Result<Transformed<Expr>> {
    if !is_repeated(&expr)? {
        return Ok(Transformed::no(expr));
    }
    let call = ScalarFunction::new_udf(Arc::new(ScalarUDF::from(Repeated::new())), vec![expr]);
    Ok(Transformed::yes(Expr::ScalarFunction(call)))
}

/// Whether an expression is a constant of which each row would have a copy that counts.
fn is_repeated(expr: &Expr) -> Result<bool> {
    match expr {
        Expr::Literal(value, _) => {
            let is_large = || value.size() > LIST_BYTES + FREE_BYTES / ROWS_OF_BATCH;
            Ok(is_copied(&value.data_type()) && is_large())
        }
        Expr::ScalarFunction(call) if call.func.inner().is::<Repeated>() => Ok(false),
        Expr::ScalarFunction(_) | Expr::Cast(_) | Expr::Case(_) | Expr::ScalarSubquery(_) => {
            // What has no columns needs none for its type.
            Ok(!expr.any_column_refs() && is_copied(&expr.get_type(&DFSchema::empty())?))
        }
        _ => Ok(false),
    }
}

/// What a list takes as a value by itself, however few items it has.
const LIST_BYTES: usize = 512;

/// Rows that operators take at once.
const ROWS_OF_BATCH: usize = 8_192;

/// Whether rows with the same value of a type have a copy each.
fn is_copied(ty: &DataType) -> bool {
    ty.is_nested() || matches!(ty, DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary)
}

/// See the module.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Repeated {
    signature: Signature,
}

impl Repeated {
    fn new() -> Self {
        Self {
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for Repeated {
    fn name(&self) -> &str {
        "repeated"
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args[0].schema_name().to_string())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        internal_err!("a repeated constant has its own field")
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::clone(&arguments.arg_fields[0]))
    }

    fn invoke_with_args(&self, mut call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match call.args.swap_remove(0) {
            ColumnarValue::Scalar(value) => {
                let mut growth = Growth::new();
                growth.make(value.size().saturating_mul(call.number_rows))?;
                let column = value.to_array_of_size(call.number_rows)?;
                growth.keep(column).map(ColumnarValue::Array)
            }
            column => Ok(column),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::growth::planning;
    use crate::tests::{context, plan};

    async fn counted_plan(sql: &str) -> String {
        let context = context();
        let state = context.state();
        let planned = plan(&context, sql).await.unwrap();
        let optimized = planning(|| state.optimize(&planned)).unwrap();
        let schema = Arc::clone(optimized.schema());
        let counted = count_repeated(Cow::Owned(optimized)).unwrap();
        assert_eq!(*counted.schema(), schema, "{sql}");
        counted.display_indent().to_string()
    }

    #[tokio::test]
    async fn what_operators_repeat_is_counted() {
        let large = "array_fill(1, ARRAY[3000000])";
        for sql in [
            format!("SELECT max({large}) FROM t"),
            format!("SELECT count(DISTINCT {large}), count(*) FILTER (WHERE i > 1) FROM t"),
            format!("SELECT i, max({large}) OVER (ORDER BY i) FROM t"),
            format!("SELECT CASE WHEN i > 1 THEN {large} END FROM t"),
            format!("SELECT cardinality(CASE WHEN i > 1 THEN {large} ELSE ARRAY[i] END) FROM t"),
            format!("SELECT count(*) FROM t WHERE coalesce(ARRAY[i], {large}) = ARRAY[1]"),
        ] {
            let counted = counted_plan(&sql).await;
            assert!(counted.contains("repeated("), "{counted}");
        }
        for sql in [
            format!("SELECT {large}, i FROM t"),
            format!("SELECT sum(cardinality({large}) + i) FROM t"),
            "SELECT max(ARRAY[1, 2]), max(ARRAY[i]), count(DISTINCT s) FROM t GROUP BY b"
                .to_owned(),
            "SELECT CASE WHEN i > 1 THEN 'a' ELSE repeat('x', 10000000) END FROM t".to_owned(),
        ] {
            let counted = counted_plan(&sql).await;
            assert!(!counted.contains("repeated("), "{counted}");
        }
    }

    #[tokio::test]
    async fn a_column_of_copies_has_room_or_is_refused() {
        let context = context();
        let run = async |length: u32| {
            let sql = format!("SELECT count(array_fill(1, ARRAY[{length}])) FROM t");
            let state = context.state();
            let planned = plan(&context, &sql).await.unwrap();
            let optimized = planning(|| state.optimize(&planned)).unwrap();
            let counted = count_repeated(Cow::Owned(optimized)).unwrap();
            let physical = state.query_planner();
            let physical = physical
                .create_physical_plan(&counted, &state)
                .await
                .unwrap();
            datafusion::physical_plan::collect(physical, context.task_ctx()).await
        };
        assert_eq!(run(3_000_000).await.unwrap()[0].num_rows(), 1);
        // Four rows of 64 MB, of which a function outside of statements may make 256 MB.
        let refused = run(1 << 24).await.unwrap_err();
        assert!(crate::growth::is_too_much(&refused), "{refused}");
    }
}
