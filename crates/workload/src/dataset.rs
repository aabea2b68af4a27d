//! One interface for all benchmarks: a list of tables, each a definition and a number of chunks
//! of COPY text that can be made in any order and on any thread.

use std::fmt::Write;

use crate::copy::Format;
use crate::hits::{self, Hits};
use crate::scale::Scale;
use crate::ssb::{self, Ssb};
use crate::tpch::{self, Tpch};

/// A generated data set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Dataset {
    /// The Star Schema Benchmark.
    Ssb(Ssb),
    /// TPC-H.
    Tpch(Tpch),
    /// Page views in one wide table.
    Hits(Hits),
}

/// A table of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatasetTable {
    /// SQL name.
    pub name: &'static str,
    /// Rows; exact for all tables but TPC-H's `lineitem`.
    pub rows_expected: u64,
    /// Number of chunks.
    pub chunks: u64,
    kind: TableKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableKind {
    Ssb(ssb::Table),
    Tpch(tpch::Table),
    Hits,
}

/// A query of a data set.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DatasetQuery {
    /// Name, unique within the benchmark.
    pub id: &'static str,
    /// The SQL text, without a semicolon.
    pub sql: String,
    /// The result's columns that ORDER BY names, in its order. Rows that agree in all of
    /// them may come in any order, and with a LIMIT be any of those.
    pub order_by: Vec<usize>,
}

impl Dataset {
    /// The Star Schema Benchmark at this scale and seed.
    pub fn ssb(scale: Scale, seed: u64) -> Self {
        Self::Ssb(Ssb::new(scale, seed))
    }

    /// TPC-H at this scale.
    pub fn tpch(scale: Scale) -> Self {
        Self::Tpch(Tpch::new(scale))
    }

    /// So many page views under this seed.
    pub fn hits(rows: u64, seed: u64) -> Self {
        Self::Hits(Hits::new(rows, seed))
    }

    /// The tables in loading order.
    pub fn tables(&self) -> Vec<DatasetTable> {
        match self {
            Self::Ssb(ssb) => ssb::Table::ALL
                .iter()
                .map(|&table| DatasetTable {
                    name: table.name(),
                    rows_expected: ssb.rows(table),
                    chunks: ssb.chunks(table),
                    kind: TableKind::Ssb(table),
                })
                .collect(),
            Self::Tpch(tpch) => tpch::Table::ALL
                .iter()
                .map(|&table| DatasetTable {
                    name: table.name(),
                    rows_expected: tpch.rows_expected(table),
                    chunks: tpch.chunks(table),
                    kind: TableKind::Tpch(table),
                })
                .collect(),
            Self::Hits(hits) => vec![DatasetTable {
                name: hits::TABLE,
                rows_expected: hits.rows(),
                chunks: hits.chunks(),
                kind: TableKind::Hits,
            }],
        }
    }

    /// The queries in the benchmark's order.
    pub fn queries(&self) -> Vec<DatasetQuery> {
        match self {
            Self::Ssb(_) => (ssb::QUERIES.iter())
                .map(|query| DatasetQuery {
                    id: query.id,
                    sql: query.sql.to_owned(),
                    order_by: query.order_by.iter().map(|(column, _)| *column).collect(),
                })
                .collect(),
            Self::Tpch(tpch) => (tpch::QUERIES.iter())
                .map(|query| DatasetQuery {
                    id: query.id,
                    sql: query.sql(tpch.scale()),
                    order_by: query.order_by.to_vec(),
                })
                .collect(),
            Self::Hits(hits) => (hits::queries::QUERIES.iter())
                .map(|query| DatasetQuery {
                    id: query.id,
                    sql: query.sql(hits),
                    order_by: query.order_by.to_vec(),
                })
                .collect(),
        }
    }

    /// Appends a chunk of `table` to `out` as tab-delimited COPY text; returns the
    /// number of rows. A table of another data set has none.
    pub fn copy_chunk(&self, table: &DatasetTable, chunk: u64, out: &mut Vec<u8>) -> u64 {
        match (self, table.kind) {
            (Self::Ssb(ssb), TableKind::Ssb(table)) => {
                ssb.copy_chunk(table, chunk, Format::Text, out)
            }
            (Self::Tpch(tpch), TableKind::Tpch(table)) => tpch.copy_chunk(table, chunk, out),
            (Self::Hits(hits), TableKind::Hits) => hits.copy_chunk(chunk, out),
            _ => 0,
        }
    }
}

impl DatasetTable {
    /// The `CREATE TABLE` statement, with a layout where given.
    pub fn create_table(&self, layout: Option<&str>) -> String {
        match self.kind {
            TableKind::Ssb(table) => ssb::ddl::create_table(table, layout),
            TableKind::Tpch(table) => tpch::ddl::create_table(table, layout),
            TableKind::Hits => hits::create_table(layout),
        }
    }
}

/// A `CREATE TABLE` statement. Every column is NOT NULL: no benchmark has
/// missing values.
pub(crate) fn create_table(
    name: &str,
    columns: &[(&str, &str)],
    primary_key: &[&str],
    layout: Option<&str>,
) -> String {
    let mut sql = format!("CREATE TABLE {name} (\n");
    for (column, kind) in columns {
        writeln!(sql, "    {column} {kind} NOT NULL,").expect("a String takes any text");
    }
    write!(sql, "    PRIMARY KEY ({})\n)", primary_key.join(", "))
        .expect("a String takes any text");
    if let Some(layout) = layout {
        let quoted = layout.replace('\'', "''");
        write!(sql, " WITH (layout = '{quoted}')").expect("a String takes any text");
    }
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_data_sets_list_their_tables() {
        let scale = Scale::new(0.01).unwrap();
        let ssb = Dataset::ssb(scale, 1);
        let tpch = Dataset::tpch(scale);
        assert_eq!(ssb.tables().len(), 5);
        assert_eq!(tpch.tables().len(), 8);
        let lineorder = ssb.tables()[4];
        assert_eq!(
            (lineorder.name, lineorder.rows_expected),
            ("lineorder", 60_000)
        );
        let mut out = Vec::new();
        let rows: u64 = (0..lineorder.chunks)
            .map(|chunk| ssb.copy_chunk(&lineorder, chunk, &mut out))
            .sum();
        assert_eq!(rows, 60_000);
        assert_eq!(tpch.copy_chunk(&lineorder, 0, &mut out), 0);
        assert!(
            lineorder
                .create_table(None)
                .starts_with("CREATE TABLE lineorder")
        );
    }
}
