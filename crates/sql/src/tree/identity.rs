//! The syntax of identity columns that `sqlparser` does not read.
//!
//! | written | handed on |
//! |---|---|
//! | `IDENTITY (START 5 INCREMENT 2)` | `IDENTITY (INCREMENT 2 START 5)`: options in its order |
//! | `INSERT INTO t OVERRIDING SYSTEM VALUE …` | `INSERT INTO t …` with `LOW_PRIORITY`, which PostgreSQL does not have |
//! | `INSERT INTO t OVERRIDING USER VALUE …` | the same with `HIGH_PRIORITY` |

use std::ops::ControlFlow;

use sqlparser::{
    ast::{MysqlInsertPriority, Statement, VisitorMut},
    tokenizer::{Token, TokenWithSpan},
};

use crate::walk;

/// The options of a sequence in `sqlparser`'s order.
const OPTIONS: [&str; 6] = [
    "INCREMENT",
    "MINVALUE",
    "MAXVALUE",
    "START",
    "CACHE",
    "CYCLE",
];

/// What was taken out of INSERTs: which one it was in the statement, and what.
pub(super) struct Removed(Vec<(usize, MysqlInsertPriority)>);

/// Spells the tokens of a statement so that `sqlparser` reads them.
pub(super) fn respell(tokens: &mut Vec<TokenWithSpan>) -> Removed {
    let meaningful: Vec<usize> = (0..tokens.len())
        .filter(|&at| !matches!(tokens[at].token, Token::Whitespace(_) | Token::EOF))
        .collect();
    let is = |nth: usize, wanted: &str| {
        let at = meaningful.get(nth);
        at.is_some_and(|&at| has(&tokens[at], wanted))
    };
    if is(0, "CREATE") {
        sort_options(tokens, &meaningful);
        return Removed(Vec::new());
    }
    let (mut inserts, mut removed, mut clauses) = (0, Vec::new(), Vec::new());
    for nth in 0..meaningful.len() {
        if is(nth, "INSERT") && is(nth + 1, "INTO") {
            inserts += 1;
        }
        let priority = match is(nth, "OVERRIDING") && is(nth + 2, "VALUE") {
            true if is(nth + 1, "SYSTEM") => MysqlInsertPriority::LowPriority,
            true if is(nth + 1, "USER") => MysqlInsertPriority::HighPriority,
            _ => continue,
        };
        removed.push((inserts, priority));
        clauses.push(meaningful[nth]..=meaningful[nth + 2]);
    }
    for clause in clauses.into_iter().rev() {
        tokens.drain(clause);
    }
    Removed(removed)
}

impl Removed {
    /// Puts what was removed into the parsed statement. `false` where it has no place.
    pub(super) fn restore(self, statement: &mut Statement) -> bool {
        struct Restore {
            /// How many INSERTs the walk has met.
            met: usize,
            removed: Vec<(usize, MysqlInsertPriority)>,
        }
        impl VisitorMut for Restore {
            type Break = ();

            fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<()> {
                if let Statement::Insert(insert) = statement {
                    self.met += 1;
                    let own = self.removed.iter().position(|(nth, _)| *nth == self.met);
                    insert.priority = own.map(|at| self.removed.remove(at).1);
                }
                ControlFlow::Continue(())
            }
        }
        if self.0.is_empty() {
            return true;
        }
        let mut restore = Restore {
            met: 0,
            removed: self.0,
        };
        // It never breaks.
        let _ = walk::change(statement, &mut restore);
        restore.removed.is_empty()
    }
}

fn has(token: &TokenWithSpan, wanted: &str) -> bool {
    matches!(&token.token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

/// Brings the options of every `AS IDENTITY (…)` into order. Spans go with their tokens, so
/// that errors are told of the right place.
fn sort_options(tokens: &mut [TokenWithSpan], meaningful: &[usize]) {
    let mut nth = 0;
    while nth + 1 < meaningful.len() {
        let opens = has(&tokens[meaningful[nth]], "IDENTITY")
            && tokens[meaningful[nth + 1]].token == Token::LParen;
        nth += 1;
        if !opens {
            continue;
        }
        let inside = &meaningful[nth + 1..];
        let closes = |at: &usize| tokens[*at].token == Token::RParen;
        let Some(length) = inside.iter().position(closes) else {
            return;
        };
        let places = &inside[..length];
        let mut options: Vec<(usize, Vec<TokenWithSpan>)> = Vec::new();
        let mut follows_no = false;
        for &at in places {
            let token = &tokens[at];
            let is_no = has(token, "NO");
            let rank = OPTIONS.iter().position(|option| has(token, option));
            match (rank, options.last_mut()) {
                (Some(rank), Some((last, option))) if follows_no => {
                    *last = rank;
                    option.push(token.clone());
                }
                (None, Some((_, option))) if !is_no => option.push(token.clone()),
                (rank, _) => {
                    let rank = rank.unwrap_or(OPTIONS.len());
                    options.push((rank, vec![token.clone()]));
                }
            }
            follows_no = is_no;
        }
        options.sort_by_key(|(rank, _)| *rank);
        let sorted = options.into_iter().flat_map(|(_, option)| option);
        for (&at, token) in places.iter().zip(sorted) {
            tokens[at] = token;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::statement::{Statement, StatementKind};

    fn parsed(text: &str) -> String {
        match Statement::single(text).unwrap().kind {
            StatementKind::Sql(statement) => statement.to_string(),
            _ => panic!("not SQL"),
        }
    }

    #[test]
    fn options_are_read_in_any_order() {
        let sorted = "CREATE TABLE t (a INT GENERATED ALWAYS AS IDENTITY ( INCREMENT BY 2 NO MINVALUE MAXVALUE 9 START WITH 5 CACHE 3 NO CYCLE ), b INT)";
        let written = "CREATE TABLE t (a INT GENERATED ALWAYS AS IDENTITY (START WITH 5 NO CYCLE CACHE 3 MAXVALUE 9 NO MINVALUE INCREMENT BY 2), b INT)";
        assert_eq!(parsed(written), sorted);
        assert!(
            Statement::single(
                "CREATE TABLE t (a INT GENERATED ALWAYS AS IDENTITY (START 1 START 2))"
            )
            .is_err()
        );
    }

    #[test]
    fn overriding_is_read() {
        for (written, read) in [
            (
                "INSERT INTO t (a) OVERRIDING SYSTEM VALUE VALUES (1)",
                "INSERT LOW_PRIORITY INTO t (a) VALUES (1)",
            ),
            (
                "INSERT INTO t OVERRIDING USER VALUE SELECT 1",
                "INSERT HIGH_PRIORITY INTO t SELECT 1",
            ),
        ] {
            assert_eq!(parsed(written), read);
        }
        assert!(Statement::single("SELECT 1 OVERRIDING SYSTEM VALUE").is_err());
        assert!(Statement::single("INSERT LOW_PRIORITY INTO t VALUES (1)").is_err());
    }
}
