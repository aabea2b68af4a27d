//! DEFERRABLE and INITIALLY DEFERRED after constraints that cannot be deferred (NOT NULL, and
//! CHECK of a column or of a table), refused in PostgreSQL's words.

use aerostat_types::{ErrorKind, SqlError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::uniqueness::has;
use crate::lines::Lines;

/// Refuses what no CHECK and no NOT NULL may say.
///
/// # Errors
/// `FeatureNotSupported` for a CHECK of a table, `SyntaxError` for what a column says.
pub(super) fn refuse(tokens: &[TokenWithSpan], lines: &Lines<'_>) -> Result<(), SqlError> {
    let words: Vec<&TokenWithSpan> = tokens
        .iter()
        .filter(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF))
        .collect();
    let is = |nth: usize, word: &str| words.get(nth).is_some_and(|token| has(token, word));
    if !is(0, "create") && !is(0, "alter") {
        return Ok(());
    }
    for nth in 1..words.len() {
        let end = if is(nth, "check") {
            behind_parenthesis(&words, nth + 1)
        } else if is(nth, "not") && is(nth + 1, "null") {
            nth + 2
        } else {
            continue;
        };
        let clause = if is(end, "deferrable") {
            "DEFERRABLE"
        } else if is(end, "initially") && is(end + 1, "deferred") {
            "INITIALLY DEFERRED"
        } else {
            continue;
        };
        if is(nth, "check") && begins_constraint(&words, nth) {
            return Err(SqlError::new(
                ErrorKind::FeatureNotSupported,
                "CHECK constraints cannot be marked DEFERRABLE",
            ));
        }
        let error = SqlError::new(ErrorKind::SyntaxError, format!("misplaced {clause} clause"));
        return Err(error.with_position(lines.position(words[end].span.start)));
    }
    Ok(())
}

/// Where what begins here with a parenthesis has ended.
fn behind_parenthesis(words: &[&TokenWithSpan], from: usize) -> usize {
    let mut depth = 0;
    for (nth, token) in words.iter().enumerate().skip(from) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return nth + 1;
        }
    }
    words.len()
}

/// Whether a constraint that is none of a column's begins here, or with its name before.
fn begins_constraint(words: &[&TokenWithSpan], nth: usize) -> bool {
    let is_named = nth >= 2 && has(words[nth - 2], "constraint");
    let before = if is_named { nth - 2 } else { nth };
    before.checked_sub(1).is_some_and(|at| {
        let token = words[at];
        matches!(token.token, Token::LParen | Token::Comma) || has(token, "add")
    })
}

#[cfg(test)]
mod tests {
    use aerostat_types::ErrorKind;

    use crate::statement::Statement;

    #[test]
    fn what_cannot_be_put_off_is_refused() {
        let error = |text: &str| Statement::single(text).err().unwrap();
        for (text, clause) in [
            ("CREATE TABLE t (a INT NOT NULL DEFERRABLE)", "DEFERRABLE"),
            (
                "CREATE TABLE t (a INT CHECK ((a) > 0) DEFERRABLE)",
                "DEFERRABLE",
            ),
            (
                "CREATE TABLE t (a INT CONSTRAINT c CHECK (a > 0) INITIALLY DEFERRED)",
                "INITIALLY DEFERRED",
            ),
        ] {
            let refused = error(text);
            assert_eq!(refused.kind, ErrorKind::SyntaxError, "{text}");
            assert_eq!(refused.message, format!("misplaced {clause} clause"));
        }
        for text in [
            "CREATE TABLE t (a INT, CHECK (a > 0) DEFERRABLE)",
            "CREATE TABLE t (a INT, CONSTRAINT c CHECK (a > 0) INITIALLY DEFERRED)",
        ] {
            assert_eq!(error(text).kind, ErrorKind::FeatureNotSupported, "{text}");
        }
        let deferrable = "CREATE TABLE t (a INT NOT NULL UNIQUE DEFERRABLE, CHECK (a > 0))";
        assert!(Statement::single(deferrable).is_ok());
    }
}
