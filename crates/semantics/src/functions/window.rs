//! Window functions that count: bigint as in PostgreSQL, not unsigned.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::arrow::compute::SortOptions;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{
    ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs,
};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{
    LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;

/// The functions whose results DataFusion counts in unsigned integers, with PostgreSQL's type.
pub(super) const COUNTING: [(&str, DataType); 4] = [
    ("row_number", DataType::Int64),
    ("rank", DataType::Int64),
    ("dense_rank", DataType::Int64),
    ("ntile", DataType::Int32),
];

/// A window function with another result type.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Counting {
    inner: Arc<WindowUDF>,
    result: DataType,
}

impl Counting {
    pub(super) fn function(inner: Arc<WindowUDF>, result: DataType) -> Arc<WindowUDF> {
        Arc::new(WindowUDF::new_from_impl(Counting { inner, result }))
    }
}

impl WindowUDFImpl for Counting {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn expressions(&self, expr_args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.expressions(expr_args)
    }

    fn partition_evaluator(
        &self,
        args: PartitionEvaluatorArgs,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        let inner = self.inner.partition_evaluator_factory(args)?;
        Ok(Box::new(CountingEvaluator {
            inner,
            result: self.result.clone(),
        }))
    }

    fn field(&self, field_args: WindowUDFFieldArgs) -> Result<FieldRef> {
        let name = field_args.name().to_owned();
        let nullable = self.inner.field(field_args)?.is_nullable();
        Ok(Arc::new(Field::new(name, self.result.clone(), nullable)))
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.sort_options()
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        ReversedUDWF::NotSupported
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(args)
    }
}

#[derive(Debug)]
struct CountingEvaluator {
    inner: Box<dyn PartitionEvaluator>,
    result: DataType,
}

impl PartitionEvaluator for CountingEvaluator {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.inner.memoize(state)
    }

    fn get_range(&self, idx: usize, n_rows: usize) -> Result<Range<usize>> {
        self.inner.get_range(idx, n_rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], num_rows: usize) -> Result<ArrayRef> {
        Ok(arrow::compute::cast(
            &self.inner.evaluate_all(values, num_rows)?,
            &self.result,
        )?)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        self.inner.evaluate(values, range)?.cast_to(&self.result)
    }

    fn evaluate_all_with_rank(
        &self,
        num_rows: usize,
        ranks_in_partition: &[Range<usize>],
    ) -> Result<ArrayRef> {
        let ranks = self
            .inner
            .evaluate_all_with_rank(num_rows, ranks_in_partition)?;
        Ok(arrow::compute::cast(&ranks, &self.result)?)
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
