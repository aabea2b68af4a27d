//! Searches in what ascends.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_find_the_border() {
        for len in 0..40 {
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
