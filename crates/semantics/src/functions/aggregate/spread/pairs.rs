//! Covariances, `corr` and the regressions: of two floats, the dependent one first.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array};
use arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
    Volatility,
};

use super::super::sliding::Moments;
use super::missing;
use super::state::{Finish, Frame, Many, One, Stored, fields};

/// Count, sums, and sums of products of distances from the means, by Youngs and Cramer.
#[derive(Clone, Debug, Default)]
struct Pairs {
    count: f64,
    x: f64,
    xx: f64,
    y: f64,
    yy: f64,
    xy: f64,
    overflowed: bool,
}

impl Pairs {
    /// NaN in the place of infinities, as PostgreSQL keeps them.
    fn settle(&mut self) {
        for moment in [&mut self.xx, &mut self.yy, &mut self.xy] {
            if moment.is_infinite() {
                *moment = f64::NAN;
            }
        }
    }

    fn first(&mut self, x: f64, y: f64) {
        if !x.is_finite() {
            (self.xx, self.xy) = (f64::NAN, f64::NAN);
        }
        if !y.is_finite() {
            (self.yy, self.xy) = (f64::NAN, f64::NAN);
        }
    }
}

impl Moments for Pairs {
    /// The dependent value, and the independent one.
    type Row = (f64, f64);

    fn add(&mut self, (y, x): (f64, f64)) {
        let before = self.count;
        let (x_before, y_before) = (self.x, self.y);
        self.count += 1.0;
        self.x += x;
        self.y += y;
        if before == 0.0 {
            return self.first(x, y);
        }
        let (to_x, to_y) = (x * self.count - self.x, y * self.count - self.y);
        let scale = 1.0 / (self.count * before);
        self.xx += to_x * to_x * scale;
        self.yy += to_y * to_y * scale;
        self.xy += to_x * to_y * scale;
        let finite_x = !x_before.is_infinite() && !x.is_infinite();
        let finite_y = !y_before.is_infinite() && !y.is_infinite();
        self.overflowed |= finite_x && (self.x.is_infinite() || self.xx.is_infinite())
            || finite_y && (self.y.is_infinite() || self.yy.is_infinite())
            || finite_x && finite_y && self.xy.is_infinite();
        self.settle();
    }

    fn join(&mut self, newer: &Self) {
        self.overflowed |= newer.overflowed;
        if newer.count == 0.0 {
            return;
        }
        if self.count == 0.0 {
            let overflowed = self.overflowed;
            *self = newer.clone();
            self.overflowed = overflowed;
            return;
        }
        let finite = |state: &Self| state.xx.is_finite() && state.yy.is_finite();
        let were_finite = finite(self) && finite(newer);
        let count = self.count + newer.count;
        let to_x = self.x / self.count - newer.x / newer.count;
        let to_y = self.y / self.count - newer.y / newer.count;
        let weight = self.count * newer.count;
        self.x += newer.x;
        self.y += newer.y;
        self.xx += newer.xx + weight * to_x * to_x / count;
        self.yy += newer.yy + weight * to_y * to_y / count;
        self.xy += newer.xy + weight * to_x * to_y / count;
        self.count = count;
        self.overflowed |=
            were_finite && !(self.x.is_finite() && self.y.is_finite() && finite(self));
        self.settle();
    }

    fn overflowed(&self) -> bool {
        self.overflowed
    }
}

impl Stored for Pairs {
    fn columns() -> Vec<DataType> {
        vec![DataType::Float64; 6]
    }

    fn store(states: &[Self]) -> Vec<ArrayRef> {
        let column = |of: fn(&Self) -> f64| -> ArrayRef {
            Arc::new(
                states
                    .iter()
                    .map(|state| Some(of(state)))
                    .collect::<Float64Array>(),
            )
        };
        vec![
            column(|state| state.count),
            column(|state| state.x),
            column(|state| state.xx),
            column(|state| state.y),
            column(|state| state.yy),
            column(|state| state.xy),
        ]
    }

    fn load(columns: &[ArrayRef], row: usize) -> Self {
        let number = |at: usize| columns[at].as_primitive::<Float64Type>().value(row);
        Self {
            count: number(0),
            x: number(1),
            xx: number(2),
            y: number(3),
            yy: number(4),
            xy: number(5),
            overflowed: false,
        }
    }

