//! What every store of the node's catalogue keeps to.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::panic,
    reason = "these are tests"
)]

mod meta_suite;

use std::{sync::Arc, time::Duration};

use meta_suite::{conforms, done};

use aerostat_storage::{
    DataFolder, MetaError, MetaFile, MetaMemory, MetaShared, MetaStore, Swapped, Version, Versioned,
};

#[test]
fn memory_conforms() {
    let store: Arc<dyn MetaStore> = Arc::new(MetaMemory::default());
    conforms(&store);
}

#[test]
fn a_file_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let data = DataFolder::open(folder.path()).unwrap();
    let store: Arc<dyn MetaStore> = Arc::new(MetaFile::of(&data));
    conforms(&store);
}

/// Versions go on behind those of before, and who knows an old one loses.
#[test]
fn versions_of_a_file_outlive_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut last = None;
    for round in 0..3 {
        let data = DataFolder::open(folder.path()).unwrap();
        let store = MetaFile::of(&data);
        let found = store.load().unwrap().map(|kept| kept.version);
        assert_eq!(found, last);
        if round > 0 {
            let lost = store.compare_and_swap(None, b"1").unwrap();
            assert!(matches!(lost, Swapped::Lost(Some(_))), "{lost:?}");
        }
        // Without loading it first, too.
        let version = done(
            MetaFile::of(&data)
                .compare_and_swap(found, round.to_string().as_bytes())
                .unwrap(),
        );
        assert!(Some(version) > last);
        last = Some(version);
    }
}

/// As many processes would have it: each call by another value.
#[derive(Debug)]
struct Anew(std::path::PathBuf);

impl Anew {
    fn store(&self) -> MetaShared {
        MetaShared::open(&self.0).unwrap()
    }
}

impl MetaStore for Anew {
    fn place(&self) -> std::path::PathBuf {
        self.store().place()
    }

    fn load(&self) -> Result<Option<Versioned>, MetaError> {
        self.store().load()
    }

    fn compare_and_swap(
        &self,
        expected: Option<Version>,
        document: &[u8],
    ) -> Result<Swapped, MetaError> {
        self.store().compare_and_swap(expected, document)
    }

    fn wait_newer(
        &self,
        known: Option<Version>,
        timeout: Duration,
    ) -> Result<Option<Versioned>, MetaError> {
        self.store().wait_newer(known, timeout)
    }
}

#[test]
fn a_shared_folder_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn MetaStore> = Arc::new(Anew(folder.path().join("shared")));
    conforms(&store);
    // A few versions stay, and nothing else.
    let names = std::fs::read_dir(folder.path().join("shared")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.len() <= 9, "{names:?}");
}

#[test]
fn what_is_damaged_in_a_shared_folder_is_told_and_not_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let store = MetaShared::open(folder.path()).unwrap();
    let first = done(store.compare_and_swap(None, b"{\"a\":1}").unwrap());
    done(store.compare_and_swap(Some(first), b"{\"a\":2}").unwrap());
    // A beginning of a version that nobody has linked, and other things.
    std::fs::write(folder.path().join("77-0-1.new"), b"{").unwrap();
    std::fs::write(folder.path().join("README"), b"not ours").unwrap();
    std::fs::write(folder.path().join("00.json"), b"not ours").unwrap();
    assert_eq!(store.load().unwrap().unwrap().document, b"{\"a\":2}");
    let newest = folder.path().join("0000000000000002.json");
    let bytes = std::fs::read(&newest).unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x20;
        std::fs::write(&newest, &damaged).unwrap();
        let read = store.load();
        assert!(matches!(read, Err(MetaError::Damaged { .. })), "byte {at}");
        let swapped = store.compare_and_swap(Some(Version(2)), b"{}");
        assert!(swapped.is_err(), "byte {at}");
    }
    std::fs::write(&newest, &bytes).unwrap();
    // Another version's file under its name.
    std::fs::copy(
        folder.path().join("0000000000000001.json"),
        folder.path().join("0000000000000003.json"),
    )
    .unwrap();
    assert!(matches!(store.load(), Err(MetaError::Damaged { .. })));
}
