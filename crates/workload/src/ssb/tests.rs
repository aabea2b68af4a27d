//! Properties of the generated data: cardinalities, domains, distributions, and
//! independence from chunking.

use super::*;

fn ssb(scale: f64, seed: u64) -> Ssb {
    Ssb::new(Scale::new(scale).unwrap(), seed)
}

fn all_lines(ssb: &Ssb) -> LineorderChunk {
    ssb.lineorder(0..ssb.orders())
}

fn table_text(ssb: &Ssb, table: Table, format: Format) -> String {
    let mut out = Vec::new();
    let rows: u64 = (0..ssb.chunks(table))
        .map(|chunk| ssb.copy_chunk(table, chunk, format, &mut out))
        .sum();
    assert_eq!(rows, ssb.rows(table));
    String::from_utf8(out).unwrap()
}

#[test]
fn cardinalities_follow_the_scale() {
    let rows = |scale| Table::ALL.map(|table| ssb(scale, 1).rows(table));
    assert_eq!(rows(0.01), [2_556, 300, 20, 2_000, 60_000]);
    assert_eq!(rows(1.0), [2_556, 30_000, 2_000, 200_000, 6_000_000]);
    assert_eq!(rows(3.0)[3], 400_000);
    assert_eq!(rows(4.0)[3], 600_000);
    assert_eq!(rows(10.0)[4], 60_000_000);
}

#[test]
fn every_table_renders_exactly_its_rows_and_columns() {
    let ssb = ssb(0.01, 1);
    for table in Table::ALL {
        let text = table_text(&ssb, table, Format::Text);
        assert_eq!(text.lines().count() as u64, ssb.rows(table));
        let columns = ddl::columns(table);
        for line in text.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            assert_eq!(fields.len(), columns.len(), "{line}");
            for (field, (name, kind)) in fields.iter().zip(columns) {
                check_type(field, name, kind);
            }
        }
    }
}

fn check_type(field: &str, name: &str, kind: &str) {
    match kind.split_once('(') {
        None => assert!(field.parse::<i32>().is_ok(), "{name}: {field}"),
        Some((_, width)) => {
            let width: usize = width.trim_end_matches(')').parse().unwrap();
            assert!(!field.is_empty() && field.len() <= width, "{name}: {field}");
        }
    }
}

#[test]
fn lines_per_order_are_balanced_and_uniform() {
    // 15,000 is no multiple of seven, so the last, shorter block is covered.
    for orders in [1, 2, 3, 5, 6, 7, 8, 15_000] {
        let ssb = Ssb::with_counts(3, [10, 10, 10], orders);
        let lines = all_lines(&ssb);
        assert_eq!(lines.len() as u64, 4 * orders);
    }
    let lines = all_lines(&ssb(0.01, 3));
    let mut orders_with = [0; 8];
    for (at, &number) in lines.linenumber.iter().enumerate() {
        let last = lines.linenumber.get(at + 1).is_none_or(|&next| next == 1);
        if last {
            orders_with[number as usize] += 1;
        }
    }
    assert_eq!(orders_with[0], 0);
    // 15,000 orders in 2,142 full blocks and one of six.
    for count in &orders_with[1..] {
        assert!((2_142..=2_143).contains(count), "{orders_with:?}");
    }
}

#[test]
fn keys_are_unique_sparse_and_ascending() {
    let lines = all_lines(&ssb(0.01, 1));
    let keys: Vec<(i32, i32)> = lines
        .orderkey
        .iter()
        .copied()
        .zip(lines.linenumber.iter().copied())
        .collect();
    assert!(keys.is_sorted_by(|left, right| left < right));
    assert!(lines.orderkey.iter().all(|key| key % 32 < 8));
    assert_eq!(*lines.orderkey.last().unwrap(), 60_000);
    // The largest scale's keys still fit.
    let largest = ssb(Scale::MAX, 1);
    let last = largest.lineorder(largest.orders() - 1..largest.orders());
    assert_eq!(last.orderkey[0], 1_800_000_000);
}

#[test]
fn foreign_keys_find_their_rows_and_values_stay_in_their_domains() {
    let ssb = ssb(0.01, 2);
    let lines = all_lines(&ssb);
    let in_table = |keys: &[i32], table| {
        let rows = ssb.rows(table) as i32;
        keys.iter().all(|key| (1..=rows).contains(key))
    };
    assert!(in_table(&lines.custkey, Table::Customer));
    assert!(in_table(&lines.suppkey, Table::Supplier));
    assert!(in_table(&lines.partkey, Table::Part));
    assert!(lines.custkey.iter().all(|key| key % 3 != 0));
    let day_of = |key: &i32| calendar::DATEKEYS.binary_search(key).unwrap();
    for at in 0..lines.len() {
        let ordered = day_of(&lines.orderdate[at]);
        let committed = day_of(&lines.commitdate[at]);
        assert!(ordered < calendar::ORDER_DAYS && (30..=90).contains(&(committed - ordered)));
        let price = Part::price_cents(lines.partkey[at] as u32);
        assert_eq!(lines.extendedprice[at], price * lines.quantity[at]);
        assert_eq!(
            lines.revenue[at],
            lines.extendedprice[at] * (100 - lines.discount[at]) / 100
        );
        assert_eq!(lines.supplycost[at], price * 6 / 10);
    }
    for (values, low, high) in [
        (&lines.quantity, 1, 50),
        (&lines.discount, 0, 10),
        (&lines.tax, 0, 8),
        (&lines.linenumber, 1, 7),
    ] {
        assert_eq!(values.iter().min(), Some(&low));
        assert_eq!(values.iter().max(), Some(&high));
    }
}

