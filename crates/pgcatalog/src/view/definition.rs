//! Definitions as SQL text: the results of `pg_get_constraintdef` and similar functions.

use aerostat_catalog::{ForeignKey, IndexEntry, ReferentialAction, TableEntry, ViewEntry};
use aerostat_types::{CheckConstraint, Column, TableSchema, quote_ident};
use datafusion::sql::sqlparser::{
    dialect::PostgreSqlDialect,
    tokenizer::{Token, Tokenizer},
};

use super::{classes::Class, parts::index_columns};

/// `pg_get_indexdef`, the table's name with its schema or without.
pub(crate) fn of_index(
    class: &Class,
    table: &TableEntry,
    index: &IndexEntry,
    qualified: bool,
) -> String {
    let schema = if qualified {
        format!("{}.", quote_ident(&class.schema))
    } else {
        String::new()
    };
    let unique = if index.index.unique { "UNIQUE " } else { "" };
    let nulls = if index.index.nulls_not_distinct {
        " NULLS NOT DISTINCT"
    } else {
        ""
    };
    let method = index.index.kind;
    format!(
        "CREATE {unique}INDEX {} ON {schema}{} USING {method} ({}){nulls}",
        quote_ident(&class.name),
        quote_ident(&table.name),
        listed(index_columns(table, index)),
    )
}

/// `pg_get_constraintdef` of a table's primary key, or of a UNIQUE constraint.
pub(crate) fn of_key(table: &TableEntry, index: &IndexEntry) -> String {
    let kind = match (index.is_primary, index.index.nulls_not_distinct) {
        (true, _) => "PRIMARY KEY",
        (false, false) => "UNIQUE",
        (false, true) => "UNIQUE NULLS NOT DISTINCT",
    };
    let columns = listed(index_columns(table, index));
    format!("{kind} ({columns}){}", index.deferral.words())
}

/// `pg_get_constraintdef` of a foreign key; `referenced` is the name of the other table.
pub(crate) fn of_foreign_key(
    table: &TableEntry,
    key: &ForeignKey,
    referenced: &str,
    referenced_table: &TableEntry,
) -> String {
    let of = |table: &TableEntry, positions: &[usize]| {
        let columns = &table.table.schema().columns;
        listed(positions.iter().filter_map(|&at| columns.get(at)))
    };
    let mut text = format!(
        "FOREIGN KEY ({}) REFERENCES {referenced}({})",
        of(table, &key.columns),
        of(referenced_table, &key.referenced_columns)
    );
    if key.is_full {
        text.push_str(" MATCH FULL");
    }
    for (event, action) in [("UPDATE", key.on_update), ("DELETE", key.on_delete)] {
        if action != ReferentialAction::NoAction {
            text.push_str(&format!(" ON {event} {}", action.words()));
        }
    }
    text.push_str(key.deferral.words());
    if !key.is_valid {
        text.push_str(" NOT VALID");
    }
    text
}

/// `pg_get_constraintdef` of a CHECK. The pretty form has one pair of parentheses, the other two.
pub(crate) fn of_check(check: &CheckConstraint, pretty: bool) -> String {
    let expression = check.expression.trim();
    let not_valid = if check.not_valid { " NOT VALID" } else { "" };
    if pretty {
        format!("CHECK ({expression}){not_valid}")
    } else {
        format!("CHECK (({expression})){not_valid}")
    }
}

/// `pg_get_viewdef`.
pub(crate) fn of_view(view: &ViewEntry) -> String {
    format!(" {};", view.query.trim().trim_end_matches(';'))
}

fn listed<'a>(columns: impl Iterator<Item = &'a Column>) -> String {
    columns
        .map(|column| quote_ident(&column.name))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The numbers of the columns that a CHECK mentions, `pg_constraint.conkey`.
pub(crate) fn columns_of_check(schema: &TableSchema, check: &CheckConstraint) -> Vec<i32> {
    let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, &check.expression).tokenize() else {
        return Vec::new();
    };
    let mut columns: Vec<i32> = tokens
        .iter()
        .filter_map(|token| match token {
            Token::Word(word) if word.quote_style.is_some() => schema.position(&word.value),
            Token::Word(word) => schema.position(&word.value.to_lowercase()),
            _ => None,
        })
        .map(|at| at as i32 + 1)
        .collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}
