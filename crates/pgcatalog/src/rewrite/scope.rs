//! Scopes: which relations the FROM of a SELECT has, which of them are system relations, and
//! which have no rows.

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, JoinOperator, ObjectName, Query, Select, SetExpr,
    TableFactor, TableWithJoins,
};

use aerostat_sql::names::{PG_CATALOG, folded};

use super::{build::bare_name, parts::aggregates};
use crate::{
    data::{self, SystemRelation},
    tables,
};

/// The system relation that a name in FROM means.
pub(super) fn system_relation(name: &ObjectName) -> Option<&'static SystemRelation> {
    let parts: Vec<String> = name
        .0
        .iter()
        .map(|part| part.as_ident().map(folded))
        .collect::<Option<_>>()?;
    match &parts[..] {
        [name] => data::relation(PG_CATALOG, name),
        [schema, name] | [_, schema, name] => data::relation(schema, name),
        _ => None,
    }
}

/// One relation in FROM.
struct Entry {
    /// The name it has in the SELECT.
    alias: String,
    /// `None` for anything but a system relation.
    relation: Option<&'static SystemRelation>,
}

/// The relations in FROM.
pub(super) struct Scope {
    entries: Vec<Entry>,
}

impl Scope {
    /// The scope of a FROM clause.
    pub(super) fn of(from: &[TableWithJoins]) -> Self {
        let mut entries = Vec::new();
        for table in from {
            add(&table.relation, &mut entries);
            for join in &table.joins {
                add(&join.relation, &mut entries);
            }
        }
        Self { entries }
    }

    /// Whether a system relation is there.
    pub(super) fn is_system(&self) -> bool {
        self.entries.iter().any(|entry| entry.relation.is_some())
    }

    /// The names of the relations.
    pub(super) fn aliases(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.alias.as_str())
    }

    /// Whether the column reference is to one of these relations, not to an outer query's.
    pub(super) fn owns(&self, reference: &Expr) -> bool {
        match reference {
            Expr::Identifier(ident) => {
                let name = folded(ident);
                self.relation_of(&name).is_some()
                    || self.entries.iter().any(|entry| entry.relation.is_none())
            }
            Expr::CompoundIdentifier(parts) => match &parts[..] {
                [.., table, _] => self
                    .entries
                    .iter()
                    .any(|entry| entry.alias == folded(table)),
                _ => false,
            },
            _ => false,
        }
    }

    /// The system relation that has the unqualified column.
    fn relation_of(&self, column: &str) -> Option<&'static SystemRelation> {
        self.entries
            .iter()
            .filter_map(|entry| entry.relation)
            .find(|relation| relation.typname(column).is_some())
    }

    /// The type of a column of a system relation.
    pub(super) fn typname(&self, reference: &Expr) -> Option<&'static str> {
        match reference {
            Expr::Identifier(ident) => {
                let name = folded(ident);
                self.relation_of(&name)?.typname(&name)
            }
            Expr::CompoundIdentifier(parts) => match &parts[..] {
                [.., table, column] => self.relation(&folded(table))?.typname(&folded(column)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The system relation with this name in the SELECT.
    pub(super) fn relation(&self, alias: &str) -> Option<&'static SystemRelation> {
        self.entries
            .iter()
            .find(|entry| entry.alias == alias)
            .and_then(|entry| entry.relation)
    }

    /// The only relation, where it is a system relation.
    pub(super) fn single(&self) -> Option<&'static SystemRelation> {
        match &self.entries[..] {
            [entry] => entry.relation,
            _ => None,
        }
    }
}

/// The name that a relation in FROM has in the SELECT.
pub(super) fn alias_of(factor: &TableFactor) -> String {
    let mut entries = Vec::new();
    add(factor, &mut entries);
    entries.pop().map(|entry| entry.alias).unwrap_or_default()
}

fn add(factor: &TableFactor, entries: &mut Vec<Entry>) {
    match factor {
        TableFactor::Table {
            name, alias, args, ..
        } => {
            let relation = if args.is_none() {
                system_relation(name)
            } else {
                None
            };
            let own = name
                .0
                .last()
                .and_then(|part| part.as_ident())
                .map(folded)
                .unwrap_or_default();
            entries.push(Entry {
                alias: alias.as_ref().map_or(own, |alias| folded(&alias.name)),
                relation,
            });
        }
        TableFactor::NestedJoin {
            table_with_joins,
            alias: None,
        } => {
            add(&table_with_joins.relation, entries);
            for join in &table_with_joins.joins {
                add(&join.relation, entries);
            }
        }
        other => {
            let alias = match other {
                TableFactor::Derived { alias, .. }
                | TableFactor::UNNEST { alias, .. }
                | TableFactor::Function { alias, .. }
                | TableFactor::TableFunction { alias, .. }
                | TableFactor::NestedJoin { alias, .. } => alias.as_ref(),
                _ => None,
            };
            entries.push(Entry {
                alias: alias.map(|alias| folded(&alias.name)).unwrap_or_default(),
                relation: None,
            });
        }
    }
}

/// Whether these are options of foreign tables or their like, which nothing has: such columns of
/// the catalogue are NULL.
fn is_foreign_option(argument: &FunctionArg) -> bool {
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument else {
        return false;
    };
    let column = match argument {
        Expr::Identifier(column) => Some(column),
        Expr::CompoundIdentifier(parts) => parts.last(),
        _ => None,
    };
    column.is_some_and(|column| FOREIGN_OPTIONS.contains(&folded(column).as_str()))
}

/// Columns of the catalogue with options of foreign tables and what belongs to them.
const FOREIGN_OPTIONS: [&str; 5] = [
    "attfdwoptions",
    "fdwoptions",
    "ftoptions",
    "srvoptions",
    "umoptions",
];

/// Whether the query has no rows in any database, and is no aggregate over none.
pub(super) fn is_empty_query(query: &Query) -> bool {
    match &*query.body {
        SetExpr::Select(select) => is_empty_select(select),
        SetExpr::Query(inner) => is_empty_query(inner),
        _ => false,
    }
}

/// Whether the SELECT has no rows in any database, and is no aggregate over none.
pub(super) fn is_empty_select(select: &Select) -> bool {
    select.from.iter().any(is_empty_from) && !aggregates(select)
}

fn is_empty_from(table: &TableWithJoins) -> bool {
    let mut empty = is_empty_factor(&table.relation);
    for join in &table.joins {
        let right = is_empty_factor(&join.relation);
        empty = match &join.join_operator {
            JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_) => {
                empty || right
            }
            JoinOperator::Right(_) | JoinOperator::RightOuter(_) => right,
            JoinOperator::FullOuter(_) => empty && right,
            _ => empty,
        };
    }
    empty
}

fn is_empty_factor(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::Table {
            name, args: None, ..
        } => system_relation(name).is_some_and(tables::is_empty),
        TableFactor::Table {
            name,
            args: Some(given),
            ..
        } => {
            bare_name(name).as_deref() == Some("pg_options_to_table")
                && matches!(&given.args[..], [argument] if is_foreign_option(argument))
        }
        TableFactor::NestedJoin {
            table_with_joins, ..
        } => is_empty_from(table_with_joins),
        TableFactor::Derived { subquery, .. } => is_empty_query(subquery),
        _ => false,
    }
}
