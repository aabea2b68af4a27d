//! Memory to walk through, on small pages or on huge ones.

use memmap2::{Advice, MmapMut};
use serde::{Deserialize, Serialize};
use zerocopy::FromBytes;

use crate::CalibrateError;

/// Bytes of a small page: what x86-64 has and most others use.
pub const PAGE_BYTES: usize = 4096;

/// Bytes of a huge page, of the usual kind.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The pages a buffer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pages {
    /// 4 KiB.
    Small,
    /// 2 MiB, by transparent huge pages.
    Huge,
}

/// Anonymous memory seen as 32-bit words, aligned to a huge page. What is not touched
/// costs nothing.
pub struct Buffer {
    map: MmapMut,
    from: usize,
    bytes: usize,
}

impl Buffer {
    /// Maps `bytes`, rounded up to huge pages.
    ///
    /// # Errors
    /// [`CalibrateError::Memory`] when the operating system refuses.
    pub fn new(bytes: usize, pages: Pages) -> Result<Buffer, CalibrateError> {
        let bytes = bytes.next_multiple_of(HUGE_PAGE_BYTES);
        let refused = |source| CalibrateError::Memory { bytes, source };
        let map = MmapMut::map_anon(bytes + HUGE_PAGE_BYTES).map_err(refused)?;
        // A kernel without huge pages refuses; what was granted is read back in `huge_share`.
        let _ = map.advise(match pages {
            Pages::Small => Advice::NoHugePage,
            Pages::Huge => Advice::HugePage,
        });
        let from = map.as_ptr().align_offset(HUGE_PAGE_BYTES);
        Ok(Buffer { map, from, bytes })
    }

    /// The words.
    pub fn words(&self) -> &[u32] {
        <[u32]>::ref_from_bytes(&self.map[self.from..self.from + self.bytes])
            .expect("aligned to a huge page, and whole pages long")
    }

    /// The words, to write.
    pub fn words_mut(&mut self) -> &mut [u32] {
        <[u32]>::mut_from_bytes(&mut self.map[self.from..self.from + self.bytes])
            .expect("aligned to a huge page, and whole pages long")
    }

    /// Touches every page.
    pub fn populate(&mut self) {
        let words = self.words_mut();
        for page in words.chunks_mut(PAGE_BYTES / 4) {
            page[0] = 1;
        }
    }

    /// The share of the buffer's bytes that lies in huge pages, as the kernel says;
    /// `None` where it does not.
    pub fn huge_share(&self) -> Option<f64> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let from = self.map.as_ptr().addr() + self.from;
        let huge = huge_bytes(&smaps, from..from + self.bytes)?;
        Some(huge as f64 / self.bytes as f64)
    }
}

/// Bytes in huge pages of the mappings in `smaps` that overlap `addresses`.
fn huge_bytes(smaps: &str, addresses: std::ops::Range<usize>) -> Option<usize> {
    let mut inside = false;
    let mut bytes = None;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(first), second) = (words.next(), words.next()) else {
            continue;
        };
        if let Some((from, to)) = first.split_once('-') {
            let parse = |text| usize::from_str_radix(text, 16);
            let (Ok(from), Ok(to)) = (parse(from), parse(to)) else {
                continue;
            };
            inside = from < addresses.end && addresses.start < to;
        } else if inside && first == "AnonHugePages:" {
            let kib: usize = second?.parse().ok()?;
            bytes = Some(bytes.unwrap_or(0) + kib * 1024);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_zeroed_and_whole() {
        let mut buffer = Buffer::new(3 * PAGE_BYTES, Pages::Small).unwrap();
        assert_eq!(buffer.words().len() * 4, HUGE_PAGE_BYTES);
        assert_eq!(buffer.words().as_ptr().addr() % HUGE_PAGE_BYTES, 0);
        assert!(buffer.words().iter().all(|word| *word == 0));
        buffer.populate();
        assert_eq!(buffer.words()[PAGE_BYTES / 4], 1);
    }

    #[test]
    fn huge_pages_are_read_from_smaps() {
        let smaps = "1000-3000 rw-p 00000000 00:00 0\nSize: 8 kB\nAnonHugePages:      4 kB\n\
                     3000-5000 rw-p 00000000 00:00 0\nAnonHugePages:      2 kB\n\
                     9000-a000 rw-p 00000000 00:00 0 [heap]\nAnonHugePages:    512 kB\n";
        assert_eq!(huge_bytes(smaps, 0x2000..0x4000), Some(6 * 1024));
        assert_eq!(huge_bytes(smaps, 0x6000..0x7000), None);
    }
}
