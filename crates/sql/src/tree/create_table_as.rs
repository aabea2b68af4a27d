//! The parts of CREATE TABLE AS that `sqlparser` does not read.
//!
//! ```text
//! CREATE TABLE t (p, q) WITH (…) AS SELECT … WITH NO DATA
//!                ╰────╯                      ╰──────────╯
//!        names of the columns            no rows: LIMIT 0
//! ```
//!
//! Both are taken out of the tokens before parsing and put into the parsed
//! statement after it. A list with a type in it is a list of definitions and
//! stays where it is.

use sqlparser::{
    ast::{ColumnDef, DataType, Expr, Ident, LimitClause, Query, Statement, Value},
    dialect::PostgreSqlDialect,
    tokenizer::{Span, Token, TokenWithSpan, Tokenizer},
};

/// What was taken out of a CREATE TABLE AS.
#[derive(Default)]
pub(super) struct Removed {
    columns: Vec<Ident>,
    no_data: bool,
}

/// Takes the names of columns and WITH \[NO\] DATA out of a CREATE TABLE AS.
/// Leaves the tokens of every other statement as they are.
pub(super) fn remove(tokens: &mut Vec<TokenWithSpan>) -> Removed {
    let words = Words(tokens);
    let meaningful: Vec<usize> = (0..tokens.len())
        .filter(|&at| !matches!(tokens[at].token, Token::Whitespace(_) | Token::EOF))
        .collect();
    let Some(body) = find_as(&words, &meaningful) else {
        return Removed::default();
    };
    let mut removed = Removed::default();
    let mut drop_from = Vec::new();
    if let Some((columns, range)) = column_names(&words, &meaningful[..body]) {
        removed.columns = columns;
        drop_from.push(range);
    }
    if let Some(range) = with_data(&words, &meaningful, &mut removed.no_data) {
        drop_from.push(range);
    }
    for range in drop_from.into_iter().rev() {
        tokens.drain(range);
    }
    removed
}

/// Whether this is the text of a CREATE TABLE AS that ends with WITH NO DATA, for which the parsed
/// statement has no place.
pub fn is_without_data(text: &str) -> bool {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location();
    tokens.is_ok_and(|mut tokens| remove(&mut tokens).no_data)
}

impl Removed {
    /// Puts what was removed into the parsed statement.
    pub(super) fn restore(self, statement: &mut Statement) {
        let Statement::CreateTable(create) = statement else {
            return;
        };
        if !self.columns.is_empty() {
            create.columns = self.columns.into_iter().map(untyped).collect();
        }
        if let (true, Some(query)) = (self.no_data, &mut create.query) {
            without_rows(query);
        }
    }
}

fn untyped(name: Ident) -> ColumnDef {
    ColumnDef {
        name,
        data_type: DataType::Unspecified,
        options: Vec::new(),
    }
}

/// The outermost limit decides, whatever limit the query had.
fn without_rows(query: &mut Query) {
    let zero = Expr::Value(Value::Number("0".to_owned(), false).with_span(Span::empty()));
    query.fetch = None;
    query.limit_clause = Some(LimitClause::LimitOffset {
        limit: Some(zero),
        offset: None,
        limit_by: Vec::new(),
    });
}

struct Words<'a>(&'a [TokenWithSpan]);

impl Words<'_> {
    fn is(&self, at: usize, word: &str) -> bool {
        matches!(&self.0[at].token, Token::Word(found)
            if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
    }

    fn ident(&self, at: usize) -> Option<Ident> {
        match &self.0[at].token {
            Token::Word(word) => Some(Ident {
                value: word.value.clone(),
                quote_style: word.quote_style,
                span: self.0[at].span,
            }),
            _ => None,
        }
    }
}

/// The position among `meaningful` of the AS before the query of a CREATE TABLE.
fn find_as(words: &Words<'_>, meaningful: &[usize]) -> Option<usize> {
    let creates = meaningful.first().is_some_and(|&at| words.is(at, "create"));
    let table = meaningful.iter().take(4).any(|&at| words.is(at, "table"));
    if !(creates && table) {
        return None;
    }
    let mut depth = 0usize;
    meaningful.iter().position(|&at| {
        match words.0[at].token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && words.is(at, "as")
    })
}

