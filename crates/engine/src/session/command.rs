//! Utility statements: settings, prepared statements, schema, node and upkeep.

use std::{
    ops::ControlFlow,
    sync::{Arc, LazyLock},
};

use aerostat_api::{ColumnDescription, Outcome, ParameterType, RowsTag, prepared_bytes};
use aerostat_catalog::{
    Draft, NodeRecord,
    admin::RestoreRequest,
    ddl::{self, CommandResult, DefaultLayout, ExpressionChecker, Judges, PlanColumns},
};
use aerostat_query::{
    Cancellation,
    dml::{self, altered},
    from_datafusion,
    plan::{Gate, StatementContext, Target, describe, parameter_type},
};
use aerostat_semantics::{external, functions};
use aerostat_sql::{
    names::visible_name,
    statement::{Source, Statement, StatementKind},
    tree::{is_without_data, modifying::modifies_in_with},
    utility::{
        BackupCommand, DiscardTarget, Fragment, PreparedCommand, SchemaCommand, SettingCommand,
        SettingScope, SettingValue, TransactionModes, Utility, WrittenType,
    },
    walk,
};
use aerostat_txn::CancelToken;
use aerostat_types::{Column, ErrorKind, SqlError, SqlType, TableSchema};
use datafusion::{
    arrow::array::{ArrayRef, RecordBatch, StringViewArray},
    common::DFSchema,
    logical_expr::ExprSchemable,
    sql::{
        planner::PlannerContext,
        sqlparser::ast::{self, VisitorMut},
    },
};

use super::{
    ClientState, Executor, Session,
    named::NamedStatement,
    planning::Plans,
    prepared::Bound,
    roles::{Asking, is_role},
    run,
    settings::shown_name,
    stream::ready,
};

impl ClientState {
    pub(super) fn command(&self, result: CommandResult) -> Outcome {
        for notice in result.notices {
            self.notices.tell(notice);
        }
        Outcome::Command { tag: result.tag }
    }

    /// SET ROLE, SET SESSION AUTHORIZATION.
    fn set_role(
        &self,
        node: &NodeRecord,
        name: &str,
        value: &SettingValue,
        local: bool,
    ) -> Result<(), SqlError> {
        let role = match value {
            SettingValue::Default => None,
            SettingValue::Values(values) => match &values[..] {
                [role] => Some(role.as_str()),
                _ => {
                    return Err(SqlError::new(
                        ErrorKind::InvalidParameterValue,
                        format!("SET {name} takes only one argument"),
                    ));
                }
            },
        };
        let asking = Asking {
            node,
            authenticated: &self.role,
            is_local: local,
        };
        asking.set(&mut self.settings.lock(), name, role)
    }
}

impl Executor {
    /// Statements about what all databases share, each a transaction of its own.
    async fn run_for_node(
        &self,
        client: &ClientState,
        utility: &Arc<Utility>,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        let actor = self.actor(client)?;
        let zone = client.time_zone();
        let (engine, database, utility) = (
            Arc::clone(&self.engine),
            Arc::clone(self.database()),
            Arc::clone(utility),
        );
        let cancel = CancelToken::new();
        let mut stop = run::CancelOnDrop::of(cancel.clone());
        let work = move || {
            let node = engine.node();
            match &*utility {
                Utility::Database(command) => {
                    node.execute_database(&actor, &database, command, &*engine, &cancel)
                }
                Utility::Backup(BackupCommand::Backup { database, to, base }) => {
                    node.back_up(&actor, database, to, base.as_deref(), &cancel)
                }
                Utility::Backup(BackupCommand::Restore {
                    database,
                    from,
                    logs,
                    until,
                }) => node.restore(
                    &actor,
                    &RestoreRequest {
                        database,
                        from,
                        logs,
                        until: until.as_ref(),
                        zone,
                        cancel: &cancel,
                    },
                ),
                Utility::Role(command) => node.execute_role(&actor, command),
                Utility::Grant(grant) => node.grant(&actor, grant),
                Utility::Comment(comment) => node.comment(&actor, comment),
                other => Ok(CommandResult::new(other.tag())),
            }
        };
        let result = self
            .on_query_runtime(blocking(work), cancellation)
            .await??;
        stop.disarm();
        Ok(client.command(result))
    }
}

