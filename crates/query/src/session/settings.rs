//! Settings of a session: SET, RESET, SHOW.
//!
//! Known settings are listed in [`KNOWN`] with their defaults and checks; a
//! name with a dot that is not ours is kept as it is, as PostgreSQL keeps
//! placeholders for extensions.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use aerostat_types::{ErrorKind, Layout, SqlError};

/// A setting that Aerostat knows.
pub(crate) struct KnownSetting {
    pub(crate) name: &'static str,
    pub(crate) default: &'static str,
    pub(crate) description: &'static str,
    check: Check,
}

enum Check {
    /// Any text.
    Text,
    /// One of these, compared without case; the first spelling is kept.
    OneOf(&'static [&'static str]),
    /// A whole number in this range.
    Integer(i64, i64),
    /// Milliseconds, or a number with a unit.
    Duration,
    /// A name of the time zone database, or an offset.
    TimeZone,
    /// What CREATE TABLE takes as layout, or `pairs`.
    Layout,
    /// Told, never set.
    Constant,
}

const fn known(
    name: &'static str,
    default: &'static str,
    check: Check,
    description: &'static str,
) -> KnownSetting {
    KnownSetting {
        name,
        default,
        description,
        check,
    }
}

const ON_OFF: Check = Check::OneOf(&["on", "off"]);

/// SERIALIZABLE promises more than snapshots give.
const ISOLATION_LEVELS: &[&str] = &["read committed", "read uncommitted", "repeatable read"];

/// What a setting without a value of its own follows.
fn followed(name: &str) -> Option<&'static str> {
    match name {
        "transaction_isolation" => Some("default_transaction_isolation"),
        "transaction_read_only" => Some("default_transaction_read_only"),
        _ => None,
    }
}

