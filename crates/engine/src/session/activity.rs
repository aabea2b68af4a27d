//! What others see of the session in `pg_stat_activity`.

use aerostat_api::TransactionStatus;
use aerostat_pgcatalog::SessionDescription;

use super::{ClientState, settings::Settings};

/// How much of a statement it shows, as in PostgreSQL.
const ACTIVITY_CHARS_MAX: usize = 1_024;

impl ClientState {
    /// Notes that a statement runs.
    pub(super) fn note_active(&self, query: &str) {
        let now = chrono::Utc::now().timestamp_micros();
        let mut description = self.description.lock();
        description.state_at_us = Some(now);
        description.query_at_us = Some(now);
        description.state = "active";
        tell_query(&mut description, query);
    }

    /// Notes that the statement waits for its place, or does so no more.
    pub(super) fn note_wait(&self, waits: bool) {
        self.description.lock().waits_for_place = waits;
    }

    /// Notes that no statement runs any more, and where the session stands.
    pub(super) fn note_idle(&self, status: TransactionStatus) {
        let mut description = self.description.lock();
        description.state_at_us = Some(chrono::Utc::now().timestamp_micros());
        description.state = between(status);
    }

    /// Notes what the session has done meanwhile, and where it stands.
    pub(super) fn note_done(&self, query: &str, status: TransactionStatus) {
        let now = chrono::Utc::now().timestamp_micros();
        let mut description = self.description.lock();
        description.state_at_us = Some(now);
        description.query_at_us = Some(now);
        description.state = between(status);
        tell_query(&mut description, query);
    }
}

/// What a session does between statements.
fn between(status: TransactionStatus) -> &'static str {
    match status {
        TransactionStatus::Idle => "idle",
        TransactionStatus::InTransaction => "idle in transaction",
        TransactionStatus::Failed => "idle in transaction (aborted)",
    }
}

/// What a session calls itself.
pub(super) fn application_name(settings: &Settings) -> String {
    let name = settings.get("application_name");
    name.unwrap_or_default().to_owned()
}

/// Shows the beginning of a statement. The buffer of the previous text is used again.
fn tell_query(description: &mut SessionDescription, query: &str) {
    let end = match query.len() {
        ..=ACTIVITY_CHARS_MAX => query.len(),
        _ => query
            .char_indices()
            .nth(ACTIVITY_CHARS_MAX)
            .map_or(query.len(), |(end, _)| end),
    };
    description.query.clear();
    description.query.push_str(&query[..end]);
}
