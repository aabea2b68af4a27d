//! PostgreSQL's regular expressions on those of `regex`, and the functions that take them.
//!
//! | PostgreSQL | `regex` |
//! |---|---|
//! | `[[:alpha:]]` and its like | `[\p{Alphabetic}]`: of all scripts |
//! | `\m`, `\M` | `\b{start}`, `\b{end}` |
//! | `\y`, `\Y` | `(?:\b{start}\|\b{end})`, `\B` |
//! | `\Z` | `\z` |
//! | `.` | any character: `(?s)` before all, unless options say otherwise |
//! | `(?n)`, `(?p)`, `(?w)`, `(?q)` | `(?m-s)`, `(?-s)`, `(?ms)`, an escaped text |
//!
//! [`translate`] leaves alone what it has made. Back references and lookaround remain errors.

use std::collections::HashMap;
use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlType};
use arrow::array::{Array, ArrayRef, AsArray, ListBuilder, StringViewBuilder};
use arrow::datatypes::{DataType, Int32Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Expr, ScalarUDF, Volatility};
use regex::{Captures, Regex};

use super::arrays::list_of;
use super::overload::{Call, Overload, Returns, function};
use super::texts::{Texts, extend};
use crate::growth::Growth;
use crate::raise;

const TEXT: Returns = Returns::Type(SqlType::Text);
const TEXTS: Returns = Returns::Computed(|_, _| list_of(DataType::Utf8View));

/// The functions of this module.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    let immutable = |name, overloads| function(name, &[], Volatility::Immutable, overloads);
    vec![
        immutable("regexp_replace", REPLACE),
        immutable("regexp_match", MATCH),
        immutable("regexp_split_to_array", SPLIT),
        immutable("regexp_substr", SUBSTRING),
        pattern_function(),
    ]
}

/// `regexp_pattern`, which translates patterns that are no constants.
fn pattern_function() -> Arc<ScalarUDF> {
    function("regexp_pattern", &[], Volatility::Immutable, PATTERN)
}

/// The right side of `~` as DataFusion's operator takes it.
pub(crate) fn pattern(expr: Expr) -> Expr {
    match expr {
        Expr::Literal(ScalarValue::Utf8View(Some(text)), metadata) => {
            let text = translate(&text);
            Expr::Literal(ScalarValue::Utf8View(Some(text)), metadata)
        }
        Expr::Literal(ScalarValue::Utf8(Some(text)), metadata) => {
            Expr::Literal(ScalarValue::Utf8(Some(translate(&text))), metadata)
        }
        Expr::Literal(..) | Expr::Placeholder(_) => expr,
        Expr::ScalarFunction(call) if call.func.name() == "regexp_pattern" => {
            Expr::ScalarFunction(call)
        }
        other => Expr::ScalarFunction(datafusion::logical_expr::expr::ScalarFunction::new_udf(
            pattern_function(),
            vec![other],
        )),
    }
}

const PATTERN: &[Overload] = &[Overload {
    parameters: &[SqlType::Text],
    returns: TEXT,
    body: |call| texts(call, |row| Ok(Some(translate(text(call, 0, row))))),
}];

/// A pattern in the words of `regex`.
pub(crate) fn translate(pattern: &str) -> String {
    let (options, pattern) = split_options(pattern);
    if options.contains('q') {
        return regex::escape(pattern);
    }
    let mut out = String::with_capacity(pattern.len() + 4);
    out.push_str(&options);
    let mut has_dot = false;
    let mut in_class = false;
    let mut rest = pattern;
    while let Some(character) = rest.chars().next() {
        if in_class
            && let Some(name) = rest.strip_prefix("[:")
            && let Some(end) = name.find(":]")
            && let Some(members) = class(&name[..end])
        {
            out.push_str(members);
            rest = &name[end + 2..];
            continue;
        }
        if character == '\\' {
            let escaped = rest.chars().nth(1);
            let length = 1 + escaped.map_or(0, char::len_utf8);
            match escaped {
                Some('m') if !in_class => out.push_str(r"\b{start}"),
                Some('M') if !in_class => out.push_str(r"\b{end}"),
                Some('y') if !in_class => out.push_str(r"(?:\b{start}|\b{end})"),
                Some('Y') if !in_class => out.push_str(r"\B"),
                Some('Z') if !in_class => out.push_str(r"\z"),
                Some('b') if !rest[2..].starts_with('{') => out.push_str(r"\x08"),
                _ => out.push_str(&rest[..length]),
            }
            rest = &rest[length..];
            continue;
        }
        match character {
            '[' if !in_class => {
                in_class = true;
                out.push('[');
                rest = &rest[1..];
                if let Some(behind) = rest.strip_prefix('^') {
                    out.push('^');
                    rest = behind;
                }
                if let Some(behind) = rest.strip_prefix(']') {
                    out.push_str("\\]");
                    rest = behind;
                }
                continue;
            }
            // Which `regex` takes for the beginning of a class in the class, or an operator.
            '[' => out.push_str("\\["),
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(character);
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            other => {
                has_dot |= other == '.' && !in_class;
                out.push(other);
            }
        }
        rest = &rest[character.len_utf8()..];
    }
    if has_dot && options.is_empty() {
        out.insert_str(0, "(?s)");
    }
    out
}

