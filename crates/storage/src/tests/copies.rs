//! Copies against their leader: whatever the leader does, whenever what is shipped, done and opened again, a
//! copy shows at each place what its leader showed there.

mod hostile;
mod leading;
mod readers;
mod seeding;
mod shapes;

use std::path::{Path, PathBuf};

use aerostat_txn::{Block, CancelToken, Isolation, Transaction};
use aerostat_types::{CommitTs, Epoch, IndexKind, TableIndex};
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{
    recovery::{self, World, create, listed, open, options, read_names},
    *,
};

const KEYED: TableId = TableId(10);
const BAG: TableId = TableId(11);
const PASSING: u32 = 100;

/// More than goes to the log at a commit alone.
const WIDE_ROWS: i32 = 300;
const WIDE_BYTES: usize = 2_000;

/// What is shipped at once, at most.
const SHIPPED_BYTES_MAX: usize = 64 << 10;

fn nobody() -> Wake {
    Arc::new(|| {})
}

/// A copy in a folder, and how far it has come.
struct CopyAt {
    folder: tempfile::TempDir,
    store: Arc<TenantStore>,
    applier: Applier,
    /// What it reads of its leader's log.
    reader: LogReader,
    /// What it may ask for again.
    hold: LogHold,
    catalog: Option<Vec<u8>>,
    committed: CommitTs,
    /// Bytes of its last log file that are on disk.
    synced: (PathBuf, u64),
}

fn last_file(folder: &Path) -> (PathBuf, u64) {
    let last = read_names(&folder.join("log")).pop().unwrap();
    let bytes = std::fs::metadata(&last).unwrap().len();
    (last, bytes)
}

fn try_open_copy(
    folder: &Path,
    of: CopyOf,
) -> Result<(Arc<TenantStore>, Recovered, Applier), RecoverError> {
    let budget = Governor::new("1GB".parse().unwrap()).budget("test", None);
    let options = OpenOptions {
        // What the database's commits wait for is its leader's affair.
        durability: Durability::Fsync,
        ..options()
    };
    TenantStore::open_copy(TenantId(1), budget, folder, &options, of)
}

impl CopyAt {
    fn of(leader: &TenantStore) -> CopyAt {
        Self::opened(memory_folder(), leader, leader.hold_log(), None)
    }

    fn opened(
        folder: tempfile::TempDir,
        leader: &TenantStore,
        hold: LogHold,
        through: Option<CommitTs>,
    ) -> Self {
        let of = CopyOf {
            timeline: leader.timeline().unwrap(),
            through,
        };
        let (store, recovered, mut applier) = try_open_copy(folder.path(), of).unwrap();
        let applied = applier.applied();
        // All that this leader wrote is committed.
        assert_eq!(applier.apply(applied).unwrap(), Progress::CaughtUp);
        CopyAt {
            reader: leader.log_reader(applied, nobody()).unwrap(),
            synced: last_file(folder.path()),
            hold,
            folder,
            store,
            applier,
            catalog: recovered.catalog,
            committed: applied,
        }
    }

    /// As after a crash of its process, perhaps with a torn end of its log.
    fn reopened(self, leader: &TenantStore, random: &mut StdRng) -> CopyAt {
        let CopyAt {
            folder,
            store,
            applier,
            reader,
            hold,
            synced,
            ..
        } = self;
        drop((store, applier, reader));
        let (last, bytes) = last_file(folder.path());
        if random.random_bool(0.5) {
            let synced = if synced.0 == last { synced.1 } else { 48 };
            let cut = random.random_range(synced..=bytes);
            let file = std::fs::OpenOptions::new().write(true).open(&last);
            file.unwrap().set_len(cut).unwrap();
        }
        Self::opened(folder, leader, hold, None)
    }

    /// Has its disk have everything.
    fn sync(&mut self) {
        self.store.sync_log().unwrap();
        self.synced = last_file(self.folder.path());
        self.hold
            .release_through(self.reader.read_through())
            .unwrap();
    }

    /// Takes some of its leader's log; whether there was any.
    fn receive(&mut self, random: &mut StdRng) -> bool {
        let bytes_max = random.random_range(1..SHIPPED_BYTES_MAX);
        match self.reader.next(bytes_max).unwrap() {
            Some(bytes) => {
                let through = self.store.receive(&bytes).unwrap();
                assert_eq!(through, self.reader.read_through());
                true
            }
            None => false,
        }
    }

    /// Does what is committed through a place, and here.
    fn apply(&mut self, committed: CommitTs) {
        self.committed = committed.max(self.committed);
        loop {
            match self.applier.apply(self.committed).unwrap() {
                Progress::CaughtUp => return,
                Progress::More => {}
                Progress::Defined(catalog) => self.catalog = Some(catalog.to_vec()),
            }
        }
    }

