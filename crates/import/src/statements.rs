//! A table of the target that is alike, and the statements that change it.

use std::collections::HashMap;

use bytes::{BufMut, Bytes, BytesMut};
use tokio_postgres::{
    Statement,
    types::{Format, IsNull, ToSql, Type},
};

use crate::{
    differences::TargetTable,
    error::ImportError,
    pgoutput::{Identity, Relation, Value},
    sql,
    types::{ColumnType, scale_of},
};

/// A value that goes as its text, whatever its type.
#[derive(Debug)]
pub(crate) struct Param(pub(crate) Option<Bytes>);

impl ToSql for Param {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match &self.0 {
            Some(text) => {
                out.put_slice(text);
                Ok(IsNull::No)
            }
            None => Ok(IsNull::Yes),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    tokio_postgres::types::to_sql_checked!();
}

/// The form of a statement; columns by their places.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Shape {
    /// So many new rows.
    Insert(usize),
    /// New values for these columns, by the key.
    Update(Vec<usize>),
    /// By the key.
    Delete,
    /// All rows with these values.
    DeleteAlike,
}

/// A table that is alike on both sides.
pub(crate) struct Table {
    /// Its name for people.
    pub(crate) label: String,
    /// Its name in a statement.
    pub(crate) sql: String,
    columns: Vec<Column>,
    /// The places of the columns by which a row is found; empty if only whole rows are alike.
    pub(crate) key: Vec<usize>,
    pub(crate) prepared: HashMap<Shape, Statement>,
}

struct Column {
    name: String,
    kind: Type,
    /// Digits after the point that the target's column has, where the source may have more.
    scale: Option<u32>,
}

impl Table {
    /// The table, as the source describes it and the target has it: they were compared.
    pub(crate) fn new(relation: &Relation, there: &TargetTable, as_text: bool) -> Table {
        let columns: Vec<Column> = relation
            .columns
            .iter()
            .map(|column| {
                let kind = ColumnType::from_source(column.type_oid, column.typmod, as_text);
                let at = there.columns.iter().find(|at| at.name == column.name);
                Column {
                    name: column.name.clone(),
                    scale: kind
                        .as_ref()
                        .zip(at)
                        .and_then(|(kind, at)| kind.scale_to_check(at.typmod)),
                    kind: kind.map_or(Type::TEXT, |kind| kind.base),
                }
            })
            .collect();
        let places =
            |wanted: &dyn Fn(usize) -> bool| (0..columns.len()).filter(|&at| wanted(at)).collect();
        let key = match relation.identity {
            Identity::Full => places(&|at| there.primary_key.contains(&columns[at].name)),
            Identity::Nothing => Vec::new(),
            Identity::PrimaryKey | Identity::Index => places(&|at| relation.columns[at].key),
        };
        Table {
            label: format!("{}.{}", relation.schema, relation.name),
            sql: sql::qualified(&relation.schema, &relation.name),
            columns,
            key,
            prepared: HashMap::new(),
        }
    }

