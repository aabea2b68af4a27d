//! ALTER TABLE that changes columns or constraints: worked out, done to the rows, published.

use std::sync::Arc;

use aerostat_api::Outcome;
use aerostat_catalog::{
    Actor, CatalogState, Draft,
    ddl::{
        self, Altering, AskedAlter, CommandResult, Judges, PendingAlter, PlanColumns, PlanViews,
    },
};
use aerostat_pgcatalog::CatalogView;
use aerostat_query::{
    Cancellation,
    dml::{self, altered},
    from_datafusion,
    physical::task_context,
    plan::{StatementContext, Target},
};
use aerostat_sql::{
    names::QualifiedName,
    statement::Source,
    utility::{RelationChange, SchemaCommand, SchemaObject, TableAction},
};
use aerostat_txn::{CancelToken, Transaction};
use aerostat_types::{Column, ErrorKind, SqlError};
use datafusion::{
    arrow::array::RecordBatch, common::Result as PlanResult, logical_expr::LogicalPlan,
    physical_plan::execute_stream, sql::sqlparser::ast,
};
use futures::StreamExt;

use super::{
    Running,
    attempts::{Ended, finish},
    command::blocking,
    definition::Planner,
    run,
};
use crate::commits::Committer;

impl Running<'_> {
    /// Runs the actions of an ALTER TABLE, as a whole or not at all.
    pub(super) async fn run_alter_table(
        &mut self,
        command: &SchemaCommand,
        source: &Source,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        let (name, if_exists, actions) = parts(command)?;
        let actor = self.executor.actor(self.client)?;
        let definitions = self.definitions()?;
        let cancel = CancelToken::new();
        let mut stop = run::CancelOnDrop::of(cancel.clone());
        let draft = Arc::new(self.client.draft(&definitions, cancel));
        {
            let (draft, actor) = (Arc::clone(&draft), actor.clone());
            let (name, actions) = (name.clone(), actions.clone());
            let lock = move || ddl::lock_alter(&draft, &actor, &name, &actions);
            self.executor
                .on_query_runtime(blocking(lock), cancellation)
                .await??;
        }
        // From here on nobody changes the table or its rows.
        let gate = self.view().open_gate()?;
        let transaction = Arc::new(self.view().begin_statement(None)?);
        let mut stop_writing = run::CancelOnDrop::of(transaction.cancel_token());
        let snapshot = self.transaction.latest_snapshot(self.executor.txns())?;
        let context = self.view().context(&gate, snapshot)?;
        let engine = Arc::clone(&self.executor.engine);
        let (source, committer) = (source.clone(), self.view().committer());
        let work = async move {
            let prepared = {
                let (context, source) = (Arc::clone(&context), source.clone());
                blocking(move || {
                    let planner = Planner {
                        context: &context,
                        source: &source,
                    };
                    let judges = Judges {
                        checker: &planner,
                        views: &planner,
                        role_exists: &|role| engine.node().role(role).is_some(),
                    };
                    let asked = AskedAlter {
                        name: &name,
                        if_exists,
                        actions: &actions,
                    };
                    ddl::prepare_alter(&context.database, &context.catalog, &actor, &asked, &judges)
                })
                .await?
            };
            let mut pending = match prepared {
                Altering::Skipped(result) => return Ok::<CommandResult, SqlError>(result),
                Altering::Pending(pending) => pending,
            };
            pending = {
                let draft = Arc::clone(&draft);
                blocking(move || {
                    pending.make_sequences(&draft)?;
                    Ok(pending)
                })
                .await?
            };
            if pending.rewrites() {
                pending = copy(
                    &context,
                    pending,
                    &draft,
                    (transaction, &committer),
                    &source,
                )
                .await?;
            } else {
                pending = settle(&context, pending, &draft, transaction, &source).await?;
            }
            verify_references(&context, &pending, &source).await?;
            blocking(move || pending.publish(&draft)).await
        };
        let result = self.executor.on_query_runtime(work, cancellation).await??;
        stop.disarm();
        stop_writing.disarm();
        Ok(self.client.command(result))
    }
}

/// The table of an ALTER TABLE, whether IF EXISTS is said, and the actions.
fn parts(command: &SchemaCommand) -> Result<(QualifiedName, bool, Vec<TableAction>), SqlError> {
    match command {
        SchemaCommand::Alter {
            object: SchemaObject::Table,
            if_exists,
            name,
            change: RelationChange::Actions(actions),
        } => Ok((name.clone(), *if_exists, actions.clone())),
        SchemaCommand::Alter {
            object: SchemaObject::View,
            ..
        } => Err(SqlError::new(
            ErrorKind::FeatureNotSupported,
            "defaults of views' columns are not supported",
        )),
        _ => Err(SqlError::new(ErrorKind::Internal, "this is no ALTER TABLE")),
    }
}

