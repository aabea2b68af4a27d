//! Writing dirty pages before the buffer pool shrinks.
//!
//! Pages that are withdrawn must be clean. A server that writes is told to flush them ahead, at full
//! speed, and its own settings are put back afterwards.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::server::Server;
use crate::error::AdapterError;

/// Fewer dirty bytes are written in less than a step's time anyway.
const DIRTY_BYTES_MIN: u64 = 16 << 20;

/// How long the flush is waited for: a sixth of the time that a broker waits for the whole.
const PATIENCE: Duration = Duration::from_secs(5);

/// A flush that has made no progress for this time makes none any more: the server makes pages dirty as
/// fast as it writes them. The server's page cleaner works in rounds of a second.
const PROGRESS: Duration = Duration::from_millis(2_500);

/// Pages a second while the flush goes on. The measurement behind this module had that many.
const IO_CAPACITY: u64 = 20_000;

/// The settings of the flush that were changed, as they were.
#[derive(Debug, Default)]
pub(crate) struct Flush(Vec<(&'static str, String)>);

impl Flush {
    /// Has dirty pages written if there are many, and waits for that for a while; whether few are left.
    pub(crate) async fn begin(
        &mut self,
        server: &mut Server,
        page: u64,
    ) -> Result<bool, AdapterError> {
        if server.status().await?.dirty_pages * page < DIRTY_BYTES_MIN {
            return Ok(true);
        }
        // The greatest first, since the other may not exceed it.
        let changes = [
            ("innodb_io_capacity_max", IO_CAPACITY),
            ("innodb_io_capacity", IO_CAPACITY),
            ("innodb_max_dirty_pages_pct", 0),
        ];
        for (name, value) in changes {
            let Some(known) = server.variable(name).await? else {
                continue;
            };
            let has_enough = value > 0 && known.parse::<f64>().is_ok_and(|has| has >= value as f64);
            if !has_enough {
                // It is written down first, so that it is put back whatever happens to the connection.
                self.0.push((name, known));
                server.set(name, &value.to_string()).await?;
            }
        }
        let started = Instant::now();
        let (mut least, mut progress_at) = (u64::MAX, started);
        while started.elapsed() < PATIENCE && progress_at.elapsed() < PROGRESS {
            let dirty = server.status().await?.dirty_pages * page;
            if dirty < DIRTY_BYTES_MIN {
                return Ok(true);
            }
            if dirty < least {
                (least, progress_at) = (dirty, Instant::now());
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(false)
    }

    /// Puts the settings back.
    pub(crate) async fn end(&mut self, server: &mut Server) -> Result<(), AdapterError> {
        while let Some((name, value)) = self.0.last() {
            server.set(name, value).await?;
            self.0.pop();
        }
        Ok(())
    }
}
