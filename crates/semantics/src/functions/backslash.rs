//! The escape of LIKE patterns.

/// A LIKE pattern written with the backslash for its escape, or for none.
pub(crate) fn with_backslash(pattern: &str, escape: Option<char>) -> String {
    let mut rewritten = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if Some(character) == escape {
            let next = characters.next();
            if matches!(next, None | Some('%' | '_' | '\\')) {
                rewritten.push('\\');
            }
            rewritten.extend(next);
        } else {
            if character == '\\' {
                rewritten.push('\\');
            }
            rewritten.push(character);
        }
    }
    rewritten
}
