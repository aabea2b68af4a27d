//! Messages that accompany a result.

use crate::ErrorKind;

/// How serious a notice is, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoticeSeverity {
    /// For developers.
    Debug,
    /// For the log.
    Log,
    /// What the user asked to know.
    Info,
    /// What may help the user.
    Notice,
    /// What the user should look at.
    Warning,
}

/// A message beside the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// How serious.
    pub severity: NoticeSeverity,
    /// The condition, where it has a name; else plain success or warning.
    pub kind: Option<ErrorKind>,
    /// One sentence without a full stop.
    pub message: String,
    /// Which values or objects were concerned.
    pub detail: Option<String>,
    /// What the user can do.
    pub hint: Option<String>,
}

impl Notice {
    /// A notice with a message alone.
    pub fn new(severity: NoticeSeverity, message: impl Into<String>) -> Self {
        Self {
            severity,
            kind: None,
            message: message.into(),
            detail: None,
            hint: None,
        }
    }
}
