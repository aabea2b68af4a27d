//! The syntax of MERGE that `sqlparser` does not read.
//!
//! | written | handed on |
//! |---|---|
//! | `WHEN MATCHED THEN DO NOTHING` | `… THEN UPDATE SET "⟨nothing⟩" = NULL` |
//! | `WHEN NOT MATCHED THEN DO NOTHING` | `… THEN INSERT ("⟨nothing⟩") VALUES (NULL)` |
//! | `INSERT DEFAULT VALUES` | `INSERT ("⟨default values⟩") VALUES (NULL)` |
//! | `INSERT (a) OVERRIDING SYSTEM VALUE VALUES …` | `INSERT (a, "⟨system value⟩") VALUES …` |
//! | `USING a JOIN b ON … ON …` | `USING (a JOIN b ON …) ON …` |
//!
//! [`action`] reads it back. Clauses of other systems that `sqlparser` accepts are refused.

use std::ops::Range;

use aerostat_types::{ErrorKind, SqlError};
use sqlparser::{
    ast::{
        Assignment, AssignmentTarget, Expr, MergeAction, MergeInsertKind, MysqlInsertPriority,
        ObjectName,
    },
    tokenizer::{Token, TokenWithSpan},
};

use crate::lines::Lines;

/// Columns that stand for what is not read; no names that a user can write.
const NOTHING: &str = "\u{1}nothing";
const DEFAULT_VALUES: &str = "\u{1}default values";
const SYSTEM_VALUE: &str = "\u{1}system value";
const USER_VALUE: &str = "\u{1}user value";

/// What a WHEN clause does.
#[derive(Clone, Copy)]
pub enum Action<'a> {
    /// DO NOTHING.
    Nothing,
    /// DELETE.
    Delete,
    /// UPDATE SET.
    Update(&'a [Assignment]),
    /// INSERT.
    Insert(NewRow<'a>),
}

/// The row that a WHEN clause inserts.
#[derive(Clone, Copy)]
pub struct NewRow<'a> {
    /// The columns that are listed; none for all.
    pub columns: &'a [ObjectName],
    /// OVERRIDING, as `super::identity` has it of an INSERT.
    pub overriding: Option<MysqlInsertPriority>,
    /// `None` for DEFAULT VALUES.
    pub values: Option<&'a [Expr]>,
}

/// What a parsed clause does; `None` for what PostgreSQL does not have.
pub fn action(action: &MergeAction) -> Option<Action<'_>> {
    match action {
        MergeAction::Delete { .. } => Some(Action::Delete),
        MergeAction::Update(update) => match &update.assignments[..] {
            [only] if assigns(only, NOTHING) => Some(Action::Nothing),
            all => Some(Action::Update(all)),
        },
        MergeAction::Insert(insert) => {
            let MergeInsertKind::Values(values) = &insert.kind else {
                return None;
            };
            let [row] = &values.rows[..] else {
                return None;
            };
            let (columns, overriding) = match insert.columns.split_last() {
                Some((last, _)) if is_named(last, NOTHING) => return Some(Action::Nothing),
                Some((last, _)) if is_named(last, DEFAULT_VALUES) => {
                    return Some(Action::Insert(NewRow {
                        columns: &[],
                        overriding: None,
                        values: None,
                    }));
                }
                Some((last, others)) if is_named(last, SYSTEM_VALUE) => {
                    (others, Some(MysqlInsertPriority::LowPriority))
                }
                Some((last, others)) if is_named(last, USER_VALUE) => {
                    (others, Some(MysqlInsertPriority::HighPriority))
                }
                _ => (&insert.columns[..], None),
            };
            Some(Action::Insert(NewRow {
                columns,
                overriding,
                values: Some(&row.content),
            }))
        }
    }
}

fn assigns(assignment: &Assignment, name: &str) -> bool {
    matches!(&assignment.target, AssignmentTarget::ColumnName(column) if is_named(column, name))
}

fn is_named(column: &ObjectName, name: &str) -> bool {
    let mut parts = column.0.iter().filter_map(|part| part.as_ident());
    parts.next().is_some_and(|ident| ident.value == name)
}

