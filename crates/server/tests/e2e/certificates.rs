//! Certificates by which nodes know each other, as `aerostat cert` makes them.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::harness::{command, said};

/// Whether all clusters of the tests are to have some.
pub(crate) fn is_secured() -> bool {
    std::env::var("CLUSTER_SECURED").is_ok_and(|set| set == "1")
}

/// An authority, and its nodes' certificates.
pub(crate) struct Certificates(TempDir);

impl Certificates {
    pub(crate) fn new() -> Certificates {
        let folder = tempfile::tempdir().unwrap();
        let made = Certificates(folder);
        made.cert(&["ca"]);
        made
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// The folder of a node.
    pub(crate) fn folder_of(&self, node: &str) -> PathBuf {
        self.folder().join(node)
    }

    /// The folder of a node, whose certificate is made if it has none.
    pub(crate) fn of(&self, node: &str) -> String {
        let folder = self.folder_of(node);
        if !folder.exists() {
            self.cert(&["node", node]);
        }
        folder.display().to_string()
    }

    /// What `aerostat cert` says that succeeds.
    pub(crate) fn cert(&self, arguments: &[&str]) -> String {
        let (done, said) = try_cert(self.folder(), arguments);
        assert!(done, "{said}");
        said
    }
}

/// Whether `aerostat cert` succeeds, and what it says.
pub(crate) fn try_cert(folder: &Path, arguments: &[&str]) -> (bool, String) {
    let output = command()
        .args(["cert", arguments[0], "--dir"])
        .arg(folder)
        .args(&arguments[1..])
        .output()
        .unwrap();
    (output.status.success(), said(&output))
}
