//! TPC-H: schema, data and queries. The rows are those of the `tpchgen` crate,
//! which reproduces the official generator's output, so there is no seed.
//!
//! `tpchgen` divides a table into parts that can be made alone; a part here is a
//! chunk. Its first use in a process builds a text pool of 300 MiB for the
//! comments, which stays until the process ends.

use std::fmt::{Display, Write};

use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};

use crate::scale::Scale;

pub mod ddl;
pub mod queries;

pub use queries::{QUERIES, Query};

/// Orders per chunk of `orders` and `lineitem`, about 8,192 lines.
const ORDERS_PER_CHUNK: u64 = 2_048;

/// Rows per chunk of the other tables (parts, for `partsupp`: four rows each).
const ROWS_PER_CHUNK: u64 = 8_192;

/// The eight tables, in the order in which they are best loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Table {
    /// Five regions.
    Region,
    /// Twenty-five nations.
    Nation,
    /// 10,000·SF suppliers.
    Supplier,
    /// 150,000·SF customers.
    Customer,
    /// 200,000·SF parts.
    Part,
    /// Four suppliers for each part.
    Partsupp,
    /// 1,500,000·SF orders.
    Orders,
    /// One to seven lines for each order.
    Lineitem,
}

impl Table {
    /// All tables, those others refer to first.
    pub const ALL: [Self; 8] = [
        Self::Region,
        Self::Nation,
        Self::Supplier,
        Self::Customer,
        Self::Part,
        Self::Partsupp,
        Self::Orders,
        Self::Lineitem,
    ];

    /// The table's SQL name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Region => "region",
            Self::Nation => "nation",
            Self::Supplier => "supplier",
            Self::Customer => "customer",
            Self::Part => "part",
            Self::Partsupp => "partsupp",
            Self::Orders => "orders",
            Self::Lineitem => "lineitem",
        }
    }
}

/// A data set: a pure function from the scale to rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tpch {
    scale: Scale,
    chunks: [u32; Table::ALL.len()],
}

impl Tpch {
    /// The data set of this scale.
    pub fn new(scale: Scale) -> Self {
        Self {
            scale,
            chunks: Table::ALL.map(|table| chunk_count(table, scale)),
        }
    }

    /// The scale factor.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Number of rows in `table`: exact, but for `lineitem` four per order, which
    /// its generator reaches only about (6,001,215 at SF 1).
    pub fn rows_expected(&self, table: Table) -> u64 {
        match table {
            Table::Region => 5,
            Table::Nation => 25,
            Table::Partsupp | Table::Lineitem => 4 * base_rows(table, self.scale),
            _ => base_rows(table, self.scale),
        }
    }

    /// Number of chunks of `table`; chunks are numbered from 0.
    pub fn chunks(&self, table: Table) -> u64 {
        self.chunks[table as usize].into()
    }

    /// Appends chunk `chunk` of `table` to `out` as COPY text (tab-delimited);
    /// returns the number of rows, zero for a chunk past the end.
    pub fn copy_chunk(&self, table: Table, chunk: u64, out: &mut Vec<u8>) -> u64 {
        if chunk >= self.chunks(table) {
            return 0;
        }
        self.copy_part(
            table,
            chunk as i32 + 1,
            self.chunks[table as usize] as i32,
            out,
        )
    }

    /// Appends part `part` (from 1) of `part_count` of `table` to `out`.
    fn copy_part(&self, table: Table, part: i32, part_count: i32, out: &mut Vec<u8>) -> u64 {
        let scale = self.scale.factor();
        match table {
            Table::Region => render(RegionGenerator::new(scale, part, part_count), out),
            Table::Nation => render(NationGenerator::new(scale, part, part_count), out),
            Table::Supplier => render(SupplierGenerator::new(scale, part, part_count), out),
            Table::Customer => render(CustomerGenerator::new(scale, part, part_count), out),
            Table::Part => render(PartGenerator::new(scale, part, part_count), out),
            Table::Partsupp => render(PartSuppGenerator::new(scale, part, part_count), out),
            Table::Orders => render(OrderGenerator::new(scale, part, part_count), out),
            Table::Lineitem => render(LineItemGenerator::new(scale, part, part_count), out),
        }
    }
}

/// Rows of what the table's parts divide.
fn base_rows(table: Table, scale: Scale) -> u64 {
    let base = match table {
        Table::Region | Table::Nation => return 1,
        Table::Supplier => 10_000,
        Table::Customer => 150_000,
        Table::Part | Table::Partsupp => 200_000,
        Table::Orders | Table::Lineitem => 1_500_000,
    };
    // As the generator does: truncated, not rounded.
    (f64::from(base) * scale.factor()) as u64
}

