//! The fast path's place in a session: simple statements by key, bound once, run on the
//! client's own task (`aerostat_fast`).
//!
//! ```text
//!  text ─► Sent ──┬─ of the fast path's grammar: bound program of its shape ─► storage
//!  Prepared ──────┘        │ unfit: nothing has happened
//!                          └───────────────────────────────► planner, as any statement
//! ```
//!
//! A program is good for one state of the catalogue, of the node's roles and of the search
//! path; under another it is bound again. A write runs without keeping its thread. Where it
//! meets a row that another transaction has changed and not settled, its task sleeps until
//! that has; then it is undone and runs again, on a newer snapshot. Where there may be none
//! newer, or it has much to do, it is undone and runs again on a thread that may wait.

mod by_key;
mod plain;
mod sequences;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use aerostat_api::{
    ColumnDescription, Outcome, ParameterType, RowStream, RowsTag, TransactionStatus, Value,
    is_shape_of,
};
use aerostat_catalog::{
    Actor, CatalogState, NodeRecord, Relation, SequenceEntry, TableEntry, failure::from_storage,
};
use aerostat_fast::{
    Inputs, Kind, ListedRows, Literal, Numbers, Output, Parsed, Program, Shape, Stop,
    TEXT_BYTES_MAX, Written,
};
use aerostat_query::{Cancellation, plan::Gate};
use aerostat_sql::{grants::Privilege, names::QualifiedName};
use aerostat_storage::StorageError;
use aerostat_txn::{LockMode, RowPlace, Transaction};
use aerostat_types::{NUMERIC_DEFAULT, SqlError, SqlType};
use foldhash::fast::RandomState;
use parking_lot::Mutex;

use super::{
    ClientState, Executor, SessionView, TransactionState,
    attempts::{ATTEMPTS_MAX, settled_or_stopped},
    reading::is_long,
    run::CancelOnDrop,
    stream::{QueryTask, ready},
};

pub(super) use by_key::ByKey;
use plain::is_plain;
use sequences::{Drawing, Sequences};

/// Programs that a session keeps: those of the shapes that come again and again. A program
/// is a few hundred bytes; when there are more, all are bound anew.
const PROGRAMS_MAX: usize = 256;

/// Of so many statements the time of one is taken.
const MEASURED: u32 = 8;

/// Texts of prepared statements that a session keeps. The tree of a text takes some
/// hundred times its bytes at most.
const PREPARED_BYTES_MAX: usize = 32 << 10;

/// A statement of the fast path's grammar.
pub(super) struct FastStatement {
    pub(super) text: Arc<str>,
    shape: Arc<Shape>,
    literals: Arc<[Literal]>,
    /// The rows of an INSERT that lists them.
    rows: Option<ListedRows>,
    /// Of its parameters.
    types: Arc<[SqlType]>,
    /// What it was bound to last.
    bound: Mutex<Option<Arc<BoundProgram>>>,
}

impl FastStatement {
    /// The statement of a text with parameters of these types, if it is of the grammar.
    pub(super) fn read(text: &str, types: &[SqlType]) -> Option<Arc<Self>> {
        Some(Self::of(text, aerostat_fast::parse(text)?, types))
    }

    /// The INSERT of a text whose rows say what types its parameters have.
    pub(super) fn read_listed(text: &str) -> Option<Arc<Self>> {
        let parsed = match aerostat_fast::parse_listed(text) {
            Some(parsed) => parsed,
            None => {
                aerostat_fast::parse(text).filter(|parsed| !parsed.shape.arrays().is_empty())?
            }
        };
        Some(Self::of(text, parsed, &[]))
    }

    fn of(text: &str, parsed: Parsed, types: &[SqlType]) -> Arc<Self> {
        let Parsed {
            shape,
            literals,
            rows,
        } = parsed;
        // What stands before it stays, for the places of errors.
        let end = |char: char| char == ';' || char.is_whitespace();
        let text: Arc<str> = text.trim_end_matches(end).into();
        Arc::new(Self {
            rows: rows.map(|rows| rows.within(&text)),
            text,
            shape: Arc::new(shape),
            literals: literals.into(),
            types: types.into(),
            bound: Mutex::new(None),
        })
    }

