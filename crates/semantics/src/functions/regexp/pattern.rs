//! Patterns: PostgreSQL's in the syntax of `regex`, and the memory they may take once they are
//! compiled.
//!
//! A pattern of a few characters can take megabytes (`\w{50}`), and each row can have another
//! one. So a call keeps many small compiled patterns, but only the last of the large ones.

use std::collections::HashMap;

use aerostat_types::ErrorKind;
use datafusion::common::Result;
use regex::{Regex, RegexBuilder};

use super::posix::{Match, Posix, too_complex};
use crate::growth::{Growth, go_on};
use crate::raise;

/// A pattern in the words of `regex`.
pub(crate) fn translate(pattern: &str) -> String {
    translate_with(pattern, "")
}

/// The same with options beside the pattern, which those that it begins with are added to.
fn translate_with(pattern: &str, given: &str) -> String {
    let (options, pattern) = split_options(pattern, given);
    // What is not listed is no end of a line either.
    let by_lines = options
        .split_once('-')
        .is_some_and(|(_, off)| off.contains('s'));
    if options.contains('q') {
        return regex::escape(pattern);
    }
    let mut out = String::with_capacity(pattern.len() + 4);
    out.push_str(&options);
    let mut has_dot = false;
    let mut in_class = false;
    // Whether a range may begin with what stands last in the class.
    let mut begins = false;
    let mut rest = pattern;
    while let Some(character) = rest.chars().next() {
        if in_class
            && let Some(name) = rest.strip_prefix("[:")
            && let Some(end) = name.find(":]")
            && let Some(members) = class(&name[..end])
        {
            out.push_str(members);
            rest = &name[end + 2..];
            continue;
        }
        if character == '\\' {
            let escaped = rest.chars().nth(1);
            let length = 1 + escaped.map_or(0, char::len_utf8);
            match escaped {
                Some('m') if !in_class => out.push_str(r"\b{start}"),
                Some('M') if !in_class => out.push_str(r"\b{end}"),
                Some('y') if !in_class => out.push_str(r"(?:\b{start}|\b{end})"),
                Some('Y') if !in_class => out.push_str(r"\B"),
                Some('Z') if !in_class => out.push_str(r"\z"),
                Some('b') if !rest[2..].starts_with('{') => out.push_str(r"\x08"),
                _ => out.push_str(&rest[..length]),
            }
            begins = true;
            rest = &rest[length..];
            continue;
        }
        if in_class && character == '-' {
            let behind = &rest[1..];
            if begins && !behind.starts_with(']') {
                out.push('-');
                rest = behind;
                if let Some(behind) = rest.strip_prefix('-') {
                    out.push_str(r"\-");
                    rest = behind;
                }
                begins = false;
                continue;
            }
            out.push_str(r"\-");
            begins = true;
            rest = behind;
            continue;
        }
        begins = in_class;
        match character {
            '[' if !in_class => {
                if let Some((place, behind)) = end_of_word(rest) {
                    out.push_str(place);
                    rest = behind;
                    continue;
                }
                in_class = true;
                begins = false;
                out.push('[');
                rest = &rest[1..];
                if let Some(behind) = rest.strip_prefix('^') {
                    out.push('^');
                    rest = behind;
                    if by_lines && !rest.starts_with(r"\n") {
                        out.push_str(r"\n");
                    }
                }
                if let Some(behind) = rest.strip_prefix(']') {
                    out.push_str("\\]");
                    rest = behind;
                }
                continue;
            }
            // Which `regex` takes for the beginning of a class in the class, or an operator.
            '[' => out.push_str("\\["),
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(character);
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            other => {
                has_dot |= other == '.' && !in_class;
                out.push(other);
            }
        }
        rest = &rest[character.len_utf8()..];
    }
    if has_dot && options.is_empty() {
        out.insert_str(0, "(?s)");
    }
    out
}

