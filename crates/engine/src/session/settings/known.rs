//! The settings that are known: names, defaults, and what values they take.

use std::{sync::LazyLock, time::Duration};

use aerostat_types::{Encoding, ErrorKind, Layout, Named, SqlError, Zone, quote_ident};

use super::{
    ignored::IGNORED,
    setting::{Check, Effect, KnownSetting, ON_OFF},
};

const fn known(
    name: &'static str,
    default: &'static str,
    check: Check,
    effect: Effect,
    description: &'static str,
) -> KnownSetting {
    KnownSetting {
        name,
        default,
        description,
        effect,
        check,
    }
}

/// PostgreSQL's `NAMEDATALEN`, without the terminator.
const LABEL_BYTES_MAX: usize = 63;

/// The spellings of the one locale that numbers and dates are written in.
const LOCALES: Check = Check::OneOf(&["C", "POSIX", "C.UTF-8"]);

/// SERIALIZABLE promises more than snapshots give.
const ISOLATION_LEVELS: &[&str] = &["read committed", "read uncommitted", "repeatable read"];

/// What `client_min_messages` takes, the talkative first; `info` is not in PostgreSQL's hint, but
/// taken.
const MESSAGE_LEVELS: &[&str] = &[
    "debug5", "debug4", "debug3", "debug2", "debug1", "log", "info", "notice", "warning", "error",
];

/// Every known setting, in order of names.
pub(crate) fn known_settings() -> &'static [&'static KnownSetting] {
    static ALL: LazyLock<Vec<&'static KnownSetting>> = LazyLock::new(|| {
        let mut all: Vec<_> = KNOWN.iter().chain(IGNORED).collect();
        all.sort_by_key(|known| known.name);
        all
    });
    &ALL
}

