//! The tables of the target: made as the source has them, but for foreign keys, which wait for the end.
//!
//! While changes are followed the source is who enforces foreign keys; at the target their actions would do a second
//! time what the changes do, and their checks come between changes of one statement.

use crate::{
    Event, Progress,
    catalog::{Column, Constraint, Sequence, Table},
    connect::Connection,
    differences::{Expected, TargetTable, compare},
    error::{Complaint, ImportError},
    plan::{Plan, complaint},
    record::RecordedTable,
    sql,
    types::ColumnType,
};

/// What the columns of a table are to be at the target.
pub(crate) fn expected(table: &Table, as_text: bool) -> Vec<Expected> {
    let expected = |column: &Column| Expected {
        name: column.name.clone(),
        kind: ColumnType::from_source(column.type_oid, column.typmod, as_text),
    };
    table.columns.iter().map(expected).collect()
}

/// Why the tables that are at the target already cannot take the rows; `ours` are those of an earlier run of this
/// import, which may have rows. Gives for each table of the plan whether the importer makes it.
///
/// # Errors
/// [`ImportError::Target`].
pub(crate) async fn check(
    target: &Connection,
    plan: &Plan,
    ours: &[RecordedTable],
    truncate: bool,
    as_text: bool,
) -> Result<(Vec<bool>, Vec<Complaint>), ImportError> {
    let (mut created, mut complaints) = (Vec::new(), Vec::new());
    for table in &plan.tables {
        let known = ours.iter().find(|our| our.oid == table.oid);
        let found = TargetTable::read(target, &table.schema, &table.name).await?;
        let Some(found) = found.filter(|_| !known.is_some_and(|known| known.created)) else {
            created.push(true);
            continue;
        };
        created.push(false);
        let subject = format!("{} at the target", table.label());
        let differences = compare(&table.sql(), &expected(table, as_text), &found.columns);
        if !differences.texts.is_empty() {
            let hint = differences.statements.join("; ");
            complaints.push(complaint(&subject, &differences.texts.join(", "), &hint));
        }
        if !found.foreign_keys.is_empty() {
            complaints.push(complaint(
                &subject,
                &format!(
                    "it is part of foreign keys: {}",
                    found.foreign_keys.join(", ")
                ),
                "drop them for the time of the import; the end of it adds those of the source",
            ));
        }
        if !truncate && known.is_none() && has_rows(target, table).await? {
            complaints.push(complaint(
                &subject,
                "it has rows",
                "empty it, or have the import do so (--truncate)",
            ));
        }
    }
    Ok((created, complaints))
}

async fn has_rows(target: &Connection, table: &Table) -> Result<bool, ImportError> {
    let query = format!("SELECT 1 FROM {} LIMIT 1", table.sql());
    let row = target
        .query_opt(&query, &[])
        .await
        .map_err(ImportError::target(format!("reading {}", table.label())))?;
    Ok(row.is_some())
}

