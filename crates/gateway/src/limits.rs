//! All limits of a connection.

use std::time::Duration;

/// How long it may take until a session goes on at another node: its database may be about to be opened there, and its
/// statements are prepared again.
pub(crate) const RESUME_MAX: Duration = Duration::from_secs(10);

/// The length of a Query, Parse or Bind message, at most. A bytea of the greatest length
/// ([`aerostat_types::VALUE_BYTES_MAX`]) takes 32 MiB in hex form, and a statement may contain
/// other values beside it.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The length of the other messages, which contain only names and passwords; as in PostgreSQL.
pub const SMALL_MESSAGE_BYTES_MAX: usize = 10_000;

/// The length of a startup packet, and of every message before the client is let in; PostgreSQL's
/// `MAX_STARTUP_PACKET_LENGTH`.
pub const STARTUP_BYTES_MAX: usize = 10_000;

/// The length of a single value from a client; a segment's slot counts lengths in 24 bits.
pub const VALUE_BYTES_MAX: usize = aerostat_types::VALUE_BYTES_MAX;

/// The length of a line or tuple of COPY data that is gathered before it is decoded.
pub const COPY_ROW_BYTES_MAX: usize = 64 << 20;

/// How many rows of a batch COPY FROM passes to the engine.
pub const COPY_BATCH_ROWS: usize = 8192;

/// How many bytes of values make a batch full before it has all its rows.
pub const COPY_BATCH_BYTES: usize = 1 << 20;

/// How many bytes are read from a socket at once, and how many of COPY data are decoded at once.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// How many bytes are read ahead while a statement runs, to notice that the client has left. A
/// client that pipelines more waits, because TCP stops it.
pub(crate) const READ_AHEAD_BYTES_MAX: usize = 256 << 10;

/// How many bytes of output are gathered before they are written to the socket.
pub(crate) const FLUSH_BYTES: usize = 64 << 10;

/// An output buffer that wide rows have made larger is freed after they have been sent. The limit
/// is twice the bytes that are gathered before they are written.
pub(crate) const OUTPUT_KEEP_BYTES: usize = 2 * FLUSH_BYTES;

/// An input buffer that a message has made larger is freed with the message. Bytes that are read
/// ahead fit into a buffer of this size.
pub(crate) const INPUT_KEEP_BYTES: usize = READ_AHEAD_BYTES_MAX;

/// Messages of this length or more, and rows to be sent, are charged to the tenant. A session has
/// one of each at a time, so at most its buffers go uncharged; and the short messages of point
/// queries cost no accounting.
pub const CHARGED_BYTES_MIN: usize = 64 << 10;

/// The statement and the portal without names are charged from this length on, too. A statement
/// takes a hundred times the memory of its text, so at most half a megabyte goes uncharged.
pub(crate) const KEPT_BYTES_MIN: usize = 4 << 10;

/// The length of a row that is sent, at most: eight of the longest values. A row is made in one
/// step, while other connections of the thread wait.
pub(crate) const ROW_BYTES_MAX: usize = 128 << 20;

// Lengths on the wire are positive 32-bit numbers.
const _: () = assert!(MESSAGE_BYTES_MAX <= i32::MAX as usize);
const _: () = assert!(ROW_BYTES_MAX <= i32::MAX as usize);
// The longest value, in hex form, fits into a message and into a line of COPY.
const _: () =
    assert!(2 * VALUE_BYTES_MAX < MESSAGE_BYTES_MAX && 2 * VALUE_BYTES_MAX < COPY_ROW_BYTES_MAX);
// A row that must be charged fills the output, and rows are charged when the output is full.
const _: () = assert!(FLUSH_BYTES <= CHARGED_BYTES_MIN);
// A buffer that holds everything that is gathered, or read ahead, is kept.
const _: () = assert!(FLUSH_BYTES <= OUTPUT_KEEP_BYTES && READ_AHEAD_BYTES_MAX <= INPUT_KEEP_BYTES);
const _: () = assert!(READ_BYTES <= READ_AHEAD_BYTES_MAX);

/// How many portals with names a connection may have.
pub const PORTALS_MAX: usize = 1_000;

/// How long an engine may take to finish after its client has left or must leave.
pub(crate) const ABANDON_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a client may take to read the last message.
pub(crate) const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long discarding the rest of an over-long message may take.
pub(crate) const DISCARD_TIMEOUT: Duration = Duration::from_secs(60);

/// How many connections may be in startup, at least, if `connections_max` is less: enough for
/// cancel requests to get through, and for others to be told why they cannot stay. Otherwise there
/// may be as many as sessions, because after a restart all clients may reconnect at once.
pub(crate) const STARTUP_CONNECTIONS_MIN: usize = 64;
