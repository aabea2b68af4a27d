//! Every limit of a connection, in one place.

use std::time::Duration;

/// The longest query, Parse or Bind message. A bytea of the greatest length
/// ([`aerostat_types::VALUE_BYTES_MAX`]) in hex form takes 32 MiB, and a statement
/// may hold other values beside it.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The longest message of the other types, which hold names and passwords alone; PostgreSQL's too.
pub const SMALL_MESSAGE_BYTES_MAX: usize = 10_000;

/// The longest startup packet, as of every message before the client is let in; PostgreSQL's `MAX_STARTUP_PACKET_LENGTH`.
pub const STARTUP_BYTES_MAX: usize = 10_000;

/// The longest single value a client may send; a segment's slot counts lengths in 24 bits.
pub const VALUE_BYTES_MAX: usize = aerostat_types::VALUE_BYTES_MAX;

/// The longest line or tuple of COPY data that is gathered before it is decoded.
pub const COPY_ROW_BYTES_MAX: usize = 64 << 20;

/// Rows of one batch that COPY FROM hands to the engine.
pub const COPY_BATCH_ROWS: usize = 8192;

/// Bytes of values after which a batch is handed over before it has all its rows.
pub const COPY_BATCH_BYTES: usize = 1 << 20;

/// Bytes taken from a socket at once, and of COPY data decoded at once.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// Bytes that are read ahead while a statement runs, to notice that the client has gone.
/// A client that pipelines more waits, as TCP makes it.
pub(crate) const READ_AHEAD_BYTES_MAX: usize = 256 << 10;

/// Output that is gathered before it is written to the socket.
pub(crate) const FLUSH_BYTES: usize = 64 << 10;

/// Output buffers that grew beyond this for wide rows are given back once they are sent: twice
/// what is gathered before it is written.
pub(crate) const OUTPUT_KEEP_BYTES: usize = 2 * FLUSH_BYTES;

/// Input buffers that a message made longer than this are given back with it. What is read ahead
/// fits.
pub(crate) const INPUT_KEEP_BYTES: usize = READ_AHEAD_BYTES_MAX;

/// From this length on messages, and rows on their way out, are charged to the tenant. A session
/// has one of each at a time, so that what goes uncharged is no more than its buffers are; and the
/// short messages of point queries cost no accounting.
pub const CHARGED_BYTES_MIN: usize = 64 << 10;

/// From this length on the statement and the portal without names are charged, too. A statement
/// takes a hundred times what its text does, so that at most half a megabyte goes uncharged.
pub(crate) const KEPT_BYTES_MIN: usize = 4 << 10;

/// The longest row we send: eight of the longest values. It is made at a go, while others wait.
pub(crate) const ROW_BYTES_MAX: usize = 128 << 20;

// Lengths on the wire are positive numbers of 32 bits.
const _: () = assert!(MESSAGE_BYTES_MAX <= i32::MAX as usize);
const _: () = assert!(ROW_BYTES_MAX <= i32::MAX as usize);
// The longest value fits into a message, and into a line of COPY, in hex form.
const _: () =
    assert!(2 * VALUE_BYTES_MAX < MESSAGE_BYTES_MAX && 2 * VALUE_BYTES_MAX < COPY_ROW_BYTES_MAX);
// A row that is to be charged fills the output, and rows are charged when it is full.
const _: () = assert!(FLUSH_BYTES <= CHARGED_BYTES_MIN);
// A buffer is kept with all that is gathered, or read ahead, before it is emptied.
const _: () = assert!(FLUSH_BYTES <= OUTPUT_KEEP_BYTES && READ_AHEAD_BYTES_MAX <= INPUT_KEEP_BYTES);
const _: () = assert!(READ_BYTES <= READ_AHEAD_BYTES_MAX);

/// Portals of one connection.
pub const PORTALS_MAX: usize = 1_000;

/// How long an engine may take to come back after its client has gone or must go.
pub(crate) const ABANDON_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a client may take to read our last words.
pub(crate) const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long discarding the rest of an over-long message may take.
pub(crate) const DISCARD_TIMEOUT: Duration = Duration::from_secs(60);

/// Connections that may be in startup, where `connections_max` is less: enough for cancel
/// requests to get through, and for others to be told why they cannot stay. Otherwise there are
/// as many as sessions, since after a restart all of them may come back at once.
pub(crate) const STARTUP_CONNECTIONS_MIN: usize = 64;
