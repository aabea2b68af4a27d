//! The node: its roles and databases, which roles may connect to which databases, and the
//! passwords.
//!
//! ```text
//!            ┌ record    roles and databases, as the data folder holds them
//!  Node ─────┤ databases each at its stage: closed, or open with catalogue, rows and memory
//!            │           budget; and of those that could not be opened, why
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
//! | [`Node::connect`] | a session: rights, limits, and the count of connections; opens the database |
//! | [`Node::try_connect`], [`Node::claim`] | the same in steps, for those who do not wait with a thread |
//! | [`Node::close_database`] | a database that is to be memory no more |
//! | [`Node::actor`] | each statement: the role's rights as they are now |
//! | [`Node::execute_database`], [`Node::execute_role`] | CREATE, ALTER, DROP |
//! | [`Node::execute_system`] | ALTER SYSTEM |
//! | [`Node::grant`], [`Node::comment`] | what concerns databases and roles |
//! | [`Node::role`] | the gateway's question before it lets a client in |
//!
//! Unlike in PostgreSQL a new database admits only its owner and superusers: databases are
//! tenants, and CONNECT is granted, to a role or to PUBLIC. Roles have no members.

mod attempt;
mod backup;
mod closed;
mod connection;
mod database;
mod database_state;
mod databases;
mod host;
mod joining;
mod leaving;
mod limits;
mod node;
mod opening;
mod placed;
mod privilege;
mod record;
mod repair;
mod role;
mod shared;
mod stoppable;
mod system;
#[cfg(test)]
mod tests;

pub use attempt::Attempt;
pub use backup::RestoreRequest;
pub use connection::Connection;
pub use database_state::DatabaseState;
pub use databases::{Opening, Unopened};
pub use host::{Host, Shared};
pub use joining::MARKER;
pub use leaving::{Closing, Holders, NoHolders};
pub use node::Node;
pub use opening::{Claim, Ticket};
pub use record::{BOOTSTRAP, NodeError};
pub use repair::{Examined, Verdict, repair};
pub use shared::OpenedCopy;
pub use system::MEMORY_BYTES_MIN;
