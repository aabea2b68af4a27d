//! Spellings that `sqlparser` does not read, rewritten so that it does.
//!
//! | written | handed on |
//! |---|---|
//! | `'a'`, a line break, `'b'` | `'ab'` |
//! | `TABLE t` where a query begins | `SELECT * FROM t` |
//! | `BETWEEN ASYMMETRIC a AND b` | `BETWEEN a AND b` |
//! | `BETWEEN SYMMETRIC a AND b` | `BETWEEN !! a AND b`, which `plan` writes as two BETWEENs |
//! | `IN ((SELECT 1), 2)` | `IN (!! (SELECT 1), 2)`, which `plan` takes the `!!` from |
//! | `x ~ ANY (a)`, `x LIKE ALL (a)` | `x ~ "any"(a)`, `x LIKE "all"(a)`, which `type_literals` knows |
//! | `ROLLUP ((a + 1) * 2, b)` | `ROLLUP (((a + 1) * 2), b)` |
//! | `trim(BOTH FROM x)` | `trim(BOTH ' ' FROM x)` |
//! | `x ISNULL` | `x IS NULL` |
//! | `interval(2) 'a'` | `CAST('a' AS interval(2))`, as the parser leaves such digits out |
//! | a name longer than PostgreSQL's | cut |
//! | a string with [`RESERVED`] in it | the same with `E` before it, which no name is read from |
//!
//! Therefore the operator `!!`, which PostgreSQL 15 has only for text search, is refused, and so
//! are numbers followed by a letter or `_`.

use aerostat_types::{ErrorKind, SqlError};
use sqlparser::{
    keywords::Keyword,
    tokenizer::{Location, Token, TokenWithSpan, Whitespace, Word},
};

mod sets;

use crate::{
    lines::Lines,
    names::{self, NAME_BYTES_MAX},
};

/// The tokens of a statement as `sqlparser` understands them.
///
/// # Errors
/// What PostgreSQL's own tokenizer refuses, and where.
pub(super) fn respelled(
    piece: &[TokenWithSpan],
    lines: &Lines<'_>,
) -> Result<Vec<TokenWithSpan>, SqlError> {
    let enclosed = sets::enclosed(piece);
    let piece = &*enclosed;
    // CREATE does its own cutting, with a notice.
    let cuts = !piece
        .iter()
        .find_map(|token| unquoted(&token.token))
        .is_some_and(|word| word.value.eq_ignore_ascii_case("create"));
    let mut tokens: Vec<TokenWithSpan> = Vec::with_capacity(piece.len());
    // The last token that is no white space, whether a line ended after it, and whether a comment did that
    // strings do not go on behind.
    let (mut before, mut line_ended, mut commented) = (None::<usize>, false, false);
    for (at, token) in piece.iter().enumerate() {
        if let Token::Whitespace(space) = &token.token {
            line_ended |= matches!(
                space,
                Whitespace::Newline | Whitespace::SingleLineComment { .. }
            );
            commented |= matches!(space, Whitespace::MultiLineComment(_));
            tokens.push(token.clone());
            continue;
        }
        check_number(token, before.map(|at| &tokens[at]), lines)?;
        if let (Token::SingleQuotedString(text), true, Some(at)) =
            (&token.token, line_ended && !commented, before)
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
        (before, line_ended, commented) = (Some(tokens.len() - 1), false, false);
    }
    let mut tokens = cast_intervals(tokens, lines)?;
    tokens
        .iter_mut()
        .for_each(|token| keep_string(&mut token.token));
    Ok(tokens)
}

/// Writes intervals with digits before their strings as casts.
///
/// # Errors
/// `SyntaxError` for fields there, which PostgreSQL has behind the string, and without digits.
fn cast_intervals(
    tokens: Vec<TokenWithSpan>,
    lines: &Lines<'_>,
) -> Result<Vec<TokenWithSpan>, SqlError> {
    let mut literals = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if is_word(&token.token, "interval")
            && let Some(length) = digits_and_string(&tokens[at + 1..], lines)?
        {
            literals.push((at, at + length));
        }
    }
    if literals.is_empty() {
        return Ok(tokens);
    }
    let mut spelled = Vec::with_capacity(tokens.len() + 4 * literals.len());
    let mut done = 0;
    for (first, string) in literals {
        let like_first = |token| TokenWithSpan::new(token, tokens[first].span);
        spelled.extend_from_slice(&tokens[done..first]);
        spelled.push(like_first(keyword("CAST", Keyword::CAST)));
        spelled.push(like_first(Token::LParen));
        spelled.push(tokens[string].clone());
        spelled.push(like_first(keyword("AS", Keyword::AS)));
        spelled.extend_from_slice(&tokens[first..string]);
        spelled.push(like_first(Token::RParen));
        done = string + 1;
    }
    spelled.extend_from_slice(&tokens[done..]);
    Ok(spelled)
}

