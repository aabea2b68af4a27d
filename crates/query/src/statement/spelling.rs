//! What `sqlparser` does not read, spelled so that it does.
//!
//! | written | handed on |
//! |---|---|
//! | `'a'`, a line break, `'b'` | `'ab'` |
//! | `TABLE t` where a query begins | `SELECT * FROM t` |
//! | `BETWEEN ASYMMETRIC a AND b` | `BETWEEN a AND b` |
//! | `BETWEEN SYMMETRIC a AND b` | `BETWEEN !! a AND b`, which [`crate::plan`] writes as two BETWEENs |
//! | `IN ((SELECT 1), 2)` | `IN (!! (SELECT 1), 2)`, which [`crate::plan`] takes the `!!` from |
//! | `x ~ ANY (a)`, `x LIKE ALL (a)` | `x ~ "any"(a)`, `x LIKE "all"(a)`, which `type_literals` knows |
//! | `trim(BOTH FROM x)` | `trim(BOTH ' ' FROM x)` |
//! | `x ISNULL` | `x IS NULL` |
//! | a name longer than PostgreSQL's | cut |
//! | a string with [`RESERVED`] in it | the same with `E` before it, which no name is read from |
//!
//! The operator `!!`, which PostgreSQL 15 has for text search alone, is refused
//! therefore, and so are numbers that a letter or `_` follows.

use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::{
    keywords::Keyword,
    tokenizer::{Location, Token, TokenWithSpan, Whitespace, Word},
};

use crate::{catalog::NAME_BYTES_MAX, ddl::names, lines::Lines};

/// The tokens of a statement as `sqlparser` understands them.
///
/// # Errors
/// What PostgreSQL's own tokenizer refuses, and where.
pub(super) fn respelled(
    piece: &[TokenWithSpan],
    lines: &Lines<'_>,
) -> Result<Vec<TokenWithSpan>, SqlError> {
    // CREATE does its own cutting, with a notice.
    let cuts = !piece
        .iter()
        .find_map(|token| unquoted(&token.token))
        .is_some_and(|word| word.value.eq_ignore_ascii_case("create"));
    let mut tokens: Vec<TokenWithSpan> = Vec::with_capacity(piece.len());
    // The last token that is no white space, and whether a line ended after it.
    let (mut before, mut line_ended) = (None::<usize>, false);
    for (at, token) in piece.iter().enumerate() {
        if let Token::Whitespace(space) = &token.token {
            line_ended |= matches!(
                space,
                Whitespace::Newline | Whitespace::SingleLineComment { .. }
            );
            tokens.push(token.clone());
            continue;
        }
        check_number(token, before.map(|at| &tokens[at]), lines)?;
        if let (Token::SingleQuotedString(text), true, Some(at)) =
            (&token.token, line_ended, before)
            && let Token::SingleQuotedString(so_far) = &mut tokens[at].token
        {
            so_far.push_str(text);
            tokens[at].span.end = token.span.end;
            line_ended = false;
            continue;
        }
        let previous = before.map(|at| &tokens[at].token);
        let after_between = previous.is_some_and(|token| is_word(token, "between"));
        match unquoted(&token.token).map(|word| word.keyword) {
            Some(Keyword::TABLE) if begins_query(previous, !cuts) => {
                let select = [
                    keyword("SELECT", Keyword::SELECT),
                    Token::Mul,
                    keyword("FROM", Keyword::FROM),
                ];
                tokens.extend(select.map(|spelled| TokenWithSpan::new(spelled, token.span)));
            }
            _ if after_between && is_word(&token.token, "symmetric") => {
                tokens.push(TokenWithSpan::new(Token::DoubleExclamationMark, token.span));
            }
            _ if after_between && is_word(&token.token, "asymmetric") => continue,
            _ if previous.is_some_and(is_match) && is_quantifier(&token.token) => {
                tokens.push(TokenWithSpan::new(quoted(&token.token), token.span));
            }
            Some(Keyword::FROM) if previous.is_some_and(is_side) => {
                let blank = Token::SingleQuotedString(" ".to_owned());
                tokens.push(TokenWithSpan::new(blank, token.span));
                let space = Token::Whitespace(Whitespace::Space);
                tokens.push(TokenWithSpan::new(space, token.span));
                tokens.push(token.clone());
            }
            _ if is_word(&token.token, "isnull") && previous.is_some_and(ends_operand) => {
                let test = [keyword("IS", Keyword::IS), keyword("NULL", Keyword::NULL)];
                tokens.extend(test.map(|spelled| TokenWithSpan::new(spelled, token.span)));
            }
            _ if previous.is_some_and(|token| is_word(token, "in"))
                && begins_with_subquery(&piece[at..]) =>
            {
                tokens.push(token.clone());
                tokens.push(TokenWithSpan::new(Token::DoubleExclamationMark, token.span));
            }
            _ => tokens.push(cut(token, cuts)),
        }
        (before, line_ended) = (Some(tokens.len() - 1), false);
    }
    tokens
        .iter_mut()
        .for_each(|token| keep_string(&mut token.token));
    Ok(tokens)
}

