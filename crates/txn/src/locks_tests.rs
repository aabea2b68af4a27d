//! Lock sets and locked keys: which locks conflict, and what is left when holders end.

use std::collections::BTreeMap;

use aerostat_types::{TableId, TxnId};
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::*;

const TABLE: TableId = TableId(7);

/// Asserts that nothing is remembered.
fn assert_empty(txns: &TxnManager) {
    assert_eq!(txns.row_locks().sizes(), [0; 5]);
}

fn set(joined: Result<Joined, TooManyLocks>) -> LockSetId {
    match joined {
        Ok(Joined::Set(set)) => set,
        other => panic!("{other:?}"),
    }
}

/// PostgreSQL's table of row-level lock conflicts (13.3.2).
#[test]
fn modes_conflict_as_in_postgresql() {
    const TABLE: [[bool; 4]; 4] = [
        [false, false, false, true],
        [false, false, true, true],
        [false, true, true, true],
        [true, true, true, true],
    ];
    for (held, row) in RowLock::ALL.into_iter().zip(TABLE) {
        for (wanted, conflicts) in RowLock::ALL.into_iter().zip(row) {
            assert_eq!(
                held.conflicts_with(wanted),
                conflicts,
                "{held:?} {wanted:?}"
            );
            let txns = TxnManager::new();
            let (one, two) = (txns.begin(), txns.begin());
            let locks = txns.row_locks();
            let first = set(locks.join(&one, None, held));
            let second = locks.join(&two, Some(first), wanted).unwrap();
            assert_eq!(second == Joined::Held(one.id()), conflicts);
            assert_eq!(locks.holder(&two, first, wanted).is_some(), conflicts);
            drop(one);
            set(locks.join(&two, Some(first), wanted));
            drop(two);
            assert_empty(&txns);
        }
    }
}

#[test]
fn rows_with_the_same_holders_share_a_set() {
    let txns = TxnManager::new();
    let (one, two) = (txns.begin(), txns.begin());
    let locks = txns.row_locks();
    let alone = set(locks.join(&one, None, RowLock::Share));
    for _ in 0..1_000 {
        assert_eq!(
            locks.join(&one, None, RowLock::Share),
            Ok(Joined::Set(alone))
        );
    }
    let both = set(locks.join(&two, Some(alone), RowLock::KeyShare));
    assert_eq!(
        locks.join(&two, Some(alone), RowLock::KeyShare),
        Ok(Joined::Set(both))
    );
    assert_eq!(
        locks.join(&one, Some(both), RowLock::KeyShare),
        Ok(Joined::Already),
        "it has a stronger one"
    );
    let stronger = set(locks.join(&one, Some(both), RowLock::NoKeyUpdate));
    assert_eq!(locks.holder(&two, stronger, RowLock::Share), Some(one.id()));
    drop(one);
    assert_eq!(locks.holder(&two, stronger, RowLock::Update), None);
    assert!(locks.is_held(stronger) && locks.is_held(both) && !locks.is_held(alone));
    drop(two);
    assert_empty(&txns);
}

#[test]
fn a_savepoint_gives_back_what_was_locked_since() {
    let txns = TxnManager::new();
    let block = txns.begin_block(Isolation::ReadCommitted);
    let other = txns.begin();
    let locks = txns.row_locks();
    let lock = |standing, mode| {
        let statement = block.statement();
        let joined = locks.join(&statement, standing, mode);
        statement.commit().unwrap();
        joined
    };
    let first = set(lock(None, RowLock::Share));
    let savepoint = block.savepoint();
    let second = set(lock(Some(first), RowLock::Update));
    assert!(locks.holder(&other, second, RowLock::KeyShare).is_some());
    assert_eq!(lock(Some(second), RowLock::Update), Ok(Joined::Already));
    block.rollback_to(savepoint);
    assert_eq!(locks.holder(&other, second, RowLock::KeyShare), None);
    assert!(
        locks.holder(&other, second, RowLock::Update).is_some(),
        "the lock before the savepoint stands"
    );
    assert!(!block.has_written());
    block.commit().unwrap();
    assert_eq!(txns.last_commit().0, 0, "locks alone take no place");
    drop(other);
    assert_empty(&txns);
    assert_eq!(txns.unsettled(), 0);
}

