//! The waiting tasks: by share, of which each tenant has one, and within a share by rank.

use std::collections::{BTreeMap, HashMap};

/// Statements that have taken less than this, in nanoseconds, are of the first class; those of
/// each further class have taken up to twice as much.
const FIRST_CLASS: u64 = 20_000_000;

/// Those that have taken more than a second.
const LAST_CLASS: u32 = 7;

/// While others pass the last class that waits, it has this part of the time, as a divisor.
const PART_OF_LAST: i64 = 8;

/// What others take, in nanoseconds, before the last class has a turn: so that a turn of a
/// millisecond is its part.
const PASSING_MAX: i64 = 8_000_000;

/// The weight of a share that was given none.
pub const WEIGHT_DEFAULT: u32 = 100;

/// What time taken counts for with a weight: with three times the weight a third. Never nothing, or a tenant of a
/// great weight would have turns for free.
fn for_weight(taken: u64, weight: u32) -> u64 {
    if weight == WEIGHT_DEFAULT {
        return taken;
    }
    let counted = u128::from(taken) * u128::from(WEIGHT_DEFAULT) / u128::from(weight);
    u64::try_from(counted).unwrap_or(u64::MAX).max(1)
}

/// Which share. No two of a scheduler have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ShareNo(pub(crate) u64);

/// How a task was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Nobody of its tenant waited, or only some of the same class.
    First,
    /// Before others of a further class.
    Passing,
    /// Before its turn, for the others have passed it long enough.
    Favoured,
}

/// Which of a tenant's tasks is first: the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    class: u32,
    order: u64,
}

impl Rank {
    /// Of a statement that has taken so many nanoseconds and was the so manieth to come.
    pub(crate) fn new(used: u64, arrival: u64) -> Self {
        let class = u64::BITS - (used / FIRST_CLASS).leading_zeros();
        let class = class.min(LAST_CLASS);
        Self {
            class,
            order: match class {
                // Those that take long all get on: the one is first that has had the least.
                LAST_CLASS => used,
                _ => arrival,
            },
        }
    }
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueuePosition {
    rank: Rank,
    /// Tasks of one rank in the order in which they came.
    number: u64,
}

/// What waits.
pub(crate) struct Queue<T> {
    shares: HashMap<ShareNo, Account<T>>,
    len: usize,
    next_number: u64,
    /// The start of the last turn, in the time of tenants.
    now: u64,
}

struct Account<T> {
    waiting: BTreeMap<QueuePosition, T>,
    /// What it has taken for its weight, in nanoseconds of weight [`WEIGHT_DEFAULT`], and what it let pass
    /// while nothing waited.
    time: u64,
    /// What it has taken, in nanoseconds.
    used: u64,
    weight: u32,
    /// What tasks have taken that passed others, less what these are given for it.
    passing: i64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            shares: HashMap::new(),
            len: 0,
            next_number: 0,
            now: 0,
        }
    }
}

impl<T> Default for Account<T> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            time: 0,
            used: 0,
            weight: WEIGHT_DEFAULT,
            passing: 0,
        }
    }
}

impl<T> Queue<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, share: ShareNo, rank: Rank, task: T) -> QueuePosition {
        let place = QueuePosition {
            rank,
            number: self.next_number,
        };
        self.next_number += 1;
        let account = self.shares.entry(share).or_default();
        if account.waiting.is_empty() {
            // What it did not want before is not owed to it.
            account.time = account.time.max(self.now);
        }
        account.waiting.insert(place, task);
        self.len += 1;
        place
    }

    pub(crate) fn remove(&mut self, share: ShareNo, place: QueuePosition) {
        let account = self.shares.get_mut(&share);
        if account.is_some_and(|account| account.waiting.remove(&place).is_some()) {
            self.len -= 1;
        }
    }

    /// The next.
    pub(crate) fn pop(&mut self) -> Option<(T, Order)> {
        let waiting = self.shares.values_mut().filter(|it| !it.waiting.is_empty());
        // Of equal ones, the one whose task came first.
        let account = waiting.min_by_key(|account| {
            let first = account.waiting.first_key_value();
            (account.time, first.map(|(place, _)| place.number))
        })?;
        self.now = self.now.max(account.time);
        let (&first, _) = account.waiting.first_key_value()?;
        let last = account.first_of_last_class()?;
        let (next, order) = if last.rank.class == first.rank.class {
            account.passing = 0;
            (first, Order::First)
        } else if account.passing < PASSING_MAX {
            (first, Order::Passing)
        } else {
            (last, Order::Favoured)
        };
        self.len -= 1;
        Some((account.waiting.remove(&next)?, order))
    }

    /// A task of the tenant has taken so many nanoseconds.
    pub(crate) fn charge(&mut self, share: ShareNo, taken: u64, order: Order) {
        let account = self.shares.entry(share).or_default();
        account.time += for_weight(taken, account.weight);
        account.used += taken;
        let taken = i64::try_from(taken).unwrap_or(i64::MAX);
        account.passing = match order {
            Order::First => account.passing,
            Order::Passing => account.passing.saturating_add(taken),
            Order::Favoured => account
                .passing
                .saturating_sub(taken.saturating_mul(PART_OF_LAST)),
        };
    }

    /// What the tenant takes from now on counts by this weight.
    pub(crate) fn set_weight(&mut self, share: ShareNo, weight: u32) {
        self.shares.entry(share).or_default().weight = weight.max(1);
    }

    pub(crate) fn used(&self, share: ShareNo) -> u64 {
        self.shares.get(&share).map_or(0, |account| account.used)
    }

    /// Forgets a share of which nothing waits.
    pub(crate) fn forget(&mut self, share: ShareNo) {
        self.shares.remove(&share);
    }

    /// How many are known.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn shares(&self) -> usize {
        self.shares.len()
    }
}

impl<T> Account<T> {
    fn first_of_last_class(&self) -> Option<QueuePosition> {
        let (last, _) = self.waiting.last_key_value()?;
        let first = QueuePosition {
            rank: Rank {
                class: last.rank.class,
                order: 0,
            },
            number: 0,
        };
        self.waiting.range(first..).next().map(|(place, _)| *place)
    }
}
