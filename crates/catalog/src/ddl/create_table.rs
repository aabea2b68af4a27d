//! CREATE TABLE, with columns or AS a query.

use std::{collections::BTreeMap, sync::Arc};

use aerostat_api::{Notice, NoticeSeverity};
use aerostat_sql::{
    grants::Privilege,
    names::{QualifiedName, ResolvedName, folded},
    sequence_text as text,
};
use aerostat_txn::LockMode;
use aerostat_types::{
    Column, ConstraintId, ErrorKind, IndexId, RelationId, SqlError, TableId, TableSchema,
};
use sqlparser::ast::{
    self, CreateTableLikeKind, DataType, helpers::stmt_create_table::CreateTableBuilder,
};

use super::{
    CommandResult, ExpressionChecker, Found,
    alter::{check_free, is_taken},
    definition::{Defined, Definition},
    foreign_key::{self, Resolved},
    instants::settled_default,
    layout::{self, DefaultLayout, WantedLayout},
    sequence::{self, Wanted},
    temporary::creation_place,
};
use crate::{
    actor::Actor,
    state::{
        CatalogState, Draft, Identity, IndexEntry, OnCommit, PartComments, Relation, SequenceEntry,
        TableEntry, is_temporary,
    },
};

/// What [`create_table_as`] came to.
pub enum CreatedTable {
    /// IF NOT EXISTS, and it does; nothing is to be done.
    Exists(CommandResult),
    /// A table that nobody sees yet.
    Pending(PendingTable),
}

impl CreatedTable {
    /// What the statement comes to when the table is not filled.
    pub fn into_result(self) -> CommandResult {
        match self {
            CreatedTable::Exists(result) => result,
            CreatedTable::Pending(table) => {
                CommandResult::new("CREATE TABLE AS").with_notices(table.notices)
            }
        }
    }
}

/// A new table, empty, that nobody sees before [`PendingTable::publish`], and others not
/// before the transaction's commit.
pub struct PendingTable {
    place: ResolvedName,
    entry: Arc<TableEntry>,
    /// Those of its columns.
    sequences: Vec<Arc<SequenceEntry>>,
    notices: Vec<Notice>,
}

impl PendingTable {
    /// The table as the catalogue will have it, to be filled.
    pub fn entry(&self) -> &Arc<TableEntry> {
        &self.entry
    }

    /// The schema it goes to.
    pub fn schema(&self) -> &str {
        &self.place.schema
    }

    /// Puts the table into what the transaction defines.
    ///
    /// # Errors
    /// Meanwhile its name was taken or its schema dropped.
    pub fn publish(self, draft: &Draft) -> Result<CommandResult, SqlError> {
        let mut change = draft.change()?;
        check_free(&change.state, &self.place)?;
        for index in self.entry.all_indexes() {
            let place = ResolvedName {
                schema: self.place.schema.clone(),
                name: index.index.name,
            };
            check_free(&change.state, &place)?;
        }
        for sequence in &self.sequences {
            let place = sequence::place_of(&self.place.schema, sequence);
            check_free(&change.state, &place)?;
        }
        check_referenced(&change.state, &self.entry)?;
        let relations = &mut change.state.schema_mut(&self.place.schema)?.relations;
        relations.insert(self.place.name, Relation::Table(self.entry));
        for sequence in self.sequences {
            relations.insert(sequence.name.clone(), Relation::Sequence(sequence));
        }
        change.publish()?;
        Ok(CommandResult::new("CREATE TABLE").with_notices(self.notices))
    }
}

/// CREATE TABLE with columns.
///
/// # Errors
/// As PostgreSQL: the name, rights, the definition, what `checker` says of its
/// expressions, and memory.
pub fn create_table(
    draft: &Draft,
    actor: &Actor,
    statement: &ast::CreateTable,
    default_layout: DefaultLayout,
    checker: &dyn ExpressionChecker,
) -> Result<CommandResult, SqlError> {
    match create(draft, actor, statement, default_layout, None, checker)? {
        CreatedTable::Exists(result) => Ok(result),
        CreatedTable::Pending(table) => table.publish(draft),
    }
}

