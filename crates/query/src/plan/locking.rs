//! SELECT … FOR UPDATE and its like: queries that lock the rows they give.
//!
//! ```text
//!  SELECT a FROM t WHERE … ORDER BY b LIMIT 1 FOR UPDATE          as it is written
//!  SELECT a, t."⟨3⟩" FROM "⟨lock⟩"."3" AS t WHERE … ORDER BY b     planned by itself: t with row ids
//!  SELECT * FROM "⟨lock⟩"."4" LIMIT 1                             stands in its place
//!                 ╰── a scan that runs that plan and locks (`scan::locked`)
//! ```
//!
//! * A query with locking clauses becomes a table to the query around it, whose scan locks
//!   each row before it gives it. So nothing is pushed below the locks but LIMIT, which ends
//!   them: rows that were skipped do not count.
//! * What is locked are the tables in FROM: those that OF names, or all. Of a subquery or a
//!   view in FROM its tables are; if it has a LIMIT or an order, or locks itself, it gets the
//!   clause and locks the rows that it gives.
//! * Where PostgreSQL refuses a clause, so is it here, with its words (`CheckSelectLocking`).
//!   Its nullable sides of outer joins are those that are written so: a WHERE that makes an
//!   inner join of one is not looked at.
//! * A subquery with locks is planned by itself, with the WITH around it, and can refer to
//!   nothing else around it.

use std::{
    mem,
    ops::ControlFlow,
    sync::{Arc, OnceLock, Weak},
};

use aerostat_semantics::walk;
use aerostat_storage::WaitPolicy;
use aerostat_txn::{LockMode, RowLock, Transaction};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    catalog::TableProvider,
    common::{DataFusionError, ParamValues, Result},
    datasource::ViewTable,
    logical_expr::LogicalPlan,
    sql::{
        planner::PlannerContext,
        sqlparser::{
            ast::{
                Cte, ExcludeSelectItem, Expr, Function, GroupByExpr, Ident, JoinOperator,
                LockClause, NonBlock, ObjectName, ObjectNamePart, Query, SelectItem,
                SelectItemQualifiedWildcardKind, SetExpr, Statement, TableAlias,
                TableAliasColumnDef, TableFactor, TableWithJoins, Values, Visit, VisitMut, Visitor,
                VisitorMut, WildcardAdditionalOptions, With,
                helpers::attached_token::AttachedToken,
            },
            dialect::PostgreSqlDialect,
            parser::Parser,
        },
    },
};
use parking_lot::Mutex;

use super::{StatementContext, clauses::is_aggregate, forms::SERIES, target::table_reference};
use crate::{
    catalog::{Privilege, Relation, ViewEntry},
    ddl::names::folded,
    error::{external, from_datafusion},
    scan::{
        TableScanProvider,
        locked::{LockedProvider, Mark},
    },
    statement::{
        Source,
        locking::{clause, clause_for_all, shown},
    },
};

/// The schema under which a statement's queries name what its locking clauses have made.
pub(super) const LOCK_SCHEMA: &str = "\u{1}lock";

/// What the locking clauses of a statement need and have made.
#[derive(Default)]
pub(crate) struct Locking {
    run: OnceLock<Run>,
    sources: Mutex<Vec<Arc<dyn TableProvider>>>,
}

/// What a statement that runs, and is not only described, gives.
struct Run {
    transaction: Weak<Transaction>,
    values: Option<ParamValues>,
}

impl Locking {
    /// The statement's locks are this transaction's. Subqueries that lock are planned with
    /// the values of its parameters.
    pub(crate) fn begin(&self, transaction: &Arc<Transaction>, values: Option<ParamValues>) {
        let transaction = Arc::downgrade(transaction);
        // The first call stands; there is one for each attempt, which has its own context.
        let _ = self.run.set(Run {
            transaction,
            values,
        });
    }

