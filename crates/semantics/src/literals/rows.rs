//! The rows of VALUES, whose columns have one type each.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    CaseWhen, DataType, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Parens, SetExpr, TimezoneInfo, Value, ValueWithSpan, VisitorMut,
    helpers::attached_token::AttachedToken,
};

use aerostat_sql::walk;

use super::{is_null, is_string};

type Row = Parens<Vec<Expr>>;

/// So many cells say what type the string literals beside them have.
const OTHERS_MAX: usize = 8;

/// So many computed cells of different shapes say what type a column has.
const SHAPES_MAX: usize = 32;

/// Gives the columns of VALUES one type each, also where they are inputs of UNION and its like.
pub(super) fn type_values(body: &mut SetExpr) {
    match body {
        SetExpr::Values(values) => {
            type_columns(&mut values.rows);
            type_chosen(&mut values.rows);
            type_by_others(&mut values.rows);
        }
        SetExpr::SetOperation { left, right, .. } => {
            type_values(left);
            type_values(right);
        }
        // A query within is visited by itself.
        _ => {}
    }
}

/// Whether the cells of a column are cast to one type, or none is.
fn is_of_one_kind(rows: &[Row], column: usize) -> bool {
    let mut kinds = cells(rows, column).map(named_type);
    let first = kinds.next().flatten();
    kinds.all(|kind| kind == first)
}

/// Rows that are inserted: each cell is assigned to its column by itself, but a cast to a text of some
/// length must not be what tells it from the cells beside it.
pub(super) fn type_inserted(body: &mut SetExpr) {
    let SetExpr::Values(values) = body else {
        return;
    };
    for column in 0..values.rows.first().map_or(0, |row| row.content.len()) {
        let has_texts = || {
            let mut types = cells(&values.rows, column).filter_map(named_type);
            types.any(is_text)
        };
        if is_of_one_kind(&values.rows, column) || !has_texts() {
            continue;
        }
        for cell in column_of(&mut values.rows, column) {
            if is_string(cell) || named_type(cell).is_some_and(is_text) {
                super::wrap(cell, DataType::Text);
            }
        }
    }
}

