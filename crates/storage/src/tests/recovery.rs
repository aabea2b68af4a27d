//! Durable tenants against models, over reopening, checkpoints and damage.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use aerostat_txn::Isolation;
use aerostat_types::CommitTs;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IteratorRandom};

use super::*;

pub(super) fn options() -> OpenOptions {
    OpenOptions {
        sizes: Some(ArenaSizes::of(&TINY)),
        ..OpenOptions::default()
    }
}

pub(super) fn try_open(
    folder: &Path,
    options: &OpenOptions,
) -> Result<(Arc<TenantStore>, Recovered), RecoverError> {
    let budget = Governor::new("1GB".parse().unwrap()).budget("test", None);
    TenantStore::open(TenantId(1), budget, folder, options)
}

pub(super) fn open(folder: &Path) -> (Arc<TenantStore>, Recovered) {
    try_open(folder, &options()).unwrap()
}

pub(super) fn create(store: &Arc<TenantStore>, id: u32, keyed: bool) -> Arc<Table> {
    let layout = Layout::parse("(k,s),(n)").unwrap();
    store
        .create_table(TableId(id), schema(keyed), &layout)
        .unwrap()
}

/// All visible rows, sorted, with their ids.
pub(super) fn listed(view: &TableView) -> Vec<(Row, RowId)> {
    try_listed(view).unwrap()
}

/// The same, on a disk that may refuse to read values back.
pub(super) fn try_listed(view: &TableView) -> Result<Vec<(Row, RowId)>, StorageError> {
    let scan = view.scan(all(Vec::new()))?;
    let mut found = Vec::new();
    let mut reader = scan.reader();
    while let Some(batch) = reader.next_batch()? {
        let ids: &UInt64Array = batch.column(3).as_primitive();
        found.extend(
            rows_of(&batch)
                .into_iter()
                .zip(ids.values().iter().map(|id| RowId(*id))),
        );
    }
    found.sort();
    Ok(found)
}

pub(super) fn rows_in(table: &Arc<Table>) -> Vec<Row> {
    let view = table.view(table.store().txns().snapshot());
    listed(&view).into_iter().map(|(row, _)| row).collect()
}

fn random_row(random: &mut StdRng, key: i32) -> Row {
    let text = match random.random_range(0..4) {
        0 => None,
        1 => Some("x".repeat(random.random_range(0..8))),
        2 => Some("long".repeat(random.random_range(2..60))),
        _ => Some(format!("row {key} ÄÖ")),
    };
    (key, random.random_range(-5..5), text)
}

/// The two tables and what they should hold.
pub(super) struct World {
    pub(super) folder: tempfile::TempDir,
    pub(super) store: Arc<TenantStore>,
    pub(super) keyed: Arc<Table>,
    pub(super) bag: Arc<Table>,
    pub(super) keyed_rows: Vec<Row>,
    pub(super) bag_rows: Vec<Row>,
}

impl World {
    pub(super) fn new() -> Self {
        let folder = memory_folder();
        let (store, _) = open(folder.path());
        Self {
            keyed: create(&store, 10, true),
            bag: create(&store, 11, false),
            keyed_rows: Vec::new(),
            bag_rows: Vec::new(),
            folder,
            store,
        }
    }

    fn reopened(self, seed: u64) -> Self {
        let Self {
            folder,
            store,
            keyed,
            bag,
            keyed_rows,
            bag_rows,
        } = self;
        let last = store.txns().last_commit();
        drop((store, keyed, bag));
        let (store, mut recovered) = open(folder.path());
        assert_eq!(store.txns().last_commit(), last, "seed {seed}");
        assert_eq!(recovered.truncated_bytes, 0);
        let world = Self {
            keyed: recovered.tables.remove(&TableId(10)).unwrap(),
            bag: recovered.tables.remove(&TableId(11)).unwrap(),
            keyed_rows,
            bag_rows,
            folder,
            store,
        };
        world.check(seed);
        world
    }

    fn check(&self, seed: u64) {
        assert_eq!(rows_in(&self.keyed), self.keyed_rows, "seed {seed}");
        assert_eq!(rows_in(&self.bag), self.bag_rows, "seed {seed}");
    }

