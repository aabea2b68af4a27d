//! What is known of the previous checkpoint, so that the next one keeps the images of unchanged
//! segments.

use std::collections::HashMap;

use aerostat_types::{CommitTs, SegmentNo, TableId};

use crate::files::manifest::ImageFile;

/// The images of the last checkpoint.
#[derive(Default)]
pub(crate) struct LastCheckpoint {
    pub(crate) images: HashMap<(TableId, SegmentNo), Known>,
    /// Bytes of log there were at its beginning.
    pub(crate) log_bytes: u64,
    /// Numbers image files.
    serial: u64,
}

/// The image of a segment.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) file: ImageFile,
    /// How often the latch had been taken before the image's snapshot was.
    pub(crate) latched_times: u64,
}

impl LastCheckpoint {
    /// Of a tenant that was just loaded: what is as it was need not be written again.
    pub(crate) fn loaded(unchanged: Vec<Unchanged>) -> LastCheckpoint {
        let known = |one: Unchanged| {
            let known = Known {
                file: one.image,
                latched_times: one.latched_times,
            };
            ((one.table, one.no), known)
        };
        LastCheckpoint {
            images: unchanged.into_iter().map(known).collect(),
            ..LastCheckpoint::default()
        }
    }

    /// A name that no file has been given since the tenant was opened; `kind` is `img` or `end`.
    pub(crate) fn file_name(&mut self, table: TableId, at: CommitTs, kind: &str) -> String {
        self.serial += 1;
        format!("{:08x}-{:x}-{:x}.{kind}", table.0, at.0, self.serial)
    }
}

/// A frozen segment that is the same as its image.
pub(crate) struct Unchanged {
    pub(crate) table: TableId,
    pub(crate) no: SegmentNo,
    pub(crate) image: ImageFile,
    pub(crate) latched_times: u64,
}
