//! Settings of a session: SET, RESET, SHOW.
//!
//! Known settings are listed in [`known_settings`] with their defaults and checks; a
//! name with a dot that is not ours is kept as it is, as PostgreSQL keeps
//! placeholders for extensions.

mod ignored;
mod known;
mod setting;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aerostat_api::NoticeSeverity;
use aerostat_catalog::CopyState;
use aerostat_types::{Charset, Encoding, ErrorKind, Named, SqlError};
use serde::{Deserialize, Serialize};

use known::{CUSTOM, find, parse_duration};
pub(crate) use known::{REPORTED, known_settings, shown_name};
#[cfg(test)]
pub(crate) use setting::Effect;
pub(crate) use setting::KnownSetting;

/// What the settings of one session may take: those that are made up by clients carry tokens
/// and identities of a few kilobytes. Blocks and savepoints have a copy each.
const SETTINGS_BYTES_MAX: usize = 256 << 10;

/// The settings that say who the session is.
const IDENTITY: [&str; 3] = ["is_superuser", "role", "session_authorization"];

/// The setting that tells whether another node takes the database's changes.
const IN_HOT_STANDBY: &str = "in_hot_standby";

/// Bytes that a setting takes beside its name and value.
const SETTING_BYTES: usize = 64;

/// What a setting without a value of its own follows.
fn followed(name: &str) -> Option<&'static str> {
    match name {
        "transaction_isolation" => Some("default_transaction_isolation"),
        "transaction_read_only" => Some("default_transaction_read_only"),
        _ => None,
    }
}

/// The settings of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Values that differ from the defaults. Shared with what blocks go back to.
    values: Arc<BTreeMap<String, String>>,
    /// What RESET goes back to: given at connect, or told by the server.
    start: Arc<BTreeMap<String, String>>,
    changed: Vec<String>,
    /// What the client was told last of settings that it has been told of since the start.
    reported: BTreeMap<&'static str, String>,
    /// SET LOCAL: what each such setting goes back to when the transaction ends.
    local: BTreeMap<String, Option<String>>,
    /// What two settings tell of the block at hand: its isolation, and whether it only reads.
    isolation: Option<&'static str>,
    read_only: Option<bool>,
    /// What the node does with the database, which two settings tell.
    copy: Option<Arc<CopyState>>,
    /// Counts the changes of the session's settings; copies count with it.
    version: Arc<AtomicU64>,
    /// What every statement asks for, read since the last change.
    typed: OnceLock<Typed>,
}

/// The settings of a session, as they go to another node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Carried {
    /// Values that differ from the defaults.
    values: BTreeMap<String, String>,
    /// What the client was told last.
    reported: BTreeMap<String, String>,
}

/// Settings as what they mean.
#[derive(Clone, Copy, Debug)]
struct Typed {
    zone: aerostat_types::Zone,
    charset: Option<&'static Charset>,
    statement_timeout: Option<Duration>,
    lock_timeout: Option<Duration>,
    idle_in_transaction_timeout: Option<Duration>,
    idle_session_timeout: Option<Duration>,
    /// Of messages that are no errors, the least severe that the client wants; `None` for none.
    message_least: Option<NoticeSeverity>,
    keeps_plans: bool,
    joins_stars: bool,
    filters_at_run_time: bool,
    is_repeatable: bool,
    is_read_only: bool,
    reads_from_leader: bool,
    staleness_max: Option<Duration>,
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

    /// What goes to another node with its session, which is in no transaction.
    pub(crate) fn carried(&self) -> Carried {
        Carried {
            values: (*self.values).clone(),
            reported: self
                .reported
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
        }
    }

    /// The same as whoever has connected.
    pub(crate) fn as_connected(&self, carried: &Carried) -> Carried {
        let mut carried = carried.clone();
        for name in IDENTITY {
            match self.start.get(name) {
                Some(value) => carried.values.insert(name.to_owned(), value.clone()),
                None => carried.values.remove(name),
            };
        }
        carried
    }

    /// Goes on with what another node's session had. Its client has been told of it.
    pub(crate) fn resume(&mut self, carried: Carried) {
        self.touch();
        self.values = Arc::new(carried.values);
        let name_of = |name: &str| REPORTED.iter().find(|(known, _)| *known == name);
        let reported = carried.reported.into_iter();
        self.reported = reported
            .filter_map(|(name, value)| Some((name_of(&name)?.0, value)))
            .collect();
        self.changed.clear();
    }