    /// A block over both tables, some of whose statements are undone.
    pub(super) fn transact_in_block(&mut self, random: &mut StdRng) {
        let block = self.store.txns().begin_block(Isolation::RepeatableRead);
        let mut rows = [self.keyed_rows.clone(), self.bag_rows.clone()];
        let mut savepoints = Vec::new();
        for _ in 0..random.random_range(1..6) {
            savepoints.push((block.savepoint(), rows.clone()));
            let at = random.random_range(0..2);
            let (statement, mut after) = (block.statement(), rows[at].clone());
            change([&self.keyed, &self.bag][at], &statement, random, &mut after);
            if random.random_bool(0.8) {
                statement.commit().unwrap();
                rows[at] = after;
            }
            if random.random_bool(0.3) {
                let to = random.random_range(0..savepoints.len());
                savepoints.truncate(to + 1);
                let (savepoint, before) = &savepoints[to];
                block.rollback_to(*savepoint);
                rows = before.clone();
            }
        }
        if random.random_bool(0.8) {
            block.commit().unwrap();
            [self.keyed_rows, self.bag_rows] = rows;
        }
    }

    /// A transaction over both tables.
    pub(super) fn transact(&mut self, random: &mut StdRng) {
        let txn = self.store.txns().begin();
        let (mut keyed_rows, mut bag_rows) = (self.keyed_rows.clone(), self.bag_rows.clone());
        change(&self.keyed, &txn, random, &mut keyed_rows);
        if random.random_bool(0.7) {
            change(&self.bag, &txn, random, &mut bag_rows);
        }
        if random.random_bool(0.8) {
            txn.commit().unwrap();
            (self.keyed_rows, self.bag_rows) = (keyed_rows, bag_rows);
        } else {
            txn.rollback();
        }
    }
}

/// One change of each kind to disjoint rows, as a statement does not see its own.
fn change(
    table: &Arc<Table>,
    txn: &aerostat_txn::Transaction,
    random: &mut StdRng,
    rows: &mut Vec<Row>,
) {
    let keyed = !table.schema().primary_key.is_empty();
    let view = table.view(txn.snapshot().clone());
    let mut before = listed(&view);
    let count = random.random_range(0..20);
    let chosen: BTreeSet<usize> = (0..before.len())
        .choose_multiple(random, count)
        .into_iter()
        .collect();
    let taken: BTreeSet<i32> = before.iter().map(|(row, _)| row.0).collect();
    let (mut ended, mut updated) = (Vec::new(), Vec::new());
    for at in chosen.into_iter().rev() {
        let (row, id) = before.remove(at);
        if random.random_bool(0.5) {
            ended.push(id);
        } else {
            updated.push((id, random_row(random, row.0)));
        }
    }
    view.delete(txn, &ended).unwrap();
    let (ids, new): (Vec<_>, Vec<_>) = updated.into_iter().unzip();
    view.update(txn, &ids, &batch(table, &new)).unwrap();
    let count = random.random_range(0..40);
    let fresh: BTreeSet<i32> = (0..count)
        .map(|_| random.random_range(0..500))
        .filter(|key| !keyed || !taken.contains(key))
        .collect();
    let fresh: Vec<Row> = fresh
        .into_iter()
        .map(|key| random_row(random, key))
        .collect();
    table.insert(txn, &batch(table, &fresh)).unwrap();
    *rows = before.into_iter().map(|(row, _)| row).collect();
    rows.extend(new);
    rows.extend(fresh);
    rows.sort();
}

#[test]
fn what_was_committed_is_there_after_any_reopening() {
    for seed in 0..12 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut world = World::new();
        for _ in 0..60 {
            match random.random_range(0..20) {
                0 | 1 => world = world.reopened(seed),
                2 | 3 => drop(world.store.checkpoint().unwrap().unwrap()),
                4 => drop(world.keyed.vacuum().unwrap()),
                6 => drop(world.keyed.freeze().unwrap()),
                7 => drop(world.bag.freeze().unwrap()),
                5 => drop(world.store.commit_catalog(vec![7; 9]).unwrap()),
                8..14 => world.transact_in_block(&mut random),
                _ => world.transact(&mut random),
            }
        }
        world.check(seed);
        drop(world.reopened(seed));
    }
}

