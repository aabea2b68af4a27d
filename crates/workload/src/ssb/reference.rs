//! Reference answers: the thirteen queries evaluated over the generated rows in
//! plain Rust, independently of any database.
//!
//! The dimensions become arrays indexed by key (a city code, a brand code, a few
//! date attributes). One pass over the lines, chunk by chunk and on as many
//! threads as wanted, then feeds all thirteen queries at once:
//!
//! ```text
//!  thread 0:  orders 0..k     ─ chunk ─ chunk ─ … ─► Partial ┐
//!  thread 1:  orders k..2k    ─ chunk ─ chunk ─ … ─► Partial ┼─ merge ─► sorted rows
//!  thread n:  …                                    ─► Partial ┘
//! ```
//!
//! Sums are `i64`. A line adds at most 105 million (Q1: price · discount), and the
//! largest scale has 1.8 billion lines, so no sum passes 1.9 · 10^17.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::ops::Range;

use super::calendar::{self, Day};
use super::lineorder::LineorderChunk;
use super::names;
use super::queries::{QUERIES, Query};
use super::{ORDERS_PER_CHUNK, Ssb, Table};

mod compare;

pub use compare::{Mismatch, Value, compare, parse_rows};

/// A row of a result.
pub type Row = Vec<Value>;

/// The answers to all thirteen queries over one data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answers {
    rows: Vec<Vec<Row>>,
}

impl Answers {
    /// Evaluates the queries over the whole data set on `threads` threads.
    pub fn compute(ssb: &Ssb, threads: NonZeroUsize) -> Self {
        let dimensions = Dimensions::new(ssb);
        let parts = split(ssb.orders(), threads.get() as u64);
        let total = std::thread::scope(|scope| {
            let workers: Vec<_> = parts
                .into_iter()
                .map(|orders| scope.spawn(|| scan(ssb, &dimensions, orders)))
                .collect();
            let mut total = Partial::default();
            for worker in workers {
                total.merge(worker.join().expect("a scan has no way to fail"));
            }
            total
        });
        Self { rows: total.rows() }
    }

    /// The answer to `query` in its ORDER BY order; ties in any order.
    pub fn rows(&self, query: &Query) -> &[Row] {
        let index = QUERIES
            .iter()
            .position(|known| known.id == query.id)
            .expect("queries are made only in the table of queries");
        &self.rows[index]
    }
}

/// Cuts `0..orders` into at most `pieces` ranges.
fn split(orders: u64, pieces: u64) -> Vec<Range<u64>> {
    let size = orders.div_ceil(pieces).max(1);
    (0..orders.div_ceil(size))
        .map(|piece| piece * size..((piece + 1) * size).min(orders))
        .collect()
}

fn scan(ssb: &Ssb, dimensions: &Dimensions, orders: Range<u64>) -> Partial {
    let mut partial = Partial::default();
    let mut start = orders.start;
    while start < orders.end {
        let end = (start + ORDERS_PER_CHUNK).min(orders.end);
        let chunk = ssb.lineorder(start..end);
        for at in 0..chunk.len() {
            partial.add(&Line::new(&chunk, at, dimensions));
        }
        start = end;
    }
    partial
}

/// The dimensions' attributes, by key.
struct Dimensions {
    customer_city: Vec<u8>,
    supplier_city: Vec<u8>,
    part_brand: Vec<u16>,
    days: Vec<DayFacts>,
}

/// What the queries ask about a day.
#[derive(Debug, Clone, Copy, Default)]
struct DayFacts {
    year: u16,
    month: u8,
    week_in_year: u8,
}

impl Dimensions {
    fn new(ssb: &Ssb) -> Self {
        let mut days = vec![DayFacts::default(); DAY_SLOTS];
        for day in (0..calendar::DAYS).map(Day::new) {
            days[day_slot(day.key())] = DayFacts {
                year: day.year as u16,
                month: day.month as u8,
                week_in_year: day.week_in_year() as u8,
            };
        }
        // Keys count from 1; slot 0 is a filler.
        Self {
            customer_city: std::iter::once(0)
                .chain(ssb.customers(ssb.keys(Table::Customer)).map(|row| row.city))
                .collect(),
            supplier_city: std::iter::once(0)
                .chain(ssb.suppliers(ssb.keys(Table::Supplier)).map(|row| row.city))
                .collect(),
            part_brand: std::iter::once(0)
                .chain(ssb.parts(ssb.keys(Table::Part)).map(|row| row.brand))
                .collect(),
            days,
        }
    }
}

