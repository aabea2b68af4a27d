//! Which formats of files a build reads, and which it writes: what a node's files are may be known to a build that is to
//! go on with them only by this.

use super::log::record::{FORMAT, FORMAT_MIN};

/// A format of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFormat {
    /// What has it.
    pub of: &'static str,
    /// The oldest that is read.
    pub least: u32,
    /// The newest, which is the one that is written.
    pub most: u32,
}

/// Raised with the words that files begin with: `AEROCKP3` of a manifest, `AEROIMG1` and `AEROIMF1` of images, `AEROEND1`
/// of the rows that have ended since.
pub const FILE_FORMATS: [FileFormat; 3] = [
    FileFormat {
        of: "log",
        least: FORMAT_MIN,
        most: FORMAT,
    },
    FileFormat {
        of: "checkpoint",
        least: 2,
        most: 3,
    },
    FileFormat {
        of: "image",
        least: 1,
        most: 1,
    },
];