impl Session {
    pub(super) async fn run_utility(
        &mut self,
        utility: &Arc<Utility>,
        source: &Source,
        bound: Option<&Bound<'_>>,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        if let Utility::Schema(command) = &**utility {
            self.view().refuse_waiting(command)?;
        }
        match &**utility {
            Utility::Transaction(command) => done(self.run_transaction(command).await?),
            Utility::Setting(command) => self.run_setting(command).await,
            Utility::Prepared(command) => self.run_prepared(command, source, cancellation).await,
            Utility::Cursor(command) => self.run_cursor(command, source, bound, cancellation).await,
            Utility::Copy(copy) => self.view().run_copy(copy, source, cancellation).await,
            Utility::Maintenance(command) => {
                self.view().run_maintenance(command, cancellation).await
            }
            Utility::Lock(statement) => self.run_lock(statement, cancellation).await,
            Utility::Notify(command) => self.client.run_notify(command),
            Utility::Schema(command) if command.alters_table() => {
                self.run_alter_table(command, source, cancellation).await
            }
            other if other.defines_in_database() => {
                self.run_definition(utility, source, cancellation).await
            }
            _ => {
                self.executor
                    .run_for_node(&self.client, utility, cancellation)
                    .await
            }
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
        let actor = self.executor.actor(&self.client)?;
        let in_block = self.transaction.machine.is_one_of_several();
        let definitions = self.definitions()?;
        // Nothing is written under it; an index being built waits for others in its name.
        let transaction = self.view().begin_statement(None)?;
        let context = self
            .view()
            .context(&self.view().open_gate()?, transaction.snapshot().clone())?;
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

    async fn run_setting(&mut self, command: &SettingCommand) -> Result<Outcome, SqlError> {
        match command {
            SettingCommand::Set { scope, name, value } => {
                let local = *scope == SettingScope::Local;
                if local && !self.transaction.machine.is_in_block() {
                    self.client.warn_with(
                        ErrorKind::NoActiveTransaction,
                        "SET LOCAL can only be used in transaction blocks",
                    );
                    // Those of a pipeline that follow it are of its transaction.
                    if self.transaction.machine.is_idle() {
                        return done("SET");
                    }
                }
                if let Some(modes) = TransactionModes::of_setting(name, value)? {
                    self.set_mode(modes)?;
                    return done("SET");
                }
                if is_role(name) {
                    self.client.set_role(
                        &self.executor.engine.node().record(),
                        name,
                        value,
                        local,
                    )?;
                    return done("SET");
                }
                let mut settings = self.client.settings.lock();
                match value {
                    SettingValue::Default if local => settings.reset_local(name)?,
                    SettingValue::Default => settings.reset(name)?,
                    SettingValue::Values(values) if local => settings.set_local(name, values)?,
                    SettingValue::Values(values) => settings.set(name, values)?,
                }
                done("SET")
            }
            SettingCommand::Reset(name) if is_role(name) => {
                self.client.set_role(
                    &self.executor.engine.node().record(),
                    name,
                    &SettingValue::Default,
                    false,
                )?;
                done("RESET")
            }
            SettingCommand::Reset(name) => {
                self.client.settings.lock().reset(name)?;
                done("RESET")
            }
            SettingCommand::ResetAll => {
                self.client.settings.lock().reset_all();
                done("RESET")
            }
            SettingCommand::Show(name) => {
                let shown = self.client.settings.lock().get(name)?.to_owned();
                Ok(rows(&[shown_name(name)], vec![vec![shown]], "SHOW"))
            }
            SettingCommand::ShowAll => {
                let all = self.client.settings.lock().all();
                let all = all
                    .into_iter()
                    .map(|(name, value, known)| vec![name, value, known.description.to_owned()])
                    .collect();
                Ok(rows(&["name", "setting", "description"], all, "SHOW"))
            }
            SettingCommand::Discard(target) => {
                if *target == DiscardTarget::All {
                    self.client.set_role(
                        &self.executor.engine.node().record(),
                        "session_authorization",
                        &SettingValue::Default,
                        false,
                    )?;
                    self.client.settings.lock().reset_all();
                    self.client.prepared.forget_all();
                    self.client.cursors.close_all();
                    self.client.unlisten();
                    self.client.advisory.release_all();
                }
                if matches!(target, DiscardTarget::All | DiscardTarget::Sequences) {
                    self.client.taken.lock().forget();
                }
                if matches!(target, DiscardTarget::All | DiscardTarget::Temporary) {
                    self.discard_temporaries().await?;
                }
                done(match target {
                    DiscardTarget::All => "DISCARD ALL",
                    DiscardTarget::Plans => "DISCARD PLANS",
                    DiscardTarget::Sequences => "DISCARD SEQUENCES",
                    DiscardTarget::Temporary => "DISCARD TEMP",
                })
            }
        }
    }

    async fn run_prepared(
        &mut self,
        command: &PreparedCommand,
        source: &Source,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        match command {
            PreparedCommand::Prepare {
                name,
                types,
                statement,
            } => {
                self.client.prepared.admit(name)?;
                let parsed = nested_statement(statement, source)?;
                // The text is that of all that came in one message.
                let text = source.text.len() + prepared_bytes(parsed.text());
                let held = self.executor.hold(name.len() + text)?;
                let types = types.iter().map(|ty| declared_type(ty.as_ref(), source));
                let types = types.collect::<Result<Vec<_>, _>>()?;
                let prepared = self.view().prepare_typed(parsed, types).await?;
                let named = NamedStatement::of_command(prepared, &source.text, held);
                self.client.prepared.keep(name, named);
                Ok(Outcome::Command {
                    tag: "PREPARE".to_owned(),
                })
            }
            PreparedCommand::Execute { name, arguments } => {
                let prepared = self.client.prepared.find(name)?;
                let prepared = match self.as_planned(&prepared).await? {
                    Some(planned) => Arc::new(planned),
                    None => prepared,
                };
                if arguments.len() != prepared.parameters.len() {
                    return Err(SqlError::new(
                        ErrorKind::SyntaxError,
                        format!("wrong number of parameters for prepared statement \"{name}\""),
                    )
                    .with_detail(format!(
                        "Expected {} parameters but got {}.",
                        prepared.parameters.len(),
                        arguments.len()
                    )));
                }
                // Those of the protocol may be any, an EXECUTE of themselves among them.
                let parsed = match &prepared.statement.kind {
                    StatementKind::Sql(parsed) if prepared.is_planned() => parsed,
                    _ => {
                        return Err(SqlError::new(
                            ErrorKind::FeatureNotSupported,
                            "EXECUTE runs queries, INSERT, UPDATE, DELETE and MERGE only",
                        )
                        .with_hint("Run the statement itself."));
                    }
                };
                self.view().admit_dml(parsed)?;
                let plans = match arguments.is_empty() {
                    true => Plans::Kept,
                    false => Plans::Anew,
                };
                let arguments = arguments
                    .iter()
                    .zip(&prepared.parameters)
                    .map(|(argument, ty)| cast_argument(argument, *ty))
                    .collect::<Result<Vec<_>, _>>()?;
                let mut filled = (**parsed).clone();
                // The visitor never breaks.
                let _ = walk::change(&mut filled, &mut FillPlaceholders(&arguments));
                let (filled, source) = (Arc::new(filled), &prepared.statement.source);
                let told = Bound::filled(&prepared);
                let run = self.run_sql(&filled, source, Some(&told), plans, cancellation);
                let outcome = run.await?;
                self.client.prepared.count(name);
                Ok(outcome)
            }
            PreparedCommand::Deallocate(name) => {
                self.client.prepared.forget(name)?;
                Ok(Outcome::Command {
                    tag: "DEALLOCATE".to_owned(),
                })
            }
            PreparedCommand::DeallocateAll => {
                self.client.prepared.forget_all();
                Ok(Outcome::Command {
                    tag: "DEALLOCATE ALL".to_owned(),
                })
            }
        }
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
        let actor = self.executor.actor(&self.client)?;
        let context = self
            .view()
            .context(gate, self.transaction.read_snapshot(self.executor.txns())?)?;
        let (draft, mut stop) = self.stoppable_draft()?;
        let (create, source) = (create.clone(), source.clone());
        let work = blocking(move || {
            let checker = Planner {
                context: &context,
                source: &source,
            };
            ddl::create_table(&draft, &actor, &create, layout, &checker)
        });
        let result = self.executor.on_query_runtime(work, cancellation).await??;
        stop.disarm();
        Ok(result)
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
        let actor = self.executor.actor(&self.client)?;
        let (draft, mut stop) = self.stoppable_draft()?;
        let transaction = Arc::new(self.view().begin_statement(gate.locks())?);
        let context = self.view().context(gate, transaction.snapshot().clone())?;
        let (create, query, source) = (create.clone(), query.clone(), source.clone());
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
            let written = run::finish(written, transaction, &source)
                .await?
                .ok_or_else(|| {
                    SqlError::new(
                        ErrorKind::Internal,
                        "a table nobody else knows was changed by somebody else",
                    )
                })?;
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

    /// A draft whose waits end when the statement is dropped.
    fn stoppable_draft(&mut self) -> Result<(Draft, run::CancelOnDrop), SqlError> {
        let definitions = self.definitions()?;
        let cancel = CancelToken::new();
        let stop = run::CancelOnDrop::of(cancel.clone());
        Ok((self.client.draft(&definitions, cancel), stop))
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
        let actor = self.executor.actor(&self.client)?;
        let context = self
            .view()
            .context(gate, self.transaction.read_snapshot(self.executor.txns())?)?;
        let (draft, mut stop) = self.stoppable_draft()?;
        let (create, source) = (create.clone(), source.clone());
        let work = blocking(move || {
            let planner = Planner {
                context: &context,
                source: &source,
            };
            ddl::create_view(&draft, &actor, &create, &planner)
        });
        let result = self.executor.on_query_runtime(work, cancellation).await??;
        stop.disarm();
        Ok(result)
    }
}

fn done(tag: &str) -> Result<Outcome, SqlError> {
    let tag = tag.to_owned();
    Ok(Outcome::Command { tag })
}

/// Runs work that waits for locks or the disk on a thread that may wait.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SqlError> + Send + 'static,
) -> Result<T, SqlError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| {
            Err(SqlError::new(
                ErrorKind::Internal,
                format!("the statement ended early: {error}"),
            ))
        })
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

