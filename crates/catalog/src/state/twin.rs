//! A database as a node has it that copies it, for tests.

use std::sync::{Arc, atomic::AtomicI64};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};

use super::{Catalog, CopyState, Database, Statements};

impl Database {
    /// The same rows, and the catalogue as it is now, as a node has them that copies the database: for tests
    /// of what sessions do on copies.
    #[doc(hidden)]
    pub fn as_copy(&self, copy: Arc<CopyState>) -> Arc<Self> {
        Arc::new(Self {
            id: self.id,
            name: RwLock::new(self.name.read().clone()),
            catalog: Catalog {
                state: ArcSwap::new(self.catalog.load()),
                committing: Mutex::new(()),
            },
            store: Arc::clone(&self.store),
            connections: AtomicI64::new(0),
            statements: Statements::default(),
            copy: Some(copy),
        })
    }
}
