//! Texts of views under changes of the relations that they read.
//!
//! A view is stored as text, and keeps its meaning when a relation that it reads gets other
//! columns, or another name. Nothing in the text is searched for columns: where the text names
//! the relation, the name is replaced by a subquery that has the previous columns, under their
//! previous names.
//!
//! ```text
//!   FROM public.t             a is renamed to b, c is added    FROM (SELECT b AS a FROM public.t) AS t
//!   FROM public.t AS x (y)    public.t is renamed to s.u       FROM s.u AS x (y)
//! ```
//!
//! Such a subquery, a *pinned* relation, is recognised, so that later changes do not nest another
//! one in it, and a column that is dropped leaves it.

use std::{collections::BTreeMap, ops::ControlFlow};

use aerostat_sql::{
    names::{ResolvedName, folded},
    statement::{Statement, StatementKind},
    walk,
};
use aerostat_types::{ErrorKind, SqlError, quote_ident};
use sqlparser::ast::{
    self, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem, SetExpr, TableAlias,
    TableFactor, Visitor, VisitorMut,
};

/// The query of a view's text.
///
/// # Errors
/// It is none, which is a defect: it was one when it was stored.
pub(super) fn parse(text: &str) -> Result<Query, SqlError> {
    let defect = || SqlError::new(ErrorKind::Internal, "a view's text is no query");
    let StatementKind::Sql(parsed) = Statement::single(text)?.kind else {
        return Err(defect());
    };
    match &*parsed {
        ast::Statement::Query(query) => Ok(Query::clone(query)),
        _ => Err(defect()),
    }
}

/// Pins a relation wherever the query names it: to the columns `before`, which `now` says the
/// names of, or that they have gone. A pinned column that has gone leaves its list.
///
/// # Errors
/// A defect of this module.
pub(super) fn pin(
    query: &mut Query,
    place: &ResolvedName,
    before: &[String],
    now: &dyn Fn(&str) -> Option<String>,
) -> Result<(), SqlError> {
    let mut pinner = Pinner {
        place,
        before: Some(before),
        now,
        in_pinned: false,
    };
    broken(walk::change(query, &mut pinner))
}

/// Makes the lists of pinned columns follow, and leaves the relation as it is elsewhere.
///
/// # Errors
/// A defect of this module.
pub(super) fn follow(
    query: &mut Query,
    place: &ResolvedName,
    now: &dyn Fn(&str) -> Option<String>,
) -> Result<(), SqlError> {
    let mut pinner = Pinner {
        place,
        before: None,
        now,
        in_pinned: false,
    };
    broken(walk::change(query, &mut pinner))
}

fn broken(flow: ControlFlow<Box<SqlError>>) -> Result<(), SqlError> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// Makes the query read relations that have moved where they are now. What it calls them
/// stays.
pub(super) fn follow_moves(query: &mut Query, moves: &BTreeMap<ResolvedName, ResolvedName>) {
    // It never breaks.
    let _ = walk::change(query, &mut Mover { moves });
}

/// Whether the columns that the query has, or joins by, may be more when a relation has more.
pub(super) fn takes_all_columns(query: &Query) -> bool {
    walk::look(query, &mut Wildcards).is_break()
}

fn place_of(name: &ObjectName) -> Option<ResolvedName> {
    match &name.0[..] {
        [
            ObjectNamePart::Identifier(schema),
            ObjectNamePart::Identifier(name),
        ] => Some(ResolvedName {
            schema: folded(schema),
            name: folded(name),
        }),
        _ => None,
    }
}

fn ident(name: &str) -> Ident {
    if quote_ident(name) == name {
        Ident::new(name)
    } else {
        Ident::with_quote('"', name)
    }
}

struct Pinner<'a> {
    place: &'a ResolvedName,
    /// The columns to pin; `None` to leave alone what is not pinned.
    before: Option<&'a [String]>,
    now: &'a dyn Fn(&str) -> Option<String>,
    /// Whether the relation that comes next is inside a list of pinned columns.
    in_pinned: bool,
}

/// A column of a pinned relation, and the name it has there.
type Item = (String, String);

