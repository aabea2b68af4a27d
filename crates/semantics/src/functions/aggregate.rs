//! `sum` and `avg` with PostgreSQL's result types, checked.
//!
//! | argument | `sum` | `avg` | state |
//! |---|---|---|---|
//! | smallint, integer | bigint | numeric(38,16) | 64-bit sum |
//! | bigint | numeric(38,0) | numeric(38,16) | 128-bit sum |
//! | numeric(p,s) | numeric(38,s) | numeric(38, s and at least 16) | 128-bit sum |
//! | real | real | double precision | double sum |
//! | double precision | double precision | double precision | double sum |
//! | interval | interval | interval | sum by fields |

pub(crate) mod array_types;
mod arrays;
mod distinct;
pub(crate) mod distinct_intervals;
pub(crate) mod extreme;
pub(crate) mod gathered;
mod groups;
mod intervals;
mod kind;
mod longest;
mod single;
mod sliding;
pub(crate) mod spread;

use std::sync::{Arc, LazyLock};

use aerostat_types::ErrorKind;
use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit};
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::expr::AggregateFunctionParams;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Expr, GroupsAccumulator, ReversedUDAF, Signature,
    Volatility,
};

use crate::{name_of_arrow, raise};
use kind::{
    Float32Sum, Float64Sum, Int16Sum, Int32Sum, Int64Sum, NumericSum, SHORT_DIGITS_MAX,
    ShortNumericSum,
};

/// The name of `sum`.
pub(crate) const SUM: &str = "sum";

/// Digits after the point of an average of integers.
const AVERAGE_SCALE: i8 = 16;

/// What is made of a sum and a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Finish {
    Sum,
    Average,
}

/// `sum` or `avg`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Total {
    name: &'static str,
    shown: &'static str,
    finish: Finish,
    signature: Signature,
}

static SUM_FUNCTION: LazyLock<Arc<AggregateUDF>> =
    LazyLock::new(|| Total::function(SUM, Finish::Sum));
static AVG_FUNCTION: LazyLock<Arc<AggregateUDF>> =
    LazyLock::new(|| Total::function("avg", Finish::Average));
static ONE_PHASE: LazyLock<Arc<AggregateUDF>> =
    LazyLock::new(|| Total::function("sum_in_one_phase", Finish::Sum));

/// `sum`.
pub(crate) fn sum() -> Arc<AggregateUDF> {
    Arc::clone(&SUM_FUNCTION)
}

/// `avg`.
pub(crate) fn avg() -> Arc<AggregateUDF> {
    Arc::clone(&AVG_FUNCTION)
}

/// `sum` under a name that DataFusion does not know. Beside a DISTINCT
/// aggregate its optimizer would otherwise sum sums, whose type differs:
/// `sum(integer)` is bigint and `sum(bigint)` numeric.
pub(crate) fn sum_in_one_phase() -> Arc<AggregateUDF> {
    Arc::clone(&ONE_PHASE)
}

impl Total {
    fn function(name: &'static str, finish: Finish) -> Arc<AggregateUDF> {
        let shown = if finish == Finish::Sum { SUM } else { name };
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(AggregateUDF::new_from_impl(Total {
            name,
            shown,
            finish,
            signature,
        }))
    }

    /// The types the arguments are brought to.
    fn arguments(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let [argument] = arg_types else {
            let names: Vec<String> = arg_types.iter().map(name_of_arrow).collect();
            let message = format!(
                "function {}({}) does not exist",
                self.shown,
                names.join(", ")
            );
            return Err(raise(ErrorKind::UndefinedFunction, message));
        };
        match argument_type(argument) {
            Some(ty) => Ok(vec![ty]),
            None => Err(self.unknown(argument)),
        }
    }

    fn unknown(&self, argument: &DataType) -> datafusion::common::DataFusionError {
        let message = format!(
            "function {}({}) does not exist",
            self.shown,
            name_of_arrow(argument)
        );
        raise(ErrorKind::UndefinedFunction, message)
    }
}

/// The type an argument is brought to.
fn argument_type(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => DataType::Int16,
        DataType::UInt16 | DataType::Int32 => DataType::Int32,
        DataType::UInt32 | DataType::Int64 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) => {
            DataType::Decimal128(*p, *s)
        }
        DataType::Float16 | DataType::Float32 => DataType::Float32,
        DataType::Float64 | DataType::Null => DataType::Float64,
        DataType::Interval(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        _ => return None,
    })
}

fn state_type(argument: &DataType) -> DataType {
    match argument {
        DataType::Int16 | DataType::Int32 => DataType::Int64,
        DataType::Int64 => DataType::Decimal128(38, 0),
        DataType::Decimal128(_, s) => DataType::Decimal128(38, *s),
        _ => DataType::Float64,
    }
}

