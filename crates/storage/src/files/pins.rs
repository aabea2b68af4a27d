//! Images that stay though no checkpoint names them any more, while copies of the tenant are made of them.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

/// The files of one checkpoint, kept until this is dropped and a checkpoint comes by.
#[derive(Debug)]
pub(crate) struct Pin {
    names: HashSet<String>,
}

impl Pin {
    /// Whether the checkpoint has a file of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}

/// All pins of a tenant.
#[derive(Debug, Default)]
pub(crate) struct Pins(Mutex<Vec<Weak<Pin>>>);

impl Pins {
    /// Keeps files of these names. The caller has the checkpoint locked, so that they are there still.
    pub(crate) fn add(&self, names: HashSet<String>) -> Arc<Pin> {
        let pin = Arc::new(Pin { names });
        let mut all = self.0.lock();
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&pin));
        pin
    }

    /// Those that somebody has.
    pub(crate) fn living(&self) -> Vec<Arc<Pin>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
