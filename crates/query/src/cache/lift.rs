//! Statements that differ only in their constants.
//!
//! ```text
//!  … WHERE d_year = 1997 AND p_brand BETWEEN 'A' AND 'C'     the text, new each time
//!  … WHERE d_year = $1 AND p_brand BETWEEN $2 AND $3         the lifted text: its plan's key
//!  1997, A, C                                                its values
//! ```
//!
//! A constant is lifted where a column is compared with it, in a condition of WHERE or ON. There
//! the plan for all values compares the column with a value of the column's own type, which the
//! scan gets when it runs. If a constant, as it is written, is not such a value, the statement is
//! planned with its constants. Elsewhere a constant may decide about the plan: LIMIT, GROUP BY 1,
//! `round(x, 2)`.

use std::{ops::ControlFlow, sync::Arc};

use aerostat_sql::walk;
use aerostat_types::{SqlType, text};
use datafusion::{
    common::{ParamValues, ScalarValue},
    sql::sqlparser::ast::{
        BinaryOperator, DataType, Expr, JoinConstraint, JoinOperator, Query, Select, SetExpr,
        Statement, TableWithJoins, TimezoneInfo, UnaryOperator, Value, ValueWithSpan, VisitorMut,
    },
};

use crate::scan::conditions::Compared;

/// Statements with more constants are planned as they are: long lists, which storage does not
/// take.
const LITERALS_MAX: usize = 64;

/// A statement without its constants.
pub struct Lifted {
    /// The statement with parameters in the place of its constants.
    pub statement: Statement,
    /// The key of its plan. No client's text begins like it.
    pub text: Arc<str>,
    literals: Vec<Literal>,
}

/// A constant as it is written.
struct Literal {
    kind: LiteralKind,
    text: String,
}

enum LiteralKind {
    Number,
    /// A string whose type follows from the other side of its comparison.
    Unknown,
    /// A string behind the name of its type.
    Of(SqlType),
}

/// A query without the constants that columns are compared with; `None` if there are none.
pub fn lifted(statement: &Statement) -> Option<Lifted> {
    let Statement::Query(_) = statement else {
        return None;
    };
    let mut statement = statement.clone();
    let mut lifting = Lifting {
        literals: Vec::new(),
    };
    let flow = walk::change(&mut statement, &mut lifting);
    let literals = lifting.literals;
    (flow.is_continue() && !literals.is_empty()).then(|| Lifted {
        text: format!("\0{statement}").into(),
        statement,
        literals,
    })
}

impl Lifted {
    /// The types of its parameters by position, where a constant names its type.
    pub fn types(&self) -> impl Iterator<Item = Option<SqlType>> {
        self.literals.iter().map(|literal| match literal.kind {
            LiteralKind::Of(ty) => Some(ty),
            LiteralKind::Number | LiteralKind::Unknown => None,
        })
    }

    /// Its constants as values of the columns that they are compared with; `None` if one of them
    /// is not a value of its column's type.
    pub fn values(&self, compared: &Compared) -> Option<ParamValues> {
        let literals = self.literals.iter().enumerate();
        let values = literals.map(|(at, literal)| literal.value(*compared.get(&(at + 1))?));
        Some(ParamValues::from(values.collect::<Option<Vec<_>>>()?))
    }
}

impl Literal {
    /// The constant as a value of a column's type; `None` if a comparison with that value would
    /// differ from one with the constant.
    fn value(&self, ty: SqlType) -> Option<ScalarValue> {
        let text = self.text.as_str();
        match self.kind {
            LiteralKind::Number => number(ty, text),
            LiteralKind::Unknown => number(ty, text).or_else(|| unknown(ty, text)),
            LiteralKind::Of(own) if own == ty => unknown(ty, text),
            LiteralKind::Of(_) => None,
        }
    }
}

/// A number, as it is written, as a value of this type. A number with more digits than the type
/// has is compared in another type, and so is any number with a `real`.
fn number(ty: SqlType, text: &str) -> Option<ScalarValue> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let are_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    let is_whole = !digits.contains('.');
    match ty {
        SqlType::SmallInt if is_whole => text::parse_i16(text).ok().map(Into::into),
        SqlType::Integer if is_whole => text::parse_i32(text).ok().map(Into::into),
        SqlType::BigInt if is_whole => text::parse_i64(text).ok().map(Into::into),
        SqlType::Double => text::parse_f64(text).ok().map(Into::into),
        SqlType::Numeric { precision, scale } => {
            let is_exact = i64::try_from(fraction.len()).ok()? <= i64::from(scale);
            let value = text::parse_numeric(text, precision, scale).ok()?;
            is_exact.then_some(ScalarValue::Decimal128(Some(value), precision, scale))
        }
        _ => None,
    }
}

