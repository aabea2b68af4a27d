//! One client's connection after it has been let in: messages in, results out.
//!
//! ```text
//!             ┌──────────── Input: bytes read ahead, ≤ 256 KiB while a statement runs
//!  socket ────┤
//!             └──────────── Output: bytes gathered, written from 64 KiB on
//!
//!  idle ──Query──► running ──► ReadyForQuery ──► idle
//!  idle ──Parse/Bind/Describe/Execute/Close──► … ──Sync──► ReadyForQuery ──► idle
//!                          └─ error: skip until Sync
//! ```
//!
//! Whatever waits (the engine, a write, COPY data) waits together with three
//! other things: the client's disconnect, a cancel request, and the node's
//! shutdown. So a statement ends in time also while its rows are being sent.

mod copy;
mod extended;
mod lifecycle;
mod portal;
mod simple;

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
};

use aerostat_types::{Charset, ErrorKind};
use bytes::Bytes;
use tokio::{
    io::AsyncWriteExt,
    time::{Instant, timeout},
};

use crate::{
    api::{BackendSession, Canceller, IdleLimit},
    limits::{ABANDON_TIMEOUT, CHARGED_BYTES_MIN, DISCARD_TIMEOUT, FLUSH_BYTES, OUTPUT_KEEP_BYTES},
    orders::{End, Orders},
    sqlstate::{Fault, WireError},
    stream::{Reader, Writer},
    value::Zone,
    wire::{Input, Output, decoded_body, message_limit},
};
use portal::{Portals, Unnamed};

/// What a connection listens to while it works.
pub(crate) struct Signals {
    pub(crate) input: Input<Reader>,
    pub(crate) orders: Arc<Orders>,
    pub(crate) cancel_engine: Canceller,
}

/// Why waiting ended early.
#[derive(Debug)]
enum Early {
    Gone,
    Cancelled,
    Killed,
}

impl Orders {
    /// Why waiting must end, if it must.
    fn is_early(&self) -> Option<Early> {
        match (self.is(End::Killed), self.is_cancelled()) {
            (true, _) => Some(Early::Killed),
            (false, true) => Some(Early::Cancelled),
            (false, false) => None,
        }
    }

    /// Waits for a cancel request, or until the connection must end.
    async fn early(&self) -> Early {
        poll_fn(|context| self.poll(context, Self::is_early)).await
    }
}

impl Signals {
    /// Waits for a disconnect, a cancel request, or until the connection must end.
    async fn early(&mut self) -> Early {
        tokio::select! {
            biased;
            early = self.orders.early() => early,
            () = self.input.gone() => Early::Gone,
        }
    }

    fn fault(&self, early: &Early) -> Fault {
        match early {
            Early::Gone => Fault::Gone,
            Early::Cancelled => Fault::Sql(cancelled()),
            Early::Killed => Fault::Fatal(shutting_down()),
        }
    }

    /// Runs work that can be dropped at any point; a cancel request drops it.
    async fn droppable<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Fault> {
        let mut work = std::pin::pin!(work);
        let early = if let Some(early) = self.orders.is_early() {
            early
        } else if let Poll::Ready(done) = futures::poll!(work.as_mut()) {
            // Mostly it is there, and nobody need listen.
            return Ok(done);
        } else {
            tokio::select! {
                biased;
                early = self.early() => early,
                done = work => return Ok(done),
            }
        };
        if !matches!(early, Early::Cancelled) {
            (self.cancel_engine)();
        }
        Err(self.fault(&early))
    }

    /// Runs the engine's work, which ends by itself soon after it is cancelled and is not
    /// dropped before. It stays where its caller has made it: to move it takes longer than a short
    /// statement's own work.
    async fn engine<T>(
        &mut self,
        mut work: Pin<&mut impl Future<Output = Result<T, aerostat_types::SqlError>>>,
    ) -> Result<T, Fault> {
        let early = tokio::select! {
            biased;
            done = &mut work => return Ok(done?),
            early = self.early() => early,
        };
        // The registry has told the engine of a cancel request, but perhaps before this work
        // began: the work has been polled by now, so telling it again cannot be too early.
        (self.cancel_engine)();
        if matches!(early, Early::Cancelled) {
            return self.must_end(work.as_mut()).await;
        }
        let _ = timeout(ABANDON_TIMEOUT, work).await;
        Err(self.fault(&early))
    }
}

impl Signals {
    /// Waits for cancelled work to end. The client or the node may still go meanwhile.
    async fn must_end<T>(
        &mut self,
        mut work: Pin<&mut impl Future<Output = Result<T, aerostat_types::SqlError>>>,
    ) -> Result<T, Fault> {
        let early = tokio::select! {
            biased;
            done = &mut work => return Ok(done?),
            () = self.orders.told(End::Killed) => Early::Killed,
            () = self.input.gone() => Early::Gone,
        };
        let _ = timeout(ABANDON_TIMEOUT, work).await;
        Err(self.fault(&early))
    }
}