/// A statement inside another, its positions moved to where it stands.
pub(super) fn nested_statement(
    fragment: &Fragment,
    source: &Source,
) -> Result<Statement, SqlError> {
    let offset = source.offset + fragment.position.saturating_sub(1);
    let mut statement = Statement::single(&fragment.text).map_err(|mut error| {
        error.position = error.position.map(|at| at + offset);
        error
    })?;
    statement.source.offset += offset;
    Ok(statement)
}

/// The type that PREPARE declares for a parameter, unless it is to be found.
fn declared_type(
    written: Option<&WrittenType>,
    source: &Source,
) -> Result<Option<ParameterType>, SqlError> {
    let Some(WrittenType { name, position }) = written else {
        return Ok(None);
    };
    parameter_type(name)
        .map(|ty| Some(ty.of_any_length()))
        .map_err(|error| error.with_position(source.offset + position))
}

fn cast_argument(argument: &Fragment, ty: ParameterType) -> Result<ast::Expr, SqlError> {
    dml::parse_expression(&format!("CAST(({}) AS {ty})", argument.text))
        .map_err(|error| from_datafusion(error, &Source::of(argument.text.as_str().into())))
}

struct FillPlaceholders<'a>(&'a [ast::Expr]);

impl VisitorMut for FillPlaceholders<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expression: &mut ast::Expr) -> ControlFlow<()> {
        if let Some(n) = aerostat_query::plan::bare_placeholder(expression)
            && let Some(argument) = self.0.get(n - 1)
        {
            *expression = argument.clone();
        }
        ControlFlow::Continue(())
    }
}

