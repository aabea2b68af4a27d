//! Syntax that `sqlparser` accepts although PostgreSQL's grammar does not.

use std::ops::ControlFlow;

use aerostat_types::{ErrorKind, KeywordCategory, SqlError, keyword_category};
use sqlparser::{
    ast::{
        DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
        ObjectName, Select, SelectItem, SetExpr, Spanned, Statement, TableFactor, TableObject,
        Visitor,
    },
    tokenizer::{Location, Token, TokenWithSpan},
};

use crate::lines::Lines;
use crate::walk;

type Refused = (SqlError, Location);

/// Refuses what PostgreSQL's grammar does not have.
///
/// # Errors
/// `SyntaxError`, and where.
pub(super) fn check(
    statement: &Statement,
    piece: &[TokenWithSpan],
    lines: &Lines<'_>,
) -> Result<(), SqlError> {
    match walk::look(statement, &mut Grammar { piece }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break((error, at)) => Err(error.with_position(lines.position(at))),
    }
}

/// Whether the comma at `at` begins a third modifier of a numeric: `numeric(5, 2, 1)`.
pub(super) fn is_third_modifier(piece: &[TokenWithSpan], at: Location) -> bool {
    let before: Vec<&Token> = piece
        .iter()
        .take_while(|token| token.span.start < at)
        .map(|token| &token.token)
        .filter(|token| !matches!(token, Token::Whitespace(_)))
        .collect();
    let [
        ..,
        Token::Word(name),
        Token::LParen,
        Token::Number(..),
        Token::Comma,
        Token::Number(..),
    ] = &before[..]
    else {
        return false;
    };
    ["numeric", "decimal", "dec"]
        .iter()
        .any(|numeric| name.value.eq_ignore_ascii_case(numeric))
}

fn near(text: &str, location: Location) -> Refused {
    let message = format!("syntax error at or near \"{text}\"");
    (SqlError::new(ErrorKind::SyntaxError, message), location)
}

/// Keywords that are values by themselves where a name could stand.
const VALUES: [&str; 14] = [
    "current_catalog",
    "current_date",
    "current_role",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "false",
    "localtime",
    "localtimestamp",
    "null",
    "session_user",
    "true",
    "user",
];

/// A reserved word that stands as a name.
fn reserved(ident: &Ident) -> ControlFlow<Refused> {
    let is_reserved = ident.quote_style.is_none()
        && keyword_category(&ident.value) == Some(KeywordCategory::Reserved)
        && !VALUES
            .iter()
            .any(|word| ident.value.eq_ignore_ascii_case(word));
    if is_reserved {
        ControlFlow::Break(near(&ident.value, ident.span.start))
    } else {
        ControlFlow::Continue(())
    }
}

struct Grammar<'a> {
    piece: &'a [TokenWithSpan],
}

