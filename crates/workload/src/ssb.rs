//! The Star Schema Benchmark: schema, data, queries and reference answers.
//!
//! Sources: P. O'Neil, E. O'Neil, X. Chen, S. Revilak, "The Star Schema Benchmark
//! and Augmented Fact Table Indexing" (TPCTC 2009), and "Star Schema Benchmark,
//! Revision 3" (2009). The generator is ours; it makes the specified columns,
//! domains and distributions, not the bytes of the authors' `dbgen`.
//!
//! ```text
//!             dates (2,556)            customer (30,000·SF)
//!                    \                  /
//!                    lineorder (6,000,000·SF)
//!                    /                  \
//!   part (200,000·(1+log2 SF))          supplier (2,000·SF)
//! ```
//!
//! Where the specification leaves room, or contradicts itself:
//!
//! * **`dates`** is the specification's table DATE under another name: `date` is
//!   the name of a type.
//! * **`lineorder`** holds exactly four lines per order in the mean, not only in
//!   expectation: each seven consecutive orders get 1 to 7 lines in a shuffled
//!   order, so the count of lines is uniform on 1..=7 as in TPC-H and the total
//!   is exactly 4 · orders = 6,000,000·SF (see [`lineorder`]).
//! * **`part`** has 200,000·(1+⌊log2 SF⌋) rows from SF 1 on, and 200,000·SF below,
//!   where the logarithm is negative; the authors' generator does the same.
//! * **`dates`** has "7 years of days", 2,556 rows. 1992 to 1998 has 2,557 days;
//!   we leave out the last, 1998-12-31. No order or commit date comes near it.
//! * **Order dates** end on 1998-08-02 as in TPC-H, so a commit date 30 to 90 days
//!   later is still in `dates`.
//! * **A third of the customers** (keys divisible by three) never order, as in
//!   TPC-H and the authors' generator.
//! * **`d_dayofweek`** is `char(9)`: the specified size, 8, has no room for
//!   "Wednesday".
//! * Prices are integers in cents.

use std::ops::Range;

use crate::copy::Format;
use crate::rng::RowRng;
use crate::scale::Scale;

pub mod calendar;
pub mod ddl;
pub mod dimensions;
pub mod lineorder;
pub mod names;
pub mod queries;
pub mod reference;
mod render;

pub use dimensions::{Customer, Part, Supplier};
pub use lineorder::LineorderChunk;
pub use queries::{QUERIES, Query};

/// Orders per generated chunk: 2,048 orders are about 8,192 lines and a little
/// under one megabyte of COPY text, large enough to amortise a network send and
/// small enough that a bounded queue of chunks stays small.
pub const ORDERS_PER_CHUNK: u64 = 2_048;

/// Rows per generated chunk of a dimension table.
pub const ROWS_PER_CHUNK: u64 = 8_192;

/// The seed used when the user gives none.
pub const SEED_DEFAULT: u64 = 1;

/// The five tables, in the order in which they are best loaded: dimensions first,
/// so that the fact table's keys always find a partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Table {
    /// The date dimension.
    Dates,
    /// The customer dimension.
    Customer,
    /// The supplier dimension.
    Supplier,
    /// The part dimension.
    Part,
    /// The fact table.
    Lineorder,
}

impl Table {
    /// All tables, dimensions first.
    pub const ALL: [Self; 5] = [
        Self::Dates,
        Self::Customer,
        Self::Supplier,
        Self::Part,
        Self::Lineorder,
    ];

    /// The table's SQL name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dates => "dates",
            Self::Customer => "customer",
            Self::Supplier => "supplier",
            Self::Part => "part",
            Self::Lineorder => "lineorder",
        }
    }
}

/// Streams of random numbers, one per kind of thing drawn.
mod stream {
    pub(super) const CUSTOMER: u64 = 1;
    pub(super) const SUPPLIER: u64 = 2;
    pub(super) const PART: u64 = 3;
    pub(super) const ORDER: u64 = 4;
    pub(super) const LINE_COUNTS: u64 = 5;
}

/// A data set: a pure function from (scale, seed) to rows. It holds no rows, so
/// it is cheap to copy to as many threads as generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ssb {
    seed: u64,
    customers: u32,
    suppliers: u32,
    parts: u32,
    orders: u64,
}

impl Ssb {
    /// The data set of this scale and seed.
    pub fn new(scale: Scale, seed: u64) -> Self {
        Self {
            seed,
            customers: scale.rows(30_000) as u32,
            suppliers: scale.rows(2_000) as u32,
            parts: parts_at(scale),
            orders: scale.rows(1_500_000),
        }
    }

