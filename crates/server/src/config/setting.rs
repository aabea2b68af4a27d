//! The table of settings. Flags, environment variables, the file and the
//! documentation all take their names from here.

/// A setting of `aerostat serve`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The name in the file; with dashes before it, the flag.
    pub(crate) name: &'static str,
    /// The value when nobody says otherwise.
    pub(crate) default: &'static str,
    /// What it is, for `--help`.
    pub(crate) help: &'static str,
}

impl Setting {
    /// The environment variable: `AEROSTAT_MAX_CONNECTIONS` for `max-connections`.
    pub(crate) fn environment(&self) -> String {
        format!(
            "AEROSTAT_{}",
            self.name.replace('-', "_").to_ascii_uppercase()
        )
    }
}

const fn setting(name: &'static str, default: &'static str, help: &'static str) -> Setting {
    Setting {
        name,
        default,
        help,
    }
}

/// Every setting, in the order in which it is shown.
pub(crate) const SETTINGS: &[Setting] = &[
    setting("data", "./aerostat-data", "Folder for what the node keeps"),
    setting("listen", "127.0.0.1:5433", "Address for SQL clients"),
    setting(
        "socket-dir",
        "",
        "Folder for a Unix-domain socket, .s.PGSQL.PORT, beside --listen; none if empty",
    ),
    setting(
        "http",
        "127.0.0.1:8433",
        "Address for /healthz and /metrics",
    ),
    setting(
        "cluster",
        "",
        "What all nodes of a cluster share: a folder, as file:///path, or etcd, as etcd://host:2379,host:2379/name; empty for a node that is alone",
    ),
    setting(
        "etcd-certs",
        "",
        "Folder with ca.crt, by which etcd proves who it is, and client.crt and client.key, if etcd asks for them; etcd is asked in the clear if empty",
    ),
    setting("etcd-user", "", "User of etcd that the node is"),
    setting(
        "etcd-password-file",
        "",
        "File whose first line is that user's password",
    ),
    setting("node-name", "", "The node's name in its cluster"),
    setting(
        "peer-listen",
        "127.0.0.1:6433",
        "Address for the other nodes of the cluster; beyond loopback only with --peer-certs",
    ),
    setting(
        "peer-certs",
        "",
        "Folder with ca.crt, node.crt and node.key, by which the nodes of a cluster know each other and encrypt what they say; aerostat cert makes them",
    ),
    setting(
        "advertise",
        "",
        "Host by which other nodes and clients reach this one, if it listens on 0.0.0.0 or behind another address",
    ),
    setting(
        "sessions",
        "leader",
        "Where clients' sessions are, if the node is one of a cluster: leader, at the node that leads their database, or here, where they may only be able to read",
    ),
    setting(
        "copies",
        "2",
        "Copies that the cluster keeps of a database that is made through this node, on nodes that it chooses, or all for one on every node",
    ),
    setting(
        "replace-after",
        "300",
        "Seconds after which a node that says nothing is taken for lost, and its copies are made elsewhere",
    ),
    setting(
        "upgrades",
        "",
        "Folder of the programs that the node may go on as (ALTER NODE … UPGRADE TO), if it is one of a cluster; none if empty",
    ),
    setting(
        "memory",
        "60%",
        "Memory for data and queries: 8GB, or a share of what machine and cgroup allow",
    ),
    setting(
        "balloon",
        "",
        "Broker that decides on the memory, up to --memory: the path of its socket, or host:port; none if empty",
    ),
    setting("balloon-name", "aerostat", "The node's name on that broker"),
    // The least with which recovery, a checkpoint and short statements of some databases go on.
    setting(
        "balloon-floor",
        "256MB",
        "Memory that the broker leaves to the node in any case",
    ),
    setting(
        "balloon-token-file",
        "",
        "File whose first line is the token that a broker at host:port asks for",
    ),
    setting(
        "balloon-trust",
        "",
        "PEM file with the certificate of a broker at host:port, or of who has signed it",
    ),
    setting(
        "threads",
        "auto",
        "Threads that run queries, and as many for connections",
    ),
    // Good for queries that come after a rest, bad for short statements beside long queries.
    setting(
        "pin-threads",
        "off",
        "Whether those that run queries keep to a core each: on, off",
    ),
    // Good for short statements beside long queries, bad for clients on the same machine, who
    // have their cores from them.
    setting(
        "io-precedence",
        "off",
        "Whether those for connections go before others and keep to a core each: on, off",
    ),
    // One connection costs some tens of kilobytes; a thousand is more than pools open.
    setting("max-connections", "1000", "Connections at once"),
    setting(
        "node-statements-max",
        "auto",
        "Planned statements that the node runs at once, of which each database may always have some; auto: 128, none for no limit",
    ),
    // Without a limit, as in PostgreSQL: connections are one.
    setting(
        "statements-max",
        "none",
        "Statements that a database runs at once, of one that has no statements_max of its own",
    ),
    setting(
        "queue-max",
        "none",
        "Statements of a database that wait at once for others to end, of one that has no queue_max of its own",
    ),
    setting(
        "queue-timeout",
        "120s",
        "How long a statement waits for others to end, in a database that has no queue_timeout of its own; 0 for no limit",
    ),
    // A client across the world takes a second; a socket on which nobody speaks has a place
    // for so long.
    setting(
        "authentication-timeout",
        "10s",
        "How long a client may take to log in, from 1s to 600s",
    ),
    // Half a core freezes some 50 MB of rows a second and leaves the machine to queries.
    setting(
        "freezer",
        "50%",
        "Share of one core for making cold rows small; 0% pauses it",
    ),
    setting(
        "evict",
        "full",
        "When values of frozen rows leave memory: full (when it is) or always (for tests)",
    ),
    // With the reserve they cannot fill the disk; the shares leave other tenants theirs.
    setting(
        "spill-max",
        "50%",
        "Disk for queries that do not fit into memory: 50GB, or a share of the data folder's disk",
    ),
    setting(
        "spill-tenant-max",
        "25%",
        "What of it the queries of one database may take",
    ),
    setting(
        "spill-reserve",
        "1GB",
        "Disk that such queries leave free, for logs and checkpoints",
    ),
    // Damage should be told to the operator who starts a node, not to the first client.
    setting(
        "open",
        "eager",
        "When databases are opened: eager (at the start) or lazy (for the first who connects)",
    ),
    setting(
        "calibration",
        "",
        "File that `aerostat calibrate` wrote, for the layout adviser; DATA/calibration.json if empty",
    ),
    setting(
        "auth",
        "trust",
        "How clients prove who they are: trust (loopback only) or scram",
    ),
    setting(
        "password-file",
        "",
        "File whose first line becomes the password of role aerostat",
    ),
    setting(
        "tls",
        "off",
        "TLS: off, self-signed, or files (with tls-cert and tls-key)",
    ),
    setting("tls-cert", "", "PEM file with the certificate chain"),
    setting("tls-key", "", "PEM file with the private key"),
    setting("log-format", "text", "Log lines as text or json"),
    setting(
        "log-filter",
        "info",
        "Which log lines: a level, or a filter such as aerostat_engine=debug,info",
    ),
];

