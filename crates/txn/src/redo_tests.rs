//! Redo is charged for as long as it waits, and no longer.

use std::sync::Arc;

use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::{
    log_tests::{FakeLog, REDO_BUDGET, over},
    *,
};

/// A participant, without which a transaction has nothing to commit.
struct Nothing;

impl Participant for Nothing {
    fn finish(self: Box<Self>, _: Outcome) {}
}

fn taken(log: &FakeLog) -> usize {
    log.state.lock().redo_bytes
}

/// Adds redo in pieces until there is no memory for more, at most so many bytes.
fn add(transaction: &Transaction, mut bytes: usize, random: &mut StdRng) -> bool {
    transaction.enlist(Box::new(Nothing));
    while bytes > 0 {
        let piece = random.random_range(1..=bytes.min(300_000));
        if transaction.add_redo(vec![7; piece]).is_err() {
            return false;
        }
        bytes -= piece;
        if random.random_bool(0.5) {
            transaction.spill_redo().unwrap();
        }
    }
    true
}

#[test]
fn a_refused_statement_is_undone_and_others_go_on() {
    let log = Arc::new(FakeLog::default());
    let txns = over(&log);
    log.make_durable(100);
    let transaction = txns.begin();
    transaction.enlist(Box::new(Nothing));
    assert_eq!(taken(&log), 0, "nothing is taken before there is redo");
    transaction.add_redo(vec![1; 10]).unwrap();
    assert!((10..1_000).contains(&taken(&log)));
    let refused = transaction.add_redo(vec![1; REDO_BUDGET]).unwrap_err();
    assert_eq!(refused.limit, REDO_BUDGET as u64);
    // It is as it was.
    transaction.add_redo(vec![2; 10]).unwrap();
    transaction.commit().unwrap();
    let committed = log.state.lock().enqueued[0].2.clone();
    assert_eq!(committed, [[1; 10], [2; 10]].concat());
    assert_eq!(taken(&log), 0);
    let block = txns.begin_block(Isolation::ReadCommitted);
    let kept = block.statement();
    kept.enlist(Box::new(Nothing));
    kept.add_redo(vec![3; 10]).unwrap();
    kept.commit().unwrap();
    let failed = block.statement();
    assert!(failed.add_redo(vec![4; REDO_BUDGET + 1]).is_err());
    drop(failed);
    assert!(taken(&log) > 0, "the kept statement's redo waits");
    block.commit().unwrap();
    assert_eq!(log.state.lock().enqueued[1].2, [3; 10]);
    assert_eq!(taken(&log), 0);
}

#[test]
fn what_waits_is_paid_for_whoever_ends_how() {
    for seed in 0..30 {
        let mut random = StdRng::seed_from_u64(seed);
        let log = Arc::new(FakeLog::default());
        let txns = over(&log);
        log.make_durable(1_000);
        let mut refused = 0;
        let mut blocks: Vec<Block> = Vec::new();
        let mut alone: Vec<Transaction> = Vec::new();
        for _ in 0..100 {
            let bytes = 1 << random.random_range(0..22);
            match random.random_range(0..8) {
                0 => blocks.push(txns.begin_block(Isolation::ReadCommitted)),
                1 if !blocks.is_empty() => {
                    let block = blocks.swap_remove(random.random_range(0..blocks.len()));
                    if random.random() {
                        block.commit().unwrap();
                    }
                }
                2 if !alone.is_empty() => {
                    let transaction = alone.swap_remove(random.random_range(0..alone.len()));
                    if random.random() {
                        transaction.commit().unwrap();
                    }
                }
                3 | 4 => {
                    let transaction = txns.begin();
                    if add(&transaction, bytes, &mut random) {
                        alone.push(transaction);
                    } else {
                        refused += 1;
                    }
                }
                _ if !blocks.is_empty() => {
                    let block = &blocks[random.random_range(0..blocks.len())];
                    let savepoint = block.savepoint();
                    let statement = block.statement();
                    if add(&statement, bytes, &mut random) {
                        statement.commit().unwrap();
                    } else {
                        refused += 1;
                    }
                    if random.random_bool(0.2) {
                        block.rollback_to(savepoint);
                    }
                }
                _ => {}
            }
            assert!(taken(&log) <= REDO_BUDGET);
            if blocks.is_empty() && alone.is_empty() {
                assert_eq!(taken(&log), 0, "seed {seed}");
            }
        }
        drop((blocks, alone));
        assert_eq!(taken(&log), 0, "seed {seed}, {refused} refused");
    }
}
