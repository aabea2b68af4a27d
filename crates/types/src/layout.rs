//! Layouts: which attributes of a table are stored together.
//!
//! A layout is any vertical partitioning of a table into attribute groups (HYRISE, source 000
//! §3.3): one group of all attributes is a row store, one group per attribute a column store,
//! anything between is a hybrid.

use std::{collections::HashMap, fmt};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A layout as the user states it, by attribute names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// One group of all attributes.
    Row,
    /// One group for each attribute.
    #[default]
    Column,
    /// These groups; an attribute that none names has a group of its own.
    Groups(Vec<Vec<String>>),
}

/// Why a layout does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// The text is no layout.
    #[error("invalid layout {0:?}: expected 'row', 'column' or groups such as '(a,b),(c)'")]
    Syntax(String),
    /// A group names an attribute the table lacks.
    #[error("layout names column {0:?}, which the table does not have")]
    UnknownColumn(String),
    /// Two groups, or one group twice, name an attribute.
    #[error("layout names column {0:?} more than once")]
    RepeatedColumn(String),
}

impl Layout {
    /// Reads `row`, `column` or `(a,b),(c)`; names may be quoted as in SQL.
    ///
    /// # Errors
    /// [`LayoutError::Syntax`] when the text is none of these.
    pub fn parse(text: &str) -> Result<Layout, LayoutError> {
        let error = || LayoutError::Syntax(text.to_owned());
        match text.trim().to_ascii_lowercase().as_str() {
            "row" => return Ok(Layout::Row),
            "column" => return Ok(Layout::Column),
            _ => {}
        }
        let mut groups: Vec<Vec<String>> = Vec::new();
        let mut chars = text.trim().chars().peekable();
        loop {
            skip_blanks(&mut chars);
            if chars.next() != Some('(') {
                return Err(error());
            }
            let mut group = Vec::new();
            loop {
                skip_blanks(&mut chars);
                group.push(parse_name(&mut chars).ok_or_else(error)?);
                skip_blanks(&mut chars);
                match chars.next() {
                    Some(',') => {}
                    Some(')') => break,
                    _ => return Err(error()),
                }
            }
            groups.push(group);
            skip_blanks(&mut chars);
            match chars.next() {
                None => return Ok(Layout::Groups(groups)),
                Some(',') => {}
                Some(_) => return Err(error()),
            }
        }
    }

    /// The groups as positions in `names`, every position in exactly one group.
    ///
    /// # Errors
    /// A name that is not in `names`, or is given twice.
    pub fn resolve<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<Vec<usize>>, LayoutError> {
        let groups = match self {
            Layout::Row if names.is_empty() => return Ok(Vec::new()),
            Layout::Row => return Ok(vec![(0..names.len()).collect()]),
            Layout::Column => return Ok((0..names.len()).map(|at| vec![at]).collect()),
            Layout::Groups(groups) => groups,
        };
        // A table may have thousands of attributes, so they are not searched one by one.
        let places: HashMap<&str, usize> = names.iter().map(AsRef::as_ref).zip(0..).collect();
        let mut taken = vec![false; names.len()];
        let mut resolved = Vec::with_capacity(groups.len());
        for group in groups {
            let mut positions = Vec::with_capacity(group.len());
            for name in group {
                let at = *places
                    .get(name.as_str())
                    .ok_or_else(|| LayoutError::UnknownColumn(name.clone()))?;
                if std::mem::replace(&mut taken[at], true) {
                    return Err(LayoutError::RepeatedColumn(name.clone()));
                }
                positions.push(at);
            }
            resolved.push(positions);
        }
        resolved.extend((0..names.len()).filter(|&at| !taken[at]).map(|at| vec![at]));
        Ok(resolved)
    }
}

impl Layout {
    /// The layout that [resolves](Layout::resolve) to these groups: positions in `names`,
    /// each in one group.
    pub fn of_groups<S: AsRef<str>>(groups: &[Vec<usize>], names: &[S]) -> Layout {
        let is = |layout: Layout| {
            layout
                .resolve(names)
                .is_ok_and(|resolved| resolved == groups)
        };
        if is(Layout::Column) {
            return Layout::Column;
        }
        if is(Layout::Row) {
            return Layout::Row;
        }
        let named = |group: &Vec<usize>| {
            let names = group.iter().map(|&at| names[at].as_ref().to_owned());
            names.collect()
        };
        Layout::Groups(groups.iter().map(named).collect())
    }
}