/// CREATE TABLE AS: the columns are those the query gives. The caller fills
/// the table, publishes it, and ends with the tag `SELECT n`.
///
/// # Errors
/// As [`create_table`].
pub fn create_table_as(
    draft: &Draft,
    actor: &Actor,
    statement: &ast::CreateTable,
    default_layout: DefaultLayout,
    columns: Vec<Column>,
) -> Result<CreatedTable, SqlError> {
    if !statement.constraints.is_empty() {
        return Err(SqlError::new(
            ErrorKind::SyntaxError,
            "CREATE TABLE AS takes no constraints",
        ));
    }
    create(
        draft,
        actor,
        statement,
        default_layout,
        Some(columns),
        &NoExpressions,
    )
}

/// A table that is made from a query has neither defaults nor checks.
struct NoExpressions;

impl ExpressionChecker for NoExpressions {
    fn check_default(&self, _column: &Column, _sql: &str) -> Result<(), SqlError> {
        Ok(())
    }

    fn check_condition(&self, _schema: &TableSchema, _sql: &str) -> Result<(), SqlError> {
        Ok(())
    }

    fn check_conversion(
        &self,
        _before: &TableSchema,
        _at: usize,
        _to: &Column,
        _using: Option<&ast::Expr>,
    ) -> Result<(), SqlError> {
        Ok(())
    }
}

fn create(
    draft: &Draft,
    actor: &Actor,
    statement: &ast::CreateTable,
    default_layout: DefaultLayout,
    query_columns: Option<Vec<Column>>,
    checker: &dyn ExpressionChecker,
) -> Result<CreatedTable, SqlError> {
    refuse_other_forms(statement)?;
    let mut notices = Vec::new();
    if statement.global == Some(true) {
        let message = "GLOBAL is deprecated in temporary table creation";
        notices.push(Notice::new(NoticeSeverity::Warning, message));
    }
    let name = QualifiedName::from_object_name(&statement.name, &mut notices)?;
    let place = creation_place(draft, actor, &name, statement.temporary)?;
    let is_temporary = is_temporary(&place.schema);
    let on_commit = on_commit(statement, is_temporary)?;
    let state = draft.load()?;
    if let Err(error) = check_free(&state, &place) {
        if !statement.if_not_exists {
            return Err(error);
        }
        notices.push(Notice {
            kind: Some(error.kind),
            ..Notice::new(
                NoticeSeverity::Notice,
                format!("{}, skipping", error.message),
            )
        });
        let tag = if query_columns.is_some() {
            "CREATE TABLE AS"
        } else {
            "CREATE TABLE"
        };
        return Ok(CreatedTable::Exists(
            CommandResult::new(tag).with_notices(notices),
        ));
    }
    let mut definition = Definition::new(&place.name, &mut notices);
    match (query_columns, &statement.like) {
        (Some(columns), _) => add_query_columns(&mut definition, columns, &statement.columns)?,
        (
            None,
            Some(CreateTableLikeKind::Parenthesized(like) | CreateTableLikeKind::Plain(like)),
        ) => {
            let source = QualifiedName::from_object_name(&like.name, &mut Vec::new())?;
            let Found { relation, .. } = actor.resolve(&state, &source)?;
            actor.require(relation, Privilege::Select)?;
            let defaults = like.defaults == Some(ast::CreateTableLikeDefaults::Including);
            for column in relation.columns() {
                let default = column.default.clone().filter(|_| defaults);
                definition.add_column(Column {
                    default,
                    ..column.clone()
                });
            }
        }
        (None, None) => {
            for column in &statement.columns {
                definition.read_column(column)?;
            }
        }
    }
    for constraint in &statement.constraints {
        definition.read_constraint(constraint)?;
    }
    let taken = |name: &str| {
        is_taken(
            &state,
            &ResolvedName {
                schema: place.schema.clone(),
                name: name.to_owned(),
            },
        )
    };
    let Defined {
        mut schema,
        unique,
        foreign_keys,
        sequences,
    } = definition.finish(&taken)?;
    for column in &mut schema.columns {
        if let Some(default) = &mut column.default {
            *default = sequence::bound_default(&state, actor, &place, default)?;
            *default = settled_default(default, column.ty, actor.zone)?;
        }
    }
    let own = foreign_key::Own::new(&place, &schema, unique.iter().cloned(), Vec::new());
    // Who writes to a table must know what refers to it.
    let referenced = foreign_keys.iter().map(|key| key.table());
    draft.lock_owned(actor, referenced, LockMode::ShareRowExclusive)?;
    let state = draft.load()?;
    let foreign_keys = foreign_key::resolve(&state, actor, &own, foreign_keys)?;
    let layout = layout::of_create(statement, &schema, default_layout, &mut notices)?;
    check_expressions(&schema, checker)?;
    let parts = Parts {
        schema,
        unique,
        foreign_keys,
        sequences,
        is_temporary,
        on_commit,
    };
    let (entry, sequences) = build(draft, &state, actor, parts, &layout, &taken)?;
    Ok(CreatedTable::Pending(PendingTable {
        place,
        entry,
        sequences,
        notices,
    }))
}

