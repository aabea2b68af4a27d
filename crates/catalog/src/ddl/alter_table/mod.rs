//! ALTER TABLE: its columns and constraints.
//!
//! ```text
//!  lock ──► design ──► views ──► rows ─────────────────────────► publish
//!           (pure)     planned   definition alone: checked       the catalogue at once
//!                      against   columns, types, key: copied
//!                      it        to another table
//! ```
//!
//! A change of names, defaults, checks and NOT NULL changes the definition alone: the table in
//! storage stays, under another definition, and its rows are read at most once. A change of the
//! rows creates another table in storage, as TRUNCATE creates an empty one, and the catalogue
//! names that one from then on. Nobody else sees anything before it is published, and a statement
//! that fails leaves nothing behind.

mod design;
mod dropping;
mod identity;
mod reference;
mod violations;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use aerostat_api::Notice;
use aerostat_sql::{
    names::{QualifiedName, ResolvedName},
    sequence_options::Options,
    utility::TableAction,
};
use aerostat_storage::Table;
use aerostat_txn::{CancelToken, Transaction};
use aerostat_types::{
    CheckConstraint, Column, ConstraintId, ErrorKind, IndexId, RelationId, SqlError, TableId,
    TableIndex, TableSchema,
};

use super::{
    CommandResult, ExpressionChecker, Found, Judges, PlanViews,
    alter::{is_taken, skipping},
    create_table::give_numbers,
    dependency::Dependencies,
    drop::{cascade_notice, depended_on, shown},
    foreign_key::Resolved,
    instants::settled_default,
    privilege::relation_mut,
    sequence::{self, NeedyDefault, Wanted},
    views::{ColumnChange, Readers},
};
use crate::{
    actor::Actor,
    failure::from_storage,
    state::{
        CatalogState, Database, Draft, Effect, ForeignKey, Identity, IndexEntry, PG_TEMP, Relation,
        SequenceEntry, TableEntry, is_temporary,
    },
};

use design::Design;
use identity::IdentityChange;

pub use design::Source;
pub use reference::{Reference, lock, refers_to_none};
pub use violations::{duplicate, of_rewrite};

/// What an ALTER TABLE comes to.
pub enum Altering {
    /// IF EXISTS, and there is none.
    Skipped(CommandResult),
    /// A table that is to be another.
    Pending(Box<PendingAlter>),
}

/// A table that is to be another, before anybody sees that.
pub struct PendingAlter {
    place: ResolvedName,
    before: Arc<TableEntry>,
    /// The definition to come.
    pub schema: Arc<TableSchema>,
    /// Where the values of each of its columns come from.
    pub sources: Vec<Source>,
    indexes: Vec<IndexEntry>,
    /// Without numbers.
    new_indexes: Vec<IndexEntry>,
    foreign_keys: Vec<ForeignKey>,
    new_foreign_keys: Vec<Resolved>,
    /// The foreign keys that rows have to be checked by.
    pub references: Vec<Reference>,
    owner: Option<String>,
    rewrites: bool,
    /// Names of constraints that rows have to be checked by.
    pub checks_to_verify: BTreeSet<String>,
    /// Positions of columns that have come to refuse NULL.
    pub columns_to_verify: Vec<usize>,
    /// Views that go with a column.
    dropped_views: BTreeSet<ResolvedName>,
    /// Numbers of foreign keys of other tables that go with a key of this one.
    dropped_references: BTreeSet<ConstraintId>,
    /// The sequences of new columns, as the statement has them, and as they are made.
    wanted: Vec<Wanted>,
    sequences: Vec<Arc<SequenceEntry>>,
    /// The identity columns that there are to be, and what becomes of others' sequences.
    identities: BTreeMap<String, Identity>,
    identity_changes: Vec<IdentityChange>,
    /// Sequences that go with a column, and defaults of other tables that go with those.
    dropped_sequences: BTreeSet<ResolvedName>,
    dropped_defaults: Vec<(ResolvedName, String)>,
    /// The queries that views come to have, and what they were.
    followed_views: BTreeMap<ResolvedName, (String, String)>,
    /// The table to come in storage, once it is made.
    table: Option<Arc<Table>>,
    notices: Vec<Notice>,
}

/// What an ALTER TABLE says.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The table.
    pub name: &'a QualifiedName,
    /// IF EXISTS.
    pub if_exists: bool,
    /// What is to be done.
    pub actions: &'a [TableAction],
}