    /// How many arrays it makes rows of.
    pub(super) fn arrays(&self) -> usize {
        self.shape.arrays().len()
    }

    /// The same with parameters of these types.
    pub(super) fn with_types(&self, types: Arc<[SqlType]>) -> Arc<Self> {
        // The program of a single row is kept with its cells in it.
        let is_one = self.rows.as_ref().is_some_and(|rows| rows.len() == 1);
        if is_one && let Some(fast) = Self::read(&self.text, &types) {
            return fast;
        }
        Arc::new(Self {
            text: Arc::clone(&self.text),
            shape: Arc::clone(&self.shape),
            literals: Arc::clone(&self.literals),
            rows: self.rows.clone(),
            types,
            bound: Mutex::new(None),
        })
    }

    /// Whether a run of it takes longer than a thread that carries connections may be held.
    fn is_long(&self, parameters: &[Value]) -> bool {
        let bytes = |&(number, _): &(usize, SqlType)| match parameters.get(number) {
            Some(Value::Text(array)) => array.len(),
            _ => 0,
        };
        let arrays: usize = self.shape.arrays().iter().map(bytes).sum();
        is_long(&self.text) || arrays > TEXT_BYTES_MAX
    }
}

/// A shape under one state of everything that names and rights depend on.
struct BoundProgram {
    /// `None` when the shape is not for the fast path.
    runs: Option<Runs>,
    place: NameScope,
}

struct Runs {
    program: Arc<Program>,
    entry: Arc<TableEntry>,
    /// The sequences it takes numbers of; `None` if it takes none.
    sequences: Option<Arc<Sequences>>,
    /// The columns it returns; `None` if it returns no rows.
    columns: Option<Arc<[ColumnDescription]>>,
    told: Told,
}

/// Counts the runs of a program, and when they are reported to its table's
/// [`Usage`](aerostat_catalog::Usage): the first ones soon, and more by the hundred.
#[derive(Default)]
struct Told(AtomicU64);

impl Told {
    const TOGETHER: u64 = 128;

    /// Counts a run; gives how many are to be reported, if it is time.
    fn count(&self) -> Option<u32> {
        let runs = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        match runs {
            1 => Some(1),
            // Half of them were reported at the power of two before.
            ..=Self::TOGETHER => runs.is_power_of_two().then_some(runs as u32 / 2),
            _ => runs
                .is_multiple_of(Self::TOGETHER)
                .then_some(Self::TOGETHER as u32),
        }
    }
}

impl Runs {
    /// Counts a run for the layout adviser.
    fn count_usage(&self, rows: u64) {
        let Some(times) = self.told.count() else {
            return;
        };
        let (usage, read) = (&self.entry.usage, self.program.columns_read());
        if !read.is_empty() {
            usage.record_lookups(read, times);
        }
        if matches!(self.program.kind(), Kind::Insert | Kind::Update) {
            usage.record_inserts(rows, times);
        }
    }

    /// Locks what a run needs.
    fn lock(&self, gate: &Gate, mode: LockMode) -> Result<(), SqlError> {
        gate.require(self.entry.oid, mode)?;
        let entries = self
            .sequences
            .iter()
            .flat_map(|sequences| &sequences.entries);
        for entry in entries {
            gate.require(entry.oid, LockMode::RowExclusive)?;
        }
        Ok(())
    }
}

/// What names and rights depend on.
#[derive(Clone)]
struct NameScope {
    epoch: u64,
    node: Arc<NodeRecord>,
    path: Arc<[String]>,
    role: Arc<str>,
}

