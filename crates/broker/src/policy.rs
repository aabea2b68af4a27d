//! Who should have more memory, and from whom: pure functions of what is known.
//!
//! ```text
//!  Candidate (floor, ceiling, granted, wanted, costs) … ──policy──► Transfer (from, to, bytes, why) …
//! ```
//!
//! * `static` moves nothing. Each program keeps what it was granted when it joined.
//! * `proportional` divides what is beyond the floors in proportion to what each program wants beyond
//!   its floor.
//! * `benefit` moves memory from where its lack costs least to where it costs most, as long as the gain
//!   is [`GAIN_MIN`] times the loss and the cost of moving. Where costs are convex in memory a quantum at a time
//!   is the optimum (Fox 1966). A working set that fits as a whole or is of no use makes a cliff, so
//!   gains are looked for beyond the next quantum as well: the lookahead of Qureshi and Patt (MICRO 2006).
//!
//! Under every policy free memory is granted to those who want it, and nobody is asked for memory below
//! its floor, nor a program that cannot give back.

mod costs;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

pub use self::costs::Costs;

/// How many times the loss and the cost of moving a gain must be.
pub const GAIN_MIN: f64 = 1.2;

/// Over how long a move must pay for itself, in seconds: it is not undone sooner (`core::pace`).
const HORIZON_S: f64 = 30.0;

/// How fast memory is given back where a program does not say, in bytes a second: InnoDB's buffer pool
/// under load, the slowest of the programs that were measured.
const GIVES_BYTES_PER_S: u64 = 512 << 20;

/// A move is divided into quanta of the budget's 64th part, for which a choice is made each.
const QUANTA: u64 = 64;

/// The smallest quantum: moving less is not worth the messages.
pub const QUANTUM_BYTES_MIN: u64 = 16 << 20;

/// How memory is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// As it was granted first.
    Static,
    /// By what each program wants.
    Proportional,
    /// By what it is worth to each program.
    #[default]
    Benefit,
}

/// A program, as far as a policy has to do with it. All amounts are bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// What it cannot work without.
    pub floor: u64,
    /// The most that it can use.
    pub ceiling: u64,
    /// What it has.
    pub granted: u64,
    /// What it would use if it had it.
    pub wanted: u64,
    /// What its lack of memory costs.
    pub costs: Costs,
    /// How fast it gives memory back, in bytes a second, if known.
    pub gives_bytes_per_s: Option<u64>,
    /// Whether it may be asked for memory now.
    pub may_give: bool,
    /// Whether it may be granted memory now.
    pub may_take: bool,
}

/// Memory that should move.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// Who gives it; `None` where it is free.
    pub from: Option<String>,
    /// Who is to have it; `None` where it is to be free.
    pub to: Option<String>,
    /// How much.
    pub bytes: u64,
    /// Why, for people.
    pub why: String,
}

impl Policy {
    /// Which transfers bring memory to where this policy wants it.
    pub fn plan(self, budget: u64, free: u64, candidates: &[Candidate]) -> Vec<Transfer> {
        let mut state = State::new(budget, free, candidates);
        state.grant_free();
        match self {
            Policy::Static => {}
            Policy::Proportional => state.share_proportionally(),
            Policy::Benefit => state.follow_benefit(),
        }
        state.transfers()
    }

    /// Which transfers make `missing` bytes free, as far as floors allow: from where it costs least.
    pub fn plan_to_free(
        budget: u64,
        missing: u64,
        candidates: &[Candidate],
        why: &str,
    ) -> Vec<Transfer> {
        let mut state = State::new(budget, 0, candidates);
        state.give_cheapest(missing, why);
        state.transfers()
    }
}

/// The policies' names.
const NAMES: [(Policy, &str); 3] = [
    (Policy::Static, "static"),
    (Policy::Proportional, "proportional"),
    (Policy::Benefit, "benefit"),
];

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(policy, _)| policy == self);
        f.write_str(name.expect("each policy has a name").1)
    }
}

/// A text names no policy.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no policy; there are static, proportional and benefit")]
pub struct NoPolicy(String);

impl FromStr for Policy {
    type Err = NoPolicy;

    fn from_str(text: &str) -> Result<Self, NoPolicy> {
        let named = NAMES.iter().find(|(_, name)| *name == text);
        named
            .map(|(policy, _)| *policy)
            .ok_or_else(|| NoPolicy(text.to_owned()))
    }
}

/// A plan in the making.
struct State<'a> {
    candidates: &'a [Candidate],
    /// What each would have.
    planned: Vec<u64>,
    free: u64,
    quantum: u64,
    moves: Vec<Move>,
}

