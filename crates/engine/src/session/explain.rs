//! EXPLAIN and EXPLAIN ANALYZE: the physical plan as text, one line a row, with
//! what each operator did if it ran.

use std::{fmt::Write as _, sync::Arc, time::Instant};

use aerostat_api::{ColumnDescription, Outcome, RowsTag};
use aerostat_query::{
    Cancellation, Work,
    dml::{BoundDml, DmlKind},
    physical::{plan_physical, task_context},
    plan::{Gate, StatementContext, first_lock},
};
use aerostat_semantics::external;
use aerostat_sql::statement::Source;
use aerostat_txn::Transaction;
use aerostat_types::{ErrorKind, SqlError, SqlType};
use datafusion::{
    arrow::array::{ArrayRef, RecordBatch, StringViewArray},
    physical_plan::{ExecutionPlan, display::DisplayableExecutionPlan, execute_stream},
    sql::sqlparser::ast,
};
use futures::StreamExt;

use super::{
    SessionView,
    attempts::finish,
    planning,
    prepared::Bound,
    run::{self, Parameters, at, unsupported},
    steps::{Done, Step, has_steps, lock_steps, plan_steps, run_all},
    stream::ready,
};
use crate::commits::Committer;

#[derive(Clone, Copy, Default)]
struct Options {
    analyze: bool,
    verbose: bool,
}

impl SessionView<'_> {
    pub(super) async fn run_explain(
        self,
        parsed: &Arc<ast::Statement>,
        source: &Source,
        bound: Option<&Bound<'_>>,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        let ast::Statement::Explain { statement, .. } = &**parsed else {
            return Err(unsupported(parsed));
        };
        let options = options_of(parsed)?;
        if options.analyze {
            self.admit_dml(statement)?;
            if let Some(mode) = first_lock(&**statement) {
                self.transaction.admit_locks(self.client, mode)?;
            }
        }
        let mut locks = None;
        loop {
            let gate = self.gate(locks.take())?;
            let explained = self.explain(&gate, statement, options, source, bound, cancellation);
            match explained.await {
                Ok(text) => return Ok(lines(&text)),
                Err(error) => locks = Some(self.past(&gate, error, cancellation).await?),
            }
        }
    }

    async fn explain(
        self,
        gate: &Arc<Gate>,
        statement: &ast::Statement,
        options: Options,
        source: &Source,
        bound: Option<&Bound<'_>>,
        cancellation: &Cancellation,
    ) -> Result<String, SqlError> {
        let transaction = Arc::new(self.begin_statement(gate.locks())?);
        let context = self.context(gate, transaction.snapshot().clone())?;
        let parameters = Parameters::of(bound);
        context
            .locking
            .begin(&transaction, parameters.values.clone());
        let (statement, source) = (Arc::new(statement.clone()), source.clone());
        let committer = self.committer();
        let work = async move {
            let started = Instant::now();
            let mut shown = plan(&context, &statement, &parameters)
                .await
                .map_err(at(&source))?;
            if options.analyze {
                lock_steps(&context, &shown.steps)?;
            }
            context.gate.confirm()?;
            let planned = started.elapsed();
            if !options.analyze {
                return Ok::<String, SqlError>(shown.text(options));
            }
            let started = Instant::now();
            let rows = shown
                .run(&context, transaction, &source, &committer)
                .await?;
            let executed = started.elapsed();
            let mut text = shown.text(options);
            let _ = writeln!(text, "Rows: {rows}");
            let _ = writeln!(text, "Planning Time: {:.3} ms", planned.as_secs_f64() * 1e3);
            let _ = writeln!(
                text,
                "Execution Time: {:.3} ms",
                executed.as_secs_f64() * 1e3
            );
            Ok(text)
        };
        self.executor.on_query_runtime(work, cancellation).await?
    }
}

/// A statement that is explained: its steps, mostly it alone.
struct Shown {
    steps: Vec<Step>,
    /// The plan of each, as it ran if it did.
    plans: Vec<Arc<dyn ExecutionPlan>>,
    has_run: bool,
}

/// Plans a statement as it would run.
async fn plan(
    context: &StatementContext,
    statement: &ast::Statement,
    parameters: &Parameters,
) -> datafusion::common::Result<Shown> {
    let steps = match statement {
        ast::Statement::Query(_) if has_steps(context, statement) => {
            plan_steps(context, statement, parameters)?
        }
        ast::Statement::Query(_)
        | ast::Statement::Insert(_)
        | ast::Statement::Update(_)
        | ast::Statement::Delete(_)
        | ast::Statement::Merge(_) => {
            let work = run::bind_work(context, statement, parameters)?;
            let work = planning::optimized_for(context, work, parameters)?;
            vec![Step::only(work)]
        }
        other => return Err(external(unsupported(other))),
    };
    let mut plans = Vec::with_capacity(steps.len());
    for step in &steps {
        plans.push(plan_physical(&context.state, step.work.found()).await?);
    }
    Ok(Shown {
        steps,
        plans,
        has_run: false,
    })
}

