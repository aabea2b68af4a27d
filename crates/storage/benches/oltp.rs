//! What single rows cost: pgbench's tables and statements, on storage alone. Run with
//! `cargo bench -p aerostat-storage --bench oltp`; `-- SECONDS` runs that long instead, for a
//! profile. Prints the processor time of each, the median of several rounds, which means
//! something on a machine that others use too. The log is written and never waited for.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark"
)]

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use aerostat_memory::Governor;
use aerostat_storage::{
    Durability, Literal, OpenOptions, RowReader, RowView, Table, TableView, TenantStore, ValueRef,
};
use aerostat_txn::{Isolation, Transaction};
use aerostat_types::{Column, Layout, SqlType, TableId, TableSchema, TenantId};
use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringViewArray, TimestampMicrosecondArray};

const ACCOUNTS: i32 = 1_000_000;
const TELLERS: i32 = 100;
const BRANCHES: i32 = 10;
const BATCH: i32 = 8192;

/// Operations of a round, and rounds of which the median counts.
const OPERATIONS: u32 = 20_000;
const ROUNDS: usize = 9;

struct Bench {
    store: Arc<TenantStore>,
    accounts: Arc<Table>,
    tellers: Arc<Table>,
    branches: Arc<Table>,
    history: Arc<Table>,
    /// Of the numbers that choose rows.
    random: u64,
}

fn schema(name: &str, columns: &[(&str, SqlType)], keyed: bool) -> Arc<TableSchema> {
    let column = |(at, (name, ty)): (usize, &(&str, SqlType))| Column {
        name: (*name).to_owned(),
        ty: *ty,
        nullable: !keyed || at > 0,
        default: None,
    };
    Arc::new(TableSchema {
        name: name.to_owned(),
        columns: columns.iter().enumerate().map(column).collect(),
        primary_key: if keyed { vec![0] } else { Vec::new() },
        primary_key_name: format!("{name}_pkey"),
        checks: Vec::new(),
    })
}

fn integers(values: impl Iterator<Item = i32>) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(values))
}

fn texts(text: Option<&str>, count: usize) -> ArrayRef {
    Arc::new(std::iter::repeat_n(text, count).collect::<StringViewArray>())
}

impl Bench {
    fn new(folder: &std::path::Path) -> Bench {
        let budget = Governor::new("4GB".parse().unwrap()).budget("bench", None);
        let (store, _) =
            TenantStore::open(TenantId(1), budget, folder, &OpenOptions::default()).unwrap();
        store.set_durability(Durability::None);
        let create = |id, schema| {
            let created = store.create_table(TableId(id), schema, &Layout::Column);
            created.unwrap()
        };
        let int = SqlType::Integer;
        let of = |name, columns: &[_]| schema(name, columns, true);
        let accounts = [
            ("aid", int),
            ("bid", int),
            ("abalance", int),
            ("filler", SqlType::Char(84)),
        ];
        let tellers = [
            ("tid", int),
            ("bid", int),
            ("tbalance", int),
            ("filler", SqlType::Char(84)),
        ];
        let branches = [
            ("bid", int),
            ("bbalance", int),
            ("filler", SqlType::Char(88)),
        ];
        let history = [
            ("tid", int),
            ("bid", int),
            ("aid", int),
            ("delta", int),
            ("mtime", SqlType::Timestamp),
            ("filler", SqlType::Char(22)),
        ];
        let bench = Bench {
            accounts: create(1, of("accounts", &accounts)),
            tellers: create(2, of("tellers", &tellers)),
            branches: create(3, of("branches", &branches)),
            history: create(4, schema("history", &history, false)),
            random: 1,
            store,
        };
        bench.load();
        bench
    }

    fn load(&self) {
        let txn = self.store.txns().begin();
        for first in (0..ACCOUNTS).step_by(BATCH as usize) {
            let keys = first..ACCOUNTS.min(first + BATCH);
            let columns = vec![
                integers(keys.clone()),
                integers(keys.clone().map(|key| key / 100_000)),
                integers(keys.clone().map(|_| 0)),
                texts(Some(""), keys.len()),
            ];
            insert(&self.accounts, &txn, columns);
        }
        let columns = vec![
            integers(0..TELLERS),
            integers((0..TELLERS).map(|key| key / 10)),
            integers((0..TELLERS).map(|_| 0)),
            texts(None, TELLERS as usize),
        ];
        insert(&self.tellers, &txn, columns);
        let columns = vec![
            integers(0..BRANCHES),
            integers((0..BRANCHES).map(|_| 0)),
            texts(None, BRANCHES as usize),
        ];
        insert(&self.branches, &txn, columns);
        txn.commit().unwrap();
    }

