//! Which crate may know which. The table [`MAY_KNOW`] is the architecture; a crate
//! that is not in it, or a dependency it does not allow, fails the test command.
//!
//! ```text
//! types ◄ segment, txn ◄ memory ◄ storage ◄ fast ◄ api ◄ catalog ◄ pgcatalog ◄ query ◄ engine ◄ embedded ◄ server
//!   ▲              ▲                ▲              ▲      │             │         │       │        │          │
//!   │              │                │              └──────│─────────────│─────────│───────│────────│─ gateway ┤
//!   │              │                └─────────────────────│─────────────│─────────│───────│── objects ◄───────┤
//!   │             sql ◄───────────────────────────────────┤             │         │       │        │          │
//!   │              ▲─────────────── semantics ◄───────────│─────────────┴─────────┤       │        │          │
//!   ├────────────────────────────── advice ◄──────────────┴───────────────────────┴───────┴────────┴──────────┤
//!   └────────────────────────────── workload ◄──────────┬─────────────────────────────────────────────────────┤
//!                 segment, advice, calibrate, micro-vm ◄┴─ lab ◄──────────────────────────────────────────────┤
//!                               capacity ◄─────────────────┴──────────────────────────────────────────────────┤
//!                       balloon ◄── broker ◄──────────────────────────────────────────────────────────────────┤
//!                      pgclient ◄── import ◄──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! `sync` is below `segment`, `txn` and `schedule`, and knows none of ours. `replication` and `placement` know `types`;
//! `copies` drives it over `storage`; `etcd` has what
//! nodes share, and `cluster` knows them all, and `schedule`.
//!
//! Dev-dependencies count too: a test that needs an upper crate belongs there.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// Every crate of ours, without the `aerostat-` prefix, and those it may know.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("features", &[]),
    ("types", &[]),
    ("sync", &[]),
    ("segment", &["types", "sync"]),
    ("txn", &["types", "sync"]),
    ("memory", &["types", "segment"]),
    ("storage", &["types", "segment", "txn", "memory"]),
    // Tests make tenants to back up.
    ("objects", &["types", "memory", "storage"]),
    ("fast", &["types", "txn", "memory", "storage"]),
    ("transport", &[]),
    ("api", &["types", "fast", "transport"]),
    ("sql", &["types", "txn"]),
    ("semantics", &["types", "sql"]),
    ("advice", &["types"]),
    (
        "catalog",
        &["types", "txn", "memory", "storage", "api", "sql", "advice"],
    ),
    (
        "pgcatalog",
        // Tests make a catalogue with tables.
        &[
            "types",
            "txn",
            "memory",
            "storage",
            "api",
            "sql",
            "catalog",
            "semantics",
            "advice",
        ],
    ),
    ("schedule", &["types", "sync"]),
    ("calibrate", &[]),
    ("micro-vm", &[]),
    ("capacity", &[]),
    ("balloon", &[]),
    ("broker", &["types", "balloon"]),
    ("pgclient", &[]),
    // It reaches both databases over the wire, and knows no crate of ours that has one.
    ("import", &["pgclient"]),
    ("replication", &["types"]),
    ("placement", &["types"]),
    // Tests make tenants.
    (
        "copies",
        &[
            "types",
            "txn",
            "memory",
            "storage",
            "replication",
            "transport",
        ],
    ),
    ("etcd", &["types", "storage"]),
    // Tests run statements of administration.
    (
        "cluster",
        &[
            "types",
            "txn",
            "memory",
            "storage",
            "sql",
            "catalog",
            "replication",
            "transport",
            "copies",
            "etcd",
            "placement",
            "schedule",
        ],
    ),
    (
        "lab",
        &[
            "types",
            "segment",
            "advice",
            "calibrate",
            "micro-vm",
            "capacity",
            "workload",
        ],
    ),
    (
        "query",
        &[
            "types",
            "segment",
            "txn",
            "memory",
            "storage",
            "api",
            "sql",
            "catalog",
            "pgcatalog",
            "schedule",
            "semantics",
        ],
    ),
    (
        "engine",
        &[
            "types",
            "txn",
            "memory",
            "storage",
            "fast",
            "api",
            "sql",
            "catalog",
            "pgcatalog",
            "schedule",
            "semantics",
            "advice",
            "query",
        ],
    ),
    (
        "embedded",
        &[
            "types",
            "advice",
            "calibrate",
            "memory",
            "storage",
            "objects",
            "api",
            "sql",
            "catalog",
            "engine",
        ],
    ),
    ("gateway", &["types", "api", "transport"]),
    ("workload", &["types", "pgclient"]),
    // It judges the node from outside: by the wire, and by processes it starts.
    ("histories", &[]),
    ("adapters", &["types", "balloon", "broker"]),
    (
        "server",
        &[
            "types",
            "transport",
            "api",
            "segment",
            "txn",
            "memory",
            "storage",
            "objects",
            "advice",
            "calibrate",
            "lab",
            "schedule",
            "capacity",
            "balloon",
            "broker",
            "adapters",
            "placement",
            "cluster",
            "embedded",
            "gateway",
            "import",
            "pgclient",
            "workload",
        ],
    ),
    ("xtask", &[]),
];