impl NameScope {
    fn is(&self, other: &NameScope) -> bool {
        self.epoch == other.epoch
            && Arc::ptr_eq(&self.node, &other.node)
            && (Arc::ptr_eq(&self.path, &other.path) || self.path == other.path)
            && (Arc::ptr_eq(&self.role, &other.role) || self.role == other.role)
    }
}

/// What the fast path keeps for a session.
#[derive(Default)]
pub(super) struct FastPath {
    programs: HashMap<Arc<Shape>, Arc<BoundProgram>, RandomState>,
    /// How many statements it has run.
    pub(super) statements: u64,
    /// Statements prepared before, by text and the types their client gave.
    prepared: HashMap<(String, Vec<u32>), (super::Prepared, NameScope), RandomState>,
    /// Bytes of their texts.
    prepared_bytes: usize,
}

impl Executor {
    /// Runs an attempt on a thread that may wait, until it ends or the statement is stopped.
    async fn write_waiting(
        &self,
        runs: &Runs,
        inputs: &Inputs,
        transaction: Transaction,
        cancellation: &Cancellation,
    ) -> Result<(Result<Written, Stop>, Transaction), SqlError> {
        let mut stop = CancelOnDrop::of(transaction.cancel_token());
        let (program, inputs) = (Arc::clone(&runs.program), inputs.clone());
        let work = move || {
            let written = program.write(&transaction, &inputs);
            (written, transaction)
        };
        let task = QueryTask::new(self.engine.queries().spawn_blocking(work));
        let done = tokio::select! {
            biased;
            error = cancellation.stopped() => return Err(error),
            done = task.result() => done?,
        };
        stop.disarm();
        Ok(done)
    }

    /// Gives garbage that a write had no time for to a thread that has.
    fn tidy(&self, runs: &Runs) {
        if runs.entry.table.take_vacuum_wish() {
            let table = Arc::clone(&runs.entry.table);
            self.engine.queries().spawn_blocking(move || {
                if let Err(error) = table.vacuum() {
                    tracing::warn!(%error, "vacuum gave up; a later one tries again");
                }
            });
        }
    }

    /// Runs a statement by its key, as the guard's shortcut ([`guard`](super::guard)); `None` if it is
    /// to be planned, and then nothing has happened. It gives how many rows it concerned, too.
    pub(super) async fn run_fast(
        &mut self,
        client: &mut ClientState,
        transaction: &TransactionState,
        asked: &ByKey<'_>,
    ) -> Result<Option<(Outcome, u64)>, SqlError> {
        let ByKey {
            fast,
            parameters,
            told,
        } = *asked;
        let writes = fast.shape.kind() != Kind::Select;
        let is_admitted =
            transaction.machine.admits_by_key() && !(writes && transaction.changes_nothing(client));
        if !is_admitted || !client.followed().is_fast_path_on {
            return Ok(None);
        }
        let Ok(gate) = SessionView::of(client, transaction, self).gate(None) else {
            return Ok(None);
        };
        let bound = self.bound_program(client, fast, gate.catalog());
        let Some(runs) = &bound.runs else {
            return Ok(None);
        };
        // The planner's way waits for transactions that are in the way.
        let mode = match writes {
            true => LockMode::RowExclusive,
            false => LockMode::AccessShare,
        };
        if runs.lock(&gate, mode).is_err() {
            return Ok(None);
        }
        if told.is_some_and(|prepared| !is_as_told(prepared, runs)) {
            return Ok(None);
        }
        let drawing = runs.sequences.as_ref().map(|sequences| {
            let sequences = Arc::clone(sequences);
            let drawn = Mutex::default();
            Arc::new(Drawing { sequences, drawn })
        });
        let inputs = Inputs {
            parameters: parameters.cloned().unwrap_or_default(),
            types: Arc::clone(&fast.types),
            literals: Arc::clone(&fast.literals),
            now_micros: transaction.began_at.timestamp_micros(),
            zone: client.followed().client.zone,
            rows: fast.rows.clone(),
            numbers: drawing.clone().map(|drawing| drawing as Arc<dyn Numbers>),
        };
        let measured = self.fast.statements.is_multiple_of(u64::from(MEASURED));
        let began = measured.then(Instant::now);
        let (rows, outcome) = if writes {
            let Some(written) = self
                .write_fast(client, transaction, &gate, runs, (inputs, began), fast)
                .await?
            else {
                if let Some(drawing) = drawing {
                    drawing.give_back();
                }
                return Ok(None);
            };
            (written.rows, outcome_of(runs, written))
        } else {
            let snapshot = transaction.read_snapshot(self.txns())?;
            if gate.confirm().is_err() {
                return Ok(None);
            }
            let Ok(rows) = runs.program.read(snapshot, &inputs) else {
                return Ok(None);
            };
            self.count_time(began);
            let (count, rows) = (rows.len() as u64, RowStream::of_rows(rows));
            (count, outcome_with(runs, rows, RowsTag::Select))
        };
        self.fast.statements += 1;
        runs.count_usage(rows);
        Ok(Some((outcome, rows)))
    }

