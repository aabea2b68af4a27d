//! Texts and bytes as results: each value is checked and reserved before it is made.

use std::sync::Arc;

use aerostat_types::VALUE_BYTES_MAX;
use arrow::array::{ArrayRef, StringViewBuilder};
use datafusion::common::Result;

use crate::growth::{Growth, too_long};

/// Bytes that a value takes beside its text.
const VIEW_BYTES: usize = 16;

/// Texts of a batch.
pub(super) struct Texts {
    builder: StringViewBuilder,
    /// What the call makes.
    pub(super) growth: Growth,
}

impl Texts {
    pub(super) fn of(rows: usize) -> Self {
        Self {
            builder: StringViewBuilder::with_capacity(rows),
            growth: Growth::new(),
        }
    }

    /// A value, or NULL.
    ///
    /// # Errors
    /// It is too long, there is no memory for it, or the statement must stop.
    #[inline]
    pub(super) fn push(&mut self, text: Option<impl AsRef<str>>) -> Result<()> {
        let text = text.as_ref().map(AsRef::as_ref);
        let bytes = text.map_or(0, str::len);
        self.growth.value(bytes)?;
        self.growth.make(VIEW_BYTES)?;
        // Looking at it took as long as making it.
        self.growth.work(bytes)?;
        self.builder.append_option(text);
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<ArrayRef> {
        let texts = Arc::new(self.builder.finish());
        self.growth.keep(texts)
    }
}

/// Adds to a text that becomes a value, and looks whether to stop.
///
/// # Errors
/// It would be too long, or the statement must stop.
#[inline]
pub(super) fn extend(text: &mut String, part: &str, growth: &mut Growth) -> Result<()> {
    if text.len() + part.len() > VALUE_BYTES_MAX {
        return Err(too_long());
    }
    // A part of nothing is work, too.
    growth.work(part.len() + VIEW_BYTES)?;
    text.push_str(part);
    Ok(())
}
