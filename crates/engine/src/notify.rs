//! NOTIFY within one node: the sessions of a database that listen on channels, and what they are
//! told.
//!
//! ```text
//!  NOTIFY ──► its session's list ──COMMIT──► Channels ──► the queue of each session that listens
//!                                                              │ between its statements
//!                                                              ▼ client
//! ```
//!
//! A notification is kept once, and as long as some session has yet to tell it its client. What
//! the sessions of a database have not told yet is bounded: a NOTIFY beyond that is refused.
//! Nothing is written to disk: who is not connected is told nothing, as in PostgreSQL.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use aerostat_api::Notification;
use aerostat_types::{ErrorKind, SqlError};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::seldom::Seldom;

/// What the notifications of a database may take that some session has yet to tell its client: a
/// session that stays in a transaction is told nothing before its end.
const QUEUED_BYTES_MAX: usize = 16 << 20;

/// What a notification takes beside its texts, with its places in the queues of a few sessions.
const NOTIFICATION_BYTES: usize = 128;

/// A part of what a database's notifications may take, given back when dropped.
#[derive(Debug)]
pub(crate) struct Room {
    channels: Arc<Channels>,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.channels
            .queued_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The channels of a database.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    listeners: Mutex<HashMap<String, Vec<Weak<Inbox>>>>,
    queued_bytes: AtomicUsize,
}

/// What a session that listens has yet to tell its client.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    queue: Seldom<Vec<Arc<Notification>>>,
    arrived: Notify,
}

impl Channels {
    /// Room for a notification with these texts.
    ///
    /// # Errors
    /// `ProgramLimitExceeded` if sessions have not told what there is.
    pub(crate) fn room(self: &Arc<Self>, channel: &str, payload: &str) -> Result<Room, SqlError> {
        let bytes = NOTIFICATION_BYTES + channel.len() + payload.len();
        let room = Room {
            channels: Arc::clone(self),
            bytes,
        };
        let before = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes <= QUEUED_BYTES_MAX {
            return Ok(room);
        }
        Err(SqlError::new(
            ErrorKind::ProgramLimitExceeded,
            "too many notifications in the NOTIFY queue",
        )
        .with_hint("A session that listens has been in a transaction for long, or does not read."))
    }

    /// The session of this inbox is told what is said on the channel from now on.
    pub(crate) fn listen(&self, channel: &str, inbox: &Arc<Inbox>) {
        let mut listeners = self.listeners.lock();
        let of_channel = listeners.entry(channel.to_owned()).or_default();
        if !of_channel.iter().any(|known| is_of(known, inbox)) {
            of_channel.push(Arc::downgrade(inbox));
        }
    }

    /// It is not any more.
    pub(crate) fn unlisten(&self, channel: &str, inbox: &Arc<Inbox>) {
        let mut listeners = self.listeners.lock();
        if let Some(of_channel) = listeners.get_mut(channel) {
            of_channel.retain(|known| !is_of(known, inbox));
            if of_channel.is_empty() {
                listeners.remove(channel);
            }
        }
    }

    /// Hands notifications of one transaction to who listens. Those of two transactions do not
    /// mix.
    pub(crate) fn publish(&self, notifications: Vec<Notification>) {
        let listeners = self.listeners.lock();
        let mut told = Vec::new();
        for notification in notifications {
            let notification = Arc::new(notification);
            for inbox in listeners.get(&notification.channel).into_iter().flatten() {
                if let Some(inbox) = inbox.upgrade() {
                    inbox.queue.lock().push(Arc::clone(&notification));
                    told.push(inbox);
                }
            }
        }
        told.iter().for_each(|inbox| inbox.arrived.notify_one());
    }
}

fn is_of(known: &Weak<Inbox>, inbox: &Arc<Inbox>) -> bool {
    std::ptr::eq(known.as_ptr(), Arc::as_ptr(inbox))
}

impl Inbox {
    /// Comes back when something has arrived since the last call of [`Self::take`].
    pub(crate) async fn arrived(&self) {
        loop {
            if self.queue.touched().is_some_and(|queue| !queue.is_empty()) {
                return;
            }
            self.arrived.notified().await;
        }
    }