    /// A table that a query was rewritten to.
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

/// The column of row ids of a source. The planner may put more behind it.
fn hidden(number: usize) -> String {
    format!("\u{1}row{number}\u{1}")
}

/// The strength of a statement's first locking clause; `None` when it has none.
pub(crate) fn first_lock<N: Visit>(node: &N) -> Option<RowLock> {
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

/// Takes the locking clauses away: types and columns are the same without.
pub(crate) fn without_locks(statement: &Statement) -> Statement {
    struct Strip;
    impl VisitorMut for Strip {
        type Break = ();

        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            query.locks.clear();
            ControlFlow::Continue(())
        }
    }
    let mut statement = statement.clone();
    // It never breaks.
    let _ = walk::change(&mut statement, &mut Strip);
    statement
}

/// Rewrites the queries of a statement that lock.
pub(crate) fn rewrite_statement(
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

/// Rewrites a query if it or one in it locks.
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
    /// Rewrites a query around which these WITH queries stand.
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

    /// Rewrites the queries directly within a part of one.
    fn nested<N: VisitMut>(&self, node: &mut N, ctes: &[Cte]) -> Result<()> {
        struct Nested<'a> {
            rewrite: &'a Rewrite<'a>,
            ctes: &'a [Cte],
            /// The query that the walk is at, kept from it.
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
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }

    /// Gives the tables that a query locks row ids, and the query these as outputs.
    fn mark(&self, query: &mut Query, ctes: &[Cte]) -> Result<Vec<Mark>> {
        let locks = query.locks.clone();
        let clauses: Vec<Clause> = locks.iter().map(Clause::of).collect();
        let mut marks = Vec::new();
        let mut from = Marker {
            context: self.context,
            clauses: &clauses,
            ctes,
            found: Vec::new(),
            hidden: Vec::new(),
            marks: &mut marks,
        };
        from.select(query).map_err(external)?;
        from.check_names().map_err(external)?;
        Ok(marks)
    }

    /// Plans a marked query, and puts a scan of its plan in its place.
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
            // It is only described.
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

/// A query that stands for another for a moment.
fn nothing() -> Query {
    crate::dml::query_of(SetExpr::Values(Values {
        explicit_row: false,
        value_keyword: false,
        rows: Vec::new(),
    }))
}

/// A locking clause.
#[derive(Clone)]
struct Clause {
    mode: RowLock,
    policy: WaitPolicy,
    /// None for all relations.
    of: Vec<Ident>,
    written: LockClause,
}

impl Clause {
    fn of(written: &LockClause) -> Self {
        let (mode, of) = clause(written);
        Self {
            mode,
            policy: match written.nonblock {
                None => WaitPolicy::Wait,
                Some(NonBlock::SkipLocked) => WaitPolicy::SkipLocked,
                Some(NonBlock::Nowait) => WaitPolicy::Nowait,
            },
            of,
            written: written.clone(),
        }
    }

    fn names(&self, relation: &str) -> bool {
        self.of.iter().any(|name| folded(name) == relation)
    }

    fn refused(&self, why: &str) -> SqlError {
        refused(self.mode, why)
    }
}

fn refused(mode: RowLock, why: &str) -> SqlError {
    SqlError::new(
        ErrorKind::FeatureNotSupported,
        format!("{} {why}", shown(mode)),
    )
}

/// The FROM of one query that locks.
struct Marker<'a> {
    context: &'a StatementContext,
    clauses: &'a [Clause],
    /// The WITH queries that it may name.
    ctes: &'a [Cte],
    /// What its relations are called.
    found: Vec<String>,
    /// Columns of row ids, and whose they are.
    hidden: Vec<(Ident, String)>,
    marks: &'a mut Vec<Mark>,
}

impl Marker<'_> {
    /// Marks a query's tables and makes their row ids its outputs.
    fn select(&mut self, query: &mut Query) -> Result<(), SqlError> {
        let Some(first) = self.clauses.first() else {
            return Ok(());
        };
        check_query(query, first.mode)?;
        let SetExpr::Select(select) = &mut *query.body else {
            return Err(first.refused("of this query is not supported"));
        };
        for table in &mut select.from {
            self.joined(table, false)?;
        }
        for item in &mut select.projection {
            match item {
                SelectItem::Wildcard(options) => {
                    let all = self.hidden.iter().map(|(_, column)| column);
                    exclude(options, all);
                }
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    options,
                ) => {
                    let owner = name.0.last().and_then(|part| part.as_ident()).map(folded);
                    let own = self.hidden.iter();
                    let own = own.filter(|(alias, _)| Some(folded(alias)) == owner);
                    exclude(options, own.map(|(_, column)| column));
                }
                _ => {}
            }
        }
        let outputs = self.hidden.iter().map(|(alias, column)| {
            let column = Ident::with_quote('"', column.clone());
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(vec![alias.clone(), column]))
        });
        select.projection.extend(outputs);
        Ok(())
    }

    /// Every name after OF is that of a relation.
    fn check_names(&self) -> Result<(), SqlError> {
        for clause in self.clauses {
            for name in &clause.of {
                let name = folded(name);
                if !self.found.contains(&name) {
                    return Err(SqlError::new(
                        ErrorKind::UndefinedTable,
                        format!(
                            "relation \"{name}\" in {} clause not found in FROM clause",
                            shown(clause.mode)
                        ),
                    ));
                }
            }
        }
        Ok(())
    }

    fn joined(&mut self, table: &mut TableWithJoins, nullable: bool) -> Result<(), SqlError> {
        // What stands before a RIGHT or FULL join may be missing, what stands after a LEFT one.
        let mut missing_before = nullable;
        for join in table.joins.iter_mut().rev() {
            let (before, after) = match &join.join_operator {
                JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => (false, true),
                JoinOperator::Right(_) | JoinOperator::RightOuter(_) => (true, false),
                JoinOperator::FullOuter(_) => (true, true),
                _ => (false, false),
            };
            self.factor(&mut join.relation, missing_before || after)?;
            missing_before |= before;
        }
        self.factor(&mut table.relation, missing_before)
    }

    /// The clauses that lock a relation of this name, as one.
    fn lock_of(&mut self, name: &str) -> Option<Clause> {
        self.found.push(name.to_owned());
        let mut lock: Option<Clause> = None;
        for clause in self.clauses {
            if !clause.of.is_empty() && !clause.names(name) {
                continue;
            }
            let lock = lock.get_or_insert_with(|| clause.clone());
            lock.mode = lock.mode.max(clause.mode);
            if rank(clause.policy) > rank(lock.policy) {
                lock.policy = clause.policy;
                lock.written.nonblock = clause.written.nonblock;
            }
        }
        lock
    }

    /// Refuses a clause that names a relation which has no rows to lock.
    fn refuse_named(&mut self, alias: Option<&TableAlias>, what: &str) -> Result<(), SqlError> {
        let Some(alias) = alias else { return Ok(()) };
        let name = folded(&alias.name);
        self.found.push(name.clone());
        match self.clauses.iter().find(|clause| clause.names(&name)) {
            Some(clause) => Err(clause.refused(&format!("cannot be applied to {what}"))),
            None => Ok(()),
        }
    }

    fn factor(&mut self, factor: &mut TableFactor, nullable: bool) -> Result<(), SqlError> {
        match factor {
            TableFactor::Table {
                name,
                alias,
                args: None,
                ..
            } => self.table(name, alias, nullable),
            TableFactor::Derived {
                subquery, alias, ..
            } => self.derived(subquery, alias, nullable),
            TableFactor::NestedJoin {
                table_with_joins,
                alias,
            } => {
                self.refuse_named(alias.as_ref(), "a join")?;
                let before = self.hidden.len();
                self.joined(table_with_joins, nullable)?;
                if let Some(alias) = alias {
                    let inner = self.hidden[before..].iter_mut();
                    inner.for_each(|(owner, _)| *owner = alias.name.clone());
                }
                Ok(())
            }
            TableFactor::Table { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::TableFunction { alias, .. }
            | TableFactor::UNNEST { alias, .. } => {
                let alias = alias.clone();
                self.refuse_named(alias.as_ref(), "a function")
            }
            _ => Ok(()),
        }
    }

    fn table(
        &mut self,
        name: &mut ObjectName,
        alias: &mut Option<TableAlias>,
        nullable: bool,
    ) -> Result<(), SqlError> {
        let last = name.0.last().and_then(|part| part.as_ident());
        let Some(known_as) = alias.as_ref().map(|alias| &alias.name).or(last).cloned() else {
            return Ok(());
        };
        let Some(lock) = self.lock_of(&folded(&known_as)) else {
            return Ok(());
        };
        let is_named = !lock.of.is_empty();
        if let [only] = &name.0[..]
            && let Some(only) = only.as_ident().map(folded)
            && self.ctes.iter().any(|cte| folded(&cte.alias.name) == only)
        {
            return match is_named {
                true => Err(lock.refused("cannot be applied to a WITH query")),
                false => Ok(()),
            };
        }
        let context = self.context;
        let reference = table_reference(name)?;
        if context.system_table(&reference).is_some() {
            return Ok(());
        }
        let (_, relation) = context.resolve(&reference)?;
        context.actor.require(relation, Privilege::Select)?;
        context.actor.require(relation, Privilege::Update)?;
        context.gate.require(relation.oid(), LockMode::RowShare)?;
        if nullable {
            return Err(lock.refused("cannot be applied to the nullable side of an outer join"));
        }
        let owner = Ident::with_quote('"', folded(&known_as));
        let (number, columns) = match relation {
            Relation::Table(entry) => {
                let view = context.table_view(entry);
                let number = context.locking.add(|column| {
                    let usage = Arc::clone(&entry.usage);
                    Arc::new(TableScanProvider::with_row_ids(view.clone(), usage, column))
                });
                self.marks.push(Mark {
                    column: hidden(number),
                    view,
                    mode: lock.mode,
                    policy: lock.policy,
                });
                (number, vec![hidden(number)])
            }
            Relation::View(view) => {
                let (plan, columns) = self.view(view, &lock)?;
                let plan = Arc::new(ViewTable::new(plan, Some(view.query.clone())));
                (context.locking.add(|_| plan), columns)
            }
            Relation::Sequence(_) => {
                return Err(SqlError::new(
                    ErrorKind::WrongObjectType,
                    format!("cannot lock rows in sequence \"{}\"", relation.name()),
                ));
            }
        };
        *name = ObjectName(vec![
            ObjectNamePart::Identifier(Ident::with_quote('"', LOCK_SCHEMA)),
            ObjectNamePart::Identifier(Ident::with_quote('"', number.to_string())),
        ]);
        let alias = alias.get_or_insert_with(|| TableAlias {
            explicit: true,
            name: owner.clone(),
            columns: Vec::new(),
            at: None,
        });
        self.give(owner, alias, columns);
        Ok(())
    }

    /// The relation has these columns of row ids beside its own.
    fn give(&mut self, owner: Ident, alias: &mut TableAlias, columns: Vec<String>) {
        for column in columns {
            if !alias.columns.is_empty() {
                let name = Ident::with_quote('"', column.clone());
                alias.columns.push(TableAliasColumnDef {
                    name,
                    data_type: None,
                });
            }
            self.hidden.push((owner.clone(), column));
        }
    }

    fn derived(
        &mut self,
        subquery: &mut Query,
        alias: &mut Option<TableAlias>,
        nullable: bool,
    ) -> Result<(), SqlError> {
        let Some(alias) = alias else { return Ok(()) };
        let lock = self.lock_of(&folded(&alias.name));
        let has_rows = !matches!(&*subquery.body, SetExpr::Values(_));
        let Some(lock) = lock.filter(|_| has_rows) else {
            return Ok(());
        };
        if nullable {
            return Err(lock.refused("cannot be applied to the nullable side of an outer join"));
        }
        if let Some(columns) = self.within(self.context, subquery, &lock)? {
            let owner = Ident::with_quote('"', folded(&alias.name));
            self.give(owner, alias, columns);
        }
        Ok(())
    }

    /// Marks the tables of a subquery or a view, and gives the columns of their row ids; or,
    /// if other rows than its own would be locked so, gives it the clause.
    fn within(
        &mut self,
        context: &StatementContext,
        query: &mut Query,
        lock: &Clause,
    ) -> Result<Option<Vec<String>>, SqlError> {
        check_query(query, lock.mode)?;
        let is_simple = query.with.is_none()
            && query.order_by.is_none()
            && query.limit_clause.is_none()
            && query.fetch.is_none()
            && query.locks.is_empty();
        let all = clause_for_all(lock.mode, &lock.written);
        if !is_simple {
            query.locks.push(all);
            return Ok(None);
        }
        let clauses = [Clause::of(&all)];
        let mut inner = Marker {
            context,
            clauses: &clauses,
            ctes: self.ctes,
            found: Vec::new(),
            hidden: Vec::new(),
            marks: &mut *self.marks,
        };
        inner.select(query)?;
        let hidden = inner.hidden.into_iter();
        Ok(Some(hidden.map(|(_, column)| column).collect()))
    }

    /// The plan of a view whose tables are locked, and its columns of row ids.
    fn view(
        &mut self,
        view: &ViewEntry,
        lock: &Clause,
    ) -> Result<(LogicalPlan, Vec<String>), SqlError> {
        let nowhere = Source {
            text: "".into(),
            offset: 0,
        };
        let plain = |error| from_datafusion(error, &nowhere);
        let (nested, mut query) = self.context.within(view).map_err(plain)?;
        super::rewrite_forms(&mut query)?;
        let outer_ctes = mem::take(&mut self.ctes);
        let marked = self.within(&nested, &mut query, lock);
        self.ctes = outer_ctes;
        let columns = marked?.unwrap_or_default();
        let plan = nested
            .plan_query(query, &mut PlannerContext::new())
            .map_err(plain)?;
        let names = view.columns.iter().map(|column| column.name.as_str());
        let names = names.chain(columns.iter().map(String::as_str));
        let plan = super::rename_outputs(plan, names).map_err(plain)?;
        self.context.leave_view();
        Ok((plan, columns))
    }
}

