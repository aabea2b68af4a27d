//! `x op ANY (array)` and `x op ALL (array)`, in three-valued logic: if no item decides, a NULL
//! among the items or on the left makes the answer unknown.

use std::sync::Arc;

use aerostat_types::ErrorKind;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray, UInt32Array};
use arrow::compute::kernels::{cmp, comparison};
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{common_item, range};
use crate::functions::lists::{item_type, list_of, missing};
use crate::functions::regexp::Patterns;
use crate::growth::{Growth, for_each_row};
use crate::raise;

/// The function's name; its arguments are the left side, the array, the operator's name, and
/// whether it is ALL.
pub(crate) const QUANTIFIED: &str = "quantified";

/// What the operators do with the left sides and the items.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operator {
    Compares(fn(&dyn arrow::array::Datum, &dyn arrow::array::Datum) -> ArrowResult),
    /// By a regular expression, which is or is not matched, and ignores case.
    Matches(bool, bool),
}

type ArrowResult = Result<BooleanArray, arrow::error::ArrowError>;

/// The operator of a name.
pub(crate) fn operator(name: &str) -> Option<Operator> {
    Some(match name {
        "=" => Operator::Compares(cmp::eq),
        "<>" => Operator::Compares(cmp::neq),
        "<" => Operator::Compares(cmp::lt),
        "<=" => Operator::Compares(cmp::lt_eq),
        ">" => Operator::Compares(cmp::gt),
        ">=" => Operator::Compares(cmp::gt_eq),
        "~~" => Operator::Compares(comparison::like),
        "!~~" => Operator::Compares(comparison::nlike),
        "~~*" => Operator::Compares(comparison::ilike),
        "!~~*" => Operator::Compares(comparison::nilike),
        "~" => Operator::Matches(true, false),
        "!~" => Operator::Matches(false, false),
        "~*" => Operator::Matches(true, true),
        "!~*" => Operator::Matches(false, true),
        _ => return None,
    })
}

pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Quantified {
        signature: Signature::user_defined(Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Quantified {
    signature: Signature,
}

/// The common type of the left side and the items.
fn accepted(arguments: &[DataType]) -> Option<DataType> {
    let [left, array, _, _] = arguments else {
        return None;
    };
    let item = match item_type(array) {
        Some(item) => common_item(item.clone(), left)?,
        None if matches!(array, DataType::Null | DataType::Utf8) => left.clone(),
        None => return None,
    };
    Some(match item {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Null => DataType::Utf8View,
        item => item,
    })
}

impl ScalarUDFImpl for Quantified {
    fn name(&self) -> &str {
        QUANTIFIED
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let Some(item) = accepted(arguments) else {
            return Ok(arguments.to_vec());
        };
        let list = list_of(item.clone());
        Ok(vec![item, list, DataType::Utf8View, DataType::Boolean])
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        if accepted(arguments).is_some() {
            return Ok(DataType::Boolean);
        }
        match arguments {
            [_, array, ..] if item_type(array).is_none() => Err(raise(
                ErrorKind::WrongObjectType,
                "op ANY/ALL (array) requires array on right side",
            )),
            [left, array, ..] => Err(crate::no_operator(
                &crate::name_of_arrow(left),
                "= ANY or ALL of",
                &crate::name_of_arrow(array),
            )),
            _ => Err(missing(QUANTIFIED, arguments)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, array, op, all] = &args.args[..] else {
            return Err(missing(QUANTIFIED, &[]));
        };
        let (ColumnarValue::Scalar(op), ColumnarValue::Scalar(all)) = (op, all) else {
            return Err(raise(
                ErrorKind::Internal,
                "an operator that is no constant",
            ));
        };
        let name = op.try_as_str().flatten().unwrap_or_default();
        let operator = operator(name)
            .ok_or_else(|| raise(ErrorKind::Internal, "an operator that nobody knows"))?;
        let all = matches!(all, ScalarValue::Boolean(Some(true)));
        let both_constant = matches!(
            (left, array),
            (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_))
        );
        let rows = if both_constant { 1 } else { args.number_rows };
        let mut growth = Growth::new();
        let left = for_each_row(left, rows, &mut growth)?;
        let lists = for_each_row(array, rows, &mut growth)?;
        let result = evaluate(&left, lists.as_list(), operator, all)?;
        assert_eq!(result.len(), rows, "each row has a truth");
        if both_constant {
            let value = ScalarValue::try_from_array(&result, 0)?;
            return Ok(ColumnarValue::Scalar(value));
        }
        Ok(ColumnarValue::Array(Arc::new(result)))
    }
}

fn evaluate(
    left: &ArrayRef,
    lists: &ListArray,
    operator: Operator,
    all: bool,
) -> Result<BooleanArray> {
    let owners = (0..lists.len()).flat_map(|row| range(lists, row).map(move |_| row as u32));
    let lefts = arrow::compute::take(left, &owners.collect::<UInt32Array>(), None)?;
    let (first, last) = match lists.len() {
        0 => (0, 0),
        rows => (range(lists, 0).start, range(lists, rows - 1).end),
    };
    let items = lists.values().slice(first, last - first);
    let tested = match operator {
        Operator::Compares(compare) => compare(&lefts, &items)?,
        Operator::Matches(wanted, ignores_case) => matches(&lefts, &items, wanted, ignores_case)?,
    };
    let decides = |at: usize| tested.is_valid(at) && tested.value(at) != all;
    let answers = (0..lists.len()).map(|row| {
        let mut own = range(lists, row).map(|at| at - first);
        if lists.is_null(row) {
            None
        } else if own.clone().any(decides) {
            Some(!all)
        } else {
            own.all(|at| tested.is_valid(at)).then_some(all)
        }
    });
    Ok(answers.collect())
}

fn matches(
    texts: &ArrayRef,
    patterns: &ArrayRef,
    wanted: bool,
    ignores_case: bool,
) -> Result<BooleanArray> {
    let mut known = Patterns::default();
    let flags = if ignores_case { "i" } else { "" };
    let pairs = texts.as_string_view().iter().zip(patterns.as_string_view());
    let found = pairs.map(|pair| match pair {
        (Some(text), Some(pattern)) => {
            Ok(Some(known.get(pattern, flags)?.is_match(text) == wanted))
        }
        _ => Ok(None),
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, Int32Builder, ListBuilder};

    use super::*;

    const VALUES: [Option<i32>; 3] = [None, Some(1), Some(2)];

    /// All lists of up to three items.
    fn lists() -> Vec<Vec<Option<i32>>> {
        let mut all = vec![vec![]];
        for length in 0..3 {
            let longest: Vec<_> = all.iter().filter(|list| list.len() == length).collect();
            let longer = longest
                .into_iter()
                .flat_map(|list| VALUES.map(|value| list.iter().copied().chain([value]).collect()));
            let longer: Vec<Vec<Option<i32>>> = longer.collect();
            all.extend(longer);
        }
        all
    }

    /// AND or OR of the comparisons one by one.
    fn one_by_one(
        left: Option<i32>,
        list: &[Option<i32>],
        compare: fn(i32, i32) -> bool,
        all: bool,
    ) -> Option<bool> {
        let mut answer = Some(all);
        for item in list {
            let own = left.zip(*item).map(|(left, item)| compare(left, item));
            answer = match (answer, own) {
                (Some(a), Some(b)) => Some(if all { a && b } else { a || b }),
                (Some(decided), None) | (None, Some(decided)) if decided != all => Some(decided),
                _ => None,
            };
        }
        answer
    }

    #[test]
    fn answers_are_those_of_and_and_or() {
        let mut builder = ListBuilder::new(Int32Builder::new());
        let (mut lefts, mut cases) = (Vec::new(), Vec::new());
        for list in lists() {
            for left in VALUES {
                builder.append_value(list.iter().copied());
                lefts.push(left);
                cases.push((left, list.clone()));
            }
        }
        let array = builder.finish();
        let lefts: ArrayRef = Arc::new(Int32Array::from(lefts));
        type Comparison = (&'static str, fn(i32, i32) -> bool);
        let compared: [Comparison; 6] = [
            ("=", |a, b| a == b),
            ("<>", |a, b| a != b),
            ("<", |a, b| a < b),
            ("<=", |a, b| a <= b),
            (">", |a, b| a > b),
            (">=", |a, b| a >= b),
        ];
        for (name, compare) in compared {
            for all in [false, true] {
                let answers = evaluate(&lefts, &array, operator(name).unwrap(), all).unwrap();
                for (row, (left, list)) in cases.iter().enumerate() {
                    let answer = answers.is_valid(row).then(|| answers.value(row));
                    let expected = one_by_one(*left, list, compare, all);
                    assert_eq!(answer, expected, "{left:?} {name} {list:?}, all: {all}");
                }
                // A part of a longer array begins elsewhere.
                let part = evaluate(
                    &lefts.slice(7, 20),
                    &array.slice(7, 20),
                    operator(name).unwrap(),
                    all,
                );
                assert_eq!(part.unwrap(), answers.slice(7, 20));
            }
        }
    }
}