    /// Whether something has arrived since the last call of [`Self::take`].
    pub(crate) fn has_some(&self) -> bool {
        self.queue.touched().is_some_and(|queue| !queue.is_empty())
    }

    /// What has arrived.
    pub(crate) fn take(&self) -> Vec<Arc<Notification>> {
        self.queue.take()
    }
}

/// What a transaction has said about channels, which comes to be when it commits.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    actions: Vec<Action>,
    notifications: Vec<Notification>,
}

/// A change of what a session listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// LISTEN.
    Listen(String),
    /// UNLISTEN.
    Unlisten(String),
    /// UNLISTEN *.
    UnlistenAll,
}

/// How far an outbox had come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OutboxMark {
    actions: usize,
    notifications: usize,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.actions.is_empty() && self.notifications.is_empty()
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Whether the transaction has said just this already: saying it again changes nothing.
    pub(crate) fn has(&self, channel: &str, payload: &str) -> bool {
        let mut said = self.notifications.iter();
        said.any(|said| said.channel == channel && said.payload == payload)
    }

    pub(crate) fn say(&mut self, notification: Notification) {
        self.notifications.push(notification);
    }

    pub(crate) fn mark(&self) -> OutboxMark {
        OutboxMark {
            actions: self.actions.len(),
            notifications: self.notifications.len(),
        }
    }

    /// Forgets what was said since.
    pub(crate) fn go_back_to(&mut self, mark: OutboxMark) {
        self.actions.truncate(mark.actions);
        self.notifications.truncate(mark.notifications);
    }

    /// Does what a committed transaction has said, for a session that listens on `channels`.
    pub(crate) fn commit(
        self,
        hub: &Channels,
        inbox: &Arc<Inbox>,
        channels: &mut BTreeSet<String>,
    ) {
        for action in self.actions {
            match action {
                Action::Listen(channel) => {
                    hub.listen(&channel, inbox);
                    channels.insert(channel);
                }
                Action::Unlisten(channel) => {
                    hub.unlisten(&channel, inbox);
                    channels.remove(&channel);
                }
                Action::UnlistenAll => {
                    let all = std::mem::take(channels);
                    all.iter().for_each(|channel| hub.unlisten(channel, inbox));
                }
            }
        }
        if !self.notifications.is_empty() {
            hub.publish(self.notifications);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(hub: &Arc<Channels>, outbox: &mut Outbox, channel: &str, payload: &str) {
        let room = hub.room(channel, payload).unwrap();
        outbox.say(Notification::new(1, channel, payload, room));
    }

    #[test]
    fn what_was_said_comes_in_order_to_who_listens() {
        let hub = Arc::new(Channels::default());
        let (one, other) = (Arc::<Inbox>::default(), Arc::<Inbox>::default());
        let (mut outbox, mut channels) = (Outbox::default(), BTreeSet::new());
        outbox.act(Action::Listen("a".to_owned()));
        say(&hub, &mut outbox, "a", "1");
        let mark = outbox.mark();
        outbox.act(Action::UnlistenAll);
        say(&hub, &mut outbox, "a", "gone");
        outbox.go_back_to(mark);
        say(&hub, &mut outbox, "b", "nobody");
        say(&hub, &mut outbox, "a", "2");
        assert!(outbox.has("a", "2") && !outbox.has("a", "gone"));
        hub.listen("c", &other);
        outbox.commit(&hub, &one, &mut channels);
        let payloads = |inbox: &Inbox| -> Vec<String> {
            let taken = inbox.take().into_iter();
            taken.map(|said| said.payload.clone()).collect()
        };
        assert_eq!(payloads(&one), ["1", "2"]);
        assert!(payloads(&other).is_empty() && channels.contains("a"));
        assert_eq!(hub.queued_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_nobody_takes_is_bounded() {
        let hub = Arc::new(Channels::default());
        let inbox = Arc::<Inbox>::default();
        hub.listen("a", &inbox);
        let payload = "x".repeat(7_999);
        let mut said = 0;
        while let Ok(room) = hub.room("a", &payload) {
            hub.publish(vec![Notification::new(1, "a", &payload, room)]);
            said += 1;
        }
        assert!((2_000..2_100).contains(&said), "{said}");
        assert_eq!(inbox.take().len(), said);
        assert!(hub.room("a", &payload).is_ok());
    }
}