impl Pinner<'_> {
    fn is_place(&self, name: &ObjectName) -> bool {
        place_of(name).as_ref() == Some(self.place)
    }

    /// The pinned columns, where the factor is the relation pinned.
    fn items(&self, factor: &TableFactor) -> Option<Vec<Item>> {
        let TableFactor::Derived {
            subquery,
            alias: Some(alias),
            ..
        } = factor
        else {
            return None;
        };
        let SetExpr::Select(select) = &*subquery.body else {
            return None;
        };
        let [from] = &select.from[..] else {
            return None;
        };
        match &from.relation {
            TableFactor::Table { name, .. } if self.is_place(name) => {}
            _ => return None,
        }
        let items: Vec<Item> = select.projection.iter().map(item).collect::<Option<_>>()?;
        let same = self.pinned(&items, alias.clone()).ok()?;
        (same.to_string() == factor.to_string()).then_some(items)
    }

    fn pinned(&self, items: &[Item], alias: TableAlias) -> Result<TableFactor, SqlError> {
        let shown: Vec<String> = items
            .iter()
            .map(
                |(column, name)| match (quote_ident(column), quote_ident(name)) {
                    (column, name) if column == name => column.to_string(),
                    (column, name) => format!("{column} AS {name}"),
                },
            )
            .collect();
        let text = format!(
            "SELECT {} FROM {}.{}",
            shown.join(", "),
            quote_ident(&self.place.schema),
            quote_ident(&self.place.name)
        );
        Ok(TableFactor::Derived {
            lateral: false,
            subquery: Box::new(parse(&text)?),
            alias: Some(alias),
            sample: None,
        })
    }

    /// The items as they are from now on.
    fn carried(&self, items: Vec<Item>) -> Vec<Item> {
        items
            .into_iter()
            .filter_map(|(column, name)| Some(((self.now)(&column)?, name)))
            .collect()
    }

    fn replace(&self, factor: &mut TableFactor, items: Vec<Item>) -> Result<(), SqlError> {
        let items = self.carried(items);
        if items.is_empty() {
            // No list is empty. What is left names a column that is gone, and breaks.
            return Ok(());
        }
        let alias = match factor {
            TableFactor::Table { alias, .. } | TableFactor::Derived { alias, .. } => alias.take(),
            _ => None,
        };
        let alias = alias.unwrap_or_else(|| called(&self.place.name));
        *factor = self.pinned(&items, alias)?;
        Ok(())
    }
}

fn called(name: &str) -> TableAlias {
    TableAlias {
        explicit: true,
        name: ident(name),
        columns: Vec::new(),
        at: None,
    }
}

fn item(item: &SelectItem) -> Option<Item> {
    match item {
        SelectItem::UnnamedExpr(ast::Expr::Identifier(column)) => {
            Some((folded(column), folded(column)))
        }
        SelectItem::ExprWithAlias {
            expr: ast::Expr::Identifier(column),
            alias,
        } => Some((folded(column), folded(alias))),
        _ => None,
    }
}

fn flow(result: Result<(), SqlError>) -> ControlFlow<Box<SqlError>> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(Box::new(error)),
    }
}

impl VisitorMut for Pinner<'_> {
    type Break = Box<SqlError>;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        let Some(items) = self.items(factor) else {
            return ControlFlow::Continue(());
        };
        self.in_pinned = true;
        flow(self.replace(factor, items))
    }

    /// After its children, for the subquery that comes in its place names it again.
    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        match factor {
            TableFactor::Table {
                name, args: None, ..
            } if self.is_place(name) => {}
            _ => return ControlFlow::Continue(()),
        }
        if std::mem::take(&mut self.in_pinned) {
            return ControlFlow::Continue(());
        }
        let Some(before) = self.before else {
            return ControlFlow::Continue(());
        };
        let items = before.iter().map(|name| (name.clone(), name.clone()));
        flow(self.replace(factor, items.collect()))
    }
}

struct Mover<'a> {
    moves: &'a BTreeMap<ResolvedName, ResolvedName>,
}

impl VisitorMut for Mover<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Table {
            name,
            alias,
            args: None,
            ..
        } = factor
        else {
            return ControlFlow::Continue(());
        };
        if let Some(from) = place_of(name)
            && let Some(to) = self.moves.get(&from)
        {
            let parts = [&to.schema, &to.name].map(|part| ident(part));
            *name = ObjectName(parts.map(ObjectNamePart::Identifier).to_vec());
            if to.name != from.name {
                alias.get_or_insert_with(|| called(&from.name));
            }
        }
        ControlFlow::Continue(())
    }
}

