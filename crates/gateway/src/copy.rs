//! COPY data: text, CSV and binary, into batches and out of them.
//!
//! ```text
//!  CopyData ──► Decoder: bytes not yet decoded ─┬─ lines │ columns ──┬─► builders ──► RecordBatch
//!                                               └─ record │ fields ──┘
//!  RecordBatch ──► Encoder ──► one CopyData per row
//! ```
//!
//! The reader takes pieces with boundaries anywhere and holds at most one
//! record ([`crate::limits::COPY_ROW_BYTES_MAX`]) and one batch.

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
