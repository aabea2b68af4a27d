//! Statements that define something in the database: as a part of the block, planned and checked where
//! they need it, and done where locks and the disk are waited for.

use std::sync::Arc;

use aerostat_api::Outcome;
use aerostat_catalog::{
    Actor, Draft,
    ddl::{self, CommandResult, DefaultLayout, ExpressionChecker, Judges, PlanColumns},
};
use aerostat_query::{
    Cancellation,
    dml::{self, altered},
    from_datafusion,
    plan::{Gate, StatementContext, Target, describe},
};
use aerostat_semantics::{external, functions};
use aerostat_sql::{
    names::visible_name,
    statement::Source,
    tree::{is_without_data, modifying::modifies_in_with},
    utility::{SchemaCommand, Utility},
};
use aerostat_types::{Column, ErrorKind, SqlError, SqlType, TableSchema};
use datafusion::{
    common::DFSchema,
    logical_expr::ExprSchemable,
    sql::{planner::PlannerContext, sqlparser::ast},
};

use super::{Running, attempts::finish, command::blocking, run};

impl Running<'_> {
    /// Runs a statement that defines something in the database, or locks it.
    pub(super) async fn define(
        &mut self,
        utility: &Arc<Utility>,
        source: &Source,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        match &**utility {
            Utility::Lock(statement) => self.run_lock(statement, cancellation).await,
            Utility::Schema(command) if command.alters_table() => {
                self.run_alter_table(command, source, cancellation).await
            }
            _ => self.run_definition(utility, source, cancellation).await,
        }
    }

    /// Statements that change what exists in the database, as a part of the block. They wait
    /// for locks and the disk, so they leave the query threads alone.
    async fn run_definition(
        &mut self,
        utility: &Arc<Utility>,
        source: &Source,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        let actor = self.executor.actor(self.client)?;
        let in_block = self.transaction.machine.is_one_of_several();
        let definitions = self.definitions()?;
        // Nothing is written under it; an index being built waits for others in its name.
        let transaction = self.view().begin_statement(None)?;
        let view = self.view();
        let context = view.context(&view.open_gate()?, transaction.snapshot().clone())?;
        let source = source.clone();
        let cancel = transaction.cancel_token();
        let mut stop = run::CancelOnDrop::of(cancel.clone());
        let draft = self.client.draft(&definitions, cancel);
        let (engine, utility) = (Arc::clone(&self.executor.engine), Arc::clone(utility));
        let work = move || {
            let planner = Planner {
                context: &context,
                source: &source,
            };
            let judges = Judges {
                checker: &planner,
                views: &planner,
                role_exists: &|role| engine.node().role(role).is_some(),
            };
            match &*utility {
                Utility::Schema(SchemaCommand::CreateIndex(create)) => {
                    ddl::create_index(&draft, &actor, create, &transaction, in_block)
                }
                Utility::Schema(command) => ddl::execute(&draft, &actor, command, &judges),
                Utility::Grant(grant) => ddl::grant(&draft, &actor, grant, judges.role_exists),
                Utility::Comment(comment) => ddl::comment(&draft, &actor, comment),
                other => Ok(CommandResult::new(other.tag())),
            }
        };
        let result = self
            .executor
            .on_query_runtime(blocking(work), cancellation)
            .await??;
        stop.disarm();
        Ok(self.client.command(result))
    }

    pub(super) async fn run_create_table(
        &mut self,
        create: &ast::CreateTable,
        source: &Source,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        let layout = DefaultLayout::from_setting(
            self.client.settings.lock().get("aerostat.default_layout")?,
        );
        let mut locks = None;
        loop {
            let gate = self.view().gate(locks.take())?;
            let created = match &create.query {
                None => {
                    self.create_table(&gate, create, layout, source, cancellation)
                        .await
                }
                Some(query) => {
                    self.create_table_as(&gate, create, query, layout, source, cancellation)
                        .await
                }
            };
            match created {
                Ok(result) => return Ok(self.client.command(result)),
                Err(error) => locks = Some(self.view().past(&gate, error, cancellation).await?),
            }
        }
    }

    async fn create_table(
        &mut self,
        gate: &Arc<Gate>,
        create: &ast::CreateTable,
        layout: DefaultLayout,
        source: &Source,
        cancellation: &Cancellation,
    ) -> Result<CommandResult, SqlError> {
        let create = create.clone();
        let define = move |draft: &Draft, actor: &Actor, planner: &Planner<'_>| {
            ddl::create_table(draft, actor, &create, layout, planner)
        };
        self.define_planned(gate, source, cancellation, define)
            .await
    }

    async fn create_table_as(
        &mut self,
        gate: &Arc<Gate>,
        create: &ast::CreateTable,
        query: &ast::Query,
        layout: DefaultLayout,
        source: &Source,
        cancellation: &Cancellation,
    ) -> Result<CommandResult, SqlError> {
        let actor = self.executor.actor(self.client)?;
        let (draft, mut stop) = self.stoppable_draft()?;
        let transaction = Arc::new(self.view().begin_statement(gate.locks())?);
        let context = self.view().context(gate, transaction.snapshot().clone())?;
        let (create, query, source) = (create.clone(), query.clone(), source.clone());
        let committer = self.view().committer();
        let work = async move {
            let fail = |error| from_datafusion(error, &source);
            if modifies_in_with(&query) {
                return Err(SqlError::new(
                    ErrorKind::FeatureNotSupported,
                    "CREATE TABLE AS with data-modifying statements in WITH is not supported",
                ));
            }
            let plan = context
                .plan_query(query, &mut PlannerContext::new())
                .map_err(fail)?;
            let plan = context
                .state
                .analyzer()
                .execute_and_check(plan, context.state.config_options(), |_, _| {})
                .map_err(fail)?;
            context.gate.confirm()?;
            let columns = columns_of(plan.schema())?;
            let created = ddl::create_table_as(&draft, &actor, &create, layout, columns)?;
            let ddl::CreatedTable::Pending(pending) = created else {
                return Ok::<CommandResult, SqlError>(created.into_result());
            };
            let target = Target::unpublished(pending.entry(), pending.schema());
            let bound = dml::bind_create_table_as(&context, target, plan).map_err(fail)?;
            let physical = dml::plan_source(&context.state, &bound)
                .await
                .map_err(fail)?;
            let written = run::write(&context, &bound, physical, &transaction).await;
            let written = finish(written, transaction, &source, &committer)
                .await?
                .only()?;
            let mut result = blocking(move || pending.publish(&draft)).await?;
            result.tag = match is_without_data(&source.text) {
                true => "CREATE TABLE AS".to_owned(),
                false => format!("SELECT {}", written.rows),
            };
            Ok(result)
        };
        let result: CommandResult = self.executor.on_query_runtime(work, cancellation).await??;
        stop.disarm();
        Ok(result)
    }

    pub(super) async fn run_create_view(
        &mut self,
        create: &ast::CreateView,
        source: &Source,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        let mut locks = None;
        loop {
            let gate = self.view().gate(locks.take())?;
            match self.create_view(&gate, create, source, cancellation).await {
                Ok(result) => return Ok(self.client.command(result)),
                Err(error) => locks = Some(self.view().past(&gate, error, cancellation).await?),
            }
        }
    }

    async fn create_view(
        &mut self,
        gate: &Arc<Gate>,
        create: &ast::CreateView,
        source: &Source,
        cancellation: &Cancellation,
    ) -> Result<CommandResult, SqlError> {
        let create = create.clone();
        let define = move |draft: &Draft, actor: &Actor, planner: &Planner<'_>| {
            ddl::create_view(draft, actor, &create, planner)
        };
        self.define_planned(gate, source, cancellation, define)
            .await
    }

    /// Makes a definition that holds expressions or a query, which are planned.
    async fn define_planned(
        &mut self,
        gate: &Arc<Gate>,
        source: &Source,
        cancellation: &Cancellation,
        define: impl FnOnce(&Draft, &Actor, &Planner<'_>) -> Result<CommandResult, SqlError>
        + Send
        + 'static,
    ) -> Result<CommandResult, SqlError> {
        let actor = self.executor.actor(self.client)?;
        let snapshot = self.transaction.read_snapshot(self.executor.txns())?;
        let context = self.view().context(gate, snapshot)?;
        let (draft, mut stop) = self.stoppable_draft()?;
        let source = source.clone();
        let work = blocking(move || {
            let planner = Planner {
                context: &context,
                source: &source,
            };
            define(&draft, &actor, &planner)
        });
        let result = self.executor.on_query_runtime(work, cancellation).await??;
        stop.disarm();
        Ok(result)
    }
}

