//! Aliases of joins in parentheses, which become subqueries, and the column names in aliases.

use std::collections::HashSet;

use aerostat_sql::{
    names::{SUFFIX, folded},
    walk,
};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::{
    ast::{Query, SetExpr, TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins},
    dialect::PostgreSqlDialect,
    parser::Parser,
};

use super::{Named, quoted};

/// Turns joins in parentheses with an alias into subqueries, because their columns have the alias
/// as their only qualifier.
pub(super) fn derive_aliased(table: &mut TableWithJoins) {
    let joined = table.joins.iter_mut().map(|join| &mut join.relation);
    for factor in std::iter::once(&mut table.relation).chain(joined) {
        let TableFactor::NestedJoin {
            table_with_joins,
            alias,
        } = factor
        else {
            continue;
        };
        if alias.is_none() {
            derive_aliased(table_with_joins);
            continue;
        }
        let parser = Parser::new(&PostgreSqlDialect {}).try_with_sql("SELECT * FROM x");
        let Ok(mut subquery) = parser.and_then(|mut parser| parser.parse_query()) else {
            continue;
        };
        if let SetExpr::Select(select) = &mut *subquery.body {
            select.from = vec![(**table_with_joins).clone()];
        }
        *factor = TableFactor::Derived {
            lateral: looks_aside(table_with_joins),
            subquery,
            alias: alias.take(),
            sample: None,
        };
    }
}

/// The error for a locking clause that names such a join, whose rows cannot be locked.
pub(super) fn locked(query: &Query) -> Option<SqlError> {
    let SetExpr::Select(select) = &*query.body else {
        return None;
    };
    let lock = query.locks.iter().find(|lock| {
        let mut named = lock.of.iter().filter_map(|of| of.0.last()?.as_ident());
        named.any(|name| {
            select
                .from
                .iter()
                .any(|table| has_join(table, &folded(name)))
        })
    })?;
    let message = format!("FOR {} cannot be applied to a join", lock.lock_type);
    Some(SqlError::new(ErrorKind::FeatureNotSupported, message))
}

/// Whether a join in parentheses has this alias.
fn has_join(table: &TableWithJoins, name: &str) -> bool {
    walk::factors(table).any(|factor| match factor {
        TableFactor::NestedJoin {
            table_with_joins,
            alias,
        } => match alias {
            Some(alias) => folded(&alias.name) == name,
            None => has_join(table_with_joins, name),
        },
        _ => false,
    })
}

/// Whether a relation among these may name columns of others in FROM.
fn looks_aside(table: &TableWithJoins) -> bool {
    walk::factors(table).any(|factor| match factor {
        TableFactor::Derived { lateral, .. } => *lateral,
        TableFactor::NestedJoin {
            table_with_joins, ..
        } => looks_aside(table_with_joins),
        TableFactor::Table { args, .. } => args.is_some(),
        _ => true,
    })
}

/// The alias of a relation in FROM.
pub(super) fn alias_of(factor: &TableFactor) -> Option<&TableAlias> {
    match factor {
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. } => alias.as_ref(),
        _ => None,
    }
}

/// The columns with the names that an alias gives to the first of them.
pub(super) fn aliased(alias: &TableAlias, columns: Option<Vec<Named>>) -> Option<Vec<Named>> {
    if alias.columns.is_empty() {
        return columns;
    }
    let mut columns = columns.unwrap_or_default();
    columns.resize_with(columns.len().max(alias.columns.len()), Default::default);
    for (column, given) in columns.iter_mut().zip(&alias.columns) {
        column.0 = folded(&given.name);
    }
    Some(columns)
}

/// Completes the alias of a table or subquery that names only its first columns.
///
/// # Errors
/// The errors of [`name_all`].
pub(super) fn name_others(factor: &mut TableFactor, columns: &[Named]) -> Result<(), SqlError> {
    match factor {
        TableFactor::Table {
            alias: Some(alias), ..
        }
        | TableFactor::Derived {
            alias: Some(alias), ..
        } => name_all(alias, columns),
        _ => Ok(()),
    }
}

/// Completes an alias that names only the first of these columns. Equal names get suffixes.
///
/// # Errors
/// `InvalidColumnReference` if it names more columns than there are; `columns` is empty if they are
/// not known.
pub(super) fn name_all(alias: &mut TableAlias, columns: &[Named]) -> Result<(), SqlError> {
    let given = alias.columns.len();
    if given == 0 || columns.is_empty() {
        return Ok(());
    }
    if given > columns.len() {
        let (name, there) = (folded(&alias.name), columns.len());
        let message =
            format!("table \"{name}\" has {there} columns available but {given} columns specified");
        return Err(SqlError::new(ErrorKind::InvalidColumnReference, message));
    }
    let mut taken: HashSet<String> = alias.columns.iter().map(|c| folded(&c.name)).collect();
    for (at, (name, _)) in columns.iter().enumerate().skip(given) {
        let name = match taken.insert(name.clone()) {
            true => name.clone(),
            false => format!("{name}{SUFFIX}{at}"),
        };
        alias.columns.push(TableAliasColumnDef {
            name: quoted(&name),
            data_type: None,
        });
    }
    Ok(())
}
