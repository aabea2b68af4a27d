//! Customers, suppliers and parts. A row is a handful of codes drawn from the
//! row's own generator; [`super::names`] turns codes into text.

use super::names;
use crate::rng::RowRng;

/// Characters of an address; 64 of them, so six random bits make one. These are
/// the characters of TPC-H's variable strings (specification 4.2.2.7).
const ADDRESS_ALPHABET: &[u8; 64] =
    b"0123456789abcdefghijklmnopqrstuvwxyz,ABCDEFGHIJKLMNOPQRSTUVWXYZ ";

/// Addresses are 10 to 25 characters, as TPC-H's addresses cut to SSB's width.
const ADDRESS_LENGTH: (i32, i32) = (10, 25);

/// A row of `customer`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Customer {
    /// `c_custkey`, from 1.
    pub key: u32,
    /// `c_address`.
    pub address: String,
    /// City code, see [`names::city`]; nation and region follow from it.
    pub city: u8,
    /// `c_phone`.
    pub phone: String,
    /// Index into [`names::SEGMENTS`].
    pub segment: u8,
}

impl Customer {
    pub(super) fn draw(key: u32, rng: &mut RowRng) -> Self {
        let city = rng.code(names::CITIES);
        Self {
            key,
            address: draw_address(rng),
            city,
            phone: draw_phone(rng, names::nation_of(city)),
            segment: rng.code(names::SEGMENTS.len()),
        }
    }

    /// `c_name`.
    pub fn name(&self) -> String {
        format!("Customer#{:09}", self.key)
    }
}

/// A row of `supplier`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supplier {
    /// `s_suppkey`, from 1.
    pub key: u32,
    /// `s_address`.
    pub address: String,
    /// City code, see [`names::city`]; nation and region follow from it.
    pub city: u8,
    /// `s_phone`.
    pub phone: String,
}

impl Supplier {
    pub(super) fn draw(key: u32, rng: &mut RowRng) -> Self {
        let city = rng.code(names::CITIES);
        Self {
            key,
            address: draw_address(rng),
            city,
            phone: draw_phone(rng, names::nation_of(city)),
        }
    }

    /// `s_name`.
    pub fn name(&self) -> String {
        format!("Supplier#{:09}", self.key)
    }
}

/// A row of `part`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// `p_partkey`, from 1.
    pub key: u32,
    /// Two indexes into [`names::COLORS`], different from each other and from `color`.
    pub name_colors: [u8; 2],
    /// Index into [`names::COLORS`].
    pub color: u8,
    /// Brand code, see [`names::brand`]; category and manufacturer follow from it.
    pub brand: u16,
    /// Type code, see [`names::part_type`].
    pub part_type: u8,
    /// `p_size`, 1..=50.
    pub size: u8,
    /// Container code, see [`names::container`].
    pub container: u8,
}

impl Part {
    pub(super) fn draw(key: u32, rng: &mut RowRng) -> Self {
        let [color, first, second] = draw_colors(rng);
        Self {
            key,
            name_colors: [first, second],
            color,
            brand: rng.below(names::BRANDS.into()) as u16,
            part_type: rng.code(names::TYPES),
            size: rng.code(50) + 1,
            container: rng.code(names::CONTAINERS),
        }
    }

    /// `p_name`: two colours.
    pub fn name(&self) -> String {
        let [first, second] = self.name_colors.map(|code| names::COLORS[code as usize]);
        format!("{first} {second}")
    }

    /// The part's price in cents, a function of its key (TPC-H 4.2.3,
    /// P_RETAILPRICE): 900.00 to 2,098.99.
    pub fn price_cents(key: u32) -> i32 {
        let key = key as i32;
        90_000 + key / 10 % 20_001 + 100 * (key % 1_000)
    }
}

fn draw_address(rng: &mut RowRng) -> String {
    let length = rng.between(ADDRESS_LENGTH.0, ADDRESS_LENGTH.1) as usize;
    let mut address = String::with_capacity(length);
    while address.len() < length {
        let mut bits = rng.bits();
        for _ in 0..(length - address.len()).min(10) {
            address.push(ADDRESS_ALPHABET[(bits & 63) as usize].into());
            bits >>= 6;
        }
    }
    address
}

/// A phone number whose country code is the nation's code plus 10 (TPC-H 4.2.2.9).
fn draw_phone(rng: &mut RowRng, nation: u8) -> String {
    format!(
        "{}-{}-{}-{}",
        nation + 10,
        rng.between(100, 999),
        rng.between(100, 999),
        rng.between(1_000, 9_999)
    )
}

/// Three different colours.
fn draw_colors(rng: &mut RowRng) -> [u8; 3] {
    let mut colors = [0; 3];
    for at in 0..colors.len() {
        loop {
            colors[at] = rng.code(names::COLORS.len());
            if !colors[..at].contains(&colors[at]) {
                break;
            }
        }
    }
    colors
}
