//! LISTEN, UNLISTEN, NOTIFY and `pg_notify`, as a part of the session's transaction.

use std::sync::Arc;

use aerostat_api::{Notification, Outcome};
use aerostat_sql::utility::NotifyCommand;
use aerostat_types::{ErrorKind, SqlError};

use super::ClientState;
use crate::{
    notify::{Action, Channels, Outbox},
    seldom::Seldom,
};

/// A channel's name has as many bytes as any name, and one for its end in PostgreSQL.
const CHANNEL_BYTES_MAX: usize = 63;

/// PostgreSQL's `NOTIFY_PAYLOAD_MAX_LENGTH`, less one for the text's end.
const PAYLOAD_BYTES_MAX: usize = 7_999;

/// How functions of a statement say something: by the list of their session's transaction.
#[derive(Clone)]
pub(super) struct Sayings {
    pub(super) outbox: Arc<Seldom<Outbox>>,
    pub(super) channels: Arc<Channels>,
    pub(super) number: i32,
}

impl Sayings {
    /// NOTIFY.
    ///
    /// # Errors
    /// `InvalidParameterValue` for a name or text that is none; `ProgramLimitExceeded` when too
    /// much was said that others have not heard yet.
    pub(super) fn say(&self, channel: &str, payload: &str) -> Result<(), SqlError> {
        let invalid = |message: &str| Err(SqlError::new(ErrorKind::InvalidParameterValue, message));
        match channel.len() {
            0 => return invalid("channel name cannot be empty"),
            1..=CHANNEL_BYTES_MAX => {}
            _ => return invalid("channel name too long"),
        }
        if payload.len() > PAYLOAD_BYTES_MAX {
            return invalid("payload string too long");
        }
        let mut outbox = self.outbox.lock();
        if !outbox.has(channel, payload) {
            let room = self.channels.room(channel, payload)?;
            outbox.say(Notification::new(self.number, channel, payload, room));
        }
        Ok(())
    }
}

impl ClientState {
    pub(super) fn run_notify(&mut self, command: &NotifyCommand) -> Result<Outcome, SqlError> {
        let act = |action| self.sayings.outbox.lock().act(action);
        match command {
            NotifyCommand::Listen(_) if !self.hears => {
                return Err(SqlError::new(
                    ErrorKind::FeatureNotSupported,
                    "LISTEN needs a connection: nobody would take what is said",
                ));
            }
            NotifyCommand::Listen(channel) => act(Action::Listen(channel.clone())),
            NotifyCommand::Unlisten(Some(channel)) => act(Action::Unlisten(channel.clone())),
            NotifyCommand::Unlisten(None) => act(Action::UnlistenAll),
            NotifyCommand::Notify { channel, payload } => self.sayings.say(channel, payload)?,
        }
        Ok(Outcome::Command {
            tag: command.tag().to_owned(),
        })
    }

    /// The transaction at hand has committed: others hear what it has said.
    pub(super) fn publish(&mut self) {
        let outbox = self.sayings.outbox.take();
        if !outbox.is_empty() {
            let mut listening = self.listening.lock();
            outbox.commit(&self.sayings.channels, &self.inbox, &mut listening);
        }
    }

    /// The transaction at hand was undone: what it has said is dropped.
    pub(super) fn say_nothing(&mut self) {
        drop(self.sayings.outbox.take());
    }

    /// The session listens on nothing any more.
    pub(super) fn unlisten(&mut self) {
        self.sayings.outbox.lock().act(Action::UnlistenAll);
        self.publish();
    }

    /// Comes back when others have said something that the client is to be told.
    pub(super) async fn notified(&self) {
        // Only statements of the session itself change this.
        let listens = !self.listening.lock().is_empty();
        match listens {
            true => self.inbox.arrived().await,
            false => std::future::pending().await,
        }
    }
}
