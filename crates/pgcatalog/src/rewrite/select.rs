//! The shape of a SELECT that reads a system relation.

use std::ops::ControlFlow;

use aerostat_sql::{
    names::folded,
    walk::{self, unnested},
};
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Array, BinaryOperator, Expr, Select, SelectItem, Subscript, Value, ValueWithSpan,
    VisitorMut,
};

use super::{
    build::{bare_name, call, literal_text, null, number, truth},
    expr_has,
    from::{self, Lateral},
    names::{self, Named},
    parts::for_each_expression,
    scope::{Scope, is_empty_query, is_empty_select},
    subquery,
};
use crate::functions::{ANY, CAT, EMPTY, ITEM, OR_EMPTY};

/// Rewrites a SELECT whose subqueries are rewritten already; gives the functions in its FROM
/// that became relations.
pub(super) fn after_children(
    select: &mut Select,
    named: &Named,
    derived: &mut usize,
) -> Vec<Lateral> {
    names::read_as_numbers(select, named);
    let is_system = Scope::of(&select.from).is_system();
    let found = from::expand(select, is_system);
    if !is_system {
        return found;
    }
    if is_empty_select(select) {
        simplify_empty(select);
    }
    let scope = Scope::of(&select.from);
    name_table_numbers(select);
    for_each_expression(select, &mut |expression| expressions(expression, &scope));
    subquery::join_scalars(select, derived);
    found
}

/// `tableoid` becomes a number, and keeps its name in the result.
fn name_table_numbers(select: &mut Select) {
    for item in &mut select.projection {
        let SelectItem::UnnamedExpr(output) = item else {
            continue;
        };
        let column = match &*output {
            Expr::Identifier(column) => Some(column),
            Expr::CompoundIdentifier(parts) => parts.last(),
            _ => None,
        };
        if let Some(column) = column.filter(|column| folded(column) == "tableoid") {
            *item = SelectItem::ExprWithAlias {
                alias: column.clone(),
                expr: output.clone(),
            };
        }
    }
}

/// A SELECT without rows needs no subqueries to say so.
fn simplify_empty(select: &mut Select) {
    select.selection = Some(truth(false));
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. } = item
            && expr_has(item, |part| {
                matches!(
                    part,
                    Expr::Subquery(_)
                        | Expr::Exists { .. }
                        | Expr::InSubquery { .. }
                        | Expr::AnyOp { .. }
                        | Expr::AllOp { .. }
                        | Expr::CompoundFieldAccess { .. }
                        | Expr::Lambda(_)
                )
            })
            && !is_truth(item)
        {
            *item = null();
        }
    }
}

/// Whether an expression is plainly a truth value, so that NULL would have the wrong type.
fn is_truth(expression: &Expr) -> bool {
    matches!(unnested(expression), Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } if !matches!(**right, Expr::Subquery(_)))
}

/// Rewrites the parts of an expression that PostgreSQL reads by the types of system columns.
fn expressions(expression: &mut Expr, scope: &Scope) {
    struct Parts<'a> {
        scope: &'a Scope,
    }
    impl VisitorMut for Parts<'_> {
        type Break = ();

        fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
            part(expression, self.scope);
            ControlFlow::Continue(())
        }
    }
    let _ = walk::change(expression, &mut Parts { scope });
}

fn part(expression: &mut Expr, scope: &Scope) {
    match expression {
        Expr::BinaryOp { left, op, right } if is_comparison(op) => {
            literal_of_type(left, scope.typname(unnested(right)));
            literal_of_type(right, scope.typname(unnested(left)));
            if *op == BinaryOperator::Eq && is_absent_kind(left, right, scope) {
                *expression = truth(false);
            }
        }
        Expr::Case {
            operand: None,
            conditions,
            else_result,
            ..
        } => {
            conditions.retain(|branch| !is_false(&branch.condition));
            if conditions.is_empty() {
                *expression = else_result.take().map_or_else(null, |otherwise| *otherwise);
            }
        }
        Expr::Like {
            expr,
            pattern,
            escape_char: escape @ Some(_),
            ..
        }
        | Expr::ILike {
            expr,
            pattern,
            escape_char: escape @ Some(_),
            ..
        } if scope.typname(unnested(expr)).is_some() => {
            with_backslash(pattern, escape);
        }
        Expr::BinaryOp {
            left,
            op: BinaryOperator::StringConcat,
            right,
        } if is_array(left, scope) || is_array(right, scope) => {
            *expression = call(CAT, vec![(**left).clone(), (**right).clone()]);
        }
        Expr::InList { expr, list, .. } => {
            let typname = scope.typname(unnested(expr));
            for item in list {
                literal_of_type(item, typname);
            }
        }
        Expr::CompoundIdentifier(parts) => {
            if let [.., table, column] = &parts[..]
                && folded(column) == "tableoid"
                && let Some(relation) = scope.relation(&folded(table))
            {
                *expression = number(relation.oid.into());
            }
        }
        Expr::Identifier(ident) if folded(ident) == "tableoid" => {
            if let Some(relation) = scope.single() {
                *expression = number(relation.oid.into());
            }
        }
        Expr::AnyOp {
            left,
            compare_op: BinaryOperator::Eq,
            right,
            ..
        } => {
            if let Some(replacement) = equals_any(left, right, false) {
                *expression = replacement;
            }
        }
        Expr::AllOp {
            left,
            compare_op: BinaryOperator::NotEq,
            right,
        } => {
            if let Some(replacement) = equals_any(left, right, true) {
                *expression = replacement;
            }
        }
        Expr::CompoundFieldAccess { root, access_chain } => {
            if let [AccessExpr::Subscript(Subscript::Index { index })] = &access_chain[..]
                && let Some(typname) = scope.typname(unnested(root))
            {
                // The places of vectors count from 0, those of arrays from 1.
                let index = if typname.ends_with("vector") {
                    add_one(index)
                } else {
                    index.clone()
                };
                *expression = call(ITEM, vec![(**root).clone(), index]);
            }
        }
        _ => {}
    }
}

