//! Variances of integers and numerics, from exact sums in 128 and 256 bits.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlError};
use arrow::array::{ArrayRef, AsArray, Decimal128Array, Decimal256Array, Int64Array};
use arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, Int64Type, i256};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::Accumulator;

use super::super::sliding::{Moments, not_merged};
use super::Spread;
use super::state::{Finish, Stored};
use crate::external;
use crate::functions::cast::POWERS_OF_TEN;

/// Digits after the point that a result has at least, as PostgreSQL's.
const SCALE_MIN: i8 = 16;

/// The type of a result for numerics of `scale`.
pub(super) fn result_type(scale: i8) -> DataType {
    DataType::Decimal128(38, scale.max(SCALE_MIN))
}

/// Count, sum and sum of squares, of values without their points.
#[derive(Clone, Debug)]
pub(super) struct ExactSpread {
    count: i64,
    sum: i128,
    squares: i256,
    overflowed: bool,
}

impl Default for ExactSpread {
    fn default() -> Self {
        Self {
            count: 0,
            sum: 0,
            squares: i256::ZERO,
            overflowed: false,
        }
    }
}

fn square(value: i128) -> i256 {
    match i64::try_from(value) {
        Ok(short) => i256::from_i128(i128::from(short) * i128::from(short)),
        // 38 digits twice are 76, which 256 bits hold.
        Err(_) => i256::from_i128(value).wrapping_mul(i256::from_i128(value)),
    }
}

impl ExactSpread {
    fn change(&mut self, count: i64, sum: Option<i128>, squares: Option<i256>) {
        self.count += count;
        match (sum, squares) {
            (Some(sum), Some(squares)) => (self.sum, self.squares) = (sum, squares),
            _ => self.overflowed = true,
        }
    }

    fn remove(&mut self, row: i128) {
        let squares = self.squares.checked_sub(square(row));
        self.change(-1, self.sum.checked_sub(row), squares);
    }
}

impl Moments for ExactSpread {
    type Row = i128;

    fn add(&mut self, row: i128) {
        let squares = self.squares.checked_add(square(row));
        self.change(1, self.sum.checked_add(row), squares);
    }

    fn join(&mut self, newer: &Self) {
        self.overflowed |= newer.overflowed;
        let squares = self.squares.checked_add(newer.squares);
        self.change(newer.count, self.sum.checked_add(newer.sum), squares);
    }

    fn overflowed(&self) -> bool {
        self.overflowed
    }
}

impl Stored for ExactSpread {
    fn columns() -> Vec<DataType> {
        vec![
            DataType::Int64,
            DataType::Decimal128(38, 0),
            DataType::Decimal256(76, 0),
        ]
    }

    fn store(states: &[Self]) -> Vec<ArrayRef> {
        let sums: Vec<i128> = states.iter().map(|state| state.sum).collect();
        let squares: Vec<i256> = states.iter().map(|state| state.squares).collect();
        let counts = states.iter().map(|state| Some(state.count));
        vec![
            Arc::new(counts.collect::<Int64Array>()),
            Arc::new(Decimal128Array::from(sums).with_data_type(DataType::Decimal128(38, 0))),
            Arc::new(Decimal256Array::from(squares).with_data_type(DataType::Decimal256(76, 0))),
        ]
    }

    fn load(columns: &[ArrayRef], row: usize) -> Self {
        Self {
            count: columns[0].as_primitive::<Int64Type>().value(row),
            sum: columns[1].as_primitive::<Decimal128Type>().value(row),
            squares: columns[2].as_primitive::<Decimal256Type>().value(row),
            overflowed: false,
        }
    }

    fn each(values: &[ArrayRef], mut f: impl FnMut(usize, i128)) {
        let values = values[0].as_primitive::<Decimal128Type>();
        for (row, value) in values.iter().enumerate() {
            if let Some(value) = value {
                f(row, value);
            }
        }
    }
}

/// What becomes of exact sums: from values of one scale a result of another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exact {
    pub(super) kind: Spread,
    pub(super) from: i8,
    pub(super) to: i8,
}

fn too_large() -> DataFusionError {
    let error = SqlError::new(
        ErrorKind::NumericValueOutOfRange,
        "value overflows numeric format",
    );
    external(error.with_hint("A numeric has 38 digits; cast the argument to double precision."))
}

fn power(exponent: u32) -> Option<i256> {
    let ten = |exponent: u32| POWERS_OF_TEN.get(exponent as usize).copied();
    match ten(exponent) {
        Some(power) => Some(i256::from_i128(power)),
        None => i256::from_i128(ten(38)?).checked_mul(i256::from_i128(ten(exponent - 38)?)),
    }
}

impl Exact {
    /// Numerator and denominator of the variance of values without their points.
    fn fraction(self, state: &ExactSpread) -> Option<(i256, i256)> {
        let count = i256::from_i128(i128::from(state.count));
        let square = i256::from_i128(state.sum).checked_mul(i256::from_i128(state.sum))?;
        let numerator = state.squares.checked_mul(count)?.checked_sub(square)?;
        let one_less = i128::from(state.count) - i128::from(self.kind.is_sample());
        Some((numerator, count.checked_mul(i256::from_i128(one_less))?))
    }

