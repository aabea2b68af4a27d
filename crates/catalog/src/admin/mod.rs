//! The node: its roles and databases, which roles may connect to which databases, and the
//! passwords.
//!
//! ```text
//!            ┌ record    roles and databases, as the data folder holds them
//!  Node ─────┤ databases those that are open: catalogue, rows, memory budget;
//!            │           and of those that could not be opened, why
//!            └ sessions  how many are connected, by role and by database
//! ```
//!
//! Every change is made to a copy of the record, stored in the data folder, and only then
//! visible; if storing fails nothing has changed. Changes wait for each other, readers for
//! nobody.
//!
//! | call | for |
//! |---|---|
//! | [`Node::open`] | the start: makes superuser and database `aerostat` in an empty folder |
//! | [`Node::connect`] | a session: rights, limits, and the count of connections |
//! | [`Node::actor`] | each statement: the role's rights as they are now |
//! | [`Node::execute_database`], [`Node::execute_role`] | CREATE, ALTER, DROP |
//! | [`Node::grant`], [`Node::comment`] | what concerns databases and roles |
//! | [`Node::role`] | the gateway's question before it lets a client in |
//!
//! Unlike in PostgreSQL a new database admits only its owner and superusers: databases are
//! tenants, and CONNECT is granted, to a role or to PUBLIC. Roles have no members.

mod backup;
mod connection;
mod database;
mod database_state;
mod databases;
mod limits;
mod node;
mod privilege;
mod repair;
mod role;
mod stoppable;
#[cfg(test)]
mod tests;

pub use backup::RestoreRequest;
pub use connection::Connection;
pub use database_state::DatabaseState;
pub use databases::Unopened;
pub use node::{BOOTSTRAP, Node, NodeError};
pub use repair::{Examined, Verdict, repair};
