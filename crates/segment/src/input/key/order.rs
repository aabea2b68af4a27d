//! The order of keys.

use super::{Ends, KeyRef, Keys};
use crate::kernel::order::prefix_key;

impl Keys {
    /// Whether each key is greater than the one before, so that none is there twice.
    pub fn is_strictly_ascending(&self) -> bool {
        self.is_ascending_by(|before, key| before < key)
    }

    /// Whether no key is less than the one before.
    pub fn is_ascending(&self) -> bool {
        self.is_ascending_by(|before, key| before <= key)
    }

    fn is_ascending_by(&self, ascends: impl Fn(KeyRef<'_>, KeyRef<'_>) -> bool) -> bool {
        (1..self.len).all(|row| ascends(self.get(row - 1), self.get(row)))
    }

    /// The rows in the order of their keys. Rows of one key stay as they are.
    pub fn order(&self) -> Vec<u32> {
        // Most keys differ in their first eight bytes, which then are all that is compared.
        let prefixes = self.iter().map(|key| prefix_key(key.0));
        let mut order: Vec<(u64, u32)> = prefixes.zip(0..).collect();
        order.sort_by(|a, b| {
            let rest = || self.get(a.1 as usize).cmp(&self.get(b.1 as usize));
            a.0.cmp(&b.0).then_with(rest)
        });
        order.into_iter().map(|(_, row)| row).collect()
    }

    /// The keys of these rows.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn reordered(&self, order: &[u32]) -> Keys {
        let mut bytes = Vec::with_capacity(self.bytes.len());
        let mut each = Vec::new();
        for &row in order {
            bytes.extend_from_slice(self.get(row as usize).0);
            if let Ends::Each(_) = self.ends {
                each.push(bytes.len());
            }
        }
        Keys {
            len: order.len(),
            bytes,
            ends: match self.ends {
                Ends::Fixed(width) => Ends::Fixed(width),
                Ends::Each(_) => Ends::Each(each),
            },
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{
        Keys,
        model::{Model, Random},
    };

    #[test]
    fn keys_are_put_in_order() {
        for seed in 0..40 {
            let model = Model::random(seed, Random(seed).below(300) as usize + 1);
            let keys = Keys::encode(&model.schema, &model.arrays(seed)).unwrap();
            let order = keys.order();
            let sorted = keys.reordered(&order);
            assert!(sorted.is_ascending(), "seed {seed}");
            assert_eq!(sorted.len(), keys.len());
            for (pair, at) in order.windows(2).zip(1..) {
                let [before, own] = [at - 1, at].map(|at| sorted.get(at));
                assert_eq!(own, keys.get(pair[1] as usize), "seed {seed}");
                assert!(before < own || pair[0] < pair[1], "seed {seed}: not stable");
            }
            let all: Vec<u32> = (0..keys.len() as u32).collect();
            assert!(keys.reordered(&all).iter().eq(keys.iter()), "seed {seed}");
            let distinct = sorted
                .iter()
                .zip(sorted.iter().skip(1))
                .all(|(a, b)| a != b);
            assert_eq!(sorted.is_strictly_ascending(), distinct, "seed {seed}");
        }
    }
}
