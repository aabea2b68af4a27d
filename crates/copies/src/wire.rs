//! Packets as bytes, and the words with which a connection begins.
//!
//! ```text
//!  connection := greeting frame, packet frame*          one way: whoever dials sends
//!              | greeting frame, requests and answers   for a seed
//!  frame      := length u32 and crc u32 of the rest, length u32 of the head, head (JSON), records
//! ```
//!
//! What comes is not trusted: lengths have a limit, checksums are compared, and what a machine would panic over
//! is refused where it is decoded.

use aerostat_replication::{Member, NodeId};
use aerostat_types::TenantId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Packet, spoken::Spoken};

/// Bytes before a frame's content.
pub(crate) const HEAD_BYTES: usize = 8;

/// Bytes before the head within the content.
const LENGTH_BYTES: usize = 4;

/// The most that a frame has: a record may be as large as a segment, and goes as a whole.
pub(crate) const FRAME_BYTES_MAX: usize = 256 << 20;

/// The most that a greeting has.
pub(crate) const GREETING_BYTES_MAX: usize = 1 << 10;

/// Who sends on a connection, and to whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// The version of the frames that follow.
    pub version: u16,
    /// Proves that the sender may.
    pub token: Vec<u8>,
    /// Whose packets they are.
    pub tenant: TenantId,
    /// The process that sends.
    pub from: Member,
    /// The node that they are for.
    pub to: NodeId,
    /// What for.
    #[serde(default)]
    pub purpose: Purpose,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// Packets to a tenant's copy, one way.
    #[default]
    Packets,
    /// A seed: requests, and an answer to each (`seed`).
    Seed,
    /// A client's session: what is to be known of it, in a frame, and then the client's protocol.
    Session,
    /// That a session is to stop what it runs: its key, in a frame.
    Cancel,
}

/// Why bytes are no frame.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum WireError {
    /// It would be larger than any is.
    #[error("a frame of {bytes} bytes is larger than any")]
    TooLong {
        /// How large.
        bytes: usize,
    },
    /// Its bytes are not those that were sent.
    #[error("a frame's checksum does not match")]
    Damaged,
    /// It says what no node does.
    #[error("a frame that this version does not know")]
    Unknown,
}

/// A packet's frame.
pub(crate) fn of_packet(packet: &Packet) -> Vec<u8> {
    frame(packet, &packet.records.bytes)
}

/// A greeting's frame.
pub(crate) fn of_greeting(greeting: &Greeting) -> Vec<u8> {
    frame(greeting, &[])
}

