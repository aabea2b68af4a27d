//! INSERT, UPDATE, DELETE and MERGE as parts of queries: after WITH, and in it.
//!
//! `sqlparser` accepts a change wherever a query may be. PostgreSQL accepts it after WITH, and in
//! a WITH of the outermost query; MERGE only after it.

use std::{ops::ControlFlow, ptr};

use aerostat_types::{ErrorKind, SqlError};
use sqlparser::{
    ast::{
        FromTable, ObjectName, Query, SetExpr, Spanned, Statement, TableFactor, Visit, Visitor,
        With,
    },
    tokenizer::Location,
};

use crate::walk;
use crate::{lines::Lines, names::folded};

/// The change that a query is, as in `WITH … INSERT`.
pub fn change_of(query: &Query) -> Option<&Statement> {
    match &*query.body {
        SetExpr::Insert(statement)
        | SetExpr::Update(statement)
        | SetExpr::Delete(statement)
        | SetExpr::Merge(statement) => Some(statement),
        _ => None,
    }
}

/// Whether a query is a change.
pub fn is_dml(query: &Query) -> bool {
    change_of(query).is_some()
}

/// The changes in the WITH of a statement's outermost query, in order.
pub fn changes_in_with(statement: &Statement) -> impl Iterator<Item = &Statement> {
    let query = match statement {
        Statement::Query(query) => Some(&**query),
        _ => None,
    };
    query.into_iter().flat_map(changes_of)
}

/// Whether a query has changes in its WITH.
pub fn modifies_in_with(query: &Query) -> bool {
    changes_of(query).next().is_some()
}

fn changes_of(query: &Query) -> impl Iterator<Item = &Statement> {
    let with = query.with.iter().flat_map(|with| &with.cte_tables);
    with.filter_map(|cte| change_of(&cte.query))
}

/// The changes of a statement: it, or what is behind its WITH, and those in its WITH.
pub fn changes(statement: &Statement) -> impl Iterator<Item = &Statement> {
    let own = match statement {
        Statement::Query(query) => change_of(query),
        Statement::Insert(_)
        | Statement::Update(_)
        | Statement::Delete(_)
        | Statement::Merge(_) => Some(statement),
        _ => None,
    };
    own.into_iter().chain(changes_in_with(statement))
}

/// How often a tree names a relation without a schema, but for the targets of changes.
pub fn reads<N: Visit>(node: &N, name: &str) -> usize {
    struct Reads<'a> {
        name: &'a str,
        count: usize,
        targets: usize,
    }
    impl Reads<'_> {
        fn is_named(&self, factor: &TableFactor) -> bool {
            matches!(factor, TableFactor::Table { name, args: None, .. } if is_called(name, self.name))
        }
    }
    impl Visitor for Reads<'_> {
        type Break = ();

        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
            self.count += usize::from(self.is_named(factor));
            ControlFlow::Continue(())
        }

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            self.count += commands(&query.body, self.name);
            ControlFlow::Continue(())
        }

        fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<()> {
            let target = match statement {
                Statement::Update(update) => Some(&update.table.relation),
                Statement::Delete(delete) => {
                    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) =
                        &delete.from;
                    from.first().map(|table| &table.relation)
                }
                Statement::Merge(merge) => Some(&merge.table),
                _ => None,
            };
            let is_named = target.is_some_and(|target| self.is_named(target));
            self.targets += usize::from(is_named);
            ControlFlow::Continue(())
        }
    }
    let mut reads = Reads {
        name,
        count: 0,
        targets: 0,
    };
    // It never breaks.
    let _ = walk::look(node, &mut reads);
    reads.count - reads.targets
}

/// How often a query is `TABLE name`, which the walk passes over.
fn commands(body: &SetExpr, wanted: &str) -> usize {
    match body {
        SetExpr::Table(table) if table.schema_name.is_none() => {
            let name = table.table_name.as_deref();
            usize::from(name.is_some_and(|name| name.eq_ignore_ascii_case(wanted)))
        }
        SetExpr::SetOperation { left, right, .. } => {
            commands(left, wanted) + commands(right, wanted)
        }
        _ => 0,
    }
}

fn is_called(name: &ObjectName, wanted: &str) -> bool {
    match &name.0[..] {
        [only] => only.as_ident().map(folded).as_deref() == Some(wanted),
        _ => false,
    }
}

type Refused = (SqlError, Location);

/// Refuses changes where PostgreSQL has none.
///
/// # Errors
/// `FeatureNotSupported`, `InvalidRecursion` or `SyntaxError`, and where.
pub(super) fn check(statement: &Statement, lines: &Lines<'_>) -> Result<(), SqlError> {
    let outermost = outermost(statement);
    match walk::look(statement, &mut Places { outermost }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break((error, at)) => Err(error.with_position(lines.position(at))),
    }
}

/// The outermost query of a statement, which may have changes in its WITH.
fn outermost(statement: &Statement) -> Option<&Query> {
    match statement {
        Statement::Query(query) => Some(&**query),
        Statement::CreateView(create) => Some(&create.query),
        Statement::CreateTable(create) => create.query.as_deref(),
        Statement::Explain { statement, .. } => outermost(statement),
        _ => None,
    }
}

struct Places<'a> {
    outermost: Option<&'a Query>,
}

impl Places<'_> {
    /// Whether a change may be this query.
    fn takes(&self, query: &Query) -> bool {
        self.outermost.is_some_and(|outermost| {
            let mut with = outermost.with.iter().flat_map(|with| &with.cte_tables);
            ptr::eq(outermost, query) || with.any(|cte| ptr::eq(&*cte.query, query))
        })
    }

    fn check_with(&self, with: &With, is_outermost: bool) -> ControlFlow<Refused> {
        for cte in &with.cte_tables {
            let Some(change) = change_of(&cte.query) else {
                continue;
            };
            let at = cte.alias.name.span.start;
            let name = folded(&cte.alias.name);
            let refuse = |kind: ErrorKind, message: String| {
                ControlFlow::Break((SqlError::new(kind, message), at))
            };
            if matches!(change, Statement::Merge(_)) {
                let message = "MERGE not supported in WITH query";
                return refuse(ErrorKind::FeatureNotSupported, message.to_owned());
            }
            if !is_outermost {
                let message =
                    "WITH clause containing a data-modifying statement must be at the top level";
                return refuse(ErrorKind::FeatureNotSupported, message.to_owned());
            }
            if with.recursive && reads(&*cte.query, &name) > 0 {
                let message = format!(
                    "recursive query \"{name}\" must not contain data-modifying statements"
                );
                return refuse(ErrorKind::InvalidRecursion, message);
            }
        }
        ControlFlow::Continue(())
    }
}

impl Visitor for Places<'_> {
    type Break = Refused;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Refused> {
        if let Some(with) = &query.with {
            let is_outermost = self.outermost.is_some_and(|own| ptr::eq(own, query));
            self.check_with(with, is_outermost)?;
        }
        match change_of(query) {
            Some(change) if !self.takes(query) => {
                let word = match change {
                    Statement::Insert(_) => "INSERT",
                    Statement::Update(_) => "UPDATE",
                    Statement::Delete(_) => "DELETE",
                    _ => "MERGE",
                };
                let message = format!("syntax error at or near \"{word}\"");
                let error = SqlError::new(ErrorKind::SyntaxError, message);
                ControlFlow::Break((error, change.span().start))
            }
            _ => ControlFlow::Continue(()),
        }
    }
}
