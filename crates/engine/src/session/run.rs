//! Queries and DML.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use aerostat_api::{ColumnDescription, Outcome, RowsTag};
use aerostat_query::{
    Cancellation, Work,
    dml::{self, BoundDml, DmlKind, sink},
    from_datafusion, hand_on, physical,
    plan::{StatementContext, first_lock, origins, parameter_count, show_entries},
};
use aerostat_semantics::external;
use aerostat_sql::{
    statement::Source,
    tree::modifying::{is_dml, modifies_in_with},
};
use aerostat_txn::{RowLock, Transaction};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    arrow::array::RecordBatch,
    common::{DataFusionError, ParamValues, Result as PlanResult},
    execution::SendableRecordBatchStream,
    logical_expr::LogicalPlan,
    physical_plan::{ExecutionPlan, execute_stream},
    sql::{planner::PlannerContext, sqlparser::ast},
};
use futures::{FutureExt, StreamExt};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::{
    Executor, Running, SessionView,
    attempts::finish,
    described::Described,
    flow::Flow,
    planning::{self, Identity, Plans},
    prepared::Bound,
    reading::{is_long, worked_out},
    stream::{AbortOnDrop, QueryTask, RESULT_BATCHES_MAX, Sending, ready_within, received},
};
use crate::memory::Held;

/// A statement that ended this many rows is followed by a vacuum of its table:
/// a version block. Fewer are left to the next write that comes by.
const VACUUM_ROWS_MIN: u64 = 1_024;

/// When the waiting client is told the columns of a query.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// Once it is planned.
    AtOnce,
    /// With its first rows: a short result wakes the waiting task once, not for its columns, its
    /// rows and its end.
    WithRows,
}

impl Executor {
    /// Runs work on the query runtime until it ends or the statement is stopped.
    pub(super) async fn on_query_runtime<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        cancellation: &Cancellation,
    ) -> Result<T, SqlError> {
        let task = QueryTask::new(self.tenant.spawn(self.engine.queries(), cancellation, work));
        tokio::select! {
            biased;
            error = cancellation.stopped() => Err(error),
            result = task.result() => result,
        }
    }

    /// Starts a query that is yet to be planned; its rows come while it runs.
    async fn start_query(
        &self,
        query: Query,
        source: &Source,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        let source = source.clone();
        let (rows, receiver) = mpsc::channel(RESULT_BATCHES_MAX);
        let (head, columns) = oneshot::channel();
        let stopping = cancellation.clone();
        let came_to_end = Arc::new(AtomicBool::new(false));
        let comes_to_end = Arc::clone(&came_to_end);
        let task = self
            .tenant
            .spawn(self.engine.queries(), cancellation, async move {
                let last = tokio::select! {
                    biased;
                    _ = stopping.stopped() => None,
                    last = produce(query, source, head, &rows) => last,
                };
                // The task that is woken now finds the end as well.
                comes_to_end.store(true, Ordering::Release);
                drop(rows);
                if let Some((head, columns)) = last {
                    let _ = head.send(Ok(columns));
                }
            });
        let guard = AbortOnDrop::new(task.abort_handle(), cancellation);
        let columns: Arc<[ColumnDescription]> = tokio::select! {
            biased;
            error = cancellation.stopped() => return Err(error),
            head = columns => match head {
                Ok(Ok(columns)) => columns,
                Ok(Err(error)) => {
                    guard.disarm();
                    return Err(error);
                }
                Err(_) => return Err(QueryTask::new(task).result().await.err().unwrap_or_else(|| cancellation.error())),
            },
        };
        Ok(Outcome::Rows {
            columns,
            batches: received(receiver, guard, came_to_end, cancellation.clone()),
            tag: RowsTag::Select,
        })
    }

    /// Looks after a table that so many rows have been changed in.
    pub(super) fn vacuum_after(&self, bound: &BoundDml, rows: u64) {
        if bound.kind == DmlKind::Insert || rows < VACUUM_ROWS_MIN {
            return;
        }
        let table = Arc::clone(&bound.target.entry.table);
        self.engine.queries().spawn_blocking(move || {
            if let Err(error) = table.vacuum() {
                tracing::warn!(%error, "vacuum gave up; a later one tries again");
            }
        });
    }
}