/// The options that are given and that a pattern begins with, as `regex` writes them, and the pattern
/// behind them.
fn split_options<'a>(pattern: &'a str, given: &str) -> (String, &'a str) {
    let given = given.trim_matches('g');
    let alone = || match given {
        "" => String::new(),
        given => format!("(?{})", flags(given)),
    };
    if let Some(behind) = pattern.strip_prefix("***=") {
        return ("q".to_owned(), behind);
    }
    let Some((options, behind)) = pattern.strip_prefix("(?").and_then(|p| p.split_once(')')) else {
        return (alone(), pattern);
    };
    if given.is_empty() && (options == "s" || options.contains('-')) {
        // Made here.
        return (format!("(?{options})"), behind);
    }
    let known = |option: char| "bceimnpqstwx".contains(option);
    if options.is_empty() || !options.chars().all(known) {
        return (alone(), pattern);
    }
    if options.contains('q') {
        return ("q".to_owned(), behind);
    }
    (
        format!("(?{})", flags(&format!("{given}{options}"))),
        behind,
    )
}

/// PostgreSQL's options as flags of `regex`, of which the last word counts.
fn flags(options: &str) -> String {
    let (mut ignores_case, mut dot, mut lines, mut expanded) = (false, true, false, false);
    for option in options.chars() {
        match option {
            'i' => ignores_case = true,
            'c' => ignores_case = false,
            'n' | 'm' => (dot, lines) = (false, true),
            'p' => (dot, lines) = (false, false),
            'w' => (dot, lines) = (true, true),
            's' => (dot, lines) = (true, false),
            'x' => expanded = true,
            't' => expanded = false,
            _ => {}
        }
    }
    let all = [
        ('i', ignores_case),
        ('s', dot),
        ('m', lines),
        ('x', expanded),
    ];
    let chosen = |wanted: bool| all.iter().filter(move |(_, on)| *on == wanted);
    let on: String = chosen(true).map(|(flag, _)| *flag).collect();
    let off: String = chosen(false).map(|(flag, _)| *flag).collect();
    match off.is_empty() {
        true => on,
        false => format!("{on}-{off}"),
    }
}

/// The beginning or end of a word, written as a class, and what is behind it.
fn end_of_word(pattern: &str) -> Option<(&'static str, &str)> {
    let start = pattern
        .strip_prefix("[[:<:]]")
        .map(|behind| (r"\b{start}", behind));
    start.or_else(|| {
        pattern
            .strip_prefix("[[:>:]]")
            .map(|behind| (r"\b{end}", behind))
    })
}

/// The members of a class that POSIX names.
fn class(name: &str) -> Option<&'static str> {
    Some(match name {
        "alpha" => r"\p{Alphabetic}",
        "digit" => r"\p{Nd}",
        "alnum" => r"\p{Alphabetic}\p{Nd}",
        "upper" => r"\p{Uppercase}",
        "lower" => r"\p{Lowercase}",
        "space" => r"\s",
        "blank" => r"\t\p{Zs}",
        "punct" => r"\p{P}\p{S}",
        "cntrl" => r"\p{Cc}",
        "word" => r"\w",
        "xdigit" => "0-9A-Fa-f",
        "graph" => r"\p{L}\p{M}\p{N}\p{P}\p{S}",
        "print" => r"\p{L}\p{M}\p{N}\p{P}\p{S}\p{Zs}",
        _ => return None,
    })
}

/// The longest pattern, in bytes. PostgreSQL ends at half a million states.
const PATTERN_BYTES_MAX: usize = 1 << 17;

/// What reading a pattern takes for each of its bytes.
const BYTES_FOR_EACH: usize = 600;

/// What a small pattern takes at most, once compiled, and to find matches.
const SMALL_BYTES: usize = 1 << 16;
const SMALL_CACHE_BYTES: usize = 1 << 18;

/// How many small ones a call keeps.
const SMALL_KEPT: usize = 64;

/// Refuses a pattern that is too long to be compiled.
///
/// # Errors
/// `InvalidRegularExpression`.
pub(crate) fn check(pattern: &str) -> Result<()> {
    match pattern.len() > PATTERN_BYTES_MAX {
        true => Err(too_complex()),
        false => Ok(()),
    }
}

/// A pattern that is compiled.
pub(crate) struct Pattern {
    regex: Regex,
    /// Where `regex` may choose otherwise.
    posix: Option<Posix>,
}

impl Pattern {
    fn of(regex: Regex, translated: &str) -> Self {
        let posix = Posix::of(translated);
        Self { regex, posix }
    }

    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// How many groups it has.
    pub(crate) fn groups_len(&self) -> usize {
        self.regex.captures_len() - 1
    }

