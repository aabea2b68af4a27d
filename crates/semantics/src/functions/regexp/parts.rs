//! The parts of a pattern: repetitions, alternatives and groups.

use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{
    AssertionKind, Ast, Flag, Flags, GroupKind, RepetitionKind, RepetitionRange,
};
use regex_syntax::hir::translate::{Translator, TranslatorBuilder};
use regex_syntax::hir::{Hir, Repetition};

/// A part of a pattern.
pub(super) enum Part {
    /// A character or a place.
    Atom {
        hir: Hir,
        is_character: bool,
    },
    /// With its number, if it is told.
    Group(Option<usize>, Box<Part>),
    Either(Vec<Part>),
    Sequence(Vec<Part>),
    Repeated {
        inner: Box<Part>,
        min: u32,
        max: Option<u32>,
        is_greedy: bool,
        /// Whether it is `{n}`, which likes what is repeated likes; `{n,n}` has a greed of its own.
        is_exact: bool,
    },
}

/// The parts of a pattern in the words of `regex`, and how many groups it has; nothing for one whose
/// options change on the way.
pub(super) fn parts(pattern: &str) -> Option<(Part, usize)> {
    let tree = Parser::new().parse(pattern).ok()?;
    let mut reader = Reader {
        pattern,
        translator: translator(leading(&tree)),
        groups: 0,
    };
    let whole = reader.part(&tree, true)?;
    Some((whole, reader.groups))
}

/// The options that a pattern begins with.
fn leading(tree: &Ast) -> Option<&Flags> {
    match tree {
        Ast::Flags(set) => Some(&set.flags),
        Ast::Concat(concat) => leading(concat.asts.first()?),
        Ast::Alternation(either) => leading(either.asts.first()?),
        _ => None,
    }
}

fn translator(flags: Option<&Flags>) -> Translator {
    let is = |flag| {
        flags
            .and_then(|flags| flags.flag_state(flag))
            .unwrap_or(false)
    };
    TranslatorBuilder::new()
        .case_insensitive(is(Flag::CaseInsensitive))
        .multi_line(is(Flag::MultiLine))
        .dot_matches_new_line(is(Flag::DotMatchesNewLine))
        .build()
}

fn is_end_of_word(tree: &Ast) -> bool {
    let Ast::Assertion(assertion) = tree else {
        return false;
    };
    matches!(
        assertion.kind,
        AssertionKind::WordBoundaryStart | AssertionKind::WordBoundaryEnd
    )
}

struct Reader<'a> {
    pattern: &'a str,
    translator: Translator,
    groups: usize,
}

impl Reader<'_> {
    fn part(&mut self, tree: &Ast, is_first: bool) -> Option<Part> {
        Some(match tree {
            Ast::Flags(_) if is_first => Part::Sequence(Vec::new()),
            Ast::Flags(_) => return None,
            Ast::Empty(_) | Ast::Assertion(_) => self.atom(tree, false)?,
            Ast::Literal(_)
            | Ast::Dot(_)
            | Ast::ClassUnicode(_)
            | Ast::ClassPerl(_)
            | Ast::ClassBracketed(_) => self.atom(tree, true)?,
            Ast::Group(group) => {
                let number = match &group.kind {
                    GroupKind::CaptureIndex(number) => Some(*number),
                    GroupKind::CaptureName { name, .. } => Some(name.index),
                    GroupKind::NonCapturing(flags) if flags.items.is_empty() => None,
                    GroupKind::NonCapturing(_) => return None,
                };
                let number = number.and_then(|number| usize::try_from(number).ok());
                self.groups = self.groups.max(number.unwrap_or(0));
                Part::Group(number, Box::new(self.part(&group.ast, false)?))
            }
            // A place, which `translate` writes so.
            Ast::Alternation(either) if either.asts.iter().all(is_end_of_word) => {
                self.atom(tree, false)?
            }
            Ast::Alternation(either) => Part::Either(self.all(&either.asts, is_first)?),
            Ast::Concat(concat) => Part::Sequence(self.all(&concat.asts, is_first)?),
            Ast::Repetition(repetition) => {
                let (min, max) = match &repetition.op.kind {
                    RepetitionKind::ZeroOrOne => (0, Some(1)),
                    RepetitionKind::ZeroOrMore => (0, None),
                    RepetitionKind::OneOrMore => (1, None),
                    RepetitionKind::Range(RepetitionRange::Exactly(n)) => (*n, Some(*n)),
                    RepetitionKind::Range(RepetitionRange::AtLeast(n)) => (*n, None),
                    RepetitionKind::Range(RepetitionRange::Bounded(m, n)) => (*m, Some(*n)),
                };
                let is_exact = matches!(
                    repetition.op.kind,
                    RepetitionKind::Range(RepetitionRange::Exactly(_))
                );
                Part::Repeated {
                    inner: Box::new(self.part(&repetition.ast, false)?),
                    min,
                    max,
                    is_greedy: repetition.greedy,
                    is_exact,
                }
            }
        })
    }

    fn all(&mut self, trees: &[Ast], are_first: bool) -> Option<Vec<Part>> {
        let mut all = Vec::with_capacity(trees.len());
        for (at, tree) in trees.iter().enumerate() {
            all.push(self.part(tree, are_first && at == 0)?);
        }
        Some(all)
    }

    fn atom(&mut self, tree: &Ast, is_character: bool) -> Option<Part> {
        let hir = self.translator.translate(self.pattern, tree).ok()?;
        Some(Part::Atom { hir, is_character })
    }
}

