//! PostgreSQL's regular expressions translated to those of `regex`, and the functions that take
//! them.
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
//! [`translate`] is idempotent: it leaves its own output unchanged. Back references and
//! lookaround remain errors.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlType};
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, ListBuilder, StringViewBuilder,
};
use arrow::datatypes::{DataType, Int32Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction as ScalarFunctionCall;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, ScalarUDF, Volatility};

use super::lists::list_of;
use super::overload::{Call, Overload, Returns, each, function};
use super::texts::{Texts, extend};
use crate::growth::Growth;
use crate::raise;

mod parts;
mod pattern;
mod posix;

use pattern::Matches;
pub(crate) use pattern::{Pattern, Patterns, check, translate};
use posix::Match;

const TEXT: Returns = Returns::Type(SqlType::Text);
const BOOLEAN: Returns = Returns::Type(SqlType::Boolean);
const INTEGER: Returns = Returns::Type(SqlType::Integer);
const TEXTS: Returns = Returns::Computed(|_, _| list_of(DataType::Utf8View));

/// The functions of this module.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    let immutable = |name, overloads| function(name, &[], Volatility::Immutable, overloads);
    vec![
        immutable("regexp_replace", REPLACE),
        immutable("regexp_match", MATCH),
        immutable("regexp_split_to_array", SPLIT),
        immutable("regexp_substr", SUBSTRING),
        immutable("regexp_like", LIKE),
        immutable("regexp_count", COUNT),
        immutable("regexp_instr", POSITION),
    ]
    .into_iter()
    .chain(OPERATORS.iter().map(operator_function))
    .collect()
}

