//! Unique keys: who has one, and what unique indexes demand of new rows.
//!
//! * A key may come into two segments at once, so an insert holds a stripe of the index, chosen
//!   by the key's hash, from before it looks for the key in all segments until its row is in one.
//!   Stripes are taken in ascending order, indexes in the order of the table, latches after
//!   stripes; nobody waits for a transaction meanwhile.
//! * A key with a NULL in it is equal to none, unless the index says that NULLs are not distinct.
//! * **Deferrable.** A transaction that may have a key twice for a while inserts without asking,
//!   and asks later ([`Table::check_keys`]) under the key's stripe. Of two that insert a key, the
//!   one that asks last finds the other's row, so they cannot both miss it.

use std::{
    ops::{ControlFlow, Range},
    sync::Arc,
};

use aerostat_segment::{BLOCK_ROWS, Key, KeyRef, Keys, NewRows, Pinned, Segment, Selection};
use aerostat_txn::{ABORTED, Awaited, Stamp, Transaction};
use aerostat_types::TxnId;
use arrow_array::ArrayRef;
use parking_lot::MutexGuard;

use crate::{
    StorageError, Table,
    read::{describe, references::placed},
    store::{
        directory::{Access, Directory},
        index::{Index, Piece},
        shape::Shape,
    },
    write::{incoming::Incoming, writes::sleep_until},
};

/// What the unique indexes of a shape demand of a batch.
pub(crate) struct Uniqueness {
    shape: Arc<Shape>,
    all: Vec<UniqueKeys>,
}

/// The keys of a batch in one unique index.
struct UniqueKeys {
    index: Arc<Index>,
    keys: Keys,
    /// Of each row its stripe; `None` where the key is equal to none.
    stripes: Vec<Option<u8>>,
}

impl Uniqueness {
    /// Encodes the keys and checks that the batch has none twice, but for the indexes of
    /// these names.
    pub(crate) fn of(
        table: &Table,
        incoming: &Incoming<'_>,
        put_off: &[String],
    ) -> Result<Self, StorageError> {
        let shape = Arc::clone(&table.shape());
        let is_asked =
            |index: &&Arc<Index>| index.spec.unique && !put_off.contains(&index.description.name);
        let unique = shape.indexes.iter().filter(is_asked);
        let all = unique
            .map(|index| UniqueKeys::of(table, &shape, index, incoming))
            .collect::<Result<_, _>>()?;
        Ok(Self { shape, all })
    }

    /// Whether the table's shape is still the one whose indexes these are.
    pub(crate) fn is_current(&self, table: &Table) -> bool {
        Arc::ptr_eq(&self.shape, &table.shape())
    }

    /// Keeps others from inserting the rows' keys.
    pub(crate) fn lock(&self, rows: Range<usize>) -> Vec<MutexGuard<'_, ()>> {
        let mut guards = Vec::new();
        for unique in &self.all {
            let mut wanted = 0u64;
            for stripe in unique.stripes[rows.clone()].iter().flatten() {
                wanted |= 1 << stripe;
            }
            let stripes = unique.index.stripes.iter().enumerate();
            guards.extend(
                stripes
                    .filter(|(at, _)| wanted >> at & 1 == 1)
                    .map(|(_, stripe)| stripe.lock()),
            );
        }
        guards
    }

    /// The first of the rows whose key an unfinished transaction has, and that. The caller
    /// has locked the rows, and found the directory current afterwards: so all that others
    /// inserted is in it. Segments are not latched: whatever stamps are found were true a
    /// moment ago.
    ///
    /// # Errors
    /// [`StorageError::UniqueViolation`] when a row before that has the key of another that
    /// is there to stay.
    pub(crate) fn probe(
        &self,
        table: &Table,
        directory: &Directory,
        incoming: &Incoming<'_>,
        rows: Range<usize>,
        txn: &Transaction,
    ) -> Result<Option<(usize, TxnId)>, StorageError> {
        if self.all.is_empty() {
            return Ok(None);
        }
        let segments = self.all.iter();
        let access = Access::rows(txn.waits());
        let segments = segments.map(|unique| {
            let schema = &self.shape.segment_schema;
            unique.index.within(directory, schema, access)
        });
        let segments: Vec<_> = segments.collect();
        for row in rows {
            for (unique, segments) in self.all.iter().zip(&segments) {
                if unique.stripes[row].is_none() {
                    continue;
                }
                let key = unique.keys.get(row);
                for piece in segments {
                    match holder_of(piece, key, txn)? {
                        Holder::Nobody => {}
                        Holder::Row => {
                            return Err(unique.index.violation(table, incoming.new_rows(), row));
                        }
                        Holder::Transaction(holder) => return Ok(Some((row, holder))),
                    }
                }
            }
        }
        Ok(None)
    }
}

