//! From a statement's text to `sqlparser`'s tree; `spelling` and `syntax` make its reading
//! PostgreSQL's. Limits on depth are applied here, before anything recursive sees the text.

mod create_table_as;
mod identity;
pub mod locking;
pub mod merge;
mod misplaced;
pub mod modifying;
mod spelling;
mod syntax;
mod uniqueness;

use aerostat_types::{ErrorKind, SqlError};
use sqlparser::{
    ast,
    dialect::PostgreSqlDialect,
    parser::{Parser, ParserError},
    tokenizer::{Location, Token, TokenWithSpan, Tokenizer},
};

pub use create_table_as::is_without_data;
pub use spelling::RESERVED;
pub use uniqueness::no_matching_constraint;

use crate::lines::Lines;

/// How deep expressions and subqueries may nest. `sqlparser` recurses once per
/// level, the planner several times; both fit the stacks of the query threads
/// (`QUERY_STACK_BYTES`) at this depth with room to spare.
const NESTING_MAX: usize = 64;

/// How many operators may follow each other in one list item: `1 + 1 + …`
/// makes a tree as deep as it is long.
const OPERATORS_MAX: usize = 2_000;

/// The tokens of a message.
///
/// # Errors
/// `SyntaxError` with a position.
pub(crate) fn tokens(message: &str, lines: &Lines<'_>) -> Result<Vec<TokenWithSpan>, SqlError> {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, message)
        .tokenize_with_location()
        .map_err(|error| {
            SqlError::new(ErrorKind::SyntaxError, unterminated(&error.message))
                .with_position(lines.position(error.location))
        })?;
    spelling::refuse_reserved(&tokens, lines)?;
    Ok(tokens)
}

/// The statements of a message, cut at its semicolons, but for those without a token, each with its
/// first and its last one.
pub(crate) fn pieces(
    tokens: &[TokenWithSpan],
) -> impl Iterator<Item = (&[TokenWithSpan], &TokenWithSpan, &TokenWithSpan)> {
    let is_meant =
        |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_) | Token::EOF);
    tokens
        .split(|token| token.token == Token::SemiColon)
        .filter_map(move |piece| {
            let first = piece.iter().find(is_meant)?;
            let last = piece.iter().rev().find(is_meant)?;
            Some((piece, first, last))
        })
}

/// The tree of a text that is one statement, none of those with a grammar of our own.
///
/// # Errors
/// `SyntaxError` with a position, `StatementTooComplex` beyond the limits.
pub(crate) fn of(text: &str) -> Result<ast::Statement, SqlError> {
    let lines = Lines::new(text);
    let tokens = tokens(text, &lines)?;
    let mut pieces = pieces(&tokens);
    let piece = pieces.next().map_or(&tokens[..], |(piece, ..)| piece);
    if pieces.next().is_some() {
        return Err(several());
    }
    check_depth(piece)?;
    read(piece, &lines)
}

/// The error for several statements where there can be one.
pub(crate) fn several() -> SqlError {
    let message = "cannot insert multiple commands into a prepared statement";
    SqlError::new(ErrorKind::SyntaxError, message)
}

/// The tree of a statement's tokens.
///
/// # Errors
/// As [`of`].
pub(crate) fn read(piece: &[TokenWithSpan], lines: &Lines<'_>) -> Result<ast::Statement, SqlError> {
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
            Ok(statement)
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
pub(crate) fn check_depth(tokens: &[TokenWithSpan]) -> Result<(), SqlError> {
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
