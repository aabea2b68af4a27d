//! The context of one statement: one catalogue state, one snapshot, one set of settings. Names are
//! resolved through it, and every scan of a table in the statement reads the same rows.

use std::{
    collections::{BTreeSet, HashMap},
    ops::ControlFlow,
    sync::{Arc, OnceLock},
};

use aerostat_catalog::{
    Actor, CatalogState, Database, Relation, SEQUENCE_COLUMNS, SequenceEntry, TableEntry,
    ViewEntry, undefined_relation,
};
use aerostat_pgcatalog::CatalogView;
use aerostat_semantics::resolve_constant;
use aerostat_sql::{
    deferral::Deferral,
    grants::Privilege,
    names::{AEROSTAT, INFORMATION_SCHEMA, PG_CATALOG, QualifiedName, split_name},
    sequence_text as text,
    statement::{Statement, StatementKind},
    walk,
};
use aerostat_storage::TableView;
use aerostat_txn::{LockMode, Snapshot};
use aerostat_types::{ConstraintId, ErrorKind, RelationId, SqlError};
use datafusion::{
    arrow::{
        array::{ArrayRef, BooleanArray, Int64Array, RecordBatch},
        datatypes::{DataType, Schema, SchemaRef},
    },
    catalog::{TableFunctionArgs, TableProvider, cte_worktable::CteWorkTable},
    common::{DFSchema, DataFusionError, Result, TableReference, config::ConfigOptions},
    datasource::{MemTable, ViewTable, provider_as_source},
    execution::SessionState,
    logical_expr::{
        AggregateUDF, Expr, HigherOrderUDF, ScalarUDF, TableSource, WindowUDF,
        planner::{ContextProvider, ExprPlanner, RelationPlanner, TypePlanner},
        simplify::SimplifyContext,
    },
    optimizer::simplify_expressions::ExprSimplifier,
    sql::{
        planner::{ParserOptions, PlannerContext, SqlToRel},
        sqlparser::ast::{self, Visit},
    },
};
use parking_lot::Mutex;

use super::{
    locking::{LOCK_SCHEMA, Locking},
    steps::{STEP_SCHEMA, StepTables},
};
use crate::{deferred::Deferred, error::external, plan::Gate, scan::TableScanProvider};

/// The schema under which the queries of DML name its target, so that only the target has the
/// row-id column, and not other uses of the same table in the statement.
pub(crate) const TARGET_SCHEMA: &str = "\u{1}target";

/// The column of row ids that a DML target has beside its own columns.
pub(crate) const ROW_ID_COLUMN: &str = aerostat_storage::ROW_ID_COLUMN;

/// How deep views may be nested.
const VIEW_DEPTH_MAX: usize = 32;

/// Everything a statement is planned and run against.
pub struct StatementContext {
    /// The state that it is planned and run with, which contains its session's settings.
    pub state: Arc<SessionState>,
    /// The database whose tables it reads and changes.
    pub database: Arc<Database>,
    /// The definitions that it sees.
    pub catalog: Arc<CatalogState>,
    /// The rows that it sees.
    pub snapshot: Snapshot,
    /// The role whose rights count, and where names are looked for.
    pub actor: Actor,
    /// The view of the catalogue from which system relations and their functions answer.
    pub system: Arc<CatalogView>,
    /// Takes the statement's locks.
    pub gate: Arc<Gate>,
    /// The view of each table that it reads or changes. Each is made once, so that the rows found
    /// and the rows changed are of one directory.
    views: Mutex<HashMap<RelationId, TableView>>,
    functions: OnceLock<HashMap<String, Arc<ScalarUDF>>>,
    view_depth: Mutex<usize>,
    /// The state of the statement's locking clauses; shared with the views that it expands.
    pub locking: Arc<Locking>,
    /// The rows that the statement's steps hand on.
    pub steps: Arc<StepTables>,
    /// The relations that planning has come upon; shared with the views that it expands.
    pub met: Arc<Mutex<Met>>,
    /// The tables that the statement changes. Its queries name them by their positions here.
    targets: Mutex<Vec<Arc<TableEntry>>>,
    /// The deferred checks of its block; `None` outside a block.
    pub(crate) deferred: Option<Arc<Deferred>>,
}

/// The relations that the plan of a statement reads.
#[derive(Default)]
pub struct Met {
    /// Their numbers.
    pub(crate) relations: BTreeSet<RelationId>,
    /// The tables among them.
    pub tables: Vec<Arc<TableEntry>>,
}

