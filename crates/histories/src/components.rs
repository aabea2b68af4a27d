//! Strongly connected components by Tarjan's algorithm, without recursion: a history's chain of
//! transactions is longer than a stack.

/// The component of a vertex that is in no cycle.
pub(crate) const NONE: u32 = u32::MAX;

/// For each vertex the number of its component, [`NONE`] where that has no other vertex, and how
/// many components with more there are. `successor(vertex, n)` is the `n`th edge: `None` behind
/// the last, `Some(None)` where an edge does not count.
pub(crate) fn components(
    vertices: usize,
    successor: impl Fn(u32, usize) -> Option<Option<u32>>,
) -> (Vec<u32>, u32) {
    const UNSEEN: u32 = u32::MAX;
    let mut component = vec![NONE; vertices];
    let mut number = vec![UNSEEN; vertices];
    let mut lowest = vec![0_u32; vertices];
    let mut on_stack = vec![false; vertices];
    let mut stack: Vec<u32> = Vec::new();
    let mut calls: Vec<(u32, usize)> = Vec::new();
    let (mut next_number, mut found) = (0_u32, 0_u32);
    for root in 0..vertices {
        if number[root] != UNSEEN {
            continue;
        }
        calls.push((root as u32, 0));
        while let Some((vertex, edge)) = calls.pop() {
            let at = vertex as usize;
            if edge == 0 {
                number[at] = next_number;
                lowest[at] = next_number;
                next_number += 1;
                stack.push(vertex);
                on_stack[at] = true;
            }
            match successor(vertex, edge) {
                Some(other) => {
                    calls.push((vertex, edge + 1));
                    let Some(other) = other else { continue };
                    let to = other as usize;
                    if number[to] == UNSEEN {
                        calls.push((other, 0));
                    } else if on_stack[to] {
                        lowest[at] = lowest[at].min(number[to]);
                    }
                }
                None => {
                    if let Some(&(caller, _)) = calls.last() {
                        let caller = caller as usize;
                        lowest[caller] = lowest[caller].min(lowest[at]);
                    }
                    if lowest[at] == number[at] {
                        let from = stack.iter().rposition(|&other| other == vertex);
                        let members = stack.split_off(from.expect("a vertex is on the stack"));
                        for &member in &members {
                            on_stack[member as usize] = false;
                        }
                        if members.len() > 1 {
                            for &member in &members {
                                component[member as usize] = found;
                            }
                            found += 1;
                        }
                    }
                }
            }
        }
    }
    (component, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(vertices: usize, edges: &[(u32, u32)]) -> (Vec<u32>, u32) {
        components(vertices, |vertex, nth| {
            let mut from = edges.iter().filter(|(from, _)| *from == vertex);
            from.nth(nth).map(|(_, to)| Some(*to))
        })
    }

    #[test]
    fn chains_have_none_and_rings_one_each() {
        assert_eq!(of(3, &[(0, 1), (1, 2)]), (vec![NONE; 3], 0));
        let (component, found) = of(5, &[(0, 1), (1, 0), (1, 2), (2, 3), (3, 4), (4, 2)]);
        assert_eq!(found, 2);
        assert_eq!(component[0], component[1]);
        assert_eq!(component[2], component[3]);
        assert_eq!(component[2], component[4]);
        assert_ne!(component[0], component[2]);
    }

    /// Two vertices are in one component if each reaches the other.
    #[test]
    fn components_are_who_reach_each_other() {
        use rand::{Rng, SeedableRng};
        for seed in 0..500 {
            let mut dice = rand_pcg::Pcg32::seed_from_u64(seed);
            let vertices = dice.random_range(1..9_usize);
            let edges: Vec<(u32, u32)> = (0..dice.random_range(0..20))
                .map(|_| {
                    let mut vertex = || dice.random_range(0..vertices as u32);
                    (vertex(), vertex())
                })
                .collect();
            let mut reach = vec![vec![false; vertices]; vertices];
            for &(from, to) in &edges {
                reach[from as usize][to as usize] = true;
            }
            for middle in 0..vertices {
                for from in 0..vertices {
                    for to in 0..vertices {
                        reach[from][to] |= reach[from][middle] && reach[middle][to];
                    }
                }
            }
            let (component, _) = of(vertices, &edges);
            for one in 0..vertices {
                for other in (0..vertices).filter(|&other| other != one) {
                    let together = reach[one][other] && reach[other][one];
                    let same = component[one] != NONE && component[one] == component[other];
                    assert_eq!(
                        same, together,
                        "seed {seed}: {one} and {other} of {edges:?}"
                    );
                }
            }
        }
    }
}
