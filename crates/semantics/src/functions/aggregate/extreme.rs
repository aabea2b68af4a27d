//! `min` and `max`: DataFusion's, except that a `char(n)` stays one, and that floats, intervals
//! and arrays are in PostgreSQL's order, where NaN is the greatest, an infinity is a value like
//! others, and a NULL in an array is greater than other items.

use std::sync::Arc;

use aerostat_types::SqlType;
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion::physical_expr::NullState;

use super::arrays::ExtremeArray;
use super::longest::Longest;

/// Puts both over DataFusion's.
///
/// # Errors
/// The registry takes no functions.
pub(crate) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for name in ["min", "max"] {
        let inner = registry.udaf(name)?;
        registry.register_udaf(Arc::new(AggregateUDF::new_from_impl(Extreme { inner })))?;
    }
    Ok(())
}

/// `min` or `max`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme {
    inner: Arc<AggregateUDF>,
}

impl Extreme {
    fn is_max(&self) -> bool {
        self.inner.is_descending() == Some(true)
    }
}

impl AggregateUDFImpl for Extreme {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
        let plain = self.inner.return_field(arguments)?;
        // The greatest of varchars is a text, as in PostgreSQL.
        Ok(match arguments {
            [argument] if matches!(SqlType::of_field(argument), Some(SqlType::Char(_))) => {
                let kept = Field::clone(&plain).with_metadata(argument.metadata().clone());
                Arc::new(kept)
            }
            _ => plain,
        })
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match args.return_field.data_type() {
            DataType::Interval(_) => Ok(Box::new(Longest::new(self.is_max()))),
            list @ DataType::List(_) => {
                Ok(Box::new(ExtremeArray::new(self.is_max(), list.clone())))
            }
            _ => self.inner.accumulator(args),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !is_own(args.return_field.data_type()) && self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let is_max = self.is_max();
        match args.return_field.data_type() {
            DataType::Float32 => Ok(Box::new(FloatExtremes::<Float32Type>::new(is_max))),
            DataType::Float64 => Ok(Box::new(FloatExtremes::<Float64Type>::new(is_max))),
            _ => self.inner.create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        // One of ours that takes no rows back is filled anew for each frame.
        match is_own(args.return_field.data_type()) {
            true => self.accumulator(args),
            false => self.inner.create_sliding_accumulator(args),
        }
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arguments)
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner.is_descending()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn value_from_stats(&self, statistics: &StatisticsArgs) -> Option<ScalarValue> {
        match statistics.return_type {
            own if is_own(own) => None,
            _ => self.inner.value_from_stats(statistics),
        }
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(data_type)
    }
}

/// Whether the accumulators of values of this type are ours, of one group each.
fn is_own(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_) | DataType::List(_))
}

/// A float in PostgreSQL's order.
trait PostgresOrder: Copy {
    const LEAST: Self;
    const GREATEST: Self;

    fn is_below(self, other: Self) -> bool;
}

macro_rules! postgres_order {
    ($float:ty) => {
        impl PostgresOrder for $float {
            const LEAST: Self = <$float>::NEG_INFINITY;
            const GREATEST: Self = <$float>::NAN;

            fn is_below(self, other: Self) -> bool {
                self < other || other.is_nan() && !self.is_nan()
            }
        }
    };
}

postgres_order!(f32);
postgres_order!(f64);

/// The least or the greatest float of each group.
#[derive(Debug)]
struct FloatExtremes<T: ArrowPrimitiveType> {
    is_max: bool,
    values: Vec<T::Native>,
    seen: NullState,
}

impl<T: ArrowPrimitiveType> FloatExtremes<T> {
    fn new(is_max: bool) -> Self {
        Self {
            is_max,
            values: Vec::new(),
            seen: NullState::new(),
        }
    }
}

impl<T: ArrowPrimitiveType<Native: PostgresOrder> + Send> GroupsAccumulator for FloatExtremes<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let is_max = self.is_max;
        let first = if is_max {
            T::Native::LEAST
        } else {
            T::Native::GREATEST
        };
        assert!(
            total_num_groups >= self.values.len(),
            "{total_num_groups} groups are fewer than the {} there are",
            self.values.len()
        );
        self.values.resize(total_num_groups, first);
        let found = self.values.as_mut_slice();
        self.seen.accumulate(
            group_indices,
            values[0].as_primitive::<T>(),
            opt_filter,
            total_num_groups,
            |group, value| {
                let so_far = &mut found[group];
                let wins = if is_max {
                    so_far.is_below(value)
                } else {
                    value.is_below(*so_far)
                };
                if wins {
                    *so_far = value;
                }
            },
        );
        Ok(())
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.update_batch(values, group_indices, None, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let values = emit_to.take_needed(&mut self.values);
        let nulls = self.seen.build(emit_to);
        Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls)))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<T>();
        let passing = opt_filter.map(|filter| {
            let (bits, nulls) = filter.clone().into_parts();
            NullBuffer::new(nulls.map_or(bits.clone(), |nulls| nulls.inner() & &bits))
        });
        let nulls = NullBuffer::union(values.nulls(), passing.as_ref());
        let state = PrimitiveArray::<T>::new(values.values().clone(), nulls);
        Ok(vec![Arc::new(state)])
    }

    fn size(&self) -> usize {
        self.values.capacity() * size_of::<T::Native>() + self.seen.size()
    }
}
