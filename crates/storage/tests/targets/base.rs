//! The files that are damaged: of tenants with a history.

use std::sync::Arc;

use aerostat_memory::Governor;
use aerostat_segment::Keys;
use aerostat_storage::{
    RowId, Table, TenantStore,
    backup::{FolderSink, FolderSource, verify},
    forge,
};
use aerostat_txn::{Isolation, Transaction};
use aerostat_types::{Column, Layout, TableId, TableIndex, TableSchema};
use arrow_array::RecordBatch;

use super::{Files, Folder, TENANT, collect, read};
use crate::model::{Model, Random};

/// How many there are.
pub const CASES: u64 = 8;

/// A tenant's files as they were when it was closed, and a backup's with what came after it.
pub struct Base {
    /// `log/…`, `checkpoint/…`
    pub tenant: Files,
    /// `backup/…`, `archive/…`
    pub backup: Files,
    /// Rows of all tables.
    pub rows: usize,
}

/// A table and rows for it.
struct Filled {
    table: Arc<Table>,
    rows: RecordBatch,
}

impl Base {
    pub fn new(case: u64) -> Base {
        let folder = Folder::new();
        let (home, backup) = (folder.0.join("home"), folder.0.join("backup"));
        let budget = Governor::new("64MB".parse().unwrap()).budget("base", None);
        let (store, _) = TenantStore::open(TENANT, budget, &home, &forge::tiny_arenas()).unwrap();
        let archive = FolderSink::for_archive(&folder.0.join("archive")).unwrap();
        store.archive_log_to(Some(Arc::new(archive)));
        let tables: Vec<Filled> = (0..3).map(|nth| fill(&store, case, nth)).collect();
        store.commit_catalog(b"a catalogue".to_vec()).unwrap();
        for (nth, filled) in tables.iter().enumerate() {
            filled.insert(0.0, 0.4);
            if nth != 1 {
                filled.table.freeze().unwrap();
            }
            filled.end(4);
            filled.insert(0.4, 0.6);
        }
        // Some tenants have a checkpoint, which a backup is, some nothing but their log.
        let back_up = || {
            let sink = FolderSink::for_backup(&backup, None).unwrap();
            store.backup("shop", &sink).unwrap();
        };
        let has_checkpoint = !case.is_multiple_of(4);
        if has_checkpoint {
            // Rows of frozen segments end after their image was written, or all before.
            if case % 4 > 1 {
                store.checkpoint().unwrap();
                tables.iter().for_each(|filled| filled.end(5));
            }
            back_up();
        }
        tables.iter().for_each(|filled| filled.insert(0.6, 0.7));
        store.archive_log().unwrap();
        tables.iter().for_each(|filled| filled.in_block());
        store.commit_catalog(b"another".to_vec()).unwrap();
        tables[0].end(7);
        store.drop_table(TableId(2)).unwrap();
        tables[2].insert(0.9, 1.0);
        let (mut tenant, mut other) = (Files::new(), Files::new());
        collect(&home, "", &mut tenant);
        if !has_checkpoint {
            back_up();
        }
        store.archive_log().unwrap();
        verify(&FolderSource::new(&backup)).unwrap();
        let rows = read(&tables[0].table).len() + read(&tables[2].table).len();
        for name in ["backup", "archive"] {
            collect(&folder.0.join(name), &format!("{name}/"), &mut other);
        }
        Base {
            tenant,
            backup: other,
            rows,
        }
    }
}

/// An empty table of random columns, and rows for it.
fn fill(store: &Arc<TenantStore>, case: u64, nth: u64) -> Filled {
    let rows = [30, 90, 300][((case + nth) % 3) as usize];
    let mut model = Model::random(case * 3 + nth, rows);
    model.reshape(&mut Random(case ^ nth));
    let attributes = model.schema.attributes();
    let name = |at: usize| format!("c{at}");
    let columns = attributes.iter().enumerate().map(|(at, spec)| Column {
        name: name(at),
        ty: spec.ty,
        nullable: spec.nullable,
        default: None,
    });
    let schema = TableSchema {
        name: format!("t{nth}"),
        columns: columns.collect(),
        primary_key: model.schema.key().to_vec(),
        primary_key_name: format!("t{nth}_pkey"),
        checks: Vec::new(),
    };
    let groups = model
        .schema
        .groups()
        .iter()
        .filter(|group| !group.is_empty());
    let named = |group: &Vec<usize>| group.iter().map(|at| name(*at)).collect();
    let layout = Layout::Groups(groups.map(named).collect());
    let indexes = model.schema.indexes().iter().enumerate();
    let indexes = indexes.map(|(at, index)| TableIndex {
        name: format!("i{at}"),
        kind: index.kind,
        columns: index.attributes.clone(),
        unique: false,
        nulls_not_distinct: false,
    });
    let mut unique = Vec::new();
    for index in indexes {
        let same = |other: &TableIndex| other.kind == index.kind && other.columns == index.columns;
        if !unique.iter().any(same) {
            unique.push(index);
        }
    }
    let id = TableId(u32::try_from(nth).unwrap() + 1);
    let table = store
        .create_table_with_indexes(id, Arc::new(schema), &layout, unique)
        .unwrap();
    let rows = batch(&model, case);
    Filled { table, rows }
}

/// The model's rows, of each key one.
fn batch(model: &Model, seed: u64) -> RecordBatch {
    let arrays = model.arrays(seed);
    let fields = (0..arrays.len()).map(|at| format!("c{at}"));
    let batch = RecordBatch::try_from_iter_with_nullable(
        fields
            .zip(&arrays)
            .map(|(name, array)| (name, Arc::clone(array), true)),
    )
    .unwrap();
    if model.schema.key().is_empty() {
        return batch;
    }
    let keys = Keys::encode(&model.schema, &arrays).unwrap();
    let mut seen = std::collections::HashSet::new();
    let first: Vec<u32> = (0..batch.num_rows() as u32)
        .filter(|row| seen.insert(keys.get(*row as usize).to_key()))
        .collect();
    arrow_select::take::take_record_batch(&batch, &arrow_array::UInt32Array::from(first)).unwrap()
}

impl Filled {
    fn part(&self, from: f64, to: f64) -> RecordBatch {
        let at = |share: f64| (self.rows.num_rows() as f64 * share) as usize;
        self.rows.slice(at(from), at(to) - at(from))
    }

    fn insert(&self, from: f64, to: f64) {
        let txn = self.table.store().txns().begin();
        self.table.insert(&txn, &self.part(from, to)).unwrap();
        txn.commit().unwrap();
    }

    /// Ends each so many-th row.
    fn end(&self, step: usize) {
        let txn = self.table.store().txns().begin();
        self.end_in(&txn, step);
        txn.commit().unwrap();
    }

    fn end_in(&self, txn: &Transaction, step: usize) {
        let ids: Vec<RowId> = read(&self.table).into_iter().step_by(step).collect();
        let view = self.table.view(txn.snapshot().clone());
        view.delete(txn, &ids).unwrap();
    }

    /// Two statements that are kept and one that is not, committed at once.
    fn in_block(&self) {
        let txns = self.table.store().txns();
        let block = txns.begin_block(Isolation::ReadCommitted);
        let statement = block.statement();
        self.table.insert(&statement, &self.part(0.7, 0.8)).unwrap();
        statement.commit().unwrap();
        let statement = block.statement();
        self.table.insert(&statement, &self.part(0.8, 0.9)).unwrap();
        statement.rollback();
        let statement = block.statement();
        self.table.insert(&statement, &self.part(0.8, 0.9)).unwrap();
        statement.commit().unwrap();
        block.commit().unwrap();
    }
}
