//! Aggregates from which nothing can be subtracted, over sliding frames: as in PostgreSQL, they
//! are computed anew from the remaining rows.

use std::{collections::VecDeque, sync::Arc};

use arrow::{
    array::{Array, ArrayRef},
    datatypes::{FieldRef, Schema},
};
use datafusion::{
    common::{Result, ScalarValue},
    logical_expr::{Accumulator, AggregateUDF, function::AccumulatorArgs},
    physical_expr::{PhysicalExpr, PhysicalSortExpr},
};

use super::ROW_WORK;
use crate::growth::worked;

/// What accumulators are made with.
#[derive(Debug)]
pub(super) struct Arguments {
    return_field: FieldRef,
    schema: Schema,
    ignore_nulls: bool,
    order_bys: Vec<PhysicalSortExpr>,
    is_reversed: bool,
    name: String,
    is_distinct: bool,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    expr_fields: Vec<FieldRef>,
}

impl Arguments {
    pub(super) fn of(args: &AccumulatorArgs) -> Self {
        Self {
            return_field: Arc::clone(&args.return_field),
            schema: args.schema.clone(),
            ignore_nulls: args.ignore_nulls,
            order_bys: args.order_bys.to_vec(),
            is_reversed: args.is_reversed,
            name: args.name.to_owned(),
            is_distinct: args.is_distinct,
            exprs: args.exprs.to_vec(),
            expr_fields: args.expr_fields.to_vec(),
        }
    }

    fn accumulator(&self, function: &AggregateUDF) -> Result<Box<dyn Accumulator>> {
        function.accumulator(AccumulatorArgs {
            return_field: Arc::clone(&self.return_field),
            schema: &self.schema,
            ignore_nulls: self.ignore_nulls,
            order_bys: &self.order_bys,
            is_reversed: self.is_reversed,
            name: &self.name,
            is_distinct: self.is_distinct,
            exprs: &self.exprs,
            expr_fields: &self.expr_fields,
        })
    }
}

/// The rows of a frame, and an accumulator of them while none has left.
#[derive(Debug)]
pub(super) struct Anew {
    function: Arc<AggregateUDF>,
    arguments: Arguments,
    /// The rows as they came, less those that left.
    batches: VecDeque<Vec<ArrayRef>>,
    current: Option<Box<dyn Accumulator>>,
}

impl Anew {
    /// Of no rows; `empty` is an accumulator that has none.
    pub(super) fn new(
        function: Arc<AggregateUDF>,
        arguments: Arguments,
        empty: Box<dyn Accumulator>,
    ) -> Self {
        Self {
            function,
            arguments,
            batches: VecDeque::new(),
            current: Some(empty),
        }
    }

    fn current(&mut self) -> Result<&mut Box<dyn Accumulator>> {
        let made = match self.current.take() {
            Some(current) => current,
            None => {
                let mut made = self.arguments.accumulator(&self.function)?;
                for batch in &self.batches {
                    worked(rows_of(batch).saturating_mul(ROW_WORK))?;
                    made.update_batch(batch)?;
                }
                made
            }
        };
        Ok(self.current.insert(made))
    }
}

fn rows_of(batch: &[ArrayRef]) -> usize {
    batch.first().map_or(0, |column| column.len())
}

impl Accumulator for Anew {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if rows_of(values) == 0 {
            return Ok(());
        }
        self.batches.push_back(values.to_vec());
        match &mut self.current {
            Some(current) => current.update_batch(values),
            None => Ok(()),
        }
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let mut leaving = rows_of(values);
        if leaving > 0 {
            self.current = None;
        }
        while leaving > 0
            && let Some(mut oldest) = self.batches.pop_front()
        {
            let rows = rows_of(&oldest);
            if rows > leaving {
                for column in &mut oldest {
                    *column = column.slice(leaving, rows - leaving);
                }
                self.batches.push_front(oldest);
            }
            leaving = leaving.saturating_sub(rows);
        }
        assert_eq!(leaving, 0, "a frame loses rows that it has");
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        // Some leave nothing behind when they are evaluated.
        let value = self.current()?.evaluate();
        self.current = None;
        value
    }

    fn size(&self) -> usize {
        // The arrays are slices of the window's own rows.
        let batches = self.batches.len() * size_of::<Vec<ArrayRef>>();
        let columns = self.batches.iter().map(|batch| size_of_val(&batch[..]));
        let current = self.current.as_ref().map_or(0, |current| current.size());
        size_of_val(self) + batches + columns.sum::<usize>() + current
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.current()?.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.current()?.merge_batch(states)
    }
}
