//! Sequences: numbers that go up, or down, and are not given twice.
//!
//! ```text
//!  nextval ──► Counter: position ──► the next one
//!                 │ reserved numbers are used up
//!                 ▼
//!              one row in a table of its own in storage: a later position, durable first
//! ```
//!
//! * A sequence's definition ([`Definition`]) is a part of the catalogue and changes with
//!   transactions. Its position ([`Counter`]) is not: a number is taken once and for all,
//!   whatever becomes of the transaction that took it.
//! * Numbers are reserved in runs. The row says that all numbers up to the end of a run are
//!   given, in a transaction of its own that is durable before the first of them is handed out:
//!   so it is earlier in the log than any row that holds one. After a crash a sequence continues
//!   after its last run, and the rest of that run is a gap.
//! * A statement that changes a sequence's position together with its definition (ALTER SEQUENCE,
//!   TRUNCATE … RESTART IDENTITY) gives it another counter, as TRUNCATE gives a table other rows,
//!   so that it can be undone.

mod definition;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use aerostat_storage::{Literal, StorageError, Table, ValueRef};
use aerostat_types::{Column, ErrorKind, RelationId, SqlError, SqlType, TableId, TableSchema};
use arrow::array::{ArrayRef, BooleanArray, Int16Array, Int64Array, RecordBatch};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::failure::from_storage;

pub use definition::Definition;

/// Numbers that are reserved beyond the one that is asked for: as many as PostgreSQL does.
const AHEAD_MIN: u64 = 32;

/// The longest run. A load of a million rows waits for the disk some hundred times then.
const AHEAD_MAX: u64 = 8_192;

/// A run that is used up sooner than this is followed by one twice as long.
const DEMAND: Duration = Duration::from_secs(1);

/// Where a sequence stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// A number.
    pub last_value: i64,
    /// Whether it was given; otherwise it is the next.
    pub is_called: bool,
}

/// Where a sequence stands, kept in a table of one row in storage.
pub struct Counter {
    table: Arc<Table>,
    /// Where it stands as long as the table has no row.
    start: Position,
    /// `None` until it is asked for the first time.
    running: Mutex<Option<Running>>,
}

#[derive(Clone, Copy)]
struct Running {
    position: Position,
    /// Numbers that are reserved and not given.
    left: u64,
    /// The length of the next run.
    ahead: u64,
    reserved_at: Option<Instant>,
}

impl Counter {
    /// The columns of a counter's table: a key that is always 0, and a position.
    pub fn schema() -> Arc<TableSchema> {
        let column = |name: &str, ty: SqlType| Column {
            name: name.to_owned(),
            ty,
            nullable: false,
            default: None,
        };
        Arc::new(TableSchema {
            name: "sequence".to_owned(),
            columns: vec![
                column("key", SqlType::SmallInt),
                column("last_value", SqlType::BigInt),
                column("is_called", SqlType::Boolean),
            ],
            primary_key: vec![0],
            primary_key_name: "sequence_pkey".to_owned(),
            checks: Vec::new(),
        })
    }

    /// Over a table of [`Self::schema`].
    ///
    /// # Panics
    /// When the table has another schema.
    pub fn new(table: Arc<Table>, start: Position) -> Arc<Self> {
        assert!(
            Self::is_table(&table),
            "a sequence stands in a counter's table"
        );
        Arc::new(Self {
            table,
            start,
            running: Mutex::new(None),
        })
    }

    /// Whether a table has the columns and the key of [`Self::schema`].
    pub(crate) fn is_table(table: &Table) -> bool {
        let (own, counter) = (table.schema(), Self::schema());
        let types = |schema: &TableSchema| -> Vec<SqlType> {
            schema.columns.iter().map(|column| column.ty).collect()
        };
        own.primary_key == counter.primary_key && types(own) == types(&counter)
    }

    /// The number of its table in storage.
    pub(crate) fn table_id(&self) -> TableId {
        self.table.id()
    }

    /// Whether it is gone with its session.
    pub fn is_temporary(&self) -> bool {
        self.table.is_temporary()
    }

    /// Where it stood when it was made.
    pub fn start(&self) -> Position {
        self.start
    }

    /// Where it stands now.
    ///
    /// # Errors
    /// Its row could not be read.
    pub fn position(&self) -> Result<Position, SqlError> {
        Ok(self.state()?.0)
    }

