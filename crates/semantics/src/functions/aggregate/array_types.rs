//! `array_agg`: DataFusion's, except that an array of `char(n)` is marked as such; otherwise its
//! items would be shown without their blanks.

use std::sync::Arc;

use aerostat_types::SqlType;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
};

/// Puts it over DataFusion's.
///
/// # Errors
/// The registry takes no functions.
pub(crate) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    let inner = registry.udaf("array_agg")?;
    registry.register_udaf(over(inner))?;
    Ok(())
}

fn over(inner: Arc<AggregateUDF>) -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(ArrayAgg { inner }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ArrayAgg {
    inner: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for ArrayAgg {
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
        let argument = arguments.first().and_then(|one| SqlType::of_field(one));
        Ok(match argument {
            Some(ty @ SqlType::Char(_)) => Arc::new(ty.of_items(Field::clone(&plain))),
            _ => plain,
        })
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.create_sliding_accumulator(args)
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        is_ordered: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let inner = AggregateUDF::clone(&self.inner).with_beneficial_ordering(is_ordered)?;
        Ok(inner.map(|inner| Arc::clone(over(Arc::new(inner)).inner())))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner.reverse_udf() {
            ReversedUDAF::Reversed(inner) => ReversedUDAF::Reversed(over(inner)),
            other => other,
        }
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }
}