/// Spells the tokens of a statement so that `sqlparser` reads them.
///
/// # Errors
/// `SyntaxError` for what PostgreSQL's grammar does not have, and where.
pub(super) fn respell(tokens: &mut Vec<TokenWithSpan>, lines: &Lines<'_>) -> Result<(), SqlError> {
    let begins = ["MERGE", "WITH", "EXPLAIN"];
    let first = tokens.iter().find(|token| is_meaningful(token));
    if !first.is_some_and(|first| begins.iter().any(|word| has(first, word))) {
        return Ok(());
    }
    let outside = outside(tokens);
    let reader = Reader {
        tokens,
        at: &outside,
        lines,
    };
    let Some(merge) = reader.find_merge() else {
        return Ok(());
    };
    let edits = reader.edits(merge)?;
    // From the last on, so that the places of those before stay.
    for (place, spelled) in edits.into_iter().rev() {
        let span = tokens[place.start].span;
        let spelled = spelled
            .into_iter()
            .map(|token| TokenWithSpan::new(token, span));
        drop(tokens.splice(place, spelled));
    }
    Ok(())
}

/// Tokens to be put in the place of others.
type Edit = (Range<usize>, Vec<Token>);

fn is_meaningful(token: &TokenWithSpan) -> bool {
    !matches!(token.token, Token::Whitespace(_) | Token::EOF)
}

/// Where the tokens are that stand outside parentheses and CASE, with the parentheses.
fn outside(tokens: &[TokenWithSpan]) -> Vec<usize> {
    let (mut depth, mut cases) = (0usize, 0usize);
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if !is_meaningful(token) {
            continue;
        }
        if matches!(token.token, Token::RParen | Token::RBracket) {
            depth = depth.saturating_sub(1);
        }
        if depth == 0 {
            cases += usize::from(has(token, "CASE"));
            if cases == 0 {
                found.push(at);
            } else if has(token, "END") {
                cases -= 1;
            }
        }
        depth += usize::from(matches!(token.token, Token::LParen | Token::LBracket));
    }
    found
}

/// The tokens outside parentheses and CASE, by their number.
struct Reader<'a> {
    tokens: &'a [TokenWithSpan],
    at: &'a [usize],
    lines: &'a Lines<'a>,
}