/// Those that do something or tell something, in order of names.
const KNOWN: &[KnownSetting] = &[
    known(
        "aerostat.default_layout",
        "column",
        Check::Layout,
        Effect::Acts,
        "Layout of tables made without one.",
    ),
    known(
        "aerostat.dynamic_filters",
        "on",
        ON_OFF,
        Effect::Acts,
        "Leaves rows out of scans that joins, top-n queries and minima have no use for.",
    ),
    known(
        "aerostat.max_staleness",
        "0",
        Check::Duration,
        Effect::Acts,
        "How long ago a copy that is read must have had all that its leader had, at most; 0 for any time.",
    ),
    known(
        "aerostat.read_from",
        "any",
        Check::OneOf(&["any", "leader"]),
        Effect::Acts,
        "Whether statements read from copies, too.",
    ),
    known(
        "aerostat.star_join",
        "on",
        ON_OFF,
        Effect::Acts,
        "Joins a large table with sides by unique keys as lookups in one scan.",
    ),
    known(
        "application_name",
        "",
        Check::Label,
        Effect::Acts,
        "Name of the client program.",
    ),
    known(
        "array_nulls",
        "on",
        Check::OneOf(&["on"]),
        Effect::Fixed,
        "NULL in the text of an array is a NULL.",
    ),
    known(
        "bytea_output",
        "hex",
        Check::OneOf(&["hex"]),
        Effect::Fixed,
        "Output form of bytea.",
    ),
    known(
        "client_encoding",
        "UTF8",
        Check::Encoding,
        Effect::Acts,
        "Encoding of the client's texts.",
    ),
    known(
        "client_min_messages",
        "notice",
        Check::OneOf(MESSAGE_LEVELS),
        Effect::Acts,
        "Least severity of messages sent to the client.",
    ),
    known(
        "datestyle",
        "ISO, MDY",
        Check::OneOf(&["ISO, MDY", "ISO", "MDY", "ISO,MDY"]),
        Effect::Fixed,
        "Form of dates.",
    ),
    known(
        "default_table_access_method",
        "heap",
        Check::OneOf(&["heap"]),
        Effect::Fixed,
        "The only access method of tables.",
    ),
    known(
        "default_tablespace",
        "",
        Check::OneOf(&["", "pg_default"]),
        Effect::Fixed,
        "There are no tablespaces.",
    ),
    known(
        "default_transaction_isolation",
        "read committed",
        Check::OneOf(ISOLATION_LEVELS),
        Effect::Acts,
        "Isolation of new transactions.",
    ),
    known(
        "default_transaction_read_only",
        "off",
        ON_OFF,
        Effect::Acts,
        "Whether new transactions only read.",
    ),
    known(
        "default_with_oids",
        "off",
        Check::OneOf(&["off"]),
        Effect::Fixed,
        "Tables have no numbers of rows.",
    ),
    known(
        "enable_fast_path",
        "on",
        ON_OFF,
        Effect::Acts,
        "Runs simple statements by key without planning them.",
    ),
    known(
        "idle_in_transaction_session_timeout",
        "0",
        Check::Duration,
        Effect::Acts,
        "Longest idle time inside a transaction.",
    ),
    known(
        "idle_session_timeout",
        "0",
        Check::Duration,
        Effect::Acts,
        "Longest idle time outside of transactions.",
    ),
    known(
        "in_hot_standby",
        "off",
        Check::Constant,
        Effect::Tells,
        "Whether another node takes the changes of the database.",
    ),
    known(
        "integer_datetimes",
        "on",
        Check::Constant,
        Effect::Tells,
        "Dates and times are integers.",
    ),
    known(
        "intervalstyle",
        "postgres",
        Check::OneOf(&["postgres"]),
        Effect::Fixed,
        "Form of intervals.",
    ),
    known(
        "is_superuser",
        "off",
        Check::Constant,
        Effect::Tells,
        "Whether the role is a superuser.",
    ),
    known(
        "lc_monetary",
        "C",
        LOCALES,
        Effect::Fixed,
        "Locale of amounts of money.",
    ),
    known(
        "lc_numeric",
        "C",
        LOCALES,
        Effect::Fixed,
        "Locale of numbers.",
    ),
    known("lc_time", "C", LOCALES, Effect::Fixed, "Locale of dates."),
    known(
        "lock_timeout",
        "0",
        Check::Duration,
        Effect::Acts,
        "Longest wait for another transaction.",
    ),
    known(
        "max_identifier_length",
        "63",
        Check::Constant,
        Effect::Tells,
        "Longest identifier in bytes.",
    ),
    known(
        "password_encryption",
        "scram-sha-256",
        Check::OneOf(&["scram-sha-256"]),
        Effect::Fixed,
        "How passwords are kept.",
    ),
    known(
        "plan_cache_mode",
        "auto",
        Check::OneOf(&["auto", "force_generic_plan", "force_custom_plan"]),
        Effect::Acts,
        "Whether plans of queries are kept and found again; force_custom_plan plans each anew.",
    ),
    known(
        "role",
        "none",
        Check::Constant,
        Effect::Acts,
        "The role whose rights count, if it is not the session's.",
    ),
    known(
        "search_path",
        "\"$user\", public",
        Check::Text,
        Effect::Acts,
        "Schemas searched for unqualified names.",
    ),
    known(
        "server_encoding",
        "UTF8",
        Check::Constant,
        Effect::Tells,
        "Encoding of the database.",
    ),
    known(
        "server_version",
        crate::SERVER_VERSION,
        Check::Constant,
        Effect::Tells,
        "PostgreSQL version whose behaviour is followed.",
    ),
    known(
        "server_version_num",
        crate::SERVER_VERSION_NUM,
        Check::Constant,
        Effect::Tells,
        "The same as a number.",
    ),
    known(
        "session_authorization",
        "",
        Check::Constant,
        Effect::Acts,
        "The role that the session is of.",
    ),
    known(
        "session_replication_role",
        "origin",
        Check::OneOf(&["origin"]),
        Effect::Fixed,
        "Foreign keys hold for every session.",
    ),
    known(
        "standard_conforming_strings",
        "on",
        Check::OneOf(&["on"]),
        Effect::Fixed,
        "Backslashes in plain strings are literal.",
    ),
    known(
        "statement_timeout",
        "0",
        Check::Duration,
        Effect::Acts,
        "Longest run time of a statement.",
    ),
    known(
        "temp_tablespaces",
        "",
        Check::OneOf(&["", "pg_default"]),
        Effect::Fixed,
        "There are no tablespaces.",
    ),
    known(
        "timezone",
        "UTC",
        Check::TimeZone,
        Effect::Acts,
        "Time zone of timestamps with time zone.",
    ),
    known(
        "transaction_isolation",
        "read committed",
        Check::OneOf(ISOLATION_LEVELS),
        Effect::Acts,
        "Isolation of the current transaction.",
    ),
    known(
        "transaction_read_only",
        "off",
        ON_OFF,
        Effect::Acts,
        "Whether the current transaction only reads.",
    ),
    known(
        "transform_null_equals",
        "off",
        Check::OneOf(&["off"]),
        Effect::Fixed,
        "A comparison with NULL is NULL.",
    ),
];

/// What is known of a setting that a client has made up.
pub(super) static CUSTOM: KnownSetting = known("", "", Check::Text, Effect::Acts, "");

