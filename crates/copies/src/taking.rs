//! The receiving end of a connection: packets for one copy, in the turns of the thread that reads them.
//!
//! ```text
//!  a copy    threads of connections    what a leader sends, whatever it leads to
//!  a leader  a thread of sessions      what members answer, on which sessions wait: nobody else is woken for that
//! ```
//!
//! A thread of sessions takes answers alone: nothing that waits for anybody. A connection changes its thread when
//! its copy begins to lead, or follows again.

use std::{io, sync::Arc};

use aerostat_replication::Member;
use tokio::{io::BufReader, net::TcpStream, runtime::Handle, sync::Semaphore, task::JoinSet};

use crate::{
    inbox::{Inbox, Takes},
    peers::frame,
    wire::{self, FRAME_BYTES_MAX},
};

/// What may wait in an inbox for its driver, of one connection.
const INBOX_BYTES: usize = 4 << 20;

/// What a connection reads at once, or a packet that is larger.
const READ_BYTES: usize = 8 << 10;

/// A connection that has said who it is of.
pub(crate) struct Taking {
    stream: BufReader<TcpStream>,
    from: Member,
    inbox: Inbox,
    places: Arc<Semaphore>,
}

impl Taking {
    pub(crate) fn new(stream: TcpStream, from: Member, inbox: Inbox) -> Taking {
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
                    let leaves = Leaves::new(taking)?;
                    there.spawn_on(answers(leaves), sessions);
                    match there.join_next().await {
                        Some(ended) => ended.map_err(io::Error::other)??.map(Leaves::arrives),
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
        while let Some((content, crc)) = frame(&mut self.stream, FRAME_BYTES_MAX).await? {
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
        Ok(None)
    }

    /// Whether nothing was read that is not taken.
    fn is_at_rest(&self) -> bool {
        self.stream.buffer().is_empty()
    }
}

async fn answers(leaves: Leaves) -> io::Result<Option<Leaves>> {
    let left = leaves.arrives()?.take(Takes::Answers, true).await?;
    left.map(Leaves::new).transpose()
}

/// A connection that belongs to no thread.
struct Leaves {
    stream: std::net::TcpStream,
    from: Member,
    inbox: Inbox,
    places: Arc<Semaphore>,
}

impl Leaves {
    /// Of one at rest.
    fn new(taking: Taking) -> io::Result<Leaves> {
        debug_assert!(taking.is_at_rest());
        Ok(Leaves {
            stream: taking.stream.into_inner().into_std()?,
            from: taking.from,
            inbox: taking.inbox,
            places: taking.places,
        })
    }

    /// It belongs to the thread that calls this.
    fn arrives(self) -> io::Result<Taking> {
        Ok(Taking {
            stream: BufReader::with_capacity(READ_BYTES, TcpStream::from_std(self.stream)?),
            from: self.from,
            inbox: self.inbox,
            places: self.places,
        })
    }
}
