//! Aggregates of floats over sliding frames, without subtraction.
//!
//! What was added to a float cannot be subtracted: `(1e20 + 1) - 1e20` is 0, and a NaN or an
//! infinity never leaves a sum. PostgreSQL adds up each frame anew. [`Sliding`] does so for short
//! frames, with the same result to the last digit; a long one is held as two parts:
//!
//! ```text
//! oldest ──────────────────────────────► newest
//! │ a state for each row and all up to here │ one state of the rows since │
//! ◄────────────── suffixes ────────────────►◄────────── rest ────────────►
//! ```
//!
//! A row that leaves pops its suffix; a row that comes is added to the rest. When no suffix is
//! left the rest is turned into suffixes, once for each row, so a row costs two additions however
//! long the frame is.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::marker::PhantomData;

use aerostat_types::ErrorKind;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::Accumulator;

use super::Finish;
use super::kind::{SumKind, overflow};
use crate::raise;

/// Frames up to this many rows are added up anew for each row, as in PostgreSQL: 64 additions
/// that wait for one another take as long as what else a row of a window costs.
const ADDED_ANEW_MAX: usize = 64;

/// What an aggregate knows of some rows.
pub(super) trait Moments: Clone + Debug + Default + Send + Sync + 'static {
    /// The arguments of a row, none of them NULL.
    type Row: Copy + Debug + Send + Sync;

    /// Adds a row.
    fn add(&mut self, row: Self::Row);

    /// Adds what is known of rows behind these.
    fn join(&mut self, newer: &Self);

    /// Whether finite rows made an infinite number.
    fn overflowed(&self) -> bool;
}

/// The rows of a frame.
#[derive(Debug)]
pub(super) struct Sliding<M: Moments> {
    rows: VecDeque<M::Row>,
    /// Of the first rows, last first: each with all behind it up to the last of these.
    suffixes: Vec<M>,
    /// Of the rows behind those.
    rest: M,
    /// Whether rows have left that `rest` has still.
    is_stale: bool,
}

impl<M: Moments> Default for Sliding<M> {
    fn default() -> Self {
        Self {
            rows: VecDeque::new(),
            suffixes: vec![],
            rest: M::default(),
            is_stale: true,
        }
    }
}

impl<M: Moments> Sliding<M> {
    /// A row that the frame gains at its end.
    pub(super) fn push(&mut self, row: M::Row) {
        self.rows.push_back(row);
        if !self.is_stale {
            self.rest.add(row);
        }
    }

    /// Takes away the oldest row.
    pub(super) fn pop(&mut self) {
        let oldest = self.rows.pop_front();
        assert!(oldest.is_some(), "a frame loses rows that it has");
        if self.suffixes.pop().is_none() {
            self.is_stale = true;
        }
    }

    /// What is known of the frame's rows.
    pub(super) fn state(&mut self) -> M {
        if self.rows.len() <= ADDED_ANEW_MAX {
            return self.anew();
        }
        if self.is_stale {
            self.settle();
        }
        assert!(
            self.suffixes.len() <= self.rows.len(),
            "{} suffixes are of a frame of {} rows",
            self.suffixes.len(),
            self.rows.len()
        );
        let mut state = self.suffixes.last().cloned().unwrap_or_default();
        state.join(&self.rest);
        // In another order the same rows may stay in range.
        if state.overflowed() {
            self.anew()
        } else {
            state
        }
    }

    fn anew(&self) -> M {
        let mut state = M::default();
        self.rows.iter().for_each(|row| state.add(*row));
        state
    }

    fn settle(&mut self) {
        self.suffixes.clear();
        let mut suffix = M::default();
        for row in self.rows.iter().rev() {
            let mut longer = M::default();
            longer.add(*row);
            longer.join(&suffix);
            suffix = longer;
            self.suffixes.push(suffix.clone());
        }
        self.rest = M::default();
        self.is_stale = false;
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn size(&self) -> usize {
        self.rows.capacity() * size_of::<M::Row>() + self.suffixes.capacity() * size_of::<M>()
    }
}

/// A sum as PostgreSQL adds it up.
#[derive(Clone, Debug, Default)]
pub(super) struct FloatSum {
    pub(super) sum: f64,
    overflowed: bool,
}

impl Moments for FloatSum {
    type Row = f64;

    fn add(&mut self, row: f64) {
        let sum = self.sum + row;
        self.overflowed |= sum.is_infinite() && self.sum.is_finite() && row.is_finite();
        self.sum = sum;
    }

    fn join(&mut self, newer: &Self) {
        self.add(newer.sum);
        self.overflowed |= newer.overflowed;
    }