fn rank(policy: WaitPolicy) -> u8 {
    match policy {
        WaitPolicy::Wait => 0,
        WaitPolicy::SkipLocked => 1,
        WaitPolicy::Nowait => 2,
    }
}

fn exclude<'a>(options: &mut WildcardAdditionalOptions, columns: impl Iterator<Item = &'a String>) {
    let names: Vec<ObjectName> = columns
        .map(|column| {
            let column = Ident::with_quote('"', column.clone());
            ObjectName(vec![ObjectNamePart::Identifier(column)])
        })
        .collect();
    if !names.is_empty() {
        options.opt_exclude = Some(ExcludeSelectItem::Multiple(names));
    }
}

/// PostgreSQL's `CheckSelectLocking`: only rows of tables can be locked. A query in
/// parentheses is taken out of these.
fn check_query(query: &mut Query, mode: RowLock) -> Result<(), SqlError> {
    while let SetExpr::Query(inner) = &mut *query.body {
        let is_bare = query.with.is_none()
            && query.order_by.is_none()
            && query.limit_clause.is_none()
            && query.fetch.is_none();
        if !is_bare {
            return Err(refused(mode, "of a query in parentheses is not supported"));
        }
        let mut inner = mem::replace(&mut **inner, nothing());
        inner.locks.append(&mut query.locks);
        *query = inner;
    }
    let select = match &*query.body {
        SetExpr::Select(select) => select,
        SetExpr::SetOperation { .. } => {
            return Err(refused(mode, "is not allowed with UNION/INTERSECT/EXCEPT"));
        }
        SetExpr::Values(_) => return Err(refused(mode, "cannot be applied to VALUES")),
        _ => return Err(refused(mode, "of this query is not supported")),
    };
    let is_grouped = match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(keys, modifiers) => !(keys.is_empty() && modifiers.is_empty()),
    };
    let mut calls = Calls::default();
    // It never breaks.
    let _ = walk::look(&select.projection, &mut calls);
    let _ = walk::look(&query.order_by, &mut calls);
    let what = if select.distinct.is_some() {
        "DISTINCT clause"
    } else if is_grouped {
        "GROUP BY clause"
    } else if select.having.is_some() {
        "HAVING clause"
    } else if calls.aggregate {
        "aggregate functions"
    } else if calls.window {
        "window functions"
    } else if calls.series {
        "set-returning functions in the target list"
    } else {
        return Ok(());
    };
    Err(refused(mode, &format!("is not allowed with {what}")))
}

/// What a query's own expressions call.
#[derive(Default)]
struct Calls {
    aggregate: bool,
    window: bool,
    series: bool,
    subqueries: usize,
}

impl Calls {
    fn call(&mut self, function: &Function) {
        let name = function.name.0.last().and_then(|part| part.as_ident());
        let name = name.map(folded);
        self.window |= function.over.is_some();
        self.aggregate |= function.over.is_none() && is_aggregate(function);
        self.series |= name.is_some_and(|name| SERIES.contains(&name.as_str()));
    }
}

impl Visitor for Calls {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.subqueries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.subqueries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expression
            && self.subqueries == 0
        {
            self.call(function);
        }
        ControlFlow::Continue(())
    }
}
