//! Outputs of a SELECT by their positions.

use datafusion::sql::sqlparser::ast::{Expr, Select, SelectItem, Value};

/// The position in the SELECT list, from 0, that a key gives as a number.
pub(super) fn position(key: &Expr) -> Option<usize> {
    let Expr::Value(value) = key else { return None };
    let Value::Number(digits, _) = &value.value else {
        return None;
    };
    digits.parse::<usize>().ok()?.checked_sub(1)
}

/// The output at a position; `None` behind a wildcard, because it is not known how many outputs a
/// wildcard stands for.
pub(super) fn output_at(select: &Select, at: usize) -> Option<&Expr> {
    let mut outputs = select.projection.iter().map_while(|item| match item {
        SelectItem::UnnamedExpr(output) | SelectItem::ExprWithAlias { expr: output, .. } => {
            Some(output)
        }
        _ => None,
    });
    outputs.nth(at)
}

/// The output that a key in GROUP BY names by its position.
pub(super) fn at_position(select: &Select, key: &Expr) -> Option<Expr> {
    output_at(select, position(key)?).cloned()
}
