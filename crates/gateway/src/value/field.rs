//! A value's text form, as a part of the text around it.

use std::ops::Range;

use aerostat_types::text;

/// The text form of a value within a longer text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextField<'a> {
    around: &'a str,
    start: usize,
    end: usize,
}

impl<'a> TextField<'a> {
    /// The part of a text that is a value.
    #[inline]
    pub(crate) fn new(around: &'a str, part: Range<usize>) -> Self {
        Self {
            around,
            start: part.start,
            end: part.end,
        }
    }

    /// The value's own text.
    #[inline]
    pub(crate) fn text(self) -> &'a str {
        &self.around[self.start..self.end]
    }

    /// The value as an integer, if it has at most eight digits with perhaps a minus, and the text
    /// goes on for at least eight bytes: nearly all integers do.
    #[inline]
    pub(super) fn short_integer(self) -> Option<i32> {
        let word = self.around.as_bytes().get(self.start..)?.first_chunk()?;
        let (word, bytes) = (u64::from_le_bytes(*word), self.end - self.start);
        // Eight digits are less than 2^31.
        if word as u8 == b'-' {
            let digits = text::digits_of_word(word >> 8, bytes.wrapping_sub(1))?;
            Some(-(digits as i32))
        } else {
            Some(text::digits_of_word(word, bytes)? as i32)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn short_integers_are_those_of_the_standard_library(
            value in "-{0,2}[0-9]{0,10}[+a]?",
            before in "[0-9-]{0,3}",
            after in "[0-9,-]{8}",
        ) {
            let around = format!("{before}{value}{after}");
            let field = TextField::new(&around, before.len()..before.len() + value.len());
            prop_assert_eq!(field.text(), &value);
            let digits = value.strip_prefix('-').unwrap_or(&value);
            // A minus takes a byte of the word.
            let fits = value.len() <= 8 && !digits.starts_with('-');
            let expected = value.parse::<i32>().ok().filter(|_| fits);
            prop_assert_eq!(field.short_integer(), expected, "{:?}", around);
            let cut = TextField::new(&around[..before.len() + value.len()], before.len()..before.len() + value.len());
            prop_assert!(cut.short_integer().is_none_or(|short| Some(short) == expected));
        }
    }
}
