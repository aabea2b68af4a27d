//! Circles between modules. Modules that use one another in a circle can be read, tested and
//! moved only together. The arrows keep crates out of circles; this check keeps modules from
//! getting into more of them.
//!
//! A module uses a sibling if a path in it, or below it, leads into the sibling. Paths that begin
//! with `crate`, `super` or `self` count, in a `use` and anywhere else. A path to a name that a
//! module re-exports leads to where the name comes from. Code for tests and for documentation
//! does not count.
//!
//! The numbers in [`CIRCLES`] only go down: a change that breaks a circle lowers them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::{Context, Result};

/// The modules in circles of each crate that has such: siblings at its root, and siblings deeper
/// down. A crate that is not here has none.
const CIRCLES: &[(&str, usize, usize)] = &[
    ("calibrate", 4, 0),
    ("catalog", 0, 21),
    ("embedded", 4, 0),
    ("engine", 0, 9),
    ("gateway", 2, 6),
    ("lab", 4, 0),
    ("query", 0, 17),
    ("storage", 0, 2),
    ("types", 2, 0),
    ("workload", 4, 0),
];

/// Compares every crate with [`CIRCLES`].
///
/// # Errors
/// When a source file cannot be read.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("crates");
    let entries =
        std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut crates = BTreeSet::new();
    for entry in entries {
        crates.insert(entry?.path());
    }
    let mut complaints = Vec::new();
    for path in crates {
        let sources = path.join("src");
        let file = sources.join("lib.rs");
        if file.exists() {
            let mut modules = Modules::new();
            read(&file, &sources, &[], &mut modules)?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            complaints.extend(judge(&name, &circles(&modules), CIRCLES));
        }
    }
    Ok(complaints)
}

/// Siblings that use one another in a circle, and the path of their parent.
type Circle = (Vec<String>, Vec<String>);

/// Complains of circles that have grown, and of numbers that are too high by now.
fn judge(name: &str, circles: &[Circle], allowed: &[(&str, usize, usize)]) -> Vec<String> {
    let known = allowed.iter().find(|(known, ..)| *known == name);
    let (_, outer_max, inner_max) = known.copied().unwrap_or((name, 0, 0));
    let (outer, inner): (Vec<&Circle>, Vec<&Circle>) =
        circles.iter().partition(|(parent, _)| parent.is_empty());
    [
        ("at its root", outer, outer_max),
        ("within modules", inner, inner_max),
    ]
    .into_iter()
    .filter_map(|(place, circles, max)| {
        let count: usize = circles.iter().map(|(_, members)| members.len()).sum();
        let shown = |(parent, members): &&Circle| {
            format!("{}({})", parent.join("::"), members.join(", "))
        };
        if count > max {
            let shown: Vec<String> = circles.iter().map(shown).collect();
            let shown = shown.join(" ");
            Some(format!(
                "`{name}` has {count} modules in circles {place}, more than {max}: {shown}"
            ))
        } else {
            (count < max).then(|| {
                format!("`{name}` has {count} modules in circles {place}: lower the {max} in xtask's table")
            })
        }
    })
    .collect()
}

/// One module: what a path in it, or through it, may lead to.
#[derive(Default)]
struct Module {
    children: BTreeSet<String>,
    /// Names that a `use` brings in, and the paths behind them.
    imports: BTreeMap<String, Vec<String>>,
    /// The paths that are written in it.
    paths: Vec<Vec<String>>,
}

/// The modules of a crate by their paths from its root.
type Modules = BTreeMap<Vec<String>, Module>;

/// Reads a module from its file, and those below it from `folder`.
fn read(file: &Path, folder: &Path, path: &[String], modules: &mut Modules) -> Result<()> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let code = without_texts(&text);
    let tokens = tokens(&code);
    scan(&tokens, folder, path, modules)
}

/// Reads a module from its tokens.
fn scan(tokens: &[&str], folder: &Path, path: &[String], modules: &mut Modules) -> Result<()> {
    let mut module = Module::default();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at..] {
            // An attribute, and what it leaves out.
            ["#", "[", rest @ ..] => {
                let end = closed(tokens, at + 1);
                at = match rest {
                    ["cfg", "(", "test" | "doc" | "doctest", ")", ..]
                    | ["cfg", "(", "all", "(", "test", ..] => after_item(tokens, end),
                    _ => end,
                };
            }
            // The path of a visibility leads nowhere.
            ["pub", "(", ..] => at = closed(tokens, at + 1),
            // Not what an `impl` type captures.
            ["use", next, ..] if *next != "<" => {
                let end = at + position(&tokens[at..], ";");
                take_use(&tokens[at + 1..end], &[], &mut module);
                at = end + 1;
            }
            ["mod", name, ";" | "{", ..] => {
                let child = [path, &[(*name).to_owned()]].concat();
                let below = folder.join(name);
                if tokens[at + 2] == "{" {
                    let end = closed(tokens, at + 2);
                    scan(&tokens[at + 3..end - 1], &below, &child, modules)?;
                    at = end;
                } else {
                    let flat = folder.join(format!("{name}.rs"));
                    let nested = below.join("mod.rs");
                    let file = if flat.exists() { flat } else { nested };
                    read(&file, &below, &child, modules)?;
                    at += 3;
                }
                module.children.insert((*name).to_owned());
            }
            ["crate" | "super" | "self", "::", ..] => {
                let (written, end) = path_at(tokens, at);
                module.paths.push(written);
                at = end;
            }
            _ => at += 1,
        }
    }
    modules.insert(path.to_vec(), module);
    Ok(())
}

