//! Which node has which copy, and what follows: loads, what each failure would add, memory, neighbours.
//!
//! ```text
//!                          failed node f
//!                     0     1     2     3
//!  survivor n   0  [  ·   0.20  0.05  0    ]   shift[n][f]: what n bears in addition when f fails
//!               1  [ 0.20   ·   0     0.15 ]
//!               …
//!  worst(n) = load(n) + max over f of shift[n][f]   ≤ capacity(n)
//! ```
//!
//! Everything is kept up to date as copies come and go. [`Assignment::cost_with`] says in a few steps what an
//! absent tenant would cost at given nodes; the searches ask that many thousand times for a plan.
//!
//! Invariants: a tenant's members are distinct; the leader comes first, the others are in order. Two
//! assignments with the same members are equal, whatever changes led to them.

use crate::facts::Facts;

/// How bad an assignment is: first the broken rules, then how unevenly it is loaded. Smaller is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost {
    /// Bytes above what nodes may have in memory, summed over them. No step adds to it: it comes of copies that
    /// have grown.
    pub(crate) overflow: i64,
    /// Units above capacities after the worst failure, summed over the nodes.
    pub(crate) overload: i64,
    /// Neighbours above the cap, summed over the nodes.
    pub(crate) excess: i64,
    /// The nodes' fullness after their worst failures, to the fourth power, summed. The power makes a step
    /// that relieves the fullest nodes worth more than one between empty ones.
    pub(crate) pressure: i128,
}

impl Cost {
    fn add(&mut self, other: Cost) {
        self.overflow += other.overflow;
        self.overload += other.overload;
        self.excess += other.excess;
        self.pressure += other.pressure;
    }

    fn subtract(&mut self, other: Cost) {
        self.overflow -= other.overflow;
        self.overload -= other.overload;
        self.excess -= other.excess;
        self.pressure -= other.pressure;
    }

    /// How much each rule is broken.
    pub(crate) fn broken(&self) -> (i64, i64, i64) {
        (self.overflow, self.overload, self.excess)
    }

    /// No rule is broken.
    pub(crate) fn is_feasible(&self) -> bool {
        self.broken() == (0, 0, 0)
    }

    /// No rule is broken more than under `other`.
    pub(crate) fn keeps_rules(&self, other: &Cost) -> bool {
        self.overflow <= other.overflow
            && self.overload <= other.overload
            && self.excess <= other.excess
    }
}

/// Copies that an assignment adds to where they were at the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Added {
    pub(crate) copies: usize,
    pub(crate) bytes: u64,
}

/// Where copies are.
#[derive(Clone)]
pub(crate) struct Assignment<'a> {
    facts: &'a Facts,
    members: Vec<Vec<usize>>,
    /// Tenants with a copy on a node, in order.
    tenants_on: Vec<Vec<usize>>,
    load: Vec<i64>,
    /// `shift[n * nodes + f]`.
    shift: Vec<i64>,
    shift_max: Vec<i64>,
    /// How many tenants two nodes have in common.
    common: Vec<u32>,
    neighbours: Vec<usize>,
    memory: Vec<u64>,
    costs: Vec<Cost>,
    cost: Cost,
    added: Added,
}

impl<'a> Assignment<'a> {
    /// The tenants where they are now.
    pub(crate) fn origin(facts: &'a Facts) -> Self {
        let nodes = facts.nodes.len();
        let mut new = Self {
            facts,
            members: vec![Vec::new(); facts.tenants.len()],
            tenants_on: vec![Vec::new(); nodes],
            load: vec![0; nodes],
            shift: vec![0; nodes * nodes],
            shift_max: vec![0; nodes],
            common: vec![0; nodes * nodes],
            neighbours: vec![0; nodes],
            memory: vec![0; nodes],
            costs: vec![Cost::default(); nodes],
            cost: Cost::default(),
            added: Added::default(),
        };
        for (tenant, known) in facts.tenants.iter().enumerate() {
            new.set(tenant, known.origin.clone());
        }
        new
    }