    /// The variance with `scale` digits after the point, rounded.
    fn variance(self, state: &ExactSpread, scale: u32) -> Option<i256> {
        let (numerator, mut denominator) = self.fraction(state)?;
        let own = 2 * self.from.unsigned_abs() as u32;
        let mut shift = i256::ONE;
        if own > scale {
            denominator = denominator.checked_mul(power(own - scale)?)?;
        } else {
            shift = power(scale - own)?;
        }
        let (whole, rest) = (
            numerator.checked_div(denominator)?,
            numerator.checked_rem(denominator)?,
        );
        let rest = rest.checked_mul(shift)?;
        let (digits, rest) = (
            rest.checked_div(denominator)?,
            rest.checked_rem(denominator)?,
        );
        let up = rest >= denominator.checked_sub(rest)?;
        let up = if up { i256::ONE } else { i256::ZERO };
        whole
            .checked_mul(shift)?
            .checked_add(digits)?
            .checked_add(up)
    }

    fn result(self, state: &ExactSpread) -> Option<i128> {
        let scale = self.to.unsigned_abs() as u32;
        let value = match self.kind.is_root() {
            false => self.variance(state, scale)?,
            // The root of twice as many digits has as many as are asked for.
            true => match self.variance(state, 2 * scale) {
                Some(variance) => root(variance)?,
                None => root(self.variance(state, scale)?.checked_mul(power(scale)?)?)?,
            },
        };
        let value = value.to_i128()?;
        (value.unsigned_abs() < POWERS_OF_TEN[38].unsigned_abs()).then_some(value)
    }
}

/// The square root, rounded: Newton's method, from above.
fn root(square: i256) -> Option<i256> {
    if square <= i256::ZERO {
        return Some(i256::ZERO);
    }
    let two = i256::from_i128(2);
    let bits = 256 - square.leading_zeros();
    let mut guess = i256::ONE;
    for _ in 0..bits.div_ceil(2) {
        guess = guess.checked_mul(two)?;
    }
    loop {
        let next = guess
            .checked_add(square.checked_div(guess)?)?
            .checked_div(two)?;
        if next >= guess {
            break;
        }
        guess = next;
    }
    // Above the middle between it and the next: (guess + ½)² < square.
    let beyond = square.checked_sub(guess.checked_mul(guess)?)? > guess;
    if beyond {
        guess.checked_add(i256::ONE)
    } else {
        Some(guess)
    }
}

impl Finish<ExactSpread> for Exact {
    fn finish(&self, states: &[ExactSpread]) -> Result<ArrayRef> {
        let result = |state: &ExactSpread| {
            if state.overflowed {
                return Err(too_large());
            }
            if state.count <= i64::from(self.kind.is_sample()) {
                return Ok(None);
            }
            self.result(state).map(Some).ok_or_else(too_large)
        };
        let results = states
            .iter()
            .map(result)
            .collect::<Result<Decimal128Array>>()?;
        Ok(Arc::new(
            results.with_data_type(DataType::Decimal128(38, self.to)),
        ))
    }
}

/// A frame that slides, whose sums are exact: what was added is taken away again.
#[derive(Debug)]
pub(super) struct Sliding {
    state: ExactSpread,
    finish: Exact,
}

impl Sliding {
    pub(super) fn new(finish: Exact) -> Self {
        let state = ExactSpread::default();
        Self { state, finish }
    }
}

impl Accumulator for Sliding {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        ExactSpread::each(values, |_, row| self.state.add(row));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        ExactSpread::each(values, |_, row| self.state.remove(row));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let result = self.finish.finish(std::slice::from_ref(&self.state))?;
        ScalarValue::try_from_array(&result, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Err(not_merged())
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(not_merged())
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_rounded() {
        for (square, expected) in [
            (0, 0),
            (1, 1),
            (2, 1),
            (3, 2),
            (6, 2),
            (7, 3),
            (9, 3),
            (12, 3),
            (13, 4),
        ] {
            let root = root(i256::from_i128(square)).unwrap();
            assert_eq!(root, i256::from_i128(expected), "√{square}");
        }
        let large = i256::from_i128(10_i128.pow(37));
        let square = large.checked_mul(large).unwrap();
        assert_eq!(root(square).unwrap(), large);
        assert_eq!(root(square.checked_add(large).unwrap()).unwrap(), large);
    }

    #[test]
    fn variances_are_exact() {
        let mut state = ExactSpread::default();
        for row in [9_223_372_036_854_775_807, -9_223_372_036_854_775_807] {
            state.add(row);
        }
        let of = |kind, to| Exact { kind, from: 0, to }.result(&state);
        assert_eq!(
            of(Spread::StddevPop, 16),
            Some(92_233_720_368_547_758_070_000_000_000_000_000)
        );
        assert_eq!(
            of(Spread::VarPop, 0),
            Some(9_223_372_036_854_775_807_i128.pow(2))
        );
        assert_eq!(of(Spread::VarPop, 16), None);
    }
}
