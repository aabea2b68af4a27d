//! Expressions that the catalogue stores as text, over the columns of one table.

use std::ops::ControlFlow;

use aerostat_sql::{names::folded, walk};
use aerostat_types::{ErrorKind, SqlError, quote_ident};
use sqlparser::{
    ast::{Expr, Ident, VisitorMut},
    dialect::PostgreSqlDialect,
    parser::Parser,
};

/// # Errors
/// It cannot be read, which is a defect.
pub(super) fn parse(text: &str) -> Result<Expr, SqlError> {
    Parser::new(&PostgreSqlDialect {})
        .try_with_sql(text)
        .and_then(|mut parser| parser.parse_expr())
        .map_err(|error| {
            SqlError::new(
                ErrorKind::Internal,
                format!("an expression in the catalogue cannot be read: {error}"),
            )
        })
}

/// The column that an expression is, by its own name.
fn column_of(expression: &Expr) -> Option<&Ident> {
    match expression {
        Expr::Identifier(ident) => Some(ident),
        Expr::CompoundIdentifier(parts) => parts.last(),
        _ => None,
    }
}

/// Whether an expression reads a column. One that cannot be read is taken to.
pub(super) fn mentions(text: &str, column: &str) -> bool {
    let Ok(parsed) = parse(text) else {
        return true;
    };
    let is_it = |ident: &Ident| folded(ident) == column;
    let found = walk::expressions(&parsed, |expression| {
        if column_of(expression).is_some_and(is_it) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    found.is_break()
}

/// The expression with a column by another name.
///
/// # Errors
/// It cannot be read, which is a defect.
pub(super) fn renamed(text: &str, from: &str, to: &str) -> Result<String, SqlError> {
    if !mentions(text, from) {
        return Ok(text.to_owned());
    }
    let mut parsed = parse(text)?;
    let quote = (quote_ident(to) != to).then_some('"');
    // It never breaks.
    let _ = walk::change(&mut parsed, &mut Renaming { from, to, quote });
    Ok(parsed.to_string())
}

struct Renaming<'a> {
    from: &'a str,
    to: &'a str,
    quote: Option<char>,
}

impl VisitorMut for Renaming<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        let ident = match expression {
            Expr::Identifier(ident) => Some(ident),
            Expr::CompoundIdentifier(parts) => parts.last_mut(),
            _ => None,
        };
        if let Some(ident) = ident.filter(|ident| folded(ident) == self.from) {
            self.to.clone_into(&mut ident.value);
            ident.quote_style = self.quote;
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_renamed_and_nothing_else() {
        let text = "a > 0 AND t.A < upper('a') || \"A\" AND lower(b) IN ('a', a(1))";
        assert!(mentions(text, "a") && mentions(text, "A") && !mentions(text, "lower"));
        assert_eq!(
            renamed(text, "a", "Old b").unwrap(),
            "\"Old b\" > 0 AND t.\"Old b\" < upper('a') || \"A\" AND lower(b) IN ('a', a(1))"
        );
        assert_eq!(renamed(text, "c", "d").unwrap(), text);
    }
}