/// The options that a pattern begins with, as `regex` writes them, and the pattern behind them.
fn split_options(pattern: &str) -> (String, &str) {
    if let Some(behind) = pattern.strip_prefix("***=") {
        return ("q".to_owned(), behind);
    }
    let Some((options, behind)) = pattern.strip_prefix("(?").and_then(|p| p.split_once(')')) else {
        return (String::new(), pattern);
    };
    if options == "s" || options.contains('-') {
        // Made here.
        return (format!("(?{options})"), behind);
    }
    let known = |option: char| "bceimnpqstwx".contains(option);
    if options.is_empty() || !options.chars().all(known) {
        return (String::new(), pattern);
    }
    if options.contains('q') {
        return ("q".to_owned(), behind);
    }
    (format!("(?{})", flags(options)), behind)
}

/// PostgreSQL's options as flags of `regex`, of which the last word counts.
fn flags(options: &str) -> String {
    let (mut ignores_case, mut dot, mut lines, mut expanded) = (false, true, false, false);
    for option in options.chars() {
        match option {
            'i' => ignores_case = true,
            'c' => ignores_case = false,
            'n' | 'm' => (dot, lines) = (false, true),
            'p' => (dot, lines) = (false, false),
            'w' => (dot, lines) = (true, true),
            's' => (dot, lines) = (true, false),
            'x' => expanded = true,
            't' => expanded = false,
            _ => {}
        }
    }
    let all = [
        ('i', ignores_case),
        ('s', dot),
        ('m', lines),
        ('x', expanded),
    ];
    let chosen = |wanted: bool| all.iter().filter(move |(_, on)| *on == wanted);
    let on: String = chosen(true).map(|(flag, _)| *flag).collect();
    let off: String = chosen(false).map(|(flag, _)| *flag).collect();
    match off.is_empty() {
        true => on,
        false => format!("{on}-{off}"),
    }
}

/// The members of a class that POSIX names.
fn class(name: &str) -> Option<&'static str> {
    Some(match name {
        "alpha" => r"\p{Alphabetic}",
        "digit" => r"\p{Nd}",
        "alnum" => r"\p{Alphabetic}\p{Nd}",
        "upper" => r"\p{Uppercase}",
        "lower" => r"\p{Lowercase}",
        "space" => r"\s",
        "blank" => r"\t\p{Zs}",
        "punct" => r"\p{P}\p{S}",
        "cntrl" => r"\p{Cc}",
        "word" => r"\w",
        "xdigit" => "0-9A-Fa-f",
        "graph" => r"\p{L}\p{M}\p{N}\p{P}\p{S}",
        "print" => r"\p{L}\p{M}\p{N}\p{P}\p{S}\p{Zs}",
        _ => return None,
    })
}

/// Patterns that were compiled for one batch.
#[derive(Default)]
pub(crate) struct Patterns(HashMap<(String, String), Regex>);

