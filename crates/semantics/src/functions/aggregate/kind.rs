//! The kinds of sums: argument, width of the state, result.

use std::fmt::Debug;
use std::sync::Arc;

use aerostat_types::ErrorKind;
use arrow::array::{
    ArrayRef, ArrowPrimitiveType, Decimal128Array, Float32Array, Float64Array, Int64Array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, i256,
};
use datafusion::common::{DataFusionError, Result};

use crate::functions::cast::POWERS_OF_TEN;
use crate::raise;

/// Sums of one argument type.
pub(super) trait SumKind: Debug + Send + Sync + 'static {
    /// The argument.
    type In: ArrowPrimitiveType + Debug + Send;
    /// The state.
    type Acc: ArrowPrimitiveType + Debug + Send;

    fn widen(
        value: <Self::In as ArrowPrimitiveType>::Native,
    ) -> <Self::Acc as ArrowPrimitiveType>::Native;

    /// Adds; whether the state overflowed.
    fn add(
        sum: &mut <Self::Acc as ArrowPrimitiveType>::Native,
        value: <Self::Acc as ArrowPrimitiveType>::Native,
    ) -> bool;

    /// Takes away; whether the state overflowed.
    fn subtract(
        sum: &mut <Self::Acc as ArrowPrimitiveType>::Native,
        value: <Self::Acc as ArrowPrimitiveType>::Native,
    ) -> bool;

    /// Adds a batch without NULLs; whether the state overflowed.
    fn add_slice(
        sum: &mut <Self::Acc as ArrowPrimitiveType>::Native,
        values: &[<Self::In as ArrowPrimitiveType>::Native],
    ) -> bool {
        let mut bad = false;
        for &value in values {
            bad |= Self::add(sum, Self::widen(value));
        }
        bad
    }

    /// The results for sums.
    fn sums(
        sums: Vec<<Self::Acc as ArrowPrimitiveType>::Native>,
        nulls: Option<NullBuffer>,
        output: &DataType,
    ) -> Result<ArrayRef>;

    /// The results for sums divided by counts; those with count 0 are NULL.
    fn averages(
        sums: &[<Self::Acc as ArrowPrimitiveType>::Native],
        counts: &[i64],
        scale: i8,
        output: &DataType,
    ) -> Result<ArrayRef>;
}

pub(super) fn overflow(output: &DataType) -> DataFusionError {
    let message = match output {
        DataType::Int64 => "bigint out of range",
        DataType::Decimal128(..) => "value overflows numeric format",
        _ => "value out of range: overflow",
    };
    raise(ErrorKind::NumericValueOutOfRange, message)
}

/// `sum · 10^(to − from) / count`, half away from zero.
fn numeric_average(sum: i128, count: i64, from: i8, to: i8) -> Option<i128> {
    let shift = POWERS_OF_TEN[usize::try_from(to - from).ok()?];
    let count = i128::from(count);
    let round = |quotient: i128, remainder: i128, negative: bool| {
        let away = if negative { -1 } else { 1 };
        if remainder.unsigned_abs() * 2 >= count.unsigned_abs() {
            quotient + away
        } else {
            quotient
        }
    };
    match sum.checked_mul(shift) {
        Some(scaled) => Some(round(scaled / count, scaled % count, scaled < 0)),
        None => {
            let scaled = i256::from_i128(sum).wrapping_mul(i256::from_i128(shift));
            let divisor = i256::from_i128(count);
            let quotient = scaled.checked_div(divisor)?.to_i128()?;
            let remainder = scaled.checked_rem(divisor)?.to_i128()?;
            Some(round(quotient, remainder, sum < 0))
        }
    }
    .filter(|average| average.unsigned_abs() < POWERS_OF_TEN[38].unsigned_abs())
}

fn numeric_averages(
    sums: impl ExactSizeIterator<Item = i128>,
    counts: &[i64],
    scale: i8,
    output: &DataType,
) -> Result<ArrayRef> {
    let DataType::Decimal128(precision, to) = *output else {
        return Err(overflow(output));
    };
    assert_eq!(sums.len(), counts.len(), "each sum has its count");
    let averages = sums.zip(counts).map(|(sum, &count)| match count {
        0 => Ok(None),
        _ => numeric_average(sum, count, scale, to)
            .map(Some)
            .ok_or_else(|| overflow(output)),
    });
    let averages = averages.collect::<Result<Decimal128Array>>()?;
    Ok(Arc::new(averages.with_precision_and_scale(precision, to)?))
}

