//! Queries that lock the rows they give: run to their end under a transaction, as DML is,
//! before the first row goes out, since another attempt may give other rows.

use std::sync::Arc;

use aerostat_api::{ColumnDescription, Outcome, RowsTag};
use aerostat_query::{
    Cancellation,
    plan::{StatementContext, describe_query},
};
use aerostat_semantics::external;
use aerostat_sql::statement::Source;
use aerostat_types::SqlError;
use datafusion::{
    arrow::array::RecordBatch, common::Result as PlanResult,
    execution::memory_pool::MemoryReservation, sql::sqlparser::ast,
};

use super::{
    SessionView,
    attempts::finish,
    prepared::Bound,
    run::{CancelOnDrop, Parameters, plan_physical, plan_query},
    steps,
    stream::ready_within,
};

/// The rows of a query, and the charge for them.
type Rows = (
    Arc<[ColumnDescription]>,
    Vec<RecordBatch>,
    MemoryReservation,
);

impl SessionView<'_> {
    /// Runs a query that locks; when rows have changed under it, again on a newer snapshot.
    pub(super) async fn run_locking(
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
                let mut cancel = CancelOnDrop::of(transaction.cancel_token());
                let rows = collect(&context, &parsed, &parameters).await;
                if rows.is_ok() {
                    cancel.disarm();
                }
                drop(cancel);
                finish(rows, transaction, &source, &committer).await
            };
            let ended = match self.executor.on_query_runtime(work, cancellation).await? {
                Ok(ended) => ended,
                Err(error) => {
                    attempts.leave_rows();
                    locks = Some(self.past(&gate, error, cancellation).await?);
                    continue;
                }
            };
            if let Some((columns, rows, charge)) = attempts.after(ended)? {
                return Ok(Outcome::Rows {
                    columns,
                    batches: ready_within(rows, charge),
                    tag: RowsTag::Select,
                });
            }
        }
    }
}

/// All rows of a query, in memory that the tenant is charged for.
async fn collect(
    context: &StatementContext,
    parsed: &ast::Statement,
    parameters: &Parameters,
) -> PlanResult<Rows> {
    let logical = plan_query(context, parsed, parameters)?;
    let plan = plan_physical(context, &logical).await?;
    context.gate.confirm().map_err(external)?;
    let columns = describe_query(context, &logical, &plan.schema());
    parameters.described.require_planned(&columns)?;
    let (rows, charge) = steps::collect(context, plan).await?;
    Ok((columns, rows, charge))
}
