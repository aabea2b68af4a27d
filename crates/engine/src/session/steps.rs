//! Statements in steps: those with INSERT, UPDATE or DELETE in WITH, and those with a WITH
//! query that must run once however often it is read.
//!
//! ```text
//!  WITH d AS (DELETE FROM a … RETURNING *),        step 0, a change    ─► rows ─┐
//!       s AS (SELECT … FROM d),                    a part of who reads it       ▼
//!       u AS (UPDATE c …)                          step 1, a change, nobody reads it
//!  INSERT INTO b SELECT * FROM s                   step 2, the statement itself
//!
//!  order: 0, 2, 1
//! ```
//!
//! * All steps are planned before the first runs. One runs to its end before another reads
//!   its rows; a change that nobody reads runs after the statement itself, as in PostgreSQL.
//! * All see the snapshot of the statement, so none what another does. Of several that change
//!   one row the first counts (`dml::sink::Changes`), and foreign keys are looked at last.
//! * All are one transaction: they happen, run again or fail together.

use std::{ops::ControlFlow, sync::Arc};

use aerostat_api::{ColumnDescription, Outcome, RowsTag};
use aerostat_query::{
    Cancellation, Work,
    dml::{
        lock_concerned,
        sink::{Changes, Written},
    },
    from_datafusion,
    physical::{analyze, plan_physical, task_context},
    plan::{Origins, StatementContext, StepRows, describe_columns, is_volatile},
};
use aerostat_semantics::external;
use aerostat_sql::{
    clauses::check_with_names,
    names::folded,
    statement::Source,
    tree::modifying::{change_of, is_dml, modifies_in_with, reads},
    walk,
};
use aerostat_txn::Transaction;
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    arrow::array::RecordBatch,
    common::Result as PlanResult,
    execution::memory_pool::{MemoryConsumer, MemoryReservation},
    logical_expr::LogicalPlan,
    physical_plan::{ExecutionPlan, execute_stream},
    sql::sqlparser::ast,
};
use futures::StreamExt;

use super::{
    Executor, SessionView,
    attempts::finish,
    planning,
    prepared::Bound,
    run::{CancelOnDrop, Parameters, bind_work, dml_outcome, require_returned},
    stream::ready_within,
};

/// A statement, or a query in its WITH, that runs by itself.
pub(super) struct Step {
    /// What it is called in WITH; nothing for the statement itself.
    pub(super) name: String,
    pub(super) work: Work,
    /// The steps whose rows it reads.
    reads: Vec<usize>,
    /// Where its rows go; `None` if nobody can read them.
    rows: Option<Arc<StepRows>>,
}

impl Step {
    /// A statement that is one step.
    pub(super) fn only(work: Work) -> Self {
        Self {
            name: String::new(),
            work,
            reads: Vec::new(),
            rows: None,
        }
    }

    /// Whether it runs even if nobody reads its rows.
    fn must_run(&self) -> bool {
        self.name.is_empty() || matches!(self.work, Work::Dml(_))
    }
}

/// What a step did.
pub(super) enum Done {
    Changed(Written),
    Gave(
        Arc<[ColumnDescription]>,
        Vec<RecordBatch>,
        MemoryReservation,
    ),
}

impl SessionView<'_> {
    /// Whether a statement runs in steps.
    ///
    /// # Errors
    /// The database is gone.
    pub(super) fn has_steps(self, parsed: &ast::Statement) -> Result<bool, SqlError> {
        match parsed {
            ast::Statement::Query(query) if modifies_in_with(query) => Ok(true),
            ast::Statement::Query(query) if repeats_calls(query) => {
                let snapshot = self.transaction.read_snapshot(self.executor.txns())?;
                let context = self.context(&self.open_gate()?, snapshot)?;
                Ok(!run_once(&context, query).is_empty())
            }
            _ => Ok(false),
        }
    }

    /// Runs a statement in steps; when rows have changed under it, again on a newer snapshot.
    pub(super) async fn run_steps(
        self,
        parsed: &Arc<ast::Statement>,
        source: &Source,
        bound: Option<&Bound<'_>>,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        let (mut attempts, mut locks) = (self.attempts(), None);
        loop {
            let gate = self.gate(locks.take())?;
            let transaction = Arc::new(attempts.begin(self, &gate)?);
            let context = self.context(&gate, transaction.snapshot().clone())?;
            let parameters = Parameters::of(bound);
            context
                .locking
                .begin(&transaction, parameters.values.clone());
            let (parsed, source) = (Arc::clone(parsed), source.clone());
            let committer = self.committer();
            let work = async move {
                let steps = plan_steps(&context, &parsed, &parameters);
                let steps = steps.map_err(|error| from_datafusion(error, &source))?;
                require_described(&steps, &parameters)?;
                lock_steps(&context, &steps)?;
                context.gate.confirm()?;
                let done = run_all(&context, &steps, &transaction, &mut |_, _| {}).await;
                let done = finish(done, transaction, &source, &committer).await?;
                Ok(done.map(|done| (steps, done)))
            };
            let done = match self.executor.on_query_runtime(work, cancellation).await? {
                Ok(done) => done,
                Err(error) => {
                    attempts.leave_rows();
                    locks = Some(self.past(&gate, error, cancellation).await?);
                    continue;
                }
            };
            if let Some((steps, done)) = attempts.after(done)? {
                return self.executor.outcome_of_steps(&steps, done);
            }
        }
    }
}

