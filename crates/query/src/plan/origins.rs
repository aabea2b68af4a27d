//! The origin of a query's output: which column of which relation it is. Clients get it with the
//! description of a result's columns: drivers find keys, defaults and comments by it, and edit rows
//! in place.
//!
//! An output that is a column has an origin, however it was renamed, joined, sorted or grouped; a
//! computed output has none. A column of a view has the view as its origin.

use std::{ops::Range, sync::Arc};

use aerostat_api::ColumnDescription;
use aerostat_catalog::Relation;
use aerostat_sql::names::PG_CATALOG;
use aerostat_types::RelationId;
use datafusion::{
    arrow::datatypes::Schema,
    common::TableReference,
    logical_expr::{Distinct, Expr, LogicalPlan, utils::grouping_set_to_exprlist},
};

use super::{StatementContext, Target, describe, steps::STEP_SCHEMA};

/// A relation's OID and the number of its column, from 1.
pub(crate) type Origin = Option<(RelationId, i16)>;

/// The origins of a query's outputs, in order.
pub type Origins = Vec<Origin>;

/// The description of a query's columns for the client: `schema` is the result's, and `plan` says
/// where its columns come from.
pub fn describe_query(
    context: &StatementContext,
    plan: &LogicalPlan,
    schema: &Schema,
) -> Arc<[ColumnDescription]> {
    describe_columns(&origins(context, plan), schema)
}

/// As [`describe_query`], for a query whose outputs have these origins.
pub fn describe_columns(origins: &Origins, schema: &Schema) -> Arc<[ColumnDescription]> {
    assert_eq!(
        origins.len(),
        schema.fields().len(),
        "each column of a result has an origin or none"
    );
    let mut described = describe(schema).to_vec();
    for (column, &origin) in described.iter_mut().zip(origins) {
        if let Some((table_oid, attnum)) = origin {
            (column.table_oid, column.attnum) = (table_oid, attnum);
        }
    }
    described.into()
}

/// The origins of a plan's outputs, in order.
pub fn origins(context: &StatementContext, plan: &LogicalPlan) -> Origins {
    let of_columns = |expressions: Vec<&Expr>, input: &LogicalPlan| {
        let inner = origins(context, input);
        let of = |expression: &Expr| match bare(expression) {
            Expr::Column(column) => *inner.get(input.schema().maybe_index_of_column(column)?)?,
            _ => None,
        };
        expressions.into_iter().map(of).collect::<Vec<_>>()
    };
    let outputs = plan.schema().fields().len();
    let mut found = match plan {
        LogicalPlan::TableScan(scan) if scan.table_name.schema() == Some(STEP_SCHEMA) => {
            let step = context.steps.table(scan.table_name.table());
            let all = step.map(|step| step.origins().clone()).unwrap_or_default();
            match &scan.projection {
                Some(columns) => columns
                    .iter()
                    .map(|&at| all.get(at).copied().flatten())
                    .collect(),
                None => all,
            }
        }
        LogicalPlan::TableScan(scan) => {
            let oid = relation(context, &scan.table_name);
            let all = 0..scan.source.schema().fields().len();
            let columns = scan.projection.clone().unwrap_or_else(|| all.collect());
            columns.iter().map(|&at| numbered(oid?, at)).collect()
        }
        LogicalPlan::SubqueryAlias(alias) => match context.resolve(&alias.alias) {
            Ok((_, Relation::View(view))) => {
                (0..outputs).map(|at| numbered(view.oid, at)).collect()
            }
            _ => origins(context, &alias.input),
        },
        LogicalPlan::Projection(projection) => {
            of_columns(projection.expr.iter().collect(), &projection.input)
        }
        LogicalPlan::Aggregate(aggregate) => {
            // The keys as they are in the schema: each once.
            let keys = grouping_set_to_exprlist(&aggregate.group_expr).unwrap_or_default();
            of_columns(keys, &aggregate.input)
        }
        LogicalPlan::Filter(filter) => origins(context, &filter.input),
        LogicalPlan::Sort(sort) => origins(context, &sort.input),
        LogicalPlan::Limit(limit) => origins(context, &limit.input),
        LogicalPlan::Distinct(Distinct::All(input)) => origins(context, input),
        LogicalPlan::Window(window) => origins(context, &window.input),
        LogicalPlan::Join(join) => {
            let mut both = origins(context, &join.left);
            both.extend(origins(context, &join.right));
            both
        }
        _ => Vec::new(),
    };
    found.resize(outputs, None);
    found
}

/// The origins of RETURNING's outputs over a plan in which the target's columns are at the
/// positions `columns`: these are columns of the table, whatever is assigned to them.
pub(crate) fn returned_origins(
    context: &StatementContext,
    target: &Target,
    returned: impl Iterator<Item = Expr>,
    plan: &LogicalPlan,
    columns: Range<usize>,
) -> Origins {
    let inner = origins(context, plan);
    let of = |expression: Expr| match bare(&expression) {
        Expr::Column(column) => match plan.schema().maybe_index_of_column(column)? {
            at if columns.contains(&at) => numbered(target.entry.oid, at - columns.start),
            at => *inner.get(at)?,
        },
        _ => None,
    };
    returned.map(of).collect()
}

fn bare(expression: &Expr) -> &Expr {
    match expression {
        Expr::Alias(alias) => bare(&alias.expr),
        other => other,
    }
}

fn numbered(oid: RelationId, at: usize) -> Origin {
    Some((oid, i16::try_from(at + 1).ok()?))
}

/// The OID of a relation that a plan scans.
fn relation(context: &StatementContext, name: &TableReference) -> Option<RelationId> {
    aerostat_pgcatalog::relation_oid(name.schema().unwrap_or(PG_CATALOG), name.table())
        .or_else(|| context.resolve(name).ok().map(|(_, found)| found.oid()))
}
