//! The rows of VALUES, whose columns have one type each.

use datafusion::sql::sqlparser::ast::{
    CaseWhen, DataType, Expr, Parens, Value, helpers::attached_token::AttachedToken,
};

use super::{is_null, is_string};

type Row = Parens<Vec<Expr>>;

/// So many cells say what type a column has.
const OTHERS_MAX: usize = 8;

/// A string literal or NULL takes the type that the casts of its column name.
pub(super) fn type_columns(rows: &mut [Row]) {
    for column in 0..rows.first().map_or(0, |row| row.content.len()) {
        let Some(named) = only_type(rows, column).cloned() else {
            continue;
        };
        let cells = rows
            .iter_mut()
            .filter_map(|row| row.content.get_mut(column));
        for cell in cells.filter(|cell| is_string(cell) || is_null(cell)) {
            super::wrap(cell, named.clone());
        }
    }
}

/// The one type that a column's cells are cast to, if nothing else gives it one.
fn only_type(rows: &[Row], column: usize) -> Option<&DataType> {
    let mut only = None;
    for cell in cells(rows, column) {
        match (named_type(cell), only) {
            (Some(ty), None) => only = Some(ty),
            (Some(ty), Some(first)) if ty == first => {}
            (None, _) if is_string(cell) || is_null(cell) => {}
            _ => return None,
        }
    }
    only
}

fn cells(rows: &[Row], column: usize) -> impl Iterator<Item = &Expr> {
    rows.iter().filter_map(move |row| row.content.get(column))
}

fn named_type(cell: &Expr) -> Option<&DataType> {
    match cell {
        Expr::Cast { data_type, .. } => Some(data_type),
        Expr::TypedString(typed) => Some(&typed.data_type),
        _ => None,
    }
}

/// A string literal beside cells whose type only the planner knows takes the type that they
/// have in common: it becomes the last branch of a CASE that never takes theirs.
pub(super) fn type_by_others(rows: &mut [Row]) {
    for column in 0..rows.first().map_or(0, |row| row.content.len()) {
        let others = cells(rows, column).filter(|cell| !is_string(cell) && !is_null(cell));
        let others: Vec<Expr> = others.take(OTHERS_MAX).cloned().collect();
        if others.is_empty() || only_type(rows, column).is_some() {
            continue;
        }
        let cells = rows
            .iter_mut()
            .filter_map(|row| row.content.get_mut(column));
        for cell in cells {
            // A cast to a text says which, and VALUES wants all rows to say the same.
            if is_string(cell) || named_type(cell).is_some_and(is_text) {
                *cell = last_branch(&others, cell.clone());
            }
        }
    }
}

fn is_text(ty: &DataType) -> bool {
    use DataType::{Char, CharVarying, Character, CharacterVarying, Text, Varchar};
    matches!(
        ty,
        Text | Varchar(_) | Char(_) | Character(_) | CharVarying(_) | CharacterVarying(_)
    )
}

/// A CASE that never takes its other branches.
fn last_branch(others: &[Expr], last: Expr) -> Expr {
    let when = |is_taken: bool, result: Expr| CaseWhen {
        condition: Expr::value(Value::Boolean(is_taken)),
        result,
    };
    let others = others.iter().map(|other| when(false, other.clone()));
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: others.chain([when(true, last)]).collect(),
        else_result: None,
    }
}
