//! Which versions of frames between nodes a build speaks, and which one two nodes speak with each other.
//!
//! ```text
//!  this build speaks   1 ─────── 2          a node says in the shared list what its build speaks; one that says
//!  the other node      1 ─────────── 3      nothing speaks version 1 alone
//!  they speak                    2          the newest that both know: whoever dials greets in it
//! ```
//!
//! Whoever is dialled takes each version that its build speaks. A node that has been replaced by a newer build is
//! dialled in the newer version from then on; until the list is read again, in the older one, which it speaks as well.

use std::hint::black_box;

use serde::{Deserialize, Serialize};

/// The newest version of frames, which [`Spoken`] says as well. Raised whenever older frames could be misread.
pub const VERSION: u16 = 1;

/// The oldest version that is spoken. Raised when no cluster can have such builds any more.
const VERSION_MIN: u16 = 1;

/// The newest version, as text in the program: tests make a build of another version of a copy of it, by other
/// digits. It is read where it is, so that no compiler knows what it says.
static NEWEST: [u8; 36] = *b"aerostat speaks between nodes: v0001";

/// Digits of the version in it.
const DIGITS: usize = 4;

/// The versions that a build speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spoken {
    /// The oldest.
    pub least: u16,
    /// The newest.
    pub most: u16,
}

impl Spoken {
    /// What builds spoke that said nothing of it.
    pub const FIRST: Spoken = Spoken { least: 1, most: 1 };

    /// What this build speaks.
    pub fn here() -> Spoken {
        let text = &black_box(&NEWEST)[NEWEST.len() - DIGITS..];
        let most = std::str::from_utf8(text)
            .ok()
            .and_then(|digits| digits.parse().ok());
        Spoken {
            least: VERSION_MIN,
            most: most.unwrap_or(VERSION),
        }
    }

    /// Whether a version is among these.
    pub fn has(self, version: u16) -> bool {
        (self.least..=self.most).contains(&version)
    }

    /// The version that nodes of these two builds speak, if there is one.
    pub fn with(self, other: Spoken) -> Option<u16> {
        let newest = self.most.min(other.most);
        (self.has(newest) && other.has(newest)).then_some(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(least: u16, most: u16) -> Spoken {
        Spoken { least, most }
    }

    #[test]
    fn two_builds_speak_the_newest_that_both_know() {
        assert_eq!(of(1, 2).with(of(1, 3)), Some(2));
        assert_eq!(of(1, 3).with(of(1, 2)), Some(2));
        assert_eq!(of(1, 1).with(of(1, 1)), Some(1));
        assert_eq!(of(2, 3).with(of(1, 2)), Some(2));
        assert_eq!(of(2, 3).with(Spoken::FIRST), None);
        assert_eq!(Spoken::FIRST.with(of(2, 3)), None);
    }

    #[test]
    fn the_text_in_the_program_says_what_the_source_does() {
        assert_eq!(Spoken::here().most, VERSION);
        assert!(Spoken::here().has(VERSION));
        assert!(!Spoken::here().has(VERSION + 1));
        assert!(!Spoken::here().has(VERSION_MIN - 1));
    }
}
