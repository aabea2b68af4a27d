//! MariaDB and MySQL: the buffer pool of InnoDB, moved online.
//!
//! ```text
//!  shrink:  flush dirty pages ─► SET GLOBAL innodb_buffer_pool_size ─► read back ─► pause ─► next step
//!  grow:    SET once; the pages are touched when they are used
//! ```
//!
//! * A `SET` holds up the server's work while it withdraws pages: 4 GiB less in one step stalled
//!   statements for 943 ms, steps of 256 MiB for 132 ms. Hence the steps, with pauses under load.
//! * While the server writes, a step waits for dirty pages: 17 s in one step, 4 s after a flush.
//! * A `SET` is never interrupted, since it is all or nothing. The size is read back afterwards, since the
//!   server clamps it.
//! * The buffer pool cannot grow beyond `innodb_buffer_pool_size_max` where the server has that
//!   setting. MariaDB 10.11 takes it from its size at the start unless it is given.
//!
//! The adapter's user needs the privilege to set global variables: `SUPER`, or in MySQL 8
//! `SYSTEM_VARIABLES_ADMIN`. With `PROCESS` and `SELECT` on all tables it also knows how much data there is.

mod demand;
mod flush;
mod history;
mod plan;
mod server;

use std::time::{Duration, Instant};

use aerostat_broker::{
    kernel,
    ledger::{Owner, Process},
};
use tokio::time::sleep;

use self::{
    demand::Load,
    flush::Flush,
    history::History,
    plan::Limits,
    server::{Server, Status},
};
use crate::{
    drive::{Aim, Program},
    error::AdapterError,
    options::{Address, Common, Options},
    proxy::View,
    rate::Rate,
    scale::Scale,
};
use aerostat_types::ByteSize;

/// The least buffer pool that the adapter sets by itself. The server's own least size is 6 MiB, with
/// which it hardly works.
const POOL_BYTES_MIN: u64 = 64 << 20;

/// The cost of a page that must be read, if it is not given: a read from a flash disk.
const MISS_MS: f64 = 0.2;

/// The pause after each 256 MiB while there is load.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_BYTES: f64 = (256 << 20) as f64;

/// More reads of pages in a second than this are load.
const LOAD_PER_S: f64 = 1_000.0;

/// Less than this is taken without a flush ahead of it, which takes a second at least.
const FLUSH_FROM_BYTES: u64 = 64 << 20;

/// After how long the size of the data is asked again that was refused.
const REFUSED_DATA_EVERY: Duration = Duration::from_secs(300);

/// How often a target is tried, with a better estimate of the overhead each time. The server's
/// allocator kept up to 40 MB for each cycle of sizes.
const ROUNDS_MAX: usize = 3;

/// How fast the buffer pool shrinks, in bytes a second: 3 GiB in 3.4 s under load.
const GIVES_BYTES_PER_S: u64 = 900 << 20;

/// How a MariaDB or MySQL server is reached.
#[derive(Clone, Debug)]
pub struct MariaDbOptions {
    /// Where it listens.
    pub address: Address,
    /// The user to connect as; `root` if it is not given.
    pub user: Option<String>,
    /// The password, if one is needed.
    pub password: Option<String>,
    /// The server's process, if it cannot be told from its socket or its file with the process's number.
    pub pid: Option<u32>,
    /// Milliseconds that a statement waits for a page that is not in the buffer pool; 0.2 if not given.
    pub miss_ms: Option<f64>,
}

impl MariaDbOptions {
    pub(crate) fn take(
        options: &mut Options,
    ) -> Result<MariaDbOptions, crate::error::OptionsError> {
        Ok(MariaDbOptions {
            address: options.take_address(3306)?,
            user: options.take("user"),
            password: options.take_password()?,
            pid: options.take_parsed("pid")?,
            miss_ms: options.take_ms("miss_ms")?,
        })
    }
}

/// A server that is connected.
pub(crate) struct MariaDb {
    common: Common,
    options: MariaDbOptions,
    process: Process,
    server: Server,
    limits: Limits,
    scale: Scale,
    /// Settings that have to be put back.
    flush: Flush,
    history: History,
    misses: Rate,
    requests: Rate,
    waits: Rate,
    /// The size of the data, and when it is asked again.
    data: Option<(u64, Instant)>,
}

pub(crate) async fn connect(
    common: &Common,
    options: MariaDbOptions,
) -> Result<MariaDb, AdapterError> {
    let mut server = Server::connect(&options).await?;
    let pid = match options.pid {
        Some(pid) => pid,
        None => server.pid(&options.address).await?,
    };
    let process = kernel::process(pid).ok_or(AdapterError::NoProcess)?;
    let owner = Owner {
        process: Some(process),
        cgroup: None,
    };
    let limits = server.limits(common.ceiling).await?;
    let status = server.status().await?;
    let account = crate::proxy::account(&owner).ok_or(AdapterError::NoProcess)?;
    let size = server.size().await?;
    // The same value again changes nothing, and shows whether the adapter may set it.
    server.set_size(size).await?;
    Ok(MariaDb {
        scale: Scale::new(account, status.bytes_in_use(limits.page), size),
        common: common.clone(),
        options,
        process,
        server,
        limits,
        flush: Flush::default(),
        history: History::new(limits.most),
        misses: Rate::default(),
        requests: Rate::default(),
        waits: Rate::default(),
        data: None,
    })
}

