//! Which of the matches at one place PostgreSQL takes, and what its groups match.
//!
//! `regex` takes the first alternative that fits, as Perl does. PostgreSQL (Spencer's library;
//! the manual's section 9.7.3.5) decides by lengths: a pattern as a whole prefers its longest
//! match or, if its first quantifier is lazy, its shortest; then each part of it, from left to
//! right, takes the longest or the shortest piece with which the rest still fits.
//!
//! `regex` finds where a match begins, which is the same for both rules. An automaton of all
//! matches determines its length, and automata of parts, made on first use, divide it among the
//! groups. A pattern with at most one choice needs none of that: [`Posix::of`] returns none.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use aerostat_types::ErrorKind;
use datafusion::common::Result;
use regex_automata::meta::Regex as Automaton;
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::{Anchored, Input, MatchKind};

use super::parts::{Part, parts};
use crate::growth::Growth;
use crate::raise;

/// What the automata of one pattern may take together, in bytes.
const AUTOMATA_BYTES: usize = 10 << 20;

/// What an automaton may keep while it looks, in bytes.
const CACHE_BYTES: usize = 1 << 18;

/// Where a group begins and ends, in bytes; nothing for one that took no part.
pub(crate) type Match = Option<(usize, usize)>;

/// A pattern whose matches and groups `regex` may choose otherwise.
pub(crate) struct Posix {
    whole: Part,
    groups: usize,
    /// Of each part that was asked for, by its address, and what of it.
    automata: RefCell<Automata>,
    bytes: Cell<usize>,
}

type Automata = HashMap<(*const Part, Piece), Rc<OnceCell<Automaton>>>;

/// What of a part an automaton is made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Piece {
    All,
    /// The parts of a sequence from this one on.
    From(usize),
    /// So many more rounds of a repetition.
    Rounds(u32, Option<u32>),
}

impl Posix {
    /// A pattern in the words of `regex`, which compiles it; nothing if `regex` finds what PostgreSQL does.
    pub(crate) fn of(pattern: &str) -> Option<Self> {
        let (whole, groups) = parts(pattern)?;
        (!whole.is_plain()).then(|| Self {
            whole,
            groups,
            automata: RefCell::default(),
            bytes: Cell::new(0),
        })
    }

    /// Whether the first match of `regex` divides itself as PostgreSQL's if only it ends there.
    pub(crate) fn is_even(&self) -> bool {
        self.whole.is_even()
    }

    /// Where the match that begins at a place ends.
    ///
    /// # Errors
    /// `InvalidRegularExpression` of a pattern that takes too much memory.
    pub(crate) fn end(&self, text: &str, start: usize) -> Result<Option<usize>> {
        let is_lazy = self.whole.greed() == Some(false);
        self.search(&self.whole, Piece::All, text, (start, text.len()), is_lazy)
    }

    /// What the groups of a match are, the whole of it first.
    ///
    /// # Errors
    /// As of [`Posix::end`]; the statement must stop.
    pub(crate) fn groups(
        &self,
        text: &str,
        place: (usize, usize),
        growth: &mut Growth,
    ) -> Result<Vec<Match>> {
        let mut division = Division {
            posix: self,
            text,
            growth,
            groups: vec![None; self.groups + 1],
        };
        division.groups[0] = Some(place);
        division.part(&self.whole, place)?;
        Ok(division.groups)
    }

    /// Where the longest match that begins with a span ends, or the shortest.
    fn search(
        &self,
        part: &Part,
        piece: Piece,
        text: &str,
        span: (usize, usize),
        is_shortest: bool,
    ) -> Result<Option<usize>> {
        let key = (std::ptr::from_ref(part), piece);
        let cell = Rc::clone(self.automata.borrow_mut().entry(key).or_default());
        if cell.get().is_none() {
            let made = self.compile(part, piece)?;
            // Nobody else has set it.
            let _ = cell.set(made);
        }
        let automaton = cell.get().ok_or_else(lost)?;
        let input = Input::new(text)
            .span(span.0..span.1)
            .anchored(Anchored::Yes)
            .earliest(is_shortest);
        Ok(automaton.search_half(&input).map(|found| found.offset()))
    }

