//! Random transactions over random layouts, checked against a map of states.
//!
//! The model keeps the state after every commit. Each open snapshot must read its state, through
//! views old and new, whatever is rewritten, rolled back, vacuumed or frozen meanwhile, and
//! whichever layout is set.

use std::collections::{BTreeMap, BTreeSet};

use aerostat_txn::{CancelToken, Snapshot, Transaction};
use proptest::prelude::*;

use super::*;

pub(super) const KEYS: i32 = 60;
const OPEN_MAX: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    Begin,
    /// Keys, text length: into which open transaction is the first number.
    Insert(usize, BTreeSet<i32>, usize, i64),
    /// Which transaction, keys, by how much keys move (0: not), text length.
    Update(usize, BTreeSet<i32>, i32, usize),
    Delete(usize, BTreeSet<i32>),
    End(usize, bool),
    Pin,
    Unpin(usize),
    Vacuum,
    /// Everything, or what is cold.
    Freeze(bool),
    Layout(&'static str),
    Reshape,
}

const LAYOUTS: [&str; 4] = ["row", "column", "(n,k),(s)", "(s,n),(k)"];

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let of = |count| prop::collection::btree_set(0..KEYS, count);
    let keys = || prop_oneof![1 => of(1..2), 2 => of(1..12)];
    let text = || prop_oneof![3 => 0_usize..40, 1 => 200_usize..900];
    let op = prop_oneof![
        3 => Just(Op::Begin),
        5 => (0..OPEN_MAX, keys(), text(), 0_i64..100).prop_map(|(t, k, l, n)| Op::Insert(t, k, l, n)),
        5 => (0..OPEN_MAX, keys(), prop_oneof![3 => Just(0), 1 => -5..5], text())
            .prop_map(|(t, k, by, l)| Op::Update(t, k, by, l)),
        2 => (0..OPEN_MAX, keys()).prop_map(|(t, k)| Op::Delete(t, k)),
        5 => (0..OPEN_MAX, prop::bool::weighted(0.8)).prop_map(|(t, commit)| Op::End(t, commit)),
        1 => Just(Op::Pin),
        1 => (0..4_usize).prop_map(Op::Unpin),
        1 => Just(Op::Vacuum),
        4 => prop::bool::weighted(0.7).prop_map(Op::Freeze),
        1 => prop::sample::select(&LAYOUTS[..]).prop_map(Op::Layout),
        2 => Just(Op::Reshape),
    ];
    prop::collection::vec(op, 1..160)
}

pub(super) type State = BTreeMap<i32, Row>;

struct Open {
    txn: Transaction,
    /// Keys it has written, with what they will be.
    changes: BTreeMap<i32, Option<Row>>,
}

struct Model {
    table: Arc<Table>,
    /// The state after each commit; the first is empty.
    states: Vec<State>,
    /// When each key last changed.
    changed: BTreeMap<i32, u64>,
    open: Vec<Open>,
    pinned: Vec<(Snapshot, TableView)>,
}

impl Model {
    fn apply(&mut self, op: Op) {
        match op {
            Op::Begin if self.open.len() < OPEN_MAX => {
                let txn = self.table.store().txns().begin();
                self.open.push(Open {
                    txn,
                    changes: BTreeMap::new(),
                });
            }
            Op::Insert(at, keys, length, n) => self.insert(at, keys, length, n),
            Op::Update(at, keys, by, length) => self.change(at, keys, Some((by, length))),
            Op::Delete(at, keys) => self.change(at, keys, None),
            Op::End(at, commit) if at < self.open.len() => self.end(at, commit),
            Op::Pin => {
                let snapshot = self.table.store().txns().snapshot();
                let view = self.table.view(snapshot.clone());
                self.pinned.push((snapshot, view));
            }
            Op::Unpin(at) if at < self.pinned.len() => drop(self.pinned.swap_remove(at)),
            Op::Vacuum => drop(self.table.vacuum().unwrap()),
            Op::Freeze(true) => drop(self.table.freeze().unwrap()),
            Op::Freeze(false) => drop(self.table.freeze_due().unwrap()),
            Op::Layout(layout) => {
                let layout = Layout::parse(layout).unwrap();
                self.table.set_layout(&layout).unwrap();
            }
            Op::Reshape => self.reshape(),
            _ => {}
        }
        for (snapshot, view) in &self.pinned {
            let expected = &self.states[snapshot.at().0 as usize];
            check(view, expected);
            check(&self.table.view(snapshot.clone()), expected);
        }
    }

