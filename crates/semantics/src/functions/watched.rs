//! Functions over windows, whose results are reserved as they are made.
//!
//! A window computes a function's value for each row of a batch, then makes an array of them,
//! without yielding in between: that may be 8,192 texts of a megabyte each. So every function
//! that is called over a window asks for memory, and whether to stop, with each of its values
//! ([`gathered`]).
//!
//! If all rows of a partition have one frame, DataFusion computes the value once and repeats it
//! for all of them. For results without a fixed size the frame's end is therefore written as a
//! number of rows that no partition has: the value is then computed for each row, at the cost of
//! a copy, the same as repeating it.

mod aggregate;
mod anew;
mod window;

use arrow::{array::Array, datatypes::DataType};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::{
    ExprSchemable, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition,
    expr::{WindowFunction, WindowFunctionParams},
};

use crate::growth::bytes_of;

/// What a row costs that is added to a frame or taken from it, in bytes that are looked at.
const ROW_WORK: usize = 64;

/// Rows that no partition has.
const ALL_ROWS: u64 = 1 << 48;

/// The call, watched.
pub(crate) fn call(mut call: WindowFunction, schema: &DFSchema) -> WindowFunction {
    match &call.fun {
        WindowFunctionDefinition::AggregateUDF(function) => {
            let fields = call.params.args.iter().map(|arg| arg.to_field(schema));
            let fields: Result<Vec<_>> = fields.map(|field| Ok(field?.1)).collect();
            let value = fields.and_then(|fields| function.return_field(&fields));
            // What cannot be told yet may be long.
            let is_fixed = value.is_ok_and(|value| has_fixed_size(value.data_type()));
            if let Some(watched) = aggregate::watched(function) {
                call.fun = WindowFunctionDefinition::AggregateUDF(watched);
            }
            if !is_fixed && is_whole_partition(&call.params) {
                call.params.window_frame = WindowFrame::new_bounds(
                    WindowFrameUnits::Rows,
                    WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
                    WindowFrameBound::Following(ScalarValue::UInt64(Some(ALL_ROWS))),
                );
            }
        }
        WindowFunctionDefinition::WindowUDF(function) => {
            if let Some(watched) = window::watched(function) {
                call.fun = WindowFunctionDefinition::WindowUDF(watched);
            }
        }
    }
    call
}

fn has_fixed_size(ty: &DataType) -> bool {
    ty.primitive_width().is_some()
        || matches!(
            ty,
            DataType::Boolean | DataType::Null | DataType::FixedSizeBinary(_)
        )
}

/// Whether all rows of a partition have one frame.
fn is_whole_partition(params: &WindowFunctionParams) -> bool {
    let frame = &params.window_frame;
    let is_unbounded = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => {
            frame.units == WindowFrameUnits::Range && params.order_by.is_empty()
        }
        bound => bound.is_unbounded(),
    };
    is_unbounded(&frame.start_bound) && is_unbounded(&frame.end_bound)
}

/// Bytes of a value that has no fixed size. Arrays of texts share these, for Arrow has views of them.
fn bytes_of_value(value: &ScalarValue) -> usize {
    match value {
        ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text) | ScalarValue::Utf8View(text) => {
            text.as_ref().map_or(0, String::len)
        }
        ScalarValue::Binary(bytes)
        | ScalarValue::LargeBinary(bytes)
        | ScalarValue::BinaryView(bytes) => bytes.as_ref().map_or(0, Vec::len),
        ScalarValue::List(list) => match list.value_type() {
            DataType::Utf8View | DataType::BinaryView => {
                let lengths = (0..list.len()).map(|at| list.value_length(at) as usize);
                lengths.sum::<usize>() * size_of::<u128>()
            }
            _ => bytes_of(list.as_ref()),
        },
        ScalarValue::Struct(row) => {
            let columns = row.columns().iter();
            columns.map(|column| bytes_of(column.as_ref())).sum()
        }
        _ => 0,
    }
}
