//! The main loop: one message after another until the client leaves.

use std::{pin::pin, sync::Arc};

use tokio::{
    io::AsyncWriteExt,
    time::{timeout, timeout_at},
};

use super::{Connection, IdleEnd, Message, shutting_down};
use crate::{
    api::BackendSession,
    limits::FAREWELL_TIMEOUT,
    orders::End,
    sqlstate::{Fault, WireError},
    stream::{Reader, Writer},
    wire::{Input, Output, utf8},
};

/// How serving a client has ended.
pub(crate) enum Served {
    /// One of the two is gone.
    Over,
    /// Its session goes on at another node.
    Leaves(Leaving),
}

impl Served {
    /// The client, if its session goes on at another node.
    pub(crate) fn leaving(self) -> Option<Leaving> {
        match self {
            Served::Leaves(leaving) => Some(leaving),
            Served::Over => None,
        }
    }
}

/// A client whose session goes on at another node. It is in no transaction, and was told everything.
pub(crate) struct Leaving {
    /// What that node needs.
    pub(crate) state: Vec<u8>,
    /// Begins with the next message.
    pub(crate) input: Input<Reader>,
    pub(crate) socket: Writer,
}

impl<S: BackendSession> Connection<S> {
    /// Serves the client until it leaves, breaks the protocol, or the node stops; or until its session is to go to another
    /// node. `is_new`: the client waits to be told that it may send something.
    pub(crate) async fn serve(mut self, is_new: bool) -> Served {
        if is_new {
            self.ready();
        } else {
            self.rests = true;
            self.follow_encoding();
            self.idle_end = self.session.idle_limit().map(IdleEnd::after);
        }
        let ended = self.run().await;
        let Self {
            session,
            portals,
            mut socket,
            mut output,
            signals,
            ..
        } = self;
        // Other sessions may wait for what the session holds, and need not wait for its client to
        // read.
        drop(session);
        drop(portals);
        match ended {
            Ok(Some(state)) => {
                let input = signals.input;
                return Served::Leaves(Leaving {
                    state,
                    input,
                    socket,
                });
            }
            Err(Fault::Fatal(error)) => farewell(&mut socket, &mut output, &error).await,
            _ => {}
        }
        let _ = timeout(FAREWELL_TIMEOUT, socket.shutdown()).await;
        Served::Over
    }

    /// What another node needs to go on with the session, if it is to go and can.
    fn leave(&mut self) -> Option<Vec<u8>> {
        if !self.rests || self.stays || !self.signals.orders.leaves() {
            return None;
        }
        assert!(
            self.output.bytes.is_empty(),
            "a client that was told everything has been told it"
        );
        let unnamed = self.unnamed.as_ref().map(|unnamed| &unnamed.kept);
        let state = self.session.leave(unnamed);
        self.stays = state.is_none();
        state
    }

    /// What another node needs to go on with the session, where it is to go.
    async fn run(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        self.flush().await?;
        loop {
            if let Some(state) = self.leave() {
                return Ok(Some(state));
            }
            if self.signals.orders.is(End::Stopping) {
                return Err(Fault::Fatal(shutting_down()));
            }
            // If several messages have arrived together, there is a wait for the first alone.
            let message = match self.arrived() {
                Some(message) => {
                    // Short statements never wait for anything; without this a client that pipelines
                    // them would have the thread to itself for as long as its bytes last.
                    tokio::task::consume_budget().await;
                    message
                }
                None => match self.next_message_in_time().await? {
                    Some(message) => message,
                    None => continue,
                },
            };
            self.idle_end = None;
            (self.rests, self.stays) = (false, false);
            if message.kind == b'X' {
                return Ok(None);
            }
            if self.skipping && message.kind != b'S' {
                continue;
            }
            let message = match self.output.charset {
                None => message,
                Some(charset) => match message.decoded(charset) {
                    Ok(message) => message,
                    Err((kind, error)) => {
                        self.refuse_text(kind, &error).await?;
                        continue;
                    }
                },
            };
            // These run nothing and wait for nothing, so they need no future.
            let handled = match message.kind {
                b'B' => self.bind(&message.body),
                b'D' => self.describe(&message.body),
                b'C' => self.close(&message.body),
                _ => {
                    self.signals.orders.begin();
                    let handled = self.handle(message).await;
                    self.signals.orders.finish();
                    handled?;
                    continue;
                }
            };
            if handled.is_err() || self.is_full() {
                self.settle(handled).await?;
            }
        }
    }

