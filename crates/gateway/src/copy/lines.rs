//! Lines without escapes and quotes, many at a time.
//!
//! In nearly all COPY data, the values of a line are simply the texts between two delimiters. Such
//! lines are split in one pass over the bytes, 64 at once, and then decoded column by column, so
//! that the code for a type is chosen once per column. Anything else ends the run of lines:
//! escapes, quotes, carriage returns, NUL, bytes that are not UTF-8, a line with too many or too
//! few values, a line whose end has not arrived. The format's own reader handles it, which reads
//! one line at a time and reports errors.
//!
//! ```text
//!  data   1 7 , a b , , 5 \n 1 8 , c , d , 6 \n 1 9 …
//!  marks      ▲     ▲ ▲   ▲      ▲   ▲   ▲   ▲          width marks for each line
//! ```

use memchr::memchr3;

use crate::{limits::READ_BYTES, value::TextField};

/// How many bytes of lines are decoded together: as many as arrive at once, and few enough to stay
/// in the caches while they are read column by column.
const RUN_BYTES_MAX: usize = 2 * READ_BYTES;

/// Which lines are plain in a format.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// An ASCII byte other than NUL.
    pub(super) delimiter: u8,
    /// The byte that begins an escape or a quoted value: a backslash, or a quote.
    pub(super) special: u8,
    /// Whether a whole value `\N` is NULL, although it begins with `special`.
    pub(super) marked_null: bool,
}

/// The text format's usual NULL.
pub(super) const MARKED_NULL: &str = "\\N";

/// How many bytes are searched together: a word has a bit for each.
const GROUP_BYTES: usize = 64;

/// Splits lines. It keeps the memory of the marks from run to run.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    marks: Vec<u32>,
}

/// A run of plain lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines<'a> {
    /// Whole lines, perhaps with more bytes behind them.
    text: &'a str,
    marks: &'a [u32],
    /// How many values a line has.
    width: usize,
}

impl Splitter {
    /// The plain lines of `width` values at the front of the data, at most `rows_max`.
    pub(super) fn split<'a>(
        &'a mut self,
        data: &'a [u8],
        form: &Form,
        width: usize,
        rows_max: usize,
    ) -> Lines<'a> {
        let text = plain_text(&data[..data.len().min(RUN_BYTES_MAX)], form);
        self.mark(text.as_bytes(), form.delimiter, width, rows_max);
        assert!(
            self.marks.len().is_multiple_of(width) && self.marks.len() / width <= rows_max,
            "{} marks are no lines of {width} values, or more than {rows_max}",
            self.marks.len()
        );
        assert!(
            self.marks
                .last()
                .is_none_or(|end| (*end as usize) < text.len()),
            "the last line ends within the data"
        );
        Lines {
            text,
            marks: &self.marks,
            width,
        }
    }

    /// Notes the ends of values, up to a line that has too few or too many.
    fn mark(&mut self, data: &[u8], delimiter: u8, width: usize, rows_max: usize) {
        self.marks.clear();
        let mut lines = 0;
        let (groups, rest) = data.as_chunks::<GROUP_BYTES>();
        let mut last = [0; GROUP_BYTES];
        last[..rest.len()].copy_from_slice(rest);
        for (nth, group) in groups.iter().chain([&last]).enumerate() {
            let newlines = positions(group, b'\n');
            let ends = positions(group, delimiter) | newlines;
            let before = self.marks.len();
            let first = (nth * GROUP_BYTES) as u32;
            self.marks.resize(before + ends.count_ones() as usize, 0);
            for (mark, at) in self.marks[before..].iter_mut().zip(ones(ends)) {
                *mark = first + at;
            }
            for at in ones(newlines) {
                // The number of values up to this line's end.
                let values = before + (ends & (u64::MAX >> (63 - at))).count_ones() as usize;
                if lines == rows_max || values != (lines + 1) * width {
                    self.marks.truncate(lines * width);
                    return;
                }
                lines += 1;
            }
        }
        self.marks.truncate(lines * width);
    }
}

/// The positions of the bits that are set, from the lowest.
#[inline]
fn ones(mut bits: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let at = (bits != 0).then(|| bits.trailing_zeros());
        bits &= bits.wrapping_sub(1);
        at
    })
}

/// A bit for each byte of a group that equals `wanted`.
#[inline]
fn positions(group: &[u8; GROUP_BYTES], wanted: u8) -> u64 {
    let (words, _) = group.as_chunks::<8>();
    let words = words.iter().enumerate();
    words.fold(0, |bits, (nth, word)| {
        bits | positions_in_word(u64::from_le_bytes(*word), wanted) << (8 * nth)
    })
}

