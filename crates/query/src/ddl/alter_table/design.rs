//! What the actions of an ALTER TABLE make of a table's definition. Pure.
//!
//! ```text
//!  the table ──► drops ──► types ──► new columns, constraints ──► defaults, NOT NULL ──► Design
//!  as it is       (1)        (2)               (3)                        (4)
//! ```
//!
//! Actions are done in PostgreSQL's order, whatever the order in the statement: what goes
//! makes room for what comes. Columns keep their names meanwhile, so names are what
//! everything is found by; positions are made of them at the end.

use std::collections::{BTreeMap, BTreeSet};

use aerostat_types::{
    CheckConstraint, Column, ErrorKind, SqlError, SqlType, TableIndex, TableSchema,
};
use datafusion::sql::sqlparser::ast::{self, TableConstraint};

use super::super::{
    definition::{Defined, Definition, check_collation, refuse_columns, require_integer},
    expression, names,
    sequence::Wanted,
    sql_type::sql_type,
};
use crate::{
    api::{Notice, NoticeSeverity},
    catalog::{ForeignKey, Identity, IndexEntry, TableEntry},
    sequence::text,
    utility::{RoleName, TableAction},
};

/// Where the values of a column come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The column that was at this position.
    Kept(usize),
    /// The column that was at this position, in another type: by USING, or by a cast.
    Converted(usize, Option<ast::Expr>),
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
    /// The indexes of UNIQUE constraints that come.
    pub(super) new_indexes: Vec<TableIndex>,
    /// The foreign keys that stay.
    pub(super) foreign_keys: Vec<ForeignKey>,
    /// The unique indexes, and the key's, that go.
    pub(super) gone: Vec<Gone>,
    /// Names of constraints that rows have to be checked by.
    pub(super) checks_to_verify: BTreeSet<String>,
    /// Positions of columns that have come to refuse NULL.
    pub(super) columns_to_verify: Vec<usize>,
    /// Columns that are dropped, each with whether CASCADE is said.
    pub(super) dropped: Vec<(String, bool)>,
    /// The sequences of new columns.
    pub(super) sequences: Vec<Wanted>,
    pub(super) owner: Option<RoleName>,
}

/// An index that goes, and what went for that.
#[derive(Clone)]
pub(super) struct Gone {
    pub(super) oid: u32,
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

/// A definition under way.
struct Designing<'a> {
    table: &'a str,
    schema: TableSchema,
    sources: Vec<Source>,
    /// With the names of their columns.
    indexes: Vec<(IndexEntry, Vec<String>)>,
    new_indexes: Vec<TableIndex>,
    foreign_keys: Vec<(ForeignKey, Vec<String>)>,
    key_oid: u32,
    gone: Vec<Gone>,
    checks_to_verify: BTreeSet<String>,
    dropped: Vec<(String, bool)>,
    sequences: Vec<Wanted>,
    identities: &'a BTreeMap<String, Identity>,
    /// Names of indexes that have gone.
    freed: BTreeSet<String>,
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
        key_oid: entry.key_oid,
        gone: Vec::new(),
        checks_to_verify: BTreeSet::new(),
        dropped: Vec::new(),
        sequences: Vec::new(),
        identities: &entry.identities,
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
    designing.finish(before)
}

fn names_at(schema: &TableSchema, positions: &[usize]) -> Vec<String> {
    let names = positions.iter().map(|&at| schema.columns[at].name.clone());
    names.collect()
}

impl Designing<'_> {
    /// What goes: columns, constraints, defaults, NOT NULL.
    fn take_away(&mut self, action: &TableAction) -> Result<(), SqlError> {
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
            TableAction::SetNullable {
                column,
                nullable: true,
            } => {
                let at = self.position(column)?;
                self.refuse_identity(column)?;
                if self.schema.primary_key.contains(&at) {
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

    fn note_gone(&mut self, oid: u32, index: String, dropping: Dropping<'_>) {
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

    /// How many constraints there are beside the primary key.
    fn constraints(&self) -> usize {
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

    fn is_key(&self, name: &str) -> bool {
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
        if self.identities.contains_key(column) {
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
        self.sources[at] = Source::Converted(from, using.as_deref().cloned());
        let checks = self.schema.checks.iter();
        let again = checks
            .filter(|check| !check.not_valid && expression::mentions(&check.expression, column));
        self.checks_to_verify
            .extend(again.map(|check| check.name.clone()));
        Ok(())
    }

    /// New columns, then new constraints.
    fn add(
        &mut self,
        actions: &[TableAction],
        taken: &dyn Fn(&str) -> bool,
    ) -> Result<(), SqlError> {
        let before = self.schema.checks.len();
        let mut not_valid = BTreeSet::new();
        let mut definition = Definition::of(&self.schema, self.constraint_names(), self.notices);
        for action in actions {
            let TableAction::AddColumn {
                if_not_exists,
                definition: column,
            } = action
            else {
                continue;
            };
            let name = names::folded(&column.name);
            if !definition.has_column(names::cut(&name)) {
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
                require_verifiable(constraint)?;
                not_valid.insert(definition.checks_read());
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
        if !foreign_keys.is_empty() {
            return Err(SqlError::new(
                ErrorKind::FeatureNotSupported,
                "ALTER TABLE … ADD FOREIGN KEY is not supported",
            )
            .with_hint("Name the foreign key when the table is made."));
        }
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
            TableAction::Owner(owner) => self.owner = Some(owner.clone()),
            _ => {}
        }
        Ok(())
    }

    fn validate(&mut self, name: &str) -> Result<(), SqlError> {
        let mut checks = self.schema.checks.iter_mut();
        if let Some(check) = checks.find(|check| check.name == name) {
            if std::mem::take(&mut check.not_valid) {
                self.checks_to_verify.insert(name.to_owned());
            }
            return Ok(());
        }
        // A foreign key that is there has been checked.
        if self.foreign_keys.iter().any(|(key, _)| key.name == name) {
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
            gone: self.gone,
            columns_to_verify,
            sources: self.sources,
            checks_to_verify: self.checks_to_verify,
            dropped: self.dropped,
            sequences: self.sequences,
            owner: self.owner,
            schema,
        })
    }

    /// An identity column has its numbers, and never NULL.
    fn refuse_identity(&self, column: &str) -> Result<(), SqlError> {
        if !self.identities.contains_key(column) {
            return Ok(());
        }
        let message = format!(
            "column \"{column}\" of relation \"{}\" is an identity column",
            self.table
        );
        Err(SqlError::new(ErrorKind::SyntaxError, message))
    }

    fn position(&self, column: &str) -> Result<usize, SqlError> {
        self.schema
            .position(column)
            .ok_or_else(|| self.no_column(column))
    }

    fn no_column(&self, name: &str) -> SqlError {
        SqlError::new(
            ErrorKind::UndefinedColumn,
            format!(
                "column \"{name}\" of relation \"{}\" does not exist",
                self.table
            ),
        )
    }

    fn no_constraint(&self, name: &str) -> SqlError {
        SqlError::new(
            ErrorKind::UndefinedObject,
            format!(
                "constraint \"{name}\" of relation \"{}\" does not exist",
                self.table
            ),
        )
    }

    fn skip(&mut self, kind: ErrorKind, message: &str) {
        self.notices.push(skipping(kind, message));
    }
}

fn skipping(kind: ErrorKind, message: &str) -> Notice {
    Notice {
        kind: Some(kind),
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