    pub(crate) fn facts(&self) -> &'a Facts {
        self.facts
    }

    /// The nodes with a copy of a tenant, the leader first.
    pub(crate) fn members(&self, tenant: usize) -> &[usize] {
        &self.members[tenant]
    }

    pub(crate) fn tenants_on(&self, node: usize) -> &[usize] {
        &self.tenants_on[node]
    }

    pub(crate) fn load(&self, node: usize) -> i64 {
        self.load[node]
    }

    /// The load after the failure that adds most.
    pub(crate) fn worst(&self, node: usize) -> i64 {
        self.load[node] + self.shift_max[node]
    }

    /// That failure; `None` when none adds anything.
    pub(crate) fn worst_failure(&self, node: usize) -> Option<usize> {
        let most = self.shift_max[node];
        let row = self.row(node);
        (most > 0)
            .then(|| row.iter().position(|&shift| shift == most))
            .flatten()
    }

    pub(crate) fn memory(&self, node: usize) -> u64 {
        self.memory[node]
    }

    pub(crate) fn neighbours(&self, node: usize) -> usize {
        self.neighbours[node]
    }

    /// How many tenants two nodes have in common.
    pub(crate) fn common(&self, one: usize, other: usize) -> u32 {
        self.common[one * self.load.len() + other]
    }

    pub(crate) fn cost(&self) -> Cost {
        self.cost
    }

    pub(crate) fn cost_of(&self, node: usize) -> Cost {
        self.costs[node]
    }

    pub(crate) fn added(&self) -> Added {
        self.added
    }

    /// How full a node is after its worst failure, relative to what it may take.
    pub(crate) fn fullness(&self, node: usize) -> f64 {
        fullness(self.worst(node), self.facts.nodes[node].capacity)
    }

    /// Whether a copy of an absent tenant has a place on a node: the node takes copies and has the memory.
    pub(crate) fn fits(&self, tenant: usize, node: usize) -> bool {
        let known = &self.facts.nodes[node];
        known.ready && self.memory[node] + self.facts.tenants[tenant].memory <= known.memory
    }

    /// Takes a tenant out and returns its members.
    pub(crate) fn clear(&mut self, tenant: usize) -> Vec<usize> {
        let members = std::mem::take(&mut self.members[tenant]);
        self.count(tenant, &members, -1);
        let added = self.added_by(tenant, &members);
        self.added.copies -= added.copies;
        self.added.bytes -= added.bytes;
        for &node in &members {
            let place = self.tenants_on[node].binary_search(&tenant);
            self.tenants_on[node].remove(place.expect("a member has the tenant"));
            self.memory[node] -= self.facts.tenants[tenant].memory;
        }
        self.refresh(&members);
        members
    }

    /// Puts an absent tenant on nodes, of which the first leads.
    pub(crate) fn set(&mut self, tenant: usize, members: Vec<usize>) {
        assert!(self.members[tenant].is_empty(), "the tenant is absent");
        debug_assert!(
            members.iter().skip(1).is_sorted() && !members.iter().skip(1).any(|n| *n == members[0])
        );
        self.count(tenant, &members, 1);
        let added = self.added_by(tenant, &members);
        self.added.copies += added.copies;
        self.added.bytes += added.bytes;
        for &node in &members {
            if let Err(place) = self.tenants_on[node].binary_search(&tenant) {
                self.tenants_on[node].insert(place, tenant);
            }
            self.memory[node] += self.facts.tenants[tenant].memory;
        }
        self.refresh(&members);
        self.members[tenant] = members;
    }

    /// The cost if an absent tenant were on these nodes, of which the first leads.
    pub(crate) fn cost_with(&self, tenant: usize, members: &[usize]) -> Cost {
        let parts = self.facts.tenants[tenant].parts;
        let copies = members.len();
        let mut cost = self.cost;
        for &node in members {
            let load = self.load[node] + parts.borne(copies, node == members[0]);
            let mut shift_max = self.shift_max[node];
            let mut neighbours = self.neighbours[node];
            for &failed in members.iter().filter(|&&failed| failed != node) {
                let place = node * self.load.len() + failed;
                let shift = self.shift[place] + parts.shifted(copies, failed == members[0]);
                shift_max = shift_max.max(shift);
                neighbours += usize::from(self.common[place] == 0);
            }
            cost.subtract(self.costs[node]);
            let memory = self.memory[node] + self.facts.tenants[tenant].memory;
            cost.add(self.node_cost(node, load + shift_max, neighbours, memory));
        }
        cost
    }

    /// All that would be added if an absent tenant were on these nodes.
    pub(crate) fn added_with(&self, tenant: usize, members: &[usize]) -> Added {
        let added = self.added_by(tenant, members);
        Added {
            copies: self.added.copies + added.copies,
            bytes: self.added.bytes + added.bytes,
        }
    }

    fn added_by(&self, tenant: usize, members: &[usize]) -> Added {
        let known = &self.facts.tenants[tenant];
        let is_new = |node: &&usize| !known.origin.contains(node);
        let copies = members.iter().filter(is_new).count();
        Added {
            copies,
            bytes: known.memory * copies as u64,
        }
    }

    /// Counts a tenant's loads and pairs in, or out when `sign` is -1.
    fn count(&mut self, tenant: usize, members: &[usize], sign: i64) {
        let parts = self.facts.tenants[tenant].parts;
        let copies = members.len();
        for &node in members {
            self.load[node] += sign * parts.borne(copies, node == members[0]);
            let most = self.shift_max[node];
            let mut falls = false;
            for &failed in members.iter().filter(|&&failed| failed != node) {
                let place = node * self.load.len() + failed;
                falls |= sign < 0 && self.shift[place] == most;
                self.shift[place] += sign * parts.shifted(copies, failed == members[0]);
                self.shift_max[node] = self.shift_max[node].max(self.shift[place]);
                self.count_pair(node, place, sign);
            }
            // Only a failure that was the worst can leave another one as the worst.
            if falls {
                self.shift_max[node] = self.row(node).iter().fold(0, |max, &one| max.max(one));
            }
        }
    }

    fn count_pair(&mut self, node: usize, place: usize, sign: i64) {
        if sign > 0 {
            self.neighbours[node] += usize::from(self.common[place] == 0);
            self.common[place] += 1;
        } else {
            self.common[place] -= 1;
            self.neighbours[node] -= usize::from(self.common[place] == 0);
        }
    }

    fn refresh(&mut self, members: &[usize]) {
        for &node in members {
            let (neighbours, memory) = (self.neighbours[node], self.memory[node]);
            let new = self.node_cost(node, self.worst(node), neighbours, memory);
            self.cost.subtract(self.costs[node]);
            self.cost.add(new);
            self.costs[node] = new;
        }
    }

    fn row(&self, node: usize) -> &[i64] {
        let nodes = self.load.len();
        &self.shift[node * nodes..][..nodes]
    }

    fn node_cost(&self, node: usize, worst: i64, neighbours: usize, memory: u64) -> Cost {
        let known = &self.facts.nodes[node];
        let capacity = known.capacity;
        // 20 bits after the point and 6 before it: the fourth power of a thousand nodes fits 128 bits.
        let scaled = i128::from((fullness(worst, capacity) * f64::from(1 << 20)) as i64);
        Cost {
            overflow: memory.saturating_sub(known.memory) as i64,
            overload: (worst - capacity).max(0),
            excess: neighbours.saturating_sub(self.facts.neighbours_max) as i64,
            pressure: scaled * scaled * scaled * scaled,
        }
    }
}

