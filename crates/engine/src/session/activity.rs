//! What others see of the session in `pg_stat_activity`.

use aerostat_api::TransactionStatus;
use aerostat_pgcatalog::SessionDescription;

use super::{Session, settings::Settings};

/// How much of a statement it shows, as in PostgreSQL.
const ACTIVITY_CHARS_MAX: usize = 1_024;

impl Session {
    /// Notes what the session does.
    pub(super) fn note_activity(&self, query: Option<&str>) {
        let now = chrono::Utc::now().timestamp_micros();
        let between = self.state_between();
        let mut description = self.told.lock();
        description.state_at_us = Some(now);
        match query {
            Some(query) => {
                description.state = "active";
                description.query_at_us = Some(now);
                tell_query(&mut description, query);
            }
            None => description.state = between,
        }
    }

    /// Notes what the session has done meanwhile.
    pub(super) fn note_done(&self, query: &str) {
        let now = chrono::Utc::now().timestamp_micros();
        let between = self.state_between();
        let mut description = self.told.lock();
        description.state_at_us = Some(now);
        description.query_at_us = Some(now);
        description.state = between;
        tell_query(&mut description, query);
    }

    fn state_between(&self) -> &'static str {
        match self.status() {
            TransactionStatus::Idle => "idle",
            TransactionStatus::InTransaction => "idle in transaction",
            TransactionStatus::Failed => "idle in transaction (aborted)",
        }
    }
}

/// What a session calls itself.
pub(super) fn application_name(settings: &Settings) -> String {
    let name = settings.get("application_name");
    name.unwrap_or_default().to_owned()
}

/// Shows the beginning of a statement. The place for its text is the last one's.
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
