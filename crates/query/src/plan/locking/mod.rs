//! SELECT … FOR UPDATE and similar: queries that lock the rows that they return.
//!
//! ```text
//!  SELECT a FROM t WHERE … ORDER BY b LIMIT 1 FOR UPDATE          as it is written
//!  SELECT a, t."⟨3⟩" FROM "⟨lock⟩"."3" AS t WHERE … ORDER BY b     planned by itself: t with row ids
//!  SELECT * FROM "⟨lock⟩"."4" LIMIT 1                             stands in its place
//!                 ╰── a scan that runs that plan and locks (`scan::locked`)
//! ```
//!
//! * A query with locking clauses becomes a table to the query around it, whose scan locks
//!   each row before it returns it. So only LIMIT is pushed below the locks, where it ends the
//!   locking: rows that were skipped do not count.
//! * The tables in FROM are locked: those that OF names, or all. For a subquery or a view in FROM
//!   its tables are locked. But if it has a LIMIT or an order, or locks itself, it gets the clause
//!   and locks the rows that it returns.
//! * A clause that PostgreSQL refuses is refused here, too, with its words
//!   (`CheckSelectLocking`). The nullable side of an outer join is the one that is written so, even
//!   if a WHERE makes an inner join of it.
//! * A subquery with locks is planned by itself, with the WITH around it, and cannot refer to
//!   anything else around it.

mod check;
mod marker;

use std::{
    mem,
    ops::ControlFlow,
    sync::{Arc, OnceLock, Weak},
};

use aerostat_sql::{names::folded, tree::locking::clause, walk};
use aerostat_txn::{RowLock, Transaction};
use datafusion::{
    catalog::TableProvider,
    common::{DataFusionError, ParamValues, Result},
    sql::{
        planner::PlannerContext,
        sqlparser::{
            ast::{
                Cte, Query, SetExpr, Statement, Values, Visit, VisitMut, Visitor, VisitorMut, With,
                helpers::attached_token::AttachedToken,
            },
            dialect::PostgreSqlDialect,
            parser::Parser,
        },
    },
};
use parking_lot::Mutex;

use self::marker::{Clause, Marker};
use super::StatementContext;
use crate::{
    error::external,
    scan::locked::{LockedProvider, Mark},
};

/// The schema under which a statement's queries name the tables of its locking clauses.
pub(super) const LOCK_SCHEMA: &str = "\u{1}lock";

/// The state of a statement's locking clauses.
#[derive(Default)]
pub struct Locking {
    run: OnceLock<Run>,
    sources: Mutex<Vec<Arc<dyn TableProvider>>>,
}

/// What a statement that runs, and is not only described, provides.
struct Run {
    transaction: Weak<Transaction>,
    values: Option<ParamValues>,
}

impl Locking {
    /// Begins the locking: the locks will be this transaction's. Subqueries that lock are planned
    /// with the values of its parameters.
    pub fn begin(&self, transaction: &Arc<Transaction>, values: Option<ParamValues>) {
        let transaction = Arc::downgrade(transaction);
        // The first call counts. There is one per attempt, and each attempt has its own context.
        let _ = self.run.set(Run {
            transaction,
            values,
        });
    }

    /// A table that stands for a query, by its number.
    pub(super) fn source(&self, number: &str) -> Result<Arc<dyn TableProvider>> {
        let number: Option<usize> = number.parse().ok();
        let sources = self.sources.lock();
        let found = number.and_then(|number| sources.get(number).cloned());
        found.ok_or_else(|| DataFusionError::Internal("a lock without a number".to_owned()))
    }

    fn add(&self, make: impl FnOnce(&str) -> Arc<dyn TableProvider>) -> usize {
        let mut sources = self.sources.lock();
        let number = sources.len();
        sources.push(make(&hidden(number)));
        number
    }
}

/// The beginning of a row-id column's name. The planner may append to it.
fn hidden(number: usize) -> String {
    format!("\u{1}row{number}\u{1}")
}

/// The strength of a statement's first locking clause; `None` when it has none.
pub fn first_lock<N: Visit>(node: &N) -> Option<RowLock> {
    struct First;
    impl Visitor for First {
        type Break = RowLock;

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<RowLock> {
            match query.locks.first() {
                Some(first) => ControlFlow::Break(clause(first).0),
                None => ControlFlow::Continue(()),
            }
        }
    }
    match walk::look(node, &mut First) {
        ControlFlow::Break(mode) => Some(mode),
        ControlFlow::Continue(()) => None,
    }
}

/// The statement without its locking clauses, which change neither types nor columns.
pub fn without_locks(statement: &Statement) -> Statement {
    struct Strip;
    impl VisitorMut for Strip {
        type Break = ();

        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            query.locks.clear();
            ControlFlow::Continue(())
        }
    }
    let mut statement = statement.clone();
    // The visitor never breaks.
    let _ = walk::change(&mut statement, &mut Strip);
    statement
}

/// Rewrites the queries of a statement that lock.
pub(super) fn rewrite_statement(
    context: &StatementContext,
    statement: &mut Statement,
    parameters: &mut PlannerContext,
) -> Result<()> {
    if first_lock(statement).is_none() {
        return Ok(());
    }
    let rewrite = Rewrite {
        context,
        parameters,
    };
    rewrite.nested(statement, &[])
}