struct Wildcards;

impl Visitor for Wildcards {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        let is_wildcard = |item: &SelectItem| {
            matches!(
                item,
                SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)
            )
        };
        let joins_all = select.from.iter().any(is_natural);
        if joins_all || select.projection.iter().any(is_wildcard) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::NestedJoin {
                table_with_joins, ..
            } if is_natural(table_with_joins) => ControlFlow::Break(()),
            // Names of columns are given to all of them, in order.
            TableFactor::Table {
                alias: Some(alias), ..
            } if !alias.columns.is_empty() => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

fn is_natural(table: &ast::TableWithJoins) -> bool {
    use ast::JoinOperator as J;
    table.joins.iter().any(|join| match &join.join_operator {
        J::Join(constraint)
        | J::Inner(constraint)
        | J::Left(constraint)
        | J::LeftOuter(constraint)
        | J::Right(constraint)
        | J::RightOuter(constraint)
        | J::FullOuter(constraint) => *constraint == ast::JoinConstraint::Natural,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(schema: &str, name: &str) -> ResolvedName {
        ResolvedName {
            schema: schema.to_owned(),
            name: name.to_owned(),
        }
    }

    fn pinned(text: &str, now: &dyn Fn(&str) -> Option<String>) -> String {
        let mut query = parse(text).unwrap();
        let before = ["a".to_owned(), "C d".to_owned()];
        pin(&mut query, &place("public", "t"), &before, now).unwrap();
        query.to_string()
    }

    fn a_to_b(name: &str) -> Option<String> {
        Some(if name == "a" { "b" } else { name }.to_owned())
    }

    #[test]
    fn a_relation_is_pinned_to_the_names_it_had() {
        assert_eq!(
            pinned(
                "SELECT t.a FROM public.t JOIN public.u AS t2 ON t.a = t2.a WHERE EXISTS (SELECT * FROM public.t AS x (p, q))",
                &a_to_b
            ),
            "SELECT t.a FROM (SELECT b AS a, \"C d\" FROM public.t) AS t JOIN public.u AS t2 ON t.a = t2.a \
             WHERE EXISTS (SELECT * FROM (SELECT b AS a, \"C d\" FROM public.t) AS x (p, q))"
        );
    }

    #[test]
    fn what_is_pinned_is_not_pinned_again() {
        let once = pinned("SELECT a FROM public.t", &a_to_b);
        let mut query = parse(&once).unwrap();
        let now =
            |name: &str| (name != "C d").then(|| if name == "b" { "e" } else { name }.to_owned());
        let before = ["b".to_owned(), "C d".to_owned()];
        pin(&mut query, &place("public", "t"), &before, &now).unwrap();
        assert_eq!(
            query.to_string(),
            "SELECT a FROM (SELECT e AS a FROM public.t) AS t"
        );
        let mut query = parse("SELECT a FROM public.t").unwrap();
        follow(&mut query, &place("public", "t"), &now).unwrap();
        assert_eq!(query.to_string(), "SELECT a FROM public.t");
    }

    #[test]
    fn relations_are_followed_where_they_went() {
        let moves = BTreeMap::from([
            (place("public", "t"), place("S", "u")),
            (place("public", "v"), place("s", "v")),
        ]);
        let mut query =
            parse("SELECT t.a, x.b, v.c FROM public.t, public.t AS x, public.v, other.t AS o")
                .unwrap();
        follow_moves(&mut query, &moves);
        assert_eq!(
            query.to_string(),
            "SELECT t.a, x.b, v.c FROM \"S\".u AS t, \"S\".u AS x, s.v, other.t AS o"
        );
    }

    #[test]
    fn wildcards_are_found_at_any_depth() {
        for (text, expected) in [
            ("SELECT a FROM public.t", false),
            ("SELECT count(*) FROM public.t", false),
            ("SELECT * FROM public.t", true),
            ("SELECT 1 FROM (SELECT t.* FROM public.t) AS x", true),
            ("SELECT a FROM public.t NATURAL JOIN public.u", true),
            ("SELECT p FROM public.t AS x (p)", true),
        ] {
            assert_eq!(takes_all_columns(&parse(text).unwrap()), expected, "{text}");
        }
    }
}