/// Foreign crates, by prefix, and the crates of ours that alone may know them.
const ONLY: &[(&str, &[&str])] = &[
    ("datafusion", &["semantics", "pgcatalog", "query", "engine"]),
    ("sqlparser", &["sql", "catalog", "semantics", "query"]),
    ("pgwire", &["gateway"]),
    // DataFusion has it below its own names; `features` only says with which features.
    ("object_store", &["objects", "features"]),
];

/// The only crates that may contain `unsafe`.
const UNSAFE: &[&str] = &["segment", "memory", "micro-vm", "schedule"];

/// Checks the dependencies in `cargo metadata`'s output.
///
/// # Errors
/// When the JSON is not what cargo writes.
pub(crate) fn check(metadata: &Value) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for package in packages(metadata)? {
        let name = short_name(package)?;
        let Some((_, allowed)) = MAY_KNOW.iter().find(|(crate_name, _)| *crate_name == name) else {
            complaints.push(format!(
                "crate `{name}` is not in xtask's table; add it with what it may know"
            ));
            continue;
        };
        let dependencies = package["dependencies"]
            .as_array()
            .context("dependencies are no list")?;
        for dependency in dependencies {
            let full = dependency["name"]
                .as_str()
                .context("a dependency has no name")?;
            let known = short(full);
            let ours = MAY_KNOW.iter().any(|(crate_name, _)| *crate_name == known);
            // `features` is a list of dependencies without code, so anyone may know it.
            if full.starts_with("aerostat-")
                && ours
                && known != "features"
                && !allowed.contains(&known)
            {
                complaints.push(format!("`{name}` may not know `{known}`"));
            }
            for (prefix, owners) in ONLY {
                if full.starts_with(prefix) && !owners.contains(&name) {
                    let owners = owners.join("`, `");
                    complaints.push(format!("only `{owners}` may know `{full}`, not `{name}`"));
                }
            }
        }
    }
    complaints.sort();
    complaints.dedup();
    Ok(complaints)
}

/// Checks that every crate but those in [`UNSAFE`] forbids `unsafe` at its root.
///
/// # Errors
/// When the JSON is not what cargo writes, or a source file cannot be read.
pub(crate) fn check_unsafe(metadata: &Value) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for package in packages(metadata)? {
        let name = short_name(package)?;
        for target in package["targets"]
            .as_array()
            .context("targets are no list")?
        {
            let kinds = target["kind"].as_array().context("a target has no kind")?;
            if !kinds
                .iter()
                .any(|kind| matches!(kind.as_str(), Some("lib" | "bin")))
            {
                continue;
            }
            let path = target["src_path"]
                .as_str()
                .context("a target has no path")?;
            let text =
                std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
            complaints.extend(unsafe_complaint(name, path, &text));
        }
    }
    Ok(complaints)
}

