//! The checker beside a search through every schedule: of small histories in which all lists are
//! read at the end, it finds nothing if and only if there is a schedule that explains them.

use std::collections::HashMap;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg32;

use crate::{History, Isolation, Model, Operation, Outcome, Transaction, check};

const KEYS: u64 = 2;

/// Transactions with reads that are beginnings of one order of each list, and one that reads all.
fn small(seed: u64) -> History {
    let mut dice = Pcg32::seed_from_u64(seed);
    let mut value = 0;
    let count = dice.random_range(2..5_usize);
    let mut appends: Vec<Vec<u64>> = vec![Vec::new(); KEYS as usize];
    let mut plans: Vec<Vec<(u64, Option<u64>)>> = Vec::new();
    for _ in 0..count {
        let mut plan = Vec::new();
        for _ in 0..dice.random_range(1..4) {
            let key = dice.random_range(0..KEYS);
            let append = dice.random_range(0..2) == 0;
            value += u64::from(append);
            plan.push((key, append.then_some(value)));
            if append {
                // Mostly behind what came before it, so that much can be explained.
                let list = &mut appends[key as usize];
                let place =
                    list.len() - usize::from(!list.is_empty() && dice.random_range(0..4) == 0);
                list.insert(place, value);
            }
        }
        plans.push(plan);
    }
    let mut transactions: Vec<Transaction> = plans
        .iter()
        .map(|plan| {
            let invoked_ns = dice.random_range(0..60);
            let mut own: HashMap<u64, usize> = HashMap::new();
            let mut read_before: HashMap<u64, usize> = HashMap::new();
            let operations = plan.iter().map(|&(key, append)| {
                if let Some(value) = append {
                    *own.entry(key).or_default() += 1;
                    return Operation::Append { key, value };
                }
                let order = &appends[key as usize];
                let mut length = dice.random_range(0..=order.len());
                // Mostly what could be: the same again, or up to what the transaction appended.
                if dice.random_range(0..5) > 0 {
                    let mine = plan
                        .iter()
                        .filter(|(to, _)| *to == key)
                        .filter_map(|(_, value)| *value);
                    let mine: Vec<u64> = mine.take(own.get(&key).copied().unwrap_or(0)).collect();
                    length = match (mine.last(), read_before.get(&key)) {
                        (Some(last), _) => {
                            order.iter().position(|value| value == last).unwrap() + 1
                        }
                        (None, Some(&before)) => before,
                        _ => length,
                    };
                }
                read_before.insert(key, length);
                Operation::Read {
                    key,
                    list: order[..length].to_vec(),
                }
            });
            let operations = operations.collect();
            transaction(
                invoked_ns,
                invoked_ns + dice.random_range(1..40),
                operations,
            )
        })
        .collect();
    let all = (0..KEYS).map(|key| Operation::Read {
        key,
        list: appends[key as usize].clone(),
    });
    let everything = all.collect();
    transactions.push(transaction(1000, 1001, everything));
    History { transactions }
}

fn transaction(invoked_ns: u64, completed_ns: u64, operations: Vec<Operation>) -> Transaction {
    Transaction {
        process: 0,
        invoked_ns,
        completed_ns,
        outcome: Outcome::Ok,
        copy: false,
        last: false,
        note: String::new(),
        operations,
    }
}

/// Where a schedule stands.
#[derive(Clone)]
struct Standing {
    lists: Vec<Vec<u64>>,
    /// By transaction: not begun, begun with lists of these lengths, or committed.
    states: Vec<State>,
}

#[derive(Clone, PartialEq)]
enum State {
    Waits,
    Runs(Vec<usize>),
    Done,
}

/// Whether the transaction reads this if it begins now.
fn explains(transaction: &Transaction, lists: &[Vec<u64>]) -> bool {
    let mut lists = lists.to_vec();
    transaction
        .operations
        .iter()
        .all(|operation| match operation {
            Operation::Append { key, value } => {
                lists[*key as usize].push(*value);
                true
            }
            Operation::Read { key, list } => lists[*key as usize] == *list,
        })
}

/// Whether some order of begins and commits from here explains the history. A serial one has
/// nobody begin while another runs, a strict one nobody before those that had completed.
fn search(history: &History, orders: &[Vec<u64>], model: Model, standing: &Standing) -> bool {
    if standing.states.iter().all(|state| *state == State::Done) {
        return true;
    }
    let serial = model.isolation == Isolation::Serializable;
    let runs = standing
        .states
        .iter()
        .any(|state| matches!(state, State::Runs(_)));
    for (at, transaction) in history.transactions.iter().enumerate() {
        let mut next = standing.clone();
        match &standing.states[at] {
            State::Done => continue,
            State::Waits => {
                let late =
                    history
                        .transactions
                        .iter()
                        .zip(&standing.states)
                        .any(|(other, state)| {
                            *state != State::Done && other.completed_ns < transaction.invoked_ns
                        });
                if (serial && runs)
                    || (model.real_time && late)
                    || !explains(transaction, &standing.lists)
                {
                    continue;
                }
                next.states[at] = State::Runs(standing.lists.iter().map(Vec::len).collect());
            }
            State::Runs(lengths) => {
                let mut conflicts = false;
                for operation in &transaction.operations {
                    if let Operation::Append { key, value } = operation {
                        let key = *key as usize;
                        conflicts |= standing.lists[key].len() != lengths[key];
                        next.lists[key].push(*value);
                    }
                }
                let follows = |(list, order): (&Vec<u64>, &Vec<u64>)| order.starts_with(list);
                if conflicts || !next.lists.iter().zip(orders).all(follows) {
                    continue;
                }
                next.states[at] = State::Done;
            }
        }
        if search(history, orders, model, &next) {
            return true;
        }
    }
    false
}

#[test]
fn nothing_is_found_if_and_only_if_a_schedule_explains_it() {
    let rounds = if cfg!(debug_assertions) {
        20_000
    } else {
        300_000
    };
    for model in [
        Model::new(Isolation::SnapshotIsolation),
        Model::new(Isolation::SnapshotIsolation).strict(),
        Model::new(Isolation::Serializable),
        Model::new(Isolation::Serializable).strict(),
    ] {
        let model = Model {
            sessions: false,
            ..model
        };
        let mut explained = 0;
        for seed in 0..rounds {
            let history = small(seed);
            let orders: Vec<Vec<u64>> = history
                .transactions
                .last()
                .unwrap()
                .operations
                .iter()
                .map(|operation| match operation {
                    Operation::Read { list, .. } => list.clone(),
                    Operation::Append { .. } => unreachable!(),
                })
                .collect();
            let standing = Standing {
                lists: vec![Vec::new(); KEYS as usize],
                states: vec![State::Waits; history.transactions.len()],
            };
            let can_be = search(&history, &orders, model, &standing);
            let report = check(&history, model);
            assert_eq!(
                report.is_clean(),
                can_be,
                "seed {seed}: {report}\n{history:#?}"
            );
            explained += u64::from(can_be);
        }
        eprintln!("{model:?}: {explained} of {rounds} can be");
        assert!(explained > rounds / 20 && explained < rounds * 19 / 20);
    }
}
