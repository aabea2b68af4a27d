//! `*`, `t.*`, and columns that USING and NATURAL merge, where DataFusion's meaning differs from
//! PostgreSQL's.
//!
//! | written | becomes |
//! |---|---|
//! | `SELECT t.* FROM s.t` | `SELECT s.t.* FROM s.t` |
//! | `SELECT * FROM t (a, b) JOIN u (b, c) USING (b)` | `SELECT t.b, t.a, u.c …`: what is merged comes first |
//! | `SELECT b FROM t JOIN u USING (b)` | `SELECT t.b …`, of a RIGHT JOIN `u.b`, of a FULL JOIN `coalesce(t.b, u.b) AS b`; where the types may differ `merged(t.b, u.b, true) AS b` |
//! | `t FULL JOIN u USING (b) JOIN v USING (b)` | `… ON t.b = u.b JOIN v ON coalesce(t.b, u.b) = v.b` |
//! | `(t CROSS JOIN u) AS j` | `(SELECT * FROM t CROSS JOIN u) AS j` |
//! | `FROM t AS u (x)`, `WITH w (x) AS (SELECT a, b …)` | `FROM t AS u (x, b, c)`, `WITH w (x, b)`: an alias names all columns |
//! | `FROM (SELECT * FROM t, u) AS q` | `FROM (SELECT t.a, …, u.a, …) AS q`, if two columns have one name |
//!
//! A name that a merged column and another column have is ambiguous. That is checked here, because
//! in a subquery the planner would look for the name in the queries around. If a join with a name,
//! or a subquery, has several columns with one name, the planner would take the first of them:
//! [`super::names`] gives them other names, so that none of them is found by that name.
//!
//! The columns of the relations in FROM are found without planning them: from the catalogue, and
//! from the SELECT lists of subqueries. If these do not tell, the query stays as it is. The types
//! of columns are found where they are plain, and otherwise looked at when the columns are
//! resolved.

use std::{cell::RefCell, ops::ControlFlow};

use aerostat_sql::{names::folded, walk};
use aerostat_types::{ErrorKind, SqlError, SqlType};
use datafusion::arrow::datatypes::FieldRef;
use datafusion::sql::sqlparser::{
    ast::{
        Cte, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, Query, Select, SelectItem,
        SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins, Visit, VisitMut,
        Visitor, VisitorMut, WildcardAdditionalOptions, With,
    },
    dialect::PostgreSqlDialect,
    parser::Parser,
};

mod aliased;
mod ambiguous;
mod joined;
mod replacing;

use aliased::{alias_of, aliased, derive_aliased, name_all, name_others};
use joined::{Joined, type_of};
use replacing::{Replacing, name_as_before, unnamed};

use super::{StatementContext, names::output_name, target::table_reference};

/// Rewrites the queries in a tree as the module says.
///
/// # Errors
/// `AmbiguousColumn`; `FeatureNotSupported` for a lock of a join.
pub(super) fn rewrite<N: Visit + VisitMut>(
    context: &StatementContext,
    node: &mut N,
) -> Result<(), SqlError> {
    if walk::look(node, &mut Search).is_continue() {
        return Ok(());
    }
    let mut wildcards = Wildcards {
        context,
        known: Vec::new(),
        withs: Vec::new(),
        refused: RefCell::default(),
    };
    // The visitor never breaks.
    let _ = walk::change(node, &mut wildcards);
    assert!(
        wildcards.withs.is_empty() && wildcards.known.is_empty(),
        "each query has its WITH queries back"
    );
    match wildcards.refused.into_inner() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Looks for a SELECT that may have to be rewritten.
struct Search;

impl Visitor for Search {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        let is_qualified = |item: &SelectItem| matches!(item, SelectItem::QualifiedWildcard(..));
        if select.from.iter().any(merges) || select.projection.iter().any(is_qualified) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        match ambiguous::joins_inside(expression) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let mut ctes = query.with.iter().flat_map(|with| &with.cte_tables);
        match ctes.any(|cte| !cte.alias.columns.is_empty() || has_joined_wildcard(&cte.query)) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table {
                alias: Some(alias), ..
            }
            | TableFactor::Derived {
                alias: Some(alias), ..
            } if !alias.columns.is_empty() => ControlFlow::Break(()),
            TableFactor::Derived { subquery, .. } if has_joined_wildcard(subquery) => {
                ControlFlow::Break(())
            }
            TableFactor::NestedJoin { alias: Some(_), .. } => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Whether a query has a `*` of several relations, whose columns may share a name.
fn has_joined_wildcard(query: &Query) -> bool {
    let SetExpr::Select(select) = &*query.body else {
        return false;
    };
    let is_wildcard = |item: &SelectItem| {
        matches!(
            item,
            SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)
        )
    };
    let joins = select.from.len() > 1 || select.from.iter().any(|table| !table.joins.is_empty());
    (joins || select.projection.len() > 1) && select.projection.iter().any(is_wildcard)
}

/// Whether columns of two relations are merged.
fn merges(table: &TableWithJoins) -> bool {
    let nested = |factor: &TableFactor| match factor {
        TableFactor::NestedJoin {
            table_with_joins, ..
        } => merges(table_with_joins),
        _ => false,
    };
    nested(&table.relation)
        || table.joins.iter().any(|join| {
            let (constraint, _) = parts(&join.join_operator);
            let is_merging = matches!(
                constraint,
                Some(JoinConstraint::Using(_) | JoinConstraint::Natural)
            );
            is_merging || nested(&join.relation)
        })
}

/// The side of a join that has the values of a merged column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Each side has them.
    Both,
    Left,
    Right,
    /// Either side may have them.
    Either,
}

