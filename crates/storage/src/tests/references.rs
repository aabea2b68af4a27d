//! Rows found by the values of other rows.

use aerostat_types::{IndexKind, TableIndex};

use super::*;

fn numbers(values: &[Option<i64>]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn keys(values: &[Option<i32>]) -> ArrayRef {
    Arc::new(Int32Array::from(values.to_vec()))
}

fn indexed_table(unique: bool) -> Arc<Table> {
    let table = tiny_table();
    let index = TableIndex {
        name: "t_n_key".to_owned(),
        kind: IndexKind::Ordered,
        columns: vec![1],
        unique,
        nulls_not_distinct: false,
    };
    table
        .create_index(&table.store().txns().begin(), index)
        .unwrap();
    let rows: Vec<Row> = (0..600)
        .map(|key| (key, i64::from(key % 300), None))
        .collect();
    let rows = if unique { &rows[..300] } else { &rows[..] };
    load(&table, rows);
    table
}

#[test]
fn rows_are_found_by_the_key_of_a_constraint() {
    for freezes in [false, true] {
        let table = indexed_table(true);
        if freezes {
            table.freeze().unwrap();
        }
        load(&table, &[(1_000, 1_000, None)]);
        let view = table.view(table.store().txns().snapshot());
        let found = |constraint: &str, values: ArrayRef| -> Vec<Option<i32>> {
            let ids = view.find_by_key(constraint, &[values]).unwrap();
            let key = |id| rows_of(&view.fetch(&[id], &[0, 1, 2]).unwrap())[0].0;
            ids.into_iter().map(|id| id.map(key)).collect()
        };
        let wanted = [Some(7), None, Some(1_000), Some(2_000), Some(7)];
        let expected = [Some(7), None, Some(1_000), None, Some(7)];
        assert_eq!(found("t_pkey", keys(&wanted)), expected);
        let wanted: Vec<Option<i64>> = wanted.iter().map(|key| key.map(i64::from)).collect();
        assert_eq!(found("t_n_key", numbers(&wanted)), expected);
        assert_eq!(found("t_n_key", numbers(&[None])), vec![None::<i32>]);
        let gone = view.find_by_key("t_x_key", &[numbers(&[Some(1)])]);
        assert!(matches!(gone, Err(StorageError::Conflict)));
    }
}

#[test]
fn rows_are_found_by_values_few_or_many() {
    for freezes in [false, true] {
        let table = indexed_table(false);
        if freezes {
            table.freeze().unwrap();
        }
        let view = table.view(table.store().txns().snapshot());
        let found = |values: Vec<i64>| -> Vec<(i32, usize)> {
            let values: ArrayRef = Arc::new(Int64Array::from(values));
            let pairs = view.find_by_values(&[1], &[values]).unwrap();
            let key = |id| rows_of(&view.fetch(&[id], &[0, 1, 2]).unwrap())[0].0;
            let mut keys: Vec<_> = pairs.into_iter().map(|(id, nth)| (key(id), nth)).collect();
            keys.sort_unstable();
            keys
        };
        assert_eq!(
            found(vec![9, 2_000, 7, 9]),
            [(7, 2), (9, 0), (307, 2), (309, 0)]
        );
        assert!(found(vec![5_000]).is_empty());
        // More than predicates are made of.
        let many = found((0..3_000).rev().collect());
        assert_eq!(many.len(), 600);
        assert!(
            many.iter()
                .all(|(key, nth)| *nth == 2_999 - *key as usize % 300)
        );
    }
}

#[test]
fn several_columns_are_one_key() {
    let table = tiny_table();
    load(&table, &[(1, 10, None), (2, 20, None), (3, 10, None)]);
    let view = table.view(table.store().txns().snapshot());
    let values = [keys(&[Some(3), Some(2)]), numbers(&[Some(10), Some(10)])];
    let found = view.find_by_values(&[0, 1], &values).unwrap();
    let rows: Vec<_> = found
        .iter()
        .map(|(id, nth)| (rows_of(&view.fetch(&[*id], &[0, 1, 2]).unwrap())[0].0, *nth))
        .collect();
    assert_eq!(rows, [(3, 0)]);
    let described = describe_key(
        table.schema(),
        &[1, 0],
        &[values[1].clone(), values[0].clone()],
        0,
    );
    assert_eq!(described, "Key (n, k)=(10, 3)");
}
