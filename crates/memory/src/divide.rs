//! Who gives how much of what is to be given back: water-filling by weight.
//!
//! ```text
//!  beyond the minimum,      ▓▓        what lies above the level is given;
//!  for the weight           ▓▓ ▓▓     who is below gives nothing
//!                    ────── ░░ ░░ ── ── level
//!                           ░░ ░░ ░░
//! ```

/// What somebody has beyond its minimum, and its weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    /// In bytes.
    pub(crate) beyond: u64,
    /// At least 1.
    pub(crate) weight: u32,
}

impl Claim {
    fn height(&self) -> f64 {
        self.beyond as f64 / f64::from(self.weight)
    }
}

/// How many bytes each gives, by its number, so that all have as much for their weight afterwards as far as
/// that goes; together `bytes`, or all they have. All are named, who has the most for its weight first.
pub(crate) fn divide(bytes: u64, claims: &[Claim]) -> Vec<(usize, u64)> {
    let mut order: Vec<usize> = (0..claims.len()).collect();
    order.sort_by(|&a, &b| claims[b].height().total_cmp(&claims[a].height()));
    let (mut beyond, mut weight, mut level) = (0.0, 0.0, 0.0);
    for (at, &of) in order.iter().enumerate() {
        beyond += claims[of].beyond as f64;
        weight += f64::from(claims[of].weight);
        level = f64::max((beyond - bytes as f64) / weight, 0.0);
        let next = order.get(at + 1);
        if next.is_none_or(|&next| claims[next].height() <= level) {
            break;
        }
    }
    let mut left = bytes;
    let share = |at: usize| {
        let claim = claims[at];
        let above = (claim.beyond as f64 - level * f64::from(claim.weight)).ceil();
        // Whole bytes: the last ones of the order give a little less.
        let share = (above.max(0.0) as u64).min(claim.beyond).min(left);
        left -= share;
        (at, share)
    };
    order.into_iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::StdRng};

    use super::*;

    fn given(bytes: u64, claims: &[(u64, u32)]) -> Vec<u64> {
        let claims: Vec<Claim> = claims
            .iter()
            .map(|&(beyond, weight)| Claim { beyond, weight })
            .collect();
        let mut given = vec![0; claims.len()];
        for (at, share) in divide(bytes, &claims) {
            given[at] = share;
        }
        given
    }

    #[test]
    fn who_has_the_most_for_its_weight_gives_first() {
        assert_eq!(given(100, &[(500, 1), (300, 1), (0, 1)]), [100, 0, 0]);
        assert_eq!(given(300, &[(500, 1), (300, 1), (0, 1)]), [250, 50, 0]);
        assert_eq!(given(900, &[(500, 1), (300, 1), (0, 1)]), [500, 300, 0]);
        // Twice the weight has twice as much.
        assert_eq!(given(300, &[(600, 200), (600, 100)]), [0, 300]);
        assert_eq!(given(600, &[(600, 200), (600, 100)]), [200, 400]);
        assert_eq!(given(0, &[(600, 200)]), [0]);
        assert_eq!(given(5, &[]), [0; 0]);
    }

    #[test]
    fn shares_are_whole_and_level() {
        let mut rng = StdRng::seed_from_u64(20_261_127);
        for _ in 0..2_000 {
            let count = rng.random_range(1..8);
            let claims: Vec<(u64, u32)> = (0..count)
                .map(|_| (rng.random_range(0..1 << 40), rng.random_range(1..10_000)))
                .collect();
            let all: u64 = claims.iter().map(|(beyond, _)| beyond).sum();
            let bytes = rng.random_range(0..all + all / 8 + 2);
            let given = given(bytes, &claims);
            let sum: u64 = given.iter().sum();
            assert!(
                sum <= bytes && bytes.min(all) - sum <= 1 << 10,
                "{sum} {bytes} {all}"
            );
            let level = claims.iter().zip(&given).filter(|(_, given)| **given > 0);
            let level =
                level.map(|((beyond, weight), given)| (beyond - given) as f64 / f64::from(*weight));
            let level = level.fold(0.0, f64::max);
            for ((beyond, weight), given) in claims.iter().zip(&given) {
                let kept = (beyond - given) as f64 / f64::from(*weight);
                assert!(
                    *given > 0 || kept <= level + 1.0 || bytes == 0,
                    "{claims:?} {given}"
                );
            }
        }
    }
}
