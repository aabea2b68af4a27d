//! Checkpoints: the state at one point, in files, so that the log before it can be removed.
//!
//! ```text
//!  log.rotate ──► everything through D is in files before F
//!  snapshot S ≥ D, the tables and the catalogue of S
//!  each segment that changed: what S sees of it ──► a new image (image), or of a frozen one that
//!      has an image, the rows that have ended (ended)
//!  manifest { S, F, images } written beside, synced, renamed
//!  log files before F and images that no manifest names: removed
//! ```
//!
//! Writers go on: a snapshot holds what is to be written, and no latch is taken. A segment keeps
//! its image as long as nobody takes its latch, since neither rows nor stamps change without it.
//! The count of latches is read *before* S is taken and compared once all transactions up to the
//! next S have settled, so a change is never missed, though now and then an unchanged segment is
//! written again.
//!
//! Chunks of unfinished transactions may be in files before F; the log then names an earlier file
//! to keep.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use aerostat_types::{CommitTs, Epoch, SegmentNo, TableId, TxnId};

use crate::{
    StorageError, Table, TableView, TenantStore,
    durable::{
        ended,
        image::{ImageWriter, Written},
    },
    files::{
        disk::{Disk, Machine, Opened},
        fault,
        last_checkpoint::{Known, LastCheckpoint},
        log::Cut,
        manifest::{ImageFile, ImageForm, Manifest, TableImage, is_of_image},
    },
    store::{directory::Entry, tenant::Durable},
};

/// What a checkpoint did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpointed {
    /// The point it is of.
    pub at: CommitTs,
    /// Segments whose image was written.
    pub images_written: u64,
    /// Segments whose image was there.
    pub images_kept: u64,
    /// Segments of those whose image was there, of which rows have ended since.
    pub ended_written: u64,
    /// Bytes of the images and lists of ended rows that were written.
    pub bytes_written: u64,
    /// How long it took.
    pub duration: Duration,
}

/// Whether a checkpoint pays: reading `log_bytes` again takes longer than is good, and
/// writing what changed is not more than what has been written to the log for it.
/// 64 MiB are one log file, and are recovered in well under a second; a quarter of the
/// data keeps recovery within a quarter more than loading the data alone takes, and the
/// bytes written for checkpoints within a few times those of the log.
pub fn checkpoint_is_due(log_bytes: u64, data_bytes: u64) -> bool {
    const LOG_BYTES_MIN: u64 = 64 << 20;
    const DATA_SHARE: u64 = 4;
    log_bytes > LOG_BYTES_MIN.max(data_bytes / DATA_SHARE)
}

/// A frozen segment, and where its bytes stand: file, offset, checksums of extents.
type Place = (Arc<Entry>, PathBuf, u64, Box<[u32]>);

/// Where memory is short, frozen segments without an image are worth a checkpoint when they are this
/// share of what is used, as a divisor.
const WITHOUT_IMAGE_SHARE: u64 = 16;

/// How long a checkpoint of a copy waits for what the log has to be applied, and how often it looks.
const CATCH_UP_MAX: Duration = Duration::from_secs(10);
const CATCH_UP_LOOK: Duration = Duration::from_millis(2);

/// The tables at a point of the commit order.
struct Point {
    cut: Cut,
    epochs: Vec<(Epoch, CommitTs)>,
    at: CommitTs,
    taken_micros: u64,
    /// The newest id of a transaction.
    last_txn: TxnId,
    /// All of one snapshot.
    views: Vec<TableView>,
    dropped: Vec<TableId>,
    catalog: Option<Arc<[u8]>>,
    /// Of each segment, before the snapshot.
    latched_times: HashMap<(TableId, SegmentNo), u64>,
}

impl TenantStore {
    /// Whether [`Self::checkpoint`] pays by now.
    pub fn wants_checkpoint(&self) -> bool {
        let Some(durable) = &self.durable else {
            return false;
        };
        // One is running.
        let Some(last) = durable.checkpoint.try_lock() else {
            return false;
        };
        let log_bytes = durable.log.bytes_written() - last.log_bytes;
        // What has no image cannot be evicted.
        let without = || self.frozen_without_image() > self.budget().used() / WITHOUT_IMAGE_SHARE;
        checkpoint_is_due(log_bytes, self.budget().used()) || self.is_short() && without()
    }