/// Number of parts to cut a table into.
///
/// The generator puts the remainder of rows / parts into the last part, which at
/// SF 300 could grow a hundredfold. So we take the number of parts, among those
/// up to a quarter above the one wanted, that leaves the smallest remainder.
fn chunk_count(table: Table, scale: Scale) -> u32 {
    let rows = base_rows(table, scale);
    let size = match table {
        Table::Orders | Table::Lineitem => ORDERS_PER_CHUNK,
        _ => ROWS_PER_CHUNK,
    };
    let wanted = rows.div_ceil(size).max(1);
    (wanted..=wanted + wanted / 4)
        .min_by_key(|parts| rows % parts)
        .map_or(1, |parts| parts as u32)
}

/// Appends rows as tab-delimited COPY text. The generator prints `a|b|c|`; no
/// value holds a bar, a tab or a backslash, so bars become tabs and the last one
/// goes. A unit test checks this for every table.
fn render<R: Display>(rows: impl IntoIterator<Item = R>, out: &mut Vec<u8>) -> u64 {
    let mut line = String::new();
    let mut count = 0;
    for row in rows {
        line.clear();
        write!(line, "{row}").expect("a String takes any text");
        let fields = line.strip_suffix('|').unwrap_or(&line);
        let bytes = fields.bytes();
        out.extend(bytes.map(|byte| if byte == b'|' { b'\t' } else { byte }));
        out.push(b'\n');
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tpch(scale: f64) -> Tpch {
        Tpch::new(Scale::new(scale).unwrap())
    }

    fn text(tpch: &Tpch, table: Table) -> (u64, String) {
        let mut out = Vec::new();
        let rows = (0..tpch.chunks(table))
            .map(|chunk| tpch.copy_chunk(table, chunk, &mut out))
            .sum();
        (rows, String::from_utf8(out).unwrap())
    }

    #[test]
    fn all_tables_render_rows_of_the_right_shape() {
        let tpch = tpch(0.01);
        for table in Table::ALL {
            let (rows, text) = text(&tpch, table);
            assert_eq!(text.lines().count() as u64, rows);
            if table == Table::Lineitem {
                // The official count at SF 0.01.
                assert_eq!(rows, 60_175);
            } else {
                assert_eq!(rows, tpch.rows_expected(table), "{}", table.name());
            }
            let columns = ddl::columns(table).len();
            for line in text.lines() {
                assert_eq!(line.split('\t').count(), columns, "{line}");
                assert!(!line.contains(['|', '\\', '\r']));
            }
        }
    }

    #[test]
    fn first_rows_are_the_official_generators() {
        let tpch = tpch(0.01);
        let first = |table| text(&tpch, table).1.lines().next().unwrap().to_owned();
        assert!(first(Table::Region).starts_with("0\tAFRICA\t"));
        assert!(first(Table::Orders).starts_with("1\t370\tO\t172799.49\t1996-01-02\t5-LOW\t"));
        assert!(first(Table::Lineitem).starts_with("1\t1552\t93\t1\t17"));
    }

    #[test]
    fn rows_do_not_depend_on_chunking() {
        let tpch = tpch(0.01);
        for table in [Table::Lineitem, Table::Partsupp] {
            let mut whole = Vec::new();
            tpch.copy_part(table, 1, 1, &mut whole);
            assert!(text(&tpch, table).1.into_bytes() == whole);
        }
        assert_eq!(tpch.copy_chunk(Table::Nation, 1, &mut Vec::new()), 0);
    }

    #[test]
    fn chunks_stay_small_at_every_scale() {
        for scale in [0.001, 0.01, 0.1, 0.37, 1.0, 3.0, 10.0, 100.0, 299.9, 300.0] {
            let tpch = tpch(scale);
            for (table, size) in [
                (Table::Lineitem, ORDERS_PER_CHUNK),
                (Table::Customer, ROWS_PER_CHUNK),
            ] {
                let rows = base_rows(table, tpch.scale());
                let parts = tpch.chunks(table);
                let largest = rows / parts + rows % parts;
                assert!(largest <= 2 * size, "{scale}: {rows} rows in {parts} parts");
            }
        }
    }

    #[test]
    fn keys_name_columns() {
        for table in Table::ALL {
            for key in ddl::primary_key(table) {
                assert!(ddl::columns(table).iter().any(|(name, _)| name == key));
            }
        }
        assert!(ddl::create_table(Table::Orders, Some("row")).ends_with("WITH (layout = 'row')"));
    }
}
