//! What the source has: tables, their columns, constraints and indexes, and sequences.
//!
//! Read with `search_path = pg_catalog`, so that PostgreSQL writes every name of a user with its schema.

use std::collections::HashMap;

use tokio_postgres::types::Oid;

use crate::{connect::Connection, error::ImportError, sql};

/// A table of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) oid: Oid,
    pub(crate) schema: String,
    pub(crate) name: String,
    /// Whether it has partitions, whose rows it gives as its own.
    pub(crate) partitioned: bool,
    pub(crate) unlogged: bool,
    /// `d`, `n`, `f`, `i`: PostgreSQL's letter for how its rows are recognised.
    pub(crate) identity: String,
    /// Whether it has a primary key by which rows can be recognised.
    pub(crate) primary_key: bool,
    pub(crate) columns: Vec<Column>,
    pub(crate) constraints: Vec<Constraint>,
    pub(crate) indexes: Vec<Index>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) type_oid: Oid,
    pub(crate) typmod: i32,
    /// The type as PostgreSQL writes it.
    pub(crate) type_name: String,
    pub(crate) not_null: bool,
    /// `a` (always), `d` (by default) or nothing.
    pub(crate) identity: String,
    pub(crate) generated: bool,
    /// The expression of its default.
    pub(crate) default: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Constraint {
    pub(crate) name: String,
    /// `p`, `u`, `c`, `f`, `x`.
    pub(crate) kind: String,
    /// What stands after its name in ALTER TABLE.
    pub(crate) definition: String,
    /// The table that a foreign key refers to, or 0.
    pub(crate) refers_to: Oid,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) name: String,
    pub(crate) unique: bool,
    /// The statement that makes it.
    pub(crate) statement: String,
}

/// A sequence of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub(crate) schema: String,
    pub(crate) name: String,
    pub(crate) type_name: String,
    /// START, INCREMENT and so on, as CREATE SEQUENCE takes them.
    pub(crate) options: String,
    /// The table and column it belongs to.
    pub(crate) owner: Option<(Oid, String)>,
    /// Whether it is that of an identity column, which makes its own at the target.
    pub(crate) of_identity: bool,
    /// Tables whose defaults take numbers of it.
    pub(crate) used_by: Vec<Oid>,
}

impl Table {
    /// The table's name as people write it, without quotes.
    pub(crate) fn label(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    /// The table's name in a statement.
    pub(crate) fn sql(&self) -> String {
        sql::qualified(&self.schema, &self.name)
    }

    /// The names of its columns in a statement.
    pub(crate) fn columns_sql(&self) -> String {
        let names: Vec<_> = self
            .columns
            .iter()
            .map(|column| sql::identifier(&column.name))
            .collect();
        names.join(", ")
    }
}

impl Sequence {
    /// The sequence's name in a statement.
    pub(crate) fn sql(&self) -> String {
        sql::qualified(&self.schema, &self.name)
    }
}

/// All tables that can be asked for: those of users, without partitions and those of extensions.
const TABLES: &str = "
SELECT c.oid, n.nspname::text, c.relname::text, c.relkind = 'p', c.relpersistence = 'u', c.relreplident::text,
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid AND i.indimmediate)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
  AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
  AND NOT EXISTS (SELECT FROM pg_depend d
                  WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY 2, 3";

const COLUMNS: &str = "
SELECT a.attrelid, a.attname::text, a.atttypid, a.atttypmod, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       a.attidentity::text, a.attgenerated::text <> '', pg_get_expr(d.adbin, d.adrelid)
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = ANY ($1) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum";

/// Foreign keys of partitions are those of the whole table.
const CONSTRAINTS: &str = "
SELECT conrelid, conname::text, contype::text, pg_get_constraintdef(oid), confrelid
FROM pg_constraint
WHERE conrelid = ANY ($1) AND contype IN ('p', 'u', 'c', 'f', 'x') AND conparentid = 0
ORDER BY conrelid, contype <> 'p', conname";

const INDEXES: &str = "
SELECT i.indrelid, c.relname::text, i.indisunique, pg_get_indexdef(i.indexrelid)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = ANY ($1) AND i.indisvalid
  AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid AND k.contype IN ('p', 'u', 'x'))
ORDER BY i.indrelid, c.relname";

const SEQUENCES: &str = "
SELECT n.nspname::text, c.relname::text, format_type(s.seqtypid, NULL),
       format('INCREMENT BY %s MINVALUE %s MAXVALUE %s START WITH %s CACHE %s %s',
              s.seqincrement, s.seqmin, s.seqmax, s.seqstart, s.seqcache,
              CASE WHEN s.seqcycle THEN 'CYCLE' ELSE 'NO CYCLE' END),
       o.refobjid, a.attname::text, coalesce(o.deptype = 'i', false),
       ARRAY(SELECT DISTINCT k.adrelid FROM pg_depend u JOIN pg_attrdef k ON k.oid = u.objid
             WHERE u.classid = 'pg_attrdef'::regclass AND u.refclassid = 'pg_class'::regclass AND u.refobjid = c.oid)
FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_depend o ON o.classid = 'pg_class'::regclass AND o.objid = c.oid AND o.refclassid = 'pg_class'::regclass
                     AND o.deptype IN ('a', 'i')
LEFT JOIN pg_attribute a ON a.attrelid = o.refobjid AND a.attnum = o.refobjsubid
WHERE c.relpersistence = 'p' AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
ORDER BY 1, 2";

/// The tables that `wanted` takes by schema and name.
///
/// # Errors
/// [`ImportError::Source`].
pub(crate) async fn tables(
    source: &Connection,
    wanted: impl Fn(&str, &str) -> bool,
) -> Result<Vec<Table>, ImportError> {
    let failed = || ImportError::source("reading its tables");
    let rows = source.query(TABLES, &[]).await.map_err(failed())?;
    let mut tables: Vec<Table> = rows
        .iter()
        .map(|row| Table {
            oid: row.get(0),
            schema: row.get(1),
            name: row.get(2),
            partitioned: row.get(3),
            unlogged: row.get(4),
            identity: row.get(5),
            primary_key: row.get(6),
            columns: Vec::new(),
            constraints: Vec::new(),
            indexes: Vec::new(),
        })
        .filter(|table| wanted(&table.schema, &table.name))
        .collect();
    let oids: Vec<Oid> = tables.iter().map(|table| table.oid).collect();
    let places: HashMap<Oid, usize> = oids
        .iter()
        .enumerate()
        .map(|(at, &oid)| (oid, at))
        .collect();
    for row in source.query(COLUMNS, &[&oids]).await.map_err(failed())? {
        tables[places[&row.get(0)]].columns.push(Column {
            name: row.get(1),
            type_oid: row.get(2),
            typmod: row.get(3),
            type_name: row.get(4),
            not_null: row.get(5),
            identity: row.get(6),
            generated: row.get(7),
            default: row.get(8),
        });
    }
    for row in source
        .query(CONSTRAINTS, &[&oids])
        .await
        .map_err(failed())?
    {
        tables[places[&row.get(0)]].constraints.push(Constraint {
            name: row.get(1),
            kind: row.get(2),
            definition: row.get(3),
            refers_to: row.get(4),
        });
    }
    for row in source.query(INDEXES, &[&oids]).await.map_err(failed())? {
        // A partitioned table has it ONLY, since each partition has one of its own.
        let statement: String = row.get(3);
        tables[places[&row.get(0)]].indexes.push(Index {
            name: row.get(1),
            unique: row.get(2),
            statement: statement.replacen(" ON ONLY ", " ON ", 1),
        });
    }
    Ok(tables)
}

/// The sequences that belong to the tables or give them numbers, and those of nobody that `wanted` takes.
///
/// # Errors
/// [`ImportError::Source`].
pub(crate) async fn sequences(
    source: &Connection,
    tables: &[Oid],
    wanted: impl Fn(&str, &str) -> bool,
) -> Result<Vec<Sequence>, ImportError> {
    let rows = source
        .query(SEQUENCES, &[])
        .await
        .map_err(ImportError::source("reading its sequences"))?;
    let all = rows.iter().map(|row| Sequence {
        schema: row.get(0),
        name: row.get(1),
        type_name: row.get(2),
        options: row.get(3),
        owner: row.get::<_, Option<Oid>>(4).zip(row.get(5)),
        of_identity: row.get(6),
        used_by: row.get(7),
    });
    Ok(all
        .filter(|sequence| {
            let owned = sequence
                .owner
                .as_ref()
                .map(|(table, _)| tables.contains(table));
            let used = sequence.used_by.iter().any(|table| tables.contains(table));
            used || owned.unwrap_or_else(|| {
                sequence.used_by.is_empty() && wanted(&sequence.schema, &sequence.name)
            })
        })
        .collect())
}

/// Where a sequence is: its last value, and whether that was given out.
///
/// # Errors
/// [`ImportError::Source`].
pub(crate) async fn position(
    source: &Connection,
    sequence: &Sequence,
) -> Result<(i64, bool), ImportError> {
    let query = format!("SELECT last_value, is_called FROM {}", sequence.sql());
    let row = source
        .query_one(&query, &[])
        .await
        .map_err(ImportError::source(format!("reading {}", sequence.sql())))?;
    Ok((row.get(0), row.get(1)))
}