/// Slots of a table over days: seven years of twelve months of 32 days.
const DAY_SLOTS: usize = 7 * 12 * 32;

fn day_slot(datekey: i32) -> usize {
    let (year, month, day) = (datekey / 10_000, datekey / 100 % 100, datekey % 100);
    (((year - 1992) * 12 + month - 1) * 32 + day) as usize
}

/// A line joined with its dimensions.
struct Line {
    day: DayFacts,
    quantity: i32,
    discount: i32,
    price: i64,
    revenue: i64,
    cost: i64,
    customer: Location,
    supplier: Location,
    brand: u16,
    category: u16,
    maker: u16,
}

/// Where a customer or supplier is.
struct Location {
    city: u8,
    nation: u8,
    region: u8,
}

impl Location {
    fn new(city: u8) -> Self {
        let nation = names::nation_of(city);
        Self {
            city,
            nation,
            region: names::region_of(nation),
        }
    }

    /// Whether it is in UNITED KI1 or UNITED KI5.
    fn is_uk_1_or_5(&self) -> bool {
        const UNITED_KINGDOM: u8 = 23;
        self.nation == UNITED_KINGDOM && matches!(self.city % names::CITIES_PER_NATION, 1 | 5)
    }
}

impl Line {
    fn new(chunk: &LineorderChunk, at: usize, dimensions: &Dimensions) -> Self {
        let brand = dimensions.part_brand[chunk.partkey[at] as usize];
        let category = brand / names::BRANDS_PER_CATEGORY;
        Self {
            day: dimensions.days[day_slot(chunk.orderdate[at])],
            quantity: chunk.quantity[at],
            discount: chunk.discount[at],
            price: chunk.extendedprice[at].into(),
            revenue: chunk.revenue[at].into(),
            cost: chunk.supplycost[at].into(),
            customer: Location::new(dimensions.customer_city[chunk.custkey[at] as usize]),
            supplier: Location::new(dimensions.supplier_city[chunk.suppkey[at] as usize]),
            brand,
            category,
            maker: category / names::CATEGORIES_PER_MANUFACTURER,
        }
    }
}

/// Codes that identify a group, in the order of the result's columns.
type GroupKey = [u16; 3];

/// Sums of one part of the lines: per query, per group.
#[derive(Default)]
struct Partial {
    groups: [HashMap<GroupKey, i64>; QUERIES.len()],
}

const AMERICA: u8 = 1;
const ASIA: u8 = 2;
const EUROPE: u8 = 3;
const UNITED_STATES: u8 = 24;

impl Partial {
    fn add(&mut self, line: &Line) {
        self.add_flight_1(line);
        self.add_flight_2(line);
        self.add_flight_3(line);
        self.add_flight_4(line);
    }

    fn add_flight_1(&mut self, line: &Line) {
        let DayFacts {
            year,
            month,
            week_in_year,
        } = line.day;
        let revenue = line.price * i64::from(line.discount);
        if year == 1993 && (1..=3).contains(&line.discount) && line.quantity < 25 {
            self.sum(0, [0; 3], revenue);
        }
        let medium = year == 1994 && (26..=35).contains(&line.quantity);
        if medium && month == 1 && (4..=6).contains(&line.discount) {
            self.sum(1, [0; 3], revenue);
        }
        if medium && week_in_year == 6 && (5..=7).contains(&line.discount) {
            self.sum(2, [0; 3], revenue);
        }
    }

