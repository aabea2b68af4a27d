//! Segments that are mostly garbage.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use rand::{SeedableRng, rngs::StdRng};

use super::{
    threads::{ACCOUNTS, BALANCE, account, transfer},
    *,
};

/// Money is moved while large segments are vacuumed and frozen: every snapshot has all of it,
/// an old one what it had.
#[test]
fn large_segments_are_vacuumed_beside_their_writers() {
    const TRANSFERS: usize = 3_000;
    // With these a segment is far larger than what is rewritten while writers wait.
    const OTHERS: i32 = 2_000;
    let store = tenant("1GB", ArenaSizes::of(&[512 << 10, 2 << 20]));
    let table = table(&store, "(k,s),(n)");
    let mut random = StdRng::seed_from_u64(3);
    let accounts: Vec<Row> = (0..ACCOUNTS)
        .map(|key| account(key, BALANCE, &mut random))
        .collect();
    load(&table, &accounts);
    let others = (0..OTHERS).map(|at| account(ACCOUNTS + at, 0, &mut random));
    load(&table, &others.collect::<Vec<_>>());
    let stop = AtomicBool::new(false);
    let has_all = |rows: &[Row]| {
        assert_eq!(rows.len(), (ACCOUNTS + OTHERS) as usize);
        let sum: i64 = rows.iter().map(|row| row.1).sum();
        assert_eq!(sum, BALANCE * i64::from(ACCOUNTS));
    };
    let (freed, frozen) = thread::scope(|scope| {
        let vacuum = scope.spawn(|| {
            let mut freed = 0;
            while !stop.load(Ordering::Acquire) {
                freed += table.vacuum().unwrap();
                thread::yield_now();
            }
            freed
        });
        let freezer = scope.spawn(|| {
            let mut made = 0;
            while !stop.load(Ordering::Acquire) {
                made += table.freeze().unwrap().segments_made;
                thread::sleep(std::time::Duration::from_millis(20));
            }
            made
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                let held = table.store().txns().snapshot();
                let rows_seen = || -> Vec<Row> {
                    let view = table.view(held.clone());
                    scan(&view, Vec::new())
                        .into_values()
                        .map(|found| found.0)
                        .collect()
                };
                let first = rows_seen();
                has_all(&first);
                thread::sleep(std::time::Duration::from_millis(5));
                assert_eq!(rows_seen(), first);
            }
        });
        let writers: Vec<_> = (0..3)
            .map(|seed| {
                let table = &table;
                scope.spawn(move || {
                    let mut random = StdRng::seed_from_u64(seed);
                    for _ in 0..TRANSFERS {
                        transfer(table, &mut random);
                    }
                })
            })
            .collect();
        let finished: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::Release);
        finished.into_iter().for_each(|writer| writer.unwrap());
        (vacuum.join().unwrap(), freezer.join().unwrap())
    });
    assert!(freed > 0 && frozen > 0, "{freed} bytes, {frozen} segments");
    has_all(&now(&table));
    table.vacuum().unwrap();
    table.freeze().unwrap();
    let stats = table.statistics();
    assert_eq!(
        (stats.rows, stats.rows_dead),
        ((ACCOUNTS + OTHERS) as u64, 0)
    );
    assert_eq!(store.budget().used(), stats.bytes_used);
    has_all(&now(&table));
}

/// A frozen segment that is mostly garbage is rewritten as any other, to a hot one.
#[test]
fn a_vacuum_gives_back_a_frozen_segments_garbage() {
    let store = tenant("64MB", ArenaSizes::default());
    let table = table(&store, "column");
    // Texts that are all different.
    let rows: Vec<Row> = (0..2_000)
        .map(|key| (key, 0, Some(format!("{key:0500}"))))
        .collect();
    load(&table, &rows);
    table.freeze().unwrap();
    let full = store.budget().used();
    let txn = store.txns().begin();
    let view = table.view(txn.snapshot().clone());
    let ids: Vec<RowId> = scan(&view, vec![compare(0, CompareOp::Ge, 10)])
        .into_values()
        .map(|(_, id)| id)
        .collect();
    assert_eq!(view.delete(&txn, &ids).unwrap(), 1_990);
    drop(view);
    txn.commit().unwrap();
    assert_eq!(table.statistics().rows_dead, 1_990);
    assert!(table.vacuum().unwrap() > full / 2);
    assert!(store.budget().used() < full / 10);
    assert_eq!(
        (now(&table), table.statistics().segments_frozen),
        (rows[..10].to_vec(), 0)
    );
}