    /// Waits for the next message as long as the client may be idle.
    async fn next_message_in_time(&mut self) -> Result<Option<Message<S>>, Fault> {
        match self.idle_end {
            None => self.next_message().await,
            Some(end) => timeout_at(end.at, self.next_message())
                .await
                .unwrap_or_else(|_| Err(end.fault())),
        }
    }

    /// Waits for the next message; `None` if the session is to go to another node before that.
    async fn next_message(&mut self) -> Result<Option<Message<S>>, Fault> {
        self.signals.input.rest();
        loop {
            let signals = &mut self.signals;
            // Outside of the extended protocol no output is left unsent here.
            tokio::select! {
                biased;
                header = signals.input.header() => {
                    header?;
                    break;
                }
                () = signals.orders.told(End::Stopping) => return Err(Fault::Fatal(shutting_down())),
                () = signals.orders.told_leave(), if self.rests && !self.stays => return Ok(None),
                () = self.session.notified(), if self.rests => {}
            }
            self.notifications();
            self.flush().await?;
        }
        if self.signals.input.has_message() {
            return self.receive().await.map(Some);
        }
        let orders = Arc::clone(&self.signals.orders);
        tokio::select! {
            biased;
            message = self.receive() => message.map(Some),
            () = orders.told(End::Killed) => Err(Fault::Fatal(shutting_down())),
        }
    }

    async fn handle(&mut self, message: Message<S>) -> Result<(), Fault> {
        let Message {
            kind,
            body,
            // Held until the message has been handled.
            held: _held,
        } = message;
        let handled = match kind {
            b'Q' => return self.handle_query(&body).await,
            b'P' => self.parse(&body).await,
            b'E' => self.execute(&body).await,
            b'H' => return self.flush().await,
            b'S' => {
                self.skipping = false;
                let ended = self.signals.engine(pin!(self.session.end_group())).await;
                match ended {
                    Err(Fault::Sql(error)) => self.report(&error),
                    ended => ended?,
                }
                self.ready();
                return self.flush().await;
            }
            b'F' => {
                let error = WireError::new(
                    aerostat_types::ErrorKind::FeatureNotSupported,
                    "the function call protocol is not supported",
                );
                self.report(&error);
                self.ready();
                return self.flush().await;
            }
            b'p' => return Err(Fault::protocol("a password message outside authentication")),
            // COPY data after a failed COPY, and messages that have already been refused.
            _ => return Ok(()),
        };
        self.settle(handled).await
    }

    /// Answers a message with a text that is not valid in the client's encoding.
    async fn refuse_text(&mut self, kind: u8, error: &WireError) -> Result<(), Fault> {
        self.report(error);
        match kind {
            b'Q' => self.ready(),
            _ => self.skipping = true,
        }
        self.flush().await
    }

    /// Finishes the handling of a message of the extended protocol.
    async fn settle(&mut self, handled: Result<(), Fault>) -> Result<(), Fault> {
        match handled {
            Err(Fault::Sql(error)) => {
                self.report(&error);
                self.skipping = true;
                self.flush().await
            }
            other => {
                other?;
                self.flush_when_full().await.or_else(|fault| match fault {
                    // The statement that these rows come from has already ended.
                    Fault::Sql(_) => Ok(()),
                    fault => Err(fault),
                })
            }
        }
    }

    async fn handle_query(&mut self, body: &[u8]) -> Result<(), Fault> {
        let Some((&0, text)) = body.split_last() else {
            return Err(Fault::protocol("invalid string in message"));
        };
        let result = match utf8(text) {
            Ok(text) => self.query(text).await,
            Err(error) => Err(Fault::Sql(error)),
        };
        match result {
            Err(Fault::Sql(error)) => self.report(&error),
            other => other?,
        }
        self.ready();
        self.flush().await
    }
}

/// Tells the client why the connection ends, if the client still listens.
async fn farewell(socket: &mut Writer, output: &mut Output, error: &WireError) {
    output.error(error, true);
    let _ = timeout(FAREWELL_TIMEOUT, async {
        socket.write_all(&output.bytes).await?;
        socket.flush().await
    })
    .await;
}