/// A text that matches a constant pattern as DataFusion's operator takes it; any other pattern is
/// compiled by a function of ours.
///
/// # Errors
/// No pattern is so long.
pub(crate) fn matching(left: Expr, op: Operator, right: Expr) -> Result<Expr> {
    let (Operator::RegexMatch
    | Operator::RegexIMatch
    | Operator::RegexNotMatch
    | Operator::RegexNotIMatch) = op
    else {
        return Ok(binary(left, op, right));
    };
    let right = match right {
        Expr::Literal(ScalarValue::Utf8View(Some(text)), metadata) => {
            check(&text)?;
            Expr::Literal(ScalarValue::Utf8View(Some(translate(&text))), metadata)
        }
        Expr::Literal(ScalarValue::Utf8(Some(text)), metadata) => {
            check(&text)?;
            Expr::Literal(ScalarValue::Utf8(Some(translate(&text))), metadata)
        }
        Expr::Literal(..) | Expr::Placeholder(_) => right,
        other => {
            let function = match op {
                Operator::RegexMatch => &OPERATORS[0],
                Operator::RegexIMatch => &OPERATORS[1],
                Operator::RegexNotMatch => &OPERATORS[2],
                _ => &OPERATORS[3],
            };
            let function = operator_function(function);
            let call = ScalarFunctionCall::new_udf(function, vec![left, other]);
            return Ok(Expr::ScalarFunction(call));
        }
    };
    Ok(binary(left, op, right))
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

/// The functions behind the operators, as PostgreSQL calls them.
const OPERATORS: [(&str, &[Overload]); 4] = [
    (
        "textregexeq",
        &each([&[T, T]], BOOLEAN, |call| found(call, "", true)),
    ),
    (
        "texticregexeq",
        &each([&[T, T]], BOOLEAN, |call| found(call, "i", true)),
    ),
    (
        "textregexne",
        &each([&[T, T]], BOOLEAN, |call| found(call, "", false)),
    ),
    (
        "texticregexne",
        &each([&[T, T]], BOOLEAN, |call| found(call, "i", false)),
    ),
];

fn operator_function((name, overloads): &(&'static str, &'static [Overload])) -> Arc<ScalarUDF> {
    function(name, &[], Volatility::Immutable, overloads)
}

/// Whether texts match, or do not.
fn found(call: &Call, options: &str, wanted: bool) -> Result<ArrayRef> {
    let mut patterns = Patterns::default();
    booleans(call, |row| {
        let pattern = patterns.get(text(call, 1, row), options)?;
        Ok(pattern.is_match(text(call, 0, row)) == wanted)
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

fn booleans(call: &Call, mut each: impl FnMut(usize) -> Result<bool>) -> Result<ArrayRef> {
    let value = |row| (!is_null(call, row)).then(|| each(row)).transpose();
    let values: BooleanArray = (0..call.rows).map(value).collect::<Result<_>>()?;
    Ok(Arc::new(values))
}

fn integers(call: &Call, mut each: impl FnMut(usize) -> Result<usize>) -> Result<ArrayRef> {
    let value = |row| {
        let value = (!is_null(call, row)).then(|| each(row)).transpose()?;
        // No text has more characters.
        Ok(value.map(|value| i32::try_from(value).unwrap_or(i32::MAX)))
    };
    let values: Int32Array = (0..call.rows).map(value).collect::<Result<_>>()?;
    Ok(Arc::new(values))
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
    whole: &str,
    groups: &[Match],
    out: &mut String,
    growth: &mut Growth,
) -> Result<()> {
    let mut rest = written;
    while let Some(at) = rest.find('\\') {
        extend(out, &rest[..at], growth)?;
        let group = |n: usize| {
            groups
                .get(n)
                .copied()
                .flatten()
                .map_or("", |(from, to)| &whole[from..to])
        };
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
fn replace(
    pattern: &Pattern,
    text: &str,
    written: &str,
    start: usize,
    nth: usize,
) -> Result<String> {
    let mut growth = Growth::new();
    // A group is told only to those who name one.
    let names_groups = written.contains('\\');
    let mut matches = Matches::of(pattern, text, place_of(text, start));
    let mut out = String::new();
    let (mut last, mut count) = (0, 0);
    loop {
        let groups = match names_groups {
            true => matches.next_groups(&mut growth)?,
            false => (matches.next(&mut growth)?).map(|place| vec![Some(place)]),
        };
        let Some(place) = groups.as_ref().and_then(|groups| *groups.first()?) else {
            break;
        };
        count += 1;
        if nth != 0 && count != nth {
            continue;
        }
        extend(&mut out, &text[last..place.0], &mut growth)?;
        replacement(
            written,
            text,
            &groups.unwrap_or_default(),
            &mut out,
            &mut growth,
        )?;
        last = place.1;
        if nth != 0 {
            break;
        }
    }
    extend(&mut out, &text[last..], &mut growth)?;
    Ok(out)
}

/// Where the character of a number from 0 on begins; its end for one behind the last.
fn place_of(text: &str, number: usize) -> Option<usize> {
    let places = text.char_indices().map(|(at, _)| at);
    places.chain([text.len()]).nth(number)
}

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
        let pattern = patterns.get(text(call, 1, row), options)?;
        let start = start.map_or(Ok(1), |at| checked(number(call, at, row), 1, "start"))?;
        let nth = match nth {
            Some(at) => checked(number(call, at, row), 0, "n")?,
            None => usize::from(!options.contains('g')),
        };
        let (text, written) = (text(call, 0, row), text(call, 2, row));
        replace(pattern, text, written, start - 1, nth).map(Some)
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
        let pattern = patterns.get(text(call, 1, row), options)?;
        let whole = text(call, 0, row);
        let Some(groups) = pattern.groups(whole, 0, &mut lists.growth)? else {
            return Ok(false);
        };
        let first = usize::from(groups.len() > 1);
        for group in groups.iter().skip(first) {
            lists.push(group.map(|(from, to)| &whole[from..to]))?;
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
        let pattern = patterns.get(text(call, 1, row), options)?;
        let whole = text(call, 0, row);
        let mut matches = Matches::of(pattern, whole, Some(0));
        let (mut last, mut previous) = (0, 0);
        while let Some((start, end)) = matches.next(&mut lists.growth)? {
            // A match of nothing at an end of the text, or behind the last match, splits nothing.
            if start < whole.len() && end > previous {
                lists.push(Some(&whole[last..start]))?;
                last = end;
            }
            previous = end;
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

/// Where a function begins to look, which match it means and which group of it.
struct Wanted {
    /// The byte behind which it looks; nothing behind the end.
    begin: Option<usize>,
    nth: usize,
    group: usize,
}

impl Wanted {
    /// Of a row whose arguments stand here, where they are given.
    fn of(call: &Call, row: usize, nth: Option<usize>, group: Option<usize>) -> Result<Self> {
        let position = |at: Option<usize>, least: i64, name: &str, otherwise: usize| {
            let given = at.filter(|at| *at < call.args.len());
            given.map_or(Ok(otherwise), |at| {
                checked(number(call, at, row), least, name)
            })
        };
        let start = position(Some(2), 1, "start", 1)?;
        let whole = text(call, 0, row);
        Ok(Self {
            begin: place_of(whole, start - 1),
            nth: position(nth, 1, "n", 1)?,
            group: position(group, 0, "subexpr", 0)?,
        })
    }

    fn find(&self, pattern: &Pattern, whole: &str) -> Result<Match> {
        let mut growth = Growth::new();
        let mut matches = Matches::of(pattern, whole, self.begin);
        for _ in 1..self.nth {
            if matches.next(&mut growth)?.is_none() {
                return Ok(None);
            }
        }
        match self.group {
            0 => matches.next(&mut growth),
            group => {
                let groups = matches.next_groups(&mut growth)?;
                Ok(groups.and_then(|groups| *groups.get(group)?))
            }
        }
    }
}

/// The options of a row, if they are given there.
fn options<'a>(call: &'a Call, at: usize, row: usize, name: &str) -> Result<&'a str> {
    let options = match at < call.args.len() {
        true => text(call, at, row),
        false => "",
    };
    refuse_global(options, name)?;
    Ok(options)
}

/// The `nth` match behind a position, or a group of it.
fn part(call: &Call) -> Result<ArrayRef> {
    let mut patterns = Patterns::default();
    texts(call, |row| {
        let options = options(call, 4, row, "regexp_substr")?;
        let pattern = patterns.get(text(call, 1, row), options)?;
        let wanted = Wanted::of(call, row, Some(3), Some(5))?;
        let whole = text(call, 0, row);
        let found = wanted.find(pattern, whole)?;
        Ok(found.map(|(from, to)| whole[from..to].to_owned()))
    })
}

/// Where that match begins, or ends, in characters from 1; 0 where there is none.
fn place(call: &Call) -> Result<ArrayRef> {
    let mut patterns = Patterns::default();
    integers(call, |row| {
        let options = options(call, 5, row, "regexp_instr")?;
        let pattern = patterns.get(text(call, 1, row), options)?;
        let wanted = Wanted::of(call, row, Some(3), Some(6))?;
        let is_end = match call.args.len() > 4 {
            true => is_end(number(call, 4, row))?,
            false => false,
        };
        let whole = text(call, 0, row);
        Ok(wanted.find(pattern, whole)?.map_or(0, |(from, to)| {
            let at = if is_end { to } else { from };
            whole[..at].chars().count() + 1
        }))
    })
}

fn is_end(option: i64) -> Result<bool> {
    match option {
        0 => Ok(false),
        1 => Ok(true),
        other => {
            let message = format!("invalid value for parameter \"endoption\": {other}");
            Err(raise(ErrorKind::InvalidParameterValue, message))
        }
    }
}

/// How many matches there are behind a position.
fn count(call: &Call) -> Result<ArrayRef> {
    let mut patterns = Patterns::default();
    integers(call, |row| {
        let options = options(call, 3, row, "regexp_count")?;
        let pattern = patterns.get(text(call, 1, row), options)?;
        let wanted = Wanted::of(call, row, None, None)?;
        let mut growth = Growth::new();
        let whole = text(call, 0, row);
        let mut matches = Matches::of(pattern, whole, wanted.begin);
        let mut count = 0;
        while matches.next(&mut growth)?.is_some() {
            count += 1;
        }
        Ok(count)
    })
}

fn like(call: &Call) -> Result<ArrayRef> {
    let mut patterns = Patterns::default();
    booleans(call, |row| {
        let options = options(call, 2, row, "regexp_like")?;
        let pattern = patterns.get(text(call, 1, row), options)?;
        Ok(pattern.is_match(text(call, 0, row)))
    })
}

const LIKE: &[Overload] = &each([&[T, T], &[T, T, T]], BOOLEAN, like);

const COUNT: &[Overload] = &each([&[T, T], &[T, T, I], &[T, T, I, T]], INTEGER, count);

const POSITION: &[Overload] = &each(
    [
        &[T, T],
        &[T, T, I],
        &[T, T, I, I],
        &[T, T, I, I, I],
        &[T, T, I, I, I, T],
        &[T, T, I, I, I, T, I],
    ],
    INTEGER,
    place,
);

const SUBSTRING: &[Overload] = &each(
    [
        &[T, T],
        &[T, T, I],
        &[T, T, I, I],
        &[T, T, I, I, T],
        &[T, T, I, I, T, I],
    ],
    TEXT,
    part,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacements_know_groups_and_the_match() {
        let mut patterns = Patterns::default();
        let mut replaced = |pattern: &str, text: &str, written: &str, start, nth| {
            replace(
                patterns.get(pattern, "").unwrap(),
                text,
                written,
                start,
                nth,
            )
            .unwrap()
        };
        for (written, expected) in [(r"[\&]", "a[b]c"), (r"\\", r"a\c"), (r"\1\2$1", "ab$1c")] {
            assert_eq!(
                replaced("(b)(x)?", "abc", written, 0, 1),
                expected,
                "{written}"
            );
        }
        assert_eq!(replaced("(b)(x)?", "bbb", "x", 1, 0), "bxx");
        assert_eq!(replaced("(b)(x)?", "bbb", "x", 0, 2), "bxb");
    }

    /// Behind a match PostgreSQL looks for one of nothing, too, and `^` is the text's beginning only.
    #[test]
    fn all_matches_are_replaced_as_in_postgresql() {
        let mut patterns = Patterns::default();
        for (pattern, text, start, expected) in [
            (".*", "hello world", 0, "xx"),
            ("b*", "abc", 0, "xaxxcx"),
            ("", "é", 0, "xéx"),
            ("^a", "aa", 1, "aa"),
            ("a|ab", "abab", 0, "xx"),
            ("$", "ab", 2, "abx"),
            ("$", "ab", 3, "ab"),
        ] {
            let pattern_of = patterns.get(pattern, "").unwrap();
            let found = replace(pattern_of, text, "x", start, 0).unwrap();
            assert_eq!(found, expected, "{pattern} in {text}");
        }
    }
}
