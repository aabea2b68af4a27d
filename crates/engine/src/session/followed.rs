//! Settings that each statement asks for, as they were read last. Whether they stand still costs a
//! load to see.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aerostat_api::{ClientSettings, IdleLimit};
use aerostat_query::StarJoins;
use aerostat_semantics::functions::Times;

use super::{ClientState, Executor, TransactionState, settings::Settings};

/// Settings as they were at a version of the session's settings.
pub(super) struct Followed {
    version: u64,
    pub(super) is_fast_path_on: bool,
    pub(super) path: Arc<[String]>,
    pub(super) role: Arc<str>,
    pub(super) client: ClientSettings,
    idle_session_timeout: Option<Duration>,
    idle_in_transaction_timeout: Option<Duration>,
}

/// The settings that a session follows.
pub(super) struct Following {
    /// The version of the session's settings now.
    versions: Arc<AtomicU64>,
    followed: Followed,
    /// At which version the client was told of changes.
    told: Option<u64>,
    /// Whether the database was a copy then.
    is_on_copy: bool,
}

impl Following {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            versions: settings.versions(),
            followed: Followed::of(settings),
            told: None,
            is_on_copy: settings.is_on_copy(),
        }
    }

    fn version(&self) -> u64 {
        self.versions.load(Ordering::Acquire)
    }
}

impl Followed {
    fn of(settings: &Settings) -> Self {
        Self {
            version: settings.version(),
            is_fast_path_on: settings.get("enable_fast_path") == Ok("on"),
            path: settings.search_path().into(),
            role: settings.acting_role().into(),
            client: ClientSettings {
                zone: settings.time_zone(),
                charset: settings.charset(),
            },
            idle_session_timeout: settings.idle_session_timeout(),
            idle_in_transaction_timeout: settings.idle_in_transaction_timeout(),
        }
    }
}

impl ClientState {
    /// The settings of now.
    pub(super) fn followed(&mut self) -> &Followed {
        if self.following.version() != self.following.followed.version {
            self.following.followed = Followed::of(&self.settings.lock());
        }
        &self.following.followed
    }

    /// How long the client may be idle from now on; `None` for no limit.
    pub(super) fn idle_limit(&mut self, in_transaction: bool) -> Option<IdleLimit> {
        let followed = self.followed();
        let timeout = match in_transaction {
            true => followed.idle_in_transaction_timeout,
            false => followed.idle_session_timeout,
        };
        timeout.map(|timeout| IdleLimit {
            timeout,
            in_transaction,
        })
    }

    /// Settings the client is told of that have changed since the last call.
    pub(super) fn parameter_changes(&mut self) -> Vec<(String, String)> {
        let is_on_copy = self.follows().is_some();
        if std::mem::replace(&mut self.following.is_on_copy, is_on_copy) != is_on_copy {
            self.settings.lock().stands_otherwise();
        }
        let version = self.following.version();
        if self.following.told.replace(version) == Some(version) {
            return Vec::new();
        }
        let changes = self.settings.lock().take_reported();
        if let Some((_, name)) = changes.iter().find(|(name, _)| name == "application_name") {
            self.description.lock().application.clone_from(name);
        }
        changes
    }
}

impl Executor {
    /// A statement begins.
    pub(super) fn tell_times(&mut self, transaction: &TransactionState) {
        let times = Times {
            transaction: transaction.began_at,
            statement: match transaction.machine.is_idle() {
                true => transaction.began_at,
                false => chrono::Utc::now(),
            },
        };
        let state = Arc::make_mut(&mut self.state);
        times.put(state.config_mut().options_mut());
        state.mark_start_execution();
    }

    /// Brings the configuration that plans are made with up to the session's settings.
    pub(super) fn follow_settings(&mut self, client: &ClientState) {
        self.follow_time_zone(client);
        self.follow_star_joins(client);
        self.follow_dynamic_filters(client);
    }

    /// Functions over times take the session's zone from the configuration they are planned with.
    pub(super) fn follow_time_zone(&mut self, client: &ClientState) {
        let zone = client.time_zone();
        let zone = zone.name();
        if self.state.config_options().execution.time_zone.as_deref() != Some(zone) {
            let state = Arc::make_mut(&mut self.state);
            state.config_mut().options_mut().execution.time_zone = Some(zone.to_owned());
        }
    }

    /// Planning asks the configuration whether to look for star joins.
    fn follow_star_joins(&mut self, client: &ClientState) {
        let wanted = StarJoins(client.settings.lock().joins_stars());
        let current = self.state.config().get_extension::<StarJoins>();
        if current.is_none_or(|current| *current != wanted) {
            let state = Arc::make_mut(&mut self.state);
            state.config_mut().set_extension(Arc::new(wanted));
        }
    }

    /// As [`Self::follow_star_joins`], for run-time filters.
    fn follow_dynamic_filters(&mut self, client: &ClientState) {
        let wanted = client.settings.lock().filters_at_run_time();
        let options = self.state.config_options();
        if options.optimizer.enable_dynamic_filter_pushdown != wanted {
            let state = Arc::make_mut(&mut self.state);
            let options = state.config_mut().options_mut();
            options.optimizer.enable_dynamic_filter_pushdown = wanted;
        }
    }
}
