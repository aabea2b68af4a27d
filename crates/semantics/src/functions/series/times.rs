//! `generate_series` over timestamps in FROM: a table that is made batch by batch.
//!
//! Each value is the previous one moved by the step, as in PostgreSQL: a day of a month that is
//! cut once stays cut, and steps of days are days on the session's clock.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, IntervalMonthDayNano, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::memory::{LazyBatchGenerator, LazyMemoryExec};
use parking_lot::RwLock;

use super::super::cast::Zone;
use super::super::temporal::{order, shift, shift_in_zone};
use super::NAME;

/// From where to where, and how.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    pub(super) start: i64,
    pub(super) stop: i64,
    pub(super) step: IntervalMonthDayNano,
    /// Where the values are instants.
    pub(super) zone: Option<Zone>,
}

impl Steps {
    fn has(&self, at: i64) -> bool {
        match order(self.step) > 0 {
            true => at <= self.stop,
            false => at >= self.stop,
        }
    }

    fn after(&self, at: i64) -> Result<i64> {
        match &self.zone {
            Some(zone) => shift_in_zone(at, self.step, 1, zone),
            None => shift(at, self.step, 1),
        }
    }
}

/// The table.
#[derive(Debug)]
pub(super) struct Times {
    /// Nothing where an argument is NULL.
    steps: Option<Steps>,
    schema: SchemaRef,
}

impl Times {
    pub(super) fn new(steps: Option<Steps>, data_type: DataType) -> Self {
        let column = Field::new("value", data_type, false);
        Self {
            steps,
            schema: Arc::new(Schema::new(vec![column])),
        }
    }
}

#[async_trait]
impl TableProvider for Times {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let generators = self.steps.iter().map(|steps| {
            let generator: Arc<RwLock<dyn LazyBatchGenerator>> = Arc::new(RwLock::new(Generator {
                steps: steps.clone(),
                next: Some(steps.start),
                batch_rows: state.config_options().execution.batch_size.get(),
                schema: Arc::clone(&self.schema),
            }));
            generator
        });
        let exec = LazyMemoryExec::try_new(Arc::clone(&self.schema), generators.collect())?;
        Ok(Arc::new(exec.with_projection(projection.cloned())))
    }
}

#[derive(Clone, Debug)]
struct Generator {
    steps: Steps,
    /// Nothing at the end.
    next: Option<i64>,
    batch_rows: usize,
    schema: SchemaRef,
}

impl fmt::Display for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{NAME}: start={}, stop={}",
            self.steps.start, self.steps.stop
        )
    }
}

impl LazyBatchGenerator for Generator {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn generate_next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let mut values = Vec::new();
        while let Some(at) = self.next.filter(|&at| self.steps.has(at)) {
            if values.len() == self.batch_rows {
                break;
            }
            values.push(at);
            self.next = Some(self.steps.after(at)?);
        }
        if values.is_empty() {
            return Ok(None);
        }
        let values = TimestampMicrosecondArray::from(values)
            .with_data_type(self.schema.field(0).data_type().clone());
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), vec![Arc::new(values)])?;
        Ok(Some(batch))
    }

    fn reset_state(&self) -> Arc<RwLock<dyn LazyBatchGenerator>> {
        Arc::new(RwLock::new(Self {
            next: Some(self.steps.start),
            ..self.clone()
        }))
    }
}
