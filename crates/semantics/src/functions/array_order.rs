//! An array as one whose items compare as PostgreSQL compares them, where Arrow compares bits and
//! fields: floats with one zero and one NaN, intervals by their lengths.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, PrimitiveArray};
use arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Float32Type, Float64Type, IntervalMonthDayNanoType,
    IntervalUnit,
};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{float_order, temporal};

/// The function.
pub(crate) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(ArrayOrder {
        signature: Signature::any(1, Volatility::Immutable),
    }))
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
    signature: Signature,
}

impl ScalarUDFImpl for ArrayOrder {
    fn name(&self) -> &str {
        "array_order"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [argument] => Ok(key_type(argument)),
            _ => internal_err!("one array is ordered"),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        match &arrays[..] {
            [array] => Ok(ColumnarValue::Array(keys(array)?)),
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

#[cfg(test)]
mod tests {
    use arrow::array::types::Float64Type;

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
}