impl Reader<'_> {
    fn token(&self, nth: usize) -> Option<&TokenWithSpan> {
        self.at.get(nth).map(|&at| &self.tokens[at])
    }

    fn is(&self, nth: usize, word: &str) -> bool {
        self.token(nth).is_some_and(|token| has(token, word))
    }

    fn is_token(&self, nth: usize, wanted: &Token) -> bool {
        self.token(nth).is_some_and(|token| token.token == *wanted)
    }

    /// The place of a token, which is there.
    fn place(&self, nth: usize) -> usize {
        self.at[nth]
    }

    /// The error for a token that does not belong.
    fn near(&self, nth: usize) -> SqlError {
        match self.token(nth) {
            Some(token) => SqlError::new(
                ErrorKind::SyntaxError,
                format!("syntax error at or near \"{}\"", token.token),
            )
            .with_position(self.lines.position(token.span.start)),
            None => SqlError::new(ErrorKind::SyntaxError, "syntax error at end of input"),
        }
    }

    /// The word MERGE that begins the statement, behind EXPLAIN and WITH.
    fn find_merge(&self) -> Option<usize> {
        let others = ["SELECT", "VALUES", "INSERT", "UPDATE", "DELETE", "TABLE"];
        let before = ["EXPLAIN", "ANALYZE", "ANALYSE", "VERBOSE"];
        for nth in 0..self.at.len() {
            if others.iter().any(|word| self.is(nth, word)) {
                return None;
            }
            let begins = nth == 0
                || self.is_token(nth - 1, &Token::RParen)
                || before.iter().any(|word| self.is(nth - 1, word));
            if begins && self.is(nth, "MERGE") {
                return Some(nth);
            }
        }
        None
    }

    fn edits(&self, merge: usize) -> Result<Vec<Edit>, SqlError> {
        if !self.is(merge + 1, "INTO") {
            return Err(self.near(merge + 1));
        }
        let whens = (merge..self.at.len()).filter(|&nth| self.is(nth, "WHEN"));
        let whens: Vec<usize> = whens.collect();
        let Some(&first) = whens.first() else {
            return Ok(Vec::new());
        };
        let mut edits = self.joined_source(merge, first);
        let ends = whens.iter().skip(1).copied().chain([self.at.len()]);
        for (&when, end) in whens.iter().zip(ends) {
            edits.extend(self.clause(when, end)?);
        }
        Ok(edits)
    }

    /// Parentheses around a data source that is a join.
    fn joined_source(&self, merge: usize, end: usize) -> Vec<Edit> {
        let mut using = (merge..end).filter(|&nth| self.is(nth, "USING"));
        let on = (merge..end).rev().find(|&nth| self.is(nth, "ON"));
        let (Some(using), Some(on)) = (using.next(), on) else {
            return Vec::new();
        };
        if !(using..on).any(|nth| self.is(nth, "JOIN")) {
            return Vec::new();
        }
        let (from, to) = (self.place(using + 1), self.place(on));
        vec![
            (from..from, vec![Token::LParen]),
            (to..to, vec![Token::RParen]),
        ]
    }

    /// What is respelled of a clause, which ends before `end`.
    fn clause(&self, when: usize, end: usize) -> Result<Option<Edit>, SqlError> {
        let is_matched = !self.is(when + 1, "NOT");
        let by = when + 2 + usize::from(!is_matched);
        if self.is(by, "BY") {
            return Err(self.near(by));
        }
        let Some(then) = (when..end).find(|&nth| self.is(nth, "THEN")) else {
            return Ok(None);
        };
        let action = then + 1;
        let refused = (action..end).find(|&nth| self.is(nth, "WHERE") || self.is(nth, "RETURNING"));
        if let Some(refused) = refused {
            return Err(self.near(refused));
        }
        let is_nothing = self.is(action, "DO") && self.is(action + 1, "NOTHING");
        let (edit, next) = if is_nothing {
            let place = self.place(action)..self.place(action + 1) + 1;
            let spelled = match is_matched {
                true => update_of(NOTHING),
                false => insert_of(NOTHING),
            };
            (Some((place, spelled)), Some(action + 2))
        } else if self.is(action, "INSERT") {
            self.insert(action)
        } else {
            (None, None)
        };
        match next {
            Some(next) if next < end => Err(self.near(next)),
            _ => Ok(edit),
        }
    }

    /// What is respelled of an INSERT, and what comes behind it, if that can be told.
    fn insert(&self, insert: usize) -> (Option<Edit>, Option<usize>) {
        let mut nth = insert + 1;
        if self.is(nth, "DEFAULT") && self.is(nth + 1, "VALUES") {
            let place = self.place(insert)..self.place(nth + 1) + 1;
            return (Some((place, insert_of(DEFAULT_VALUES))), Some(nth + 2));
        }
        let has_columns = self.is_token(nth, &Token::LParen);
        nth += 2 * usize::from(has_columns);
        let overrides = self.is(nth, "OVERRIDING") && self.is(nth + 2, "VALUE");
        let markers = [("SYSTEM", SYSTEM_VALUE), ("USER", USER_VALUE)];
        let meant = markers.iter().find(|(word, _)| self.is(nth + 1, word));
        let edit = meant.filter(|_| overrides).map(|(_, marker)| {
            let marker = Token::make_word(marker, Some('"'));
            let end = self.place(nth + 2) + 1;
            match has_columns {
                // The list's end, and the clause behind it.
                true => (
                    self.place(nth - 1)..end,
                    vec![Token::Comma, marker, Token::RParen],
                ),
                false => (
                    self.place(nth)..end,
                    vec![Token::LParen, marker, Token::RParen],
                ),
            }
        });
        nth += 3 * usize::from(edit.is_some());
        let has_values = self.is(nth, "VALUES") && self.is_token(nth + 1, &Token::LParen);
        (edit, has_values.then_some(nth + 3))
    }
}

/// `INSERT ("…") VALUES (NULL)`.
fn insert_of(marker: &str) -> Vec<Token> {
    vec![
        Token::make_keyword("INSERT"),
        Token::LParen,
        Token::make_word(marker, Some('"')),
        Token::RParen,
        Token::make_keyword("VALUES"),
        Token::LParen,
        Token::make_keyword("NULL"),
        Token::RParen,
    ]
}

/// `UPDATE SET "…" = NULL`.
fn update_of(marker: &str) -> Vec<Token> {
    vec![
        Token::make_keyword("UPDATE"),
        Token::make_keyword("SET"),
        Token::make_word(marker, Some('"')),
        Token::Eq,
        Token::make_keyword("NULL"),
    ]
}