/// Every known setting, in order of names.
pub(crate) const KNOWN: &[KnownSetting] = &[
    known(
        "aerostat.default_layout",
        "column",
        Check::Layout,
        "Layout of tables made without one.",
    ),
    known(
        "application_name",
        "",
        Check::Text,
        "Name of the client program.",
    ),
    known(
        "bytea_output",
        "hex",
        Check::OneOf(&["hex"]),
        "Output form of bytea.",
    ),
    known(
        "client_encoding",
        "UTF8",
        Check::OneOf(&["UTF8", "UTF-8", "UNICODE"]),
        "Encoding of the client's texts.",
    ),
    known(
        "client_min_messages",
        "notice",
        Check::OneOf(&[
            "notice", "debug5", "debug4", "debug3", "debug2", "debug1", "log", "warning", "error",
            "info",
        ]),
        "Least severity of messages sent to the client.",
    ),
    known(
        "datestyle",
        "ISO, MDY",
        Check::OneOf(&["ISO, MDY", "ISO", "MDY", "ISO,MDY"]),
        "Form of dates.",
    ),
    known(
        "deadlock_timeout",
        "1s",
        Check::Duration,
        "Accepted; deadlocks are found at once.",
    ),
    known(
        "default_transaction_isolation",
        "read committed",
        Check::OneOf(ISOLATION_LEVELS),
        "Isolation of new transactions.",
    ),
    known(
        "default_transaction_read_only",
        "off",
        ON_OFF,
        "Whether new transactions only read.",
    ),
    known(
        "enable_fast_path",
        "on",
        ON_OFF,
        "Runs simple statements by key without planning them.",
    ),
    known(
        "extra_float_digits",
        "1",
        Check::Integer(-15, 3),
        "Digits of floats; any value prints them exactly.",
    ),
    known(
        "idle_in_transaction_session_timeout",
        "0",
        Check::Duration,
        "Longest idle time inside a transaction.",
    ),
    known(
        "integer_datetimes",
        "on",
        Check::Constant,
        "Dates and times are integers.",
    ),
    known(
        "intervalstyle",
        "postgres",
        Check::OneOf(&["postgres"]),
        "Form of intervals.",
    ),
    known(
        "is_superuser",
        "off",
        Check::Constant,
        "Whether the role is a superuser.",
    ),
    known(
        "lock_timeout",
        "0",
        Check::Duration,
        "Longest wait for another transaction.",
    ),
    known(
        "max_identifier_length",
        "63",
        Check::Constant,
        "Longest identifier in bytes.",
    ),
    known(
        "plan_cache_mode",
        "auto",
        Check::OneOf(&["auto", "force_generic_plan", "force_custom_plan"]),
        "Whether plans of queries are kept and found again; force_custom_plan plans each anew.",
    ),
    known(
        "row_security",
        "on",
        ON_OFF,
        "Accepted; there are no row policies.",
    ),
    known(
        "search_path",
        "\"$user\", public",
        Check::Text,
        "Schemas searched for unqualified names.",
    ),
    known(
        "server_encoding",
        "UTF8",
        Check::Constant,
        "Encoding of the database.",
    ),
    known(
        "server_version",
        crate::SERVER_VERSION,
        Check::Constant,
        "PostgreSQL version whose behaviour is followed.",
    ),
    known(
        "server_version_num",
        crate::SERVER_VERSION_NUM,
        Check::Constant,
        "The same as a number.",
    ),
    known(
        "session_authorization",
        "",
        Check::Constant,
        "The role that connected.",
    ),
    known(
        "standard_conforming_strings",
        "on",
        Check::OneOf(&["on"]),
        "Backslashes in plain strings are literal.",
    ),
    known(
        "statement_timeout",
        "0",
        Check::Duration,
        "Longest run time of a statement.",
    ),
    known(
        "synchronous_commit",
        "on",
        ON_OFF,
        "Accepted; durability is a property of the database.",
    ),
    known(
        "timezone",
        "UTC",
        Check::TimeZone,
        "Time zone of timestamps with time zone.",
    ),
    known(
        "transaction_isolation",
        "read committed",
        Check::OneOf(ISOLATION_LEVELS),
        "Isolation of the current transaction.",
    ),
    known(
        "transaction_read_only",
        "off",
        ON_OFF,
        "Whether the current transaction only reads.",
    ),
    known(
        "work_mem",
        "4MB",
        Check::Text,
        "Accepted; memory is budgeted by database.",
    ),
];

/// What is known of a setting that a client has made up.
static CUSTOM: KnownSetting = known("", "", Check::Text, "");

/// Settings whose changes the client is told of at once (`ParameterStatus`), in PostgreSQL's spelling.
pub(crate) const REPORTED: &[(&str, &str)] = &[
    ("application_name", "application_name"),
    ("client_encoding", "client_encoding"),
    ("datestyle", "DateStyle"),
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
fn shown_name(name: &str) -> &str {
    let reported = REPORTED.iter().find(|(known, _)| *known == name);
    reported.map_or(name, |(_, shown)| shown)
}

/// The settings of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Values that differ from the defaults. Shared with what blocks go back to.
    values: Arc<BTreeMap<String, String>>,
    /// What RESET goes back to: given at connect, or told by the server.
    start: Arc<BTreeMap<String, String>>,
    changed: Vec<String>,
    /// SET LOCAL: what each such setting goes back to when the transaction ends.
    local: BTreeMap<String, Option<String>>,
    /// What two settings tell of the block at hand: its isolation, and whether it only reads.
    isolation: Option<&'static str>,
    read_only: Option<bool>,
    /// Another one after every change.
    version: u64,
    /// What every statement asks for, read since the last change.
    typed: OnceLock<Typed>,
}

/// Settings as what they mean.
#[derive(Clone, Copy, Debug)]
struct Typed {
    zone: chrono_tz::Tz,
    statement_timeout: Option<Duration>,
    lock_timeout: Option<Duration>,
    keeps_plans: bool,
    is_repeatable: bool,
    is_read_only: bool,
}

