//! From the text of a message to statements.
//!
//! The text is cut into statements by its tokens, so a syntax error in the
//! third does not hide the first two from the client. Each statement goes to
//! our own parser for utility statements first, then to `sqlparser`, whose
//! reading [`spelling`] and [`syntax`] bring to PostgreSQL's. Limits on depth
//! stand here, before anything recursive sees the text.

mod identity;
pub(crate) mod locking;
pub(crate) mod merge;
mod misplaced;
pub(crate) mod modifying;
mod spelling;
mod syntax;
mod uniqueness;

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::{
    ast,
    dialect::PostgreSqlDialect,
    parser::{Parser, ParserError},
    tokenizer::{Location, Token, TokenWithSpan, Tokenizer},
};

mod create_table_as;

pub(crate) use create_table_as::is_without_data;
pub(crate) use spelling::RESERVED;
pub(crate) use uniqueness::no_matching_constraint;

use crate::{
    lines::Lines,
    session::Held,
    utility::{self, Utility},
};

/// How deep expressions and subqueries may nest. `sqlparser` recurses once per
/// level, the planner several times; both fit the stacks of the query threads
/// ([`crate::QUERY_STACK_BYTES`]) at this depth with room to spare.
const NESTING_MAX: usize = 64;

/// How many operators may follow each other in one list item: `1 + 1 + …`
/// makes a tree as deep as it is long.
const OPERATORS_MAX: usize = 2_000;

/// One statement of a message.
#[derive(Clone)]
pub struct Statement {
    pub(crate) kind: StatementKind,
    pub(crate) source: Source,
}

/// What a statement is.
#[derive(Clone)]
pub(crate) enum StatementKind {
    Empty,
    /// One of the fast path's grammar that nobody has needed to parse.
    Unread,
    Utility(Arc<Utility>),
    Sql(Arc<ast::Statement>),
}

/// The text of a statement and where it stands in the message.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) text: Arc<str>,
    /// Characters of the message before the text.
    pub(crate) offset: u32,
    /// What the tree of a long text is charged, as long as anybody has it.
    pub(crate) room: Option<Arc<Held>>,
}

impl Source {
    /// A text that stands alone.
    pub(crate) fn of(text: Arc<str>) -> Self {
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
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, message)
            .tokenize_with_location()
            .map_err(|error| {
                SqlError::new(ErrorKind::SyntaxError, unterminated(&error.message))
                    .with_position(lines.position(error.location))
            })?;
        spelling::refuse_reserved(&tokens, &lines)?;
        let mut statements = Vec::new();
        for piece in tokens.split(|token| token.token == Token::SemiColon) {
            let meaningful =
                |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_) | Token::EOF);
            let (Some(first), Some(last)) = (
                piece.iter().find(meaningful),
                piece.iter().rev().find(meaningful),
            ) else {
                continue;
            };
            let source = Source {
                text: message[lines.byte(first.span.start)..lines.byte(last.span.end)].into(),
                offset: lines.offset(first.span.start),
                room: None,
            };
            check_depth(piece)?;
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
            _ => Err(SqlError::new(
                ErrorKind::SyntaxError,
                "cannot insert multiple commands into a prepared statement",
            )),
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
    let mut tokens = locking::respelled(spelling::respelled(piece, lines)?, lines)?;
    misplaced::refuse(&tokens, lines)?;
    uniqueness::respell(&mut tokens, lines)?;
    merge::respell(&mut tokens, lines)?;
    let removed = create_table_as::remove(&mut tokens);
    let overriding = identity::respell(&mut tokens);
    let mut parser = Parser::new(&PostgreSqlDialect {})
        .with_recursion_limit(NESTING_MAX)
        .with_tokens_with_locations(tokens);
    let parsed = parser.parse_statement().and_then(|mut statement| {
        let next = parser.peek_token();
        if next.token == Token::EOF {
            removed.restore(&mut statement);
            match overriding.restore(&mut statement) {
                true => Ok(statement),
                false => Err(ParserError::ParserError(
                    "OVERRIDING without INSERT".to_owned(),
                )),
            }
        } else {
            parser.expected("end of statement", next)
        }
    });
    match parsed {
        Ok(statement) => {
            syntax::check(&statement, piece, lines)?;
            modifying::check(&statement, lines)?;
            Ok(StatementKind::Sql(Arc::new(statement)))
        }
        Err(ParserError::RecursionLimitExceeded) => Err(too_complex()),
        Err(ParserError::TokenizerError(message) | ParserError::ParserError(message)) => {
            Err(syntax_error(&message, piece, lines))
        }
    }
}

