//! Numbers by pattern, after PostgreSQL's `formatting.c`.
//!
//! | pattern | |
//! |---|---|
//! | `9 0` | a digit; with `0` also a leading or trailing zero |
//! | `. D` | the point |
//! | `, G` | a separator of thousands |
//! | `S MI PL SG PR` | the sign: anchored, `-`, `+`, either, in angle brackets |
//! | `FM` | no padding |
//! | `V` | times a power of ten |
//! | `EEEE` | scientific notation |
//! | `RN rn` | Roman |
//! | `TH th` | an ordinal's ending |
//! | `L` | the currency, which has no sign here |
//! | `"…"`, anything else | itself |
//!
//! [`parse`] reads a pattern, [`Writer`] puts digits into its places.

mod read;

pub(super) use read::read;

use aerostat_types::ErrorKind;
use datafusion::common::{DataFusionError, Result};

use crate::functions::cast::{POWERS_OF_TEN, rescale};
use crate::raise;

/// Digits that a double is sure to hold.
const DOUBLE_DIGITS: usize = 15;

/// Digits of the widest numeric.
const NUMERIC_DIGITS: usize = 38;

/// The width of a Roman number without `FM`.
const ROMAN_WIDTH: usize = 15;

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    Nine,
    Zero,
    Point,
    Comma,
    Currency,
    Minus,
    Plus,
    Sign,
    Roman {
        lower: bool,
    },
    Ordinal {
        lower: bool,
    },
    Text(char),
    /// Says something of the whole and writes nothing: `FM`, `S`, `PR`, `V`, `EEEE`, `B`.
    Silent,
}

/// Where the sign of `S` goes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Anchor {
    #[default]
    None,
    Before,
    After,
}

/// A pattern and what follows from all of it.
#[derive(Clone, Debug, Default)]
struct Pattern {
    parts: Vec<Part>,
    /// Digits before the point, and after it.
    before: usize,
    after: usize,
    /// Powers of ten after `V`.
    shift: usize,
    /// The place of the first `0`, from 1; 0 if there is none before the point.
    zero_start: usize,
    /// The place of the last `0`.
    zero_end: usize,
    has_zero: bool,
    has_point: bool,
    has_shift: bool,
    fills: bool,
    anchor: Anchor,
    has_anchor: bool,
    /// Digits before the point when `S` came.
    before_anchor: usize,
    has_minus: bool,
    has_plus: bool,
    has_brackets: bool,
    is_roman: bool,
    is_scientific: bool,
    is_blank: bool,
}

/// The keywords, longest first where one begins another.
const KEYWORDS: [&str; 20] = [
    "EEEE", "FM", "MI", "PL", "PR", "RN", "SG", "SP", "TH", ",", ".", "0", "9", "B", "C", "D", "G",
    "L", "S", "V",
];

fn refuse(message: &str) -> DataFusionError {
    raise(ErrorKind::SyntaxError, message)
}

fn parse(pattern: &str) -> Result<Pattern> {
    let mut parsed = Pattern {
        fills: true,
        ..Pattern::default()
    };
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        let keyword = KEYWORDS.iter().find(|keyword| {
            rest.get(..keyword.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(keyword))
        });
        match keyword {
            Some(keyword) => {
                let lower = first.is_ascii_lowercase();
                let part = parsed.keyword(keyword, lower)?;
                parsed.parts.push(part);
                rest = &rest[keyword.len()..];
            }
            None if first == '"' => rest = parsed.quoted(&rest[1..]),
            None => {
                let literal = match rest.strip_prefix('\\') {
                    Some(escaped) if escaped.starts_with('"') => '"',
                    _ => first,
                };
                parsed.parts.push(Part::Text(literal));
                rest = &rest[first.len_utf8() + usize::from(literal != first)..];
            }
        }
    }
    Ok(parsed)
}