    /// Counts the time since a statement began that is measured.
    fn count_time(&self, began: Option<Instant>) {
        if let Some(began) = began {
            self.tenant.count_by_key(began.elapsed(), MEASURED);
        }
    }

    /// Runs a write until it is committed, or kept for its block.
    async fn write_fast(
        &self,
        client: &ClientState,
        transaction: &TransactionState,
        gate: &Gate,
        runs: &Runs,
        (inputs, began): (Inputs, Option<Instant>),
        fast: &FastStatement,
    ) -> Result<Option<Written>, SqlError> {
        let mut waiting: Option<Cancellation> = None;
        let is_long = fast.is_long(&inputs.parameters);
        let mut waits = is_long;
        if is_long {
            client.note_active(&fast.text);
            waiting = Some(client.cancel.begin(client.statement_timeout()));
        }
        let (mut conflicts, mut place) = (0, None);
        while conflicts < ATTEMPTS_MAX {
            // An attempt before this one has given the lock back.
            if runs.lock(gate, LockMode::RowExclusive).is_err() {
                return Ok(None);
            }
            let mut attempt =
                SessionView::of(client, transaction, self).begin_statement(gate.locks())?;
            if let Some(place) = &place {
                attempt = attempt.with_place(place);
            }
            if gate.confirm().is_err() {
                return Ok(None);
            }
            let (written, attempt) = match &waiting {
                Some(cancellation) if waits => {
                    if transaction.may_wait_undone(client) {
                        attempt = attempt.with_seats(self.engine.seats());
                    }
                    // Apart, or every statement's future has room for it.
                    let waiting = self.write_waiting(runs, &inputs, attempt, cancellation);
                    Box::pin(waiting).await?
                }
                _ => {
                    let attempt = attempt.without_waiting();
                    (runs.program.write(&attempt, &inputs), attempt)
                }
            };
            let written = match written {
                Ok(written) => written,
                Err(Stop::Conflict) if transaction.may_run_again(client) => {
                    place = kept_place(&attempt);
                    conflicts += 1;
                    waits = is_long;
                    continue;
                }
                Err(Stop::WouldWait(awaited)) if !waits || awaited.is_some() => {
                    if waiting.is_none() {
                        client.note_active(&fast.text);
                    }
                    let cancellation = waiting
                        .get_or_insert_with(|| client.cancel.begin(client.statement_timeout()));
                    // A snapshot that is kept must be older than what is waited for.
                    match awaited.filter(|_| transaction.may_wait_undone(client)) {
                        Some(awaited) => {
                            let settled = settled_or_stopped(&attempt, awaited, cancellation);
                            Box::pin(settled).await?;
                            place = kept_place(&attempt);
                        }
                        None => waits = true,
                    }
                    continue;
                }
                Err(Stop::Cancelled) => {
                    return Err(
                        waiting.map_or_else(aerostat_catalog::failure::canceled, |c| c.error())
                    );
                }
                // The other way would begin anew, on a snapshot that sees what was waited for.
                Err(Stop::Conflict) if waits => return Err(from_storage(StorageError::Conflict)),
                // The other way would wait once more before it said so.
                Err(Stop::Deadlock) => return Err(from_storage(StorageError::Deadlock)),
                Err(Stop::TimedOut) => return Err(from_storage(StorageError::LockTimeout)),
                Err(Stop::Unfit | Stop::Conflict | Stop::WouldWait(_)) => return Ok(None),
            };
            let committing = attempt
                .enqueue()
                .map_err(|error| from_storage(error.into()))?;
            // One that has waited has taken no thread meanwhile.
            self.count_time(began.filter(|_| waiting.is_none()));
            self.tenant
                .commits()
                .commit(committing, self.engine.ends(), client.copy.as_deref())
                .await
                .map_err(|error| from_storage(error.into()))?;
            self.tidy(runs);
            return Ok(Some(written));
        }
        Ok(None)
    }

