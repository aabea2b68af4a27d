//! Parameters that are arrays: `id = ANY ($1)`, `unnest($1::int[])`.
//!
//! No column has an array type, so the planner does not support such parameters. Before a statement
//! is planned, its arrays are written out:
//!
//! | written | becomes |
//! |---|---|
//! | `x = ANY ($1)`, `x <> ALL ($1)` | `x IN (1::int, …)`, `x NOT IN (…)`, which an index answers |
//! | `$1` elsewhere | `ARRAY[1::int, …]` |
//! | `x = ANY ($1)`, `x < ALL ($1)` while the type of `$1` is unknown | `x IN ($1)`, so that it gets the type of `x` |
//! | `x LIKE ANY ($1)`, `x ~ ALL ($1)` | the same with `$1::text[]` |
//!
//! Other parameters are written out, too, in the arguments of functions in FROM and in the frames
//! of windows, which must be constants. A column whose expression contains an array keeps the
//! name that it has with the parameter.

use std::ops::ControlFlow;

use aerostat_api::ParameterType;
use aerostat_semantics::{any_of, array_items};
use aerostat_sql::walk;
use aerostat_types::{ErrorKind, SqlError, SqlType};
use datafusion::sql::sqlparser::ast::{
    self, Array, ArrayElemTypeDef, BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr,
    FunctionArg, FunctionArgExpr, FunctionArguments, Ident, NamedWindowExpr, ObjectName, Select,
    SelectItem, TableFactor, TimezoneInfo, Value, Visitor, VisitorMut, WindowFrameBound,
    WindowSpec, WindowType,
};

use super::{names::output_name, parameters::bare_placeholder};

/// The items of an array, NULL for `None`.
pub type Items = Vec<Option<String>>;

/// Splits the text of an array into its items.
///
/// # Errors
/// `InvalidTextRepresentation` for a text that is not an array; `FeatureNotSupported` for arrays of
/// arrays.
pub fn read_items(text: &str) -> Result<Items, SqlError> {
    array_items(text).ok_or_else(|| {
        let mut opening = text.chars().filter(|c| !c.is_whitespace());
        if opening.next() == Some('{') && opening.next() == Some('{') {
            return SqlError::new(
                ErrorKind::FeatureNotSupported,
                "parameters that are arrays of several dimensions are not supported",
            );
        }
        SqlError::new(
            ErrorKind::InvalidTextRepresentation,
            format!("malformed array literal: \"{text}\""),
        )
    })
}

/// The parameters that are, by themselves, the array of ANY or ALL.
pub fn array_parameters(statement: &ast::Statement) -> Vec<usize> {
    struct Arrays(Vec<usize>);
    impl Visitor for Arrays {
        type Break = ();
        fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
            if let Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } = expression {
                self.0.extend(bare_placeholder(right));
            }
            self.0.extend(array_of_texts(expression));
            ControlFlow::Continue(())
        }
    }
    let mut arrays = Arrays(Vec::new());
    let _ = walk::look(statement, &mut arrays);
    arrays.0
}

/// The parameter that is, by itself, the array of ANY or ALL behind an operator on texts: LIKE,
/// ILIKE, `~` and similar. The cases follow how `statement::spelling` and the parser write these.
pub(super) fn array_of_texts(expression: &Expr) -> Option<usize> {
    let right = match expression {
        Expr::Like { any, pattern, .. } | Expr::ILike { any, pattern, .. } => match any {
            true => return bare_placeholder(pattern),
            false => pattern,
        },
        Expr::BinaryOp { right, .. } => right,
        Expr::AnyOp {
            compare_op, right, ..
        }
        | Expr::AllOp {
            compare_op, right, ..
        } => return bare_placeholder(right).filter(|_| is_of_texts(compare_op)),
        _ => return None,
    };
    let Expr::Function(function) = &**right else {
        return None;
    };
    let name = function.name.to_string();
    let mut quantifiers = ["any", "all", "some"].iter();
    let is_quantifier = quantifiers.any(|word| name.trim_matches('"').eq_ignore_ascii_case(word));
    match &function.args {
        FunctionArguments::List(list) if is_quantifier => match &list.args[..] {
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(array))] => bare_placeholder(array),
            _ => None,
        },
        _ => None,
    }
}