impl Met {
    fn note(&mut self, relation: &Relation) {
        self.relations.insert(relation.oid());
        if let Relation::Table(entry) = relation {
            self.note_table(entry);
        }
    }

    pub(crate) fn note_table(&mut self, entry: &Arc<TableEntry>) {
        if !self.tables.iter().any(|known| Arc::ptr_eq(known, entry)) {
            self.tables.push(Arc::clone(entry));
        }
    }
}

impl StatementContext {
    /// The context of a statement outside a block.
    pub fn new(
        state: Arc<SessionState>,
        database: Arc<Database>,
        snapshot: Snapshot,
        actor: Actor,
        system: Arc<CatalogView>,
        gate: Arc<Gate>,
    ) -> Self {
        Self {
            catalog: Arc::clone(&system.state),
            state,
            database,
            snapshot,
            actor,
            system,
            gate,
            views: Mutex::default(),
            functions: OnceLock::new(),
            view_depth: Mutex::new(0),
            locking: Arc::default(),
            steps: Arc::default(),
            met: Arc::default(),
            targets: Mutex::default(),
            deferred: None,
        }
    }

    /// The time zone that its functions see.
    pub(crate) fn zone(&self) -> Option<&str> {
        self.state.config_options().execution.time_zone.as_deref()
    }

    /// The context in a block, whose end deferred checks may wait for.
    pub fn in_block(self, deferred: Option<Arc<Deferred>>) -> Self {
        Self { deferred, ..self }
    }

    /// Whether the statement leaves checks of a constraint to the end of its transaction. A
    /// statement that is a transaction of its own does not.
    pub(crate) fn puts_off(&self, constraint: ConstraintId, deferral: Deferral) -> bool {
        let deferred = self.deferred.as_ref();
        deferred.is_some_and(|deferred| deferred.puts_off(constraint, deferral))
    }

    /// The stored names of the unique indexes of a table whose checks the statement defers.
    pub(crate) fn indexes_put_off(&self, entry: &TableEntry) -> Vec<String> {
        entry
            .deferrable_indexes()
            .filter(|index| self.puts_off(index.constraint_id(), index.deferral))
            .map(|index| entry.stored_name(index))
            .collect()
    }

    /// The rows of a table as this statement sees them.
    pub(crate) fn table_view(&self, entry: &TableEntry) -> TableView {
        let view = self
            .views
            .lock()
            .entry(entry.oid)
            .or_insert_with(|| entry.table.view(self.snapshot.clone()))
            .clone();
        assert!(
            Arc::ptr_eq(view.table(), &entry.table),
            "a statement sees one table with the number {}",
            entry.oid
        );
        view
    }

    /// A table as this statement scans it, with row ids if it is the target of DML.
    pub(crate) fn scan_of(&self, entry: &TableEntry, row_ids: bool) -> Arc<dyn TableSource> {
        let (view, usage) = (self.table_view(entry), Arc::clone(&entry.usage));
        provider_as_source(Arc::new(match row_ids {
            true => TableScanProvider::with_row_ids(view, usage, ROW_ID_COLUMN),
            false => TableScanProvider::new(view, usage),
        }))
    }

    /// Makes a table that the statement changes known to its queries, which name it under
    /// [`TARGET_SCHEMA`] by the returned number.
    pub(super) fn add_target(&self, entry: &Arc<TableEntry>) -> usize {
        let mut targets = self.targets.lock();
        targets.push(Arc::clone(entry));
        targets.len() - 1
    }