/// What a table is made of.
struct Parts {
    schema: TableSchema,
    /// Without numbers.
    unique: Vec<IndexEntry>,
    foreign_keys: Vec<Resolved>,
    sequences: Vec<Wanted>,
    is_temporary: bool,
    on_commit: OnCommit,
}

fn build(
    draft: &Draft,
    state: &CatalogState,
    actor: &Actor,
    parts: Parts,
    layout: &WantedLayout,
    taken: &dyn Fn(&str) -> bool,
) -> Result<(Arc<TableEntry>, Vec<Arc<SequenceEntry>>), SqlError> {
    let Parts {
        mut schema,
        unique,
        foreign_keys,
        sequences: wanted,
        is_temporary,
        on_commit,
    } = parts;
    let number = state.allocate_oid()?;
    let (oid, id) = (RelationId(number), TableId(number));
    let key_oid = if schema.primary_key.is_empty() {
        IndexId::NONE
    } else {
        IndexId(state.allocate_oid()?)
    };
    let mut indexes = unique;
    for index in &mut indexes {
        index.oid = IndexId(state.allocate_oid()?);
    }
    let mut keys = Vec::with_capacity(foreign_keys.len());
    for Resolved { mut key, own_index } in foreign_keys {
        key.oid = ConstraintId(state.allocate_oid()?);
        if let Some(name) = own_index {
            key.referenced = oid;
            let index = indexes.iter().find(|index| index.index.name == name);
            key.index = index.map_or(key_oid, |index| index.oid);
        }
        keys.push(key);
    }
    let name = schema.name.clone();
    let owner = sequence::Owner {
        oid,
        name: &name,
        role: &actor.role,
        is_temporary,
    };
    let is_own = |other: &str| {
        let mut own = indexes.iter().map(|index| &index.index.name);
        other == name || other == schema.primary_key_name || own.any(|own| own == other)
    };
    let is_taken = |name: &str| taken(name) || is_own(name);
    let sequences = sequence::make_wanted(draft, state, &owner, &wanted, &is_taken)?;
    let identities = give_numbers(&mut schema, &wanted, &sequences);
    let stored = indexes.iter().map(|index| index.index.clone()).collect();
    let table = draft.create_table(id, Arc::new(schema), &layout.start, stored, is_temporary)?;
    let entry = Arc::new(TableEntry {
        oid,
        key_oid,
        name,
        owner: actor.role.clone(),
        table,
        comment: None,
        column_comments: BTreeMap::new(),
        part_comments: PartComments::default(),
        grants: Vec::new(),
        auto_layout: layout.auto,
        indexes,
        foreign_keys: keys,
        identities,
        on_commit,
        usage: Arc::default(),
    });
    Ok((entry, sequences))
}

/// Lets columns take their values from the sequences made for them: serial ones by default,
/// the others as identity columns, which are returned.
pub(super) fn give_numbers(
    schema: &mut TableSchema,
    wanted: &[Wanted],
    sequences: &[Arc<SequenceEntry>],
) -> BTreeMap<String, Identity> {
    let mut identities = BTreeMap::new();
    for (wanted, made) in wanted.iter().zip(sequences) {
        let sequence = made.oid;
        match wanted.is_always {
            Some(is_always) => {
                let identity = Identity {
                    sequence,
                    is_always,
                };
                identities.insert(wanted.column.clone(), identity);
            }
            None => {
                if let Some(at) = schema.position(&wanted.column) {
                    schema.columns[at].default = Some(text::default_of(sequence));
                }
            }
        }
    }
    identities
}