impl Running<'_> {
    pub(super) async fn run_sql(
        &mut self,
        parsed: &Arc<ast::Statement>,
        source: &Source,
        bound: Option<&Bound<'_>>,
        plans: Plans,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        // A walk over a long statement holds the client's thread for as long.
        if bound.is_none() && source.text.contains('$') {
            refuse_parameters(parsed)?;
        }
        let parsed = &Bound::write_arrays(bound, parsed);
        let view = self.view();
        if view.has_steps(parsed)? {
            if let Some(mode) = first_lock(&**parsed) {
                self.transaction.admit_locks(self.client, mode)?;
            }
            return view.run_steps(parsed, source, bound, cancellation).await;
        }
        match &**parsed {
            ast::Statement::Query(query) if is_dml(query) => {
                view.run_dml(parsed, source, bound, plans, cancellation)
                    .await
            }
            ast::Statement::Query(_) => match lock_of(parsed, source) {
                None => {
                    let told = Told::WithRows;
                    view.run_query(parsed, source, bound, plans, told, cancellation)
                        .await
                }
                Some(mode) => {
                    self.transaction.admit_locks(self.client, mode)?;
                    view.run_locking(parsed, source, bound, cancellation).await
                }
            },
            ast::Statement::Insert(_)
            | ast::Statement::Update(_)
            | ast::Statement::Delete(_)
            | ast::Statement::Merge(_) => {
                view.run_dml(parsed, source, bound, plans, cancellation)
                    .await
            }
            ast::Statement::CreateTable(create) => {
                self.run_create_table(create, source, cancellation).await
            }
            ast::Statement::CreateView(create) if first_lock(&create.query).is_some() => {
                Err(SqlError::new(
                    ErrorKind::FeatureNotSupported,
                    "views that lock rows are not supported",
                ))
            }
            ast::Statement::CreateView(create) if modifies_in_with(&create.query) => {
                Err(SqlError::new(
                    ErrorKind::FeatureNotSupported,
                    "views must not contain data-modifying statements in WITH",
                ))
            }
            ast::Statement::CreateView(create) => {
                self.run_create_view(create, source, cancellation).await
            }
            ast::Statement::Explain { .. } => {
                view.run_explain(parsed, source, bound, cancellation).await
            }
            other => Err(unsupported(other)),
        }
    }
}

impl SessionView<'_> {
    /// Plans and starts a query; its rows come while it runs.
    pub(super) async fn run_query(
        self,
        parsed: &Arc<ast::Statement>,
        source: &Source,
        bound: Option<&Bound<'_>>,
        plans: Plans,
        told: Told,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        let mut locks = None;
        let mut memory = self.executor.engine.grants().before();
        loop {
            let identity = self
                .executor
                .identity(self.client, parsed, source, bound, plans);
            let gate = self.gate(locks.take())?;
            let snapshot = self.transaction.read_snapshot(self.executor.txns())?;
            let query = Query {
                memory: self.executor.memory(),
                context: self.context_until(&gate, snapshot, cancellation.waits.clone())?,
                parsed: Arc::clone(parsed),
                parameters: Parameters::of(bound),
                identity,
                told,
                readers: Arc::clone(self.executor.engine.readers()),
            };
            match self.executor.start_query(query, source, cancellation).await {
                Err(error) => {
                    let past = self.past_refusal(&gate, error, &mut memory, cancellation);
                    locks = Some(Box::pin(past).await?);
                }
                started => return started,
            }
        }
    }

    /// Runs DML to its end; on a conflict with another transaction, again on a newer snapshot.
    pub(super) async fn run_dml(
        self,
        parsed: &Arc<ast::Statement>,
        source: &Source,
        bound: Option<&Bound<'_>>,
        plans: Plans,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        let (mut attempts, mut locks) = (self.attempts(), None);
        let mut memory = self.executor.engine.grants().before();
        loop {
            let identity = self
                .executor
                .identity(self.client, parsed, source, bound, plans);
            let gate = self.gate(locks.take())?;
            let transaction = Arc::new(attempts.begin(self, &gate)?);
            let context = self.context(&gate, transaction.snapshot().clone())?;
            let parameters = Parameters::of(bound);
            context
                .locking
                .begin(&transaction, parameters.values.clone());
            let (parsed, source) = (Arc::clone(parsed), source.clone());
            let readers = Arc::clone(self.executor.engine.readers());
            let committer = self.committer();
            let work = async move {
                let planned = planning::plan_dml(&context, &parsed, &parameters, identity.as_ref());
                let planned = worked_out(&readers, &source.text, planned).await;
                let (bound, plan) = planned.map_err(|error| from_datafusion(error, &source))?;
                require_returned(&bound, &parameters.described)?;
                dml::lock_concerned(&context, &bound)?;
                context.gate.confirm()?;
                let written = write(&context, &bound, plan, &transaction).await;
                finish(written, transaction, &source, &committer)
                    .await
                    .map(|ended| ended.map(|written| (bound, written)))
            };
            let done = match self.executor.on_query_runtime(work, cancellation).await? {
                Ok(done) => done,
                Err(error) => {
                    attempts.leave_rows();
                    let past = self.past_refusal(&gate, error, &mut memory, cancellation);
                    locks = Some(Box::pin(past).await?);
                    continue;
                }
            };
            let Some((bound, written)) = attempts.after(done)? else {
                continue;
            };
            self.executor.vacuum_after(&bound, written.rows);
            return Ok(dml_outcome(&bound, written));
        }
    }
}

