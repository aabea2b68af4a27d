//! A guest compared with this process, on this machine; without KVM the tests say that they are
//! skipped.

use super::*;
use crate::Layout;
use crate::kernel::WINDOWS_MAX;

/// Words on huge pages, as experiments have them.
struct Words {
    map: MmapMut,
    from: usize,
    count: usize,
}

impl Words {
    fn new(bytes: usize) -> Words {
        let map = MmapMut::map_anon(bytes + HUGE_PAGE as usize).unwrap();
        let from = map.as_ptr().align_offset(HUGE_PAGE as usize);
        Words {
            map,
            from,
            count: bytes / 4,
        }
    }

    fn get(&mut self) -> &mut [u32] {
        let bytes = &mut self.map[self.from..][..self.count * 4];
        // SAFETY: all bits are valid words, and the mapping is aligned to a huge page.
        unsafe { bytes.align_to_mut::<u32>() }.1
    }
}

/// A guest, or a word that there is none.
fn guest(words: &mut [u32], paging: Paging) -> Option<MicroVm<'_>> {
    match MicroVm::new(words, paging) {
        Ok(vm) => Some(vm),
        Err(VmError::NoKvm(error)) => {
            eprintln!("skipped: no KVM: {error}");
            None
        }
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn guests_compute_what_the_process_computes() {
    let mut memory = Words::new(4 << 20);
    let words = memory.get();
    for (at, word) in words.iter_mut().enumerate() {
        *word = (at as u32).wrapping_mul(0x9e37_79b9) % 1000;
    }
    for paging in [Paging::Small, Paging::Huge] {
        let Some(mut vm) = guest(memory.get(), paging) else {
            return;
        };
        let (rows, width) = (1000, 100);
        let mut kernels = vec![
            Kernel::Scan { words: 1 << 20 },
            Kernel::Chase { at: 7, loads: 160 },
        ];
        for layout in [Layout::Row, Layout::Column] {
            kernels.push(Kernel::Project {
                layout,
                rows,
                width,
                attributes: 37,
            });
            kernels.push(Kernel::Select {
                layout,
                rows,
                width,
                positions: 500,
            });
        }
        for kernel in kernels {
            let (native, guest) = (vm.native(kernel, 3).unwrap(), vm.guest(kernel, 3).unwrap());
            assert_eq!(native.result, guest.result, "{kernel:?}");
            assert_eq!(guest.ticks.len(), 3);
            assert!(guest.ticks.iter().all(|ticks| *ticks > 0), "{guest:?}");
        }
    }
}

#[test]
fn mistakes_are_named_and_the_guest_stays_usable() {
    let mut memory = Words::new(2 << 20);
    let words = memory.get();
    words[3] = u32::MAX;
    let beyond = Kernel::Scan { words: 1 << 20 };
    let astray = Kernel::Chase { at: 3, loads: 16 };
    assert!(matches!(
        native(words, beyond, 1),
        Err(VmError::Beyond { .. })
    ));
    assert!(matches!(native(words, astray, 1), Err(VmError::Astray)));
    let none = Kernel::Project {
        layout: Layout::Row,
        rows: usize::MAX,
        width: 3,
        attributes: 1,
    };
    assert!(matches!(
        native(words, none, 1),
        Err(VmError::Beyond { .. })
    ));
    for windows in [0, WINDOWS_MAX + 1] {
        let refused = native(words, Kernel::Clock, windows);
        assert!(matches!(refused, Err(VmError::Windows { .. })));
    }
    let Some(mut vm) = guest(memory.get(), Paging::Small) else {
        return;
    };
    assert!(matches!(vm.guest(astray, 1), Err(VmError::Astray)));
    vm.words_mut()[3] = 3;
    assert_eq!(vm.guest(astray, 1).unwrap().result, 3);
}

#[test]
fn words_that_are_no_pages_are_refused() {
    let mut memory = Words::new(4 << 20);
    for (from, to, paging) in [
        (1, 1024, Paging::Small),
        (0, 1023, Paging::Small),
        (0, 0, Paging::Small),
        (1024, 2 << 18, Paging::Huge),
    ] {
        match MicroVm::new(&mut memory.get()[from..to], paging) {
            Err(VmError::Unaligned { .. }) => {}
            Err(VmError::NoKvm(error)) => eprintln!("skipped: no KVM: {error}"),
            other => panic!("{from}..{to}: {:?}", other.err()),
        }
    }
}

/// A guest sees of this process what it was given, and nothing else.
#[test]
fn a_guest_cannot_touch_what_it_was_not_given() {
    let mut memory = Words::new(4 << 20);
    let Some(mut vm) = guest(&mut memory.get()[..512 << 10], Paging::Small) else {
        return;
    };
    extern "sysv64" fn write_beyond(call: &mut Call) {
        // SAFETY: not in this process: the guest has no page there, which is what is tested.
        unsafe { call.end().write_volatile(1) };
    }
    let call = Call::new(vm.words, Kernel::Clock, 1).unwrap();
    let at: *mut Call = vm.frame.as_mut_ptr().cast();
    // SAFETY: as in `guest`.
    unsafe { at.write(call) };
    let ended = vm.enter(write_beyond, at);
    assert!(matches!(ended, Err(VmError::Guest { .. })), "{ended:?}");
    let scan = Kernel::Scan { words: 1 << 10 };
    assert_eq!(vm.guest(scan, 1).unwrap().result, 0);
}

#[test]
fn a_loop_goes_round_as_often_as_asked() {
    let timing = native(&mut [], Kernel::Spin { rounds: 1234 }, 2).unwrap();
    assert_eq!((timing.result, timing.ticks.len()), (1234, 2));
}

#[test]
fn kernel_mode_is_tried() {
    match kernel_mode_slowdown() {
        // Wherever it is told, it is a ratio of two times; which, is the machine's.
        Ok(slowdown) => {
            eprintln!("kernel mode takes {slowdown:.1} times as long as user mode");
            assert!(slowdown.is_finite() && slowdown > 0.0, "{slowdown}");
        }
        Err(VmError::NoKvm(error)) => eprintln!("skipped: no KVM: {error}"),
        Err(error) => eprintln!("kernel mode does not run: {error}"),
    }
}
