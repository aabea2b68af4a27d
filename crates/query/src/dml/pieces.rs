//! Rows in pieces that are written one after the other.
//!
//! Rows of a batch may share their texts, which storage and the log copy for each row: 8,192 rows
//! with one text of 100 KB are 800 MB. A thread that writes cannot be stopped, so it gets little at
//! a time.

use aerostat_semantics::growth::bytes_of;
use datafusion::arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::DataType,
};

/// The bytes of a piece, at most, apart from its last row.
const PIECE_BYTES: usize = 4 << 20;

/// The batch in pieces of some megabytes; mostly in a single one.
pub(super) fn pieces(batch: RecordBatch) -> Vec<RecordBatch> {
    let rows = batch.num_rows();
    let whole = batch.columns().iter().map(|column| bytes_of(column));
    if whole.sum::<usize>() <= PIECE_BYTES {
        return vec![batch];
    }
    let (mut pieces, mut from, mut bytes) = (Vec::new(), 0, 0);
    for row in 0..rows {
        bytes += text_bytes(&batch, row);
        if bytes >= PIECE_BYTES || row + 1 == rows {
            pieces.push(batch.slice(from, row + 1 - from));
            (from, bytes) = (row + 1, 0);
        }
    }
    assert_eq!(from, rows, "each row is in a piece");
    pieces
}

/// The bytes of a row's texts and byte strings; its other values are small.
fn text_bytes(batch: &RecordBatch, row: usize) -> usize {
    let length = |column: &dyn Array| match column.data_type() {
        // The lower half of a view is its length.
        DataType::Utf8View => column.as_string_view().views()[row] as u32 as usize,
        DataType::BinaryView => column.as_binary_view().views()[row] as u32 as usize,
        _ => 0,
    };
    batch.columns().iter().map(|column| length(column)).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::{
        array::{ArrayRef, Int32Array, StringViewArray},
        compute::concat_batches,
    };

    use super::*;

    fn batch(lengths: &[usize]) -> RecordBatch {
        let texts = lengths.iter().map(|length| Some("x".repeat(*length)));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter(texts));
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..lengths.len() as i32));
        RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap()
    }

    #[test]
    fn what_is_small_is_one_piece() {
        for lengths in [&[][..], &[0], &[10; 8_192]] {
            let batch = batch(lengths);
            assert_eq!(pieces(batch.clone()), [batch]);
        }
    }

    #[test]
    fn what_is_large_is_in_pieces_that_are_the_whole() {
        const MB: usize = 1 << 20;
        for (lengths, expected) in [
            (&[5 * MB, 1, 5 * MB][..], &[1, 2][..]),
            (&[1, 3 * MB, 2 * MB, 7], &[3, 1]),
            (&[MB; 10], &[4, 4, 2]),
        ] {
            let batch = batch(lengths);
            let pieces = pieces(batch.clone());
            let rows: Vec<_> = pieces.iter().map(RecordBatch::num_rows).collect();
            assert_eq!(rows, expected);
            assert_eq!(concat_batches(&batch.schema(), &pieces).unwrap(), batch);
        }
    }
}
