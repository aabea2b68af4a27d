//! The leader's side of a seed: a task for each connection.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use aerostat_replication::Epoch;
use aerostat_storage::{
    CommitWatch, TenantStore, Timeline,
    seed::{Seed, SeedError},
};
use aerostat_types::{Clock, SystemClock, TenantId};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::{Begin, PART_BYTES, PaceLimits, REQUEST_BYTES_MAX, Refusal, Request, Response};
use crate::{pace::Pacer, peers::frame, wire};

/// How many copies a process gives seeds to at the same time: each has a checkpoint at its beginning, and images
/// that stay.
const SEEDS_MAX: usize = 4;

/// How long commits are looked at before anything is sent.
const LOOK: Duration = Duration::from_millis(300);

/// How often a copy that waits is told that it is waited for.
const WAIT: Duration = Duration::from_secs(1);

/// How long a copy may take to open what it has and join. Until then the leader keeps the log behind it.
const HOLD_MAX: Duration = Duration::from_secs(900);

/// How long it may take from one request to the next before that: it compares the checksums of what it has.
const THINK_MAX: Duration = Duration::from_secs(300);

/// How long a part may take to be taken.
const SILENCE: Duration = Duration::from_secs(10);

/// The tenant, if this process leads it. Asked for each seed.
pub type Leading = Arc<dyn Fn(TenantId) -> Option<Arc<TenantStore>> + Send + Sync>;

/// What a process gives seeds of.
#[derive(Clone)]
pub struct Seeds {
    leading: Leading,
    limits: PaceLimits,
    slots: Arc<Semaphore>,
}

impl Seeds {
    /// Of tenants that this process leads.
    pub fn new(leading: Leading, limits: PaceLimits) -> Seeds {
        Seeds {
            leading,
            limits,
            slots: Arc::new(Semaphore::new(SEEDS_MAX)),
        }
    }

    /// Of none.
    pub fn none() -> Seeds {
        Seeds::new(Arc::new(|_| None), PaceLimits::default())
    }
}

/// A seed that is being given.
struct Giving {
    seed: Arc<Seed>,
    pace: Pace,
    /// `None` once all is sent.
    slot: Option<OwnedSemaphorePermit>,
}

/// A pace, and what it goes by.
struct Pace {
    began: Instant,
    pacer: Pacer,
    watch: CommitWatch,
}

impl Pace {
    /// Looks at commits for a while, before a seed is begun.
    async fn of(store: &TenantStore, limits: PaceLimits) -> Pace {
        let watch = store.watch_commits();
        sleep(LOOK).await;
        let pacer = Pacer::new(limits, &watch.take().done, Duration::ZERO);
        Pace {
            began: SystemClock.now(),
            pacer,
            watch,
        }
    }

    /// How long to wait after so many bytes.
    fn sent(&mut self, bytes: usize) -> Duration {
        let now = SystemClock.now().saturating_duration_since(self.began);
        self.pacer.observe(now, &self.watch.take());
        self.pacer.sent(now, bytes as u64)
    }
}

/// Answers a copy's requests until it hangs up.
pub(crate) async fn give<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    tenant: TenantId,
    seeds: &Seeds,
) -> io::Result<()> {
    let mut giving: Option<Giving> = None;
    loop {
        let is_done = giving.as_ref().is_some_and(|giving| giving.slot.is_none());
        let at_most = if is_done { HOLD_MAX } else { THINK_MAX };
        let read = timeout(at_most, frame(&mut stream, REQUEST_BYTES_MAX)).await??;
        let Some((content, crc)) = read else {
            return Ok(());
        };
        let (request, _) = wire::decode(&content, crc).map_err(io::Error::other)?;
        let (response, bytes) = match (request, &mut giving) {
            (Request::Begin(begin), _) => {
                // The files of the one before need not stay.
                drop(giving.take());
                match begun(&mut stream, tenant, seeds, &begin).await? {
                    Ok(begun) => {
                        let manifest = begun.seed.manifest().to_vec();
                        giving = Some(begun);
                        (Response::Plan, manifest)
                    }
                    Err(refusal) => (Response::Refused(refusal), Vec::new()),
                }
            }
            (Request::Done, Some(giving)) => {
                giving.slot = None;
                continue;
            }
            (request, Some(giving)) => match part(&giving.seed, request).await {
                Ok(part) => part,
                Err(error) => (Response::Refused(error.into()), Vec::new()),
            },
            (_, None) => return Err(io::ErrorKind::InvalidData.into()),
        };
        say(&mut stream, &response, &bytes).await?;
        if let Some(giving) = &mut giving {
            sleep(giving.pace.sent(bytes.len())).await;
        }
    }
}

