//! Arrays converted so that Arrow, which compares bits and fields, compares their items as
//! PostgreSQL does: floats with one zero and one NaN, intervals by their lengths. Also such an
//! array as bytes in the order of arrays, item by item, where a NULL is greater than any other
//! item.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, ListArray, PrimitiveArray};
use arrow::compute::SortOptions;
use arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Float32Type, Float64Type, IntervalMonthDayNanoType,
    IntervalUnit,
};
use arrow::row::{RowConverter, SortField};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{float_order, temporal};
use crate::growth::{Growth, size_of_argument};

/// The function whose results are equal where arrays are.
pub(crate) fn function() -> Arc<ScalarUDF> {
    of(Form::Items)
}

/// The function whose results, bytes, are in the order of the arrays.
pub(crate) fn sort_key() -> Arc<ScalarUDF> {
    of(Form::Bytes)
}

fn of(form: Form) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(ArrayOrder {
        form,
        signature: Signature::any(1, Volatility::Immutable),
    }))
}

/// What an array becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    Items,
    Bytes,
}

/// Whether values of this type are arrays with items that are equal and yet told apart.
pub(crate) fn is_told_apart(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) => {
            let is_told_apart = matches!(
                item.data_type(),
                DataType::Float32
                    | DataType::Float64
                    | DataType::Interval(IntervalUnit::MonthDayNano)
            );
            is_told_apart || self::is_told_apart(item.data_type())
        }
        _ => false,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ArrayOrder {
    form: Form,
    signature: Signature,
}

impl ScalarUDFImpl for ArrayOrder {
    fn name(&self) -> &str {
        match self.form {
            Form::Items => "array_order",
            Form::Bytes => "array_sort_key",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match (arguments, self.form) {
            ([argument], Form::Items) => Ok(key_type(argument)),
            ([_], Form::Bytes) => Ok(DataType::Binary),
            _ => internal_err!("one array is ordered"),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        match (&arrays[..], self.form) {
            ([array], Form::Items) => Ok(ColumnarValue::Array(keys(array)?)),
            ([array], Form::Bytes) => {
                let is_constant = matches!(args.args[..], [ColumnarValue::Scalar(_)]);
                let mut growth = Growth::new();
                let keys = sort_keys(array, &mut growth)?;
                growth.finish(Arc::new(keys), is_constant)
            }
            _ => internal_err!("one array is ordered"),
        }
    }
}

fn key_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::List(item) => DataType::List(item_of(key_type(item.data_type()))),
        DataType::Interval(_) => DataType::Decimal128(38, 0),
        other => other.clone(),
    }
}

fn item_of(data_type: DataType) -> FieldRef {
    Arc::new(Field::new_list_field(data_type, true))
}

fn keys(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let items = keys(list.values())?;
            let item = item_of(items.data_type().clone());
            let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
            Arc::new(ListArray::try_new(item, offsets, items, nulls)?)
        }
        DataType::Float32 => {
            let floats = array.as_primitive::<Float32Type>();
            Arc::new(floats.unary::<_, Float32Type>(float_order::real))
        }
        DataType::Float64 => {
            let floats = array.as_primitive::<Float64Type>();
            Arc::new(floats.unary::<_, Float64Type>(float_order::double))
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let intervals = array.as_primitive::<IntervalMonthDayNanoType>();
            let keys: PrimitiveArray<Decimal128Type> = intervals.unary(temporal::order);
            Arc::new(keys.with_precision_and_scale(38, 0)?)
        }
        _ => Arc::clone(array),
    })
}

/// Bytes of the longest form of an item that has few: those of the row that it is, in blocks, and
/// these in blocks again.
const ITEM_BYTES: usize = 48;

/// How many bytes an item's byte becomes, with those that it is written to in between.
const WRITTEN_BYTES: usize = 4;

/// Arrays as bytes in their order. NULL stays NULL.
///
/// # Errors
/// There is no memory for them.
pub(crate) fn sort_keys(array: &ArrayRef, growth: &mut Growth) -> Result<BinaryArray> {
    let keys = keys(array)?;
    let items = match keys.data_type() {
        DataType::List(_) => {
            let offsets = keys.as_list::<i32>().value_offsets();
            offsets[offsets.len() - 1].saturating_sub(offsets[0]) as usize
        }
        _ => return internal_err!("an array is ordered"),
    };
    let given = size_of_argument(keys.as_ref()).saturating_mul(WRITTEN_BYTES);
    growth.make(given.saturating_add(items.saturating_mul(ITEM_BYTES)))?;
    let nulls_last = SortOptions {
        descending: false,
        nulls_first: false,
    };
    let field = SortField::new_with_options(keys.data_type().clone(), nulls_last);
    let rows = RowConverter::new(vec![field])?.convert_columns(&[keys])?;
    let (offsets, bytes, _) = rows.try_into_binary()?.into_parts();
    Ok(BinaryArray::try_new(
        offsets,
        bytes,
        array.nulls().cloned(),
    )?)
}

#[cfg(test)]
mod tests {
    use arrow::array::types::{Float64Type, Int32Type};

    use super::*;

    #[test]
    fn equal_items_have_one_key() {
        let rows = [
            Some(vec![Some(0.0), None, Some(f64::NAN)]),
            None,
            Some(vec![Some(-0.0), None, Some(-f64::NAN)]),
            Some(vec![]),
        ];
        let lists = ListArray::from_iter_primitive::<Float64Type, _, _>(rows);
        let lists: ArrayRef = Arc::new(lists);
        assert!(is_told_apart(lists.data_type()));
        let keys = keys(&lists).unwrap();
        assert_eq!(keys.data_type(), &key_type(lists.data_type()));
        let keys = keys.as_list::<i32>();
        assert!(keys.is_null(1) && keys.value_length(3) == 0);
        assert_eq!(&keys.value(0), &keys.value(2));
        // Of a part of the lists it is the part of the keys.
        let part = self::keys(&lists.slice(2, 2)).unwrap();
        assert_eq!(&part, &(Arc::new(keys.slice(2, 2)) as ArrayRef));
    }

    #[test]
    fn bytes_are_in_the_order_of_arrays() {
        let ordered = [
            Some(vec![]),
            Some(vec![Some(-1)]),
            Some(vec![Some(1)]),
            Some(vec![Some(1), Some(2)]),
            Some(vec![Some(1), None]),
            Some(vec![Some(2)]),
            Some(vec![None]),
            Some(vec![None, Some(0)]),
            None,
        ];
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(ordered);
        let lists: ArrayRef = Arc::new(lists);
        let keys = sort_keys(&lists, &mut Growth::new()).unwrap();
        assert!((1..8).all(|row| keys.value(row - 1) < keys.value(row)));
        assert!(keys.is_null(8) && keys.null_count() == 1);
        let part = sort_keys(&lists.slice(3, 2), &mut Growth::new()).unwrap();
        assert_eq!(part, keys.slice(3, 2));
    }
}
