//! Finds the merges of atoms that cost least.
//!
//! ```text
//! atoms ≤ ATOMS_EXACT_MAX    every partition, by dynamic programming over subsets
//!       ≤ ATOMS_GREEDY_MAX   the merge of two blocks that gains most, again and again
//!       more                 clusters of the affinity graph, each as above; then
//!                            merges of the dearest blocks across clusters
//! ```
//!
//! The cost of a layout is a sum over its groups, so the best partition of a set of atoms is one
//! group that holds the first of them plus the best partition of the rest: 3ⁿ additions and 2ⁿ
//! group costs instead of all Bell(n) layouts. An atom that is merged with no other may be split
//! into single attributes, if reading values in place gains more than keeping them together
//! (HYRISE never splits one, since its scans hand out tuples, ours columns).

use crate::{
    affinity,
    cost::{CALL_WORK, Model},
};

/// Atoms up to which the search is exact, when [`WORK_MAX`] allows (it does for 150
/// statements): 4,096 group costs and half a million additions.
pub const ATOMS_EXACT_MAX: usize = 12;

/// Atoms up to which all pairs are tried: 2,016 group costs, then 64 per merge.
pub const ATOMS_GREEDY_MAX: usize = 64;

/// Work after which a search ends with what it has, in statements times attributes
/// looked at (5 ns each): about 0.2 s of one core. A count, not a time, so that the same input
/// gives the same advice.
pub const WORK_MAX: u64 = 40_000_000;

/// The share of its cost that a group must gain to be one: more than sums in another order differ by, so
/// that groups whose union costs the same stay apart and narrow.
pub(crate) const MARGIN: f64 = 1e-9;

/// Attributes in the order of atoms, and what they cost.
#[derive(Clone, Debug)]
struct Block {
    /// Attributes in the order of the group's tuple.
    attributes: Vec<usize>,
    /// ns of all statements.
    ns: f64,
    /// Whether it falls apart into single attributes.
    split: bool,
}

/// The groups that cost least among those the search has looked at.
pub(crate) fn search(model: &Model<'_>, atoms: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search::new(model, atoms, WORK_MAX);
    let blocks: Vec<Block> = atoms.iter().map(|atom| search.atom(atom)).collect();
    let blocks = match blocks.len() {
        ..=ATOMS_GREEDY_MAX => search.solve(blocks),
        _ => search.by_clusters(atoms, &blocks),
    };
    blocks.into_iter().flat_map(Block::into_groups).collect()
}

impl Block {
    fn into_groups(self) -> Vec<Vec<usize>> {
        if self.split {
            self.attributes.into_iter().map(|at| vec![at]).collect()
        } else {
            vec![self.attributes]
        }
    }
}

struct Search<'a> {
    model: &'a Model<'a>,
    /// Each attribute's place in the order of atoms.
    ranks: Vec<usize>,
    work: u64,
    work_max: u64,
}

