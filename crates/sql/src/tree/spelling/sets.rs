//! Keys of grouping sets that begin with a parenthesis.
//!
//! `sqlparser` takes the first parenthesis of an element of ROLLUP, CUBE and GROUPING SETS for
//! one around several keys. If it belongs to a key itself, another is put around the element:
//!
//! | written | handed on |
//! |---|---|
//! | `ROLLUP ((a + 1) * 2, b)` | `ROLLUP (((a + 1) * 2), b)` |
//! | `CUBE ((SELECT 1), b)` | `CUBE (((SELECT 1)), b)` |

use std::borrow::Cow;

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::is_word;

/// The tokens of a statement with parentheses around such keys.
pub(super) fn enclosed(piece: &[TokenWithSpan]) -> Cow<'_, [TokenWithSpan]> {
    let mut keys = Vec::new();
    let (mut groups, mut before) = (false, None);
    for (at, token) in piece.iter().enumerate() {
        if is_space(token) {
            continue;
        }
        let token = &token.token;
        groups |= is_word(token, "group");
        let begins = is_word(token, "rollup")
            || is_word(token, "cube")
            || is_word(token, "sets") && before.is_some_and(|word| is_word(word, "grouping"));
        if groups && begins {
            find_keys(piece, at + 1, &mut keys);
        }
        before = Some(token);
    }
    if keys.is_empty() {
        return Cow::Borrowed(piece);
    }
    let mut tokens = Vec::with_capacity(piece.len() + 2 * keys.len());
    for (at, token) in piece.iter().enumerate() {
        let beside = |parenthesis| TokenWithSpan::new(parenthesis, token.span);
        if keys.iter().any(|(first, _)| *first == at) {
            tokens.push(beside(Token::LParen));
        }
        tokens.push(token.clone());
        if keys.iter().any(|(_, last)| *last == at) {
            tokens.push(beside(Token::RParen));
        }
    }
    Cow::Owned(tokens)
}

fn is_space(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

/// The first and last tokens of such keys in the list that begins here.
fn find_keys(piece: &[TokenWithSpan], at: usize, keys: &mut Vec<(usize, usize)>) {
    let tokens = piece.iter().enumerate().skip(at);
    let mut tokens = tokens.filter(|(_, token)| !is_space(token));
    let begins = tokens.next();
    if begins.is_none_or(|(_, token)| token.token != Token::LParen) {
        return;
    }
    let mut depth = 0_usize;
    let mut element: Vec<usize> = Vec::new();
    for (at, token) in tokens {
        let ends = depth == 0 && matches!(token.token, Token::Comma | Token::RParen);
        if ends {
            keys.extend(key_of(piece, &element));
            element.clear();
            if token.token == Token::RParen {
                return;
            }
            continue;
        }
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        element.push(at);
    }
}

/// The ends of an element that is a single key and begins with a parenthesis of its own.
fn key_of(piece: &[TokenWithSpan], element: &[usize]) -> Option<(usize, usize)> {
    let (first, last) = (*element.first()?, *element.last()?);
    if piece[first].token != Token::LParen {
        return None;
    }
    let mut depth = 0_usize;
    let closing = element.iter().find(|at| {
        match piece[**at].token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    let queries = ["select", "values", "with", "table"];
    let begins = element.get(1).map(|at| &piece[*at].token);
    let is_query = begins.is_some_and(|token| queries.iter().any(|word| is_word(token, word)));
    (is_query || *closing? != last).then_some((first, last))
}
