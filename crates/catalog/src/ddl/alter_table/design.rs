//! What the actions of an ALTER TABLE make of a table's definition. Pure.
//!
//! ```text
//!  the table ──► drops ──► types ──► new columns, constraints ──► defaults, NOT NULL ──► Design
//!  as it is       (1)        (2)               (3)                        (4)
//! ```
//!
//! Actions are done in PostgreSQL's order, whatever the order in the statement: removals make
//! room for additions, and identities come last. Columns keep their names meanwhile, so
//! everything is found by name; positions are computed at the end.

use std::collections::{BTreeMap, BTreeSet};

use aerostat_api::{Notice, NoticeSeverity};
use aerostat_sql::{
    deferral::Deferral,
    names::{cut, folded},
    sequence_text as text,
    sql_type::sql_type,
    utility::{RoleName, TableAction},
};
use aerostat_types::{Column, ErrorKind, IndexId, SqlError, SqlType, TableSchema};
use sqlparser::ast::{self, TableConstraint};

use super::{
    super::{
        definition::{Defined, Definition, check_collation, refuse_columns, require_integer},
        expression,
        foreign_key::WrittenForeignKey,
        sequence::Wanted,
    },
    dropping::Gone,
    identity::IdentityChange,
};
use crate::state::{ForeignKey, Identity, IndexEntry, TableEntry};

/// Where the values of a column come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The column that was at this position.
    Kept(usize),
    /// The column that was at this position, in another type: by USING, or by a cast.
    Converted(usize, Option<Box<ast::Expr>>),
    /// The column's default, or NULL.
    Added,
}

/// A table's definition as its actions leave it.
pub(super) struct Design {
    pub(super) schema: TableSchema,
    /// Of each column.
    pub(super) sources: Vec<Source>,
    /// The secondary indexes that stay.
    pub(super) indexes: Vec<IndexEntry>,
    /// The indexes of UNIQUE constraints that come, and of a deferrable primary key, without
    /// numbers.
    pub(super) new_indexes: Vec<IndexEntry>,
    /// The foreign keys that stay.
    pub(super) foreign_keys: Vec<ForeignKey>,
    /// The foreign keys that come.
    pub(super) new_foreign_keys: Vec<NewForeignKey>,
    /// Names of foreign keys that stay and that rows have to be checked by.
    pub(super) keys_to_verify: BTreeSet<String>,
    /// The unique indexes, and the key's, that go.
    pub(super) gone: Vec<Gone>,
    /// Names of constraints that rows have to be checked by.
    pub(super) checks_to_verify: BTreeSet<String>,
    /// Positions of columns that have come to refuse NULL.
    pub(super) columns_to_verify: Vec<usize>,
    /// Columns that are dropped, each with whether CASCADE is said.
    pub(super) dropped: Vec<(String, bool)>,
    /// The sequences of new columns, and of those that become identity columns.
    pub(super) sequences: Vec<Wanted>,
    /// What is said of identity columns, and which are none any more.
    pub(super) identity_changes: Vec<IdentityChange>,
    pub(super) dropped_identities: BTreeSet<String>,
    pub(super) owner: Option<RoleName>,
}

/// A foreign key that comes.
pub(super) struct NewForeignKey {
    /// What it refers to is not known yet.
    pub(super) written: WrittenForeignKey,
    /// Whether rows that are there have to meet it.
    pub(super) is_valid: bool,
}

/// A definition under way.
pub(super) struct Designing<'a> {
    pub(super) table: &'a str,
    pub(super) schema: TableSchema,
    pub(super) sources: Vec<Source>,
    /// With the names of their columns.
    pub(super) indexes: Vec<(IndexEntry, Vec<String>)>,
    new_indexes: Vec<IndexEntry>,
    pub(super) foreign_keys: Vec<(ForeignKey, Vec<String>)>,
    new_foreign_keys: Vec<NewForeignKey>,
    pub(super) key_oid: IndexId,
    pub(super) gone: Vec<Gone>,
    checks_to_verify: BTreeSet<String>,
    keys_to_verify: BTreeSet<String>,
    pub(super) dropped: Vec<(String, bool)>,
    pub(super) sequences: Vec<Wanted>,
    pub(super) identities: &'a BTreeMap<String, Identity>,
    pub(super) identity_changes: Vec<IdentityChange>,
    pub(super) dropped_identities: BTreeSet<String>,
    /// Names of indexes that have gone.
    pub(super) freed: BTreeSet<String>,
    owner: Option<RoleName>,
    notices: &'a mut Vec<Notice>,
}