impl Patterns {
    /// The pattern under options such as `i` and `n`.
    ///
    /// # Errors
    /// `InvalidRegularExpression`; `InvalidParameterValue` for options that there are not.
    pub(crate) fn get(&mut self, pattern: &str, options: &str) -> Result<&Regex> {
        let key = (pattern.to_owned(), options.to_owned());
        if !self.0.contains_key(&key) {
            let compiled = compile(pattern, options)?;
            self.0.insert(key.clone(), compiled);
        }
        self.0
            .get(&key)
            .ok_or_else(|| raise(ErrorKind::Internal, "a pattern that was lost"))
    }
}

fn compile(pattern: &str, options: &str) -> Result<Regex> {
    if let Some(unknown) = options.chars().find(|c| !"gbceimnpqstwx".contains(*c)) {
        let message = format!("invalid regular expression option: \"{unknown}\"");
        return Err(raise(ErrorKind::InvalidParameterValue, message));
    }
    let translated = match options.contains('q') {
        true => regex::escape(pattern),
        false => translate(pattern),
    };
    let translated = match options.trim_matches('g') {
        "" => translated,
        given => format!("(?{}){translated}", flags(given)),
    };
    Regex::new(&translated).map_err(|error| {
        let message = format!("invalid regular expression: {error}");
        raise(ErrorKind::InvalidRegularExpression, message)
    })
}

fn text<'a>(call: &'a Call, at: usize, row: usize) -> &'a str {
    call.args[at].as_string_view().value(row)
}

fn number(call: &Call, at: usize, row: usize) -> i64 {
    i64::from(call.args[at].as_primitive::<Int32Type>().value(row))
}

fn is_null(call: &Call, row: usize) -> bool {
    call.args.iter().any(|argument| argument.is_null(row))
}

fn texts(call: &Call, mut each: impl FnMut(usize) -> Result<Option<String>>) -> Result<ArrayRef> {
    let mut texts = Texts::of(call.rows);
    for row in 0..call.rows {
        let value = match is_null(call, row) {
            true => None,
            false => each(row)?,
        };
        texts.push(value)?;
    }
    texts.finish()
}

/// Bytes that an item takes beside its text, in a list that doubles as it grows.
const ITEM_BYTES: usize = 40;

/// Lists of texts.
struct Lists {
    builder: ListBuilder<StringViewBuilder>,
    growth: Growth,
}

impl Lists {
    fn push(&mut self, item: Option<&str>) -> Result<()> {
        self.growth.make(item.map_or(0, str::len) + ITEM_BYTES)?;
        self.builder.values().append_option(item);
        Ok(())
    }
}

/// Makes a list of texts of each row; NULL where it says that there is none.
fn lists(call: &Call, mut each: impl FnMut(usize, &mut Lists) -> Result<bool>) -> Result<ArrayRef> {
    let mut lists = Lists {
        builder: ListBuilder::new(StringViewBuilder::new()),
        growth: Growth::new(),
    };
    for row in 0..call.rows {
        let is_valid = !is_null(call, row) && each(row, &mut lists)?;
        lists.builder.append(is_valid);
    }
    lists.growth.keep(Arc::new(lists.builder.finish()))
}

/// `\1`, `\&` and `\\` in a replacement.
fn replacement(
    written: &str,
    groups: &Captures,
    out: &mut String,
    growth: &mut Growth,
) -> Result<()> {
    let mut rest = written;
    while let Some(at) = rest.find('\\') {
        extend(out, &rest[..at], growth)?;
        let group = |n: usize| groups.get(n).map_or("", |found| found.as_str());
        let mut behind = rest[at + 1..].chars();
        match behind.next() {
            Some(digit @ '1'..='9') => {
                extend(out, group(digit as usize - '0' as usize), growth)?;
            }
            Some('&') => extend(out, group(0), growth)?,
            Some('\\') | None => extend(out, "\\", growth)?,
            Some(other) => {
                extend(out, "\\", growth)?;
                extend(out, other.encode_utf8(&mut [0; 4]), growth)?;
            }
        }
        rest = behind.as_str();
    }
    extend(out, rest, growth)
}