/// Writes the rows anew, to a table that nobody knows yet.
async fn copy(
    context: &Arc<StatementContext>,
    mut pending: Box<PendingAlter>,
    draft: &Arc<Draft>,
    (transaction, committer): (Arc<Transaction>, &Committer),
    source: &Source,
) -> Result<Box<PendingAlter>, SqlError> {
    let rows = altered::plan_rows(context, &pending, source)?;
    let draft = Arc::clone(draft);
    let (pending, entry) = blocking(move || {
        let entry = pending.make_table(&draft)?;
        Ok((pending, entry))
    })
    .await?;
    let fail = |error| ddl::of_rewrite(from_datafusion(error, source), &pending);
    let target = Target::unpublished(&entry, pending.schema_name());
    let bound = dml::bind_rewrite(context, target, rows).map_err(fail)?;
    let physical = dml::plan_source(&context.state, &bound)
        .await
        .map_err(fail)?;
    let written = run::write(context, &bound, physical, &transaction).await;
    match finish(written, transaction, source, committer).await {
        Ok(Ended::Done(_)) => Ok(pending),
        Ok(Ended::Conflict | Ended::Waited) => Err(SqlError::new(
            ErrorKind::Internal,
            "a table nobody else knows was changed by somebody else",
        )),
        Err(error) => {
            let error = ddl::of_rewrite(error, &pending);
            Err(first_complaint(context, &pending, error, source).await)
        }
    }
}

/// Builds indexes over rows that stay where they are, and checks new constraints: unique keys first,
/// as PostgreSQL does.
async fn settle(
    context: &Arc<StatementContext>,
    pending: Box<PendingAlter>,
    draft: &Arc<Draft>,
    transaction: Arc<Transaction>,
    source: &Source,
) -> Result<Box<PendingAlter>, SqlError> {
    let (draft, building) = (Arc::clone(draft), Arc::clone(&transaction));
    let pending = blocking(move || {
        pending.build_indexes(&draft, &building)?;
        Ok(pending)
    })
    .await?;
    verify(context, &pending, source).await?;
    blocking(move || {
        pending.make_room(&transaction.cancel_token())?;
        Ok(pending)
    })
    .await
}

/// The error that PostgreSQL gives for rows that cannot be written anew. Where it leaves the rows
/// and makes indexes, it finds duplicate keys before it looks at anything else.
async fn first_complaint(
    context: &Arc<StatementContext>,
    pending: &PendingAlter,
    error: SqlError,
    source: &Source,
) -> SqlError {
    let is_later = matches!(
        error.kind,
        ErrorKind::NotNullViolation | ErrorKind::CheckViolation
    );
    if !is_later || pending.converts() {
        return error;
    }
    // An error of these queries themselves is not reported.
    for (plan, index) in altered::plan_duplicates(context, pending, source).unwrap_or_default() {
        if let Ok(Some(row)) = first_row(context, plan).await {
            return ddl::duplicate(pending, index, row.columns());
        }
    }
    error
}

/// Looks for rows that break a new constraint.
async fn verify(
    context: &Arc<StatementContext>,
    pending: &PendingAlter,
    source: &Source,
) -> Result<(), SqlError> {
    for (plan, error) in altered::plan_violations(context, pending, source)? {
        let found = first_row(context, plan).await;
        if found.map_err(run::at(source))?.is_some() {
            return Err(error);
        }
    }
    Ok(())
}

/// Looks for rows that refer to no row.
async fn verify_references(
    context: &Arc<StatementContext>,
    pending: &PendingAlter,
    source: &Source,
) -> Result<(), SqlError> {
    for (plan, reference) in altered::plan_references(context, pending, source)? {
        let found = first_row(context, plan).await;
        if let Some(row) = found.map_err(run::at(source))? {
            return Err(ddl::refers_to_none(pending, reference, row.columns()));
        }
    }
    Ok(())
}

/// The first row of a query with others behind it, or none.
async fn first_row(
    context: &Arc<StatementContext>,
    plan: LogicalPlan,
) -> PlanResult<Option<RecordBatch>> {
    let physical = run::plan_physical(context, &plan).await?;
    let mut batches = execute_stream(physical, task_context(&context.state))?;
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        if batch.num_rows() > 0 {
            return Ok(Some(batch));
        }
    }
    Ok(None)
}

impl PlanViews for Planner<'_> {
    fn view_columns(
        &self,
        state: &Arc<CatalogState>,
        query: &ast::Query,
    ) -> Result<Vec<Column>, SqlError> {
        let system = CatalogView {
            state: Arc::clone(state),
            index: Arc::default(),
            ..CatalogView::clone(&self.context.system)
        };
        let actor = Actor {
            superuser: true,
            ..self.context.actor.clone()
        };
        let context = StatementContext::new(
            Arc::clone(&self.context.state),
            Arc::clone(&self.context.database),
            self.context.snapshot.clone(),
            actor,
            Arc::new(system),
            Arc::clone(&self.context.gate),
        );
        let planner = Planner {
            context: &context,
            source: self.source,
        };
        planner.plan_columns(query)
    }
}
