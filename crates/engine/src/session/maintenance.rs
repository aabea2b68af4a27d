//! VACUUM, ANALYZE, CHECKPOINT, REINDEX: what a user may ask for that upkeep
//! also does by itself.

use std::sync::Arc;

use aerostat_api::{Notice, NoticeSeverity, Outcome};
use aerostat_catalog::{Actor, CatalogState, Relation, TableEntry, ddl, failure::from_storage};
use aerostat_query::Cancellation;
use aerostat_sql::{
    grants::PredefinedRole,
    utility::{MaintenanceCommand, TableColumns, Utility},
};
use aerostat_storage::Table;
use aerostat_types::{ErrorKind, SqlError};

use super::{ClientState, SessionView, command::blocking};

impl SessionView<'_> {
    pub(super) async fn run_maintenance(
        self,
        command: &MaintenanceCommand,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        let actor = self.executor.actor(self.client)?;
        let database = Arc::clone(self.executor.database());
        let state = self.catalog()?;
        match command {
            MaintenanceCommand::Vacuum { tables, freeze } => {
                let tables = self.client.tables_to(&state, &actor, tables, "vacuum")?;
                let freeze = *freeze;
                let work =
                    blocking(move || tables.iter().try_for_each(|table| vacuum(table, freeze)));
                self.executor.on_query_runtime(work, cancellation).await??;
            }
            MaintenanceCommand::Analyze { tables } => {
                self.client.tables_to(&state, &actor, tables, "analyze")?;
                self.client.has_nothing_to_do("ANALYZE", "statistics");
            }
            MaintenanceCommand::Reindex(target) => {
                ddl::reindex(&state, &actor, target)?;
                self.client.has_nothing_to_do("REINDEX", "indexes");
            }
            MaintenanceCommand::Checkpoint => {
                let node = self.executor.engine.node();
                if !node.is_member(&actor.role, PredefinedRole::PgCheckpoint) {
                    return Err(SqlError::new(
                        ErrorKind::InsufficientPrivilege,
                        "must be superuser or have privileges of pg_checkpoint to do CHECKPOINT",
                    ));
                }
                let work =
                    blocking(move || database.store.checkpoint().map(drop).map_err(from_storage));
                self.executor.on_query_runtime(work, cancellation).await??;
            }
        }
        Ok(Outcome::Command {
            tag: Utility::Maintenance(command.clone()).tag().to_owned(),
        })
    }
}

impl ClientState {
    /// The tables that a command names by its verb, or all, their columns checked. As in PostgreSQL, other
    /// relations and others' tables are passed over with a warning.
    fn tables_to(
        &self,
        state: &CatalogState,
        actor: &Actor,
        named: &[TableColumns],
        verb: &str,
    ) -> Result<Vec<Arc<Table>>, SqlError> {
        if named.is_empty() {
            let mut all = state.table_entries();
            all.retain(|entry| self.may_keep_up(actor, entry, verb));
            return Ok(all.iter().map(|entry| Arc::clone(&entry.table)).collect());
        }
        let mut tables = Vec::new();
        for TableColumns {
            table: name,
            columns,
        } in named
        {
            match actor.resolve(state, name)?.relation {
                Relation::Table(entry) if !self.may_keep_up(actor, entry, verb) => {}
                Relation::Table(entry) => {
                    check_columns(entry, columns)?;
                    tables.push(Arc::clone(&entry.table));
                }
                Relation::View(_) | Relation::Sequence(_) => {
                    let message = format!(
                        "skipping \"{}\" --- cannot {verb} non-tables or special system tables",
                        name.name
                    );
                    self.notices
                        .tell(Notice::new(NoticeSeverity::Warning, message));
                }
            }
        }
        Ok(tables)
    }

    /// Whether the table is the actor's to keep up, or in the actor's database; if not, says so.
    fn may_keep_up(&self, actor: &Actor, entry: &TableEntry, verb: &str) -> bool {
        let may = actor.owns(&entry.owner) || actor.database_owner;
        if !may {
            let table = &entry.name;
            let message =
                format!("skipping \"{table}\" --- only table or database owner can {verb} it");
            self.notices
                .tell(Notice::new(NoticeSeverity::Warning, message));
        }
        may
    }

    fn has_nothing_to_do(&self, command: &str, what: &str) {
        let message = format!("{command} has nothing to do: {what} are kept with every write");
        self.notices
            .tell(Notice::new(NoticeSeverity::Notice, message));
    }
}

fn check_columns(entry: &TableEntry, columns: &[String]) -> Result<(), SqlError> {
    let schema = entry.table.schema();
    for (at, column) in columns.iter().enumerate() {
        let (kind, problem) = if schema.position(column).is_none() {
            (ErrorKind::UndefinedColumn, "does not exist")
        } else if columns[..at].contains(column) {
            (ErrorKind::DuplicateColumn, "appears more than once")
        } else {
            continue;
        };
        let message = format!(
            "column \"{column}\" of relation \"{}\" {problem}",
            entry.name
        );
        return Err(SqlError::new(kind, message));
    }
    Ok(())
}

fn vacuum(table: &Arc<Table>, freeze: bool) -> Result<(), SqlError> {
    table.vacuum().map_err(from_storage)?;
    if freeze {
        table.freeze().map_err(from_storage)?;
    }
    Ok(())
}
