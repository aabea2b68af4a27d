//! Searches in ascending sequences.

use std::ops::Range;

/// The first position of a range that is not before what is sought; all that are before
/// it are in front.
pub(crate) fn bisect(range: Range<usize>, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low.midpoint(high);
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// As [`bisect`], faster where few positions are before: in steps that double.
pub(crate) fn gallop(range: Range<usize>, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut step) = (range.start, 1);
    while low < range.end {
        // One step is one position: the least that can be before.
        let probe = low + step - 1;
        if probe >= range.end {
            return bisect(low..range.end, is_before);
        }
        if !is_before(probe) {
            return bisect(low..probe, is_before);
        }
        (low, step) = (probe + 1, step * 2);
    }
    low
}

/// Guesses that come closer each time where numbers ascend evenly but not quite, as keys do of
/// which some are left out: each leaves about the root of the distance.
const GUESSES: usize = 3;

/// The first position of a range that has at least the number sought, of numbers that ascend.
/// It is guessed by the numbers at both ends (interpolation search) and then looked for in
/// steps that double, so that wrong guesses cost little more than another [`bisect`].
pub(crate) fn interpolate(
    range: Range<usize>,
    sought: u64,
    number: impl Fn(usize) -> u64,
) -> usize {
    let Some(last) = range.clone().next_back() else {
        return range.start;
    };
    let (mut least, mut greatest) = (number(range.start), number(last));
    if sought <= least {
        return range.start;
    }
    if sought > greatest {
        return range.end;
    }
    // What is sought is in low..=high: `least` is the number before, `greatest` that at `high`.
    let (mut low, mut high) = (range.start + 1, last);
    let mut is_below = false;
    for _ in 0..GUESSES {
        if low == high {
            return low;
        }
        let share = (sought - least) as f64 / (greatest - least) as f64;
        let guess = low - 1 + ((high - low + 1) as f64 * share) as usize;
        let guess = guess.clamp(low, high - 1);
        let found = number(guess);
        is_below = found < sought;
        if is_below {
            (low, least) = (guess + 1, found);
        } else {
            (high, greatest) = (guess, found);
        }
    }
    if is_below {
        return gallop(low..high, |at| number(at) < sought);
    }
    // From the last guess downwards: what is not before it, and then what is.
    high - gallop(0..high - low, |back| number(high - 1 - back) >= sought)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::model::Random;

    #[test]
    fn a_guess_finds_what_halving_finds() {
        let mut random = Random(21);
        for len in (0..200).step_by(if cfg!(miri) { 40 } else { 1 }) {
            let step = random.pick(&[0, 1, 7, 1 << 40, u64::MAX >> 9]);
            let mut numbers: Vec<u64> = (0..len)
                .map(|at| at * (step / 200) + random.below(step / 200 + 1))
                .collect();
            numbers.sort_unstable();
            let range = 10..10 + len as usize;
            let number = |at: usize| numbers[at - 10];
            let ends = [0, 1, u64::MAX];
            for &sought in numbers.iter().chain(&ends) {
                for sought in [sought.saturating_sub(1), sought, sought.saturating_add(1)] {
                    let expected = bisect(range.clone(), |at| number(at) < sought);
                    assert_eq!(interpolate(range.clone(), sought, number), expected);
                }
            }
        }
    }

    #[test]
    fn both_find_the_border() {
        for len in (0..40).step_by(if cfg!(miri) { 13 } else { 1 }) {
            for border in 0..=len {
                let range = 100..100 + len;
                let is_before = |at: usize| {
                    assert!(range.contains(&at));
                    at < 100 + border
                };
                assert_eq!(bisect(range.clone(), is_before), 100 + border);
                assert_eq!(gallop(range.clone(), is_before), 100 + border);
            }
        }
    }
}
