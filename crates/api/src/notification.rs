//! A notification, as a listening session gets it.

use std::fmt;

/// A NOTIFY, once its transaction has committed.
pub struct Notification {
    /// The number of the session that it is from.
    pub sender: i32,
    /// Its channel.
    pub channel: String,
    /// What it says.
    pub payload: String,
    /// What it takes of what its engine keeps for notifications, given back when it is dropped.
    _room: Box<dyn Send + Sync>,
}

impl Notification {
    /// A notification that keeps its room as long as it is there.
    pub fn new(
        sender: i32,
        channel: &str,
        payload: &str,
        room: impl Send + Sync + 'static,
    ) -> Self {
        Self {
            sender,
            channel: channel.to_owned(),
            payload: payload.to_owned(),
            _room: Box::new(room),
        }
    }
}

impl fmt::Debug for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notification")
            .field("sender", &self.sender)
            .field("channel", &self.channel)
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}