/// Runs a bound statement under a transaction; dropping the future cancels what waits in storage.
pub(super) async fn write(
    context: &StatementContext,
    bound: &BoundDml,
    plan: Arc<dyn ExecutionPlan>,
    transaction: &Arc<Transaction>,
) -> PlanResult<sink::Written> {
    let mut cancel = CancelOnDrop::of(transaction.cancel_token());
    let written = sink::run(bound, plan, context, transaction).await;
    cancel.disarm();
    written.map_err(|error| dml::without_values(context, error))
}

/// Stops what works or waits in storage when its statement is dropped.
pub(super) struct CancelOnDrop(Option<aerostat_txn::CancelToken>);

impl CancelOnDrop {
    pub(super) fn of(token: aerostat_txn::CancelToken) -> Self {
        Self(Some(token))
    }

    /// The work is done.
    pub(super) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(token) = &self.0 {
            token.cancel();
        }
    }
}

pub(super) fn dml_outcome(bound: &BoundDml, written: sink::Written) -> Outcome {
    let tag = match bound.kind {
        DmlKind::Insert => RowsTag::Insert,
        DmlKind::Update => RowsTag::Update,
        DmlKind::Delete => RowsTag::Delete,
        DmlKind::Merge => RowsTag::Merge,
    };
    match &bound.told {
        None => Outcome::Command {
            tag: tag.after(written.rows),
        },
        Some(columns) => Outcome::Rows {
            columns: Arc::clone(columns),
            batches: ready_within(written.returned, written.charge),
            tag,
        },
    }
}

/// Requires that what a change returns is what its client was told of.
pub(super) fn require_returned(bound: &BoundDml, described: &Described) -> Result<(), SqlError> {
    match &bound.told {
        Some(columns) => described.require(columns),
        None => Ok(()),
    }
}

/// The first lock of rows that a statement asks for.
fn lock_of(parsed: &ast::Statement, source: &Source) -> Option<RowLock> {
    // As above: a long text that has no such word needs no walk.
    let may_lock = !is_long(&source.text) || source.text.to_ascii_lowercase().contains("for");
    may_lock.then(|| first_lock(parsed))?
}

/// A statement that was not prepared has no parameters.
fn refuse_parameters(parsed: &ast::Statement) -> Result<(), SqlError> {
    match parameter_count(parsed)? {
        0 => Ok(()),
        highest => Err(SqlError::new(
            ErrorKind::UndefinedParameter,
            format!("there is no parameter ${highest}"),
        )),
    }
}

