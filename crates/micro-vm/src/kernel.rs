//! The code that is timed: functions that run in the same way as part of this process and of a
//! guest.
//!
//! A kernel calls nothing outside this program's own text, allocates nothing and asks the
//! operating system for nothing; everything it reads and writes is in its [`Call`] and in the
//! words that the call names.

use std::arch::x86_64::{_mm_lfence, _rdtsc};

use crate::{Kernel, Layout, VmError};

/// Windows of one call at most.
pub const WINDOWS_MAX: usize = 64;

/// Words between two places of a page-touching kernel.
pub(crate) const PAGE_WORDS: usize = 1024;

/// The result of a kernel whose words name others that there are not. Other results are 32 bits,
/// but for the clock's.
const ASTRAY: u64 = u64::MAX;

/// What a kernel function is told, and tells.
#[repr(C)]
pub(crate) struct Call {
    words: *mut u32,
    len: usize,
    parameters: [usize; 6],
    windows: usize,
    ticks: [u64; WINDOWS_MAX],
    result: u64,
}

/// A kernel's machine code.
pub(crate) type Code = extern "sysv64" fn(&mut Call);

/// The time-stamp counter's ticks of each window, and what the kernel computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Ticks of each window.
    pub ticks: Vec<u64>,
    /// The sum of the words read, or the count of pages touched; of a chase, the word it has
    /// come to.
    pub result: u64,
}

impl Call {
    /// A call of `kernel` over `words`, timed `windows` times.
    ///
    /// # Errors
    /// [`VmError::Beyond`] when it would read beyond the words, or there are too many windows.
    pub(crate) fn new(words: &mut [u32], kernel: Kernel, windows: usize) -> Result<Call, VmError> {
        if !(1..=WINDOWS_MAX).contains(&windows) {
            return Err(VmError::Windows { windows });
        }
        let (parameters, end) = parameters(kernel);
        if end.is_none_or(|end| end > words.len()) {
            return Err(VmError::Beyond {
                kernel,
                words: words.len(),
            });
        }
        Ok(Call {
            words: words.as_mut_ptr(),
            len: words.len(),
            parameters,
            windows,
            ticks: [0; WINDOWS_MAX],
            result: 0,
        })
    }

    /// What the kernel has found.
    ///
    /// # Errors
    /// [`VmError::Astray`].
    pub(crate) fn timing(&self) -> Result<Timing, VmError> {
        if self.result == ASTRAY {
            return Err(VmError::Astray);
        }
        Ok(Timing {
            ticks: self.ticks[..self.windows.min(WINDOWS_MAX)].to_vec(),
            result: self.result,
        })
    }

    /// Right behind the words.
    #[cfg(test)]
    pub(crate) fn end(&self) -> *mut u32 {
        self.words.wrapping_add(self.len)
    }

    /// Times `work` over the words, window by window.
    #[inline(always)]
    fn windows(&mut self, mut work: impl FnMut(&mut [u32], [usize; 6], u64) -> u64) {
        // SAFETY: `new` took pointer and length from one slice that is borrowed mutably for as
        // long as the call is used (`native`, `MicroVm::guest`), and nothing else reads it
        // meanwhile: a guest runs while its caller waits.
        let words = unsafe { std::slice::from_raw_parts_mut(self.words, self.len) };
        let windows = self.windows.min(WINDOWS_MAX);
        for ticks in &mut self.ticks[..windows] {
            let from = now();
            self.result = work(words, self.parameters, self.result);
            *ticks = now() - from;
        }
    }
}

/// A kernel's parameters, and the number of words it needs; `None`: more than there can be.
fn parameters(kernel: Kernel) -> ([usize; 6], Option<usize>) {
    match kernel {
        Kernel::Clock => ([0; 6], Some(0)),
        Kernel::Spin { rounds } => ([rounds, 0, 0, 0, 0, 0], Some(0)),
        // The words themselves say where it goes.
        Kernel::Chase { at, loads } => (
            [at as usize, loads, 0, 0, 0, 0],
            (at as usize).checked_add(1),
        ),
        Kernel::Scan { words } => ([words, 0, 0, 0, 0, 0], Some(words)),
        Kernel::Touch { pages } => ([pages, 0, 0, 0, 0, 0], pages.checked_mul(PAGE_WORDS)),
        Kernel::Project {
            layout,
            rows,
            width,
            attributes,
        } => (
            [rows, width, attributes, layout as usize, 0, 0],
            rows.checked_mul(width).filter(|_| attributes <= width),
        ),
        Kernel::Select {
            layout,
            rows,
            width,
            positions,
        } => (
            [rows, width, positions, layout as usize, 0, 0],
            rows.checked_mul(width)
                .and_then(|table| table.checked_add(positions)),
        ),
    }
}

