//! Which copy of a database a session reads.
//!
//! A session that is content with any goes where the fewest are that came by this node, divided by what the node has free
//! of its threads. Nodes do not ask each other how many sessions there are: each spreads its own, and all together are
//! spread. Of two that are alike this node's own copy is taken, which costs no way, else each in turn.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use aerostat_types::NodeId;

use crate::api::{Copies, OwnCopy, Reads};

/// The least that a node has free of its threads: whatever it says, it is no reason to send all sessions elsewhere.
const FREE_MIN: f64 = 0.05;

/// A copy: another node's, or this one's.
pub(crate) type Place = Option<NodeId>;

/// Sessions that read copies, and came by this node.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    sessions: Mutex<HashMap<String, HashMap<Place, usize>>>,
    /// Counts choices, so that not always the same is first.
    turn: AtomicUsize,
}

/// A session that reads a copy: it counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Reading {
    readers: Arc<Readers>,
    database: String,
    place: Place,
}

impl Readers {
    /// The copy for a session, which is counted from here on; `None` while there is none. `without` has other nodes that
    /// were not reached.
    pub(crate) fn choose(
        self: &Arc<Self>,
        database: &str,
        reads: Reads,
        copies: &Copies,
        without: &[NodeId],
    ) -> Option<(Place, Reading)> {
        let others = copies.others.iter();
        let mut places: Vec<(Place, f64)> = others
            .filter(|(node, _)| !without.contains(node))
            .map(|(node, load)| (Some(*node), *load))
            .collect();
        let own = (None, copies.own_load);
        match (copies.own, reads) {
            (OwnCopy::Missing, _) | (OwnCopy::Closed, Reads::Any) => {}
            // Whoever asks for this node's copy waits for it.
            (OwnCopy::Closed, _) => return None,
            (_, Reads::Here) => places = vec![own],
            (OwnCopy::Current, _) => places.push(own),
            (OwnCopy::Behind, _) if copies.others.is_empty() => places.push(own),
            (OwnCopy::Behind, _) => {}
        }
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = sessions.entry(database.to_owned()).or_default();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let count = places.len().max(1);
        places.rotate_left(turn % count);
        let cost = |(place, load): &(Place, f64)| {
            let sessions = counts.get(place).copied().unwrap_or(0) + 1;
            let cost = sessions as f64 / (1.0 - load).clamp(FREE_MIN, 1.0);
            (cost, place.is_some())
        };
        let best = places.iter().min_by(|a, b| {
            let ((a, a_is_other), (b, b_is_other)) = (cost(a), cost(b));
            a.total_cmp(&b).then(a_is_other.cmp(&b_is_other))
        });
        let place = best.map(|(place, _)| *place);
        if let Some(place) = place {
            *counts.entry(place).or_default() += 1;
        } else if counts.is_empty() {
            sessions.remove(database);
        }
        let reading = |place| Reading {
            readers: Arc::clone(self),
            database: database.to_owned(),
            place,
        };
        place.map(|place| (place, reading(place)))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let sessions = self.readers.sessions.lock();
        let mut sessions = sessions.unwrap_or_else(PoisonError::into_inner);
        let Some(counts) = sessions.get_mut(&self.database) else {
            return;
        };
        if let Some(count) = counts.get_mut(&self.place) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.place);
            }
        }
        if counts.is_empty() {
            sessions.remove(&self.database);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copies(own: OwnCopy, others: &[(u32, f64)]) -> Copies {
        Copies {
            own,
            own_load: 0.0,
            others: others
                .iter()
                .map(|(id, load)| (NodeId(*id), *load))
                .collect(),
        }
    }

    /// Where so many sessions are, that all stay.
    fn spread(copies: &Copies, sessions: usize) -> (HashMap<Place, usize>, Vec<Reading>) {
        let readers = Arc::new(Readers::default());
        let mut kept = Vec::new();
        let mut all = HashMap::new();
        for _ in 0..sessions {
            let (place, reading) = readers.choose("d", Reads::Any, copies, &[]).unwrap();
            *all.entry(place).or_default() += 1;
            kept.push(reading);
        }
        (all, kept)
    }

    #[test]
    fn sessions_are_spread_by_what_is_free() {
        let alike = copies(OwnCopy::Current, &[(1, 0.0), (2, 0.0)]);
        let (all, _kept) = spread(&alike, 30);
        assert_eq!(
            all,
            HashMap::from([(None, 10), (Some(NodeId(1)), 10), (Some(NodeId(2)), 10)])
        );
        let busy = copies(OwnCopy::Missing, &[(1, 0.75), (2, 0.0)]);
        let (all, _kept) = spread(&busy, 50);
        assert_eq!(
            all,
            HashMap::from([(Some(NodeId(1)), 10), (Some(NodeId(2)), 40)])
        );
        // Whatever nodes say of themselves.
        let odd = copies(OwnCopy::Missing, &[(1, f64::NAN), (2, 7.0), (3, -1.0)]);
        let (all, _kept) = spread(&odd, 100);
        assert!(all.len() >= 2, "{all:?}");
    }

    #[test]
    fn nodes_with_few_sessions_each_do_not_all_choose_the_same() {
        let alike = copies(OwnCopy::Missing, &[(1, 0.0), (2, 0.0)]);
        let readers = Arc::new(Readers::default());
        let chosen: Vec<Place> = ["a", "b", "c", "d"]
            .iter()
            .map(|database| readers.choose(database, Reads::Any, &alike, &[]).unwrap().0)
            .collect();
        assert!(
            chosen.contains(&Some(NodeId(1))) && chosen.contains(&Some(NodeId(2))),
            "{chosen:?}"
        );
    }

    #[test]
    fn sessions_that_end_do_not_count() {
        let alike = copies(OwnCopy::Current, &[(1, 0.0)]);
        let readers = Arc::new(Readers::default());
        for _ in 0..10 {
            let (place, _reading) = readers.choose("d", Reads::Any, &alike, &[]).unwrap();
            assert_eq!(place, None, "the own copy is as free as the other");
        }
        assert!(readers.sessions.lock().unwrap().is_empty());
    }

    #[test]
    fn a_copy_is_one_that_may_be_read() {
        let readers = Arc::new(Readers::default());
        let chosen = |reads, copies: &Copies, without: &[u32]| {
            let without: Vec<NodeId> = without.iter().copied().map(NodeId).collect();
            let chosen = readers.choose("d", reads, copies, &without);
            chosen.map(|(place, _)| place.map(|node| node.0))
        };
        let with = |own| copies(own, &[(1, 0.0)]);
        for (reads, own, without, expected) in [
            (Reads::Here, OwnCopy::Behind, &[][..], Some(None)),
            (Reads::Here, OwnCopy::Missing, &[], Some(Some(1))),
            (Reads::Here, OwnCopy::Missing, &[1], None),
            (Reads::Here, OwnCopy::Closed, &[], None),
            (Reads::Any, OwnCopy::Closed, &[], Some(Some(1))),
            (Reads::Any, OwnCopy::Behind, &[], Some(Some(1))),
            (Reads::Any, OwnCopy::Behind, &[1], None),
            (Reads::Any, OwnCopy::Current, &[1], Some(None)),
        ] {
            assert_eq!(
                chosen(reads, &with(own), without),
                expected,
                "{reads:?} {own:?} {without:?}"
            );
        }
        let alone = copies(OwnCopy::Behind, &[]);
        assert_eq!(chosen(Reads::Any, &alone, &[]), Some(None));
    }
}
