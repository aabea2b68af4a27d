//! The copy's side of a seed. It blocks: most of it is writing files, on a thread that has nothing else to do.

use std::{
    io::{self, Read, Write},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use aerostat_replication::{Epoch, Member, NodeId};
use aerostat_storage::{
    Disk, MetaStore, Timeline,
    seed::{LogPart, SeedError, SeedFolder, SeedOf, Taken, WantedImage},
};
use aerostat_transport::{Blocking, Peer, Transport};
use aerostat_types::{Clock, SystemClock, TenantId};
use thiserror::Error;

use super::{Begin, PART_BYTES, Refusal, Request, Response};
use crate::{
    Greeting, Peers, WireError,
    configurations::load,
    wire::{self, FRAME_BYTES_MAX, HEAD_BYTES, Purpose},
};

/// How long a leader may take to be reached.
const DIAL_MAX: Duration = Duration::from_secs(2);

/// How long it may say nothing. It says that it is to be waited for.
const SILENCE: Duration = Duration::from_secs(10);

/// How often a seed is begun that the leader's log ran away from.
const PASSES_MAX: u32 = 8;

/// How often and how soon a leader is asked again that has not begun to lead, or has too many copies to make.
const ASKS_MAX: u32 = 20;
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// A seed that is to be fetched from a node.
#[derive(Clone)]
pub struct Fetch {
    /// Where the leader is.
    pub peer: Peer,
    /// In which version it is greeted.
    pub version: u16,
    /// How it is dialled.
    pub transport: Transport,
    /// Which node it is.
    pub to: NodeId,
    /// What is to be fetched, and for whom.
    pub need: SeedNeed,
    /// That of the configuration in which the node leads.
    pub epoch: Epoch,
}

/// A copy that is to be made.
#[derive(Clone)]
pub struct SeedNeed {
    /// What other nodes know this one by.
    pub token: Vec<u8>,
    /// The process that asks.
    pub me: Member,
    /// The tenant.
    pub tenant: TenantId,
    /// Its history; `None` where the copy is new, and takes the leader's for it.
    pub timeline: Option<Timeline>,
    /// The folder of the copy, which is replaced if it is there. Nobody may have it open when that is done.
    pub folder: PathBuf,
    /// Where the folder is.
    pub disk: Arc<dyn Disk>,
    /// Ends the transfer at the next part. What has come is gone on with another time.
    pub stop: Arc<AtomicBool>,
}

/// A copy that was made. It can be opened.
#[derive(Debug)]
pub struct Seeded {
    /// What it has.
    pub taken: Taken,
    /// Bytes of images and log that came.
    pub bytes_sent: u64,
    /// How many checkpoints it took.
    pub passes: u32,
    /// Has the leader keep the log behind it. To be kept until the copy runs and has joined, or for a while.
    pub hold: SeedHold,
}

/// Has a leader keep its log for a copy until it is dropped, and a quarter of an hour at most.
#[derive(Debug)]
pub struct SeedHold(#[expect(dead_code, reason = "it ends with the connection")] Blocking);

/// Why no seed was taken.
#[derive(Debug, Error)]
pub enum FetchError {
    /// Nobody leads whom it could come from, or this node does.
    #[error("no other node leads the database")]
    NobodyLeads,
    /// The leader's address is not known.
    #[error("the address of {0:?} is not known")]
    Unreachable(NodeId),
    /// The leader does not answer, or not any more.
    #[error("the leader does not answer")]
    Io(#[from] io::Error),
    /// What it says is damaged, or no answer.
    #[error("what the leader says cannot be read")]
    Wire(#[from] WireError),
    /// It gives none.
    #[error("the leader gives no seed")]
    Refused(#[source] Refusal),
    /// What came could not be taken.
    #[error("the seed cannot be taken")]
    Seed(#[from] SeedError),
    /// It was to end.
    #[error("it was to end")]
    Stopped,
}

impl FetchError {
    /// Whether another attempt may do better without anything having been done about it.
    pub fn is_passing(&self) -> bool {
        let is_own = |error: &SeedError| {
            matches!(
                error,
                SeedError::Gone | SeedError::Damaged { .. } | SeedError::Over { .. }
            )
        };
        match self {
            FetchError::NobodyLeads
            | FetchError::Unreachable(_)
            | FetchError::Io(_)
            | FetchError::Wire(_) => true,
            FetchError::Refused(refusal) => *refusal != Refusal::OfAnother,
            FetchError::Seed(error) => is_own(error),
            FetchError::Stopped => false,
        }
    }
}

/// Makes a copy of what the node has that leads by the newest configuration. It blocks.
///
/// # Errors
/// [`FetchError`]: the copy's folder is as it was. What has come stays beside it for another attempt.
pub fn fetch_from_leader(
    need: &SeedNeed,
    configurations: &dyn MetaStore,
    peers: &Peers,
) -> Result<Seeded, FetchError> {
    let mut asks = 0;
    loop {
        asks += 1;
        let done = fetch_once(need, configurations, peers);
        let is_soon = matches!(
            &done,
            Err(FetchError::Refused(
                Refusal::DoesNotLead | Refusal::Over(_) | Refusal::Busy
            ))
        );
        if !is_soon || asks == ASKS_MAX || need.stop.load(Ordering::Relaxed) {
            return done;
        }
        SystemClock.sleep(ASK_AGAIN);
    }
}

fn fetch_once(
    need: &SeedNeed,
    configurations: &dyn MetaStore,
    peers: &Peers,
) -> Result<Seeded, FetchError> {
    let config = load(configurations).flatten();
    let config = config.ok_or(FetchError::NobodyLeads)?;
    let to = config.leader;
    if to == need.me.node {
        return Err(FetchError::NobodyLeads);
    }
    fetch_seed(&Fetch {
        peer: (peers.address)(to).ok_or(FetchError::Unreachable(to))?,
        version: (peers.versions)(to),
        transport: peers.transport.clone(),
        to,
        need: need.clone(),
        epoch: config.epoch,
    })
}

/// As [`fetch_seed`], from a task.
///
/// # Errors
/// [`FetchError`].
pub async fn fetch(what: Fetch) -> Result<Seeded, FetchError> {
    let fetched = tokio::task::spawn_blocking(move || fetch_seed(&what)).await;
    fetched.map_err(io::Error::other)?
}

/// Makes a copy of what a node has. It blocks.
///
/// # Errors
/// [`FetchError`]: the copy's folder is as it was. What has come stays beside it for another attempt.
pub fn fetch_seed(what: &Fetch) -> Result<Seeded, FetchError> {
    let need = &what.need;
    let of = SeedOf {
        tenant: need.tenant,
        timeline: need.timeline,
        epoch: what.epoch,
    };
    // Before the leader makes a checkpoint for it.
    let mut folder = SeedFolder::begin(Arc::clone(&need.disk), &need.folder, of)?;
    let mut way = Way {
        stream: dial(what)?,
        stop: &need.stop,
        bytes: 0,
    };
    let mut passes = 0;
    loop {
        match way.pass(&mut folder, of, passes) {
            Err(FetchError::Refused(Refusal::Gone)) if passes + 1 < PASSES_MAX => passes += 1,
            done => break done?,
        }
    }
    let taken = folder.finish()?;
    way.say(&Request::Done)?;
    tracing::info!(
        tenant = %need.tenant,
        at = %taken.at,
        through = %taken.through,
        bytes = taken.bytes,
        bytes_sent = way.bytes,
        passes = passes + 1,
        "a copy was made anew"
    );
    Ok(Seeded {
        taken,
        bytes_sent: way.bytes,
        passes: passes + 1,
        hold: SeedHold(way.stream),
    })
}

fn dial(what: &Fetch) -> io::Result<Blocking> {
    let mut stream = what.transport.dial_blocking(&what.peer, DIAL_MAX)?;
    stream.set_timeouts(SILENCE)?;
    let greeting = Greeting {
        version: what.version,
        token: what.need.token.clone(),
        tenant: what.need.tenant,
        from: what.need.me,
        to: what.to,
        purpose: Purpose::Seed,
    };
    stream.write_all(&wire::of_greeting(&greeting))?;
    Ok(stream)
}

/// The way to the leader.
struct Way<'a, S> {
    stream: S,
    stop: &'a AtomicBool,
    /// What came on it of images and log.
    bytes: u64,
}

impl<S: Read + Write> Way<'_, S> {
    fn say(&mut self, request: &Request) -> Result<(), FetchError> {
        Ok(self.stream.write_all(&wire::frame(request, &[]))?)
    }

    fn ask(&mut self, request: &Request) -> Result<(Response, Vec<u8>), FetchError> {
        self.say(request)?;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(FetchError::Stopped);
            }
            match self.answer()? {
                (Response::Wait, _) => {}
                (Response::Refused(refusal), _) => return Err(FetchError::Refused(refusal)),
                answer => return Ok(answer),
            }
        }
    }

    fn answer(&mut self) -> Result<(Response, Vec<u8>), FetchError> {
        let mut head = [0; HEAD_BYTES];
        self.stream.read_exact(&mut head)?;
        let (bytes, crc) = wire::head(head, FRAME_BYTES_MAX)?;
        // It takes no more memory than has come.
        let mut content = Vec::with_capacity(bytes.min(2 * PART_BYTES));
        let read = (&mut self.stream)
            .take(bytes as u64)
            .read_to_end(&mut content)?;
        if read != bytes {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let (response, rest) = wire::decode(&content, crc)?;
        Ok((response, rest.to_vec()))
    }

    /// Takes what a checkpoint of the leader has that is not here, and the log behind it.
    fn pass(&mut self, folder: &mut SeedFolder, of: SeedOf, pass: u32) -> Result<(), FetchError> {
        let begin = Begin {
            timeline: of.timeline,
            epoch: of.epoch,
            pass,
        };
        let (Response::Plan, manifest) = self.ask(&Request::Begin(begin))? else {
            return Err(WireError::Unknown.into());
        };
        let wanted = folder.plan(&manifest)?;
        for image in &wanted {
            // So that the leader need not keep it.
            self.follow(folder)?;
            match self.image(folder, image) {
                // What a power failure has left of a part may be anything.
                Err(FetchError::Seed(SeedError::Damaged { .. })) if image.from > 0 => {
                    let image = WantedImage {
                        from: 0,
                        ..image.clone()
                    };
                    self.image(folder, &image)?;
                }
                taken => taken?,
            }
        }
        self.follow(folder)
    }

    fn image(&mut self, folder: &SeedFolder, image: &WantedImage) -> Result<(), FetchError> {
        let mut taker = folder.image(image)?;
        while !taker.is_whole() {
            let request = Request::Image {
                name: image.name.clone(),
                from: taker.at(),
            };
            let (Response::Image, bytes) = self.ask(&request)? else {
                return Err(WireError::Unknown.into());
            };
            if bytes.is_empty() {
                // The leader's own is shorter than it was.
                let (name, what) = (image.name.clone(), "the leader's is shorter than it was");
                return Err(SeedError::Damaged { name, what }.into());
            }
            self.bytes += bytes.len() as u64;
            taker.take(&bytes)?;
        }
        Ok(taker.finish()?)
    }

    /// Takes the log up to where it is written when this begins: it may be written faster than it is sent.
    fn follow(&mut self, folder: &mut SeedFolder) -> Result<(), FetchError> {
        let mut until: Option<(u64, u64)> = None;
        loop {
            let (file, from) = folder.log_position()?;
            if until.is_some_and(|until| (file, from) >= until) {
                return Ok(());
            }
            let bytes_max = match until {
                // There a record ends.
                Some(until) if until.0 == file => until.1 - from,
                _ => PART_BYTES as u64,
            };
            let request = Request::Log {
                file,
                from,
                bytes_max,
            };
            let (
                Response::Log {
                    file_bytes,
                    is_complete,
                    end,
                },
                bytes,
            ) = self.ask(&request)?
            else {
                return Err(WireError::Unknown.into());
            };
            if until.is_some() && bytes.is_empty() && !is_complete {
                // It says that there is more, and gives nothing.
                return Err(WireError::Unknown.into());
            }
            until.get_or_insert(end);
            self.bytes += bytes.len() as u64;
            folder.take_log(&LogPart {
                bytes,
                file_bytes,
                is_complete,
                end,
            })?;
        }
    }
}
