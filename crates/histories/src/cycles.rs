//! Cycles that an isolation forbids, and the shortest of each kind as a witness.
//!
//! What snapshot isolation forbids is found in a graph where each transaction stands twice:
//! reached by rw, from where no rw leads on, and reached otherwise.
//!
//! ```text
//!   (T, free) ──ww, wr, order──► (T', free)      (T, behind rw) ──ww, wr, order──► (T', free)
//!   (T, free) ──rw─────────────► (T', behind rw)
//! ```
//!
//! Its cycles are closed walks without two rw in a row. One that passes a transaction twice is
//! two, and at least one of them has no two rw in a row where it is closed, so there is a cycle
//! of the kind that passes each once. Components are found in linear time; only where there is
//! one, which in a right history there is not, is the graph searched for witnesses.

use std::collections::{HashSet, VecDeque};

use crate::components::{NONE, components};
use crate::graph::{Edge, Graph, step};
use crate::kind::{Class, EdgeKind, Kind, Via};
use crate::model::Model;
use crate::report::{Anomaly, Report};
use crate::versions::Versions;

/// From how many edges of a component a witness is looked for, of which the shortest is reported.
const TRIES_MAX: usize = 48;

/// How many edges all searches together may pass: some seconds. What is found by then is reported.
const WORK_MAX: usize = 200_000_000;

/// States of a walk: what it may do next, and whether it is of its class already.
const STATES: usize = 4;

/// An edge with where it begins.
type Link = (u32, Edge);

/// Reports the cycles that the model forbids: first those that follow from data alone, then those
/// that need the order of processes, or of real time, where none of their class was found before.
pub(crate) fn check(versions: &Versions<'_>, model: Model, report: &mut Report) {
    let data = Model::new(model.isolation);
    let with_sessions = data.strong_session();
    let mut passes = vec![(data, Via::Data)];
    if model.sessions {
        passes.push((with_sessions, Via::Process));
    }
    if model.real_time {
        passes.push((
            Model {
                real_time: true,
                ..model
            },
            Via::RealTime,
        ));
    }
    let mut work = WORK_MAX;
    for (orders, via) in passes {
        let graph = Graph::of(versions, orders);
        for class in [
            Class::G0,
            Class::G1c,
            Class::GSingle,
            Class::GNonadjacent,
            Class::G2Item,
        ] {
            if !model.forbids(Kind::Cycle(class, via)) || report.has_cycle(class) {
                continue;
            }
            let mut search = Search::new(&graph, class, work);
            for cycle in search.cycles() {
                // A closed walk may have come down to a cycle of a class that is reported.
                let Kind::Cycle(found, _) = kind_of(&cycle) else {
                    continue;
                };
                if found == class || !report.has_cycle(found) {
                    add(versions, report, &cycle);
                }
            }
            work = search.work;
        }
    }
}

fn add(versions: &Versions<'_>, report: &mut Report, cycle: &[Link]) {
    let kind = kind_of(cycle);
    report.add(kind, || {
        let steps: Vec<_> = cycle
            .iter()
            .map(|&(from, edge)| step(versions, from, edge))
            .collect();
        let around: Vec<String> = steps.iter().map(|step| step.from.to_string()).collect();
        Anomaly {
            kind,
            transactions: steps.iter().map(|step| step.from).collect(),
            text: format!("{} come before one another", around.join(", ")),
            steps,
        }
    });
}

/// What a cycle is, by its edges.
fn kind_of(cycle: &[Link]) -> Kind {
    let is = |at: usize, kind: EdgeKind| cycle[at % cycle.len()].1.kind == kind;
    let has = |kind: EdgeKind| (0..cycle.len()).any(|at| is(at, kind));
    let rw = (0..cycle.len()).filter(|&at| is(at, EdgeKind::Rw)).count();
    let in_a_row = (0..cycle.len()).any(|at| is(at, EdgeKind::Rw) && is(at + 1, EdgeKind::Rw));
    let class = match rw {
        0 if has(EdgeKind::Wr) => Class::G1c,
        0 => Class::G0,
        1 => Class::GSingle,
        _ if in_a_row => Class::G2Item,
        _ => Class::GNonadjacent,
    };
    let via = if has(EdgeKind::RealTime) {
        Via::RealTime
    } else if has(EdgeKind::Process) {
        Via::Process
    } else {
        Via::Data
    };
    Kind::Cycle(class, via)
}

