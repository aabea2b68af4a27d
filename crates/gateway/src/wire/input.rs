//! The client's bytes, cut into messages. Memory grows with the bytes that have arrived, never with
//! what a length field claims.

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::{
    limits::{INPUT_KEEP_BYTES, READ_AHEAD_BYTES_MAX, READ_BYTES},
    sqlstate::Fault,
};

/// Reads from a socket.
#[derive(Debug)]
pub(crate) struct Input<R> {
    socket: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Input<R> {
    pub(crate) fn new(socket: R) -> Self {
        Self {
            socket,
            buffer: BytesMut::new(),
        }
    }

    /// One of which this was read ahead.
    pub(crate) fn with(socket: R, ahead: &[u8]) -> Self {
        Self {
            socket,
            buffer: BytesMut::from(ahead),
        }
    }

    /// Whether there are bytes that belong to no message taken so far.
    pub(crate) fn has_bytes(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Whether the next message has arrived, at least its first byte, and is of this type.
    pub(crate) fn comes_next(&self, kind: u8) -> bool {
        self.buffer.first() == Some(&kind)
    }

    /// Whether the next message has arrived as a whole.
    pub(crate) fn has_message(&self) -> bool {
        self.arrived().is_some()
    }

    /// The type of the next message and the length of its body, if it has arrived as a whole.
    pub(crate) fn arrived(&self) -> Option<(u8, usize)> {
        let (&[kind, ref length @ ..], _) = self.buffer.split_first_chunk::<5>()?;
        let length = u32::from_be_bytes(*length) as usize;
        (self.buffer.len() > length).then_some((kind, length.checked_sub(4)?))
    }

    /// Takes a message that has arrived. Returns its body.
    pub(crate) fn take(&mut self, length: usize) -> Bytes {
        self.take_header();
        self.cut(length)
    }

    /// Takes bytes that have arrived. A long message's memory goes with them.
    fn cut(&mut self, bytes: usize) -> Bytes {
        let cut = self.buffer.split_to(bytes).freeze();
        if bytes > INPUT_KEEP_BYTES {
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        cut
    }

    /// Frees memory while the client rests, perhaps for long: an empty buffer needs room for only
    /// one read.
    pub(crate) fn rest(&mut self) {
        if self.buffer.is_empty() && self.buffer.capacity() > READ_BYTES {
            self.buffer = BytesMut::new();
        }
    }

    pub(crate) fn into_socket(self) -> R {
        self.socket
    }

    /// The socket, and what was read of it and belongs to no message taken so far.
    pub(crate) fn into_parts(self) -> (R, BytesMut) {
        (self.socket, self.buffer)
    }

    /// Reads what the socket has. This may be dropped while it waits.
    async fn fill(&mut self) -> Result<(), Fault> {
        self.buffer.reserve(READ_BYTES);
        match self.socket.read_buf(&mut self.buffer).await {
            Ok(0) | Err(_) => Err(Fault::Gone),
            Ok(_) => Ok(()),
        }
    }

    async fn need(&mut self, bytes: usize) -> Result<(), Fault> {
        while self.buffer.len() < bytes {
            self.fill().await?;
        }
        Ok(())
    }

    /// The next message's type and the length of its body. They stay in the buffer until they are
    /// taken. This may be dropped while it waits.
    ///
    /// An impossible length ends the connection, because the following messages cannot be found.
    pub(crate) async fn header(&mut self) -> Result<(u8, usize), Fault> {
        self.need(5).await?;
        let kind = self.buffer[0];
        let length = i32::from_be_bytes([
            self.buffer[1],
            self.buffer[2],
            self.buffer[3],
            self.buffer[4],
        ]);
        let body = length
            .checked_sub(4)
            .and_then(|body| usize::try_from(body).ok());
        let body = body.ok_or_else(|| Fault::protocol("invalid message length"))?;
        Ok((kind, body))
    }

    pub(crate) fn take_header(&mut self) {
        self.buffer.advance(5);
    }

    /// The length of an untyped startup packet's body.
    pub(crate) async fn startup_length(&mut self) -> Result<usize, Fault> {
        self.need(4).await?;
        let length = self.buffer.get_i32();
        length
            .checked_sub(4)
            .and_then(|body| usize::try_from(body).ok())
            .ok_or_else(startup_length)
    }

    /// Takes the whole body, once it has arrived.
    pub(crate) async fn body(&mut self, bytes: usize) -> Result<Bytes, Fault> {
        self.need(bytes).await?;
        Ok(self.cut(bytes))
    }

    /// A piece of a body, of which `left` bytes have not been taken.
    pub(crate) async fn piece(&mut self, left: &mut usize) -> Result<Bytes, Fault> {
        assert!(*left > 0, "a piece is waited for while bytes are to come");
        if self.buffer.is_empty() {
            self.fill().await?;
        }
        let taken = self.buffer.len().min(*left).min(READ_BYTES);
        *left -= taken;
        Ok(self.buffer.split_to(taken).freeze())
    }

    /// Discards a body.
    pub(crate) async fn discard(&mut self, mut left: usize) -> Result<(), Fault> {
        while left > 0 {
            self.piece(&mut left).await?;
        }
        Ok(())
    }

    /// Waits until the client has left. It reads ahead up to a limit; beyond that it notices
    /// nothing until the buffer is taken. This may be dropped while it waits.
    pub(crate) async fn gone(&mut self) {
        while self.buffer.len() < READ_AHEAD_BYTES_MAX {
            if self.fill().await.is_err() {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

pub(crate) fn startup_length() -> Fault {
    Fault::protocol("invalid length of startup packet")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_memory_of_a_long_message_goes_with_it() {
        let long = 8 * INPUT_KEEP_BYTES;
        let mut bytes = vec![b'x'; long];
        bytes.extend_from_slice(b"the next");
        let mut input = Input::new(&bytes[..]);
        let body = input.body(long).await.unwrap();
        assert_eq!(body.len(), long);
        drop(body);
        assert_eq!(input.body(8).await.unwrap(), b"the next"[..]);
        input.rest();
        assert!(!input.buffer.try_reclaim(INPUT_KEEP_BYTES + READ_BYTES));
    }
}