    fn table(&self, id: TableId) -> Arc<Table> {
        Arc::clone(&self.applier.tables()[&id])
    }
}

/// What there was at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    keyed: Vec<Row>,
    bag: Vec<Row>,
    catalog: Option<Vec<u8>>,
}

fn rows_of_table(table: &Arc<Table>) -> Vec<Row> {
    let view = table.view(table.store().txns().snapshot());
    listed(&view).into_iter().map(|(row, _)| row).collect()
}

/// Somebody who is not done yet. Its keys are nobody else's.
enum Unfinished {
    Single(Transaction),
    Block(Block),
}

/// A leader, and what it showed.
struct Leader {
    world: World,
    unfinished: Vec<Unfinished>,
    passing: Option<Arc<Table>>,
    scratch: Arc<Table>,
    shown: BTreeMap<CommitTs, Shown>,
    catalog: Option<Vec<u8>>,
    next_key: i32,
    next_table: u32,
}

impl Leader {
    fn new() -> Leader {
        let world = World::new();
        let layout = Layout::parse("(k,s),(n)").unwrap();
        let scratch = world
            .store
            .create_temporary_table(TableId(9), schema(true), &layout, Vec::new())
            .unwrap();
        Leader {
            world,
            scratch,
            unfinished: Vec::new(),
            passing: None,
            shown: BTreeMap::new(),
            catalog: None,
            next_key: 100_000,
            next_table: PASSING,
        }
    }

    fn store(&self) -> &Arc<TenantStore> {
        &self.world.store
    }

    fn last(&self) -> CommitTs {
        self.store().txns().last_commit()
    }

    /// Notes what there is now.
    fn show(&mut self) {
        let shown = Shown {
            keyed: rows_of_table(&self.world.keyed),
            bag: rows_of_table(&self.world.bag),
            catalog: self.catalog.clone(),
        };
        self.shown.insert(self.last(), shown);
    }

    fn wide_rows(&mut self) -> Vec<Row> {
        let from = self.next_key;
        self.next_key += WIDE_ROWS;
        let wide = |key: i32| (key, 0, Some(format!("{key}{}", "w".repeat(WIDE_BYTES))));
        (from..from + WIDE_ROWS).map(wide).collect()
    }

    /// A statement of somebody who takes long.
    fn go_on(&mut self, random: &mut StdRng) {
        if self.unfinished.len() < 3 && random.random_bool(0.4) {
            let txns = self.world.store.txns();
            self.unfinished.push(match random.random_bool(0.5) {
                true => Unfinished::Single(txns.begin()),
                false => Unfinished::Block(txns.begin_block(Isolation::ReadCommitted)),
            });
        }
        if self.unfinished.is_empty() {
            return;
        }
        let at = random.random_range(0..self.unfinished.len());
        let choice = random.random_range(0..8);
        if choice < 3 {
            let ended = self.unfinished.remove(at);
            if choice < 2 {
                match ended {
                    Unfinished::Single(txn) => drop(txn.commit().unwrap()),
                    Unfinished::Block(block) => drop(block.commit().unwrap()),
                }
            }
            return;
        }
        let rows = self.wide_rows();
        let (keyed, bag) = (Arc::clone(&self.world.keyed), Arc::clone(&self.world.bag));
        let passing = self.passing.clone();
        let insert = |txn: &Transaction| {
            for table in [&keyed, &bag].into_iter().chain(&passing) {
                table.insert(txn, &batch(table, &rows)).unwrap();
            }
        };
        match &self.unfinished[at] {
            Unfinished::Single(txn) => insert(txn),
            Unfinished::Block(block) => {
                let savepoint = block.savepoint();
                let statement = block.statement();
                insert(&statement);
                statement.commit().unwrap();
                // Some of what it has just inserted, and statements before that are kept.
                let statement = block.statement();
                for table in [&keyed, &bag] {
                    let view = table.view(statement.snapshot().clone());
                    let is_own = |row: &Row| rows.iter().any(|own| own.0 == row.0);
                    let own = listed(&view).into_iter().filter(|(row, _)| is_own(row));
                    let ids: Vec<RowId> = own.step_by(7).map(|(_, id)| id).collect();
                    view.delete(&statement, &ids).unwrap();
                }
                statement.commit().unwrap();
                if random.random_bool(0.3) {
                    block.rollback_to(savepoint);
                }
            }
        }
    }

