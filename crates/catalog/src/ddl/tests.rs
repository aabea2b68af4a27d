//! Schema statements against a database in memory.

mod alter;
mod blocks;
mod objects;
mod sequences;
mod tables;
mod views;

use std::sync::Arc;

use aerostat_memory::Governor;
use aerostat_sql::{
    grants::Privilege,
    names::QualifiedName,
    utility::{self, RelationChange, TableAction, Utility},
};
use aerostat_storage::TenantStore;
use aerostat_txn::{CancelToken, Isolation};
use aerostat_types::{
    ByteSize, Column, ErrorKind, IndexId, Layout, SqlError, SqlType, TableSchema, TenantId,
};
use sqlparser::{
    ast::{Expr, Query, SelectItem, SetExpr, Statement, TableFactor},
    dialect::PostgreSqlDialect,
    parser::Parser,
};

use super::*;
use crate::state::{CatalogState, Database, Definitions, Draft, Relation, TableEntry, ViewEntry};

/// A database and whoever speaks to it.
struct Scene {
    database: Arc<Database>,
    actor: Actor,
    layout: DefaultLayout,
}

/// Stands for the planner: an expression with `bad` in it is wrong, and a
/// query gives integers named as its select list names them.
pub(crate) struct Planner;

impl ExpressionChecker for Planner {
    fn check_default(&self, column: &Column, sql: &str) -> Result<(), SqlError> {
        if sql.contains("bad") {
            return Err(SqlError::new(
                ErrorKind::DatatypeMismatch,
                format!("bad default of {}", column.name),
            ));
        }
        Ok(())
    }

    fn check_condition(&self, schema: &TableSchema, sql: &str) -> Result<(), SqlError> {
        if sql.contains("bad") {
            return Err(SqlError::new(
                ErrorKind::UndefinedColumn,
                format!("bad check of {}", schema.name),
            ));
        }
        Ok(())
    }

    fn check_conversion(
        &self,
        _before: &TableSchema,
        _at: usize,
        _to: &Column,
        _using: Option<&Expr>,
    ) -> Result<(), SqlError> {
        Ok(())
    }
}

impl PlanColumns for Planner {
    fn plan_columns(&self, query: &Query) -> Result<Vec<Column>, SqlError> {
        let SetExpr::Select(select) = &*query.body else {
            return Ok(vec![integer("column1")]);
        };
        Ok(select
            .projection
            .iter()
            .map(|item| match item {
                SelectItem::ExprWithAlias { alias, .. } => integer(&alias.value),
                other => integer(&other.to_string()),
            })
            .collect())
    }
}

/// Names alone: every column is an integer.
impl PlanViews for Planner {
    fn view_columns(
        &self,
        state: &Arc<CatalogState>,
        query: &Query,
    ) -> Result<Vec<Column>, SqlError> {
        let names = names_of_query(state, query).ok_or_else(|| {
            SqlError::new(ErrorKind::UndefinedColumn, format!("cannot plan {query}"))
        })?;
        Ok(names.iter().map(|name| integer(name)).collect())
    }
}

fn names_of_query(state: &CatalogState, query: &Query) -> Option<Vec<String>> {
    let SetExpr::Select(select) = &*query.body else {
        return None;
    };
    let mut known = Vec::new();
    for from in &select.from {
        let joined = from.joins.iter().map(|join| &join.relation);
        for factor in std::iter::once(&from.relation).chain(joined) {
            known.extend(names_of_factor(state, factor)?);
        }
    }
    let known_name = |expression: &Expr| match expression {
        Expr::Identifier(ident) => known.contains(&ident.value).then(|| ident.value.clone()),
        Expr::CompoundIdentifier(parts) => {
            let last = parts.last()?;
            known.contains(&last.value).then(|| last.value.clone())
        }
        _ => Some("?column?".to_owned()),
    };
    let mut names = Vec::new();
    for item in &select.projection {
        match item {
            SelectItem::ExprWithAlias { expr, alias } => {
                known_name(expr)?;
                names.push(alias.value.clone());
            }
            SelectItem::UnnamedExpr(expression) => names.push(known_name(expression)?),
            _ => names.extend(known.iter().cloned()),
        }
    }
    Some(names)
}

fn names_of_factor(state: &CatalogState, factor: &TableFactor) -> Option<Vec<String>> {
    match factor {
        TableFactor::Table { name, .. } => {
            let part = |at: usize| Some(name.0.get(at)?.as_ident()?.value.clone());
            match state.relation(&part(0)?, &part(1)?)? {
                Relation::View(view) => {
                    let parsed = Parser::parse_sql(&PostgreSqlDialect {}, &view.query).ok()?;
                    let Some(Statement::Query(query)) = parsed.first() else {
                        return None;
                    };
                    names_of_query(state, query)?;
                    Some(
                        view.columns
                            .iter()
                            .map(|column| column.name.clone())
                            .collect(),
                    )
                }
                table => Some(
                    table
                        .columns()
                        .iter()
                        .map(|column| column.name.clone())
                        .collect(),
                ),
            }
        }
        TableFactor::Derived { subquery, .. } => names_of_query(state, subquery),
        _ => None,
    }
}

