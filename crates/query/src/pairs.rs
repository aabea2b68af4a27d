//! The pairs that the query of DO UPDATE reads.

use std::{fmt, sync::Arc};

use aerostat_pgcatalog::Planning;
use datafusion::{
    arrow::{
        array::RecordBatch,
        datatypes::{DataType, Field, Schema, SchemaRef},
    },
    catalog::{Session, TableProvider},
    common::{Result, TableReference},
    datasource::{TableType, memory::MemorySourceConfig, provider_as_source},
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder},
    physical_plan::ExecutionPlan,
};
use futures::future::ready;
use parking_lot::Mutex;

use crate::plan::{ROW_ID_COLUMN, Target};

/// The name of the relation with the rows that were to be inserted.
pub(crate) const EXCLUDED: &str = "excluded";

/// The column with the position of a pair's row among the statement's rows. Users cannot write such
/// a name.
pub(crate) const ORDINAL_COLUMN: &str = "\u{1}ordinal";

/// Pairs of rows as a table: row id and ordinal, the existing row, the row that was to be
/// inserted.
pub(crate) struct Pairs {
    schema: SchemaRef,
    rows: Mutex<Option<RecordBatch>>,
}

impl Pairs {
    /// No pairs yet, with the columns of this table.
    pub(crate) fn of(target: &Target) -> Arc<Self> {
        let columns = &target.entry.table.schema().columns;
        let mut fields = vec![
            Field::new(ROW_ID_COLUMN, DataType::UInt64, false),
            Field::new(ORDINAL_COLUMN, DataType::UInt64, false),
        ];
        for side in ["old", "new"] {
            let of_side = columns.iter().enumerate();
            fields
                .extend(of_side.map(|(at, column)| column.ty.field(&format!("{side}{at}"), true)));
        }
        Arc::new(Self {
            schema: Arc::new(Schema::new(fields)),
            rows: Mutex::new(None),
        })
    }

    /// No pairs yet, with the same columns.
    pub(crate) fn afresh(&self) -> Arc<Self> {
        Arc::new(Self {
            schema: Arc::clone(&self.schema),
            rows: Mutex::new(None),
        })
    }

    /// Its columns.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Replaces the rows, for the plan that is made next.
    pub(crate) fn put(&self, rows: RecordBatch) {
        *self.rows.lock() = Some(rows);
    }

    /// A plan of all pairs, whose columns have the names that the statement uses. `alias` is the
    /// name of the existing row's relation.
    pub(crate) fn plan(self: &Arc<Self>, target: &Target, alias: &str) -> Result<LogicalPlan> {
        let source = provider_as_source(Arc::clone(self) as Arc<dyn TableProvider>);
        let scan = LogicalPlanBuilder::scan("pairs", source, None)?.build()?;
        let columns = &target.entry.table.schema().columns;
        let names = [(alias, ROW_ID_COLUMN), ("", ORDINAL_COLUMN)];
        let sides = [alias, EXCLUDED].into_iter();
        let of_sides = sides.flat_map(|side| {
            columns
                .iter()
                .map(move |column| (side, column.name.as_str()))
        });
        let outputs: Vec<Expr> = scan
            .schema()
            .iter()
            .zip(names.into_iter().chain(of_sides))
            .map(|(pair, (qualifier, name))| match qualifier {
                "" => Expr::from(pair).alias(name),
                qualifier => {
                    let qualifier = TableReference::bare(qualifier);
                    Expr::from(pair).alias_qualified(Some(qualifier), name)
                }
            })
            .collect();
        LogicalPlanBuilder::from(scan).project(outputs)?.build()
    }
}

impl fmt::Debug for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pairs")
    }
}

impl TableProvider for Pairs {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    fn scan<'s, 't, 'p, 'f, 'r>(
        &'s self,
        _state: &'t dyn Session,
        projection: Option<&'p Vec<usize>>,
        _filters: &'f [Expr],
        _limit: Option<usize>,
    ) -> Planning<'r>
    where
        's: 'r,
        't: 'r,
        'p: 'r,
        'f: 'r,
        Self: 'r,
    {
        let rows: Vec<RecordBatch> = self.rows.lock().iter().cloned().collect();
        let schema = Arc::clone(&self.schema);
        let plan = MemorySourceConfig::try_new_exec(&[rows], schema, projection.cloned());
        Box::pin(ready(plan.map(|plan| plan as Arc<dyn ExecutionPlan>)))
    }
}
