//! The fact table: orders, each with one to seven lines.
//!
//! ```text
//!  orders   0 1 2 3 4 5 6 | 7 8 9 …         | last, shorter block
//!  lines    3 7 1 4 6 2 5 | 5 1 7 …         | pairs that sum to 8, and one 4
//!           └─ a shuffle of 1..=7, drawn per block ─┘
//! ```
//!
//! Seven orders have 28 lines, and the block at the end is balanced too, so the
//! table holds exactly four lines per order whatever the seed, and any range of
//! orders can be made alone.

use std::ops::Range;

use super::dimensions::Part;
use super::{Ssb, calendar, names, stream};
use crate::rng::RowRng;

/// Lines per order in the mean; exact over the table.
pub const LINES_PER_ORDER_MEAN: u64 = 4;

/// Orders in a block whose line counts are a shuffle of 1..=7.
const BLOCK_ORDERS: u64 = 7;

/// The lines of a range of orders, one vector per column, all of one length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LineorderChunk {
    /// `lo_orderkey`: the first 8 of every 32 keys are used.
    pub orderkey: Vec<i32>,
    /// `lo_linenumber`, 1..=7.
    pub linenumber: Vec<i32>,
    /// `lo_custkey`.
    pub custkey: Vec<i32>,
    /// `lo_partkey`.
    pub partkey: Vec<i32>,
    /// `lo_suppkey`.
    pub suppkey: Vec<i32>,
    /// `lo_orderdate`, yyyymmdd.
    pub orderdate: Vec<i32>,
    /// Index into [`names::PRIORITIES`].
    pub orderpriority: Vec<u8>,
    /// `lo_quantity`, 1..=50.
    pub quantity: Vec<i32>,
    /// `lo_extendedprice` in cents: quantity · the part's price.
    pub extendedprice: Vec<i32>,
    /// `lo_ordtotalprice` in cents, the same for all lines of an order.
    pub ordtotalprice: Vec<i32>,
    /// `lo_discount` in percent, 0..=10.
    pub discount: Vec<i32>,
    /// `lo_revenue` in cents: extended price less discount, rounded down.
    pub revenue: Vec<i32>,
    /// `lo_supplycost` in cents: six tenths of the part's price, rounded down.
    pub supplycost: Vec<i32>,
    /// `lo_tax` in percent, 0..=8.
    pub tax: Vec<i32>,
    /// `lo_commitdate`, yyyymmdd, 30 to 90 days after the order date.
    pub commitdate: Vec<i32>,
    /// Index into [`names::SHIP_MODES`].
    pub shipmode: Vec<u8>,
}

impl LineorderChunk {
    /// Number of lines.
    pub fn len(&self) -> usize {
        self.orderkey.len()
    }

    /// Whether the chunk holds no line.
    pub fn is_empty(&self) -> bool {
        self.orderkey.is_empty()
    }

    pub(super) fn draw(ssb: &Ssb, orders: Range<u64>) -> Self {
        let orders = orders.start.min(ssb.orders)..orders.end.min(ssb.orders);
        let lines = orders.end.saturating_sub(orders.start) * LINES_PER_ORDER_MEAN;
        // The first and last block may be cut, so the count can exceed the mean.
        let mut chunk = Self::with_capacity(lines as usize + 2 * BLOCK_ORDERS as usize);
        let mut block = u64::MAX;
        let mut counts = [0; BLOCK_ORDERS as usize];
        for order in orders {
            if order / BLOCK_ORDERS != block {
                block = order / BLOCK_ORDERS;
                counts = line_counts(ssb, block);
            }
            chunk.push_order(ssb, order, counts[(order % BLOCK_ORDERS) as usize]);
        }
        chunk
    }

    fn with_capacity(lines: usize) -> Self {
        Self {
            orderkey: Vec::with_capacity(lines),
            linenumber: Vec::with_capacity(lines),
            custkey: Vec::with_capacity(lines),
            partkey: Vec::with_capacity(lines),
            suppkey: Vec::with_capacity(lines),
            orderdate: Vec::with_capacity(lines),
            orderpriority: Vec::with_capacity(lines),
            quantity: Vec::with_capacity(lines),
            extendedprice: Vec::with_capacity(lines),
            ordtotalprice: Vec::with_capacity(lines),
            discount: Vec::with_capacity(lines),
            revenue: Vec::with_capacity(lines),
            supplycost: Vec::with_capacity(lines),
            tax: Vec::with_capacity(lines),
            commitdate: Vec::with_capacity(lines),
            shipmode: Vec::with_capacity(lines),
        }
    }

