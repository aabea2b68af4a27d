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
//! Every wait (for the engine, a write, COPY data) also waits for three other things: the client's
//! disconnect, a cancel request, and the node's shutdown. So a statement ends in time even while
//! its rows are being sent.

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
    api::{BackendSession, Canceller, Controls, IdleLimit, Kept},
    limits::{ABANDON_TIMEOUT, CHARGED_BYTES_MIN, DISCARD_TIMEOUT, FLUSH_BYTES, OUTPUT_KEEP_BYTES},
    orders::{End, Orders},
    sqlstate::{Fault, WireError},
    stream::{Reader, Writer},
    value::Zone,
    wire::{Input, Output, decoded_body, message_limit},
};
pub(crate) use lifecycle::Leaving;
use portal::{Portals, Unnamed};

/// What a connection listens to while it works.
pub(crate) struct Signals {
    pub(crate) input: Input<Reader>,
    pub(crate) orders: Arc<Orders>,
    pub(crate) cancel_engine: Canceller,
}

/// Why a wait ended early.
#[derive(Debug)]
enum Early {
    Gone,
    Cancelled,
    Killed,
}

impl Orders {
    /// Why a wait must end, if it must.
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

    /// Runs work that may be dropped at any point; a cancel request drops it.
    async fn droppable<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Fault> {
        let mut work = std::pin::pin!(work);
        let early = if let Some(early) = self.orders.is_early() {
            early
        } else if let Poll::Ready(done) = futures::poll!(work.as_mut()) {
            // Mostly the result is ready, and there is no need to listen.
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

    /// Runs the engine's work. It is not dropped when it is cancelled, because it then ends by
    /// itself soon. It stays where its caller has made it: moving it takes longer than a short
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
        // The registry has told the engine of a cancel request, but perhaps before this work began.
        // The work has been polled by now, so telling the engine again is not too early.
        (self.cancel_engine)();
        if matches!(early, Early::Cancelled) {
            return self.must_end(work.as_mut()).await;
        }
        let _ = timeout(ABANDON_TIMEOUT, work).await;
        Err(self.fault(&early))
    }
}

impl Signals {
    /// Waits for cancelled work to end. The client may leave meanwhile, or the node stop.
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
    /// Whether an error of the extended protocol was reported, so that messages are skipped until
    /// Sync.
    skipping: bool,
    /// Whether the client was told that it may send its next statements, has sent none since, and
    /// is in no transaction.
    rests: bool,
    /// Whether it was to go to another node, and could not since the last message.
    stays: bool,
    /// The charge for the long row in the output.
    row_held: Option<S::Held>,
    /// When the client will have been idle for too long, unless it sends something.
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

/// A message, with the charge for a long one.
struct Message<S: BackendSession> {
    kind: u8,
    body: Bytes,
    held: Option<S::Held>,
}

impl<S: BackendSession> Message<S> {
    /// The message with its texts in the server's encoding; or its kind, and why they cannot be
    /// converted.
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

    /// A message that needs no further handling.
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

    /// Writes the gathered output. A cancel request does not stop it, because the client must get
    /// whole messages.
    async fn flush(&mut self) -> Result<(), Fault> {
        self.write_out(false).await
    }