    /// A number that stands as long as no setting changes but those that blocks tell.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Where [`Self::version`] is found without the settings.
    pub(crate) fn versions(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.version)
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
        let shown = |on: bool| if on { "on" } else { "off" };
        match name {
            "transaction_isolation" => self.isolation,
            "transaction_read_only" if self.is_on_copy() => Some("on"),
            "transaction_read_only" => self.read_only.map(shown),
            IN_HOT_STANDBY => Some(shown(self.is_on_copy())),
            _ => None,
        }
    }

    /// Tells from now on what the node does with the database.
    pub(crate) fn follow(&mut self, copy: Option<&Arc<CopyState>>) {
        self.copy = copy.cloned();
        let standby = self.told(IN_HOT_STANDBY).unwrap_or_default().to_owned();
        Arc::make_mut(&mut self.start).insert(IN_HOT_STANDBY.to_owned(), standby);
    }

    /// Whether another node takes the database's changes.
    pub(crate) fn is_on_copy(&self) -> bool {
        self.copy.as_ref().is_some_and(|copy| !copy.leads())
    }

    /// The node has taken the database's changes over, or given them up.
    pub(crate) fn stands_otherwise(&mut self) {
        self.touch();
        self.note_change(IN_HOT_STANDBY);
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
        let others = self.values.iter().filter(|(other, _)| **other != name);
        let others: usize = others.map(bytes_of).sum();
        if others + bytes_of((&name, &value)) > SETTINGS_BYTES_MAX {
            return Err(too_large());
        }
        self.touch();
        self.tell_no_more(&name);
        self.note_change(&name);
        self.local.remove(&name);
        Arc::make_mut(&mut self.values).insert(name, value);
        Ok(())
    }

    /// What its values take.
    pub(crate) fn bytes(&self) -> usize {
        self.values.iter().map(bytes_of).sum()
    }

    /// The client is to be told of a change, if it is told of this setting at all.
    fn note_change(&mut self, name: &str) {
        let is_reported = REPORTED.iter().any(|(reported, _)| *reported == name);
        if is_reported && !self.changed.iter().any(|changed| changed == name) {
            self.changed.push(name.to_owned());
        }
    }

    /// SET LOCAL.
    ///
    /// # Errors
    /// As for [`Self::set`].
    pub(crate) fn set_local(&mut self, name: &str, values: &[String]) -> Result<(), SqlError> {
        self.locally(name, |settings| settings.set(name, values))
    }

    /// SET LOCAL name TO DEFAULT.
    ///
    /// # Errors
    /// As for [`Self::reset`].
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
            self.note_change(&name);
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
        changed.iter().for_each(|name| self.note_change(name));
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
        self.note_change(&name);
        Ok(())
    }

    /// RESET ALL. The session's roles stay, as in PostgreSQL.
    pub(crate) fn reset_all(&mut self) {
        self.touch();
        (self.isolation, self.read_only) = (None, None);
        let before = std::mem::replace(&mut self.values, Arc::clone(&self.start));
        for name in IDENTITY {
            if before.get(name) != self.values.get(name)
                && let Some(value) = before.get(name)
            {
                Arc::make_mut(&mut self.values).insert(name.to_owned(), value.clone());
            }
        }
        before.keys().for_each(|name| self.note_change(name));
    }

    /// Tells something that the client does not set by itself.
    pub(crate) fn tell(&mut self, name: &str, value: &str, is_local: bool) {
        if is_local {
            let before = self.values.get(name).cloned();
            self.local.entry(name.to_owned()).or_insert(before);
        } else {
            self.local.remove(name);
        }
        self.touch();
        self.note_change(name);
        Arc::make_mut(&mut self.values).insert(name.to_owned(), value.to_owned());
    }

    /// The role that SET SESSION AUTHORIZATION names, or that connected.
    pub(crate) fn session_role(&self) -> &str {
        self.get("session_authorization").unwrap_or_default()
    }

    /// The role whose rights count.
    pub(crate) fn acting_role(&self) -> &str {
        match self.get("role") {
            Ok("none") | Err(_) => self.session_role(),
            Ok(role) => role,
        }
    }

    /// Every setting with its value and what is known of it.
    pub(crate) fn all(&self) -> Vec<(String, String, &'static KnownSetting)> {
        let known = known_settings().iter().map(|&known| {
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
        let mut told = Vec::new();
        for &(name, shown) in REPORTED {
            if !changed.iter().any(|changed| changed == name) {
                continue;
            }
            let Ok(value) = self.get(name).map(str::to_owned) else {
                continue;
            };
            // A setting that has its former value again is no news.
            if self.told_last(name) != Some(value.as_str()) {
                self.reported.insert(name, value.clone());
                told.push((shown.to_owned(), value));
            }
        }
        told
    }

    /// What the client knows of a setting.
    fn told_last(&self, name: &str) -> Option<&str> {
        let since = self.reported.get(name).or_else(|| self.start.get(name));
        let told = since.map(String::as_str);
        told.or_else(|| find(name).map(|known| known.default))
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

    /// How long the client may be idle in a transaction; `None` for no limit.
    pub(crate) fn idle_in_transaction_timeout(&self) -> Option<Duration> {
        self.typed().idle_in_transaction_timeout
    }

    /// How long the client may be idle outside of transactions; `None` for no limit.
    pub(crate) fn idle_session_timeout(&self) -> Option<Duration> {
        self.typed().idle_session_timeout
    }

    /// Whether the client wants messages as severe as this. It has asked for an INFO, so that
    /// comes in any case, as in PostgreSQL.
    pub(crate) fn wants_message(&self, severity: NoticeSeverity) -> bool {
        let least = self.typed().message_least;
        severity == NoticeSeverity::Info || least.is_some_and(|least| severity >= least)
    }

    /// Whether plans of the session's statements are cached.
    pub(crate) fn keeps_plans(&self) -> bool {
        self.typed().keeps_plans
    }

    /// Whether star joins are looked for.
    pub(crate) fn joins_stars(&self) -> bool {
        self.typed().joins_stars
    }

    /// Whether scans take filters that operators learn while they run.
    pub(crate) fn filters_at_run_time(&self) -> bool {
        self.typed().filters_at_run_time
    }

    /// Whether new transactions see one state throughout.
    pub(crate) fn default_is_repeatable(&self) -> bool {
        self.typed().is_repeatable
    }

    /// Whether new transactions only read.
    pub(crate) fn default_is_read_only(&self) -> bool {
        self.typed().is_read_only
    }

    /// Whether statements read from the leader alone.
    pub(crate) fn reads_from_leader(&self) -> bool {
        self.typed().reads_from_leader
    }

    /// How old what a copy shows may be at most; `None` for no limit.
    pub(crate) fn staleness_max(&self) -> Option<Duration> {
        self.typed().staleness_max
    }

    /// How the client's texts are converted; `None` if they are as the server's.
    pub(crate) fn charset(&self) -> Option<&'static Charset> {
        self.typed().charset
    }

    fn touch(&mut self) {
        self.version.fetch_add(1, Ordering::Release);
        self.typed.take();
    }

    fn typed(&self) -> &Typed {
        self.typed.get_or_init(|| Typed {
            zone: self
                .get("timezone")
                .ok()
                .and_then(aerostat_types::Zone::of_setting)
                .unwrap_or(aerostat_types::Zone::UTC),
            charset: match self.get("client_encoding").map(Encoding::named) {
                Ok(Some(Named::Spoken(encoding))) => encoding.charset(),
                _ => None,
            },
            statement_timeout: self.timeout("statement_timeout"),
            lock_timeout: self.timeout("lock_timeout"),
            idle_in_transaction_timeout: self.timeout("idle_in_transaction_session_timeout"),
            idle_session_timeout: self.timeout("idle_session_timeout"),
            message_least: match self.get("client_min_messages") {
                Ok("error") => None,
                Ok("warning") => Some(NoticeSeverity::Warning),
                Ok("info") => Some(NoticeSeverity::Info),
                Ok("log") => Some(NoticeSeverity::Log),
                Ok(debug) if debug.starts_with("debug") => Some(NoticeSeverity::Debug),
                _ => Some(NoticeSeverity::Notice),
            },
            keeps_plans: self.get("plan_cache_mode") != Ok("force_custom_plan"),
            joins_stars: self.get("aerostat.star_join") == Ok("on"),
            filters_at_run_time: self.get("aerostat.dynamic_filters") == Ok("on"),
            is_repeatable: self.get("default_transaction_isolation") == Ok("repeatable read"),
            is_read_only: self.get("default_transaction_read_only") == Ok("on"),
            reads_from_leader: self.get("aerostat.read_from") == Ok("leader"),
            staleness_max: self.timeout("aerostat.max_staleness"),
        })
    }

    fn timeout(&self, name: &str) -> Option<Duration> {
        let timeout = self.get(name).ok().and_then(parse_duration)?;
        (!timeout.is_zero()).then_some(timeout)
    }

    /// The session's time zone.
    pub(crate) fn time_zone(&self) -> aerostat_types::Zone {
        self.typed().zone
    }
}

fn bytes_of((name, value): (&String, &String)) -> usize {
    SETTING_BYTES + name.len() + value.len()
}

fn too_large() -> SqlError {
    SqlError::new(
        ErrorKind::ProgramLimitExceeded,
        "the settings of one session take too much memory",
    )
    .with_detail(format!(
        "At most {} kB are allowed.",
        SETTINGS_BYTES_MAX >> 10
    ))
    .with_hint("RESET those that are not needed any more, and keep long values in a table.")
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
            ("client_encoding", "SJIS"),
            ("client_encoding", "nothing"),
            ("is_superuser", "on"),
            ("aerostat.default_layout", "rows"),
            ("aerostat.nothing", "1"),
            ("nothing", "1"),
        ] {
            assert!(set(&mut settings, name, value).is_err(), "{name} = {value}");
        }
        set(&mut settings, "application_name", "a\nb\u{e9}").unwrap();
        assert_eq!(settings.get("application_name").unwrap(), "a?b??");
        set(&mut settings, "application_name", &"x".repeat(100)).unwrap();
        assert_eq!(settings.get("application_name").unwrap().len(), 63);
        set(&mut settings, "plugin.anything", "x").unwrap();
        assert_eq!(settings.get("plugin.anything").unwrap(), "x");
    }

    #[test]
    fn settings_of_ones_own_are_limited() {
        let mut settings = Settings::new(&[], &[]).unwrap();
        let refused = |settings: &mut Settings, name: &str, bytes: usize| {
            let set = set(settings, name, &"x".repeat(bytes));
            set.err().map(|error| error.kind)
        };
        let too_many = Some(ErrorKind::ProgramLimitExceeded);
        assert_eq!(refused(&mut settings, "a.b", 256 << 10), too_many);
        // One that is replaced counts once.
        for _ in 0..10 {
            assert_eq!(refused(&mut settings, "a.b", 100 << 10), None);
        }
        assert_eq!(refused(&mut settings, "a.c", 100 << 10), None);
        assert_eq!(refused(&mut settings, "a.d", 100 << 10), too_many);
        settings.reset("a.c").unwrap();
        assert_eq!(refused(&mut settings, "a.d", 100 << 10), None);
        settings.reset_all();
        // Many small ones take more than their texts.
        let set = (0..10_000).map(|n| refused(&mut settings, &format!("a.n{n}"), 1));
        assert!((3_000..4_000).contains(&set.filter(Option::is_none).count()));
        assert!(settings.bytes() <= SETTINGS_BYTES_MAX);
    }

    #[test]
    fn blocks_tell_their_modes_and_change_nothing() {
        let mut settings = Settings::new(&[], &[]).unwrap();
        let (before, version) = (settings.clone(), settings.version());
        let shown = |settings: &Settings| {
            let names = ["transaction_isolation", "transaction_read_only"];
            names.map(|name| settings.get(name).unwrap().to_owned())
        };
        settings.tell_modes("repeatable read", true);
        assert_eq!(shown(&settings), ["repeatable read", "on"]);
        assert_eq!(settings.version(), version);
        settings.end_local();
        assert_eq!(shown(&settings), ["read committed", "off"]);
        settings.tell_modes("repeatable read", true);
        settings.go_back_to(before.clone());
        assert_eq!(shown(&settings), ["read committed", "off"]);
        assert_eq!(settings.version(), version);
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
        assert!(settings.version() > version);
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

    /// docs/sql.md lists the settings by what comes of setting them, all of them and no other.
    #[test]
    fn every_setting_is_documented_by_its_effect() {
        let documentation = include_str!("../../../../docs/sql.md");
        for (effect, heading) in [
            (Effect::Acts, "Settings that act"),
            (Effect::Fixed, "Settings with one value"),
            (Effect::Tells, "Settings that only tell"),
            (Effect::Ignored, "Settings without effect"),
        ] {
            let (_, section) = documentation
                .split_once(&format!("### {heading}\n"))
                .unwrap_or_else(|| panic!("docs/sql.md has no section {heading}"));
            let section = section.split("\n#").next().unwrap_or_default();
            let listed: Vec<&str> = section
                .lines()
                .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
                .collect();
            let known = known_settings()
                .iter()
                .filter(|known| known.effect == effect);
            let known: Vec<&str> = known.map(|known| known.name).collect();
            assert_eq!(listed, known, "{heading}");
        }
    }

    #[test]
    fn settings_are_known_once_and_in_order() {
        assert!(known_settings().is_sorted_by_key(|known| known.name));
    }
}