    fn compile(&self, part: &Part, piece: Piece) -> Result<Automaton> {
        let hir = match piece {
            Piece::All => part.hir(),
            Piece::From(at) => part.hir_from(at),
            Piece::Rounds(min, max) => part.hir_of_rounds(min, max),
        };
        let left = AUTOMATA_BYTES.saturating_sub(self.bytes.get());
        let config = Automaton::config()
            .match_kind(MatchKind::All)
            .which_captures(WhichCaptures::Implicit)
            .auto_prefilter(false)
            .nfa_size_limit(Some(left))
            .hybrid_cache_capacity(CACHE_BYTES);
        let made = Automaton::builder().configure(config).build_from_hir(&hir);
        let made = made.map_err(|_| too_complex())?;
        self.bytes.set(self.bytes.get() + made.memory_usage());
        Ok(made)
    }
}

/// PostgreSQL's error for a pattern whose automata take too much memory.
pub(super) fn too_complex() -> datafusion::common::DataFusionError {
    raise(
        ErrorKind::InvalidRegularExpression,
        "invalid regular expression: regular expression is too complex",
    )
}

fn lost() -> datafusion::common::DataFusionError {
    raise(
        ErrorKind::FeatureNotSupported,
        "the groups of a regular expression that repeats what may be nothing are not supported",
    )
}

/// A match that is divided among the groups of its pattern.
struct Division<'a> {
    posix: &'a Posix,
    text: &'a str,
    growth: &'a mut Growth,
    groups: Vec<Match>,
}