/// Works out what the actions make of a table. The caller has locked it, and the catalogue's
/// state is that of after the lock.
///
/// # Errors
/// As PostgreSQL: names, rights, contradictions, what depends on what goes, and what the
/// planner says of expressions.
pub fn prepare(
    database: &Database,
    state: &CatalogState,
    actor: &Actor,
    asked: &Asked<'_>,
    judges: &Judges<'_>,
) -> Result<Altering, SqlError> {
    let Asked {
        name,
        if_exists,
        actions,
    } = *asked;
    let Some(Found { place, relation }) = actor.find(state, name)? else {
        let error = crate::state::undefined_relation(&name.to_string());
        if !if_exists {
            return Err(error);
        }
        let done = CommandResult::new("ALTER TABLE").with_notices(vec![skipping(&error)]);
        return Ok(Altering::Skipped(done));
    };
    actor.require_ownership(relation)?;
    let Relation::Table(entry) = relation else {
        return Err(not_for_views(name, relation.kind(), actions));
    };
    let mut notices = Vec::new();
    let taken = |name: &str| {
        let name = name.to_owned();
        is_taken(
            state,
            &ResolvedName {
                name,
                ..place.clone()
            },
        )
    };
    let mut design = design::design(entry, actions, &taken, &mut notices)?;
    let new_foreign_keys = std::mem::take(&mut design.new_foreign_keys);
    for column in &mut design.schema.columns {
        if let Some(default) = &mut column.default {
            *default = sequence::bound_default(state, actor, &place, default)?;
            *default = settled_default(default, column.ty, actor.zone)?;
        }
    }
    let owner = match &design.owner {
        Some(owner) => Some(actor.new_owner(owner, judges.role_exists)?),
        None => None,
    };
    let before = entry.table.schema();
    check_expressions(&design, before, judges.checker)?;
    let rewrites = design.rewrites(before);
    let mut pending = PendingAlter {
        before: Arc::clone(entry),
        schema: Arc::new(design.schema.clone()),
        sources: design.sources.clone(),
        indexes: design.indexes.clone(),
        new_indexes: design.new_indexes.clone(),
        foreign_keys: design.foreign_keys.clone(),
        new_foreign_keys: Vec::new(),
        references: Vec::new(),
        owner,
        rewrites,
        checks_to_verify: design.checks_to_verify.clone(),
        columns_to_verify: design.columns_to_verify.clone(),
        dropped_views: BTreeSet::new(),
        dropped_references: BTreeSet::new(),
        wanted: design.sequences.clone(),
        sequences: Vec::new(),
        identities: BTreeMap::new(),
        identity_changes: design.identity_changes.clone(),
        dropped_sequences: BTreeSet::new(),
        dropped_defaults: Vec::new(),
        followed_views: BTreeMap::new(),
        table: None,
        notices,
        place,
    };
    pending.drop_references(state, &design)?;
    pending.settle_references(state, actor, &design, new_foreign_keys)?;
    pending.keep_identities(&design);
    pending.drop_identities(state, actor, &design)?;
    pending.drop_sequences(state, actor, &design)?;
    pending.settle_views(database, state, actor, &design, judges.views)?;
    Ok(Altering::Pending(Box::new(pending)))
}

/// The first action that only tables take is what a view is refused.
fn not_for_views(name: &QualifiedName, kind: &str, actions: &[TableAction]) -> SqlError {
    let words = actions.first().map_or("ALTER", TableAction::words);
    SqlError::new(
        ErrorKind::WrongObjectType,
        format!(
            "ALTER action {words} cannot be performed on relation \"{}\"",
            name.name
        ),
    )
    .with_detail(format!("This operation is not supported for {kind}s."))
}

