//! A virtual machine of this process's own memory: the same machine code, on the same
//! physical pages, at the same addresses, native and virtual.
//!
//! ```text
//! this process    text ─┬─ kernels        words ─┬─ tables, chains      frame ─ call, stack
//!                       │                        │                        │
//! guest-physical   slot 1..             slot: data, 2 MiB aligned      slot: frame
//!                       │                        │                        │
//! guest-virtual    same address         same address                  same address
//!                  4 KiB, read only     4 KiB or 2 MiB pages          4 KiB
//! ```
//!
//! The guest has no kernel: paging and segments are set from outside, and its only processor
//! begins in 64-bit user mode (ring 3) at a [`Kernel`]'s code, which ends with a write where
//! no memory is. So a guest is ready in milliseconds, runs at native speed also where the host's
//! KVM emulates ring 0, and what differs from a native run of the same kernel is the virtual
//! machine alone: no other compiler's code, no other pages' colours. Both read the
//! processor's time-stamp counter.
//!
//! Kernels are in `kernel`, the machine is in `machine`, with the unsafe code of both: a
//! kernel reads words by a pointer, KVM gets addresses of mappings. `system` has the only other
//! unsafe code that experiments need: words from the system's allocator.
#![deny(clippy::undocumented_unsafe_blocks)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod elsewhere;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod kernel;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod machine;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod maps;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod paging;
mod system;

use std::io;

use serde::{Deserialize, Serialize};

pub use system::SystemWords;

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub use elsewhere::{MicroVm, Timing, WINDOWS_MAX, kernel_mode_slowdown, native, ticks_per_ns};
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use kernel::{Timing, WINDOWS_MAX};
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use machine::{MicroVm, kernel_mode_slowdown, native, ticks_per_ns};

/// How the values of a table lie in the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Row after row.
    Row = 0,
    /// Column after column.
    Column = 1,
}

/// What is timed. Positions, counts and widths are in 32-bit words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kernel {
    /// Reads the time-stamp counter once; the result is its value.
    Clock,
    /// Goes round a loop that reads no memory; the result is how often.
    Spin {
        /// Rounds of a window.
        rounds: usize,
    },
    /// Loads that wait for each other: each word names the next. The windows go on from each
    /// other; the result is where the next walk begins.
    Chase {
        /// The word where the walk begins.
        at: u32,
        /// Loads of a window, in whole sixteens.
        loads: usize,
    },
    /// Sums the first words, in order.
    Scan {
        /// How many.
        words: usize,
    },
    /// Writes the first word of each of the first pages of 4 KiB, in order.
    Touch {
        /// How many.
        pages: usize,
    },
    /// Sums the first attributes of all rows of a table at the beginning of the words.
    Project {
        /// How its values lie.
        layout: Layout,
        /// Its rows.
        rows: usize,
        /// Its attributes, a word each.
        width: usize,
        /// Those that are read.
        attributes: usize,
    },
    /// Sums all attributes of some rows of a table at the beginning of the words.
    Select {
        /// How its values lie.
        layout: Layout,
        /// Its rows.
        rows: usize,
        /// Its attributes, a word each.
        width: usize,
        /// The number of row numbers that stand right behind the table.
        positions: usize,
    },
}

/// The pages by which a guest sees its words. How the host backs them is the host's affair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paging {
    /// 4 KiB.
    Small,
    /// 2 MiB.
    Huge,
}

/// Why a virtual machine cannot be had, or has not done what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// Not on this system.
    #[error("no virtual machines on this system: they need Linux on x86-64")]
    Unsupported,
    /// There is no KVM for this process.
    #[error("cannot open /dev/kvm")]
    NoKvm(#[source] io::Error),
    /// KVM refused a step.
    #[error("KVM cannot {step}")]
    Kvm {
        /// What it was asked to do.
        step: &'static str,
        /// Its reason.
        #[source]
        source: io::Error,
    },
    /// No memory for page tables, or none where the guest's stack can be.
    #[error("no memory for the guest's page tables and stack")]
    Memory(#[source] io::Error),
    /// This program's own text was not found.
    #[error("cannot find this program's text in /proc/self/maps")]
    Text(#[source] io::Error),
    /// Words that a guest's pages cannot begin or end with.
    #[error(
        "a guest's words begin on a page of {page_bytes} bytes and are whole pages, not {bytes} bytes at {address:#x}"
    )]
    Unaligned {
        /// The page.
        page_bytes: usize,
        /// The address of the words.
        address: usize,
        /// Their bytes.
        bytes: usize,
    },
    /// A kernel that would read more words than there are.
    #[error("{kernel:?} reads beyond {words} words")]
    Beyond {
        /// The kernel.
        kernel: Kernel,
        /// The words there are.
        words: usize,
    },
    /// A chain or a row number that leads out of the words.
    #[error("a word leads to where no words are")]
    Astray,
    /// A number of windows that cannot be timed.
    #[error("a call has 1 to {WINDOWS_MAX} windows, not {windows}")]
    Windows {
        /// What was asked for.
        windows: usize,
    },
    /// The guest ended in another way than at its kernel's end.
    #[error("the guest ended with {exit} at {at:#x}")]
    Guest {
        /// KVM's name for how.
        exit: String,
        /// The guest's instruction pointer.
        at: u64,
    },
}