impl UniqueKeys {
    fn of(
        table: &Table,
        shape: &Shape,
        index: &Arc<Index>,
        incoming: &Incoming<'_>,
    ) -> Result<Self, StorageError> {
        let columns = incoming.new_rows();
        let keys = index
            .spec
            .keys(&shape.segment_schema, columns)
            .map_err(|error| table.segment_error(error))?;
        let stripe = |row: usize| {
            // There are no more than a byte tells.
            let is_comparable = index.is_comparable(columns, row);
            is_comparable.then(|| index.stripe(keys.get(row)) as u8)
        };
        let stripes: Vec<Option<u8>> = (0..incoming.rows).map(stripe).collect();
        if !keys.is_strictly_ascending() {
            let mut order: Vec<usize> = (0..incoming.rows)
                .filter(|row| stripes[*row].is_some())
                .collect();
            order.sort_unstable_by_key(|&row| keys.get(row));
            let twice = order
                .windows(2)
                .find(|pair| keys.get(pair[0]) == keys.get(pair[1]));
            if let Some(pair) = twice {
                return Err(index.violation(table, columns, pair[0].max(pair[1])));
            }
        }
        Ok(Self {
            index: Arc::clone(index),
            keys,
            stripes,
        })
    }
}

/// Who has a key.
pub(crate) enum Holder {
    Nobody,
    /// A row that is there to stay, or our own.
    Row,
    Transaction(TxnId),
}

impl Holder {
    /// Whether other versions of the key may have another holder.
    pub(crate) fn keep_looking(&self) -> ControlFlow<()> {
        match self {
            Holder::Nobody => ControlFlow::Continue(()),
            Holder::Row | Holder::Transaction(_) => ControlFlow::Break(()),
        }
    }
}

/// Who has a version's key, as the transaction finds it.
///
/// A row that one statement of another's block has begun and a later one has ended is
/// that block's as long as it has not ended itself: the later one may still be undone.
pub(crate) fn holder_of_row(segment: &Segment, row: u32, txn: &Transaction) -> Holder {
    let (begin, end) = segment.stamps(row);
    match (Stamp::of(begin), Stamp::of(end)) {
        _ if begin == ABORTED => Holder::Nobody,
        // Ended for good, or gone whichever way its only writer ends.
        _ if Stamp::has_ended(end) => Holder::Nobody,
        (begun, ended @ Stamp::By(_)) if begun == ended => Holder::Nobody,
        (_, Stamp::By(by)) if txn.owns(by) => Holder::Nobody,
        (Stamp::By(by), _) if !txn.owns(by) => Holder::Transaction(by),
        (_, Stamp::By(by)) => Holder::Transaction(by),
        _ => Holder::Row,
    }
}

/// Who has a key of a secondary index in a segment.
fn holder_of(
    piece: &Piece<'_>,
    key: KeyRef<'_>,
    txn: &Transaction,
) -> Result<Holder, StorageError> {
    let mut holder = Holder::Nobody;
    piece.find(key, &mut |row| {
        holder = holder_of_row(piece.segment(), row, txn);
        holder.keep_looking()
    })?;
    Ok(holder)
}