/// Whether what its foreign keys refer to has stayed.
fn check_referenced(state: &CatalogState, entry: &TableEntry) -> Result<(), SqlError> {
    for key in &entry.foreign_keys {
        let is_own = key.referenced == entry.oid;
        let there = state.table(key.referenced);
        if !is_own && there.is_none_or(|(_, table)| table.index(key.index).is_none()) {
            return Err(SqlError::new(
                ErrorKind::SerializationFailure,
                "a table that a foreign key refers to was dropped meanwhile",
            ));
        }
    }
    Ok(())
}

/// What ON COMMIT says.
fn on_commit(statement: &ast::CreateTable, is_temporary: bool) -> Result<OnCommit, SqlError> {
    let said = match statement.on_commit {
        None => return Ok(OnCommit::PreserveRows),
        Some(ast::OnCommit::PreserveRows) => OnCommit::PreserveRows,
        Some(ast::OnCommit::DeleteRows) => OnCommit::DeleteRows,
        Some(ast::OnCommit::Drop) => OnCommit::Drop,
    };
    if !is_temporary {
        return Err(SqlError::new(
            ErrorKind::InvalidTableDefinition,
            "ON COMMIT can only be used on temporary tables",
        ));
    }
    Ok(said)
}

/// Everything that neither PostgreSQL nor Aerostat makes of a CREATE TABLE.
fn refuse_other_forms(statement: &ast::CreateTable) -> Result<(), SqlError> {
    let unsupported = |what: &str| {
        Err(SqlError::new(
            ErrorKind::FeatureNotSupported,
            format!("{what} not supported"),
        ))
    };
    if statement.inherits.is_some() {
        return unsupported("inheritance is");
    }
    if statement.partition_by.is_some() || statement.partition_of.is_some() {
        return unsupported("partitioned tables are");
    }
    let understood = CreateTableBuilder::new(statement.name.clone())
        .temporary(statement.temporary)
        .global(statement.global)
        .on_commit(statement.on_commit)
        .if_not_exists(statement.if_not_exists)
        .columns(statement.columns.clone())
        .constraints(statement.constraints.clone())
        .hive_distribution(statement.hive_distribution.clone())
        .hive_formats(statement.hive_formats.clone())
        .table_options(statement.table_options.clone())
        .query(statement.query.clone())
        .like(statement.like.clone())
        .build();
    if understood != *statement {
        return Err(
            SqlError::new(ErrorKind::SyntaxError, "syntax error in CREATE TABLE")
                .with_hint("A clause of another database system is not understood."),
        );
    }
    if statement.columns.is_empty() && statement.query.is_none() && statement.like.is_none() {
        return unsupported("tables without columns are");
    }
    Ok(())
}

/// The query's columns under the names that the statement gives the first of them.
fn add_query_columns(
    definition: &mut Definition<'_>,
    mut columns: Vec<Column>,
    given: &[ast::ColumnDef],
) -> Result<(), SqlError> {
    if given.len() > columns.len() {
        return Err(SqlError::new(
            ErrorKind::SyntaxError,
            "too many column names were specified",
        ));
    }
    for (column, given) in columns.iter_mut().zip(given) {
        if given.data_type != DataType::Unspecified || !given.options.is_empty() {
            return Err(SqlError::new(
                ErrorKind::SyntaxError,
                "CREATE TABLE AS takes names of columns, not types",
            ));
        }
        column.name = folded(&given.name);
    }
    for column in columns {
        definition.add_column(column);
    }
    Ok(())
}

fn check_expressions(
    schema: &TableSchema,
    checker: &dyn ExpressionChecker,
) -> Result<(), SqlError> {
    for column in &schema.columns {
        if let Some(default) = &column.default {
            checker.check_default(column, default)?;
        }
    }
    for check in &schema.checks {
        checker.check_condition(schema, &check.expression)?;
    }
    Ok(())
}