    /// The program of a statement, under what is there now.
    fn bound_program(
        &mut self,
        client: &mut ClientState,
        fast: &FastStatement,
        catalog: &Arc<CatalogState>,
    ) -> Arc<BoundProgram> {
        let place = self.place(client, catalog);
        let mut kept = fast.bound.lock();
        if let Some(bound) = kept.as_ref().filter(|bound| bound.place.is(&place)) {
            return Arc::clone(bound);
        }
        // Types of parameters go with a prepared statement, which keeps its own.
        let is_shared = fast.types.is_empty();
        let known = self.fast.programs.get(&fast.shape);
        let bound = match known.filter(|bound| is_shared && bound.place.is(&place)) {
            Some(bound) => Arc::clone(bound),
            None => {
                let runs = self.bind_fast(client, fast, catalog);
                let bound = Arc::new(BoundProgram { runs, place });
                if is_shared {
                    if self.fast.programs.len() >= PROGRAMS_MAX {
                        self.fast.programs.clear();
                    }
                    let shape = Arc::clone(&fast.shape);
                    self.fast.programs.insert(shape, Arc::clone(&bound));
                }
                bound
            }
        };
        *kept = Some(Arc::clone(&bound));
        bound
    }

    /// `None` also for errors: the planner's way finds them again.
    fn bind_fast(
        &self,
        client: &ClientState,
        fast: &FastStatement,
        catalog: &Arc<CatalogState>,
    ) -> Option<Runs> {
        let actor = self.actor(client).ok()?;
        let found = actor.find(catalog, &name_of(fast)?).ok()??;
        let privilege = match fast.shape.kind() {
            Kind::Select => Privilege::Select,
            Kind::Insert => Privilege::Insert,
            Kind::Update => Privilege::Update,
            Kind::Delete => Privilege::Delete,
        };
        let Relation::Table(entry) = found.relation else {
            return None;
        };
        let writes = fast.shape.kind() != Kind::Select;
        let may = |privilege| actor.may(found.relation, privilege);
        if fast.shape.has_conflict_target() && !may(Privilege::Select)
            || fast.shape.updates_on_conflict() && !may(Privilege::Update)
        {
            return None;
        }
        if !actor.may(found.relation, privilege) || !is_plain(entry, catalog, writes) {
            return None;
        }
        let default = |at: usize| entry.default_text(at);
        let program = aerostat_fast::bind(&fast.shape, &entry.table, &fast.types, &default)?;
        // What a change may do without it, the planner's way tells apart.
        if program.reads() && !actor.may(found.relation, Privilege::Select) {
            return None;
        }
        let entries = sequences_of(&program, entry, catalog, &actor)?;
        let taken = Arc::clone(&client.taken);
        let sequences = (!entries.is_empty()).then(|| Arc::new(Sequences { entries, taken }));
        let returns = program.kind() == Kind::Select || !program.outputs().is_empty();
        let origin = |at: usize| i16::try_from(at + 1).ok();
        let describe = |output: &Output| {
            let column = ColumnDescription::new(output.name.clone(), output.ty);
            match output.column.and_then(origin) {
                Some(attnum) => ColumnDescription {
                    table_oid: entry.oid,
                    attnum,
                    ..column
                },
                None => column,
            }
        };
        let columns = returns.then(|| program.outputs().iter().map(describe).collect());
        Some(Runs {
            program: Arc::new(program),
            entry: Arc::clone(entry),
            sequences,
            columns,
            told: Told::default(),
        })
    }

