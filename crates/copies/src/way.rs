//! A way to a node: what its socket takes is written at once by whoever sends, the rest by a task.
//!
//! ```text
//!  driver ── send ──► frames ──► the socket takes it: gone before send returns
//!                        └─────► it does not, or is not there: a task dials, waits, and writes
//! ```
//!
//! A connection that the other end has closed is left as soon as that is heard, so that what is sent next is not lost.
//! What waits when a connection ends is dropped: the machine takes a packet that is lost for what it is.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use aerostat_transport::{Peer, Sender, Transport, ended};
use tokio::{
    io::AsyncWriteExt,
    sync::Notify,
    time::{Instant, sleep, timeout},
};

use crate::{
    inbox::Inbox,
    peers::{SILENCE, give_up_in_silence},
};

/// What may wait to be sent to a node.
pub(crate) const ROOM_BYTES: usize = 4 << 20;

/// Frames that are written by one call.
const SLICES_MAX: usize = 16;

/// How soon a node that did not answer is dialled again; twice as late each time, up to the second, where it answers and
/// ends the connection: a handshake costs both ends more than a packet.
const REDIAL: Duration = Duration::from_millis(100);
const REDIAL_MAX: Duration = Duration::from_secs(1);

/// A way to a node.
pub(crate) struct Way {
    sending: Mutex<Sending>,
    /// Something waits, or nothing will come any more.
    more: Notify,
}

#[derive(Default)]
struct Sending {
    sender: Option<Sender>,
    frames: VecDeque<Vec<u8>>,
    /// How much of the first has gone.
    gone: usize,
    /// What waits.
    bytes: usize,
    is_over: bool,
}

/// What has become of what waited.
enum Written {
    All,
    /// The socket takes no more now.
    Some,
}

