//! EXPLAIN and EXPLAIN ANALYZE: the physical plan as text, one line a row, with
//! what each operator did if it ran.

use std::{fmt::Write as _, sync::Arc, time::Instant};

use aerostat_storage::StorageError;
use aerostat_types::{ErrorKind, SqlError, SqlType};
use datafusion::{
    arrow::array::{ArrayRef, RecordBatch, StringViewArray},
    physical_plan::{ExecutionPlan, display::DisplayableExecutionPlan, execute_stream},
    sql::sqlparser::ast,
};
use futures::StreamExt;

use super::{
    Session,
    cancel::Cancellation,
    planning,
    prepared::Bound,
    run::{self, Parameters, at, unsupported},
    stream::ready,
};
use crate::{
    api::{ColumnDescription, Outcome, RowsTag},
    dml::{BoundDml, DmlKind, lock_concerned},
    error::from_storage,
    plan::{Gate, StatementContext, locking::first_lock},
    statement::Source,
};

#[derive(Clone, Copy, Default)]
struct Options {
    analyze: bool,
    verbose: bool,
}

impl Session {
    pub(super) async fn run_explain(
        &self,
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
                self.admit_locks(mode)?;
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
        &self,
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
        let work = async move {
            let started = Instant::now();
            let (plan, dml) = plan(&context, &statement, &parameters)
                .await
                .map_err(at(&source))?;
            if options.analyze
                && let Some(bound) = &dml
            {
                lock_concerned(&context, bound)?;
            }
            context.gate.confirm()?;
            let planned = started.elapsed();
            let mut text = String::new();
            let indent = match &dml {
                Some(bound) => {
                    let verb = match bound.kind {
                        DmlKind::Insert => "Insert",
                        DmlKind::Update => "Update",
                        DmlKind::Delete => "Delete",
                        DmlKind::Merge => "Merge",
                    };
                    // Writing to a String cannot fail.
                    let _ = writeln!(text, "{verb} on {}", bound.target.entry.name);
                    if let Some(conflict) = &bound.conflict {
                        let resolution = if conflict.update.is_some() {
                            "UPDATE"
                        } else {
                            "NOTHING"
                        };
                        let _ = writeln!(text, "  Conflict Resolution: {resolution}");
                        let arbiters = conflict.constraints.join(", ");
                        let _ = writeln!(text, "  Conflict Arbiter Indexes: {arbiters}");
                    }
                    "  "
                }
                None => "",
            };
            if !options.analyze {
                append(
                    &mut text,
                    indent,
                    &DisplayableExecutionPlan::new(plan.as_ref())
                        .indent(options.verbose)
                        .to_string(),
                );
                return Ok::<String, SqlError>(text);
            }
            let started = Instant::now();
            let rows = match &dml {
                Some(bound) => {
                    let written =
                        run::write(&context, bound, Arc::clone(&plan), &transaction).await;
                    run::finish(written, transaction, &source)
                        .await?
                        .map(|written| written.rows)
                        .ok_or_else(|| from_storage(StorageError::Conflict))?
                }
                None => drain(&context, &plan).await.map_err(at(&source))?,
            };
            let executed = started.elapsed();
            let shown = DisplayableExecutionPlan::with_metrics(plan.as_ref())
                .indent(options.verbose)
                .to_string();
            append(&mut text, indent, &shown);
            let _ = writeln!(text, "Rows: {rows}");
            let _ = writeln!(text, "Planning Time: {:.3} ms", planned.as_secs_f64() * 1e3);
            let _ = writeln!(
                text,
                "Execution Time: {:.3} ms",
                executed.as_secs_f64() * 1e3
            );
            Ok(text)
        };
        self.on_query_runtime(work, cancellation).await?
    }
}

fn append(text: &mut String, indent: &str, lines: &str) {
    for line in lines.lines() {
        // Names of outputs carry suffixes that only the planner needs.
        let clean: String = line.chars().filter(|c| !c.is_control()).collect();
        let _ = writeln!(text, "{indent}{clean}");
    }
}

async fn drain(
    context: &StatementContext,
    plan: &Arc<dyn ExecutionPlan>,
) -> datafusion::common::Result<u64> {
    let mut stream = execute_stream(Arc::clone(plan), context.state.task_ctx())?;
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        rows += batch?.num_rows() as u64;
    }
    Ok(rows)
}

async fn plan(
    context: &StatementContext,
    statement: &ast::Statement,
    parameters: &Parameters,
) -> datafusion::common::Result<(Arc<dyn ExecutionPlan>, Option<BoundDml>)> {
    match statement {
        ast::Statement::Query(query) if !run::is_dml(query) => {
            let logical = run::plan_query(context, statement, parameters)?;
            Ok((run::plan_physical(context, &logical).await?, None))
        }
        ast::Statement::Query(_)
        | ast::Statement::Insert(_)
        | ast::Statement::Update(_)
        | ast::Statement::Delete(_)
        | ast::Statement::Merge(_) => {
            let planned = planning::plan_dml(context, statement, parameters, None);
            let (bound, plan) = planned.await?;
            Ok((plan, Some(bound)))
        }
        other => Err(crate::error::external(unsupported(other))),
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
            // What these would add or leave out is not shown in any case.
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
