//! Filling tables from the images of a checkpoint, as many at a time as there are processors.
//!
//! ```text
//!  manifest   │ frozen │ rows │ rows │ │ rows │ │ frozen │     in key order
//!                base   in front of it
//!  unit       └──────────────────────┘ └──────┘ └────────┘     each by itself
//!  ranges     ├──────┼──────┼────────┤ ├───┼──┤ ├────────┤     laid side by side, published
//! ```
//!
//! Units have disjoint keys, so none waits for another and no segment is rewritten. Rows become
//! segments that no directory has yet; frozen segments are attached unchanged, and keep their
//! images for the next checkpoint.

use std::{path::Path, sync::Arc};

use aerostat_segment::Key;
use aerostat_types::{CommitTs, TableId};
use parking_lot::Mutex;

use crate::{
    RecoverError, StorageError, Table,
    durable::image,
    files::{
        codec::{BadBytes, RowBuffer},
        disk::Disk,
        last_checkpoint::Unchanged,
        manifest::{ImageFile, ImageForm, Manifest},
        side_by_side::side_by_side,
    },
    store::directory::{Access, Directory, Entry, KeyRange},
    write::incoming::Incoming,
};

/// What a unit became.
struct Loaded {
    ranges: Vec<KeyRange>,
    /// The least and the greatest key, of a table that has keys.
    keys: Option<(Key, Key)>,
    unchanged: Option<Unchanged>,
}

/// A table with the places for what its units become.
struct Filling<'a> {
    table: Arc<Table>,
    units: Vec<&'a [ImageFile]>,
    loaded: Mutex<Vec<Option<Loaded>>>,
}