    /// The first match that does not begin before a place, in bytes.
    ///
    /// # Errors
    /// `InvalidRegularExpression` of a pattern that takes too much memory.
    pub(crate) fn find(&self, text: &str, from: usize) -> Result<Match> {
        let Some(found) = self.regex.find_at(text, from) else {
            return Ok(None);
        };
        let end = match &self.posix {
            Some(posix) => posix.end(text, found.start())?.unwrap_or(found.end()),
            None => found.end(),
        };
        Ok(Some((found.start(), end)))
    }

    /// The groups of that match, the whole of it first.
    ///
    /// # Errors
    /// As of [`Pattern::find`]; the statement must stop.
    pub(crate) fn groups(
        &self,
        text: &str,
        from: usize,
        growth: &mut Growth,
    ) -> Result<Option<Vec<Match>>> {
        if self.posix.as_ref().is_none_or(Posix::is_even) {
            let Some(captures) = self.regex.captures_at(text, from) else {
                return Ok(None);
            };
            let groups: Vec<Match> = captures
                .iter()
                .map(|group| group.map(|group| (group.start(), group.end())))
                .collect();
            let (start, end) = groups.first().copied().flatten().unwrap_or_default();
            match &self.posix {
                Some(posix) if posix.end(text, start)? != Some(end) => {}
                _ => return Ok(Some(groups)),
            }
        }
        let (Some(place), Some(posix)) = (self.find(text, from)?, &self.posix) else {
            return Ok(None);
        };
        posix.groups(text, place, growth).map(Some)
    }
}

/// The matches of a pattern, one behind another.
pub(crate) struct Matches<'a> {
    pattern: &'a Pattern,
    text: &'a str,
    from: Option<usize>,
}

/// What a match costs, in bytes that are written in the time.
const MATCH_WORK: usize = 256;

impl<'a> Matches<'a> {
    /// Those that begin at a place or behind it; none behind the end.
    pub(crate) fn of(pattern: &'a Pattern, text: &'a str, from: Option<usize>) -> Self {
        Self {
            pattern,
            text,
            from,
        }
    }

    /// The next one.
    ///
    /// # Errors
    /// As of [`Pattern::find`]; the statement must stop.
    pub(crate) fn next(&mut self, growth: &mut Growth) -> Result<Match> {
        let Some(from) = self.begin(growth)? else {
            return Ok(None);
        };
        let place = self.pattern.find(self.text, from)?;
        self.go_on_behind(place);
        Ok(place)
    }

    /// The groups of the next one, the whole of it first.
    ///
    /// # Errors
    /// As of [`Matches::next`].
    pub(crate) fn next_groups(&mut self, growth: &mut Growth) -> Result<Option<Vec<Match>>> {
        let Some(from) = self.begin(growth)? else {
            return Ok(None);
        };
        let groups = self.pattern.groups(self.text, from, growth)?;
        self.go_on_behind(groups.as_ref().and_then(|groups| *groups.first()?));
        Ok(groups)
    }

    fn begin(&mut self, growth: &mut Growth) -> Result<Option<usize>> {
        growth.work(MATCH_WORK)?;
        Ok(self.from.take())
    }

    /// Behind a match of nothing the search goes on a character later, and at the end of the text it ends.
    fn go_on_behind(&mut self, place: Match) {
        self.from = place.and_then(|(start, end)| {
            if start < end {
                return Some(end);
            }
            let skipped = self.text[end..].chars().next()?;
            Some(end + skipped.len_utf8())
        });
    }
}

/// A pattern and its options.
type Key = (String, String);

/// Patterns that were compiled for one call.
#[derive(Default)]
pub(crate) struct Patterns {
    small: HashMap<Key, Pattern>,
    large: Option<(Key, Pattern)>,
}

impl Patterns {
    /// The pattern under options such as `i` and `n`.
    ///
    /// # Errors
    /// `InvalidRegularExpression`; `InvalidParameterValue` for options that there are not; the
    /// statement must stop.
    pub(crate) fn get(&mut self, pattern: &str, options: &str) -> Result<&Pattern> {
        let key = (pattern.to_owned(), options.to_owned());
        let is_large = self.large.as_ref().is_some_and(|(large, _)| *large == key);
        if !is_large && !self.small.contains_key(&key) {
            self.add(key.clone())?;
        }
        let large = self.large.as_ref().filter(|(large, _)| *large == key);
        large
            .map(|(_, pattern)| pattern)
            .or_else(|| self.small.get(&key))
            .ok_or_else(|| raise(ErrorKind::Internal, "a pattern that was lost"))
    }

