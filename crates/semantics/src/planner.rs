//! Operators while SQL becomes a plan.
//!
//! DataFusion types every expression as it builds a plan, so operators that it types differently,
//! or refuses, are resolved here already; the analyzer resolves them again once string literals
//! and casts have settled.

use arrow::datatypes::{DataType, Field};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, TableReference};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawBinaryExpr, RawFieldAccessExpr,
};
use datafusion::logical_expr::{Expr, ExprSchemable, GetFieldAccess, Operator};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::{compare, operator};
use crate::functions::cast::Zone;
use crate::functions::{arrays, bounded, datetime, math, strings};

/// Resolves operators by PostgreSQL's rules.
#[derive(Debug)]
pub(super) struct PostgresOperators;

impl ExprPlanner for PostgresOperators {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let RawBinaryExpr { op, left, right } = expr;
        if op == BinaryOperator::PGExp {
            let power = ScalarFunction::new_udf(math::power(), vec![left, right]);
            return Ok(PlannerResult::Planned(Expr::ScalarFunction(power)));
        }
        if let BinaryOperator::PGStartsWith = op {
            let call = ScalarFunction::new_udf(strings::starts_with(), vec![left, right]);
            return Ok(PlannerResult::Planned(Expr::ScalarFunction(call)));
        }
        if let Some(planned) = of_arrays(&op, &left, &right, schema)? {
            return Ok(PlannerResult::Planned(planned));
        }
        let Some(known) = operator_of(&op) else {
            return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }));
        };
        // Literals of timestamptz wait for the session's zone.
        Ok(PlannerResult::Planned(operator::resolve(
            known,
            left,
            right,
            schema,
            &Zone::UNSETTLED,
        )?))
    }

    /// `a[n]`, which is NULL where there is no such item.
    fn plan_field_access(
        &self,
        expr: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        let is_list = matches!(expr.expr.to_field(schema)?.1.data_type(), DataType::List(_));
        let RawFieldAccessExpr { expr, field_access } = expr;
        Ok(match field_access {
            GetFieldAccess::ListIndex { key } if is_list => {
                PlannerResult::Planned(arrays::call(arrays::Kind::At, vec![expr, *key]))
            }
            field_access => PlannerResult::Original(RawFieldAccessExpr { expr, field_access }),
        })
    }

    /// ARRAY[…], of items that are no arrays.
    fn plan_array_literal(
        &self,
        items: Vec<Expr>,
        schema: &DFSchema,
    ) -> Result<PlannerResult<Vec<Expr>>> {
        arrays::refuse_nested(&items, schema)?;
        Ok(PlannerResult::Original(items))
    }

    /// `x.y` where `x` is a column of the row and no table, which has no fields:
    /// a column that is nowhere, so that the table is what is missed.
    fn plan_compound_identifier(
        &self,
        field: &Field,
        _: Option<&TableReference>,
        nested_names: &[String],
    ) -> Result<PlannerResult<Vec<Expr>>> {
        match nested_names {
            [name] if !field.data_type().is_nested() => {
                let missing = Column::new(Some(field.name().clone()), name.clone());
                Ok(PlannerResult::Planned(Expr::Column(missing)))
            }
            _ => Ok(PlannerResult::Original(vec![])),
        }
    }

    fn plan_substring(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(Expr::ScalarFunction(
            ScalarFunction::new_udf(strings::substring_function(), args),
        )))
    }

    fn plan_overlay(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        // DataFusion would plan its own, whatever is registered.
        let overlay = bounded::bounded(datafusion::functions::core::overlay());
        Ok(PlannerResult::Planned(overlay.call(args)))
    }

    fn plan_extract(&self, mut args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        // The field's name decides the type, so it must stay a constant: no cast comes before it.
        if let Some(Expr::Literal(value, _)) = args.first_mut()
            && let ScalarValue::Utf8(name) = value
        {
            *value = ScalarValue::Utf8View(name.take());
        }
        Ok(PlannerResult::Planned(Expr::ScalarFunction(
            ScalarFunction::new_udf(datetime::extract(), args),
        )))
    }
}

/// `@>`, `<@` and `&&` with an array on one side at least.
fn of_arrays(
    op: &BinaryOperator,
    left: &Expr,
    right: &Expr,
    schema: &DFSchema,
) -> Result<Option<Expr>> {
    use arrays::Kind::{Contains, Overlaps};
    let (kind, left, right) = match op {
        BinaryOperator::AtArrow => (Contains, left, right),
        BinaryOperator::ArrowAt => (Contains, right, left),
        BinaryOperator::PGOverlap => (Overlaps, left, right),
        _ => return Ok(None),
    };
    let (l, r) = (
        compare::list_type(left, schema)?,
        compare::list_type(right, schema)?,
    );
    let Some(list) = l.or(r) else {
        return Ok(None);
    };
    let typed = |side: &Expr| -> Result<Expr> {
        Ok(compare::as_list(side, &list, &Zone::UNSETTLED)?.unwrap_or_else(|| side.clone()))
    };
    Ok(Some(arrays::call(kind, vec![typed(left)?, typed(right)?])))
}

fn operator_of(op: &BinaryOperator) -> Option<Operator> {
    Some(match op {
        BinaryOperator::Plus => Operator::Plus,
        BinaryOperator::Minus => Operator::Minus,
        BinaryOperator::Multiply => Operator::Multiply,
        BinaryOperator::Divide => Operator::Divide,
        BinaryOperator::Modulo => Operator::Modulo,
        BinaryOperator::Eq => Operator::Eq,
        BinaryOperator::NotEq => Operator::NotEq,
        BinaryOperator::Lt => Operator::Lt,
        BinaryOperator::LtEq => Operator::LtEq,
        BinaryOperator::Gt => Operator::Gt,
        BinaryOperator::GtEq => Operator::GtEq,
        BinaryOperator::And => Operator::And,
        BinaryOperator::Or => Operator::Or,
        BinaryOperator::StringConcat => Operator::StringConcat,
        BinaryOperator::PGBitwiseShiftLeft => Operator::BitwiseShiftLeft,
        BinaryOperator::PGBitwiseShiftRight => Operator::BitwiseShiftRight,
        BinaryOperator::PGBitwiseXor => Operator::BitwiseXor,
        BinaryOperator::PGRegexMatch => Operator::RegexMatch,
        BinaryOperator::PGRegexIMatch => Operator::RegexIMatch,
        BinaryOperator::PGRegexNotMatch => Operator::RegexNotMatch,
        BinaryOperator::PGRegexNotIMatch => Operator::RegexNotIMatch,
        BinaryOperator::PGLikeMatch => Operator::LikeMatch,
        BinaryOperator::PGILikeMatch => Operator::ILikeMatch,
        BinaryOperator::PGNotLikeMatch => Operator::NotLikeMatch,
        BinaryOperator::PGNotILikeMatch => Operator::NotILikeMatch,
        _ => return None,
    })
}