impl Executor {
    /// What the client is told: what the statement itself did.
    fn outcome_of_steps(&self, steps: &[Step], done: Vec<Done>) -> Result<Outcome, SqlError> {
        let mut outcome = None;
        for (step, done) in steps.iter().zip(done) {
            outcome = match (&step.work, done) {
                (Work::Dml(bound), Done::Changed(written)) => {
                    self.vacuum_after(bound, written.rows);
                    Some(dml_outcome(bound, written))
                }
                (_, Done::Gave(columns, rows, charge)) => Some(Outcome::Rows {
                    columns,
                    batches: ready_within(rows, charge),
                    tag: RowsTag::Select,
                }),
                (Work::Query(..), Done::Changed(_)) => None,
            };
        }
        outcome.ok_or_else(|| internal("a statement in steps has not run"))
    }
}

/// Requires that what the statement itself gives, the last of its steps, is what its client was
/// told of.
fn require_described(steps: &[Step], parameters: &Parameters) -> Result<(), SqlError> {
    match steps.last().map(|step| &step.work) {
        Some(Work::Dml(bound)) => require_returned(bound, &parameters.described),
        Some(Work::Query(plan, origins)) => {
            let columns = describe_columns(origins, plan.schema().as_arrow());
            parameters.described.require(&columns)
        }
        None => Ok(()),
    }
}

fn internal(message: &str) -> SqlError {
    SqlError::new(ErrorKind::Internal, message)
}

/// As [`SessionView::has_steps`], of a statement that is planned in this context.
pub(super) fn has_steps(context: &StatementContext, parsed: &ast::Statement) -> bool {
    matches!(parsed, ast::Statement::Query(query)
        if modifies_in_with(query) || (repeats_calls(query) && !run_once(context, query).is_empty()))
}