/// Rewrites a query if it or a query in it locks.
pub(super) fn rewrite_query(
    context: &StatementContext,
    query: &mut Query,
    parameters: &mut PlannerContext,
) -> Result<()> {
    if first_lock(query).is_none() {
        return Ok(());
    }
    let rewrite = Rewrite {
        context,
        parameters,
    };
    rewrite.query(query, &[])
}

struct Rewrite<'a> {
    context: &'a StatementContext,
    parameters: &'a PlannerContext,
}

impl Rewrite<'_> {
    /// Rewrites a query that may name these WITH queries around it.
    fn query(&self, query: &mut Query, around: &[Cte]) -> Result<()> {
        let mut ctes = around.to_vec();
        if let Some(with) = &mut query.with {
            for cte in &mut with.cte_tables {
                self.query(&mut cte.query, &ctes)?;
                ctes.push(cte.clone());
            }
        }
        let marks = if query.locks.is_empty() {
            Vec::new()
        } else {
            self.mark(query, &ctes)?
        };
        self.nested(&mut query.body, &ctes)?;
        self.nested(&mut query.order_by, &ctes)?;
        if query.locks.is_empty() {
            return Ok(());
        }
        query.locks.clear();
        if marks.is_empty() {
            return Ok(());
        }
        self.replace(query, around, marks)
    }

    /// Rewrites the queries directly within a part of a query.
    fn nested<N: VisitMut>(&self, node: &mut N, ctes: &[Cte]) -> Result<()> {
        struct Nested<'a> {
            rewrite: &'a Rewrite<'a>,
            ctes: &'a [Cte],
            /// The current query, which is hidden from the walk.
            taken: Option<Query>,
        }
        impl VisitorMut for Nested<'_> {
            type Break = DataFusionError;

            fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
                let mut taken = mem::replace(query, nothing());
                let rewritten = self.rewrite.query(&mut taken, self.ctes);
                self.taken = Some(taken);
                match rewritten {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => ControlFlow::Break(error),
                }
            }

            fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
                if let Some(taken) = self.taken.take() {
                    *query = taken;
                }
                ControlFlow::Continue(())
            }
        }
        let mut nested = Nested {
            rewrite: self,
            ctes,
            taken: None,
        };
        match walk::change(node, &mut nested) {
            ControlFlow::Continue(()) => {
                assert!(nested.taken.is_none(), "a query that was taken is put back");
                Ok(())
            }
            ControlFlow::Break(error) => Err(error),
        }
    }

    /// Gives row ids to the tables that a query locks, and adds them to the query's outputs.
    fn mark(&self, query: &mut Query, ctes: &[Cte]) -> Result<Vec<Mark>> {
        let locks = query.locks.clone();
        let clauses: Vec<Clause> = locks.iter().map(Clause::of).collect();
        let mut marks = Vec::new();
        let mut from = Marker::new(self.context, &clauses, ctes, &mut marks);
        from.select(query).map_err(external)?;
        from.check_names().map_err(external)?;
        Ok(marks)
    }

    /// Plans a marked query, and replaces it by a scan of its plan.
    fn replace(&self, query: &mut Query, around: &[Cte], marks: Vec<Mark>) -> Result<()> {
        let limits = (query.limit_clause.take(), query.fetch.take());
        let mut inner = mem::replace(query, nothing());
        if !around.is_empty() {
            let own = inner.with.take();
            let recursive = own.as_ref().is_some_and(|with| with.recursive);
            let own = own.map(|with| with.cte_tables).unwrap_or_default();
            let shadowed = |cte: &&Cte| {
                let name = folded(&cte.alias.name);
                !own.iter().any(|own| folded(&own.alias.name) == name)
            };
            let mut cte_tables: Vec<Cte> = around.iter().filter(shadowed).cloned().collect();
            cte_tables.extend(own.iter().cloned());
            inner.with = Some(With {
                with_token: AttachedToken::empty(),
                recursive,
                cte_tables,
            });
        }
        let context = self.context;
        let plan = context.plan_query(inner, &mut self.parameters.clone())?;
        let (plan, transaction) = match context.locking.run.get() {
            Some(Run {
                transaction,
                values: Some(values),
            }) => (
                plan.replace_params_with_values(values)?,
                transaction.clone(),
            ),
            Some(run) => (plan, run.transaction.clone()),
            // The statement is only described.
            None => (plan, Weak::new()),
        };
        let analyzed = context.state.analyzer().execute_and_check(
            plan.clone(),
            context.state.config_options(),
            |_, _| {},
        )?;
        let provider = LockedProvider::new(plan, analyzed.schema(), marks, transaction)?;
        let number = context.locking.add(|_| Arc::new(provider));
        let text = format!("SELECT * FROM \"{LOCK_SCHEMA}\".\"{number}\" AS \"\u{1}l{number}\"");
        *query = *Parser::new(&PostgreSqlDialect {})
            .try_with_sql(&text)
            .and_then(|mut parser| parser.parse_query())
            .map_err(|error| DataFusionError::Internal(error.to_string()))?;
        (query.limit_clause, query.fetch) = limits;
        Ok(())
    }
}

/// A query that stands in another's place for a moment.
fn nothing() -> Query {
    super::query_of(SetExpr::Values(Values {
        explicit_row: false,
        value_keyword: false,
        rows: Vec::new(),
    }))
}
