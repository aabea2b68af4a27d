//! Counts distinct values: exactly by a table or by bits, approximately by counting hashes.

use crate::kernel::hash::{hash_bytes, hash_number};

/// What a [`Numbering`] numbers.
pub(crate) trait Distinct: Copy + Eq {
    /// Equal items have equal hashes.
    fn hash(self) -> u64;
}

impl Distinct for u128 {
    #[inline]
    fn hash(self) -> u64 {
        hash_number(self)
    }
}

impl Distinct for &[u8] {
    fn hash(self) -> u64 {
        hash_bytes(self)
    }
}

/// Numbers different items as they come, from 0 on.
pub(crate) struct Numbering<T> {
    items: Vec<T>,
    /// Open addressing: the number of an item with this hash or one shortly before, and 1
    /// more; 0 where there is none. Twice as many as items at least, a power of two.
    slots: Vec<u32>,
    /// The last item that was asked for: neighbours are often equal.
    last: Option<(T, u32)>,
}

impl<T: Distinct> Numbering<T> {
    pub(crate) fn new() -> Numbering<T> {
        Numbering {
            items: Vec::new(),
            slots: vec![0; 64],
            last: None,
        }
    }

    /// The items in order of their numbers.
    pub(crate) fn items(&self) -> &[T] {
        &self.items
    }

    /// The items in order of their numbers.
    pub(crate) fn into_items(self) -> Vec<T> {
        self.items
    }

    /// The number of an item, which is a new one if the item is.
    #[inline]
    pub(crate) fn number(&mut self, item: T) -> u32 {
        if let Some((last, number)) = self.last
            && last == item
        {
            return number;
        }
        let number = self.look_up(item);
        self.last = Some((item, number));
        number
    }

    #[inline]
    fn look_up(&mut self, item: T) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = item.hash() as usize & mask;
        loop {
            match self.slots[at] {
                0 => return self.add(item, at),
                taken if self.items[taken as usize - 1] == item => return taken - 1,
                _ => at = (at + 1) & mask,
            }
        }
    }

    fn add(&mut self, item: T, at: usize) -> u32 {
        self.items.push(item);
        // A segment has fewer rows.
        let count = self.items.len() as u32;
        self.slots[at] = count;
        if self.items.len() * 2 > self.slots.len() {
            self.grow();
        }
        count - 1
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 4 - 1;
        let mut slots = vec![0; mask + 1];
        for (item, number) in self.items.iter().zip(1..) {
            let mut at = item.hash() as usize & mask;
            while slots[at] != 0 {
                at = (at + 1) & mask;
            }
            slots[at] = number;
        }
        self.slots = slots;
    }
}

/// Numbers below a bound, as a bit each.
pub(crate) struct Members {
    words: Vec<u64>,
    count: usize,
}

impl Members {
    pub(crate) fn below(bound: u64) -> Members {
        Members {
            words: vec![0; bound.div_ceil(64) as usize],
            count: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn add(&mut self, number: u64) {
        let (word, bit) = (&mut self.words[number as usize / 64], number % 64);
        self.count += usize::from(*word >> bit & 1 == 0);
        *word |= 1 << bit;
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The members in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            let bits = (0..64).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| at as u64 * 64 + bit)
        })
    }

    /// Tells of each member how many are less.
    pub(crate) fn into_ranks(self) -> Ranks {
        let mut before = 0;
        let rank = |&word: &u64| {
            let members = word.count_ones();
            before += members;
            (word, before - members)
        };
        Ranks {
            words: self.words.iter().map(rank).collect(),
        }
    }
}

/// Members, with how many there are before each word.
pub(crate) struct Ranks {
    words: Vec<(u64, u32)>,
}

impl Ranks {
    /// How many members are less than a number below the bound.
    #[inline(always)]
    pub(crate) fn of(&self, number: u64) -> u64 {
        let (word, before) = self.words[number as usize / 64];
        let less = word & ((1 << (number % 64)) - 1);
        u64::from(before + less.count_ones())
    }
}

/// Estimates how many different hashes there are by how many bits they set (Whang,
/// Vander-Zanden, Taylor: "A Linear-Time Probabilistic Counting Algorithm").
pub(crate) struct Estimate {
    words: Vec<u64>,
    set: usize,
}

/// Bits for a hash, and at least: the standard error is √(1 ÷ 2 bits) of the hashes, 0.3% of
/// the fewest bits and 0.05% of those for 300,000 rows, which stay in the L2 cache.
const HASH_BITS: usize = 4;
const HASH_BITS_MIN: usize = 1 << 16;

impl Estimate {
    pub(crate) fn of_at_most(hashes: usize) -> Estimate {
        let bits = (hashes * HASH_BITS).next_power_of_two().max(HASH_BITS_MIN);
        Estimate {
            words: vec![0; bits / 64],
            set: 0,
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, hash: u64) {
        let at = hash as usize & (self.words.len() * 64 - 1);
        let word = &mut self.words[at / 64];
        self.set += usize::from(*word >> (at % 64) & 1 == 0);
        *word |= 1 << (at % 64);
    }

    /// About how many different hashes came.
    pub(crate) fn count(&self) -> usize {
        let bits = (self.words.len() * 64) as f64;
        (-bits * (-(self.set as f64) / bits).ln_1p()).round() as usize
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::model::Random;

    #[test]
    fn equal_items_have_one_number() {
        let mut random = Random(11);
        let (mut numbering, mut known) = (Numbering::new(), Vec::new());
        for _ in 0..3000 {
            let item = u128::from(random.below(500)) << random.pick(&[0, 64]);
            let number = numbering.number(item) as usize;
            let expected = known.iter().position(|own| *own == item);
            assert_eq!(number, expected.unwrap_or(known.len()));
            if expected.is_none() {
                known.push(item);
            }
        }
        assert_eq!(numbering.items(), known);
        let mut texts = Numbering::new();
        let numbers = [&b"a"[..], b"", b"a", b"b", b"b", b""].map(|text| texts.number(text));
        assert_eq!(numbers, [0, 1, 0, 2, 2, 1]);
    }

    #[test]
    fn members_are_ranked() {
        let mut random = Random(12);
        for bound in [1, 64, 65, 1000] {
            let mut members = Members::below(bound);
            let mut numbers: Vec<u64> = (0..100).map(|_| random.below(bound)).collect();
            numbers.iter().for_each(|&number| members.add(number));
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(members.count(), numbers.len());
            assert_eq!(members.iter().collect::<Vec<_>>(), numbers);
            let ranks = members.into_ranks();
            for (rank, &number) in (0..).zip(&numbers) {
                assert_eq!(ranks.of(number), rank);
            }
        }
    }

    #[test]
    fn estimates_are_within_half_a_percent() {
        for distinct in [1u32, 10, 5000, 100_000, 300_000] {
            let mut estimate = Estimate::of_at_most(300_000);
            for number in 0..300_000 {
                estimate.add(hash_number((number % distinct).into()));
            }
            let error = estimate.count().abs_diff(distinct as usize);
            assert!(error * 200 <= distinct as usize, "{distinct}: {error} off");
        }
    }
}
