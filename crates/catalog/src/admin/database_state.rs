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
    /// Nobody has wanted it since it was closed, or since the node started: it is opened for the
    /// next who connects.
    Closed,
    /// Somebody opens it now.
    Opening,
    /// It is being closed now.
    Closing,
}

impl DatabaseState {
    /// In a word, for views and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            DatabaseState::Open => "open",
            DatabaseState::ReadOnly(_) => "read-only",
            DatabaseState::Unopened(_) => "unopened",
            DatabaseState::Closed => "closed",
            DatabaseState::Opening => "opening",
            DatabaseState::Closing => "closing",
        }
    }

    /// Whether it should be served better: it could not be opened, or takes no changes.
    pub fn is_degraded(&self) -> bool {
        self.reason().is_some()
    }

    /// Why it cannot be used as it should be.
    pub fn reason(&self) -> Option<&str> {
        match self {
            DatabaseState::ReadOnly(reason) | DatabaseState::Unopened(reason) => Some(reason),
            _ => None,
        }
    }
}