impl Pattern {
    /// Takes what stands in double quotes, and gives what follows.
    fn quoted<'a>(&mut self, text: &'a str) -> &'a str {
        let mut characters = text.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => return &text[at + 1..],
                '\\' => {
                    let escaped = characters.next();
                    self.parts
                        .extend(escaped.map(|(_, escaped)| Part::Text(escaped)));
                }
                other => self.parts.push(Part::Text(other)),
            }
        }
        ""
    }

    fn keyword(&mut self, keyword: &str, lower: bool) -> Result<Part> {
        if self.is_scientific && keyword != "EEEE" {
            return Err(refuse("\"EEEE\" must be the last pattern used"));
        }
        Ok(match keyword {
            "9" => self.nine()?,
            "0" => self.zero()?,
            "." | "D" => self.point()?,
            "," | "G" => Part::Comma,
            "L" => Part::Currency,
            "FM" => {
                self.fills = false;
                Part::Silent
            }
            "B" => {
                self.is_blank |= self.before == 0 && self.after == 0 && !self.has_zero;
                Part::Silent
            }
            "V" => {
                if self.has_point {
                    return Err(refuse("cannot use \"V\" and decimal point together"));
                }
                self.has_shift = true;
                Part::Silent
            }
            "EEEE" => self.scientific()?,
            "RN" => {
                self.is_roman = true;
                Part::Roman { lower }
            }
            "TH" => Part::Ordinal { lower },
            "S" | "MI" | "PL" | "SG" | "PR" => self.sign(keyword)?,
            _ => Part::Silent,
        })
    }

    fn nine(&mut self) -> Result<Part> {
        if self.has_brackets {
            return Err(refuse("\"9\" must be ahead of \"PR\""));
        }
        if self.has_shift {
            self.shift += 1;
        } else if self.has_point {
            self.after += 1;
        } else {
            self.before += 1;
        }
        Ok(Part::Nine)
    }

    fn zero(&mut self) -> Result<Part> {
        if self.has_brackets {
            return Err(refuse("\"0\" must be ahead of \"PR\""));
        }
        if !self.has_zero && !self.has_point {
            self.has_zero = true;
            self.zero_start = self.before + 1;
        }
        if self.has_point {
            self.after += 1;
        } else {
            self.before += 1;
        }
        self.zero_end = self.before + self.after;
        Ok(Part::Zero)
    }

    fn point(&mut self) -> Result<Part> {
        if self.has_point {
            return Err(refuse("multiple decimal points"));
        }
        if self.has_shift {
            return Err(refuse("cannot use \"V\" and decimal point together"));
        }
        self.has_point = true;
        Ok(Part::Point)
    }

    fn scientific(&mut self) -> Result<Part> {
        if self.is_scientific {
            return Err(refuse("cannot use \"EEEE\" twice"));
        }
        let has_others = self.is_blank || !self.fills || self.has_anchor || self.is_roman;
        if has_others || self.has_brackets || self.has_minus || self.has_plus || self.has_shift {
            return Err(refuse("\"EEEE\" is incompatible with other formats"));
        }
        self.is_scientific = true;
        Ok(Part::Silent)
    }

    fn sign(&mut self, keyword: &str) -> Result<Part> {
        let has_other = self.has_plus || self.has_minus;
        if keyword == "S" {
            if self.has_anchor {
                return Err(refuse("cannot use \"S\" twice"));
            }
            if has_other || self.has_brackets {
                let message = "cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together";
                return Err(refuse(message));
            }
            self.has_anchor = true;
            if self.has_point {
                self.anchor = Anchor::After;
            } else {
                self.anchor = Anchor::Before;
                self.before_anchor = self.before;
            }
            return Ok(Part::Silent);
        }
        if keyword == "PR" {
            if self.has_anchor || has_other {
                let message = "cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together";
                return Err(refuse(message));
            }
            self.has_brackets = true;
            return Ok(Part::Silent);
        }
        if self.has_anchor {
            return Err(refuse(&format!(
                "cannot use \"S\" and \"{keyword}\" together"
            )));
        }
        self.has_minus |= keyword != "PL";
        self.has_plus |= keyword != "MI";
        Ok(match keyword {
            "MI" => Part::Minus,
            "PL" => Part::Plus,
            _ => Part::Sign,
        })
    }

    /// The text that stands for a number with too many digits.
    fn hashes(&self) -> String {
        format!("{}.{}", "#".repeat(self.before), "#".repeat(self.after))
    }
}