    fn overflowed(&self) -> bool {
        self.overflowed
    }
}

/// `sum` or `avg` over a frame that slides.
#[derive(Debug)]
pub(super) struct SlidingTotal<K: SumKind> {
    finish: Finish,
    output: DataType,
    frame: Sliding<FloatSum>,
    kind: PhantomData<K>,
}

impl<K: SumKind<Acc = Float64Type>> SlidingTotal<K> {
    pub(super) fn new(finish: Finish, output: DataType) -> Self {
        Self {
            finish,
            output,
            frame: Sliding::default(),
            kind: PhantomData,
        }
    }
}

impl<K: SumKind<Acc = Float64Type>> Accumulator for SlidingTotal<K> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<K::In>();
        let rows = values.iter().flatten().map(K::widen);
        rows.for_each(|row| self.frame.push(row));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let rows = values[0].len() - values[0].null_count();
        (0..rows).for_each(|_| self.frame.pop());
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.frame.len() == 0 {
            return ScalarValue::try_new_null(&self.output);
        }
        let state = self.frame.state();
        if state.overflowed() {
            return Err(overflow(&self.output));
        }
        let count = self.frame.len() as i64;
        let result = match self.finish {
            Finish::Sum => K::sums(vec![state.sum], None, &self.output)?,
            Finish::Average => K::averages(&[state.sum], &[count], 0, &self.output)?,
        };
        ScalarValue::try_from_array(&result, 0)
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

/// Frames are in one piece.
pub(super) fn not_merged() -> DataFusionError {
    raise(ErrorKind::Internal, "a window frame was to be merged")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers whose sums are exact in any order.
    fn numbers() -> impl Iterator<Item = f64> {
        let mut seed = 7_u64;
        std::iter::repeat_with(move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((seed >> 40) as f64) - 8e6
        })
    }

    #[test]
    fn a_frame_that_slides_is_what_its_rows_are() {
        for length in [1, 2, 63, 64, 65, 66, 200, 1000] {
            let rows: Vec<f64> = numbers().take(3000).collect();
            let mut frame = Sliding::<FloatSum>::default();
            for (at, row) in rows.iter().enumerate() {
                frame.push(*row);
                if at >= length {
                    frame.pop();
                }
                let first = (at + 1).saturating_sub(length);
                let expected: f64 = rows[first..=at].iter().sum();
                assert_eq!(frame.state().sum, expected, "{length} rows up to {at}");
            }
        }
    }

    #[test]
    fn frames_of_any_form_are_what_their_rows_are() {
        let rows: Vec<f64> = numbers().take(4000).collect();
        let mut frame = Sliding::<FloatSum>::default();
        let (mut first, mut end) = (0, 0);
        for step in numbers().take(600) {
            let step = step.abs() as usize;
            let grown = (end + step % 300).min(rows.len());
            rows[end..grown].iter().for_each(|row| frame.push(*row));
            end = grown;
            let left = (first + step / 300 % 300).min(end);
            (first..left).for_each(|_| frame.pop());
            first = left;
            if !step.is_multiple_of(3) {
                let expected: f64 = rows[first..end].iter().sum();
                assert_eq!(frame.state().sum, expected, "{first}..{end}");
            }
        }
        assert_eq!(end, rows.len());
    }

    #[test]
    fn what_is_not_finite_leaves_with_its_row() {
        for length in [3, 500] {
            let mut frame = Sliding::<FloatSum>::default();
            for at in 0..2000 {
                frame.push(match at {
                    700 => f64::NAN,
                    1400 => f64::INFINITY,
                    1401 => f64::NEG_INFINITY,
                    _ => 1.0,
                });
                if at >= length {
                    frame.pop();
                }
                let has = |row: usize| row <= at && at < row + length;
                let sum = frame.state().sum;
                if has(700) || has(1400) && has(1401) {
                    assert!(sum.is_nan(), "{at}");
                } else if has(1400) || has(1401) {
                    assert!(sum.is_infinite(), "{at}");
                } else {
                    assert_eq!(sum, length.min(at + 1) as f64, "{at}");
                }
            }
        }
    }

    #[test]
    fn an_overflow_is_one_in_the_order_of_rows() {
        let mut frame = Sliding::<FloatSum>::default();
        let rows = [1e308, -1e308, 1e308]
            .into_iter()
            .chain((0..200).map(|_| 0.0));
        rows.chain([-1e308, 1.5e308])
            .for_each(|row| frame.push(row));
        assert_eq!(frame.state().sum, 1.5e308);
        frame.push(1e308);
        assert!(frame.state().overflowed());
    }
}