/// One session may not have that many.
pub(super) fn too_many(what: &str, limit: usize) -> SqlError {
    let message = format!("too many {what} in one session");
    let error = SqlError::new(ErrorKind::ProgramLimitExceeded, message);
    error.with_detail(format!("At most {limit} are allowed."))
}

static SHOW_ALL_COLUMNS: LazyLock<Arc<[ColumnDescription]>> =
    LazyLock::new(|| text_columns(&["name", "setting", "description"]));

pub(super) fn show_all_columns() -> Arc<[ColumnDescription]> {
    Arc::clone(&SHOW_ALL_COLUMNS)
}

fn text_columns(names: &[&str]) -> Arc<[ColumnDescription]> {
    names
        .iter()
        .map(|name| ColumnDescription::new(*name, SqlType::Text))
        .collect()
}

/// Rows of texts.
fn rows(names: &[&str], values: Vec<Vec<String>>, tag: &str) -> Outcome {
    let arrays = names.iter().enumerate().map(|(at, name)| {
        let column: StringViewArray = values.iter().map(|row| Some(row[at].as_str())).collect();
        (*name, Arc::new(column) as ArrayRef)
    });
    let batches = RecordBatch::try_from_iter(arrays)
        .map(|batch| vec![batch])
        .unwrap_or_default();
    Outcome::Rows {
        columns: text_columns(names),
        batches: ready(batches),
        tag: RowsTag::Words(tag.to_owned()),
    }
}
