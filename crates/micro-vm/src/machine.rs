//! The virtual machine: its memory slots, its only processor, and how it is entered and left.

use std::arch::global_asm;
use std::io;
use std::time::{Duration, Instant};

use kvm_bindings::{
    KVM_MAX_CPUID_ENTRIES, KVM_MEM_READONLY, kvm_regs, kvm_segment, kvm_sregs,
    kvm_userspace_memory_region,
};
use kvm_ioctls::{Cap, Kvm, VcpuExit, VcpuFd, VmFd};
use memmap2::MmapMut;

use crate::kernel::{Call, Code, Timing, code};
use crate::maps;
use crate::paging::{HUGE_PAGE, PAGE, Region, Tables};
use crate::{Kernel, Paging, VmError};

/// Where a guest writes when its kernel has ended: below all addresses that a process may map.
/// No memory is behind it, so KVM hands the write to us. (An I/O port would not do: where ring
/// 0 is emulated, user mode has no right to ports.)
const END_AT: u64 = 0x1000;

/// The same in physical memory: between the tables' and all other.
const END_PHYSICAL: u64 = 0x3fff_f000;

/// Bytes of the frame: the call at its begin, the stack down from its end.
const FRAME_BYTES: usize = 64 << 10;

/// Where the guest's physical memory begins: with the page tables.
const TABLES_AT: u64 = 0x10_0000;

/// Bit 1 is always set.
const FLAGS: u64 = 1 << 1;

const CR0: u64 = 1 << 31 | 1 << 16 | 1 << 5 | 1 << 4 | 1 << 1 | 1;
const CR4: u64 = 1 << 10 | 1 << 9 | 1 << 5;
const EFER: u64 = 1 << 10 | 1 << 8 | 1;

/// How long clocks are compared.
const CLOCK: Duration = Duration::from_millis(20);

// The guest's first instructions: the kernel's code is in rax, its call in rdi.
global_asm!(
    ".pushsection .text.aerostat_guest_entry,\"ax\",@progbits",
    ".globl aerostat_guest_entry",
    "aerostat_guest_entry:",
    "call rax",
    "mov dword ptr [{end}], eax",
    "ud2",
    ".popsection",
    end = const END_AT,
);

// SAFETY: the symbol is defined above; only its address is used.
unsafe extern "C" {
    fn aerostat_guest_entry();
}

/// Runs a kernel as part of this process.
///
/// # Errors
/// [`VmError::Beyond`] and [`VmError::Windows`].
pub fn native(words: &mut [u32], kernel: Kernel, windows: usize) -> Result<Timing, VmError> {
    let mut call = Call::new(words, kernel, windows)?;
    code(kernel)(&mut call);
    call.timing()
}

/// Ticks of this process's time-stamp counter in a nanosecond.
///
/// # Errors
/// None, but those of [`native`].
pub fn ticks_per_ns() -> Result<f64, VmError> {
    compare(|| Ok(native(&mut [], Kernel::Clock, 1)?.result))
}

fn compare(mut ticks: impl FnMut() -> Result<u64, VmError>) -> Result<f64, VmError> {
    ticks()?;
    let (started, first) = (Instant::now(), ticks()?);
    std::thread::sleep(CLOCK);
    let last = ticks()?;
    let ns = started.elapsed().as_nanos() as f64;
    Ok(last.wrapping_sub(first) as f64 / ns)
}

/// Rounds of the loop with which kernel mode is tried, up to a million; where it is slow the
/// first ones say so.
const TRIED_ROUNDS: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// How many times as long a loop takes in a guest's kernel mode as in its user mode: about 1
/// where the processor runs both, a hundred and more where the host's KVM emulates ring 0, one
/// instruction after the other. A guest with a kernel of its own is no measure of anything
/// then. A short loop that takes ten times as long is the last.
///
/// # Errors
/// As [`MicroVm::new`] and [`MicroVm::guest`].
pub fn kernel_mode_slowdown() -> Result<f64, VmError> {
    let mut memory = MmapMut::map_anon(2 * PAGE as usize).map_err(VmError::Memory)?;
    let at = memory.as_ptr().align_offset(PAGE as usize);
    // SAFETY: a page inside the mapping, aligned as words are; all bits are valid words.
    let words = unsafe { memory[at..at + PAGE as usize].align_to_mut::<u32>() }.1;
    let mut vm = MicroVm::new(words, Paging::Small)?;
    let user = vm.special;
    let mut slowdown = 0.0;
    for rounds in TRIED_ROUNDS {
        let mut ns = [0.0, 0.0];
        for (ns, special) in ns.iter_mut().zip([user, kernel_mode(user)]) {
            vm.special = special;
            // Once untimed; the clock is the host's, as an emulated one may be anything.
            vm.guest(Kernel::Spin { rounds: 1 }, 1)?;
            let started = Instant::now();
            vm.guest(Kernel::Spin { rounds }, 1)?;
            *ns = started.elapsed().as_nanos() as f64;
        }
        slowdown = ns[1] / ns[0];
        if slowdown > 10.0 {
            break;
        }
    }
    Ok(slowdown)
}

