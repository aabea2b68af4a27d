//! Page tables of four levels (AMD64 Architecture Programmer's Manual, volume 2, §5.3), built
//! from outside the guest.

use crate::Paging;

/// Bytes of a page, and of a table.
pub(crate) const PAGE: u64 = 4096;

/// Bytes of a huge page.
pub(crate) const HUGE_PAGE: u64 = 2 << 20;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;

/// The bits of an entry that are an address.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// The level whose entries are 4 KiB pages, and that of 2 MiB pages; the root is level 4.
const LEVEL_SMALL: u32 = 1;
const LEVEL_HUGE: u32 = 2;
const LEVEL_ROOT: u32 = 4;

/// Some memory that the guest sees at another physical address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// Where it is in this process, and in the guest's virtual memory.
    pub(crate) address: u64,
    /// Where it is in the guest's physical memory.
    pub(crate) physical: u64,
    pub(crate) bytes: u64,
    pub(crate) is_writable: bool,
    pub(crate) paging: Paging,
}

/// Tables that map some regions; the root is the first, at `base` in physical memory.
pub(crate) struct Tables {
    base: u64,
    /// 512 entries of each table.
    pub(crate) entries: Vec<u64>,
}

impl Tables {
    pub(crate) fn of(base: u64, regions: &[Region]) -> Tables {
        let mut tables = Tables {
            base,
            entries: vec![0; 512],
        };
        for region in regions {
            let (step, level, kind) = match region.paging {
                Paging::Small => (PAGE, LEVEL_SMALL, 0),
                Paging::Huge => (HUGE_PAGE, LEVEL_HUGE, LARGE),
            };
            // Set beforehand, so that walks write nothing.
            let mut flags = PRESENT | USER | ACCESSED | kind;
            if region.is_writable {
                flags |= WRITABLE | DIRTY;
            }
            for offset in (0..region.bytes).step_by(step as usize) {
                let at = tables.entry(region.address + offset, level);
                tables.entries[at] = (region.physical + offset) | flags;
            }
        }
        tables
    }

    /// The index of the entry for `address` in its table of `level`; tables on the way are made.
    fn entry(&mut self, address: u64, level: u32) -> usize {
        let mut table = 0;
        for above in (level + 1..=LEVEL_ROOT).rev() {
            let at = table + index(address, above);
            if self.entries[at] == 0 {
                let next = self.base + (self.entries.len() as u64) * 8;
                self.entries[at] = next | PRESENT | WRITABLE | USER | ACCESSED;
                self.entries.resize(self.entries.len() + 512, 0);
            }
            table = ((self.entries[at] & ADDRESS) - self.base) as usize / 8;
        }
        table + index(address, level)
    }
}

fn index(address: u64, level: u32) -> usize {
    (address >> (12 + 9 * (level - 1))) as usize & 511
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the processor would find: physical address and whether it may write.
    fn walk(tables: &Tables, address: u64) -> Option<(u64, bool)> {
        let mut table = 0;
        for level in (LEVEL_SMALL..=LEVEL_ROOT).rev() {
            let entry = tables.entries[table + index(address, level)];
            if entry & PRESENT == 0 {
                return None;
            }
            let page = 1 << (12 + 9 * (level - 1));
            if level == LEVEL_SMALL || entry & LARGE != 0 {
                return Some(((entry & ADDRESS) + address % page, entry & WRITABLE != 0));
            }
            table = ((entry & ADDRESS) - tables.base) as usize / 8;
        }
        None
    }

    #[test]
    fn all_of_a_region_is_mapped_and_nothing_beside_it() {
        let small = Region {
            address: 0x7fff_ffff_e000,
            physical: 0x8000,
            bytes: 2 * PAGE,
            is_writable: false,
            paging: Paging::Small,
        };
        let huge = Region {
            address: 0x5555_5560_0000,
            physical: 1 << 30,
            bytes: 3 * HUGE_PAGE,
            is_writable: true,
            paging: Paging::Huge,
        };
        let tables = Tables::of(0x10_0000, &[small, huge]);
        assert_eq!(walk(&tables, 0x7fff_ffff_f123), Some((0x9123, false)));
        assert_eq!(walk(&tables, 0x7fff_ffff_d000), None);
        let last = huge.address + huge.bytes - 1;
        assert_eq!(
            walk(&tables, last),
            Some(((1 << 30) + huge.bytes - 1, true))
        );
        assert_eq!(walk(&tables, last + 1), None);
        assert_eq!(walk(&tables, huge.address - 1), None);
    }
}
