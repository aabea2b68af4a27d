//! What every store of a document keeps to ([`MetaStore`]); the tests of other crates have it, too.

use std::{
    collections::BTreeSet,
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use aerostat_storage::{MetaStore, Swapped, Version, Versioned};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);

pub(crate) fn done(swapped: Swapped) -> Version {
    match swapped {
        Swapped::Done(version) => version,
        lost @ Swapped::Lost(_) => panic!("{lost:?}"),
    }
}

/// All of it, over an empty store.
pub(crate) fn conforms(store: &Arc<dyn MetaStore>) {
    nothing_is_there_at_first(&**store);
    a_swap_needs_the_version_that_is_there(&**store);
    of_racing_writers_one_wins_each_round(store);
    who_waits_sees_the_newest(store);
    a_large_document_is_kept_whole(&**store);
}

fn nothing_is_there_at_first(store: &dyn MetaStore) {
    assert_eq!(store.load().unwrap(), None);
    assert_eq!(store.wait_newer(None, SHORT).unwrap(), None);
    let lost = store.compare_and_swap(Some(Version(7)), b"{}").unwrap();
    assert_eq!(lost, Swapped::Lost(None));
    assert_eq!(store.load().unwrap(), None);
}

fn a_swap_needs_the_version_that_is_there(store: &dyn MetaStore) {
    let first = done(store.compare_and_swap(None, b"{\"a\":1}").unwrap());
    let second = done(store.compare_and_swap(Some(first), b"{\"a\":2}").unwrap());
    assert!(second > first);
    let there = Versioned {
        version: second,
        document: b"{\"a\":2}".to_vec(),
    };
    for stale in [None, Some(first), Some(Version(second.0 + 1))] {
        let lost = store.compare_and_swap(stale, b"{\"a\":3}").unwrap();
        assert_eq!(lost, Swapped::Lost(Some(there.clone())), "{stale:?}");
    }
    assert_eq!(store.load().unwrap(), Some(there));
}

/// Writers count up one number: every increment that was said to be done is in the end there, and
/// no version is given twice.
fn of_racing_writers_one_wins_each_round(store: &Arc<dyn MetaStore>) {
    const WRITERS: usize = 4;
    const EACH: usize = 25;
    let before = store.load().unwrap().unwrap().version;
    done(store.compare_and_swap(Some(before), b"0").unwrap());
    let start = Arc::new(Barrier::new(WRITERS));
    let writers = (0..WRITERS).map(|_| {
        let (store, start) = (Arc::clone(store), Arc::clone(&start));
        thread::spawn(move || {
            start.wait();
            let mut versions = Vec::new();
            let mut kept = store.load().unwrap().unwrap();
            while versions.len() < EACH {
                let number: u64 = String::from_utf8(kept.document).unwrap().parse().unwrap();
                let next = (number + 1).to_string();
                match store
                    .compare_and_swap(Some(kept.version), next.as_bytes())
                    .unwrap()
                {
                    Swapped::Done(version) => {
                        versions.push(version);
                        kept = store.load().unwrap().unwrap();
                    }
                    Swapped::Lost(newer) => {
                        let newer = newer.expect("there is one");
                        assert!(newer.version > kept.version);
                        kept = newer;
                    }
                }
            }
            versions
        })
    });
    let writers: Vec<_> = writers.collect();
    let given: Vec<Version> = writers
        .into_iter()
        .flat_map(|writer| writer.join().unwrap())
        .collect();
    let distinct: BTreeSet<_> = given.iter().collect();
    assert_eq!(distinct.len(), WRITERS * EACH);
    let kept = store.load().unwrap().unwrap();
    assert_eq!(kept.document, (WRITERS * EACH).to_string().as_bytes());
    assert_eq!(Some(&kept.version), given.iter().max());
}

/// A reader that waits again and again comes to the last document, and never back.
fn who_waits_sees_the_newest(store: &Arc<dyn MetaStore>) {
    const CHANGES: u64 = 50;
    let known = store.load().unwrap().unwrap().version;
    assert_eq!(store.wait_newer(Some(known), SHORT).unwrap(), None);
    // One that is newer already is given at once.
    let at_once = store.wait_newer(None, Duration::ZERO).unwrap();
    assert_eq!(at_once.map(|kept| kept.version), Some(known));
    let for_ever = store.wait_newer(None, Duration::MAX).unwrap();
    assert_eq!(for_ever.map(|kept| kept.version), Some(known));
    let reader = {
        let store = Arc::clone(store);
        thread::spawn(move || {
            let mut last = known;
            loop {
                let newer = store.wait_newer(Some(last), LONG).unwrap();
                let newer = newer.expect("there is a newer one within a minute");
                assert!(newer.version > last);
                last = newer.version;
                if newer.document == b"\"last\"" {
                    return last;
                }
            }
        })
    };
    let mut version = known;
    for change in 0..CHANGES {
        let document = match change + 1 == CHANGES {
            true => "\"last\"".to_owned(),
            false => change.to_string(),
        };
        let swapped = store.compare_and_swap(Some(version), document.as_bytes());
        version = done(swapped.unwrap());
    }
    assert_eq!(reader.join().unwrap(), version);
}

fn a_large_document_is_kept_whole(store: &dyn MetaStore) {
    let document = format!("[{}\"ä\\n\"]", "\"tenant\",".repeat(200_000));
    let before = store.load().unwrap().map(|kept| kept.version);
    done(store.compare_and_swap(before, document.as_bytes()).unwrap());
    assert_eq!(store.load().unwrap().unwrap().document, document.as_bytes());
}
