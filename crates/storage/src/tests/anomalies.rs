//! The anomalies that each isolation level permits: the scenarios of Adya's thesis as Hermitage
//! (github.com/ept/hermitage) writes them down, through two or three blocks.
//!
//! The table begins as 1 → 10, 2 → 20. If a statement meets a row that has changed since its
//! snapshot, READ COMMITTED runs it again, and REPEATABLE READ fails.

use std::thread::{self, ScopedJoinHandle};

use aerostat_txn::{Block, Isolation};

use super::*;

const LEVELS: [Isolation; 2] = [Isolation::ReadCommitted, Isolation::RepeatableRead];

struct Scene(Arc<Table>);

impl Scene {
    fn new() -> Self {
        let table = tiny_table();
        load(&table, &[(1, 10, None), (2, 20, None)]);
        Self(table)
    }

    fn begin(&self, isolation: Isolation) -> Block {
        self.0.store().txns().begin_block(isolation)
    }

    /// Two blocks.
    fn two(&self, isolation: Isolation) -> [Block; 2] {
        [self.begin(isolation), self.begin(isolation)]
    }

    /// Keys and numbers that the block sees, where the number passes.
    fn read_where(&self, block: &Block, passes: impl Fn(i64) -> bool) -> Vec<(i32, i64)> {
        let rows = contents(&self.0, block.snapshot()).into_iter();
        let rows = rows.map(|(key, number, _)| (key, number));
        rows.filter(|(_, number)| passes(*number)).collect()
    }

    fn read(&self, block: &Block, wanted: i32) -> i64 {
        let view = self.0.view(block.snapshot());
        let id = view.lookup(KeyRef(&key(&self.0, wanted))).unwrap().unwrap();
        rows_of(&view.fetch(&[id], &[0, 1, 2]).unwrap())[0].1
    }

