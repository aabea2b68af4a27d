//! Systems without these virtual machines: every call returns an error that says so.

use crate::{Kernel, Paging, VmError};

/// Windows of one call at most.
pub const WINDOWS_MAX: usize = 64;

/// The time-stamp counter's ticks of each window, and what the kernel computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Ticks of each window.
    pub ticks: Vec<u64>,
    /// What the kernel computed.
    pub result: u64,
}

/// Runs a kernel as part of this process: not on this system.
///
/// # Errors
/// [`VmError::Unsupported`].
pub fn native(_: &mut [u32], _: Kernel, _: usize) -> Result<Timing, VmError> {
    Err(VmError::Unsupported)
}

/// Ticks of the time-stamp counter in a nanosecond: not on this system.
///
/// # Errors
/// [`VmError::Unsupported`].
pub fn ticks_per_ns() -> Result<f64, VmError> {
    Err(VmError::Unsupported)
}

/// How much slower a guest's kernel mode is than its user mode: not on this system.
///
/// # Errors
/// [`VmError::Unsupported`].
pub fn kernel_mode_slowdown() -> Result<f64, VmError> {
    Err(VmError::Unsupported)
}

/// A guest: not on this system.
pub struct MicroVm<'m> {
    words: &'m mut [u32],
}

impl<'m> MicroVm<'m> {
    /// A guest that sees `words`.
    ///
    /// # Errors
    /// [`VmError::Unsupported`].
    pub fn new(words: &'m mut [u32], _: Paging) -> Result<MicroVm<'m>, VmError> {
        let _ = MicroVm { words };
        Err(VmError::Unsupported)
    }

    /// The words.
    pub fn words_mut(&mut self) -> &mut [u32] {
        self.words
    }

    /// Runs a kernel as part of this process, over the guest's words.
    ///
    /// # Errors
    /// [`VmError::Unsupported`].
    pub fn native(&mut self, kernel: Kernel, windows: usize) -> Result<Timing, VmError> {
        native(self.words, kernel, windows)
    }

    /// Runs a kernel in the guest.
    ///
    /// # Errors
    /// [`VmError::Unsupported`].
    pub fn guest(&mut self, kernel: Kernel, windows: usize) -> Result<Timing, VmError> {
        native(self.words, kernel, windows)
    }

    /// Ticks of the guest's time-stamp counter in a nanosecond.
    ///
    /// # Errors
    /// [`VmError::Unsupported`].
    pub fn ticks_per_ns(&mut self) -> Result<f64, VmError> {
        ticks_per_ns()
    }
}