    /// Where it stands now, and how many numbers are reserved.
    ///
    /// # Errors
    /// As [`Self::position`].
    pub fn state(&self) -> Result<(Position, u64), SqlError> {
        if self.table.store().is_copy() {
            // Another node takes the numbers, and the row says what is known of them here.
            let row = self.read().map_err(from_storage)?;
            return Ok((row.unwrap_or(self.start), 0));
        }
        let mut running = self.running.lock();
        let running = self.running(&mut running)?;
        Ok((running.position, running.left))
    }

    /// Takes a number of the sequence of this definition and name. May wait for the disk.
    ///
    /// # Errors
    /// There are no more, or one could not be reserved; those of [`Self::position`].
    pub fn next(&self, definition: &Definition, name: &str) -> Result<i64, SqlError> {
        let mut running = self.running.lock();
        let running = self.running(&mut running)?;
        let next = definition
            .after(running.position)
            .ok_or_else(|| definition.used_up(name))?;
        if running.left == 0 {
            self.reserve(running, definition, next)?;
        }
        running.give(next);
        Ok(next)
    }

    /// Takes a number if that needs neither the disk nor a wait, and says where the sequence stood
    /// before it.
    pub fn next_at_hand(&self, definition: &Definition) -> Option<(i64, Position)> {
        let mut running = self.running.try_lock()?;
        let running = running.as_mut().filter(|running| running.left > 0)?;
        let next = definition.after(running.position)?;
        let before = running.position;
        running.give(next);
        Some((next, before))
    }

    /// Gives back a number that was at hand and that nobody has seen. Where somebody has taken another
    /// since, or is about to, it is a gap.
    pub fn give_back(&self, number: i64, before: Position) {
        let Some(mut running) = self.running.try_lock() else {
            return;
        };
        let given = Position {
            last_value: number,
            is_called: true,
        };
        if let Some(running) = running.as_mut()
            && running.position == given
        {
            running.position = before;
            running.left += 1;
        }
    }

    /// Goes to a position. Waits for the disk.
    ///
    /// # Errors
    /// It could not be written; those of [`Self::position`].
    pub fn set(&self, position: Position) -> Result<(), SqlError> {
        let mut running = self.running.lock();
        let running = self.running(&mut running)?;
        self.write(position)?;
        (running.position, running.left) = (position, 0);
        Ok(())
    }

    fn running<'r>(&self, running: &'r mut Option<Running>) -> Result<&'r mut Running, SqlError> {
        if running.is_none() {
            *running = Some(Running {
                position: self.read().map_err(from_storage)?.unwrap_or(self.start),
                left: 0,
                ahead: AHEAD_MIN,
                reserved_at: None,
            });
        }
        Ok(running.as_mut().expect("it was read if nobody had"))
    }

    fn reserve(
        &self,
        running: &mut Running,
        definition: &Definition,
        next: i64,
    ) -> Result<(), SqlError> {
        let now = Instant::now();
        let in_demand = running
            .reserved_at
            .is_some_and(|at| now.saturating_duration_since(at) < DEMAND);
        running.ahead = match in_demand {
            true => (running.ahead * 2).min(AHEAD_MAX),
            false => AHEAD_MIN,
        };
        running.reserved_at = Some(now);
        let (last_value, count) = definition.run(next, running.ahead + 1);
        assert!(
            (1..=running.ahead + 1).contains(&count),
            "a run of {count} numbers is reserved, where {} were wanted",
            running.ahead + 1
        );
        self.write(Position {
            last_value,
            is_called: true,
        })?;
        running.left = count;
        Ok(())
    }

    /// The row, if there is one.
    fn read(&self) -> Result<Option<Position>, StorageError> {
        let Some(key) = self.table.key(&[Literal::Int(0)]) else {
            return Ok(None);
        };
        let view = self.table.view(self.table.store().txns().snapshot());
        let rows = view.rows(&[1, 2], true);
        let Some(row) = rows.row(key.borrow())? else {
            return Ok(None);
        };
        Ok(match (row.value(1), row.value(2)) {
            (ValueRef::I64(last_value), ValueRef::Bool(is_called)) => Some(Position {
                last_value,
                is_called,
            }),
            _ => None,
        })
    }

    /// Makes a position durable, in a transaction of its own. Whoever calls it holds the
    /// lock, so nobody else writes the row.
    fn write(&self, position: Position) -> Result<(), SqlError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int16Array::from(vec![0])),
            Arc::new(Int64Array::from(vec![position.last_value])),
            Arc::new(BooleanArray::from(vec![position.is_called])),
        ];
        let row = RecordBatch::try_new(Arc::clone(self.table.arrow_schema()), columns)
            .expect("a position has the columns of a counter's table");
        let write = || -> Result<(), StorageError> {
            let transaction = self.table.store().txns().begin();
            let view = self.table.view(transaction.snapshot().clone());
            let old = match self.table.key(&[Literal::Int(0)]) {
                Some(key) => view.lookup(key.borrow())?,
                None => None,
            };
            match old {
                Some(id) => view.update(&transaction, &[id], &row)?,
                None => self.table.insert(&transaction, &row)?,
            };
            transaction.commit()?;
            Ok(())
        };
        write().map_err(from_storage)
    }
}

