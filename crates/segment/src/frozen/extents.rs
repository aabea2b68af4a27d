//! Sets of extents: what a reader of a frozen segment's values wants to be in memory.

use crate::SegmentSchema;

/// Some of a frozen segment's extents, by number: its groups', then its secondary indexes'.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtentSet {
    /// The first 64, which nearly every segment has at most.
    first: u64,
    others: Vec<u64>,
}

impl ExtentSet {
    /// The first `count`.
    pub fn all(count: usize) -> ExtentSet {
        let mut all = ExtentSet::default();
        (0..count).for_each(|extent| all.add(extent));
        all
    }

    /// Adds one.
    #[inline]
    pub fn add(&mut self, extent: usize) {
        match extent {
            0..64 => self.first |= 1 << extent,
            _ => {
                let word = extent / 64 - 1;
                if self.others.len() <= word {
                    self.others.resize(word + 1, 0);
                }
                self.others[word] |= 1 << (extent % 64);
            }
        }
    }

    /// Whether it is among them.
    #[inline]
    pub fn has(&self, extent: usize) -> bool {
        let word = match extent {
            0..64 => self.first,
            _ => self.others.get(extent / 64 - 1).copied().unwrap_or(0),
        };
        word >> (extent % 64) & 1 == 1
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.first == 0 && self.others.iter().all(|&word| word == 0)
    }

    /// They, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let words = std::iter::once(&self.first).chain(&self.others);
        words.enumerate().flat_map(|(at, &word)| Ones {
            word,
            first: at * 64,
        })
    }
}

impl FromIterator<usize> for ExtentSet {
    fn from_iter<I: IntoIterator<Item = usize>>(extents: I) -> Self {
        let mut set = ExtentSet::default();
        extents.into_iter().for_each(|extent| set.add(extent));
        set
    }
}

/// Positions of ones in a word.
struct Ones {
    word: u64,
    first: usize,
}

impl Iterator for Ones {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        (self.word != 0).then(|| {
            let at = self.word.trailing_zeros() as usize;
            self.word &= self.word - 1;
            self.first + at
        })
    }
}

/// What a reader wants of one segment, told by attribute and index.
#[derive(Debug)]
pub struct Wanted<'a> {
    schema: &'a SegmentSchema,
    extents: ExtentSet,
}

impl<'a> Wanted<'a> {
    /// Of a segment of this schema, nothing yet.
    pub(crate) fn of(schema: &'a SegmentSchema) -> Wanted<'a> {
        Wanted {
            schema,
            extents: ExtentSet::default(),
        }
    }

    /// The values of an attribute.
    pub fn attribute(&mut self, attribute: usize) {
        self.extents.add(self.schema.place(attribute).group);
    }

    /// The values of several.
    pub fn attributes(&mut self, attributes: impl IntoIterator<Item = usize>) {
        attributes.into_iter().for_each(|at| self.attribute(at));
    }

    /// The rows' keys.
    pub fn key(&mut self) {
        self.attributes(self.schema.key().iter().copied());
    }

    /// A secondary index, by its position, with the values that its keys are made of.
    pub fn index(&mut self, index: usize) {
        self.extents.add(self.schema.groups().len() + index);
        self.attributes(self.schema.indexes()[index].attributes.iter().copied());
    }

    /// All there is.
    pub fn all(&mut self) {
        self.extents = ExtentSet::all(self.schema.extents());
    }

    pub(crate) fn into_extents(self) -> ExtentSet {
        self.extents
    }
}

impl SegmentSchema {
    /// How many extents a frozen segment of it has: one for each group and each secondary index.
    pub fn extents(&self) -> usize {
        self.groups().len() + self.indexes().len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_added() {
        let numbers = [0, 3, 63, 64, 65, 130, 1_599];
        let set: ExtentSet = numbers.into_iter().collect();
        assert_eq!(Vec::from_iter(set.iter()), numbers);
        assert!((0..2_000).all(|at| set.has(at) == numbers.contains(&at)));
        assert!(ExtentSet::default().is_empty() && !set.is_empty());
        assert_eq!(ExtentSet::all(130), (0..130).collect());
    }
}