/// Settings whose changes the client is told of at once (`ParameterStatus`), in PostgreSQL's spelling.
pub(crate) const REPORTED: &[(&str, &str)] = &[
    ("application_name", "application_name"),
    ("client_encoding", "client_encoding"),
    ("datestyle", "DateStyle"),
    (
        "default_transaction_read_only",
        "default_transaction_read_only",
    ),
    ("in_hot_standby", "in_hot_standby"),
    ("integer_datetimes", "integer_datetimes"),
    ("intervalstyle", "IntervalStyle"),
    ("is_superuser", "is_superuser"),
    ("server_encoding", "server_encoding"),
    ("server_version", "server_version"),
    ("session_authorization", "session_authorization"),
    ("standard_conforming_strings", "standard_conforming_strings"),
    ("timezone", "TimeZone"),
];

/// A setting's name in PostgreSQL's spelling.
pub(crate) fn shown_name(name: &str) -> &str {
    let reported = REPORTED.iter().find(|(known, _)| *known == name);
    reported.map_or(name, |(_, shown)| shown)
}

impl KnownSetting {
    /// The column `vartype` of `pg_settings`.
    pub(crate) fn kind(&self) -> &'static str {
        match self.check {
            Check::Integer(..) | Check::Duration | Check::Kilobytes | Check::Blocks => "integer",
            Check::Real => "real",
            Check::OneOf(["on", "off"]) => "bool",
            Check::OneOf(_) => "enum",
            Check::Text
            | Check::Label
            | Check::Encoding
            | Check::TimeZone
            | Check::Layout
            | Check::Constant => "string",
        }
    }

    /// The column `context` of `pg_settings`.
    pub(crate) fn context(&self) -> &'static str {
        match self.effect {
            Effect::Tells => "internal",
            Effect::Acts | Effect::Fixed | Effect::Ignored => "user",
        }
    }

    /// The column `category` of `pg_settings`.
    pub(crate) fn category(&self) -> &'static str {
        match self.name.split_once('.') {
            Some(("aerostat", _)) => "Aerostat",
            Some(_) => "Customized Options",
            None if self.name.is_empty() => "Customized Options",
            None => "Client Connection Defaults",
        }
    }

    pub(super) fn accept(&self, values: &[String]) -> Result<String, SqlError> {
        let value = match values {
            [value] => value.clone(),
            _ if self.name == "search_path" => values
                .iter()
                .map(|value| quote_ident(value.trim_matches('"')))
                .collect::<Vec<_>>()
                .join(", "),
            _ if self.name == "datestyle" => values.join(", "),
            _ => {
                return Err(SqlError::new(
                    ErrorKind::InvalidParameterValue,
                    format!("SET {} takes only one argument", self.name),
                ));
            }
        };
        let invalid = || {
            SqlError::new(
                ErrorKind::InvalidParameterValue,
                format!(
                    "invalid value for parameter \"{}\": \"{value}\"",
                    shown_name(self.name)
                ),
            )
        };
        match &self.check {
            Check::Text => Ok(value),
            Check::Label => Ok(label(&value)),
            Check::Constant => Err(SqlError::new(
                ErrorKind::ObjectNotInPrerequisiteState,
                format!("parameter \"{}\" cannot be changed", self.name),
            )),
            Check::OneOf(allowed) => {
                let lower = value.to_ascii_lowercase();
                let boolean = match lower.as_str() {
                    "true" | "yes" | "1" => "on",
                    "false" | "no" | "0" => "off",
                    "debug" => "debug2",
                    other => other,
                };
                let found = allowed.iter().find(|candidate| {
                    candidate.eq_ignore_ascii_case(&value)
                        || candidate.eq_ignore_ascii_case(boolean)
                });
                match found {
                    // Spellings of the one value there is.
                    Some(_) if self.name == "datestyle" => Ok(self.default.to_owned()),
                    Some(found) => Ok((*found).to_owned()),
                    None => {
                        Err(invalid()
                            .with_hint(format!("Available values: {}.", allowed.join(", "))))
                    }
                }
            }
            Check::Integer(low, high) => match value.trim().parse::<i64>() {
                Ok(number) if (*low..=*high).contains(&number) => Ok(number.to_string()),
                Ok(number) => Err(SqlError::new(
                    ErrorKind::InvalidParameterValue,
                    format!(
                        "{number} is outside the valid range for parameter \"{}\" ({low} .. {high})",
                        self.name
                    ),
                )),
                Err(_) => Err(invalid()),
            },
            Check::Duration => parse_duration(&value)
                .map(show_duration)
                .ok_or_else(invalid),
            Check::Kilobytes => match parse_kilobytes(&value) {
                Some(size) if size >= KILOBYTES_MIN && i32::try_from(size).is_ok() => {
                    Ok(show_kilobytes(size))
                }
                Some(size) => Err(SqlError::new(
                    ErrorKind::InvalidParameterValue,
                    format!(
                        "{size} kB is outside the valid range for parameter \"{}\" ({KILOBYTES_MIN} .. {})",
                        self.name,
                        i32::MAX
                    ),
                )),
                None => Err(invalid().with_hint(
                    "Valid units for this parameter are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\".",
                )),
            },
            Check::Blocks => match parse_blocks(&value) {
                Some(blocks) => Ok(show_kilobytes(blocks * BLOCK_KILOBYTES)),
                None => Err(invalid().with_hint(
                    "Valid units for this parameter are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\".",
                )),
            },
            Check::Real => match value.trim().parse::<f64>() {
                Ok(number) if number >= 0.0 && number.is_finite() => Ok(number.to_string()),
                Ok(number) => Err(SqlError::new(
                    ErrorKind::InvalidParameterValue,
                    format!(
                        "{number} is outside the valid range for parameter \"{}\"",
                        self.name
                    ),
                )),
                Err(_) => Err(invalid()),
            },
            Check::Encoding => match Encoding::named(&value) {
                Some(Named::Spoken(encoding)) => Ok(encoding.name().to_owned()),
                Some(Named::Unspoken(name)) => Err(SqlError {
                    kind: ErrorKind::FeatureNotSupported,
                    ..invalid()
                }
                .with_detail(format!(
                    "Conversion between {name} and UTF8 is not supported."
                ))),
                None => Err(invalid()),
            },
            Check::TimeZone => Zone::of_setting(&value)
                .map(|zone| zone.name().to_owned())
                .ok_or_else(invalid),
            Check::Layout if value == "pairs" => Ok(value),
            Check::Layout => Layout::parse(&value)
                .map(|_| value.clone())
                .map_err(|error| {
                    SqlError::new(ErrorKind::InvalidParameterValue, error.to_string())
                }),
        }
    }
}

