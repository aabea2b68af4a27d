//! Detaching plans from the statement that they were made for, and attaching them to another.
//!
//! A scan in a detached plan holds its table weakly, and has no snapshot, so the table's memory
//! does not wait for the plan. A statement attaches its own view of each table.

use std::sync::{Arc, Weak};

use aerostat_catalog::TableEntry;
use datafusion::{
    arrow::datatypes::SchemaRef,
    catalog::TableProvider,
    common::{DataFusionError, Result, tree_node::Transformed},
    datasource::{DefaultTableSource, provider_as_source},
    logical_expr::{LogicalPlan, TableScan, TableSource},
};

use crate::{pairs::Pairs, plan::StatementContext, scan::TableScanProvider};

/// A table of a cached plan, which is found only under the catalogue that it was made under.
///
/// # Errors
/// The table is gone, which cannot happen under that catalogue.
pub(crate) fn known(table: &Weak<TableEntry>) -> Result<Arc<TableEntry>> {
    let entry = table.upgrade();
    entry.ok_or_else(|| internal("a kept plan without its table"))
}

/// What a scan in a cached plan reads.
enum Reads {
    Table {
        table: Weak<TableEntry>,
        row_ids: bool,
    },
    /// The pairs of DO UPDATE.
    Pairs,
}

/// The source of a scan in a cached plan.
struct KeptSource {
    reads: Reads,
    schema: SchemaRef,
}

impl KeptSource {
    /// The source as a statement sees it.
    fn revive(
        &self,
        context: &StatementContext,
        pairs: Option<&Arc<Pairs>>,
    ) -> Result<Arc<dyn TableSource>> {
        let (table, row_ids) = match &self.reads {
            Reads::Table { table, row_ids } => (table, *row_ids),
            Reads::Pairs => {
                let pairs = pairs.ok_or_else(|| internal("a kept plan without its pairs"))?;
                return Ok(provider_as_source(
                    Arc::clone(pairs) as Arc<dyn TableProvider>
                ));
            }
        };
        let entry = known(table)?;
        context.met.lock().note_table(&entry);
        Ok(context.scan_of(&entry, row_ids))
    }
}

impl TableSource for KeptSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Attaches a query's plan to a statement.
///
/// # Errors
/// A table is gone.
pub(crate) fn attached(plan: LogicalPlan, context: &StatementContext) -> Result<LogicalPlan> {
    attached_with(plan, context, None)
}

/// Attaches a plan to a statement, with the pairs of its DO UPDATE if it has one.
///
/// # Errors
/// A table is gone, or the plan reads pairs and gets none.
pub(crate) fn attached_with(
    plan: LogicalPlan,
    context: &StatementContext,
    pairs: Option<&Arc<Pairs>>,
) -> Result<LogicalPlan> {
    map_scans(plan, |scan| {
        let kept = scan.source.downcast_ref::<KeptSource>();
        let kept = kept.ok_or_else(|| internal("a kept plan with a source of its own"))?;
        kept.revive(context, pairs)
    })
}

/// Detaches a plan from its statement.
///
/// # Errors
/// The plan reads something else than these tables.
pub(crate) fn detached(plan: LogicalPlan, tables: &[Arc<TableEntry>]) -> Result<LogicalPlan> {
    map_scans(plan, |scan| {
        let reads = match scanned(scan, tables) {
            Some(Scanned::Table { entry, row_ids }) => Reads::Table {
                table: Arc::downgrade(entry),
                row_ids,
            },
            Some(Scanned::Pairs) => Reads::Pairs,
            None => return Err(internal("a plan of an unknown table is kept")),
        };
        let schema = scan.source.schema();
        Ok(Arc::new(KeptSource { reads, schema }))
    })
}

/// A plan whose scans take filters before the parameters in them have values.
///
/// # Errors
/// The errors of walking a plan.
pub fn opened(plan: LogicalPlan) -> Result<LogicalPlan> {
    map_scans(plan, |scan| {
        let source = scan.source.downcast_ref::<DefaultTableSource>();
        let provider =
            source.and_then(|source| source.table_provider.downcast_ref::<TableScanProvider>());
        Ok(match provider {
            Some(provider) => provider_as_source(Arc::new(provider.open())),
            None => Arc::clone(&scan.source),
        })
    })
}

/// Replaces the sources of a plan's scans.
fn map_scans(
    plan: LogicalPlan,
    mut source: impl FnMut(&TableScan) -> Result<Arc<dyn TableSource>>,
) -> Result<LogicalPlan> {
    let mapped = plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::TableScan(mut scan) => {
            scan.source = source(&scan)?;
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        }
        other => Ok(Transformed::no(other)),
    });
    Ok(mapped?.data)
}

/// What a scan reads, if its plan may be cached.
pub(crate) enum Scanned<'t> {
    Table {
        entry: &'t Arc<TableEntry>,
        row_ids: bool,
    },
    /// The pairs of DO UPDATE.
    Pairs,
}

/// What a scan reads, if it is one of these tables, or the pairs of DO UPDATE.
pub(crate) fn scanned<'t>(scan: &TableScan, tables: &'t [Arc<TableEntry>]) -> Option<Scanned<'t>> {
    let source = scan.source.downcast_ref::<DefaultTableSource>()?;
    if source.table_provider.is::<Pairs>() {
        return Some(Scanned::Pairs);
    }
    let provider = source.table_provider.downcast_ref::<TableScanProvider>()?;
    let is_read = |entry: &&Arc<TableEntry>| Arc::ptr_eq(&entry.table, provider.table());
    Some(Scanned::Table {
        entry: tables.iter().find(is_read)?,
        row_ids: provider.has_row_ids(),
    })
}

fn internal(what: &str) -> DataFusionError {
    DataFusionError::Internal(what.to_owned())
}
