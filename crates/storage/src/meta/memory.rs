//! A catalogue in memory only.

use std::{path::PathBuf, time::Duration};

use parking_lot::{Condvar, Mutex};

use super::{MetaError, MetaStore, Swapped, Version, Versioned, newer};

/// A document in memory. Writers that share one see each other's.
#[derive(Debug, Default)]
pub struct MetaMemory {
    kept: Mutex<Option<Versioned>>,
    replaced: Condvar,
}

impl MetaStore for MetaMemory {
    fn place(&self) -> PathBuf {
        PathBuf::from("memory")
    }

    fn load(&self) -> Result<Option<Versioned>, MetaError> {
        Ok(self.kept.lock().clone())
    }

    fn compare_and_swap(
        &self,
        expected: Option<Version>,
        document: &[u8],
    ) -> Result<Swapped, MetaError> {
        let mut kept = self.kept.lock();
        let found = kept.as_ref().map(|kept| kept.version);
        if found != expected {
            return Ok(Swapped::Lost(kept.clone()));
        }
        let version = Version(found.unwrap_or_default().0 + 1);
        *kept = Some(Versioned {
            version,
            document: document.to_vec(),
        });
        self.replaced.notify_all();
        Ok(Swapped::Done(version))
    }

    fn wait_newer(
        &self,
        known: Option<Version>,
        timeout: Duration,
    ) -> Result<Option<Versioned>, MetaError> {
        let mut kept = self.kept.lock();
        Ok(newer(&mut kept, &self.replaced, known, timeout))
    }
}