/// The search for cycles of one class.
struct Search<'a> {
    graph: &'a Graph,
    class: Class,
    /// Of `vertex`, see there.
    component: Vec<u32>,
    components: u32,
    /// Edges that may still be passed.
    work: usize,
    /// By transaction and state: in which search it was reached, and by which edge from which state.
    reached: Vec<u32>,
    reached_by: Vec<(u32, u8, u32)>,
    searches: u32,
}

impl<'a> Search<'a> {
    fn new(graph: &'a Graph, class: Class, work: usize) -> Self {
        let doubled = doubled(class);
        let vertices = graph.transactions() * if doubled { 2 } else { 1 };
        let (component, components) = components(vertices, |vertex, nth| {
            let (transaction, free) = match doubled {
                true => (vertex / 2, vertex % 2 == 0),
                false => (vertex, true),
            };
            let edge = graph.from(transaction).get(nth)?;
            let rw = edge.kind == EdgeKind::Rw;
            let counts = may_pass(class, edge.kind) && (free || !rw);
            Some(counts.then_some(match doubled {
                true => edge.to * 2 + u32::from(rw),
                false => edge.to,
            }))
        });
        // Nothing is searched where nothing was found.
        let places = if components == 0 {
            0
        } else {
            graph.transactions() * STATES
        };
        Self {
            graph,
            class,
            component,
            components,
            work,
            reached: vec![0; places],
            reached_by: vec![(0, 0, 0); places],
            searches: 0,
        }
    }

    /// The component of a transaction, reached by rw or not.
    fn component(&self, transaction: u32, by_rw: bool) -> u32 {
        let at = transaction as usize;
        match doubled(self.class) {
            true => self.component[at * 2 + usize::from(by_rw)],
            false => self.component[at],
        }
    }

    /// The shortest cycle that was found of each kind in each component.
    fn cycles(&mut self) -> Vec<Vec<Link>> {
        let mut tries = vec![0_usize; self.components as usize];
        let mut best: Vec<Vec<Vec<Link>>> = vec![Vec::new(); self.components as usize];
        if self.components == 0 {
            return Vec::new();
        }
        for from in 0..self.graph.transactions() as u32 {
            for &edge in self.graph.from(from) {
                let component = self.component(from, false);
                let rw = edge.kind == EdgeKind::Rw;
                if edge.kind != begins(self.class)
                    || component == NONE
                    || self.component(edge.to, rw) != component
                {
                    continue;
                }
                let tried = &mut tries[component as usize];
                if *tried == TRIES_MAX || self.work == 0 {
                    continue;
                }
                *tried += 1;
                if let Some(walk) = self.shortest((from, edge), component) {
                    let cycle = simple(walk);
                    keep_shortest(&mut best[component as usize], cycle);
                }
            }
        }
        let mut seen = HashSet::new();
        let mut cycles: Vec<_> = best.into_iter().flatten().collect();
        cycles.sort_by_key(Vec::len);
        cycles.retain(|cycle| {
            let mut members: Vec<u32> = cycle.iter().map(|(from, _)| *from).collect();
            members.sort_unstable();
            seen.insert(members)
        });
        cycles
    }

    /// The shortest closed walk of the class that begins with this edge and stays in the component.
    fn shortest(&mut self, first: Link, component: u32) -> Option<Vec<Link>> {
        let (origin, edge) = first;
        self.searches += 1;
        let place = |transaction: u32, state: u8| transaction as usize * STATES + state as usize;
        let mut queue = VecDeque::from([(edge.to, 0_u8)]);
        self.reached[place(edge.to, 0)] = self.searches;
        while let Some((transaction, state)) = queue.pop_front() {
            if transaction == origin && state == goal(self.class) {
                return Some(self.walk_back(first, state));
            }
            for (nth, edge) in self.graph.from(transaction).iter().enumerate() {
                self.work = self.work.saturating_sub(1);
                let rw = edge.kind == EdgeKind::Rw;
                let next = advance(self.class, state, edge.kind);
                let Some(next) = next.filter(|_| self.component(edge.to, rw) == component) else {
                    continue;
                };
                let to = place(edge.to, next);
                if self.reached[to] != self.searches {
                    self.reached[to] = self.searches;
                    self.reached_by[to] = (transaction, state, nth as u32);
                    queue.push_back((edge.to, next));
                }
            }
            if self.work == 0 {
                return None;
            }
        }
        None
    }