fn integer(name: &str) -> Column {
    Column {
        name: name.to_owned(),
        ty: SqlType::Integer,
        nullable: true,
        default: None,
    }
}

fn scene() -> Scene {
    let governor = Governor::new(ByteSize(64 << 20));
    let store = TenantStore::new(TenantId(1), governor.budget("d", None));
    Scene {
        database: Database::new(TenantId(1), "d", "owner", store),
        actor: actor("owner"),
        layout: DefaultLayout::Column,
    }
}

fn actor(role: &str) -> Actor {
    Actor {
        role: role.to_owned(),
        superuser: role == "root",
        database: "d".to_owned(),
        database_owner: role == "owner",
        create_in_database: false,
        search_path: vec!["$user".to_owned(), "public".to_owned()],
        temporary: Some("pg_temp_1".to_owned()),
        zone: aerostat_types::Zone::UTC,
    }
}

impl Scene {
    /// A statement that is a transaction of its own.
    fn run(&self, sql: &str) -> Result<CommandResult, SqlError> {
        let block = self.database.store.txns().begin_block(Isolation::default());
        let definitions = Definitions::new(&self.database, &block);
        let result = self.run_in(&definitions, sql)?;
        if definitions.has_changes() {
            definitions.commit(block)?;
        }
        Ok(result)
    }

    /// A statement of a transaction.
    fn run_in(&self, definitions: &Arc<Definitions>, sql: &str) -> Result<CommandResult, SqlError> {
        let draft = &Draft::new(definitions, CancelToken::new(), None);
        let exists = |name: &str| ["owner", "alice", "bob", "root"].contains(&name);
        match utility::parse(sql)? {
            Some(Utility::Schema(command)) => {
                let judges = Judges {
                    checker: &Planner,
                    views: &Planner,
                    role_exists: &exists,
                };
                match command {
                    SchemaCommand::Alter {
                        name,
                        if_exists,
                        change: RelationChange::Actions(actions),
                        ..
                    } => self.alter(draft, &name, if_exists, &actions, &judges),
                    SchemaCommand::CreateIndex(create) => {
                        let transaction = self.database.store.txns().begin();
                        create_index(draft, &self.actor, &create, &transaction, true)
                    }
                    command => execute(draft, &self.actor, &command, &judges),
                }
            }
            Some(Utility::Grant(statement)) => grant(draft, &self.actor, &statement, &exists),
            Some(Utility::Comment(statement)) => comment(draft, &self.actor, &statement),
            Some(other) => panic!("not a schema statement: {other:?}"),
            None => match Parser::parse_sql(&PostgreSqlDialect {}, sql)
                .unwrap()
                .remove(0)
            {
                Statement::CreateTable(create) => {
                    create_table(draft, &self.actor, &create, self.layout, &Planner)
                }
                Statement::CreateView(create) => create_view(draft, &self.actor, &create, &Planner),
                other => panic!("not a schema statement: {other:?}"),
            },
        }
    }

    /// ALTER TABLE of a table without rows.
    fn alter(
        &self,
        draft: &Draft,
        name: &QualifiedName,
        if_exists: bool,
        actions: &[TableAction],
        judges: &Judges<'_>,
    ) -> Result<CommandResult, SqlError> {
        let asked = AskedAlter {
            name,
            if_exists,
            actions,
        };
        let state = draft.load()?;
        let prepared = prepare_alter(&self.database, &state, &self.actor, &asked, judges)?;
        match prepared {
            Altering::Skipped(result) => Ok(result),
            Altering::Pending(mut pending) => {
                pending.make_sequences(draft)?;
                if pending.rewrites() {
                    pending.make_table(draft)?;
                } else {
                    let transaction = self.database.store.txns().begin();
                    pending.make_room(&transaction.cancel_token())?;
                    pending.build_indexes(draft, &transaction)?;
                }
                pending.publish(draft)
            }
        }
    }

    fn ok(&self, sql: &str) -> CommandResult {
        self.run(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    /// The error's kind and message.
    fn error(&self, sql: &str) -> (ErrorKind, String) {
        let error = self.run(sql).expect_err(sql);
        (error.kind, error.message)
    }

    fn as_role(&self, role: &str) -> Scene {
        Scene {
            database: Arc::clone(&self.database),
            actor: actor(role),
            layout: self.layout,
        }
    }

    fn relation(&self, schema: &str, name: &str) -> Option<Relation> {
        self.database.catalog.load().relation(schema, name).cloned()
    }

    fn table(&self, name: &str) -> Arc<TableEntry> {
        match self.relation("public", name) {
            Some(Relation::Table(table)) => table,
            _ => panic!("no table {name}"),
        }
    }

    fn view(&self, name: &str) -> Arc<ViewEntry> {
        match self.relation("public", name) {
            Some(Relation::View(view)) => view,
            _ => panic!("no view {name}"),
        }
    }
}