/// Plans conversions, then the defaults and conditions that are new, or read something new.
fn check_expressions(
    design: &Design,
    before: &TableSchema,
    checker: &dyn ExpressionChecker,
) -> Result<(), SqlError> {
    let schema = &design.schema;
    for (source, column) in design.sources.iter().zip(&schema.columns) {
        if let Source::Converted(at, using) = source {
            checker.check_conversion(before, *at, column, using.as_deref())?;
        }
    }
    let same = |column: &Column| {
        let was = before.columns.iter().find(|old| old.name == column.name);
        was.is_some_and(|was| was.ty == column.ty && was.default == column.default)
    };
    let converted = |column: &Column| design.converted(before).any(|(other, _)| other == column);
    for column in schema.columns.iter().filter(|column| !same(column)) {
        let Some(default) = &column.default else {
            continue;
        };
        checker.check_default(column, default).map_err(|error| {
            if error.kind == ErrorKind::DatatypeMismatch && converted(column) {
                return SqlError::new(
                    error.kind,
                    format!(
                        "default for column \"{}\" cannot be cast automatically to type {}",
                        column.name, column.ty
                    ),
                );
            }
            error
        })?;
    }
    let is_new = |check: &CheckConstraint| {
        design.checks_to_verify.contains(&check.name) || !before.checks.contains(check)
    };
    for check in schema.checks.iter().filter(|check| is_new(check)) {
        checker.check_condition(schema, &check.expression)?;
    }
    Ok(())
}

impl PendingAlter {
    /// The table as it is.
    pub fn entry(&self) -> &Arc<TableEntry> {
        &self.before
    }

    /// The schema it is in.
    pub fn schema_name(&self) -> &str {
        &self.place.schema
    }

    /// Whether its rows have to be written anew.
    pub fn rewrites(&self) -> bool {
        self.rewrites
    }

    /// Whether PostgreSQL would write its rows anew.
    pub fn converts(&self) -> bool {
        let is_converted = |source: &Source| matches!(source, Source::Converted(..));
        self.sources.iter().any(is_converted)
    }

    /// Whether the table has had this column and keeps it.
    fn keeps(&self, column: &str) -> bool {
        let at = self.schema.position(column);
        at.is_some_and(|at| self.sources[at] != Source::Added)
    }

    /// Sequences go with the columns that they belong to, and with CASCADE the defaults of
    /// other columns with them; without, the columns stay.
    fn drop_sequences(
        &mut self,
        state: &CatalogState,
        actor: &Actor,
        design: &Design,
    ) -> Result<(), SqlError> {
        for (dropped, cascade) in &design.dropped {
            let goes = |entry: &SequenceEntry| {
                let owner = entry.owned_by.as_ref();
                owner.is_some_and(|owner| owner.column == *dropped)
            };
            let owned = state.owned_sequences(self.before.oid);
            let mut gone = BTreeSet::new();
            for (schema, entry) in owned.filter(|(_, entry)| goes(entry)) {
                let place = sequence::place_of(&schema.name, entry);
                self.dropped_sequences.insert(place);
                gone.insert(entry.oid);
            }
            let mut lines = Vec::new();
            for needy in sequence::needy_defaults(state, &gone) {
                let NeedyDefault {
                    table,
                    column,
                    sequence,
                } = needy;
                if table == self.place && !self.keeps(&column) {
                    continue;
                }
                let of = format!("column {column} of table {}", shown(state, actor, &table));
                lines.push((
                    format!("default value for {of}"),
                    format!("sequence {}", shown(state, actor, &sequence)),
                ));
                self.dropped_defaults.push((table, column));
            }
            if lines.is_empty() {
                continue;
            }
            if !cascade {
                let table = shown(state, actor, &self.place);
                let message = format!(
                    "cannot drop column {dropped} of table {table} because other objects depend on it"
                );
                return Err(depended_on(message, &lines));
            }
            self.notices.push(cascade_notice(&lines));
        }
        let mut schema = TableSchema::clone(&self.schema);
        for (table, column) in &self.dropped_defaults {
            if let Some(at) = schema.position(column).filter(|_| *table == self.place) {
                schema.columns[at].default = None;
            }
        }
        self.schema = Arc::new(schema);
        Ok(())
    }

    /// Makes the sequences of new columns, which nobody sees yet.
    ///
    /// # Errors
    /// Numbers that contradict each other, the log.
    pub fn make_sequences(&mut self, draft: &Draft) -> Result<(), SqlError> {
        self.lock_identities(draft)?;
        let state = draft.load()?;
        let owner = sequence::Owner {
            oid: self.before.oid,
            name: &self.before.name,
            role: self.owner.as_ref().unwrap_or(&self.before.owner),
            is_temporary: self.before.table.is_temporary(),
        };
        let taken = |name: &str| {
            let place = ResolvedName {
                schema: self.place.schema.clone(),
                name: name.to_owned(),
            };
            let mut new = self.new_indexes.iter();
            is_taken(&state, &place)
                || self.schema.primary_key_name == name
                || new.any(|index| index.index.name == name)
        };
        let mut names = self.wanted.iter().filter_map(|wanted| wanted.name.as_ref());
        names.try_for_each(|name| require_schema(name, &self.place))?;
        let made = sequence::make_wanted(draft, &state, &owner, &self.wanted, &taken)?;
        let mut schema = TableSchema::clone(&self.schema);
        let identities = give_numbers(&mut schema, &self.wanted, &made);
        self.identities.extend(identities);
        self.schema = Arc::new(schema);
        self.sequences = made;
        Ok(())
    }

