//! Decoding and encoding COPY data: text, CSV and binary.
//!
//! ```text
//!  CopyData ──► Decoder: bytes not yet decoded ─┬─ lines │ columns ──┬─► builders ──► RecordBatch
//!                                               └─ record │ fields ──┘
//!  RecordBatch ──► Encoder ──► one CopyData per row
//! ```
//!
//! The decoder takes pieces that may end anywhere, and holds at most one record
//! ([`crate::limits::COPY_ROW_BYTES_MAX`]) and one batch.

mod binary;
mod csv;
mod decoder;
mod encoder;
mod lines;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use decoder::Decoder;
pub(crate) use encoder::Encoder;