#[test]
fn a_checkpoint_keeps_unfinished_transactions_and_removes_old_files() {
    let folder = memory_folder();
    let (store, _) = open(folder.path());
    let table = create(&store, 10, true);
    // Some of its redo is in the log before the checkpoint, its commit after.
    let long = store.txns().begin();
    let wide = |from: i32| -> Vec<Row> {
        (from..from + 400)
            .map(|key| (key, 0, Some(format!("{key:06000}"))))
            .collect()
    };
    for from in (10_000..11_200).step_by(400) {
        table.insert(&long, &batch(&table, &wide(from))).unwrap();
    }
    load(&table, &[(1, 1, None)]);
    store.checkpoint().unwrap();
    load(&table, &[(2, 2, None)]);
    assert_eq!(read_names(&folder.path().join("log")).len(), 2);
    long.commit().unwrap();
    let expected = rows_in(&table);
    assert!(expected.len() > 1_000);
    drop((store, table));
    let (store, mut recovered) = open(folder.path());
    assert_eq!(recovered.checkpoint_at, CommitTs(2));
    let table = recovered.tables.remove(&TableId(10)).unwrap();
    assert_eq!(rows_in(&table), expected);
    // Now nothing before the checkpoint is needed, and unchanged segments keep images.
    let first = store.checkpoint().unwrap().unwrap();
    assert!(
        first.images_written > 20 && first.images_kept == 0,
        "{first:?}"
    );
    load(&table, &[(3, 3, None)]);
    let second = store.checkpoint().unwrap().unwrap();
    assert!(
        second.images_kept > 20 && second.images_written <= 3,
        "{second:?}"
    );
    assert_eq!(read_names(&folder.path().join("log")).len(), 1);
    let images = read_names(&folder.path().join("checkpoint"));
    assert_eq!(
        images.len() as u64,
        second.images_kept + second.images_written + 1,
        "the images and the manifest"
    );
    let expected = rows_in(&table);
    drop((store, table, recovered));
    let (_store, mut recovered) = open(folder.path());
    let table = recovered.tables.remove(&TableId(10)).unwrap();
    assert_eq!(rows_in(&table), expected);
}

/// The files as a crash at this moment would leave them.
pub(super) fn copy(from: &Path, to: &Path) {
    for part in ["log", "checkpoint"] {
        fs::create_dir_all(to.join(part)).unwrap();
        for path in read_names(&from.join(part)) {
            fs::copy(&path, to.join(part).join(path.file_name().unwrap())).unwrap();
        }
    }
}

pub(super) fn read_names(folder: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    names
}

#[test]
fn tables_and_catalogue_come_back_and_dropped_ones_do_not() {
    let folder = memory_folder();
    let (store, recovered) = open(folder.path());
    assert!(recovered.catalog.is_none() && recovered.tables.is_empty());
    assert!(matches!(
        try_open(folder.path(), &options()),
        Err(RecoverError::Locked { .. })
    ));
    let (one, two, three) = (
        create(&store, 1, true),
        create(&store, 2, true),
        create(&store, 3, false),
    );
    assert!(matches!(
        store.create_table(TableId(1), schema(true), &Layout::Row),
        Err(StorageError::TableExists { id: TableId(1) })
    ));
    store.commit_catalog(b"first".to_vec()).unwrap();
    load(&one, &[(1, 1, None)]);
    // A transaction that outlives its table's end and a checkpoint.
    let late = store.txns().begin();
    two.insert(&late, &batch(&two, &[(2, 2, None)])).unwrap();
    store.drop_table(TableId(2)).unwrap();
    drop(two);
    store.checkpoint().unwrap();
    late.commit().unwrap();
    load(&three, &[(3, 3, None)]);
    drop(three);
    store.commit_catalog(b"second".to_vec()).unwrap();
    drop((store, one));

    let (store, recovered) = open(folder.path());
    assert_eq!(recovered.catalog.as_deref(), Some(&b"second"[..]));
    let ids: Vec<u32> = recovered.tables.keys().map(|id| id.0).collect();
    assert_eq!(ids, [1, 3]);
    assert_eq!(rows_in(&recovered.tables[&TableId(3)]), [(3, 3, None)]);
    store.retain_tables(&BTreeSet::from([TableId(1)])).unwrap();
    store.checkpoint().unwrap();
    drop((store, recovered));
    let (_store, recovered) = open(folder.path());
    assert_eq!(recovered.catalog.as_deref(), Some(&b"second"[..]));
    assert_eq!(recovered.tables.len(), 1);
    let one = &recovered.tables[&TableId(1)];
    assert_eq!(
        (one.layout().to_string().as_str(), rows_in(one)),
        ("(k,s),(n)", vec![(1, 1, None)])
    );
}

/// Twenty commits of a row each; the state after each is known.
fn twenty(folder: &Path) -> Vec<u8> {
    let (store, _) = open(folder);
    let table = create(&store, 1, true);
    for key in 0..20 {
        load(&table, &[(key, 0, Some("some text for it".to_owned()))]);
    }
    drop((store, table));
    fs::read(log_file(folder)).unwrap()
}

fn log_file(folder: &Path) -> PathBuf {
    folder.join("log/0000000000000001.log")
}

