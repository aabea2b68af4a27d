//! Accumulators whose state is [`Moments`] as a few numbers.

use std::fmt::Debug;
use std::sync::Arc;

use aerostat_types::ErrorKind;
use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use super::super::sliding::{Moments, Sliding, not_merged};
use crate::raise;

/// Moments that travel between the halves of an aggregation, and come of columns.
pub(super) trait Stored: Moments {
    /// The types of the columns that a state takes, in order.
    fn columns() -> Vec<DataType>;

    /// States as columns.
    fn store(states: &[Self]) -> Vec<ArrayRef>;

    /// The state in a row of such columns.
    fn load(columns: &[ArrayRef], row: usize) -> Self;

    /// Calls `f` with each row whose arguments are there.
    fn each(values: &[ArrayRef], f: impl FnMut(usize, Self::Row));
}

/// What becomes of states.
pub(super) trait Finish<M>: Clone + Debug + Send + Sync + 'static {
    fn finish(&self, states: &[M]) -> Result<ArrayRef>;
}

/// PostgreSQL's error where a state has no room for a sum.
pub(super) fn overflow() -> DataFusionError {
    raise(
        ErrorKind::NumericValueOutOfRange,
        "value out of range: overflow",
    )
}

fn check<M: Moments>(state: &M) -> Result<()> {
    match state.overflowed() {
        true => Err(overflow()),
        false => Ok(()),
    }
}

/// The columns of a state of the aggregate `name`.
pub(super) fn fields<M: Stored>(name: &str) -> Vec<FieldRef> {
    let columns = M::columns().into_iter().enumerate();
    let field = |(at, data_type)| {
        let name = format_state_name(name, &format!("moment {at}"));
        Arc::new(Field::new(name, data_type, true))
    };
    columns.map(field).collect()
}

/// One group.
#[derive(Debug)]
pub(super) struct One<M, F> {
    state: M,
    finish: F,
}

impl<M: Stored, F: Finish<M>> One<M, F> {
    pub(super) fn new(finish: F) -> Self {
        let state = M::default();
        Self { state, finish }
    }
}

impl<M: Stored, F: Finish<M>> Accumulator for One<M, F> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        M::each(values, |_, row| self.state.add(row));
        check(&self.state)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for row in 0..states[0].len() {
            self.state.join(&M::load(states, row));
        }
        check(&self.state)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let columns = M::store(std::slice::from_ref(&self.state));
        let first = |column: &ArrayRef| ScalarValue::try_from_array(column, 0);
        columns.iter().map(first).collect()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let result = self.finish.finish(std::slice::from_ref(&self.state))?;
        ScalarValue::try_from_array(&result, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// A frame that slides.
#[derive(Debug)]
pub(super) struct Frame<M: Moments, F> {
    frame: Sliding<M>,
    finish: F,
}

impl<M: Stored, F: Finish<M>> Frame<M, F> {
    pub(super) fn new(finish: F) -> Self {
        let frame = Sliding::default();
        Self { frame, finish }
    }
}

impl<M: Stored, F: Finish<M>> Accumulator for Frame<M, F> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        M::each(values, |_, row| self.frame.push(row));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        M::each(values, |_, _| self.frame.pop());
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state = self.frame.state();
        check(&state)?;
        ScalarValue::try_from_array(&self.finish.finish(&[state])?, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Err(not_merged())
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(not_merged())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.frame.size()
    }
}

/// Many groups.
#[derive(Debug)]
pub(super) struct Many<M, F> {
    states: Vec<M>,
    finish: F,
}

impl<M: Stored, F: Finish<M>> Many<M, F> {
    pub(super) fn new(finish: F) -> Self {
        let states = vec![];
        Self { states, finish }
    }

    fn grow(&mut self, groups: usize) {
        assert!(
            groups >= self.states.len(),
            "{groups} groups are fewer than the {} there are",
            self.states.len()
        );
        self.states.resize(groups, M::default());
    }

    fn check(&self) -> Result<()> {
        self.states.iter().try_for_each(check)
    }
}

impl<M: Stored, F: Finish<M>> GroupsAccumulator for Many<M, F> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.grow(total_num_groups);
        let passes =
            |row| opt_filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        M::each(values, |row, value| {
            if passes(row) {
                self.states[group_indices[row]].add(value);
            }
        });
        Ok(())
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.grow(total_num_groups);
        for (row, group) in group_indices.iter().enumerate() {
            self.states[*group].join(&M::load(values, row));
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.check()?;
        let states = emit_to.take_needed(&mut self.states);
        self.finish.finish(&states)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.check()?;
        Ok(M::store(&emit_to.take_needed(&mut self.states)))
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = values[0].len();
        let mut each = Self::new(self.finish.clone());
        let own: Vec<usize> = (0..rows).collect();
        each.update_batch(values, &own, opt_filter, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.states.capacity() * size_of::<M>()
    }
}