impl Part {
    /// Whether it prefers its longest match; nothing where it has no choice.
    pub(super) fn greed(&self) -> Option<bool> {
        match self {
            Self::Atom { .. } => None,
            Self::Group(_, inner) => inner.greed(),
            Self::Either(_) => Some(true),
            Self::Sequence(items) => items.iter().find_map(Self::greed),
            Self::Repeated {
                inner,
                is_exact: true,
                ..
            } => inner.greed(),
            Self::Repeated { is_greedy, .. } => Some(*is_greedy),
        }
    }

    pub(super) fn has_groups(&self) -> bool {
        match self {
            Self::Atom { .. } => false,
            Self::Group(number, inner) => number.is_some() || inner.has_groups(),
            Self::Either(parts) | Self::Sequence(parts) => parts.iter().any(Self::has_groups),
            Self::Repeated { inner, .. } => inner.has_groups(),
        }
    }

    /// How many characters it matches, if always as many.
    fn width(&self) -> Option<usize> {
        match self {
            Self::Atom { is_character, .. } => Some(usize::from(*is_character)),
            Self::Group(_, inner) => inner.width(),
            Self::Either(branches) => {
                let mut widths = branches.iter().map(Self::width);
                let first = widths.next()??;
                widths.all(|width| width == Some(first)).then_some(first)
            }
            Self::Sequence(items) => items.iter().map(Self::width).sum(),
            Self::Repeated {
                inner, min, max, ..
            } if Some(*min) == *max => inner.width()?.checked_mul(usize::try_from(*min).ok()?),
            Self::Repeated { .. } => None,
        }
    }

    /// Whether there is at most one choice of lengths in it, which `regex` makes as PostgreSQL does.
    pub(super) fn is_plain(&self) -> bool {
        let mut choices = Vec::new();
        self.gather_choices(&mut choices)
            && choices.len() < 2
            && choices.iter().all(|choice| Some(*choice) == self.greed())
    }

    /// Whether its choices are each of how often something of one width repeats, and all greedy: then the
    /// longer piece is what `regex` tries first, too.
    pub(super) fn is_even(&self) -> bool {
        let mut choices = Vec::new();
        self.gather_choices(&mut choices) && choices.iter().all(|is_greedy| *is_greedy)
    }

    /// Adds the greed of each repetition that has a choice of lengths; false for a choice of another kind.
    fn gather_choices(&self, choices: &mut Vec<bool>) -> bool {
        match self {
            Self::Atom { .. } => true,
            Self::Group(_, inner) => inner.gather_choices(choices),
            Self::Either(branches) => {
                self.width().is_some()
                    && branches.iter().all(|branch| branch.gather_choices(choices))
            }
            Self::Sequence(items) => items.iter().all(|item| item.gather_choices(choices)),
            Self::Repeated {
                inner, is_greedy, ..
            } => {
                if self.width().is_none() {
                    choices.push(*is_greedy);
                }
                // A group in a branch that the last round does not take keeps its place in `regex`.
                inner.width().is_some_and(|width| width > 0)
                    && !(inner.has_choice() && inner.has_groups())
            }
        }
    }

    fn has_choice(&self) -> bool {
        match self {
            Self::Atom { .. } => false,
            Self::Group(_, inner) => inner.has_choice(),
            Self::Either(_) => true,
            Self::Sequence(items) => items.iter().any(Self::has_choice),
            Self::Repeated {
                min, max, inner, ..
            } => Some(*min) != *max || inner.has_choice(),
        }
    }

    pub(super) fn hir(&self) -> Hir {
        match self {
            Self::Atom { hir, .. } => hir.clone(),
            Self::Group(_, inner) => inner.hir(),
            Self::Either(branches) => Hir::alternation(branches.iter().map(Self::hir).collect()),
            Self::Sequence(_) => self.hir_from(0),
            Self::Repeated { min, max, .. } => self.hir_of_rounds(*min, *max),
        }
    }

    /// Of a sequence, from one of its parts on.
    pub(super) fn hir_from(&self, at: usize) -> Hir {
        match self {
            Self::Sequence(items) => Hir::concat(items.iter().skip(at).map(Self::hir).collect()),
            other => other.hir(),
        }
    }

    /// Of a repetition, with other bounds.
    pub(super) fn hir_of_rounds(&self, min: u32, max: Option<u32>) -> Hir {
        match self {
            Self::Repeated { inner, .. } => Hir::repetition(Repetition {
                min,
                max,
                greedy: true,
                sub: Box::new(inner.hir()),
            }),
            other => other.hir(),
        }
    }
}
