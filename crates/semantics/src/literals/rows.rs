//! The rows of VALUES, whose columns have one type each.

use datafusion::sql::sqlparser::ast::{
    CaseWhen, DataType, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Parens, Value, helpers::attached_token::AttachedToken,
};

use super::{is_null, is_string};

type Row = Parens<Vec<Expr>>;

/// So many cells say what type a column has.
const OTHERS_MAX: usize = 8;

/// A string literal or NULL takes the type that the casts of its column name, but no length or digits: those
/// are of the value that is cast. Where a literal has none, the others have theirs no longer as a type.
pub(super) fn type_columns(rows: &mut [Row]) {
    for column in 0..rows.first().map_or(0, |row| row.content.len()) {
        let Some(named) = only_type(rows, column).cloned() else {
            continue;
        };
        let any = unlimited(&named);
        if any != named && cells(rows, column).any(is_string) {
            for cell in column_of(rows, column) {
                super::wrap(cell, any.clone());
            }
            continue;
        }
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

/// The type without the length or digits that a cast to it leaves.
fn unlimited(ty: &DataType) -> DataType {
    match ty {
        DataType::Varchar(Some(_))
        | DataType::CharacterVarying(Some(_))
        | DataType::CharVarying(Some(_)) => DataType::Varchar(None),
        DataType::Char(_) | DataType::Character(_) => DataType::Text,
        DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_) => {
            DataType::Numeric(ExactNumberInfo::None)
        }
        other => other.clone(),
    }
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

/// Numbers of several kinds take the type that they have in common. DataFusion would take a
/// numeric for what a float and a numeric have in common, and cut the float.
pub(super) fn type_numbers(rows: &mut [Row]) {
    for column in 0..rows.first().map_or(0, |row| row.content.len()) {
        let kinds: Vec<Kind> = cells(rows, column).map(Kind::of).collect();
        let has = |kind: Kind| kinds.contains(&kind);
        let float = match (has(Kind::Double), has(Kind::Real)) {
            (true, _) => Some(DataType::DoublePrecision),
            (false, true) => Some(DataType::Real),
            _ => None,
        };
        if !has(Kind::Computed) {
            let Some(float) = float.filter(|_| has(Kind::Numeric)) else {
                continue;
            };
            let cells = column_of(rows, column);
            cells.for_each(|cell| super::wrap(cell, float.clone()));
        } else if float.is_some() || has(Kind::Numeric) || are_several(rows, column) {
            let others = representatives(rows, column);
            for cell in column_of(rows, column).filter(|cell| !is_null(cell)) {
                *cell = last_branch(&others, cell.clone());
            }
        }
    }
}

/// What a cell shows of its type.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Real,
    Double,
    Numeric,
    /// Another type that is named, or none yet.
    Other,
    /// Only the planner knows.
    Computed,
}

impl Kind {
    fn of(cell: &Expr) -> Self {
        match cell {
            Expr::Nested(inner) => Self::of(inner),
            Expr::Function(call) if call.name.to_string() == "checked_negate" => {
                argument(call).map_or(Self::Computed, Self::of)
            }
            // A number with a point has no cast around it.
            Expr::Value(value) if matches!(value.value, Value::Number(..)) => Self::Numeric,
            Expr::Value(_) => Self::Other,
            _ => match named_type(cell) {
                Some(DataType::Real | DataType::Float4) => Self::Real,
                Some(DataType::Double(_) | DataType::DoublePrecision | DataType::Float8) => {
                    Self::Double
                }
                Some(DataType::Float(_)) => Self::Double,
                Some(DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_)) => {
                    Self::Numeric
                }
                // Of a name that is spelled in another way.
                Some(DataType::Custom(..)) | None => Self::Computed,
                Some(_) => Self::Other,
            },
        }
    }
}

fn argument(call: &Function) -> Option<&Expr> {
    let FunctionArguments::List(list) = &call.args else {
        return None;
    };
    match &list.args[..] {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] => Some(argument),
        _ => None,
    }
}

/// Rows up to which computed cells are compared with each other.
const COMPARED_MAX: usize = 100;

/// Whether a column's computed cells call different functions, which may give different types.
fn are_several(rows: &[Row], column: usize) -> bool {
    if rows.len() > COMPARED_MAX {
        return false;
    }
    let shape = |cell: &Expr| match cell {
        Expr::Function(call) => call.name.to_string(),
        Expr::BinaryOp { .. } => "operator".to_owned(),
        other => other.to_string(),
    };
    let computed = cells(rows, column).filter(|cell| Kind::of(cell) == Kind::Computed);
    let mut shapes = computed.map(shape);
    let first = shapes.next();
    shapes.any(|shape| Some(shape) != first)
}

/// Cells that stand for all of a column: one of each kind that is named, and some of those
/// that are computed.
fn representatives(rows: &[Row], column: usize) -> Vec<Expr> {
    let mut kinds = Vec::new();
    let mut others = Vec::new();
    let typed = cells(rows, column).filter(|cell| !is_string(cell) && !is_null(cell));
    for cell in typed {
        let kind = Kind::of(cell);
        if kind == Kind::Computed || !kinds.contains(&kind) {
            kinds.push(kind);
            others.push(cell.clone());
        }
        if others.len() == OTHERS_MAX {
            break;
        }
    }
    others
}

fn column_of(rows: &mut [Row], column: usize) -> impl Iterator<Item = &mut Expr> {
    rows.iter_mut()
        .filter_map(move |row| row.content.get_mut(column))
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
