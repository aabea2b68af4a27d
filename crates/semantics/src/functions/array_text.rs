//! Arrays as text.

/// Takes an array's text apart, `{1,NULL,"a b"}`. `None` for what is none, or has several
/// dimensions: that is left to who reads it as an array.
pub fn array_items(text: &str) -> Option<Vec<Option<String>>> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut items = Vec::new();
    if inner.trim().is_empty() {
        return Some(items);
    }
    let mut characters = inner.chars().peekable();
    loop {
        while characters.next_if(|c| c.is_ascii_whitespace()).is_some() {}
        let mut item = String::new();
        let is_quoted = characters.next_if_eq(&'"').is_some();
        loop {
            match characters.next() {
                Some('\\') => item.push(characters.next()?),
                Some('"') if is_quoted => break,
                Some('"' | '{' | '}') if !is_quoted => return None,
                Some(',') if !is_quoted => {
                    items.push(bare_item(item.trim_end())?);
                    item.clear();
                    break;
                }
                Some(c) => item.push(c),
                None if is_quoted => return None,
                None => {
                    items.push(bare_item(item.trim_end())?);
                    return Some(items);
                }
            }
        }
        if is_quoted {
            items.push(Some(item));
            while characters.next_if(|c| c.is_ascii_whitespace()).is_some() {}
            match characters.next() {
                Some(',') => {}
                Some(_) => return None,
                None => return Some(items),
            }
        }
    }
}

/// An item that is not quoted: it must be there, and may be NULL.
fn bare_item(item: &str) -> Option<Option<String>> {
    if item.is_empty() {
        return None;
    }
    Some((!item.eq_ignore_ascii_case("null")).then(|| item.to_owned()))
}
