//! Configuration: flags, environment and TOML file, with one name for each setting.
//!
//! ```text
//!   --listen X   >   AEROSTAT_LISTEN=X   >   listen = "X" in --config FILE   >   default
//! ```
//!
//! A [`Layer`] holds the texts of one origin; [`resolve`] lays them over each other and keeps the
//! origin of each value, so that errors and `aerostat config check` can name it. [`Config`] is
//! the typed result. Nothing here touches the network or the data folder.

mod environment;
mod file;
mod setting;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aerostat_balloon::{
    endpoint::{Endpoint, EndpointError},
    message::{NAME_BYTES_MAX, is_name},
};
use aerostat_embedded::{
    ByteSize, DiskQuantity, Eviction, MEMORY_BYTES_MIN, NODE_STATEMENTS_MAX, Opening, Options,
    Pinning, SpillLimits, StatementOptions, StatementsRecord, read_time_ms,
};

use crate::balloon::Identity;

pub(crate) use environment::read as read_environment;
pub(crate) use file::read as read_file;
pub(crate) use setting::{OF_ENGINE, SETTINGS, Setting};

/// Where a value came from; the first wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `--name`
    Flag,
    /// `AEROSTAT_NAME`
    Environment,
    /// `name` in this file
    File(PathBuf),
    /// Nobody said otherwise.
    Default,
}

/// Texts by setting name, from one origin.
pub(crate) type Layer = BTreeMap<&'static str, String>;

/// A text and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sourced {
    pub(crate) setting: &'static Setting,
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

impl Sourced {
    /// The name as the user wrote it at the origin.
    fn spelled(&self) -> String {
        match &self.origin {
            Origin::Flag => format!("--{}", self.setting.name),
            Origin::Environment => self.setting.environment(),
            Origin::File(path) => format!("{} in {}", self.setting.name, path.display()),
            Origin::Default => format!("the default of {}", self.setting.name),
        }
    }
}

/// Why a configuration does not stand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("cannot read {path}: {reason}")]
    Unreadable { path: String, reason: String },
    #[error("{path} is not TOML: {reason}")]
    NotToml { path: String, reason: String },
    #[error("{path}: unknown setting `{key}`{hint}")]
    UnknownKey {
        path: String,
        key: String,
        hint: String,
    },
    #[error("environment: unknown variable {name}{hint}")]
    UnknownVariable { name: String, hint: String },
    #[error("{path}: `{key}` must be a text, a number or true/false")]
    NotAValue { path: String, key: String },
    #[error("{place}: {text:?} is not {expected}")]
    Invalid {
        place: String,
        text: String,
        expected: String,
    },
    #[error("{0}")]
    Contradiction(String),
}

/// Whether TLS is offered, and with which certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    Off,
    /// A certificate of our own making, kept in the data folder.
    SelfSigned,
    Files {
        cert: PathBuf,
        key: PathBuf,
    },
}

/// How the node takes part in a broker's division of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Balloon {
    /// A socket's path, or host and port.
    pub(crate) broker: String,
    pub(crate) identity: Identity,
    /// File with the token that a broker over the network asks for.
    pub(crate) token_file: Option<PathBuf>,
    /// File with the certificate of such a broker.
    pub(crate) trust: Option<PathBuf>,
}

/// The cluster that the node is one of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peers {
    /// What names the folder that its nodes share.
    pub(crate) space: String,
    /// The folder with the certificates by which etcd is asked; `None`: in the clear.
    pub(crate) etcd_certificates: Option<PathBuf>,
    /// Which user of etcd the node is, and the file with the password.
    pub(crate) etcd_user: Option<(String, PathBuf)>,
    /// What the node is called.
    pub(crate) name: String,
    /// Where other nodes are listened to.
    pub(crate) listen: SocketAddr,
    /// The host by which others reach this node; `None`: by what it listens on.
    pub(crate) advertise: Option<String>,
    /// The folder with the certificates by which nodes know each other.
    pub(crate) certificates: Option<PathBuf>,
    /// Whether clients' sessions are at the node that leads their database, wherever they have connected.
    pub(crate) sessions_at_leader: bool,
    /// How many copies the cluster keeps of a new database; `None`: one on every node.
    pub(crate) copies: Option<NonZeroU8>,
    /// When a node that is silent is taken for lost.
    pub(crate) replace_after: Duration,
    /// Where the programs are that its process may be replaced by.
    pub(crate) upgrades: Option<PathBuf>,
}

