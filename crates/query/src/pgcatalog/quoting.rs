//! Names as SQL writes and reads them.

/// Splits a possibly qualified, possibly quoted name as SQL would read it.
pub(crate) fn split_name(text: &str) -> Option<Vec<String>> {
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
    }
}