fn too_complex() -> SqlError {
    SqlError::new(ErrorKind::StatementTooComplex, "statement is nested too deeply").with_hint(format!(
        "Expressions and subqueries may nest {NESTING_MAX} levels deep, and a chain may have {OPERATORS_MAX} operators."
    ))
}

/// PostgreSQL's wording, from sqlparser's "Expected: …, found: X at Line: l, Column: c".
fn syntax_error(message: &str, piece: &[TokenWithSpan], lines: &Lines<'_>) -> SqlError {
    let location = location_in(message);
    let token = location.and_then(|at| piece.iter().find(|token| token.span.start == at));
    let error = |text: String| SqlError::new(ErrorKind::SyntaxError, text);
    match (token.map(|token| &token.token), location) {
        (Some(Token::EOF) | None, _) if message.contains("found: EOF") => {
            let end = piece
                .iter()
                .rev()
                .find(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF));
            let error = error("syntax error at end of input".to_owned());
            match end {
                Some(end) => error.with_position(lines.position(end.span.end)),
                None => error,
            }
        }
        (Some(Token::Comma), Some(at)) if syntax::is_third_modifier(piece, at) => SqlError::new(
            ErrorKind::InvalidParameterValue,
            "invalid NUMERIC type modifier",
        )
        .with_position(lines.position(at)),
        (Some(token), Some(at)) => {
            error(format!("syntax error at or near \"{token}\"")).with_position(lines.position(at))
        }
        _ => error(format!("syntax error: {message}")),
    }
}

fn location_in(message: &str) -> Option<Location> {
    let (_, rest) = message.rsplit_once(" at Line: ")?;
    let (line, column) = rest.split_once(", Column: ")?;
    Some(Location {
        line: line.parse().ok()?,
        column: column.trim().parse().ok()?,
    })
}

fn unterminated(message: &str) -> String {
    let lower = message.to_ascii_lowercase();
    if lower.contains("unterminated string literal") {
        "unterminated quoted string".to_owned()
    } else if lower.contains("expected close delimiter '\"'") {
        "unterminated quoted identifier".to_owned()
    } else if lower.contains("unterminated dollar") {
        "unterminated dollar-quoted string".to_owned()
    } else if lower.contains("comment") {
        "unterminated /* comment".to_owned()
    } else {
        format!("syntax error: {message}")
    }
}

/// Refuses what would make trees too deep to walk. Linear in the tokens.
fn check_depth(tokens: &[TokenWithSpan]) -> Result<(), SqlError> {
    let mut operators = vec![0usize];
    for token in tokens {
        match &token.token {
            Token::LParen | Token::LBracket => operators.push(0),
            Token::RParen | Token::RBracket => {
                operators.pop();
                if operators.is_empty() {
                    operators.push(0);
                }
            }
            Token::Comma => reset(&mut operators),
            Token::Whitespace(_) | Token::EOF | Token::SemiColon | Token::Period => {}
            Token::Word(word) if word.quote_style.is_none() => {
                match word.value.to_ascii_uppercase().as_str() {
                    "AND" | "OR" | "NOT" | "UNION" | "EXCEPT" | "INTERSECT" | "CASE" | "JOIN"
                    | "IS" | "COLLATE" => {
                        bump(&mut operators)?;
                    }
                    _ => {}
                }
            }
            Token::Word(_)
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::NationalStringLiteral(_)
            | Token::EscapedStringLiteral(_)
            | Token::HexStringLiteral(_)
            | Token::DollarQuotedString(_)
            | Token::Placeholder(_) => {}
            _ => bump(&mut operators)?,
        }
        if operators.len() > NESTING_MAX * 4 {
            return Err(too_complex());
        }
    }
    Ok(())
}

fn reset(operators: &mut [usize]) {
    if let Some(count) = operators.last_mut() {
        *count = 0;
    }
}

fn bump(operators: &mut [usize]) -> Result<(), SqlError> {
    if let Some(count) = operators.last_mut() {
        *count += 1;
        if *count > OPERATORS_MAX {
            return Err(too_complex());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