/// `sqlparser` reads a plain string where a name stands, but none with escapes.
fn keep_string(token: &mut Token) {
    if let Token::SingleQuotedString(text) = token
        && text.contains(RESERVED)
    {
        *token = Token::EscapedStringLiteral(std::mem::take(text));
    }
}

/// The character that the names begin with, or hold, which statements are rewritten to: of
/// relations, columns and functions that only their makers may name. No name in a user's text
/// has it, so that none of these is reached by text.
pub(crate) const RESERVED: char = '\u{1}';

/// Refuses names with [`RESERVED`], and those with NUL, of which PostgreSQL has none.
///
/// # Errors
/// `InvalidName`, and where.
pub(super) fn refuse_reserved(tokens: &[TokenWithSpan], lines: &Lines<'_>) -> Result<(), SqlError> {
    let is_refused = |token: &&TokenWithSpan| match &token.token {
        Token::Word(word) => word.value.contains([RESERVED, '\0']),
        _ => false,
    };
    let Some(refused) = tokens.iter().find(is_refused) else {
        return Ok(());
    };
    let message = "names may not contain the characters U+0000 and U+0001";
    let error = SqlError::new(ErrorKind::InvalidName, message);
    Err(error.with_position(lines.position(refused.span.start)))
}

fn unquoted(token: &Token) -> Option<&Word> {
    match token {
        Token::Word(word) if word.quote_style.is_none() => Some(word),
        _ => None,
    }
}

fn is_word(token: &Token, wanted: &str) -> bool {
    unquoted(token).is_some_and(|word| word.value.eq_ignore_ascii_case(wanted))
}

/// Whether this is an operator that the parser takes no ANY and ALL behind.
fn is_match(token: &Token) -> bool {
    matches!(
        token,
        Token::Tilde
            | Token::TildeAsterisk
            | Token::ExclamationMarkTilde
            | Token::ExclamationMarkTildeAsterisk
            | Token::DoubleTilde
            | Token::DoubleTildeAsterisk
            | Token::ExclamationMarkDoubleTilde
            | Token::ExclamationMarkDoubleTildeAsterisk
    ) || is_word(token, "like")
        || is_word(token, "ilike")
}

/// Whether this is the side that `trim` cuts at.
fn is_side(token: &Token) -> bool {
    ["both", "leading", "trailing"]
        .iter()
        .any(|word| is_word(token, word))
}

fn is_quantifier(token: &Token) -> bool {
    ["any", "some", "all"]
        .iter()
        .any(|word| is_word(token, word))
}

