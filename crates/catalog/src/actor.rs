//! On whose behalf a statement runs. The `impl`s that decide what the actor may do and where its
//! names lead are beside their callers: [`crate::ddl`].

use aerostat_types::Zone;

/// On whose behalf a statement runs, and where its names go. Made for each
/// statement by [`crate::admin::Node::actor`], since rights can change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The role.
    pub role: String,
    /// Whether it may do everything.
    pub superuser: bool,
    /// The database it is connected to.
    pub database: String,
    /// Whether it owns the database.
    pub database_owner: bool,
    /// Whether it may make schemas in the database.
    pub create_in_database: bool,
    /// The setting `search_path`, `"$user"` not yet replaced.
    pub search_path: Vec<String>,
    /// The name of its session's schema of temporary relations; `None` outside sessions.
    pub temporary: Option<String>,
    /// The session's time zone.
    pub zone: Zone,
}