#[test]
fn a_torn_tail_is_cut_and_a_prefix_stays() {
    let folder = memory_folder();
    let bytes = twenty(folder.path());
    let mut random = StdRng::seed_from_u64(1);
    for end in (0..60).map(|_| random.random_range(0..bytes.len())) {
        fs::write(log_file(folder.path()), &bytes[..end]).unwrap();
        let (store, recovered) = open(folder.path());
        let rows = recovered.tables.values().next().map_or(0, |table| {
            let rows = rows_in(table);
            assert!((0..).zip(&rows).all(|(key, row)| row.0 == key), "{rows:?}");
            rows.len() as u64
        });
        assert_eq!(
            rows,
            store.txns().last_commit().0.saturating_sub(1),
            "cut at {end}"
        );
        // It goes on from there.
        store.commit_catalog(b"more".to_vec()).unwrap();
        drop((store, recovered));
        let (_store, recovered) = open(folder.path());
        assert_eq!(recovered.truncated_bytes, 0);
        assert_eq!(recovered.catalog.as_deref(), Some(&b"more"[..]));
    }
}

#[test]
fn a_flipped_bit_is_reported_unless_it_is_in_the_last_record() {
    let folder = memory_folder();
    let bytes = twenty(folder.path());
    let mut random = StdRng::seed_from_u64(2);
    let (mut damaged, mut cut) = (0, 0);
    for _ in 0..150 {
        let at = random.random_range(0..bytes.len());
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << random.random_range(0..8);
        fs::write(log_file(folder.path()), &flipped).unwrap();
        match try_open(folder.path(), &options()) {
            Err(RecoverError::Damaged { path, offset, .. }) => {
                assert_eq!(path, log_file(folder.path()));
                assert!(offset as usize <= at, "{offset} for {at}");
                assert_eq!(fs::read(&path).unwrap(), flipped, "the file stays as it is");
                damaged += 1;
            }
            // The four bytes at the header's end mean nothing.
            Ok((store, _)) if (44..48).contains(&at) => {
                assert_eq!(store.txns().last_commit(), CommitTs(21));
            }
            Ok((store, recovered)) => {
                assert_eq!(store.txns().last_commit(), CommitTs(20), "flipped {at}");
                assert!(recovered.truncated_bytes > 0);
                cut += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(damaged > 100 && cut > 0, "{damaged} {cut}");
}

#[test]
fn missing_and_foreign_files_are_reported() {
    let folder = memory_folder();
    twenty(folder.path());
    let (store, recovered) = open(folder.path());
    store.checkpoint().unwrap();
    drop((store, recovered));
    let images: Vec<_> = read_names(&folder.path().join("checkpoint"));
    let other = TenantStore::open(
        TenantId(2),
        Governor::new("1GB".parse().unwrap()).budget("test", None),
        folder.path(),
        &options(),
    );
    assert!(matches!(other, Err(RecoverError::Damaged { .. })));
    for path in images.iter().chain(&read_names(&folder.path().join("log"))) {
        let kept = fs::read(path).unwrap();
        if !path.ends_with("manifest") {
            fs::remove_file(path).unwrap();
            assert!(try_open(folder.path(), &options()).is_err(), "{path:?}");
        }
        if path.extension().is_none_or(|extension| extension != "log") {
            let mut flipped = kept.clone();
            flipped[kept.len() / 2] ^= 4;
            fs::write(path, flipped).unwrap();
            assert!(
                matches!(
                    try_open(folder.path(), &options()),
                    Err(RecoverError::Damaged { .. })
                ),
                "{path:?}"
            );
        }
        fs::write(path, kept).unwrap();
    }
    let (_, recovered) = open(folder.path());
    assert_eq!(rows_in(&recovered.tables[&TableId(1)]).len(), 20);
}

#[test]
fn frozen_segments_come_back_frozen_and_keep_their_images() {
    let folder = memory_folder();
    let (store, _) = open(folder.path());
    let (keyed, bag) = (create(&store, 1, true), create(&store, 2, false));
    let rows: Vec<Row> = (0..3_000)
        .map(|key| {
            (
                key,
                i64::from(key % 7),
                Some(format!("a text like {}", key % 90)),
            )
        })
        .collect();
    for table in [&keyed, &bag] {
        load(table, &rows);
        table.freeze().unwrap();
    }
    // Rows end in frozen segments, and others stand in front of them.
    let txn = store.txns().begin();
    let view = keyed.view(txn.snapshot().clone());
    let ids: Vec<RowId> = (0..3_000)
        .step_by(7)
        .map(|at| view.lookup(KeyRef(&key(&keyed, at))).unwrap().unwrap())
        .collect();
    view.delete(&txn, &ids[..200]).unwrap();
    let changed: Vec<Row> = (200..ids.len() as i32)
        .map(|at| (at * 7, -1, None))
        .collect();
    view.update(&txn, &ids[200..], &batch(&keyed, &changed))
        .unwrap();
    drop(view);
    // Not committed at the checkpoint, so not ended there.
    let late = store.txns().begin();
    let view = bag.view(late.snapshot().clone());
    let fifth = listed(&view)[5].1;
    view.delete(&late, &[fifth]).unwrap();
    drop(view);
    txn.commit().unwrap();
    let first = store.checkpoint().unwrap().unwrap();
    assert!(first.images_written > 0);
    late.commit().unwrap();
    let expected = (rows_in(&keyed), rows_in(&bag));
    assert_eq!((expected.0.len(), expected.1.len()), (2_800, 2_999));
    let used = store.budget().used();
    let frozen = [&keyed, &bag].map(|table| table.statistics().segments_frozen);
    assert!(frozen.iter().all(|segments| *segments > 0));
    drop((store, keyed, bag));

    let (store, recovered) = open(folder.path());
    let tables = [1, 2].map(|id| Arc::clone(&recovered.tables[&TableId(id)]));
    assert_eq!((rows_in(&tables[0]), rows_in(&tables[1])), expected);
    let frozen_now = [0, 1].map(|at: usize| tables[at].statistics().segments_frozen);
    assert_eq!(frozen_now, frozen);
    assert!(store.budget().used() < used + used / 2, "{used}");
    let second = store.checkpoint().unwrap().unwrap();
    assert!(second.images_kept >= frozen[0], "{second:?}");
    // It takes rows and freezes as ever.
    load(&tables[0], &[(9_000, 1, None), (9_001, 1, None)]);
    tables[0].freeze().unwrap();
    assert_eq!(rows_in(&tables[0]).len(), 2_802);
    drop((store, tables, recovered));
    let (_store, recovered) = open(folder.path());
    assert_eq!(rows_in(&recovered.tables[&TableId(1)]).len(), 2_802);
}

#[test]
fn an_idle_tenant_costs_little_and_durability_changes_while_it_runs() {
    let folder = memory_folder();
    let (store, _) = open(folder.path());
    assert_eq!(store.durability(), Some(Durability::Fsync));
    store.set_durability(Durability::None);
    assert_eq!(store.durability(), Some(Durability::None));
    let table = create(&store, 1, true);
    load(&table, &[(1, 0, None)]);
    store.set_durability(Durability::Fsync);
    load(&table, &[(2, 0, None)]);
    assert!(!store.wants_checkpoint() && store.log_bytes_written() > 0);
    assert!(store.log_failure().is_none());
    drop((store, table));
    let (_store, recovered) = open(folder.path());
    assert_eq!(rows_in(&recovered.tables[&TableId(1)]).len(), 2);
    assert!(checkpoint_is_due(65 << 20, 0) && !checkpoint_is_due(65 << 20, 1 << 30));
}

#[test]
fn a_log_of_format_3_opens_and_goes_on_in_another_file() {
    let folder = memory_folder();
    let (store, _) = open(folder.path());
    let table = create(&store, 10, true);
    load(&table, &[(1, 1, None), (2, 2, Some("two".to_owned()))]);
    drop((store, table));
    // It has no epochs, and heads without flags, which their checksum does not cover.
    for path in read_names(&folder.path().join("log")) {
        let mut bytes = fs::read(&path).unwrap();
        bytes[8..12].copy_from_slice(&3_u32.to_le_bytes());
        bytes[44..48].fill(0);
        let crc = crc32fast::hash(&bytes[..40]);
        bytes[40..44].copy_from_slice(&crc.to_le_bytes());
        fs::write(&path, bytes).unwrap();
    }
    let (store, recovered) = open(folder.path());
    let table = &recovered.tables[&TableId(10)];
    load(table, &[(3, 3, None)]);
    let format = |path: &PathBuf| fs::read(path).unwrap()[8];
    let formats = || -> Vec<u8> {
        let names = read_names(&folder.path().join("log"));
        names.iter().map(format).collect()
    };
    assert_eq!(formats(), [3, 4]);
    let expected = rows_in(table);
    drop((store, recovered));
    let (_store, recovered) = open(folder.path());
    assert_eq!(rows_in(&recovered.tables[&TableId(10)]), expected);
    assert_eq!(expected.len(), 3);
    assert_eq!(formats(), [3, 4]);
}