fn has(token: &TokenWithSpan, wanted: &str) -> bool {
    matches!(&token.token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use sqlparser::ast;

    use super::{Action, action};
    use crate::statement::{Statement, StatementKind};

    /// The actions of a MERGE, in short.
    fn actions(text: &str) -> Vec<String> {
        let StatementKind::Sql(parsed) = Statement::single(text).unwrap().kind else {
            panic!("not SQL")
        };
        let mut parsed = (*parsed).clone();
        if let ast::Statement::Explain { statement, .. } = parsed {
            parsed = *statement;
        }
        if let ast::Statement::Query(query) = &parsed
            && let ast::SetExpr::Merge(statement) = &*query.body
        {
            parsed = statement.clone();
        }
        let ast::Statement::Merge(merge) = parsed else {
            panic!("not a MERGE")
        };
        let shown = |clause: &ast::MergeClause| match action(&clause.action).unwrap() {
            Action::Nothing => "nothing".to_owned(),
            Action::Delete => "delete".to_owned(),
            Action::Update(set) => format!("update {}", set.len()),
            Action::Insert(row) => {
                let values = row
                    .values
                    .map_or("default".to_owned(), |v| v.len().to_string());
                format!("insert {} {:?} {values}", row.columns.len(), row.overriding)
            }
        };
        merge.clauses.iter().map(shown).collect()
    }

    #[test]
    fn clauses_are_read() {
        let merge = "MERGE INTO t USING s ON t.a = s.a";
        for (written, read) in [
            (
                "WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED AND s.b > 0 THEN do nothing",
                &["nothing", "nothing"][..],
            ),
            (
                "WHEN MATCHED AND CASE WHEN s.b > 0 THEN true END THEN UPDATE SET b = CASE WHEN true THEN 1 END, c = 2 WHEN MATCHED THEN DELETE",
                &["update 2", "delete"][..],
            ),
            (
                "WHEN NOT MATCHED THEN INSERT VALUES (1, (SELECT 2 WHERE true))",
                &["insert 0 None 2"][..],
            ),
            (
                "WHEN NOT MATCHED THEN INSERT (a, b) OVERRIDING SYSTEM VALUE VALUES (1, 2)",
                &["insert 2 Some(LowPriority) 2"][..],
            ),
            (
                "WHEN NOT MATCHED THEN INSERT OVERRIDING USER VALUE VALUES (1, 2)",
                &["insert 0 Some(HighPriority) 2"][..],
            ),
            (
                "WHEN NOT MATCHED THEN INSERT DEFAULT VALUES",
                &["insert 0 None default"][..],
            ),
        ] {
            assert_eq!(actions(&format!("{merge} {written}")), read, "{written}");
        }
        for text in [
            "WITH s AS (SELECT 1 AS a) MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DO NOTHING",
            "EXPLAIN MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DO NOTHING",
            "EXPLAIN (COSTS OFF) MERGE INTO t USING s ON true WHEN MATCHED THEN DO NOTHING",
            "MERGE INTO t USING s JOIN u ON s.a = u.a ON t.a = s.a WHEN MATCHED THEN DO NOTHING",
            "MERGE INTO t USING (s JOIN u USING (a)) ON t.a = s.a WHEN MATCHED THEN DO NOTHING",
        ] {
            assert_eq!(actions(text), ["nothing"], "{text}");
        }
        // No MERGE begins here.
        for text in [
            "WITH merge AS (SELECT 1) SELECT * FROM merge",
            "WITH a AS (SELECT 1) SELECT * FROM (SELECT 1) merge",
        ] {
            assert!(Statement::single(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_postgresql_does_not_have_is_refused() {
        let merge = "MERGE INTO t USING s ON t.a = s.a";
        for (written, near) in [
            ("WHEN NOT MATCHED BY SOURCE THEN DELETE", "BY"),
            ("WHEN MATCHED THEN DELETE WHERE s.a > 1", "WHERE"),
            ("WHEN MATCHED THEN UPDATE SET a = 1 WHERE s.a > 1", "WHERE"),
            ("WHEN MATCHED THEN DELETE RETURNING *", "RETURNING"),
            ("WHEN MATCHED THEN INSERT VALUES (1)", "INSERT"),
            ("WHEN NOT MATCHED THEN DELETE", "DELETE"),
            ("WHEN NOT MATCHED THEN UPDATE SET a = 1", "UPDATE"),
            ("WHEN NOT MATCHED THEN INSERT VALUES (1), (2)", ","),
            ("WHEN NOT MATCHED THEN INSERT SELECT 1", "SELECT"),
            ("WHEN NOT MATCHED THEN DO NOTHING WHERE true", "WHERE"),
        ] {
            let error = Statement::single(&format!("{merge} {written}"));
            let message = error.err().unwrap().message;
            let expected = format!("syntax error at or near \"{near}\"");
            assert_eq!(message, expected, "{written}");
        }
        let error = Statement::single("MERGE t USING s ON true WHEN MATCHED THEN DELETE");
        assert_eq!(error.err().unwrap().position, Some(7));
        let error = Statement::single(merge).err().unwrap();
        assert_eq!(error.message, "syntax error at end of input");
    }
}