/// The first parenthesis of the head, if it holds nothing but names.
fn column_names(words: &Words<'_>, head: &[usize]) -> Option<(Vec<Ident>, std::ops::Range<usize>)> {
    let open = head
        .iter()
        .position(|&at| words.0[at].token == Token::LParen)?;
    // The options of WITH look alike but belong where they are.
    if open > 0 && words.is(head[open - 1], "with") {
        return None;
    }
    let mut names = Vec::new();
    let mut at = open + 1;
    loop {
        names.push(words.ident(*head.get(at)?)?);
        match words.0[*head.get(at + 1)?].token {
            Token::Comma => at += 2,
            Token::RParen => return Some((names, head[open]..head[at + 1] + 1)),
            _ => return None,
        }
    }
}

/// WITH \[NO\] DATA at the end.
fn with_data(
    words: &Words<'_>,
    meaningful: &[usize],
    no_data: &mut bool,
) -> Option<std::ops::Range<usize>> {
    let (&last, rest) = meaningful.split_last()?;
    if !words.is(last, "data") {
        return None;
    }
    let (&before, rest) = rest.split_last()?;
    if words.is(before, "with") {
        return Some(before..last + 1);
    }
    let &first = rest.last()?;
    (words.is(before, "no") && words.is(first, "with")).then(|| {
        *no_data = true;
        first..last + 1
    })
}

#[cfg(test)]
mod tests {
    use crate::statement::{Statement, StatementKind};

    /// The statement as parsed, in `sqlparser`'s own words.
    fn parsed(text: &str) -> String {
        match Statement::single(text).unwrap().kind {
            StatementKind::Sql(statement) => statement.to_string(),
            _ => panic!("{text} is not for sqlparser"),
        }
    }

    #[test]
    fn names_and_data_are_read() {
        for (text, expected) in [
            (
                "CREATE TABLE t (p, \"Q\") AS SELECT 1, 2",
                "CREATE TABLE t (p, \"Q\") AS SELECT 1, 2",
            ),
            (
                "create table if not exists s.t (p) with (layout = 'row') as select 1",
                "CREATE TABLE IF NOT EXISTS s.t (p) WITH (layout = 'row') AS SELECT 1",
            ),
            (
                "CREATE TABLE t AS SELECT 1 WITH NO DATA",
                "CREATE TABLE t AS SELECT 1 LIMIT 0",
            ),
            (
                "CREATE TABLE t AS SELECT 1 LIMIT 5 WITH NO DATA",
                "CREATE TABLE t AS SELECT 1 LIMIT 0",
            ),
            (
                "CREATE TABLE t (a) AS SELECT 1 WITH DATA",
                "CREATE TABLE t (a) AS SELECT 1",
            ),
            (
                "CREATE TABLE t AS (SELECT 1 AS data)",
                "CREATE TABLE t AS (SELECT 1 AS data)",
            ),
            ("CREATE TABLE t (a integer)", "CREATE TABLE t (a INTEGER)"),
        ] {
            assert_eq!(parsed(text), expected, "{text}");
        }
    }

    #[test]
    fn without_data_is_told_by_the_text() {
        for (text, expected) in [
            ("CREATE TABLE t AS SELECT 1 WITH NO DATA -- none", true),
            ("CREATE TABLE t (a) AS SELECT 1 LIMIT 0", false),
            ("CREATE TABLE t AS SELECT 'WITH NO DATA'", false),
        ] {
            assert_eq!(super::is_without_data(text), expected, "{text}");
        }
    }

    #[test]
    fn a_list_that_is_none_is_refused() {
        for text in [
            "CREATE TABLE t (a,) AS SELECT 1",
            "CREATE TABLE t (1) AS SELECT 1",
            "CREATE TABLE t () AS SELECT 1",
        ] {
            assert!(Statement::single(text).is_err(), "{text}");
        }
    }
}