/// How many tokens `(2) '…'` has, if that stands here.
fn digits_and_string(
    tokens: &[TokenWithSpan],
    lines: &Lines<'_>,
) -> Result<Option<usize>, SqlError> {
    let is_space = |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(_));
    let rest = tokens.iter().enumerate();
    let mut rest = rest.filter(|(_, token)| !is_space(token)).peekable();
    let near = |token: &TokenWithSpan| {
        let message = format!("syntax error at or near \"{}\"", token.token);
        let position = lines.position(token.span.start);
        Err(SqlError::new(ErrorKind::SyntaxError, message).with_position(position))
    };
    let mut fields = None;
    while let Some((_, field)) = rest.next_if(|(_, token)| is_field(&token.token)) {
        fields = fields.or(Some(field));
    }
    let has_digits = rest
        .next_if(|(_, token)| token.token == Token::LParen)
        .is_some();
    if has_digits {
        let digits = rest.next_if(|(_, token)| matches!(token.token, Token::Number(..)));
        let close = rest.next_if(|(_, token)| token.token == Token::RParen);
        if digits.is_none() || close.is_none() {
            return Ok(None);
        }
    }
    let Some((string, _)) = rest.next_if(|(_, token)| is_string(&token.token)) else {
        return Ok(None);
    };
    match (fields, rest.peek()) {
        (Some(field), _) => near(field),
        (None, Some((_, field))) if has_digits && is_field(&field.token) => near(field),
        _ => Ok(has_digits.then_some(string + 1)),
    }
}

/// Whether this is a part of what an interval's fields are written with.
fn is_field(token: &Token) -> bool {
    ["year", "month", "day", "hour", "minute", "second", "to"]
        .iter()
        .any(|word| is_word(token, word))
}

fn is_string(token: &Token) -> bool {
    matches!(
        token,
        Token::SingleQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::UnicodeStringLiteral(_)
            | Token::DollarQuotedString(_)
    )
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
pub const RESERVED: char = '\u{1}';

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
        // `0x1f`, which is no number before PostgreSQL 16, or `x'1f'`, which is a bit string.
        (Token::HexStringLiteral(digits), _) => match spells_number(token, digits) {
            true => junk(&format!("0x{digits}"), token.span.start),
            false => {
                let message = "type bit is not supported";
                let position = lines.position(token.span.start);
                let error = SqlError::new(ErrorKind::FeatureNotSupported, message);
                Err(error.with_position(position))
            }
        },
        (Token::DoubleExclamationMark, _) => {
            let message = "operator does not exist: !!";
            let position = lines.position(token.span.start);
            Err(SqlError::new(ErrorKind::UndefinedFunction, message).with_position(position))
        }
        _ => Ok(()),
    }
}

/// Whether a literal of these digits is spelled `0x…`, with no quotes around them.
fn spells_number(token: &TokenWithSpan, digits: &str) -> bool {
    let (start, end) = (token.span.start, token.span.end);
    let length = u64::try_from(digits.len()).unwrap_or(u64::MAX);
    start.line == end.line && end.column - start.column == length.saturating_add(2)
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
            (
                "SELECT 1 FROM t GROUP BY ROLLUP ((a + 1) * 2, (b, c), (d))",
                "SELECT 1 FROM t GROUP BY ROLLUP ((a + 1) * 2, (b, c), d)",
            ),
            (
                "SELECT interval(0) '1.5', interval '1', x::interval(1)",
                "SELECT CAST('1.5' AS INTERVAL(0)), INTERVAL '1', x::INTERVAL(1)",
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
            (
                "SELECT 0x1f",
                "trailing junk after numeric literal at or near \"0x1f\"",
                8,
            ),
            ("SELECT x'1f'", "type bit is not supported", 8),
            (
                "SELECT 'a'\n/* no */\n'b'",
                "syntax error at or near \"'b'\"",
                21,
            ),
            (
                "SELECT interval day to second(2) '1'",
                "syntax error at or near \"day\"",
                17,
            ),
            (
                "SELECT interval(2) '1' second",
                "syntax error at or near \"second\"",
                24,
            ),
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
