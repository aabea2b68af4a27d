//! Balance where nothing is wrong: the fullest node gets less full, if that is worth the moves.
//!
//! The search relieves the fullest node as long as it can, and then goes back to the earliest moment after
//! which too little was won. So a plan that follows another one, with nothing changed between, finds too
//! little to win and is empty.

use crate::moves::Reason;
use crate::search::Search;

impl Search<'_> {
    /// Lowers the highest fullness by `gain_min` at least, or changes nothing.
    pub(crate) fn balance(&mut self, gain_min: f64) {
        let Some((_, begin)) = self.fullest() else {
            return;
        };
        // Not even an even load would win enough.
        if begin - self.mean_fullness() < gain_min {
            return;
        }
        let mut trail = Vec::new();
        let mut fullness = vec![begin];
        while let Some((node, share)) = self.fullest() {
            let bar = self.bar(node);
            let mut best = self.best_relocation(node, &bar);
            self.best_pair_move(node, &bar, &mut best);
            let Some(step) = best else {
                break;
            };
            let reason = Reason::Balance {
                node: self.facts().nodes[node].id,
                share: share * self.facts().allowed,
            };
            trail.push(self.take(step, &reason));
            fullness.push(self.fullest().map_or(0.0, |(_, share)| share));
        }
        let kept = worthwhile(&fullness, gain_min);
        for before in trail.drain(kept..).rev() {
            self.take_back(before);
        }
    }

    /// The fullest node, and how full it is.
    fn fullest(&self) -> Option<(usize, f64)> {
        let nodes = 0..self.facts().nodes.len();
        nodes
            .filter(|&node| self.state.worst(node) > 0)
            .map(|node| (node, self.state.fullness(node)))
            .max_by(|one, other| one.1.total_cmp(&other.1).then(other.0.cmp(&one.0)))
    }

    /// How full every node would be if loads were spread evenly and nobody failed.
    fn mean_fullness(&self) -> f64 {
        let nodes = self.facts().nodes.iter().enumerate();
        let mut sums = (0.0, 0.0);
        for (index, node) in nodes {
            sums.0 += self.state.load(index) as f64;
            sums.1 += if node.ready {
                node.capacity as f64
            } else {
                0.0
            };
        }
        if sums.1 > 0.0 { sums.0 / sums.1 } else { 0.0 }
    }
}

/// How many steps to keep, of which `fullness[i]` is what the first `i` lead to.
fn worthwhile(fullness: &[f64], gain_min: f64) -> usize {
    let lowest = fullness.iter().copied().fold(f64::INFINITY, f64::min);
    let enough = fullness
        .iter()
        .position(|&share| share - lowest < gain_min || share == lowest);
    enough.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::worthwhile;

    #[test]
    fn steps_are_kept_as_long_as_much_is_won() {
        assert_eq!(worthwhile(&[0.9, 0.85, 0.84], 0.1), 0);
        assert_eq!(worthwhile(&[0.9, 0.72, 0.62, 0.6], 0.1), 2);
        assert_eq!(worthwhile(&[0.9, 0.95, 0.7], 0.1), 2);
        assert_eq!(worthwhile(&[0.9, 0.8], 0.0), 1);
        assert_eq!(worthwhile(&[0.9], 0.1), 0);
    }
}
