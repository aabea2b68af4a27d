//! Whether a change may read what it reads of its target, and what its errors may show.
//!
//! Changing rows and reading them are separate rights: `UPDATE t SET a = 1` needs UPDATE alone;
//! `UPDATE t SET a = b`, a WHERE over columns of `t` and a RETURNING of them need SELECT, too.
//! The target's relation is resolved without SELECT ([`Target::resolve`]), so every part of a
//! change that can name its columns asks here after it has been planned: then it is clear whether
//! a name is the target's or another relation's. Rights to other relations are checked as in any
//! query. The fast path takes a change that reads only if the actor has both rights; otherwise the
//! change is bound here.
//!
//! An error's detail shows values of rows only to those who may read the table.

use std::sync::Arc;

use aerostat_catalog::{Relation, TableEntry};
use aerostat_sql::grants::Privilege;
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    common::{
        DataFusionError, Result,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    logical_expr::{
        Expr, LogicalPlan, Subquery,
        expr::{Exists, InSubquery, SetComparison},
    },
};

use crate::{
    error::{external, ours},
    plan::{StatementContext, TARGET_SCHEMA, Target},
};

/// Admits a part of a change, which may read the target only if the actor has the right.
///
/// # Errors
/// The part reads the target without the right: `permission denied for table t`.
pub(super) fn admit(
    context: &StatementContext,
    target: &Target,
    reads: impl FnOnce() -> bool,
) -> Result<()> {
    if may_read(context, &target.entry) || !reads() {
        return Ok(());
    }
    let denied = aerostat_catalog::ddl::denied("table", &target.entry.name);
    Err(external(denied))
}

fn may_read(context: &StatementContext, entry: &Arc<TableEntry>) -> bool {
    let relation = Relation::Table(Arc::clone(entry));
    context.actor.may(&relation, Privilege::Select)
}

/// Whether some expression names a column of the relation that is called `alias`.
pub(super) fn any_names<'e>(mut expressions: impl Iterator<Item = &'e Expr>, alias: &str) -> bool {
    expressions.any(|expression| names(expression, alias))
}

/// Whether an expression names a column of the relation that is called `alias`, also from within a
/// subquery.
pub(super) fn names(expression: &Expr, alias: &str) -> bool {
    let found = expression.exists(|part| {
        Ok(match part {
            Expr::Column(column) | Expr::OuterReferenceColumn(_, column) => {
                let relation = column.relation.as_ref();
                relation.is_some_and(|relation| relation.table() == alias)
            }
            Expr::ScalarSubquery(subquery)
            | Expr::Exists(Exists { subquery, .. })
            | Expr::InSubquery(InSubquery { subquery, .. })
            | Expr::SetComparison(SetComparison { subquery, .. }) => of_subquery(subquery, alias),
            _ => false,
        })
    });
    // The closure never fails.
    found.unwrap_or(true)
}

fn of_subquery(subquery: &Subquery, alias: &str) -> bool {
    refers_outwards(&subquery.subquery, alias)
}

/// Whether a subquery's plan refers to columns of an outer relation with this name. A relation
/// of the same name in between counts, too: at worst an unneeded right is asked for.
fn refers_outwards(plan: &LogicalPlan, alias: &str) -> bool {
    let mut refers = false;
    let walked = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            refers |= expression.exists(|part| {
                Ok(matches!(part, Expr::OuterReferenceColumn(_, column)
                    if column.relation.as_ref().is_some_and(|of| of.table() == alias)))
            })?;
            Ok(TreeNodeRecursion::Continue)
        })
    });
    refers || walked.is_err()
}

/// Whether the conditions and joins that find the rows of a change name columns of the target.
/// The output of `found`, which has all columns of all relations, does not count.
pub(super) fn found_by(target: &Target, found: &LogicalPlan) -> bool {
    match found {
        LogicalPlan::Projection(all) => conditions_name(&all.input, &target.alias),
        other => conditions_name(other, &target.alias),
    }
}

fn conditions_name(plan: &LogicalPlan, alias: &str) -> bool {
    if !scans_target(plan) {
        return refers_outwards(plan, alias);
    }
    if let LogicalPlan::SubqueryAlias(_) | LogicalPlan::TableScan(_) = plan {
        return false;
    }
    any_names(plan.expressions().iter(), alias)
        || plan
            .inputs()
            .into_iter()
            .any(|input| conditions_name(input, alias))
}

/// Whether a plan scans the target of a change.
fn scans_target(plan: &LogicalPlan) -> bool {
    let found = plan.exists(|node| {
        Ok(matches!(node, LogicalPlan::TableScan(scan)
            if scan.table_name.schema() == Some(TARGET_SCHEMA)))
    });
    // The closure never fails.
    found.unwrap_or(true)
}

/// A change's error without the values of rows that the actor may not read.
pub fn without_values(context: &StatementContext, error: DataFusionError) -> DataFusionError {
    let Some(told) = ours(&error) else {
        return error;
    };
    let tells_of_row = matches!(
        told.kind,
        ErrorKind::UniqueViolation | ErrorKind::NotNullViolation | ErrorKind::CheckViolation
    );
    if !tells_of_row || told.detail.is_none() {
        return error;
    }
    let Some((schema, table, _)) = told.object.as_deref() else {
        return error;
    };
    let relation = context.catalog.relation(schema, table);
    if relation.is_some_and(|relation| context.actor.may(relation, Privilege::Select)) {
        return error;
    }
    let mut told = SqlError::clone(told);
    told.detail = None;
    external(told)
}

/// The description of a key: with its values, if the actor may read the table that has them.
pub(super) fn described_key(
    context: &StatementContext,
    entry: &Arc<TableEntry>,
    describe: impl FnOnce() -> String,
) -> String {
    match may_read(context, entry) {
        true => describe(),
        false => "Key".to_owned(),
    }
}
