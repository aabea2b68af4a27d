//! From the text of a message to statements.
//!
//! The text is cut into statements by its tokens, so a syntax error in the
//! third does not hide the first two from the client. Each statement goes to
//! our own parser for utility statements first, then to [`crate::tree`].

use std::sync::Arc;

use aerostat_types::SqlError;
use sqlparser::{ast, tokenizer::TokenWithSpan};

use crate::{
    lines::Lines,
    tree,
    utility::{self, Utility},
};

/// One statement of a message.
#[derive(Clone)]
pub struct Statement {
    /// What it is.
    pub kind: StatementKind,
    /// Its text.
    pub source: Source,
}

/// What a statement is.
#[derive(Clone)]
pub enum StatementKind {
    /// Nothing but blanks and comments.
    Empty,
    /// One of the fast path's grammar that nobody has needed to parse.
    Unread,
    /// A utility statement, by our own grammar.
    Utility(Arc<Utility>),
    /// Any other.
    Sql(Arc<ast::Statement>),
}

/// The text of a statement and where it stands in the message.
#[derive(Clone)]
pub struct Source {
    /// The text.
    pub text: Arc<str>,
    /// Characters of the message before the text.
    pub offset: u32,
    /// What the tree of a long text is charged, as long as anybody has it.
    pub room: Option<Arc<dyn Send + Sync>>,
}

impl Source {
    /// A text that stands alone.
    pub fn of(text: Arc<str>) -> Self {
        Self {
            text,
            offset: 0,
            room: None,
        }
    }
}

impl Statement {
    /// The statement's text.
    pub fn text(&self) -> &str {
        &self.source.text
    }

    /// Cuts a message into its statements.
    ///
    /// # Errors
    /// `SyntaxError` with a position, `StatementTooComplex` beyond the limits.
    pub fn split(message: &str) -> Result<Vec<Statement>, SqlError> {
        let lines = Lines::new(message);
        let tokens = tree::tokens(message, &lines)?;
        let mut statements = Vec::new();
        for (piece, first, last) in tree::pieces(&tokens) {
            let source = Source {
                text: message[lines.byte(first.span.start)..lines.byte(last.span.end)].into(),
                offset: lines.offset(first.span.start),
                room: None,
            };
            tree::check_depth(piece)?;
            let kind = parse(piece, &source, &lines)?;
            statements.push(Statement { kind, source });
        }
        Ok(statements)
    }

    /// The only statement of a text; an empty one for an empty text.
    ///
    /// # Errors
    /// As [`Statement::split`], and `SyntaxError` for several statements.
    pub fn single(text: &str) -> Result<Statement, SqlError> {
        let mut statements = Statement::split(text)?;
        match statements.len() {
            0 => Ok(Statement {
                kind: StatementKind::Empty,
                source: Source::of("".into()),
            }),
            1 => Ok(statements.remove(0)),
            _ => Err(tree::several()),
        }
    }
}

fn parse(
    piece: &[TokenWithSpan],
    source: &Source,
    lines: &Lines<'_>,
) -> Result<StatementKind, SqlError> {
    let shifted = |mut error: SqlError| {
        error.position = error.position.map(|at| at + source.offset);
        error
    };
    if let Some(utility) = utility::parse(&source.text).map_err(shifted)? {
        return Ok(StatementKind::Utility(Arc::new(utility)));
    }
    Ok(StatementKind::Sql(Arc::new(tree::read(piece, lines)?)))
}

#[cfg(test)]
mod tests {
    use aerostat_types::ErrorKind;

    use super::*;

    #[test]
    fn messages_are_cut_at_semicolons_outside_quotes() {
        let statements = Statement::split("select ';' ; ;\n select 'ä', 2;").unwrap();
        let texts: Vec<_> = statements.iter().map(Statement::text).collect();
        assert_eq!(texts, ["select ';'", "select 'ä', 2"]);
        assert_eq!(statements[1].source.offset, 16);
    }

    #[test]
    fn syntax_errors_say_where() {
        let error = |text: &str| Statement::split(text).err().unwrap();
        assert_eq!(error("selec 1").position, Some(1));
        let later = error("select 1;\nselect from where x");
        assert_eq!(later.message, "syntax error at or near \"where\"");
        assert_eq!(later.position, Some(23));
        assert_eq!(error("select (1").message, "syntax error at end of input");
        assert_eq!(error("select 'abc").message, "unterminated quoted string");
    }

    #[test]
    fn depth_is_bounded() {
        for text in [
            format!("select {}1{}", "(".repeat(10_000), ")".repeat(10_000)),
            format!("select 1{}", " + 1".repeat(100_000)),
            format!("select {}1", "- ".repeat(100_000)),
            format!("select {}true", "not ".repeat(100_000)),
            format!("select 1{}", " union select 1".repeat(10_000)),
        ] {
            assert_eq!(
                Statement::split(&text).err().unwrap().kind,
                ErrorKind::StatementTooComplex
            );
        }
        let wide = format!("select 1 in ({}1)", "1, ".repeat(20_000));
        assert!(Statement::split(&wide).is_ok());
    }
}