    /// The sequence that the rows of a new column take their values from.
    pub fn new_sequence(&self, column: &str) -> Option<&Arc<SequenceEntry>> {
        let at = self
            .wanted
            .iter()
            .position(|wanted| wanted.column == column)?;
        self.sequences.get(at)
    }

    /// Sequences come, go, and follow their table.
    fn settle_sequences(&self, state: &mut CatalogState) -> Result<(), SqlError> {
        for place in &self.dropped_sequences {
            state
                .schema_mut(&place.schema)?
                .relations
                .remove(&place.name);
        }
        for (table, column) in &self.dropped_defaults {
            if *table != self.place {
                sequence::remove_default(state, table, column);
            }
        }
        let before = self.before.table.schema();
        for (source, column) in self.sources.iter().zip(&self.schema.columns) {
            let is_converted = matches!(source, Source::Converted(from, _)
                if before.columns[*from].ty != column.ty);
            let Some(identity) = self.identities.get(&column.name).filter(|_| is_converted) else {
                continue;
            };
            let Some((schema, entry)) = state.sequence(identity.sequence) else {
                continue;
            };
            let place = sequence::place_of(&schema.name, entry);
            let options = Options {
                ty: Some(column.ty),
                ..Options::default()
            };
            let (definition, _) = entry
                .definition
                .altered(&options, entry.counter.position()?)?;
            if let Relation::Sequence(entry) = relation_mut(state, &place)? {
                Arc::make_mut(entry).definition = definition;
            }
        }
        if let Some(owner) = &self.owner {
            let change = |owned: &mut SequenceEntry| owned.owner.clone_from(owner);
            sequence::change_owned(state, self.before.oid, change);
        }
        let relations = &mut state.schema_mut(&self.place.schema)?.relations;
        for sequence in &self.sequences {
            let entry = Relation::Sequence(Arc::clone(sequence));
            relations.insert(sequence.name.clone(), entry);
        }
        Ok(())
    }

    /// Finds out what becomes of the views that read the table.
    fn settle_views(
        &mut self,
        database: &Database,
        state: &CatalogState,
        actor: &Actor,
        design: &Design,
        planner: &dyn PlanViews,
    ) -> Result<(), SqlError> {
        let place = self.place.clone();
        let readers = Readers::of(state, &place, planner)?;
        if readers.is_empty() {
            return Ok(());
        }
        for (column, _) in design.converted(self.before.table.schema()) {
            if let Some(view) = readers.using(&column.name)?.first() {
                let view = shown(state, actor, view);
                return Err(SqlError::new(
                    ErrorKind::FeatureNotSupported,
                    "cannot alter type of a column used by a view or rule",
                )
                .with_detail(format!(
                    "rule _RETURN on view {view} depends on column \"{}\"",
                    column.name
                )));
            }
        }
        self.drop_views(state, actor, design, &readers)?;
        let same_columns = self.before.table.schema().columns.len() == self.schema.columns.len();
        if !self.rewrites || (same_columns && design.dropped.is_empty()) {
            return Ok(());
        }
        let sketch = database
            .store
            .sketch_table(self.before.table.id(), Arc::clone(&self.schema))
            .map_err(from_storage)?;
        let mut after = state.clone();
        self.remove_views(&mut after)?;
        if let Relation::Table(entry) = relation_mut(&mut after, &self.place)? {
            Arc::make_mut(entry).table = sketch;
        }
        let names = self.before.table.schema().names();
        let stays = |name: &str| !design.dropped.iter().any(|(dropped, _)| dropped == name);
        let change = ColumnChange {
            before: &names,
            now: &|name| stays(name).then(|| name.to_owned()),
            renames: false,
        };
        readers.carry_over(actor, &mut after, &change)?;
        for (place, was) in readers.texts() {
            let Some(Relation::View(view)) = after.relation(&place.schema, &place.name) else {
                continue;
            };
            if view.query != was {
                self.followed_views.insert(place, (was, view.query.clone()));
            }
        }
        Ok(())
    }