/// Replaces the `nth` match behind `start` characters, or all of them for 0.
fn replace(regex: &Regex, text: &str, written: &str, start: usize, nth: usize) -> Result<String> {
    let mut growth = Growth::new();
    let begin = text
        .char_indices()
        .nth(start)
        .map_or(text.len(), |(at, _)| at);
    let mut out = text[..begin].to_owned();
    let mut last = begin;
    let rest = &text[begin..];
    for (count, groups) in regex.captures_iter(rest).enumerate() {
        let Some(whole) = groups.get(0) else { continue };
        growth.work(MATCH_WORK)?;
        if nth != 0 && count + 1 != nth {
            continue;
        }
        extend(&mut out, &text[last..begin + whole.start()], &mut growth)?;
        replacement(written, &groups, &mut out, &mut growth)?;
        last = begin + whole.end();
        if nth != 0 {
            break;
        }
    }
    extend(&mut out, &text[last..], &mut growth)?;
    Ok(out)
}

/// What a match costs, in bytes that are written in the time.
const MATCH_WORK: usize = 256;

/// A position from 1 on, or a number from 0 on.
fn checked(value: i64, least: i64, name: &str) -> Result<usize> {
    usize::try_from(value)
        .ok()
        .filter(|_| value >= least)
        .ok_or_else(|| {
            let message = format!("invalid value for parameter \"{name}\": {value}");
            raise(ErrorKind::InvalidParameterValue, message)
        })
}

fn replaced(
    call: &Call,
    start: Option<usize>,
    nth: Option<usize>,
    options: Option<usize>,
) -> Result<ArrayRef> {
    let mut patterns = Patterns::default();
    texts(call, |row| {
        let options = options.map_or("", |at| text(call, at, row));
        let regex = patterns.get(text(call, 1, row), options)?;
        let start = start.map_or(Ok(1), |at| checked(number(call, at, row), 1, "start"))?;
        let nth = match nth {
            Some(at) => checked(number(call, at, row), 0, "n")?,
            None => usize::from(!options.contains('g')),
        };
        let (text, written) = (text(call, 0, row), text(call, 2, row));
        replace(regex, text, written, start - 1, nth).map(Some)
    })
}

const T: SqlType = SqlType::Text;
const I: SqlType = SqlType::Integer;

const REPLACE: &[Overload] = &[
    Overload {
        parameters: &[T, T, T],
        returns: TEXT,
        body: |call| replaced(call, None, None, None),
    },
    Overload {
        parameters: &[T, T, T, T],
        returns: TEXT,
        body: |call| replaced(call, None, None, Some(3)),
    },
    Overload {
        parameters: &[T, T, T, I],
        returns: TEXT,
        body: |call| replaced(call, Some(3), None, None),
    },
    Overload {
        parameters: &[T, T, T, I, I],
        returns: TEXT,
        body: |call| replaced(call, Some(3), Some(4), None),
    },
    Overload {
        parameters: &[T, T, T, I, I, T],
        returns: TEXT,
        body: |call| replaced(call, Some(3), Some(4), Some(5)),
    },
];

fn refuse_global(options: &str, name: &str) -> Result<()> {
    if options.contains('g') {
        let message = format!("{name}() does not support the \"global\" option");
        return Err(raise(ErrorKind::InvalidParameterValue, message));
    }
    Ok(())
}

/// The groups of the first match, or the whole match where there are none.
fn matched(call: &Call, options: Option<usize>) -> Result<ArrayRef> {
    let mut patterns = Patterns::default();
    lists(call, |row, lists| {
        let options = options.map_or("", |at| text(call, at, row));
        refuse_global(options, "regexp_match")?;
        let regex = patterns.get(text(call, 1, row), options)?;
        let Some(groups) = regex.captures(text(call, 0, row)) else {
            return Ok(false);
        };
        let first = usize::from(groups.len() > 1);
        for group in groups.iter().skip(first) {
            lists.push(group.map(|group| group.as_str()))?;
        }
        Ok(true)
    })
}

const MATCH: &[Overload] = &[
    Overload {
        parameters: &[T, T],
        returns: TEXTS,
        body: |call| matched(call, None),
    },
    Overload {
        parameters: &[T, T, T],
        returns: TEXTS,
        body: |call| matched(call, Some(2)),
    },
];