impl MariaDb {
    /// The least size of the buffer pool.
    fn least(&self) -> u64 {
        let least = match self.common.floor {
            Some(floor) => self.scale.to_adjustable(floor),
            None => POOL_BYTES_MIN,
        };
        self.limits.round_down(least).max(self.limits.unit)
    }

    async fn data_bytes(&mut self) -> u64 {
        if let Some((bytes, again_at)) = self.data
            && Instant::now() < again_at
        {
            return bytes;
        }
        let (bytes, again_in) = match self.server.data_bytes().await {
            Ok(told) => told,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, "cannot tell how much data there is");
                (0, REFUSED_DATA_EVERY)
            }
        };
        self.data = Some((bytes, Instant::now() + again_in));
        bytes
    }

    fn observe(&mut self, status: &Status) {
        let now = Instant::now();
        self.misses.observe(status.misses, now);
        self.requests.observe(status.requests, now);
        self.waits.observe(status.waits, now);
    }

    /// Shrinks in steps; the size that the server has then.
    async fn shrink(
        &mut self,
        from: u64,
        to: u64,
        is_clean: bool,
        aim: Aim<'_>,
    ) -> Result<u64, AdapterError> {
        let mut size = from;
        for step in self.limits.steps(from, to, is_clean) {
            if aim.is_outdated() {
                break;
            }
            let before = size;
            size = self.server.set_size(step).await?;
            aim.allow(self.scale.to_account(size));
            if size > step {
                // The server does not go lower.
                break;
            }
            if self.requests.per_s() > LOAD_PER_S {
                let share = before.saturating_sub(size) as f64 / PAUSE_BYTES;
                sleep(PAUSE.mul_f64(share)).await;
            }
        }
        Ok(size)
    }

    /// Shrinks without waiting for dirty pages in each step.
    async fn shrink_flushed(
        &mut self,
        from: u64,
        to: u64,
        aim: Aim<'_>,
    ) -> Result<u64, AdapterError> {
        if from - to < FLUSH_FROM_BYTES {
            return self.shrink(from, to, false, aim).await;
        }
        let began = self.flush.begin(&mut self.server, self.limits.page).await;
        let shrunk = match began {
            Ok(is_clean) => self.shrink(from, to, is_clean, aim).await,
            Err(error) => Err(error),
        };
        self.flush.end(&mut self.server).await?;
        shrunk
    }
}

impl Program for MariaDb {
    const KIND: &'static str = "mariadb";

    fn owner(&self) -> Owner {
        Owner {
            process: Some(self.process),
            cgroup: None,
        }
    }

    async fn connect(&mut self) -> Result<(), AdapterError> {
        self.server = Server::connect(&self.options).await?;
        // A connection that broke within a flush left settings behind.
        self.flush.end(&mut self.server).await
    }

    async fn look(&mut self, account: u64) -> Result<View, AdapterError> {
        let status = self.server.status().await?;
        let size = self.server.size().await?;
        self.observe(&status);
        let in_use = status.bytes_in_use(self.limits.page);
        self.scale.observe(account, in_use, size);
        let load = Load {
            size,
            in_use,
            free: status.free_pages * self.limits.page,
            kept_free: self.limits.kept_free,
            data: self.data_bytes().await,
            most: self.limits.most,
            misses_per_s: self.misses.per_s(),
            requests_per_s: self.requests.per_s(),
            miss_ms: self.options.miss_ms.unwrap_or(MISS_MS),
            is_stalled: self.waits.per_s() > 1.0,
        };
        let now = Instant::now();
        if load.is_full() && load.requests_per_s > 0.0 {
            let share = load.misses_per_s / load.requests_per_s;
            self.history.observe(size, share, now);
        }
        let floor = self.scale.to_account(self.least());
        let (floor, ceiling) = self
            .common
            .limits(floor, self.scale.to_account(self.limits.most));
        Ok(View {
            floor,
            ceiling,
            limit: self.scale.to_account(size),
            gives_bytes_per_s: Some(GIVES_BYTES_PER_S),
            is_fixed: false,
            demand: Some(load.demand(self.scale, &self.history, now)),
        })
    }

    async fn approach(&mut self, aim: Aim<'_>) -> Result<u64, AdapterError> {
        let mut size = self.server.size().await?;
        for _ in 0..ROUNDS_MAX {
            let asked = self.scale.to_adjustable(aim.target);
            let goal = self.limits.goal(asked, self.least());
            if goal >= size {
                if goal > size {
                    size = self.server.set_size(goal).await?;
                }
                break;
            }
            size = self.shrink_flushed(size, goal, aim).await?;
            if size > goal || aim.settled(Duration::from_millis(500)).await {
                break;
            }
            // The rest of the kernel's count is overhead, or memory that the server's allocator keeps.
            let in_use = self.server.status().await?.bytes_in_use(self.limits.page);
            self.scale.observe(aim.account(), in_use, size);
        }
        let limit = self.scale.to_account(size);
        tracing::info!(
            target = %ByteSize(aim.target),
            size = %ByteSize(size),
            "the buffer pool follows a target"
        );
        // It promises the target, or more where it cannot go as low.
        Ok(
            match self.limits.round_down(self.scale.to_adjustable(aim.target)) < size {
                true => limit.max(aim.target),
                false => aim.target,
            },
        )
    }
}