/// Writes a numeric.
pub(super) fn write(value: i128, scale: i8, pattern: &str) -> Result<String> {
    let mut pattern = parse(pattern)?;
    if pattern.is_roman {
        let whole = rescale(value, scale, NUMERIC_DIGITS as u8, 0);
        return Ok(Writer::new(&pattern, &roman(whole.unwrap_or(0)), false, 0).write());
    }
    if pattern.is_scientific {
        return Ok(scientific(value, scale, pattern.after));
    }
    pattern.before += pattern.shift;
    let after = pattern.after.min(NUMERIC_DIGITS - 1);
    let rounded = i8::try_from(pattern.shift)
        .ok()
        .and_then(|shift| scale.checked_sub(shift))
        .and_then(|scale| moved(value, scale, after as i8));
    let Some(rounded) = rounded else {
        let hashes = pattern.hashes();
        return Ok(Writer::new(&pattern, &hashes, value < 0, 0).write());
    };
    let power = POWERS_OF_TEN[after].unsigned_abs();
    let (whole, fraction) = (
        rounded.unsigned_abs() / power,
        rounded.unsigned_abs() % power,
    );
    let mut digits = whole.to_string();
    if pattern.after > 0 {
        digits.push_str(&format!(".{fraction:0after$}"));
        digits.push_str(&"0".repeat(pattern.after - after));
    }
    Ok(lay_out(&pattern, digits, rounded < 0))
}

/// A value of `from` digits after the point, which may be negative, with `to` of them.
fn moved(value: i128, from: i8, to: i8) -> Option<i128> {
    if from >= 0 {
        return rescale(value, from, NUMERIC_DIGITS as u8, to);
    }
    let up = usize::try_from(i16::from(to) - i16::from(from)).ok()?;
    value.checked_mul(*POWERS_OF_TEN.get(up)?)
}

/// Writes a double with no more digits than it is sure to hold.
pub(super) fn write_double(value: f64, pattern: &str) -> Result<String> {
    let mut pattern = parse(pattern)?;
    if pattern.is_roman {
        let whole = value.round_ties_even() as i128;
        return Ok(Writer::new(&pattern, &roman(whole), false, 0).write());
    }
    if pattern.is_scientific {
        return Ok(scientific_double(value, &pattern));
    }
    pattern.before += pattern.shift;
    let value = value * 10f64.powi(i32::try_from(pattern.shift).unwrap_or(i32::MAX));
    let written = |after: usize| {
        if value.is_nan() {
            "NaN".to_owned()
        } else if value.is_infinite() {
            "Infinity".to_owned()
        } else {
            format!("{:.after$}", value.abs())
        }
    };
    let whole_digits = written(0).len();
    pattern.after = pattern
        .after
        .min(DOUBLE_DIGITS.saturating_sub(whole_digits));
    let is_negative = value.is_sign_negative() && !value.is_nan();
    Ok(lay_out(&pattern, written(pattern.after), is_negative))
}

/// `1.23e+03`, with a blank for the sign of a positive number.
fn scientific(value: i128, scale: i8, after: usize) -> String {
    let sign = if value < 0 { '-' } else { ' ' };
    let digits = value.unsigned_abs().to_string();
    let exponent = match value {
        0 => 0,
        _ => digits.len() as i32 - 1 - i32::from(scale),
    };
    let after = after.min(NUMERIC_DIGITS - 1);
    let of_digits = (digits.len() - 1) as i8;
    let Some(significand) = rescale(
        value.saturating_abs(),
        of_digits,
        NUMERIC_DIGITS as u8,
        after as i8,
    ) else {
        return format!("{sign}{digits}e{exponent:+03}");
    };
    let power = POWERS_OF_TEN[after];
    let (whole, fraction) = (significand / power, significand % power);
    match after {
        0 => format!("{sign}{whole}e{exponent:+03}"),
        _ => format!("{sign}{whole}.{fraction:0after$}e{exponent:+03}"),
    }
}

fn scientific_double(value: f64, pattern: &Pattern) -> String {
    if !value.is_finite() {
        return format!(
            " {}.{}",
            "#".repeat(pattern.before),
            "#".repeat(pattern.after + 4)
        );
    }
    let after = pattern.after;
    let written = format!("{:.after$e}", value.abs());
    let (significand, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if value.is_sign_negative() { '-' } else { ' ' };
    format!("{sign}{significand}e{exponent:+03}")
}

/// Aligns digits, which end in as many places after the point as the pattern has.
fn lay_out(pattern: &Pattern, digits: String, negative: bool) -> String {
    let whole = digits.find('.').unwrap_or(digits.len());
    if whole > pattern.before {
        let hashes = pattern.hashes();
        return Writer::new(pattern, &hashes, negative, 0).write();
    }
    Writer::new(pattern, &digits, negative, pattern.before - whole).write()
}

fn roman(number: i128) -> String {
    const STEPS: [(i128, &str); 13] = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    if !(1..4000).contains(&number) {
        return "#".repeat(ROMAN_WIDTH);
    }
    let mut rest = number;
    let mut out = String::new();
    for (step, letters) in STEPS {
        while rest >= step {
            out.push_str(letters);
            rest -= step;
        }
    }
    out
}

fn ordinal(digits: &str) -> &'static str {
    let mut from_the_end = digits.bytes().rev();
    match (from_the_end.next(), from_the_end.next()) {
        (_, Some(b'1')) => "th",
        (Some(b'1'), _) => "st",
        (Some(b'2'), _) => "nd",
        (Some(b'3'), _) => "rd",
        _ => "th",
    }
}

