//! Places for clients that have not authenticated yet. Their number is limited: when all are taken,
//! the next client takes the place of the one that has been there longest.
//!
//! ```text
//!  accepted ─► [ 7 | 8 | 9 | … | 40 ] ─► let in: a place of another kind
//!                └─ leaves when another client comes and all places are taken
//! ```
//!
//! So silent sockets keep nobody out: a client that goes on speaking is let in long before as many
//! others have come.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The places.
#[derive(Debug)]
pub struct Lobby {
    places_max: usize,
    guests: Mutex<Guests>,
}

#[derive(Debug, Default)]
struct Guests {
    next: u64,
    /// The clients in the order in which they came, each with the token that makes it leave.
    present: BTreeMap<u64, CancellationToken>,
    /// How many clients have been made to leave.
    dismissed: u64,
}

/// A place in a [`Lobby`], given up when dropped.
#[derive(Debug)]
pub struct LobbyPlace {
    lobby: Arc<Lobby>,
    number: u64,
    leave: CancellationToken,
}

impl Lobby {
    /// A lobby with this many places, or one if that is 0.
    pub fn new(places_max: usize) -> Arc<Self> {
        Arc::new(Self {
            places_max: places_max.max(1),
            guests: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place. If all are taken, the client that came first loses its own.
    pub fn enter(self: &Arc<Self>) -> LobbyPlace {
        let leave = CancellationToken::new();
        let mut guests = self.lock();
        let first = match guests.present.len() >= self.places_max {
            true => guests.present.pop_first(),
            false => None,
        };
        guests.dismissed += u64::from(first.is_some());
        let number = guests.next;
        guests.next += 1;
        guests.present.insert(number, leave.clone());
        assert!(
            guests.present.len() <= self.places_max,
            "{} guests are in a lobby of {} places",
            guests.present.len(),
            self.places_max
        );
        drop(guests);
        if let Some((_, token)) = first {
            token.cancel();
        }
        LobbyPlace {
            lobby: Arc::clone(self),
            number,
            leave,
        }
    }

    /// How many clients have lost their places to others so far.
    pub fn dismissed(&self) -> u64 {
        self.lock().dismissed
    }
}

impl LobbyPlace {
    /// Waits until the place belongs to another client.
    pub fn lost(&self) -> WaitForCancellationFutureOwned {
        self.leave.clone().cancelled_owned()
    }
}

impl Drop for LobbyPlace {
    fn drop(&mut self) {
        self.lobby.lock().present.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_that_came_first_leaves_first() {
        let lobby = Lobby::new(2);
        let (first, second) = (lobby.enter(), lobby.enter());
        assert_eq!(lobby.dismissed(), 0);
        let third = lobby.enter();
        let lost = |place: &LobbyPlace| place.leave.is_cancelled();
        assert_eq!(
            [lost(&first), lost(&second), lost(&third)],
            [true, false, false]
        );
        // A client that was dismissed gives no place up; one that leaves does.
        drop(first);
        drop(third);
        let fourth = lobby.enter();
        assert!(!lost(&second) && !lost(&fourth));
        let fifth = lobby.enter();
        assert_eq!(
            [lost(&second), lost(&fourth), lost(&fifth)],
            [true, false, false]
        );
        assert_eq!(lobby.dismissed(), 2);
    }
}
