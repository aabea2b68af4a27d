//! Memory that somebody still reads is paid for, whatever has become of its table.
//!
//! An array of a scan shares the bytes of a segment. As long as it is held, the segment's bytes
//! are in the tenant's budget, and as soon as nobody holds it, they are not: neither a table
//! that is dropped nor a segment that is rewritten gives back what is not free.

use std::collections::{BTreeMap, BTreeSet};

use aerostat_txn::CancelToken;
use aerostat_types::SegmentNo;
use proptest::prelude::*;

use super::*;
use crate::store::directory::Entry;

/// Rows whose texts are in a segment's heap, each of its own.
fn long(keys: impl IntoIterator<Item = i32>) -> Vec<Row> {
    let row = |key| (key, i64::from(key), Some(format!("{key:040}")));
    keys.into_iter().map(row).collect()
}

/// Batches of texts, which share the heaps of their segments, with row ids behind.
fn texts(table: &Arc<Table>) -> Vec<RecordBatch> {
    let view = table.view(table.store().txns().snapshot());
    let spec = ScanSpec {
        projection: vec![2],
        row_ids: true,
        ..ScanSpec::default()
    };
    let mut reader = view.scan(spec).unwrap().reader();
    std::iter::from_fn(|| reader.next_batch().unwrap()).collect()
}

fn reserved(table: &Table) -> u64 {
    let directory = table.directory();
    let bytes = directory
        .entries()
        .iter()
        .map(|entry| entry.bytes_reserved());
    bytes.sum()
}

/// What a segment is charged with, as long as it is in memory.
type Charged = Box<dyn Fn() -> Option<u64>>;

/// Of the segments of now.
fn charges(table: &Table) -> BTreeMap<SegmentNo, Charged> {
    let directory = table.directory();
    let entries = directory.entries().iter();
    let charged = |entry: &Arc<Entry>| Box::new(entry.charged()) as Charged;
    entries
        .map(|entry| (entry.place.no, charged(entry)))
        .collect()
}

fn delete(table: &Arc<Table>, keys: std::ops::Range<i32>) {
    let txn = table.store().txns().begin();
    let view = table.view(txn.snapshot().clone());
    let within = vec![
        compare(0, CompareOp::Ge, keys.start.into()),
        compare(0, CompareOp::Lt, keys.end.into()),
    ];
    let found = scan(&view, within);
    let ids: Vec<RowId> = found.into_values().map(|(_, id)| id).collect();
    view.delete(&txn, &ids).unwrap();
    txn.commit().unwrap();
}