    /// With CASCADE, what reads a column goes with it; without, the column stays.
    fn drop_views(
        &mut self,
        state: &CatalogState,
        actor: &Actor,
        design: &Design,
        readers: &Readers<'_>,
    ) -> Result<(), SqlError> {
        let dependencies = Dependencies::of(state)?;
        let table = shown(state, actor, &self.place);
        for (column, cascade) in &design.dropped {
            let mut gone: BTreeSet<ResolvedName> = BTreeSet::new();
            let mut lines = Vec::new();
            let needed = format!("column {column} of table {table}");
            for view in readers.using(column)? {
                if !self.dropped_views.contains(&view) {
                    lines.push((
                        format!("view {}", shown(state, actor, &view)),
                        needed.clone(),
                    ));
                    gone.insert(view);
                }
            }
            for (view, needed) in dependencies.dependants(&gone) {
                if !self.dropped_views.contains(&view) {
                    let line = |place| format!("view {}", shown(state, actor, place));
                    lines.push((line(&view), line(&needed)));
                    gone.insert(view);
                }
            }
            if lines.is_empty() {
                continue;
            }
            if !cascade {
                let message = format!("cannot drop {needed} because other objects depend on it");
                return Err(depended_on(message, &lines));
            }
            self.notices.push(cascade_notice(&lines));
            self.dropped_views.append(&mut gone);
        }
        Ok(())
    }

    fn remove_views(&self, state: &mut CatalogState) -> Result<(), SqlError> {
        for place in &self.dropped_views {
            let relations = &mut state.schema_mut(&place.schema)?.relations;
            relations.remove(&place.name);
        }
        Ok(())
    }

    /// Makes the table in storage that the rows are to be copied to, under the checks that
    /// they have to meet.
    ///
    /// # Errors
    /// Too many columns, rows that are too wide, a layout that does not fit, the log.
    pub fn make_table(&mut self, draft: &Draft) -> Result<Arc<TableEntry>, SqlError> {
        let id = TableId(draft.load()?.allocate_oid()?);
        let old = &self.before.table;
        let names = self.schema.names();
        // Groups without the columns that have gone; what is new is by itself.
        let layout = old.layout().renamed(&names, &names);
        let indexes = self.indexes.iter().chain(&self.new_indexes);
        let indexes: Vec<TableIndex> = indexes.map(|index| index.index.clone()).collect();
        let schema = Arc::clone(&self.schema);
        let table = draft.create_table(id, schema, &layout, indexes, old.is_temporary())?;
        self.table = Some(Arc::clone(&table));
        let mut schema = TableSchema::clone(&self.schema);
        schema
            .checks
            .retain(|check| self.checks_to_verify.contains(&check.name));
        Ok(Arc::new(TableEntry {
            // Its rows are others than those of the table that is there.
            oid: RelationId(id.0),
            table: table.redefined(Arc::new(schema)),
            // They hold, for the rows are the same.
            foreign_keys: Vec::new(),
            // Storage has them, with all keys to be checked as rows come.
            indexes: Vec::new(),
            ..TableEntry::clone(&self.before)
        }))
    }

    /// Builds the indexes of new UNIQUE constraints, where the rows stay where they are. The
    /// transaction stands for the build where it waits for others; its cancel token stops it.
    ///
    /// # Errors
    /// Rows that are equal, lack of memory, cancellation, the log. None of them is there then.
    pub fn build_indexes(&self, draft: &Draft, transaction: &Transaction) -> Result<(), SqlError> {
        if self.rewrites {
            return Ok(());
        }
        let table = &self.before.table;
        for IndexEntry { index, .. } in &self.new_indexes {
            table
                .create_index(transaction, index.clone())
                .map_err(from_storage)?;
            draft.note(Effect::IndexBuilt(Arc::clone(table), index.name.clone()));
        }
        Ok(())
    }

