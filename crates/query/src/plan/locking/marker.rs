//! Giving row ids to the tables in a FROM that are to be locked, through subqueries and views.

use std::{mem, sync::Arc};

use aerostat_catalog::{Relation, ViewEntry};
use aerostat_sql::{
    grants::Privilege,
    names::folded,
    statement::Source,
    tree::locking::{clause, clause_for_all, shown},
};
use aerostat_storage::WaitPolicy;
use aerostat_txn::{LockMode, RowLock};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    datasource::ViewTable,
    logical_expr::LogicalPlan,
    sql::{
        planner::PlannerContext,
        sqlparser::ast::{
            Cte, ExcludeSelectItem, Expr, Ident, JoinOperator, LockClause, NonBlock, ObjectName,
            ObjectNamePart, Query, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
            TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins,
            WildcardAdditionalOptions,
        },
    },
};

use super::{
    super::{StatementContext, forms::rewrite_forms, rename_outputs, target::table_reference},
    LOCK_SCHEMA,
    check::{check_query, refused},
    hidden,
};
use crate::{
    error::from_datafusion,
    scan::{TableScanProvider, locked::Mark},
};

/// A locking clause.
#[derive(Clone)]
pub(super) struct Clause {
    mode: RowLock,
    policy: WaitPolicy,
    /// The relations that it names; empty for all relations.
    of: Vec<Ident>,
    written: LockClause,
}

impl Clause {
    pub(super) fn of(written: &LockClause) -> Self {
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

/// The FROM of one query that locks.
pub(super) struct Marker<'a> {
    context: &'a StatementContext,
    clauses: &'a [Clause],
    /// The WITH queries that it may name.
    ctes: &'a [Cte],
    /// The names of its relations.
    found: Vec<String>,
    /// The owners' names and the columns of row ids.
    hidden: Vec<(Ident, String)>,
    marks: &'a mut Vec<Mark>,
}

impl<'a> Marker<'a> {
    /// For a query that may name these WITH queries.
    pub(super) fn new(
        context: &'a StatementContext,
        clauses: &'a [Clause],
        ctes: &'a [Cte],
        marks: &'a mut Vec<Mark>,
    ) -> Self {
        Self {
            context,
            clauses,
            ctes,
            found: Vec::new(),
            hidden: Vec::new(),
            marks,
        }
    }
}

impl Marker<'_> {
    /// Marks a query's tables and adds their row ids to its outputs.
    pub(super) fn select(&mut self, query: &mut Query) -> Result<(), SqlError> {
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

    /// Checks that every name after OF is that of a relation.
    pub(super) fn check_names(&self) -> Result<(), SqlError> {
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
        // Rows may be missing before a RIGHT or FULL join, and after a LEFT or FULL one.
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

    /// The clauses that lock a relation of this name, merged into one.
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

    /// Refuses a clause that names a relation without rows that can be locked.
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

    /// Notes that a relation has these columns of row ids beside its own.
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

    /// Marks the tables of a subquery or a view, and returns the columns of their row ids. If that
    /// would lock rows that the query does not give, the query gets the clause instead.
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
        let mut inner = Marker::new(context, &clauses, self.ctes, &mut *self.marks);
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
        let nowhere = Source::of("".into());
        let plain = |error| from_datafusion(error, &nowhere);
        let (nested, mut query) = self.context.within(view).map_err(plain)?;
        rewrite_forms(&mut query)?;
        let outer_ctes = mem::take(&mut self.ctes);
        let marked = self.within(&nested, &mut query, lock);
        self.ctes = outer_ctes;
        let columns = marked?.unwrap_or_default();
        let plan = nested
            .plan_query(query, &mut PlannerContext::new())
            .map_err(plain)?;
        let names = view.columns.iter().map(|column| column.name.as_str());
        let names = names.chain(columns.iter().map(String::as_str));
        let plan = rename_outputs(plan, names).map_err(plain)?;
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
