//! Schema statements: they change what exists in one database.
//!
//! ```text
//!  statement ──► locks ──► checks ──► changed copy ──► publish    ──► … COMMIT
//!                          names,     of the state     to its own     to all
//!                          rights,                     transaction
//!                          dependants
//! ```
//!
//! Every statement locks what it will change, checks everything before it changes anything, works
//! on a copy of the [`crate::CatalogState`], and publishes it once: it happens as a whole or not
//! at all, however many objects it names. Its own transaction sees the change at once, others
//! when that commits ([`Draft`]).
//!
//! | call | for |
//! |---|---|
//! | [`create_table`] | CREATE TABLE |
//! | [`create_table_as`] | CREATE TABLE AS: a table to fill, then [`PendingTable::publish`] |
//! | [`create_view`] | CREATE \[OR REPLACE] VIEW |
//! | `create_index` | CREATE INDEX |
//! | `prepare_alter` | ALTER TABLE of columns and constraints: a table to be, then its `publish` |
//! | [`execute`] | [`SchemaCommand`]: CREATE SCHEMA, SEQUENCE, TRUNCATE, DROP, ALTER |
//! | [`grant`] | GRANT and REVOKE on tables, views and schemas |
//! | [`comment`] | COMMENT ON table, view, column or schema |
//! | [`Actor::resolve`], [`Actor::require`] | names and rights for any other statement |
//!
//! TRUNCATE gives a table new, empty rows under its old number.
//!
//! Privileges: as in PostgreSQL 15, the owner of the database and superusers may create in
//! `public`, others only with GRANT CREATE ON SCHEMA; everyone may use `public`. Objects belong
//! to their creator. A superuser may do everything.

mod alter;
mod alter_table;
mod create_table;
mod create_view;
mod deferrable;
mod definition;
mod dependency;
mod drop;
mod expression;
mod foreign_key;
mod index;
mod instants;
mod key;
mod layout;
mod lock;
mod operator_class;
mod privilege;
mod schema;
mod search_path;
mod sequence;
mod temporary;
#[cfg(test)]
pub(crate) mod tests;
mod view_text;
mod views;

use aerostat_api::Notice;
use aerostat_sql::utility::SchemaCommand;
use aerostat_types::{Column, ErrorKind, SqlError, TableSchema};
use sqlparser::ast;

use crate::{actor::Actor, state::Draft};

pub use alter_table::{
    Altering, Asked as AskedAlter, PendingAlter, Reference, Source as ColumnSource, duplicate,
    lock as lock_alter, of_rewrite, prepare as prepare_alter, refers_to_none,
};
pub use create_table::{CreatedTable, PendingTable, create_table, create_table_as};
pub use create_view::create_view;
pub use dependency::{qualify_query, relations_in};
pub use index::{create as create_index, reindex, settle_all as settle_indexes};
pub use layout::DefaultLayout;
pub use layout::follow_advice;
pub use lock::lock;
pub use operator_class::OPERATOR_CLASSES;
pub(crate) use privilege::{belongings, grantee_names, rename_role, toggle};
pub use privilege::{comment, denied, grant};
pub use search_path::Found;
pub use temporary::{before_commit, drop_temporaries};
pub use views::PlanViews;

/// What a statement without rows came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandResult {
    /// The command tag.
    pub tag: String,
    /// What the user should know besides.
    pub notices: Vec<Notice>,
}

impl CommandResult {
    /// A tag without notices.
    pub fn new(tag: impl Into<String>) -> Self {
        Self {
            tag: tag.into(),
            notices: Vec::new(),
        }
    }

    /// Adds notices.
    #[must_use]
    pub fn with_notices(mut self, notices: Vec<Notice>) -> Self {
        self.notices.extend(notices);
        self
    }
}

/// Plans the expressions of a table's definition, so that a wrong one is
/// refused when the table is made. The planner implements it.
pub trait ExpressionChecker {
    /// Whether the text is an expression without columns that gives the column's type.
    ///
    /// # Errors
    /// What is wrong with it, in the planner's words.
    fn check_default(&self, column: &Column, sql: &str) -> Result<(), SqlError>;

    /// Whether the text is a condition over the table's columns.
    ///
    /// # Errors
    /// What is wrong with it, in the planner's words.
    fn check_condition(&self, schema: &TableSchema, sql: &str) -> Result<(), SqlError>;

    /// Whether the values of the column at this position, or what USING makes of a row, are
    /// assigned to a column of another type.
    ///
    /// # Errors
    /// What is wrong with USING, and in PostgreSQL's words that they are not.
    fn check_conversion(
        &self,
        before: &TableSchema,
        at: usize,
        to: &Column,
        using: Option<&ast::Expr>,
    ) -> Result<(), SqlError>;
}

/// Plans a view's query. The planner implements it.
pub trait PlanColumns {
    /// The columns that the query gives, named and typed.
    ///
    /// # Errors
    /// What is wrong with the query, in the planner's words.
    fn plan_columns(&self, query: &ast::Query) -> Result<Vec<Column>, SqlError>;
}

/// Whether the node has a role of this name. [`crate::admin::Node::has_role`] knows.
pub type RoleExists<'a> = &'a dyn Fn(&str) -> bool;

/// Whom a schema statement asks for what the catalogue does not know.
#[derive(Clone, Copy)]
pub struct Judges<'a> {
    /// Plans defaults and conditions.
    pub checker: &'a dyn ExpressionChecker,
    /// Plans views' queries.
    pub views: &'a dyn PlanViews,
    /// Knows the roles.
    pub role_exists: RoleExists<'a>,
}

/// Runs a schema statement.
///
/// # Errors
/// As PostgreSQL: names that are there or not there, rights, dependants.
pub fn execute(
    draft: &Draft,
    actor: &Actor,
    command: &SchemaCommand,
    judges: &Judges<'_>,
) -> Result<CommandResult, SqlError> {
    match command {
        SchemaCommand::CreateSchema {
            name,
            owner,
            if_not_exists,
        } => schema::create(
            draft,
            actor,
            name.as_deref(),
            owner.as_ref(),
            *if_not_exists,
            judges.role_exists,
        ),
        SchemaCommand::CreateIndex(_) => Err(SqlError::new(
            ErrorKind::Internal,
            "an index is built under a transaction",
        )),
        SchemaCommand::DropIndex { names, if_exists } => {
            index::drop(draft, actor, names, *if_exists)
        }
        SchemaCommand::CreateSequence {
            name,
            if_not_exists,
            options,
            is_temporary,
        } => {
            let place = temporary::creation_place(draft, actor, name, *is_temporary)?;
            sequence::create(draft, actor, place, *if_not_exists, options)
        }
        SchemaCommand::AlterSequence {
            name,
            if_exists,
            options,
        } => sequence::alter(draft, actor, name, *if_exists, options),
        SchemaCommand::Truncate {
            tables,
            restarts_identity,
            cascade,
        } => drop::truncate(draft, actor, tables, *restarts_identity, *cascade),
        SchemaCommand::Drop {
            kind,
            names,
            if_exists,
            cascade,
        } => drop::execute(draft, actor, *kind, names, *if_exists, *cascade),
        SchemaCommand::Alter {
            object,
            name,
            if_exists,
            change,
        } => alter::execute(draft, actor, *object, name, *if_exists, change, judges),
    }
}