/// Makes schemas, sequences and tables, the latter empty. `created` says which tables are the importer's to make.
///
/// # Errors
/// [`ImportError::Target`].
pub(crate) async fn make(
    target: &Connection,
    plan: &Plan,
    created: &[bool],
    as_text: bool,
    progress: &mut dyn Progress,
) -> Result<(), ImportError> {
    // Those of a copy that was interrupted, before sequences are looked for: each takes its own along.
    for (table, _) in plan
        .tables
        .iter()
        .zip(created)
        .filter(|(_, created)| **created)
    {
        execute(target, &format!("DROP TABLE IF EXISTS {}", table.sql())).await?;
    }
    let schemas = plan.tables.iter().map(|table| &table.schema);
    for schema in schemas.chain(plan.sequences.iter().map(|sequence| &sequence.schema)) {
        if schema != "public" {
            execute(
                target,
                &format!("CREATE SCHEMA IF NOT EXISTS {}", sql::identifier(schema)),
            )
            .await?;
        }
    }
    for sequence in plan
        .sequences
        .iter()
        .filter(|sequence| !sequence.of_identity)
    {
        execute(target, &create_sequence(sequence)).await?;
    }
    for (table, &created) in plan.tables.iter().zip(created) {
        if !created {
            execute(target, &format!("TRUNCATE {}", table.sql())).await?;
            continue;
        }
        execute(target, &create_table(table, plan, as_text)).await?;
        for column in &table.columns {
            let Some(default) = &column.default else {
                continue;
            };
            let (table_sql, name) = (table.sql(), sql::identifier(&column.name));
            let statement =
                format!("ALTER TABLE {table_sql} ALTER COLUMN {name} SET DEFAULT {default}");
            let label = format!("the default of {}.{}", table.label(), column.name);
            attempt(target, &statement, &label, progress).await?;
        }
    }
    for sequence in plan
        .sequences
        .iter()
        .filter(|sequence| !sequence.of_identity)
    {
        let Some((table, column)) = owner(plan, sequence) else {
            continue;
        };
        let column = sql::identifier(column);
        let statement = format!(
            "ALTER SEQUENCE {} OWNED BY {}.{column}",
            sequence.sql(),
            table.sql()
        );
        attempt(
            target,
            &statement,
            &format!("the owner of {}", sequence.sql()),
            progress,
        )
        .await?;
    }
    Ok(())
}

/// Adds what is quicker once the rows are there: unique and check constraints, and indexes. What the target does not
/// support is told, and left out: the source enforces it while it is followed.
///
/// # Errors
/// [`ImportError::Target`] if the connection fails.
pub(crate) async fn complete(
    target: &Connection,
    plan: &Plan,
    created: &[bool],
    progress: &mut dyn Progress,
) -> Result<(), ImportError> {
    for (table, _) in plan
        .tables
        .iter()
        .zip(created)
        .filter(|(_, created)| **created)
    {
        let label = table.label();
        for constraint in &table.constraints {
            if constraint.kind == "p" || constraint.kind == "f" {
                continue;
            }
            attempt(
                target,
                &add(table, constraint),
                &format!("{} of {label}", constraint.name),
                progress,
            )
            .await?;
        }
        for index in &table.indexes {
            let kind = if index.unique {
                "unique index"
            } else {
                "index"
            };
            attempt(
                target,
                &index.statement,
                &format!("{kind} {} of {label}", index.name),
                progress,
            )
            .await?;
        }
    }
    Ok(())
}

/// Adds what waits until the target is its own master: foreign keys, and identities that take no values of others.
///
/// # Errors
/// [`ImportError::Target`] if the connection fails.
pub(crate) async fn finish(
    target: &Connection,
    plan: &Plan,
    progress: &mut dyn Progress,
) -> Result<(), ImportError> {
    for table in &plan.tables {
        let label = table.label();
        for column in table.columns.iter().filter(|column| column.identity == "a") {
            let name = sql::identifier(&column.name);
            let statement = format!(
                "ALTER TABLE {} ALTER COLUMN {name} SET GENERATED ALWAYS",
                table.sql()
            );
            attempt(
                target,
                &statement,
                &format!("the identity {label}.{}", column.name),
                progress,
            )
            .await?;
        }
        for constraint in table
            .constraints
            .iter()
            .filter(|constraint| constraint.kind == "f")
        {
            let what = format!("foreign key {} of {label}", constraint.name);
            if !plan
                .tables
                .iter()
                .any(|other| other.oid == constraint.refers_to)
            {
                progress.tell(&Event::Note(format!(
                    "{what} is left out: it refers to a table that is not imported"
                )));
                continue;
            }
            // An end that was interrupted has added some of them.
            let there = TargetTable::read(target, &table.schema, &table.name)
                .await?
                .unwrap_or_default();
            if !there.foreign_keys.contains(&constraint.name) {
                attempt(target, &add(table, constraint), &what, progress).await?;
            }
        }
    }
    Ok(())
}