    fn below(&mut self, end: i32) -> i32 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.random >> 33) % end as u64) as i32
    }

    fn update_account(&mut self, txn: &Transaction) {
        let key = self.below(ACCOUNTS);
        update(&self.accounts, txn, key, 2);
    }

    fn update_teller(&mut self, txn: &Transaction) {
        let key = self.below(TELLERS);
        update(&self.tellers, txn, key, 2);
    }

    fn update_branch(&mut self, txn: &Transaction) {
        let key = self.below(BRANCHES);
        update(&self.branches, txn, key, 1);
    }

    fn insert_history(&mut self, txn: &Transaction) {
        let (teller, account) = (self.below(TELLERS), self.below(ACCOUNTS));
        let columns = vec![
            integers(std::iter::once(teller)),
            integers(std::iter::once(teller / 10)),
            integers(std::iter::once(account)),
            integers(std::iter::once(7)),
            Arc::new(TimestampMicrosecondArray::from_iter_values([1 << 50])),
            texts(None, 1),
        ];
        insert(&self.history, txn, columns);
    }

    /// Deletes an account and puts it back: two operations.
    fn replace_account(&mut self, txn: &Transaction) {
        let key = self.below(ACCOUNTS);
        let view = self.accounts.view(txn.snapshot().clone());
        let (row, columns) = {
            let columns = all_columns(&view);
            let rows = view.rows(&columns, true);
            let row = find(&rows, key);
            (row.id(), copied(&row, 4, 2))
        };
        view.delete(txn, &[row]).unwrap();
        insert(&self.accounts, txn, columns);
    }

    fn select_account(&mut self) {
        let key = self.below(ACCOUNTS);
        let view = self.accounts.view(self.store.txns().snapshot());
        black_box(find(&view.rows(&[2], true), key).value(2));
    }

    /// A transaction of its own for a statement.
    fn alone(&mut self, statement: impl Fn(&mut Bench, &Transaction)) {
        let txn = self.store.txns().begin();
        statement(self, &txn);
        txn.commit().unwrap();
    }

    /// pgbench's transaction, in a block.
    fn tpcb(&mut self) {
        let block = self.store.txns().begin_block(Isolation::ReadCommitted);
        let statements: [fn(&mut Bench, &Transaction); 4] = [
            Bench::update_account,
            Bench::update_teller,
            Bench::update_branch,
            Bench::insert_history,
        ];
        for (nth, statement) in statements.into_iter().enumerate() {
            let txn = block.statement();
            statement(self, &txn);
            txn.commit().unwrap();
            if nth == 0 {
                let key = self.below(ACCOUNTS);
                let view = self.accounts.view(block.snapshot());
                black_box(find(&view.rows(&[2], true), key).value(2));
            }
        }
        block.commit().unwrap();
    }

    /// What the server does between statements.
    fn vacuum(&self) {
        for table in [&self.accounts, &self.tellers, &self.branches, &self.history] {
            if table.take_vacuum_wish() {
                table.vacuum().unwrap();
            }
        }
    }
}

fn insert(table: &Table, txn: &Transaction, columns: Vec<ArrayRef>) {
    let batch = RecordBatch::try_new(Arc::clone(table.arrow_schema()), columns).unwrap();
    table.insert(txn, &batch).unwrap();
}

fn find<'r>(rows: &'r RowReader<'_>, key: i32) -> RowView<'r> {
    let key = rows
        .view()
        .table()
        .key(&[Literal::Int(key.into())])
        .unwrap();
    rows.row(key.borrow()).unwrap().unwrap()
}

fn all_columns(view: &TableView) -> Vec<usize> {
    (0..view.table().schema().columns.len()).collect()
}

/// The row as columns, one of them changed.
fn copied(row: &RowView<'_>, columns: usize, changed: usize) -> Vec<ArrayRef> {
    let column = |at| match row.value(at) {
        ValueRef::I32(value) => {
            let more = i32::from(at == changed);
            integers(std::iter::once(value + more))
        }
        ValueRef::Bytes(bytes) => texts(std::str::from_utf8(bytes).ok(), 1),
        _ => texts(None, 1),
    };
    (0..columns).map(column).collect()
}

fn update(table: &Arc<Table>, txn: &Transaction, key: i32, changed: usize) {
    let view = table.view(txn.snapshot().clone());
    let (id, columns) = {
        let columns = all_columns(&view);
        let rows = view.rows(&columns, true);
        let row = find(&rows, key);
        (row.id(), copied(&row, columns.len(), changed))
    };
    let batch = RecordBatch::try_new(Arc::clone(table.arrow_schema()), columns).unwrap();
    assert_eq!(view.update(txn, &[id], &batch).unwrap(), 1);
}

/// Processor time of this thread so far.
fn processor_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split_whitespace().next().unwrap().parse().unwrap()
}

/// Prints what one of the operations costs.
fn measure(bench: &mut Bench, what: &str, operation: impl Fn(&mut Bench)) {
    let mut rounds: Vec<u64> = (0..ROUNDS)
        .map(|_| {
            let before = processor_ns();
            (0..OPERATIONS).for_each(|_| operation(bench));
            bench.vacuum();
            (processor_ns() - before) / u64::from(OPERATIONS)
        })
        .collect();
    rounds.sort_unstable();
    println!("{what:<40} {:>7} ns", rounds[ROUNDS / 2]);
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(folder.path());
    let seconds = std::env::args().find_map(|argument| argument.parse().ok());
    if let Some(seconds) = seconds {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(seconds) {
            (0..100).for_each(|_| bench.tpcb());
            bench.vacuum();
        }
        return;
    }
    let bench = &mut bench;
    measure(bench, "point select", Bench::select_account);
    measure(bench, "empty transaction", |bench| bench.alone(|_, _| {}));
    measure(bench, "insert", |bench| bench.alone(Bench::insert_history));
    measure(bench, "update, 1,000,000 rows", |bench| {
        bench.alone(Bench::update_account);
    });
    measure(bench, "update, 100 rows", |bench| {
        bench.alone(Bench::update_teller);
    });
    measure(bench, "update, 10 rows", |bench| {
        bench.alone(Bench::update_branch);
    });
    measure(bench, "delete and insert", |bench| {
        bench.alone(Bench::replace_account);
    });
    measure(bench, "tpcb-like, five statements", Bench::tpcb);
}