    /// A data set with cardinalities of its own, for tests that need rare
    /// combinations in few rows.
    #[cfg(test)]
    pub(crate) fn with_counts(seed: u64, dimensions: [u32; 3], orders: u64) -> Self {
        let [customers, suppliers, parts] = dimensions;
        Self {
            seed,
            customers,
            suppliers,
            parts,
            orders,
        }
    }

    /// Exact number of rows in `table`.
    pub fn rows(&self, table: Table) -> u64 {
        match table {
            Table::Dates => calendar::DAYS as u64,
            Table::Customer => u64::from(self.customers),
            Table::Supplier => u64::from(self.suppliers),
            Table::Part => u64::from(self.parts),
            Table::Lineorder => self.orders * lineorder::LINES_PER_ORDER_MEAN,
        }
    }

    /// Number of orders behind the lines of `lineorder`.
    pub fn orders(&self) -> u64 {
        self.orders
    }

    /// Number of chunks of `table`; chunks are numbered from 0.
    pub fn chunks(&self, table: Table) -> u64 {
        self.units(table).div_ceil(units_per_chunk(table))
    }

    /// Appends chunk `chunk` of `table` to `out` as COPY bytes; returns the number
    /// of rows, zero for a chunk past the end.
    pub fn copy_chunk(&self, table: Table, chunk: u64, format: Format, out: &mut Vec<u8>) -> u64 {
        let Range { start, end } = self.chunk_range(table, chunk);
        let keys = start as u32 + 1..end as u32 + 1;
        match table {
            Table::Dates => render::dates(start as usize..end as usize, format, out),
            Table::Customer => render::customers(self.customers(keys), format, out),
            Table::Supplier => render::suppliers(self.suppliers(keys), format, out),
            Table::Part => render::parts(self.parts(keys), format, out),
            Table::Lineorder => render::lineorder(&self.lineorder(start..end), format, out),
        }
    }

    /// The zero-based rows (orders, for `lineorder`) that chunk `chunk` covers.
    pub fn chunk_range(&self, table: Table, chunk: u64) -> Range<u64> {
        let units = self.units(table);
        let size = units_per_chunk(table);
        let start = chunk.saturating_mul(size).min(units);
        start..(start + size).min(units)
    }

    /// The customers with these keys; keys count from 1.
    pub fn customers(&self, keys: Range<u32>) -> impl Iterator<Item = Customer> + use<> {
        let seed = self.seed;
        keys.map(move |key| {
            Customer::draw(key, &mut RowRng::new(seed, stream::CUSTOMER, key.into()))
        })
    }

    /// The suppliers with these keys; keys count from 1.
    pub fn suppliers(&self, keys: Range<u32>) -> impl Iterator<Item = Supplier> + use<> {
        let seed = self.seed;
        keys.map(move |key| {
            Supplier::draw(key, &mut RowRng::new(seed, stream::SUPPLIER, key.into()))
        })
    }

    /// The parts with these keys; keys count from 1.
    pub fn parts(&self, keys: Range<u32>) -> impl Iterator<Item = Part> + use<> {
        let seed = self.seed;
        keys.map(move |key| Part::draw(key, &mut RowRng::new(seed, stream::PART, key.into())))
    }

    /// The lines of these orders; orders count from 0.
    pub fn lineorder(&self, orders: Range<u64>) -> LineorderChunk {
        LineorderChunk::draw(self, orders)
    }

    /// All keys of a dimension table whose keys are 1..=n.
    pub(crate) fn keys(&self, table: Table) -> Range<u32> {
        debug_assert!(!matches!(table, Table::Dates | Table::Lineorder));
        1..self.rows(table) as u32 + 1
    }

    /// What is counted when a table is cut into chunks: rows, or orders.
    fn units(&self, table: Table) -> u64 {
        match table {
            Table::Lineorder => self.orders,
            _ => self.rows(table),
        }
    }
}

fn units_per_chunk(table: Table) -> u64 {
    match table {
        Table::Lineorder => ORDERS_PER_CHUNK,
        _ => ROWS_PER_CHUNK,
    }
}

fn parts_at(scale: Scale) -> u32 {
    const BASE: u32 = 200_000;
    if scale.factor() < 1.0 {
        return scale.rows(BASE) as u32;
    }
    // The whole part of a positive number is at least 1, so it has a logarithm.
    BASE * (1 + (scale.factor() as u32).ilog2())
}

#[cfg(test)]
mod tests;