/// As [`positions`], with eight bits for the bytes of a little-endian word.
#[inline]
fn positions_in_word(word: u64, wanted: u8) -> u64 {
    const LOW_BITS: u64 = u64::from_le_bytes([0x7F; 8]);
    let difference = word ^ u64::from_le_bytes([wanted; 8]);
    // The top bit of each byte is 0 for a byte that is 0, because no carry leaves a byte.
    let other = ((difference & LOW_BITS) + LOW_BITS) | difference;
    let found = !other >> 7 & u64::from_le_bytes([1; 8]);
    // The product has bit 8·i at bit 56 + i.
    found.wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// The longest beginning of the data that is text without anything special.
fn plain_text<'a>(data: &'a [u8], form: &Form) -> &'a str {
    let mut from = 0;
    let end = loop {
        match memchr3(form.special, b'\r', 0, &data[from..]) {
            None => break data.len(),
            Some(offset) if form.marked_null && is_marked_null(data, from + offset, form) => {
                from += offset + MARKED_NULL.len();
            }
            Some(offset) => break from + offset,
        }
    };
    let plain = &data[..end];
    let valid = match std::str::from_utf8(plain) {
        Ok(text) => return text,
        Err(error) => &plain[..error.valid_up_to()],
    };
    std::str::from_utf8(valid).expect("the bytes before the first bad one are good")
}

/// Whether a whole value at this position is `\N`. The delimiter before it is not escaped, because
/// an escape would have ended the plain text.
fn is_marked_null(data: &[u8], at: usize, form: &Form) -> bool {
    let is_end = |byte: &u8| *byte == form.delimiter || *byte == b'\n';
    let begins = at == 0 || is_end(&data[at - 1]);
    let after = data[at..].strip_prefix(MARKED_NULL.as_bytes());
    begins && after.and_then(<[u8]>::first).is_some_and(is_end)
}

impl<'a> Lines<'a> {
    pub(super) fn count(&self) -> usize {
        self.marks.len() / self.width
    }

    /// How many bytes the lines take in the data.
    pub(super) fn bytes(&self) -> usize {
        self.marks.last().map_or(0, |&end| end as usize + 1)
    }

    /// The values of a column, one per line.
    pub(super) fn column(self, column: usize) -> impl Iterator<Item = TextField<'a>> {
        let value = move |line: &'a [u32], before: Option<u32>| {
            let before = match column {
                0 => before,
                _ => Some(line[column - 1]),
            };
            let start = before.map_or(0, |mark| mark as usize + 1);
            TextField::new(self.text, start..line[column] as usize)
        };
        let mut before = None;
        self.marks.chunks_exact(self.width).map(move |line| {
            let value = value(line, before);
            before = line.last().copied();
            value
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: Form = Form {
        delimiter: b'\t',
        special: b'\\',
        marked_null: true,
    };

    fn values(
        data: &[u8],
        form: &Form,
        width: usize,
        rows_max: usize,
    ) -> (Vec<Vec<String>>, usize) {
        let mut splitter = Splitter::default();
        let lines = splitter.split(data, form, width, rows_max);
        let mut rows = vec![Vec::new(); lines.count()];
        for column in 0..width {
            for (row, value) in rows.iter_mut().zip(lines.column(column)) {
                row.push(value.text().to_owned());
            }
        }
        (rows, lines.bytes())
    }

    /// The values of the lines, read line by line.
    fn expected(
        data: &[u8],
        form: &Form,
        width: usize,
        rows_max: usize,
    ) -> (Vec<Vec<String>>, usize) {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        for line in data.split_inclusive(|&byte| byte == b'\n').take(rows_max) {
            let (Ok(text), true) = (std::str::from_utf8(line), line.ends_with(b"\n")) else {
                break;
            };
            let row: Vec<_> = text[..text.len() - 1]
                .split(form.delimiter as char)
                .map(str::to_owned)
                .collect();
            let is_plain = |value: &String| {
                let special = |byte| byte == form.special || byte == b'\r' || byte == 0;
                form.marked_null && value == "\\N" || !value.bytes().any(special)
            };
            if row.len() != width || !row.iter().all(is_plain) {
                break;
            }
            rows.push(row);
            bytes += line.len();
        }
        (rows, bytes)
    }

    proptest! {
        #[test]
        fn lines_are_split_at_every_delimiter(
            data in "([a\\u{e9}]{0,9}\t(\\\\N|[0-9]{0,9})\n){0,40}[a\t\n\r\\\\N]{0,12}",
            more: Vec<u8>,
            marked_null: bool,
            rows_max in 0usize..50,
        ) {
            let data = [data.as_bytes(), &more].concat();
            let form = Form { marked_null, ..TEXT };
            prop_assert_eq!(values(&data, &form, 2, rows_max), expected(&data, &form, 2, rows_max));
        }

        #[test]
        fn words_show_every_place_of_a_byte(word: u64, wanted: u8, at in 0usize..8) {
            let mut bytes = word.to_le_bytes();
            bytes[at] = wanted;
            let expected = (0..8).fold(0, |bits, at| bits | u64::from(bytes[at] == wanted) << at);
            prop_assert_eq!(positions_in_word(u64::from_le_bytes(bytes), wanted), expected);
        }
    }

    #[test]
    fn what_is_not_plain_ends_the_run() {
        let form = TEXT;
        for rest in [
            "a\\\tb\tc\n",
            "a\n",
            "a\tb\tc\n",
            "a\tb\r\n",
            "a\tb",
            "\\N\\\tb\n",
            "\\Na\tb\n",
            "a\0\tb\n",
        ] {
            let data = format!("1\t\\N\n{rest}");
            let one = vec![vec!["1".to_owned(), "\\N".to_owned()]];
            assert_eq!(values(data.as_bytes(), &form, 2, 9), (one, 5), "{rest:?}");
        }
    }
}
