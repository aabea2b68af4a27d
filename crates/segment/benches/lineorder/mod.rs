//! Rows distributed like the Star Schema Benchmark's lineorder at scale factor 1.

use std::sync::Arc;

use aerostat_types::SqlType;
use arrow_array::{ArrayRef, Int32Array, StringViewArray};

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ z >> 31) % bound
    }

    fn between(&mut self, low: i32, high: i32) -> i32 {
        low + self.below((high - low + 1) as u64) as i32
    }
}

/// The `n`th day from 1992 on, as yyyymmdd, with months of 30 days: as many different
/// values as the calendar has, as far apart.
fn date(n: i32) -> i32 {
    (1992 + n / 360) * 10_000 + (n / 30 % 12 + 1) * 100 + n % 30 + 1
}

/// The columns in table order; the first two are the key.
pub(crate) const NAMES: [&str; 17] = [
    "orderkey",
    "linenumber",
    "custkey",
    "partkey",
    "suppkey",
    "orderdate",
    "orderpriority",
    "shippriority",
    "quantity",
    "extendedprice",
    "ordtotalprice",
    "discount",
    "revenue",
    "supplycost",
    "tax",
    "commitdate",
    "shipmode",
];
const PRIORITIES: [&str; 5] = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];
const SHIP_MODES: [&str; 7] = ["REG AIR", "AIR", "RAIL", "TRUCK", "MAIL", "FOB", "SHIP"];

/// Lineorder at scale factor 1, orders of one to seven lines: the columns in table order,
/// and the bytes of the rows as CSV.
pub(crate) fn lineorder(rows: usize) -> (Vec<ArrayRef>, usize) {
    let mut random = Random(1);
    let mut ints: Vec<Vec<i32>> = vec![Vec::new(); 17];
    let mut order = 0;
    while ints[0].len() < rows {
        order += 1;
        let lines = random.between(1, 7).min((rows - ints[0].len()) as i32);
        let key = order >> 3 << 5 | order & 7;
        let (customer, day) = (random.between(1, 20_000) * 3 / 2, random.between(0, 2_400));
        let (priority, mut total) = (random.between(0, 4), 0);
        for line in 1..=lines {
            let part = random.between(1, 200_000);
            let price = 90_000 + part / 10 % 20_001 + 100 * (part % 1_000);
            let (quantity, discount, tax) = (
                random.between(1, 50),
                random.between(0, 10),
                random.between(0, 8),
            );
            let extended = quantity * price;
            let revenue = (i64::from(extended) * i64::from(100 - discount) / 100) as i32;
            total += (i64::from(revenue) * i64::from(100 + tax) / 100) as i32;
            let commit = date(day + random.between(30, 90));
            let values = [
                key,
                line,
                customer,
                part,
                random.between(1, 2_000),
                date(day),
                priority,
                0,
                quantity,
                extended,
                0,
                discount,
                revenue,
                price * 6 / 10,
                tax,
                commit,
                random.between(0, 6),
            ];
            ints.iter_mut()
                .zip(values)
                .for_each(|(column, value)| column.push(value));
        }
        let len = ints[0].len();
        ints[10][len - lines as usize..].fill(0);
        ints[10].truncate(len - lines as usize);
        ints[10].resize(len, total);
    }
    let text = |values: &'static [&'static str], codes: &[i32]| -> ArrayRef {
        let values = codes.iter().map(|&code| values[code as usize]);
        Arc::new(StringViewArray::from_iter_values(values))
    };
    let mut csv_bytes = 17 * rows;
    let columns = (0..17)
        .map(|at| -> ArrayRef {
            let codes = &ints[at];
            let texts: Option<&'static [&'static str]> = match at {
                6 => Some(&PRIORITIES),
                7 => Some(&["0"]),
                16 => Some(&SHIP_MODES),
                _ => None,
            };
            csv_bytes += match texts {
                Some(texts) => codes
                    .iter()
                    .map(|&code| texts[code as usize].len())
                    .sum::<usize>(),
                None => codes
                    .iter()
                    .map(|code| code.max(&1).ilog10() as usize + 1)
                    .sum(),
            };
            texts.map_or_else(
                || Arc::new(Int32Array::from(codes.clone())) as ArrayRef,
                |texts| text(texts, codes),
            )
        })
        .collect();
    (columns, csv_bytes)
}

/// The type of a column.
pub(crate) fn ty(column: usize) -> SqlType {
    match column {
        6 => SqlType::Char(15),
        7 => SqlType::Char(1),
        16 => SqlType::Char(10),
        _ => SqlType::Integer,
    }
}