impl Grammar<'_> {
    /// The first such token from a place on.
    fn token_after(&self, token: &Token, from: Location) -> Location {
        self.piece
            .iter()
            .find(|candidate| candidate.span.start >= from && candidate.token == *token)
            .map_or(from, |found| found.span.start)
    }

    fn has(&self, token: &Token) -> bool {
        self.piece.iter().any(|candidate| candidate.token == *token)
    }

    /// The statement ends too early.
    fn end_of_input(&self) -> ControlFlow<Refused> {
        let is_meaningful =
            |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_) | Token::EOF);
        match self.piece.iter().rev().find(is_meaningful) {
            Some(end) => {
                let message = "syntax error at end of input";
                let error = SqlError::new(ErrorKind::SyntaxError, message);
                ControlFlow::Break((error, end.span.end))
            }
            None => ControlFlow::Continue(()),
        }
    }

    /// `INSERT t VALUES …`, `CREATE TABLE t`, and a MERGE without WHEN.
    fn statement(&self, statement: &Statement) -> ControlFlow<Refused> {
        match statement {
            Statement::Insert(insert) if !insert.into => {
                if let TableObject::TableName(name) = &insert.table
                    && let Some(ident) = name.0.first().and_then(|part| part.as_ident())
                {
                    return ControlFlow::Break(near(&ident.value, ident.span.start));
                }
            }
            Statement::CreateTable(create)
                if create.columns.is_empty()
                    && create.query.is_none()
                    && create.like.is_none()
                    && !self.has(&Token::LParen) =>
            {
                return self.end_of_input();
            }
            Statement::Merge(merge) if merge.clauses.is_empty() => return self.end_of_input(),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    /// Calls that PostgreSQL's grammar spells out.
    fn function(&self, function: &Function) -> ControlFlow<Refused> {
        let [part] = &function.name.0[..] else {
            return ControlFlow::Continue(());
        };
        let (Some(name), FunctionArguments::List(list)) = (part.as_ident(), &function.args) else {
            return ControlFlow::Continue(());
        };
        if name.quote_style.is_some() {
            return ControlFlow::Continue(());
        }
        let from = name.span.start;
        let is_short = match name.value.to_ascii_lowercase().as_str() {
            "coalesce" | "greatest" | "least" => list.args.is_empty(),
            "nullif" => list.args.len() < 2,
            _ => false,
        };
        if is_short {
            return ControlFlow::Break(near(")", self.token_after(&Token::RParen, from)));
        }
        let star = FunctionArg::Unnamed(FunctionArgExpr::Wildcard);
        if list.duplicate_treatment == Some(DuplicateTreatment::Distinct)
            && list.args.contains(&star)
        {
            return ControlFlow::Break(near("*", self.token_after(&Token::Mul, from)));
        }
        ControlFlow::Continue(())
    }
}

impl Visitor for Grammar<'_> {
    type Break = Refused;

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<Refused> {
        self.statement(statement)
    }

    /// `SELECT 'a' 'b'` names no column.
    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Refused> {
        for item in &select.projection {
            if let SelectItem::ExprWithAlias { expr, alias } = item
                && alias.quote_style == Some('\'')
            {
                let token = Token::SingleQuotedString(alias.value.clone());
                let at = self.token_after(&token, expr.span().end);
                return ControlFlow::Break(near(&format!("'{}'", alias.value), at));
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<Refused> {
        match expression {
            Expr::Identifier(ident) => reserved(ident),
            Expr::Function(function) => self.function(function),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<Refused> {
        relation
            .0
            .iter()
            .filter_map(|part| part.as_ident())
            .try_for_each(reserved)
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Refused> {
        let TableFactor::Derived {
            subquery,
            alias: None,
            ..
        } = factor
        else {
            return ControlFlow::Continue(());
        };
        let (what, example) = match &*subquery.body {
            SetExpr::Values(_) => ("VALUES", "VALUES ..."),
            _ => ("subquery", "SELECT ..."),
        };
        let error = SqlError::new(
            ErrorKind::SyntaxError,
            format!("{what} in FROM must have an alias"),
        )
        .with_hint(format!("For example, FROM ({example}) [AS] foo."));
        // The query's span begins after the parenthesis, which is near enough.
        let start = subquery.span().start;
        ControlFlow::Break((error, start))
    }
}

#[cfg(test)]
mod tests {
    use aerostat_types::ErrorKind;

    use crate::statement::Statement;

    #[test]
    fn what_postgresql_does_not_read_is_refused() {
        for (text, message, position) in [
            ("INSERT t VALUES (1)", "syntax error at or near \"t\"", 8),
            ("CREATE TABLE x", "syntax error at end of input", 15),
            ("SELECT coalesce()", "syntax error at or near \")\"", 17),
            ("SELECT nullif(1)", "syntax error at or near \")\"", 16),
            (
                "SELECT count(DISTINCT *) FROM t",
                "syntax error at or near \"*\"",
                23,
            ),
            (
                "SELECT * FROM (SELECT 1)",
                "subquery in FROM must have an alias",
                16,
            ),
            ("SELECT end FROM t", "syntax error at or near \"end\"", 8),
            ("SELECT 'a' 'b'", "syntax error at or near \"'b'\"", 12),
        ] {
            let error = Statement::single(text).err().unwrap();
            assert_eq!(error.kind, ErrorKind::SyntaxError, "{text}");
            assert_eq!(
                (error.message.as_str(), error.position),
                (message, Some(position)),
                "{text}"
            );
        }
        for text in [
            "SELECT coalesce(1), nullif(1, 2), count(*) FROM (SELECT 1) AS q",
            "SELECT * FROM (VALUES (1)) v JOIN (SELECT 2) w ON true",
            "SELECT current_date, \"end\" FROM t",
        ] {
            assert!(Statement::single(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_numeric_has_two_modifiers() {
        let error = Statement::single("CREATE TABLE b (x numeric(5,2,1))")
            .err()
            .unwrap();
        assert_eq!(error.kind, ErrorKind::InvalidParameterValue);
        let error = Statement::single("CREATE TABLE b (x varchar(5,2,1))")
            .err()
            .unwrap();
        assert_eq!(error.kind, ErrorKind::SyntaxError);
    }
}
