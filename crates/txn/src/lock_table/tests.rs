//! Holders and queues, checked against their invariants.

use std::{sync::Arc, time::UNIX_EPOCH};

use aerostat_types::TxnId;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use super::{LockMode, LockTable, LockTag};
use crate::signal::Signal;

const T: LockTag = LockTag(16_384);

/// What is true of a table of locks at any time, by what was asked of it.
#[test]
fn a_table_serves_everybody_whom_nobody_is_in_the_way_of() {
    for seed in 0..300 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut table = LockTable::default();
        let mut held: Vec<(TxnId, LockMode)> = Vec::new();
        let mut queue: Vec<(TxnId, LockMode, Arc<Signal>)> = Vec::new();
        for _ in 0..120 {
            let owner = TxnId(random.random_range(1..6));
            let mode = *LockMode::ALL.choose(&mut random).unwrap();
            let waits = queue.iter().any(|(waiter, ..)| *waiter == owner);
            match random.random_range(0..4) {
                0 | 1 if !waits && !held.contains(&(owner, mode)) => {
                    if table.blockers(T, owner, mode).is_empty() {
                        table.hold(T, owner, mode);
                        held.push((owner, mode));
                    } else {
                        queue.push((owner, mode, table.enqueue(T, owner, mode, UNIX_EPOCH)));
                    }
                }
                2 if !held.is_empty() => {
                    let (owner, mode) = held.swap_remove(random.random_range(0..held.len()));
                    table.release(T, owner, mode);
                }
                3 if !queue.is_empty() => {
                    let (owner, mode, signal) =
                        queue.swap_remove(random.random_range(0..queue.len()));
                    table.give_up(T, owner, mode, &signal);
                }
                _ => {}
            }
            queue.retain(|(owner, mode, _)| {
                let served = table.holds(T, *owner, *mode);
                if served {
                    held.push((*owner, *mode));
                }
                !served
            });
            assert_eq!(table.waiting(), queue.len(), "seed {seed}");
            for (a, mode) in &held {
                assert!(table.holds(T, *a, *mode), "seed {seed}");
                let excluded =
                    |(b, other): &(TxnId, LockMode)| a != b && mode.conflicts_with(*other);
                assert!(!held.iter().any(excluded), "seed {seed}");
            }
            for (owner, ..) in &queue {
                assert!(
                    !table.blockers_of(*owner).is_empty(),
                    "seed {seed}: {owner:?} sleeps"
                );
            }
            assert_eq!(
                table.is_empty(),
                held.is_empty() && queue.is_empty(),
                "seed {seed}"
            );
        }
    }
}
