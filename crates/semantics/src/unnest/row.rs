//! `(a, b) IN (SELECT x, y …)`, for which DataFusion's planner has no expression.
//!
//! Between parser and planner it becomes a call whose first argument carries the subquery through
//! the planner with all its columns; the rule for forms takes the call apart. No user can write
//! the function's name.

use std::sync::Arc;

use aerostat_types::ErrorKind;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Subquery,
    Volatility,
};
use datafusion::sql::sqlparser::ast::{
    self, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
    UnaryOperator,
};

const NAME: &str = "\u{1}row_in";

/// `members IN (query)` as the planner can carry it.
pub(crate) fn row_in(members: Vec<ast::Expr>, query: Box<ast::Query>, negated: bool) -> ast::Expr {
    let exists = ast::Expr::Exists {
        subquery: query,
        negated: false,
    };
    let args = std::iter::once(exists)
        .chain(members)
        .map(|expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)))
        .collect();
    let call = ast::Expr::Function(ast::Function {
        name: ObjectName::from(vec![Ident::with_quote('"', NAME)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    });
    if negated {
        ast::Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr: Box::new(call),
        }
    } else {
        call
    }
}

/// Makes the function known to the planner.
pub(crate) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    registry.register_udf(Arc::new(ScalarUDF::new_from_impl(RowIn {
        signature: Signature::variadic_any(Volatility::Immutable),
    })))?;
    Ok(())
}

/// The subquery and the members of a call.
pub(super) fn parts(expr: &Expr) -> Option<(&Subquery, &[Expr])> {
    let Expr::ScalarFunction(call) = expr else {
        return None;
    };
    match call.args.split_first() {
        Some((Expr::Exists(exists), members)) if call.func.name() == NAME => {
            Some((&exists.subquery, members))
        }
        _ => None,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RowIn {
    signature: Signature,
}

impl ScalarUDFImpl for RowIn {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(crate::raise(
            ErrorKind::Internal,
            "a comparison of a row with a subquery reached execution",
        ))
    }
}