/// An amount from a candidate, or free memory, to another.
struct Move {
    from: Option<usize>,
    to: Option<usize>,
    bytes: u64,
    why: String,
}

/// What a candidate would gain by so many bytes, in milliseconds a second for each.
struct Wish {
    to: usize,
    bytes: u64,
    gain: f64,
}

/// A wish that can be met, and by whom.
struct Deal {
    to: usize,
    parts: Vec<(usize, u64)>,
    why: String,
}

impl<'a> State<'a> {
    fn new(budget: u64, free: u64, candidates: &'a [Candidate]) -> Self {
        Self {
            candidates,
            planned: candidates.iter().map(|one| one.granted).collect(),
            free,
            quantum: (budget / QUANTA).max(QUANTUM_BYTES_MIN),
            moves: Vec::new(),
        }
    }

    /// What a candidate could use beyond what it would have.
    fn lacks(&self, at: usize) -> u64 {
        let one = &self.candidates[at];
        match one.may_take {
            true => one.wanted.min(one.ceiling).saturating_sub(self.planned[at]),
            false => 0,
        }
    }

    /// What a candidate could give.
    fn spares(&self, at: usize) -> u64 {
        let one = &self.candidates[at];
        match one.may_give {
            true => self.planned[at].saturating_sub(one.floor),
            false => 0,
        }
    }

    fn moved(&mut self, from: Option<usize>, to: Option<usize>, bytes: u64, why: &str) {
        match from {
            Some(from) => self.planned[from] -= bytes,
            None => self.free -= bytes,
        }
        match to {
            Some(to) => self.planned[to] += bytes,
            None => self.free += bytes,
        }
        let known = self
            .moves
            .iter_mut()
            .find(|one| (one.from, one.to) == (from, to));
        match known {
            Some(one) => one.bytes += bytes,
            None => self.moves.push(Move {
                from,
                to,
                bytes,
                why: why.to_owned(),
            }),
        }
    }

    /// Grants what is free: first to whoever has less than its floor, which has risen then, and further to
    /// those who want it, the dearest lack first.
    fn grant_free(&mut self) {
        for (at, one) in self.candidates.iter().enumerate() {
            let lacks = one.floor.saturating_sub(self.planned[at]);
            let bytes = lacks.min(self.free);
            if one.may_take && bytes > 0 {
                self.moved(None, Some(at), bytes, "its floor has risen");
            }
        }
        while self.free > 0 {
            let all = 0..self.candidates.len();
            let wishes = all.flat_map(|at| self.wishes(at));
            let Some(wish) = wishes.max_by(|a, b| a.gain.total_cmp(&b.gain)) else {
                break;
            };
            let bytes = wish.bytes.min(self.free);
            self.moved(
                None,
                Some(wish.to),
                bytes,
                "it wants memory, and some is free",
            );
        }
    }

    /// What a candidate loses in a second by the next `bytes`, for each byte.
    fn loss(&self, at: usize, bytes: u64) -> Option<f64> {
        let has = self.planned[at];
        let costs = &self.candidates[at].costs;
        (bytes > 0 && self.spares(at) >= bytes)
            .then(|| (costs.at(has - bytes) - costs.at(has)) / bytes as f64)
    }