/// Puts a number's characters into a pattern's places, as `NUM_processor` does.
struct Writer<'a> {
    pattern: &'a Pattern,
    anchor: Anchor,
    /// The first `0`, counted from 0.
    zero_start: usize,
    number: &'a [u8],
    /// The character of the number to write next.
    at: usize,
    /// The place of the pattern to fill next.
    place: usize,
    /// Places before the number's first character.
    spaces: usize,
    /// The last character that `FM` keeps.
    last_kept: Option<usize>,
    /// Digits to expect, as the end of the number is told by counting.
    count: usize,
    negative: bool,
    sign_written: bool,
    /// Whether the last place got a digit, so that a separator after it counts.
    in_number: bool,
    out: String,
}

impl<'a> Writer<'a> {
    fn new(pattern: &'a Pattern, number: &'a str, negative: bool, spaces: usize) -> Self {
        let number = number.as_bytes();
        let has_own_sign = pattern.has_plus || pattern.has_minus;
        let sign_written = if has_own_sign {
            !pattern.has_plus || pattern.has_minus
        } else {
            !negative && !pattern.fills && !pattern.has_anchor
        };
        let ends_in_sign = !has_own_sign
            && pattern.anchor == Anchor::Before
            && pattern.before == pattern.before_anchor;
        let count = (pattern.after + pattern.before).saturating_sub(1)
            + usize::from(!sign_written && spaces == 0);
        Self {
            pattern,
            anchor: if ends_in_sign {
                Anchor::After
            } else {
                pattern.anchor
            },
            zero_start: pattern.zero_start.saturating_sub(1),
            number,
            at: 0,
            place: 0,
            spaces,
            last_kept: last_kept(pattern, number, spaces),
            count,
            negative,
            sign_written,
            in_number: false,
            out: String::new(),
        }
    }

    fn write(mut self) -> String {
        let pattern = self.pattern;
        for part in &pattern.parts {
            match part {
                Part::Nine | Part::Zero | Part::Point => self.digit(part),
                Part::Comma if self.in_number => self.out.push(','),
                Part::Comma | Part::Currency if pattern.fills => self.out.push(' '),
                Part::Comma => {}
                Part::Currency => self.out.push(' '),
                Part::Minus if self.negative => self.out.push('-'),
                Part::Plus if !self.negative => self.out.push('+'),
                Part::Minus | Part::Plus if pattern.fills => self.out.push(' '),
                Part::Minus | Part::Plus => {}
                Part::Sign => self.out.push(if self.negative { '-' } else { '+' }),
                Part::Roman { lower } => self.roman(*lower),
                Part::Ordinal { lower } => self.ordinal(*lower),
                Part::Text(character) => self.out.push(*character),
                Part::Silent => {}
            }
        }
        self.out
    }

    fn roman(&mut self, lower: bool) {
        let mut written = String::from_utf8_lossy(self.number).into_owned();
        if lower {
            written.make_ascii_lowercase();
        }
        if self.pattern.fills {
            written = format!("{written:>ROMAN_WIDTH$}");
        }
        self.out.push_str(&written);
    }

    fn ordinal(&mut self, lower: bool) {
        let pattern = self.pattern;
        if pattern.is_roman || self.number.starts_with(b"#") || self.negative || pattern.has_point {
            return;
        }
        let ending = ordinal(&String::from_utf8_lossy(self.number));
        match lower {
            true => self.out.push_str(ending),
            false => self.out.push_str(&ending.to_ascii_uppercase()),
        }
    }

    /// Whether the zero before the point is to be left out: `0.1` by `9.9` is ` .1`.
    fn is_lone_zero(&self) -> bool {
        !self.pattern.has_zero
            && self.at == 0
            && self.number.first() == Some(&b'0')
            && self.pattern.after != 0
    }

    /// Whether `FM` keeps nothing after the point.
    fn keeps_only_point(&self) -> bool {
        self.last_kept.is_some_and(|at| self.number[at] == b'.')
    }