fn cancelled() -> WireError {
    WireError::new(
        ErrorKind::QueryCanceled,
        "canceling statement due to user request",
    )
}

pub(crate) fn shutting_down() -> WireError {
    WireError::new(
        ErrorKind::AdminShutdown,
        "terminating connection due to administrator command",
    )
}

/// A connection that has been let in.
pub(crate) struct Connection<S: BackendSession> {
    session: S,
    signals: Signals,
    socket: Writer,
    output: Output,
    unnamed: Option<Unnamed<S>>,
    portals: Portals<S>,
    /// An extended-protocol error was reported: nothing is done until Sync.
    skipping: bool,
    /// The client was told that it may send its next statements, has sent none since, and is in
    /// no transaction.
    rests: bool,
    /// What the long row in the output is charged as.
    row_held: Option<S::Held>,
    /// When the client has been idle for too long, if it sends nothing until then.
    idle_end: Option<IdleEnd>,
}

/// The end of a client's time to be idle.
#[derive(Clone, Copy)]
struct IdleEnd {
    at: Instant,
    in_transaction: bool,
}

impl IdleEnd {
    fn after(limit: IdleLimit) -> Self {
        Self {
            at: Instant::now() + limit.timeout,
            in_transaction: limit.in_transaction,
        }
    }

    fn fault(self) -> Fault {
        Fault::Fatal(match self.in_transaction {
            true => WireError::new(
                ErrorKind::IdleInTransactionTimeout,
                "terminating connection due to idle-in-transaction timeout",
            ),
            false => WireError::new(
                ErrorKind::IdleSessionTimeout,
                "terminating connection due to idle-session timeout",
            ),
        })
    }
}

/// A message, with what a long one is charged as.
struct Message<S: BackendSession> {
    kind: u8,
    body: Bytes,
    held: Option<S::Held>,
}

impl<S: BackendSession> Message<S> {
    /// The same with its texts as the server's; or its kind, and why they cannot be.
    fn decoded(self, charset: &Charset) -> Result<Self, (u8, WireError)> {
        if self.body.is_ascii() {
            return Ok(self);
        }
        match decoded_body(self.kind, &self.body, charset) {
            Ok(Some(body)) => Ok(Self { body, ..self }),
            Ok(None) => Ok(self),
            Err(error) => Err((self.kind, error)),
        }
    }

    /// One of which nothing is to be done any more.
    fn done(kind: u8) -> Self {
        Self {
            kind,
            body: Bytes::new(),
            held: None,
        }
    }
}

impl<S: BackendSession> Connection<S> {
    fn zone(&mut self) -> Zone {
        self.session.client_settings().zone
    }

    /// Writes what has been gathered. Cancelling does not stop it: the client must get whole messages.
    async fn flush(&mut self) -> Result<(), Fault> {
        self.write_out(false).await
    }

