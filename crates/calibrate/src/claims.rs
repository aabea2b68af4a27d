//! What the system claims about the machine: sysfs of Linux, and CPUID on x86-64.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A data or unified cache, as sysfs has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheClaim {
    /// Its level, from 1.
    pub level: u32,
    /// Its bytes.
    pub size_bytes: u64,
    /// Bytes of its lines.
    pub line_bytes: u64,
    /// Hardware threads that share it.
    pub shared_by: usize,
}

/// A data or unified TLB, as CPUID has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlbClaim {
    /// Its level, from 1.
    pub level: u32,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages it holds.
    pub entries: u64,
}

/// All claims. What is not said is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// By level.
    pub caches: Vec<CacheClaim>,
    /// By level and page.
    pub tlbs: Vec<TlbClaim>,
    /// NUMA nodes.
    pub nodes: usize,
    /// Whether this is a guest of a hypervisor.
    pub is_guest: bool,
}

impl Claims {
    /// Those about a core of this machine, on which the caller runs.
    pub(crate) fn here(core: usize) -> Claims {
        let cpu = format!("/sys/devices/system/cpu/cpu{core}/cache");
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Claims {
            caches: caches_in(Path::new(&cpu)),
            tlbs: tlbs(),
            nodes: nodes().len(),
            is_guest: is_guest(&cpuinfo),
        }
    }

    pub(crate) fn cache(&self, level: u32) -> Option<&CacheClaim> {
        self.caches.iter().find(|cache| cache.level == level)
    }

    pub(crate) fn tlb(&self, level: u32, page_bytes: u64) -> Option<&TlbClaim> {
        let mut tlbs = self.tlbs.iter();
        tlbs.find(|tlb| tlb.level == level && tlb.page_bytes == page_bytes)
    }
}

fn is_guest(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| {
        flags
            .split_ascii_whitespace()
            .any(|flag| flag == "hypervisor")
    })
}

/// The caches for data that a core's folder in sysfs describes.
fn caches_in(folder: &Path) -> Vec<CacheClaim> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut caches: Vec<_> = entries
        .flatten()
        .filter_map(|entry| cache_in(&entry.path()))
        .collect();
    caches.sort_by_key(|cache| cache.level);
    caches
}

fn cache_in(folder: &Path) -> Option<CacheClaim> {
    let text = |name: &str| {
        Some(
            fs::read_to_string(folder.join(name))
                .ok()?
                .trim()
                .to_owned(),
        )
    };
    if text("type")? == "Instruction" {
        return None;
    }
    Some(CacheClaim {
        level: text("level")?.parse().ok()?,
        size_bytes: size(&text("size")?)?,
        line_bytes: text("coherency_line_size")?.parse().ok()?,
        shared_by: list(&text("shared_cpu_list")?).len(),
    })
}

