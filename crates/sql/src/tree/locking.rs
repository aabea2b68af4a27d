//! Locking clauses, rewritten so that `sqlparser` reads them.
//!
//! ```text
//! SELECT … FOR NO KEY UPDATE OF a, b SKIP LOCKED LIMIT 1
//!          ╰──────────────────────────────────╯ to the end of its query
//! SELECT … LIMIT 1 FOR UPDATE OF "⟨no key update⟩".a.b SKIP LOCKED
//! ```
//!
//! `sqlparser` knows two of the four strengths, one name after OF, and no clause before LIMIT. So
//! the strength becomes the first part of the name, and the relations are the others; [`clause`]
//! reads it back. FOR READ ONLY has no effect and is left out.

use aerostat_txn::RowLock;
use aerostat_types::{ErrorKind, SqlError};
use sqlparser::{
    ast::{Ident, LockClause, LockType, ObjectName, ObjectNamePart},
    tokenizer::{Span, Token, TokenWithSpan},
};

use crate::lines::Lines;

/// The strengths as they are written, the longer before those they begin with.
const STRENGTHS: [(&[&str], Option<RowLock>); 5] = [
    (&["NO", "KEY", "UPDATE"], Some(RowLock::NoKeyUpdate)),
    (&["KEY", "SHARE"], Some(RowLock::KeyShare)),
    (&["READ", "ONLY"], None),
    (&["UPDATE"], Some(RowLock::Update)),
    (&["SHARE"], Some(RowLock::Share)),
];

/// Words that stand after a query's locking clauses and are no part of it.
const AFTER_QUERY: [&str; 7] = [
    "RETURNING",
    "ON",
    "UNION",
    "INTERSECT",
    "EXCEPT",
    "ORDER",
    "WHERE",
];

/// The strength of a clause as PostgreSQL's messages name it.
pub fn shown(mode: RowLock) -> &'static str {
    match mode {
        RowLock::KeyShare => "FOR KEY SHARE",
        RowLock::Share => "FOR SHARE",
        RowLock::NoKeyUpdate => "FOR NO KEY UPDATE",
        RowLock::Update => "FOR UPDATE",
    }
}

/// The strength of a clause, and the relations it names; none for all.
pub fn clause(clause: &LockClause) -> (RowLock, Vec<Ident>) {
    let named = clause.of.as_ref().map_or(&[][..], |name| &name.0);
    let mut names = named.iter().filter_map(|part| part.as_ident().cloned());
    let strength = names.next().map(|ident| ident.value);
    let known = RowLock::ALL
        .into_iter()
        .find(|mode| strength.as_deref() == Some(shown(*mode)));
    (known.unwrap_or(RowLock::Update), names.collect())
}

/// A clause for all relations of a query.
pub fn clause_for_all(mode: RowLock, like: &LockClause) -> LockClause {
    LockClause {
        lock_type: LockType::Update,
        of: Some(ObjectName(vec![ObjectNamePart::Identifier(
            Ident::with_quote('"', shown(mode)),
        )])),
        nonblock: like.nonblock,
    }
}

/// A query within the tokens, or another pair of parentheses.
struct Level {
    is_query: bool,
    /// Its clauses, to be put at its end.
    clauses: Vec<TokenWithSpan>,
}

/// Moves and respells locking clauses.
///
/// # Errors
/// `SyntaxError` for a qualified name after OF, and where.
pub(super) fn respelled(
    tokens: Vec<TokenWithSpan>,
    lines: &Lines<'_>,
) -> Result<Vec<TokenWithSpan>, SqlError> {
    let at_word: Vec<usize> = (0..tokens.len())
        .filter(|&at| !matches!(tokens[at].token, Token::Whitespace(_) | Token::EOF))
        .collect();
    let meaningful = Meaningful {
        tokens: &tokens,
        at: &at_word,
    };
    if !(0..at_word.len()).any(|at| meaningful.strength(at).is_some()) {
        return Ok(tokens);
    }
    let mut out = Vec::with_capacity(tokens.len());
    let mut levels = vec![Level {
        is_query: true,
        clauses: Vec::new(),
    }];
    let mut at = 0;
    while at < at_word.len() {
        let token = &tokens[at_word[at]];
        let level = levels.last_mut();
        let is_query = level.as_ref().is_some_and(|level| level.is_query);
        if is_query && let Some((words, mode)) = meaningful.strength(at) {
            let (clause, end) = meaningful.clause(at, words, mode, lines)?;
            if let Some(level) = level {
                level.clauses.extend(clause);
            }
            at = end;
            continue;
        }
        let ends =
            token.token == Token::RParen || AFTER_QUERY.iter().any(|word| meaningful.is(at, word));
        if ends && let Some(level) = level {
            out.append(&mut level.clauses);
        }
        match token.token {
            Token::LParen => levels.push(Level {
                is_query: meaningful.begins_query(at + 1),
                clauses: Vec::new(),
            }),
            Token::RParen if levels.len() > 1 => {
                levels.pop();
            }
            _ => {}
        }
        out.push(token.clone());
        at += 1;
    }
    // An unclosed parenthesis is an error of the parser's to come.
    for level in levels.iter_mut().rev() {
        out.append(&mut level.clauses);
    }
    out.extend(
        tokens
            .iter()
            .filter(|token| token.token == Token::EOF)
            .cloned(),
    );
    Ok(out)
}

/// The tokens that are no white space.
struct Meaningful<'a> {
    tokens: &'a [TokenWithSpan],
    at: &'a [usize],
}

