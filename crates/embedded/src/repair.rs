//! Examining and repairing a data folder that nobody has open.

use std::{path::Path, sync::Arc};

use aerostat_catalog::admin::{self, Examined, Host};
use aerostat_memory::Governor;
use aerostat_objects::ObjectPlaces;
use aerostat_types::ByteSize;

use crate::{OpenError, aerostat::not_opened};

/// What is examined, and whether it is repaired.
#[derive(Clone, Debug)]
pub struct RepairOptions {
    /// Memory for a database's rows, which are loaded.
    pub memory: ByteSize,
    /// The only database; `None` for all.
    pub database: Option<String>,
    /// Whether what cannot be read is given up. Damaged folders are set aside, not removed.
    pub accept_loss: bool,
}

/// Opens each database of a data folder, and makes those that cannot be opened such that they
/// can, if the loss is accepted.
///
/// # Errors
/// [`OpenError::InUse`] while another has the folder open; its catalogue cannot be read, there
/// is no such database, or the disk refuses.
pub fn repair(data: &Path, options: &RepairOptions) -> Result<Vec<Examined>, OpenError> {
    admin::repair(
        data,
        &Host::new(Governor::new(options.memory), Arc::new(ObjectPlaces::new())),
        options.database.as_deref(),
        options.accept_loss,
    )
    .map_err(|error| not_opened(data.to_owned(), error))
}
