//! Which rows conflict with new ones: what INSERT … ON CONFLICT asks before it inserts.
//!
//! The newest rows are asked, whatever the snapshot sees, since these are the rows that the
//! insert would meet. A transaction that has a key and has not ended is waited for. The answer
//! may be outdated at once: the insert itself checks again, under locks, and fails if another was
//! faster.

use std::{collections::HashSet, ops::ControlFlow, sync::Arc};

use aerostat_segment::{KeyRef, Keys, NewRows, Segment};
use aerostat_txn::{Awaited, Stamp, Transaction};
use aerostat_types::TxnId;
use arrow_array::{ArrayRef, RecordBatch};

use crate::{
    RowId, StorageError, TableView,
    store::{
        directory::Access,
        index::{Index, Piece},
        shape::Shape,
    },
    write::{
        unique::{Holder, holder_of_row},
        writes::sleep_until,
    },
};

/// What is in the way of a new row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InTheWay {
    /// Nothing: it can be inserted.
    Nothing,
    /// This row, which the view sees and which nobody has changed since.
    Row(RowId),
    /// A row that another transaction has committed since the snapshot.
    Unseen,
    /// A row of the transaction itself, or one before it in the batch.
    New,
}

impl TableView {
    /// Says of each row what has one of its keys, in the constraints of these names: the
    /// primary key's, or unique indexes'. Waits for transactions that have a key and have
    /// not ended. The view should be new: rows that came since it was taken may be missed.
    ///
    /// # Errors
    /// [`StorageError::Conflict`] when there is no such constraint any more, and those of
    /// waiting.
    pub fn in_the_way(
        &self,
        txn: &Transaction,
        rows: &RecordBatch,
        constraints: &[String],
    ) -> Result<Vec<InTheWay>, StorageError> {
        let access = Access::rows(txn.waits());
        let shape = Arc::clone(&self.table().shape());
        let searches = constraints
            .iter()
            .map(|name| Search::of(self, &shape, name, rows, access))
            .collect::<Result<Vec<_>, _>>()?;
        let mut new: Vec<HashSet<KeyRef<'_>>> = vec![HashSet::new(); searches.len()];
        let mut found = Vec::with_capacity(rows.num_rows());
        for row in 0..rows.num_rows() {
            found.push(self.look_up_all(txn, &searches, &mut new, row)?);
        }
        Ok(found)
    }

    fn look_up_all<'s>(
        &self,
        txn: &Transaction,
        searches: &'s [Search<'_>],
        new: &mut [HashSet<KeyRef<'s>>],
        row: usize,
    ) -> Result<InTheWay, StorageError> {
        for search in searches {
            let Some(key) = search.key(row) else { continue };
            match self.look_up_newest(txn, search, key)? {
                InTheWay::Nothing => {}
                other => return Ok(other),
            }
        }
        let keys = || {
            let all = searches.iter().enumerate();
            all.filter_map(move |(nth, search)| Some((nth, search.key(row)?)))
        };
        if keys().any(|(nth, key)| new[nth].contains(&key)) {
            return Ok(InTheWay::New);
        }
        keys().for_each(|(nth, key)| {
            new[nth].insert(key);
        });
        Ok(InTheWay::Nothing)
    }

    fn look_up_newest(
        &self,
        txn: &Transaction,
        search: &Search<'_>,
        key: KeyRef<'_>,
    ) -> Result<InTheWay, StorageError> {
        let cancel = txn.cancel_token();
        loop {
            if cancel.is_cancelled() {
                return Err(StorageError::Cancelled);
            }
            match search.holder(self, txn, key)? {
                Found::Nobody => return Ok(InTheWay::Nothing),
                Found::Row(segment, row) => return Ok(self.judged(txn, segment, row)),
                Found::Transaction(by) => {
                    sleep_until(txn, Awaited::transaction(by))?;
                }
            }
        }
    }

    fn judged(&self, txn: &Transaction, segment: &Segment, row: u32) -> InTheWay {
        let (begin, _) = segment.stamps(row);
        if Stamp::of(begin) == Stamp::By(txn.id()) {
            InTheWay::New
        } else if self.sees(segment, row) {
            InTheWay::Row(RowId::new(segment.no(), row))
        } else {
            InTheWay::Unseen
        }
    }
}

/// Who has a key.
enum Found<'v> {
    Nobody,
    Row(&'v Segment, u32),
    Transaction(TxnId),
}

/// The keys of a batch in one constraint, and where to look for them.
struct Search<'v> {
    keys: Keys,
    /// Of each row whether its key may be equal to another's; `None` for all.
    comparable: Option<Vec<bool>>,
    /// The index in each segment; `None` for the primary key.
    within: Option<Vec<Piece<'v>>>,
    access: Access,
}

impl<'v> Search<'v> {
    fn of(
        view: &'v TableView,
        shape: &'v Shape,
        name: &str,
        rows: &RecordBatch,
        access: Access,
    ) -> Result<Self, StorageError> {
        let table = view.table();
        let schema = &shape.segment_schema;
        let columns = rows.columns();
        let failed = |error| table.segment_error(error);
        if table.is_keyed() && table.schema().primary_key_name == name {
            return Ok(Self {
                keys: Keys::encode(schema, columns).map_err(failed)?,
                comparable: None,
                within: None,
                access,
            });
        }
        let named = |index: &&Arc<Index>| index.description.name == name && index.spec.unique;
        let index = shape.indexes.iter().find(named);
        let index = index.ok_or(StorageError::Conflict)?;
        Ok(Self {
            keys: index.spec.keys(schema, columns).map_err(failed)?,
            comparable: Some(comparable(index, columns, rows.num_rows())),
            within: Some(index.within(view.directory(), schema, access)),
            access,
        })
    }

    /// A row's key, if it may be equal to another's.
    fn key(&self, row: usize) -> Option<KeyRef<'_>> {
        let is_comparable = self.comparable.as_ref().is_none_or(|all| all[row]);
        is_comparable.then(|| self.keys.get(row))
    }

    /// Who has the key, of all versions there are.
    fn holder<'s>(
        &'s self,
        view: &'s TableView,
        txn: &Transaction,
        key: KeyRef<'_>,
    ) -> Result<Found<'s>, StorageError> {
        let mut found = Found::Nobody;
        let mut look = |segment: &'s Segment, row: u32| {
            let holder = holder_of_row(segment, row, txn);
            let next = holder.keep_looking();
            found = match holder {
                Holder::Nobody => Found::Nobody,
                Holder::Row => Found::Row(segment, row),
                Holder::Transaction(by) => Found::Transaction(by),
            };
            next
        };
        match &self.within {
            Some(within) => {
                for piece in within {
                    let mut stopped = ControlFlow::Continue(());
                    piece.find(key, &mut |row| {
                        stopped = look(piece.segment(), row);
                        stopped
                    })?;
                    if stopped.is_break() {
                        break;
                    }
                }
            }
            None => {
                let directory = view.directory();
                let range = directory.route(key).map(|at| &directory.ranges()[at]);
                for entry in range.into_iter().flat_map(|range| range.entries()) {
                    let segment = entry.pin_key(self.access)?;
                    let mut stopped = ControlFlow::Continue(());
                    segment.find(key, &mut |row| {
                        stopped = look(entry.segment(), row);
                        stopped
                    });
                    if stopped.is_break() {
                        break;
                    }
                }
            }
        }
        Ok(found)
    }
}

fn comparable(index: &Index, columns: &[ArrayRef], rows: usize) -> Vec<bool> {
    (0..rows)
        .map(|row| index.is_comparable(NewRows::from(columns), row))
        .collect()
}