/// A way to take the segments of a table out of its directory, and its name.
type Retire = (&'static str, fn(&Arc<Table>));

const RETIRES: [Retire; 6] = [
    ("truncate", |table| table.truncate()),
    ("drop", |table| {
        table.store().drop_table(table.id()).unwrap();
        // Who has the table has its rows: here nobody has it but the caller.
        table.truncate();
    }),
    ("freeze", |table| {
        // In front of the first segment, if that is frozen.
        load(table, &long([-5]));
        assert!(table.freeze().unwrap().segments_made > 0);
    }),
    ("vacuum", |table| {
        delete(table, 10..1_000);
        // What a delete has vacuumed already is not vacuumed again.
        table.vacuum().unwrap();
    }),
    ("reshape", |table| {
        table.set_layout(&Layout::parse("row").unwrap()).unwrap();
        let report = table.reshape(&CancelToken::new()).unwrap();
        assert!(report.segments_replaced > 0 && report.segments_left == 0);
    }),
    ("rewrite", |table| {
        delete(table, 0..990);
        load(table, &long(0..990));
        table.freeze().unwrap();
    }),
];

#[test]
fn bytes_are_paid_for_until_the_last_array_is_dropped() {
    for (what, retire) in RETIRES {
        for (is_frozen, sizes) in [
            (false, ArenaSizes::default()),
            (true, ArenaSizes::default()),
            (false, ArenaSizes::of(&TINY)),
            (true, ArenaSizes::of(&TINY)),
        ] {
            let store = tenant("64MB", sizes);
            let table = table(&store, "column");
            load(&table, &long(0..1_000));
            if is_frozen {
                table.freeze().unwrap();
            }
            let held = texts(&table);
            let before = charges(&table);
            assert_eq!(store.budget().used(), reserved(&table), "{what}");
            retire(&table);
            let after = charges(&table);
            let retired = before.iter().filter(|(no, _)| !after.contains_key(no));
            let retired = retired.map(|(_, charged)| charged().expect("its texts are held"));
            let retired: Vec<u64> = retired.collect();
            let (used, now) = (store.budget().used(), reserved(&table));
            assert!(!retired.is_empty(), "{what}");
            assert_eq!(
                used,
                now + retired.iter().sum::<u64>(),
                "{what}, {is_frozen}"
            );
            // One array of each batch, and of that one row, keep as much as all.
            let part = |batch: RecordBatch| batch.column(0).slice(batch.num_rows() - 1, 1);
            let parts: Vec<ArrayRef> = held.into_iter().map(part).collect();
            assert_eq!(store.budget().used(), used);
            let last = parts.last().unwrap().as_string_view().value(0).to_owned();
            assert_eq!(last, format!("{:040}", 999), "{what}");
            let dropping = std::thread::spawn(move || drop(parts));
            dropping.join().unwrap();
            assert_eq!(store.budget().used(), now, "{what}, {is_frozen}");
        }
    }
}

#[test]
fn a_batch_outlives_its_table_and_tenant() {
    let governor = Governor::new("64MB".parse().unwrap());
    let sizes = ArenaSizes::default();
    let store = TenantStore::with_arena_sizes(TenantId(1), governor.budget("a", None), sizes);
    let table = table(&store, "column");
    load(&table, &long(0..100));
    let used = governor.used();
    let held = texts(&table);
    store.drop_table(table.id()).unwrap();
    drop((table, store));
    assert_eq!(governor.used(), used, "the node knows of it");
    assert_eq!(
        held[0].column(0).as_string_view().value(7),
        format!("{:040}", 7)
    );
    drop(held);
    assert_eq!(governor.used(), 0);
}

#[test]
fn a_write_finds_no_room_that_a_held_batch_has() {
    let store = tenant("64MB", ArenaSizes::default());
    let table = table(&store, "column");
    load(&table, &long(0..1_000));
    let held = texts(&table);
    let used = store.budget().used();
    table.truncate();
    store.budget().set_max(Some(ByteSize(used + 1_000)));
    let rows = batch(&table, &long(0..1_000));
    let txn = store.txns().begin();
    let refused = table.insert(&txn, &rows);
    assert!(
        matches!(refused, Err(StorageError::OutOfMemory(_))),
        "{refused:?}"
    );
    txn.rollback();
    drop(held);
    load(&table, &long(0..1_000));
}

#[derive(Clone, Debug)]
enum Op {
    /// Into which table, from which key on, how many.
    Insert(usize, i32, i32),
    Delete(usize, i32, i32),
    Freeze(usize),
    Vacuum(usize),
    Reshape(usize, bool),
    Truncate(usize),
    /// A new one takes its place.
    Drop(usize),
    /// A batch of a scan of a table, whose last row alone is kept or all.
    Hold(usize, usize, bool),
    /// A view of a table.
    View(usize),
    ReleaseBatch(usize),
    ReleaseView(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let table = || 0..2_usize;
    let op = prop_oneof![
        6 => (table(), 0..2_000, 1..120).prop_map(|(t, from, rows)| Op::Insert(t, from, rows)),
        2 => (table(), 0..2_000, 1..900).prop_map(|(t, from, rows)| Op::Delete(t, from, rows)),
        3 => table().prop_map(Op::Freeze),
        1 => table().prop_map(Op::Vacuum),
        1 => (table(), any::<bool>()).prop_map(|(t, row)| Op::Reshape(t, row)),
        1 => table().prop_map(Op::Truncate),
        1 => table().prop_map(Op::Drop),
        5 => (table(), 0..8_usize, any::<bool>()).prop_map(|(t, at, one)| Op::Hold(t, at, one)),
        1 => table().prop_map(Op::View),
        3 => (0..8_usize).prop_map(Op::ReleaseBatch),
        1 => (0..8_usize).prop_map(Op::ReleaseView),
    ];
    prop::collection::vec(op, 1..80)
}

/// A segment of all that have been, by table and number.
type Id = (TableId, SegmentNo);

struct World {
    store: Arc<TenantStore>,
    tables: Vec<Arc<Table>>,
    tables_made: u32,
    batches: Vec<(Id, ArrayRef)>,
    views: Vec<TableView>,
    /// All segments that were seen, each with the bytes in use when it was seen last.
    known: BTreeMap<Id, (Charged, u64)>,
}

impl World {
    fn new() -> Self {
        let mut world = World {
            store: tenant("1GB", ArenaSizes::of(&TINY)),
            tables: Vec::new(),
            tables_made: 0,
            batches: Vec::new(),
            views: Vec::new(),
            known: BTreeMap::new(),
        };
        for _ in 0..2 {
            let table = world.new_table();
            world.tables.push(table);
        }
        world
    }

    fn new_table(&mut self) -> Arc<Table> {
        self.tables_made += 1;
        let id = TableId(self.tables_made);
        let layout = Layout::parse("column").unwrap();
        self.store.create_table(id, schema(true), &layout).unwrap()
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Insert(table, from, rows) => {
                let table = &self.tables[table];
                let there: BTreeSet<i32> = now(table).iter().map(|row| row.0).collect();
                let new = long((from..from + rows).filter(|key| !there.contains(key)));
                load(table, &new);
            }
            Op::Delete(table, from, rows) => delete(&self.tables[table], from..from + rows),
            Op::Freeze(table) => {
                self.tables[table].freeze().unwrap();
            }
            Op::Vacuum(table) => {
                self.tables[table].vacuum().unwrap();
            }
            Op::Reshape(table, is_row) => {
                let layout = if is_row { "row" } else { "column" };
                let layout = Layout::parse(layout).unwrap();
                self.tables[table].set_layout(&layout).unwrap();
                self.tables[table].reshape(&CancelToken::new()).unwrap();
            }
            Op::Truncate(table) => self.tables[table].truncate(),
            Op::Drop(table) => {
                self.store.drop_table(self.tables[table].id()).unwrap();
                self.tables[table] = self.new_table();
            }
            Op::Hold(table, at, is_one) => {
                let table = &self.tables[table];
                let all = texts(table);
                if let Some(batch) = all.get(at % all.len().max(1)) {
                    let ids: &UInt64Array = batch.column(1).as_primitive();
                    let of = (table.id(), RowId(ids.value(0)).segment());
                    let last = batch.num_rows() - 1;
                    let first = if is_one { last } else { 0 };
                    let rows = batch.column(0).slice(first, last + 1 - first);
                    self.batches.push((of, rows));
                }
            }
            Op::View(table) => {
                let snapshot = self.store.txns().snapshot();
                self.views.push(self.tables[table].view(snapshot));
            }
            Op::ReleaseBatch(at) if at < self.batches.len() => {
                self.batches.swap_remove(at);
            }
            Op::ReleaseView(at) if at < self.views.len() => {
                self.views.swap_remove(at);
            }
            Op::ReleaseBatch(_) | Op::ReleaseView(_) => {}
        }
    }

    /// The books are equal to what is alive, segment by segment.
    fn check(&mut self) {
        let mut alive: BTreeSet<Id> = self.batches.iter().map(|(of, _)| *of).collect();
        let mut see = |table: TableId, entries: &[Arc<Entry>]| {
            for entry in entries {
                let id = (table, entry.place.no);
                alive.insert(id);
                let known = self.known.entry(id);
                let (_, used) = known.or_insert_with(|| (Box::new(entry.charged()), 0));
                *used = entry.segment().footprint_bytes();
            }
        };
        for table in &self.tables {
            see(table.id(), table.directory().entries());
        }
        for view in &self.views {
            see(view.table().id(), view.directory().entries());
            // A view has its table, dropped or not, with what was written since.
            see(view.table().id(), view.table().directory().entries());
        }
        let mut booked = 0;
        for (id, (charged, used)) in &self.known {
            let charged = charged();
            assert_eq!(charged.is_some(), alive.contains(id), "{id:?}");
            let charged = charged.unwrap_or(u64::MAX);
            assert!(charged >= *used, "{id:?}: {used} bytes, {charged} paid for");
            if alive.contains(id) {
                booked += charged;
            }
        }
        assert_eq!(self.store.budget().used(), booked);
        for (_, array) in &self.batches {
            let texts = array.as_string_view();
            assert!(texts.iter().flatten().all(|text| text.len() == 40));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_books_are_what_is_alive(ops in ops()) {
        let mut world = World::new();
        for op in ops {
            world.run(op);
            world.check();
        }
        let budget = Arc::clone(world.store.budget());
        let World { store, tables, batches, views, .. } = world;
        drop((store, tables, views));
        let held: BTreeSet<Id> = batches.iter().map(|(of, _)| *of).collect();
        prop_assert_eq!(budget.used() > 0, !held.is_empty());
        drop(batches);
        prop_assert_eq!(budget.used(), 0);
    }
}
