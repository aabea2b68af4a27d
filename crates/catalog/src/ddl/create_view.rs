//! CREATE VIEW.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use aerostat_api::{Notice, NoticeSeverity};
use aerostat_sql::names::{QualifiedName, ResolvedName, declared};
use aerostat_txn::LockMode;
use aerostat_types::{Column, ErrorKind, RelationId, SqlError};
use sqlparser::ast::{self, CreateTableOptions, SetExpr};

use super::{
    CommandResult, PlanColumns,
    alter::check_free,
    definition::check_columns,
    dependency::{Dependencies, qualify_query},
    instants,
    temporary::creation_place,
};
use crate::{
    actor::Actor,
    state::{CatalogState, Draft, Relation, ViewEntry, is_temporary, undefined_relation},
};

/// CREATE VIEW and CREATE OR REPLACE VIEW.
///
/// The entry's columns carry the names; the text may give more columns, under
/// other names, so whoever expands the view takes them by position.
///
/// # Errors
/// As PostgreSQL: the name, rights, the query's own errors, and columns that
/// a view that is replaced must keep.
pub fn create_view(
    draft: &Draft,
    actor: &Actor,
    statement: &ast::CreateView,
    planner: &dyn PlanColumns,
) -> Result<CommandResult, SqlError> {
    refuse_other_forms(statement)?;
    let mut notices = Vec::new();
    let name = QualifiedName::from_object_name(&statement.name, &mut notices)?;
    let mut query = statement.query.clone();
    let state = draft.load()?;
    instants::settle(&mut query, actor.zone);
    let needs = qualify_query(&state, actor, &mut query)?;
    let mut columns = planner.plan_columns(&query)?;
    if statement.columns.len() > columns.len() {
        return Err(SqlError::new(
            ErrorKind::SyntaxError,
            "CREATE VIEW specifies more column names than columns",
        ));
    }
    for (column, given) in columns.iter_mut().zip(&statement.columns) {
        column.name = declared(&given.name, &mut notices)?;
    }
    check_columns(&columns)?;
    if statement.or_replace {
        draft.lock_owned(actor, [&name], LockMode::AccessExclusive)?;
    }
    let reads_temporary = needs.iter().any(|needed| is_temporary(&needed.schema));
    if reads_temporary && !statement.temporary {
        let message = format!("view \"{}\" will be a temporary view", name.name);
        notices.push(Notice::new(NoticeSeverity::Notice, message));
    }
    let said = reads_temporary || statement.temporary;
    let place = creation_place(draft, actor, &name, said)?;
    let mut change = draft.change()?;
    // Planning has locked what the query names, but for what the planner does not know.
    for needed in &needs {
        if change
            .state
            .relation(&needed.schema, &needed.name)
            .is_none()
        {
            return Err(undefined_relation(&needed.name));
        }
    }
    let existing = replaced(
        &change.state,
        actor,
        &place,
        statement.or_replace,
        &columns,
        &needs,
    )?;
    let entry = match existing {
        Some(view) => ViewEntry {
            query: query.to_string(),
            columns,
            ..ViewEntry::clone(&view)
        },
        None => ViewEntry {
            oid: RelationId(change.state.allocate_oid()?),
            name: place.name.clone(),
            owner: actor.role.clone(),
            query: query.to_string(),
            columns,
            comment: None,
            column_comments: BTreeMap::new(),
            grants: Vec::new(),
        },
    };
    let relations = &mut change.state.schema_mut(&place.schema)?.relations;
    relations.insert(place.name, Relation::View(Arc::new(entry)));
    change.publish()?;
    Ok(CommandResult::new("CREATE VIEW").with_notices(notices))
}

fn refuse_other_forms(statement: &ast::CreateView) -> Result<(), SqlError> {
    let unsupported = |what: &str| {
        Err(SqlError::new(
            ErrorKind::FeatureNotSupported,
            format!("{what} not supported"),
        ))
    };
    if let SetExpr::Select(select) = &*statement.query.body
        && select.into.is_some()
    {
        let message = "views must not contain SELECT INTO";
        return Err(SqlError::new(ErrorKind::FeatureNotSupported, message));
    }
    if statement.materialized {
        return unsupported("materialized views are");
    }
    if statement.options != CreateTableOptions::None {
        return unsupported("options of views are");
    }
    let plain_columns = statement
        .columns
        .iter()
        .all(|column| column.data_type.is_none() && column.options.is_none());
    let other = statement.or_alter
        || statement.secure
        || statement.if_not_exists
        || statement.copy_grants
        || statement.with_no_schema_binding
        || statement.comment.is_some()
        || statement.to.is_some()
        || statement.params.is_some()
        || !statement.cluster_by.is_empty()
        || !plain_columns;
    if other {
        return Err(
            SqlError::new(ErrorKind::SyntaxError, "syntax error in CREATE VIEW")
                .with_hint("The form is CREATE [OR REPLACE] VIEW name [(column, …)] AS query."),
        );
    }
    Ok(())
}

/// The view that stands at the place and may be replaced.
fn replaced(
    state: &CatalogState,
    actor: &Actor,
    place: &ResolvedName,
    or_replace: bool,
    columns: &[Column],
    needs: &BTreeSet<ResolvedName>,
) -> Result<Option<Arc<ViewEntry>>, SqlError> {
    let Some(relation) = state
        .relation(&place.schema, &place.name)
        .filter(|_| or_replace)
    else {
        check_free(state, place)?;
        return Ok(None);
    };
    let Relation::View(view) = relation else {
        return Err(SqlError::new(
            ErrorKind::WrongObjectType,
            format!("\"{}\" is not a view", place.name),
        ));
    };
    actor.require_ownership(relation)?;
    if Dependencies::of(state)?.needs_itself(place, needs) {
        return Err(SqlError::new(
            ErrorKind::InvalidTableDefinition,
            format!("view \"{}\" would depend on itself", place.name),
        ));
    }
    check_replacement(&view.columns, columns)?;
    Ok(Some(Arc::clone(view)))
}

/// A replacement keeps the columns that are there, so that views on the view stay right; it may add more.
fn check_replacement(old: &[Column], new: &[Column]) -> Result<(), SqlError> {
    let error = |message: String| Err(SqlError::new(ErrorKind::InvalidTableDefinition, message));
    if new.len() < old.len() {
        return error("cannot drop columns from view".to_owned());
    }
    for (old, new) in old.iter().zip(new) {
        if old.name != new.name {
            return error(format!(
                "cannot change name of view column \"{}\" to \"{}\"",
                old.name, new.name
            ));
        }
        if old.ty != new.ty {
            return error(format!(
                "cannot change data type of view column \"{}\" from {} to {}",
                old.name, old.ty, new.ty
            ));
        }
    }
    Ok(())
}