/// A string literal or NULL takes the type that the casts of its column name, but no length or digits: those
/// are of the value that is cast. Where a literal has none, the others have theirs no longer as a type.
fn type_columns(rows: &mut [Row]) {
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

/// Numbers of several kinds, and times, take the type that they have in common. DataFusion would
/// take a numeric for what a float and a numeric have in common, and cut the float, and a time
/// without zone for what one with and one without have in common.
fn type_chosen(rows: &mut [Row]) {
    for column in 0..rows.first().map_or(0, |row| row.content.len()) {
        let kinds: Vec<CellKind> = cells(rows, column).map(CellKind::of).collect();
        if !kinds.contains(&CellKind::Computed) {
            type_as_named(rows, column, &kinds);
        } else if kinds.iter().any(|kind| kind.is_chosen_by_us()) || are_several(rows, column) {
            let others = representatives(rows, column);
            for cell in column_of(rows, column).filter(|cell| !is_null(cell)) {
                *cell = last_branch(&others, cell.clone());
            }
        }
    }
}

/// The same for a column of whose cells all types are named.
fn type_as_named(rows: &mut [Row], column: usize, kinds: &[CellKind]) {
    let has = |kind: CellKind| kinds.contains(&kind);
    let float = match (has(CellKind::Double), has(CellKind::Real)) {
        (true, _) => Some(DataType::DoublePrecision),
        (false, true) => Some(DataType::Real),
        _ => None,
    };
    let time = has(CellKind::Date) || has(CellKind::Timestamp);
    if let Some(float) = float.filter(|_| has(CellKind::Numeric)) {
        let cells = column_of(rows, column);
        cells.for_each(|cell| super::wrap(cell, float.clone()));
    } else if time && has(CellKind::TimestampTz) {
        let with_zone = DataType::Timestamp(None, TimezoneInfo::WithTimeZone);
        let are_read = |cell: &&mut Expr| {
            is_string(cell) || matches!(CellKind::of(cell), CellKind::Date | CellKind::Timestamp)
        };
        let cells = column_of(rows, column).filter(are_read);
        cells.for_each(|cell| super::wrap(cell, with_zone.clone()));
    }
}

/// What a cell shows of its type.
#[derive(Clone, Copy, PartialEq)]
enum CellKind {
    Real,
    Double,
    Numeric,
    Date,
    Timestamp,
    TimestampTz,
    /// Another type that is named, or none yet.
    Other,
    /// Only the planner knows.
    Computed,
}

impl CellKind {
    fn of(cell: &Expr) -> Self {
        match cell {
            Expr::Nested(inner) => Self::of(inner),
            Expr::Function(call) if call.name.to_string() == "checked_negate" => {
                argument(call).map_or(Self::Computed, Self::of)
            }
            // A number with a point has no cast around it.
            Expr::Value(value) if matches!(value.value, Value::Number(..)) => Self::Numeric,
            Expr::Value(_) => Self::Other,
            _ => named_type(cell).map_or(Self::Computed, Self::named),
        }
    }

    fn named(ty: &DataType) -> Self {
        match ty {
            DataType::Real
            | DataType::Float4
            | DataType::Float(ExactNumberInfo::Precision(1..=24)) => Self::Real,
            DataType::Double(_)
            | DataType::DoublePrecision
            | DataType::Float8
            | DataType::Float(_) => Self::Double,
            DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_) => Self::Numeric,
            DataType::Date => Self::Date,
            DataType::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
                Self::Timestamp
            }
            DataType::Timestamp(..) => Self::TimestampTz,
            // Of a name that is spelled in another way.
            DataType::Custom(..) => Self::Computed,
            _ => Self::Other,
        }
    }

    /// Whether DataFusion may choose another type for it and a computed cell than PostgreSQL.
    fn is_chosen_by_us(self) -> bool {
        !matches!(self, Self::Other | Self::Computed)
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

/// What a computed cell is but for the values of its literals: cells of one shape are of one type.
fn shape(cell: &Expr) -> String {
    struct Erase;
    impl VisitorMut for Erase {
        type Break = ();

        fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<()> {
            match &mut value.value {
                // Integers are told apart by the casts around them.
                Value::Number(digits, _) => {
                    let is_whole = digits.bytes().all(|byte| byte.is_ascii_digit());
                    *digits = if is_whole { "0" } else { "0.0" }.to_owned();
                }
                Value::SingleQuotedString(text) => text.clear(),
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    let mut cell = cell.clone();
    // It never breaks.
    let _ = walk::change(&mut cell, &mut Erase);
    cell.to_string()
}

/// Whether a column's computed cells are of several shapes, which may give different types.
fn are_several(rows: &[Row], column: usize) -> bool {
    let computed = cells(rows, column).filter(|cell| CellKind::of(cell) == CellKind::Computed);
    let mut shapes = computed.map(shape);
    let first = shapes.next();
    shapes.any(|shape| Some(shape) != first)
}

/// Cells that stand for all of a column: one of each kind that is named, and one of each shape of
/// those that are computed.
fn representatives(rows: &[Row], column: usize) -> Vec<Expr> {
    let mut kinds = Vec::new();
    let mut shapes = HashSet::new();
    let mut others = Vec::new();
    let typed = cells(rows, column).filter(|cell| !is_string(cell) && !is_null(cell));
    for cell in typed {
        let kind = CellKind::of(cell);
        let is_new = match kind {
            CellKind::Computed => shapes.len() < SHAPES_MAX && shapes.insert(shape(cell)),
            _ => !kinds.contains(&kind),
        };
        if is_new {
            kinds.push(kind);
            others.push(cell.clone());
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
fn type_by_others(rows: &mut [Row]) {
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
