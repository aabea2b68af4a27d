//! A node: its disk, and its process with a driver, a host and clients.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use aerostat_memory::Governor;
use aerostat_replication::{Config, Incarnation, Member, NodeId, Settings};
use aerostat_storage::{
    Applier, CopyOf, Durability, OpenOptions, RecoverError, ScanSpec, Table, TenantStore, Timeline,
    Wake,
    simulated::{Handle, SimClock, SimDisk},
};
use aerostat_txn::{Committing, Transaction};
use aerostat_types::{Column, CommitTs, Layout, SqlType, TableId, TableSchema, TenantId};
use arrow_array::{
    ArrayRef, Int32Array, Int64Array, RecordBatch, StringViewArray,
    cast::AsArray,
    types::{Int32Type, Int64Type},
};

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::judge::{Delta, Rows};
use crate::{Driver, Host, Job, Packet};

pub(super) const KEYED: TableId = TableId(10);
pub(super) const BAG: TableId = TableId(11);

pub(super) const FOLDER: &str = "/node/tenant";

/// So that files come and go.
const LOG_FILE_BYTES: usize = 96 << 10;

/// What may wait to be sent to a node.
const ROOM: usize = 100 << 10;

/// A commit that nobody was told of.
pub(super) struct Waiting {
    pub(super) committing: Committing,
    pub(super) epoch: aerostat_types::Epoch,
}

/// What the process asked for in a step.
pub(super) struct SimHost {
    disk: Arc<SimDisk>,
    timeline: Timeline,
    pub(super) sent: Vec<(NodeId, Packet)>,
    pub(super) asked: Vec<Option<Config>>,
    pub(super) syncs: bool,
    /// Whether commits are applied beside the driver, at times of their own.
    applies_beside: bool,
    pub(super) jobs: Vec<Job>,
    /// Ended with the leadership.
    pub(super) waiting: BTreeMap<CommitTs, Waiting>,
    /// Transactions that go on for a while.
    pub(super) open: Vec<(Transaction, Delta)>,
    /// Of the opening that there is.
    pub(super) tables: BTreeMap<TableId, Arc<Table>>,
    queued: BTreeMap<NodeId, usize>,
    /// Whether sessions were told last to leave, and what they were told in the step.
    is_quieted: bool,
    pub(super) quietened: Vec<bool>,
}

impl Host for SimHost {
    fn send(&mut self, to: NodeId, packet: Packet) {
        *self.queued.entry(to).or_default() += packet.records.bytes.len();
        self.sent.push((to, packet));
    }

    fn room(&self, to: NodeId) -> usize {
        ROOM.saturating_sub(self.queued.get(&to).copied().unwrap_or(0))
    }

    fn ask(&mut self, swap: Option<Config>) {
        self.asked.push(swap);
    }

    fn sync(&mut self, _store: &Arc<TenantStore>) {
        self.syncs = true;
    }

    fn wake(&self) -> Wake {
        // Whoever plays tells it.
        Arc::new(|| {})
    }

    fn apply(&mut self, job: Job) -> Option<Job> {
        if !self.applies_beside {
            return Some(job);
        }
        self.jobs.push(job);
        None
    }

    fn reopen(&mut self, through: CommitTs) -> Result<(Arc<TenantStore>, Applier), RecoverError> {
        // Each is told that its commit is in doubt.
        self.waiting.clear();
        self.open.clear();
        self.tables.clear();
        open_copy(&self.disk, self.timeline, Some(through))
    }

    fn defined(&mut self, _catalog: &Arc<[u8]>, _tables: &BTreeMap<TableId, Arc<Table>>) {}

    fn leads(&mut self, _store: &Arc<TenantStore>, tables: &BTreeMap<TableId, Arc<Table>>) {
        self.tables.clone_from(tables);
    }

    fn follows(&mut self) {
        self.is_quieted = false;
        self.quietened.clear();
    }

    fn quieten(&mut self, quiet: bool) {
        assert!(self.is_quieted != quiet, "{quiet} is said twice");
        self.is_quieted = quiet;
        self.quietened.push(quiet);
    }

    fn lacks_log(&mut self, _node: NodeId) {
        // The copy learns of it, and its process sees to it.
    }
}

fn options(disk: &Arc<SimDisk>) -> OpenOptions {
    let mut options = OpenOptions::default();
    options.disk = Arc::new(Handle(Arc::clone(disk)));
    options.clock = Arc::new(SimClock::new());
    options.durability = Durability::None;
    options.with_log_files_of(LOG_FILE_BYTES)
}

pub(super) fn budget() -> Arc<aerostat_memory::Budget> {
    Governor::new("1GB".parse().unwrap()).budget("test", None)
}

fn open_copy(
    disk: &Arc<SimDisk>,
    timeline: Timeline,
    through: Option<CommitTs>,
) -> Result<(Arc<TenantStore>, Applier), RecoverError> {
    let of = CopyOf { timeline, through };
    let folder = Path::new(FOLDER);
    let opened = TenantStore::open_copy(TenantId(1), budget(), folder, &options(disk), of);
    opened.map(|(store, _, applier)| (store, applier))
}

/// A tenant with its tables, as it is before it has copies.
pub(super) fn first(disk: &Arc<SimDisk>) -> Timeline {
    let opened = TenantStore::open(TenantId(1), budget(), Path::new(FOLDER), &options(disk));
    begun(opened.unwrap().0)
}