/// The definition that a table comes to have. `taken` says which names relations of the
/// schema have.
///
/// # Errors
/// As PostgreSQL: names that are there or not there, contradictions.
pub(super) fn design(
    entry: &TableEntry,
    actions: &[TableAction],
    taken: &dyn Fn(&str) -> bool,
    notices: &mut Vec<Notice>,
) -> Result<Design, SqlError> {
    let before = entry.table.schema();
    let mut designing = Designing {
        table: &entry.name,
        schema: TableSchema::clone(before),
        sources: (0..before.columns.len()).map(Source::Kept).collect(),
        indexes: entry
            .indexes
            .iter()
            .map(|index| (index.clone(), names_at(before, &index.index.columns)))
            .collect(),
        new_indexes: Vec::new(),
        foreign_keys: entry
            .foreign_keys
            .iter()
            .map(|key| (key.clone(), names_at(before, &key.columns)))
            .collect(),
        new_foreign_keys: Vec::new(),
        key_oid: entry.key_oid,
        gone: Vec::new(),
        checks_to_verify: BTreeSet::new(),
        keys_to_verify: BTreeSet::new(),
        dropped: Vec::new(),
        sequences: Vec::new(),
        identities: &entry.identities,
        identity_changes: Vec::new(),
        dropped_identities: BTreeSet::new(),
        freed: BTreeSet::new(),
        owner: None,
        notices,
    };
    for action in actions {
        designing.take_away(action)?;
    }
    for action in actions {
        designing.set_type(action)?;
    }
    designing.add(actions, taken)?;
    for action in actions {
        designing.set_attributes(action)?;
    }
    for action in actions {
        designing.add_identity(action)?;
    }
    for action in actions {
        designing.set_identity(action)?;
    }
    designing.finish(before)
}

fn names_at(schema: &TableSchema, positions: &[usize]) -> Vec<String> {
    let names = positions.iter().map(|&at| schema.columns[at].name.clone());
    names.collect()
}