/// How a client proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Auth {
    /// By its word. Only for loopback.
    Trust,
    /// By a SCRAM-SHA-256 password.
    Scram,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// A configuration that stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) data: PathBuf,
    pub(crate) listen: SocketAddr,
    /// Folder of a Unix-domain socket.
    pub(crate) socket_dir: Option<PathBuf>,
    pub(crate) http: SocketAddr,
    /// The cluster that it is one of, if it is.
    pub(crate) peers: Option<Peers>,
    pub(crate) memory: ByteSize,
    /// Whether it counts before what ALTER SYSTEM has set.
    pub(crate) memory_is_given: bool,
    /// The broker that decides on the memory, if one does.
    pub(crate) balloon: Option<Balloon>,
    pub(crate) threads: usize,
    pub(crate) pinning: Pinning,
    /// Whether I/O threads go before others.
    pub(crate) io_precedence: bool,
    pub(crate) max_connections: usize,
    /// From connecting to being let in.
    pub(crate) authentication_timeout: Duration,
    /// Share of one core in percent; 0 pauses the freezer.
    pub(crate) freezer_percent: u8,
    /// When values leave memory.
    pub(crate) eviction: Eviction,
    /// How much of the disk queries may take.
    pub(crate) spill: SpillLimits,
    /// When databases are opened.
    pub(crate) opening: Opening,
    /// How many statements run at once, and how many wait.
    pub(crate) statements: StatementOptions,
    /// What `aerostat calibrate` wrote; `None`: in the data folder, if it is there.
    pub(crate) calibration: Option<PathBuf>,
    pub(crate) auth: Auth,
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) tls: Tls,
    pub(crate) log_format: LogFormat,
    pub(crate) log_filter: String,
}

/// What the machine offers, for defaults and shares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// The lesser of RAM and the cgroup's limit.
    pub(crate) memory_bytes: u64,
    /// Hardware threads that may be used.
    pub(crate) threads: usize,
}

/// Lays the origins over each other. `file` is its path and texts.
pub(crate) fn resolve(
    flags: &Layer,
    environment: &Layer,
    file: Option<(&Path, &Layer)>,
) -> Vec<Sourced> {
    let pick = |setting: &'static Setting| {
        let name = setting.name;
        let (text, origin) = if let Some(text) = flags.get(name) {
            (text.clone(), Origin::Flag)
        } else if let Some(text) = environment.get(name) {
            (text.clone(), Origin::Environment)
        } else if let Some((path, text)) =
            file.and_then(|(path, layer)| Some((path, layer.get(name)?)))
        {
            (text.clone(), Origin::File(path.to_owned()))
        } else {
            (setting.default.to_owned(), Origin::Default)
        };
        Sourced {
            setting,
            text,
            origin,
        }
    };
    SETTINGS.iter().map(pick).collect()
}

impl Config {
    /// Reads the texts and checks that they fit together.
    ///
    /// # Errors
    /// Every mistake, so that one run shows all.
    pub(crate) fn read(values: &[Sourced], machine: Machine) -> Result<Config, Vec<ConfigError>> {
        let mut reader = Reader {
            values,
            errors: Vec::new(),
        };
        let config = reader.config(machine);
        let mut errors = reader.errors;
        if errors.is_empty()
            && let Err(error) = config.check()
        {
            errors.push(error);
        }
        if errors.is_empty() {
            Ok(config)
        } else {
            Err(errors)
        }
    }

    /// How its data folder is opened.
    pub(crate) fn options(&self) -> Options {
        Options {
            memory: self.memory,
            memory_is_given: self.memory_is_given,
            threads: self.threads,
            pinning: self.pinning,
            freezer_percent: self.freezer_percent,
            eviction: self.eviction,
            opening: self.opening,
            statements: self.statements,
            spill: self.spill,
            calibration: self.calibration.clone(),
            ..Options::new(&self.data)
        }
    }