    /// A planner of SQL under this context.
    pub fn planner(&self) -> SqlToRel<'_, StatementContext> {
        SqlToRel::new_with_options(self, parser_options())
    }

    /// A relation by the name a statement gives, through the search path.
    ///
    /// # Errors
    /// There is no such relation.
    pub fn resolve(&self, name: &TableReference) -> Result<(String, &Relation), SqlError> {
        let name = QualifiedName {
            database: name.catalog().map(str::to_owned),
            schema: name.schema().map(str::to_owned),
            name: name.table().to_owned(),
        };
        // For queries and DML the relation does not exist, rather than its schema, as in
        // PostgreSQL.
        let found = self.actor.resolve(&self.catalog, &name);
        let found = found.map_err(|error| match error.kind {
            ErrorKind::InvalidSchemaName => undefined_relation(&name.to_string()),
            _ => error,
        })?;
        Ok((found.place.schema, found.relation))
    }

    fn source_of(&self, name: &TableReference) -> Result<Arc<dyn TableSource>> {
        if name.schema() == Some(TARGET_SCHEMA) {
            let number: Option<usize> = name.table().parse().ok();
            let entry = number.and_then(|number| self.targets.lock().get(number).cloned());
            let entry = entry.ok_or_else(|| internal("a DML target without a number"))?;
            self.met.lock().note_table(&entry);
            return Ok(self.scan_of(&entry, true));
        }
        if name.schema() == Some(LOCK_SCHEMA) {
            return Ok(provider_as_source(self.locking.source(name.table())?));
        }
        if name.schema() == Some(STEP_SCHEMA) {
            return Ok(provider_as_source(self.steps.table(name.table())?));
        }
        if let Some(provider) = self.system_table(name) {
            return Ok(provider_as_source(provider));
        }
        let (_, relation) = self.resolve(name).map_err(external)?;
        self.actor
            .require(relation, Privilege::Select)
            .and_then(|()| self.gate.require(relation.oid(), LockMode::AccessShare))
            .map_err(external)?;
        self.met.lock().note(relation);
        match relation {
            Relation::Table(entry) => Ok(self.scan_of(entry, false)),
            Relation::View(view) => Ok(provider_as_source(Arc::new(self.expand(view)?))),
            Relation::Sequence(sequence) => {
                let table = MemTable::try_new(position_schema(), vec![vec![position(sequence)?]])?;
                Ok(provider_as_source(Arc::new(table)))
            }
        }
    }

    /// Locks the sequences that are named in calls of `nextval` and similar functions, so that the
    /// statement need not wait for them when it runs. The call itself reports a wrong name.
    ///
    /// # Errors
    /// Another transaction is in the way; the statement is planned again.
    pub(crate) fn lock_sequences(&self, node: &impl Visit) -> Result<(), SqlError> {
        let flow = walk::expressions(node, |expression| {
            let ast::Expr::Function(function) = expression else {
                return ControlFlow::Continue(());
            };
            let parts = text::named_sequence(function).and_then(split_name);
            let name = parts.and_then(|parts| QualifiedName::from_parts(parts).ok());
            let found = name.and_then(|name| self.actor.find(&self.catalog, &name).ok()?);
            let Some(Relation::Sequence(entry)) = found.map(|found| found.relation) else {
                return ControlFlow::Continue(());
            };
            match self.gate.require(entry.oid, LockMode::RowExclusive) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            }
        });
        match flow {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }

    /// A system relation. They are found before the search path, as `pg_catalog` is in PostgreSQL.
    pub(super) fn system_table(&self, name: &TableReference) -> Option<Arc<dyn TableProvider>> {
        match name.schema() {
            Some(schema @ (PG_CATALOG | INFORMATION_SCHEMA | AEROSTAT)) => {
                aerostat_pgcatalog::table(&self.system, schema, name.table())
            }
            Some(_) => None,
            None => aerostat_pgcatalog::table(&self.system, PG_CATALOG, name.table()),
        }
    }

    /// Plans a view's query, with its owner's rights, as in PostgreSQL.
    fn expand(&self, view: &ViewEntry) -> Result<ViewTable> {
        let (nested, query) = self.within(view)?;
        let plan = nested.plan_query(query, &mut PlannerContext::new())?;
        let plan = crate::plan::rename_outputs(
            plan,
            view.columns.iter().map(|column| column.name.as_str()),
        )?;
        self.leave_view();
        Ok(ViewTable::new(plan, Some(view.query.clone())))
    }

    /// A view's query, and the context to plan it in. The caller calls [`Self::leave_view`] when it
    /// has planned the query.
    pub(super) fn within(&self, view: &ViewEntry) -> Result<(StatementContext, ast::Query)> {
        let depth = {
            let mut depth = self.view_depth.lock();
            *depth += 1;
            *depth
        };
        if depth > VIEW_DEPTH_MAX {
            return Err(external(SqlError::new(
                ErrorKind::StatementTooComplex,
                format!("views use views more than {VIEW_DEPTH_MAX} levels deep"),
            )));
        }
        let owner = Actor {
            role: view.owner.clone(),
            superuser: self.system.is_superuser(&view.owner),
            ..self.actor.clone()
        };
        let nested = StatementContext {
            actor: owner,
            views: Mutex::new(self.views.lock().clone()),
            functions: OnceLock::new(),
            view_depth: Mutex::new(depth),
            locking: Arc::clone(&self.locking),
            steps: Arc::clone(&self.steps),
            met: Arc::clone(&self.met),
            targets: Mutex::default(),
            deferred: self.deferred.clone(),
            state: Arc::clone(&self.state),
            database: Arc::clone(&self.database),
            catalog: Arc::clone(&self.catalog),
            snapshot: self.snapshot.clone(),
            system: Arc::clone(&self.system),
            gate: Arc::clone(&self.gate),
        };
        let statement = Statement::single(&view.query).map_err(external)?;
        let StatementKind::Sql(parsed) = statement.kind else {
            return Err(internal("a view that is no query"));
        };
        let ast::Statement::Query(query) = (*parsed).clone() else {
            return Err(internal("a view that is no query"));
        };
        Ok((nested, *query))
    }

    /// Notes that a view's query has been planned.
    pub(super) fn leave_view(&self) {
        let mut depth = self.view_depth.lock();
        assert!(*depth > 0, "a view that is left has been entered");
        *depth -= 1;
    }

    /// A function that answers from the catalogue.
    pub(super) fn function(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.functions
            .get_or_init(|| {
                aerostat_pgcatalog::functions(Arc::clone(&self.system))
                    .into_iter()
                    .flat_map(|function| {
                        let function = Arc::new(function);
                        let names: Vec<String> = std::iter::once(function.name().to_owned())
                            .chain(function.aliases().iter().cloned())
                            .collect();
                        names
                            .into_iter()
                            .map(move |name| (name, Arc::clone(&function)))
                    })
                    .collect()
            })
            .get(name)
            .cloned()
    }
}

