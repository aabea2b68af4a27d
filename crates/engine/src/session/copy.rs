//! COPY in both directions.

use std::sync::Arc;

use aerostat_api::{CopyColumn, CopyIn, CopyOut, Outcome};
use aerostat_query::{
    Cancellation,
    dml::{self, CopyStream, CopyTask, listed_columns},
    from_datafusion,
    plan::Target,
};
use aerostat_sql::{
    grants::Privilege,
    names::QualifiedName,
    statement::{Source, Statement, StatementKind},
    utility::{CopyDirection, CopyStatement, CopySubject},
};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    arrow::datatypes::Schema,
    sql::sqlparser::ast::{self, Ident},
};
use tokio::sync::oneshot;

use super::{SessionView, attempts::finish, planning::Plans, reading::nested_statement, run};

impl SessionView<'_> {
    pub(super) async fn run_copy(
        self,
        copy: &CopyStatement,
        source: &Source,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        match (&copy.subject, copy.direction) {
            (CopySubject::Table { name, columns }, CopyDirection::In) => {
                self.copy_in(copy, name, columns, source, cancellation)
                    .await
            }
            (CopySubject::Table { name, columns }, CopyDirection::Out) => {
                let statement = Statement::single(&select_text(name, columns))?;
                self.copy_out(copy, statement, cancellation).await
            }
            (CopySubject::Query(fragment), CopyDirection::Out) => {
                let statement = nested_statement(fragment, source)?;
                self.copy_out(copy, statement, cancellation).await
            }
            (CopySubject::Query(_), CopyDirection::In) => Err(SqlError::new(
                ErrorKind::SyntaxError,
                "COPY FROM takes a table, not a query",
            )),
        }
    }

    async fn copy_out(
        self,
        copy: &CopyStatement,
        statement: Statement,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        let StatementKind::Sql(parsed) = &statement.kind else {
            return Err(SqlError::new(
                ErrorKind::FeatureNotSupported,
                "COPY takes a query that returns rows",
            ));
        };
        if matches!(
            &**parsed,
            ast::Statement::Insert(ast::Insert {
                returning: None,
                ..
            }) | ast::Statement::Update(ast::Update {
                returning: None,
                ..
            }) | ast::Statement::Delete(ast::Delete {
                returning: None,
                ..
            })
        ) {
            return Err(SqlError::new(
                ErrorKind::FeatureNotSupported,
                "COPY query must have a RETURNING clause",
            ));
        }
        self.admit_dml(parsed)?;
        let outcome = match &**parsed {
            ast::Statement::Query(_) if self.has_steps(parsed)? => {
                self.run_steps(parsed, &statement.source, None, cancellation)
                    .await?
            }
            ast::Statement::Query(_) => {
                let told = run::Told::AtOnce;
                self.run_query(
                    parsed,
                    &statement.source,
                    None,
                    Plans::Kept,
                    told,
                    cancellation,
                )
                .await?
            }
            ast::Statement::Insert(_) | ast::Statement::Update(_) | ast::Statement::Delete(_) => {
                self.run_dml(parsed, &statement.source, None, Plans::Kept, cancellation)
                    .await?
            }
            other => return Err(run::unsupported(other)),
        };
        let Outcome::Rows {
            columns, batches, ..
        } = outcome
        else {
            return Err(SqlError::new(
                ErrorKind::FeatureNotSupported,
                "COPY query must have a RETURNING clause",
            ));
        };
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let options = copy.options_for(&names)?;
        Ok(Outcome::CopyOut(CopyOut {
            columns,
            options,
            batches,
        }))
    }

    async fn copy_in(
        self,
        copy: &CopyStatement,
        name: &QualifiedName,
        columns: &[String],
        source: &Source,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        let mut locks = None;
        let (transaction, context, target) = loop {
            let gate = self.gate(locks.take())?;
            let transaction = Arc::new(self.begin_statement(gate.locks())?);
            let context = self.context(&gate, transaction.snapshot().clone())?;
            let resolved = Target::resolve(&context, &object_name(name), None, Privilege::Insert);
            let confirmed = resolved.and_then(|target| {
                dml::lock_concerned_by_insert(&context, &target.entry)?;
                gate.confirm()?;
                Ok(target)
            });
            match confirmed {
                Ok(target) => break (transaction, context, target),
                Err(error) => {
                    drop((transaction, context));
                    locks = Some(self.past(&gate, error, cancellation).await?);
                }
            }
        };
        let listed_names: Vec<ast::ObjectName> = columns
            .iter()
            .map(|column| ast::ObjectName::from(vec![Ident::with_quote('"', column.clone())]))
            .collect();
        let fail = |error| from_datafusion(error, source);
        let listed = listed_columns(&target, &listed_names).map_err(fail)?;
        let table = target.entry.table.schema();
        let copied: Vec<CopyColumn> = listed
            .iter()
            .map(|&at| {
                let column = &table.columns[at];
                CopyColumn {
                    name: column.name.clone(),
                    ty: column.ty,
                    nullable: column.nullable,
                }
            })
            .collect();
        let names: Vec<&str> = copied.iter().map(|column| column.name.as_str()).collect();
        let options = copy.options_for(&names)?;
        let fields: Vec<_> = copied
            .iter()
            .map(|column| column.ty.field(&column.name, true))
            .collect();
        let (stream, sender) = CopyStream::open(Arc::new(Schema::new(fields))).map_err(fail)?;
        let bound = dml::bind_copy(&context, target, &listed, stream).map_err(fail)?;
        let (complete, completed) = oneshot::channel();
        let (source, stopping) = (source.clone(), cancellation.clone());
        let executor = self.executor;
        let committer = self.committer();
        let task = executor
            .tenant
            .spawn(executor.engine.queries(), cancellation, async move {
                let work = async {
                    let plan = dml::plan_source(&context.state, &bound)
                        .await
                        .map_err(|e| from_datafusion(e, &source))?;
                    let written = run::write(&context, &bound, plan, &transaction).await;
                    if written.is_ok() && completed.await.is_err() {
                        // The client went away, or gave up: nothing of the COPY stays.
                        return Err(aerostat_catalog::failure::canceled());
                    }
                    finish(written, transaction, &source, &committer).await
                };
                let written = tokio::select! {
                    biased;
                    error = stopping.stopped() => Err(error),
                    written = work => written,
                };
                written?.only().map(|written| written.rows)
            });
        let sink = CopyTask {
            sender: Some(sender),
            complete: Some(complete),
            task: Some(task),
            cancel: cancellation.token.clone(),
        };
        Ok(Outcome::CopyIn(CopyIn::new(
            name.name.clone(),
            copied,
            options,
            Box::new(sink),
        )))
    }
}

fn object_name(name: &QualifiedName) -> ast::ObjectName {
    let parts = [&name.database, &name.schema]
        .into_iter()
        .flatten()
        .chain(std::iter::once(&name.name));
    ast::ObjectName::from(
        parts
            .map(|part| Ident::with_quote('"', part.clone()))
            .collect::<Vec<_>>(),
    )
}

fn select_text(name: &QualifiedName, columns: &[String]) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let list = if columns.is_empty() {
        "*".to_owned()
    } else {
        columns
            .iter()
            .map(|column| quoted(column))
            .collect::<Vec<_>>()
            .join(", ")
    };
    format!("SELECT {list} FROM {}", object_name(name))
}