    /// Refuses what would leave the data open to the network.
    fn check(&self) -> Result<(), ConfigError> {
        if let Some(peers) = &self.peers {
            if peers.name.is_empty() {
                return Err(ConfigError::Contradiction(
                    "a node of a cluster has a name; give it one with --node-name".to_owned(),
                ));
            }
            if !peers.listen.ip().is_loopback() && peers.certificates.is_none() {
                return Err(ConfigError::Contradiction(format!(
                    "connections between nodes on {} reach beyond this machine without TLS; give the node a certificate with --peer-certs (aerostat cert makes one), or listen for them on 127.0.0.1:{}",
                    peers.listen,
                    peers.listen.port()
                )));
            }
        }
        if let Some(peers) = &self.peers
            && peers.advertise.is_some()
            && peers.listen.ip().is_loopback()
        {
            return Err(ConfigError::Contradiction(format!(
                "--advertise says where others reach the node, and only this machine reaches --peer-listen {}; give another --peer-listen",
                peers.listen
            )));
        }
        if self.listen.ip().is_loopback() {
            return Ok(());
        }
        let missing = match (self.auth, &self.tls) {
            (Auth::Scram, Tls::SelfSigned | Tls::Files { .. }) => return Ok(()),
            (Auth::Trust, Tls::Off) => {
                "--auth scram --tls self-signed (or --tls-cert and --tls-key)"
            }
            (Auth::Trust, _) => "--auth scram",
            (Auth::Scram, Tls::Off) => "--tls self-signed (or --tls-cert and --tls-key)",
        };
        Err(ConfigError::Contradiction(format!(
            "listening on {} reaches beyond this machine without passwords and TLS; add {missing}, or listen on 127.0.0.1:{}",
            self.listen,
            self.listen.port()
        )))
    }
}

/// The largest limit that is a number.
const LIMIT_MAX: u32 = 1_000_000;

/// Reads texts, collecting what is wrong.
struct Reader<'a> {
    values: &'a [Sourced],
    errors: Vec<ConfigError>,
}

