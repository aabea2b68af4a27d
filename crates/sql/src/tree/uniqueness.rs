//! The syntax of UNIQUE and ON CONFLICT that `sqlparser` does not read.
//!
//! | written | handed on |
//! |---|---|
//! | `a integer UNIQUE NULLS NOT DISTINCT` | `a integer UNIQUE NOT ENFORCED`, which PostgreSQL 15 does not have |
//! | `a integer UNIQUE NULLS DISTINCT` | `a integer UNIQUE` |
//! | `ON CONFLICT (a) WHERE b > 1 DO …` | `ON CONFLICT (a) DO …` |
//!
//! A constraint of a table, `UNIQUE NULLS NOT DISTINCT (a)`, is read as it is. The condition of
//! ON CONFLICT chooses among partial indexes, of which there are none: an index of all rows suits
//! any condition.

use aerostat_types::{ErrorKind, SqlError};
use sqlparser::{
    keywords::Keyword,
    tokenizer::{Token, TokenWithSpan, Word},
};

use crate::lines::Lines;

/// Spells the tokens of a statement so that `sqlparser` reads them.
///
/// # Errors
/// `SyntaxError` for what PostgreSQL does not read; `InvalidColumnReference` for ON
/// CONFLICT with an expression, which no index has.
pub(super) fn respell(tokens: &mut Vec<TokenWithSpan>, lines: &Lines<'_>) -> Result<(), SqlError> {
    let words: Vec<usize> = (0..tokens.len())
        .filter(|&at| !matches!(tokens[at].token, Token::Whitespace(_) | Token::EOF))
        .collect();
    let is = |nth: usize, word: &str| words.get(nth).is_some_and(|&at| has(&tokens[at], word));
    let begins = |nth: usize, all: &[&str]| (nth..).zip(all).all(|(nth, word)| is(nth, word));
    let opens = |nth: usize| {
        let token = words.get(nth).map(|&at| &tokens[at].token);
        token == Some(&Token::LParen)
    };
    let mut dropped = Vec::new();
    let mut enforced = Vec::new();
    for nth in 0..words.len() {
        let creates = is(0, "create");
        if creates && begins(nth, &["unique", "not", "enforced"]) {
            let at = &tokens[words[nth + 2]];
            let message = format!("syntax error at or near \"{}\"", at.token);
            return Err(SqlError::new(ErrorKind::SyntaxError, message)
                .with_position(lines.position(at.span.start)));
        } else if creates && begins(nth, &["unique", "nulls", "not", "distinct"]) && !opens(nth + 4)
        {
            dropped.push(words[nth + 1]);
            enforced.push(words[nth + 3]);
        } else if creates && begins(nth, &["unique", "nulls", "distinct"]) && !opens(nth + 3) {
            dropped.extend([words[nth + 1], words[nth + 2]]);
        } else if begins(nth, &["on", "conflict"]) && opens(nth + 2) {
            dropped.extend(conflict_condition(tokens, &words[nth + 2..])?);
        }
    }
    for at in enforced {
        tokens[at].token = Token::Word(Word {
            value: "ENFORCED".to_owned(),
            quote_style: None,
            keyword: Keyword::ENFORCED,
        });
    }
    for at in dropped.into_iter().rev() {
        tokens.remove(at);
    }
    Ok(())
}

/// The tokens from WHERE up to DO, after the parenthesis that begins here.
fn conflict_condition(tokens: &[TokenWithSpan], words: &[usize]) -> Result<Vec<usize>, SqlError> {
    let mut depth = 0;
    let closing = words.iter().position(|&at| {
        match tokens[at].token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth != 1
    });
    match closing {
        None => Ok(Vec::new()),
        Some(at) if tokens[words[at]].token == Token::LParen => Err(no_matching_constraint()),
        Some(at) => {
            let rest = &words[at + 1..];
            let is_where = rest.first().is_some_and(|&at| has(&tokens[at], "where"));
            let end = rest.iter().position(|&at| has(&tokens[at], "do"));
            Ok(match end {
                Some(end) if is_where => rest[..end].to_vec(),
                _ => Vec::new(),
            })
        }
    }
}

/// The error for an ON CONFLICT that no unique index suits.
pub fn no_matching_constraint() -> SqlError {
    SqlError::new(
        ErrorKind::InvalidColumnReference,
        "there is no unique or exclusion constraint matching the ON CONFLICT specification",
    )
}

pub(super) fn has(token: &TokenWithSpan, wanted: &str) -> bool {
    matches!(&token.token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use aerostat_types::ErrorKind;

    use crate::statement::{Statement, StatementKind};

    fn parsed(text: &str) -> String {
        match Statement::single(text).unwrap().kind {
            StatementKind::Sql(statement) => statement.to_string(),
            _ => panic!("not SQL"),
        }
    }

    #[test]
    fn uniqueness_is_understood() {
        for (written, read) in [
            (
                "CREATE TABLE t (a INT UNIQUE NULLS NOT DISTINCT, b INT UNIQUE NULLS DISTINCT, c INT UNIQUE)",
                "CREATE TABLE t (a INT UNIQUE NOT ENFORCED, b INT UNIQUE, c INT UNIQUE)",
            ),
            (
                "CREATE TABLE t (a INT, UNIQUE NULLS NOT DISTINCT (a))",
                "CREATE TABLE t (a INT, UNIQUE NULLS NOT DISTINCT (a))",
            ),
            (
                "INSERT INTO t VALUES (1) ON CONFLICT (a) WHERE b > (1 + 2) DO NOTHING",
                "INSERT INTO t VALUES (1) ON CONFLICT (a) DO NOTHING",
            ),
            (
                "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 1 WHERE t.a > 2",
                "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 1 WHERE t.a > 2",
            ),
        ] {
            let squeezed = |text: &str| text.replace("CONFLICT(", "CONFLICT (");
            assert_eq!(squeezed(&parsed(written)), read);
        }
    }

    #[test]
    fn what_postgresql_refuses_is_refused() {
        let error = |text: &str| Statement::single(text).err().unwrap();
        let written = error("CREATE TABLE t (a INT UNIQUE NOT ENFORCED)");
        assert_eq!(written.message, "syntax error at or near \"ENFORCED\"");
        let expression = error("INSERT INTO t VALUES (1) ON CONFLICT (lower(a)) DO NOTHING");
        assert_eq!(expression.kind, ErrorKind::InvalidColumnReference);
    }
}