impl Layout {
    /// The layout of a table whose columns, named `before`, have come to be named `after`. A
    /// column that has no name any more is in no group.
    pub fn renamed<S: AsRef<str>, T: AsRef<str>>(&self, before: &[S], after: &[T]) -> Layout {
        let Layout::Groups(groups) = self else {
            return self.clone();
        };
        let after: HashMap<&str, &str> = before
            .iter()
            .map(AsRef::as_ref)
            .zip(after.iter().map(AsRef::as_ref))
            .collect();
        let group = |names: &Vec<String>| -> Vec<String> {
            names
                .iter()
                .filter_map(|name| after.get(name.as_str()).map(|name| (*name).to_owned()))
                .collect()
        };
        let groups: Vec<_> = groups.iter().map(group).collect();
        Layout::Groups(
            groups
                .into_iter()
                .filter(|group| !group.is_empty())
                .collect(),
        )
    }
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn skip_blanks(chars: &mut Chars<'_>) {
    while chars.next_if(|c| c.is_whitespace()).is_some() {}
}

fn parse_name(chars: &mut Chars<'_>) -> Option<String> {
    let mut name = String::new();
    if chars.next_if_eq(&'"').is_some() {
        loop {
            match chars.next()? {
                '"' if chars.next_if_eq(&'"').is_some() => name.push('"'),
                '"' => break,
                c => name.push(c),
            }
        }
    } else {
        while let Some(c) = chars.next_if(|c| c.is_alphanumeric() || *c == '_' || *c == '$') {
            name.extend(c.to_lowercase());
        }
    }
    (!name.is_empty()).then_some(name)
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = match self {
            Layout::Row => return f.write_str("row"),
            Layout::Column => return f.write_str("column"),
            Layout::Groups(groups) => groups,
        };
        for (at, group) in groups.iter().enumerate() {
            f.write_str(if at == 0 { "(" } else { ",(" })?;
            for (at, name) in group.iter().enumerate() {
                if at > 0 {
                    f.write_str(",")?;
                }
                let plain = name
                    .chars()
                    .all(|c| c.is_lowercase() || c.is_ascii_digit() || c == '_');
                if plain {
                    f.write_str(name)?;
                } else {
                    write!(f, "\"{}\"", name.replace('"', "\"\""))?;
                }
            }
            f.write_str(")")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_resolve_and_print_back() {
        let layout = Layout::parse(" (a, B),(\"X y\") ").unwrap();
        assert_eq!(
            layout.resolve(&["a", "c", "b", "X y"]).unwrap(),
            [vec![0, 2], vec![3], vec![1]]
        );
        assert_eq!(Layout::parse(&layout.to_string()).unwrap(), layout);
        assert_eq!(Layout::Row.resolve(&["a", "b"]).unwrap(), [vec![0, 1]]);
        assert_eq!(
            Layout::Column.resolve(&["a", "b"]).unwrap(),
            [vec![0], vec![1]]
        );
    }

    #[test]
    fn groups_have_a_layout() {
        let names = ["a", "b", "c"];
        for text in [
            "row",
            "column",
            "(a,b),(c)",
            "(c,b,a)",
            "(b),(a),(c)",
            "(c),(a,b)",
        ] {
            let layout = Layout::parse(text).unwrap();
            let groups = layout.resolve(&names).unwrap();
            assert_eq!(Layout::of_groups(&groups, &names), layout);
        }
        let listed = Layout::parse("(a),(b),(c)").unwrap();
        let groups = listed.resolve(&names).unwrap();
        assert_eq!(Layout::of_groups(&groups, &names), Layout::Column);
        let one = Layout::Row.resolve(&["a"]).unwrap();
        assert_eq!(Layout::of_groups(&one, &["a"]), Layout::Column);
    }

    #[test]
    fn groups_follow_the_names_of_columns() {
        let layout = Layout::parse("(a,b),(c)").unwrap();
        let renamed = layout.renamed(&["a", "b", "c"], &["a", "c", "b"]);
        assert_eq!(renamed.to_string(), "(a,c),(b)");
        assert_eq!(layout.renamed(&["b"], &["b"]).to_string(), "(b)");
        assert_eq!(Layout::Row.renamed(&["a"], &["b"]), Layout::Row);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for text in [
            "", "(", "(a", "(a,)", "()", "(a)(b)", "(a),", "rows", "(a b)", "(\"a)",
        ] {
            assert!(
                matches!(Layout::parse(text), Err(LayoutError::Syntax(_))),
                "{text}"
            );
        }
        let twice = Layout::parse("(a),(a)").unwrap();
        assert_eq!(
            twice.resolve(&["a"]),
            Err(LayoutError::RepeatedColumn("a".into()))
        );
        let unknown = Layout::parse("(z)").unwrap();
        assert_eq!(
            unknown.resolve(&["a"]),
            Err(LayoutError::UnknownColumn("z".into()))
        );
    }
}