    fn walk_back(&self, first: Link, goal: u8) -> Vec<Link> {
        let (mut transaction, mut state) = (first.0, goal);
        let mut walk = Vec::new();
        while (transaction, state) != (first.1.to, 0) {
            let (from, from_state, nth) =
                self.reached_by[transaction as usize * STATES + state as usize];
            walk.push((from, self.graph.from(from)[nth as usize]));
            (transaction, state) = (from, from_state);
        }
        walk.push(first);
        walk.reverse();
        walk
    }
}

fn keep_shortest(best: &mut Vec<Vec<Link>>, cycle: Vec<Link>) {
    let kind = kind_of(&cycle);
    match best.iter_mut().find(|other| kind_of(other) == kind) {
        Some(other) if other.len() > cycle.len() => *other = cycle,
        Some(_) => {}
        None => best.push(cycle),
    }
}

/// A cycle within a closed walk that passes each transaction once, and has two rw in a row only if
/// the walk has.
fn simple(mut walk: Vec<Link>) -> Vec<Link> {
    let rw = |link: &Link| link.1.kind == EdgeKind::Rw;
    loop {
        let twice = (0..walk.len()).find_map(|one| {
            let other = (one + 1..walk.len()).find(|&other| walk[other].0 == walk[one].0)?;
            Some((one, other))
        });
        let Some((one, other)) = twice else {
            return walk;
        };
        // One part is from `one` to before `other`, and what is left the other.
        let bad = rw(&walk[other - 1]) && rw(&walk[one]);
        let part: Vec<Link> = walk.drain(one..other).collect();
        if !bad {
            walk = part;
        }
    }
}

/// Whether two rw in a row are forbidden, so that transactions stand twice in the graph.
fn doubled(class: Class) -> bool {
    matches!(class, Class::GSingle | Class::GNonadjacent)
}

fn may_pass(class: Class, edge: EdgeKind) -> bool {
    match class {
        Class::G0 => !matches!(edge, EdgeKind::Wr | EdgeKind::Rw),
        Class::G1c => edge != EdgeKind::Rw,
        _ => true,
    }
}

/// The edge that every cycle of the class has.
fn begins(class: Class) -> EdgeKind {
    match class {
        Class::G0 => EdgeKind::Ww,
        Class::G1c => EdgeKind::Wr,
        _ => EdgeKind::Rw,
    }
}

/// The state of a walk of the class after another edge; a walk is in 0 after its first.
///
/// ```text
/// G-nonadjacent  0 behind the first rw, 1 free, 2 behind another rw, 3 free after another rw
/// G2-item        0 behind an rw, 1 not, 2 has had two in a row
/// ```
fn advance(class: Class, state: u8, edge: EdgeKind) -> Option<u8> {
    let rw = edge == EdgeKind::Rw;
    match class {
        Class::G0 | Class::G1c | Class::GSingle => (!rw && may_pass(class, edge)).then_some(0),
        Class::GNonadjacent => match (state, rw) {
            (0 | 1, false) => Some(1),
            (2 | 3, false) => Some(3),
            (1 | 3, true) => Some(2),
            _ => None,
        },
        Class::G2Item => match (state, rw) {
            (2, _) | (0, true) => Some(2),
            (1, true) => Some(0),
            _ => Some(1),
        },
    }
}

/// The state in which a walk of the class may end where it began.
fn goal(class: Class) -> u8 {
    match class {
        Class::G0 | Class::G1c | Class::GSingle => 0,
        Class::GNonadjacent => 3,
        Class::G2Item => 2,
    }
}
