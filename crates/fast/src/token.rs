//! Words, numbers, strings and signs of a statement's text.
//!
//! Only what the grammar uses: a comment, an unknown operator, or a string of another kind than
//! `'…'` ends the reading.

/// A piece of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A word, in lower case.
    Word(String),
    /// A word in double quotes, as it stands.
    Quoted(String),
    /// Digits.
    Integer(i64),
    /// Digits with a point: all digits as a number, and how many stand after the point.
    Decimal(i128, u8),
    /// A string.
    Text(String),
    /// `$1` is 0.
    Parameter(usize),
    /// A comparison, or a sign of one character.
    Sign(Sign),
}

/// What is neither word nor value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    Comma,
    Point,
    Open,
    Close,
    Plus,
    Minus,
    Star,
    Equal,
    Unequal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Semicolon,
    Cast,
    OpenBracket,
    CloseBracket,
}

/// Digits that a decimal may have, as the widest numeric.
const DIGITS_MAX: usize = 38;

/// The highest number of a parameter on the wire.
pub(crate) const PARAMETERS_MAX: usize = 65_535;

/// The tokens of a text; `None` if it has anything else.
pub(crate) fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::with_capacity(32);
    let mut at = 0;
    while let Some(token) = next(text, &mut at)? {
        tokens.push(token);
    }
    Some(tokens)
}

/// The tokens of a text up to a word, and where that ends; `None` if there is anything else
/// before it, or more than so many tokens.
pub(crate) fn tokens_before(
    text: &str,
    word: &str,
    tokens_max: usize,
) -> Option<(Vec<Token>, usize)> {
    let mut tokens = Vec::with_capacity(32);
    let mut at = 0;
    while tokens.len() < tokens_max {
        match next(text, &mut at)?? {
            Token::Word(found) if found == word => return Some((tokens, at)),
            token => tokens.push(token),
        }
    }
    None
}

