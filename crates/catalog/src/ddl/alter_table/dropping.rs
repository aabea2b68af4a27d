//! Removals from a table's definition: columns, constraints, defaults, NOT NULL.

use aerostat_sql::utility::TableAction;
use aerostat_types::{CheckConstraint, ErrorKind, IndexId, SqlError};

use super::{super::expression, design::Designing};
use crate::state::IndexEntry;

/// An index that goes, and what went for that.
#[derive(Clone)]
pub(super) struct Gone {
    pub(super) oid: IndexId,
    /// What the statement drops, as messages show it.
    pub(super) dropped: String,
    /// What others need of that.
    pub(super) needed: String,
    /// CASCADE.
    pub(super) cascade: bool,
}

/// What is being dropped, and whether with CASCADE.
#[derive(Clone, Copy)]
enum Dropping<'a> {
    Column(&'a str, bool),
    Constraint(&'a str, bool),
}

impl Designing<'_> {
    /// What goes: columns, constraints, defaults, NOT NULL.
    pub(super) fn take_away(&mut self, action: &TableAction) -> Result<(), SqlError> {
        match action {
            TableAction::DropColumn {
                if_exists,
                name,
                cascade,
            } => match self.schema.position(name) {
                Some(at) => {
                    self.dropped.push((name.clone(), *cascade));
                    self.drop_column(at, *cascade)
                }
                None if *if_exists => {
                    self.skip(ErrorKind::UndefinedColumn, &self.no_column(name).message);
                    Ok(())
                }
                None => Err(self.no_column(name)),
            },
            TableAction::DropConstraint {
                if_exists,
                name,
                cascade,
            } => {
                if self.drop_constraint(name, *cascade) {
                    return Ok(());
                }
                let error = self.no_constraint(name);
                if !if_exists {
                    return Err(error);
                }
                self.skip(ErrorKind::UndefinedObject, &error.message);
                Ok(())
            }
            TableAction::SetDefault {
                column,
                default: None,
            } => {
                let at = self.position(column)?;
                self.refuse_identity(column)?;
                self.schema.columns[at].default = None;
                Ok(())
            }
            TableAction::DropIdentity { column, if_exists } => {
                self.drop_identity(column, *if_exists)
            }
            TableAction::SetNullable {
                column,
                nullable: true,
            } => {
                let at = self.position(column)?;
                self.refuse_identity(column)?;
                if self.is_in_key(at) {
                    return Err(SqlError::new(
                        ErrorKind::InvalidTableDefinition,
                        format!("column \"{column}\" is in a primary key"),
                    ));
                }
                self.schema.columns[at].nullable = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Drops a column with every index and constraint that has it, as PostgreSQL does.
    fn drop_column(&mut self, at: usize, cascade: bool) -> Result<(), SqlError> {
        if self.schema.columns.len() == 1 {
            return Err(SqlError::new(
                ErrorKind::FeatureNotSupported,
                "tables without columns are not supported",
            ));
        }
        let name = self.schema.columns[at].name.clone();
        let mentions = |check: &CheckConstraint| expression::mentions(&check.expression, &name);
        self.schema.checks.retain(|check| !mentions(check));
        let dropping = Dropping::Column(&name, cascade);
        if self.schema.primary_key.contains(&at) {
            self.drop_key(dropping);
        }
        self.drop_indexes(dropping, |_, columns| columns.contains(&name));
        for position in &mut self.schema.primary_key {
            *position -= usize::from(*position > at);
        }
        self.schema.columns.remove(at);
        self.sources.remove(at);
        self.foreign_keys
            .retain(|(_, columns)| !columns.contains(&name));
        Ok(())
    }

    fn drop_key(&mut self, dropping: Dropping<'_>) {
        self.schema.primary_key.clear();
        let name = std::mem::take(&mut self.schema.primary_key_name);
        self.note_gone(self.key_oid, name, dropping);
    }

    fn drop_indexes(
        &mut self,
        dropping: Dropping<'_>,
        goes: impl Fn(&IndexEntry, &[String]) -> bool,
    ) {
        let (gone, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.indexes)
            .into_iter()
            .partition(|(index, columns)| goes(index, columns));
        self.indexes = kept;
        for (index, _) in gone {
            self.note_gone(index.oid, index.index.name, dropping);
        }
    }

    fn note_gone(&mut self, oid: IndexId, index: String, dropping: Dropping<'_>) {
        let table = self.table;
        let (dropped, needed, cascade) = match dropping {
            Dropping::Column(name, cascade) => {
                let column = format!("column {name} of table {table}");
                (column.clone(), column, cascade)
            }
            Dropping::Constraint(name, cascade) => (
                format!("constraint {name} on table {table}"),
                format!("index {index}"),
                cascade,
            ),
        };
        self.gone.push(Gone {
            oid,
            dropped,
            needed,
            cascade,
        });
        self.freed.insert(index);
    }

    /// Whether a column is one of the primary key, which may be deferrable.
    fn is_in_key(&self, at: usize) -> bool {
        let name = &self.schema.columns[at].name;
        let mut indexes = self.indexes.iter();
        self.schema.primary_key.contains(&at)
            || indexes.any(|(index, columns)| index.is_primary && columns.contains(name))
    }

    /// Whether there was such a constraint.
    fn drop_constraint(&mut self, name: &str, cascade: bool) -> bool {
        let dropping = Dropping::Constraint(name, cascade);
        if self.is_key(name) {
            self.drop_key(dropping);
            return true;
        }
        let before = self.constraints();
        self.schema.checks.retain(|check| check.name != name);
        self.foreign_keys.retain(|(key, _)| key.name != name);
        self.drop_indexes(dropping, |index, _| {
            index.is_constraint && index.index.name == name
        });
        self.constraints() < before
    }
}
