//! SQL's keywords in PostgreSQL's four categories (its `kwlist.h`, release 15).
//!
//! | category | can name | example |
//! |---|---|---|
//! | unreserved | anything | `day` |
//! | column name | tables and columns, but no function or type | `coalesce` |
//! | type or function name | functions and types, but no table or column | `left` |
//! | reserved | nothing without quotes | `select` |

use std::{ops::Range, sync::LazyLock};

use KeywordCategory::{ColumnName, Reserved, TypeOrFunctionName, Unreserved};

/// What a keyword may name without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeywordCategory {
    /// Anything.
    Unreserved,
    /// Tables, columns and schemas, but no function or type.
    ColumnName,
    /// Functions and types, but no table or column.
    TypeOrFunctionName,
    /// Nothing.
    Reserved,
}

/// The category of a word, in any case; nothing for a word that is no keyword.
pub fn keyword_category(word: &str) -> Option<KeywordCategory> {
    let is_word = |keyword: &&Keyword| keyword.word.eq_ignore_ascii_case(word);
    let found = alike(word)?.iter().find(is_word);
    found.map(|keyword| keyword.category)
}

/// Letters that a keyword can begin with, and lengths, beginning with 0.
const LETTERS: usize = 26;
const LENGTHS: usize = 20;

/// The keywords that begin with the word's letter and are as long: a few at most.
fn alike(word: &str) -> Option<&'static [Keyword]> {
    static INDEX: LazyLock<(Vec<Keyword>, Vec<Range<usize>>)> = LazyLock::new(|| {
        let mut all = keywords().to_vec();
        all.sort_by_key(|keyword| place(keyword.word));
        let at =
            |place: usize| all.partition_point(|keyword| self::place(keyword.word) < Some(place));
        let ranges = (0..LETTERS * LENGTHS)
            .map(|place| at(place)..at(place + 1))
            .collect();
        (all, ranges)
    });
    let (all, ranges) = &*INDEX;
    all.get(ranges.get(place(word)?)?.clone())
}

/// Where [`alike`] has words of the same first letter and length.
fn place(word: &str) -> Option<usize> {
    let first = word.bytes().next()?.to_ascii_lowercase();
    let letter = usize::from(first.checked_sub(b'a')?);
    (letter < LETTERS && word.len() < LENGTHS).then_some(letter * LENGTHS + word.len())
}

/// Whether a word can name a table or column without quotes: PostgreSQL's `ColId`.
pub fn may_name_column(word: &str) -> bool {
    !matches!(keyword_category(word), Some(TypeOrFunctionName | Reserved))
}

/// A name in double quotes unless it reads back as itself without them, as `quote_ident` writes it.
pub fn quote_ident(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && matches!(keyword_category(name), None | Some(Unreserved));
    if plain {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// A keyword.
#[derive(Clone, Copy, Debug)]
pub struct Keyword {
    /// The word, in lower case.
    pub word: &'static str,
    /// What it may name.
    pub category: KeywordCategory,
    /// Whether it may be a column's label without AS.
    pub is_bare_label: bool,
}

/// All keywords, sorted.
pub fn keywords() -> &'static [Keyword] {
    static ALL: LazyLock<Vec<Keyword>> = LazyLock::new(|| {
        include_str!("keywords.txt")
            .lines()
            .filter_map(read)
            .collect()
    });
    &ALL
}

/// Reads a line `word category label`, as `pg_get_keywords` shows them.
fn read(line: &'static str) -> Option<Keyword> {
    let mut parts = line.split(' ');
    Some(Keyword {
        word: parts.next()?,
        category: match parts.next()? {
            "U" => Unreserved,
            "C" => ColumnName,
            "T" => TypeOrFunctionName,
            "R" => Reserved,
            _ => return None,
        },
        is_bare_label: parts.next()? == "t",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_sorted_for_the_search() {
        assert!(keywords().is_sorted_by(|a, b| a.word < b.word));
        let lines = include_str!("keywords.txt").lines().count();
        assert_eq!(keywords().len(), lines, "every line is read");
    }

    #[test]
    fn categories_are_postgresqls() {
        for (word, category) in [
            ("DAY", Some(Unreserved)),
            ("coalesce", Some(ColumnName)),
            ("left", Some(TypeOrFunctionName)),
            ("Select", Some(Reserved)),
            ("aerostat", None),
        ] {
            assert_eq!(keyword_category(word), category, "{word}");
        }
        for keyword in keywords() {
            let upper = keyword.word.to_ascii_uppercase();
            assert_eq!(keyword_category(&upper), Some(keyword.category), "{upper}");
        }
        for word in ["", "_a", "ä", "{", "z", "no_keyword_is_as_long_as_this"] {
            assert_eq!(keyword_category(word), None, "{word}");
        }
        assert!(may_name_column("values") && may_name_column("name"));
        assert!(!may_name_column("join") && !may_name_column("table"));
    }

    #[test]
    fn names_that_need_quotes_get_them() {
        for (name, quoted) in [
            ("a_1", "a_1"),
            ("A", "\"A\""),
            ("1a", "\"1a\""),
            ("", "\"\""),
            ("a\"b", "\"a\"\"b\""),
            ("user", "\"user\""),
            ("integer", "\"integer\""),
            ("left", "\"left\""),
            ("day", "day"),
        ] {
            assert_eq!(quote_ident(name), quoted);
        }
    }
}
