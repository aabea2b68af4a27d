//! How much of a node a tenant uses: loads, how a load is divided over a tenant's copies, and the model
//! that turns rates and sizes into loads.
//!
//! The model is text 001's, "Workload": a tenant that is asked at `rate` and has `size` bytes puts
//! `rate · size^m / C` on a node, with `m = 0.95`. At 1.0 a node of capacity 1.0 only just meets its goal for
//! the 99th percentile of response times.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a number is no load, share or constant.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum ValueError {
    /// A load that is negative, infinite, no number, or above [`Load::MAX`].
    #[error("{0} is no load: it has to be a number from 0 to {max}", max = Load::MAX)]
    Load(f64),
    /// A share that is not between 0 and 1.
    #[error("{0} is no share: it has to be a number from 0 to 1")]
    Share(f64),
    /// Shares of one whole that are more than the whole.
    #[error("written and shared parts are {0} of a load together, more than 1")]
    Split(f64),
    /// An exponent or constant of the model, a rate or a time that is negative, infinite, no number, or
    /// zero where it divides.
    #[error("{0} is no {1} of a load model")]
    Model(f64, &'static str),
}

/// A load, or a capacity for load: 1.0 is the load at which a reference node only just meets its goal.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Load(f64);

impl Load {
    /// No load.
    pub const ZERO: Self = Self(0.0);

    /// The largest load of a tenant and the largest capacity of a node.
    pub const MAX: f64 = 1_000.0;

    /// # Errors
    /// [`ValueError::Load`] below 0, above [`Load::MAX`], or when it is no number.
    pub fn new(load: f64) -> Result<Self, ValueError> {
        if (0.0..=Self::MAX).contains(&load) {
            Ok(Self(load))
        } else {
            Err(ValueError::Load(load))
        }
    }

    /// As a number.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }

    /// The larger of two.
    #[must_use]
    pub fn larger(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }
}

impl TryFrom<f64> for Load {
    type Error = ValueError;

    fn try_from(load: f64) -> Result<Self, ValueError> {
        Self::new(load)
    }
}

impl From<Load> for f64 {
    fn from(load: Load) -> f64 {
        load.0
    }
}

/// A part of a whole, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Share(f64);

impl Share {
    /// Nothing.
    pub const ZERO: Self = Self(0.0);

    /// # Errors
    /// [`ValueError::Share`] below 0, above 1, or when it is no number.
    pub fn new(share: f64) -> Result<Self, ValueError> {
        if (0.0..=1.0).contains(&share) {
            Ok(Self(share))
        } else {
            Err(ValueError::Share(share))
        }
    }

    /// As a number; the default policy's are known to be shares.
    pub(crate) const fn known(share: f64) -> Self {
        assert!(share >= 0.0 && share <= 1.0);
        Self(share)
    }

    /// As a number.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Share {
    type Error = ValueError;

    fn try_from(share: f64) -> Result<Self, ValueError> {
        Self::new(share)
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> f64 {
        share.0
    }
}

/// How a tenant's load is divided over its copies.
///
/// ```text
///  load = written          every copy bears all of it: each applies the log
///       + shared           divided evenly over the live copies: reads that any copy may answer
///       + the rest         the leader's alone: strong reads
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "SplitParts", into = "SplitParts")]
pub struct LoadSplit {
    written: Share,
    shared: Share,
}

/// A [`LoadSplit`] as it is written down.
#[derive(Serialize, Deserialize)]
struct SplitParts {
    written: Share,
    shared: Share,
}

impl LoadSplit {
    /// A router balances everything over the copies, and writes cost nothing: text 001's.
    pub const BALANCED: Self = Self {
        written: Share(0.0),
        shared: Share(1.0),
    };

    /// # Errors
    /// [`ValueError::Split`] when both together are more than 1.
    pub fn new(written: Share, shared: Share) -> Result<Self, ValueError> {
        let both = written.0 + shared.0;
        if both > 1.0 {
            return Err(ValueError::Split(both));
        }
        Ok(Self { written, shared })
    }

    /// The part of the load that every copy bears.
    #[must_use]
    pub fn written(self) -> Share {
        self.written
    }

    /// The part of the load that live copies divide among themselves.
    #[must_use]
    pub fn shared(self) -> Share {
        self.shared
    }
}

impl Default for LoadSplit {
    /// Only leaders answer reads, and a tenth of the load is writes. Text 001 found that batch writes hardly
    /// lower the highest rate, so a tenth is on the safe side until it is measured.
    fn default() -> Self {
        Self {
            written: Share(0.1),
            shared: Share(0.0),
        }
    }
}

impl TryFrom<SplitParts> for LoadSplit {
    type Error = ValueError;

    fn try_from(parts: SplitParts) -> Result<Self, ValueError> {
        Self::new(parts.written, parts.shared)
    }
}

impl From<LoadSplit> for SplitParts {
    fn from(split: LoadSplit) -> Self {
        Self {
            written: split.written,
            shared: split.shared,
        }
    }
}