    /// Changes the rows whose number passes, to another number or to nothing.
    fn change(
        &self,
        block: &Block,
        passes: impl Fn(i32, i64) -> bool,
        new: impl Fn(i64) -> Option<i64>,
    ) -> Result<(), StorageError> {
        loop {
            let statement = block.statement();
            let view = self.0.view(statement.snapshot().clone());
            let found: Vec<(Row, RowId)> = scan(&view, Vec::new())
                .into_values()
                .filter(|(row, _)| passes(row.0, row.1))
                .collect();
            let ids: Vec<RowId> = found.iter().map(|(_, id)| *id).collect();
            let rows: Vec<Row> = found
                .iter()
                .filter_map(|(row, _)| Some((row.0, new(row.1)?, None)))
                .collect();
            let result = if rows.is_empty() {
                view.delete(&statement, &ids)
            } else {
                view.update(&statement, &ids, &batch(&self.0, &rows))
            };
            match result {
                Ok(_) => {
                    statement.commit().unwrap();
                    return Ok(());
                }
                Err(StorageError::Conflict)
                    if statement.isolation() == Isolation::ReadCommitted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn put(&self, block: &Block, key: i32, number: i64) -> Result<(), StorageError> {
        self.change(block, |found, _| found == key, |_| Some(number))
    }

    fn insert(&self, block: &Block, key: i32, number: i64) {
        let statement = block.statement();
        let rows = batch(&self.0, &[(key, number, None)]);
        self.0.insert(&statement, &rows).unwrap();
        statement.commit().unwrap();
    }

    /// What there is for everybody.
    fn committed(&self) -> Vec<(i32, i64)> {
        now(&self.0)
            .into_iter()
            .map(|(key, number, _)| (key, number))
            .collect()
    }
}

/// A statement on a thread of its own, which gives its block back.
type Changing<'scope> = ScopedJoinHandle<'scope, (Result<(), StorageError>, Block)>;

/// The statement has to wait: however long it is given, it does not end.
fn assert_blocked(changing: &Changing<'_>) {
    thread::sleep(std::time::Duration::from_millis(10));
    assert!(!changing.is_finished(), "it went past another block's row");
}

/// The block, if the change went through after the other's commit, which it does at one
/// level only.
fn goes_on_at_read_committed(changing: Changing<'_>) -> Option<Block> {
    let (result, block) = changing.join().unwrap();
    match (result, block.isolation()) {
        (Ok(()), Isolation::ReadCommitted) => Some(block),
        (Err(StorageError::Conflict), Isolation::RepeatableRead) => None,
        other => panic!("{other:?}"),
    }
}

/// Write cycles: the writes of two blocks never interleave.
#[test]
fn g0_dirty_writes_do_not_happen() {
    for isolation in LEVELS {
        let scene = &Scene::new();
        let [one, two] = scene.two(isolation);
        two.snapshot();
        scene.put(&one, 1, 11).unwrap();
        thread::scope(|scope| {
            let changing = scope.spawn(move || (scene.put(&two, 1, 12), two));
            assert_blocked(&changing);
            scene.put(&one, 2, 21).unwrap();
            one.commit().unwrap();
            assert_eq!(scene.committed(), [(1, 11), (2, 21)]);
            if let Some(two) = goes_on_at_read_committed(changing) {
                scene.put(&two, 2, 22).unwrap();
                two.commit().unwrap();
                assert_eq!(scene.committed(), [(1, 12), (2, 22)]);
            }
        });
    }
}

#[test]
fn g1a_aborted_reads_do_not_happen() {
    for isolation in LEVELS {
        let scene = &Scene::new();
        let [one, two] = scene.two(isolation);
        scene.put(&one, 1, 101).unwrap();
        assert_eq!(scene.read(&two, 1), 10);
        one.rollback();
        assert_eq!(scene.read(&two, 1), 10);
        two.commit().unwrap();
        assert_eq!(scene.committed(), [(1, 10), (2, 20)]);
    }
}

#[test]
fn g1b_intermediate_reads_do_not_happen() {
    for isolation in LEVELS {
        let scene = &Scene::new();
        let [one, two] = scene.two(isolation);
        scene.put(&one, 1, 101).unwrap();
        assert_eq!((scene.read(&one, 1), scene.read(&two, 1)), (101, 10));
        scene.put(&one, 1, 11).unwrap();
        assert_eq!((scene.read(&one, 1), scene.read(&two, 1)), (11, 10));
        one.commit().unwrap();
        let after = match isolation {
            Isolation::ReadCommitted => 11,
            Isolation::RepeatableRead => 10,
        };
        assert_eq!(scene.read(&two, 1), after);
    }
}

#[test]
fn g1c_circular_information_flow_does_not_happen() {
    for isolation in LEVELS {
        let scene = &Scene::new();
        let [one, two] = scene.two(isolation);
        scene.put(&one, 1, 11).unwrap();
        scene.put(&two, 2, 22).unwrap();
        assert_eq!((scene.read(&one, 2), scene.read(&two, 1)), (20, 10));
        one.commit().unwrap();
        two.commit().unwrap();
        assert_eq!(scene.committed(), [(1, 11), (2, 22)]);
    }
}

/// Observed transaction vanishes: who sees one of a block's writes sees them all.
#[test]
fn otv_does_not_happen() {
    for isolation in LEVELS {
        let scene = &Scene::new();
        let [one, two] = scene.two(isolation);
        let three = scene.begin(isolation);
        two.snapshot();
        scene.put(&one, 1, 11).unwrap();
        scene.put(&one, 2, 19).unwrap();
        thread::scope(|scope| {
            let changing = scope.spawn(move || (scene.put(&two, 1, 12), two));
            assert_blocked(&changing);
            one.commit().unwrap();
            assert_eq!(scene.read(&three, 1), 11);
            let Some(two) = goes_on_at_read_committed(changing) else {
                return;
            };
            scene.put(&two, 2, 18).unwrap();
            assert_eq!((scene.read(&three, 2), scene.read(&three, 1)), (19, 11));
            two.commit().unwrap();
            assert_eq!((scene.read(&three, 2), scene.read(&three, 1)), (18, 12));
        });
    }
}

/// Predicate-many-preceders, reading.
#[test]
fn pmp_happens_at_read_committed_only() {
    for isolation in LEVELS {
        let scene = &Scene::new();
        let [one, two] = scene.two(isolation);
        assert!(scene.read_where(&one, |number| number == 30).is_empty());
        scene.insert(&two, 3, 30);
        assert!(scene.read_where(&one, |number| number % 3 == 0).is_empty());
        two.commit().unwrap();
        let seen = scene.read_where(&one, |number| number % 3 == 0);
        match isolation {
            Isolation::ReadCommitted => assert_eq!(seen, [(3, 30)]),
            Isolation::RepeatableRead => assert!(seen.is_empty()),
        }
    }
}

/// Predicate-many-preceders, writing: the statement that runs again does so as a whole.
#[test]
fn pmp_with_a_write_predicate_sees_one_snapshot() {
    for isolation in LEVELS {
        let scene = &Scene::new();
        let [one, two] = scene.two(isolation);
        two.snapshot();
        scene
            .change(&one, |_, _| true, |number| Some(number + 10))
            .unwrap();
        thread::scope(|scope| {
            let changing = scope.spawn(move || {
                let result = scene.change(&two, |_, number| number == 20, |_| None);
                (result, two)
            });
            assert_blocked(&changing);
            one.commit().unwrap();
            if let Some(two) = goes_on_at_read_committed(changing) {
                two.commit().unwrap();
                assert_eq!(scene.committed(), [(2, 30)]);
            }
        });
    }
}

#[test]
fn p4_lost_updates_happen_at_read_committed_only() {
    for isolation in LEVELS {
        let scene = &Scene::new();
        let [one, two] = scene.two(isolation);
        assert_eq!((scene.read(&one, 1), scene.read(&two, 1)), (10, 10));
        scene.put(&one, 1, 11).unwrap();
        thread::scope(|scope| {
            let changing = scope.spawn(move || (scene.put(&two, 1, 12), two));
            assert_blocked(&changing);
            one.commit().unwrap();
            let left = match goes_on_at_read_committed(changing) {
                Some(two) => two.commit().map(|_| 12).unwrap(),
                None => 11,
            };
            assert_eq!(scene.committed(), [(1, left), (2, 20)]);
        });
    }
}

/// Read skew, also over predicates and in writing.
#[test]
fn g_single_happens_at_read_committed_only() {
    for isolation in LEVELS {
        let scene = &Scene::new();
        let [one, two] = scene.two(isolation);
        assert_eq!(scene.read(&one, 1), 10);
        assert_eq!(scene.read_where(&one, |number| number % 5 == 0).len(), 2);
        scene.put(&two, 1, 12).unwrap();
        scene.put(&two, 2, 18).unwrap();
        two.commit().unwrap();
        let skewed = isolation == Isolation::ReadCommitted;
        assert_eq!(scene.read(&one, 2), if skewed { 18 } else { 20 });
        let fives = scene.read_where(&one, |number| number % 5 == 0);
        assert_eq!(fives.len(), if skewed { 0 } else { 2 });
        let deleted = scene.change(&one, |_, number| number == 20, |_| None);
        match isolation {
            Isolation::ReadCommitted => deleted.unwrap(),
            Isolation::RepeatableRead => {
                assert!(
                    matches!(deleted, Err(StorageError::Conflict)),
                    "{deleted:?}"
                );
            }
        }
        one.commit().unwrap();
        assert_eq!(scene.committed(), [(1, 12), (2, 18)]);
    }
}

/// Write skew, over rows and over predicates: neither level is serializable.
#[test]
fn g2_happens_at_both_levels() {
    for isolation in LEVELS {
        let scene = &Scene::new();
        let [one, two] = scene.two(isolation);
        for block in [&one, &two] {
            assert_eq!(scene.read_where(block, |_| true), [(1, 10), (2, 20)]);
        }
        scene.put(&one, 1, 11).unwrap();
        scene.put(&two, 2, 21).unwrap();
        scene.insert(&one, 3, 30);
        scene.insert(&two, 4, 42);
        one.commit().unwrap();
        two.commit().unwrap();
        assert_eq!(scene.committed(), [(1, 11), (2, 21), (3, 30), (4, 42)]);
    }
}
