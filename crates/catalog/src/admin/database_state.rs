//! Whether databases can be used, and the reasons if not.

/// Whether a database can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatabaseState {
    /// It is open.
    Open,
    /// It is open, and its log takes no changes for this reason.
    ReadOnly(String),
    /// It could not be opened for this reason.
    Unopened(String),
}

impl DatabaseState {
    /// In a word, for views and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            DatabaseState::Open => "open",
            DatabaseState::ReadOnly(_) => "read-only",
            DatabaseState::Unopened(_) => "unopened",
        }
    }

    /// Why it cannot be used as it should be.
    pub fn reason(&self) -> Option<&str> {
        match self {
            DatabaseState::Open => None,
            DatabaseState::ReadOnly(reason) | DatabaseState::Unopened(reason) => Some(reason),
        }
    }
}
