//! `string_agg`: DataFusion's, with what a batch adds reserved before it is added. DataFusion
//! counts what is gathered after each batch, which may have added a gigabyte.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
};
use datafusion::physical_expr::expressions::Literal;

use crate::growth::{Growth, bytes_of, go_on};

/// Puts it over DataFusion's.
///
/// # Errors
/// The registry takes no functions.
pub(crate) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    let inner = registry.udaf("string_agg")?;
    registry.register_udaf(Arc::new(AggregateUDF::new_from_impl(StringAgg { inner })))?;
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct StringAgg {
    inner: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for StringAgg {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let limits = Limits::of(&args);
        let inner = self.inner.accumulator(args)?;
        Ok(Box::new(Gathered { inner, limits }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let limits = Limits::of(&args);
        let inner = self.inner.create_groups_accumulator(args)?;
        Ok(Box::new(Gathered { inner, limits }))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_udf()
    }
}

/// What is known of what a row adds.
#[derive(Debug)]
struct Limits {
    delimiter_bytes: usize,
}

impl Limits {
    fn of(args: &AccumulatorArgs) -> Self {
        let delimiter = args.exprs.get(1);
        let delimiter = delimiter.and_then(|expr| expr.downcast_ref::<Literal>());
        Self {
            delimiter_bytes: delimiter.map_or(0, |literal| literal.value().size()),
        }
    }

    /// Room for what rows add, as long as it is there: afterwards the operator counts it.
    fn room_for(&self, rows: &[ArrayRef]) -> Result<Growth> {
        go_on()?;
        let texts = rows.first().map_or(0, |texts| {
            let delimiters = self.delimiter_bytes.saturating_mul(texts.len());
            bytes_of(texts.as_ref()).saturating_add(delimiters)
        });
        // A text doubles as it grows.
        room(texts.saturating_mul(2))
    }
}

fn room(bytes: usize) -> Result<Growth> {
    let mut growth = Growth::new();
    growth.make(bytes)?;
    Ok(growth)
}

/// An accumulator that first asks for room.
#[derive(Debug)]
struct Gathered<A: ?Sized> {
    limits: Limits,
    inner: Box<A>,
}

impl Accumulator for Gathered<dyn Accumulator> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let _room = self.limits.room_for(values)?;
        self.inner.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let _room = room(self.inner.size())?;
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let _room = self.limits.room_for(states)?;
        self.inner.merge_batch(states)
    }
}

impl GroupsAccumulator for Gathered<dyn GroupsAccumulator> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let _room = self.limits.room_for(values)?;
        self.inner
            .update_batch(values, group_indices, opt_filter, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let _room = room(self.inner.size())?;
        self.inner.evaluate(emit_to)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        let _room = self.limits.room_for(values)?;
        self.inner
            .merge_batch(values, group_indices, total_num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(values, opt_filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}