/// Fills tables, which are empty, from the images of a checkpoint. Images of tables that
/// are not given are left out. Says how many bytes were read, and what need not be written
/// again.
pub(crate) fn load_all(
    disk: &Arc<dyn Disk>,
    folder: &Path,
    manifest: &Manifest,
    table: &dyn Fn(TableId) -> Option<Arc<Table>>,
) -> Result<(u64, Vec<Unchanged>), RecoverError> {
    let filling: Vec<Filling<'_>> = manifest
        .tables
        .iter()
        .filter_map(|described| {
            let units: Vec<_> = described.images.chunk_by(|_, next| next.in_front).collect();
            Some(Filling {
                table: table(described.description.id)?,
                loaded: Mutex::new(units.iter().map(|_| None).collect()),
                units,
            })
        })
        .collect();
    let units: Vec<(&Filling<'_>, usize)> = filling
        .iter()
        .flat_map(|filling| (0..filling.units.len()).map(move |at| (filling, at)))
        .collect();
    let load = |(filling, at): (&Filling<'_>, usize)| -> Result<(), RecoverError> {
        let unit = filling.units[at];
        let loaded = load_unit(disk, folder, &filling.table, unit, manifest.at)?;
        filling.loaded.lock()[at] = Some(loaded);
        Ok(())
    };
    side_by_side(disk.readers(), units, load)?;
    let mut unchanged = Vec::new();
    let mut bytes = 0;
    for Filling {
        table,
        units,
        loaded,
    } in filling
    {
        bytes += units
            .iter()
            .copied()
            .flatten()
            .map(|image| image.bytes)
            .sum::<u64>();
        let mut loaded: Vec<Loaded> = loaded.into_inner().into_iter().flatten().collect();
        assert_eq!(loaded.len(), units.len(), "every unit was loaded");
        unchanged.extend(loaded.iter_mut().filter_map(|unit| unit.unchanged.take()));
        table
            .publish_loaded(loaded)
            .map_err(|what| RecoverError::damaged(&folder.join(Manifest::NAME), 0, what))?;
    }
    Ok((bytes, unchanged))
}

fn load_unit(
    disk: &Arc<dyn Disk>,
    folder: &Path,
    table: &Arc<Table>,
    unit: &[ImageFile],
    at: CommitTs,
) -> Result<Loaded, RecoverError> {
    let (base, fronts) = match unit {
        [first, rest @ ..] if first.form == ImageForm::Frozen => (Some(first), rest),
        all => (None, all),
    };
    let mut rows = RowBuffer::new(table.types());
    for front in fronts {
        image::read_rows(&**disk, folder, front, &mut rows)?;
    }
    let base = match base {
        Some(file) => Some((file, image::attach(disk, folder, file, table, at)?)),
        None => None,
    };
    let count = rows.rows();
    let columns = rows
        .finish()
        .map_err(|what| RecoverError::damaged(folder, 0, what))?;
    let mut loaded = Loaded {
        ranges: Vec::new(),
        keys: None,
        unchanged: None,
    };
    if count > 0 {
        let incoming = Incoming::of_columns(table, columns, count)?;
        if table.is_keyed() {
            let (first, last) = (incoming.key(0), incoming.key(count - 1));
            loaded.keys = Some((first.to_key(), last.to_key()));
        }
        let base = base.as_ref().map(|(_, entry)| entry);
        loaded.ranges = table.fill_ranges(&incoming, base, at)?;
    }
    if let Some((file, entry)) = base {
        if table.is_keyed() {
            let segment = entry.pin_key(Access::Again)?;
            let (first, last) = (segment.key_of(0), segment.key_of(segment.rows() - 1));
            loaded.keys = Some(match loaded.keys {
                Some((least, greatest)) => (least.min(first), greatest.max(last)),
                None => (first, last),
            });
        }
        loaded.unchanged = Some(Unchanged {
            table: table.id(),
            no: entry.place.no,
            image: file.clone(),
            latched_times: entry.latched_times(),
        });
        if loaded.ranges.is_empty() {
            loaded.ranges.push(KeyRange::new(&[], entry, None));
        }
    }
    // The first range of a unit takes over its lower end.
    if let (Some(range), Some((least, _))) = (loaded.ranges.first_mut(), &loaded.keys) {
        range.lower = Arc::from(&**least);
    }
    Ok(loaded)
}

impl Table {
    /// Puts rows into segments that no directory has, in front of a base or without one.
    fn fill_ranges(
        &self,
        incoming: &Incoming<'_>,
        base: Option<&Arc<Entry>>,
        ts: CommitTs,
    ) -> Result<Vec<KeyRange>, StorageError> {
        let empty = Directory::default();
        let mut ranges: Vec<KeyRange> = Vec::new();
        let (mut at, mut trust_average) = (0, true);
        while at < incoming.rows {
            let before = ranges.last().map(|range| &range.entry);
            let entry = self.open_for(&empty, incoming, at, before, trust_average)?;
            let mut latch = entry.latch();
            let rows = at..incoming.rows.min(at + entry.segment().capacity() as usize);
            let count = self.append_latched(ts.0, incoming, rows, &entry, &mut latch, |_| {})?;
            drop(latch);
            if count == 0 && !trust_average {
                let table = self.schema().name.clone();
                return Err(StorageError::KeyCrowded { table });
            }
            // What the rows before needed may be too little for this one.
            trust_average = count > 0;
            if count > 0 {
                let lower = incoming.key(at).0;
                ranges.push(KeyRange::new(lower, entry, base.cloned()));
                at += count;
            }
        }
        Ok(ranges)
    }

    /// Makes what was loaded the table's directory.
    fn publish_loaded(&self, mut loaded: Vec<Loaded>) -> Result<(), BadBytes> {
        assert!(
            self.directory().entries().is_empty(),
            "images are loaded into a table without rows"
        );
        loaded.retain(|unit| !unit.ranges.is_empty());
        let apart = |pair: &[Loaded]| match (&pair[0].keys, &pair[1].keys) {
            (Some((_, greatest)), Some((least, _))) => greatest < least,
            _ => true,
        };
        if !loaded.windows(2).all(apart) {
            return Err(BadBytes("images whose keys are not in order"));
        }
        let structure = self.structure();
        let ranges = loaded.into_iter().flat_map(|unit| unit.ranges).collect();
        let directory = self.directory().replaced(0..0, ranges);
        self.publish(&structure, directory);
        Ok(())
    }
}