/// Sets the target's sequences to where the source's are.
///
/// # Errors
/// [`ImportError::Source`] and [`ImportError::Target`].
pub(crate) async fn set_sequences(
    source: &Connection,
    target: &Connection,
    plan: &Plan,
) -> Result<(), ImportError> {
    for sequence in &plan.sequences {
        let (value, called) = crate::catalog::position(source, sequence).await?;
        let what = || ImportError::target(format!("setting {}", sequence.sql()));
        let name = if sequence.of_identity {
            let Some((table, column)) = owner(plan, sequence) else {
                continue;
            };
            let row = target
                .query_one(
                    "SELECT pg_get_serial_sequence($1, $2)::text",
                    &[&table.sql(), &column],
                )
                .await
                .map_err(what())?;
            // A table that was there before may have a plain column.
            let Some(name) = row.get::<_, Option<String>>(0) else {
                continue;
            };
            name
        } else {
            sequence.sql()
        };
        let statement = format!("SELECT setval({}, {value}, {called})", sql::literal(&name));
        target.batch_execute(&statement).await.map_err(what())?;
    }
    Ok(())
}

fn owner<'a>(plan: &'a Plan, sequence: &'a Sequence) -> Option<(&'a Table, &'a str)> {
    let (oid, column) = sequence.owner.as_ref()?;
    let table = plan.tables.iter().find(|table| table.oid == *oid)?;
    Some((table, column))
}

fn create_sequence(sequence: &Sequence) -> String {
    let (name, options) = (sequence.sql(), &sequence.options);
    format!(
        "CREATE SEQUENCE IF NOT EXISTS {name} AS {} {options}",
        sequence.type_name
    )
}

fn create_table(table: &Table, plan: &Plan, as_text: bool) -> String {
    let mut parts: Vec<String> = Vec::new();
    for column in &table.columns {
        let kind = ColumnType::from_source(column.type_oid, column.typmod, as_text)
            .map_or_else(|| column.type_name.clone(), |kind| kind.sql());
        let mut part = format!("{} {kind}", sql::identifier(&column.name));
        if !column.identity.is_empty() {
            let of_it = |sequence: &&Sequence| {
                sequence.of_identity && sequence.owner == Some((table.oid, column.name.clone()))
            };
            let options = plan
                .sequences
                .iter()
                .find(of_it)
                .map_or("", |sequence| &sequence.options);
            // By default, for the rows come with their values; the end of the import makes it ALWAYS.
            part.push_str(&format!(" GENERATED BY DEFAULT AS IDENTITY ({options})"));
        }
        if column.not_null {
            part.push_str(" NOT NULL");
        }
        parts.push(part);
    }
    if let Some(key) = table
        .constraints
        .iter()
        .find(|constraint| constraint.kind == "p")
    {
        parts.push(format!(
            "CONSTRAINT {} {}",
            sql::identifier(&key.name),
            key.definition
        ));
    }
    format!("CREATE TABLE {} ({})", table.sql(), parts.join(", "))
}

fn add(table: &Table, constraint: &Constraint) -> String {
    let (table, name) = (table.sql(), sql::identifier(&constraint.name));
    format!(
        "ALTER TABLE {table} ADD CONSTRAINT {name} {}",
        constraint.definition
    )
}

async fn execute(target: &Connection, statement: &str) -> Result<(), ImportError> {
    target
        .batch_execute(statement)
        .await
        .map_err(ImportError::target(statement))
}

/// Runs what can be left out; a refusal is told.
async fn attempt(
    target: &Connection,
    statement: &str,
    what: &str,
    progress: &mut dyn Progress,
) -> Result<(), ImportError> {
    let Err(error) = target.batch_execute(statement).await else {
        return Ok(());
    };
    let message = error
        .as_db_error()
        .map(|refusal| refusal.message().to_owned());
    let error = ImportError::target(statement)(error);
    match message {
        Some(message) if !error.is_transient() => {
            progress.tell(&Event::Note(format!(
                "{what} is left out: {message}; it was: {statement}"
            )));
            Ok(())
        }
        _ => Err(error),
    }
}
