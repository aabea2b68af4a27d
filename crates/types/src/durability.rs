//! Which failures a commit survives.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// What an acknowledged commit survives. A database that several nodes hold in memory has its commits in the
/// memory of each in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Durability {
    /// A power failure: the log is on disk. Of a database with copies the same as
    /// [`Durability::Memory2Fsync`].
    #[default]
    #[serde(rename = "fsync")]
    Fsync,
    /// The end of the process: the operating system has the log. Of a database with copies the same as
    /// [`Durability::Memory2`].
    #[serde(rename = "none")]
    None,
    /// The end of any one node: each that holds the database has it in memory, and on disk soon. Where only one
    /// node holds it, it is on disk.
    #[serde(rename = "memory2")]
    Memory2,
    /// The end of all nodes at once: each that holds the database has it in memory, and the leader on disk.
    #[serde(rename = "memory2+fsync")]
    Memory2Fsync,
}

impl Durability {
    /// Every one, with its name.
    pub const ALL: [(Durability, &'static str); 4] = [
        (Durability::Fsync, "fsync"),
        (Durability::None, "none"),
        (Durability::Memory2, "memory2"),
        (Durability::Memory2Fsync, "memory2+fsync"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Fsync => "fsync",
            Durability::None => "none",
            Durability::Memory2 => "memory2",
            Durability::Memory2Fsync => "memory2+fsync",
        }
    }

    /// Whether a commit waits for the disk of a node that is alone with the database.
    pub fn syncs_alone(self) -> bool {
        self != Durability::None
    }

    /// Whether a commit waits for the leader's disk where copies have it, too.
    pub fn syncs_beside_copies(self) -> bool {
        matches!(self, Durability::Fsync | Durability::Memory2Fsync)
    }

    /// Whether what it survives is all that the other survives.
    pub fn is_at_least(self, other: Durability) -> bool {
        self.strength() >= other.strength()
    }

    fn strength(self) -> u8 {
        match self {
            Durability::None => 0,
            Durability::Memory2 => 1,
            Durability::Fsync | Durability::Memory2Fsync => 2,
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Durability {
    type Err = ();

    /// The one of a name, in whatever case.
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut all = Durability::ALL.into_iter();
        let found = all.find(|(_, name)| name.eq_ignore_ascii_case(text));
        found.map(|(durability, _)| durability).ok_or(())
    }
}
