//! Names as SQL writes and reads them.

use super::data;

/// PostgreSQL's `quote_ident`.
pub(super) fn quote_identifier(name: &str) -> String {
    let plain = name
        .chars()
        .next()
        .is_none_or(|c| c.is_ascii_lowercase() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && data::keywords()
            .binary_search_by(|keyword| keyword.word.cmp(name))
            .map_or(true, |at| data::keywords()[at].class == 'U');
    if plain {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// Splits a possibly qualified, possibly quoted name as SQL would read it.
pub(super) fn split_name(text: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut chars = text.trim().chars().peekable();
    loop {
        let mut part = String::new();
        if chars.next_if_eq(&'"').is_some() {
            loop {
                match chars.next()? {
                    '"' if chars.next_if_eq(&'"').is_some() => part.push('"'),
                    '"' => break,
                    c => part.push(c),
                }
            }
        } else {
            while let Some(c) = chars.next_if(|c| *c != '.' && *c != '"') {
                part.extend(c.to_lowercase());
            }
        }
        if part.is_empty() {
            return None;
        }
        parts.push(part);
        match chars.next() {
            None => return Some(parts),
            Some('.') => {}
            Some(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_split_as_sql_reads_them() {
        assert_eq!(
            split_name("Public.\"Odd \"\"Name\"").unwrap(),
            ["public", "Odd \"Name"]
        );
        assert_eq!(split_name("t").unwrap(), ["t"]);
        for bad in ["", ".", "a.", "\"a", "\"a\"b"] {
            assert!(split_name(bad).is_none(), "{bad}");
        }
        assert_eq!(quote_identifier("Odd \"Name"), "\"Odd \"\"Name\"");
        assert_eq!(quote_identifier("plain_1"), "plain_1");
        assert_eq!(quote_identifier("order"), "\"order\"");
        assert!(data::keywords().is_sorted_by_key(|keyword| keyword.word));
        assert_eq!(quote_identifier("abort"), "abort");
        assert_eq!(quote_identifier("1st"), "\"1st\"");
    }
}