impl Division<'_> {
    fn search(
        &mut self,
        part: &Part,
        piece: Piece,
        span: (usize, usize),
        is_shortest: bool,
    ) -> Result<Option<usize>> {
        self.growth.work(span.1 - span.0 + 1)?;
        self.posix.search(part, piece, self.text, span, is_shortest)
    }

    fn fits(&mut self, part: &Part, piece: Piece, span: (usize, usize)) -> Result<bool> {
        Ok(self.search(part, piece, span, false)? == Some(span.1))
    }

    /// Tells the groups of a part that matches a span.
    fn part(&mut self, part: &Part, span: (usize, usize)) -> Result<()> {
        if !part.has_groups() {
            return Ok(());
        }
        match part {
            Part::Atom { .. } => Ok(()),
            Part::Group(number, inner) => {
                if let Some(place) = number.and_then(|number| self.groups.get_mut(number)) {
                    *place = Some(span);
                }
                self.part(inner, span)
            }
            Part::Either(branches) => {
                for branch in branches {
                    if self.fits(branch, Piece::All, span)? {
                        return self.part(branch, span);
                    }
                }
                Err(lost())
            }
            Part::Sequence(items) => self.sequence(part, items, span),
            Part::Repeated {
                inner, min, max, ..
            } => self.repeated(part, inner, (*min, *max), span),
        }
    }

    fn sequence(
        &mut self,
        part: &Part,
        items: &[Part],
        (start, end): (usize, usize),
    ) -> Result<()> {
        let mut at = start;
        for (index, item) in items.iter().enumerate() {
            let behind = items.get(index + 1..).unwrap_or_default();
            if !item.has_groups() && !behind.iter().any(Part::has_groups) {
                return Ok(());
            }
            let next = match item {
                _ if behind.is_empty() => end,
                Part::Atom { is_character, .. } => match is_character {
                    true => self.after(at),
                    false => at,
                },
                _ => {
                    let behind = (part, Piece::From(index + 1));
                    self.cut((item, Piece::All), behind, (at, end), at)?
                }
            };
            self.part(item, (at, next))?;
            at = next;
        }
        Ok(())
    }

    /// The groups of a repetition are those of its last round. Where there must be a round, the rounds before
    /// it are one piece, which takes what it likes best; else each round takes what it likes best.
    fn repeated(
        &mut self,
        part: &Part,
        inner: &Part,
        (min, max): (u32, Option<u32>),
        (start, end): (usize, usize),
    ) -> Result<()> {
        if start == end
            && (min == 0 && inner.greed() == Some(false)
                || !self.fits(inner, Piece::All, (start, end))?)
        {
            return Ok(());
        }
        if min > 0 {
            let before = Piece::Rounds(min - 1, max.map(|max| max.saturating_sub(1)));
            let last = match max {
                Some(1) => start,
                _ => self.cut((part, before), (inner, Piece::All), (start, end), start)?,
            };
            return self.part(inner, (last, end));
        }
        let (mut last, mut at, mut round) = ((start, end), start, 1);
        while at < end {
            let left = max.map(|max| max.saturating_sub(round));
            let next = match left {
                Some(0) => end,
                _ => {
                    let behind = (part, Piece::Rounds(0, left));
                    let least = self.after(at);
                    self.cut((inner, Piece::All), behind, (at, end), least)?
                }
            };
            (last, at, round) = ((at, next), next, round.saturating_add(1));
        }
        self.part(inner, last)
    }

    /// Where a piece ends that begins a span, not before a place, and what is behind it fits the rest.
    fn cut(
        &mut self,
        (part, piece): (&Part, Piece),
        behind: (&Part, Piece),
        (start, end): (usize, usize),
        least: usize,
    ) -> Result<usize> {
        if part.greed() == Some(false) {
            let first = self.search(part, piece, (start, end), true)?;
            let mut at = first.ok_or_else(lost)?.max(least);
            loop {
                if self.fits(part, piece, (start, at))?
                    && self.fits(behind.0, behind.1, (at, end))?
                {
                    return Ok(at);
                }
                if at >= end {
                    return Err(lost());
                }
                at = self.after(at);
            }
        }
        let mut limit = end;
        while let Some(at) = self.search(part, piece, (start, limit), false)?
            && at >= least
        {
            if self.fits(behind.0, behind.1, (at, end))? {
                return Ok(at);
            }
            let Some((before, _)) = self.text[start..at].char_indices().next_back() else {
                break;
            };
            limit = start + before;
        }
        Err(lost())
    }

    /// The place behind the character at a place.
    fn after(&self, at: usize) -> usize {
        at + self.text[at..].chars().next().map_or(1, char::len_utf8)
    }
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    /// What PostgreSQL 15 answers to `regexp_match` of the pattern in parentheses.
    #[test]
    fn matches_and_groups_are_postgresqls() {
        for (pattern, text, expected) in [
            ("a|ab", "xab", "ab"),
            ("(a|ab)(c|bcd)(d*)", "abcd", "abcd ab c d"),
            ("a?(ab)?", "ab", "ab ab"),
            ("(a|ab)*?c", "ababc", "ababc ab"),
            ("(.*)(.*)", "abc", "abc abc "),
            ("(.*?)(.*)", "abc", "  "),
            ("(.*)(.*?)c", "abcabc", "abcabc abcab "),
            ("(a|b).*?c", "acbc", "acbc a"),
            ("((a)|b){2}", "ab", "ab b -"),
            ("(?:(a)|b)*", "ab", "ab -"),
            ("(a*)*", "aa", "aa aa"),
            ("(é|éa)(a|$)", "éa", "éa éa "),
            ("(x*)*", "b", " "),
            ("(?s)^|x(.)*", "xy", "xy y"),
            ("(?s)(x|y.)|(.??){2,}", "ab", "ab - "),
            ("(a|ab|c)+", "abc", "abc c"),
            (
                "(?:(.*?)(\\d+)(.*)){1,1}",
                "abc01234xyz",
                "abc01234xyz abc 01234 xyz",
            ),
            ("(?:a{1,3}?){2,2}", "aaaa", "aaaa"),
        ] {
            let regex = Regex::new(pattern).unwrap();
            let start = regex.find(text).unwrap().start();
            let Some(posix) = Posix::of(pattern) else {
                panic!("{pattern} has one match")
            };
            let end = posix.end(text, start).unwrap().unwrap();
            let groups = posix
                .groups(text, (start, end), &mut Growth::new())
                .unwrap();
            let found: Vec<_> = groups
                .iter()
                .map(|place| place.map_or("-", |(from, to)| &text[from..to]))
                .collect();
            assert_eq!(found.join(" "), expected, "{pattern} in {text}");
        }
    }

    #[test]
    fn patterns_of_one_choice_need_nothing() {
        for pattern in [
            "a",
            "[^,]+",
            "(a|b)c",
            r"\d{4}-(\d\d)",
            "(?i)x.*",
            "^(.*)$",
            "(ab){3}",
            "x??y",
            "[a-c]|d",
        ] {
            assert!(Posix::of(pattern).is_none(), "{pattern}");
        }
    }
}