impl Running {
    fn give(&mut self, number: i64) {
        assert!(self.left > 0, "a number is reserved before it is given");
        self.left -= 1;
        self.position = Position {
            last_value: number,
            is_called: true,
        };
    }
}

/// The numbers that a session has taken, for `currval` and `lastval`.
#[derive(Debug, Default)]
pub struct Taken {
    numbers: BTreeMap<RelationId, i64>,
    last: Option<RelationId>,
}

impl Taken {
    /// Notes a number of `nextval`.
    pub fn note(&mut self, sequence: RelationId, number: i64) {
        self.note_set(sequence, number);
        self.last = Some(sequence);
    }

    /// Notes a number of `setval`, which `lastval` does not tell.
    pub fn note_set(&mut self, sequence: RelationId, number: i64) {
        self.numbers.insert(sequence, number);
    }

    /// What is known of a sequence, and which was the last, before a number is noted.
    pub fn before(&self, sequence: RelationId) -> Before {
        Before {
            number: self.of(sequence),
            last: self.last,
        }
    }

    /// Undoes the last note, whose number was given back.
    pub fn undo(&mut self, sequence: RelationId, before: Before) {
        match before.number {
            Some(number) => self.note_set(sequence, number),
            None => {
                self.numbers.remove(&sequence);
            }
        }
        self.last = before.last;
    }

    /// The last number of a sequence.
    pub fn of(&self, sequence: RelationId) -> Option<i64> {
        self.numbers.get(&sequence).copied()
    }

    /// The last numbers, by sequence.
    pub fn numbers(&self) -> &BTreeMap<RelationId, i64> {
        &self.numbers
    }

    /// Goes on with what another node's session knew.
    pub fn resume(&mut self, numbers: BTreeMap<RelationId, i64>, last: Option<RelationId>) {
        *self = Self { numbers, last };
    }

    /// The sequence that `nextval` was called of last.
    pub fn last(&self) -> Option<RelationId> {
        self.last
    }

    /// DISCARD SEQUENCES.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

/// What a session knew of a sequence before it took a number.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    number: Option<i64>,
    last: Option<RelationId>,
}

/// The error for what is no sequence.
pub fn not_a_sequence(name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::WrongObjectType,
        format!("\"{name}\" is not a sequence"),
    )
}

#[cfg(test)]
mod tests {
    use aerostat_memory::Governor;
    use aerostat_sql::sequence_options::Options;
    use aerostat_storage::{CopyOf, OpenOptions, TenantStore};
    use aerostat_types::{ByteSize, Layout, TenantId};
    use proptest::prelude::*;

    use super::*;

    fn counter(start: Position) -> Arc<Counter> {
        let budget = Governor::new(ByteSize(1 << 30)).budget("sequences", None);
        let store = TenantStore::new(TenantId(1), budget);
        let table = store
            .create_table(TableId(20_000), Counter::schema(), &Layout::Row)
            .unwrap();
        Counter::new(table, start)
    }

    /// What is left of a counter after a crash: its table.
    fn reopened(counter: &Counter) -> Arc<Counter> {
        Counter::new(Arc::clone(&counter.table), counter.start)
    }

    #[test]
    fn numbers_follow_each_other_over_many_runs() {
        let definition = Definition::default();
        let counter = counter(definition.first());
        for expected in 1..=20_000 {
            assert_eq!(counter.next(&definition, "s").unwrap(), expected);
        }
        assert_eq!(counter.position().unwrap().last_value, 20_000);
    }

    #[test]
    fn no_number_comes_twice_after_a_crash() {
        let definition = Definition::default();
        let mut running = counter(definition.first());
        let mut last = 0;
        for taken in [0, 1, 31, 32, 33, 34, 500, 2] {
            for _ in 0..taken {
                let number = running.next(&definition, "s").unwrap();
                assert!(number > last, "{number} after {last}");
                last = number;
            }
            running = reopened(&running);
        }
    }