fn unsafe_complaint(name: &str, path: &str, text: &str) -> Option<String> {
    let forbids = text.contains("#![forbid(unsafe_code)]");
    let file = Path::new(path)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    match (UNSAFE.contains(&name), forbids) {
        (false, false) => Some(format!("`{name}`: {file} lacks #![forbid(unsafe_code)]")),
        (true, true) => Some(format!("`{name}` forbids unsafe: take it off xtask's list")),
        _ => None,
    }
}

fn packages(metadata: &Value) -> Result<&Vec<Value>> {
    metadata["packages"]
        .as_array()
        .context("cargo metadata lists no packages")
}

fn short_name(package: &Value) -> Result<&str> {
    Ok(short(
        package["name"].as_str().context("a package has no name")?,
    ))
}

fn short(name: &str) -> &str {
    name.strip_prefix("aerostat-").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn metadata(packages: &[(&str, &[&str])]) -> Value {
        let packages: Vec<Value> = packages
            .iter()
            .map(|(name, dependencies)| {
                let dependencies: Vec<Value> = dependencies
                    .iter()
                    .map(|dependency| json!({ "name": dependency }))
                    .collect();
                json!({ "name": name, "dependencies": dependencies })
            })
            .collect();
        json!({ "packages": packages })
    }

    #[test]
    fn downward_arrows_pass() {
        let metadata = metadata(&[
            ("aerostat-types", &["serde"]),
            ("aerostat-storage", &["aerostat-txn", "aerostat-segment"]),
            ("aerostat-query", &["datafusion", "aerostat-storage"]),
            ("aerostat-engine", &["datafusion", "aerostat-query"]),
            ("aerostat-gateway", &["pgwire", "aerostat-api"]),
            (
                "aerostat-server",
                &["aerostat-gateway", "aerostat-workload", "tokio-postgres"],
            ),
        ]);
        assert_eq!(check(&metadata).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn upward_and_sideways_arrows_fail() {
        let metadata = metadata(&[
            ("aerostat-types", &["aerostat-segment"]),
            ("aerostat-txn", &["aerostat-segment"]),
            ("aerostat-gateway", &["aerostat-engine"]),
            ("aerostat-workload", &["aerostat-server"]),
        ]);
        assert_eq!(
            check(&metadata).unwrap(),
            [
                "`gateway` may not know `engine`",
                "`txn` may not know `segment`",
                "`types` may not know `segment`",
                "`workload` may not know `server`",
            ]
        );
    }

    #[test]
    fn foreign_crates_have_one_owner() {
        let metadata = metadata(&[
            ("aerostat-gateway", &["datafusion-common"]),
            ("aerostat-query", &["pgwire"]),
            ("aerostat-server", &["datafusion"]),
        ]);
        assert_eq!(
            check(&metadata).unwrap(),
            [
                "only `gateway` may know `pgwire`, not `query`",
                "only `semantics`, `pgcatalog`, `query`, `engine` may know `datafusion-common`, not `gateway`",
                "only `semantics`, `pgcatalog`, `query`, `engine` may know `datafusion`, not `server`",
            ]
        );
    }

    #[test]
    fn unknown_crates_fail() {
        let complaints = check(&metadata(&[("aerostat-helper", &[])])).unwrap();
        assert_eq!(complaints.len(), 1);
        assert!(
            complaints[0].contains("`helper` is not in xtask's table"),
            "{complaints:?}"
        );
    }

    #[test]
    fn unsafe_is_forbidden_but_where_it_is_needed() {
        let forbidding = "//! x\n#![forbid(unsafe_code)]\n";
        assert_eq!(unsafe_complaint("query", "lib.rs", forbidding), None);
        assert_eq!(unsafe_complaint("segment", "lib.rs", "//! x"), None);
        assert!(unsafe_complaint("query", "lib.rs", "//! x").is_some());
        assert!(unsafe_complaint("memory", "lib.rs", forbidding).is_some());
    }
}