fn split(call: &Call, options: Option<usize>) -> Result<ArrayRef> {
    let mut patterns = Patterns::default();
    lists(call, |row, lists| {
        let options = options.map_or("", |at| text(call, at, row));
        refuse_global(options, "regexp_split_to_array")?;
        let regex = patterns.get(text(call, 1, row), options)?;
        let whole = text(call, 0, row);
        let mut last = 0;
        for found in regex.find_iter(whole) {
            lists.growth.work(MATCH_WORK)?;
            // A match of nothing at an end of the text, or behind the last match, splits nothing.
            let is_idle =
                found.is_empty() && (found.start() == last || found.start() == whole.len());
            if is_idle {
                continue;
            }
            lists.push(Some(&whole[last..found.start()]))?;
            last = found.end();
        }
        lists.push(Some(&whole[last..]))?;
        Ok(true)
    })
}

const SPLIT: &[Overload] = &[
    Overload {
        parameters: &[T, T],
        returns: TEXTS,
        body: |call| split(call, None),
    },
    Overload {
        parameters: &[T, T, T],
        returns: TEXTS,
        body: |call| split(call, Some(2)),
    },
];

/// The `nth` match behind a position, or a group of it.
fn part(call: &Call) -> Result<ArrayRef> {
    let mut patterns = Patterns::default();
    let given = |at: usize| (call.args.len() > at).then_some(at);
    texts(call, |row| {
        let options = given(4).map_or("", |at| text(call, at, row));
        refuse_global(options, "regexp_substr")?;
        let regex = patterns.get(text(call, 1, row), options)?;
        let position = |at: usize, least: i64, name: &str, otherwise: usize| {
            given(at).map_or(Ok(otherwise), |at| {
                checked(number(call, at, row), least, name)
            })
        };
        let start = position(2, 1, "start", 1)?;
        let nth = position(3, 1, "n", 1)?;
        let group = position(5, 0, "subexpr", 0)?;
        let whole = text(call, 0, row);
        let begin = whole
            .char_indices()
            .nth(start - 1)
            .map_or(whole.len(), |(at, _)| at);
        let found = regex.captures_iter(&whole[begin..]).nth(nth - 1);
        Ok(found.and_then(|groups| Some(groups.get(group)?.as_str().to_owned())))
    })
}

const SUBSTRING: &[Overload] = &[
    Overload {
        parameters: &[T, T],
        returns: TEXT,
        body: part,
    },
    Overload {
        parameters: &[T, T, I],
        returns: TEXT,
        body: part,
    },
    Overload {
        parameters: &[T, T, I, I],
        returns: TEXT,
        body: part,
    },
    Overload {
        parameters: &[T, T, I, I, T],
        returns: TEXT,
        body: part,
    },
    Overload {
        parameters: &[T, T, I, I, T, I],
        returns: TEXT,
        body: part,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_postgresqls() {
        for (pattern, text, expected) in [
            ("^[[:alpha:]]$", "é", true),
            (r"\mbar\M", "foo bar", true),
            (r"\mbar", "foobar", false),
            (r"\Afoo\Z", "foo", true),
            ("a.b", "a\nb", true),
            ("(?n)a.b", "a\nb", false),
            ("^b", "a\nb", false),
            ("(?n)^b", "a\nb", true),
            ("(?i)abc", "ABC", true),
            ("[]a]", "]", true),
            ("[^]a]", "]", false),
            ("[[]", "[", true),
            (r"[\d]+", "12", true),
            ("***=a.b", "axb", false),
            ("[a&&b]", "&", true),
        ] {
            let translated = translate(pattern);
            let regex = Regex::new(&translated).unwrap();
            assert_eq!(regex.is_match(text), expected, "{pattern} as {translated}");
            assert_eq!(translate(&translated), translated, "{pattern} twice");
        }
    }

    #[test]
    fn replacements_know_groups_and_the_match() {
        let regex = Regex::new("(b)(x)?").unwrap();
        for (written, expected) in [(r"[\&]", "a[b]c"), (r"\\", r"a\c"), (r"\1\2$1", "ab$1c")] {
            let replaced = replace(&regex, "abc", written, 0, 1).unwrap();
            assert_eq!(replaced, expected, "{written}");
        }
        assert_eq!(replace(&regex, "bbb", "x", 1, 0).unwrap(), "bxx");
        assert_eq!(replace(&regex, "bbb", "x", 0, 2).unwrap(), "bxb");
    }
}
