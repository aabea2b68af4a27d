//! Which columns of a plan have no combination of values twice: by enforced keys, and by GROUP BY.

use datafusion::{
    common::{Column, JoinType},
    datasource::source_as_provider,
    logical_expr::{Expr, LogicalPlan, TableScan},
};

use crate::scan::TableScanProvider;

/// Whether no two rows of a plan are equal in all of these columns, apart from NULLs. A deferrable
/// key counts, although it may be broken for a while: if a side then has a key twice, the original
/// plan runs.
pub(super) fn is_unique(plan: &LogicalPlan, columns: &[usize]) -> bool {
    match plan {
        LogicalPlan::TableScan(scan) => is_unique_in(scan, columns),
        LogicalPlan::SubqueryAlias(alias) => is_unique(&alias.input, columns),
        LogicalPlan::Filter(filter) => is_unique(&filter.input, columns),
        LogicalPlan::Projection(projection) => {
            let of_input = |&at: &usize| {
                let column = plain(projection.expr.get(at)?)?;
                projection.input.schema().index_of_column(column).ok()
            };
            // Computed columns do not count.
            let columns: Vec<usize> = columns.iter().filter_map(of_input).collect();
            is_unique(&projection.input, &columns)
        }
        LogicalPlan::Join(join)
            if matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti) =>
        {
            is_unique(&join.left, columns)
        }
        LogicalPlan::Aggregate(aggregate) => {
            let is_set = matches!(aggregate.group_expr[..], [Expr::GroupingSet(_), ..]);
            !is_set && (0..aggregate.group_expr.len()).all(|group| columns.contains(&group))
        }
        _ => false,
    }
}

fn plain(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => plain(&alias.expr),
        _ => None,
    }
}

fn is_unique_in(scan: &TableScan, columns: &[usize]) -> bool {
    let Ok(provider) = source_as_provider(&scan.source) else {
        return false;
    };
    let Some(provider) = provider.downcast_ref::<TableScanProvider>() else {
        return false;
    };
    let stored = |&at: &usize| stored_at(scan, at);
    let columns: Vec<usize> = columns.iter().filter_map(stored).collect();
    let covers = |key: &[usize]| !key.is_empty() && key.iter().all(|at| columns.contains(at));
    let table = provider.table();
    let indexes = table.indexes();
    let mut unique = indexes.iter().filter(|index| index.unique);
    covers(&table.schema().primary_key) || unique.any(|index| covers(&index.columns))
}

/// The position in its table of a scan's column.
pub(super) fn stored_at(scan: &TableScan, at: usize) -> Option<usize> {
    match &scan.projection {
        Some(projection) => projection.get(at).copied(),
        None => Some(at),
    }
}
