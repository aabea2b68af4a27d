//! Loads that wait for each other: a chain of places in memory, each holding where
//! the next is.
//!
//! ```text
//! caches   groups of 60 pages, one after the other; inside a group, lines at random
//!          ┌──────────┐┌──────────┐┌───
//!          │ 3 1 4 2  ││ 7 5 8 6  ││ …     few translations are in use at once
//!          └──────────┘└──────────┘└───
//! TLBs     one line of each page, pages at random, 9 pages apart, lines spread over the
//!          sets of the caches
//! control  as many lines side by side: what the caches alone cost for that many lines
//! ```

use rand::Rng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::buffer::PAGE_BYTES;

/// Bytes between the places of a chain that visits lines. A machine with longer lines
/// sees each line more than once; its sizes are found all the same.
pub const STEP_BYTES: usize = 64;

/// Words between two of them.
const STEP_WORDS: usize = STEP_BYTES / 4;

/// Pages that are in use at once: less than the 64 entries that first-level TLBs have.
const GROUP_PAGES: usize = 60;

/// Lines of a group.
const GROUP_LINES: usize = GROUP_PAGES * PAGE_BYTES / STEP_BYTES;

/// Pages from one touched page to the next. Translations of neighbouring pages share an
/// entry on some machines (Zen joins 4, others 8), so touched pages are further apart; the
/// distance is odd, so that they are spread evenly over the sets of a TLB.
pub const APART_PAGES: usize = 9;

/// Bytes of a block of [`Chain::pairs`]; its distances go up to half of it.
pub(crate) const PAIR_BLOCK_BYTES: usize = 1024;

/// A closed chain through some words.
pub struct Chain {
    /// A word of it, where the next walk begins.
    pub at: u32,
    /// Loads until it comes round.
    pub loads: usize,
}

impl Chain {
    /// Closes a chain through `places` in this order.
    fn through(words: &mut [u32], places: &[u32]) -> Chain {
        for (from, to) in places.iter().zip(places.iter().cycle().skip(1)) {
            words[*from as usize] = *to;
        }
        Chain {
            at: places[0],
            loads: places.len(),
        }
    }

    /// Through the first `lines` lines, group by group.
    pub fn lines(words: &mut [u32], lines: usize, random: &mut Pcg64Mcg) -> Chain {
        Chain::through(words, &grouped(lines, random))
    }

    /// Through one line of each 512 bytes, group by group: its neighbours, which prefetchers
    /// bring along, are not asked for.
    pub fn sparse(words: &mut [u32], random: &mut Pcg64Mcg) -> Chain {
        const APART_WORDS: usize = 512 / 4;
        let mut places: Vec<u32> = (0..words.len() / APART_WORDS)
            .map(|part| {
                let line = random.random_range(0..APART_WORDS / STEP_WORDS);
                (part * APART_WORDS + line * STEP_WORDS) as u32
            })
            .collect();
        for group in places.chunks_mut(GROUP_PAGES * PAGE_BYTES / 4 / APART_WORDS) {
            group.shuffle(random);
        }
        Chain::through(words, &places)
    }

    /// Through a line in each of `pages` places, `apart_bytes` apart, in random order.
    pub fn pages(
        words: &mut [u32],
        pages: usize,
        apart_bytes: usize,
        random: &mut Pcg64Mcg,
    ) -> Chain {
        let mut places: Vec<u32> = (0..pages)
            .map(|page| {
                let line = page % (PAGE_BYTES / STEP_BYTES);
                (page * apart_bytes / 4 + line * STEP_WORDS) as u32
            })
            .collect();
        places.shuffle(random);
        Chain::through(words, &places)
    }

    /// Through `blocks` blocks in random order: in each the last word of its first half, then
    /// the word `back_bytes` before it. The second load finds the first one's line unless it
    /// is further back than the line is long. Downwards, where no prefetcher goes by itself.
    pub(crate) fn pairs(
        words: &mut [u32],
        blocks: usize,
        back_bytes: usize,
        random: &mut Pcg64Mcg,
    ) -> Chain {
        let mut blocks: Vec<usize> = (0..blocks).collect();
        blocks.shuffle(random);
        let pair = |block: &usize| {
            let last = (block * PAIR_BLOCK_BYTES + PAIR_BLOCK_BYTES / 2) / 4 - 1;
            [last as u32, (last - back_bytes / 4) as u32]
        };
        let places: Vec<u32> = blocks.iter().flat_map(pair).collect();
        Chain::through(words, &places)
    }

    /// Walks `loads` loads on from where the last walk ended, in whole sixteens.
    pub(crate) fn walk(&mut self, words: &[u32], loads: usize) {
        self.at = walk(words, self.at, loads);
    }
}

/// The words at which the first `lines` lines begin, in the order of groups of equal size,
/// at random inside each.
pub(crate) fn grouped(lines: usize, random: &mut Pcg64Mcg) -> Vec<u32> {
    let mut places: Vec<u32> = (0..lines).map(|line| (line * STEP_WORDS) as u32).collect();
    let groups = lines.div_ceil(GROUP_LINES).max(1);
    for group in places.chunks_mut(lines.div_ceil(groups).max(1)) {
        group.shuffle(random);
    }
    places
}

#[inline(never)]
fn walk(words: &[u32], mut at: u32, loads: usize) -> u32 {
    for _ in 0..loads.div_ceil(16) {
        for _ in 0..16 {
            at = words[at as usize];
        }
    }
    std::hint::black_box(at)
}