fn is_comparison(op: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// Whether the expression is plainly an array: a column of such a type, `ARRAY(SELECT …)`.
fn is_array(expression: &Expr, scope: &Scope) -> bool {
    match unnested(expression) {
        Expr::Array(_) => true,
        Expr::Function(function) => bare_name(&function.name)
            .is_some_and(|name| [EMPTY, OR_EMPTY, CAT].contains(&name.as_str())),
        other => scope
            .typname(other)
            .is_some_and(|name| name.starts_with('_')),
    }
}

fn is_false(condition: &Expr) -> bool {
    matches!(unnested(condition), Expr::Value(value) if value.value == Value::Boolean(false))
}

/// Whether `pg_type.typtype` is compared with a kind of type that Aerostat has none of:
/// composite, domain, enum, range, multirange.
fn is_absent_kind(left: &Expr, right: &Expr, scope: &Scope) -> bool {
    let is_typtype = |e: &Expr| {
        let name = match unnested(e) {
            Expr::Identifier(ident) => folded(ident),
            Expr::CompoundIdentifier(parts) => parts.last().map(folded).unwrap_or_default(),
            _ => return false,
        };
        name == "typtype" && scope.typname(unnested(e)) == Some("char")
    };
    is_typtype(left) && matches!(literal_text(right), Some("c" | "d" | "e" | "r" | "m"))
}

/// Writes a constant LIKE pattern with the backslash as its escape, the only one the executor has.
fn with_backslash(pattern: &mut Expr, escape: &mut Option<ValueWithSpan>) {
    let Some(Value::SingleQuotedString(character)) = escape.as_ref().map(|value| &value.value)
    else {
        return;
    };
    let (Some(text), [escape_character]) = (
        constant_text(pattern),
        &character.chars().collect::<Vec<_>>()[..],
    ) else {
        return;
    };
    if *escape_character != '\\' {
        let mut written = String::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                c if c == *escape_character => {
                    written.push('\\');
                    written.extend(chars.next());
                }
                '\\' => written.push_str("\\\\"),
                c => written.push(c),
            }
        }
        *pattern = super::build::text(&written);
    }
    *escape = None;
}

/// The text of a literal, or of literals joined by `||`.
fn constant_text(expression: &Expr) -> Option<String> {
    match unnested(expression) {
        Expr::BinaryOp {
            left,
            op: BinaryOperator::StringConcat,
            right,
        } => Some(constant_text(left)? + &constant_text(right)?),
        other => literal_text(other).map(str::to_owned),
    }
}

/// Reads a text literal as a value of the type it is compared with.
fn literal_of_type(expression: &mut Expr, typname: Option<&str>) {
    let Some(typname) = typname else { return };
    let Some(text) = literal_text(expression) else {
        return;
    };
    match typname {
        "oid" | "int2" | "int4" | "int8" | "xid" | "regproc" | "regtype" => {
            if let Ok(value) = text.trim().parse() {
                *expression = number(value);
            }
        }
        "bool" => match text.trim().to_ascii_lowercase().as_str() {
            "t" | "true" | "on" | "yes" | "1" => *expression = truth(true),
            "f" | "false" | "off" | "no" | "0" => *expression = truth(false),
            _ => {}
        },
        _ => {}
    }
}

/// `x = ANY (array)`, or `x <> ALL (array)` when negated.
fn equals_any(left: &Expr, right: &Expr, negated: bool) -> Option<Expr> {
    match unnested(right) {
        Expr::Subquery(query) if is_empty_query(query) => Some(truth(negated)),
        Expr::Subquery(_) => None,
        Expr::Array(Array { elem, .. }) if !elem.is_empty() => Some(Expr::InList {
            expr: Box::new(left.clone()),
            list: elem.clone(),
            negated,
        }),
        Expr::Value(value) if matches!(value.value, Value::Placeholder(_)) => None,
        array => {
            let any = call(ANY, vec![left.clone(), array.clone()]);
            Some(if negated {
                Expr::UnaryOp {
                    op: datafusion::sql::sqlparser::ast::UnaryOperator::Not,
                    expr: Box::new(any),
                }
            } else {
                any
            })
        }
    }
}

fn add_one(index: &Expr) -> Expr {
    if let Expr::Value(value) = index
        && let Value::Number(text, _) = &value.value
        && let Ok(value) = text.to_string().parse::<i64>()
    {
        return number(value + 1);
    }
    Expr::BinaryOp {
        left: Box::new(Expr::Nested(Box::new(index.clone()))),
        op: BinaryOperator::Plus,
        right: Box::new(number(1)),
    }
}
