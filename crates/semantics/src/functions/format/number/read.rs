//! Numbers read by pattern, after `NUM_numpart_from_char` of PostgreSQL's `formatting.c`.

use aerostat_types::text::parse_numeric;
use aerostat_types::{ErrorKind, SqlType};
use datafusion::common::Result;

use super::{Part, Pattern, parse};
use crate::functions::cast::POWERS_OF_TEN;
use crate::functions::overload::NUMERIC;
use crate::{external, raise};

/// Reads a number as far as the pattern goes, as the default numeric.
pub(in crate::functions::format) fn read(text: &str, pattern: &str) -> Result<i128> {
    let pattern = parse(pattern)?;
    let mut reader = Reader::new(text, &pattern);
    for part in &pattern.parts {
        if reader.peek().is_none() {
            break;
        }
        reader.part(part);
    }
    let SqlType::Numeric { precision, scale } = NUMERIC else {
        return Err(raise(ErrorKind::Internal, "numeric is not numeric"));
    };
    let value = parse_numeric(&reader.number(), precision, scale).map_err(external)?;
    Ok(value / POWERS_OF_TEN.get(pattern.shift).copied().unwrap_or(1))
}

struct Reader<'a> {
    text: Vec<char>,
    at: usize,
    pattern: &'a Pattern,
    /// A blank until a sign has been read.
    sign: char,
    digits: String,
    has_point: bool,
    /// Digits behind the point.
    after: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &str, pattern: &'a Pattern) -> Self {
        Self {
            text: text.chars().collect(),
            at: 0,
            pattern,
            sign: ' ',
            digits: String::new(),
            has_point: false,
            after: 0,
        }
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn number(&self) -> String {
        format!("{}{}", self.sign, self.digits.trim_end_matches('.'))
    }

    fn part(&mut self, part: &Part) {
        match part {
            Part::Nine | Part::Zero | Part::Point => {
                self.digit(!matches!(part, Part::Point));
                self.at += 1;
            }
            Part::Comma => {
                let is_skipped = self.digits.is_empty() && !self.pattern.fills;
                if !is_skipped && self.peek() == Some(',') {
                    self.at += 1;
                }
            }
            Part::Currency => self.skip_other(1),
            Part::Ordinal { .. } => self.skip_other(2),
            Part::Minus => self.sign_of(&['-']),
            Part::Plus => self.sign_of(&['+']),
            Part::Sign => self.sign_of(&['-', '+']),
            Part::Text(_) => self.at += 1,
            Part::Roman { .. } | Part::Silent => {}
        }
    }

    /// A sign in its place, or another character that is no part of a number.
    fn sign_of(&mut self, signs: &[char]) {
        match self.peek() {
            Some(sign) if signs.contains(&sign) => {
                self.sign = sign;
                self.at += 1;
            }
            _ => self.skip_other(1),
        }
    }

    fn skip_other(&mut self, most: usize) {
        for _ in 0..most {
            match self.peek() {
                Some(other) if !"0123456789.,+-".contains(other) => self.at += 1,
                _ => break,
            }
        }
    }

    /// A digit or the point. It stands before what it has read; the caller goes on.
    fn digit(&mut self, is_digit: bool) {
        if self.peek() == Some(' ') {
            self.at += 1;
        }
        if self.sign == ' ' && is_digit && !self.has_digits() {
            self.sign_before();
        }
        let Some(found) = self.peek() else {
            return;
        };
        let mut is_read = false;
        if found.is_ascii_digit() {
            if self.has_point && self.after == self.pattern.after {
                return;
            }
            self.after += usize::from(self.has_point);
            self.digits.push(found);
            is_read = true;
        } else if self.pattern.has_point && !self.has_point && found == '.' {
            self.digits.push('.');
            self.has_point = true;
            is_read = true;
        }
        if self.sign == ' ' && self.has_digits() {
            self.sign_behind(is_read);
        }
    }

    fn has_digits(&self) -> bool {
        self.digits.bytes().any(|byte| byte.is_ascii_digit())
    }

    fn sign_before(&mut self) {
        let Some(found) = self.peek() else {
            return;
        };
        match found {
            '-' => self.sign = '-',
            '<' if self.pattern.has_brackets && !self.pattern.has_anchor => self.sign = '-',
            '+' => self.sign = '+',
            _ => return,
        }
        self.at += 1;
    }

    /// A sign right behind the last digit, where the pattern has one somewhere.
    fn sign_behind(&mut self, is_read: bool) {
        if self.pattern.has_anchor {
            let next = self.text.get(self.at + 1).copied();
            if let (true, Some(sign @ ('-' | '+'))) = (is_read, next) {
                self.sign = sign;
                self.at += 1;
            }
        } else if !is_read
            && (self.pattern.has_plus || self.pattern.has_minus)
            && let Some(sign @ ('-' | '+')) = self.peek()
        {
            self.sign = sign;
        }
    }
}
