//! The origin of a file: the tenant and the history it belongs to.

use std::{
    collections::hash_map::RandomState,
    fmt,
    hash::{BuildHasher, Hasher},
    time::UNIX_EPOCH,
};

use aerostat_types::{Clock, TenantId};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A history of commits. A new database begins one, and so does a restored one: from
/// there on the same LSN means something else than in the database it came from. Log and
/// checkpoint say which they are of, so that they are never taken for one another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeline(pub(crate) u64);

/// Of which tenant a file is, and of which of its histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) tenant: TenantId,
    pub(crate) timeline: Timeline,
}

impl Timeline {
    /// One that there has not been: 64 random bits, of the hasher that the standard library
    /// seeds from the operating system, and the time.
    pub fn begin(clock: &dyn Clock) -> Timeline {
        let mut hasher = RandomState::new().build_hasher();
        let now = clock.wall().duration_since(UNIX_EPOCH);
        hasher.write_u128(now.map_or(0, |now| now.as_nanos()));
        hasher.write_u32(std::process::id());
        Timeline(hasher.finish())
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

// As text: numbers beyond 2^53 do not survive every reader of JSON.
impl Serialize for Timeline {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timeline {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16)
            .map(Timeline)
            .map_err(|_| D::Error::custom("no timeline"))
    }
}