impl<'a> Search<'a> {
    fn new(model: &'a Model<'a>, atoms: &[Vec<usize>], work_max: u64) -> Search<'a> {
        let mut ranks = vec![0; model.shape.names.len()];
        for (rank, &at) in atoms.iter().flatten().enumerate() {
            ranks[at] = rank;
        }
        Search {
            model,
            ranks,
            work: 0,
            work_max,
        }
    }

    /// What a group costs, and the margin for being one.
    fn group_ns(&mut self, attributes: &[usize]) -> f64 {
        let margin = if attributes.len() > 1 { MARGIN } else { 0.0 };
        self.model.group_ns(attributes, &mut self.work) * (1.0 + margin)
    }

    fn atom(&mut self, attributes: &[usize]) -> Block {
        let whole = self.group_ns(attributes);
        let apart: f64 = attributes
            .iter()
            .map(|&at| self.model.group_ns(&[at], &mut self.work))
            .sum();
        Block {
            attributes: attributes.to_vec(),
            ns: whole.min(apart),
            split: apart <= whole,
        }
    }

    fn merged(&mut self, a: &Block, b: &Block) -> Block {
        let mut attributes = [&a.attributes[..], &b.attributes[..]].concat();
        attributes.sort_unstable_by_key(|&at| self.ranks[at]);
        let ns = self.group_ns(&attributes);
        Block {
            attributes,
            ns,
            split: false,
        }
    }

    fn solve(&mut self, blocks: Vec<Block>) -> Vec<Block> {
        let statements = self.model.statements.len() as u64;
        let attributes: usize = blocks.iter().map(|block| block.attributes.len()).sum();
        let exact = blocks.len() <= ATOMS_EXACT_MAX
            && (statements << blocks.len()) * (2 * CALL_WORK + attributes as u64) / 2
                <= self.work_max.saturating_sub(self.work);
        if exact {
            self.exact(blocks)
        } else {
            self.greedy(blocks)
        }
    }

    /// The best of all partitions of the blocks.
    fn exact(&mut self, blocks: Vec<Block>) -> Vec<Block> {
        let subsets = 1_usize << blocks.len();
        let mut merged: Vec<Option<Block>> = vec![None; subsets];
        // The best cost of each subset, and the group in it that holds its first block.
        let mut best = vec![(0.0, 0); subsets];
        for subset in 1..subsets {
            let first = 1 << subset.trailing_zeros();
            let rest = subset ^ first;
            let block = match &merged[rest] {
                None => blocks[subset.trailing_zeros() as usize].clone(),
                Some(others) => self.merged(&blocks[subset.trailing_zeros() as usize], others),
            };
            best[subset] = (block.ns, subset);
            merged[subset] = Some(block);
            // Every smaller group that holds the first block; the first of equals is merged
            // most, the last least, and that one stays.
            let mut others = rest;
            while others != 0 {
                others = (others - 1) & rest;
                let group = first | others;
                let (group_ns, _) = merged[group].as_ref().map_or((0.0, 0), |b| (b.ns, group));
                let ns = group_ns + best[subset ^ group].0;
                if ns <= best[subset].0 {
                    best[subset] = (ns, group);
                }
            }
        }
        let mut left = subsets - 1;
        let mut found = Vec::new();
        while left != 0 {
            let group = best[left].1;
            found.extend(merged[group].take());
            left ^= group;
        }
        found
    }

    /// Merges the two blocks that gain most, until none gains or work runs out.
    fn greedy(&mut self, blocks: Vec<Block>) -> Vec<Block> {
        let mut blocks: Vec<Option<Block>> = blocks.into_iter().map(Some).collect();
        let mut merges: Vec<Merge> = Vec::new();
        for b in 1..blocks.len() {
            self.try_merges(&blocks, b, 0..b, &mut merges);
        }
        while let Some(best) = best_of(&merges) {
            let Merge { a, b, block, .. } = merges.swap_remove(best);
            merges.retain(|merge| ![merge.a, merge.b].iter().any(|end| [a, b].contains(end)));
            (blocks[a], blocks[b]) = (Some(block), None);
            self.try_merges(&blocks, a, 0..blocks.len(), &mut merges);
        }
        blocks.into_iter().flatten().collect()
    }

    /// Adds the merges of one block with others that gain.
    fn try_merges(
        &mut self,
        blocks: &[Option<Block>],
        one: usize,
        others: std::ops::Range<usize>,
        merges: &mut Vec<Merge>,
    ) {
        for other in others.filter(|&other| other != one) {
            let (a, b) = (one.min(other), one.max(other));
            let (Some(first), Some(second)) = (&blocks[a], &blocks[b]) else {
                continue;
            };
            if self.work >= self.work_max {
                return;
            }
            let block = self.merged(first, second);
            let gain_ns = first.ns + second.ns - block.ns;
            if gain_ns > 0.0 {
                merges.push(Merge {
                    a,
                    b,
                    gain_ns,
                    block,
                });
            }
        }
    }

    /// Solves clusters of the affinity graph, then merges the dearest blocks of all.
    fn by_clusters(&mut self, atoms: &[Vec<usize>], blocks: &[Block]) -> Vec<Block> {
        let mut solved = Vec::new();
        for cluster in affinity::clusters(self.model, atoms) {
            let blocks = cluster.iter().map(|&at| blocks[at].clone()).collect();
            solved.extend(self.solve(blocks));
        }
        solved.sort_by(|a, b| {
            let ranks = || self.ranks[a.attributes[0]].cmp(&self.ranks[b.attributes[0]]);
            b.ns.total_cmp(&a.ns).then_with(ranks)
        });
        let cheap = solved.split_off(solved.len().min(ATOMS_GREEDY_MAX));
        let mut found = self.solve(solved);
        found.extend(cheap);
        found
    }
}

/// A merge of two blocks that gains.
struct Merge {
    a: usize,
    b: usize,
    gain_ns: f64,
    block: Block,
}

/// The merge that gains most; of equals, that of the first blocks.
fn best_of(merges: &[Merge]) -> Option<usize> {
    (0..merges.len()).min_by(|&x, &y| {
        let (x, y) = (&merges[x], &merges[y]);
        let blocks = (x.a, x.b).cmp(&(y.a, y.b));
        y.gain_ns.total_cmp(&x.gain_ns).then(blocks)
    })
}

#[cfg(test)]
mod tests;