impl Meaningful<'_> {
    fn token(&self, at: usize) -> Option<&TokenWithSpan> {
        self.at.get(at).map(|&at| &self.tokens[at])
    }

    fn is(&self, at: usize, wanted: &str) -> bool {
        matches!(self.token(at), Some(TokenWithSpan { token: Token::Word(word), .. })
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
    }

    fn is_punctuation(&self, at: usize, wanted: &Token) -> bool {
        self.token(at).is_some_and(|token| token.token == *wanted)
    }

    fn begins_query(&self, at: usize) -> bool {
        let words = ["SELECT", "WITH", "VALUES", "TABLE"];
        self.is_punctuation(at, &Token::LParen) || words.iter().any(|word| self.is(at, word))
    }

    /// The strength of the locking clause that begins here, and how many words it has.
    fn strength(&self, at: usize) -> Option<(usize, Option<RowLock>)> {
        if !self.is(at, "FOR") {
            return None;
        }
        STRENGTHS.iter().find_map(|(words, mode)| {
            let mut all = words.iter().enumerate();
            let found = all.all(|(nth, word)| self.is(at + 1 + nth, word));
            found.then_some((words.len(), *mode))
        })
    }

    /// The clause of so many words of strength, respelled, and where it ends.
    fn clause(
        &self,
        from: usize,
        words: usize,
        mode: Option<RowLock>,
        lines: &Lines<'_>,
    ) -> Result<(Vec<TokenWithSpan>, usize), SqlError> {
        let span = self.token(from).map_or(Span::empty(), |token| token.span);
        let mut at = from + 1 + words;
        let Some(mode) = mode else {
            return Ok((Vec::new(), at));
        };
        let keyword = |text: &str| TokenWithSpan::new(Token::make_keyword(text), span);
        let strength = Token::make_word(shown(mode), Some('"'));
        let mut clause = vec![keyword("FOR"), keyword("UPDATE"), keyword("OF")];
        clause.push(TokenWithSpan::new(strength, span));
        if self.is(at, "OF") {
            at += 1;
            while let Some(name) = self.token(at) {
                if self.is_punctuation(at + 1, &Token::Period) {
                    let message =
                        format!("{} must specify unqualified relation names", shown(mode));
                    return Err(SqlError::new(ErrorKind::SyntaxError, message)
                        .with_position(lines.position(name.span.start)));
                }
                clause.push(TokenWithSpan::new(Token::Period, name.span));
                clause.push(name.clone());
                at += 1;
                if !self.is_punctuation(at, &Token::Comma) {
                    break;
                }
                at += 1;
            }
        }
        if self.is(at, "NOWAIT") {
            clause.push(keyword("NOWAIT"));
            at += 1;
        } else if self.is(at, "SKIP") && self.is(at + 1, "LOCKED") {
            clause.extend([keyword("SKIP"), keyword("LOCKED")]);
            at += 2;
        }
        Ok((clause, at))
    }
}

#[cfg(test)]
mod tests {
    use sqlparser::ast;

    use super::*;
    use crate::statement::{Statement, StatementKind};

    fn clauses(text: &str) -> Vec<(RowLock, Vec<String>, Option<ast::NonBlock>)> {
        let StatementKind::Sql(parsed) = Statement::single(text).unwrap().kind else {
            panic!("not SQL")
        };
        let ast::Statement::Query(query) = &*parsed else {
            panic!("not a query")
        };
        let read = |one: &LockClause| {
            let (mode, names) = clause(one);
            let names = names.into_iter().map(|name| name.value).collect();
            (mode, names, one.nonblock)
        };
        query.locks.iter().map(read).collect()
    }

    #[test]
    fn clauses_are_read_wherever_they_stand() {
        use ast::NonBlock::{Nowait, SkipLocked};
        let all = Vec::<String>::new;
        assert_eq!(
            clauses("SELECT * FROM t FOR UPDATE LIMIT 1"),
            [(RowLock::Update, all(), None)]
        );
        assert_eq!(
            clauses("SELECT * FROM t LIMIT 1 OFFSET 2 FOR KEY SHARE NOWAIT"),
            [(RowLock::KeyShare, all(), Some(Nowait))]
        );
        assert_eq!(
            clauses("SELECT * FROM a, b FOR NO KEY UPDATE OF a, b SKIP LOCKED for share of \"B\""),
            [
                (
                    RowLock::NoKeyUpdate,
                    vec!["a".to_owned(), "b".to_owned()],
                    Some(SkipLocked)
                ),
                (RowLock::Share, vec!["B".to_owned()], None)
            ]
        );
        assert!(clauses("SELECT * FROM t FOR READ ONLY").is_empty());
        assert!(clauses("SELECT substring(x FOR share) FROM t").is_empty());
        for text in [
            "INSERT INTO t SELECT * FROM u FOR UPDATE RETURNING a",
            "SELECT * FROM (SELECT * FROM t ORDER BY a FOR UPDATE LIMIT 1) AS x",
            "DELETE FROM t WHERE a IN (SELECT a FROM t FOR UPDATE SKIP LOCKED LIMIT 1)",
        ] {
            assert!(Statement::single(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn qualified_names_are_refused() {
        let error = Statement::single("SELECT * FROM s.t FOR UPDATE OF s.t")
            .err()
            .unwrap();
        assert_eq!(
            error.message,
            "FOR UPDATE must specify unqualified relation names"
        );
        assert_eq!(
            (error.kind, error.position),
            (ErrorKind::SyntaxError, Some(33))
        );
    }
}
