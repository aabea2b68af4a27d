//! The client of the protocol: keeps a program connected to its broker and moves its memory.
//!
//! ```text
//!  connect ─► hello ─► welcome ─┬─► heartbeat, demand   on a beat
//!     ▲                         ├─► limits              on a beat, where they have changed
//!     ▲                         ├─► target ─► set ─► progress … done
//!     └── pause, twice as long ─┴── refused, closed, silent for a lease
//! ```
//!
//! A program implements [`Participant`] and gives it to [`run`].

use std::{io, sync::Arc, time::Duration};

use tokio::{
    io::{BufReader, ReadHalf, WriteHalf},
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    endpoint::{Endpoint, Stream},
    line::{self, ReadError},
    message::{
        Demand, FromBroker, FromParticipant, Hello, Limits, Refused, RefusedCode, Report, VERSION,
        Welcome,
    },
};

/// How long a connection may take until it is welcomed.
const WELCOME_MAX: Duration = Duration::from_secs(10);

/// The pauses between two attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How often a participant that gives memory back looks, and how often it says how far it is.
const LOOK: Duration = Duration::from_millis(20);
const PROGRESS: Duration = Duration::from_millis(200);

/// How many times in a heartbeat it is looked whether the program wants another amount, and by which
/// part of that, as a divisor, it must differ to be told before the next heartbeat.
const LOOKS_IN_BEAT: u32 = 4;
const WANTED_PARTS: u64 = 16;

/// By which part, as a divisor, a limit must differ to be told on the next heartbeat, and after how long a
/// smaller difference is told: a broker writes them down.
const LIMITS_PARTS: u64 = 16;
const LIMITS_EVERY: Duration = Duration::from_secs(10);

/// Messages from a broker that have not been handled: it sends few, and waits for answers.
const MESSAGES_MAX: usize = 16;

/// A program that manages its own memory.
///
/// The methods are called one after the other, on the task of [`run`], and must not wait.
pub trait Participant: Send + Sync + 'static {
    /// What the program says of itself; `version` and `token` are [`run`]'s. It is asked again while it is
    /// connected, for its limits.
    fn hello(&self) -> Hello;

    /// Bytes that it has in use.
    fn used(&self) -> u64;

    /// Bytes that it allows itself now.
    fn target(&self) -> u64;

    /// Has it live by so many bytes. More is allowed at once; less is approached.
    fn set_target(&self, bytes: u64);

    /// Whether the target is reached, or nothing more can be given back for now.
    fn is_reached(&self) -> bool;

    /// What more or less memory would be worth, if known.
    fn demand(&self) -> Option<Demand>;

    /// Called when the connection begins or ends.
    fn connection(&self, connection: Connection<'_>);
}