/// A string as a value of the type that it is compared with. `today` and similar words are left
/// to the planner.
fn unknown(ty: SqlType, text: &str) -> Option<ScalarValue> {
    let is_dated = text.starts_with(|first: char| first.is_ascii_digit());
    match ty {
        SqlType::Text | SqlType::Varchar(_) => Some(ScalarValue::Utf8View(Some(text.to_owned()))),
        // Trailing blanks mean nothing in a `char(n)`, and none are stored.
        SqlType::Char(_) => {
            let text = text.trim_end_matches(' ');
            Some(ScalarValue::Utf8View(Some(text.to_owned())))
        }
        SqlType::Date if is_dated => {
            let days = text::parse_date(text).ok()?;
            Some(ScalarValue::Date32(Some(days)))
        }
        SqlType::Timestamp if is_dated => {
            let micros = text::parse_timestamp(text).ok()?;
            Some(ScalarValue::TimestampMicrosecond(Some(micros), None))
        }
        _ => None,
    }
}

/// Replaces constants by parameters.
struct Lifting {
    literals: Vec<Literal>,
}

impl VisitorMut for Lifting {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.lift_body(&mut query.body);
        match self.literals.len() <= LITERALS_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }
}

impl Lifting {
    fn lift_body(&mut self, body: &mut SetExpr) {
        match body {
            SetExpr::Select(select) => self.lift_select(select),
            SetExpr::SetOperation { left, right, .. } => {
                self.lift_body(left);
                self.lift_body(right);
            }
            // The visitor comes to a nested query by itself.
            _ => {}
        }
    }

    fn lift_select(&mut self, select: &mut Select) {
        for table in &mut select.from {
            self.lift_joins(table);
        }
        if let Some(condition) = &mut select.selection {
            self.lift_condition(condition);
        }
    }

    fn lift_joins(&mut self, table: &mut TableWithJoins) {
        for join in &mut table.joins {
            if let JoinOperator::Join(JoinConstraint::On(condition))
            | JoinOperator::Inner(JoinConstraint::On(condition)) = &mut join.join_operator
            {
                self.lift_condition(condition);
            }
        }
    }

    fn lift_condition(&mut self, condition: &mut Expr) {
        match condition {
            Expr::Nested(inner) => self.lift_condition(inner),
            Expr::BinaryOp {
                left,
                op: BinaryOperator::And | BinaryOperator::Or,
                right,
            } => {
                self.lift_condition(left);
                self.lift_condition(right);
            }
            Expr::BinaryOp { left, op, right } if is_comparison(op) => {
                if is_name(left) {
                    self.lift_literal(right);
                } else if is_name(right) {
                    self.lift_literal(left);
                }
            }
            Expr::Between {
                expr,
                negated: false,
                low,
                high,
            } if is_name(expr) => {
                self.lift_literal(low);
                self.lift_literal(high);
            }
            Expr::InList {
                expr,
                list,
                negated: false,
            } if is_name(expr) && list.len() <= LITERALS_MAX => {
                list.iter_mut().for_each(|item| self.lift_literal(item));
            }
            _ => {}
        }
    }

    fn lift_literal(&mut self, expr: &mut Expr) {
        let Some(literal) = literal(expr) else {
            return;
        };
        self.literals.push(literal);
        let number = self.literals.len();
        *expr = Expr::Value(Value::Placeholder(format!("${number}")).with_empty_span());
    }
}

fn is_comparison(op: &BinaryOperator) -> bool {
    matches!(
        op,
        BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq
    )
}

fn is_name(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

fn literal(expr: &Expr) -> Option<Literal> {
    let (kind, text) = match expr {
        Expr::Value(value) => plain(value)?,
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => match &**expr {
            Expr::Value(ValueWithSpan {
                value: Value::Number(digits, false),
                ..
            }) => (LiteralKind::Number, format!("-{digits}")),
            _ => return None,
        },
        Expr::TypedString(typed) => {
            let ty = match typed.data_type {
                DataType::Date => SqlType::Date,
                DataType::Timestamp(None, TimezoneInfo::None) => SqlType::Timestamp,
                _ => return None,
            };
            match &typed.value.value {
                Value::SingleQuotedString(text) => (LiteralKind::Of(ty), text.clone()),
                _ => return None,
            }
        }
        _ => return None,
    };
    Some(Literal { kind, text })
}

fn plain(value: &ValueWithSpan) -> Option<(LiteralKind, String)> {
    match &value.value {
        Value::Number(digits, false) => Some((LiteralKind::Number, digits.clone())),
        Value::SingleQuotedString(text) => Some((LiteralKind::Unknown, text.clone())),
        _ => None,
    }
}
