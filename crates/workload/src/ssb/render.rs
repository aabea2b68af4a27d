//! Rows of the five tables as COPY bytes. Each function appends its rows and
//! returns how many there were.

use std::ops::Range;

use super::calendar::Day;
use super::dimensions::{Customer, Part, Supplier};
use super::lineorder::LineorderChunk;
use super::names;
use crate::copy::{Format, RowWriter};

pub(super) fn lineorder(chunk: &LineorderChunk, format: Format, out: &mut Vec<u8>) -> u64 {
    // About 100 bytes a line.
    out.reserve(chunk.len() * 112);
    let mut row = RowWriter::new(out, format);
    for at in 0..chunk.len() {
        row.int(chunk.orderkey[at]);
        row.int(chunk.linenumber[at]);
        row.int(chunk.custkey[at]);
        row.int(chunk.partkey[at]);
        row.int(chunk.suppkey[at]);
        row.int(chunk.orderdate[at]);
        row.text(names::PRIORITIES[chunk.orderpriority[at] as usize]);
        row.text(names::SHIP_PRIORITY);
        row.int(chunk.quantity[at]);
        row.int(chunk.extendedprice[at]);
        row.int(chunk.ordtotalprice[at]);
        row.int(chunk.discount[at]);
        row.int(chunk.revenue[at]);
        row.int(chunk.supplycost[at]);
        row.int(chunk.tax[at]);
        row.int(chunk.commitdate[at]);
        row.text(names::SHIP_MODES[chunk.shipmode[at] as usize]);
        row.end_row();
    }
    chunk.len() as u64
}

pub(super) fn customers(
    rows: impl Iterator<Item = Customer>,
    format: Format,
    out: &mut Vec<u8>,
) -> u64 {
    let mut row = RowWriter::new(out, format);
    let mut count = 0;
    for customer in rows {
        row.int(customer.key);
        row.text(&customer.name());
        row.text(&customer.address);
        place(&mut row, customer.city);
        row.text(&customer.phone);
        row.text(names::SEGMENTS[customer.segment as usize]);
        row.end_row();
        count += 1;
    }
    count
}

pub(super) fn suppliers(
    rows: impl Iterator<Item = Supplier>,
    format: Format,
    out: &mut Vec<u8>,
) -> u64 {
    let mut row = RowWriter::new(out, format);
    let mut count = 0;
    for supplier in rows {
        row.int(supplier.key);
        row.text(&supplier.name());
        row.text(&supplier.address);
        place(&mut row, supplier.city);
        row.text(&supplier.phone);
        row.end_row();
        count += 1;
    }
    count
}

pub(super) fn parts(rows: impl Iterator<Item = Part>, format: Format, out: &mut Vec<u8>) -> u64 {
    let mut row = RowWriter::new(out, format);
    let mut count = 0;
    for part in rows {
        let category = part.brand / names::BRANDS_PER_CATEGORY;
        let maker = category / names::CATEGORIES_PER_MANUFACTURER;
        row.int(part.key);
        row.text(&part.name());
        row.text(&names::manufacturer(maker));
        row.text(&names::category(category));
        row.text(&names::brand(part.brand));
        row.text(names::COLORS[part.color as usize]);
        row.text(&names::part_type(part.part_type));
        row.int(part.size);
        row.text(&names::container(part.container));
        row.end_row();
        count += 1;
    }
    count
}

pub(super) fn dates(days: Range<usize>, format: Format, out: &mut Vec<u8>) -> u64 {
    let mut row = RowWriter::new(out, format);
    let count = days.len() as u64;
    for day in days.map(Day::new) {
        row.int(day.key());
        row.text(&day.date());
        row.text(day.weekday_name());
        row.text(day.month_name());
        row.int(day.year);
        row.int(day.year_month_num());
        row.text(&day.year_month());
        row.int(day.day_in_week());
        row.int(day.day);
        row.int(day.day_in_year);
        row.int(day.month);
        row.int(day.week_in_year());
        row.text(day.season());
        row.int(day.is_last_in_week());
        row.int(day.is_last_in_month());
        row.int(day.is_holiday());
        row.int(day.is_weekday());
        row.end_row();
    }
    count
}

/// City, nation and region.
fn place(row: &mut RowWriter<'_>, city: u8) {
    let nation = names::nation_of(city);
    row.text(&names::city(city));
    row.text(names::NATIONS[nation as usize].0);
    row.text(names::REGIONS[names::region_of(nation) as usize]);
}