fn parts(operator: &JoinOperator) -> (Option<&JoinConstraint>, Side) {
    use JoinOperator as J;
    match operator {
        J::Join(constraint) | J::Inner(constraint) => (Some(constraint), Side::Both),
        J::Left(constraint) | J::LeftOuter(constraint) => (Some(constraint), Side::Left),
        J::Right(constraint) | J::RightOuter(constraint) => (Some(constraint), Side::Right),
        J::FullOuter(constraint) => (Some(constraint), Side::Either),
        _ => (None, Side::Left),
    }
}

/// A column that a relation or join in FROM has.
#[derive(Clone)]
struct Output {
    name: String,
    value: Expr,
    /// Whether it is merged: the planner would look for it among all relations, including those of
    /// the queries around, or take another side's column.
    is_merged: bool,
    /// Whether it is merged and other columns have its name.
    is_ambiguous: bool,
    /// Its type, where that is known.
    ty: Option<SqlType>,
}

/// The name of a column, and its type where that is known.
type Named = (String, Option<SqlType>);

struct Wildcards<'a> {
    context: &'a StatementContext,
    /// WITH queries in scope, and their columns where those are known.
    known: Vec<(String, Option<Vec<Named>>)>,
    /// WITH clauses of the queries around the visited node, taken out until the walk leaves them,
    /// each with how many WITH queries were in scope before.
    withs: Vec<(Option<With>, usize)>,
    /// The first error.
    refused: RefCell<Option<SqlError>>,
}

impl VisitorMut for Wildcards<'_> {
    type Break = ();

    /// Takes the WITH queries out and rewrites them here, each with the previous ones in scope.
    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(error) = aliased::locked(query) {
            self.refuse(|| error);
        }
        let before = self.known.len();
        let mut with = query.with.take();
        if let Some(with) = &mut with {
            if with.recursive {
                let unknown = |cte: &Cte| (folded(&cte.alias.name), aliased(&cte.alias, None));
                self.known.extend(with.cte_tables.iter().map(unknown));
            }
            for cte in &mut with.cte_tables {
                self.write_out(&mut cte.query);
                walk::change(cte, self)?;
                let columns = self.query_columns(&cte.query);
                let named = name_all(&mut cte.alias, columns.as_deref().unwrap_or_default());
                if let Err(error) = named {
                    self.refuse(|| error);
                }
                let columns = aliased(&cte.alias, columns);
                self.known.push((folded(&cte.alias.name), columns));
            }
        }
        self.withs.push((with, before));
        self.order_by(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some((with, before)) = self.withs.pop() {
            query.with = with;
            self.known.truncate(before);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        qualify(select);
        let is_merged = select.from.iter().any(merges);
        select.from.iter_mut().for_each(derive_aliased);
        if self.withs.len() > 1
            && ambiguous::joins(select)
            && let Some(columns) = self.columns(&select.from)
            && let Some(name) = ambiguous::name_in(select, &columns)
        {
            self.refuse(|| is_ambiguous(&name));
        }
        if is_merged {
            self.merged(select);
        }
        ControlFlow::Continue(())
    }

    /// Rewrites a subquery with the WITH queries in scope. Its own have been taken out before.
    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, .. } = factor {
            self.write_out(subquery);
        }
        if alias_of(factor).is_some_and(|alias| !alias.columns.is_empty())
            && let Some(columns) = self.own_columns(factor)
            && let Err(error) = name_others(factor, &columns)
        {
            self.refuse(|| error);
        }
        ControlFlow::Continue(())
    }
}

