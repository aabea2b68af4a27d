//! LIKE with an escape character, and SIMILAR TO.

use aerostat_types::ErrorKind;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::expr::{Like, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

use super::raise;
use crate::functions::{backslash::with_backslash, regexp, strings};

/// The text of a pattern that is a constant; `Ok(None)` for NULL.
fn constant(pattern: &Expr, construct: &str) -> Result<Option<String>> {
    match pattern {
        Expr::Literal(ScalarValue::Null, _) => Ok(None),
        Expr::Literal(
            ScalarValue::Utf8(text) | ScalarValue::Utf8View(text) | ScalarValue::LargeUtf8(text),
            _,
        ) => Ok(text.clone()),
        _ => Err(raise(
            ErrorKind::FeatureNotSupported,
            format!("{construct} with a pattern that is no constant is not supported"),
        )),
    }
}

fn text(value: String) -> Box<Expr> {
    Box::new(Expr::Literal(ScalarValue::Utf8View(Some(value)), None))
}

fn ends_in_escape() -> DataFusionError {
    raise(
        ErrorKind::InvalidEscapeSequence,
        "LIKE pattern must not end with escape character",
    )
}

/// Whether the last character of a pattern is an escape that escapes nothing.
fn escapes_nothing(pattern: &str) -> bool {
    let backslashes = pattern.bytes().rev().take_while(|&byte| byte == b'\\');
    backslashes.count() % 2 == 1
}

/// Whether a LIKE pattern, a constant with the usual escape, matches a text with trailing
/// blanks just where it matches it without them: then a scan may look at a `char(n)` as it
/// is stored.
pub(super) fn is_blind_to_blanks(pattern: &Expr) -> bool {
    let pattern = match pattern {
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) => text,
        _ => return false,
    };
    pattern.ends_with('%') && !pattern.contains([' ', '_', '\\'])
}

/// LIKE with another escape character becomes LIKE with the usual one, by a call of
/// `like_escape` where the pattern is no constant. A constant pattern that ends in its escape is refused at once, where
/// PostgreSQL waits for a text that matches so far.
pub(super) fn like(mut like: Like) -> Result<Expr> {
    let escape = like.escape_char.take().unwrap_or('\\');
    if escape == '\\' {
        return match constant(&like.pattern, "LIKE") {
            Ok(Some(pattern)) if escapes_nothing(&pattern) => Err(ends_in_escape()),
            _ => Ok(Expr::Like(like)),
        };
    }
    match constant(&like.pattern, "LIKE with ESCAPE") {
        Ok(None) => {}
        Ok(Some(pattern)) => {
            let pattern = with_backslash(&pattern, Some(escape));
            if escapes_nothing(&pattern) {
                return Err(ends_in_escape());
            }
            like.pattern = text(pattern);
        }
        Err(_) => {
            let args = vec![*like.pattern, *text(escape.to_string())];
            let call = ScalarFunction::new_udf(strings::like_escape(), args);
            like.pattern = Box::new(Expr::ScalarFunction(call));
        }
    }
    Ok(Expr::Like(like))
}

/// SIMILAR TO becomes a regular expression match.
pub(super) fn similar_to(like: Like) -> Result<Expr> {
    let Like {
        negated,
        expr,
        pattern,
        escape_char,
        ..
    } = like;
    let pattern = match constant(&pattern, "SIMILAR TO")? {
        Some(pattern) => {
            regexp::check(&pattern)?;
            text(regex_of(&pattern, escape_char.unwrap_or('\\')))
        }
        None => Box::new(Expr::Literal(ScalarValue::Utf8View(None), None)),
    };
    let op = if negated {
        Operator::RegexNotMatch
    } else {
        Operator::RegexMatch
    };
    Ok(Expr::BinaryExpr(BinaryExpr::new(expr, op, pattern)))
}

fn regex_of(pattern: &str, escape: char) -> String {
    let mut regex = String::from("^(?s:");
    let mut in_class = false;
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if character == escape {
            if let Some(next) = characters.next() {
                regex.push_str(&regex::escape(&next.to_string()));
            }
            continue;
        }
        match character {
            ']' => in_class = false,
            '[' => in_class = true,
            _ => {}
        }
        match character {
            '%' if !in_class => regex.push_str(".*"),
            '_' if !in_class => regex.push('.'),
            '.' | '^' | '$' if !in_class => {
                regex.push('\\');
                regex.push(character);
            }
            '\\' => regex.push_str("\\\\"),
            other => regex.push(other),
        }
    }
    regex.push_str(")$");
    regex
}

#[cfg(test)]
mod tests {
    use super::{escapes_nothing, regex_of};

    #[test]
    fn an_escape_at_the_end_escapes_nothing() {
        assert!(escapes_nothing("ab\\") && escapes_nothing("\\\\\\"));
        assert!(!escapes_nothing("ab\\\\") && !escapes_nothing("\\%") && !escapes_nothing(""));
    }

    #[test]
    fn similar_to_is_anchored_and_knows_its_wildcards() {
        assert_eq!(regex_of("a%(b|c)_", '\\'), "^(?s:a.*(b|c).)$");
        assert_eq!(regex_of("a\\%.[%_]", '\\'), "^(?s:a%\\.[%_])$");
    }
}
