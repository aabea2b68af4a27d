//! Kernels at their limits.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Int32Array, Int64Array};
use arrow::datatypes::{Decimal128Type, Int32Type};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{ColumnarValue, Operator};

use super::{decimal, evaluate};

fn column(array: impl Array + 'static) -> ColumnarValue {
    ColumnarValue::Array(Arc::new(array) as ArrayRef)
}

fn error(op: Operator, left: ColumnarValue, right: ColumnarValue) -> String {
    evaluate(op, left, right, 2).unwrap_err().to_string()
}

#[test]
fn nulls_hide_what_their_slots_hold() {
    // The slot of a NULL holds a number that would overflow, and a zero divisor.
    let big = Int32Array::new(vec![i32::MAX, 6].into(), Some(vec![false, true].into()));
    let small = Int32Array::from(vec![2, 3]);
    let product = evaluate(Operator::Multiply, column(big.clone()), column(small), 2)
        .unwrap()
        .to_array(2)
        .unwrap();
    assert!(product.is_null(0));
    assert_eq!(product.as_primitive::<Int32Type>().value(1), 18);
    let zeros = Int32Array::new(vec![0, 3].into(), Some(vec![false, true].into()));
    let quotient = evaluate(Operator::Divide, column(big), column(zeros), 2)
        .unwrap()
        .to_array(2)
        .unwrap();
    assert_eq!(quotient.as_primitive::<Int32Type>().value(1), 2);
}

#[test]
fn integers_stop_at_their_ends() {
    for (op, l, r) in [
        (Operator::Plus, i32::MAX, 1),
        (Operator::Minus, i32::MIN, 1),
        (Operator::Multiply, i32::MIN, -1),
        (Operator::Multiply, 65_536, 32_768),
        (Operator::Divide, i32::MIN, -1),
    ] {
        let message = error(
            op,
            column(Int32Array::from(vec![1, l])),
            column(Int32Array::from(vec![1, r])),
        );
        assert!(
            message.contains("integer out of range"),
            "{l} {op} {r}: {message}"
        );
    }
    let fits = evaluate(
        Operator::Multiply,
        column(Int32Array::from(vec![65_536])),
        column(Int32Array::from(vec![-32_768])),
        1,
    );
    assert_eq!(
        fits.unwrap()
            .to_array(1)
            .unwrap()
            .as_primitive::<Int32Type>()
            .value(0),
        i32::MIN
    );
    let message = error(
        Operator::Multiply,
        column(Int64Array::from(vec![1, i64::MAX])),
        ColumnarValue::Scalar(ScalarValue::Int64(Some(2))),
    );
    assert!(message.contains("bigint out of range"), "{message}");
}

#[test]
fn products_agree_with_and_without_a_check() {
    let values: Vec<i32> = (0..31)
        .flat_map(|bit| [1 << bit, -(1 << bit), (1 << bit) - 1])
        .collect();
    for &a in &values {
        for &b in &values {
            let got = evaluate(
                Operator::Multiply,
                column(Int32Array::from(vec![a])),
                column(Int32Array::from(vec![b])),
                1,
            );
            match a.checked_mul(b) {
                Some(product) => {
                    assert_eq!(
                        got.unwrap()
                            .to_array(1)
                            .unwrap()
                            .as_primitive::<Int32Type>()
                            .value(0),
                        product
                    );
                }
                None => assert!(got.is_err(), "{a} * {b}"),
            }
        }
    }
}

fn numeric(values: Vec<i128>, precision: u8, scale: i8) -> ColumnarValue {
    column(
        Decimal128Array::from(values)
            .with_precision_and_scale(precision, scale)
            .unwrap(),
    )
}

#[test]
fn numerics_round_half_away_and_stop_at_38_digits() {
    let one = |op, l: ColumnarValue, r: ColumnarValue| {
        let result = evaluate(op, l, r, 1).unwrap().to_array(1).unwrap();
        (
            result.as_primitive::<Decimal128Type>().value(0),
            result.data_type().clone(),
        )
    };
    // 2 / 3 with 16 digits.
    assert_eq!(
        one(
            Operator::Divide,
            numeric(vec![2], 5, 0),
            numeric(vec![3], 5, 0)
        )
        .0,
        6_666_666_666_666_667
    );
    assert_eq!(
        one(
            Operator::Divide,
            numeric(vec![-2], 5, 0),
            numeric(vec![3], 5, 0)
        )
        .0,
        -6_666_666_666_666_667
    );
    // A numerator beyond 128 bits: 10^20 / 7 at scale 16 from scale 20 digits.
    let wide = one(
        Operator::Divide,
        numeric(vec![10_i128.pow(21)], 38, 0),
        numeric(vec![7 * 10_i128.pow(10)], 38, 10),
    );
    assert_eq!(wide.0, 1_428_571_428_571_428_571_428_571_428_571_428_571);
    let most = 10_i128.pow(38) - 1;
    assert!(
        error(
            Operator::Plus,
            numeric(vec![most], 38, 0),
            numeric(vec![1], 38, 0)
        )
        .contains("value overflows numeric format")
    );
    assert!(
        error(
            Operator::Multiply,
            numeric(vec![most], 38, 0),
            numeric(vec![2], 38, 0)
        )
        .contains("value overflows")
    );
    assert!(
        error(
            Operator::Divide,
            numeric(vec![1], 38, 0),
            numeric(vec![0], 38, 0)
        )
        .contains("division by zero")
    );
    assert_eq!(
        decimal::result_type(Operator::Multiply, (15, 2), (15, 2)),
        (30, 4)
    );
    assert_eq!(
        decimal::result_type(Operator::Multiply, (38, 10), (38, 10)),
        (38, 20)
    );
    assert_eq!(
        decimal::result_type(Operator::Divide, (12, 2), (10, 0)),
        (38, 16)
    );
}