    /// Who loses least by the next `bytes`, and how much for each byte.
    fn cheapest(&self, bytes: u64, but: Option<usize>) -> Option<(usize, f64)> {
        let all = 0..self.candidates.len();
        all.filter(|at| Some(*at) != but)
            .filter_map(|at| Some((at, self.loss(at, bytes)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn follow_benefit(&mut self) {
        // A step moves a quantum at least, and none is moved back, so it ends.
        while let Some(deal) = self.best_deal() {
            for (from, bytes) in deal.parts {
                self.moved(Some(from), Some(deal.to), bytes, &deal.why);
            }
        }
    }

    /// The dearest gain that is worth what it costs others.
    fn best_deal(&self) -> Option<Deal> {
        let all = 0..self.candidates.len();
        let mut wishes: Vec<Wish> = all.flat_map(|at| self.wishes(at)).collect();
        wishes.sort_by(|a, b| b.gain.total_cmp(&a.gain));
        wishes.iter().find_map(|wish| self.deal(wish))
    }

    /// What a candidate gains by the next quantum, and up to each point of its costs.
    fn wishes(&self, at: usize) -> Vec<Wish> {
        let (has, lacks) = (self.planned[at], self.lacks(at));
        let costs = &self.candidates[at].costs;
        let points = costs.points().map(|point| point.saturating_sub(has));
        let mut amounts: Vec<u64> = points.chain([self.quantum, lacks]).collect();
        amounts.retain(|&bytes| bytes > 0 && bytes <= lacks);
        amounts.sort_unstable();
        amounts.dedup();
        let amounts = amounts.into_iter();
        amounts
            .map(|bytes| Wish {
                to: at,
                bytes,
                gain: (costs.at(has) - costs.at(has + bytes)) / bytes as f64,
            })
            .collect()
    }

    /// From whom a wish can be met, if it is worth that.
    fn deal(&self, wish: &Wish) -> Option<Deal> {
        let mut state = State {
            candidates: self.candidates,
            planned: self.planned.clone(),
            free: 0,
            quantum: self.quantum,
            moves: Vec::new(),
        };
        let (mut left, mut loss, mut moving, mut parts) = (wish.bytes, 0.0, 0.0, Vec::new());
        while left > 0 {
            let bytes = left.min(self.quantum);
            let (from, of_byte) = state.cheapest(bytes, Some(wish.to))?;
            let speed = self.candidates[from]
                .gives_bytes_per_s
                .unwrap_or(GIVES_BYTES_PER_S);
            // Milliseconds of one thread, in each second of the horizon. What is not in use is given
            // back without work.
            if of_byte > 0.0 {
                loss += of_byte * bytes as f64;
                moving += bytes as f64 * 1_000.0 / speed.max(1) as f64 / HORIZON_S;
            }
            state.planned[from] -= bytes;
            parts.push((from, bytes));
            left -= bytes;
        }
        let gain = wish.gain * wish.bytes as f64;
        let of_gib = (1u64 << 30) as f64 / wish.bytes as f64;
        let why = format!(
            "a GiB more saves {:.0} ms a second there, a GiB less costs {:.0} here",
            gain * of_gib,
            loss * of_gib
        );
        let to = wish.to;
        (gain > GAIN_MIN * loss + moving).then_some(Deal { to, parts, why })
    }

    fn share_proportionally(&mut self) {
        let wanted = |one: &Candidate| one.wanted.clamp(one.floor, one.ceiling);
        let all = 0..self.candidates.len();
        // Those that take no part keep what they have.
        let moving: Vec<usize> = all
            .filter(|&at| self.candidates[at].may_give || self.candidates[at].may_take)
            .collect();
        let floors: u64 = moving.iter().map(|&at| self.candidates[at].floor).sum();
        let total: u64 = moving.iter().map(|&at| self.planned[at]).sum();
        let beyond = u128::from(total.saturating_sub(floors));
        let wishes: u128 = moving
            .iter()
            .map(|&at| u128::from(wanted(&self.candidates[at]) - self.candidates[at].floor))
            .sum();
        if wishes == 0 {
            return;
        }
        let fair = |at: usize| {
            let one = &self.candidates[at];
            let wish = u128::from(wanted(one) - one.floor);
            let part = (beyond.min(wishes) * wish / wishes) as u64;
            one.floor + part
        };
        let fair: Vec<(usize, u64)> = moving.iter().map(|&at| (at, fair(at))).collect();
        for &(to, should) in &fair {
            for &(from, keeps) in &fair {
                let missing = should.saturating_sub(self.planned[to]).min(self.lacks(to));
                let spare = self.planned[from]
                    .saturating_sub(keeps)
                    .min(self.spares(from));
                let bytes = missing.min(spare);
                if from != to && bytes >= self.quantum {
                    let why = "what is beyond the floors is divided by what each wants";
                    self.moved(Some(from), Some(to), bytes, why);
                }
            }
        }
    }

    fn give_cheapest(&mut self, missing: u64, why: &str) {
        let mut left = missing;
        while left > 0 {
            let bytes = left.min(self.quantum);
            let all = 0..self.candidates.len();
            // The last of a program's may be less than a quantum.
            let parts = all.map(|at| (at, bytes.min(self.spares(at))));
            let losses = parts.filter_map(|(at, part)| Some((at, part, self.loss(at, part)?)));
            let Some((from, part, _)) = losses.min_by(|a, b| a.2.total_cmp(&b.2)) else {
                break;
            };
            self.moved(Some(from), None, part, why);
            left -= part;
        }
    }

    fn transfers(self) -> Vec<Transfer> {
        let name = |at: Option<usize>| at.map(|at| self.candidates[at].name.clone());
        let moves = self.moves.into_iter();
        moves
            .map(|one| Transfer {
                from: name(one.from),
                to: name(one.to),
                bytes: one.bytes,
                why: one.why,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