async fn say<S: AsyncWrite + Unpin>(
    stream: &mut S,
    response: &Response,
    bytes: &[u8],
) -> io::Result<()> {
    let frame = wire::frame(response, bytes);
    let said = async {
        stream.write_all(&frame).await?;
        stream.flush().await
    };
    timeout(SILENCE, said).await?
}

/// Begins a seed, and tells the copy meanwhile that it is to wait.
async fn begun<S: AsyncWrite + Unpin>(
    stream: &mut S,
    tenant: TenantId,
    seeds: &Seeds,
    begin: &Begin,
) -> io::Result<Result<Giving, Refusal>> {
    let Ok(slot) = Arc::clone(&seeds.slots).try_acquire_owned() else {
        return Ok(Err(Refusal::Busy));
    };
    let leading = Arc::clone(&seeds.leading);
    let of = (begin.timeline, begin.epoch);
    // Whoever knows may have to wait for a lock.
    let found = spawn_blocking(move || found(leading(tenant), of)).await;
    let store = match found.map_err(io::Error::other)? {
        Ok(store) => store,
        Err(refusal) => return Ok(Err(refusal)),
    };
    // Each pass has less to send, and is the more likely to be the last.
    let least = seeds.limits.bytes_per_s_min;
    let limits = PaceLimits {
        bytes_per_s_min: least.saturating_mul(1 << begin.pass.min(16)),
        ..seeds.limits
    };
    let pace = Pace::of(&store, limits).await;
    let mut work = spawn_blocking(move || store.seed());
    let seed = loop {
        match timeout(WAIT, &mut work).await {
            Ok(done) => break done.map_err(io::Error::other)?,
            Err(_) => say(stream, &Response::Wait, &[]).await?,
        }
    };
    Ok(match seed {
        Ok(seed) => Ok(Giving {
            seed: Arc::new(seed),
            pace,
            slot: Some(slot),
        }),
        Err(error) => Err(error.into()),
    })
}

/// The tenant, if it is what the copy asks for a seed of.
fn found(
    store: Option<Arc<TenantStore>>,
    (timeline, epoch): (Option<Timeline>, Epoch),
) -> Result<Arc<TenantStore>, Refusal> {
    let store = store.ok_or(Refusal::DoesNotLead)?;
    if timeline.is_some_and(|timeline| store.timeline() != Some(timeline)) {
        return Err(Refusal::OfAnother);
    }
    let last = store.epochs().last().map_or(Epoch(0), |start| start.0);
    match last >= epoch {
        true => Ok(store),
        false => Err(Refusal::Over(last)),
    }
}

/// Reads a part, on a thread that may wait for the disk.
async fn part(seed: &Arc<Seed>, request: Request) -> Result<(Response, Vec<u8>), SeedError> {
    let seed = Arc::clone(seed);
    let read = spawn_blocking(move || match request {
        Request::Image { name, from } => {
            let bytes = seed.read_image(&name, from, PART_BYTES)?;
            Ok((Response::Image, bytes))
        }
        Request::Log {
            file,
            from,
            bytes_max,
        } => {
            let bytes_max = usize::try_from(bytes_max).unwrap_or(PART_BYTES);
            let part = seed.read_log(file, from, bytes_max.min(PART_BYTES))?;
            let response = Response::Log {
                file_bytes: part.file_bytes,
                is_complete: part.is_complete,
                end: part.end,
            };
            Ok((response, part.bytes))
        }
        Request::Begin(_) | Request::Done => Err(SeedError::Unknown),
    });
    // It ends with the process, or panics, which has been said.
    read.await.unwrap_or(Err(SeedError::Gone))
}

impl From<SeedError> for Refusal {
    fn from(error: SeedError) -> Refusal {
        match error {
            SeedError::Gone => Refusal::Gone,
            SeedError::Unknown => Refusal::Unknown,
            error => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "no seed can be given"
                );
                Refusal::Failed(error.to_string())
            }
        }
    }
}
