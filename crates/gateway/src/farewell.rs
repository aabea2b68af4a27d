//! Sessions that go from a node to another, by the node that their clients have connected to.
//!
//! ```text
//!  client's node                                    node that led
//!    ◄── LEAVES, what the session has ───────────────  between two transactions
//!    ─── no more ────────────────────────────────────►
//!    ◄── REST, what came of the client and was not looked at
//!                                                   node that leads
//!    ─── introduction: resumes ──────────────────────►
//!    ◄── HERE ───────────────────────────────────────
//!    ─── what the session has ───────────────────────►
//!    ◄── GOES_ON, its key ───────────────────────────
//!    ─── the rest, and what the client has sent since ►
//! ```
//!
//! Nothing is lost or said twice: whatever the node that led had not looked at comes back, in order.

use std::io;

use aerostat_transport::Stream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

use crate::{
    connection::Leaving,
    stream::{Reader, Writer},
    wire::Input,
};

/// The type of a message with which a node gives a session away. The protocol has none of this type.
pub(crate) const LEAVES: u8 = 0;

/// The type of the one behind it.
const REST: u8 = 1;

/// What a node answers that goes on with a session.
const GOES_ON: u8 = b'R';

/// What it answers that does not; an error for the client follows.
pub(crate) const REFUSED: u8 = b'E';

/// The most that a session may have, and that may come back.
const BYTES_MAX: usize = 64 << 20;

/// Gives a session away that another node's client has, to that node.
///
/// # Errors
/// The node is gone.
pub(crate) async fn give_away(leaving: Leaving) -> io::Result<()> {
    let Leaving {
        state,
        input,
        mut socket,
    } = leaving;
    put(&mut socket, LEAVES, &state).await?;
    socket.flush().await?;
    let rest = to_the_end(input).await?;
    put(&mut socket, REST, &rest).await?;
    socket.shutdown().await
}

/// Everything that comes until there is no more.
async fn to_the_end(input: Input<Reader>) -> io::Result<Vec<u8>> {
    let (mut reader, ahead) = input.into_parts();
    let mut rest = ahead.to_vec();
    loop {
        if rest.len() > BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if reader.read_buf(&mut rest).await? == 0 {
            return Ok(rest);
        }
    }
}

/// What a node gives away that has begun with these bytes: what the session has, and what came of its client and was
/// not looked at.
///
/// # Errors
/// The node is gone, or says something else.
pub(crate) async fn take_over(
    begun: Vec<u8>,
    from: &mut ReadHalf<Stream>,
    to: &mut WriteHalf<Stream>,
) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut from = (&begun[..]).chain(from);
    let state = get(&mut from, LEAVES).await?;
    to.shutdown().await?;
    let rest = get(&mut from, REST).await?;
    Ok((state, rest))
}

/// Has a node go on with a session; the key that it has there, or `None` where the node refuses, which it tells the
/// client.
///
/// # Errors
/// The node is gone.
pub(crate) async fn hand_on(stream: &mut Stream, state: &[u8]) -> io::Result<Option<(i32, i32)>> {
    put(stream, LEAVES, state).await?;
    match stream.read_u8().await? {
        GOES_ON => Ok(Some((stream.read_i32().await?, stream.read_i32().await?))),
        REFUSED => Ok(None),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// What a session has that is to go on here.
///
/// # Errors
/// The node is gone, or says something else.
pub(crate) async fn take_up(input: &mut Input<Reader>) -> io::Result<Vec<u8>> {
    let gone = |_| io::Error::from(io::ErrorKind::UnexpectedEof);
    let head = input.body(5).await.map_err(gone)?;
    let length = length_of(&head, LEAVES)?;
    Ok(input.body(length).await.map_err(gone)?.to_vec())
}

/// Says that a session goes on here, and by which key.
///
/// # Errors
/// The node is gone.
pub(crate) async fn go_on(socket: &mut Writer, (pid, secret): (i32, i32)) -> io::Result<()> {
    let mut said = vec![GOES_ON];
    said.extend_from_slice(&pid.to_be_bytes());
    said.extend_from_slice(&secret.to_be_bytes());
    socket.write_all(&said).await?;
    socket.flush().await
}

async fn put(to: &mut (impl AsyncWrite + Unpin), kind: u8, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut head = vec![kind];
    head.extend_from_slice(&length.to_be_bytes());
    to.write_all(&head).await?;
    to.write_all(body).await?;
    to.flush().await
}

async fn get(from: &mut (impl AsyncRead + Unpin), kind: u8) -> io::Result<Vec<u8>> {
    let mut head = [0; 5];
    from.read_exact(&mut head).await?;
    let mut body = Vec::new();
    let length = length_of(&head, kind)?;
    // Memory grows with what has come.
    from.take(length as u64).read_to_end(&mut body).await?;
    match body.len() == length {
        true => Ok(body),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn length_of(head: &[u8], expected: u8) -> io::Result<usize> {
    let odd = || io::Error::from(io::ErrorKind::InvalidData);
    let &[kind, a, b, c, d] = head else {
        return Err(odd());
    };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    match kind == expected && length <= BYTES_MAX {
        true => Ok(length),
        false => Err(odd()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_message_arrives_or_is_an_error() {
        let mut bytes = Vec::new();
        put(&mut bytes, LEAVES, b"settings").await.unwrap();
        put(&mut bytes, REST, b"").await.unwrap();
        let mut from = &bytes[..];
        assert_eq!(get(&mut from, LEAVES).await.unwrap(), b"settings");
        assert_eq!(get(&mut from, REST).await.unwrap(), b"");
        assert!(get(&mut from, REST).await.is_err(), "there is no more");
        for cut in 0..12 {
            assert!(get(&mut &bytes[..cut], LEAVES).await.is_err(), "{cut}");
        }
        assert!(get(&mut &bytes[..], REST).await.is_err(), "another kind");
        // A length that nobody sends takes no memory.
        let long = [&[LEAVES][..], &u32::MAX.to_be_bytes()].concat();
        assert!(get(&mut &long[..], LEAVES).await.is_err());
        let short = [&[LEAVES][..], &50_000_000_u32.to_be_bytes(), b"abc"].concat();
        assert!(get(&mut &short[..], LEAVES).await.is_err());
    }
}