/// Gives it its tables.
pub(super) fn begun(store: Arc<TenantStore>) -> Timeline {
    create(&store, KEYED);
    create(&store, BAG);
    store.timeline().unwrap()
}

pub(super) fn create(store: &Arc<TenantStore>, id: TableId) -> Arc<Table> {
    let layout = Layout::parse("(k,s),(n)").unwrap();
    store
        .create_table(id, schema(id == KEYED), &layout)
        .unwrap()
}

fn schema(keyed: bool) -> Arc<TableSchema> {
    let column = |name: &str, ty, nullable| Column {
        name: name.to_owned(),
        ty,
        nullable,
        default: None,
    };
    Arc::new(TableSchema {
        name: "t".to_owned(),
        columns: vec![
            column("k", SqlType::Integer, false),
            column("n", SqlType::BigInt, false),
            column("s", SqlType::Text, true),
        ],
        primary_key: if keyed { vec![0] } else { Vec::new() },
        primary_key_name: "t_pkey".to_owned(),
        checks: Vec::new(),
    })
}

pub(super) fn batch(table: &Table, rows: &[(i32, i64)], text_bytes: usize) -> RecordBatch {
    let text = "x".repeat(text_bytes);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.0))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1))),
        Arc::new(StringViewArray::from_iter_values(
            rows.iter().map(|_| text.as_str()),
        )),
    ];
    RecordBatch::try_new(Arc::clone(table.arrow_schema()), columns).unwrap()
}

/// The same, with texts that no two rows share and that nothing makes shorter.
pub(super) fn noise(table: &Table, rows: &[(i32, i64)], text_bytes: usize) -> RecordBatch {
    let mut columns = batch(table, rows, 0).columns().to_vec();
    let text = |row: &(i32, i64)| -> String {
        let mut random = StdRng::seed_from_u64(row.0 as u64);
        let letter = |_| char::from(random.random_range(b' '..=b'~'));
        (0..text_bytes).map(letter).collect()
    };
    columns[2] = Arc::new(StringViewArray::from_iter_values(rows.iter().map(text)));
    RecordBatch::try_new(Arc::clone(table.arrow_schema()), columns).unwrap()
}

/// The rows that snapshots see now, with their ids.
pub(super) fn listed(table: &Arc<Table>) -> BTreeMap<i32, (i64, u64)> {
    let view = table.view(table.store().txns().snapshot());
    let scan = view.scan(ScanSpec {
        projection: vec![0, 1],
        row_ids: true,
        ..ScanSpec::default()
    });
    let mut rows = BTreeMap::new();
    let mut reader = scan.unwrap().reader();
    while let Some(batch) = reader.next_batch().unwrap() {
        let keys = batch.column(0).as_primitive::<Int32Type>();
        let numbers = batch.column(1).as_primitive::<Int64Type>();
        let ids = batch
            .column(2)
            .as_primitive::<arrow_array::types::UInt64Type>();
        for row in 0..batch.num_rows() {
            let before = rows.insert(keys.value(row), (numbers.value(row), ids.value(row)));
            assert!(before.is_none(), "key {} is there twice", keys.value(row));
        }
    }
    rows
}

/// A node's process.
pub(super) struct Process {
    pub(super) driver: Driver,
    pub(super) host: SimHost,
}

impl Process {
    pub(super) fn start(
        disk: &Arc<SimDisk>,
        timeline: Timeline,
        node: u32,
        number: u64,
        settings: Settings,
    ) -> Result<Process, RecoverError> {
        let opened = open_copy(disk, timeline, None)?;
        let me = Member {
            node: NodeId(node),
            incarnation: Incarnation(number),
        };
        let tables = opened.1.tables().clone();
        Ok(Process {
            driver: Driver::new(me, settings, opened, node == 0),
            host: SimHost {
                disk: Arc::clone(disk),
                timeline,
                sent: Vec::new(),
                asked: Vec::new(),
                syncs: false,
                applies_beside: (u64::from(node) + number).is_multiple_of(2),
                jobs: Vec::new(),
                waiting: BTreeMap::new(),
                open: Vec::new(),
                tables,
                queued: BTreeMap::new(),
                is_quieted: false,
                quietened: Vec::new(),
            },
        })
    }

    /// A packet to a node has left.
    pub(super) fn left(&mut self, to: NodeId, bytes: usize) {
        if let Some(queued) = self.host.queued.get_mut(&to) {
            *queued -= bytes;
        }
    }

    /// Notes the tables that there are now.
    pub(super) fn note_tables(&mut self) {
        if let Some(tables) = self.driver.applied_tables() {
            self.host.tables = tables;
        }
    }

    /// What both tables show, which is the same.
    pub(super) fn rows(&self) -> Option<Rows> {
        let numbers = |id| {
            let listed = listed(self.host.tables.get(&id)?);
            Some(
                listed
                    .into_iter()
                    .map(|(key, row)| (key, row.0))
                    .collect::<Rows>(),
            )
        };
        let (keyed, bag) = (numbers(KEYED)?, numbers(BAG)?);
        assert_eq!(keyed, bag, "a commit is there in part");
        Some(keyed)
    }
}

impl Drop for Process {
    /// The process is killed: nobody is told of its commits.
    fn drop(&mut self) {
        if let Some(store) = self.driver.store() {
            store.depose();
        }
        self.host.waiting.clear();
        self.host.open.clear();
    }
}