impl Shown {
    /// Runs it, and returns how many rows it gave or changed.
    async fn run(
        &mut self,
        context: &StatementContext,
        transaction: Arc<Transaction>,
        source: &Source,
        committer: &Committer,
    ) -> Result<u64, SqlError> {
        self.has_run = true;
        if let ([only], [plan]) = (&self.steps[..], &self.plans[..]) {
            return match &only.work {
                Work::Query(..) => drain(context, plan).await.map_err(at(source)),
                Work::Dml(bound) => {
                    let written = run::write(context, bound, Arc::clone(plan), &transaction).await;
                    let written = finish(written, transaction, source, committer).await?;
                    written.only().map(|written| written.rows)
                }
            };
        }
        let plans = &mut self.plans;
        let mut keep = |at: usize, plan: &Arc<dyn ExecutionPlan>| plans[at] = Arc::clone(plan);
        let done = run_all(context, &self.steps, &transaction, &mut keep).await;
        let done = finish(done, transaction, source, committer).await?;
        let mut done = done.only()?;
        Ok(match done.pop() {
            Some(Done::Changed(written)) => written.rows,
            Some(Done::Gave(_, rows, _)) => rows.iter().map(|rows| rows.num_rows() as u64).sum(),
            None => 0,
        })
    }

    /// Its steps in WITH below the name of each, then itself.
    fn text(&self, options: Options) -> String {
        let mut text = String::new();
        for (step, plan) in self.steps.iter().zip(&self.plans) {
            let mut indent = String::new();
            if !step.name.is_empty() {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "CTE {}", step.name);
                indent.push_str("  ");
            }
            if let Work::Dml(bound) = &step.work {
                append_change(&mut text, &indent, bound);
                indent.push_str("  ");
            }
            let display = match self.has_run {
                true => DisplayableExecutionPlan::with_metrics(plan.as_ref()),
                false => DisplayableExecutionPlan::new(plan.as_ref()),
            };
            append(
                &mut text,
                &indent,
                &display.indent(options.verbose).to_string(),
            );
        }
        text
    }
}

async fn drain(
    context: &StatementContext,
    plan: &Arc<dyn ExecutionPlan>,
) -> datafusion::common::Result<u64> {
    let mut stream = execute_stream(Arc::clone(plan), task_context(&context.state))?;
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        rows += batch?.num_rows() as u64;
    }
    Ok(rows)
}

/// What a change does, above how it finds its rows.
fn append_change(text: &mut String, indent: &str, bound: &BoundDml) {
    let verb = match bound.kind {
        DmlKind::Insert => "Insert",
        DmlKind::Update => "Update",
        DmlKind::Delete => "Delete",
        DmlKind::Merge => "Merge",
    };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{indent}{verb} on {}", bound.target.entry.name);
    if let Some(arbiters) = bound.arbiters() {
        let resolution = match bound.update_on_conflict().is_some() {
            true => "UPDATE",
            false => "NOTHING",
        };
        let _ = writeln!(text, "{indent}  Conflict Resolution: {resolution}");
        let arbiters = arbiters.join(", ");
        let _ = writeln!(text, "{indent}  Conflict Arbiter Indexes: {arbiters}");
    }
}

fn append(text: &mut String, indent: &str, lines: &str) {
    for line in lines.lines() {
        // Names of outputs carry suffixes that only the planner needs.
        let clean: String = line.chars().filter(|c| !c.is_control()).collect();
        let _ = writeln!(text, "{indent}{clean}");
    }
}

fn options_of(parsed: &ast::Statement) -> Result<Options, SqlError> {
    let ast::Statement::Explain {
        analyze,
        verbose,
        format,
        options,
        ..
    } = parsed
    else {
        return Ok(Options::default());
    };
    let mut chosen = Options {
        analyze: *analyze,
        verbose: *verbose,
    };
    let unknown_format = |format: &str| {
        Err(SqlError::new(
            ErrorKind::FeatureNotSupported,
            format!("EXPLAIN format \"{format}\" is not supported"),
        )
        .with_hint("Use the format TEXT."))
    };
    if let Some(format) = format {
        let format = format.to_string();
        if !format.eq_ignore_ascii_case("text") {
            return unknown_format(&format);
        }
    }
    for option in options.iter().flatten() {
        let value = option
            .arg
            .as_ref()
            .map(|value| value.to_string().to_ascii_lowercase());
        let on = !matches!(value.as_deref(), Some("false" | "off" | "0"));
        match option.name.value.to_ascii_lowercase().as_str() {
            "analyze" => chosen.analyze = on,
            "verbose" => chosen.verbose = on,
            // Nothing that these add or leave out is shown in any case.
            "costs" | "settings" | "buffers" | "wal" | "timing" | "summary" => {}
            "format" => match value.as_deref() {
                Some("text") | None => {}
                Some(other) => return unknown_format(other),
            },
            other => {
                return Err(SqlError::new(
                    ErrorKind::SyntaxError,
                    format!("unrecognized EXPLAIN option \"{other}\""),
                ));
            }
        }
    }
    Ok(chosen)
}

fn lines(text: &str) -> Outcome {
    let array: ArrayRef = Arc::new(text.lines().map(Some).collect::<StringViewArray>());
    let columns: Arc<[ColumnDescription]> =
        [ColumnDescription::new("QUERY PLAN", SqlType::Text)].into();
    let batches = RecordBatch::try_from_iter([("QUERY PLAN", array)])
        .map(|batch| vec![batch])
        .unwrap_or_default();
    Outcome::Rows {
        columns,
        batches: ready(batches),
        tag: RowsTag::Words("EXPLAIN".to_owned()),
    }
}
