//! Functions that exist only for windows, and that return values of rows.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::ArrayRef,
    compute::SortOptions,
    datatypes::{DataType, FieldRef},
};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    Documentation, LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, WindowUDF,
    WindowUDFImpl,
    function::{
        ExpressionArgs, PartitionEvaluatorArgs, WindowFunctionSimplification, WindowUDFFieldArgs,
    },
    window_state::WindowAggState,
};
use datafusion::physical_expr::PhysicalExpr;

use super::{ROW_WORK, bytes_of_value};
use crate::growth::{gathered, worked};

/// The functions. The others give numbers.
const FUNCTIONS: [&str; 5] = ["lag", "lead", "first_value", "last_value", "nth_value"];

/// The function, watched; nothing if it is already, or need not be.
pub(super) fn watched(function: &Arc<WindowUDF>) -> Option<Arc<WindowUDF>> {
    let is_watched = function.inner().is::<WatchedWindow>();
    let gives_values = FUNCTIONS.contains(&function.name());
    (gives_values && !is_watched).then(|| over(Arc::clone(function)))
}

fn over(inner: Arc<WindowUDF>) -> Arc<WindowUDF> {
    Arc::new(WindowUDF::new_from_impl(WatchedWindow { inner }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WatchedWindow {
    inner: Arc<WindowUDF>,
}

#[warn(clippy::missing_trait_methods)]
impl WindowUDFImpl for WatchedWindow {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.expressions(args)
    }

    fn partition_evaluator(
        &self,
        args: PartitionEvaluatorArgs,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        let inner = self.inner.partition_evaluator_factory(args)?;
        Ok(Box::new(WatchedEvaluator { inner }))
    }

    fn simplify(&self) -> Option<WindowFunctionSimplification> {
        self.inner.simplify()
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        self.inner.field(args)
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.sort_options()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arguments)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.inner.reverse_expr() {
            ReversedUDWF::Reversed(reversed) => ReversedUDWF::Reversed(over(reversed)),
            other => other,
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(args)
    }
}

#[derive(Debug)]
struct WatchedEvaluator {
    inner: Box<dyn PartitionEvaluator>,
}

#[warn(clippy::missing_trait_methods)]
impl PartitionEvaluator for WatchedEvaluator {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.inner.memoize(state)
    }

    fn get_range(&self, at: usize, rows: usize) -> Result<Range<usize>> {
        self.inner.get_range(at, rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        worked(rows.saturating_mul(ROW_WORK))?;
        self.inner.evaluate_all(values, rows)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        let value = self.inner.evaluate(values, range)?;
        match bytes_of_value(&value) {
            0 => worked(ROW_WORK)?,
            bytes => gathered(bytes)?,
        }
        Ok(value)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        self.inner.evaluate_all_with_rank(rows, ranks)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.inner.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.inner.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.inner.include_rank()
    }
}
