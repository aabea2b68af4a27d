//! Sessions that go on at another node: what one has, as bytes, and another that has it from them.
//!
//! ```text
//!  node that led: between transactions ──► leave ──► bytes ──► node that leads: resume
//!                 └─ has what cannot go: stays
//! ```
//!
//! | goes | stays here, and with it the session |
//! |---|---|
//! | settings, what its client was told of them, the role | temporary relations |
//! | prepared statements, by their texts | cursors WITH HOLD |
//! | the numbers that `currval` and `lastval` tell | advisory locks |
//! | the channels that it listens on | notifications that its client has yet to be told |

use std::{collections::BTreeMap, sync::Arc};

use aerostat_api::{Kept, prepared_bytes};
use aerostat_catalog::admin::Connection;
use aerostat_types::{ErrorKind, RelationId, SqlError};
use serde::{Deserialize, Serialize};

use super::{Prepared, Session, named::Written, settings::Carried};
use crate::engine::Engine;

/// More than that does not go.
const STATE_BYTES_MAX: usize = 8 << 20;

/// What goes.
#[derive(Serialize, Deserialize)]
struct Luggage {
    settings: Carried,
    prepared: Vec<Written>,
    /// The statement without a name.
    unnamed: Option<(String, Vec<u32>)>,
    taken: BTreeMap<RelationId, i64>,
    taken_last: Option<RelationId>,
    channels: Vec<String>,
}

impl Session {
    /// What another node needs to go on with the session, with the statement that its client has prepared without a name;
    /// `None` while it has what cannot go. The caller ends this one then.
    pub fn leave(&self, unnamed: Option<&Kept<Prepared>>) -> Option<Vec<u8>> {
        let client = &self.client;
        let stays = !self.transaction.machine.is_idle()
            || client.is_busy
            || !client.temporaries.is_empty()
            || !client.cursors.describe().is_empty()
            || client.advisory.has_some()
            || client.inbox.has_some();
        if stays {
            return None;
        }
        let taken = client.taken.lock();
        let luggage = Luggage {
            settings: client.settings.lock().carried(),
            prepared: client.prepared.written(),
            unnamed: unnamed.map(|(prepared, oids)| (prepared.text().to_owned(), oids.to_vec())),
            taken: taken.numbers().clone(),
            taken_last: taken.last(),
            channels: client.listening.lock().iter().cloned().collect(),
        };
        let bytes = serde_json::to_vec(&luggage).ok()?;
        (bytes.len() <= STATE_BYTES_MAX).then_some(bytes)
    }

    /// A session that goes on where another node's has left, and the statement without a name. Statements that cannot be
    /// prepared any more are forgotten: whoever runs them is told so.
    ///
    /// # Errors
    /// As [`Engine::connect`]; what has come is no session.
    pub(crate) async fn resume(
        engine: Arc<Engine>,
        connection: Connection,
        role: &str,
        options: &[(String, String)],
        state: &[u8],
    ) -> Result<(Self, Option<Kept<Prepared>>), SqlError> {
        let luggage: Luggage = serde_json::from_slice(state).map_err(|error| {
            SqlError::new(
                ErrorKind::ProtocolViolation,
                format!("a session has come that is none: {error}"),
            )
        })?;
        let mut session = Session::new(engine, connection, role, options)?;
        let Luggage {
            settings,
            prepared,
            unnamed,
            taken,
            taken_last,
            channels,
        } = luggage;
        session.client.taken.lock().resume(taken, taken_last);
        {
            let mut listening = session.client.listening.lock();
            for channel in channels {
                let of_tenant = session.executor.tenant.channels();
                of_tenant.listen(&channel, &session.client.inbox);
                listening.insert(channel);
            }
        }
        // A statement may have been prepared by a role that the session has left: rights are asked for again when it runs.
        let connected = session.client.settings.lock().as_connected(&settings);
        session.client.settings.lock().resume(connected);
        let left = session.prepare_those(prepared).await;
        session.client.settings.lock().resume(settings);
        for Written { name, .. } in session.prepare_those(left).await {
            tracing::debug!(name, "a statement did not come along");
        }
        let unnamed = match unnamed {
            Some((text, oids)) => {
                let prepared = session.prepare(&text, &oids).await.ok();
                prepared.map(|prepared| (Arc::new(prepared), Arc::from(oids)))
            }
            None => None,
        };
        // Nothing of this is news to its client.
        session.take_notices();
        session.parameter_changes();
        Ok((session, unnamed))
    }

    /// Prepares statements again, and gives those that cannot be.
    async fn prepare_those(&mut self, statements: Vec<Written>) -> Vec<Written> {
        let mut left = Vec::new();
        for statement in statements {
            if self.prepare_again(&statement).await.is_err() {
                left.push(statement);
            }
        }
        left
    }

    async fn prepare_again(&mut self, statement: &Written) -> Result<(), SqlError> {
        if statement.is_from_sql {
            // The whole PREPARE.
            for sent in self.split(&statement.text).await? {
                self.execute(&sent).await?;
            }
            return Ok(());
        }
        let bytes = statement.name.len() + prepared_bytes(&statement.text);
        let held = self.hold(bytes)?;
        let prepared = self.prepare(&statement.text, &statement.oids).await?;
        let oids = Arc::from(&statement.oids[..]);
        self.keep(&statement.name, Arc::new(prepared), oids, held);
        Ok(())
    }
}
