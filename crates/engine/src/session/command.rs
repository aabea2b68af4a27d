//! Utility statements: what runs each of them, settings, SQL's prepared statements, and statements about
//! what all databases share.

use std::{ops::ControlFlow, sync::Arc};

use aerostat_api::{Outcome, ParameterType, prepared_bytes};
use aerostat_catalog::{NodeRecord, admin::RestoreRequest, ddl::CommandResult};
use aerostat_query::{Cancellation, dml, from_datafusion, plan::parameter_type};
use aerostat_sql::{
    statement::{Source, StatementKind},
    utility::{
        BackupCommand, DiscardTarget, Fragment, PreparedCommand, SettingCommand, SettingScope,
        SettingValue, TransactionModes, Utility, WrittenType,
    },
    walk,
};
use aerostat_txn::CancelToken;
use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::ast::{self, VisitorMut};

use super::{
    ClientState, Executor, Running, SessionView, TransactionState,
    named::NamedStatement,
    planning::Plans,
    prepared::Bound,
    reading::nested_statement,
    roles::{Asking, is_role},
    run,
    settings::shown_name,
    shown::text_rows,
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
                Utility::System(command) => node.execute_system(&actor, command),
                Utility::Node(command) => node.execute_node(&actor, command),
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

/// Runs a utility statement.
pub(super) async fn run_utility(
    client: &mut ClientState,
    transaction: &mut TransactionState,
    executor: &Executor,
    utility: &Arc<Utility>,
    source: &Source,
    bound: Option<&Bound<'_>>,
    cancellation: &Cancellation,
) -> Result<Outcome, SqlError> {
    let view = SessionView::of(client, transaction, executor);
    match &**utility {
        Utility::Copy(copy) => return view.run_copy(copy, source, cancellation).await,
        Utility::Maintenance(command) => return view.run_maintenance(command, cancellation).await,
        Utility::Schema(command) => view.refuse_waiting(command)?,
        _ => {}
    }
    match &**utility {
        Utility::Transaction(command) => {
            let tag = transaction.run_transaction(client, executor, command);
            done(tag.await?)
        }
        Utility::Setting(command) => client.run_setting(transaction, executor, command).await,
        Utility::Prepared(command) => {
            client
                .run_prepared(transaction, executor, command, source, cancellation)
                .await
        }
        Utility::Cursor(command) => {
            client
                .run_cursor(transaction, executor, command, source, bound, cancellation)
                .await
        }
        Utility::Notify(command) => client.run_notify(command),
        other if other.defines_in_database() || matches!(other, Utility::Lock(_)) => {
            let mut running = Running {
                client,
                transaction,
                executor,
            };
            running.define(utility, source, cancellation).await
        }
        _ => executor.run_for_node(client, utility, cancellation).await,
    }
}

impl ClientState {
    /// SET, RESET, SHOW and DISCARD.
    async fn run_setting(
        &mut self,
        transaction: &mut TransactionState,
        executor: &Executor,
        command: &SettingCommand,
    ) -> Result<Outcome, SqlError> {
        let node = executor.engine.node();
        match command {
            SettingCommand::Set { scope, name, value } => {
                let local = *scope == SettingScope::Local;
                if local && !transaction.machine.is_in_block() {
                    self.warn_with(
                        ErrorKind::NoActiveTransaction,
                        "SET LOCAL can only be used in transaction blocks",
                    );
                    // Statements of a pipeline that follow it are of its transaction.
                    if transaction.machine.is_idle() {
                        return done("SET");
                    }
                }
                if let Some(modes) = TransactionModes::of_setting(name, value)? {
                    transaction.set_mode(self, executor, modes)?;
                    return done("SET");
                }
                if is_role(name) {
                    self.set_role(&node.record(), name, value, local)?;
                    return done("SET");
                }
                let mut settings = self.settings.lock();
                match value {
                    SettingValue::Default if local => settings.reset_local(name)?,
                    SettingValue::Default => settings.reset(name)?,
                    SettingValue::Values(values) if local => settings.set_local(name, values)?,
                    SettingValue::Values(values) => settings.set(name, values)?,
                }
                done("SET")
            }
            SettingCommand::Reset(name) if is_role(name) => {
                self.set_role(&node.record(), name, &SettingValue::Default, false)?;
                done("RESET")
            }
            SettingCommand::Reset(name) => {
                self.settings.lock().reset(name)?;
                done("RESET")
            }
            SettingCommand::ResetAll => {
                self.settings.lock().reset_all();
                done("RESET")
            }
            SettingCommand::Show(name) => {
                let shown = self.settings.lock().get(name)?.to_owned();
                Ok(text_rows(&[shown_name(name)], vec![vec![shown]], "SHOW"))
            }
            SettingCommand::ShowAll => {
                let all = self.settings.lock().all();
                let all = all
                    .into_iter()
                    .map(|(name, value, known)| vec![name, value, known.description.to_owned()])
                    .collect();
                Ok(text_rows(&["name", "setting", "description"], all, "SHOW"))
            }
            SettingCommand::Discard(target) => {
                if *target == DiscardTarget::All {
                    self.set_role(
                        &node.record(),
                        "session_authorization",
                        &SettingValue::Default,
                        false,
                    )?;
                    self.settings.lock().reset_all();
                    self.prepared.forget_all();
                    self.cursors.close_all();
                    self.unlisten();
                    self.advisory.release_all();
                }
                if matches!(target, DiscardTarget::All | DiscardTarget::Sequences) {
                    self.taken.lock().forget();
                }
                if matches!(target, DiscardTarget::All | DiscardTarget::Temporary) {
                    self.discard_temporaries(transaction, executor).await?;
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

    /// PREPARE, EXECUTE and DEALLOCATE.
    async fn run_prepared(
        &mut self,
        transaction: &mut TransactionState,
        executor: &Executor,
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
                self.prepared.admit(name)?;
                let parsed = nested_statement(statement, source)?;
                // The text is that of the whole message.
                let text = source.text.len() + prepared_bytes(parsed.text());
                let held = executor.hold(name.len() + text)?;
                let types = types.iter().map(|ty| declared_type(ty.as_ref(), source));
                let types = types.collect::<Result<Vec<_>, _>>()?;
                let prepared = SessionView::of(self, transaction, executor)
                    .prepare_typed(parsed, types)
                    .await?;
                let named = NamedStatement::of_command(prepared, &source.text, held);
                self.prepared.keep(name, named);
                Ok(Outcome::Command {
                    tag: "PREPARE".to_owned(),
                })
            }
            PreparedCommand::Execute { name, arguments } => {
                let prepared = self.prepared.find(name)?;
                let prepared = match self.as_planned(transaction, executor, &prepared).await? {
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
                // A statement that the protocol has prepared may be any, an EXECUTE of itself among them.
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
                SessionView::of(self, transaction, executor).admit_dml(parsed)?;
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
                let mut running = Running {
                    client: self,
                    transaction,
                    executor,
                };
                let outcome = running
                    .run_sql(&filled, source, Some(&told), plans, cancellation)
                    .await?;
                self.prepared.count(name);
                Ok(outcome)
            }
            PreparedCommand::Deallocate(name) => {
                self.prepared.forget(name)?;
                Ok(Outcome::Command {
                    tag: "DEALLOCATE".to_owned(),
                })
            }
            PreparedCommand::DeallocateAll => {
                self.prepared.forget_all();
                Ok(Outcome::Command {
                    tag: "DEALLOCATE ALL".to_owned(),
                })
            }
        }
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
