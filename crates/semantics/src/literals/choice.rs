//! String literals that take the type of the values they are alternatives to, or are compared
//! with.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Value, helpers::attached_token::AttachedToken,
};

use super::{binary, call, is_null, is_parameter, is_string, null};

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

/// `nullif(x, 'a')` and `nullif(x, $1)`, whose second value takes the type of `x`, as a CASE.
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
    (is_name && (is_string(literal) || is_parameter(literal))).then(|| Expr::Case {
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

/// `lead(x, n, y) OVER w` and `lag`, whose default differs by row, as a CASE: whoever plans the
/// call takes literals only.
pub(super) fn default_of_neighbour(function: &Function) -> Option<Expr> {
    let name = function.name.to_string();
    let is_neighbour = ["lead", "lag"]
        .iter()
        .any(|own| name.eq_ignore_ascii_case(own));
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(_)),
        distance @ FunctionArg::Unnamed(FunctionArgExpr::Expr(_)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(default)),
    ] = &list.args[..]
    else {
        return None;
    };
    if !is_neighbour || function.over.is_none() || is_literal(default) {
        return None;
    }
    let with = |args: Vec<FunctionArg>| {
        let mut call = function.clone();
        if let FunctionArguments::List(list) = &mut call.args {
            list.args = args;
        }
        Expr::Function(call)
    };
    // A value that no other call has: two of one name that differ in their casts are refused.
    let mark = Value::SingleQuotedString("\u{1}there".to_owned());
    let mark = FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::value(mark)));
    let is_there = with(vec![mark, distance.clone()]);
    Some(Expr::Nested(Box::new(Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen {
            condition: Expr::IsNull(Box::new(is_there)),
            result: default.clone(),
        }],
        else_result: Some(Box::new(with(list.args[..2].to_vec()))),
    })))
}

fn is_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Value(_) => true,
        Expr::UnaryOp { expr, .. } | Expr::Nested(expr) => is_literal(expr),
        _ => false,
    }
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