/// As PostgreSQL makes it: whatever is not printable ASCII is a question mark, byte by byte.
fn label(text: &str) -> String {
    let printable = |byte: u8| match byte {
        b' '..=b'~' => char::from(byte),
        _ => '?',
    };
    text.bytes().take(LABEL_BYTES_MAX).map(printable).collect()
}

pub(super) fn find(name: &str) -> Option<&'static KnownSetting> {
    let all = known_settings();
    let at = all.binary_search_by_key(&name, |known| known.name).ok()?;
    Some(all[at])
}

/// A duration in the largest unit that it is a whole number of.
fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let units = [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("min", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ];
    let fitting = units.iter().find(|(_, unit)| millis.is_multiple_of(*unit));
    match fitting {
        Some((name, unit)) if millis > 0 => format!("{}{name}", millis / unit),
        _ => "0".to_owned(),
    }
}

/// Milliseconds, or a number with one of PostgreSQL's units.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let factor_us: u64 = match text[digits..].trim() {
        "" | "ms" => 1_000,
        "us" => 1,
        "s" => 1_000_000,
        "min" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return None,
    };
    // As in PostgreSQL, a setting of milliseconds is a 32-bit integer.
    let total = number
        .checked_mul(factor_us)
        .filter(|&us| us / 1_000 <= i32::MAX as u64)?;
    Some(Duration::from_micros(total))
}

/// The least size that PostgreSQL takes for `work_mem`.
const KILOBYTES_MIN: u64 = 64;

/// Units of sizes by their kilobytes, the largest first. `B` is not among them.
const SIZE_UNITS: [(&str, u64); 4] = [("TB", 1 << 30), ("GB", 1 << 20), ("MB", 1 << 10), ("kB", 1)];

/// Kilobytes, or a number with one of PostgreSQL's units, which tell upper from lower case.
fn parse_kilobytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    match text[digits..].trim() {
        "" => Some(number),
        "B" => Some(number.div_ceil(1 << 10)),
        unit => {
            let (_, kilobytes) = SIZE_UNITS.iter().find(|(name, _)| *name == unit)?;
            number.checked_mul(*kilobytes)
        }
    }
}

/// What PostgreSQL counts pages in.
const BLOCK_KILOBYTES: u64 = 8;

/// Pages, or a number with one of PostgreSQL's units.
fn parse_blocks(text: &str) -> Option<u64> {
    let blocks = match text.trim().parse::<u64>() {
        Ok(blocks) => blocks,
        Err(_) => parse_kilobytes(text)?.div_ceil(BLOCK_KILOBYTES),
    };
    i32::try_from(blocks).is_ok().then_some(blocks)
}

/// A size in the largest unit that it is a whole number of.
fn show_kilobytes(size: u64) -> String {
    let fits = |unit: &&(&str, u64)| size.is_multiple_of(unit.1);
    let (name, unit) = SIZE_UNITS.iter().find(fits).unwrap_or(&("kB", 1));
    format!("{}{name}", size / unit)
}
