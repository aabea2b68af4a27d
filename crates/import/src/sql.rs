//! Names and texts within statements.

/// A name in double quotes.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The name of a relation with its schema.
pub(crate) fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", identifier(schema), identifier(name))
}

/// A text as a constant. Backslashes are themselves, as `standard_conforming_strings` has it.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_within_are_doubled() {
        assert_eq!(identifier(r#"a"b"#), r#""a""b""#);
        assert_eq!(qualified("s", "T x"), r#""s"."T x""#);
        assert_eq!(literal(r"it's \n"), r"'it''s \n'");
    }
}