    /// The table that a statement is about.
    fn fast_table(
        &self,
        client: &ClientState,
        fast: &FastStatement,
        catalog: &CatalogState,
    ) -> Option<Arc<TableEntry>> {
        let found = self
            .actor(client)
            .ok()?
            .find(catalog, &name_of(fast)?)
            .ok()??;
        match found.relation {
            Relation::Table(entry) => Some(Arc::clone(entry)),
            _ => None,
        }
    }

    fn place(&self, client: &mut ClientState, catalog: &CatalogState) -> NameScope {
        let epoch = catalog.epoch;
        let node = self.engine.node().record();
        let settings = client.followed();
        let (path, role) = (Arc::clone(&settings.path), Arc::clone(&settings.role));
        NameScope {
            epoch,
            node,
            path,
            role,
        }
    }

    /// The types of the parameters of an INSERT whose rows a text lists: those that the client
    /// gives, and otherwise those of the columns that they go to. `None` where the planner's way
    /// must find them.
    pub(super) fn listed_parameters(
        &self,
        client: &mut ClientState,
        transaction: &TransactionState,
        fast: &FastStatement,
        given: &[Option<ParameterType>],
    ) -> Option<Vec<ParameterType>> {
        let has_others = fast.shape.returns() || fast.shape.has_parameters_on_conflict();
        let has_failed = transaction.status() == TransactionStatus::Failed;
        if has_others || has_failed || !client.followed().is_fast_path_on {
            return None;
        }
        let catalog = SessionView::of(client, transaction, self).catalog().ok()?;
        let entry = self.fast_table(client, fast, &catalog)?;
        let mut types = given.to_vec();
        let columns = fast.shape.listed_columns(entry.table.schema())?;
        let columns: Vec<_> = columns.into_iter().map(ParameterType::Value).collect();
        let mut declare = |number: usize, ty: ParameterType| {
            if types.len() <= number {
                types.resize(number + 1, None);
            }
            if takes_digits(types[number], ty) {
                types[number] = None;
            }
            *types[number].get_or_insert(ty) == ty
        };
        if let Some(rows) = &fast.rows {
            rows.each_parameter(|number, cell| {
                let given = given.get(number).copied().flatten();
                let is_given = given.is_some_and(|ty| ty.value().is_some())
                    && !takes_digits(given, columns[cell]);
                // Two columns of different types are the planner's to judge.
                is_given || declare(number, columns[cell])
            })?;
        }
        for &(number, item) in fast.shape.arrays() {
            declare(number, ParameterType::Array(item)).then_some(())?;
        }
        types.into_iter().collect()
    }

    /// A statement that was prepared before under the same conditions.
    pub(super) fn prepared_before(
        &self,
        client: &mut ClientState,
        transaction: &TransactionState,
        text: &str,
        oids: &[u32],
    ) -> Option<super::Prepared> {
        if self.fast.prepared.is_empty() || transaction.status() == TransactionStatus::Failed {
            return None;
        }
        let catalog = SessionView::of(client, transaction, self).catalog().ok()?;
        let place = self.place(client, &catalog);
        let key = (text.to_owned(), oids.to_vec());
        let keeps_plans = client.keeps_plans();
        let (prepared, known) = self.fast.prepared.get(&key)?;
        let is_kept = known.is(&place) && (keeps_plans || prepared.fast.is_some());
        is_kept.then(|| prepared.clone())
    }