    /// Writes what changed since the last checkpoint, and removes the log that is not
    /// needed any more. Writers and readers go on meanwhile; a second call waits. `None`
    /// if the tenant is not durable.
    ///
    /// # Errors
    /// [`StorageError::Log`] when the log has failed, [`StorageError::Checkpoint`] when
    /// files cannot be written, [`StorageError::Cancelled`] when the tenant is to be closed, or is a copy
    /// that has too much to catch up with: the last checkpoint and the log then stay as they are.
    pub fn checkpoint(&self) -> Result<Option<Checkpointed>, StorageError> {
        let Some(durable) = &self.durable else {
            return Ok(None);
        };
        let Machine { disk, clock } = &durable.machine;
        let started = clock.now();
        let mut last = durable.checkpoint.lock();
        let log_bytes = durable.log.bytes_written();
        let point = self.point(durable)?;
        fault::pass("checkpoint.cut");
        let mut done = Checkpointed {
            at: point.at,
            ..Checkpointed::default()
        };
        let folder = durable.folder.join("checkpoint");
        let mut places = Vec::new();
        let images = self
            .write_images(
                &**disk,
                &folder,
                &point,
                &mut last,
                (&mut done, &mut places),
            )
            .map_err(|error| match self.is_leaving() {
                true => StorageError::Cancelled,
                false => StorageError::Checkpoint(error),
            })?;
        assert_eq!(
            done.images_written + done.images_kept,
            images.len() as u64,
            "each segment has an image"
        );
        // Whoever has the log alone, as a restore has, must find in it what the checkpoint has, or that there
        // is nothing; without durability a power failure would take it, and the checkpoint be all that has it.
        durable.log.flush().map_err(StorageError::Log)?;
        fault::pass("checkpoint.before_manifest");
        let manifest = self.manifest(&point, &images);
        let written = manifest.write(&**disk, &folder);
        written.map_err(StorageError::Checkpoint)?;
        last.images = images;
        for (entry, path, offset, checksums) in places {
            entry.set_image(self.evictor(), disk, (path, offset), checksums);
        }
        last.log_bytes = log_bytes;
        let keep = self.evictor().files();
        remove_old(durable, &folder, &manifest, &keep).map_err(StorageError::Checkpoint)?;
        done.duration = clock.now().saturating_duration_since(started);
        Ok(Some(done))
    }

    /// A snapshot, and what there is at it.
    fn point(&self, durable: &Durable) -> Result<Point, StorageError> {
        let of_copy = match durable.log.follows() {
            true => Some(self.copied_cut(durable)?),
            false => None,
        };
        // Nobody creates or drops tables, or changes the catalogue, while it is locked.
        let mut registry = durable.registry.lock();
        let tables = self.living_tables(durable, &mut registry)?;
        let latched_times = tables.iter().flat_map(latched_times).collect();
        // Asked first: who has ended by then has committed before the cut, if at all.
        let oldest = match of_copy {
            // Which of the leader's transactions have not ended is not known here.
            Some(_) => CommitTs(0),
            None => self.txns().oldest_begin(),
        };
        let cut = match of_copy {
            Some(cut) => cut,
            None => {
                let cut = durable.log.rotate()?;
                // Who committed may not have come to say so yet.
                self.txns().publish(cut.through);
                cut
            }
        };
        let snapshot = self.txns().snapshot();
        assert!(
            snapshot.at() >= cut.through && cut.keep_from <= cut.next,
            "a checkpoint sees everything in the log files that it makes needless"
        );
        let view = |table: &Arc<Table>| table.view(snapshot.clone());
        let epochs = durable.epochs.lock().clone().into_iter();
        Ok(Point {
            epochs: epochs.filter(|start| start.1 <= snapshot.at()).collect(),
            cut,
            at: snapshot.at(),
            taken_micros: durable.log.now_micros(),
            last_txn: self.txns().last_id(),
            views: tables.iter().map(view).collect(),
            dropped: registry.forget_dropped(snapshot.at(), oldest),
            catalog: registry.catalog.clone(),
            latched_times,
        })
    }

    /// Where a copy's log is cut. What is before the cut has been applied when this returns: what the log
    /// has may be ahead of that.
    fn copied_cut(&self, durable: &Durable) -> Result<Cut, StorageError> {
        let clock = self.txns().clock();
        let cut = durable.log.rotate()?;
        let deadline = clock.now() + CATCH_UP_MAX;
        // What a copy finds when it is opened may not be committed.
        let is_committed = || durable.log.is_committed(self.txns().last_commit());
        while self.txns().last_commit() < cut.through || !is_committed() {
            if self.is_leaving() || clock.now() >= deadline {
                return Err(StorageError::Cancelled);
            }
            clock.sleep(CATCH_UP_LOOK);
        }
        Ok(cut)
    }

