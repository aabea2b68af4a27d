//! Answers of a virtual machine about its flags and its heap.

use std::{collections::HashMap, time::Duration};

use crate::error::AdapterError;

/// A collector that gives back later than this after a collection is of no use to a broker, which waits
/// 30 s.
const DELAY_MAX: Duration = Duration::from_secs(30);

/// The share of the heap, in percent, that G1 leaves free at least when it shrinks.
const FREE_PERCENT_MIN: u64 = 5;

/// A garbage collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collector {
    Z,
    Shenandoah,
    G1,
    /// Gives nothing back: Parallel, Serial, Epsilon, and those that are not known.
    Other,
}

/// All flags of a virtual machine, by name.
#[derive(Clone, Debug)]
pub(crate) struct Flags(HashMap<String, String>);

/// The heap of a virtual machine, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heap {
    /// The bytes of objects, dead ones included.
    pub(crate) used: u64,
    /// The bytes that the virtual machine has from the system for it.
    pub(crate) committed: u64,
}

impl Flags {
    /// From the answer to `VM.flags -all`, whose lines are `type Name = value {kind} {origin}`.
    pub(crate) fn parse(text: &str) -> Flags {
        let parsed = text.lines().filter_map(|line| {
            let (left, right) = line.split_once('=')?;
            let name = left.split_ascii_whitespace().next_back()?;
            let value = right.split_ascii_whitespace().next().unwrap_or_default();
            Some((name.to_owned(), value.to_owned()))
        });
        Flags(parsed.collect())
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.parse().ok()
    }

    fn is_on(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| value == "true")
    }

    fn is_off(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| value == "false")
    }

    pub(crate) fn collector(&self) -> Collector {
        let known = [
            ("UseZGC", Collector::Z),
            ("UseShenandoahGC", Collector::Shenandoah),
            ("UseG1GC", Collector::G1),
        ];
        let used = known.into_iter().find(|(flag, _)| self.is_on(flag));
        used.map_or(Collector::Other, |(_, collector)| collector)
    }

    /// The most that the heap can have.
    pub(crate) fn heap_max(&self) -> Result<u64, AdapterError> {
        self.number("MaxHeapSize")
            .filter(|bytes| *bytes > 0)
            .ok_or(AdapterError::Answer("MaxHeapSize"))
    }

    /// How long after a collection memory goes back.
    pub(crate) fn delay(&self) -> Duration {
        match self.collector() {
            Collector::Z => Duration::from_secs(self.number("ZUncommitDelay").unwrap_or(0)),
            // A collection that is asked for does not wait for the delay.
            Collector::Shenandoah | Collector::G1 | Collector::Other => Duration::ZERO,
        }
    }

    /// Whether memory goes back to the system soon after a collection.
    pub(crate) fn may_give(&self) -> bool {
        let has_room = self.number("MinHeapSize") < self.number("MaxHeapSize");
        let gives = match self.collector() {
            Collector::Z => self.is_on("ZUncommit") && self.delay() <= DELAY_MAX,
            // An experimental flag that is not unlocked is not listed; it is on unless it is turned off.
            Collector::Shenandoah => !self.is_off("ShenandoahUncommit"),
            Collector::G1 => true,
            Collector::Other => false,
        };
        has_room && gives && !self.is_on("DisableExplicitGC")
    }

    /// How fast that was measured to be, in bytes a second, for 3 GiB of a heap of 6.
    pub(crate) fn gives_bytes_per_s(&self) -> Option<u64> {
        match self.collector() {
            Collector::Z => {
                let ms = 2_200 + self.delay().as_millis() as u64;
                Some((3 << 30) / ms * 1_000)
            }
            Collector::Shenandoah => Some(450 << 20),
            Collector::G1 => Some(1_500 << 20),
            Collector::Other => None,
        }
    }
}

impl Heap {
    /// From the answer to `GC.heap_info`.
    pub(crate) fn parse(text: &str) -> Option<Heap> {
        let of_line = |line: &str| {
            let used = amount(line, "used")?;
            // ZGC's word, Shenandoah's and newer G1's, and that of all others.
            let committed = amount(line, "capacity")
                .or_else(|| amount(line, "committed"))
                .or_else(|| amount(line, "total"))?;
            Some(Heap { used, committed })
        };
        // The collectors without one heap have a line for each generation.
        let is_of_heap = |line: &&str| {
            let line = line.trim_start();
            !line.starts_with("Metaspace") && !line.starts_with("class space")
        };
        let parts = text.lines().filter(is_of_heap).filter_map(of_line);
        parts.reduce(|sum, part| Heap {
            used: sum.used + part.used,
            committed: sum.committed + part.committed,
        })
    }
}