    /// Whether a row has the columns of the table, and values that the target keeps whole.
    pub(crate) fn check_row(&self, row: &[Value], unchanged: bool) -> Result<(), ImportError> {
        if row.len() != self.columns.len() {
            let (has, columns) = (row.len(), self.columns.len());
            return Err(ImportError::Protocol(format!(
                "a row of {} with {has} of {columns} columns",
                self.label
            )));
        }
        for (value, column) in row.iter().zip(&self.columns) {
            match value {
                Value::Unchanged if !unchanged => {
                    return Err(ImportError::Protocol(format!(
                        "no value for {}.{}",
                        self.label, column.name
                    )));
                }
                Value::Text(text) => {
                    if let Some(scale) = column
                        .scale
                        .filter(|&scale| scale_of(text) > scale as usize)
                    {
                        return Err(ImportError::Digits {
                            table: self.label.clone(),
                            column: column.name.clone(),
                            scale,
                            value: String::from_utf8_lossy(text).into_owned(),
                        });
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The values of the key within a row.
    pub(crate) fn key_of(&self, row: &[Value]) -> Result<Vec<Value>, ImportError> {
        let values: Vec<Value> = self.key.iter().map(|&at| row[at].clone()).collect();
        if values.iter().any(|value| !matches!(value, Value::Text(_))) {
            return Err(ImportError::Protocol(format!(
                "a row of {} without its key",
                self.label
            )));
        }
        Ok(values)
    }

    /// The columns that an UPDATE sets: those with a value, and of the key only if it changes.
    pub(crate) fn columns_to_set(&self, new: &[Value], key_changes: bool) -> Vec<usize> {
        let told = |at: &usize| new[*at] != Value::Unchanged;
        let set: Vec<usize> = (0..new.len())
            .filter(told)
            .filter(|at| key_changes || !self.key.contains(at))
            .collect();
        // A row of nothing but its key: the statement still has to find it.
        if set.is_empty() {
            self.key.iter().copied().filter(told).take(1).collect()
        } else {
            set
        }
    }

    /// The text of a statement, and the types of its parameters in order.
    pub(crate) fn statement(&self, shape: &Shape) -> (String, Vec<Type>) {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        match shape {
            Shape::Insert(rows) => {
                let names: Vec<_> = all.iter().map(|&at| self.name(at)).collect();
                let row = |row: usize| {
                    let numbers: Vec<_> = all
                        .iter()
                        .map(|at| format!("${}", row * all.len() + at + 1))
                        .collect();
                    format!("({})", numbers.join(", "))
                };
                let rows_sql: Vec<_> = (0..*rows).map(row).collect();
                let text = format!(
                    "INSERT INTO {} ({}) VALUES {}",
                    self.sql,
                    names.join(", "),
                    rows_sql.join(", ")
                );
                (text, (0..*rows).flat_map(|_| self.kinds(&all)).collect())
            }
            Shape::Update(set) => {
                let assignments = self.conditions(set, "=", 0).join(", ");
                let key = self.conditions(&self.key, "=", set.len()).join(" AND ");
                let kinds = self.kinds(set).chain(self.kinds(&self.key)).collect();
                (
                    format!("UPDATE {} SET {assignments} WHERE {key}", self.sql),
                    kinds,
                )
            }
            Shape::Delete => {
                let key = self.conditions(&self.key, "=", 0).join(" AND ");
                (
                    format!("DELETE FROM {} WHERE {key}", self.sql),
                    self.kinds(&self.key).collect(),
                )
            }
            Shape::DeleteAlike => {
                let alike = self
                    .conditions(&all, "IS NOT DISTINCT FROM", 0)
                    .join(" AND ");
                (
                    format!("DELETE FROM {} WHERE {alike}", self.sql),
                    self.kinds(&all).collect(),
                )
            }
        }
    }

    fn name(&self, at: usize) -> String {
        sql::identifier(&self.columns[at].name)
    }

    fn conditions(&self, places: &[usize], operator: &str, before: usize) -> Vec<String> {
        let one = |(number, &at): (usize, &usize)| {
            format!("{} {operator} ${}", self.name(at), before + number + 1)
        };
        places.iter().enumerate().map(one).collect()
    }

    fn kinds<'a>(&'a self, places: &'a [usize]) -> impl Iterator<Item = Type> + 'a {
        places.iter().map(|&at| self.columns[at].kind.clone())
    }

    /// The error for a row that is not there. `row` is its key, or all of it if the table has no key.
    pub(crate) fn missing(&self, row: &[Value], action: &'static str) -> ImportError {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let places = if self.key.is_empty() { &all } else { &self.key };
        let names: Vec<_> = places
            .iter()
            .map(|&at| self.columns[at].name.as_str())
            .collect();
        let values: Vec<_> = row.iter().map(text).collect();
        ImportError::Missing {
            table: self.label.clone(),
            key: format!("({})=({})", names.join(", "), values.join(", ")),
            action,
        }
    }

    /// The error for a change of a table whose rows have no identity, which the source refuses to publish.
    pub(crate) fn no_identity(&self) -> ImportError {
        ImportError::Protocol(format!(
            "a change of a row of {}, whose rows have no identity",
            self.label
        ))
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Unchanged => "…".to_owned(),
        Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pgoutput::RelationColumn;

    fn table(identity: Identity, keys: &[&str]) -> Table {
        let columns = [("id", Type::INT4), ("n", Type::NUMERIC), ("t", Type::TEXT)];
        let relation = Relation {
            oid: 1,
            schema: "s".to_owned(),
            name: "t".to_owned(),
            identity,
            columns: columns
                .iter()
                .map(|(name, kind)| RelationColumn {
                    key: keys.contains(name),
                    name: (*name).to_owned(),
                    type_oid: kind.oid(),
                    typmod: -1,
                })
                .collect(),
        };
        Table::new(&relation, &TargetTable::default(), false)
    }

    fn value(text: &'static str) -> Value {
        Value::Text(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn statements_number_their_parameters() {
        let table = table(Identity::PrimaryKey, &["id"]);
        let (text, types) = table.statement(&Shape::Insert(2));
        assert_eq!(
            text,
            r#"INSERT INTO "s"."t" ("id", "n", "t") VALUES ($1, $2, $3), ($4, $5, $6)"#
        );
        assert_eq!(types.len(), 6);
        let (text, types) = table.statement(&Shape::Update(vec![2]));
        assert_eq!(text, r#"UPDATE "s"."t" SET "t" = $1 WHERE "id" = $2"#);
        assert_eq!(types, [Type::TEXT, Type::INT4]);
        let (text, _) = table.statement(&Shape::Delete);
        assert_eq!(text, r#"DELETE FROM "s"."t" WHERE "id" = $1"#);
        let (text, _) = table.statement(&Shape::DeleteAlike);
        assert!(text.ends_with(r#""id" IS NOT DISTINCT FROM $1 AND "n" IS NOT DISTINCT FROM $2 AND "t" IS NOT DISTINCT FROM $3"#));
    }

    #[test]
    fn values_that_are_not_told_are_not_set() {
        let table = table(Identity::PrimaryKey, &["id"]);
        let row = [value("1"), value("2"), Value::Unchanged];
        assert_eq!(table.columns_to_set(&row, false), [1]);
        assert_eq!(table.columns_to_set(&row, true), [0, 1]);
        let only_key = [value("1"), Value::Unchanged, Value::Unchanged];
        assert_eq!(table.columns_to_set(&only_key, false), [0]);
    }

    #[test]
    fn rows_that_do_not_fit_are_errors() {
        let table = table(Identity::PrimaryKey, &["id"]);
        assert!(table.check_row(&[value("1")], false).is_err());
        let unchanged = [value("1"), value("2"), Value::Unchanged];
        assert!(table.check_row(&unchanged, false).is_err());
        assert!(table.check_row(&unchanged, true).is_ok());
        assert!(
            table
                .key_of(&[Value::Null, value("2"), Value::Null])
                .is_err()
        );
    }

    #[test]
    fn a_row_that_is_not_there_is_named() {
        let by_key = table(Identity::PrimaryKey, &["id"])
            .missing(&[value("7")], "changed")
            .to_string();
        assert!(
            by_key.starts_with("s.t has no row (id)=(7) at the target, which the source changed"),
            "{by_key}"
        );
        let whole = table(Identity::Full, &[])
            .missing(&[value("7"), Value::Null, value("x")], "deleted")
            .to_string();
        assert!(whole.contains("(id, n, t)=(7, NULL, x)"), "{whole}");
    }
}