fn is_of_texts(op: &BinaryOperator) -> bool {
    use BinaryOperator as O;
    matches!(
        op,
        O::PGRegexMatch
            | O::PGRegexIMatch
            | O::PGRegexNotMatch
            | O::PGRegexNotIMatch
            | O::PGLikeMatch
            | O::PGILikeMatch
            | O::PGNotLikeMatch
            | O::PGNotILikeMatch
    )
}

/// The name and arguments of a relation that is a function in FROM.
pub(super) fn called(factor: &TableFactor) -> Option<(&ObjectName, &[FunctionArg])> {
    match factor {
        TableFactor::Table {
            name,
            args: Some(given),
            ..
        } => Some((name, &given.args)),
        TableFactor::Function { name, args, .. } => Some((name, args)),
        _ => None,
    }
}

/// The offsets of a window's frame.
fn offsets(spec: &mut WindowSpec) -> impl Iterator<Item = &mut Expr> {
    let frame = spec.window_frame.as_mut();
    let bounds = frame
        .into_iter()
        .flat_map(|frame| std::iter::once(&mut frame.start_bound).chain(frame.end_bound.as_mut()));
    bounds.filter_map(|bound| match bound {
        WindowFrameBound::Preceding(Some(offset)) | WindowFrameBound::Following(Some(offset)) => {
            Some(&mut **offset)
        }
        _ => None,
    })
}

fn has_parameters(spec: &WindowSpec) -> ControlFlow<()> {
    // The walk needs a mutable tree, of which a copy is enough.
    offsets(&mut spec.clone()).try_for_each(|offset| {
        walk::expressions(&*offset, |expression| match bare_placeholder(expression) {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        })
    })
}

/// Whether parameters stand in the arguments of functions in FROM, or in the frames of windows.
pub fn has_function_parameters(statement: &ast::Statement) -> bool {
    struct Functions;
    impl Visitor for Functions {
        type Break = ();
        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
            let Some((_, arguments)) = called(factor) else {
                return ControlFlow::Continue(());
            };
            let is_parameter = |expression: &Expr| match bare_placeholder(expression) {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            };
            for argument in arguments {
                walk::expressions(argument, is_parameter)?;
            }
            ControlFlow::Continue(())
        }
        fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
            select
                .named_window
                .iter()
                .try_for_each(|window| match &window.1 {
                    NamedWindowExpr::WindowSpec(spec) => has_parameters(spec),
                    NamedWindowExpr::NamedWindow(_) => ControlFlow::Continue(()),
                })
        }
        fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
            match expression {
                Expr::Function(call) => match &call.over {
                    Some(WindowType::WindowSpec(spec)) => has_parameters(spec),
                    _ => ControlFlow::Continue(()),
                },
                _ => ControlFlow::Continue(()),
            }
        }
    }
    walk::look(statement, &mut Functions).is_break()
}

/// Replaces the parameters that are arrays by their items, or by NULL. An array parameter is found
/// by its number. A parameter of unknown type that is listed in `unknown` becomes its only item. A
/// parameter that is not an array has itself as its only item.
pub fn write_arrays(
    statement: &mut ast::Statement,
    types: &[Option<ParameterType>],
    unknown: &[usize],
    values: &[Option<Items>],
) {
    let mut writer = Writer {
        types,
        unknown,
        values,
    };
    // The visitor never breaks.
    let _ = walk::change(statement, &mut writer);
}

struct Writer<'a> {
    types: &'a [Option<ParameterType>],
    unknown: &'a [usize],
    values: &'a [Option<Items>],
}

/// Writes out the parameters of a function in FROM that are not arrays.
struct ArgumentWriter<'a>(&'a Writer<'a>);

impl VisitorMut for ArgumentWriter<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Some(n) = bare_placeholder(expression)
            && let Some(ty) = self.0.types.get(n - 1).and_then(|ty| ty.as_ref()?.value())
        {
            let item = self
                .0
                .values
                .get(n - 1)
                .and_then(|value| value.as_ref()?.first()?.clone());
            // While parameters have no values, any value of the type does.
            let item = item.or_else(|| (self.0.values.is_empty()).then(|| sample(ty)));
            let value = item.map_or(Value::Null, Value::SingleQuotedString);
            *expression = cast(Expr::value(value), named(ty));
        }
        ControlFlow::Continue(())
    }
}

