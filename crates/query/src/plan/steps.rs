//! Rows that one step of a statement hands to the next: the RETURNING rows of a change in WITH, and
//! the rows of a WITH query that must run once.
//!
//! The step's query in WITH becomes `SELECT … FROM "⟨step⟩"."0"`, with which the other steps are
//! planned. The rows come when the step has run (`session::steps` of the engine).

use std::{
    collections::HashMap,
    fmt,
    future::ready,
    sync::{Arc, OnceLock},
};

use datafusion::{
    arrow::{
        array::RecordBatch,
        compute::cast,
        datatypes::{Field, Schema, SchemaRef},
    },
    catalog::{Session, TableProvider},
    common::{DataFusionError, Result},
    datasource::{TableType, memory::MemorySourceConfig},
    execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation},
    logical_expr::Expr,
    physical_plan::ExecutionPlan,
    sql::sqlparser::{ast, dialect::PostgreSqlDialect, parser::Parser},
};
use parking_lot::Mutex;

use aerostat_pgcatalog::Planning;
use aerostat_sql::names::{SUFFIX, visible_name};

use super::Origins;

/// The schema under which the steps of a statement name each other's rows.
pub(super) const STEP_SCHEMA: &str = "\u{1}step";

/// The rows of a statement's steps, by number.
#[derive(Default)]
pub struct StepTables(Mutex<Vec<Arc<StepRows>>>);

impl StepTables {
    /// Adds the rows of another step. Returns the query that reads them.
    ///
    /// # Errors
    /// No error for outputs with names.
    pub fn add(&self, rows: &Arc<StepRows>) -> Result<ast::Query> {
        let mut tables = self.0.lock();
        let number = tables.len();
        tables.push(Arc::clone(rows));
        let fields = rows.schema.fields().iter();
        let columns = fields.map(|field| format!("\"{}\"", field.name().replace('"', "\"\"")));
        let columns = columns.collect::<Vec<_>>().join(", ");
        let text = format!("SELECT {columns} FROM \"{STEP_SCHEMA}\".\"{number}\"");
        let query = Parser::new(&PostgreSqlDialect {})
            .try_with_sql(&text)
            .and_then(|mut parser| parser.parse_query());
        match query {
            Ok(query) => Ok(*query),
            Err(error) => Err(DataFusionError::Internal(error.to_string())),
        }
    }

    /// The rows of a step by its number.
    pub(super) fn table(&self, number: &str) -> Result<Arc<StepRows>> {
        let number: Option<usize> = number.parse().ok();
        let tables = self.0.lock();
        let found = number.and_then(|number| tables.get(number).cloned());
        found.ok_or_else(|| DataFusionError::Internal("a step without a number".to_owned()))
    }
}

/// The rows of a step; none until it has run.
pub struct StepRows {
    schema: SchemaRef,
    origins: Origins,
    rows: OnceLock<Rows>,
}

struct Rows {
    batches: Vec<RecordBatch>,
    /// Held as long as the batches.
    _reservation: MemoryReservation,
}

impl StepRows {
    /// For rows of these columns with these origins. The first columns get the aliases as names.
    pub fn new<'f>(
        fields: impl Iterator<Item = &'f Arc<Field>>,
        aliases: &[String],
        origins: Origins,
    ) -> Self {
        let mut names: HashMap<String, usize> = HashMap::new();
        let named = fields.enumerate().map(|(at, field)| {
            let alias = aliases.get(at).map(String::as_str);
            let name = alias
                .unwrap_or_else(|| visible_name(field.name()))
                .to_owned();
            let same = names.entry(name.clone()).or_default();
            *same += 1;
            let name = match *same {
                1 => name,
                _ => format!("{name}{SUFFIX}{at}"),
            };
            field.as_ref().clone().with_name(name).with_nullable(true)
        });
        let schema = Schema::new(named.collect::<Vec<_>>());
        assert_eq!(
            origins.len(),
            schema.fields().len(),
            "each column of a step has an origin or none"
        );
        Self {
            schema: Arc::new(schema),
            origins,
            rows: OnceLock::new(),
        }
    }

    /// The origins of its columns.
    pub(super) fn origins(&self) -> &Origins {
        &self.origins
    }

    /// Takes the step's rows, whose memory is charged to `pool`. The caller has run the step.
    ///
    /// # Errors
    /// The pool has no room.
    pub fn put(&self, rows: Vec<RecordBatch>, pool: &Arc<dyn MemoryPool>) -> Result<()> {
        let reservation = MemoryConsumer::new("rows of WITH").register(pool);
        let batches = rows.iter().map(|rows| self.under(rows));
        let batches = batches.collect::<Result<Vec<_>>>()?;
        let bytes = batches.iter().map(RecordBatch::get_array_memory_size);
        reservation.try_grow(bytes.sum())?;
        let put = self.rows.set(Rows {
            batches,
            _reservation: reservation,
        });
        assert!(put.is_ok(), "a step runs once");
        Ok(())
    }

    /// Rows under this step's schema: a plan may use another type of texts.
    fn under(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        assert_eq!(
            rows.num_columns(),
            self.schema.fields().len(),
            "a step gives the columns that other steps were planned with"
        );
        let columns = rows.columns().iter().zip(self.schema.fields());
        let columns = columns.map(|(column, field)| cast(column, field.data_type()));
        let columns = columns.collect::<std::result::Result<_, _>>()?;
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

impl fmt::Debug for StepRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StepRows")
    }
}

impl TableProvider for StepRows {
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
        let rows = self.rows.get().map(|rows| rows.batches.clone());
        let (rows, schema) = (rows.unwrap_or_default(), Arc::clone(&self.schema));
        let plan = MemorySourceConfig::try_new_exec(&[rows], schema, projection.cloned());
        Box::pin(ready(plan.map(|plan| plan as Arc<dyn ExecutionPlan>)))
    }
}
