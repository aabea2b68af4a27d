//! Arrays as text: literals beside `= ANY` and `<> ALL`, whose items take the type of the other
//! side, and values of parameters.

use datafusion::sql::sqlparser::ast::{Expr, Value, ValueWithSpan};

/// The items of a literal with one dimension, as string literals and NULLs.
pub(super) fn items(literal: &Expr) -> Option<Vec<Expr>> {
    match literal {
        Expr::Nested(inner) => items(inner),
        Expr::Value(ValueWithSpan {
            value: Value::SingleQuotedString(text),
            ..
        }) => Some(array_items(text)?.into_iter().map(item_literal).collect()),
        _ => None,
    }
}

fn item_literal(item: Option<String>) -> Expr {
    Expr::value(item.map_or(Value::Null, Value::SingleQuotedString))
}

/// `left IN (…)` or its negation; of no items what PostgreSQL says of an empty array.
pub(super) fn in_list(left: &Expr, items: Vec<Expr>, negated: bool) -> Expr {
    if items.is_empty() {
        return Expr::value(Value::Boolean(negated));
    }
    Expr::InList {
        expr: Box::new(left.clone()),
        list: items,
        negated,
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> Option<String> {
        let items = items(&Expr::value(Value::SingleQuotedString(text.to_owned())))?;
        Some(items.iter().map(|item| format!("{item};")).collect())
    }

    #[test]
    fn items_are_those_of_postgresql() {
        let cases = [
            ("{}", Some("")),
            (" { } ", Some("")),
            ("{1,2}", Some("'1';'2';")),
            ("{ a b , NULL,\"NULL\"}", Some("'a b';NULL;'NULL';")),
            (r#"{"a,\"b\"" , \\x}"#, Some(r#"'a,"b"';'\x';"#)),
            ("{1,}", None),
            ("{,1}", None),
            ("{{1},{2}}", None),
            ("{\"a\"b}", None),
            ("{\"a}", None),
            ("1,2", None),
        ];
        for (text, expected) in cases {
            assert_eq!(written(text).as_deref(), expected, "{text}");
        }
    }
}