impl Designing<'_> {
    /// How many constraints there are beside the primary key.
    pub(super) fn constraints(&self) -> usize {
        let unique = self.indexes.iter().filter(|(index, _)| index.is_constraint);
        self.schema.checks.len() + self.foreign_keys.len() + unique.count()
    }

    /// The names of all constraints but CHECKs.
    fn constraint_names(&self) -> BTreeSet<String> {
        let unique = self.indexes.iter().filter(|(index, _)| index.is_constraint);
        let unique = unique.map(|(index, _)| index.index.name.clone());
        let foreign = self.foreign_keys.iter().map(|(key, _)| key.name.clone());
        let primary =
            (!self.schema.primary_key.is_empty()).then(|| self.schema.primary_key_name.clone());
        unique.chain(foreign).chain(primary).collect()
    }

    pub(super) fn is_key(&self, name: &str) -> bool {
        !self.schema.primary_key.is_empty() && self.schema.primary_key_name == name
    }

    fn set_type(&mut self, action: &TableAction) -> Result<(), SqlError> {
        let TableAction::SetType {
            column,
            data_type,
            collation,
            using,
        } = action
        else {
            return Ok(());
        };
        let at = self.position(column)?;
        let ty = sql_type(data_type)?;
        if let Some(collation) = collation {
            check_collation(collation)?;
        }
        if self.is_identity(column) {
            require_integer(ty)?;
        }
        let Source::Kept(from) = self.sources[at] else {
            return Err(SqlError::new(
                ErrorKind::FeatureNotSupported,
                format!("cannot alter type of column \"{column}\" twice"),
            ));
        };
        if self.schema.columns[at].ty == ty && using.is_none() {
            return Ok(());
        }
        let changed = &mut self.schema.columns[at];
        // The next number of a sequence has no type to be converted from.
        let is_value = |default: &&mut String| !text::is_next(default);
        let before = changed.default.as_mut().filter(|_| changed.ty != ty);
        if let Some(default) = before.filter(is_value) {
            // It is what it was, and converted as any value.
            *default = format!("CAST({default} AS {})", changed.ty);
        }
        changed.ty = ty;
        self.sources[at] = Source::Converted(from, using.clone());
        let checks = self.schema.checks.iter();
        let again = checks
            .filter(|check| !check.not_valid && expression::mentions(&check.expression, column));
        self.checks_to_verify
            .extend(again.map(|check| check.name.clone()));
        let keys = self.foreign_keys.iter();
        let again = keys.filter(|(key, columns)| key.is_valid && columns.contains(column));
        self.keys_to_verify
            .extend(again.map(|(key, _)| key.name.clone()));
        Ok(())
    }

    /// New columns, then new constraints.
    fn add(
        &mut self,
        actions: &[TableAction],
        taken: &dyn Fn(&str) -> bool,
    ) -> Result<(), SqlError> {
        let before = self.schema.checks.len();
        let (mut not_valid, mut keys_not_valid) = (BTreeSet::new(), BTreeSet::new());
        let has_deferrable_key = self.indexes.iter().any(|(index, _)| index.is_primary);
        let names = self.constraint_names();
        let mut definition = Definition::of(&self.schema, names, has_deferrable_key, self.notices);
        for action in actions {
            let TableAction::AddColumn {
                if_not_exists,
                definition: column,
            } = action
            else {
                continue;
            };
            let name = folded(&column.name);
            if !definition.has_column(cut(&name)) {
                definition.read_column(column)?;
                continue;
            }
            let message = format!(
                "column \"{name}\" of relation \"{}\" already exists",
                self.table
            );
            if !if_not_exists {
                return Err(SqlError::new(ErrorKind::DuplicateColumn, message));
            }
            definition.note(skipping(ErrorKind::DuplicateColumn, &message));
        }
        for action in actions {
            let TableAction::AddConstraint {
                constraint,
                not_valid: is_not_valid,
            } = action
            else {
                continue;
            };
            if *is_not_valid {
                match **constraint {
                    TableConstraint::ForeignKey(_) => {
                        keys_not_valid.insert(definition.foreign_keys_read());
                    }
                    _ => {
                        require_verifiable(constraint)?;
                        not_valid.insert(definition.checks_read());
                    }
                }
            }
            definition.read_constraint(constraint)?;
        }
        let freed = &self.freed;
        let Defined {
            mut schema,
            unique: indexes,
            foreign_keys,
            sequences,
        } = definition.finish(&|name| taken(name) && !freed.contains(name))?;
        let new_keys = foreign_keys.into_iter().enumerate();
        let new_keys = new_keys.map(|(nth, written)| NewForeignKey {
            written,
            is_valid: !keys_not_valid.contains(&nth),
        });
        self.new_foreign_keys = new_keys.collect();
        self.sources.resize(schema.columns.len(), Source::Added);
        for (at, check) in schema.checks.iter_mut().enumerate().skip(before) {
            check.not_valid = not_valid.contains(&at);
            if !check.not_valid {
                self.checks_to_verify.insert(check.name.clone());
            }
        }
        for (check, old) in schema.checks.iter_mut().zip(&self.schema.checks) {
            check.not_valid = old.not_valid;
        }
        self.schema = schema;
        self.new_indexes = indexes;
        self.sequences = sequences;
        Ok(())
    }

    /// Defaults, NOT NULL, and what is left.
    fn set_attributes(&mut self, action: &TableAction) -> Result<(), SqlError> {
        match action {
            TableAction::SetDefault {
                column,
                default: Some(default),
            } => {
                let at = self.position(column)?;
                self.refuse_identity(column)?;
                refuse_columns(default)?;
                self.schema.columns[at].default = Some(default.to_string());
            }
            TableAction::SetNullable {
                column,
                nullable: false,
            } => {
                let at = self.position(column)?;
                self.schema.columns[at].nullable = false;
            }
            TableAction::ValidateConstraint(name) => self.validate(name)?,
            TableAction::AlterConstraint { name, deferral } => self.defer(name, *deferral)?,
            TableAction::Owner(owner) => self.owner = Some(owner.clone()),
            _ => {}
        }
        Ok(())
    }

    /// ALTER CONSTRAINT, which is for foreign keys alone.
    fn defer(&mut self, name: &str, deferral: Deferral) -> Result<(), SqlError> {
        let mut keys = self.foreign_keys.iter_mut();
        if let Some((key, _)) = keys.find(|(key, _)| key.name == name) {
            key.deferral = deferral;
            return Ok(());
        }
        let mut keys = self.new_foreign_keys.iter_mut();
        if let Some(key) = keys.find(|key| key.written.is_named(name)) {
            key.written.defer(deferral);
            return Ok(());
        }
        let is_check = self.schema.checks.iter().any(|check| check.name == name);
        if is_check || self.constraint_names().contains(name) {
            return Err(SqlError::new(
                ErrorKind::WrongObjectType,
                format!(
                    "constraint \"{name}\" of relation \"{}\" is not a foreign key constraint",
                    self.table
                ),
            ));
        }
        Err(self.no_constraint(name))
    }

    fn validate(&mut self, name: &str) -> Result<(), SqlError> {
        let mut checks = self.schema.checks.iter_mut();
        if let Some(check) = checks.find(|check| check.name == name) {
            if std::mem::take(&mut check.not_valid) {
                self.checks_to_verify.insert(name.to_owned());
            }
            return Ok(());
        }
        let mut keys = self.foreign_keys.iter_mut();
        if let Some((key, _)) = keys.find(|(key, _)| key.name == name) {
            if !std::mem::replace(&mut key.is_valid, true) {
                self.keys_to_verify.insert(name.to_owned());
            }
            return Ok(());
        }
        let mut keys = self.new_foreign_keys.iter_mut();
        if let Some(key) = keys.find(|key| key.written.is_named(name)) {
            key.is_valid = true;
            return Ok(());
        }
        if self.constraint_names().contains(name) {
            return Err(SqlError::new(
                ErrorKind::WrongObjectType,
                format!(
                    "constraint \"{name}\" of relation \"{}\" is not a foreign key or check constraint",
                    self.table
                ),
            ));
        }
        Err(self.no_constraint(name))
    }

    fn finish(self, before: &TableSchema) -> Result<Design, SqlError> {
        let schema = self.schema;
        let took_null = |source: &Source| match source {
            Source::Kept(at) | Source::Converted(at, _) => before.columns[*at].nullable,
            Source::Added => true,
        };
        let refuses = |at: &usize| !schema.columns[*at].nullable && took_null(&self.sources[*at]);
        let columns_to_verify = (0..schema.columns.len()).filter(refuses).collect();
        let positions = |names: &[String]| -> Vec<usize> {
            let positions = names.iter().filter_map(|name| schema.position(name));
            positions.collect()
        };
        let indexes = self.indexes.into_iter().map(|(mut index, names)| {
            index.index.columns = positions(&names);
            index
        });
        let foreign_keys = self.foreign_keys.into_iter().map(|(mut key, names)| {
            key.columns = positions(&names);
            key
        });
        Ok(Design {
            indexes: indexes.collect(),
            foreign_keys: foreign_keys.collect(),
            new_indexes: self.new_indexes,
            new_foreign_keys: self.new_foreign_keys,
            keys_to_verify: self.keys_to_verify,
            gone: self.gone,
            columns_to_verify,
            sources: self.sources,
            checks_to_verify: self.checks_to_verify,
            dropped: self.dropped,
            sequences: self.sequences,
            identity_changes: self.identity_changes,
            dropped_identities: self.dropped_identities,
            owner: self.owner,
            schema,
        })
    }

    /// An identity column has its numbers, and never NULL.
    pub(super) fn refuse_identity(&self, column: &str) -> Result<(), SqlError> {
        if !self.is_identity(column) {
            return Ok(());
        }
        let message = format!(
            "column \"{column}\" of relation \"{}\" is an identity column",
            self.table
        );
        Err(SqlError::new(ErrorKind::SyntaxError, message))
    }

    pub(super) fn position(&self, column: &str) -> Result<usize, SqlError> {
        self.schema
            .position(column)
            .ok_or_else(|| self.no_column(column))
    }

    pub(super) fn no_column(&self, name: &str) -> SqlError {
        SqlError::new(
            ErrorKind::UndefinedColumn,
            format!(
                "column \"{name}\" of relation \"{}\" does not exist",
                self.table
            ),
        )
    }

    pub(super) fn no_constraint(&self, name: &str) -> SqlError {
        SqlError::new(
            ErrorKind::UndefinedObject,
            format!(
                "constraint \"{name}\" of relation \"{}\" does not exist",
                self.table
            ),
        )
    }

    pub(super) fn skip(&mut self, kind: ErrorKind, message: &str) {
        self.notices.push(skipping(kind, message));
    }
}

