//! SQL's keywords in PostgreSQL's four categories (its `kwlist.h`, release 15).
//!
//! | category | may name | example |
//! |---|---|---|
//! | unreserved | anything | `day` |
//! | column name | tables and columns, but no function or type | `coalesce` |
//! | type or function name | functions and types, but no table or column | `left` |
//! | reserved | nothing without quotes | `select` |

use std::sync::LazyLock;

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
    let folded = word.to_ascii_lowercase();
    let at = keywords().binary_search_by_key(&folded.as_str(), |keyword| keyword.word);
    at.ok().map(|at| keywords()[at].category)
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
