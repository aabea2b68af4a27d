//! From the tokenizer's lines and columns, which count characters from 1, to positions in the
//! text.

use sqlparser::tokenizer::Location;

/// The lines of a text.
pub struct Lines<'a> {
    text: &'a str,
    /// Bytes and characters before each line.
    starts: Vec<(usize, u32)>,
    /// Every character is one byte, so columns count both.
    ascii: bool,
}

impl<'a> Lines<'a> {
    /// The lines of a text.
    pub fn new(text: &'a str) -> Self {
        let mut starts = vec![(0, 0)];
        let mut characters = 0;
        for (at, character) in text.char_indices() {
            characters += 1;
            if character == '\n' {
                starts.push((at + 1, characters));
            }
        }
        Self {
            text,
            starts,
            ascii: text.is_ascii(),
        }
    }

    /// Bytes and characters before the line of a location; those of the whole text beyond the last.
    fn start(&self, location: Location) -> (usize, u32) {
        let line = usize::try_from(location.line.saturating_sub(1)).unwrap_or(usize::MAX);
        let end = || {
            let characters = self.text.chars().count();
            (
                self.text.len(),
                u32::try_from(characters).unwrap_or(u32::MAX),
            )
        };
        self.starts.get(line).copied().unwrap_or_else(end)
    }

    /// The byte that a location begins at.
    pub fn byte(&self, location: Location) -> usize {
        let (start, _) = self.start(location);
        let column = usize::try_from(location.column.saturating_sub(1)).unwrap_or(usize::MAX);
        if self.ascii {
            return start.saturating_add(column).min(self.text.len());
        }
        let rest = &self.text[start..];
        rest.char_indices()
            .nth(column)
            .map_or(self.text.len(), |(at, _)| start + at)
    }

    /// Characters before a location.
    pub fn offset(&self, location: Location) -> u32 {
        let column = u32::try_from(location.column.saturating_sub(1)).unwrap_or(u32::MAX);
        self.start(location).1.saturating_add(column)
    }

    /// The 1-based position of a location, as errors carry it.
    pub fn position(&self, location: Location) -> u32 {
        self.offset(location).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_bytes_and_characters() {
        let lines = Lines::new("äb\ncü d");
        let at = |line, column| {
            let location = Location { line, column };
            (lines.byte(location), lines.offset(location))
        };
        assert_eq!(at(1, 1), (0, 0));
        assert_eq!(at(1, 2), (2, 1));
        assert_eq!(at(2, 1), (4, 3));
        assert_eq!(at(2, 4), (8, 6));
        assert_eq!(at(3, 1), (9, 7), "beyond the last line");
        assert_eq!(Lines::new("ab").byte(Location { line: 1, column: 9 }), 2);
    }
}
