//! The receiving end of a connection: packets for one copy, in the turns of the thread that reads them.
//!
//! ```text
//!  a copy    threads of connections    what a leader sends, whatever it leads to
//!  a leader  a thread of sessions      what members answer, on which sessions wait: nobody else is woken for that
//! ```
//!
//! A thread of sessions takes answers alone: nothing that waits for anybody. A connection changes its thread when
//! its copy begins to lead, or follows again.

use std::{io, pin::pin, sync::Arc};

use aerostat_replication::Member;
use aerostat_transport::{Parked, Stream};
use tokio::{io::BufReader, runtime::Handle, sync::Semaphore, task::JoinSet};

use crate::{
    inbox::{Inbox, Takes},
    peers::frame,
    wire::{self, FRAME_BYTES_MAX},
};

/// What may wait in an inbox for its driver, of one connection.
const INBOX_BYTES: usize = 4 << 20;

/// What a connection reads at once, or a packet that is larger.
const READ_BYTES: usize = 8 << 10;

/// A connection that has said who it is of, and belongs to a thread, or to none on its way to another.
pub(crate) struct Taking<S = BufReader<Stream>> {
    stream: S,
    from: Member,
    inbox: Inbox,
    places: Arc<Semaphore>,
}

impl Taking {
    pub(crate) fn new(stream: Stream, from: Member, inbox: Inbox) -> Taking {
        Taking {
            // A small packet is one call of the system.
            stream: BufReader::with_capacity(READ_BYTES, stream),
            from,
            inbox,
            places: Arc::new(Semaphore::new(INBOX_BYTES)),
        }
    }

    /// Takes packets until the connection ends, here and on a thread of sessions, if there is one.
    pub(crate) async fn run(self, sessions: Option<&Handle>) -> io::Result<()> {
        let mut next = Some(self);
        while let Some(taking) = next {
            next = match sessions.filter(|_| taking.is_at_rest() && taking.inbox.leads()) {
                None => taking.take(Takes::All, sessions.is_some()).await?,
                Some(sessions) => {
                    // With this, that ends too.
                    let mut there = JoinSet::new();
                    let leaves = taking.leaves()?;
                    there.spawn_on(answers(leaves), sessions);
                    match there.join_next().await {
                        Some(ended) => ended.map_err(io::Error::other)??.map(Taking::arrives),
                        None => None,
                    }
                    .transpose()?
                }
            };
        }
        Ok(())
    }

    /// Takes packets until the connection ends, or somebody else is to.
    async fn take(mut self, takes: Takes, may_leave: bool) -> io::Result<Option<Taking>> {
        let inbox = self.inbox.clone();
        // Whoever sends is to dial again for the copy's next process, and not to find out by what is lost.
        let mut closed = pin!(inbox.await_closed());
        loop {
            let framed = tokio::select! {
                biased;
                framed = frame(&mut self.stream, FRAME_BYTES_MAX) => framed?,
                () = &mut closed => None,
            };
            let Some((content, crc)) = framed else {
                return Ok(None);
            };
            let packet = wire::packet(&content, crc).map_err(io::Error::other)?;
            if packet.from != self.from {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let bytes = u32::try_from(content.len().min(INBOX_BYTES)).unwrap_or(u32::MAX);
            let place = Arc::clone(&self.places).acquire_many_owned(bytes).await;
            if !self.inbox.receive(packet, takes, place.ok()) {
                return Ok(None);
            }
            let is_elsewhere = self.inbox.leads() != (takes == Takes::Answers);
            if may_leave && is_elsewhere && self.is_at_rest() {
                return Ok(Some(self));
            }
        }
    }

    /// Whether nothing was read that is not taken.
    fn is_at_rest(&self) -> bool {
        self.stream.buffer().is_empty()
    }

    /// At rest.
    fn leaves(self) -> io::Result<Taking<Parked>> {
        debug_assert!(self.is_at_rest());
        let stream = self.stream.into_inner().park()?;
        Ok(Taking {
            stream,
            from: self.from,
            inbox: self.inbox,
            places: self.places,
        })
    }
}

impl Taking<Parked> {
    /// It belongs to the thread that calls this.
    fn arrives(self) -> io::Result<Taking> {
        let stream = self.stream.resume()?;
        Ok(Taking {
            stream: BufReader::with_capacity(READ_BYTES, stream),
            from: self.from,
            inbox: self.inbox,
            places: self.places,
        })
    }
}

async fn answers(leaves: Taking<Parked>) -> io::Result<Option<Taking<Parked>>> {
    let left = leaves.arrives()?.take(Takes::Answers, true).await?;
    left.map(Taking::leaves).transpose()
}
