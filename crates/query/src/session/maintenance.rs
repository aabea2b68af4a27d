//! VACUUM, ANALYZE, CHECKPOINT, REINDEX: what a user may ask for that upkeep
//! also does by itself.

use std::sync::Arc;

use aerostat_storage::Table;
use aerostat_types::{ErrorKind, SqlError};

use super::{Session, cancel::Cancellation, command::blocking};
use crate::{
    api::Outcome,
    catalog::{CatalogState, Relation},
    ddl::{Actor, QualifiedName},
    error::from_storage,
    utility::{MaintenanceCommand, Utility},
};

impl Session {
    pub(super) async fn run_maintenance(
        &mut self,
        command: &MaintenanceCommand,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        let actor = self.actor()?;
        let database = Arc::clone(self.connection.database());
        let state = self.catalog()?;
        match command {
            MaintenanceCommand::Vacuum { tables, freeze } => {
                let tables = if tables.is_empty() {
                    state.tables()
                } else {
                    named_tables(&state, &actor, tables)?
                };
                let freeze = *freeze;
                let work =
                    blocking(move || tables.iter().try_for_each(|table| vacuum(table, freeze)));
                self.on_query_runtime(work, cancellation).await??;
            }
            MaintenanceCommand::Analyze { tables } => {
                named_tables(&state, &actor, tables)?;
            }
            MaintenanceCommand::Reindex(table) => {
                named_tables(&state, &actor, table.as_slice())?;
            }
            MaintenanceCommand::Checkpoint => {
                if !(actor.superuser || actor.database_owner) {
                    return Err(SqlError::new(
                        ErrorKind::InsufficientPrivilege,
                        "must be superuser or owner of the database to do CHECKPOINT",
                    ));
                }
                let work =
                    blocking(move || database.store.checkpoint().map(drop).map_err(from_storage));
                self.on_query_runtime(work, cancellation).await??;
            }
        }
        Ok(Outcome::Command {
            tag: Utility::Maintenance(command.clone()).tag().to_owned(),
        })
    }
}

fn vacuum(table: &Arc<Table>, freeze: bool) -> Result<(), SqlError> {
    table.vacuum().map_err(from_storage)?;
    if freeze {
        table.freeze().map_err(from_storage)?;
    }
    Ok(())
}

fn named_tables(
    state: &CatalogState,
    actor: &Actor,
    names: &[QualifiedName],
) -> Result<Vec<Arc<Table>>, SqlError> {
    names
        .iter()
        .map(|name| match actor.resolve(state, name)?.relation {
            Relation::Table(entry) => Ok(Arc::clone(&entry.table)),
            Relation::View(_) | Relation::Sequence(_) => Err(SqlError::new(
                ErrorKind::WrongObjectType,
                format!("\"{name}\" is not a table"),
            )),
        })
        .collect()
}
