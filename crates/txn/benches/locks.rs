//! What locks on relations cost. Run with `cargo bench -p aerostat-txn --bench locks`.
//! Prints one line per measurement: wall-clock time per statement.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark"
)]

use std::{sync::Arc, thread, time::Instant};

use aerostat_txn::{LockMode, LockTag, TxnManager};

const STATEMENTS: u32 = 1_000_000;

fn main() {
    let txns = TxnManager::new();
    per_statement("snapshot alone", 1, |_| drop(txns.snapshot()));
    let read = |tags: u64| {
        let locks = txns.relation_locks();
        for tag in 0..tags {
            assert!(locks.try_acquire(LockTag(tag), LockMode::AccessShare));
        }
        drop(txns.snapshot());
    };
    per_statement("snapshot and 1 weak lock", 1, |_| read(1));
    per_statement("snapshot and 4 weak locks", 1, |_| read(4));
    per_statement(
        "snapshot and 1 weak lock, 2 threads on one relation",
        2,
        |_| read(1),
    );
    per_statement("transaction, 1 weak lock", 1, |_| {
        let locks = txns.relation_locks();
        assert!(locks.try_acquire(LockTag(1), LockMode::RowExclusive));
        txns.begin_with(locks).commit().unwrap();
    });
    per_statement("1 strong lock", 1, |_| {
        let locks = txns.relation_locks();
        assert!(locks.try_acquire(LockTag(1), LockMode::AccessExclusive));
    });
    let strong = txns.relation_locks();
    assert!(strong.try_acquire(LockTag(0), LockMode::ShareUpdateExclusive));
    per_statement("snapshot and 1 weak lock beside a strong one", 1, |_| {
        read(1)
    });
    let owners: Vec<Arc<_>> = (0..1_000).map(|_| txns.relation_locks()).collect();
    for owner in &owners {
        assert!(owner.try_acquire(LockTag(7), LockMode::AccessShare));
    }
    per_statement(
        "1 strong lock of another relation, 1,000 weak ones about",
        1,
        |_| {
            let locks = txns.relation_locks();
            assert!(locks.try_acquire(LockTag(8), LockMode::AccessExclusive));
        },
    );
}

fn per_statement(what: &str, threads: u32, statement: impl Fn(u32) + Sync) {
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..STATEMENTS).for_each(&statement));
        }
    });
    let nanos = started.elapsed().as_nanos() / u128::from(STATEMENTS);
    println!("{what}: {nanos} ns");
}