impl Way {
    pub(crate) fn new() -> Arc<Way> {
        Arc::new(Way {
            sending: Mutex::default(),
            more: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Sending> {
        // Nobody leaves it half changed.
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many bytes may wait beyond those that do.
    pub(crate) fn room(&self) -> usize {
        ROOM_BYTES.saturating_sub(self.lock().bytes)
    }

    /// Sends a frame, now or when the socket takes it.
    pub(crate) fn send(&self, frame: Vec<u8>) {
        let mut sending = self.lock();
        let waited = !sending.frames.is_empty();
        sending.bytes += frame.len();
        sending.frames.push_back(frame);
        // Behind what waits already it is the task's.
        let is_gone = !waited && matches!(sending.write(), Ok(Written::All));
        drop(sending);
        if !is_gone {
            self.more.notify_one();
        }
    }

    /// Nobody sends any more.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.more.notify_one();
    }

    /// Whether nothing waits, and something may come.
    fn is_idle(&self) -> bool {
        let sending = self.lock();
        sending.frames.is_empty() && !sending.is_over
    }

    /// Dials, and writes what waits, until nobody sends any more. `greeting` says who dials, in what the node speaks by
    /// then; `peer` where it is, if that is known.
    pub(crate) async fn keep(
        self: Arc<Self>,
        peer: impl Fn() -> Option<Peer> + Send,
        transport: Transport,
        greeting: impl Fn() -> Vec<u8> + Send,
        inbox: Option<Inbox>,
    ) {
        let mut pause = REDIAL;
        loop {
            while self.is_idle() {
                self.more.notified().await;
            }
            if self.lock().is_over {
                return;
            }
            let began = Instant::now();
            if let Some(peer) = peer()
                && let Err(error) = self.serve((&transport, &peer), &greeting(), &inbox).await
            {
                let is_old = began.elapsed() >= REDIAL_MAX;
                if !(is_old && error.kind() == io::ErrorKind::UnexpectedEof) {
                    tracing::debug!(node = peer.name, %error, "a node does not answer");
                }
                if is_old {
                    // It has answered: it is dialled as soon as there is something to say.
                    self.lock().drop_all();
                    pause = REDIAL;
                    continue;
                }
                let is_refused =
                    transport.is_secured() && error.kind() != io::ErrorKind::ConnectionRefused;
                pause = match is_refused {
                    true => (pause * 2).min(REDIAL_MAX),
                    false => REDIAL,
                };
            }
            let is_over = {
                let mut sending = self.lock();
                sending.drop_all();
                sending.is_over
            };
            if is_over {
                return;
            }
            sleep(pause).await;
            self.lock().drop_all();
        }
    }

    /// One connection, until it ends or nobody sends any more.
    async fn serve(
        &self,
        (transport, peer): (&Transport, &Peer),
        greeting: &[u8],
        inbox: &Option<Inbox>,
    ) -> io::Result<()> {
        let mut stream = timeout(SILENCE, transport.dial(peer)).await??;
        give_up_in_silence(&stream)?;
        timeout(SILENCE, stream.write_all(greeting)).await??;
        let sender = stream.into_sender()?;
        let socket = Arc::clone(sender.socket());
        self.lock().sender = Some(sender);
        loop {
            let (written, before, after, is_over) = {
                let mut sending = self.lock();
                if sending.sender.is_none() {
                    // Whoever sent has found it broken.
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                let before = sending.bytes;
                let written = sending.write()?;
                (written, before, sending.bytes, sending.is_over)
            };
            if before > ROOM_BYTES / 2
                && after <= ROOM_BYTES / 2
                && let Some(inbox) = inbox
            {
                inbox.wake();
            }
            match written {
                Written::All if is_over => return Ok(()),
                Written::All => tokio::select! {
                    biased;
                    error = ended(&socket) => return Err(error),
                    () = self.more.notified() => {}
                },
                Written::Some => timeout(SILENCE, socket.writable()).await??,
            }
        }
    }
}

impl Sending {
    /// Writes as much as the socket takes.
    fn write(&mut self) -> io::Result<Written> {
        while !self.frames.is_empty() {
            let Some(sender) = &mut self.sender else {
                return Ok(Written::Some);
            };
            let first = self.frames.iter().take(1).map(|frame| &frame[self.gone..]);
            let others = self.frames.iter().skip(1).map(|frame| &frame[..]);
            let slices: Vec<IoSlice<'_>> = first
                .chain(others)
                .take(SLICES_MAX)
                .map(IoSlice::new)
                .collect();
            match sender.try_write(&slices) {
                Ok(0) => return self.fail(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.advance(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Written::Some);
                }
                Err(error) => return self.fail(error),
            }
        }
        match self.sender.as_mut().map(Sender::try_flush) {
            Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(Written::Some),
            Some(Err(error)) => self.fail(error),
            Some(Ok(())) | None => Ok(Written::All),
        }
    }

    fn fail(&mut self, error: io::Error) -> io::Result<Written> {
        self.sender = None;
        Err(error)
    }

    fn advance(&mut self, mut bytes: usize) {
        self.bytes -= bytes;
        while bytes > 0 {
            let left = self.frames[0].len() - self.gone;
            if bytes < left {
                self.gone += bytes;
                return;
            }
            bytes -= left;
            self.gone = 0;
            self.frames.pop_front();
        }
    }

    /// The connection is no more, and with it what waited.
    fn drop_all(&mut self) {
        self.sender = None;
        self.frames.clear();
        (self.gone, self.bytes) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncReadExt, net::TcpListener};

    use super::*;

    /// A copy that is another process now: what is sent to it next arrives there.
    #[tokio::test]
    async fn nothing_is_lost_to_a_connection_that_the_other_end_has_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = Peer {
            name: "b".to_owned(),
            address: listener.local_addr().unwrap(),
        };
        let way = Way::new();
        let kept = Arc::clone(&way).keep(
            move || Some(peer.clone()),
            Transport::plain(),
            || b"greeting".to_vec(),
            None,
        );
        tokio::spawn(kept);
        let mut taken = Vec::new();
        for number in 0..3_u8 {
            way.send(vec![number; 4]);
            let (mut stream, _) = timeout(REDIAL / 2, listener.accept())
                .await
                .expect("it is dialled at once")
                .unwrap();
            let mut read = [0; 12];
            stream.read_exact(&mut read).await.unwrap();
            taken.push(read[8..].to_vec());
            sleep(REDIAL_MAX + REDIAL).await;
            // Also where it ends with a reset.
            if number == 1 {
                stream.set_zero_linger().unwrap();
            }
            drop(stream);
            sleep(REDIAL).await;
        }
        assert_eq!(taken, [[0; 4], [1; 4], [2; 4]]);
        way.end();
    }
}
