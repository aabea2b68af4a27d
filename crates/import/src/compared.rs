//! Whether a table that the source describes is the target's table, before its first change is made.

use crate::{
    differences::{Differences, Expected, TargetTable, compare as compare_columns},
    error::ImportError,
    following::Following,
    pgoutput::Relation,
    sql,
    statements::Table,
    types::ColumnType,
};

/// What is done with a table's changes.
pub(crate) enum Compared {
    /// They are made.
    Alike(Table),
    /// The table was not asked for, though the publication has it.
    Ignored,
}

/// Compares a table with the target's.
///
/// # Errors
/// [`ImportError::Difference`] if they are not alike.
pub(crate) async fn compare(
    following: &Following<'_>,
    relation: &Relation,
) -> Result<Compared, ImportError> {
    let label = format!("{}.{}", relation.schema, relation.name);
    let Some(recorded) = following
        .tables
        .iter()
        .find(|table| table.oid == relation.oid)
    else {
        if !following
            .filter
            .wants_name(&relation.schema, &relation.name)
        {
            return Ok(Compared::Ignored);
        }
        return Err(ImportError::Difference {
            table: label,
            differences: vec![
                "it is published, and came after the import began, so its rows were not copied: \
                 take it out of the publication or leave it out, or drop the import and begin again"
                    .to_owned(),
            ],
            statements: Vec::new(),
        });
    };
    let there = TargetTable::read(following.target, &relation.schema, &relation.name).await?;
    let Some(there) = there else {
        return Err(moved(label, relation, &recorded.schema, &recorded.name));
    };
    let as_text = following.record.as_text;
    let columns: Vec<Expected> = relation
        .columns
        .iter()
        .map(|column| Expected {
            name: column.name.clone(),
            kind: ColumnType::from_source(column.type_oid, column.typmod, as_text),
        })
        .collect();
    let mut differences = compare_columns(
        &sql::qualified(&relation.schema, &relation.name),
        &columns,
        &there.columns,
    );
    if differences.texts.is_empty() {
        return Ok(Compared::Alike(Table::new(relation, &there, as_text)));
    }
    say_more(following, relation, &mut differences).await?;
    Err(ImportError::Difference {
        table: label,
        differences: differences.texts,
        statements: differences.statements,
    })
}

/// The target has no table of this name.
fn moved(label: String, relation: &Relation, schema: &str, name: &str) -> ImportError {
    let mut statements = Vec::new();
    let mut sql = sql::qualified(schema, name);
    if schema != relation.schema {
        statements.push(format!(
            "CREATE SCHEMA IF NOT EXISTS {}",
            sql::identifier(&relation.schema)
        ));
        statements.push(format!(
            "ALTER TABLE {sql} SET SCHEMA {}",
            sql::identifier(&relation.schema)
        ));
        sql = sql::qualified(&relation.schema, name);
    }
    if name != relation.name {
        statements.push(format!(
            "ALTER TABLE {sql} RENAME TO {}",
            sql::identifier(&relation.name)
        ));
    }
    let difference = if statements.is_empty() {
        "the target has no such table any more".to_owned()
    } else {
        format!("it was named {schema}.{name}")
    };
    ImportError::Difference {
        table: label,
        differences: vec![difference],
        statements,
    }
}

/// What the source's catalogue has of new columns: the value that rows have which were there before, and the default.
async fn say_more(
    following: &Following<'_>,
    relation: &Relation,
    differences: &mut Differences,
) -> Result<(), ImportError> {
    let table = sql::qualified(&relation.schema, &relation.name);
    for name in std::mem::take(&mut differences.added) {
        let row = following
            .source
            .query_opt(
                "SELECT a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.atthasmissing,
                        (a.attmissingval::text::text[])[1], a.attidentity <> ''
                 FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
                 WHERE a.attrelid = $1 AND a.attname = $2::text AND NOT a.attisdropped",
                &[&relation.oid, &name],
            )
            .await
            .map_err(ImportError::source("reading a new column"))?;
        // It was renamed or dropped since.
        let Some(row) = row else { continue };
        let (not_null, default, filled): (bool, Option<String>, bool) =
            (row.get(0), row.get(1), row.get(2));
        let column = sql::identifier(&name);
        if let Some(value) = row.get::<_, Option<String>>(3).filter(|_| filled) {
            let add = format!("ALTER TABLE {table} ADD COLUMN {column} ");
            if let Some(statement) = differences
                .statements
                .iter_mut()
                .find(|text| text.starts_with(&add))
            {
                statement.push_str(&format!(" DEFAULT {}", sql::literal(&value)));
                statement.push_str(if not_null { " NOT NULL" } else { "" });
            }
            let after = default.map_or("DROP DEFAULT".to_owned(), |default| {
                format!("SET DEFAULT {default}")
            });
            differences
                .statements
                .push(format!("ALTER TABLE {table} ALTER COLUMN {column} {after}"));
            continue;
        }
        if default.is_some() || row.get(4) {
            differences.texts.push(format!(
                "column {name} gives each new row a value of its own: if rows were there when it was added, their \
                 values are in no log, so drop the import and begin again"
            ));
        }
        if let Some(default) = default {
            differences.statements.push(format!(
                "ALTER TABLE {table} ALTER COLUMN {column} SET DEFAULT {default}"
            ));
        }
        if not_null {
            differences.texts.push(format!(
                "column {name} is NOT NULL, which can be added once its rows have values"
            ));
        }
    }
    Ok(())
}