/// Binds INSERT, UPDATE, DELETE or MERGE.
pub(super) fn bind(
    context: &StatementContext,
    parsed: &ast::Statement,
    planner: &mut PlannerContext,
) -> PlanResult<BoundDml> {
    let mut parsed = parsed.clone();
    context.rewrite(&mut parsed, planner)?;
    let (with, statement) = match parsed {
        ast::Statement::Query(query) => {
            let ast::Query { with, body, .. } = *query;
            match *body {
                ast::SetExpr::Insert(statement)
                | ast::SetExpr::Update(statement)
                | ast::SetExpr::Delete(statement)
                | ast::SetExpr::Merge(statement) => (with, statement),
                _ => {
                    return Err(external(SqlError::new(
                        ErrorKind::Internal,
                        "a query was bound as DML",
                    )));
                }
            }
        }
        other => (None, other),
    };
    match statement {
        ast::Statement::Insert(mut insert) => {
            if let (Some(with), Some(source)) = (&with, &mut insert.source) {
                let outer = with.clone();
                match &mut source.with {
                    // The statement's own expressions may use those before it.
                    Some(inner) => drop(inner.cte_tables.splice(0..0, outer.cte_tables)),
                    none => *none = Some(outer),
                }
            }
            dml::bind_insert(context, &insert, with.as_ref(), planner)
        }
        ast::Statement::Update(update) => dml::bind_update(context, &update, with, planner),
        ast::Statement::Delete(delete) => dml::bind_delete(context, &delete, with, planner),
        ast::Statement::Merge(merge) => dml::bind_merge(context, &merge, with, planner),
        other => Err(external(unsupported(&other))),
    }
}

/// A query that is to be planned and run.
struct Query {
    /// What rows on their way to the client are charged to.
    memory: Held,
    context: Arc<StatementContext>,
    parsed: Arc<ast::Statement>,
    parameters: Parameters,
    identity: Option<Identity>,
    told: Told,
    readers: Arc<Semaphore>,
}

/// Where a query tells its columns, or why there are none.
type Head = oneshot::Sender<Result<Arc<[ColumnDescription]>, SqlError>>;

/// Runs a query and sends its rows. Gives the columns back if all is done and they have still to
/// be told.
async fn produce(
    query: Query,
    source: Source,
    head: Head,
    rows: &mpsc::Sender<Result<Sending, SqlError>>,
) -> Option<(Head, Arc<[ColumnDescription]>)> {
    // The context has the statement's locks, until its last row has come.
    let Query {
        memory,
        context,
        parsed,
        parameters,
        identity,
        told,
        readers,
    } = query;
    let started = async {
        let planned = planning::plan(&context, &parsed, &parameters, identity.as_ref());
        let (columns, physical) = worked_out(&readers, &source.text, planned).await?;
        parameters.described.require_planned(&columns)?;
        let columns = parameters.described.told(columns);
        context.gate.confirm().map_err(external)?;
        let (flow, physical) = Flow::of(physical, memory)?;
        let stream = execute_stream(physical, physical::task_context(&context.state))?;
        Ok((columns, flow, stream))
    };
    let (columns, flow, mut stream) = match started.await {
        Ok(started) => started,
        Err(error) => {
            // Nobody waits any more if this fails.
            let _ = head.send(Err(from_datafusion(error, &source)));
            return None;
        }
    };
    if told == Told::WithRows {
        let early = early_rows(&mut stream, &source).await;
        if let Some(Err(error)) = early.rows.first()
            && error.kind == ErrorKind::OutOfMemory
        {
            // Before its first row it may run again.
            let _ = head.send(Err(error.clone()));
            return None;
        }
        for batch in early.rows {
            batch.iter().for_each(hand_on);
            // There is room for them.
            rows.try_send(Sending::of(batch, &flow)).ok()?;
        }
        if early.are_all {
            return Some((head, columns));
        }
    }
    head.send(Ok(columns)).ok()?;
    while let Some(batch) = next_rows(&mut stream, &source).await {
        let failed = batch.is_err();
        batch.iter().for_each(hand_on);
        if rows.send(Sending::of(batch, &flow)).await.is_err() || failed {
            break;
        }
    }
    None
}