    fn reshape(&mut self) {
        let report = self.table.reshape(&CancelToken::new()).unwrap();
        let stats = self.table.statistics();
        assert_eq!(
            stats.segments_in_shape + report.segments_left,
            stats.segments
        );
    }

    /// Keys that no open transaction has touched: others would wait, and this is one thread.
    fn free(&self, keys: BTreeSet<i32>) -> Vec<i32> {
        keys.into_iter()
            .filter(|key| self.open.iter().all(|open| !open.changes.contains_key(key)))
            .collect()
    }

    fn insert(&mut self, at: usize, keys: BTreeSet<i32>, length: usize, n: i64) {
        let mut keys = self.free(keys);
        if at >= self.open.len() || keys.is_empty() {
            return;
        }
        if n % 2 == 0 {
            keys.reverse();
        }
        let rows: Vec<Row> = keys.iter().map(|&key| row(key, n, length)).collect();
        let newest = self.states.last().unwrap();
        let taken = keys.iter().any(|key| newest.contains_key(key));
        let txn = &self.open[at].txn;
        // A single row comes in either way.
        let inserted = match rows.as_slice() {
            [row] if n % 3 > 0 => self.table.insert_row(txn, &values(row)),
            rows => self.table.insert(txn, &batch(&self.table, rows)),
        };
        match inserted {
            Ok(count) => {
                assert!(!taken, "a key was inserted twice");
                assert_eq!(count, rows.len() as u64);
                self.open[at]
                    .changes
                    .extend(rows.into_iter().map(|row| (row.0, Some(row))));
            }
            Err(StorageError::UniqueViolation { detail, .. }) => {
                assert!(taken, "{detail}");
                self.open.swap_remove(at).txn.rollback();
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Deletes the keys, or updates them if there is something to update to.
    fn change(&mut self, at: usize, keys: BTreeSet<i32>, update: Option<(i32, usize)>) {
        if at >= self.open.len() {
            return;
        }
        let by = update.map_or(0, |(by, _)| by);
        // The keys the rows move to are touched as well.
        let keys: Vec<i32> = self
            .free(keys)
            .into_iter()
            .filter(|key| !self.free(BTreeSet::from([key + by])).is_empty())
            .collect();
        let txn = &self.open[at].txn;
        let snapshot = txn.snapshot();
        let view = self.table.view(snapshot.clone());
        let seen = &self.states[snapshot.at().0 as usize];
        let keys: Vec<i32> = keys
            .into_iter()
            .filter(|key| seen.contains_key(key))
            .collect();
        let ids: Vec<RowId> = keys
            .iter()
            .rev()
            .map(|&wanted| {
                view.lookup(KeyRef(&key(&self.table, wanted)))
                    .unwrap()
                    .unwrap()
            })
            .collect();
        let conflict = keys.iter().any(|key| {
            self.changed
                .get(key)
                .is_some_and(|ts| *ts > snapshot.at().0)
        });
        let newest = self.states.last().unwrap();
        let taken = keys
            .iter()
            .any(|key| newest.contains_key(&(key + by)) && !keys.contains(&(key + by)));
        let rows: Vec<Row> = keys
            .iter()
            .rev()
            .map(|key| row(key + by, 1_000, update.map_or(0, |(_, length)| length)))
            .collect();
        let result = match (update, rows.as_slice()) {
            (Some((_, length)), [row]) if length % 3 > 0 => {
                view.update_row(txn, ids[0], &values(row))
            }
            (Some(_), rows) => view.update(txn, &ids, &batch(&self.table, rows)),
            (None, _) => view.delete(txn, &ids),
        };
        match result {
            Ok(count) => {
                assert!(
                    !(conflict || update.is_some() && taken),
                    "a conflict was missed"
                );
                assert_eq!(count, ids.len() as u64);
                let changes = &mut self.open[at].changes;
                changes.extend(keys.into_iter().map(|key| (key, None)));
                if update.is_some() {
                    changes.extend(rows.into_iter().map(|row| (row.0, Some(row))));
                }
            }
            Err(StorageError::Conflict) => {
                assert!(conflict);
                self.open.swap_remove(at).txn.rollback();
            }
            Err(StorageError::UniqueViolation { .. }) => {
                assert!(taken && !conflict);
                self.open.swap_remove(at).txn.rollback();
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    fn end(&mut self, at: usize, commit: bool) {
        let open = self.open.swap_remove(at);
        if !commit || open.changes.is_empty() {
            return open.txn.rollback();
        }
        let ts = open.txn.commit().unwrap().0;
        let mut state = self.states.last().unwrap().clone();
        for (key, row) in open.changes {
            self.changed.insert(key, ts);
            match row {
                Some(row) => drop(state.insert(key, row)),
                None => drop(state.remove(&key)),
            }
        }
        self.states.push(state);
        assert_eq!(self.states.len() as u64, ts + 1);
    }
}

pub(super) fn row(key: i32, n: i64, length: usize) -> Row {
    let text = if length == 7 {
        None
    } else {
        Some(format!("{key:0length$}"))
    };
    (key, n, text)
}

pub(super) fn check(view: &TableView, expected: &State) {
    let found = scan(view, Vec::new());
    let rows: State = found
        .iter()
        .map(|(key, (row, _))| (*key, row.clone()))
        .collect();
    assert_eq!(&rows, expected);
    let few: State = scan(
        view,
        vec![compare(0, CompareOp::Lt, 20), compare(1, CompareOp::Ge, 50)],
    )
    .into_iter()
    .map(|(key, (row, _))| (key, row))
    .collect();
    let expected_few: State = expected
        .iter()
        .filter(|(key, row)| **key < 20 && row.1 >= 50)
        .map(|(key, row)| (*key, row.clone()))
        .collect();
    assert_eq!(few, expected_few);
    for wanted in [0, KEYS / 2, KEYS - 1] {
        let id = view.lookup(KeyRef(&key(view.table(), wanted))).unwrap();
        assert_eq!(id, found.get(&wanted).map(|(_, id)| *id));
        let fetched = view.fetch(&Vec::from_iter(id), &[0, 1, 2]).unwrap();
        assert_eq!(
            rows_of(&fetched),
            Vec::from_iter(expected.get(&wanted).cloned())
        );
        let point = scan(view, vec![compare(0, CompareOp::Eq, wanted.into())]);
        assert_eq!(point.len(), usize::from(id.is_some()));
    }
}

proptest! {
    // Failing inputs are shrunk and printed with their seed; nothing is kept on disk.
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_table_is_a_map_of_states(
        ops in ops(),
        layout in prop::sample::select(&LAYOUTS[..]),
    ) {
        let store = tenant("1GB", ArenaSizes::of(&TINY));
        let mut model = Model {
            table: table(&store, layout),
            states: vec![State::new()],
            changed: BTreeMap::new(),
            open: Vec::new(),
            pinned: Vec::new(),
        };
        for op in ops {
            model.apply(op);
        }
        model.open.clear();
        model.apply(Op::Pin);
        model.pinned.clear();
        model.apply(Op::Layout("column"));
        model.reshape();
        let stats = model.table.statistics();
        prop_assert_eq!(stats.segments_in_shape, stats.segments);
        model.apply(Op::Pin);
        drop(model);
        prop_assert_eq!(store.budget().used(), 0, "all memory goes back");
    }
}
