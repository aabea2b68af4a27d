//! How a table of the target differs from the source's, and the statements that make it the same.

use tokio_postgres::types::Oid;

use crate::{
    connect::Connection,
    error::ImportError,
    sql,
    types::{ColumnType, type_sql},
};

/// A column as the source has it.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) name: String,
    /// `None` is a type that the target has not.
    pub(crate) kind: Option<ColumnType>,
}

/// A table of the target.
#[derive(Clone, Debug, Default)]
pub(crate) struct TargetTable {
    pub(crate) columns: Vec<TargetColumn>,
    /// The columns of its primary key.
    pub(crate) primary_key: Vec<String>,
    /// The foreign keys of it and to it.
    pub(crate) foreign_keys: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct TargetColumn {
    pub(crate) name: String,
    pub(crate) type_oid: Oid,
    pub(crate) typmod: i32,
}

impl TargetTable {
    /// The table of this name at the target, if there is one.
    ///
    /// # Errors
    /// [`ImportError::Target`].
    pub(crate) async fn read(
        target: &Connection,
        schema: &str,
        name: &str,
    ) -> Result<Option<TargetTable>, ImportError> {
        let failed = || ImportError::target("reading its tables");
        let found = target
            .query_opt(
                "SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                 WHERE n.nspname = $1::text AND c.relname = $2::text AND c.relkind IN ('r', 'p')",
                &[&schema, &name],
            )
            .await
            .map_err(failed())?;
        let Some(found) = found else {
            return Ok(None);
        };
        let oid: Oid = found.get(0);
        let columns = target
            .query(
                "SELECT attname::text, atttypid, atttypmod FROM pg_catalog.pg_attribute
                 WHERE attrelid = $1::oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
                &[&oid],
            )
            .await
            .map_err(failed())?;
        let key = target
            .query(
                "SELECT a.attname::text FROM pg_catalog.pg_constraint k
                 JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey)
                 WHERE k.conrelid = $1::oid AND k.contype = 'p'",
                &[&oid],
            )
            .await
            .map_err(failed())?;
        let foreign = target
            .query(
                "SELECT conname::text FROM pg_catalog.pg_constraint
                 WHERE (conrelid = $1::oid OR confrelid = $1::oid) AND contype = 'f' ORDER BY 1",
                &[&oid],
            )
            .await
            .map_err(failed())?;
        Ok(Some(TargetTable {
            columns: columns
                .iter()
                .map(|row| TargetColumn {
                    name: row.get(0),
                    type_oid: row.get(1),
                    typmod: row.get(2),
                })
                .collect(),
            primary_key: key.iter().map(|row| row.get(0)).collect(),
            foreign_keys: foreign.iter().map(|row| row.get(0)).collect(),
        }))
    }
}

/// What differs, and what makes it the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Differences {
    pub(crate) texts: Vec<String>,
    pub(crate) statements: Vec<String>,
    /// The columns that the target has not, for which the source's catalogue has more to say.
    pub(crate) added: Vec<String>,
}

/// Compares columns by name; their order does not matter.
pub(crate) fn compare(
    table_sql: &str,
    source: &[Expected],
    target: &[TargetColumn],
) -> Differences {
    let mut differences = Differences::default();
    let mut missing: Vec<&Expected> = Vec::new();
    for column in source {
        let Some(there) = target.iter().find(|there| there.name == column.name) else {
            missing.push(column);
            continue;
        };
        differences.compare_types(table_sql, column, there);
    }
    let mut surplus: Vec<&TargetColumn> = target
        .iter()
        .filter(|there| !source.iter().any(|column| column.name == there.name))
        .collect();
    // A new name at the same place, with the same type, is a column renamed.
    missing.retain(|column| {
        let place = source.iter().position(|each| each.name == column.name);
        let at = surplus.iter().position(|there| {
            let same_place = target.iter().position(|each| each.name == there.name) == place;
            let fits = column
                .kind
                .as_ref()
                .is_some_and(|kind| kind.fits(there.type_oid, there.typmod));
            same_place && fits && source.len() == target.len()
        });
        let Some(at) = at else {
            return true;
        };
        differences.rename(table_sql, &surplus.remove(at).name, &column.name);
        false
    });
    for there in surplus {
        differences
            .texts
            .push(format!("column {} is gone", there.name));
        differences.statements.push(format!(
            "ALTER TABLE {table_sql} DROP COLUMN {}",
            sql::identifier(&there.name)
        ));
    }
    for column in missing {
        differences.add(table_sql, column);
    }
    differences
}

