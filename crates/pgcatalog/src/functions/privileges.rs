//! Functions about privileges: `has_table_privilege` and the like.

use aerostat_catalog::{PUBLIC, undefined_schema};
use aerostat_sql::grants::{PredefinedRole, SchemaPrivilege};
use aerostat_types::{ErrorKind, SqlError};

use super::{Call, Definition, Reg, function};
use crate::{
    cell::Cell,
    view::{
        classes::{Class, ClassKind},
        rights::{default_acl, is_granted, privileges_of},
    },
};

pub(super) fn definitions() -> Vec<Definition> {
    let mut all = vec![
        function(
            "has_table_privilege",
            &["any", "any", "text?"],
            "bool",
            |call| relation(call, 2),
        ),
        function(
            "has_any_column_privilege",
            &["any", "any", "text?"],
            "bool",
            |call| {
                let (_, rest) = role_and_rest(call, 2)?;
                check_words_of_columns(&rest[1])?;
                relation(call, 2)
            },
        ),
        // Rights are on whole relations: a column's are its relation's.
        function(
            "has_column_privilege",
            &["any", "any", "any", "text?"],
            "bool",
            column,
        ),
        function(
            "has_sequence_privilege",
            &["any", "any", "text?"],
            "bool",
            |call| relation(call, 2),
        ),
        function(
            "has_database_privilege",
            &["any", "any", "text?"],
            "bool",
            database,
        ),
        function(
            "has_schema_privilege",
            &["any", "any", "text?"],
            "bool",
            schema,
        ),
        function("pg_has_role", &["any", "any", "text?"], "bool", |call| {
            let (role, rest) = role_and_rest(call, 2)?;
            let target = match rest[0].int() {
                Some(oid) => call.view.role_name(oid).unwrap_or_default().to_owned(),
                None => rest[0].str().unwrap_or_default().to_owned(),
            };
            let is_member = PredefinedRole::named(&target).is_some_and(|of| {
                let role = call.view.node.roles.get(&role);
                role.is_some_and(|role| role.is_member_of(of))
            });
            Ok((role == target || is_member || call.view.is_superuser(&role)).into())
        }),
        function("acldefault", &["char", "oid"], "_aclitem", |call| {
            let owner = call.int(1).and_then(|oid| call.view.role_name(oid));
            match default_acl(call.text(0), owner.unwrap_or_default()) {
                Some(acl) => Ok(acl.into()),
                None => Err(SqlError::new(
                    ErrorKind::Internal,
                    format!("unrecognized object type abbreviation: {}", call.text(0)),
                )),
            }
        }),
        function(
            "row_security_active",
            &["any"],
            "bool",
            |_| Ok(false.into()),
        ),
    ];
    // Functions, types and languages are everyone's; there are no servers.
    all.extend(
        [
            "has_function_privilege",
            "has_type_privilege",
            "has_language_privilege",
            "has_server_privilege",
            "has_foreign_data_wrapper_privilege",
            "has_tablespace_privilege",
            "has_parameter_privilege",
        ]
        .map(|name| function(name, &["any", "any", "text?"], "bool", |_| Ok(true.into()))),
    );
    all
}

/// The role asked about, the session's when it is not named, and the arguments after it.
/// `most` is the number of arguments without the role.
fn role_and_rest<'a>(call: &Call<'a>, most: usize) -> Result<(String, &'a [Cell]), SqlError> {
    if call.arguments.len() <= most {
        return Ok((call.view.role.clone(), call.arguments));
    }
    let named = match call.at(0).int() {
        Some(oid) => call.view.role_name(oid).unwrap_or_default().to_owned(),
        None => call.text(0).to_owned(),
    };
    if named != PUBLIC && !call.view.node.roles.contains_key(&named) {
        return Err(SqlError::new(
            ErrorKind::UndefinedObject,
            format!("role \"{named}\" does not exist"),
        ));
    }
    Ok((named, &call.arguments[1..]))
}

/// The privileges in a list such as `SELECT, UPDATE WITH GRANT OPTION`, and as they are written.
fn words(text: &str) -> impl Iterator<Item = (String, &str)> {
    let words = text.split(',').map(str::trim);
    words.map(|written| (written.to_ascii_uppercase(), written))
}

/// What may be granted on columns.
const OF_COLUMNS: [&str; 4] = ["SELECT", "INSERT", "UPDATE", "REFERENCES"];

fn check_words_of_columns(list: &Cell) -> Result<(), SqlError> {
    for (word, written) in words(list.str().unwrap_or_default()) {
        let privilege = word.strip_suffix(" WITH GRANT OPTION").unwrap_or(&word);
        if !OF_COLUMNS.contains(&privilege) {
            return Err(unknown(written));
        }
    }
    Ok(())
}

/// The columns of each table by which PostgreSQL knows its rows, the first with the number -1.
const OF_ROWS: [&str; 6] = ["ctid", "xmin", "cmin", "xmax", "cmax", "tableoid"];