    fn add_flight_2(&mut self, line: &Line) {
        let key = [line.day.year, line.brand, 0];
        let number = line.brand % names::BRANDS_PER_CATEGORY + 1;
        // Category codes count from 0: MFGR#12 is 0·5 + 1, MFGR#22 is 1·5 + 1.
        if line.category == 1 && line.supplier.region == AMERICA {
            self.sum(3, key, line.revenue);
        }
        // As text, `MFGR#222` and `MFGR#223` lie outside 'MFGR#2221'..'MFGR#2228'.
        if line.category == 6 && (21..=28).contains(&number) && line.supplier.region == ASIA {
            self.sum(4, key, line.revenue);
        }
        if line.category == 6 && number == 39 && line.supplier.region == EUROPE {
            self.sum(5, key, line.revenue);
        }
    }

    fn add_flight_3(&mut self, line: &Line) {
        let (customer, supplier, year) = (&line.customer, &line.supplier, line.day.year);
        let until_1997 = (1992..=1997).contains(&year);
        let cities = [customer.city.into(), supplier.city.into(), year];
        if customer.region == ASIA && supplier.region == ASIA && until_1997 {
            let nations = [customer.nation.into(), supplier.nation.into(), year];
            self.sum(6, nations, line.revenue);
        }
        if customer.nation == UNITED_STATES && supplier.nation == UNITED_STATES && until_1997 {
            self.sum(7, cities, line.revenue);
        }
        if customer.is_uk_1_or_5() && supplier.is_uk_1_or_5() {
            if until_1997 {
                self.sum(8, cities, line.revenue);
            }
            if year == 1997 && line.day.month == 12 {
                self.sum(9, cities, line.revenue);
            }
        }
    }

    fn add_flight_4(&mut self, line: &Line) {
        if line.customer.region != AMERICA {
            return;
        }
        let (supplier, year) = (&line.supplier, line.day.year);
        let profit = line.revenue - line.cost;
        let late = matches!(year, 1997 | 1998);
        if supplier.region == AMERICA && line.maker < 2 {
            self.sum(10, [year, line.customer.nation.into(), 0], profit);
            if late {
                self.sum(11, [year, supplier.nation.into(), line.category], profit);
            }
        }
        // MFGR#14 is category code 3.
        if supplier.nation == UNITED_STATES && late && line.category == 3 {
            self.sum(12, [year, supplier.city.into(), line.brand], profit);
        }
    }

    fn sum(&mut self, query: usize, key: GroupKey, amount: i64) {
        *self.groups[query].entry(key).or_insert(0) += amount;
    }

    fn merge(&mut self, other: Self) {
        for (mine, theirs) in self.groups.iter_mut().zip(other.groups) {
            for (key, amount) in theirs {
                *mine.entry(key).or_insert(0) += amount;
            }
        }
    }

    fn rows(&self) -> Vec<Vec<Row>> {
        let answers = self.groups.iter().enumerate();
        answers
            .map(|(query, groups)| rows_of(query, groups))
            .collect()
    }
}

/// The result rows of query number `query`, in order.
fn rows_of(query: usize, groups: &HashMap<GroupKey, i64>) -> Vec<Row> {
    let mut rows: Vec<Row> = groups
        .iter()
        .map(|(&key, &sum)| row_of(query, key, sum))
        .collect();
    // Flight 1 has no GROUP BY: without a line its one row is NULL.
    if query < 3 && rows.is_empty() {
        rows.push(vec![Value::Null]);
    }
    compare::sort(&QUERIES[query], &mut rows);
    rows
}

fn row_of(query: usize, [a, b, c]: GroupKey, sum: i64) -> Row {
    let int = |value: u16| Value::Int(value.into());
    let nation = |code: u16| Value::Text(names::NATIONS[code as usize].0.to_owned());
    let city = |code: u16| Value::Text(names::city(code as u8));
    let sum = Value::Int(sum);
    match query {
        0..=2 => vec![sum],
        3..=5 => vec![sum, int(a), Value::Text(names::brand(b))],
        6 => vec![nation(a), nation(b), int(c), sum],
        7..=9 => vec![city(a), city(b), int(c), sum],
        10 => vec![int(a), nation(b), sum],
        11 => vec![int(a), nation(b), Value::Text(names::category(c)), sum],
        _ => vec![int(a), city(b), Value::Text(names::brand(c)), sum],
    }
}

#[cfg(test)]
mod tests;
