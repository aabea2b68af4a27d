//! Configurations in a store that compares and swaps: the document of a version is the one of that epoch.

use aerostat_replication::Config;
use aerostat_storage::{MetaStore, Swapped, Version, Versioned};

/// What the store has; `None` if it cannot be known, which is asked again.
pub(crate) fn load(store: &dyn MetaStore) -> Option<Option<Config>> {
    match store.load() {
        Ok(found) => known(found),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the configuration of copies cannot be read"
            );
            None
        }
    }
}

/// Has the store have a configuration behind the one before it, and gives what it has then; `None` if that cannot
/// be known.
pub(crate) fn swap(store: &dyn MetaStore, config: &Config) -> Option<Option<Config>> {
    let expected = config.epoch.0.checked_sub(1)?;
    let expected = (expected > 0).then_some(Version(expected));
    let document = serde_json::to_vec(config).expect("a configuration has no odd map keys");
    match store.compare_and_swap(expected, &document) {
        Ok(Swapped::Done(_)) => Some(Some(config.clone())),
        Ok(Swapped::Lost(found)) => known(found),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the configuration of copies cannot be replaced"
            );
            None
        }
    }
}

/// The configuration of a document.
fn known(found: Option<Versioned>) -> Option<Option<Config>> {
    let Some(found) = found else {
        return Some(None);
    };
    let config: Option<Config> = serde_json::from_slice(&found.document).ok();
    let config = config.filter(|config| config.epoch.0 == found.version.0);
    if config.is_none() {
        tracing::error!(version = %found.version, "no configuration of copies is like this");
    }
    config.map(Some)
}