    /// Tables and shapes that come and go.
    fn define(&mut self, random: &mut StdRng) {
        let table = [&self.world.keyed, &self.world.bag][random.random_range(0..2)];
        let store = &self.world.store;
        match random.random_range(0..7) {
            0 => {
                let layouts = ["(k,s),(n)", "(k),(n),(s)", "(k,n,s)"];
                let layout = layouts[random.random_range(0..3)];
                table.set_layout(&Layout::parse(layout).unwrap()).unwrap();
            }
            1 if self.unfinished.is_empty() => {
                let index = TableIndex {
                    name: format!("i{}", random.random_range(0..3)),
                    kind: IndexKind::Hash,
                    columns: vec![random.random_range(1..3)],
                    unique: false,
                    nulls_not_distinct: false,
                };
                let txn = store.txns().begin();
                // One of the name may be there.
                drop(table.create_index(&txn, index));
            }
            2 => drop(table.drop_index("i1").unwrap()),
            3 => table.accept_nulls(&[1], &CancelToken::new()).unwrap(),
            4 => match self.passing.take() {
                Some(passing) => store.drop_table(passing.id()).unwrap(),
                None => {
                    self.next_table += 1;
                    self.passing = Some(create(store, self.next_table, random.random_bool(0.5)));
                }
            },
            _ => {
                let catalog: Vec<u8> = (0..random.random_range(1..40)).collect();
                store.commit_catalog(catalog.clone()).unwrap();
                self.catalog = Some(catalog);
            }
        }
    }

    fn step(&mut self, random: &mut StdRng) {
        match random.random_range(0..20) {
            0..6 => self.world.transact(random),
            6..9 => self.world.transact_in_block(random),
            9..13 => self.go_on(random),
            13 | 14 => self.define(random),
            15 => drop(self.store().checkpoint().unwrap()),
            16 => drop(self.world.keyed.freeze().unwrap()),
            17 => drop(self.world.bag.freeze().unwrap()),
            18 => drop(self.world.bag.vacuum().unwrap()),
            _ => load(&self.scratch, &[(self.next_key, 1, None)]),
        }
        self.next_key += 1;
        self.show();
    }
}

/// Holds a copy against what its leader showed at the same place.
fn compare(copy: &CopyAt, shown: &BTreeMap<CommitTs, Shown>) -> bool {
    let Some(expected) = shown.get(&copy.applier.applied()) else {
        return false;
    };
    let found = Shown {
        keyed: rows_of_table(&copy.table(KEYED)),
        bag: rows_of_table(&copy.table(BAG)),
        catalog: copy.catalog.clone(),
    };
    let at = copy.applier.applied();
    assert_eq!(found.keyed, expected.keyed, "keyed rows at {at}");
    assert_eq!(found.bag, expected.bag, "rows without keys at {at}");
    assert_eq!(found.catalog, expected.catalog, "the catalogue at {at}");
    true
}

/// What a copy does for itself.
fn keep_up(copy: &CopyAt, random: &mut StdRng) {
    let tables = copy.applier.tables();
    let Some(table) = tables.values().nth(random.random_range(0..=tables.len())) else {
        if copy.applier.applied() == copy.reader.read_through() {
            copy.store.checkpoint().unwrap().unwrap();
            copy.store.evict(u64::MAX);
        }
        return;
    };
    match random.random_range(0..4) {
        0 => drop(table.freeze().unwrap()),
        1 => drop(table.vacuum().unwrap()),
        2 => {
            let layout = Layout::parse("(k),(n),(s)").unwrap();
            table.adopt_layout(&layout).unwrap();
        }
        _ => drop(table.reshape(&CancelToken::new()).unwrap()),
    }
}

struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("COPIES_SEED={} COPIES_ROUNDS=1", self.0);
        }
    }
}

/// Plays a seed, and gives how often a copy was compared.
fn play(seed: u64) -> usize {
    let _seed = Seed(seed);
    let mut random = StdRng::seed_from_u64(seed);
    let mut leader = Leader::new();
    leader.show();
    let mut copy = CopyAt::of(leader.store());
    let mut compared = 0;
    for _ in 0..random.random_range(20..80) {
        leader.step(&mut random);
        for _ in 0..random.random_range(0..4) {
            copy.receive(&mut random);
            let committed = random.random_range(copy.committed.0..=leader.last().0);
            copy.apply(CommitTs(committed));
            compared += usize::from(compare(&copy, &leader.shown));
        }
        if random.random_bool(0.3) && copy.applier.applied() > CommitTs(2) {
            keep_up(&copy, &mut random);
            compared += usize::from(compare(&copy, &leader.shown));
        }
        if random.random_bool(0.2) {
            copy.sync();
        }
        if random.random_bool(0.1) {
            copy = copy.reopened(leader.store(), &mut random);
            compared += usize::from(compare(&copy, &leader.shown));
        }
    }
    change_hands(leader, copy, &mut random);
    compared
}