#[test]
fn a_locked_key_is_in_the_way_of_others_only() {
    let txns = TxnManager::new();
    let (one, two, three) = (txns.begin(), txns.begin(), txns.begin());
    let locks = txns.row_locks();
    assert_eq!(
        locks.share_key::<TooManyLocks>(&one, TABLE, b"k", || Ok(Some(two.id()))),
        Ok(Some(two.id())),
        "somebody takes the key away"
    );
    assert!(!locks.hold_keys().has_any(TABLE));
    for _ in 0..2 {
        assert_eq!(
            locks.share_key::<TooManyLocks>(&one, TABLE, b"k", || Ok(None)),
            Ok(None)
        );
    }
    // The other's lock is moved from a version to its key.
    let shared = set(locks.join(&two, None, RowLock::KeyShare));
    locks.move_to_key(&three, shared, TABLE, b"k").unwrap();
    {
        let keys = locks.hold_keys();
        assert_eq!(keys.holder(&one, TABLE, b"k"), Some(two.id()));
        assert_eq!(keys.holder(&two, TABLE, b"k"), Some(one.id()));
        assert_eq!(keys.holder(&one, TABLE, b"l"), None);
        assert_eq!(keys.holder(&one, TableId(8), b"k"), None);
    }
    drop(two);
    assert_eq!(locks.hold_keys().holder(&one, TABLE, b"k"), None);
    assert!(locks.hold_keys().holder(&three, TABLE, b"k").is_some());
    drop((one, three));
    assert_empty(&txns);
}

#[test]
fn holders_are_bounded() {
    let txns = TxnManager::new();
    let locks = txns.row_locks();
    let one = txns.begin();
    let mut taken = 0_u64;
    let refused = loop {
        let answer =
            locks.share_key::<TooManyLocks>(&one, TABLE, &taken.to_be_bytes(), || Ok(None));
        if let Err(error) = answer {
            break error;
        }
        taken += 1;
    };
    assert_eq!((taken, refused), (1 << 18, TooManyLocks));
    assert_eq!(locks.join(&one, None, RowLock::Share), Err(TooManyLocks));
    drop(one);
    assert_empty(&txns);
}

/// Against a model that keeps the holders of every row.
#[test]
fn sets_are_what_a_list_of_holders_per_row_is() {
    for seed in 0..200 {
        let mut random = StdRng::seed_from_u64(seed);
        let txns = TxnManager::new();
        let locks = txns.row_locks();
        let mut open: Vec<Transaction> = Vec::new();
        let mut stamps: [Option<LockSetId>; 4] = [None; 4];
        let mut model: [BTreeMap<TxnId, RowLock>; 4] = Default::default();
        for _ in 0..200 {
            if open.len() < 3 || open.len() < 6 && random.random_bool(0.2) {
                open.push(txns.begin());
            }
            let at = random.random_range(0..open.len());
            if random.random_bool(0.1) {
                let ended = open.swap_remove(at);
                for holders in &mut model {
                    holders.remove(&ended.id());
                }
                continue;
            }
            let txn = &open[at];
            let row = random.random_range(0..stamps.len());
            let mode = RowLock::ALL[random.random_range(0..4)];
            let blockers: Vec<TxnId> = model[row]
                .iter()
                .filter(|(id, held)| **id != txn.id() && held.conflicts_with(mode))
                .map(|(id, _)| *id)
                .collect();
            let own = model[row].get(&txn.id()).copied();
            match locks.join(txn, stamps[row], mode).unwrap() {
                Joined::Held(by) => assert!(blockers.contains(&by), "seed {seed}"),
                Joined::Already => assert!(own >= Some(mode), "seed {seed}"),
                Joined::Set(set) => {
                    assert!(blockers.is_empty() && own < Some(mode), "seed {seed}");
                    stamps[row] = Some(set);
                    model[row].insert(txn.id(), mode);
                }
            }
            let is_held = |stamp: &Option<LockSetId>| stamp.is_some_and(|set| locks.is_held(set));
            for (stamp, holders) in stamps.iter().zip(&model) {
                assert_eq!(is_held(stamp), !holders.is_empty(), "seed {seed}");
            }
        }
        open.clear();
        assert_empty(&txns);
    }
}
