//! The protocol's messages as bytes: reading the client's, writing ours.
//!
//! pgwire's own decoders reserve memory by the counts that a client claims, and index past the end
//! of a short body. The decoders here read through a cursor that does neither. Messages are written
//! straight into the connection's output buffer, which cannot fail.

mod cursor;
mod frontend;
mod input;
mod output;

pub(crate) use cursor::{Cursor, utf8};
pub(crate) use frontend::{
    Bind, Describe, Execute, Formats, Parse, Target, decoded_body, message_limit,
};
pub(crate) use input::{Input, startup_length};
pub(crate) use output::{Format, Output, count_of, format_of};