    fn add(&mut self, key: Key) -> Result<()> {
        go_on()?;
        let translated = translated(&key.0, &key.1)?;
        let mut growth = Growth::new();
        growth.make(translated.len() * BYTES_FOR_EACH)?;
        let small = RegexBuilder::new(&translated)
            .size_limit(SMALL_BYTES)
            .dfa_size_limit(SMALL_CACHE_BYTES)
            .build();
        match small {
            Ok(regex) => {
                if self.small.len() >= SMALL_KEPT {
                    self.small.clear();
                }
                self.small.insert(key, Pattern::of(regex, &translated));
            }
            Err(regex::Error::CompiledTooBig(_)) => {
                // The one before it goes first.
                self.large = None;
                let regex = Regex::new(&translated).map_err(invalid)?;
                self.large = Some((key, Pattern::of(regex, &translated)));
            }
            Err(error) => return Err(invalid(error)),
        }
        Ok(())
    }
}

/// A pattern with its options.
fn translated(pattern: &str, options: &str) -> Result<String> {
    if let Some(unknown) = options.chars().find(|c| !"gbceimnpqstwx".contains(*c)) {
        let message = format!("invalid regular expression option: \"{unknown}\"");
        return Err(raise(ErrorKind::InvalidParameterValue, message));
    }
    check(pattern)?;
    Ok(match (options.contains('q'), options.contains('i')) {
        (true, true) => format!("(?i){}", regex::escape(pattern)),
        (true, false) => regex::escape(pattern),
        (false, _) => translate_with(pattern, options),
    })
}

/// Why a pattern cannot be compiled. `regex` quotes the pattern, which may be long, before it
/// says in the last line what is wrong.
fn invalid(error: regex::Error) -> datafusion::common::DataFusionError {
    if matches!(error, regex::Error::CompiledTooBig(_)) {
        return too_complex();
    }
    let all = error.to_string();
    let last = all.lines().last().unwrap_or_default();
    let reason = last.trim_start_matches("error: ");
    let message = format!("invalid regular expression: {reason}");
    raise(ErrorKind::InvalidRegularExpression, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_postgresqls() {
        for (pattern, text, expected) in [
            ("^[[:alpha:]]$", "é", true),
            (r"\mbar\M", "foo bar", true),
            (r"\mbar", "foobar", false),
            (r"\Afoo\Z", "foo", true),
            ("a.b", "a\nb", true),
            ("(?n)a.b", "a\nb", false),
            ("^b", "a\nb", false),
            ("(?n)^b", "a\nb", true),
            ("(?i)abc", "ABC", true),
            ("[]a]", "]", true),
            ("[^]a]", "]", false),
            ("[[]", "[", true),
            (r"[\d]+", "12", true),
            ("***=a.b", "axb", false),
            ("[a&&b]", "&", true),
            ("^[+--]+$", "+,-", true),
            ("[ --/]", "-", true),
            ("[a-]", "-", true),
            ("[^a-c]", "b", false),
            ("[[:<:]]bar[[:>:]]", "foo bar", true),
        ] {
            let translated = translate(pattern);
            let regex = Regex::new(&translated).unwrap();
            assert_eq!(regex.is_match(text), expected, "{pattern} as {translated}");
            assert_eq!(translate(&translated), translated, "{pattern} twice");
        }
    }

    #[test]
    fn options_beside_a_pattern_are_postgresqls() {
        for (pattern, options, text, expected) in [
            ("a.b", "", "a\nb", true),
            ("a.b", "n", "a\nb", false),
            ("a.b", "gn", "a\nb", false),
            ("a.b", "p", "a\nb", false),
            ("a.b", "w", "a\nb", true),
            ("a.B", "i", "a\nb", true),
            ("^b", "n", "a\nb", true),
            ("a[^x]b", "", "a\nb", true),
            ("a[^x]b", "n", "a\nb", false),
            ("(?s)a.b", "n", "a\nb", true),
            ("a.b", "q", "a.b", true),
            ("A.b", "iq", "a.b", true),
        ] {
            let regex = Regex::new(&translated(pattern, options).unwrap()).unwrap();
            assert_eq!(regex.is_match(text), expected, "{pattern} with {options}");
        }
    }
}