/// Puts the schema of a relation before its name in `t.*`.
fn qualify(select: &mut Select) {
    let Select {
        projection, from, ..
    } = select;
    for item in projection {
        let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) =
            item
        else {
            continue;
        };
        let [only] = &name.0[..] else { continue };
        let Some(wanted) = only.as_ident().map(folded) else {
            continue;
        };
        if let Some(whole) = from.iter().find_map(|table| whole_name(table, &wanted)) {
            *name = whole.clone();
        }
    }
}

/// The name with a schema, in FROM, of the relation with this name.
fn whole_name<'a>(table: &'a TableWithJoins, wanted: &str) -> Option<&'a ObjectName> {
    walk::factors(table).find_map(|factor| match factor {
        TableFactor::Table {
            name, alias: None, ..
        } if name.0.len() > 1 => {
            let last = name.0.last()?.as_ident()?;
            (folded(last) == wanted).then_some(name)
        }
        TableFactor::NestedJoin {
            table_with_joins,
            alias: None,
        } => whole_name(table_with_joins, wanted),
        _ => None,
    })
}

impl Wildcards<'_> {
    /// Writes `*` out, and replaces names that the planner would resolve wrongly.
    fn merged(&self, select: &mut Select) {
        let Some(all) = self.items(&select.from) else {
            return;
        };
        let others = self.merged_columns(&select.from);
        let mut items = Vec::with_capacity(select.projection.len());
        for item in std::mem::take(&mut select.projection) {
            match item {
                SelectItem::Wildcard(options) if options == plain() => {
                    items.extend(all.iter().cloned());
                }
                SelectItem::UnnamedExpr(Expr::Identifier(name)) => {
                    let other = others.iter().find(|other| other.name == folded(&name));
                    items.push(match other.and_then(|other| self.meant(other)) {
                        Some(other) => item_of(other),
                        None => SelectItem::UnnamedExpr(Expr::Identifier(name)),
                    });
                }
                mut item => {
                    let name = unnamed(&item);
                    self.replace(&mut item, &others);
                    name_as_before(&mut item, name);
                    items.push(item);
                }
            }
        }
        select.projection = items;
        self.replace(&mut select.selection, &others);
        self.replace(&mut select.group_by, &others);
        self.replace(&mut select.having, &others);
        let mut before = Vec::new();
        for table in &mut select.from {
            self.unmerge(table, &mut before);
        }
    }

    /// Turns USING and NATURAL into conditions over the values of merged columns, because the
    /// planner would take the column of the first relation that has it.
    fn unmerge(&self, table: &mut TableWithJoins, before: &mut Vec<Output>) {
        if self.joined(table).is_none() {
            return;
        }
        let Some(mut left) = self.unmerged(&mut table.relation, before) else {
            return;
        };
        for join in &mut table.joins {
            let mut seen: Vec<Output> = before.clone();
            seen.extend(left.iter().cloned());
            let Some(right) = self.unmerged(&mut join.relation, &mut seen) else {
                return;
            };
            if let Some(JoinConstraint::On(condition)) = constraint_of(&mut join.join_operator) {
                let all: Vec<Output> = left.iter().chain(&right).cloned().collect();
                self.replace(condition, &merged_of(&all));
            }
            let Some(joined) = Joined::of(left, right, &join.join_operator) else {
                return;
            };
            if let Some(constraint) = constraint_of(&mut join.join_operator)
                && matches!(
                    constraint,
                    JoinConstraint::Using(_) | JoinConstraint::Natural
                )
            {
                *constraint = JoinConstraint::On(joined.condition());
            }
            left = joined.columns;
        }
        before.extend(left);
    }

    /// The columns of a relation, in which joins are then unmerged, too.
    fn unmerged(&self, factor: &mut TableFactor, before: &mut Vec<Output>) -> Option<Vec<Output>> {
        let columns = self.factor(factor)?;
        match factor {
            TableFactor::NestedJoin {
                table_with_joins, ..
            } => {
                let known = before.len();
                self.unmerge(table_with_joins, before);
                before.truncate(known);
            }
            TableFactor::Derived {
                lateral: true,
                subquery,
                ..
            } => self.replace(&mut **subquery, &merged_of(before)),
            _ => {}
        }
        Some(columns)
    }

    /// Writes the `*` of a subquery out if two of its columns have one name.
    fn write_out(&self, query: &mut Query) {
        if !has_joined_wildcard(query) {
            return;
        }
        let SetExpr::Select(select) = &mut *query.body else {
            return;
        };
        // A SELECT with merged columns is written out anyway.
        if select.from.iter().any(merges) {
            return;
        }
        let Some(names) = self.select_columns(select) else {
            return;
        };
        let mut sorted: Vec<&String> = names.iter().map(|(name, _)| name).collect();
        sorted.sort();
        if sorted.windows(2).all(|pair| pair[0] != pair[1]) {
            return;
        }
        let mut items = Vec::with_capacity(names.len());
        for item in &select.projection {
            let columns = match item {
                SelectItem::Wildcard(options) if *options == plain() => self.columns(&select.from),
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    options,
                ) if *options == plain() => self.columns_of(&select.from, name),
                SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => None,
                item => {
                    items.push(item.clone());
                    continue;
                }
            };
            let Some(columns) = columns else { return };
            items.extend(columns.iter().map(item_of));
        }
        select.projection = items;
    }

    /// The columns of all relations in FROM.
    fn columns(&self, from: &[TableWithJoins]) -> Option<Vec<Output>> {
        let mut columns = Vec::new();
        for table in from {
            columns.extend(self.joined(table)?);
        }
        Some(columns)
    }

    /// The columns of the relation in FROM with this name.
    fn columns_of(&self, from: &[TableWithJoins], name: &ObjectName) -> Option<Vec<Output>> {
        let wanted = folded(name.0.last()?.as_ident()?);
        let mut factors = from.iter().flat_map(walk::factors);
        let is_called = |factor: &&TableFactor| {
            let called = qualifier(factor).and_then(|parts| Some(folded(parts.last()?)));
            called.as_deref() == Some(wanted.as_str())
        };
        self.factor(factors.find(is_called)?)
    }

    /// Replaces merged columns in ORDER BY, except names of outputs, which come first.
    fn order_by(&self, query: &mut Query) {
        let SetExpr::Select(select) = &*query.body else {
            return;
        };
        if query.order_by.is_none() || !select.from.iter().any(merges) {
            return;
        }
        let Some(names) = self.select_columns(select) else {
            return;
        };
        let mut others = self.merged_columns(&select.from);
        others.retain(|other| !names.iter().any(|(name, _)| *name == other.name));
        self.replace(&mut query.order_by, &others);
    }

    /// The items that `*` stands for.
    fn items(&self, from: &[TableWithJoins]) -> Option<Vec<SelectItem>> {
        let mut items = Vec::new();
        for table in from {
            if merges(table) {
                items.extend(self.joined(table)?.iter().map(item_of));
                continue;
            }
            for factor in walk::factors(table) {
                let name = ObjectName::from(qualifier(factor)?);
                let name = SelectItemQualifiedWildcardKind::ObjectName(name);
                items.push(SelectItem::QualifiedWildcard(name, plain()));
            }
        }
        Some(items)
    }

    /// The merged columns.
    fn merged_columns(&self, from: &[TableWithJoins]) -> Vec<Output> {
        let joined = from.iter().filter_map(|table| self.joined(table));
        let columns: Vec<Output> = joined.flatten().collect();
        merged_of(&columns)
    }

    /// The columns of relations that are joined.
    fn joined(&self, table: &TableWithJoins) -> Option<Vec<Output>> {
        let mut left = self.factor(&table.relation)?;
        for join in &table.joins {
            let right = self.factor(&join.relation)?;
            left = Joined::of(left, right, &join.join_operator)?.columns;
        }
        Some(left)
    }

    fn factor(&self, factor: &TableFactor) -> Option<Vec<Output>> {
        if let TableFactor::NestedJoin {
            table_with_joins,
            alias: None,
        } = factor
        {
            return self.joined(table_with_joins);
        }
        let (qualifier, mut columns) = (qualifier(factor)?, self.own_columns(factor)?);
        if let Some(alias) = alias_of(factor) {
            columns = aliased(alias, Some(columns))?;
        }
        // The columns of a function are those that its alias names.
        if columns.is_empty() {
            return None;
        }
        let output = |(name, ty): Named| {
            let mut parts = qualifier.clone();
            parts.push(quoted(&name));
            Output {
                name,
                value: Expr::CompoundIdentifier(parts),
                is_merged: false,
                is_ambiguous: false,
                ty,
            }
        };
        Some(columns.into_iter().map(output).collect())
    }

    /// The columns of a relation in FROM under their own names; empty for a function.
    fn own_columns(&self, factor: &TableFactor) -> Option<Vec<Named>> {
        match factor {
            TableFactor::Table {
                name, args: None, ..
            } => self.table_columns(name),
            TableFactor::Derived { subquery, .. } => self.query_columns(subquery),
            TableFactor::Table { .. }
            | TableFactor::Function { .. }
            | TableFactor::UNNEST { .. } => Some(Vec::new()),
            _ => None,
        }
    }

    fn table_columns(&self, name: &ObjectName) -> Option<Vec<Named>> {
        if let [only] = &name.0[..]
            && let Some(only) = only.as_ident().map(folded)
            && let Some((_, columns)) = self.known.iter().rev().find(|(name, _)| *name == only)
        {
            return columns.clone();
        }
        let reference = table_reference(name).ok()?;
        if let Some(system) = self.context.system_table(&reference) {
            let schema = system.schema();
            let fields = schema.fields().iter();
            let named = |field: &FieldRef| (field.name().clone(), SqlType::of_field(field));
            return Some(fields.map(named).collect());
        }
        let (_, relation) = self.context.resolve(&reference).ok()?;
        let columns = relation.columns().iter();
        let columns = columns.map(|column| (column.name.clone(), Some(column.ty)));
        Some(columns.collect())
    }

    /// A query's columns.
    fn query_columns(&self, query: &Query) -> Option<Vec<Named>> {
        match &query.with {
            Some(with) => self.within(with).body_columns(&query.body),
            None => self.body_columns(&query.body),
        }
    }

    /// The same with the WITH queries of a subquery in scope.
    fn within(&self, with: &With) -> Wildcards<'_> {
        let mut inner = Wildcards {
            context: self.context,
            known: self.known.clone(),
            withs: Vec::new(),
            refused: RefCell::default(),
        };
        if with.recursive {
            let unknown = |cte: &Cte| (folded(&cte.alias.name), aliased(&cte.alias, None));
            inner.known.extend(with.cte_tables.iter().map(unknown));
        }
        for cte in &with.cte_tables {
            let columns = aliased(&cte.alias, inner.query_columns(&cte.query));
            inner.known.push((folded(&cte.alias.name), columns));
        }
        inner
    }

    fn body_columns(&self, body: &SetExpr) -> Option<Vec<Named>> {
        let (mut body, mut is_mixed) = (body, false);
        let mut columns = loop {
            match body {
                SetExpr::Select(select) => break self.select_columns(select)?,
                SetExpr::Query(inner) => break self.query_columns(inner)?,
                SetExpr::SetOperation { left, .. } => (body, is_mixed) = (left, true),
                SetExpr::Values(values) => {
                    let width = values.rows.first().map_or(0, |row| row.len());
                    break (1..=width)
                        .map(|nth| (format!("column{nth}"), None))
                        .collect();
                }
                _ => return None,
            }
        };
        if is_mixed {
            columns.iter_mut().for_each(|(_, ty)| *ty = None);
        }
        Some(columns)
    }

    fn select_columns(&self, select: &Select) -> Option<Vec<Named>> {
        let mut names = Vec::with_capacity(select.projection.len());
        let all = self.columns(&select.from);
        let ty = |expression: &Expr| type_of(expression, all.as_deref().unwrap_or_default());
        for item in &select.projection {
            match item {
                SelectItem::UnnamedExpr(expression) => {
                    names.push((output_name(expression), ty(expression)));
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    names.push((folded(alias), ty(expr)));
                }
                SelectItem::Wildcard(_) => {
                    let columns = all.as_ref()?.iter();
                    names.extend(columns.map(|column| (column.name.clone(), column.ty)));
                }
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    _,
                ) => {
                    let columns = self.columns_of(&select.from, name)?.into_iter();
                    names.extend(columns.map(|column| (column.name, column.ty)));
                }
                _ => return None,
            }
        }
        Some(names)
    }
}

