//! Sequences in the texts of defaults: `nextval(16390)`, by number, so that a default means the
//! same sequence whatever its name, and `nextval('s'::regclass)` when the default is shown.

use std::{
    collections::BTreeSet,
    ops::{ControlFlow, Range},
};

use aerostat_types::{RelationId, SqlError};
use sqlparser::{
    ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value, VisitorMut},
    dialect::PostgreSqlDialect,
    tokenizer::{Token, Tokenizer},
};

use crate::walk;
use crate::{lines::Lines, names::folded};

/// The function that gives identity columns their numbers: who may insert may take one.
pub const NEXT_OF_IDENTITY: &str = "\u{1}next";

/// The functions whose first argument is a sequence.
const FUNCTIONS: [&str; 4] = ["nextval", "currval", "setval", NEXT_OF_IDENTITY];

/// The default of a column whose numbers come from this sequence.
pub fn default_of(sequence: RelationId) -> String {
    format!("nextval({sequence})")
}

/// What an identity column takes: the next number, whatever the role may do with its sequence.
pub fn identity_default(sequence: RelationId) -> String {
    format!("\"{NEXT_OF_IDENTITY}\"({sequence})")
}

/// The name of a sequence that a call gives as a literal, as text or as `regclass`.
pub fn named_sequence(function: &Function) -> Option<&str> {
    literal_name(sequence_argument(function)?)
}

fn is_ours(function: &Function) -> bool {
    let (schema, name) = match &function.name.0[..] {
        [name] => (None, name),
        [schema, name] => (schema.as_ident().map(folded), name),
        _ => return false,
    };
    let name = name.as_ident().map(folded);
    schema.is_none_or(|schema| schema == "pg_catalog")
        && name.is_some_and(|name| FUNCTIONS.contains(&name.as_str()))
}

fn sequence_argument(function: &Function) -> Option<&Expr> {
    match &function.args {
        FunctionArguments::List(list) if is_ours(function) => match list.args.first()? {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => Some(argument),
            _ => None,
        },
        _ => None,
    }
}

fn literal_name(argument: &Expr) -> Option<&str> {
    use sqlparser::ast::DataType;

    match argument {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(name) => Some(name),
            _ => None,
        },
        Expr::Nested(inner) => literal_name(inner),
        Expr::Cast {
            expr,
            data_type: DataType::Regclass,
            ..
        } => literal_name(expr),
        _ => None,
    }
}

/// Puts numbers in the place of the names of sequences. `number` knows them.
///
/// # Errors
/// Those of `number`.
pub fn bind_names(
    expression: &mut Expr,
    number: &dyn Fn(&str) -> Result<RelationId, SqlError>,
) -> Result<(), SqlError> {
    match walk::change(expression, &mut Binding { number }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Binding<'a> {
    number: &'a dyn Fn(&str) -> Result<RelationId, SqlError>,
}

impl VisitorMut for Binding<'_> {
    type Break = Box<SqlError>;

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Self::Break> {
        let Expr::Function(function) = expression else {
            return ControlFlow::Continue(());
        };
        let Some(name) = named_sequence(function) else {
            return ControlFlow::Continue(());
        };
        let number = match (self.number)(name) {
            Ok(number) => Expr::Value(Value::Number(number.to_string(), false).into()),
            Err(error) => return ControlFlow::Break(Box::new(error)),
        };
        if let FunctionArguments::List(list) = &mut function.args
            && let Some(first) = list.args.first_mut()
        {
            *first = FunctionArg::Unnamed(FunctionArgExpr::Expr(number));
        }
        ControlFlow::Continue(())
    }
}

/// Where a text names sequences by number, and which.
fn numbers_in(text: &str) -> Vec<(Range<usize>, RelationId)> {
    if !FUNCTIONS.iter().any(|name| text.contains(name)) {
        return Vec::new();
    }
    let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location() else {
        return Vec::new();
    };
    let lines = Lines::new(text);
    let is_ours = |token: &Token| {
        let Token::Word(word) = token else {
            return false;
        };
        match word.quote_style {
            None => FUNCTIONS
                .iter()
                .any(|name| word.value.eq_ignore_ascii_case(name)),
            Some(_) => word.value == NEXT_OF_IDENTITY,
        }
    };
    let mut found = Vec::new();
    for window in tokens.windows(3) {
        if let (true, Token::LParen, Token::Number(digits, _)) = (
            is_ours(&window[0].token),
            &window[1].token,
            &window[2].token,
        ) && let Ok(number) = digits.parse()
        {
            let span = window[2].span;
            let place = lines.byte(span.start)..lines.byte(span.end);
            found.push((place, RelationId(number)));
        }
    }
    found
}

/// The numbers of the sequences that a text names.
pub fn sequences_in(text: &str) -> BTreeSet<RelationId> {
    let found = numbers_in(text).into_iter();
    found.map(|(_, number)| number).collect()
}

/// Whether a text is nothing but the next number of a sequence.
pub fn is_next(text: &str) -> bool {
    matches!(&numbers_in(text)[..], [(_, number)] if text == default_of(*number))
}

/// A text as PostgreSQL shows it: with the names that `name` gives to numbers.
pub fn shown(text: &str, name: &dyn Fn(RelationId) -> Option<String>) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut done = 0;
    for (place, number) in numbers_in(text) {
        let Some(name) = name(number) else { continue };
        shown.push_str(&text[done..place.start]);
        shown.push_str(&format!("'{}'::regclass", name.replace('\'', "''")));
        done = place.end;
    }
    shown.push_str(&text[done..]);
    shown
}

#[cfg(test)]
mod tests {
    use sqlparser::parser::Parser;

    use super::*;

    fn bound(text: &str) -> String {
        let mut expression = Parser::new(&PostgreSqlDialect {})
            .try_with_sql(text)
            .unwrap()
            .parse_expr()
            .unwrap();
        bind_names(&mut expression, &|name| Ok(RelationId(name.len() as u32))).unwrap();
        expression.to_string()
    }

    #[test]
    fn names_become_numbers_and_names_again() {
        assert_eq!(bound("nextval('abc')"), "nextval(3)");
        assert_eq!(bound("nextval('abc'::regclass)"), "nextval(3)");
        assert_eq!(
            bound("'x' || (pg_catalog.nextval(('ab'::regclass)))::text"),
            "'x' || (pg_catalog.nextval(2))::TEXT"
        );
        assert_eq!(bound("nextval(lower('A'))"), "nextval(lower('A'))");
        assert_eq!(bound("'nextval(''a'')'"), "'nextval(''a'')'");
        let name = |number: RelationId| (number.0 == 3).then(|| "public.\"it's\"".to_owned());
        assert_eq!(
            shown("1 + nextval(3) * nextval(4) || 'nextval(3)'", &name),
            "1 + nextval('public.\"it''s\"'::regclass) * nextval(4) || 'nextval(3)'"
        );
        assert_eq!(
            sequences_in("nextval(3) + currval(5) + 7"),
            BTreeSet::from([RelationId(3), RelationId(5)])
        );
        assert!(is_next("nextval(3)") && !is_next("nextval(3) + 1") && !is_next("3"));
    }
}
