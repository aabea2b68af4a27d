//! Redo that waits in memory for its transaction's commit, and is charged for.
//!
//! A buffer's bytes are reserved from the log's budget before it grows, and given back when the
//! buffer is dropped: after the log has its content, or after the undo.

use std::{mem, sync::Arc};

use aerostat_types::OutOfMemory;

use crate::CommitLog;

/// The smallest buffer that more is added to: the redo of a row or two.
const BUFFER_BYTES_MIN: usize = 256;

/// Redo beyond this goes to the log before the commit. Large enough that a write costs
/// little more than its bytes, small enough for a tenant's budget, and less than most
/// batches of a load have, so that they go to the log as they are.
pub(crate) const REDO_BYTES_MAX: usize = 512 << 10;

/// Redo in the order in which things were done.
#[derive(Default)]
pub(crate) struct Redo {
    bytes: Vec<u8>,
    /// `None` as long as there is no buffer.
    payment: Option<Payment>,
}

/// Bytes taken from a log's budget.
struct Payment {
    log: Arc<dyn CommitLog>,
    bytes: usize,
}

impl Redo {
    /// Adds some at the end. The first becomes the buffer: much of it is not copied.
    ///
    /// # Errors
    /// When there is no memory for it; nothing is added then.
    pub(crate) fn add(
        &mut self,
        redo: Vec<u8>,
        log: &Arc<dyn CommitLog>,
    ) -> Result<(), OutOfMemory> {
        let Some(payment) = &mut self.payment else {
            let mut payment = Payment {
                log: Arc::clone(log),
                bytes: 0,
            };
            payment.raise(redo.capacity())?;
            (self.bytes, self.payment) = (redo, Some(payment));
            return Ok(());
        };
        let needed = self.bytes.len() + redo.len();
        if needed > self.bytes.capacity() {
            let room = needed.max(2 * self.bytes.capacity()).max(BUFFER_BYTES_MIN);
            payment.raise(room)?;
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        self.bytes.extend_from_slice(&redo);
        debug_assert!(
            self.bytes.capacity() <= payment.bytes,
            "the buffer is paid for"
        );
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The content. What it takes stays paid for until this is dropped.
    pub(crate) fn take_bytes(&mut self) -> Vec<u8> {
        mem::take(&mut self.bytes)
    }
}

impl Payment {
    fn raise(&mut self, bytes: usize) -> Result<(), OutOfMemory> {
        assert!(
            bytes >= self.bytes,
            "a buffer of {} bytes grows to {bytes}",
            self.bytes
        );
        self.log.reserve_redo(bytes - self.bytes)?;
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Payment {
    fn drop(&mut self) {
        self.log.release_redo(self.bytes);
    }
}