impl Output {
    fn is_in(&self, others: &[Output]) -> bool {
        others.iter().any(|other| other.name == self.name)
    }
}

fn is_ambiguous(name: &str) -> SqlError {
    let message = format!("column reference \"{name}\" is ambiguous");
    SqlError::new(ErrorKind::AmbiguousColumn, message)
}

/// The column with this name, if there is only one.
fn only<'a>(columns: &'a [Output], name: &str) -> Option<&'a Output> {
    let mut named = columns.iter().filter(|column| column.name == name);
    named.next().filter(|_| named.next().is_none())
}

/// The merged columns among these.
fn merged_of(columns: &[Output]) -> Vec<Output> {
    let merged = columns.iter().filter(|column| column.is_merged);
    let output = |column: &Output| Output {
        is_ambiguous: only(columns, &column.name).is_none(),
        ..column.clone()
    };
    merged.map(output).collect()
}

/// The name of a relation in FROM.
fn qualifier(factor: &TableFactor) -> Option<Vec<Ident>> {
    match factor {
        TableFactor::Table {
            alias: Some(alias), ..
        }
        | TableFactor::Derived {
            alias: Some(alias), ..
        }
        | TableFactor::Function {
            alias: Some(alias), ..
        }
        | TableFactor::UNNEST {
            alias: Some(alias), ..
        } => Some(vec![quoted(&folded(&alias.name))]),
        TableFactor::Table { name, .. } => name
            .0
            .iter()
            .map(|part| Some(quoted(&folded(part.as_ident()?))))
            .collect(),
        _ => None,
    }
}

fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

fn plain() -> WildcardAdditionalOptions {
    WildcardAdditionalOptions::default()
}

fn item_of(output: &Output) -> SelectItem {
    match &output.value {
        Expr::CompoundIdentifier(_) => SelectItem::UnnamedExpr(output.value.clone()),
        value => SelectItem::ExprWithAlias {
            expr: value.clone(),
            alias: quoted(&output.name),
        },
    }
}

fn coalesce(left: &Expr, right: &Expr) -> Option<Expr> {
    let text = format!("coalesce({left}, {right})");
    let parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(&text);
    parser.and_then(|mut parser| parser.parse_expr()).ok()
}

fn constraint_of(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    use JoinOperator as J;
    match operator {
        J::Join(constraint)
        | J::Inner(constraint)
        | J::Left(constraint)
        | J::LeftOuter(constraint)
        | J::Right(constraint)
        | J::RightOuter(constraint)
        | J::FullOuter(constraint) => Some(constraint),
        _ => None,
    }
}

impl Wildcards<'_> {
    /// Replaces the names of merged columns in a clause by their values, also in its subqueries,
    /// unless these have columns with that name.
    fn replace<N: VisitMut>(&self, node: &mut N, others: &[Output]) {
        if others.is_empty() {
            return;
        }
        let mut replacing = Replacing::new(self, others);
        // The visitor never breaks.
        let _ = walk::change(node, &mut replacing);
    }

    fn refuse(&self, error: impl FnOnce() -> SqlError) {
        self.refused.borrow_mut().get_or_insert_with(error);
    }

    /// A merged column that a name stands for, unless the name is ambiguous.
    fn meant<'a>(&self, column: &'a Output) -> Option<&'a Output> {
        if !column.is_ambiguous {
            return Some(column);
        }
        self.refuse(|| is_ambiguous(&column.name));
        None
    }

    /// The names that stand for other columns in a subquery; `None` if that is not known.
    fn names_in(&self, query: &Query) -> Option<Vec<String>> {
        let SetExpr::Select(select) = &*query.body else {
            return None;
        };
        let columns = match &query.with {
            Some(with) => self.within(with).columns(&select.from)?,
            None => self.columns(&select.from)?,
        };
        let mut names: Vec<String> = columns.into_iter().map(|column| column.name).collect();
        for item in &select.projection {
            if let SelectItem::ExprWithAlias { alias, .. } = item {
                names.push(folded(alias));
            }
        }
        Some(names)
    }
}
