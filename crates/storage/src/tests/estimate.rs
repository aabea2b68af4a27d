//! Estimates of how many rows predicates leave.

use super::*;

const ROWS: i32 = 200_000;

/// Keys ascend; the number is 7 for one row in ten, and else 0 to 100.
fn number(key: i32) -> i64 {
    match key % 10 {
        3 => 7,
        _ => i64::from(key.wrapping_mul(-1_640_531_535) >> 8).rem_euclid(101),
    }
}

#[test]
fn samples_know_skew_texts_and_order() {
    let table = table(
        &tenant("1GB", ArenaSizes::of(&[1 << 20, 4 << 20])),
        "column",
    );
    let rows: Vec<Row> = (0..ROWS)
        .map(|key| (key, number(key), Some(format!("t{}", key % 4))))
        .collect();
    load(&table, &rows);
    for _ in 0..2 {
        let view = table.view(table.store().txns().snapshot());
        let estimate = |predicates: &[Predicate]| view.estimated_rows(predicates).unwrap() as f64;
        let about = |predicates: &[Predicate], passes: &dyn Fn(&Row) -> bool| {
            let rows = rows.iter().filter(|row| passes(row)).count() as f64;
            let told = estimate(predicates);
            assert!(
                (0.8..1.25).contains(&(told / rows)),
                "{told} for {rows}: {predicates:?}"
            );
        };
        about(&[compare(1, CompareOp::Lt, 30)], &|row| row.1 < 30);
        about(&[compare(1, CompareOp::Eq, 7)], &|row| row.1 == 7);
        let text = Predicate::InList {
            attribute: 2,
            values: vec![
                Literal::Bytes(b"t1".to_vec()),
                Literal::Bytes(b"t3".to_vec()),
            ],
            negated: false,
        };
        about(std::slice::from_ref(&text), &|row| row.0 % 2 == 1);
        // They go together: a tenth of the rows have 7, all of them an odd key.
        let both = [text, compare(1, CompareOp::Eq, 7)];
        about(&both, &|row| row.1 == 7 && row.0 % 2 == 1);
        // Only few vectors have such keys; zones tell which.
        let few = [
            compare(0, CompareOp::Ge, 170_000),
            compare(0, CompareOp::Lt, 190_000),
        ];
        about(&few, &|row| (170_000..190_000).contains(&row.0));
        // None, and hardly any.
        assert_eq!(estimate(&[compare(0, CompareOp::Lt, -1)]), 1.0);
        assert!(estimate(&[compare(0, CompareOp::Eq, 77_777)]) < 50.0);
        assert!(estimate(&[compare(1, CompareOp::Eq, 1000)]) < 50.0);
        table.freeze().unwrap();
    }
}