impl VisitorMut for Writer<'_> {
    type Break = ();

    fn pre_visit_statement(&mut self, statement: &mut ast::Statement) -> ControlFlow<()> {
        let returning = match statement {
            ast::Statement::Insert(insert) => insert.returning.as_mut(),
            ast::Statement::Update(update) => update.returning.as_mut(),
            ast::Statement::Delete(delete) => delete.returning.as_mut(),
            _ => None,
        };
        returning
            .into_iter()
            .flatten()
            .for_each(|item| self.keep_name(item));
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let items = select.projection.iter_mut();
        items.for_each(|item| self.keep_name(item));
        for window in &mut select.named_window {
            if let NamedWindowExpr::WindowSpec(spec) = &mut window.1 {
                self.write_frame(spec);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let arguments = match factor {
            TableFactor::Table {
                args: Some(given), ..
            } => &mut given.args,
            TableFactor::Function { args, .. } => args,
            _ => return ControlFlow::Continue(()),
        };
        for argument in arguments {
            // The visitor never breaks.
            let _ = walk::change(argument, &mut ArgumentWriter(self));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(call) = expression
            && let Some(WindowType::WindowSpec(spec)) = &mut call.over
        {
            self.write_frame(spec);
        }
        if let Some(written) = self.written(expression) {
            *expression = written;
        }
        ControlFlow::Continue(())
    }
}

impl Writer<'_> {
    fn write_frame(&self, spec: &mut WindowSpec) {
        for offset in offsets(spec) {
            // The visitor never breaks.
            let _ = walk::change(offset, &mut ArgumentWriter(self));
        }
    }

    /// Keeps a column's name when an array is written into it: names depend on the expression, and
    /// how an array is written depends on its items.
    fn keep_name(&self, item: &mut SelectItem) {
        let SelectItem::UnnamedExpr(expression) = item else {
            return;
        };
        struct HasArray<'a>(&'a Writer<'a>);
        impl Visitor for HasArray<'_> {
            type Break = ();
            fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
                let array = bare_placeholder(expression).and_then(|n| self.0.item(n));
                match array {
                    Some(_) => ControlFlow::Break(()),
                    None => ControlFlow::Continue(()),
                }
            }
        }
        if walk::look(expression, &mut HasArray(self)).is_break() {
            *item = SelectItem::ExprWithAlias {
                alias: Ident::with_quote('"', output_name(expression)),
                expr: expression.clone(),
            };
        }
    }

    fn written(&self, expression: &Expr) -> Option<Expr> {
        match expression {
            Expr::AnyOp {
                left,
                compare_op: BinaryOperator::Eq,
                right,
                ..
            } => self.list(left, right, false),
            Expr::AllOp {
                left,
                compare_op: BinaryOperator::NotEq,
                right,
            } => self.list(left, right, true),
            Expr::AnyOp { left, right, .. } | Expr::AllOp { left, right, .. } => {
                self.undeclared(left, right)
            }
            Expr::Cast {
                expr, data_type, ..
            } => match self.array(expr, item_type(data_type)?)? {
                // The cast stays, because it names the column.
                array @ Expr::Array(_) => Some(cast(array, data_type.clone())),
                other => Some(other),
            },
            Expr::Value(_) => {
                let n = bare_placeholder(expression)?;
                self.array(expression, named(self.item(n)?))
            }
            _ => None,
        }
    }

    /// The type of an array parameter's items.
    fn item(&self, n: usize) -> Option<SqlType> {
        (*self.types.get(n.checked_sub(1)?)?)?.item()
    }

    /// The items of an array parameter, each cast to `ty`; `None` for a NULL array.
    fn items(&self, n: usize, ty: &DataType) -> Option<Vec<Expr>> {
        let items = self.values.get(n.checked_sub(1)?)?.as_ref()?;
        let item = |item: &Option<String>| {
            let value = item.clone().map_or(Value::Null, Value::SingleQuotedString);
            cast(Expr::value(value), ty.clone())
        };
        Some(items.iter().map(item).collect())
    }

    /// `left = ANY (right)`, or `left <> ALL (right)` if negated, as a list.
    fn list(&self, left: &Expr, right: &Expr, negated: bool) -> Option<Expr> {
        let (n, ty) = match right {
            Expr::Nested(inner) => return self.list(left, inner, negated),
            Expr::Cast {
                expr, data_type, ..
            } => (bare_placeholder(expr)?, item_type(data_type)?),
            other => {
                let n = bare_placeholder(other)?;
                match self.item(n) {
                    Some(item) => (n, named(item)),
                    None if self.unknown.contains(&n) => {
                        return Some(any_of(left, vec![other.clone()], negated));
                    }
                    None => return None,
                }
            }
        };
        self.item(n)?;
        Some(match self.items(n, &ty) {
            Some(items) => any_of(left, items, negated),
            None => any_of(left, vec![cast(Expr::value(Value::Null), ty)], negated),
        })
    }

    /// Rewrites `left < ANY (right)` and similar while the type of `right` is unknown, so that it
    /// gets the type of `left`.
    fn undeclared(&self, left: &Expr, right: &Expr) -> Option<Expr> {
        let n = bare_placeholder(right)?;
        let is_open = self.item(n).is_none() && self.unknown.contains(&n);
        is_open.then(|| any_of(left, vec![right.clone()], false))
    }

    /// The array that a placeholder stands for.
    fn array(&self, placeholder: &Expr, item: DataType) -> Option<Expr> {
        let n = bare_placeholder(placeholder)?;
        self.item(n)?;
        let array_type = || {
            let item = Box::new(item.clone());
            DataType::Array(ArrayElemTypeDef::SquareBracket(item, None))
        };
        Some(match self.items(n, &item) {
            // An array without items does not say its type.
            Some(items) if items.is_empty() => {
                let empty = Value::SingleQuotedString("{}".to_owned());
                cast(Expr::value(empty), array_type())
            }
            Some(items) => Expr::Array(Array {
                elem: items,
                named: true,
            }),
            // While parameters have no values, arrays must still differ: `unnest` tells its
            // arguments apart by their text.
            None if self.values.is_empty() => Expr::Array(Array {
                elem: vec![cast(Expr::value(Value::Null), item); n],
                named: true,
            }),
            None => cast(Expr::value(Value::Null), array_type()),
        })
    }
}