/// The token at a place, which is moved behind it; `Some(None)` at the end of the text.
fn next(text: &str, at: &mut usize) -> Option<Option<Token>> {
    let bytes = text.as_bytes();
    while let Some(&byte) = bytes.get(*at) {
        let (token, end) = match byte {
            b' ' | b'\t' | b'\n' | b'\r' | b'\x0c' => {
                *at += 1;
                continue;
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => word(text, *at)?,
            b'"' => quoted(text, *at)?,
            b'0'..=b'9' => number(text, *at)?,
            b'\'' => string(text, *at)?,
            b'$' => parameter(text, *at)?,
            _ => {
                let (sign, width) = sign(byte, bytes.get(*at + 1).copied())?;
                (Token::Sign(sign), *at + width)
            }
        };
        *at = end;
        return Some(Some(token));
    }
    Some(None)
}

fn word(text: &str, from: usize) -> Option<(Token, usize)> {
    let bytes = text.as_bytes();
    let end = end_of(bytes, from, |byte| {
        byte.is_ascii_alphanumeric() || byte == b'_'
    });
    // `$` and letters beyond ASCII belong to the word; `e'…'` is no word.
    let next = bytes.get(end);
    if next.is_some_and(|&next| !next.is_ascii() || matches!(next, b'$' | b'\'')) {
        return None;
    }
    Some((Token::Word(text[from..end].to_ascii_lowercase()), end))
}

fn quoted(text: &str, from: usize) -> Option<(Token, usize)> {
    let bytes = text.as_bytes();
    let end = from + 1 + bytes[from + 1..].iter().position(|&byte| byte == b'"')?;
    if end == from + 1 || bytes.get(end + 1) == Some(&b'"') {
        return None;
    }
    Some((Token::Quoted(text[from + 1..end].to_owned()), end + 1))
}

fn parameter(text: &str, from: usize) -> Option<(Token, usize)> {
    let bytes = text.as_bytes();
    let end = end_of(bytes, from + 1, |byte| byte.is_ascii_digit());
    let number: usize = text[from + 1..end].parse().ok()?;
    let is_one = (1..=PARAMETERS_MAX).contains(&number) && !begins_word(bytes, end);
    is_one.then(|| (Token::Parameter(number - 1), end))
}

fn end_of(bytes: &[u8], from: usize, belongs: impl Fn(u8) -> bool) -> usize {
    let rest = bytes[from..].iter().position(|&byte| !belongs(byte));
    rest.map_or(bytes.len(), |count| from + count)
}

/// Whether what follows a number would be read with it.
fn begins_word(bytes: &[u8], at: usize) -> bool {
    bytes.get(at).is_some_and(|&next| {
        next.is_ascii_alphanumeric() || !next.is_ascii() || matches!(next, b'_' | b'.' | b'$')
    })
}

fn number(text: &str, from: usize) -> Option<(Token, usize)> {
    let bytes = text.as_bytes();
    let is_digit = |byte: u8| byte.is_ascii_digit();
    let whole_end = end_of(bytes, from, is_digit);
    if bytes.get(whole_end) != Some(&b'.') {
        let value = text[from..whole_end].parse().ok()?;
        return (!begins_word(bytes, whole_end)).then_some((Token::Integer(value), whole_end));
    }
    let end = end_of(bytes, whole_end + 1, is_digit);
    let (whole, fraction) = (&text[from..whole_end], &text[whole_end + 1..end]);
    if fraction.is_empty() || whole.len() + fraction.len() > DIGITS_MAX || begins_word(bytes, end) {
        return None;
    }
    let digits = format!("{whole}{fraction}").parse().ok()?;
    let scale = u8::try_from(fraction.len()).ok()?;
    Some((Token::Decimal(digits, scale), end))
}

fn string(text: &str, from: usize) -> Option<(Token, usize)> {
    let bytes = text.as_bytes();
    let mut value = String::new();
    let mut at = from + 1;
    loop {
        let end = at + bytes[at..].iter().position(|&byte| byte == b'\'')?;
        value.push_str(&text[at..end]);
        at = end + 1;
        match bytes.get(at) {
            Some(b'\'') => {
                value.push('\'');
                at += 1;
            }
            // What PostgreSQL takes for neither text nor end of it.
            _ if value.contains('\0') => return None,
            _ => return Some((Token::Text(value), at)),
        }
    }
}

fn sign(byte: u8, next: Option<u8>) -> Option<(Sign, usize)> {
    Some(match (byte, next) {
        (b',', _) => (Sign::Comma, 1),
        (b'.', Some(b'0'..=b'9')) => return None,
        (b'.', _) => (Sign::Point, 1),
        (b'(', _) => (Sign::Open, 1),
        (b')', _) => (Sign::Close, 1),
        (b';', _) => (Sign::Semicolon, 1),
        (b'[', _) => (Sign::OpenBracket, 1),
        (b']', _) => (Sign::CloseBracket, 1),
        (b':', Some(b':')) => (Sign::Cast, 2),
        (b'<', Some(b'=')) => (Sign::LessEqual, 2),
        (b'>', Some(b'=')) => (Sign::GreaterEqual, 2),
        (b'<', Some(b'>')) | (b'!', Some(b'=')) => (Sign::Unequal, 2),
        // Operators are read as long as they can be; `+-` ends before the sign of a number.
        (b'+' | b'*' | b'=' | b'<' | b'>', Some(b'-')) => (single(byte)?, 1),
        (
            b'+' | b'-' | b'*' | b'=' | b'<' | b'>',
            Some(
                b'+' | b'-' | b'*' | b'/' | b'<' | b'>' | b'=' | b'~' | b'!' | b'@' | b'#' | b'%'
                | b'^' | b'&' | b'|' | b'`' | b'?',
            ),
        ) => return None,
        _ => (single(byte)?, 1),
    })
}

fn single(byte: u8) -> Option<Sign> {
    Some(match byte {
        b'+' => Sign::Plus,
        b'-' => Sign::Minus,
        b'*' => Sign::Star,
        b'=' => Sign::Equal,
        b'<' => Sign::Less,
        b'>' => Sign::Greater,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_read() {
        use Token::{Decimal, Integer, Parameter, Quoted, Text, Word};
        let read = tokens("Update \"T\" set a=a+-1.50,b='it''s' where k>=$12;").unwrap();
        let word = |text: &str| Word(text.to_owned());
        let expected = [
            word("update"),
            Quoted("T".to_owned()),
            word("set"),
            word("a"),
            Token::Sign(Sign::Equal),
            word("a"),
            Token::Sign(Sign::Plus),
            Token::Sign(Sign::Minus),
            Decimal(150, 2),
            Token::Sign(Sign::Comma),
            word("b"),
            Token::Sign(Sign::Equal),
            Text("it's".to_owned()),
            word("where"),
            word("k"),
            Token::Sign(Sign::GreaterEqual),
            Parameter(11),
            Token::Sign(Sign::Semicolon),
        ];
        assert_eq!(read, expected);
        assert_eq!(tokens("9223372036854775807").unwrap(), [Integer(i64::MAX)]);
    }

    #[test]
    fn what_is_not_known_ends_the_reading() {
        for text in [
            "a -- b",
            "a /* b */",
            "e'x'",
            "U&'x'",
            "1e5",
            "1_000",
            "0x1f",
            "1.",
            ".5",
            "a || b",
            "'open",
            "\"open",
            "\"\"",
            "\"a\"\"b\"",
            "$0",
            "$70000",
            "$1a",
            "a$b",
            "ä",
            "a->b",
            "a =- b -- c",
            "99999999999999999999",
            "a <@ b",
            "a %% b",
            "a+*b",
            "a:b",
        ] {
            assert_eq!(tokens(text), None, "{text}");
        }
    }
}