impl Differences {
    fn compare_types(&mut self, table_sql: &str, column: &Expected, there: &TargetColumn) {
        match &column.kind {
            Some(kind) if kind.fits(there.type_oid, there.typmod) => {}
            Some(kind) => {
                let was = type_sql(there.type_oid, there.typmod);
                self.texts.push(format!(
                    "column {} is {} and not {was} (with USING, if the source was altered so)",
                    column.name,
                    kind.sql()
                ));
                self.statements.push(format!(
                    "ALTER TABLE {table_sql} ALTER COLUMN {} TYPE {}",
                    sql::identifier(&column.name),
                    kind.sql()
                ));
            }
            None => self.texts.push(format!(
                "column {} has a type that is not supported",
                column.name
            )),
        }
    }

    fn rename(&mut self, table_sql: &str, old: &str, new: &str) {
        self.texts.push(format!("column {old} is named {new}"));
        self.statements.push(format!(
            "ALTER TABLE {table_sql} RENAME COLUMN {} TO {}",
            sql::identifier(old),
            sql::identifier(new)
        ));
    }

    fn add(&mut self, table_sql: &str, column: &Expected) {
        let Some(kind) = &column.kind else {
            self.texts.push(format!(
                "column {} is new, and has a type that is not supported",
                column.name
            ));
            return;
        };
        self.texts.push(format!("column {} is new", column.name));
        self.added.push(column.name.clone());
        self.statements.push(format!(
            "ALTER TABLE {table_sql} ADD COLUMN {} {}",
            sql::identifier(&column.name),
            kind.sql()
        ));
    }
}

#[cfg(test)]
mod tests {
    use tokio_postgres::types::Type;

    use super::*;

    fn source(columns: &[(&str, Type)]) -> Vec<Expected> {
        let expected = |(name, kind): &(&str, Type)| Expected {
            name: (*name).to_owned(),
            kind: ColumnType::from_source(kind.oid(), -1, false),
        };
        columns.iter().map(expected).collect()
    }

    fn target(columns: &[(&str, Type)]) -> Vec<TargetColumn> {
        let column = |(name, kind): &(&str, Type)| TargetColumn {
            name: (*name).to_owned(),
            type_oid: kind.oid(),
            typmod: -1,
        };
        columns.iter().map(column).collect()
    }

    fn statements(at_source: &[(&str, Type)], at_target: &[(&str, Type)]) -> Vec<String> {
        compare("t", &source(at_source), &target(at_target)).statements
    }

    #[test]
    fn columns_in_another_order_do_not_differ() {
        let differences = compare(
            "t",
            &source(&[("a", Type::INT4), ("b", Type::TEXT)]),
            &target(&[("b", Type::TEXT), ("a", Type::INT4)]),
        );
        assert_eq!(differences, Differences::default());
    }

    #[test]
    fn each_difference_has_its_statement() {
        let base = [("a", Type::INT4), ("b", Type::TEXT)];
        assert_eq!(
            statements(&[("a", Type::INT4)], &base),
            [r#"ALTER TABLE t DROP COLUMN "b""#]
        );
        assert_eq!(
            statements(
                &[("a", Type::INT4), ("b", Type::TEXT), ("c", Type::DATE)],
                &base
            ),
            [r#"ALTER TABLE t ADD COLUMN "c" date"#]
        );
        assert_eq!(
            statements(&[("a", Type::INT8), ("b", Type::TEXT)], &base),
            [r#"ALTER TABLE t ALTER COLUMN "a" TYPE bigint"#]
        );
        assert_eq!(
            statements(&[("a", Type::INT4), ("c", Type::TEXT)], &base),
            [r#"ALTER TABLE t RENAME COLUMN "b" TO "c""#]
        );
        assert_eq!(
            statements(&[("a", Type::INT4), ("c", Type::DATE)], &base),
            [
                r#"ALTER TABLE t DROP COLUMN "b""#,
                r#"ALTER TABLE t ADD COLUMN "c" date"#
            ]
        );
    }

    #[test]
    fn a_type_that_is_not_had_is_told_without_a_statement() {
        let differences = compare(
            "t",
            &source(&[("a", Type::INT4), ("j", Type::JSONB)]),
            &target(&[("a", Type::INT4)]),
        );
        assert_eq!(
            differences.texts,
            ["column j is new, and has a type that is not supported"]
        );
        assert!(differences.statements.is_empty());
    }
}