    fn write_images(
        &self,
        disk: &dyn Disk,
        folder: &Path,
        point: &Point,
        last: &mut LastCheckpoint,
        (done, places): (&mut Checkpointed, &mut Vec<Place>),
    ) -> io::Result<HashMap<(TableId, SegmentNo), Known>> {
        self.txns().wait_settled();
        let mut images = HashMap::new();
        let mut written = Vec::new();
        for view in &point.views {
            let table = view.table();
            for (entry, in_front) in view.directory().placed() {
                if self.is_leaving() {
                    // The caller knows why.
                    return Err(io::ErrorKind::Interrupted.into());
                }
                let id = (table.id(), entry.place.no);
                let unchanged = |known: &&Known| known.latched_times == entry.latched_times();
                if let Some(known) = last.images.get(&id).filter(unchanged) {
                    let mut known = known.clone();
                    known.file.in_front = in_front;
                    images.insert(id, known);
                    done.images_kept += 1;
                    continue;
                }
                let names = Names {
                    table: table.id(),
                    at: point.at,
                };
                let changed = write_changed(disk, folder, last, names, (view, entry, in_front))?;
                let Written { file, place } = changed;
                if let Some((offset, checksums)) = place {
                    let path = folder.join(&file.name);
                    places.push((Arc::clone(entry), path, offset, checksums));
                }
                let (name, bytes) = match &file.ended {
                    Some(list) => {
                        done.images_kept += 1;
                        done.ended_written += 1;
                        (&list.name, list.bytes)
                    }
                    None => {
                        done.images_written += 1;
                        (&file.name, file.bytes)
                    }
                };
                done.bytes_written += bytes;
                written.push(folder.join(name));
                // A segment that is new since gets a count that never matches.
                let latched_times = point.latched_times.get(&id).copied().unwrap_or(u64::MAX);
                images.insert(
                    id,
                    Known {
                        file,
                        latched_times,
                    },
                );
            }
        }
        for path in written {
            disk.open(&path, Opened::Write)?.sync_all()?;
        }
        disk.sync_folder(folder)?;
        Ok(images)
    }

    fn manifest(&self, point: &Point, images: &HashMap<(TableId, SegmentNo), Known>) -> Manifest {
        let of_table = |view: &TableView| {
            let table = view.table();
            let image = |entry: &Arc<Entry>| images[&(table.id(), entry.place.no)].file.clone();
            TableImage {
                description: table.description(&table.shape()),
                images: view.directory().entries().iter().map(image).collect(),
            }
        };
        Manifest {
            tenant: self.id(),
            timeline: self.durable_side().log.origin().timeline,
            at: point.at,
            taken_micros: point.taken_micros,
            last_txn: Some(point.last_txn),
            log_from: point.cut.keep_from,
            epochs: point.epochs.clone(),
            begins: self.durable_side().begins,
            tables: point.views.iter().map(of_table).collect(),
            dropped: point.dropped.clone(),
            has_catalog: point.catalog.is_some(),
            catalog: point
                .catalog
                .as_deref()
                .map(<[u8]>::to_vec)
                .unwrap_or_default(),
        }
    }
}

/// Writes what has changed of a segment: a list of ended rows beside the image of a frozen one, else
/// an image. What it gives has a list if, and only if, that was written.
fn write_changed(
    disk: &dyn Disk,
    folder: &Path,
    last: &mut LastCheckpoint,
    names: Names,
    (view, entry, in_front): (&TableView, &Arc<Entry>, bool),
) -> io::Result<Written> {
    let known = last.images.get(&(names.table, entry.place.no));
    let frozen = known.filter(|known| known.file.form == ImageForm::Frozen);
    let Some(image) = frozen.map(|known| known.file.clone()) else {
        let writer = names.create(last, "img", |name| ImageWriter::create(disk, folder, name))?;
        return writer.write(view, entry, in_front);
    };
    let image = ImageFile { in_front, ..image };
    let write = |name| ended::write(disk, folder, name, &image, (view, entry));
    let file = names.create(last, "end", write)?;
    Ok(Written { file, place: None })
}

/// What the names of a checkpoint's files are made of.
struct Names {
    table: TableId,
    at: CommitTs,
}

impl Names {
    /// Creates a file with a name that no other has, not even of a checkpoint before a restart.
    fn create<T>(
        &self,
        last: &mut LastCheckpoint,
        kind: &str,
        create: impl Fn(String) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match create(last.file_name(self.table, self.at, kind)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other,
            }
        }
    }
}

/// How often the latch of each segment was taken.
fn latched_times(table: &Arc<Table>) -> Vec<((TableId, SegmentNo), u64)> {
    let count = |entry: &Arc<Entry>| ((table.id(), entry.place.no), entry.latched_times());
    table.directory().entries().iter().map(count).collect()
}

/// Removes images and lists that the manifest does not name, also those a crash has left; but for
/// images that values of a segment may still be read back from, which some reader has, and those that a copy
/// is being made of.
fn remove_old(
    durable: &Durable,
    folder: &Path,
    manifest: &Manifest,
    keep: &[PathBuf],
) -> io::Result<()> {
    let named: HashSet<&str> = manifest.files().map(|file| file.name).collect();
    let pins = durable.pins.living();
    let disk = &durable.machine.disk;
    for (path, _) in disk.list(folder)? {
        let name = path.file_name().and_then(|name| name.to_str());
        let is_pinned = |name: &str| pins.iter().any(|pin| pin.has(name));
        let is_old = |name: &str| is_of_image(name) && !named.contains(name) && !is_pinned(name);
        if name.is_some_and(is_old) && !keep.contains(&path) {
            disk.remove_file(&path)?;
            fault::pass("checkpoint.after_remove");
        }
    }
    durable.log.remove_before(manifest.log_from)
}