/// The copy takes over, with what it has, and the leader of before becomes its copy.
fn change_hands(mut leader: Leader, mut copy: CopyAt, random: &mut StdRng) {
    let all = random.random_bool(0.5);
    while copy.receive(random) && (all || random.random_bool(0.9)) {}
    copy.apply(leader.last());
    let parted = copy.applier.applied();
    let catalog = copy.catalog.clone();
    let CopyAt {
        folder,
        store,
        applier,
        reader,
        hold,
        ..
    } = copy;
    // They have the old leader's log.
    drop((reader, hold));
    let tables = [KEYED, BAG].map(|id| applier.tables().get(&id).cloned());
    let began = applier.lead(Epoch(7)).unwrap();
    assert_eq!(began, CommitTs(parted.0 + 1));
    assert_eq!(store.epochs(), [(Epoch(7), began)]);
    let [Some(keyed), Some(bag)] = tables else {
        return;
    };
    // What it does from now on is its own.
    leader.unfinished.clear();
    let Leader {
        world,
        scratch,
        passing,
        ..
    } = leader;
    let own = World {
        keyed_rows: rows_of_table(&keyed),
        bag_rows: rows_of_table(&bag),
        folder,
        store,
        keyed,
        bag,
    };
    let World {
        folder: old_folder,
        store: old,
        keyed,
        bag,
        ..
    } = world;
    drop((old, keyed, bag, scratch, passing));
    let scratch = own
        .store
        .create_temporary_table(
            TableId(9),
            schema(true),
            &Layout::parse("(k,s),(n)").unwrap(),
            Vec::new(),
        )
        .unwrap();
    let mut leader = Leader {
        world: own,
        unfinished: Vec::new(),
        passing: None,
        scratch,
        shown: BTreeMap::new(),
        catalog,
        next_key: 1_000_000,
        next_table: PASSING + 1_000,
    };
    leader.show();
    let of = CopyOf {
        timeline: leader.store().timeline().unwrap(),
        through: Some(parted),
    };
    let mut copy = match try_open_copy(old_folder.path(), of) {
        // Its checkpoint has more than the copy had. Of the log's beginning the copy may have nothing any more.
        Err(RecoverError::Diverged { .. }) => {
            let (folder, hold) = (memory_folder(), leader.store().hold_log());
            seeding::make(leader.store(), &seeding::system(), folder.path());
            CopyAt::opened(folder, leader.store(), hold, None)
        }
        opened => {
            drop(opened.unwrap());
            let hold = leader.store().hold_log();
            CopyAt::opened(old_folder, leader.store(), hold, Some(parted))
        }
    };
    for _ in 0..20 {
        leader.step(random);
        copy.receive(random);
        copy.apply(leader.last());
        compare(&copy, &leader.shown);
    }
    while copy.receive(random) {}
    copy.apply(leader.last());
    assert!(compare(&copy, &leader.shown), "all was shipped");
    assert_eq!(copy.store.epochs(), leader.store().epochs());
    copy.sync();
    let again = copy.reopened(leader.store(), random);
    assert_eq!(again.store.epochs().len(), 1);
}

#[test]
fn a_copy_shows_at_each_place_what_its_leader_showed_there() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let first: u64 = number("COPIES_SEED").unwrap_or(1);
    let rounds = number("COPIES_ROUNDS").unwrap_or(8);
    let compared: usize = (first..first + rounds).map(play).sum();
    assert!(
        compared as u64 > 20 * rounds,
        "{compared} comparisons in {rounds} rounds"
    );
}

#[test]
fn a_copy_syncs_what_it_receives_when_it_is_told_to() {
    let world = World::new();
    let mut copy = CopyAt::of(&world.store);
    let before = copy.store.durable_through();
    load(&world.keyed, &[(1, 1, None)]);
    let mut random = StdRng::seed_from_u64(1);
    while copy.receive(&mut random) {}
    let last = world.store.txns().last_commit();
    assert!(before < last);
    copy.apply(last);
    assert_eq!(copy.store.durable_through(), before);
    copy.store.sync_log().unwrap();
    assert_eq!(copy.store.durable_through(), last);
}

#[test]
fn a_copy_ahead_of_what_it_did_is_opened_as_an_ordinary_tenant() {
    let world = World::new();
    load(&world.keyed, &[(1, 1, None)]);
    let mut copy = CopyAt::of(&world.store);
    let mut random = StdRng::seed_from_u64(1);
    while copy.receive(&mut random) {}
    copy.store.sync_log().unwrap();
    let CopyAt {
        folder,
        store,
        applier,
        ..
    } = copy;
    assert_eq!(applier.applied(), CommitTs(0));
    drop((store, applier));
    let (_store, recovered) = open(folder.path());
    assert_eq!(rows_of_table(&recovered.tables[&KEYED]), [(1, 1, None)]);
}
