//! Aggregates over windows.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef},
    datatypes::{DataType, FieldRef},
};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, Expr, GroupsAccumulator, Operator,
    ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs,
    expr::{AggregateFunction, AggregateFunctionParams, WindowFunctionParams},
    function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs},
    utils::AggregateOrderSensitivity,
};

use super::{
    ROW_WORK,
    anew::{Anew, Arguments},
    bytes_of_value,
};
use crate::growth::{gathered, worked};

/// The function, watched; nothing if it is already.
pub(super) fn watched(function: &Arc<AggregateUDF>) -> Option<Arc<AggregateUDF>> {
    let is_watched = function.inner().is::<WatchedAggregate>();
    (!is_watched).then(|| over(Arc::clone(function)))
}

fn over(inner: Arc<AggregateUDF>) -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(WatchedAggregate { inner }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WatchedAggregate {
    inner: Arc<AggregateUDF>,
}

// It passes all on: what it left out would be as if the function had nothing of its own.
#[warn(clippy::missing_trait_methods)]
impl AggregateUDFImpl for WatchedAggregate {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.schema_name(params)
    }

    fn human_display(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.human_display(params)
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.window_function_schema_name(params)
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.display_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.window_function_display_name(params)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
        self.inner.return_field(arguments)
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Watched::new(self.inner.accumulator(args)?)))
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
        let own = Arguments::of(&args);
        let sliding = self.inner.create_sliding_accumulator(args)?;
        if sliding.supports_retract_batch() {
            return Ok(Box::new(Watched::new(sliding)));
        }
        let anew = Anew::new(Arc::clone(&self.inner), own, sliding);
        Ok(Box::new(Watched::new(Box::new(anew))))
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        beneficial_ordering: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let function = AggregateUDF::clone(&self.inner);
        let ordered = function.with_beneficial_ordering(beneficial_ordering)?;
        Ok(ordered.map(|ordered| {
            let inner = Arc::new(ordered);
            Arc::new(WatchedAggregate { inner }) as Arc<dyn AggregateUDFImpl>
        }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.inner.simplify()
    }

    fn simplify_expr_op_literal(
        &self,
        function: &AggregateFunction,
        argument: &Expr,
        op: Operator,
        literal: &Expr,
        is_left: bool,
    ) -> Result<Option<Expr>> {
        let inner = self.inner.inner();
        inner.simplify_expr_op_literal(function, argument, op, literal, is_left)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        // A reversed one is meant for rows in the other order, but over a window DataFusion gives it
        // the rows of each frame so, and keeps its values: `array_agg` would be turned around.
        match self.inner.reverse_udf() {
            ReversedUDAF::Identical => ReversedUDAF::Identical,
            _ => ReversedUDAF::NotSupported,
        }
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arguments)
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner.is_descending()
    }

    fn value_from_stats(&self, statistics: &StatisticsArgs) -> Option<ScalarValue> {
        self.inner.value_from_stats(statistics)
    }

    fn default_value(&self, ty: &DataType) -> Result<ScalarValue> {
        self.inner.default_value(ty)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.inner.supports_within_group_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    /// Over a frame that slides a count falls, too, which DataFusion leaves out of account where it
    /// takes rows for sorted by it.
    fn set_monotonicity(&self, _: &DataType) -> SetMonotonicity {
        SetMonotonicity::NotMonotonic
    }
}

/// An accumulator whose values are asked for.
#[derive(Debug)]
struct Watched {
    inner: Box<dyn Accumulator>,
    /// Whether its value has been taken since it last changed.
    is_taken: bool,
    /// The value, when it has been taken twice: rows with one frame have one value.
    value: Option<ScalarValue>,
}

impl Watched {
    fn new(inner: Box<dyn Accumulator>) -> Self {
        Self {
            inner,
            is_taken: false,
            value: None,
        }
    }

    /// It changes by some rows.
    fn change(&mut self, rows: &[ArrayRef]) -> Result<()> {
        (self.is_taken, self.value) = (false, None);
        let rows = rows.first().map_or(0, |column| column.len());
        worked(rows.saturating_mul(ROW_WORK))
    }
}

impl Accumulator for Watched {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.change(values)?;
        self.inner.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if let Some(value) = &self.value {
            gathered(bytes_of_value(value))?;
            return Ok(value.clone());
        }
        let value = self.inner.evaluate()?;
        let bytes = bytes_of_value(&value);
        if bytes == 0 {
            worked(ROW_WORK)?;
            return Ok(value);
        }
        gathered(bytes)?;
        if std::mem::replace(&mut self.is_taken, true) {
            self.value = Some(value.clone());
        }
        Ok(value)
    }

    fn size(&self) -> usize {
        self.inner.size() + self.value.as_ref().map_or(0, ScalarValue::size)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.change(states)?;
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.change(values)?;
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}
