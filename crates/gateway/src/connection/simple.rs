//! The simple protocol: a string of statements that run one after another, with results in text.

use std::{pin::pin, sync::Arc};

use arrow::record_batch::RecordBatch;
use futures::StreamExt;

use super::{Connection, cancelled};
use crate::{
    api::{BackendSession, ColumnDescription, Group, Outcome, RowStream, Rows, RowsTag},
    sqlstate::{Fault, WireError},
    value::{Column, RowEncoder, put_values},
    wire::Format,
};

/// How many rows are encoded before the task checks whether it must flush or yield.
const SLICE_ROWS: usize = 256;

impl<S: BackendSession> Connection<S> {
    pub(super) async fn query(&mut self, text: &str) -> Result<(), Fault> {
        let statements = self.signals.engine(pin!(self.session.split(text))).await?;
        if statements.is_empty() {
            self.output.bare(b'I');
        }
        if statements.len() > 1 {
            self.session.begin_group(Group::Message);
        }
        for (at, statement) in statements.iter().enumerate() {
            // A message may have a million short statements, none of which waits for anything.
            tokio::task::consume_budget().await;
            let last = at + 1 == statements.len();
            if self.signals.orders.is_cancelled() {
                return Err(Fault::Sql(cancelled()));
            }
            let outcome = self
                .signals
                .engine(pin!(self.session.execute(statement)))
                .await?;
            self.follow_encoding();
            self.notices();
            if self.signals.orders.is_cancelled()
                && matches!(outcome, Outcome::Rows { .. } | Outcome::CopyOut(_))
            {
                return Err(Fault::Sql(cancelled()));
            }
            match outcome {
                Outcome::Rows {
                    columns,
                    batches,
                    tag,
                } => self.send_all(columns, batches, &tag, last).await?,
                Outcome::Command { tag } => {
                    self.commit_after(last).await?;
                    self.output.command_complete(&tag);
                }
                Outcome::CopyIn(copy) => {
                    self.copy_in(copy).await?;
                    self.commit_after(last).await?;
                }
                Outcome::CopyOut(copy) => {
                    self.copy_out(copy).await?;
                    self.commit_after(last).await?;
                }
                Outcome::Empty => self.output.bare(b'I'),
            }
            self.flush_when_full().await?;
        }
        Ok(())
    }

    /// Commits the statements of a message together, after the last one has run and before its
    /// completion is sent.
    async fn commit_after(&mut self, last: bool) -> Result<(), Fault> {
        if last {
            let committing = self.session.end_group();
            self.signals.engine(pin!(committing)).await?;
        }
        Ok(())
    }

    async fn send_all(
        &mut self,
        columns: Arc<[ColumnDescription]>,
        mut batches: RowStream,
        tag: &RowsTag,
        last: bool,
    ) -> Result<(), Fault> {
        self.output.row_description(&columns, &[])?;
        if let Some(plain) = batches.take_rows() {
            self.send_values(&plain, &[]).await?;
            self.commit_after(last).await?;
            self.notices();
            self.output.command_complete(&tag.after(plain.len() as u64));
            return Ok(());
        }
        let formats = vec![Format::Text; columns.len()];
        let encoder = RowEncoder::new(columns, formats, self.zone());
        let mut rows = 0;
        while let Some(batch) = self.next_batch(&mut batches).await? {
            rows += batch.num_rows() as u64;
            let columns = encoder.prepare(&batch)?;
            self.send_rows(&encoder, &columns, 0, batch.num_rows())
                .await?;
        }
        self.commit_after(last).await?;
        self.notices();
        self.output.command_complete(&tag.after(rows));
        Ok(())
    }

    /// Sends rows that are plain values.
    pub(super) async fn send_values(
        &mut self,
        rows: &Rows,
        formats: &[Format],
    ) -> Result<(), Fault> {
        let zone = self.zone();
        for row in rows.iter() {
            let start = self.output.bytes.len();
            put_values(row, rows.types(), formats, zone, &mut self.output)?;
            if self.is_full() {
                self.charge_row(start)?;
                self.flush_when_full().await?;
            }
        }
        Ok(())
    }

    /// The next rows of a running statement. A cancel request ends the wait.
    pub(super) async fn next_batch(
        &mut self,
        batches: &mut RowStream,
    ) -> Result<Option<RecordBatch>, Fault> {
        let next = self.signals.droppable(batches.next()).await?;
        // The notices that functions have raised for these rows come before them.
        self.notices();
        match next {
            None => Ok(None),
            Some(batch) => Ok(Some(batch.map_err(WireError::from)?)),
        }
    }

    /// Sends rows `from..to` of a batch, in slices.
    pub(super) async fn send_rows(
        &mut self,
        encoder: &RowEncoder,
        columns: &[Column],
        from: usize,
        to: usize,
    ) -> Result<(), Fault> {
        let mut row = from;
        while row < to {
            let end = to.min(row + SLICE_ROWS);
            for row in row..end {
                let start = self.output.bytes.len();
                encoder.put_row(columns, row, &mut self.output)?;
                if self.is_full() {
                    self.charge_row(start)?;
                    self.flush_when_full().await?;
                }
            }
            row = end;
            if self.signals.orders.is_cancelled() {
                return Err(Fault::Sql(cancelled()));
            }
            tokio::task::consume_budget().await;
        }
        Ok(())
    }
}