    fn each(values: &[ArrayRef], mut f: impl FnMut(usize, (f64, f64))) {
        let numbers = |at: usize| values[at].as_primitive::<Float64Type>();
        for (row, pair) in numbers(0).iter().zip(numbers(1)).enumerate() {
            if let (Some(y), Some(x)) = pair {
                f(row, (y, x));
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PairAggregate {
    CovarPop,
    CovarSamp,
    Corr,
    Count,
    R2,
    Slope,
    Intercept,
    MeanX,
    MeanY,
    Sxx,
    Syy,
    Sxy,
}

const FUNCTIONS: [(&str, PairAggregate); 12] = [
    ("covar_pop", PairAggregate::CovarPop),
    ("covar_samp", PairAggregate::CovarSamp),
    ("corr", PairAggregate::Corr),
    ("regr_count", PairAggregate::Count),
    ("regr_r2", PairAggregate::R2),
    ("regr_slope", PairAggregate::Slope),
    ("regr_intercept", PairAggregate::Intercept),
    ("regr_avgx", PairAggregate::MeanX),
    ("regr_avgy", PairAggregate::MeanY),
    ("regr_sxx", PairAggregate::Sxx),
    ("regr_syy", PairAggregate::Syy),
    ("regr_sxy", PairAggregate::Sxy),
];

impl PairAggregate {
    fn of(self, pairs: &Pairs) -> Option<f64> {
        let Pairs {
            count,
            x,
            xx,
            y,
            yy,
            xy,
            ..
        } = *pairs;
        if count < 1.0 {
            return None;
        }
        match self {
            Self::CovarPop => Some(xy / count),
            Self::CovarSamp => (count > 1.0).then(|| xy / (count - 1.0)),
            Self::Corr => (xx != 0.0 && yy != 0.0).then(|| xy / (xx * yy).sqrt()),
            Self::Count => Some(count),
            Self::R2 if xx == 0.0 => None,
            Self::R2 if yy == 0.0 => Some(1.0),
            Self::R2 => Some((xy * xy) / (xx * yy)),
            Self::Slope => (xx != 0.0).then(|| xy / xx),
            Self::Intercept => (xx != 0.0).then(|| (y - x * xy / xx) / count),
            Self::MeanX => Some(x / count),
            Self::MeanY => Some(y / count),
            Self::Sxx => Some(xx),
            Self::Syy => Some(yy),
            Self::Sxy => Some(xy),
        }
    }
}

impl Finish<Pairs> for PairAggregate {
    fn finish(&self, states: &[Pairs]) -> Result<ArrayRef> {
        if *self == Self::Count {
            let counts = states.iter().map(|state| Some(state.count as i64));
            return Ok(Arc::new(counts.collect::<Int64Array>()));
        }
        // A NaN has no sign in PostgreSQL.
        let positive = |value: f64| if value.is_nan() { f64::NAN } else { value };
        let results = states.iter().map(|state| self.of(state).map(positive));
        Ok(Arc::new(results.collect::<Float64Array>()))
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    name: &'static str,
    kind: PairAggregate,
    signature: Signature,
}

/// The functions of this module.
pub(super) fn functions() -> impl Iterator<Item = Arc<AggregateUDF>> {
    FUNCTIONS.into_iter().map(|(name, kind)| {
        Arc::new(AggregateUDF::new_from_impl(Function {
            name,
            kind,
            signature: Signature::user_defined(Volatility::Immutable),
        }))
    })
}

/// Whether an argument becomes a double by itself.
fn is_number(argument: &DataType) -> bool {
    argument.is_numeric() || matches!(argument, DataType::Null | DataType::Utf8)
}

impl AggregateUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        // The return type raises the error: here it would lose its kind.
        Ok(match arguments {
            [y, x] if is_number(y) && is_number(x) => vec![DataType::Float64; 2],
            other => other.to_vec(),
        })
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match (arguments, self.kind) {
            ([y, x], _) if !is_number(y) || !is_number(x) => Err(missing(self.name, arguments)),
            ([_, _], PairAggregate::Count) => Ok(DataType::Int64),
            ([_, _], _) => Ok(DataType::Float64),
            _ => Err(missing(self.name, arguments)),
        }
    }

    /// Over no rows, which a correlated subquery has for rows that it joins with none.
    fn default_value(&self, ty: &DataType) -> Result<ScalarValue> {
        match self.kind {
            PairAggregate::Count => ScalarValue::new_zero(ty),
            _ => ScalarValue::try_from(ty),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            let message = format!("{}(DISTINCT) is not supported", self.name);
            return Err(crate::raise(
                aerostat_types::ErrorKind::FeatureNotSupported,
                message,
            ));
        }
        Ok(Box::new(One::<Pairs, _>::new(self.kind)))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(fields::<Pairs>(args.name))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Many::<Pairs, _>::new(self.kind)))
    }

    fn create_sliding_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Frame::<Pairs, _>::new(self.kind)))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}
