//! Operators while SQL becomes a plan.
//!
//! DataFusion types every expression as it builds a plan, so operators that it
//! types otherwise, or refuses, are resolved here already; the analyzer
//! resolves them again once string literals and casts have settled.

use arrow::datatypes::Field;
use datafusion::common::{Column, DFSchema, Result, ScalarValue, TableReference};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, Operator};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::operator;
use crate::functions::cast::Zone;
use crate::functions::{datetime, math, strings};

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
