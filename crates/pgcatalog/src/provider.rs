//! A system relation as a table that DataFusion can scan. Its rows are made when
//! it is scanned, from the statement's one view of the catalogue.

use std::{fmt, sync::Arc};

use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    arrow::{
        datatypes::{Schema, SchemaRef},
        record_batch::RecordBatch,
    },
    catalog::{Session, TableProvider},
    common::{DataFusionError, Result},
    datasource::{TableType, memory::MemorySourceConfig},
    logical_expr::Expr,
    physical_plan::ExecutionPlan,
};
use futures::future::{BoxFuture, ready};

use crate::{
    CatalogView, cell::Rows, data::SystemRelation, tables, types, view::rights::is_secret,
};

/// What [`TableProvider::scan`] returns. The providers of this crate and of `query` plan at once and return a
/// future that is ready. An `async fn` would hold the filters, and for each of them the compiler
/// would prove anew that every type of a logical plan can be sent between threads, which takes
/// it ten seconds each.
pub type Planning<'a> = BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>>;

/// A system relation, bound to a view of the catalogue.
pub(crate) struct SystemTable {
    view: Arc<CatalogView>,
    relation: &'static SystemRelation,
    schema: SchemaRef,
}

impl SystemTable {
    pub(crate) fn new(view: Arc<CatalogView>, relation: &'static SystemRelation) -> Self {
        let fields: Vec<_> = relation
            .columns
            .iter()
            .map(|column| types::field(column.name, column.typname, column.nullable))
            .collect();
        Self {
            view,
            relation,
            schema: Arc::new(Schema::new(fields)),
        }
    }

    /// All its rows.
    fn rows(&self) -> Result<RecordBatch> {
        let mut rows = Rows::new(Arc::clone(&self.schema));
        tables::fill(&self.view, self.relation, &mut rows);
        rows.finish()
    }

    fn plan(&self, projection: Option<&Vec<usize>>) -> Result<Arc<dyn ExecutionPlan>> {
        if is_secret(self.relation) && !self.view.superuser {
            return Err(DataFusionError::External(Box::new(SqlError::new(
                ErrorKind::InsufficientPrivilege,
                format!("permission denied for table {}", self.relation.name),
            ))));
        }
        let batch = self.rows()?;
        Ok(MemorySourceConfig::try_new_exec(
            &[vec![batch]],
            Arc::clone(&self.schema),
            projection.cloned(),
        )?)
    }
}

impl fmt::Debug for SystemTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemTable")
            .field("name", &self.relation.name)
            .finish_non_exhaustive()
    }
}

impl TableProvider for SystemTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        if self.relation.kind == 'v' {
            TableType::View
        } else {
            TableType::Base
        }
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
        Box::pin(ready(self.plan(projection)))
    }
}