/// `has_column_privilege`: NULL for a number that no column has.
fn column(call: &Call<'_>) -> Result<Cell, SqlError> {
    let (_, rest) = role_and_rest(call, 3)?;
    let oid = super::names::oid_of(call.view, Reg::Class, &rest[0])?;
    let is_there = match (call.view.class(oid), &rest[1]) {
        (None, _) => false,
        (Some(class), Cell::Text(name)) => {
            let is_known = names_of_columns(class).iter().any(|known| known == name)
                || has_columns_of_rows(class) && OF_ROWS.contains(&name.as_ref());
            if !is_known {
                let message = format!(
                    "column \"{name}\" of relation \"{}\" does not exist",
                    class.name
                );
                return Err(SqlError::new(ErrorKind::UndefinedColumn, message));
            }
            true
        }
        (Some(class), number) => number.int().is_some_and(|number| {
            let count = names_of_columns(class).len();
            let of_rows = match has_columns_of_rows(class) {
                true => OF_ROWS.len(),
                false => 0,
            };
            number != 0 && number >= -(of_rows as i64) && number <= count as i64
        }),
    };
    check_words_of_columns(&rest[2])?;
    match is_there {
        true => relation(call, 3),
        false => Ok(Cell::Null),
    }
}

fn has_columns_of_rows(class: &Class) -> bool {
    matches!(class.relkind(), "r" | "S")
}

/// In the order of their numbers, from 1 on.
fn names_of_columns(class: &Class) -> Vec<&str> {
    match &class.kind {
        ClassKind::System(relation) => relation.columns.iter().map(|column| column.name).collect(),
        ClassKind::Index(table, entry) => {
            let columns = &table.table.schema().columns;
            let positions = entry.index.columns.iter();
            positions.map(|at| columns[*at].name.as_str()).collect()
        }
        _ => {
            let columns = class.columns().iter();
            columns.map(|column| column.name.as_str()).collect()
        }
    }
}

fn unknown(word: &str) -> SqlError {
    SqlError::new(
        ErrorKind::InvalidParameterValue,
        format!("unrecognized privilege type: \"{word}\""),
    )
}

fn relation(call: &Call<'_>, arguments: usize) -> Result<Cell, SqlError> {
    let (role, rest) = role_and_rest(call, arguments)?;
    let oid = super::names::oid_of(call.view, Reg::Class, &rest[0])?;
    let Some(class) = call.view.class(oid) else {
        return Ok(Cell::Null);
    };
    let list = rest[arguments - 1].str().unwrap_or_default();
    for (word, written) in words(list) {
        if relation_word(call, &role, class, (&word, written))? {
            return Ok(true.into());
        }
    }
    Ok(false.into())
}

/// Whether a role has a privilege: the word for it, and as it is written.
fn relation_word(
    call: &Call<'_>,
    role: &str,
    class: &Class,
    (word, written): (&str, &str),
) -> Result<bool, SqlError> {
    let (word, grantable) = match word.strip_suffix(" WITH GRANT OPTION") {
        Some(word) => (word, true),
        None => (word, false),
    };
    let owns = call.view.is_superuser(role) || class.owner() == Some(role);
    if grantable {
        return Ok(owns);
    }
    match privileges_of(class).iter().find(|(.., name)| *name == word) {
        Some(&(privilege, ..)) => Ok(call.view.may(role, class, privilege)),
        None if matches!(word, "REFERENCES" | "TRIGGER" | "RULE" | "MAINTAIN") => Ok(owns),
        None => Err(unknown(written)),
    }
}

fn database(call: &Call<'_>) -> Result<Cell, SqlError> {
    let (role, rest) = role_and_rest(call, 2)?;
    let databases = &call.view.node.databases;
    let name = match &rest[0] {
        Cell::Text(name) if name.parse::<u32>().is_err() => name.to_string(),
        other => match databases
            .iter()
            .find(|(_, database)| Some(i64::from(database.oid)) == other.int())
        {
            Some((name, _)) => name.clone(),
            None => return Ok(Cell::Null),
        },
    };
    let Some(record) = databases.get(&name) else {
        return Err(SqlError::new(
            ErrorKind::InvalidCatalogName,
            format!("database \"{name}\" does not exist"),
        ));
    };
    let owns = call.view.is_superuser(&role) || record.owner == role;
    let mut allowed = false;
    for (word, written) in words(rest[1].str().unwrap_or_default()) {
        allowed |= match word.as_str() {
            "CONNECT" => owns || is_granted(&record.connect, &role),
            "CREATE" => owns || is_granted(&record.create, &role),
            // Nobody is kept from it.
            "TEMP" | "TEMPORARY" => true,
            _ if word.ends_with(" WITH GRANT OPTION") => owns,
            _ => return Err(unknown(written)),
        };
    }
    Ok(allowed.into())
}

fn schema(call: &Call<'_>) -> Result<Cell, SqlError> {
    let (role, rest) = role_and_rest(call, 2)?;
    let schemas = call.view.schemas();
    // The name is taken as it is: nothing in it is folded or quoted, as in PostgreSQL.
    let found = match (&rest[0], rest[0].int()) {
        (Cell::Text(name), None) => {
            let found = schemas
                .iter()
                .find(|(_, known, ..)| *known == name.as_ref());
            Some(found.ok_or_else(|| undefined_schema(name))?)
        }
        (_, oid) => schemas
            .iter()
            .find(|(number, ..)| Some(i64::from(*number)) == oid),
    };
    let Some(&(_, name, owner, _)) = found else {
        return Ok(Cell::Null);
    };
    let owns = call.view.is_superuser(&role) || owner == role;
    let mut allowed = false;
    for (word, written) in words(rest[1].str().unwrap_or_default()) {
        allowed |= match word.as_str() {
            "USAGE" => call
                .view
                .may_with_schema(&role, name, SchemaPrivilege::Usage)
                .unwrap_or(false),
            "CREATE" => call
                .view
                .may_with_schema(&role, name, SchemaPrivilege::Create)
                .unwrap_or(false),
            _ if word.ends_with(" WITH GRANT OPTION") => owns,
            _ => return Err(unknown(written)),
        };
    }
    Ok(allowed.into())
}