/// How a participant stands with its broker.
#[derive(Clone, Copy, Debug)]
pub enum Connection<'a> {
    /// It was welcomed.
    Welcomed(&'a Welcome),
    /// It has a target of this epoch.
    Targeted {
        /// The target's.
        epoch: u64,
    },
    /// The connection ended, or there was none, for this reason.
    Lost(&'a ConnectionError),
}

/// Why a participant has no broker.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The broker cannot be reached, or the connection broke.
    #[error("cannot reach the broker")]
    Io(#[from] io::Error),
    /// The broker's message could not be read.
    #[error("the broker's message cannot be read")]
    Read(#[from] ReadError),
    /// The broker closed the connection.
    #[error("the broker closed the connection")]
    Closed,
    /// The broker said nothing for a lease.
    #[error("the broker is silent")]
    Silent,
    /// The broker did not want it.
    #[error("the broker refused: {}", .0.message)]
    Refused(Refused),
    /// The broker said something that has no place there.
    #[error("the broker's message has no place here")]
    Unexpected,
}

/// Keeps a participant connected until it is told to stop; it says goodbye then.
pub async fn run(
    participant: Arc<dyn Participant>,
    endpoint: Endpoint,
    token: Option<String>,
    stopping: CancellationToken,
) {
    let mut pause = PAUSE_MIN;
    loop {
        let entered = tokio::select! {
            entered = Link::enter(&*participant, &endpoint, token.clone()) => entered,
            () = stopping.cancelled() => return,
        };
        let error = match entered {
            Ok(link) => {
                pause = PAUSE_MIN;
                match link.serve(&*participant, &stopping).await {
                    Ok(()) => return,
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        participant.connection(Connection::Lost(&error));
        if error.is_lasting() {
            pause = PAUSE_MAX;
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = stopping.cancelled() => return,
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

impl ConnectionError {
    /// Whether trying again soon is of no use.
    fn is_lasting(&self) -> bool {
        use RefusedCode::{Denied, Full, Invalid, Version};
        match self {
            Self::Refused(refused) => matches!(refused.code, Version | Denied | Invalid | Full),
            _ => false,
        }
    }
}

/// Says hello and leaves again without a goodbye: what the broker grants whoever comes back later, for a
/// program that is to know it before it begins.
///
/// # Errors
/// [`ConnectionError`], after a wait of seconds at most.
pub async fn ask(
    hello: Hello,
    endpoint: &Endpoint,
    token: Option<String>,
) -> Result<Welcome, ConnectionError> {
    let greeted = timeout(WELCOME_MAX, greet(hello, endpoint, token)).await;
    Ok(greeted.map_err(|_| ConnectionError::Silent)??.0)
}

/// A broker's welcome, and the connection.
async fn greet(
    hello: Hello,
    endpoint: &Endpoint,
    token: Option<String>,
) -> Result<(Welcome, FromBrokerLines, WriteHalf<Box<dyn Stream>>), ConnectionError> {
    let (from_broker, mut to_broker) = tokio::io::split(endpoint.connect().await?);
    let hello = Hello {
        version: VERSION,
        token,
        ..hello
    };
    line::write(&mut to_broker, &FromParticipant::Hello(hello)).await?;
    let mut from_broker = BufReader::new(from_broker);
    let answer = line::read(&mut from_broker).await?;
    match answer.ok_or(ConnectionError::Closed)? {
        FromBroker::Welcome(welcome) => Ok((welcome, from_broker, to_broker)),
        FromBroker::Refused(refused) => Err(ConnectionError::Refused(refused)),
        FromBroker::Target(_) | FromBroker::Heartbeat => Err(ConnectionError::Unexpected),
    }
}

type FromBrokerLines = BufReader<ReadHalf<Box<dyn Stream>>>;

/// A connection that was welcomed.
struct Link {
    messages: mpsc::Receiver<Result<FromBroker, ConnectionError>>,
    to_broker: WriteHalf<Box<dyn Stream>>,
    _reader: Reader,
    heartbeat: Duration,
    lease: Duration,
    /// Of the target that was applied last.
    epoch: u64,
    /// When the broker stops waiting for the target, while it is being approached.
    giving: Option<Giving>,
    /// When the broker was heard last.
    heard: Instant,
    /// How often it was looked what the program wants.
    looks: u32,
    /// What it wanted when that was told last.
    told_wanted: u64,
    /// The limits that were told last, and when.
    told_limits: (Limits, Instant),
}

/// The task that reads from the broker; it ends with the link, and the connection with it.
struct Reader(JoinHandle<()>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A target that is being approached.
struct Giving {
    until: Instant,
    progress_at: Instant,
}

impl Link {
    async fn enter(
        participant: &dyn Participant,
        endpoint: &Endpoint,
        token: Option<String>,
    ) -> Result<Link, ConnectionError> {
        timeout(WELCOME_MAX, Self::introduce(participant, endpoint, token))
            .await
            .map_err(|_| ConnectionError::Silent)?
    }

    async fn introduce(
        participant: &dyn Participant,
        endpoint: &Endpoint,
        token: Option<String>,
    ) -> Result<Link, ConnectionError> {
        let hello = participant.hello();
        let limits = hello.limits();
        let (welcome, mut from_broker, to_broker) = greet(hello, endpoint, token).await?;
        let (sender, messages) = mpsc::channel(MESSAGES_MAX);
        let reader = tokio::spawn(async move {
            loop {
                let message = match line::read(&mut from_broker).await {
                    Ok(Some(message)) => Ok(message),
                    Ok(None) => Err(ConnectionError::Closed),
                    Err(error) => Err(error.into()),
                };
                let is_last = message.is_err();
                if sender.send(message).await.is_err() || is_last {
                    break;
                }
            }
        });
        let mut link = Link {
            messages,
            to_broker,
            _reader: Reader(reader),
            heartbeat: Duration::from_millis(welcome.heartbeat_ms.max(1)),
            lease: Duration::from_millis(welcome.lease_ms.max(1)),
            epoch: 0,
            giving: None,
            heard: Instant::now(),
            looks: 0,
            told_wanted: 0,
            told_limits: (limits, Instant::now()),
        };
        participant.connection(Connection::Welcomed(&welcome));
        // Epochs of another connection may be another broker's.
        let lease = link.lease;
        link.apply(participant, welcome.epoch, welcome.bytes, lease)
            .await?;
        Ok(link)
    }

    /// Does what the broker says, until told to stop or the connection ends.
    async fn serve(
        mut self,
        participant: &dyn Participant,
        stopping: &CancellationToken,
    ) -> Result<(), ConnectionError> {
        let mut beat = interval(self.heartbeat / LOOKS_IN_BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_giving = self.giving.is_some();
            tokio::select! {
                message = self.messages.recv() => {
                    let message = message.ok_or(ConnectionError::Closed)??;
                    self.heard = Instant::now();
                    self.handle(participant, message).await?;
                }
                _ = beat.tick() => self.beat(participant).await?,
                _ = look.tick(), if is_giving => self.look(participant).await?,
                () = stopping.cancelled() => {
                    line::write(&mut self.to_broker, &FromParticipant::Bye).await?;
                    return Ok(());
                }
            }
        }
    }

    async fn handle(
        &mut self,
        participant: &dyn Participant,
        message: FromBroker,
    ) -> Result<(), ConnectionError> {
        match message {
            FromBroker::Heartbeat => Ok(()),
            FromBroker::Refused(refused) => Err(ConnectionError::Refused(refused)),
            FromBroker::Welcome(_) => Err(ConnectionError::Unexpected),
            // An older one that was overtaken.
            FromBroker::Target(target) if target.epoch < self.epoch => Ok(()),
            FromBroker::Target(target) if target.epoch == self.epoch => {
                self.answer(participant).await
            }
            FromBroker::Target(target) => {
                let deadline = Duration::from_millis(target.deadline_ms);
                self.apply(participant, target.epoch, target.bytes, deadline)
                    .await
            }
        }
    }

    async fn apply(
        &mut self,
        participant: &dyn Participant,
        epoch: u64,
        bytes: u64,
        deadline: Duration,
    ) -> Result<(), ConnectionError> {
        participant.set_target(bytes);
        self.epoch = epoch;
        participant.connection(Connection::Targeted { epoch });
        let now = Instant::now();
        self.giving = Some(Giving {
            until: now + deadline,
            progress_at: now + PROGRESS,
        });
        self.look(participant).await
    }

    /// Says that the target is reached, when it is or the broker waits no longer.
    async fn look(&mut self, participant: &dyn Participant) -> Result<(), ConnectionError> {
        let Some(giving) = &mut self.giving else {
            return Ok(());
        };
        let now = Instant::now();
        if participant.is_reached() || now >= giving.until {
            self.giving = None;
            return self.answer(participant).await;
        }
        if now >= giving.progress_at {
            giving.progress_at = now + PROGRESS;
            return self.answer(participant).await;
        }
        Ok(())
    }

    /// Says how far the target of this epoch is.
    async fn answer(&mut self, participant: &dyn Participant) -> Result<(), ConnectionError> {
        let report = self.report(participant);
        let message = match self.giving {
            Some(_) => FromParticipant::Progress(report),
            None => FromParticipant::Done(report),
        };
        Ok(line::write(&mut self.to_broker, &message).await?)
    }

    async fn beat(&mut self, participant: &dyn Participant) -> Result<(), ConnectionError> {
        if self.heard.elapsed() > self.lease {
            return Err(ConnectionError::Silent);
        }
        let is_due = self.looks.is_multiple_of(LOOKS_IN_BEAT);
        self.looks = self.looks.wrapping_add(1);
        if is_due {
            let heartbeat = FromParticipant::Heartbeat(self.report(participant));
            line::write(&mut self.to_broker, &heartbeat).await?;
            self.tell_limits(participant).await?;
        }
        let Some(demand) = participant.demand() else {
            return Ok(());
        };
        let differs = demand.wanted.abs_diff(self.told_wanted) > self.told_wanted / WANTED_PARTS;
        if is_due || differs {
            self.told_wanted = demand.wanted;
            line::write(&mut self.to_broker, &FromParticipant::Demand(demand)).await?;
        }
        Ok(())
    }

    /// Tells the limits if they have changed.
    async fn tell_limits(&mut self, participant: &dyn Participant) -> Result<(), ConnectionError> {
        let (limits, (told, told_at)) = (participant.hello().limits(), self.told_limits);
        let is_far = |now: u64, told: u64| now.abs_diff(told) > told / LIMITS_PARTS;
        let is_urgent = limits.is_fixed != told.is_fixed
            || is_far(limits.floor, told.floor)
            || is_far(limits.ceiling, told.ceiling);
        let is_due = is_urgent || told_at.elapsed() >= LIMITS_EVERY;
        if limits == told || !is_due || limits.check().is_err() {
            return Ok(());
        }
        self.told_limits = (limits, Instant::now());
        Ok(line::write(&mut self.to_broker, &FromParticipant::Limits(limits)).await?)
    }

    fn report(&self, participant: &dyn Participant) -> Report {
        Report {
            epoch: self.epoch,
            used: participant.used(),
            target: participant.target(),
        }
    }
}

#[cfg(test)]
mod tests;
