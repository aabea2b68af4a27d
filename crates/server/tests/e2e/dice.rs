//! Random choices from a seed: the same seed, the same choices.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Dice for one of a round's steps: what is drawn in another does not matter to them.
    pub(crate) fn of_step(seed: u64, step: u64) -> Self {
        let mut round = Self(seed);
        Self(round.next().wrapping_add(step << 32))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is above 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        // The high bits, scaled: the bias is far below what a test could see.
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// True once in so many times.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Some of these, at least one, in their order.
    pub(crate) fn some<T: Clone>(&mut self, from: &[T]) -> Vec<T> {
        let chosen: Vec<T> = from.iter().filter(|_| self.one_in(2)).cloned().collect();
        if chosen.is_empty() {
            return vec![from[self.below(from.len() as u64) as usize].clone()];
        }
        chosen
    }

    /// These in any order.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}