    /// Writes once enough has been gathered, lets a cancel request through, and then the other
    /// connections of this thread: a client that reads as fast as we write would keep them waiting.
    async fn flush_when_full(&mut self) -> Result<(), Fault> {
        if self.is_full() {
            self.write_out(true).await?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Whether enough has been gathered to be written.
    fn is_full(&self) -> bool {
        self.output.bytes.len() >= FLUSH_BYTES
    }

    async fn write_out(&mut self, cancellable: bool) -> Result<(), Fault> {
        let mut sent = 0;
        while sent < self.output.bytes.len() {
            let signals = &mut self.signals;
            let early = tokio::select! {
                biased;
                written = self.socket.write(&self.output.bytes[sent..]) => {
                    match written {
                        Ok(count @ 1..) => {
                            sent += count;
                            continue;
                        }
                        Ok(0) | Err(_) => Early::Gone,
                    }
                }
                () = signals.orders.told(End::Killed) => Early::Killed,
                () = signals.orders.cancelled(), if cancellable => Early::Cancelled,
                () = signals.input.gone() => Early::Gone,
            };
            if !matches!(early, Early::Cancelled) {
                (signals.cancel_engine)();
            }
            // What was not sent yet stays, so that messages stay whole.
            self.output.bytes.drain(..sent);
            return Err(self.signals.fault(&early));
        }
        self.output.bytes.clear();
        if self.output.bytes.capacity() > OUTPUT_KEEP_BYTES {
            self.output.bytes = Vec::new();
        }
        drop(self.row_held.take());
        self.socket.flush().await?;
        Ok(())
    }

    /// Charges a long row that has been gathered behind `start`, until it is sent. One that the
    /// tenant has no room for is taken back.
    fn charge_row(&mut self, start: usize) -> Result<(), Fault> {
        assert!(
            start <= self.output.bytes.len(),
            "a row that is charged has been gathered and not sent"
        );
        let bytes = self.output.bytes.len() - start;
        if bytes < CHARGED_BYTES_MIN {
            return Ok(());
        }
        match self.session.hold(bytes) {
            Ok(held) => {
                self.row_held = Some(held);
                Ok(())
            }
            Err(error) => {
                self.output.bytes.truncate(start);
                self.output.bytes.shrink_to(OUTPUT_KEEP_BYTES);
                Err(Fault::Sql(error.into()))
            }
        }
    }

    /// What a message of this length is charged as: nothing if it is short.
    fn charge_message(&self, length: usize) -> Result<Option<S::Held>, WireError> {
        match length < CHARGED_BYTES_MIN {
            true => Ok(None),
            false => Ok(Some(self.session.hold(length)?)),
        }
    }

    /// The next message, if it has arrived as a whole and nothing is the matter with it.
    fn arrived(&mut self) -> Option<Message<S>> {
        let (kind, length) = self.signals.input.arrived()?;
        // COPY data are not kept.
        if kind == b'd' || message_limit(kind).is_none_or(|limit| length > limit) {
            return None;
        }
        let held = self.charge_message(length).ok()?;
        let body = self.signals.input.take(length);
        Some(Message { kind, body, held })
    }

    /// The next message. Over-long ones are thrown away and answered with an error.
    async fn receive(&mut self) -> Result<Message<S>, Fault> {
        let (kind, length) = self.signals.input.header().await?;
        let Some(limit) = message_limit(kind) else {
            return Err(Fault::protocol(format!(
                "invalid frontend message type {kind}"
            )));
        };
        self.signals.input.take_header();
        if length > limit {
            let message = format!("a message of {length} bytes is too long");
            let error = WireError::new(ErrorKind::ProgramLimitExceeded, message);
            return self.refuse_message(kind, length, &error).await;
        }
        if kind == b'd' {
            // COPY data outside COPY: a COPY has failed and its client has not noticed yet.
            self.signals.input.discard(length).await?;
            return Ok(Message::done(kind));
        }
        let held = match self.charge_message(length) {
            Ok(held) => held,
            Err(error) => return self.refuse_message(kind, length, &error).await,
        };
        let body = self.signals.input.body(length).await?;
        Ok(Message { kind, body, held })
    }

    async fn refuse_message(
        &mut self,
        kind: u8,
        length: usize,
        error: &WireError,
    ) -> Result<Message<S>, Fault> {
        let discarded = timeout(DISCARD_TIMEOUT, self.signals.input.discard(length)).await;
        discarded
            .map_err(|_| Fault::protocol("a message is too long and was not sent in time"))??;
        if !self.skipping {
            self.report(error);
            // The sender of a Query waits for ReadyForQuery, the sender of others for its Sync.
            if matches!(kind, b'Q' | b'F') {
                self.ready();
            } else {
                self.skipping = true;
            }
            self.flush().await?;
        }
        Ok(Message::done(0))
    }

    /// Gathers an error, after the notices that came before it, and lets the session know.
    fn report(&mut self, error: &WireError) {
        self.session.fail();
        self.notices();
        tracing::debug!(code = error.code(), message = %error.error.message, "statement failed");
        self.output.error(error, false);
    }

    /// Texts are in the encoding that the client wants from now on.
    fn follow_encoding(&mut self) {
        self.output.charset = self.session.client_settings().charset;
    }

    fn notices(&mut self) {
        for notice in self.session.take_notices() {
            self.output.notice(&notice);
        }
    }

    /// Gathers what others have said.
    fn notifications(&mut self) {
        for notification in self.session.take_notifications() {
            self.output.notification(&notification);
        }
    }

    /// Gathers ReadyForQuery, with what the client must know before it.
    fn ready(&mut self) {
        assert!(
            !self.skipping,
            "the client's next message is skipped, and it was told that it may send one"
        );
        self.follow_encoding();
        self.notices();
        for (name, value) in self.session.parameter_changes() {
            self.output.parameter_status(&name, &value);
        }
        let status = self.session.rest();
        self.rests = status == crate::api::TransactionStatus::Idle;
        if self.rests {
            // Portals end with their transaction.
            self.portals.clear();
            self.notifications();
        }
        self.output.ready(status);
        self.idle_end = self.session.idle_limit().map(IdleEnd::after);
    }
}

/// Puts together a connection whose client has been let in.
pub(crate) fn connection<S: BackendSession>(
    mut session: S,
    input: Input<Reader>,
    socket: Writer,
    orders: Arc<Orders>,
    output: Output,
) -> Connection<S> {
    let cancel_engine = session.canceller();
    let (stop, stop_engine) = (Arc::clone(&orders), Arc::clone(&cancel_engine));
    let cancel = move || {
        if stop.cancel() {
            stop_engine();
        }
    };
    let end = Arc::clone(&orders);
    let terminate = move || end.tell(End::Killed);
    session.set_controls(Arc::new(cancel), Arc::new(terminate));
    Connection {
        session,
        signals: Signals {
            input,
            orders,
            cancel_engine,
        },
        socket,
        output,
        unnamed: None,
        portals: Portals::default(),
        skipping: false,
        rests: false,
        idle_end: None,
        row_held: None,
    }
}