/// The time-stamp counter, read in order with the loads around it.
#[inline(always)]
fn now() -> u64 {
    // SAFETY: every x86-64 processor has both instructions.
    unsafe {
        _mm_lfence();
        let ticks = _rdtsc();
        _mm_lfence();
        ticks
    }
}

/// The machine code of a kernel.
pub(crate) fn code(kernel: Kernel) -> Code {
    match kernel {
        Kernel::Clock => clock,
        Kernel::Spin { .. } => spin,
        Kernel::Chase { .. } => chase,
        Kernel::Scan { .. } => scan,
        Kernel::Touch { .. } => touch,
        Kernel::Project {
            layout: Layout::Row,
            ..
        } => project_rows,
        Kernel::Project {
            layout: Layout::Column,
            ..
        } => project_columns,
        Kernel::Select { .. } => select,
    }
}

#[inline(never)]
extern "sysv64" fn clock(call: &mut Call) {
    call.result = now();
}

#[inline(never)]
extern "sysv64" fn spin(call: &mut Call) {
    call.windows(|_, [rounds, ..], _| {
        let mut done = 0_u64;
        for _ in 0..rounds {
            done = std::hint::black_box(done + 1);
        }
        done
    });
}

#[inline(never)]
extern "sysv64" fn chase(call: &mut Call) {
    call.result = call.parameters[0] as u64;
    call.windows(|words, [_, loads, ..], at| {
        let mut at = at as u32;
        for _ in 0..loads.div_ceil(16) {
            for _ in 0..16 {
                let Some(next) = words.get(at as usize) else {
                    return ASTRAY;
                };
                at = *next;
            }
        }
        u64::from(at)
    });
}

#[inline(never)]
extern "sysv64" fn scan(call: &mut Call) {
    call.windows(|words, [count, ..], _| sum(&words[..count]));
}

#[inline(always)]
fn sum(words: &[u32]) -> u64 {
    let mut sums = [0_u32; 16];
    let lines = words.chunks_exact(16);
    let rest = lines.remainder();
    for line in lines {
        for (sum, word) in sums.iter_mut().zip(line) {
            *sum = sum.wrapping_add(*word);
        }
    }
    let all = sums.iter().chain(rest);
    u64::from(all.fold(0_u32, |all, word| all.wrapping_add(*word)))
}

#[inline(never)]
extern "sysv64" fn touch(call: &mut Call) {
    call.windows(|words, [pages, ..], _| {
        for page in words.chunks_exact_mut(PAGE_WORDS).take(pages) {
            page[0] = 1;
        }
        pages as u64
    });
}

#[inline(never)]
extern "sysv64" fn project_rows(call: &mut Call) {
    call.windows(|words, [rows, width, attributes, ..], _| {
        let mut all = 0_u32;
        for row in words.chunks_exact(width).take(rows) {
            for value in &row[..attributes] {
                all = all.wrapping_add(*value);
            }
        }
        u64::from(all)
    });
}

#[inline(never)]
extern "sysv64" fn project_columns(call: &mut Call) {
    call.windows(|words, [rows, _, attributes, ..], _| {
        let columns = words.chunks_exact(rows).take(attributes);
        let sums = columns.map(|column| sum(column) as u32);
        u64::from(sums.fold(0_u32, u32::wrapping_add))
    });
}

/// Reads all attributes of the rows whose numbers stand behind the table.
#[inline(never)]
extern "sysv64" fn select(call: &mut Call) {
    call.windows(|words, [rows, width, positions, layout, ..], _| {
        let (table, behind) = words.split_at(rows * width);
        let positions = &behind[..positions];
        let mut all = 0_u32;
        if layout == Layout::Row as usize {
            for row in positions {
                let from = *row as usize * width;
                let Some(row) = table.get(from..from + width) else {
                    return ASTRAY;
                };
                for value in row {
                    all = all.wrapping_add(*value);
                }
            }
        } else {
            for column in table.chunks_exact(rows) {
                for row in positions {
                    let Some(value) = column.get(*row as usize) else {
                        return ASTRAY;
                    };
                    all = all.wrapping_add(*value);
                }
            }
        }
        u64::from(all)
    });
}