/// The text of any value of a type.
fn sample(ty: SqlType) -> String {
    match ty {
        SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz => "2000-01-01",
        SqlType::Time => "00:00",
        SqlType::Interval => "1 day",
        SqlType::Uuid => "00000000-0000-0000-0000-000000000000",
        SqlType::Boolean => "true",
        SqlType::Bytea => "\\x",
        _ => "1",
    }
    .to_owned()
}

fn cast(value: Expr, data_type: DataType) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(value),
        data_type,
        array: false,
        format: None,
    }
}

/// The type of an array type's items, as written.
fn item_type(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) => Some((**item).clone()),
        _ => None,
    }
}

/// A type without its modifiers, as SQL names it: items keep the digits and letters they have.
fn named(ty: SqlType) -> DataType {
    match ty {
        SqlType::Boolean => DataType::Boolean,
        SqlType::SmallInt => DataType::SmallInt(None),
        SqlType::Integer => DataType::Integer(None),
        SqlType::BigInt => DataType::BigInt(None),
        SqlType::Real => DataType::Real,
        SqlType::Double => DataType::DoublePrecision,
        SqlType::Numeric { .. } => DataType::Numeric(ExactNumberInfo::None),
        SqlType::Char(_) | SqlType::Varchar(_) | SqlType::Text => DataType::Text,
        SqlType::Bytea => DataType::Bytea,
        SqlType::Uuid => DataType::Uuid,
        SqlType::Date => DataType::Date,
        SqlType::Time => DataType::Time(None, TimezoneInfo::None),
        SqlType::Timestamp => DataType::Timestamp(None, TimezoneInfo::None),
        SqlType::TimestampTz => DataType::Timestamp(None, TimezoneInfo::Tz),
        SqlType::Interval => DataType::Interval {
            fields: None,
            precision: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aerostat_sql::statement::{Statement, StatementKind};

    fn written(sql: &str, ty: Option<ParameterType>, value: Option<&str>) -> String {
        let StatementKind::Sql(parsed) = Statement::single(sql).unwrap().kind else {
            panic!("not SQL")
        };
        let mut statement = (*parsed).clone();
        let unknown = array_parameters(&statement);
        let items = value.map(|text| read_items(text).unwrap());
        write_arrays(&mut statement, &[ty], &unknown, &[items]);
        statement.to_string()
    }

    #[test]
    fn arrays_are_written_out() {
        let int = Some(ParameterType::Array(SqlType::Integer));
        let cases = [
            (
                "SELECT a = ANY ($1)",
                int,
                Some("{1,NULL}"),
                r#"SELECT a IN (CAST('1' AS INTEGER), CAST(NULL AS INTEGER)) AS "?column?""#,
            ),
            (
                "SELECT a = ANY ($1) AS b",
                Some(ParameterType::Array(SqlType::Text)),
                Some("{x,y}"),
                "SELECT \"\u{1}each\"(a) IN (CAST('x' AS TEXT), CAST('y' AS TEXT)) AS b",
            ),
            (
                "SELECT a <> ALL (($1::bigint[]))",
                int,
                Some("{1}"),
                r#"SELECT a NOT IN (CAST('1' AS BIGINT)) AS "?column?""#,
            ),
            (
                "SELECT 1 WHERE a = ANY ($1)",
                int,
                Some("{}"),
                "SELECT 1 WHERE false",
            ),
            (
                "SELECT 1 WHERE a <> ALL ($1)",
                int,
                Some("{}"),
                "SELECT 1 WHERE true",
            ),
            (
                "SELECT a = ANY ($1) AS b",
                int,
                None,
                "SELECT a IN (CAST(NULL AS INTEGER)) AS b",
            ),
            ("SELECT a = ANY ($1)", None, None, "SELECT a IN ($1)"),
            (
                "SELECT a < ANY ($1), cardinality($1::int[])",
                int,
                Some("{7}"),
                r#"SELECT a < ANY(ARRAY[CAST('7' AS INTEGER)]) AS "?column?", cardinality(CAST(ARRAY[CAST('7' AS INT)] AS INT[])) AS "cardinality""#,
            ),
            (
                "SELECT $1::text[]",
                Some(ParameterType::Array(SqlType::Text)),
                Some(r#"{"a,'",b}"#),
                r#"SELECT CAST(ARRAY[CAST('a,''' AS TEXT), CAST('b' AS TEXT)] AS TEXT[]) AS "text""#,
            ),
            (
                "SELECT $1",
                int,
                Some("{}"),
                r#"SELECT CAST('{}' AS INTEGER[]) AS "?column?""#,
            ),
            (
                "UPDATE t SET a = 1 RETURNING ($1::int[])[1], a",
                int,
                Some("{}"),
                r#"UPDATE t SET a = 1 RETURNING (CAST('{}' AS INT[]))[1] AS "int4", a"#,
            ),
            (
                "SELECT x + $1 FROM generate_series(1, $1::int) AS s (x)",
                Some(ParameterType::Value(SqlType::Integer)),
                Some("{7}"),
                "SELECT x + $1 FROM generate_series(1, CAST('7' AS INTEGER)::INT) AS s (x)",
            ),
            (
                "SELECT a = $1",
                Some(ParameterType::Value(SqlType::Integer)),
                None,
                "SELECT a = $1",
            ),
        ];
        for (sql, ty, value, expected) in cases {
            assert_eq!(written(sql, ty, value), expected, "{sql}");
        }
    }

    #[test]
    fn what_is_no_array_is_refused() {
        assert_eq!(
            read_items("1,2").unwrap_err().to_string(),
            "malformed array literal: \"1,2\""
        );
        let several = read_items(" { {1}, {2} }").unwrap_err();
        assert_eq!(several.kind, ErrorKind::FeatureNotSupported);
    }
}