macro_rules! small_integer_sum {
    ($name:ident, $in:ty) => {
        #[derive(Debug)]
        pub(super) struct $name;

        impl SumKind for $name {
            type In = $in;
            type Acc = Int64Type;

            #[inline(always)]
            fn widen(value: <$in as ArrowPrimitiveType>::Native) -> i64 {
                i64::from(value)
            }

            #[inline(always)]
            fn add(sum: &mut i64, value: i64) -> bool {
                let (total, bad) = sum.overflowing_add(value);
                *sum = total;
                bad
            }

            #[inline(always)]
            fn subtract(sum: &mut i64, value: i64) -> bool {
                let (total, bad) = sum.overflowing_sub(value);
                *sum = total;
                bad
            }

            fn add_slice(sum: &mut i64, values: &[<$in as ArrowPrimitiveType>::Native]) -> bool {
                // A batch has far fewer than 2³² values, so its own sum fits.
                assert!(
                    u32::try_from(values.len()).is_ok(),
                    "the sum of {} values may be none of 64 bits",
                    values.len()
                );
                let batch: i64 = values
                    .iter()
                    .fold(0, |total: i64, &value| total.wrapping_add(i64::from(value)));
                Self::add(sum, batch)
            }

            fn sums(sums: Vec<i64>, nulls: Option<NullBuffer>, _: &DataType) -> Result<ArrayRef> {
                Ok(Arc::new(Int64Array::new(sums.into(), nulls)))
            }

            fn averages(
                sums: &[i64],
                counts: &[i64],
                scale: i8,
                output: &DataType,
            ) -> Result<ArrayRef> {
                numeric_averages(
                    sums.iter().map(|&sum| i128::from(sum)),
                    counts,
                    scale,
                    output,
                )
            }
        }
    };
}

small_integer_sum!(Int16Sum, Int16Type);
small_integer_sum!(Int32Sum, Int32Type);

macro_rules! wide_sum {
    ($name:ident, $in:ty, $can_overflow:expr) => {
        #[derive(Debug)]
        pub(super) struct $name;

        impl SumKind for $name {
            type In = $in;
            type Acc = Decimal128Type;

            #[inline(always)]
            fn widen(value: <$in as ArrowPrimitiveType>::Native) -> i128 {
                i128::from(value)
            }

            #[inline(always)]
            fn add(sum: &mut i128, value: i128) -> bool {
                let (total, bad) = sum.overflowing_add(value);
                *sum = total;
                $can_overflow & bad
            }

            #[inline(always)]
            fn subtract(sum: &mut i128, value: i128) -> bool {
                let (total, bad) = sum.overflowing_sub(value);
                *sum = total;
                $can_overflow & bad
            }

            fn sums(
                sums: Vec<i128>,
                nulls: Option<NullBuffer>,
                output: &DataType,
            ) -> Result<ArrayRef> {
                let bound = POWERS_OF_TEN[38].unsigned_abs();
                if sums.iter().any(|sum| sum.unsigned_abs() >= bound) {
                    return Err(overflow(output));
                }
                Ok(Arc::new(
                    Decimal128Array::new(sums.into(), nulls).with_data_type(output.clone()),
                ))
            }

            fn averages(
                sums: &[i128],
                counts: &[i64],
                scale: i8,
                output: &DataType,
            ) -> Result<ArrayRef> {
                numeric_averages(sums.iter().copied(), counts, scale, output)
            }
        }
    };
}

// 2⁶⁴ values of 64 bits fit 128.
wide_sum!(Int64Sum, Int64Type, false);
// 28 digits are less than 2⁹⁴, so it takes 2³³ values to leave 128 bits; looking
// for that in every addition costs a quarter of the time.
wide_sum!(ShortNumericSum, Decimal128Type, false);
wide_sum!(NumericSum, Decimal128Type, true);

/// Digits up to which numerics are summed by [`ShortNumericSum`].
pub(super) const SHORT_DIGITS_MAX: u8 = 28;

macro_rules! float_sum {
    ($name:ident, $in:ty) => {
        #[derive(Debug)]
        pub(super) struct $name;

        impl SumKind for $name {
            type In = $in;
            type Acc = Float64Type;

            #[inline(always)]
            fn widen(value: <$in as ArrowPrimitiveType>::Native) -> f64 {
                f64::from(value)
            }

            #[inline(always)]
            fn add(sum: &mut f64, value: f64) -> bool {
                let total = *sum + value;
                let bad = total.is_infinite() & sum.is_finite() & value.is_finite();
                *sum = total;
                bad
            }

            #[inline(always)]
            fn subtract(sum: &mut f64, value: f64) -> bool {
                *sum -= value;
                false
            }

            fn sums(
                mut sums: Vec<f64>,
                nulls: Option<NullBuffer>,
                output: &DataType,
            ) -> Result<ArrayRef> {
                // Infinities of both signs make a NaN with a sign, which is not PostgreSQL's.
                for sum in sums.iter_mut().filter(|sum| sum.is_nan()) {
                    *sum = f64::NAN;
                }
                if *output != DataType::Float32 {
                    return Ok(Arc::new(Float64Array::new(sums.into(), nulls)));
                }
                if sums
                    .iter()
                    .any(|sum| sum.is_finite() && (*sum as f32).is_infinite())
                {
                    return Err(overflow(output));
                }
                let narrowed: Vec<f32> = sums.into_iter().map(|sum| sum as f32).collect();
                Ok(Arc::new(Float32Array::new(narrowed.into(), nulls)))
            }

            fn averages(sums: &[f64], counts: &[i64], _: i8, _: &DataType) -> Result<ArrayRef> {
                let averages = sums
                    .iter()
                    .zip(counts)
                    .map(|(sum, &count)| (count > 0).then(|| sum / count as f64))
                    .map(|average| average.map(|x| if x.is_nan() { f64::NAN } else { x }));
                Ok(Arc::new(averages.collect::<Float64Array>()))
            }
        }
    };
}

float_sum!(Float32Sum, Float32Type);
float_sum!(Float64Sum, Float64Type);