    fn push_order(&mut self, ssb: &Ssb, order: u64, lines: i32) {
        let mut rng = RowRng::new(ssb.seed, stream::ORDER, order);
        let head = OrderHead {
            key: order_key(order),
            custkey: draw_custkey(&mut rng, ssb.customers),
            day: rng.below(calendar::ORDER_DAYS as u64) as usize,
            priority: rng.code(names::PRIORITIES.len()),
        };
        let first = self.len();
        let total: i32 = (1..=lines)
            .map(|line| self.push_line(ssb, &head, line, &mut rng))
            .sum();
        // At most 7 lines of 11.4 million cents each, well inside an i32.
        let last = first + lines as usize;
        self.ordtotalprice.resize(last, total);
    }

    /// Appends a line; returns its share of the order's total price.
    fn push_line(&mut self, ssb: &Ssb, head: &OrderHead, line: i32, rng: &mut RowRng) -> i32 {
        let partkey = rng.below(ssb.parts.into()) as u32 + 1;
        let suppkey = rng.below(ssb.suppliers.into()) as i32 + 1;
        let quantity = rng.between(1, 50);
        let discount = rng.between(0, 10);
        let tax = rng.between(0, 8);
        let commit_day = head.day + rng.between(30, 90) as usize;
        let price = Part::price_cents(partkey);
        let extended = quantity * price;
        let revenue = percent(extended, 100 - discount);

        self.orderkey.push(head.key);
        self.linenumber.push(line);
        self.custkey.push(head.custkey);
        self.partkey.push(partkey as i32);
        self.suppkey.push(suppkey);
        self.orderdate.push(calendar::DATEKEYS[head.day]);
        self.orderpriority.push(head.priority);
        self.quantity.push(quantity);
        self.extendedprice.push(extended);
        self.discount.push(discount);
        self.revenue.push(revenue);
        self.supplycost.push(price * 6 / 10);
        self.tax.push(tax);
        self.commitdate.push(calendar::DATEKEYS[commit_day]);
        self.shipmode.push(rng.code(names::SHIP_MODES.len()));
        percent(revenue, 100 + tax)
    }
}

/// What the lines of an order share.
struct OrderHead {
    key: i32,
    custkey: i32,
    day: usize,
    priority: u8,
}

/// The sparse key of an order: of every 32 keys the first 8 are used (TPC-H
/// 4.2.3, O_ORDERKEY).
fn order_key(order: u64) -> i32 {
    let number = order + 1;
    ((number >> 3 << 5) | (number & 7)) as i32
}

/// A customer key that is no multiple of three: a third of the customers never
/// order (TPC-H 4.2.3, O_CUSTKEY).
fn draw_custkey(rng: &mut RowRng, customers: u32) -> i32 {
    let buyers = customers - customers / 3;
    let buyer = rng.below(buyers.into()) as i32;
    buyer / 2 * 3 + buyer % 2 + 1
}

/// `percent` hundredths of `amount`, rounded down. The product can pass 2^31.
fn percent(amount: i32, percent: i32) -> i32 {
    (i64::from(amount) * i64::from(percent) / 100) as i32
}

/// Line counts of the orders of block `block`.
fn line_counts(ssb: &Ssb, block: u64) -> [i32; BLOCK_ORDERS as usize] {
    let mut rng = RowRng::new(ssb.seed, stream::LINE_COUNTS, block);
    let orders = (ssb.orders - block * BLOCK_ORDERS).min(BLOCK_ORDERS) as usize;
    let mut pairs = [(1, 7), (2, 6), (3, 5)];
    rng.shuffle(&mut pairs);
    let mut counts = [4; BLOCK_ORDERS as usize];
    for (at, (few, many)) in pairs.into_iter().take(orders / 2).enumerate() {
        counts[2 * at] = few;
        counts[2 * at + 1] = many;
    }
    // An odd block keeps one order of four lines; what lies past `orders` is unused.
    rng.shuffle(&mut counts[..orders]);
    counts
}