/// Whether a row of these segments has the key, other than `row` of the first and what is
/// before that.
fn has_other(
    segments: &[Piece<'_>],
    row: u32,
    key: &Key,
    txn: &Transaction,
) -> Result<bool, StorageError> {
    let mut found = false;
    for (nth, piece) in segments.iter().enumerate() {
        piece.find(key.borrow(), &mut |other| {
            if nth == 0 && other <= row {
                return ControlFlow::Continue(());
            }
            let holder = holder_of_row(piece.segment(), other, txn);
            found |= !matches!(holder, Holder::Nobody);
            holder.keep_looking()
        })?;
    }
    Ok(found)
}

impl Index {
    fn violation(&self, table: &Table, new: NewRows<'_>, row: usize) -> StorageError {
        let key = describe::key(table.schema(), &self.description.columns, new, row);
        StorageError::UniqueViolation {
            table: table.schema().name.clone(),
            constraint: self.description.name.clone(),
            detail: format!("{key} already exists."),
        }
    }
}

impl Table {
    /// Checks that no two rows are equal in the index, which all segments have. Who writes
    /// from now on checks itself.
    pub(crate) fn check_unique(
        &self,
        txn: &Transaction,
        index: &Index,
    ) -> Result<(), StorageError> {
        // Who found a segment without the index a moment ago holds a latch until its rows
        // are in.
        for entry in self.directory().entries() {
            drop(entry.latch());
        }
        let directory = Arc::clone(&self.directory());
        let shape = Arc::clone(&self.shape());
        let mut segments = index.within(&directory, &shape.segment_schema, Access::Again);
        for nth in 0..segments.len() {
            // Or all there are would be in memory at the end.
            segments.iter_mut().for_each(Piece::unpin);
            let piece = &segments[nth];
            let position = piece.position();
            let position = position.expect("an index is built where all segments have it");
            let segment = piece.pinned()?;
            for row in 0..segment.rows() {
                if row % BLOCK_ROWS == 0 && txn.cancel_token().is_cancelled() {
                    return Err(StorageError::Cancelled);
                }
                let equals_none = !index.description.nulls_not_distinct
                    && segment.index_key_has_null(position, row);
                if equals_none || matches!(holder_of_row(segment, row, txn), Holder::Nobody) {
                    continue;
                }
                let key = segment.index_key_of(position, row);
                if has_other(&segments[nth..], row, &key, txn)? {
                    self.check_key(txn, index, key.borrow(), &shape)?;
                }
            }
        }
        Ok(())
    }

    /// Whether rows are equal: asked of the segments of now, for an older directory does not
    /// hear of rows that ended after they had moved. Waits for whoever may yet end one.
    fn check_key(
        &self,
        txn: &Transaction,
        index: &Index,
        key: KeyRef<'_>,
        shape: &Shape,
    ) -> Result<(), StorageError> {
        loop {
            if txn.cancel_token().is_cancelled() {
                return Err(StorageError::Cancelled);
            }
            let holder = {
                let _stripe = index.stripes[index.stripe(key)].lock();
                match self.second_holder(txn, index, key, shape)? {
                    Some(holder) => holder,
                    None => return Ok(()),
                }
            };
            sleep_until(txn, Awaited::transaction(holder))?;
        }
    }

    /// `None` when at most one row has the key; else who may yet end one of them.
    ///
    /// # Errors
    /// That the rows are equal, if all are there to stay.
    fn second_holder(
        &self,
        txn: &Transaction,
        index: &Index,
        key: KeyRef<'_>,
        shape: &Shape,
    ) -> Result<Option<TxnId>, StorageError> {
        let directory = Arc::clone(&self.directory());
        let (mut holders, mut unfinished, mut example) = (0, None, None);
        let pieces = index.within(&directory, &shape.segment_schema, Access::Rows);
        for piece in &pieces {
            piece.find(key, &mut |row| {
                match holder_of_row(piece.segment(), row, txn) {
                    Holder::Nobody => return ControlFlow::Continue(()),
                    Holder::Row => example = Some((piece, row)),
                    Holder::Transaction(by) => unfinished = Some(by),
                }
                holders += 1;
                ControlFlow::Continue(())
            })?;
        }
        // A directory that was replaced meanwhile may show a row twice or not at all.
        if !self.is_current(&directory) {
            return self.second_holder(txn, index, key, shape);
        }
        if holders < 2 {
            return Ok(None);
        }
        match (unfinished, example) {
            (Some(holder), _) => Ok(Some(holder)),
            (None, Some((piece, row))) => Err(self.not_unique(index, piece.pinned()?, row)),
            (None, None) => unreachable!("two holders that are no transactions are rows"),
        }
    }

    /// Checks that each of these keys has one row at most: values of the columns of a unique
    /// index, in its order. The rows of `txn` count; whoever may yet add or end another is
    /// waited for.
    ///
    /// # Errors
    /// [`StorageError::UniqueViolation`] when a key has several rows,
    /// [`StorageError::Conflict`] when there is no such index any more, and those of waiting.
    pub fn check_keys(
        &self,
        txn: &Transaction,
        name: &str,
        values: &[ArrayRef],
    ) -> Result<(), StorageError> {
        let shape = Arc::clone(&self.shape());
        let named = |index: &&Arc<Index>| index.description.name == name && index.spec.unique;
        let index = shape.indexes.iter().find(named);
        let index = index.ok_or(StorageError::Conflict)?;
        let columns = placed(self.types().len(), &index.spec.attributes, values);
        let keys = index.spec.keys(&shape.segment_schema, &columns);
        let keys = keys.map_err(|error| self.segment_error(error))?;
        for (row, key) in keys.iter().enumerate() {
            if !index.is_comparable(NewRows::from(&columns), row) {
                continue;
            }
            self.check_key(txn, index, key, &shape)
                .map_err(|error| match error {
                    StorageError::IndexNotUnique { .. } => {
                        index.violation(self, NewRows::from(&columns), row)
                    }
                    error => error,
                })?;
        }
        Ok(())
    }

    fn not_unique(&self, index: &Index, segment: &Pinned<'_>, row: u32) -> StorageError {
        let rows = Selection::Rows(vec![row]);
        let positions = &index.spec.attributes;
        let values = positions.iter().map(|&at| segment.gather(at, &rows));
        let values: Vec<ArrayRef> = values.collect();
        let columns = placed(self.types().len(), positions, &values);
        let key = describe::key(
            self.schema(),
            &index.description.columns,
            NewRows::from(&columns),
            0,
        );
        StorageError::IndexNotUnique {
            index: index.description.name.clone(),
            detail: format!("{key} is duplicated."),
        }
    }
}