impl Settings {
    /// Settings at the start of a session: the server's own, then the client's.
    pub(crate) fn new(
        told: &[(&str, &str)],
        options: &[(String, String)],
    ) -> Result<Self, SqlError> {
        let told = told.iter();
        let told = told.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut settings = Settings {
            values: Arc::new(told.collect()),
            ..Settings::default()
        };
        for (name, value) in options {
            settings.set(name, std::slice::from_ref(value))?;
        }
        settings.start = Arc::clone(&settings.values);
        settings.changed.clear();
        Ok(settings)
    }

    /// A number that stands as long as no setting changes but those that blocks tell.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The value of a setting.
    ///
    /// # Errors
    /// `UndefinedObject` when there is none of this name.
    pub(crate) fn get(&self, name: &str) -> Result<&str, SqlError> {
        let name = name.to_ascii_lowercase();
        if let Some(told) = self.told(&name) {
            return Ok(told);
        }
        let told = |name: &str| self.values.get(name).map(String::as_str);
        if let Some(value) = told(&name).or_else(|| told(followed(&name)?)) {
            return Ok(value);
        }
        find(&name)
            .map(|known| known.default)
            .ok_or_else(|| unrecognized(&name))
    }

    /// What a setting tells of the block at hand, if it does.
    fn told(&self, name: &str) -> Option<&'static str> {
        match name {
            "transaction_isolation" => self.isolation,
            "transaction_read_only" => self.read_only.map(|on| if on { "on" } else { "off" }),
            _ => None,
        }
    }

    /// A setting tells nothing of the block any more, but has a value of its own.
    fn tell_no_more(&mut self, name: &str) {
        match name {
            "transaction_isolation" => self.isolation = None,
            "transaction_read_only" => self.read_only = None,
            _ => {}
        }
    }

    /// SET.
    ///
    /// # Errors
    /// The name or the value is not one.
    pub(crate) fn set(&mut self, name: &str, values: &[String]) -> Result<(), SqlError> {
        let name = name.to_ascii_lowercase();
        let value = match find(&name) {
            Some(known) => known.accept(values)?,
            None if name.contains('.') && !name.starts_with("aerostat.") => values.join(", "),
            None => return Err(unrecognized(&name)),
        };
        self.touch();
        self.tell_no_more(&name);
        self.changed.push(name.clone());
        self.local.remove(&name);
        Arc::make_mut(&mut self.values).insert(name, value);
        Ok(())
    }

    /// SET LOCAL.
    ///
    /// # Errors
    /// Those of [`Self::set`].
    pub(crate) fn set_local(&mut self, name: &str, values: &[String]) -> Result<(), SqlError> {
        self.locally(name, |settings| settings.set(name, values))
    }

    /// SET LOCAL name TO DEFAULT.
    ///
    /// # Errors
    /// Those of [`Self::reset`].
    pub(crate) fn reset_local(&mut self, name: &str) -> Result<(), SqlError> {
        self.locally(name, |settings| settings.reset(name))
    }

    /// Changes a setting until the end of the transaction.
    fn locally(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut Self) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let name = name.to_ascii_lowercase();
        let before = match self.local.get(&name) {
            Some(before) => before.clone(),
            None => self.values.get(&name).cloned(),
        };
        change(self)?;
        self.local.insert(name, before);
        Ok(())
    }

    /// Tells the modes of the block at hand, until its end.
    pub(crate) fn tell_modes(&mut self, isolation: &'static str, read_only: bool) {
        self.isolation = Some(isolation);
        self.read_only = Some(read_only);
    }

    /// The transaction has ended: what was set for it alone is what it was.
    pub(crate) fn end_local(&mut self) {
        (self.isolation, self.read_only) = (None, None);
        for (name, before) in std::mem::take(&mut self.local) {
            self.touch();
            let values = Arc::make_mut(&mut self.values);
            match before {
                Some(value) => values.insert(name.clone(), value),
                None => values.remove(&name),
            };
            self.changed.push(name);
        }
    }

    /// Makes the settings what they were at some earlier point of the session.
    pub(crate) fn go_back_to(&mut self, earlier: Settings) {
        (self.isolation, self.read_only) = (earlier.isolation, earlier.read_only);
        self.local = earlier.local;
        if Arc::ptr_eq(&self.values, &earlier.values) {
            return;
        }
        let differs = |name: &&String| self.values.get(*name) != earlier.values.get(*name);
        let names = self.values.keys().chain(earlier.values.keys());
        let changed: Vec<String> = names.filter(differs).cloned().collect();
        self.changed.extend(changed);
        // Not the earlier version: what was read meanwhile would pass for this.
        self.touch();
        self.values = earlier.values;
    }

    /// RESET name, or SET name TO DEFAULT.
    ///
    /// # Errors
    /// There is no setting of this name.
    pub(crate) fn reset(&mut self, name: &str) -> Result<(), SqlError> {
        let name = name.to_ascii_lowercase();
        if find(&name).is_none() && !self.values.contains_key(&name) {
            return Err(unrecognized(&name));
        }
        self.touch();
        self.tell_no_more(&name);
        let values = Arc::make_mut(&mut self.values);
        match self.start.get(&name) {
            Some(value) => values.insert(name.clone(), value.clone()),
            None => values.remove(&name),
        };
        self.local.remove(&name);
        self.changed.push(name);
        Ok(())
    }

    /// RESET ALL.
    pub(crate) fn reset_all(&mut self) {
        self.touch();
        (self.isolation, self.read_only) = (None, None);
        self.changed.extend(self.values.keys().cloned());
        self.values = Arc::clone(&self.start);
    }

    /// Every setting with its value and what is known of it.
    pub(crate) fn all(&self) -> Vec<(String, String, &'static KnownSetting)> {
        let known = KNOWN.iter().map(|known| {
            let value = self.get(known.name).unwrap_or(known.default);
            (known.name.to_owned(), value.to_owned(), known)
        });
        let custom = self
            .values
            .iter()
            .filter(|(name, _)| find(name).is_none())
            .map(|(name, value)| (name.clone(), value.clone(), &CUSTOM));
        known.chain(custom).collect()
    }

    /// The changes since the last call that the client is to be told of.
    pub(crate) fn take_reported(&mut self) -> Vec<(String, String)> {
        if self.changed.is_empty() {
            return Vec::new();
        }
        let changed = std::mem::take(&mut self.changed);
        REPORTED
            .iter()
            .filter(|(name, _)| changed.iter().any(|changed| changed == name))
            .filter_map(|(name, shown)| {
                Some(((*shown).to_owned(), self.get(name).ok()?.to_owned()))
            })
            .collect()
    }

    /// Schemas searched for unqualified names, unquoted, `$user` not yet replaced.
    pub(crate) fn search_path(&self) -> Vec<String> {
        let text = self.get("search_path").unwrap_or("public");
        text.split(',')
            .map(|part| unquoted(part.trim()))
            .filter(|part| !part.is_empty())
            .collect()
    }

    /// The longest run time of a statement; `None` for no limit.
    pub(crate) fn statement_timeout(&self) -> Option<Duration> {
        self.typed().statement_timeout
    }

    /// The longest wait for another transaction; `None` for no limit.
    pub(crate) fn lock_timeout(&self) -> Option<Duration> {
        self.typed().lock_timeout
    }

    /// Whether plans of the session's statements are kept and found again.
    pub(crate) fn keeps_plans(&self) -> bool {
        self.typed().keeps_plans
    }

    /// Whether new transactions see one state throughout.
    pub(crate) fn default_is_repeatable(&self) -> bool {
        self.typed().is_repeatable
    }

    /// Whether new transactions only read.
    pub(crate) fn default_is_read_only(&self) -> bool {
        self.typed().is_read_only
    }

    fn touch(&mut self) {
        self.version += 1;
        self.typed.take();
    }

    fn typed(&self) -> &Typed {
        self.typed.get_or_init(|| Typed {
            zone: self
                .get("timezone")
                .ok()
                .and_then(parse_time_zone)
                .unwrap_or(chrono_tz::UTC),
            statement_timeout: self.timeout("statement_timeout"),
            lock_timeout: self.timeout("lock_timeout"),
            keeps_plans: self.get("plan_cache_mode") != Ok("force_custom_plan"),
            is_repeatable: self.get("default_transaction_isolation") == Ok("repeatable read"),
            is_read_only: self.get("default_transaction_read_only") == Ok("on"),
        })
    }

    fn timeout(&self, name: &str) -> Option<Duration> {
        let timeout = self.get(name).ok().and_then(parse_duration)?;
        (!timeout.is_zero()).then_some(timeout)
    }

    /// The session's time zone.
    pub(crate) fn time_zone(&self) -> chrono_tz::Tz {
        self.typed().zone
    }
}

