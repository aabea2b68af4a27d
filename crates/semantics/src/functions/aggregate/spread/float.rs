//! `var_pop`, `var_samp`, `stddev_pop` and `stddev` of any number; the part for floats.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
    Volatility,
};

use super::super::distinct::Distinct;
use super::super::sliding::Moments;
use super::exact::{self, Exact, ExactSpread};
use super::state::{Finish, Frame, Many, One, Stored, fields};
use super::{Spread, missing};

/// Count, sum, and sum of squared distances from the mean, by Youngs and Cramer.
#[derive(Clone, Debug, Default)]
pub(super) struct FloatSpread {
    count: f64,
    sum: f64,
    squares: f64,
    overflowed: bool,
}

impl Moments for FloatSpread {
    type Row = f64;

    fn add(&mut self, row: f64) {
        let before = self.count;
        let sum_before = self.sum;
        self.count += 1.0;
        self.sum += row;
        if before == 0.0 {
            if !row.is_finite() {
                self.squares = f64::NAN;
            }
            return;
        }
        let distance = row * self.count - self.sum;
        self.squares += distance * distance / (self.count * before);
        if self.sum.is_infinite() || self.squares.is_infinite() {
            self.overflowed |= !sum_before.is_infinite() && !row.is_infinite();
            self.squares = f64::NAN;
        }
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
        let count = self.count + newer.count;
        let distance = self.sum / self.count - newer.sum / newer.count;
        let sum = self.sum + newer.sum;
        let between = self.count * newer.count * distance * distance / count;
        let squares = self.squares + newer.squares + between;
        let finite = |state: &Self| state.sum.is_finite() && !state.squares.is_nan();
        self.overflowed |=
            finite(self) && finite(newer) && !(sum.is_finite() && squares.is_finite());
        let squares = if squares.is_infinite() {
            f64::NAN
        } else {
            squares
        };
        (self.count, self.sum, self.squares) = (count, sum, squares);
    }

    fn overflowed(&self) -> bool {
        self.overflowed
    }
}

impl Stored for FloatSpread {
    fn columns() -> Vec<DataType> {
        vec![DataType::Float64; 3]
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
            column(|state| state.sum),
            column(|state| state.squares),
        ]
    }

    fn load(columns: &[ArrayRef], row: usize) -> Self {
        let number = |at: usize| columns[at].as_primitive::<Float64Type>().value(row);
        Self {
            count: number(0),
            sum: number(1),
            squares: number(2),
            overflowed: false,
        }
    }

    fn each(values: &[ArrayRef], mut f: impl FnMut(usize, f64)) {
        let values = values[0].as_primitive::<Float64Type>();
        for (row, value) in values.iter().enumerate() {
            if let Some(value) = value {
                f(row, value);
            }
        }
    }
}

impl Finish<FloatSpread> for Spread {
    fn finish(&self, states: &[FloatSpread]) -> Result<ArrayRef> {
        let result = |state: &FloatSpread| {
            let divisor = state.count - if self.is_sample() { 1.0 } else { 0.0 };
            let variance = (divisor > 0.0).then(|| state.squares / divisor)?;
            Some(if self.is_root() {
                variance.sqrt()
            } else {
                variance
            })
        };
        Ok(Arc::new(
            states.iter().map(result).collect::<Float64Array>(),
        ))
    }
}

/// One of the four functions.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    name: &'static str,
    aliases: Vec<String>,
    kind: Spread,
    signature: Signature,
}

pub(super) fn function(name: &'static str, aliases: &[&str], kind: Spread) -> Arc<AggregateUDF> {
    let aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
    Arc::new(AggregateUDF::new_from_impl(Function {
        name,
        aliases,
        kind,
        signature: Signature::user_defined(Volatility::Immutable),
    }))
}

/// The type that an argument is brought to.
fn argument_type(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => DataType::Decimal128(5, 0),
        DataType::UInt16 | DataType::Int32 => DataType::Decimal128(10, 0),
        DataType::UInt32 | DataType::Int64 => DataType::Decimal128(19, 0),
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) => {
            DataType::Decimal128(*p, *s)
        }
        // Of a string literal, too: double precision is preferred.
        DataType::Float16
        | DataType::Float32
        | DataType::Float64
        | DataType::Null
        | DataType::Utf8 => DataType::Float64,
        _ => return None,
    })
}

impl Function {
    fn argument(&self, arguments: &[DataType]) -> Result<DataType> {
        let accepted = match arguments {
            [argument] => argument_type(argument),
            _ => None,
        };
        accepted.ok_or_else(|| missing(self.name, arguments))
    }

    /// How sums of numerics become a result; nothing for floats.
    fn exact(&self, args: &AccumulatorArgs) -> Option<Exact> {
        match (
            args.expr_fields[0].data_type(),
            args.return_field.data_type(),
        ) {
            (DataType::Decimal128(_, from), DataType::Decimal128(_, to)) => Some(Exact {
                kind: self.kind,
                from: *from,
                to: *to,
            }),
            _ => None,
        }
    }
}

impl AggregateUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        // An error here would lose its kind on the way; the return type raises it again.
        Ok(self
            .argument(arguments)
            .map_or_else(|_| arguments.to_vec(), |argument| vec![argument]))
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(match self.argument(arguments)? {
            DataType::Decimal128(_, scale) => exact::result_type(scale),
            other => other,
        })
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let inner: Box<dyn Accumulator> = match self.exact(&args) {
            Some(exact) => Box::new(One::<ExactSpread, _>::new(exact)),
            None => Box::new(One::<FloatSpread, _>::new(self.kind)),
        };
        if !args.is_distinct {
            return Ok(inner);
        }
        let element = args.expr_fields[0].data_type().clone();
        Ok(Box::new(Distinct::new(inner, element)))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let argument = args.input_fields[0].data_type();
        if args.is_distinct {
            let item = arrow::datatypes::Field::new_list_field(argument.clone(), true);
            let name = format_state_name(args.name, "distinct");
            return Ok(vec![Arc::new(arrow::datatypes::Field::new_list(
                name, item, false,
            ))]);
        }
        Ok(match argument {
            DataType::Decimal128(..) => fields::<ExactSpread>(args.name),
            _ => fields::<FloatSpread>(args.name),
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(match self.exact(&args) {
            Some(exact) => Box::new(Many::<ExactSpread, _>::new(exact)),
            None => Box::new(Many::<FloatSpread, _>::new(self.kind)),
        })
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(match self.exact(&args) {
            Some(exact) => Box::new(exact::Sliding::new(exact)),
            None => Box::new(Frame::<FloatSpread, _>::new(self.kind)),
        })
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}
