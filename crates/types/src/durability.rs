//! Which failures a commit survives.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What an acknowledged commit survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A power failure: the log is on disk.
    #[default]
    Fsync,
    /// The end of the process: the operating system has the log.
    None,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Fsync => "fsync",
            Durability::None => "none",
        })
    }
}