/// A guest with one processor, which sees this program's text and some words.
pub struct MicroVm<'m> {
    // Dropped first: afterwards nothing uses the memory below.
    processor: VcpuFd,
    _vm: VmFd,
    frame: MmapMut,
    _tables: MmapMut,
    words: &'m mut [u32],
    special: kvm_sregs,
}

impl<'m> MicroVm<'m> {
    /// A guest that sees `words` by pages of this size. They begin on such a page and are
    /// whole pages.
    ///
    /// # Errors
    /// [`VmError::NoKvm`] where there is none, [`VmError::Unaligned`], or why KVM refused.
    pub fn new(words: &'m mut [u32], paging: Paging) -> Result<MicroVm<'m>, VmError> {
        let kvm = Kvm::new().map_err(|error| VmError::NoKvm(error.into()))?;
        let vm = kvm.create_vm().map_err(refused("make a virtual machine"))?;
        let frame = MmapMut::map_anon(FRAME_BYTES).map_err(VmError::Memory)?;
        let regions = regions(words, paging, &frame)?;
        let end = Region {
            address: END_AT,
            physical: END_PHYSICAL,
            bytes: PAGE,
            is_writable: true,
            paging: Paging::Small,
        };
        let mapped: Vec<Region> = regions.iter().copied().chain([end]).collect();
        let tables = Tables::of(TABLES_AT, &mapped);
        let tables = tables_memory(&tables.entries)?;
        let is_read_only = vm.check_extension(Cap::ReadonlyMem);
        let of_tables = Region {
            address: tables.as_ptr().addr() as u64,
            physical: TABLES_AT,
            bytes: tables.len() as u64,
            is_writable: true,
            paging: Paging::Small,
        };
        for (slot, region) in regions.iter().chain([&of_tables]).enumerate() {
            let flags = if region.is_writable || !is_read_only {
                0
            } else {
                KVM_MEM_READONLY
            };
            let slot = kvm_userspace_memory_region {
                slot: slot as u32,
                flags,
                guest_phys_addr: region.physical,
                memory_size: region.bytes,
                userspace_addr: region.address,
            };
            // SAFETY: each region is memory of this process that outlives the machine: its
            // own text, which is mapped until it ends and which the guest's page tables let
            // nobody write; the frame and the tables, which the machine owns and drops after
            // the processor; the words, which it borrows mutably. None overlaps another in
            // the guest's physical memory (`regions`).
            unsafe { vm.set_user_memory_region(slot) }.map_err(refused("map memory"))?;
        }
        let processor = vm.create_vcpu(0).map_err(refused("make a processor"))?;
        let features = kvm
            .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
            .map_err(refused("tell its processor's features"))?;
        processor
            .set_cpuid2(&features)
            .map_err(refused("set the processor's features"))?;
        let special = processor
            .get_sregs()
            .map_err(refused("read special registers"))?;
        Ok(MicroVm {
            special: user_mode(special),
            processor,
            _vm: vm,
            frame,
            _tables: tables,
            words,
        })
    }

    /// The words.
    pub fn words_mut(&mut self) -> &mut [u32] {
        self.words
    }

    /// Runs a kernel as part of this process, over the guest's words.
    ///
    /// # Errors
    /// As [`native`].
    pub fn native(&mut self, kernel: Kernel, windows: usize) -> Result<Timing, VmError> {
        native(self.words, kernel, windows)
    }

    /// Runs a kernel in the guest.
    ///
    /// # Errors
    /// As [`native`], and [`VmError::Guest`] when it ends in another way.
    pub fn guest(&mut self, kernel: Kernel, windows: usize) -> Result<Timing, VmError> {
        let call = Call::new(self.words, kernel, windows)?;
        let at: *mut Call = self.frame.as_mut_ptr().cast();
        // SAFETY: the frame begins on a page and has more bytes than a call; nothing else
        // uses it while the guest does not run.
        unsafe { at.write(call) };
        self.enter(code(kernel), at)?;
        // SAFETY: a call was written there above; the guest's kernel has changed no more than
        // its plain numbers, for which all bits are valid, and has ended.
        unsafe { &*at }.timing()
    }

    /// Ticks of the guest's time-stamp counter in a nanosecond.
    ///
    /// # Errors
    /// As [`MicroVm::guest`].
    pub fn ticks_per_ns(&mut self) -> Result<f64, VmError> {
        compare(|| Ok(self.guest(Kernel::Clock, 1)?.result))
    }

    fn enter(&mut self, code: Code, call: *mut Call) -> Result<(), VmError> {
        let registers = kvm_regs {
            rax: code as usize as u64,
            rdi: call.addr() as u64,
            rsp: (self.frame.as_ptr().addr() + FRAME_BYTES - 64) as u64,
            rip: aerostat_guest_entry as *const () as usize as u64,
            rflags: FLAGS,
            ..kvm_regs::default()
        };
        self.processor
            .set_sregs(&self.special)
            .map_err(refused("set special registers"))?;
        self.processor
            .set_regs(&registers)
            .map_err(refused("set registers"))?;
        loop {
            let exit = match self.processor.run() {
                Ok(VcpuExit::MmioWrite(END_PHYSICAL, _)) => return Ok(()),
                Ok(exit) => format!("{exit:?}"),
                // A signal came.
                Err(error) if error.errno() == 4 => continue,
                Err(error) => return Err(refused("run the guest")(error)),
            };
            let at = self
                .processor
                .get_regs()
                .map_or(0, |registers| registers.rip);
            return Err(VmError::Guest { exit, at });
        }
    }
}

fn refused(step: &'static str) -> impl Fn(kvm_ioctls::Error) -> VmError {
    move |error| VmError::Kvm {
        step,
        source: io::Error::from_raw_os_error(error.errno()),
    }
}

/// What the guest sees, and where in its physical memory: tables, text, frame, words.
fn regions(words: &[u32], paging: Paging, frame: &MmapMut) -> Result<Vec<Region>, VmError> {
    let page = match paging {
        Paging::Small => PAGE,
        Paging::Huge => HUGE_PAGE,
    };
    let (address, bytes) = (words.as_ptr().addr() as u64, size_of_val(words) as u64);
    if address % page != 0 || bytes % page != 0 || bytes == 0 {
        return Err(VmError::Unaligned {
            page_bytes: page as usize,
            address: address as usize,
            bytes: bytes as usize,
        });
    }
    let entry = aerostat_guest_entry as *const () as usize;
    // Behind all tables there can be: an entry of 8 bytes for each page, some for their tables.
    let mut physical = 1 << 30;
    let mut place = |address: u64, bytes: u64, is_writable, paging| {
        let region = Region {
            address,
            physical,
            bytes,
            is_writable,
            paging,
        };
        physical = (physical + bytes).next_multiple_of(HUGE_PAGE);
        region
    };
    let mut regions: Vec<Region> = maps::program(entry)
        .map_err(VmError::Text)?
        .into_iter()
        .map(|range| place(range.start as u64, range.len() as u64, false, Paging::Small))
        .collect();
    let stack = frame.as_ptr().addr() as u64;
    regions.push(place(stack, FRAME_BYTES as u64, true, Paging::Small));
    regions.push(place(address, bytes, true, paging));
    Ok(regions)
}

fn tables_memory(entries: &[u64]) -> Result<MmapMut, VmError> {
    let mut memory = MmapMut::map_anon(entries.len() * 8).map_err(VmError::Memory)?;
    for (bytes, entry) in memory.chunks_exact_mut(8).zip(entries) {
        bytes.copy_from_slice(&entry.to_le_bytes());
    }
    Ok(memory)
}

/// 64-bit user mode with paging, and no descriptor table: segments are never loaded.
fn user_mode(mut special: kvm_sregs) -> kvm_sregs {
    let code = kvm_segment {
        limit: u32::MAX,
        selector: 0x33,
        type_: 11,
        present: 1,
        dpl: 3,
        s: 1,
        l: 1,
        g: 1,
        ..kvm_segment::default()
    };
    let data = kvm_segment {
        selector: 0x2b,
        type_: 3,
        l: 0,
        db: 1,
        ..code
    };
    special.cs = code;
    (special.ds, special.es, special.ss) = (data, data, data);
    (special.fs, special.gs) = (data, data);
    special.tr = kvm_segment {
        limit: 0x67,
        selector: 0x40,
        type_: 11,
        present: 1,
        ..kvm_segment::default()
    };
    (special.cr0, special.cr3, special.cr4) = (CR0, TABLES_AT, CR4);
    special.efer = EFER;
    special
}

/// The same at privilege level 0.
fn kernel_mode(mut special: kvm_sregs) -> kvm_sregs {
    let of_kernel = |segment: &mut kvm_segment, selector| {
        (segment.dpl, segment.selector) = (0, selector);
    };
    of_kernel(&mut special.cs, 0x8);
    for data in [
        &mut special.ds,
        &mut special.es,
        &mut special.ss,
        &mut special.fs,
        &mut special.gs,
    ] {
        of_kernel(data, 0x10);
    }
    special
}

#[cfg(test)]
mod tests;