impl Reader<'_> {
    fn config(&mut self, machine: Machine) -> Config {
        Config {
            data: PathBuf::from(self.text("data")),
            listen: self.address("listen"),
            socket_dir: self.path("socket-dir"),
            http: self.address("http"),
            peers: self.peers(),
            memory: self.memory(machine),
            memory_is_given: matches!(
                self.value("memory").origin,
                Origin::Flag | Origin::Environment
            ),
            balloon: self.balloon(),
            threads: self.count("threads").unwrap_or(machine.threads),
            pinning: self.choice("pin-threads", &[("off", Pinning::Off), ("on", Pinning::On)]),
            io_precedence: self.choice("io-precedence", &[("off", false), ("on", true)]),
            max_connections: self.count("max-connections").unwrap_or(usize::MAX),
            authentication_timeout: self.seconds("authentication-timeout", 600),
            freezer_percent: self.percent("freezer"),
            eviction: self.choice(
                "evict",
                &[("full", Eviction::WhenFull), ("always", Eviction::Always)],
            ),
            opening: self.choice(
                "open",
                &[("eager", Opening::Eager), ("lazy", Opening::Lazy)],
            ),
            spill: SpillLimits {
                node: self.disk("spill-max"),
                tenant: self.disk("spill-tenant-max"),
                reserve: self.bytes("spill-reserve"),
            },
            statements: self.statements(),
            calibration: self.path("calibration"),
            auth: self.choice("auth", &[("trust", Auth::Trust), ("scram", Auth::Scram)]),
            password_file: self.path("password-file"),
            tls: self.tls(),
            log_format: self.choice(
                "log-format",
                &[("text", LogFormat::Text), ("json", LogFormat::Json)],
            ),
            log_filter: self.text("log-filter"),
        }
    }

    fn peers(&mut self) -> Option<Peers> {
        let listen = self.address("peer-listen");
        let advertise = Some(self.text("advertise")).filter(|host| !host.is_empty());
        let certificates = self.path("peer-certs");
        let space = self.text("cluster");
        let copies = self.copies();
        let replace_after = self.seconds("replace-after", 86_400);
        let sessions_at_leader = self.choice("sessions", &[("leader", true), ("here", false)]);
        let etcd_certificates = self.path("etcd-certs");
        let etcd_user = match (self.text("etcd-user"), self.path("etcd-password-file")) {
            (user, Some(file)) if !user.is_empty() => Some((user, file)),
            (user, None) if user.is_empty() => None,
            _ => {
                self.errors.push(ConfigError::Contradiction(
                    "a user of etcd has a password: give --etcd-user and --etcd-password-file"
                        .to_owned(),
                ));
                None
            }
        };
        let upgrades = self.path("upgrades");
        (!space.is_empty()).then(|| Peers {
            space,
            etcd_certificates,
            etcd_user,
            name: self.text("node-name"),
            listen,
            advertise,
            certificates,
            sessions_at_leader,
            copies,
            replace_after,
            upgrades,
        })
    }

    fn copies(&mut self) -> Option<NonZeroU8> {
        let text = self.text("copies");
        if text == "all" {
            return None;
        }
        let count = text.parse().ok();
        if count.is_none() {
            self.invalid("copies", "a number from 1 to 255, or all");
        }
        count
    }

    fn statements(&mut self) -> StatementOptions {
        let node_max = match self.text("node-statements-max").as_str() {
            "auto" => Some(NODE_STATEMENTS_MAX),
            _ => self.limit("node-statements-max", 1, "auto, "),
        };
        // −1 is a word of the record's, for no limit.
        let limit = |limit: Option<u32>| limit.map_or(Some(-1), |limit| i32::try_from(limit).ok());
        let of_database = StatementsRecord {
            statements_max: limit(self.limit("statements-max", 1, "")),
            queue_max: limit(self.limit("queue-max", 0, "")),
            queue_timeout_ms: self.time_ms("queue-timeout"),
        };
        StatementOptions {
            node_max,
            of_database,
            ..StatementOptions::default()
        }
    }

    /// A number from `least` on; `None` for none.
    fn limit(&mut self, name: &str, least: u32, others: &str) -> Option<u32> {
        let text = self.text(name);
        if text == "none" {
            return None;
        }
        let number = text.parse().ok();
        let number = number.filter(|number| (least..=LIMIT_MAX).contains(number));
        if number.is_none() {
            let expected = format!("a number from {least} to {LIMIT_MAX}, {others}or none");
            self.invalid(name, expected);
        }
        number
    }

    /// A time as PostgreSQL's settings have it.
    fn time_ms(&mut self, name: &str) -> Option<u32> {
        let time = read_time_ms(&self.text(name));
        if time.is_none() {
            self.invalid(name, "a time such as 500ms, 30s or 2min, or 0 for no limit");
        }
        time
    }

    fn value(&self, name: &str) -> &Sourced {
        let found = self.values.iter().find(|value| value.setting.name == name);
        found.expect("resolve gives a value for every setting of the table")
    }

    fn text(&self, name: &str) -> String {
        self.value(name).text.clone()
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        let text = self.text(name);
        (!text.is_empty()).then(|| PathBuf::from(text))
    }

    fn invalid(&mut self, name: &str, expected: impl fmt::Display) {
        let value = self.value(name);
        let error = ConfigError::Invalid {
            place: value.spelled(),
            text: value.text.clone(),
            expected: expected.to_string(),
        };
        self.errors.push(error);
    }

    fn address(&mut self, name: &str) -> SocketAddr {
        let text = self.text(name);
        let text = text.replace("localhost:", "127.0.0.1:");
        text.parse().unwrap_or_else(|_| {
            self.invalid(name, "an address such as 127.0.0.1:5433 or [::1]:5433");
            SocketAddr::from(([127, 0, 0, 1], 0))
        })
    }

    /// A number from 1; `auto` gives `None`.
    fn count(&mut self, name: &str) -> Option<usize> {
        let text = self.text(name);
        if text == "auto" {
            return None;
        }
        match text.parse::<usize>() {
            Ok(number) if (1..=1_000_000).contains(&number) => Some(number),
            _ => {
                self.invalid(name, "a number from 1 to 1000000, or auto");
                None
            }
        }
    }

    /// Whole seconds, up to ten minutes.
    /// A time of at most so many seconds.
    fn seconds(&mut self, name: &str, at_most: u64) -> Duration {
        let text = self.text(name);
        let number = text.strip_suffix('s').unwrap_or(&text).trim();
        match number.parse::<u64>() {
            Ok(seconds) if (1..=at_most).contains(&seconds) => Duration::from_secs(seconds),
            _ => {
                self.invalid(name, format!("a time from 1s to {at_most}s"));
                Duration::from_secs(1)
            }
        }
    }

    fn percent(&mut self, name: &str) -> u8 {
        let text = self.text(name);
        let number = text.trim_end_matches('%').trim().parse::<u8>();
        number
            .ok()
            .filter(|percent| *percent <= 100)
            .unwrap_or_else(|| {
                self.invalid(name, "a share from 0% to 100%");
                0
            })
    }

    fn bytes(&mut self, name: &str) -> ByteSize {
        self.text(name).parse().unwrap_or_else(|_| {
            self.invalid(name, "a quantity such as 1GB");
            ByteSize(0)
        })
    }

    fn disk(&mut self, name: &str) -> DiskQuantity {
        let text = self.text(name);
        let share = text.strip_suffix('%').map(|share| share.trim().parse());
        match (share, text.parse()) {
            (Some(Ok(percent)), _) if percent <= 100 => DiskQuantity::Percent(percent),
            (None, Ok(bytes)) => DiskQuantity::Bytes(bytes),
            _ => {
                self.invalid(name, "a quantity such as 50GB, or a share from 0% to 100%");
                DiskQuantity::Percent(0)
            }
        }
    }

    fn memory(&mut self, machine: Machine) -> ByteSize {
        let text = self.text("memory");
        let bytes = match text.strip_suffix('%') {
            Some(percent) => percent
                .trim()
                .parse::<f64>()
                .ok()
                .filter(|percent| (0.0..=100.0).contains(percent))
                .map(|percent| (machine.memory_bytes as f64 * percent / 100.0) as u64),
            None => text.parse::<ByteSize>().ok().map(|size| size.0),
        };
        match bytes {
            Some(bytes) if bytes >= MEMORY_BYTES_MIN => ByteSize(bytes),
            _ => {
                let least = ByteSize(MEMORY_BYTES_MIN);
                self.invalid(
                    "memory",
                    format!("a quantity such as 8GB or 60%, and at least {least}"),
                );
                ByteSize(0)
            }
        }
    }

    fn balloon(&mut self) -> Option<Balloon> {
        let broker = self.text("balloon");
        let floor = self.bytes("balloon-floor").0;
        if broker.is_empty() {
            return None;
        }
        let trust = self.path("balloon-trust");
        match Endpoint::parse(&broker, None) {
            Err(EndpointError::Syntax(_)) => self.invalid(
                "balloon",
                "the path of a broker's socket, or its host and port",
            ),
            Err(EndpointError::NoTrust) if trust.is_none() => {
                let message =
                    "a broker at a host and port needs balloon-trust, a file with its certificate";
                let error = ConfigError::Contradiction(message.to_owned());
                self.errors.push(error);
            }
            _ => {}
        }
        if floor < MEMORY_BYTES_MIN {
            let least = ByteSize(MEMORY_BYTES_MIN);
            self.invalid("balloon-floor", format!("at least {least}"));
        }
        let name = self.text("balloon-name");
        if !is_name(&name) {
            let expected = format!("1 to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.'");
            self.invalid("balloon-name", expected);
        }
        Some(Balloon {
            broker,
            identity: Identity { name, floor },
            token_file: self.path("balloon-token-file"),
            trust,
        })
    }

    fn choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> T {
        let text = self.text(name);
        if let Some((_, value)) = choices.iter().find(|(word, _)| *word == text) {
            return *value;
        }
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        self.invalid(name, format!("one of {}", words.join(", ")));
        choices[0].1
    }

    fn tls(&mut self) -> Tls {
        let (cert, key) = (self.path("tls-cert"), self.path("tls-key"));
        let word = self.text("tls");
        match (word.as_str(), cert, key) {
            ("off" | "files", Some(cert), Some(key)) => Tls::Files { cert, key },
            ("off", None, None) => Tls::Off,
            ("self-signed", None, None) => Tls::SelfSigned,
            ("self-signed", _, _) => {
                let message =
                    "tls = self-signed makes its own certificate: leave out tls-cert and tls-key";
                self.errors
                    .push(ConfigError::Contradiction(message.to_owned()));
                Tls::Off
            }
            ("off" | "files", _, _) => {
                let message = "tls-cert and tls-key belong together: give both";
                self.errors
                    .push(ConfigError::Contradiction(message.to_owned()));
                Tls::Off
            }
            _ => {
                self.invalid("tls", "one of off, self-signed, files");
                Tls::Off
            }
        }
    }
}

/// The effective configuration as a TOML file that says each value's origin.
pub(crate) fn render(values: &[Sourced]) -> String {
    let mut lines = Vec::new();
    for value in values {
        let quoted = toml::Value::String(value.text.clone());
        let assignment = format!("{} = {quoted}", value.setting.name);
        let origin = match &value.origin {
            Origin::Default => "default".to_owned(),
            _ => value.spelled(),
        };
        lines.push(format!("{assignment:<40} # {origin}"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests;
