//! The parts of the catalogue that are the same in every database, as text files: columns of
//! system relations, types, operators, casts. Taken from PostgreSQL 15, reduced to the types that
//! Aerostat has.

use std::{collections::HashMap, sync::OnceLock};

/// The functions that `pg_type` refers to.
pub(crate) const PG_PROC: &str = include_str!("data/pg_proc.tsv");
/// `pg_type`.
pub(crate) const PG_TYPE: &str = include_str!("data/pg_type.tsv");
/// `pg_cast`.
pub(crate) const PG_CAST: &str = include_str!("data/pg_cast.tsv");
/// `pg_collation`.
pub(crate) const PG_COLLATION: &str = include_str!("data/pg_collation.tsv");
/// `pg_opclass`.
pub(crate) const PG_OPCLASS: &str = include_str!("data/pg_opclass.tsv");
/// `pg_opfamily`.
pub(crate) const PG_OPFAMILY: &str = include_str!("data/pg_opfamily.tsv");
/// `pg_operator`.
pub(crate) const PG_OPERATOR: &str = include_str!("data/pg_operator.tsv");

/// The kind of a relation that only rewritten queries read; `pg_class` does not show it.
pub(crate) const HIDDEN: char = 'h';

const RELATIONS: &str = include_str!("data/relations.txt");
const AEROSTAT_RELATIONS: &str = include_str!("data/aerostat.txt");

/// Tab-separated rows below a line of column names; `\N` is NULL.
pub(crate) struct Table {
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<Option<&'static str>>>,
}

impl Table {
    /// Reads one of the texts above.
    pub(crate) fn read(text: &'static str) -> Self {
        let mut lines = text.lines();
        let columns = lines.next().unwrap_or_default().split('\t').collect();
        let rows = lines
            .map(|line| {
                line.split('\t')
                    .map(|value| (value != "\\N").then_some(value))
                    .collect()
            })
            .collect();
        Self { columns, rows }
    }

    /// The value of a named column in a row.
    pub(crate) fn value(&self, row: &[Option<&'static str>], column: &str) -> Option<&'static str> {
        let at = self.columns.iter().position(|name| *name == column)?;
        row.get(at).copied().flatten()
    }
}

/// How values of a type lie in a row, in PostgreSQL's letters.
#[derive(Clone, Copy)]
pub(crate) struct Physical {
    pub(crate) by_value: bool,
    pub(crate) align: &'static str,
    pub(crate) storage: &'static str,
}

/// How values of the type with this number lie in a row.
pub(crate) fn physical_of_type(oid: u32) -> Physical {
    static ALL: OnceLock<HashMap<u32, Physical>> = OnceLock::new();
    ALL.get_or_init(|| {
        let table = Table::read(PG_TYPE);
        table
            .rows
            .iter()
            .filter_map(|row| {
                let physical = Physical {
                    by_value: table.value(row, "typbyval")? == "t",
                    align: table.value(row, "typalign")?,
                    storage: table.value(row, "typstorage")?,
                };
                Some((table.value(row, "oid")?.parse().ok()?, physical))
            })
            .collect()
    })
    .get(&oid)
    .copied()
    .unwrap_or(Physical {
        by_value: false,
        align: "i",
        storage: "x",
    })
}

/// The default btree operator class of the type with this number, 0 for none.
pub(crate) fn operator_class_of_type(oid: u32) -> u32 {
    let table = Table::read(PG_OPCLASS);
    // varchar has none of its own and uses text's.
    let input = if oid == 1043 { 25 } else { oid }.to_string();
    table
        .rows
        .iter()
        .find(|row| {
            table.value(row, "opcintype") == Some(input.as_str())
                && table.value(row, "opcdefault") == Some("t")
        })
        .and_then(|row| table.value(row, "oid")?.parse().ok())
        .unwrap_or(0)
}

/// A system relation.
#[derive(Debug)]
pub(crate) struct SystemRelation {
    pub(crate) oid: u32,
    /// `r` or `v`, as `pg_class.relkind`, or [`HIDDEN`].
    pub(crate) kind: char,
    pub(crate) schema: &'static str,
    pub(crate) name: &'static str,
    pub(crate) columns: Vec<SystemColumn>,
}

/// A column of a system relation.
#[derive(Debug)]
pub(crate) struct SystemColumn {
    pub(crate) name: &'static str,
    /// Its type's `typname`.
    pub(crate) typname: &'static str,
    pub(crate) nullable: bool,
}

impl SystemRelation {
    /// The column's type name, if there.
    pub(crate) fn typname(&self, column: &str) -> Option<&'static str> {
        self.columns
            .iter()
            .find(|candidate| candidate.name == column)
            .map(|found| found.typname)
    }
}

/// All system relations.
pub(crate) fn relations() -> &'static [SystemRelation] {
    static ALL: OnceLock<Vec<SystemRelation>> = OnceLock::new();
    ALL.get_or_init(|| {
        RELATIONS
            .lines()
            .chain(AEROSTAT_RELATIONS.lines())
            .filter_map(parse)
            .collect()
    })
}

/// The system relation with this name.
pub(crate) fn relation(schema: &str, name: &str) -> Option<&'static SystemRelation> {
    static BY_NAME: OnceLock<HashMap<(&'static str, &'static str), &'static SystemRelation>> =
        OnceLock::new();
    BY_NAME
        .get_or_init(|| {
            relations()
                .iter()
                .map(|relation| ((relation.schema, relation.name), relation))
                .collect()
        })
        .get(&(schema, name))
        .copied()
}

fn parse(line: &'static str) -> Option<SystemRelation> {
    if line.starts_with('#') {
        return None;
    }
    let mut words = line.split(' ');
    let oid = words.next()?.parse().ok()?;
    let kind = words.next()?.chars().next()?;
    let (schema, name) = words.next()?.split_once('.')?;
    let mut columns = Vec::new();
    while let (Some(column), Some(typname)) = (words.next(), words.next()) {
        let bare = typname.strip_suffix('!');
        columns.push(SystemColumn {
            name: column,
            typname: bare.unwrap_or(typname),
            nullable: bare.is_none(),
        });
    }
    Some(SystemRelation {
        oid,
        kind,
        schema,
        name,
        columns,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};

    use aerostat_catalog::ddl::OPERATOR_CLASSES;

    use super::*;

    #[test]
    fn every_line_is_a_relation_with_its_own_number() {
        let lines = RELATIONS
            .lines()
            .chain(AEROSTAT_RELATIONS.lines())
            .filter(|line| !line.starts_with('#'))
            .count();
        assert_eq!(relations().len(), lines);
        assert_eq!(
            relations()
                .iter()
                .map(|relation| relation.oid)
                .collect::<HashSet<_>>()
                .len(),
            lines
        );
        assert!(
            relations()
                .iter()
                .all(|relation| !relation.columns.is_empty())
        );
        assert_eq!(
            relation("pg_catalog", "pg_class")
                .unwrap()
                .typname("relname"),
            Some("name")
        );
    }

    #[test]
    fn indexes_know_the_operator_classes() {
        let table = Table::read(PG_OPCLASS);
        let class = |row: &Vec<Option<&'static str>>| {
            let input = table.value(row, "opcintype").unwrap().parse().unwrap();
            (table.value(row, "opcname").unwrap(), input)
        };
        let of_catalogue: BTreeSet<(&str, u32)> = table.rows.iter().map(class).collect();
        assert_eq!(of_catalogue, OPERATOR_CLASSES.into());
    }
}
