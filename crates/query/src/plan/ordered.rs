//! `string_agg` where DataFusion's is not sufficient: several in one SELECT with different orders,
//! and separators that are not constants.
//!
//! DataFusion sorts the rows once for all aggregates that need an order, and refuses orders that
//! contradict each other. `array_agg` can sort for itself:
//!
//! | written | becomes |
//! |---|---|
//! | `string_agg(a, ',' ORDER BY b)` | `array_to_string(named(array_agg(a ORDER BY b) FILTER (WHERE joinable(a, ',') IS NOT NULL)), ',')` |
//! | `string_agg(a, s ORDER BY b)` | the arrays of `coalesce(s, '') \|\| a`, joined by nothing, behind the first separator |
//!
//! The types of texts and separators are not known here: [`JOINABLE`] checks them.

use std::ops::ControlFlow;

use aerostat_semantics::functions::{joinable::JOINABLE, named::NAMED};
use aerostat_sql::{names::folded, walk};
use datafusion::sql::sqlparser::{
    ast::{
        BinaryOperator, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
        FunctionArgumentClause, FunctionArguments, Ident, ObjectName, Select, SelectItem, Value,
        VisitorMut,
    },
    dialect::PostgreSqlDialect,
    parser::Parser,
};

use super::{calls::call_of, output_name};

/// Rewrites the `string_agg` calls of a SELECT if their orders differ or a separator varies.
pub(super) fn rewrite(select: &mut Select) {
    let mut orders: Vec<String> = Vec::new();
    let _ = walk::own_calls(&*select, |function| {
        if let Some(order) = order_of(function)
            && !orders.contains(&order)
        {
            orders.push(order);
        }
        ControlFlow::<()>::Continue(())
    });
    let varies = walk::own_calls(&*select, |function| match varying_separator(function) {
        Some((_, separator)) if !is_constant(separator) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    let contradict = orders.len() > 1;
    if contradict || varies.is_break() {
        let mut joined = Joined { contradict };
        keep_names(select);
        // The visitor never breaks.
        let _ = walk::change_own(select, &mut joined);
    }
}

/// Gives the outputs that are about to be replaced their names as aliases.
fn keep_names(select: &mut Select) {
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expression @ Expr::Function(_)) = item {
            *item = SelectItem::ExprWithAlias {
                alias: Ident::with_quote('"', output_name(expression)),
                expr: expression.clone(),
            };
        }
    }
}

/// The text and the separator of a `string_agg` whose separator may differ from row to row.
fn varying_separator(function: &Function) -> Option<(&Expr, &Expr)> {
    let name = function.name.0.last()?.as_ident().map(folded)?;
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(text)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(separator)),
    ] = &list.args[..]
    else {
        return None;
    };
    let is_meant = name == "string_agg"
        && function.over.is_none()
        && list.duplicate_treatment != Some(DuplicateTreatment::Distinct)
        && !matches!(separator, Expr::Value(_));
    is_meant.then_some((text, separator))
}

/// Whether a separator is a literal, perhaps under casts, which the planner folds into a literal.
fn is_constant(separator: &Expr) -> bool {
    match separator {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => is_constant(inner),
        Expr::Value(value) => !matches!(value.value, Value::Placeholder(_)),
        Expr::TypedString(_) => true,
        _ => false,
    }
}

/// A condition: there is a text that the separator can join with others.
fn there(text: &Expr, separator: &Expr) -> Expr {
    // A parameter gets its type from its other uses.
    let separator = match separator {
        Expr::Value(value) if matches!(value.value, Value::Placeholder(_)) => {
            Expr::value(Value::Null)
        }
        other => other.clone(),
    };
    let joinable = call_of(JOINABLE, vec![text.clone(), separator]);
    Expr::IsNotNull(Box::new(joinable))
}

/// An expression that joins the texts with their separators before them, and cuts off the first
/// separator.
fn joined_by(function: &Function) -> Option<Expr> {
    let (text, separator) = varying_separator(function)?;
    let before = format!("coalesce(({separator})::text, '')");
    let there = there(text, separator);
    let filter = match &function.filter {
        Some(filter) => format!("({filter}) AND {there}"),
        None => there.to_string(),
    };
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let order = list.clauses.iter().map(|clause| format!(" {clause}"));
    let order: String = order.collect();
    let array = |value: String| format!("array_agg({value}{order}) FILTER (WHERE {filter})");
    let texts = array(format!("{before} || ({text})::text"));
    let lengths = array(format!("length({before})"));
    let call = format!("substr(array_to_string({texts}, ''), 1 + ({lengths})[1])");
    let parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(&call);
    parser.and_then(|mut parser| parser.parse_expr()).ok()
}

/// The ORDER BY of a `string_agg`.
fn order_of(function: &Function) -> Option<String> {
    let name = function.name.0.last()?.as_ident().map(folded)?;
    if name != "string_agg" || function.over.is_some() {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    list.clauses.iter().find_map(|clause| match clause {
        FunctionArgumentClause::OrderBy(keys) => Some(format!("{keys:?}")),
        _ => None,
    })
}

struct Joined {
    /// Whether the orders contradict each other, so that each array must sort for itself.
    contradict: bool,
}

impl VisitorMut for Joined {
    type Break = ();

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        let Expr::Function(function) = expression else {
            return ControlFlow::Continue(());
        };
        // A call that DataFusion can plan stays.
        let is_fit = !self.contradict || order_of(function).is_none();
        if is_fit && varying_separator(function).is_none_or(|(_, separator)| is_constant(separator))
        {
            return ControlFlow::Continue(());
        }
        let rewritten = match joined_by(function) {
            None if self.contradict && order_of(function).is_some() => joined(function),
            joined => joined,
        };
        if let Some(rewritten) = rewritten {
            *expression = rewritten;
        }
        ControlFlow::Continue(())
    }
}

/// An expression that joins an array of the texts, if the separator is the same for all rows.
fn joined(function: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(text)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(separator)),
    ] = &list.args[..]
    else {
        return None;
    };
    let is_constant = matches!(separator, Expr::Value(value) if value.value != Value::Null);
    if !is_constant {
        return None;
    }
    let mut array = function.clone();
    if let FunctionArguments::List(list) = &mut array.args {
        list.args.truncate(1);
    }
    array.name = ObjectName::from(vec![Ident::new("array_agg")]);
    let there = there(text, separator);
    array.filter = Some(Box::new(match array.filter.take() {
        Some(filter) => Expr::BinaryOp {
            left: Box::new(Expr::Nested(filter)),
            op: BinaryOperator::And,
            right: Box::new(there),
        },
        None => there,
    }));
    // The values of a `string_agg` are texts, which `array_to_string` recognises by the name.
    let call = format!("array_to_string(\"{NAMED}\"({array}), {separator})");
    let parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(&call);
    parser.and_then(|mut parser| parser.parse_expr()).ok()
}