/// The next rows; an error is the last.
async fn next_rows(
    stream: &mut SendableRecordBatchStream,
    source: &Source,
) -> Option<Result<RecordBatch, SqlError>> {
    loop {
        let batch = stream.next().await?;
        if !matches!(&batch, Ok(batch) if batch.num_rows() == 0) {
            return Some(batch.map_err(|error| from_datafusion(error, source)));
        }
    }
}

/// The first rows, and what else is there with them.
struct EarlyRows {
    /// At most [`RESULT_BATCHES_MAX`].
    rows: Vec<Result<RecordBatch, SqlError>>,
    are_all: bool,
}

async fn early_rows(stream: &mut SendableRecordBatchStream, source: &Source) -> EarlyRows {
    let mut early = EarlyRows {
        rows: Vec::new(),
        are_all: false,
    };
    let mut next = Some(next_rows(stream, source).await);
    while let Some(batch) = next {
        early.are_all = batch.as_ref().is_none_or(Result::is_err);
        early.rows.extend(batch);
        next = match early.are_all || early.rows.len() == RESULT_BATCHES_MAX {
            true => None,
            false => next_rows(stream, source).now_or_never(),
        };
    }
    early
}

/// A query or DML with its parameters, bound.
pub(super) fn bind_work(
    context: &StatementContext,
    parsed: &ast::Statement,
    parameters: &Parameters,
) -> PlanResult<Work> {
    match parsed {
        ast::Statement::Query(query) if !is_dml(query) => {
            let plan = bind_query(context, parsed, parameters)?;
            let origins = origins(context, &plan);
            Ok(Work::Query(plan, origins))
        }
        _ => {
            let bound = bind(context, parsed, &mut parameters.planner())?;
            Ok(Work::Dml(Box::new(bound)))
        }
    }
}

/// The logical plan of a query, its parameters filled in.
pub(super) fn plan_query(
    context: &StatementContext,
    parsed: &ast::Statement,
    parameters: &Parameters,
) -> PlanResult<LogicalPlan> {
    parameters.fill(bind_query(context, parsed, parameters)?)
}

/// The logical plan of a query, with its parameters.
pub(super) fn bind_query(
    context: &StatementContext,
    parsed: &ast::Statement,
    parameters: &Parameters,
) -> PlanResult<LogicalPlan> {
    let ast::Statement::Query(query) = parsed else {
        return Err(external(unsupported(parsed)));
    };
    let plan = context.plan_query((**query).clone(), &mut parameters.planner())?;
    show_entries(context, plan)
}

pub(super) async fn plan_physical(
    context: &StatementContext,
    plan: &LogicalPlan,
) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let optimized = physical::optimize(&context.state, plan.clone())?;
    physical::plan_physical(&context.state, &optimized).await
}

/// The parameters of a run: their types for planning, their values to fill in.
#[derive(Clone, Default)]
pub(super) struct Parameters {
    pub(super) fields: Vec<Option<arrow::datatypes::FieldRef>>,
    pub(super) values: Option<ParamValues>,
    pub(super) described: Described,
}

impl Parameters {
    pub(super) fn of(bound: Option<&Bound<'_>>) -> Self {
        bound.map(Bound::parameters).unwrap_or_default()
    }

    pub(super) fn planner(&self) -> PlannerContext {
        PlannerContext::new().with_prepare_param_data_types(self.fields.clone())
    }

    pub(super) fn fill(&self, plan: LogicalPlan) -> PlanResult<LogicalPlan> {
        match &self.values {
            Some(values) => plan.replace_params_with_values(values),
            None => Ok(plan),
        }
    }
}

pub(super) fn unsupported(statement: &ast::Statement) -> SqlError {
    let text = statement.to_string();
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    SqlError::new(
        ErrorKind::FeatureNotSupported,
        format!("{} is not supported", words.join(" ")),
    )
}

/// An error of DataFusion's at a place in a statement.
pub(super) fn at<'a>(source: &'a Source) -> impl Fn(DataFusionError) -> SqlError + 'a {
    move |error| from_datafusion(error, source)
}
