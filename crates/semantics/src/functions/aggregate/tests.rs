//! Sums at their limits.

use arrow::datatypes::DataType;

use super::kind::{Int32Sum, NumericSum, SumKind};
use super::{Finish, result_type};

#[test]
fn results_are_wider_than_arguments() {
    assert_eq!(result_type(Finish::Sum, &DataType::Int32), DataType::Int64);
    assert_eq!(
        result_type(Finish::Sum, &DataType::Int64),
        DataType::Decimal128(38, 0)
    );
    assert_eq!(
        result_type(Finish::Sum, &DataType::Decimal128(12, 2)),
        DataType::Decimal128(38, 2)
    );
    assert_eq!(
        result_type(Finish::Sum, &DataType::Float32),
        DataType::Float32
    );
    assert_eq!(
        result_type(Finish::Average, &DataType::Int16),
        DataType::Decimal128(38, 16)
    );
    assert_eq!(
        result_type(Finish::Average, &DataType::Decimal128(20, 18)),
        DataType::Decimal128(38, 18)
    );
}

#[test]
fn sums_tell_of_overflow() {
    let mut sum = i64::MAX;
    assert!(Int32Sum::add_slice(&mut sum, &[1]));
    let mut sum = i128::MAX;
    assert!(NumericSum::add(&mut sum, 1));
    let output = DataType::Decimal128(38, 2);
    assert!(NumericSum::sums(vec![10_i128.pow(38)], None, &output).is_err());
    assert!(NumericSum::sums(vec![10_i128.pow(38) - 1], None, &output).is_ok());
}

#[test]
fn averages_round_half_away_from_zero() {
    let output = DataType::Decimal128(38, 16);
    let averages = NumericSum::averages(&[2, -2, 0, 5], &[3, 3, 0, 1], 0, &output).unwrap();
    use arrow::array::{Array, AsArray};
    let averages = averages.as_primitive::<arrow::datatypes::Decimal128Type>();
    assert_eq!(averages.value(0), 6_666_666_666_666_667);
    assert_eq!(averages.value(1), -6_666_666_666_666_667);
    assert!(averages.is_null(2));
    assert_eq!(averages.value(3), 5 * 10_i128.pow(16));
}
