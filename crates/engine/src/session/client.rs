//! The state of a session's client: its beginning, and the settings that most statements need.

use std::{sync::Arc, time::Duration};

use aerostat_catalog::Temporaries;
use aerostat_pgcatalog::SessionDescription;
use aerostat_query::CancelHandle;
use aerostat_types::SqlError;
use parking_lot::Mutex;

use super::{
    ClientState, Executor,
    activity::application_name,
    cursor::Cursors,
    followed::Following,
    named::NamedStatements,
    notify::Sayings,
    settings::{REPORTED, Settings},
    waiting::Notices,
};
use aerostat_api::Controls;

impl ClientState {
    /// The state of a new session's client. Others know of the session from now on.
    pub(super) fn new(
        executor: &Executor,
        role: &str,
        options: &[(String, String)],
    ) -> Result<Self, SqlError> {
        let Executor { engine, tenant, .. } = executor;
        let database = executor.database();
        let superuser = engine.node().is_superuser(role);
        let told = [
            ("is_superuser", if superuser { "on" } else { "off" }),
            ("session_authorization", role),
        ];
        let mut settings = Settings::new(&told, options)?;
        settings.follow(database.copy.as_ref());
        let settings = Arc::new(Mutex::new(settings));
        let (number, description) = engine.register_session(SessionDescription {
            database: database.name.read().clone(),
            database_id: Some(database.id),
            role: role.to_owned(),
            application: application_name(&settings.lock()),
            connected_at_us: chrono::Utc::now().timestamp_micros(),
            state: "idle",
            ..SessionDescription::default()
        });
        let following = Following::new(&settings.lock());
        let advisory = database.store.txns().advisory_locks();
        engine.register_locks(number, &advisory);
        let cancel = CancelHandle::default();
        let stop = cancel.clone();
        let controls = Controls {
            cancel: Arc::new(move || stop.cancel()),
            terminate: None,
            leave: None,
        };
        engine.register_controls(number, controls);
        let sayings = Sayings {
            outbox: Arc::default(),
            channels: Arc::clone(tenant.channels()),
            number,
        };
        Ok(Self {
            role: role.to_owned(),
            number,
            copy: database.copy.clone(),
            notices: Notices::new(&settings),
            settings,
            following,
            description,
            prepared: NamedStatements::default(),
            cursors: Cursors::default(),
            cancel,
            advisory,
            taken: Arc::default(),
            temporaries: Temporaries::default(),
            sayings,
            inbox: Arc::default(),
            listening: Arc::default(),
            hears: false,
            is_busy: false,
            admitted: None,
            read_for: Duration::ZERO,
        })
    }

    /// The time zone that `timestamptz` values are shown in.
    pub(super) fn time_zone(&self) -> aerostat_types::Zone {
        self.settings.lock().time_zone()
    }

    /// All settings the client is told of when it connects.
    pub(super) fn reported_parameters(&self) -> Vec<(String, String)> {
        let settings = self.settings.lock();
        REPORTED
            .iter()
            .filter_map(|(name, shown)| {
                Some(((*shown).to_owned(), settings.get(name).ok()?.to_owned()))
            })
            .collect()
    }

    /// The time that a statement has left after its long text was read and it has waited for its place; `None` for no
    /// limit.
    pub(super) fn statement_timeout(&self) -> Option<Duration> {
        let timeout = self.settings.lock().statement_timeout();
        let gone = self.read_for + self.waited_for();
        timeout.map(|timeout| timeout.saturating_sub(gone))
    }
}