/// `48K`, `32M`.
fn size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// `0-3,8`.
fn list(text: &str) -> BTreeSet<usize> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<usize>> {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.trim().parse().ok()?..=to.trim().parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// NUMA nodes that have memory, with their cores.
pub(crate) fn nodes() -> Vec<(usize, BTreeSet<usize>)> {
    let folder = Path::new("/sys/devices/system/node");
    let online = fs::read_to_string(folder.join("has_memory")).unwrap_or_default();
    let cores = |node| {
        let list_of = fs::read_to_string(folder.join(format!("node{node}/cpulist")));
        (node, list(&list_of.unwrap_or_default()))
    };
    list(&online).into_iter().map(cores).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn tlbs() -> Vec<TlbClaim> {
    Vec::new()
}

#[cfg(target_arch = "x86_64")]
fn tlbs() -> Vec<TlbClaim> {
    x86::tlbs()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use raw_cpuid::{CpuId, CpuIdReader, CpuIdReaderNative, DatType};

    use super::TlbClaim;

    const SMALL: u64 = 4 << 10;
    const HUGE: u64 = 2 << 20;

    pub(super) fn tlbs() -> Vec<TlbClaim> {
        let cpuid = CpuId::new();
        let mut claims = intel(&cpuid);
        if claims.is_empty() {
            claims = amd(&cpuid);
        }
        claims.sort_by_key(|claim| (claim.page_bytes, claim.level));
        claims.retain(|claim| claim.entries > 0);
        claims
    }

    /// Leaf 0x18 lists TLBs one by one; those for loads count.
    fn intel(cpuid: &CpuId<CpuIdReaderNative>) -> Vec<TlbClaim> {
        let Some(leaf) = cpuid.get_deterministic_address_translation_info() else {
            return Vec::new();
        };
        let mut claims = Vec::new();
        for entry in leaf {
            let holds_loads = matches!(
                entry.cache_type(),
                DatType::DataTLB | DatType::UnifiedTLB | DatType::LoadOnly
            );
            let entries = u64::from(entry.ways()) * u64::from(entry.sets());
            let sizes = [
                (entry.has_4k_entries(), SMALL),
                (entry.has_2mb_entries(), HUGE),
            ];
            for (has, page_bytes) in sizes {
                if holds_loads && has {
                    claims.push(TlbClaim {
                        level: entry.cache_level().into(),
                        page_bytes,
                        entries,
                    });
                }
            }
        }
        claims
    }

    /// Leaves 0x8000_0005 and 0x8000_0006. The second has 12 bits for a number, in units of
    /// 32 where leaf 0x8000_0021 says so (AMD64 Architecture Programmer's Manual, volume 3,
    /// appendix E: `L2TlbSizeX32`). Hypervisors pass the number on and hide that bit; family
    /// 1Ah (Zen 5), where it begins, counts so all the same.
    fn amd(cpuid: &CpuId<CpuIdReaderNative>) -> Vec<TlbClaim> {
        const L2_TLB_SIZE_X32: u32 = 1 << 14;
        let highest = CpuIdReaderNative.cpuid1(0x8000_0000).eax;
        let says_x32 = highest >= 0x8000_0021
            && CpuIdReaderNative.cpuid1(0x8000_0021).eax & L2_TLB_SIZE_X32 != 0;
        let family = cpuid.get_feature_info().map_or(0, |info| info.family_id());
        let is_x32 = says_x32 || family >= 0x1a;
        let unit = if is_x32 { 32 } else { 1 };
        let mut claims = Vec::new();
        let mut claim = |level, page_bytes, entries| {
            claims.push(TlbClaim {
                level,
                page_bytes,
                entries,
            });
        };
        if let Some(first) = cpuid.get_l1_cache_and_tlb_info() {
            claim(1, SMALL, first.dtlb_4k_size().into());
            claim(1, HUGE, first.dtlb_2m_4m_size().into());
        }
        if let Some(second) = cpuid.get_l2_l3_cache_and_tlb_info() {
            claim(2, SMALL, unit * u64::from(second.dtlb_4k_size()));
            claim(2, HUGE, unit * u64::from(second.dtlb_2m_4m_size()));
        }
        claims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_lists_are_read() {
        assert_eq!(size("48K"), Some(48 << 10));
        assert_eq!(size("32M"), Some(32 << 20));
        assert_eq!(size("512"), Some(512));
        assert_eq!(size("99999999999999999G"), None);
        assert_eq!(size(""), None);
        assert_eq!(
            list("0-2,8\n").into_iter().collect::<Vec<_>>(),
            [0, 1, 2, 8]
        );
        assert_eq!(list("").len(), 0);
    }

    #[test]
    fn caches_for_data_are_read_from_a_folder() {
        let folder = std::env::temp_dir().join(format!("aerostat-caches-{}", std::process::id()));
        for (name, kind, level, size) in [
            ("index2", "Unified", "2", "1024K"),
            ("index1", "Instruction", "1", "32K"),
            ("index0", "Data", "1", "48K"),
        ] {
            let index = folder.join(name);
            fs::create_dir_all(&index).unwrap();
            for (file, text) in [
                ("type", kind),
                ("level", level),
                ("size", size),
                ("coherency_line_size", "64"),
                ("shared_cpu_list", "0-1"),
            ] {
                fs::write(index.join(file), format!("{text}\n")).unwrap();
            }
        }
        let caches = caches_in(&folder);
        fs::remove_dir_all(&folder).unwrap();
        let sizes: Vec<_> = caches
            .iter()
            .map(|c| (c.level, c.size_bytes, c.shared_by))
            .collect();
        assert_eq!(sizes, [(1, 48 << 10, 2), (2, 1 << 20, 2)]);
        assert_eq!(caches_in(Path::new("/nonexistent")), []);
    }

    #[test]
    fn guests_say_so() {
        assert!(is_guest(
            "processor: 0\nflags\t\t: fpu hypervisor lahf_lm\n"
        ));
        assert!(!is_guest("flags\t\t: fpu lahf_lm\n"));
    }
}
