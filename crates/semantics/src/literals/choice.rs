//! String literals that take the type of what they are chosen with, or compared with.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Value, helpers::attached_token::AttachedToken,
};

use super::{binary, call, is_null, is_string, null};

/// The branch of a CASE that tells its type, if a string literal stands before it: whoever
/// plans the CASE looks at the first.
pub(super) fn typed_branch<'a>(
    whens: &'a [CaseWhen],
    otherwise: Option<&'a Expr>,
) -> Option<&'a Expr> {
    let results = whens.iter().map(|when| &when.result).chain(otherwise);
    let mut results = results.filter(|result| !is_null(result)).peekable();
    results.next_if(|first| is_string(first))?;
    results.find(|result| !is_string(result))
}

/// `nullif(x, 'a')`, whose literal takes the type of `x`, as a CASE.
pub(super) fn null_if_literal(function: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(literal)),
    ] = &list.args[..]
    else {
        return None;
    };
    // Evaluated twice, so it must be a name.
    let is_name = matches!(value, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    (is_name && is_string(literal)).then(|| Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen {
            condition: binary(value.clone(), BinaryOperator::Eq, literal.clone()),
            result: null(),
        }],
        else_result: Some(Box::new(value.clone())),
    })
}

/// Whether two sides are equal of which a literal is one, so that both are not NULL.
pub(super) fn same_as_literal(left: &mut Expr, right: &mut Expr) -> Expr {
    let (left, right) = (
        std::mem::replace(left, null()),
        std::mem::replace(right, null()),
    );
    let equal = binary(left, BinaryOperator::Eq, right);
    let otherwise = Expr::value(Value::Boolean(false));
    call("coalesce", vec![Expr::Nested(Box::new(equal)), otherwise])
}
