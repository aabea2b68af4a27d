//! Schema statements against a database in memory.

mod objects;
mod tables;
mod views;

use std::sync::Arc;

use aerostat_memory::Governor;
use aerostat_storage::TenantStore;
use aerostat_types::{
    ByteSize, Column, ErrorKind, Layout, SqlError, SqlType, TableSchema, TenantId,
};
use datafusion::sql::sqlparser::{
    ast::{Query, SelectItem, SetExpr, Statement},
    dialect::PostgreSqlDialect,
    parser::Parser,
};

use super::*;
use crate::{
    catalog::{Privilege, Relation, TableEntry, ViewEntry, node::Database},
    utility::{self, Utility},
};

/// A database and whoever speaks to it.
struct Scene {
    database: Arc<Database>,
    actor: Actor,
    layout: DefaultLayout,
}

/// Stands for the planner: an expression with `bad` in it is wrong, and a
/// query gives integers named as its select list names them.
struct Planner;

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
    }
}

impl Scene {
    fn run(&self, sql: &str) -> Result<CommandResult, SqlError> {
        let exists = |name: &str| ["owner", "alice", "bob", "root"].contains(&name);
        match utility::parse(sql)? {
            Some(Utility::Schema(command)) => {
                execute(&self.database, &self.actor, &command, &exists)
            }
            Some(Utility::Grant(statement)) => {
                grant(&self.database, &self.actor, &statement, &exists)
            }
            Some(Utility::Comment(statement)) => comment(&self.database, &self.actor, &statement),
            Some(other) => panic!("not a schema statement: {other:?}"),
            None => match Parser::parse_sql(&PostgreSqlDialect {}, sql)
                .unwrap()
                .remove(0)
            {
                Statement::CreateTable(create) => {
                    create_table(&self.database, &self.actor, &create, self.layout, &Planner)
                }
                Statement::CreateView(create) => {
                    create_view(&self.database, &self.actor, &create, &Planner)
                }
                other => panic!("not a schema statement: {other:?}"),
            },
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