    /// The sign, once the number begins.
    fn begin(&mut self) {
        let begins =
            self.place >= self.spaces || self.pattern.has_zero && self.zero_start == self.place;
        if self.sign_written || !begins || self.is_lone_zero() && !self.keeps_only_point() {
            return;
        }
        if self.pattern.has_anchor {
            if self.anchor != Anchor::Before {
                return;
            }
            self.out.push(if self.negative { '-' } else { '+' });
        } else if self.pattern.has_brackets {
            self.out.push(if self.negative { '<' } else { ' ' });
        } else if self.negative {
            self.out.push('-');
        } else if self.pattern.fills {
            self.out.push(' ');
        }
        self.sign_written = true;
    }

    /// What follows the number's last place.
    fn end(&mut self) {
        let mut end =
            self.count + usize::from(self.spaces > 0) + usize::from(self.pattern.has_point);
        if self.last_kept == Some(self.at) {
            end = self.place;
        }
        if self.place + 1 != end {
            return;
        }
        // `FM` leaves the places of brackets out where there are none.
        let has_brackets = self.pattern.has_brackets && (self.negative || self.pattern.fills);
        if self.sign_written && has_brackets {
            self.out.push(if self.negative { '>' } else { ' ' });
        } else if self.pattern.has_anchor && self.anchor == Anchor::After {
            self.out.push(if self.negative { '-' } else { '+' });
        }
    }

    /// Fills a place for a digit or the point.
    fn digit(&mut self, part: &Part) {
        if self.pattern.is_roman {
            return;
        }
        self.in_number = false;
        self.begin();
        let has_zero = self.pattern.has_zero;
        if self.place < self.spaces && (!has_zero || self.zero_start > self.place) {
            if self.pattern.fills {
                self.out.push(' ');
            }
        } else if self.place < self.spaces {
            self.out.push('0');
            self.in_number = true;
        } else {
            self.character(part);
            self.at = (self.at + 1).min(self.number.len());
        }
        self.end();
        self.place += 1;
    }

    /// The number's next character.
    fn character(&mut self, part: &Part) {
        match self.number.get(self.at) {
            Some(b'.') => self.out.push('.'),
            _ if self.last_kept.is_some_and(|last| self.at > last) && *part != Part::Zero => {}
            _ if self.is_lone_zero() => {
                if self.pattern.fills {
                    self.out.push(' ');
                } else if self.keeps_only_point() {
                    self.out.push('0');
                }
            }
            Some(&digit) => {
                self.out.push(char::from(digit));
                self.in_number = true;
            }
            None => {}
        }
    }
}

/// With `FM`, the last character before the zeros at the end; a `0` in the pattern keeps its place.
fn last_kept(pattern: &Pattern, number: &[u8], spaces: usize) -> Option<usize> {
    if pattern.fills || !pattern.has_point {
        return None;
    }
    let point = number.iter().position(|&byte| byte == b'.')?;
    let last = number.iter().rposition(|&byte| byte != b'0')?.max(point);
    if pattern.zero_end <= spaces {
        return Some(last);
    }
    Some(last.max((number.len() - 1).min(pattern.zero_end - spaces)))
}

#[cfg(test)]
mod tests {
    use super::{write, write_double};

    /// The digits of a decimal literal, and how many stand after its point.
    fn decimal(text: &str) -> (i128, i8) {
        let after = text
            .split_once('.')
            .map_or(0, |(_, fraction)| fraction.len());
        (text.replace('.', "").parse().unwrap(), after as i8)
    }

    /// Each line of `number.tsv` is a number, a pattern and what PostgreSQL 15 writes.
    #[test]
    fn numbers_are_written_as_postgresql_writes_them() {
        let mut wrong = Vec::new();
        for line in include_str!("number.tsv").lines() {
            let [value, pattern, expected] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("not three parts: {line}")
            };
            let written = match value.strip_suffix("::float8") {
                Some(double) => write_double(double.parse().unwrap(), pattern),
                None => {
                    let (digits, scale) = decimal(value);
                    write(digits, scale, pattern)
                }
            };
            let got = match written {
                Ok(text) => format!("[{text}]"),
                Err(error) => format!("ERROR: {}", crate::tests::sql_error(&error).message),
            };
            if got != expected {
                wrong.push(format!("{line}\n    got: {got}"));
            }
        }
        assert!(
            wrong.is_empty(),
            "{} differ:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
    }
}