/// Whether calls of functions are in a WITH of which something is read more than once.
fn repeats_calls(query: &ast::Query) -> bool {
    query.with.iter().any(|with| {
        let calls = walk::expressions(with, |expression| match expression {
            ast::Expr::Function(_) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        let mut names = with.cte_tables.iter().map(|cte| folded(&cte.alias.name));
        calls.is_break() && names.any(|name| reads(query, &name) > 1)
    })
}

/// The WITH queries of a query that call volatile functions, or read one that does, and are
/// read several times.
fn run_once(context: &StatementContext, query: &ast::Query) -> Vec<String> {
    let mut volatile: Vec<String> = Vec::new();
    let with = query.with.iter().filter(|with| !with.recursive);
    for cte in with.flat_map(|with| &with.cte_tables) {
        let reads_volatile = |name: &String| reads(&*cte.query, name) > 0;
        if is_volatile(context, &*cte.query) || volatile.iter().any(reads_volatile) {
            volatile.push(folded(&cte.alias.name));
        }
    }
    volatile.retain(|name| reads(query, name) > 1);
    volatile
}

/// A query in WITH that those behind it may read.
struct Known {
    cte: ast::Cte,
    /// The step that its rows come from.
    step: Option<usize>,
}

/// Binds the steps of a statement, which is a query, itself last.
///
/// # Errors
/// Errors of its queries and changes; `FeatureNotSupported` for one that reads a change without
/// RETURNING.
pub(super) fn bind_steps(
    context: &StatementContext,
    parsed: &ast::Statement,
    parameters: &Parameters,
) -> PlanResult<Vec<Step>> {
    let ast::Statement::Query(query) = parsed else {
        return Err(external(internal("a statement in steps that is no query")));
    };
    let once = run_once(context, query);
    let mut query = (**query).clone();
    let Some(with) = query.with.take() else {
        return Err(external(internal("a statement in steps without WITH")));
    };
    check_with_names(&with).map_err(external)?;
    let recursive = with.recursive;
    let (mut steps, mut known, mut silent) = (Vec::new(), Vec::<Known>::new(), Vec::new());
    for mut cte in with.cte_tables {
        refuse_silent(&cte.query, &silent)?;
        let name = folded(&cte.alias.name);
        if !is_dml(&cte.query) && !once.contains(&name) {
            known.push(Known { cte, step: None });
            continue;
        }
        let (statement, reads) = within((*cte.query).clone(), &known, recursive, false);
        let work = bind_work(context, &statement, parameters)?;
        let aliases = std::mem::take(&mut cte.alias.columns);
        let aliases: Vec<String> = aliases.iter().map(|alias| folded(&alias.name)).collect();
        let rows = rows_of(context, &work, &name, &aliases)?.map(Arc::new);
        match &rows {
            Some(rows) => {
                *cte.query = context.steps.add(rows)?;
                let step = Some(steps.len());
                known.push(Known { cte, step });
            }
            None => silent.push(name.clone()),
        }
        steps.push(Step {
            name,
            work,
            reads,
            rows,
        });
    }
    refuse_silent(&query, &silent)?;
    let (statement, reads) = within(query, &known, recursive, true);
    let work = bind_work(context, &statement, parameters)?;
    steps.push(Step {
        name: String::new(),
        work,
        reads,
        rows: None,
    });
    Ok(steps)
}

/// Refuses to read a change that returns nothing.
fn refuse_silent(query: &ast::Query, silent: &[String]) -> PlanResult<()> {
    match silent.iter().find(|name| reads(query, name) > 0) {
        Some(name) => Err(external(SqlError::new(
            ErrorKind::FeatureNotSupported,
            format!("WITH query \"{name}\" does not have a RETURNING clause"),
        ))),
        None => Ok(()),
    }
}

/// A step's query as a statement with those before it that it reads in its WITH, for the
/// statement itself all of them, and the steps whose rows it reads.
fn within(
    mut query: ast::Query,
    known: &[Known],
    recursive: bool,
    is_last: bool,
) -> (ast::Statement, Vec<usize>) {
    let own = query.with.take();
    let recursive = recursive || own.as_ref().is_some_and(|with| with.recursive);
    let own = own.map(|with| with.cte_tables).unwrap_or_default();
    let (mut ctes, mut read) = (Vec::<ast::Cte>::new(), Vec::<&Known>::new());
    for known in known.iter().rev() {
        let name = folded(&known.cte.alias.name);
        if own.iter().any(|own| folded(&own.alias.name) == name) {
            continue;
        }
        let mut readers = own.iter().chain(read.iter().map(|known| &known.cte));
        let is_read =
            reads(&query, &name) > 0 || readers.any(|reader| reads(&*reader.query, &name) > 0);
        if is_read {
            read.push(known);
        }
        if is_read || is_last {
            ctes.push(known.cte.clone());
        }
    }
    ctes.reverse();
    ctes.extend(own.iter().cloned());
    let steps = read.iter().filter_map(|known| known.step).collect();
    let statement = match change_of(&query) {
        Some(change) if ctes.is_empty() => change.clone(),
        _ => {
            query.with = (!ctes.is_empty()).then(|| ast::With {
                with_token: ast::helpers::attached_token::AttachedToken::empty(),
                recursive,
                cte_tables: ctes,
            });
            ast::Statement::Query(Box::new(query))
        }
    };
    (statement, steps)
}

/// A place for the rows of a step, the first columns under other names; `None` for a change
/// that returns none.
fn rows_of(
    context: &StatementContext,
    work: &Work,
    name: &str,
    aliases: &[String],
) -> PlanResult<Option<StepRows>> {
    let (plan, outputs, origins): (&LogicalPlan, _, &Origins) = match work {
        Work::Query(plan, origins) => (plan, 0..plan.schema().fields().len(), origins),
        Work::Dml(bound) => match &bound.returning {
            Some(returning) => (&bound.source, returning.clone(), &bound.origins),
            None => return Ok(None),
        },
    };
    if aliases.len() > outputs.len() {
        let (available, specified) = (outputs.len(), aliases.len());
        let message = format!(
            "WITH query \"{name}\" has {available} columns available but {specified} columns specified"
        );
        let error = SqlError::new(ErrorKind::InvalidColumnReference, message);
        return Err(external(error));
    }
    // Types of parameters that are still to be found are in the way of the analysis; what else
    // is wrong comes up when the step is planned on.
    let analyzed = analyze(&context.state, plan.clone());
    let schema = analyzed.as_ref().map_or(plan.schema(), LogicalPlan::schema);
    let fields = schema.fields()[outputs].iter();
    Ok(Some(StepRows::new(fields, aliases, origins.clone())))
}

/// The steps of a statement, optimised for its parameters' values.
pub(super) fn plan_steps(
    context: &StatementContext,
    parsed: &ast::Statement,
    parameters: &Parameters,
) -> PlanResult<Vec<Step>> {
    let steps = bind_steps(context, parsed, parameters)?.into_iter();
    let planned = steps.map(|step| {
        let work = planning::optimized_for(context, step.work, parameters)?;
        Ok(Step { work, ..step })
    });
    planned.collect()
}

/// Locks what the changes of a statement concern.
///
/// # Errors
/// Another transaction is in the way. The statement is planned again.
pub(super) fn lock_steps(context: &StatementContext, steps: &[Step]) -> Result<(), SqlError> {
    steps.iter().try_for_each(|step| match &step.work {
        Work::Dml(bound) => lock_concerned(context, bound),
        Work::Query(..) => Ok(()),
    })
}

/// Runs the steps of a statement under a transaction, which the caller commits or rolls back.
/// Gives what each did, and no rows for those whose rows nobody needed. `tell` gets the plan of
/// each before it runs.
pub(super) async fn run_all(
    context: &StatementContext,
    steps: &[Step],
    transaction: &Arc<Transaction>,
    tell: &mut (dyn FnMut(usize, &Arc<dyn ExecutionPlan>) + Send),
) -> PlanResult<Vec<Done>> {
    let mut cancel = CancelOnDrop::of(transaction.cancel_token());
    let mut changes = Changes::new(context, transaction, steps.len() > 1);
    let mut done: Vec<Option<Done>> = steps.iter().map(|_| None).collect();
    let pool = &context.state.runtime_env().memory_pool;
    for at in order(steps) {
        let step = &steps[at];
        let mut did = match &step.work {
            Work::Dml(bound) => {
                let plan = plan_physical(&context.state, &bound.source).await?;
                tell(at, &plan);
                Done::Changed(changes.apply(bound, plan).await?)
            }
            Work::Query(logical, origins) => {
                let plan = plan_physical(&context.state, logical).await?;
                tell(at, &plan);
                let columns = describe_columns(origins, &plan.schema());
                let (rows, charge) = collect(context, plan).await?;
                Done::Gave(columns, rows, charge)
            }
        };
        if let Some(rows) = &step.rows {
            let (Done::Changed(Written {
                returned, charge, ..
            })
            | Done::Gave(_, returned, charge)) = &mut did;
            // From now on they are charged with the step.
            charge.free();
            rows.put(std::mem::take(returned), pool)?;
        }
        done[at] = Some(did);
    }
    changes.finish().await?;
    cancel.disarm();
    let charge = MemoryConsumer::new("no rows").register(pool);
    let nothing = || Done::Gave(Vec::new().into(), Vec::new(), charge.new_empty());
    Ok(done
        .into_iter()
        .map(|done| done.unwrap_or_else(nothing))
        .collect())
}

/// The order in which steps run: those that one reads before it, those that nobody reads
/// after the statement itself, the last first.
fn order(steps: &[Step]) -> Vec<usize> {
    fn visit(steps: &[Step], at: usize, order: &mut Vec<usize>) {
        if order.contains(&at) {
            return;
        }
        for &before in steps[at].reads.iter().rev() {
            visit(steps, before, order);
        }
        order.push(at);
    }
    let mut order = Vec::with_capacity(steps.len());
    for at in (0..steps.len()).rev() {
        if steps[at].must_run() {
            visit(steps, at, &mut order);
        }
    }
    order
}

/// All rows of a query, and what the tenant is charged for them.
pub(super) async fn collect(
    context: &StatementContext,
    plan: Arc<dyn ExecutionPlan>,
) -> PlanResult<(Vec<RecordBatch>, MemoryReservation)> {
    let task = task_context(&context.state);
    let reservation = MemoryConsumer::new("rows of a statement").register(task.memory_pool());
    let mut stream = execute_stream(plan, task)?;
    let mut rows = Vec::new();
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        if batch.num_rows() > 0 {
            reservation.try_grow(batch.get_array_memory_size())?;
            rows.push(batch);
        }
    }
    Ok((rows, reservation))
}