fn result_type(finish: Finish, argument: &DataType) -> DataType {
    match (finish, argument) {
        (Finish::Sum, DataType::Float32) => DataType::Float32,
        (_, DataType::Interval(unit)) => DataType::Interval(*unit),
        (Finish::Sum, other) => state_type(other),
        (Finish::Average, DataType::Int16 | DataType::Int32 | DataType::Int64) => {
            DataType::Decimal128(38, AVERAGE_SCALE)
        }
        (Finish::Average, DataType::Decimal128(_, s)) => {
            DataType::Decimal128(38, (*s).max(AVERAGE_SCALE))
        }
        (Finish::Average, _) => DataType::Float64,
    }
}

fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_))
}

macro_rules! dispatch {
    ($self:ident, $args:ident, $make:ident, $wrap:expr) => {{
        let argument = $args.expr_fields[0].data_type().clone();
        let output = $args.return_field.data_type().clone();
        match argument {
            DataType::Int16 => Ok($wrap(Box::new($make::<Int16Sum>::new(
                $self.finish,
                output,
                0,
            )))),
            DataType::Int32 => Ok($wrap(Box::new($make::<Int32Sum>::new(
                $self.finish,
                output,
                0,
            )))),
            DataType::Int64 => Ok($wrap(Box::new($make::<Int64Sum>::new(
                $self.finish,
                output,
                0,
            )))),
            DataType::Decimal128(p, s) if p <= SHORT_DIGITS_MAX => {
                Ok($wrap(Box::new($make::<ShortNumericSum>::new(
                    $self.finish,
                    output,
                    s,
                ))))
            }
            DataType::Decimal128(_, s) => Ok($wrap(Box::new($make::<NumericSum>::new(
                $self.finish,
                output,
                s,
            )))),
            DataType::Float32 => Ok($wrap(Box::new($make::<Float32Sum>::new(
                $self.finish,
                output,
                0,
            )))),
            DataType::Float64 => Ok($wrap(Box::new($make::<Float64Sum>::new(
                $self.finish,
                output,
                0,
            )))),
            other => Err($self.unknown(&other)),
        }
    }};
}

use groups::GroupTotals;
use single::SingleTotal;
use sliding::SlidingTotal;

impl AggregateUDFImpl for Total {
    fn name(&self) -> &str {
        self.name
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        // One name for both variants, so that a column keeps its name.
        if self.name != self.shown {
            return sum().schema_name(params);
        }
        let name = datafusion::logical_expr::udaf_default_schema_name(self, params)?;
        // An expression's name leaves casts out, but `sum(a)` and `sum(a::bigint)` differ.
        let casts = |argument: &&Expr| {
            argument
                .exists(|expr| Ok(matches!(expr, Expr::Cast(_))))
                .unwrap_or(false)
        };
        Ok(match params.args.iter().find(casts) {
            Some(argument) => format!("{name} of {argument}"),
            None => name,
        })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        // An error here would lose its kind on the way; the return type raises it again.
        Ok(self
            .arguments(arg_types)
            .unwrap_or_else(|_| arg_types.to_vec()))
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(result_type(self.finish, &self.arguments(arg_types)?[0]))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if is_interval(args.expr_fields[0].data_type()) {
            return Ok(intervals::total(self.finish));
        }
        if args.is_distinct {
            let element = args.expr_fields[0].data_type().clone();
            let wrap = |inner: Box<dyn Accumulator>| -> Box<dyn Accumulator> {
                Box::new(distinct::Distinct::new(inner, element.clone()))
            };
            return dispatch!(self, args, SingleTotal, wrap);
        }
        let plain = |inner: Box<dyn Accumulator>| inner;
        dispatch!(self, args, SingleTotal, plain)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let argument = args.input_fields[0].data_type();
        if is_interval(argument) {
            return Ok(intervals::state_fields(args.name));
        }
        if args.is_distinct {
            let item = Field::new_list_field(argument.clone(), true);
            return Ok(vec![Arc::new(Field::new_list(
                format_state_name(args.name, "distinct"),
                item,
                false,
            ))]);
        }
        let sum = Field::new(
            format_state_name(args.name, "sum"),
            state_type(argument),
            true,
        );
        let count = Field::new(format_state_name(args.name, "count"), DataType::Int64, true);
        Ok(match self.finish {
            Finish::Sum => vec![Arc::new(sum)],
            Finish::Average => vec![Arc::new(sum), Arc::new(count)],
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.is_distinct && !is_interval(args.expr_fields[0].data_type())
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let plain = |inner: Box<dyn GroupsAccumulator>| inner;
        dispatch!(self, args, GroupTotals, plain)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let output = args.return_field.data_type().clone();
        match args.expr_fields[0].data_type() {
            DataType::Float32 => {
                return Ok(Box::new(SlidingTotal::<Float32Sum>::new(
                    self.finish,
                    output,
                )));
            }
            DataType::Float64 => {
                return Ok(Box::new(SlidingTotal::<Float64Sum>::new(
                    self.finish,
                    output,
                )));
            }
            _ => {}
        }
        self.accumulator(args)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

#[cfg(test)]
mod tests;