/// The row that a query reads from a sequence: its position when the statement is planned.
fn position(sequence: &SequenceEntry) -> Result<RecordBatch> {
    let (position, left) = sequence.counter.state().map_err(external)?;
    let left = i64::try_from(left).unwrap_or(i64::MAX);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![position.last_value])),
        Arc::new(Int64Array::from(vec![left])),
        Arc::new(BooleanArray::from(vec![position.is_called])),
    ];
    Ok(RecordBatch::try_new(position_schema(), columns)?)
}

fn position_schema() -> SchemaRef {
    let columns = SEQUENCE_COLUMNS.iter();
    let fields = columns.map(|column| column.ty.field(&column.name, column.nullable));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The planner's options for reading SQL as PostgreSQL does.
fn parser_options() -> ParserOptions {
    ParserOptions::new()
        .with_parse_float_as_decimal(true)
        .with_support_varchar_with_length(true)
        .with_map_string_types_to_utf8view(true)
        .with_collect_spans(true)
        .with_default_null_ordering(datafusion::sql::planner::NullOrdering::NullsMax)
}

fn internal(message: &str) -> DataFusionError {
    DataFusionError::Internal(message.to_owned())
}

impl ContextProvider for StatementContext {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        self.source_of(&name)
    }

    fn get_table_function_source(
        &self,
        name: &str,
        arguments: Vec<Expr>,
    ) -> Result<Arc<dyn TableSource>> {
        let function = self
            .state
            .table_functions()
            .get(name)
            .cloned()
            .ok_or_else(|| {
                external(SqlError::new(
                    ErrorKind::UndefinedFunction,
                    format!("function {name} does not exist"),
                ))
            })?;
        let simplify = SimplifyContext::builder()
            .with_config_options(Arc::clone(self.state.config_options()))
            .with_query_execution_start_time(
                self.state.execution_props().query_execution_start_time,
            )
            .build();
        let simplifier = ExprSimplifier::new(simplify);
        let schema = DFSchema::empty();
        let arguments = arguments
            .into_iter()
            .map(|argument| {
                let coerce = |argument| simplifier.coerce(argument, &schema);
                resolve_constant(argument, self.state.config_options(), coerce)
                    .and_then(|e| simplifier.simplify(e))
            })
            .collect::<Result<Vec<_>>>()?;
        let provider = function
            .create_table_provider_with_args(TableFunctionArgs::new(&arguments, &*self.state))?;
        Ok(provider_as_source(provider))
    }

    fn create_cte_work_table(&self, name: &str, schema: SchemaRef) -> Result<Arc<dyn TableSource>> {
        Ok(provider_as_source(Arc::new(CteWorkTable::new(
            name, schema,
        ))))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        self.state.expr_planners()
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        self.state.relation_planners()
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(aerostat_semantics::type_planner())
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.function(name)
            .or_else(|| self.state.scalar_functions().get(name).cloned())
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.state.higher_order_functions().get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.state.aggregate_functions().get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.state.window_functions().get(name).cloned()
    }

    fn get_variable_type(&self, _names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        self.state.config_options()
    }

    fn udf_names(&self) -> Vec<String> {
        self.state.scalar_functions().keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        self.state
            .higher_order_functions()
            .keys()
            .cloned()
            .collect()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.state.aggregate_functions().keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.state.window_functions().keys().cloned().collect()
    }
}