/// The amount before or after a word, between commas: `used 168M` or `376M committed`.
fn amount(line: &str, word: &str) -> Option<u64> {
    line.split(',').find_map(|phrase| {
        let words: Vec<&str> = phrase.split_ascii_whitespace().collect();
        let at = words.iter().position(|known| *known == word)?;
        let before = at.checked_sub(1).map(|before| words[before]);
        // "max capacity 512M" is not the capacity.
        if before == Some("max") {
            return None;
        }
        let after = words.get(at + 1).and_then(|text| parse_amount(text));
        after.or_else(|| parse_amount(before?))
    })
}

fn parse_amount(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    let shift = match &text[digits.len()..] {
        "" | "B" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    number.checked_shl(shift)
}

/// `MinHeapFreeRatio` and `MaxHeapFreeRatio`, in percent, with which a collection that finds `used` live bytes
/// leaves a heap of so many bytes.
pub(crate) fn free_ratios(used: u64, heap: u64) -> (u64, u64) {
    let free = heap.saturating_sub(used);
    let percent = u128::from(free) * 100 / u128::from(heap.max(1));
    let max = (percent as u64).clamp(FREE_PERCENT_MIN, 100);
    (FREE_PERCENT_MIN.min(max), max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn heap(used: u64, committed: u64) -> Option<Heap> {
        Some(Heap {
            used: used * MIB,
            committed: committed * MIB,
        })
    }

    #[test]
    fn heaps_of_all_collectors_are_read() {
        let metaspace = "\n Metaspace       used 137K, committed 384K, reserved 1114112K\n  \
             class space    used 4K, committed 128K, reserved 1048576K\n";
        let with = |text: &str| Heap::parse(&format!("{text}{metaspace}"));
        let z = " ZHeap           used 168M, capacity 294M, max capacity 512M";
        assert_eq!(with(z), heap(168, 294));
        let shenandoah = "Shenandoah Heap\n 512M max, 65536K soft max, 376M committed, 300M used\n \
             2048 x 256K regions\nStatus: not cancelled";
        assert_eq!(with(shenandoah), heap(300, 376));
        let g1 = " garbage-first heap   total 376832K, used 218112K [0x00000000e0000000, 0x1)\n  \
             region size 1024K, 28 young (28672K), 9 survivors (9216K)";
        assert_eq!(with(g1), heap(213, 368));
        let newer =
            " garbage-first heap   total reserved 524288K, committed 32768K, used 1024K [0x1)";
        assert_eq!(with(newer), heap(1, 32));
        let serial = " def new generation   total 75776K, used 8192K [0x0, 0x1, 0x2)\n  \
             eden space 67136K,  12% used [0x0)\n tenured generation   total 167936K, used 100352K [0x0)";
        assert_eq!(with(serial), heap(106, 238));
        assert_eq!(with("nothing"), None);
    }

    #[test]
    fn flags_tell_collectors_that_can_give() {
        let flags = |extra: &str| {
            Flags::parse(&format!(
                "[Global flags]\n   size_t MaxHeapSize    = 536870912   {{product}} {{command line}}\n   \
                 size_t MinHeapSize  = 8388608  {{product}} {{ergonomic}}\n     \
                 ccstr HeapDumpPath  =        {{manageable}} {{default}}\n{extra}"
            ))
        };
        let z = "bool UseZGC = true {product}\nbool ZUncommit = true {product}\n";
        let quick = flags(&format!("{z}uintx ZUncommitDelay = 5 {{product}}\n"));
        assert_eq!(quick.collector(), Collector::Z);
        assert!(quick.may_give());
        assert_eq!(quick.delay(), Duration::from_secs(5));
        assert_eq!(quick.heap_max().unwrap(), 512 * MIB);
        let slow = flags(&format!("{z}uintx ZUncommitDelay = 300 {{product}}\n"));
        assert!(!slow.may_give());
        let whole = flags(&format!("{z}size_t MinHeapSize = 536870912 {{product}}\n"));
        assert!(!whole.may_give());
        let shenandoah = "bool UseShenandoahGC = true {product}\n";
        assert!(flags(shenandoah).may_give());
        let off = format!("{shenandoah}bool ShenandoahUncommit = false {{experimental}}\n");
        assert!(!flags(&off).may_give());
        let serial = flags("bool UseSerialGC = true {product}\n");
        assert_eq!(serial.collector(), Collector::Other);
        assert!(!serial.may_give() && serial.gives_bytes_per_s().is_none());
        let mute =
            flags("bool UseG1GC = true {product}\nbool DisableExplicitGC = true {product}\n");
        assert!(!mute.may_give());
        assert!(flags("bool UseG1GC = true {product}\n").may_give());
    }

    #[test]
    fn ratios_leave_the_heap_that_is_wanted() {
        assert_eq!(free_ratios(100 * MIB, 200 * MIB), (5, 50));
        assert_eq!(free_ratios(100 * MIB, 100 * MIB), (5, 5));
        assert_eq!(free_ratios(100 * MIB, 50 * MIB), (5, 5));
        assert_eq!(free_ratios(0, 0), (5, 5));
        assert_eq!(free_ratios(0, 100 * MIB), (5, 100));
    }
}