/// Plans what definitions hold.
pub(super) struct Planner<'a> {
    pub(super) context: &'a StatementContext,
    pub(super) source: &'a Source,
}

impl ExpressionChecker for Planner<'_> {
    fn check_default(&self, column: &Column, sql: &str) -> Result<(), SqlError> {
        let check = || {
            let parsed = dml::parse_expression(sql)?;
            let empty = DFSchema::empty();
            let expression =
                self.context
                    .planner()
                    .sql_to_expr(parsed, &empty, &mut PlannerContext::new())?;
            let (_, field) = expression.to_field(&empty)?;
            let config = self.context.state.config_options();
            functions::assign(expression, &field, column.ty, &column.name, config).map(drop)
        };
        check().map_err(|error| from_datafusion(error, self.source))
    }

    fn check_condition(&self, schema: &TableSchema, sql: &str) -> Result<(), SqlError> {
        let check = || {
            let parsed = dml::parse_expression(sql)?;
            let fields =
                DFSchema::try_from_qualified_schema(schema.name.as_str(), &schema.arrow())?;
            let expression =
                self.context
                    .planner()
                    .sql_to_expr(parsed, &fields, &mut PlannerContext::new())?;
            let data_type = expression.get_type(&fields)?;
            if SqlType::of_arrow(&data_type) == Some(SqlType::Boolean) {
                return Ok(());
            }
            Err(external(SqlError::new(
                ErrorKind::DatatypeMismatch,
                format!(
                    "argument of CHECK must be type boolean, not type {}",
                    aerostat_semantics::name_of_arrow(&data_type)
                ),
            )))
        };
        check().map_err(|error| from_datafusion(error, self.source))
    }

    fn check_conversion(
        &self,
        before: &TableSchema,
        at: usize,
        to: &Column,
        using: Option<&ast::Expr>,
    ) -> Result<(), SqlError> {
        altered::plan_conversion(self.context, before, at, to, using, self.source)
    }
}

impl PlanColumns for Planner<'_> {
    fn plan_columns(&self, query: &ast::Query) -> Result<Vec<Column>, SqlError> {
        let state = &self.context.state;
        let plan = self
            .context
            .plan_query(query.clone(), &mut PlannerContext::new())
            .and_then(|plan| {
                state
                    .analyzer()
                    .execute_and_check(plan, state.config_options(), |_, _| {})
            })
            .map_err(|error| from_datafusion(error, self.source))?;
        columns_of(plan.schema())
    }
}

/// The columns that a query's result would have in a table.
fn columns_of(schema: &DFSchema) -> Result<Vec<Column>, SqlError> {
    let described = describe(schema.as_arrow());
    described
        .iter()
        .map(|column| {
            // A column of texts that end as they are given.
            let ty = match column.ty {
                None | Some(SqlType::BPCHAR) => SqlType::Text,
                Some(ty) => ty,
            };
            Ok(Column {
                name: visible_name(&column.name).to_owned(),
                ty,
                nullable: true,
                default: None,
            })
        })
        .collect()
}
