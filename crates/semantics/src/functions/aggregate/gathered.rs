//! `string_agg`: DataFusion's, with a batch's contribution reserved before it is added.
//! DataFusion counts what is gathered after each batch, which may have added a gigabyte.
//!
//! DataFusion would convert anything to text to join it, and joins distinct texts in any order.
//! Here texts are joined with texts and bytes with bytes, distinct ones in their order. The
//! result is a view, so that a join that repeats it stores it once.

use std::sync::Arc;

use aerostat_types::ErrorKind;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF,
    Signature, Volatility,
};
use datafusion::physical_expr::expressions::Literal;

use crate::functions::lists::missing;
use crate::growth::{Growth, bytes_of, go_on};
use crate::raise;

/// Puts it over DataFusion's.
///
/// # Errors
/// The registry takes no functions.
pub(crate) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    let inner = registry.udaf("string_agg")?;
    let arrays = registry.udaf("array_agg")?;
    registry.register_udaf(Arc::new(AggregateUDF::new_from_impl(StringAgg {
        inner,
        arrays,
        signature: Signature::user_defined(Volatility::Immutable),
    })))?;
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct StringAgg {
    inner: Arc<AggregateUDF>,
    /// What gathers values that DataFusion's `string_agg` does not join as PostgreSQL does.
    arrays: Arc<AggregateUDF>,
    signature: Signature,
}

/// Whether the values are bytes, by the types of values and separator; nothing where there is
/// no such function.
pub(in crate::functions) fn of_bytes(arguments: &[DataType]) -> Option<bool> {
    let is_literal = |ty: &DataType| matches!(ty, DataType::Utf8 | DataType::Null);
    let is_text =
        |ty: &DataType| is_literal(ty) || matches!(ty, DataType::LargeUtf8 | DataType::Utf8View);
    let is_bytes = |ty: &DataType| {
        matches!(
            ty,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView
        )
    };
    match arguments {
        [value, separator] if is_text(value) && is_text(separator) => Some(false),
        [value, separator] if is_bytes(value) && (is_bytes(separator) || is_literal(separator)) => {
            Some(true)
        }
        [value, separator] if is_literal(value) && is_bytes(separator) => Some(true),
        _ => None,
    }
}

impl StringAgg {
    /// Whether values are gathered as they are, and joined at the end.
    fn is_joined_late(argument: &DataType, is_distinct: bool, is_ordered: bool) -> bool {
        *argument == DataType::BinaryView || is_distinct && !is_ordered
    }

    fn join_late(&self, args: &AccumulatorArgs) -> Result<Joined> {
        let Some(separator) = args.exprs[1].downcast_ref::<Literal>() else {
            let message = "string_agg with a separator that is no constant is not supported";
            return Err(raise(ErrorKind::FeatureNotSupported, message));
        };
        let item = args.expr_fields[0].data_type();
        let list = DataType::new_list(item.clone(), true);
        let inner = self.arrays.accumulator(AccumulatorArgs {
            return_field: Arc::new(Field::new(args.name, list, true)),
            schema: args.schema,
            ignore_nulls: args.ignore_nulls,
            order_bys: args.order_bys,
            is_reversed: args.is_reversed,
            name: args.name,
            is_distinct: args.is_distinct,
            exprs: &args.exprs[..1],
            expr_fields: &args.expr_fields[..1],
        })?;
        Ok(Joined {
            inner,
            separator: bytes_of_scalar(separator.value())
                .unwrap_or_default()
                .to_vec(),
            is_bytes: *item == DataType::BinaryView,
            is_sorted: args.is_distinct && args.order_bys.is_empty(),
        })
    }
}

fn bytes_of_scalar(value: &ScalarValue) -> Option<&[u8]> {
    match value {
        ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text) | ScalarValue::Utf8View(text) => {
            text.as_deref().map(str::as_bytes)
        }
        ScalarValue::Binary(bytes)
        | ScalarValue::LargeBinary(bytes)
        | ScalarValue::BinaryView(bytes) => bytes.as_deref(),
        _ => None,
    }
}

/// Values that are gathered, and joined when all are there.
#[derive(Debug)]
struct Joined {
    inner: Box<dyn Accumulator>,
    separator: Vec<u8>,
    is_bytes: bool,
    is_sorted: bool,
}

impl Joined {
    fn joined(&self, values: &ArrayRef) -> Result<Option<Vec<u8>>> {
        let values = match self.is_sorted {
            true => arrow::compute::sort(values, None)?,
            false => Arc::clone(values),
        };
        let values = arrow::compute::cast(&values, &DataType::LargeBinary)?;
        let values: Vec<&[u8]> = values.as_binary::<i64>().iter().flatten().collect();
        let bytes: usize = values
            .iter()
            .map(|value| value.len() + self.separator.len())
            .sum();
        let _room = room(bytes)?;
        Ok((!values.is_empty()).then(|| values.join(&self.separator[..])))
    }
}

impl Accumulator for Joined {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        // Behind the separator come the keys of an ORDER BY.
        let gathered = [&values[..1], &values[2..]].concat();
        self.inner.update_batch(&gathered)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let ScalarValue::List(list) = self.inner.evaluate()? else {
            return Err(raise(ErrorKind::Internal, "array_agg gave no list"));
        };
        let joined = match list.is_valid(0) {
            true => self.joined(&list.value(0))?,
            false => None,
        };
        if self.is_bytes {
            return Ok(ScalarValue::BinaryView(joined));
        }
        let text = joined.map(String::from_utf8).transpose();
        let text = text.map_err(|_| raise(ErrorKind::Internal, "texts made no text"))?;
        Ok(ScalarValue::Utf8View(text))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size() + self.separator.capacity()
    }
}

impl AggregateUDFImpl for StringAgg {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        // The return type raises the error: here it would lose its kind.
        Ok(match of_bytes(arguments) {
            Some(true) => vec![DataType::BinaryView; 2],
            Some(false) => vec![DataType::Utf8View; 2],
            None => arguments.to_vec(),
        })
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match of_bytes(arguments) {
            Some(true) => Ok(DataType::BinaryView),
            Some(false) => Ok(DataType::Utf8View),
            None => Err(missing(self.name(), arguments)),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let argument = args.input_fields[0].data_type();
        let is_ordered = !args.ordering_fields.is_empty();
        match Self::is_joined_late(argument, args.is_distinct, is_ordered) {
            true => self.arrays.state_fields(args),
            false => self.inner.state_fields(args),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let limits = Limits::of(&args);
        let argument = args.expr_fields[0].data_type();
        if Self::is_joined_late(argument, args.is_distinct, !args.order_bys.is_empty()) {
            let inner = Box::new(self.join_late(&args)?);
            return Ok(Box::new(Gathered::<dyn Accumulator> { inner, limits }));
        }
        let inner = self.inner.accumulator(args)?;
        Ok(Box::new(Gathered { inner, limits }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        let argument = args.expr_fields[0].data_type();
        !Self::is_joined_late(argument, args.is_distinct, !args.order_bys.is_empty())
            && self.inner.groups_accumulator_supported(args)
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
        // DataFusion's own would stand in its place.
        ReversedUDAF::NotSupported
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
        Ok(match self.inner.evaluate()? {
            ScalarValue::LargeUtf8(text) => ScalarValue::Utf8View(text),
            other => other,
        })
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
        let texts = self.inner.evaluate(emit_to)?;
        Ok(arrow::compute::cast(&texts, &DataType::Utf8View)?)
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
