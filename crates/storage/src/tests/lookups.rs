//! Scans with lookups: hot and frozen rows, snapshots, layouts, threads.

use std::thread;

use aerostat_txn::Isolation;

use super::*;

fn row(key: i32) -> Row {
    (key, i64::from(key) * 3 % 101, Some(format!("t{}", key % 4)))
}

/// What a scan's rows give: key, and the sum of what the lookups say.
fn looked_up(view: &TableView, spec: ScanSpec) -> BTreeMap<i32, u64> {
    let scan = view.scan(spec).unwrap();
    let mut found = BTreeMap::new();
    let mut reader = scan.reader();
    while let Some(parts) = reader.next_rows().unwrap() {
        for rows in parts {
            let keys = rows.gather(0);
            let keys = keys.as_primitive::<Int32Type>();
            assert_eq!((keys.len(), rows.is_empty()), (rows.len(), false));
            let mut sums = vec![0; rows.len()];
            for (lookup, scale) in (0..scan.spec().lookups.len()).zip([1, 1000]) {
                rows.add_codes(lookup, scale, &mut sums);
            }
            for (key, sum) in keys.values().iter().zip(sums) {
                assert_eq!(found.insert(*key, sum), None, "key {key} twice");
            }
        }
    }
    let counts = scan.counts();
    for (asked, kept) in counts.lookups {
        assert!(kept <= asked && asked <= counts.rows_scanned);
    }
    found
}

/// Even keys below 600 with code key / 2, and the numbers 5..=50 with codes of their own.
fn spec(predicates: Vec<Predicate>) -> ScanSpec {
    let keys: Vec<i64> = (0..300).map(|at| at * 2).collect();
    let codes: Vec<u32> = (0..300).collect();
    let numbers: Vec<i64> = (5..=50).collect();
    let of_numbers: Vec<u32> = (0..46).rev().collect();
    let lookup = |attribute, keys: &[i64], codes: &[u32]| Lookup {
        attribute,
        table: Arc::new(LookupTable::new(keys, Some(codes)).unwrap()),
    };
    ScanSpec {
        projection: vec![0],
        predicates,
        lookups: vec![lookup(0, &keys, &codes), lookup(1, &numbers, &of_numbers)],
        ..ScanSpec::default()
    }
}

fn expected(rows: &[Row]) -> BTreeMap<i32, u64> {
    let sum = |row: &Row| {
        let by_key =
            (row.0 % 2 == 0 && (0..600).contains(&row.0)).then_some(i64::from(row.0) / 2)?;
        let by_number = (5..=50).contains(&row.1).then_some(50 - row.1)?;
        Some((row.0, (by_key + 1000 * by_number) as u64))
    };
    rows.iter().filter_map(sum).collect()
}

#[test]
fn rows_are_found_hot_and_frozen_in_every_layout() {
    for layout in ["column", "row", "(k,s),(n)"] {
        let table = table(&tenant("1GB", ArenaSizes::of(&TINY)), layout);
        let mut rows: Vec<Row> = (-50..900).map(row).collect();
        load(&table, &rows[..500]);
        for _ in 0..2 {
            let before = now(&table);
            let view = table.view(table.store().txns().snapshot());
            assert_eq!(looked_up(&view, spec(Vec::new())), expected(&before));
            let narrowed = spec(vec![compare(1, CompareOp::Ge, 20)]);
            let left: Vec<Row> = before.iter().filter(|row| row.1 >= 20).cloned().collect();
            assert_eq!(looked_up(&view, narrowed), expected(&left));
            table.freeze().unwrap();
            assert_eq!(looked_up(&view, spec(Vec::new())), expected(&before));
            // The rest comes in front of what is frozen, where the old view does not look.
            if before.len() == 500 {
                load(&table, &rows[500..]);
                assert_eq!(looked_up(&view, spec(Vec::new())), expected(&before));
            }
        }
        rows.sort();
        assert_eq!(now(&table), rows);
        let view = table.view(table.store().txns().snapshot());
        let point = spec(vec![compare(0, CompareOp::Eq, 10)]);
        assert_eq!(looked_up(&view, point), expected(&[row(10)]));
    }
}

#[test]
fn own_changes_are_seen_and_those_of_others_not() {
    let table = tiny_table();
    load(&table, &(0..400).map(row).collect::<Vec<_>>());
    table.freeze().unwrap();
    let other = table.view(table.store().txns().snapshot());
    let before = expected(&now(&table));
    let block = table.store().txns().begin_block(Isolation::ReadCommitted);
    let txn = block.statement();
    let view = table.view(txn.snapshot().clone());
    let id = view.lookup(KeyRef(&key(&table, 2))).unwrap().unwrap();
    let changed = (2, 50, None);
    view.update(&txn, &[id], &batch(&table, std::slice::from_ref(&changed)))
        .unwrap();
    txn.commit().unwrap();
    let own = table.view(block.snapshot());
    let mut rows: Vec<Row> = (0..400).map(row).collect();
    rows[2] = changed;
    assert_eq!(looked_up(&own, spec(Vec::new())), expected(&rows));
    assert_eq!(looked_up(&other, spec(Vec::new())), before);
}

#[test]
fn threads_share_the_rows_and_batches_have_the_same() {
    let table = table(&tenant("1GB", ArenaSizes::default()), "column");
    let rows: Vec<Row> = (0..60_000)
        .map(|at| row(at % 600 + at / 600 * 1000))
        .collect();
    load(&table, &rows);
    table.freeze().unwrap();
    let view = table.view(table.store().txns().snapshot());
    // By their numbers, which are all over the table.
    let spec = ScanSpec {
        lookups: spec(Vec::new()).lookups.split_off(1),
        ..spec(Vec::new())
    };
    let left = rows.iter().filter(|row| (5..=50).contains(&row.1));
    let mut all: Vec<i32> = left.map(|row| row.0).collect();
    all.sort_unstable();
    // With small morsels several are claimed at once.
    for batch_rows in [0, 64] {
        let spec = ScanSpec {
            batch_rows,
            ..spec.clone()
        };
        let scan = view.scan(spec.clone()).unwrap();
        let part = || {
            let (mut keys, mut reader) = (Vec::new(), scan.reader());
            while let Some(parts) = reader.next_rows().unwrap() {
                for rows in parts {
                    keys.extend_from_slice(rows.gather(0).as_primitive::<Int32Type>().values());
                }
            }
            keys
        };
        let mut keys = thread::scope(|scope| {
            let other = scope.spawn(part);
            let mut keys = part();
            keys.extend(other.join().unwrap());
            keys
        });
        keys.sort_unstable();
        assert!(keys == all, "{} keys", keys.len());
        let counts = scan.counts();
        assert_eq!(counts.rows_scanned, 60_000);
        assert_eq!(counts.lookups, [(60_000, all.len() as u64)]);
        let mut reader = view.scan(spec).unwrap().reader();
        let batches = std::iter::from_fn(|| reader.next_batch().unwrap());
        let rows = batches.map(|batch| batch.num_rows()).sum::<usize>();
        assert_eq!(rows, all.len());
    }
}
