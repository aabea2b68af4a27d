//! The session's temporary relations: what it keeps of them between transactions, and what a
//! read-only transaction may do to them.
//!
//! They are parts of the catalogue as the session sees it ([`aerostat_catalog::Temporaries`]). They come
//! and go with commits, and are gone with the session or DISCARD. A statement that still reads them
//! has them until its end.

use std::sync::Arc;

use aerostat_catalog::{SchemaEntry, ddl, is_temporary};
use aerostat_sql::{
    names::QualifiedName,
    statement::StatementKind,
    tree::modifying::changes,
    utility::{CopySubject, Utility},
};
use aerostat_txn::CancelToken;
use aerostat_types::SqlError;
use datafusion::sql::sqlparser::ast;
use tokio::runtime::Handle;

use super::{ClientState, Executor, SessionView, TransactionState, command::blocking};

impl ClientState {
    /// Keeps the temporary relations of a transaction that has committed.
    pub(super) fn keep_temporaries(&mut self, schema: Option<Arc<SchemaEntry>>, threads: &Handle) {
        if let Some(before) = self.temporaries.replace(schema) {
            // Giving many rows back takes its time.
            threads.spawn_blocking(move || drop(before));
        }
    }

    /// DISCARD TEMP. In a block it is undone with the block.
    pub(super) async fn discard_temporaries(
        &mut self,
        transaction: &mut TransactionState,
        executor: &Executor,
    ) -> Result<(), SqlError> {
        if transaction.machine.is_idle() {
            let threads = executor.engine.queries();
            self.keep_temporaries(None, threads);
            return Ok(());
        }
        let actor = executor.actor(self)?;
        let definitions = transaction.definitions(executor.database(), &self.temporaries)?;
        let draft = self.draft(&definitions, CancelToken::new());
        blocking(move || ddl::drop_temporaries(&draft, &actor)).await
    }
}

impl SessionView<'_> {
    /// Whether a statement changes the rows of a temporary relation, which it may do in a
    /// read-only transaction.
    pub(super) fn changes_temporary(self, kind: &StatementKind) -> bool {
        let target = match kind {
            StatementKind::Sql(parsed) => return self.writes_temporary(parsed),
            StatementKind::Utility(utility) => match &**utility {
                Utility::Copy(copy) => match &copy.subject {
                    CopySubject::Table { name, .. } => Some(name.clone()),
                    CopySubject::Query(_) => None,
                },
                _ => None,
            },
            StatementKind::Empty | StatementKind::Unread => None,
        };
        target.is_some_and(|name| self.is_temporary(&name))
    }

    /// As [`Self::changes_temporary`], of INSERT, UPDATE, DELETE or MERGE, and those in WITH.
    pub(super) fn writes_temporary(self, parsed: &ast::Statement) -> bool {
        let mut changes = changes(parsed).peekable();
        let is_temporary = |change: &ast::Statement| {
            target_of(change).is_some_and(|name| self.is_temporary(&name))
        };
        changes.peek().is_some() && changes.all(is_temporary)
    }

    /// Whether a name leads to a temporary relation. Errors in the name are found elsewhere.
    fn is_temporary(self, name: &QualifiedName) -> bool {
        let (Ok(catalog), Ok(actor)) = (self.catalog(), self.executor.actor(self.client)) else {
            return false;
        };
        let found = actor.find(&catalog, name).ok().flatten();
        found.is_some_and(|found| is_temporary(&found.place.schema))
    }
}

/// What INSERT, UPDATE, DELETE or MERGE changes.
fn target_of(parsed: &ast::Statement) -> Option<QualifiedName> {
    let name = match parsed {
        ast::Statement::Insert(insert) => match &insert.table {
            ast::TableObject::TableName(name) => Some(name),
            _ => None,
        },
        ast::Statement::Update(update) => name_of(&update.table.relation),
        ast::Statement::Delete(delete) => {
            let (ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from)) =
                &delete.from;
            name_of(&from.first()?.relation)
        }
        ast::Statement::Merge(merge) => name_of(&merge.table),
        _ => None,
    }?;
    QualifiedName::from_object_name(name, &mut Vec::new()).ok()
}

fn name_of(factor: &ast::TableFactor) -> Option<&ast::ObjectName> {
    match factor {
        ast::TableFactor::Table { name, .. } => Some(name),
        _ => None,
    }
}