/// Those that concern a data folder and the process that has it open, whether or not it serves.
pub(crate) const OF_ENGINE: &[&str] = &[
    "data",
    "memory",
    "threads",
    "pin-threads",
    "freezer",
    "evict",
    "spill-max",
    "spill-tenant-max",
    "spill-reserve",
    "open",
    "node-statements-max",
    "statements-max",
    "queue-max",
    "queue-timeout",
    "calibration",
    "log-format",
    "log-filter",
];

/// The setting of this name.
pub(crate) fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// The setting whose name looks most like `name`, if one does.
pub(crate) fn nearest(name: &str) -> Option<&'static Setting> {
    let scored = SETTINGS
        .iter()
        .map(|setting| (distance(name, setting.name), setting));
    let (edits, setting) = scored.min_by_key(|(edits, _)| *edits)?;
    // More than a third of the letters wrong is no typing mistake.
    (edits * 3 <= name.len().max(3)).then_some(setting)
}

/// Levenshtein's edit distance; `_` and `-` are the same letter.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.replace('_', "-").chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, &from) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses_find_their_setting() {
        for (typed, meant) in [
            ("lisen", "listen"),
            ("max_connections", "max-connections"),
            ("memry", "memory"),
        ] {
            assert_eq!(nearest(typed).unwrap().name, meant);
        }
        assert_eq!(nearest("frobnicate"), None);
    }

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("same", "same"), 0);
    }

    #[test]
    fn names_are_unique_and_become_variables() {
        let mut names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SETTINGS.len());
        assert_eq!(
            find("max-connections").unwrap().environment(),
            "AEROSTAT_MAX_CONNECTIONS"
        );
    }
}