/// Whether these tokens begin a list whose first item begins with a subquery, `((SELECT 1), 2)`,
/// which the parser would take for a query in parentheses.
fn begins_with_subquery(tokens: &[TokenWithSpan]) -> bool {
    let tokens = tokens.iter().map(|token| &token.token);
    let mut tokens = tokens.filter(|token| !matches!(token, Token::Whitespace(_)));
    if tokens.next() != Some(&Token::LParen) || tokens.next() != Some(&Token::LParen) {
        return false;
    }
    let mut depth = 1_usize;
    let first = tokens.find(|token| {
        depth += usize::from(**token == Token::LParen);
        **token != Token::LParen
    });
    let queries = ["select", "values", "with", "table"];
    if !first.is_some_and(|token| queries.iter().any(|word| is_word(token, word))) {
        return false;
    }
    for token in tokens.by_ref() {
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    let of_query = [
        "union",
        "intersect",
        "except",
        "order",
        "limit",
        "offset",
        "fetch",
        "for",
    ];
    match tokens.next() {
        None | Some(Token::RParen) => false,
        Some(next) => !of_query.iter().any(|word| is_word(next, word)),
    }
}

/// A keyword as a name.
fn quoted(token: &Token) -> Token {
    let text = token.to_string().to_ascii_lowercase();
    Token::make_word(&text, Some('"'))
}

/// Whether an operand may end with this token.
fn ends_operand(token: &Token) -> bool {
    match token {
        Token::RParen | Token::RBracket | Token::Number(..) | Token::SingleQuotedString(_) => true,
        Token::Word(word) => {
            word.keyword == Keyword::NoKeyword
                || word.quote_style.is_some()
                || is_word(token, "null")
                || is_word(token, "true")
                || is_word(token, "false")
        }
        _ => false,
    }
}

fn keyword(text: &str, keyword: Keyword) -> Token {
    Token::Word(Word {
        value: text.to_owned(),
        quote_style: None,
        keyword,
    })
}

/// Whether a query may begin after this token. Behind AS a name stands everywhere but in
/// CREATE.
fn begins_query(before: Option<&Token>, creates: bool) -> bool {
    let words = ["union", "except", "intersect", "all", "explain"];
    match before {
        None | Some(Token::LParen) => true,
        Some(token) if is_word(token, "as") => creates,
        Some(token) => words.iter().any(|word| is_word(token, word)),
    }
}

fn check_number(
    token: &TokenWithSpan,
    before: Option<&TokenWithSpan>,
    lines: &Lines<'_>,
) -> Result<(), SqlError> {
    let junk = |number: &str, start: Location| {
        let message = format!("trailing junk after numeric literal at or near \"{number}\"");
        Err(SqlError::new(ErrorKind::SyntaxError, message).with_position(lines.position(start)))
    };
    match (&token.token, before) {
        (Token::Number(digits, _), _) => match digits.find('_') {
            Some(at) => junk(&digits[..=at], token.span.start),
            None => Ok(()),
        },
        (Token::Word(word), Some(before)) if before.span.end == token.span.start => {
            match (&before.token, word.quote_style, word.value.chars().next()) {
                (Token::Number(digits, _), None, Some(first)) => {
                    junk(&format!("{digits}{first}"), before.span.start)
                }
                _ => Ok(()),
            }
        }
        (Token::DoubleExclamationMark, _) => {
            let message = "operator does not exist: !!";
            let position = lines.position(token.span.start);
            Err(SqlError::new(ErrorKind::UndefinedFunction, message).with_position(position))
        }
        _ => Ok(()),
    }
}

/// Names beyond PostgreSQL's length are cut, so that a table is found by the name it was made with.
fn cut(token: &TokenWithSpan, cuts: bool) -> TokenWithSpan {
    let mut token = token.clone();
    if let Token::Word(word) = &mut token.token
        && cuts
        && word.value.len() > NAME_BYTES_MAX
    {
        word.value.truncate(names::cut(&word.value).len());
    }
    token
}

#[cfg(test)]
mod tests {
    use crate::statement::{Statement, StatementKind};

    fn parsed(text: &str) -> String {
        match Statement::single(text).unwrap().kind {
            StatementKind::Sql(statement) => statement.to_string(),
            _ => panic!("not SQL"),
        }
    }

    #[test]
    fn postgresqls_spellings_are_understood() {
        for (written, read) in [
            ("SELECT 'a'\n'b'", "SELECT 'ab'"),
            ("SELECT 'a' -- and\n  'b'\n\n'c'", "SELECT 'abc'"),
            ("TABLE \"Q\"", "SELECT * FROM \"Q\""),
            (
                "TABLE a UNION ALL TABLE b",
                "SELECT * FROM a UNION ALL SELECT * FROM b",
            ),
            ("SELECT 1 AS table", "SELECT 1 AS table"),
            (
                "CREATE VIEW v AS TABLE a",
                "CREATE VIEW v AS SELECT * FROM a",
            ),
            (
                "SELECT * FROM (TABLE a) AS x",
                "SELECT * FROM (SELECT * FROM a) AS x",
            ),
            (
                "SELECT 1 BETWEEN SYMMETRIC 3 AND 0",
                "SELECT 1 BETWEEN !!3 AND 0",
            ),
            (
                "SELECT 1 BETWEEN asymmetric 3 AND 0",
                "SELECT 1 BETWEEN 3 AND 0",
            ),
        ] {
            assert_eq!(parsed(written), read);
        }
    }

    #[test]
    fn what_its_tokenizer_refuses_is_refused() {
        for (text, message, position) in [
            (
                "SELECT 1_000",
                "trailing junk after numeric literal at or near \"1_\"",
                8,
            ),
            (
                "SELECT 1a",
                "trailing junk after numeric literal at or near \"1a\"",
                8,
            ),
            ("SELECT !! 5", "operator does not exist: !!", 8),
        ] {
            let error = Statement::single(text).err().unwrap();
            assert_eq!(
                (error.message.as_str(), error.position),
                (message, Some(position))
            );
        }
        assert!(Statement::single("SELECT 1 a, 1.5e3, 'a' \"b\"").is_ok());
    }
}
