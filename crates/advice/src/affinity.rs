//! Cuts the atoms of a very wide table into clusters that are searched apart.
//!
//! HYRISE (§5.4) builds a graph of the primary partitions, an edge weighing what
//! the statements that use both ends weigh, and cuts it into parts of bounded size.
//! Here parts grow along the heaviest edges, the coarsening step of multilevel
//! partitioners (Karypis and Kumar, "A Fast and High Quality Multilevel Scheme",
//! SIAM J. Sci. Comput. 1998), which is deterministic and needs one sort.

use std::collections::HashMap;

use crate::{atoms::heaviest_first, cost::Model};

/// Atoms of a cluster: small enough that all its pairs (496) are tried.
const CLUSTER_ATOMS_MAX: usize = 32;

/// A statement that uses more atoms than this says of each pair little; it links
/// neighbours in the order of atoms, where what is used alike lies side by side.
const CLIQUE_ATOMS_MAX: usize = 64;

/// Links taken into the graph, those of the heaviest statements first: some 30 ms.
const LINKS_MAX: usize = 1 << 18;

/// Sets of atoms, by position, each in order, together all of them.
pub(crate) fn clusters(model: &Model<'_>, atoms: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut edges: Vec<((u32, u32), f64)> = graph(model, atoms).into_iter().collect();
    edges.sort_by(|(ends, weight), (others, other)| other.total_cmp(weight).then(ends.cmp(others)));
    let mut sets = Sets::new(atoms.len());
    for ((a, b), _) in edges {
        sets.join(a as usize, b as usize);
    }
    sets.into_clusters()
}

fn graph(model: &Model<'_>, atoms: &[Vec<usize>]) -> HashMap<(u32, u32), f64> {
    let mut edges = HashMap::new();
    let mut links = 0;
    for nth in heaviest_first(model) {
        let statement = &model.statements[nth];
        let uses = |at: &u32| statement.stages[atoms[*at as usize][0]] != 0;
        let used: Vec<u32> = (0..atoms.len() as u32).filter(uses).collect();
        let reach = if used.len() <= CLIQUE_ATOMS_MAX {
            CLIQUE_ATOMS_MAX
        } else {
            1
        };
        for (position, &a) in used.iter().enumerate() {
            for &b in used[position + 1..].iter().take(reach) {
                *edges.entry((a, b)).or_insert(0.0) += statement.weight;
                links += 1;
            }
        }
        if links >= LINKS_MAX {
            break;
        }
    }
    edges
}

/// Disjoint sets of bounded size.
struct Sets {
    /// Each atom's parent; a root is its own.
    parents: Vec<usize>,
    sizes: Vec<usize>,
}

impl Sets {
    fn new(atoms: usize) -> Sets {
        Sets {
            parents: (0..atoms).collect(),
            sizes: vec![1; atoms],
        }
    }

    fn root(&mut self, mut at: usize) -> usize {
        while self.parents[at] != at {
            self.parents[at] = self.parents[self.parents[at]];
            at = self.parents[at];
        }
        at
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        if a != b && self.sizes[a] + self.sizes[b] <= CLUSTER_ATOMS_MAX {
            self.parents[b] = a;
            self.sizes[a] += self.sizes[b];
        }
    }

    fn into_clusters(mut self) -> Vec<Vec<usize>> {
        let mut clusters = vec![Vec::new(); self.parents.len()];
        for at in 0..self.parents.len() {
            clusters[self.root(at)].push(at);
        }
        clusters.retain(|cluster: &Vec<usize>| !cluster.is_empty());
        clusters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Footprint, Machine, TableShape, Workload};

    #[test]
    fn what_is_read_together_is_in_one_cluster_of_bounded_size() {
        let attributes = 100;
        let names = (0..attributes).map(|at| format!("a{at}")).collect();
        let shape = TableShape::hot(names, vec![4; attributes], 1_000_000);
        let read = |attributes: Vec<usize>, weight| Footprint {
            access: Access::Read { attributes },
            weight,
        };
        // Pairs (0, 50), (1, 51) …, and now and then the first 60.
        let mut footprints: Vec<Footprint> =
            (0..50).map(|at| read(vec![at, at + 50], 10.0)).collect();
        footprints.push(read((0..60).collect(), 1.0));
        let workload = Workload {
            footprints,
            window_s: 1.0,
        };
        let machine = Machine::default();
        let model = Model::new(&workload, &shape, &machine).unwrap();
        let atoms: Vec<Vec<usize>> = (0..attributes).map(|at| vec![at]).collect();
        let clusters = clusters(&model, &atoms);
        assert_eq!(clusters.iter().map(Vec::len).sum::<usize>(), attributes);
        for cluster in &clusters {
            assert!(cluster.len() <= CLUSTER_ATOMS_MAX, "{cluster:?}");
            for at in cluster.iter().filter(|at| **at < 50) {
                assert!(cluster.contains(&(at + 50)), "{cluster:?}");
            }
        }
    }
}