    /// Keeps a query or DML, or a statement of the fast path's grammar, for when the same is prepared
    /// again.
    pub(super) fn keep_prepared(
        &mut self,
        client: &mut ClientState,
        transaction: &TransactionState,
        text: &str,
        oids: &[u32],
        prepared: &super::Prepared,
    ) {
        let is_planned = prepared.is_planned() && client.keeps_plans();
        if prepared.fast.is_none() && !is_planned || text.len() > PREPARED_BYTES_MAX {
            return;
        }
        let Ok(catalog) = SessionView::of(client, transaction, self).catalog() else {
            return;
        };
        let place = self.place(client, &catalog);
        let bytes = self.fast.prepared_bytes + text.len();
        if self.fast.prepared.len() >= PROGRAMS_MAX || bytes > PREPARED_BYTES_MAX {
            self.fast.prepared.clear();
            self.fast.prepared_bytes = 0;
        }
        let key = (text.to_owned(), oids.to_vec());
        let before = self.fast.prepared.insert(key, (prepared.clone(), place));
        if before.is_none() {
            self.fast.prepared_bytes += text.len();
        }
    }
}

/// The sequences that a program takes numbers of, if the actor may. `None` if it may not.
fn sequences_of(
    program: &Program,
    table: &TableEntry,
    catalog: &CatalogState,
    actor: &Actor,
) -> Option<Vec<Arc<SequenceEntry>>> {
    let mut entries = Vec::with_capacity(program.sequences().len());
    for &oid in program.sequences() {
        let (_, entry) = catalog.sequence(oid)?;
        // A role that may insert may take the numbers of identity columns.
        let mut identities = table.identities.values();
        let is_identity = identities.any(|identity| identity.sequence == oid);
        let relation = Relation::Sequence(Arc::clone(entry));
        let may = |privilege| actor.may(&relation, privilege);
        if !is_identity && !may(Privilege::Usage) && !may(Privilege::Update) {
            return None;
        }
        entries.push(Arc::clone(entry));
    }
    Some(entries)
}

/// The name of the table that a statement is about.
fn name_of(fast: &FastStatement) -> Option<QualifiedName> {
    let name = fast.shape.table();
    // The system's relations stand before the search path.
    if name.schema.is_none() && name.name.starts_with("pg_") {
        return None;
    }
    Some(QualifiedName {
        database: None,
        schema: name.schema.clone(),
        name: name.name.clone(),
    })
}

/// Where a statement that runs again stands among those that wait for rows.
fn kept_place(transaction: &Transaction) -> Option<RowPlace> {
    transaction.has_place().then(|| transaction.place())
}

/// Whether a parameter is a numeric without digits of its own that goes into a column of one.
fn takes_digits(declared: Option<ParameterType>, column: ParameterType) -> bool {
    declared == Some(ParameterType::Value(NUMERIC_DEFAULT)) && column.oid() == NUMERIC_DEFAULT.oid()
}

/// Whether a program returns the columns that the client knows from its Describe.
fn is_as_told(prepared: &super::Prepared, runs: &Runs) -> bool {
    match (&prepared.columns, &runs.columns) {
        (Some(told), Some(columns)) => is_shape_of(told, columns),
        (told, columns) => told.is_none() && columns.is_none(),
    }
}

fn outcome_of(runs: &Runs, written: Written) -> Outcome {
    let tag = match runs.program.kind() {
        Kind::Select => RowsTag::Select,
        Kind::Insert => RowsTag::Insert,
        Kind::Update => RowsTag::Update,
        Kind::Delete => RowsTag::Delete,
    };
    match written.returned {
        Some(mut batches) => {
            batches.retain(|batch| batch.num_rows() > 0);
            outcome_with(runs, ready(batches), tag)
        }
        None => Outcome::Command {
            tag: tag.after(written.rows),
        },
    }
}

fn outcome_with(runs: &Runs, rows: RowStream, tag: RowsTag) -> Outcome {
    Outcome::Rows {
        columns: runs.columns.clone().unwrap_or_default(),
        batches: rows,
        tag,
    }
}