#[test]
fn an_orders_lines_share_their_head_and_add_up() {
    let lines = all_lines(&ssb(0.001, 2));
    let mut start = 0;
    while start < lines.len() {
        let end = (start..lines.len())
            .find(|&at| lines.orderkey[at] != lines.orderkey[start])
            .unwrap_or(lines.len());
        let total: i64 = (start..end)
            .map(|at| i64::from(lines.revenue[at]) * i64::from(100 + lines.tax[at]) / 100)
            .sum();
        for at in start..end {
            assert_eq!(i64::from(lines.ordtotalprice[at]), total);
            assert_eq!(lines.custkey[at], lines.custkey[start]);
            assert_eq!(lines.orderdate[at], lines.orderdate[start]);
            assert_eq!(lines.orderpriority[at], lines.orderpriority[start]);
        }
        start = end;
    }
}

/// Chi square of `counts` against equal expectations.
fn chi_square(counts: &[u32]) -> f64 {
    let total: u32 = counts.iter().sum();
    let expected = f64::from(total) / counts.len() as f64;
    counts
        .iter()
        .map(|&count| (f64::from(count) - expected).powi(2) / expected)
        .sum()
}

fn histogram(cells: usize, values: impl Iterator<Item = usize>) -> Vec<u32> {
    let mut counts = vec![0; cells];
    for value in values {
        counts[value] += 1;
    }
    counts
}

#[test]
fn draws_are_uniform() {
    let ssb = ssb(0.05, 4);
    let lines = all_lines(&ssb);
    // Per line, then the 99.99 % point of chi square for each number of cells.
    let quantity = histogram(50, lines.quantity.iter().map(|&q| q as usize - 1));
    assert!(chi_square(&quantity) < 94.9);
    let discount = histogram(11, lines.discount.iter().map(|&d| d as usize));
    assert!(chi_square(&discount) < 35.6);
    let suppkey = histogram(100, lines.suppkey.iter().map(|&s| s as usize - 1));
    assert!(chi_square(&suppkey) < 160.1);
    let shipmode = histogram(7, lines.shipmode.iter().map(|&m| m as usize));
    assert!(chi_square(&shipmode) < 27.9);
    let regions = |cities: Vec<u8>| {
        let codes = cities.into_iter().map(names::nation_of);
        histogram(5, codes.map(|n| names::region_of(n) as usize))
    };
    let customers = ssb.customers(ssb.keys(Table::Customer));
    assert!(chi_square(&regions(customers.map(|row| row.city).collect())) < 23.5);
    let parts = ssb.parts(ssb.keys(Table::Part));
    let categories = histogram(25, parts.map(|part| part.brand as usize / 40));
    assert!(chi_square(&categories) < 60.0);
}

#[test]
fn rows_do_not_depend_on_chunking() {
    let ssb = ssb(0.01, 5);
    let whole = all_lines(&ssb);
    // Cuts that fall inside blocks of seven, in descending order.
    let cuts = [15_000, 14_999, 10_003, 9_001, 8, 6, 0];
    let mut pieces: Vec<LineorderChunk> = cuts
        .windows(2)
        .map(|cut| ssb.lineorder(cut[1]..cut[0]))
        .collect();
    pieces.reverse();
    let join = |column: fn(&LineorderChunk) -> Vec<i32>| -> Vec<i32> {
        pieces.iter().flat_map(column).collect()
    };
    assert_eq!(join(|c| c.orderkey.clone()), whole.orderkey);
    assert_eq!(join(|c| c.revenue.clone()), whole.revenue);
    assert_eq!(join(|c| c.ordtotalprice.clone()), whole.ordtotalprice);
    assert_eq!(join(|c| c.commitdate.clone()), whole.commitdate);

    let customers: Vec<Customer> = ssb.customers(1..301).collect();
    assert_eq!(
        customers[200..210],
        ssb.customers(201..211).collect::<Vec<_>>()
    );
}

#[test]
fn the_seed_decides_everything_but_the_calendar() {
    for table in Table::ALL {
        let text = |seed| table_text(&ssb(0.001, seed), table, Format::Csv);
        assert_eq!(text(1), text(1));
        assert_eq!(text(1) == text(2), table == Table::Dates);
    }
}

#[test]
fn chunks_past_the_end_are_empty() {
    let ssb = ssb(0.01, 1);
    for table in Table::ALL {
        let mut out = Vec::new();
        let past = ssb.chunks(table);
        assert_eq!(ssb.copy_chunk(table, past, Format::Text, &mut out), 0);
        assert!(out.is_empty());
    }
    assert!(ssb.lineorder(15_000..16_000).is_empty());
}

#[test]
fn dimension_rows_read_as_specified() {
    let ssb = ssb(0.01, 1);
    for customer in ssb.customers(ssb.keys(Table::Customer)) {
        let nation = names::nation_of(customer.city);
        assert!(customer.phone.starts_with(&format!("{}-", nation + 10)));
        assert_eq!(customer.phone.len(), 15);
        assert!((10..=25).contains(&customer.address.len()));
        assert_eq!(customer.name(), format!("Customer#{:09}", customer.key));
    }
    for part in ssb.parts(ssb.keys(Table::Part)) {
        let [first, second] = part.name_colors;
        assert!(first != second && first != part.color && second != part.color);
        assert!((1..=50).contains(&part.size) && part.name().len() <= 22);
    }
    assert_eq!(Part::price_cents(1), 90_100);
    assert_eq!(Part::price_cents(200_000), 110_000);
}
