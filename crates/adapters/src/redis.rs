//! Redis and Valkey: `maxmemory`, moved while the server runs.
//!
//! ```text
//!  less:  CONFIG SET maxmemory ─► evicts, ~130 MB/s ─► MEMORY PURGE ─► the kernel counts less
//!           ▲                                                            │ not enough
//!           └─────────── lower, never under half of the target ◄────────┘
//! ```
//!
//! * A server that evicts nothing (`noeviction`) gives only memory that it does not use, and
//!   keeps a part of that: at its limit it refuses writes.
//! * Evicted values leave holes in the allocator's pages. After an eviction of random values of 1 kB from
//!   331 to 210 MB the kernel still counted 330; values of 16 kB and more have pages of their own. Hence
//!   the rounds, and the defragmentation where the server has one.
//! * The adapter does not know which keys are read again. It takes keys that were evicted and reads
//!   that found nothing for the sign that memory is missing.

mod connection;
mod demand;
mod info;

use std::time::{Duration, Instant};

use aerostat_broker::{
    kernel,
    ledger::{Owner, Process},
};
use aerostat_types::ByteSize;
use tokio::time::sleep;

use self::{connection::Connection, demand::Load, info::Info};
use crate::{
    drive::{Aim, Program},
    error::{AdapterError, OptionsError},
    options::{Address, Common, Options},
    proxy::View,
    rate::Rate,
    scale::Scale,
};

/// The least `maxmemory` that the adapter sets: buffers of connections count, too.
const MAXMEMORY_BYTES_MIN: u64 = 16 << 20;

/// The cost of a read that finds nothing, if it is not given: a query to the database behind a cache.
const MISS_MS: f64 = 1.0;

/// How often a target is tried, with a lower `maxmemory` each time.
const ROUNDS_MAX: usize = 3;

/// How long an eviction is waited for after it has last made progress.
const PATIENCE: Duration = Duration::from_secs(2);

/// How fast it evicts, in bytes a second.
const GIVES_BYTES_PER_S: u64 = 130 << 20;

/// How a Redis or Valkey server is reached.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// Where it listens.
    pub address: Address,
    /// The user to connect as, if the server has users.
    pub user: Option<String>,
    /// The password, if one is needed.
    pub password: Option<String>,
    /// The server's process, if it is not the number that the server says itself.
    pub pid: Option<u32>,
    /// Milliseconds that a read costs that finds nothing; 1 if not given.
    pub miss_ms: Option<f64>,
}

impl RedisOptions {
    pub(crate) fn take(options: &mut Options) -> Result<RedisOptions, OptionsError> {
        Ok(RedisOptions {
            address: options.take_address(6379)?,
            user: options.take("user"),
            password: options.take_password()?,
            pid: options.take_parsed("pid")?,
            miss_ms: options.take_ms("miss_ms")?,
        })
    }
}

/// A server that is connected.
pub(crate) struct Redis {
    common: Common,
    options: RedisOptions,
    process: Process,
    connection: Connection,
    scale: Scale,
    evictions: Rate,
    misses: Rate,
}

pub(crate) async fn connect(common: &Common, options: RedisOptions) -> Result<Redis, AdapterError> {
    let mut connection = Connection::open(&options).await?;
    let info = connection.info().await?;
    let pid = options.pid.unwrap_or(info.pid);
    let process = kernel::process(pid).ok_or(AdapterError::NoProcess)?;
    let owner = Owner {
        process: Some(process),
        cgroup: None,
    };
    let account = crate::proxy::account(&owner).ok_or(AdapterError::NoProcess)?;
    // The same value again changes nothing, and shows whether the adapter may set it.
    connection.set_maxmemory(info.maxmemory).await?;
    Ok(Redis {
        common: common.clone(),
        options,
        process,
        connection,
        scale: scale(account, &info),
        evictions: Rate::default(),
        misses: Rate::default(),
    })
}

/// All that the kernel counts beyond the values is overhead: the allocator's holes, too.
fn scale(account: u64, info: &Info) -> Scale {
    Scale::known(account.saturating_sub(info.used), 1.0)
}

impl Redis {
    /// The least `maxmemory` for a server, on its way to a target. A server whose allocator has more
    /// holes than values keeps half of the target for values: to evict more of them would free little,
    /// and the holes would be taken for overhead again.
    fn least(&self, info: &Info, target: u64) -> u64 {
        let least = match info.may_evict {
            true => target / 2,
            false => info.with_headroom(),
        };
        least.max(MAXMEMORY_BYTES_MIN)
    }

