//! The sessions of a gateway: their cancel keys, their places, and their orders when the node
//! stops.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    api::Canceller,
    orders::{End, Orders},
};

struct Entry {
    secret: i32,
    orders: Arc<Orders>,
    cancel: Canceller,
    role: String,
}

/// All sessions of a gateway, by the numbers that their engine gives them.
#[derive(Default)]
pub(crate) struct Registry {
    sessions: Mutex<Sessions>,
}

#[derive(Default)]
struct Sessions {
    entries: HashMap<i32, Entry>,
    /// Clients whose sessions are at other nodes.
    relays: HashMap<u64, Relay>,
    relay_next: u64,
    /// The order that all sessions have been given, and that new ones get.
    end: End,
}

/// A client whose session is at another node.
struct Relay {
    orders: Arc<Orders>,
    /// Whether the client has come by a node that does not reach the other one.
    is_guest: bool,
    /// The session's key, once it is known, and how that node is told.
    key: Option<((i32, i32), Canceller)>,
}

/// A relayed client's place; dropping this gives it up.
pub(crate) struct Relayed {
    registry: Arc<Registry>,
    number: u64,
    pub(crate) orders: Arc<Orders>,
}

/// A session's place in the registry, given up when dropped.
pub(crate) struct Registration {
    pub(crate) pid: i32,
    pub(crate) secret: i32,
    orders: Arc<Orders>,
    entered: Entered,
}

/// The place itself; dropping this gives it up.
pub(crate) struct Entered {
    registry: Arc<Registry>,
    pid: i32,
}

impl Registration {
    /// The orders of the connection, and the place.
    pub(crate) fn split(self) -> (Arc<Orders>, Entered) {
        (self.orders, self.entered)
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for the session with this number; `None` if the role has as many connections
    /// as it may have.
    pub(crate) fn enter(
        self: &Arc<Self>,
        pid: i32,
        role: &str,
        role_limit: Option<u32>,
        cancel: Canceller,
    ) -> Option<Registration> {
        assert_ne!(pid, 0, "to clients 0 is no session");
        let mut sessions = self.lock();
        let of_role = sessions
            .entries
            .values()
            .filter(|entry| entry.role == role)
            .count();
        if role_limit.is_some_and(|limit| of_role >= limit as usize) {
            return None;
        }
        let orders = Arc::new(Orders::new(sessions.end));
        let secret = rand::random();
        let entry = Entry {
            secret,
            orders: Arc::clone(&orders),
            cancel,
            role: role.to_owned(),
        };
        let before = sessions.entries.insert(pid, entry);
        debug_assert!(before.is_none(), "two sessions have the number {pid}");
        drop(sessions);
        Some(Registration {
            pid,
            secret,
            orders,
            entered: Entered {
                registry: self.clone(),
                pid,
            },
        })
    }

    /// Takes a place for a client whose session is at another node.
    pub(crate) fn enter_relayed(self: &Arc<Self>, is_guest: bool) -> Relayed {
        let mut sessions = self.lock();
        let orders = Arc::new(Orders::new(sessions.end));
        let number = sessions.relay_next;
        sessions.relay_next += 1;
        let relay = Relay {
            orders: Arc::clone(&orders),
            is_guest,
            key: None,
        };
        sessions.relays.insert(number, relay);
        Relayed {
            registry: Arc::clone(self),
            number,
            orders,
        }
    }

    /// Cancels what the session with a key runs, here or at the node that has it; whether it is a key that is known
    /// here.
    pub(crate) fn cancel(&self, pid: i32, secret: i32) -> bool {
        self.cancel_here(pid, secret) || self.cancel_relayed((pid, secret), |_| true)
    }

    /// The same as another node asks for: a node that knows the session by a client of its own is asked itself.
    pub(crate) fn cancel_guest(&self, pid: i32, secret: i32) {
        if !self.cancel_here(pid, secret) {
            self.cancel_relayed((pid, secret), |relay| relay.is_guest);
        }
    }

    fn cancel_relayed(&self, wanted: (i32, i32), is_asked: impl Fn(&Relay) -> bool) -> bool {
        let tell = {
            let sessions = self.lock();
            let relays = sessions.relays.values().filter(|relay| is_asked(relay));
            let mut keys = relays.flat_map(|relay| &relay.key);
            let key = keys.find(|(key, _)| *key == wanted);
            key.map(|(_, tell)| Arc::clone(tell))
        };
        if let Some(tell) = &tell {
            tell();
        }
        tell.is_some()
    }

    /// Cancels a session's running statement, if there is one and the key is right; whether the session is of this
    /// node.
    pub(crate) fn cancel_here(&self, pid: i32, secret: i32) -> bool {
        let sessions = self.lock();
        let entry = sessions.entries.get(&pid);
        let Some(entry) = entry.filter(|entry| entry.secret == secret) else {
            return false;
        };
        let (orders, stop) = (Arc::clone(&entry.orders), Arc::clone(&entry.cancel));
        drop(sessions);
        orders.cancel(|| stop());
        true
    }

    /// Orders every connection to end, including those that are still to come.
    pub(crate) fn tell_all(&self, end: End) {
        let mut sessions = self.lock();
        sessions.end = sessions.end.max(end);
        sessions
            .entries
            .values()
            .for_each(|entry| entry.orders.tell(end));
        let relays = sessions.relays.values();
        relays.for_each(|relay| relay.orders.tell(end));
    }

    /// How many sessions there are.
    pub(crate) fn len(&self) -> usize {
        let sessions = self.lock();
        sessions.entries.len() + sessions.relays.len()
    }
}

impl Relayed {
    /// The session's key is this; `tell` has its node stop what it runs.
    pub(crate) fn set_key(&self, key: (i32, i32), tell: Canceller) {
        let mut sessions = self.registry.lock();
        if let Some(relay) = sessions.relays.get_mut(&self.number) {
            relay.key = Some((key, tell));
        }
    }
}

impl Drop for Relayed {
    fn drop(&mut self) {
        self.registry.lock().relays.remove(&self.number);
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("sessions", &self.len())
            .finish()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.registry.lock().entries.remove(&self.pid);
    }
}
