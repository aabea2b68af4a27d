//! Columns that become identity columns, change as such, or cease to be.
//!
//! A column that becomes one gets a new sequence, as in CREATE TABLE. Changed sequence options
//! change its sequence, as ALTER SEQUENCE does. A column that ceases to be one keeps its rows and
//! NOT NULL.

use std::{collections::BTreeSet, sync::Arc};

use aerostat_sql::{sequence_options::Options, utility::TableAction};
use aerostat_txn::LockMode;
use aerostat_types::{ErrorKind, SqlError, TableId};

use super::{
    PendingAlter,
    design::{Design, Designing},
};
use crate::{
    actor::Actor,
    ddl::{
        definition::require_integer,
        drop::{depended_on, shown},
        privilege::relation_mut,
        sequence::{self, NeedyDefault, Wanted},
    },
    state::{CatalogState, Draft, Relation, SequenceEntry},
};

/// What is said of an identity column.
#[derive(Clone, Debug)]
pub(super) struct IdentityChange {
    column: String,
    is_always: Option<bool>,
    options: Options,
}

impl Designing<'_> {
    /// Whether a column has been an identity column and still is.
    pub(super) fn is_identity(&self, column: &str) -> bool {
        self.identities.contains_key(column) && !self.dropped_identities.contains(column)
    }

    /// The sequence that makes a column an identity column.
    fn new_identity(&mut self, column: &str) -> Option<&mut Wanted> {
        let mut wanted = self.sequences.iter_mut();
        wanted.find(|wanted| wanted.column == column && wanted.is_always.is_some())
    }

    pub(super) fn drop_identity(&mut self, column: &str, if_exists: bool) -> Result<(), SqlError> {
        self.position(column)?;
        if self.is_identity(column) {
            self.dropped_identities.insert(column.to_owned());
            return Ok(());
        }
        let error = self.unsuitable(column, "is not an identity column");
        if !if_exists {
            return Err(error);
        }
        self.skip(error.kind, &error.message);
        Ok(())
    }

    pub(super) fn add_identity(&mut self, action: &TableAction) -> Result<(), SqlError> {
        let TableAction::AddIdentity {
            column,
            is_always,
            sequence,
            options,
        } = action
        else {
            return Ok(());
        };
        let at = self.position(column)?;
        let found = &self.schema.columns[at];
        let (ty, nullable) = (found.ty, found.nullable);
        let is_serial = self.sequences.iter().any(|wanted| wanted.column == *column);
        let has_default = found.default.is_some() || is_serial;
        require_integer(ty)?;
        if nullable {
            let message = "must be declared NOT NULL before identity can be added";
            return Err(self.unsuitable(column, message));
        }
        if self.is_identity(column) || self.new_identity(column).is_some() {
            return Err(self.unsuitable(column, "is already an identity column"));
        }
        if has_default {
            return Err(self.unsuitable(column, "already has a default value"));
        }
        self.sequences.push(Wanted {
            column: column.clone(),
            ty,
            is_always: Some(*is_always),
            name: sequence.clone(),
            options: Options::clone(options),
        });
        Ok(())
    }

    pub(super) fn set_identity(&mut self, action: &TableAction) -> Result<(), SqlError> {
        let TableAction::SetIdentity {
            column,
            is_always,
            options,
        } = action
        else {
            return Ok(());
        };
        self.position(column)?;
        if let Some(wanted) = self.new_identity(column) {
            if **options != Options::default() {
                return Err(SqlError::new(
                    ErrorKind::FeatureNotSupported,
                    "adding an identity and altering its sequence at once is not supported",
                )
                .with_hint("Say all of it in ADD GENERATED."));
            }
            wanted.is_always = is_always.or(wanted.is_always);
            return Ok(());
        }
        if !self.is_identity(column) {
            return Err(self.unsuitable(column, "is not an identity column"));
        }
        self.identity_changes.push(IdentityChange {
            column: column.clone(),
            is_always: *is_always,
            options: Options::clone(options),
        });
        Ok(())
    }

    fn unsuitable(&self, column: &str, why: &str) -> SqlError {
        SqlError::new(
            ErrorKind::ObjectNotInPrerequisiteState,
            format!("column \"{column}\" of relation \"{}\" {why}", self.table),
        )
    }
}

impl PendingAlter {
    /// The columns that stay identity columns, as they are to be.
    pub(super) fn keep_identities(&mut self, design: &Design) {
        let mut identities = self.before.identities.clone();
        identities
            .retain(|column, _| self.keeps(column) && !design.dropped_identities.contains(column));
        for change in &self.identity_changes {
            if let (Some(identity), Some(is_always)) =
                (identities.get_mut(&change.column), change.is_always)
            {
                identity.is_always = is_always;
            }
        }
        self.identities = identities;
    }

    /// Their sequences go, unless defaults of other columns need them.
    pub(super) fn drop_identities(
        &mut self,
        state: &CatalogState,
        actor: &Actor,
        design: &Design,
    ) -> Result<(), SqlError> {
        for column in &design.dropped_identities {
            let identity = self.before.identities.get(column);
            let found = identity.and_then(|identity| state.sequence(identity.sequence));
            let Some((schema, entry)) = found else {
                continue;
            };
            let place = sequence::place_of(&schema.name, entry);
            let name = format!("sequence {}", shown(state, actor, &place));
            let needy = sequence::needy_defaults(state, &BTreeSet::from([entry.oid]));
            let line = |NeedyDefault { table, column, .. }: NeedyDefault| {
                let of = format!("column {column} of table {}", shown(state, actor, &table));
                (format!("default value for {of}"), name.clone())
            };
            let lines: Vec<(String, String)> = needy.into_iter().map(line).collect();
            if !lines.is_empty() {
                let message = format!("cannot drop {name} because other objects depend on it");
                return Err(depended_on(message, &lines));
            }
            self.dropped_sequences.insert(place);
        }
        Ok(())
    }

    /// Locks the sequences that are to be others, or to go: nobody takes numbers until the
    /// transaction ends.
    pub(super) fn lock_identities(&self, draft: &Draft) -> Result<(), SqlError> {
        let before = &self.before.identities;
        let gone = before
            .keys()
            .filter(|column| !self.identities.contains_key(*column));
        let changed = self.identity_changes.iter().map(|change| &change.column);
        for column in gone.chain(changed) {
            if let Some(identity) = before.get(column) {
                draft.lock(identity.sequence, LockMode::AccessExclusive)?;
            }
        }
        Ok(())
    }

    /// Sequences become what is said of them.
    pub(super) fn settle_identities(
        &self,
        draft: &Draft,
        state: &mut CatalogState,
    ) -> Result<(), SqlError> {
        for IdentityChange {
            column, options, ..
        } in &self.identity_changes
        {
            let identity = self.identities.get(column);
            let found = identity.and_then(|identity| state.sequence(identity.sequence));
            let Some((schema, entry)) = found.filter(|_| *options != Options::default()) else {
                continue;
            };
            let (place, entry) = (sequence::place_of(&schema.name, entry), Arc::clone(entry));
            let position = entry.counter.position()?;
            let (definition, start) = entry.definition.altered(options, position)?;
            let id = TableId(state.allocate_oid()?);
            let is_temporary = entry.counter.is_temporary();
            let counter = draft.create_counter(id, start, is_temporary)?;
            *relation_mut(state, &place)? = Relation::Sequence(Arc::new(SequenceEntry {
                definition,
                counter,
                ..SequenceEntry::clone(&entry)
            }));
        }
        Ok(())
    }
}