    /// On a copy a sequence stands where its leader's log says, each time it is asked.
    #[test]
    fn a_copy_follows_its_leaders_numbers() {
        let budget = || Governor::new(ByteSize(1 << 30)).budget("sequences", None);
        let options = OpenOptions::default();
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let opened = TenantStore::open(TenantId(1), budget(), here.path(), &options);
        let (leader, _) = opened.unwrap();
        let table = leader.create_table(TableId(20_000), Counter::schema(), &Layout::Row);
        let definition = Definition::default();
        let counter = Counter::new(table.unwrap(), definition.first());
        counter.next(&definition, "s").unwrap();
        let of = CopyOf {
            timeline: leader.timeline().unwrap(),
            through: None,
        };
        let opened = TenantStore::open_copy(TenantId(1), budget(), there.path(), &options, of);
        let (copy, _, mut applier) = opened.unwrap();
        let _hold = leader.hold_log();
        let mut reader = leader
            .log_reader(applier.applied(), Arc::new(|| {}))
            .unwrap();
        let mut follow = || {
            while let Some(records) = reader.next(1 << 20).unwrap() {
                copy.receive(&records).unwrap();
            }
            applier.apply(leader.txns().last_commit()).unwrap();
            Arc::clone(&applier.tables()[&TableId(20_000)])
        };
        let copied = Counter::new(follow(), definition.first());
        // One was asked for, and a run behind it is reserved.
        let reserved = |counter: &Counter| counter.state().unwrap();
        let at = |last_value: i64| Position {
            last_value,
            is_called: true,
        };
        assert_eq!(counter.position().unwrap(), at(1));
        let first = reserved(&copied);
        assert!(first.0.last_value > 1 && first.0.is_called && first.1 == 0);
        counter.set(at(5_000)).unwrap();
        assert_eq!(reserved(&copied), first);
        follow();
        assert_eq!(copied.position().unwrap(), at(5_000));
        counter.set(at(70)).unwrap();
        follow();
        assert_eq!(copied.position().unwrap(), at(70));
        // It takes no numbers.
        assert_eq!(copied.next_at_hand(&definition), None);
        assert_eq!(copied.position().unwrap(), at(70));
    }

    #[test]
    fn several_threads_share_the_numbers() {
        let definition = Definition::default();
        let counter = counter(definition.first());
        let mut all: Vec<i64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let (counter, definition) = (&counter, &definition);
                    scope.spawn(move || {
                        (0..2_000)
                            .map(|_| counter.next(definition, "s").unwrap())
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect()
        });
        all.sort_unstable();
        assert_eq!(all, (1..=8_000).collect::<Vec<_>>());
    }

    #[test]
    fn a_position_is_kept() {
        let definition = Definition::default();
        let counter = counter(definition.first());
        for is_called in [true, false] {
            let position = Position {
                last_value: 41,
                is_called,
            };
            counter.set(position).unwrap();
            assert_eq!(reopened(&counter).position().unwrap(), position);
            assert_eq!(counter.next_at_hand(&definition), None);
            let next = counter.next(&definition, "s").unwrap();
            assert_eq!(next, 41 + i64::from(is_called));
            let (number, before) = counter.next_at_hand(&definition).unwrap();
            assert_eq!((number, before.last_value), (next + 1, next));
            counter.give_back(number, before);
            counter.give_back(next + 9, before);
            let again = counter.next_at_hand(&definition).unwrap();
            assert_eq!(again, (next + 1, before));
        }
    }

    proptest! {
        /// Against PostgreSQL's rule written out: one number at a time, crashes between.
        #[test]
        fn numbers_are_those_of_the_model(
            increment in prop_oneof![-9_i64..=-1, 1_i64..=9],
            min in -50_i64..0,
            max in 1_i64..60,
            cycles: bool,
            crashes in proptest::collection::vec(proptest::bool::weighted(0.05), 120),
        ) {
            let options = Options {
                increment: Some(increment),
                min: Some(Some(min)),
                max: Some(Some(max)),
                cycles: Some(cycles),
                ..Options::default()
            };
            let (definition, start) = Definition::create(&options, SqlType::BigInt).unwrap();
            let mut running = counter(start);
            let mut model = start;
            for crash in crashes {
                if crash {
                    running = reopened(&running);
                    // It goes on behind the run, which may be any number ahead.
                    model = running.position().unwrap();
                }
                let expected = definition.after(model);
                let got = running.next(&definition, "s");
                match expected {
                    Some(number) => {
                        prop_assert_eq!(got.unwrap(), number);
                        prop_assert!((min..=max).contains(&number));
                        model = Position { last_value: number, is_called: true };
                    }
                    None => {
                        prop_assert!(!cycles);
                        prop_assert_eq!(
                            got.unwrap_err().kind,
                            ErrorKind::SequenceGeneratorLimitExceeded
                        );
                    }
                }
            }
        }
    }
}