/// A node without capacity, or far above it, counts as so many times full.
const FULLNESS_MAX: f64 = 64.0;

fn fullness(load: i64, capacity: i64) -> f64 {
    if load == 0 {
        return 0.0;
    }
    (load as f64 / capacity as f64).min(FULLNESS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::generate::instance;

    /// The numbers that are kept up to date are those that counting anew finds.
    fn check(assignment: &Assignment<'_>) {
        let mut anew = Assignment::origin(assignment.facts);
        for (tenant, members) in assignment.members.iter().enumerate() {
            anew.clear(tenant);
            anew.set(tenant, members.clone());
        }
        assert_eq!(anew.load, assignment.load);
        assert_eq!(anew.shift, assignment.shift);
        assert_eq!(anew.memory, assignment.memory);
        assert_eq!(anew.neighbours, assignment.neighbours);
        assert_eq!(anew.tenants_on, assignment.tenants_on);
        assert_eq!(anew.cost, assignment.cost);
        assert_eq!(anew.added, assignment.added);
        for node in 0..anew.load.len() {
            let failures = (0..anew.load.len()).map(|failed| load_after(assignment, node, failed));
            assert_eq!(
                failures.max(),
                Some(assignment.worst(node)),
                "slowly counted"
            );
        }
    }

    /// The load of a node when another has failed, from the definition.
    fn load_after(assignment: &Assignment<'_>, node: usize, failed: usize) -> i64 {
        let mut load = 0;
        for &tenant in assignment.tenants_on(node) {
            let members = assignment.members(tenant);
            let parts = assignment.facts.tenants[tenant].parts;
            let fails = failed != node && members.contains(&failed);
            let leads = members[0] == node || fails && members[0] == failed;
            load += parts.borne(members.len() - usize::from(fails), leads);
        }
        load
    }

    #[test]
    fn what_is_kept_up_to_date_is_what_counting_finds() {
        for seed in 0..200 {
            let (inventory, policy) = instance(seed);
            let facts = Facts::new(&inventory, &policy);
            let mut assignment = Assignment::origin(&facts);
            for tenant in 0..facts.tenants.len() {
                let members = assignment.clear(tenant);
                let turned: Vec<usize> = (0..facts.nodes.len())
                    .filter(|node| (node + tenant + seed as usize).is_multiple_of(3))
                    .take(facts.tenants[tenant].copies)
                    .collect();
                let told = assignment.cost_with(tenant, &turned);
                assignment.set(tenant, turned);
                assert_eq!(told, assignment.cost(), "seed {seed}");
                if tenant.is_multiple_of(2) {
                    assignment.clear(tenant);
                    assignment.set(tenant, members);
                }
            }
            check(&assignment);
        }
    }
}