    /// Writes the output if enough has been gathered, and then yields to a cancel request and to
    /// the other connections of this thread: a client that reads as fast as we write would keep
    /// them waiting.
    async fn flush_when_full(&mut self) -> Result<(), Fault> {
        if self.is_full() {
            self.write_out(true).await?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Whether enough output has been gathered to be written.
    fn is_full(&self) -> bool {
        self.output.bytes.len() >= FLUSH_BYTES
    }

    async fn write_out(&mut self, cancellable: bool) -> Result<(), Fault> {
        let mut sent = 0;
        let mut is_flushed = false;
        while !is_flushed {
            let signals = &mut self.signals;
            let (socket, rest) = (&mut self.socket, &self.output.bytes[sent..]);
            // Over TLS what was taken may wait for the client to read, too.
            let goes = async {
                match rest.is_empty() {
                    true => socket.flush().await.map(|()| 0),
                    false => socket.write(rest).await,
                }
            };
            let early = tokio::select! {
                biased;
                gone = goes => {
                    match gone {
                        Ok(0) if sent == self.output.bytes.len() => {
                            is_flushed = true;
                            continue;
                        }
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
            // The unsent rest stays, so that messages stay whole.
            self.output.bytes.drain(..sent);
            return Err(self.signals.fault(&early));
        }
        self.output.bytes.clear();
        if self.output.bytes.capacity() > OUTPUT_KEEP_BYTES {
            self.output.bytes = Vec::new();
        }
        drop(self.row_held.take());
        Ok(())
    }

    /// Charges a long row that has been gathered from `start` on, until it is sent. The row is
    /// removed if the tenant has no room for it.
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

    /// The charge for a message of this length; `None` for a short one.
    fn charge_message(&self, length: usize) -> Result<Option<S::Held>, WireError> {
        match length < CHARGED_BYTES_MIN {
            true => Ok(None),
            false => Ok(Some(self.session.hold(length)?)),
        }
    }

    /// The next message, if it has arrived as a whole and is neither COPY data nor to be refused.
    fn arrived(&mut self) -> Option<Message<S>> {
        let (kind, length) = self.signals.input.arrived()?;
        // COPY data are not gathered as messages.
        if kind == b'd' || message_limit(kind).is_none_or(|limit| length > limit) {
            return None;
        }
        let held = self.charge_message(length).ok()?;
        let body = self.signals.input.take(length);
        Some(Message { kind, body, held })
    }

    /// The next message. An over-long one is discarded and answered with an error.
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
            // COPY data outside of COPY: a COPY has failed and its client has not noticed yet.
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
            // After a Query or a function call the client waits for ReadyForQuery, after others it
            // sends a Sync.
            if matches!(kind, b'Q' | b'F') {
                self.ready();
            } else {
                self.skipping = true;
            }
            self.flush().await?;
        }
        Ok(Message::done(0))
    }

    /// Gathers an error, after the notices that came before it, and tells the session.
    fn report(&mut self, error: &WireError) {
        self.session.fail();
        self.notices();
        tracing::debug!(code = error.code(), message = %error.error.message, "statement failed");
        self.output.error(error, false);
    }

    /// Makes the output use the client's current encoding.
    fn follow_encoding(&mut self) {
        self.output.charset = self.session.client_settings().charset;
    }

    fn notices(&mut self) {
        for notice in self.session.take_notices() {
            self.output.notice(&notice);
        }
    }

    /// Gathers the notifications for this client.
    fn notifications(&mut self) {
        for notification in self.session.take_notifications() {
            self.output.notification(&notification);
        }
    }

    /// Gathers ReadyForQuery, after the messages that must come before it.
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

/// Makes a connection of a client that has been let in.
pub(crate) fn connection<S: BackendSession>(
    mut session: S,
    input: Input<Reader>,
    socket: Writer,
    orders: Arc<Orders>,
    output: Output,
    unnamed: Option<Kept<S::Prepared>>,
) -> Connection<S> {
    let cancel_engine = session.canceller();
    let (stop, stop_engine) = (Arc::clone(&orders), Arc::clone(&cancel_engine));
    let cancel = move || {
        stop.cancel(|| stop_engine());
    };
    let (end, leave) = (Arc::clone(&orders), Arc::clone(&orders));
    session.set_controls(Controls {
        cancel: Arc::new(cancel),
        terminate: Some(Arc::new(move || end.tell(End::Killed))),
        leave: Some(Arc::new(move || leave.tell_leave())),
    });
    Connection {
        session,
        signals: Signals {
            input,
            orders,
            cancel_engine,
        },
        socket,
        output,
        unnamed: unnamed.map(|kept| Unnamed { kept, held: None }),
        portals: Portals::default(),
        skipping: false,
        rests: false,
        stays: false,
        idle_end: None,
        row_held: None,
    }
}