fn skipping(kind: ErrorKind, message: &str) -> Notice {
    Notice {
        // What is missing is told without saying so.
        kind: (kind == ErrorKind::DuplicateColumn).then_some(kind),
        ..Notice::new(NoticeSeverity::Notice, format!("{message}, skipping"))
    }
}

/// Rows cannot be left unchecked by what an index enforces.
fn require_verifiable(constraint: &TableConstraint) -> Result<(), SqlError> {
    let what = match constraint {
        TableConstraint::PrimaryKey(_) => "PRIMARY KEY",
        TableConstraint::Unique(_) => "UNIQUE",
        _ => return Ok(()),
    };
    Err(SqlError::new(
        ErrorKind::FeatureNotSupported,
        format!("{what} constraints cannot be marked NOT VALID"),
    ))
}

impl Design {
    /// Whether the rows have to be written anew: columns come, go or change their type, or
    /// the key by which rows lie is another.
    pub(super) fn rewrites(&self, before: &TableSchema) -> bool {
        let kept = (0..before.columns.len()).map(Source::Kept);
        !self.sources.iter().cloned().eq(kept) || self.schema.primary_key != before.primary_key
    }

    /// Columns that have another type, with the one they had.
    pub(super) fn converted<'a>(
        &'a self,
        before: &'a TableSchema,
    ) -> impl Iterator<Item = (&'a Column, SqlType)> {
        self.sources
            .iter()
            .zip(&self.schema.columns)
            .filter_map(|(source, column)| match source {
                Source::Converted(from, _) => Some((column, before.columns[*from].ty)),
                _ => None,
            })
    }
}