/// Takes the names and paths of one tree of a `use`; returns how many tokens it has.
fn take_use(tokens: &[&str], prefix: &[String], module: &mut Module) -> usize {
    let mut path = prefix.to_vec();
    let mut at = 0;
    let mut name = None;
    while at < tokens.len() {
        match tokens[at] {
            "::" => at += 1,
            "{" => {
                at += 1;
                while tokens[at] != "}" {
                    at += take_use(&tokens[at..], &path, module);
                    at += usize::from(tokens[at] == ",");
                }
                return at + 1;
            }
            "," | "}" => break,
            "as" => {
                name = Some(tokens[at + 1].to_owned());
                at += 2;
            }
            "self" if !path.is_empty() => at += 1,
            segment => {
                path.push(segment.to_owned());
                at += 1;
            }
        }
    }
    if let Some(name) = name.or_else(|| path.last().cloned()) {
        module.imports.insert(name, path.clone());
    }
    module.paths.push(path);
    at
}

/// The path that begins here, and where it ends.
fn path_at(tokens: &[&str], from: usize) -> (Vec<String>, usize) {
    let mut path = vec![tokens[from].to_owned()];
    let mut at = from + 1;
    while let ["::", segment, ..] = tokens[at..]
        && is_name(segment)
    {
        path.push(segment.to_owned());
        at += 2;
    }
    (path, at)
}

/// The circles of all modules.
fn circles(modules: &Modules) -> Vec<Circle> {
    let mut uses: BTreeMap<&[String], BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for (path, module) in modules {
        for written in &module.paths {
            let Some(used) = led_to(modules, path, written) else {
                continue;
            };
            let common = path.iter().zip(used).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (path.get(common), used.get(common)) {
                let siblings = uses.entry(&path[..common]).or_default();
                siblings.entry(from).or_default().insert(to);
            }
        }
    }
    let found = uses.iter().flat_map(|(parent, edges)| {
        let parent = parent.to_vec();
        circles_of(edges).map(move |members| (parent.clone(), members))
    });
    found.collect()
}

/// The module that a path in another leads to, as far as it leads through modules.
fn led_to<'m>(modules: &'m Modules, from: &[String], written: &[String]) -> Option<&'m [String]> {
    let mut at = match written.first()?.as_str() {
        "crate" => Vec::new(),
        "super" => from[..from.len().checked_sub(1)?].to_vec(),
        "self" => from.to_vec(),
        _ => return None,
    };
    let mut rest: Vec<String> = written[1..].to_vec();
    // Re-exports may lead through one another, but not far.
    for _ in 0..32 {
        let (found, module) = modules.get_key_value(&at)?;
        let Some(next) = rest.first().cloned() else {
            return Some(found);
        };
        if next == "super" {
            at.pop();
        } else if module.children.contains(&next) {
            at.push(next);
        } else if let Some(import) = module.imports.get(&next)
            && module.children.contains(import.first()?)
        {
            rest.splice(..1, import.iter().cloned());
            continue;
        } else {
            return Some(found);
        }
        rest.remove(0);
    }
    None
}

/// Groups of siblings each of which reaches the others of its group.
fn circles_of<'e>(
    edges: &'e BTreeMap<&str, BTreeSet<&str>>,
) -> impl Iterator<Item = Vec<String>> + use<'e> {
    let reached = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&str> = edges.get(from).into_iter().flatten().copied().collect();
        while let Some(name) = next.pop() {
            if seen.insert(name) {
                next.extend(edges.get(name).into_iter().flatten());
            }
        }
        seen
    };
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|name| (*name, reached(name))).collect();
    let group = |name: &str| {
        let others = reach[name].iter();
        let members =
            others.filter(|other| reach.get(*other).is_some_and(|back| back.contains(name)));
        members
            .map(|member| (*member).to_owned())
            .collect::<Vec<_>>()
    };
    let groups: BTreeSet<Vec<String>> = reach.keys().map(|name| group(name)).collect();
    groups.into_iter().filter(|members| members.len() > 1)
}