    /// Readies the table for a definition that takes NULL where the old one did not.
    ///
    /// # Errors
    /// Lack of memory, cancellation, the log.
    pub fn make_room(&self, cancel: &CancelToken) -> Result<(), SqlError> {
        let before = &self.before.table.schema().columns;
        let columns = before.iter().zip(&self.schema.columns);
        let takes_null: Vec<usize> = columns
            .enumerate()
            .filter(|(_, (before, now))| now.nullable && !before.nullable)
            .map(|(at, _)| at)
            .collect();
        if self.rewrites || takes_null.is_empty() {
            return Ok(());
        }
        let table = &self.before.table;
        table
            .accept_nulls(&takes_null, cancel)
            .map_err(from_storage)
    }

    /// Makes the table visible as it has become.
    ///
    /// # Errors
    /// Somebody changed the table or its schema meanwhile, and the log takes no more.
    pub fn publish(self: Box<Self>, draft: &Draft) -> Result<CommandResult, SqlError> {
        let mut change = draft.change()?;
        match change.state.relation(&self.place.schema, &self.place.name) {
            Some(Relation::Table(now)) if Arc::ptr_eq(now, &self.before) => {}
            _ => return Err(changed_meanwhile()),
        }
        self.follow_references(&mut change.state)?;
        let entry = self.altered(&change.state)?;
        *relation_mut(&mut change.state, &self.place)? = Relation::Table(Arc::new(entry));
        self.remove_views(&mut change.state)?;
        self.settle_sequences(&mut change.state)?;
        self.settle_identities(draft, &mut change.state)?;
        for (place, (was, is)) in &self.followed_views {
            match relation_mut(&mut change.state, place)? {
                Relation::View(view) if view.query == *was => {
                    Arc::make_mut(view).query.clone_from(is);
                }
                _ => return Err(changed_meanwhile()),
            }
        }
        change.publish()?;
        let gone = |index: &&IndexEntry| !self.indexes.iter().any(|kept| kept.oid == index.oid);
        for index in self.before.indexes.iter().filter(gone) {
            let table = Arc::clone(&self.before.table);
            draft.note(Effect::IndexDropped(table, index.index.name.clone()));
        }
        Ok(CommandResult::new("ALTER TABLE").with_notices(self.notices))
    }

    fn altered(&self, state: &CatalogState) -> Result<TableEntry, SqlError> {
        let mut entry = TableEntry::clone(&self.before);
        entry.table = match &self.table {
            Some(table) => Arc::clone(table),
            None => entry.table.redefined(Arc::clone(&self.schema)),
        };
        let is_kept = |name: &str| {
            let at = self.schema.position(name);
            at.is_some_and(|at| self.sources[at] != Source::Added)
        };
        entry.column_comments.retain(|name, _| is_kept(name));
        entry.identities.clone_from(&self.identities);
        let same_key =
            entry.table.schema().primary_key_name == self.before.table.schema().primary_key_name;
        entry.key_oid = match (self.schema.primary_key.is_empty(), entry.key_oid) {
            (true, _) => IndexId::NONE,
            (false, oid) if oid != IndexId::NONE && same_key => oid,
            (false, _) => IndexId(state.allocate_oid()?),
        };
        entry.indexes.clone_from(&self.indexes);
        for index in &self.new_indexes {
            entry.indexes.push(IndexEntry {
                oid: IndexId(state.allocate_oid()?),
                ..index.clone()
            });
        }
        entry.foreign_keys = self.own_references(&entry, state)?;
        if let Some(owner) = &self.owner {
            entry.owner.clone_from(owner);
        }
        if self.rewrites {
            // It is counted by positions of columns.
            entry.usage = Arc::default();
        }
        entry.settle_comments();
        Ok(entry)
    }
}

/// Requires that the sequence that SEQUENCE NAME gives a name lies beside its table.
fn require_schema(sequence: &QualifiedName, table: &ResolvedName) -> Result<(), SqlError> {
    let is_beside = match sequence.schema.as_deref() {
        None => true,
        Some(PG_TEMP) => is_temporary(&table.schema),
        Some(schema) => schema == table.schema,
    };
    if is_beside {
        return Ok(());
    }
    Err(SqlError::new(
        ErrorKind::ObjectNotInPrerequisiteState,
        "sequence must be in same schema as table it is linked to",
    ))
}

fn changed_meanwhile() -> SqlError {
    SqlError::new(
        ErrorKind::SerializationFailure,
        "the table, or a view that reads it, was changed meanwhile",
    )
    .with_hint("Run the statement again.")
}
