//! Settings that each statement asks for, as they were read last. Whether they stand still costs a
//! load to see.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aerostat_api::{ClientSettings, IdleLimit, TransactionStatus};

use super::{Session, settings::Settings};

/// Settings as they were at a version of the session's.
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
    /// Of the session's settings, whatever they are changed by.
    versions: Arc<AtomicU64>,
    followed: Followed,
    /// At which version the client was told of changes.
    told: Option<u64>,
}

impl Following {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            versions: settings.versions(),
            followed: Followed::of(settings),
            told: None,
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

impl Session {
    /// The settings of now.
    pub(super) fn followed(&mut self) -> &Followed {
        if self.following.version() != self.following.followed.version {
            self.following.followed = Followed::of(&self.settings.lock());
        }
        &self.following.followed
    }

    /// How the client is written to from now on.
    pub fn client_settings(&mut self) -> ClientSettings {
        self.followed().client
    }

    /// How long the client may be idle from now on; `None` for no limit.
    pub fn idle_limit(&mut self) -> Option<IdleLimit> {
        let in_transaction = self.status() != TransactionStatus::Idle;
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
    pub fn parameter_changes(&mut self) -> Vec<(String, String)> {
        let version = self.following.version();
        if self.following.told.replace(version) == Some(version) {
            return Vec::new();
        }
        let changes = self.settings.lock().take_reported();
        if let Some((_, name)) = changes.iter().find(|(name, _)| name == "application_name") {
            self.told.lock().application.clone_from(name);
        }
        changes
    }
}