/// A frame of a head, and what goes behind it.
pub(crate) fn frame<T: Serialize>(head: &T, records: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(512 + records.len());
    frame.resize(HEAD_BYTES + LENGTH_BYTES, 0);
    serde_json::to_writer(&mut frame, head).expect("writing to memory does not fail");
    let word = |bytes: usize| u32::try_from(bytes).expect("a frame is far smaller than 4 GiB");
    let head_length = word(frame.len() - HEAD_BYTES - LENGTH_BYTES);
    frame[HEAD_BYTES..HEAD_BYTES + LENGTH_BYTES].copy_from_slice(&head_length.to_le_bytes());
    frame.extend_from_slice(records);
    let length = word(frame.len() - HEAD_BYTES);
    let crc = crc32fast::hash(&frame[HEAD_BYTES..]);
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame[4..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
    frame
}

/// The length and checksum of a frame's content.
///
/// # Errors
/// [`WireError::TooLong`].
pub(crate) fn head(head: [u8; HEAD_BYTES], bytes_max: usize) -> Result<(usize, u32), WireError> {
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let bytes = word(0) as usize;
    match bytes <= bytes_max {
        true => Ok((bytes, word(4))),
        false => Err(WireError::TooLong { bytes }),
    }
}

/// The head, and the records behind it.
///
/// # Errors
/// [`WireError`].
pub(crate) fn decode<'a, T: Deserialize<'a>>(
    content: &'a [u8],
    crc: u32,
) -> Result<(T, &'a [u8]), WireError> {
    if crc32fast::hash(content) != crc {
        return Err(WireError::Damaged);
    }
    let (length, rest) = content
        .split_first_chunk::<LENGTH_BYTES>()
        .ok_or(WireError::Unknown)?;
    let head = rest
        .split_at_checked(u32::from_le_bytes(*length) as usize)
        .ok_or(WireError::Unknown)?;
    let decoded = serde_json::from_slice(head.0).map_err(|_| WireError::Unknown)?;
    Ok((decoded, head.1))
}

/// The packet of a frame's content.
///
/// # Errors
/// [`WireError`].
pub(crate) fn packet(content: &[u8], crc: u32) -> Result<Packet, WireError> {
    let (mut packet, records): (Packet, _) = decode(content, crc)?;
    packet.records.bytes = records.to_vec();
    match &packet.message {
        Some(message) if message.check().is_err() => Err(WireError::Unknown),
        _ => Ok(packet),
    }
}

/// The greeting of a frame's content.
///
/// # Errors
/// [`WireError`].
pub(crate) fn greeting(content: &[u8], crc: u32) -> Result<Greeting, WireError> {
    let (greeting, rest): (Greeting, _) = decode(content, crc)?;
    match Spoken::here().has(greeting.version) && rest.is_empty() {
        true => Ok(greeting),
        false => Err(WireError::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aerostat_replication::{Config, Epoch, History, Incarnation, Message, Position};
    use aerostat_storage::StreamPoint;
    use aerostat_types::CommitTs;
    use rand::{Rng, SeedableRng, rngs::StdRng};

    use super::*;
    use crate::{Records, VERSION};

    fn member(node: u32) -> Member {
        Member {
            node: NodeId(node),
            incarnation: Incarnation(7),
        }
    }

    fn packets() -> Vec<Packet> {
        let config = Config {
            epoch: Epoch(4),
            leader: NodeId(1),
            members: vec![member(1), member(2)],
        };
        let append = Message::Append {
            config,
            after: Position {
                epoch: Epoch(2),
                lsn: CommitTs(9),
            },
            through: CommitTs(12),
            starts: vec![(Epoch(4), CommitTs(10))],
            committed: CommitTs(9),
            sent: Duration::from_millis(77),
        };
        let history = History::new(
            vec![(Epoch(1), CommitTs(1)), (Epoch(4), CommitTs(8))],
            CommitTs(9),
        );
        let join = Message::Join {
            member: member(2),
            history,
        };
        [Some(append), Some(join), Some(Message::Unknown), None]
            .into_iter()
            .map(|message| Packet {
                from: member(1),
                epoch: Epoch(4),
                tenure: Epoch(2),
                durable: CommitTs(8),
                settled: CommitTs(3),
                lacking: None,
                message,
                records: Records {
                    from: StreamPoint {
                        after: CommitTs(9),
                        since: 2,
                    },
                    bytes: vec![1, 2, 3],
                },
            })
            .collect()
    }

    fn taken_apart(frame: &[u8]) -> Result<Packet, WireError> {
        let (first, content) = frame.split_first_chunk().ok_or(WireError::Unknown)?;
        let (bytes, crc) = head(*first, FRAME_BYTES_MAX)?;
        packet(content.get(..bytes).ok_or(WireError::Unknown)?, crc)
    }

    #[test]
    fn packets_come_as_they_were_sent() {
        for sent in packets() {
            assert_eq!(taken_apart(&of_packet(&sent)), Ok(sent));
        }
    }

    #[test]
    fn whatever_comes_is_an_error_or_a_packet_that_no_machine_panics_over() {
        let mut random = StdRng::seed_from_u64(5);
        for sent in packets() {
            let frame = of_packet(&sent);
            for _ in 0..20_000 {
                let mut bytes = frame.clone();
                for _ in 0..random.random_range(1..4) {
                    let at = random.random_range(HEAD_BYTES..bytes.len());
                    bytes[at] = random.random();
                }
                if random.random_bool(0.2) {
                    bytes.truncate(random.random_range(HEAD_BYTES..bytes.len()));
                }
                // With a checksum of its own.
                let length = (bytes.len() - HEAD_BYTES) as u32;
                let crc = crc32fast::hash(&bytes[HEAD_BYTES..]);
                bytes[..4].copy_from_slice(&length.to_le_bytes());
                bytes[4..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
                if let Ok(Packet {
                    message: Some(message),
                    ..
                }) = taken_apart(&bytes)
                {
                    assert_eq!(message.check(), Ok(()));
                }
            }
        }
    }

    #[test]
    fn what_is_too_long_or_damaged_is_refused_before_it_is_read() {
        let frame = of_packet(&packets()[0]);
        let mut long: [u8; HEAD_BYTES] = frame[..HEAD_BYTES].try_into().unwrap();
        long[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(
            head(long, FRAME_BYTES_MAX),
            Err(WireError::TooLong { .. })
        ));
        let mut damaged = frame.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert_eq!(taken_apart(&damaged), Err(WireError::Damaged));
        let old = Greeting {
            version: VERSION + 1,
            token: vec![1],
            tenant: TenantId(5),
            from: member(1),
            to: NodeId(2),
            purpose: Purpose::Packets,
        };
        let frame = of_greeting(&old);
        let (first, content) = frame.split_first_chunk().unwrap();
        let (_, crc) = head(*first, GREETING_BYTES_MAX).unwrap();
        assert_eq!(greeting(content, crc), Err(WireError::Unknown));
    }
}
