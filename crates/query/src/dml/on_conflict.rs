//! Binding `ON CONFLICT … DO NOTHING | DO UPDATE SET … [WHERE …]`.
//!
//! DO UPDATE is a second query, over pairs of an existing row and the row that was to be inserted
//! instead, `excluded`. It is bound with the statement and planned when there are such pairs; its
//! outputs are those of an UPDATE.
//!
//! ```text
//!  rows of the source ──► storage: what is in the way? ──┬─ nothing ──► insert
//!                                                        └─ a row ────► pairs ──► query ──► update
//! ```

use std::{ops::ControlFlow, sync::Arc};

use aerostat_catalog::{IndexEntry, Relation};
use aerostat_sql::{grants::Privilege, names::folded, tree::no_matching_constraint, walk};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    common::{Result, TableReference},
    logical_expr::{Expr, LogicalPlanBuilder},
    prelude::Column,
    sql::{
        planner::PlannerContext,
        sqlparser::ast::{
            self, ConflictTarget, DoUpdate, ObjectName, ObjectNamePart, OnConflictAction, OnInsert,
        },
    },
};

use super::{
    BoundDml, DmlKind, assign::assigned_values, bind::finish_with, rights, values::unsupported,
};
use crate::{
    error::external,
    pairs::{EXCLUDED, ORDINAL_COLUMN, Pairs},
    plan::{ROW_ID_COLUMN, StatementContext, Target},
};

/// The name of the existing rows where the statement calls its target `excluded`. Users cannot
/// write such a name.
const UNNAMED: &str = "\u{1}there";

/// The ON CONFLICT clause of an INSERT.
#[derive(Clone)]
pub(crate) struct OnConflict<T = Target> {
    /// The unique constraints that count, by their stored names.
    pub(crate) constraints: Vec<String>,
    /// DO UPDATE; `None` for DO NOTHING.
    pub(crate) update: Option<ConflictUpdate<T>>,
    /// Whether the rows may come in another order than the statement gives them, because subqueries
    /// in RETURNING are joins above them. Then it is not known which of several rows with one key
    /// is the first.
    pub(crate) is_unordered: bool,
}

/// DO UPDATE.
#[derive(Clone)]
pub(crate) struct ConflictUpdate<T = Target> {
    /// An UPDATE over the pairs, with [`ORDINAL_COLUMN`] as its last output.
    pub(crate) bound: Box<BoundDml<T>>,
    /// The pairs.
    pub(crate) pairs: Arc<Pairs>,
}

impl<T> OnConflict<T> {
    /// As [`BoundDml::with_target`].
    ///
    /// # Errors
    /// The errors of `make`.
    pub(super) fn with_target<U>(self, make: &impl Fn(T) -> Result<U>) -> Result<OnConflict<U>> {
        let update = match self.update {
            Some(update) => Some(ConflictUpdate {
                bound: Box::new(update.bound.with_target(make)?),
                pairs: update.pairs.afresh(),
            }),
            None => None,
        };
        Ok(OnConflict {
            constraints: self.constraints,
            update,
            is_unordered: self.is_unordered,
        })
    }
}

/// Binds an ON CONFLICT clause.
pub(super) fn bind_on_conflict(
    context: &StatementContext,
    target: &Target,
    on: &OnInsert,
    returning: Option<&[ast::SelectItem]>,
    parameters: &mut PlannerContext,
) -> Result<OnConflict> {
    let OnInsert::OnConflict(on) = on else {
        return Err(unsupported("ON DUPLICATE KEY UPDATE"));
    };
    let relation = Relation::Table(Arc::clone(&target.entry));
    let require = |privilege| {
        let required = context.actor.require(&relation, privilege);
        required.map_err(external)
    };
    if on.conflict_target.is_some() {
        require(Privilege::Select)?;
    }
    let chosen = arbiters(target, on.conflict_target.as_ref()).map_err(external)?;
    if let Some(index) = chosen.iter().find(|index| index.deferral.is_deferrable()) {
        return Err(external(deferrable(target, &index.index.name)));
    }
    let update = match &on.action {
        OnConflictAction::DoNothing => None,
        OnConflictAction::DoUpdate(_) if on.conflict_target.is_none() => {
            return Err(external(
                SqlError::new(
                    ErrorKind::SyntaxError,
                    "ON CONFLICT DO UPDATE requires inference specification or constraint name",
                )
                .with_hint("For example, ON CONFLICT (column_name)."),
            ));
        }
        OnConflictAction::DoUpdate(update) => {
            require(Privilege::Update)?;
            Some(bind_update(context, target, update, returning, parameters)?)
        }
    };
    Ok(OnConflict {
        constraints: chosen
            .iter()
            .map(|index| target.entry.stored_name(index))
            .collect(),
        update,
        is_unordered: returning.is_some_and(has_subquery),
    })
}