impl KnownSetting {
    /// The column `vartype` of `pg_settings`.
    pub(crate) fn kind(&self) -> &'static str {
        match self.check {
            Check::Integer(..) | Check::Duration => "integer",
            Check::OneOf(["on", "off"]) => "bool",
            Check::OneOf(_) => "enum",
            Check::Text | Check::TimeZone | Check::Layout | Check::Constant => "string",
        }
    }

    /// The column `context` of `pg_settings`.
    pub(crate) fn context(&self) -> &'static str {
        match self.check {
            Check::Constant => "internal",
            _ => "user",
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

    fn accept(&self, values: &[String]) -> Result<String, SqlError> {
        let value = match values {
            [value] => value.clone(),
            _ if self.name == "search_path" => values
                .iter()
                .map(|value| format!("\"{}\"", value.replace('"', "")))
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
            Check::Constant => Err(SqlError::new(
                ErrorKind::ObjectNotInPrerequisiteState,
                format!("parameter \"{}\" cannot be changed", self.name),
            )),
            Check::OneOf(allowed) => {
                let lower = value.to_ascii_lowercase();
                let boolean = match lower.as_str() {
                    "true" | "yes" | "1" => "on",
                    "false" | "no" | "0" => "off",
                    other => other,
                };
                let found = allowed.iter().find(|candidate| {
                    candidate.eq_ignore_ascii_case(&value)
                        || candidate.eq_ignore_ascii_case(boolean)
                });
                match found {
                    // Spellings of the one value there is.
                    Some(_) if matches!(self.name, "client_encoding" | "datestyle") => {
                        Ok(self.default.to_owned())
                    }
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
                .map(|_| value.clone())
                .ok_or_else(invalid),
            Check::TimeZone => parse_time_zone(&value)
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

fn find(name: &str) -> Option<&'static KnownSetting> {
    KNOWN.iter().find(|known| known.name == name)
}

fn unrecognized(name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::UndefinedObject,
        format!("unrecognized configuration parameter \"{name}\""),
    )
}

fn unquoted(part: &str) -> String {
    match part
        .strip_prefix('"')
        .and_then(|part| part.strip_suffix('"'))
    {
        Some(inner) => inner.replace("\"\"", "\""),
        None => part.to_ascii_lowercase(),
    }
}

/// Milliseconds, or a number with one of PostgreSQL's units.
fn parse_duration(text: &str) -> Option<Duration> {
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

fn parse_time_zone(text: &str) -> Option<chrono_tz::Tz> {
    let text = text.trim().trim_matches('\'');
    if matches!(
        text.to_ascii_uppercase().as_str(),
        "Z" | "UTC" | "GMT" | "LOCAL" | "DEFAULT" | "0" | "+00" | "+00:00"
    ) {
        return Some(chrono_tz::UTC);
    }
    chrono_tz::TZ_VARIANTS
        .iter()
        .find(|zone| zone.name().eq_ignore_ascii_case(text))
        .copied()
        .or_else(|| {
            // Whole hours east of Greenwich are the Etc zones, whose names count westwards.
            let hours: i32 = text.parse().ok()?;
            format!("Etc/GMT{:+}", -hours).parse().ok()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(settings: &mut Settings, name: &str, value: &str) -> Result<(), SqlError> {
        settings.set(name, &[value.to_owned()])
    }

    #[test]
    fn values_are_checked_and_reported() {
        let mut settings = Settings::new(&[("is_superuser", "on")], &[]).unwrap();
        set(&mut settings, "TimeZone", "europe/berlin").unwrap();
        assert_eq!(settings.get("timezone").unwrap(), "Europe/Berlin");
        assert_eq!(
            settings.take_reported(),
            [("TimeZone".to_owned(), "Europe/Berlin".to_owned())]
        );
        assert!(settings.take_reported().is_empty());
        set(&mut settings, "statement_timeout", "2s").unwrap();
        assert_eq!(settings.statement_timeout(), Some(Duration::from_secs(2)));
        settings.reset_all();
        assert_eq!(settings.statement_timeout(), None);
        assert_eq!(settings.get("is_superuser").unwrap(), "on");
        for (name, value) in [
            ("timezone", "Mars/Olympus"),
            ("statement_timeout", "-1"),
            ("statement_timeout", "99999999999"),
            ("client_encoding", "LATIN1"),
            ("is_superuser", "on"),
            ("aerostat.default_layout", "rows"),
            ("aerostat.nothing", "1"),
            ("nothing", "1"),
        ] {
            assert!(set(&mut settings, name, value).is_err(), "{name} = {value}");
        }
        set(&mut settings, "plugin.anything", "x").unwrap();
        assert_eq!(settings.get("plugin.anything").unwrap(), "x");
    }

    #[test]
    fn blocks_tell_their_modes_and_change_nothing() {
        let mut settings = Settings::new(&[], &[]).unwrap();
        let before = settings.clone();
        let shown = |settings: &Settings| {
            let names = ["transaction_isolation", "transaction_read_only"];
            names.map(|name| settings.get(name).unwrap().to_owned())
        };
        settings.tell_modes("repeatable read", true);
        assert_eq!(shown(&settings), ["repeatable read", "on"]);
        assert_eq!(settings.version(), before.version());
        settings.end_local();
        assert_eq!(shown(&settings), ["read committed", "off"]);
        settings.tell_modes("repeatable read", true);
        settings.go_back_to(before.clone());
        assert_eq!(shown(&settings), ["read committed", "off"]);
        assert_eq!(settings.version(), before.version());
        settings.tell_modes("read committed", false);
        let isolation = ["repeatable read".to_owned()];
        settings
            .set_local("statement_timeout", &["7".to_owned()])
            .unwrap();
        settings
            .set("default_transaction_isolation", &isolation)
            .unwrap();
        assert!(settings.default_is_repeatable());
        settings.go_back_to(before.clone());
        assert!(!settings.default_is_repeatable());
        assert_eq!(settings.statement_timeout(), None);
        assert!(settings.version() > before.version());
    }

    #[test]
    fn the_search_path_is_a_list_of_names() {
        let mut settings = Settings::new(&[], &[]).unwrap();
        assert_eq!(settings.search_path(), ["$user", "public"]);
        settings
            .set("search_path", &["a b".to_owned(), "c".to_owned()])
            .unwrap();
        assert_eq!(settings.search_path(), ["a b", "c"]);
    }

    #[test]
    fn known_settings_are_in_order() {
        assert!(KNOWN.is_sorted_by_key(|known| known.name));
    }
}
