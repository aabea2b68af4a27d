//! Isolation levels of transactions.

/// What the statements of a block see of other transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Each statement sees what had committed when it began.
    #[default]
    ReadCommitted,
    /// All see what had committed when the first one began: snapshot isolation. Who meets
    /// a row that somebody has changed since cannot go on.
    RepeatableRead,
}