/// The text with blanks instead of comments, strings and characters.
fn without_texts(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let continues = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            comment_bytes(rest)
        } else if let Some(raw) = raw_string_bytes(rest).filter(|_| !continues) {
            raw
        } else if first == '"' {
            string_bytes(rest)
        } else if first == '\'' {
            character_bytes(rest)
        } else {
            0
        };
        if skipped == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            code.push(' ');
            rest = &rest[skipped..];
        }
    }
    code
}

fn comment_bytes(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The bytes of a string without escapes that begins here, if one does.
fn raw_string_bytes(text: &str) -> Option<usize> {
    let opened = ["r", "br", "cr"].iter().find_map(|start| {
        let rest = text.strip_prefix(start)?;
        let hashes = rest.len() - rest.trim_start_matches('#').len();
        rest[hashes..]
            .starts_with('"')
            .then_some((start.len() + hashes + 1, hashes))
    });
    let (from, hashes) = opened?;
    let end = format!("\"{}", "#".repeat(hashes));
    let found = text[from..].find(&end)?;
    Some(from + found + end.len())
}

fn string_bytes(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(text.len())
}

/// The bytes of a character; 0 of a lifetime.
fn character_bytes(text: &str) -> usize {
    let mut inside = text[1..].char_indices();
    match inside.next() {
        Some((_, '\\')) => {
            inside.next();
            inside.find(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 2)
        }
        Some(_) => match inside.next() {
            Some((at, '\'')) => at + 2,
            _ => 0,
        },
        None => 0,
    }
}

/// Names, `::`, and all else as single characters.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let bytes = if is_name(&rest[..first.len_utf8()]) {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        tokens.push(&rest[..bytes]);
        rest = rest[bytes..].trim_start();
    }
    tokens
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Where this token comes first, or the end.
fn position(tokens: &[&str], wanted: &str) -> usize {
    let found = tokens.iter().position(|token| *token == wanted);
    found.unwrap_or(tokens.len())
}

/// Behind the bracket that closes the one here.
fn closed(tokens: &[&str], from: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// Behind the item, field, arm or statement that begins here.
fn after_item(tokens: &[&str], from: usize) -> usize {
    let mut at = from;
    let mut is_use = false;
    while at < tokens.len() {
        match tokens[at] {
            "(" | "[" => at = closed(tokens, at),
            "{" => {
                at = closed(tokens, at);
                if !is_use {
                    return at;
                }
            }
            ";" => return at + 1,
            "," if !is_use => return at + 1,
            ")" | "]" | "}" => return at,
            token => {
                is_use |= token == "use";
                at += 1;
            }
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate of these modules, each with its code, as if all were written in its root.
    fn found(code: &str) -> Vec<Circle> {
        let code = without_texts(code);
        let mut modules = Modules::new();
        scan(&tokens(&code), Path::new(""), &[], &mut modules).unwrap();
        circles(&modules)
    }

    fn names(circles: &[Circle]) -> Vec<String> {
        let shown =
            |(parent, members): &Circle| format!("{}({})", parent.join("::"), members.join(" "));
        circles.iter().map(shown).collect()
    }

    #[test]
    fn modules_that_use_one_another_are_a_circle() {
        let code = "mod a { use crate::b::B; } mod b { fn f() { super::c::g() } }
            mod c { use crate::{a::A as Other, d}; } mod d { struct D; }";
        assert_eq!(names(&found(code)), ["(a b c)"]);
        let code = "mod a { use crate::b::B; } mod b { struct B; }";
        assert_eq!(found(code), []);
    }

    #[test]
    fn names_that_are_passed_on_lead_to_where_they_come_from() {
        let code = "pub use a::A; mod a { pub struct A; use crate::b::B; } mod b { use crate::A; }";
        assert_eq!(names(&found(code)), ["(a b)"]);
    }

    #[test]
    fn circles_are_found_at_any_depth() {
        let code = "mod a { mod x { use super::y::Y; } mod y { use crate::a::x::X; } }";
        assert_eq!(names(&found(code)), ["a(x y)"]);
    }

    #[test]
    fn tests_texts_and_visibilities_do_not_count() {
        let code = "mod a { use crate::b::B; }
            mod b { #[cfg(test)] use crate::{a::A}; #[cfg(test)] mod tests { use crate::a::A; }
                // crate::a::A
                pub(in crate::a) fn f<'a>() -> &'a str { \"crate::a::A\" } const C: char = '\"'; }";
        assert_eq!(found(code), []);
    }

    #[test]
    fn numbers_only_go_down() {
        let circles = [(Vec::new(), vec!["a".to_owned(), "b".to_owned()])];
        assert_eq!(
            judge("query", &circles, &[("query", 2, 0)]),
            Vec::<String>::new()
        );
        assert_eq!(
            judge("query", &circles, &[]),
            ["`query` has 2 modules in circles at its root, more than 0: (a, b)"]
        );
        assert_eq!(
            judge("query", &circles, &[("query", 3, 0)]),
            ["`query` has 2 modules in circles at its root: lower the 3 in xtask's table"]
        );
    }
}