    /// The most `maxmemory` that this adapter sets.
    fn most(&self, info: &Info) -> u64 {
        match self.common.ceiling {
            Some(ceiling) => self.scale.to_adjustable(ceiling),
            None => info.memory_of_machine,
        }
    }

    /// Sets a limit and waits until the server is below it, or evicts no more.
    async fn evict(&mut self, maxmemory: u64, aim: Aim<'_>) -> Result<Info, AdapterError> {
        self.connection.set_maxmemory(maxmemory).await?;
        let mut info = self.connection.info().await?;
        let (mut least, mut progress_at) = (info.used, Instant::now());
        while info.used > maxmemory && !aim.is_outdated() && progress_at.elapsed() < PATIENCE {
            sleep(Duration::from_millis(50)).await;
            info = self.connection.info().await?;
            if info.used < least {
                (least, progress_at) = (info.used, Instant::now());
            }
        }
        self.connection.purge().await?;
        Ok(info)
    }

    /// Evicts until the kernel counts no more than the target, if a few rounds suffice for that; the
    /// limit that the server has then.
    async fn shrink(&mut self, first: u64, aim: Aim<'_>) -> Result<u64, AdapterError> {
        let mut limit = first;
        for _ in 0..ROUNDS_MAX {
            let info = self.evict(limit, aim).await?;
            if aim.settled(Duration::from_millis(500)).await || aim.is_outdated() {
                break;
            }
            let excess = aim.account().saturating_sub(aim.target);
            let least = self.least(&info, aim.target);
            let next = limit.min(info.used).saturating_sub(excess).max(least);
            if next >= limit {
                break;
            }
            limit = next;
        }
        Ok(limit)
    }
}

impl Program for Redis {
    const KIND: &'static str = "redis";

    fn owner(&self) -> Owner {
        Owner {
            process: Some(self.process),
            cgroup: None,
        }
    }

    async fn connect(&mut self) -> Result<(), AdapterError> {
        self.connection = Connection::open(&self.options).await?;
        Ok(())
    }

    async fn look(&mut self, account: u64) -> Result<View, AdapterError> {
        let info = self.connection.info().await?;
        let now = Instant::now();
        self.evictions.observe(info.evicted_keys, now);
        self.misses.observe(info.misses, now);
        // A server without a limit is taken to be at its limit, until a broker tells it another one.
        let limit = match info.maxmemory {
            0 => info.used,
            maxmemory => maxmemory,
        };
        self.scale = scale(account, &info);
        let load = Load {
            used: info.used,
            limit,
            most: self.most(&info),
            may_evict: info.may_evict,
            evictions_per_s: self.evictions.per_s(),
            misses_per_s: self.misses.per_s(),
            miss_ms: self.options.miss_ms.unwrap_or(MISS_MS),
        };
        let floor = self.scale.to_account(self.least(&info, 0));
        let most = self.scale.to_account(self.most(&info));
        let (floor, ceiling) = self.common.limits(floor, most);
        Ok(View {
            floor,
            ceiling,
            limit: self.scale.to_account(limit),
            gives_bytes_per_s: Some(GIVES_BYTES_PER_S),
            is_fixed: false,
            demand: Some(load.demand(self.scale)),
        })
    }

    async fn approach(&mut self, aim: Aim<'_>) -> Result<u64, AdapterError> {
        let info = self.connection.info().await?;
        self.scale = scale(aim.account(), &info);
        let asked = self.scale.to_adjustable(aim.target);
        let (least, most) = (self.least(&info, aim.target), self.most(&info));
        let goal = asked.clamp(least.min(most), most);
        let is_above = aim.account() > aim.target;
        let limit = match is_above || goal < info.used {
            true => {
                self.connection.defragment(true).await?;
                let limit = self.shrink(goal, aim).await;
                self.connection.defragment(false).await?;
                limit?
            }
            false => {
                self.connection.set_maxmemory(goal).await?;
                goal
            }
        };
        tracing::info!(
            target = %ByteSize(aim.target),
            maxmemory = %ByteSize(limit),
            "maxmemory follows a target"
        );
        // It promises the target, or more where it cannot go as low.
        Ok(match goal > asked {
            true => self.scale.to_account(limit).max(aim.target),
            false => aim.target,
        })
    }
}