fn has_subquery(items: &[ast::SelectItem]) -> bool {
    let is_subquery = |expression: &ast::Expr| match expression {
        ast::Expr::Subquery(_)
        | ast::Expr::Exists { .. }
        | ast::Expr::InSubquery { .. }
        | ast::Expr::AnyOp { .. }
        | ast::Expr::AllOp { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    items
        .iter()
        .any(|item| walk::expressions(item, is_subquery).is_break())
}

/// The unique indexes that the conflict target names; all of them without a target.
fn arbiters(target: &Target, wanted: Option<&ConflictTarget>) -> Result<Vec<IndexEntry>, SqlError> {
    let unique = target
        .entry
        .all_indexes()
        .filter(|index| index.index.unique);
    match wanted {
        None => Ok(unique.collect()),
        Some(ConflictTarget::OnConstraint(name)) => {
            let name = constraint_name(name)?;
            let mut named = unique.filter(|index| index.is_constraint && index.index.name == name);
            match named.next() {
                Some(index) => Ok(vec![index]),
                None => Err(not_an_arbiter(target, &name)),
            }
        }
        Some(ConflictTarget::Columns(names)) => {
            let mut columns = Vec::with_capacity(names.len());
            for name in names {
                let name = folded(name);
                let at = target.entry.table.schema().position(&name);
                columns.push(at.ok_or_else(|| {
                    SqlError::new(
                        ErrorKind::UndefinedColumn,
                        format!("column \"{name}\" does not exist"),
                    )
                })?);
            }
            columns.sort_unstable();
            columns.dedup();
            let matches = |index: &IndexEntry| {
                let mut of_index = index.index.columns.clone();
                of_index.sort_unstable();
                of_index == columns
            };
            let matching: Vec<IndexEntry> = unique.filter(matches).collect();
            if matching.is_empty() {
                return Err(no_matching_constraint());
            }
            Ok(matching)
        }
    }
}

fn constraint_name(name: &ObjectName) -> Result<String, SqlError> {
    match &name.0[..] {
        [ObjectNamePart::Identifier(ident)] => Ok(folded(ident)),
        _ => Err(SqlError::new(
            ErrorKind::SyntaxError,
            "syntax error at or near \".\"",
        )),
    }
}

/// The error for a deferrable constraint, which several rows may break for a while.
fn deferrable(target: &Target, name: &str) -> SqlError {
    let message = "ON CONFLICT does not support deferrable unique constraints/exclusion constraints as arbiters";
    let mut error =
        SqlError::new(ErrorKind::ObjectNotInPrerequisiteState, message).with_constraint(name);
    let (schema, table) = (target.schema.clone(), target.entry.name.clone());
    error.object = Some(Box::new((schema, table, None)));
    error
}

/// The error for ON CONSTRAINT with a constraint that has no unique index.
fn not_an_arbiter(target: &Target, name: &str) -> SqlError {
    let checks = &target.entry.table.schema().checks;
    let keys = &target.entry.foreign_keys;
    if checks.iter().any(|check| check.name == name) || keys.iter().any(|key| key.name == name) {
        return SqlError::new(
            ErrorKind::WrongObjectType,
            "constraint in ON CONFLICT clause has no associated index",
        );
    }
    SqlError::new(
        ErrorKind::UndefinedObject,
        format!(
            "constraint \"{name}\" for table \"{}\" does not exist",
            target.entry.name
        ),
    )
}

fn bind_update(
    context: &StatementContext,
    target: &Target,
    update: &DoUpdate,
    returning: Option<&[ast::SelectItem]>,
    parameters: &mut PlannerContext,
) -> Result<ConflictUpdate> {
    let alias = match target.alias.as_str() {
        EXCLUDED => {
            refuse_ambiguous(update).map_err(external)?;
            UNNAMED
        }
        alias => alias,
    };
    let pairs = Pairs::of(target);
    let mut found = pairs.plan(target, alias)?;
    let mut condition = None;
    if let Some(selection) = &update.selection {
        let planner = context.planner();
        let planned = planner.sql_to_expr(selection.clone(), found.schema(), parameters)?;
        let filter = condition.insert(planned).clone();
        found = LogicalPlanBuilder::from(found).filter(filter)?.build()?;
    }
    let assigned = assigned_values(
        context,
        target,
        &update.assignments,
        found.schema(),
        parameters,
    )?;
    rights::admit(context, target, || {
        let values = assigned.iter().flatten();
        condition
            .iter()
            .chain(values)
            .any(|e| rights::names(e, alias))
    })?;
    let of_target = |name: &str| Column::new(Some(TableReference::bare(alias)), name);
    let changed = (0..assigned.len()).filter(|at| assigned[*at].is_some());
    let changed: Vec<usize> = changed.collect();
    let mut outputs = vec![Expr::Column(of_target(ROW_ID_COLUMN)).alias(ROW_ID_COLUMN)];
    let columns = &target.entry.table.schema().columns;
    for (column, assigned) in columns.iter().zip(assigned) {
        let value = assigned.unwrap_or_else(|| Expr::Column(of_target(&column.name)));
        outputs.push(value.alias_qualified(Some(target.reference()), column.name.as_str()));
    }
    outputs.push(Expr::Column(Column::from_name(ORDINAL_COLUMN)));
    let plan = LogicalPlanBuilder::from(found).project(outputs)?.build()?;
    let hidden = vec![Expr::Column(Column::from_name(ORDINAL_COLUMN))];
    let bound = finish_with(
        context,
        DmlKind::Update,
        target.clone(),
        plan,
        returning,
        parameters,
        hidden,
    )?;
    let bound = BoundDml {
        assigned: changed,
        ..bound
    };
    Ok(ConflictUpdate {
        bound: Box::new(bound),
        pairs,
    })
}

/// Refuses to name `excluded` where the target is called so, too.
fn refuse_ambiguous(update: &DoUpdate) -> Result<(), SqlError> {
    let names_either = |expression: &ast::Expr| match expression {
        ast::Expr::CompoundIdentifier(parts) if folded(&parts[0]) == EXCLUDED => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    };
    if walk::expressions(update, names_either).is_break() {
        return Err(SqlError::new(
            ErrorKind::AmbiguousAlias,
            format!("table reference \"{EXCLUDED}\" is ambiguous"),
        ));
    }
    Ok(())
}
