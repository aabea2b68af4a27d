//! COMMENTs on parts of a table.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::TableEntry;

/// COMMENTs of a table's constraints and indexes, by name. A primary key or UNIQUE constraint is
/// both, and may have one of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartComments {
    /// Of constraints.
    pub constraints: BTreeMap<String, String>,
    /// Of indexes.
    pub indexes: BTreeMap<String, String>,
}

impl PartComments {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.constraints.is_empty() && self.indexes.is_empty()
    }
}

/// Puts a comment in the place of the one that is there, or takes it out.
pub(crate) fn put(comments: &mut BTreeMap<String, String>, name: &str, text: Option<String>) {
    match text {
        Some(text) => comments.insert(name.to_owned(), text),
        None => comments.remove(name),
    };
}

/// A comment follows what it is about to its new name.
pub(crate) fn follow(comments: &mut BTreeMap<String, String>, from: &str, to: &str) {
    if let Some(text) = comments.remove(from) {
        comments.insert(to.to_owned(), text);
    }
}

impl TableEntry {
    /// Whether it has a constraint of this name.
    pub(crate) fn has_constraint(&self, name: &str) -> bool {
        let checks = &self.table.schema().checks;
        let is_kept_by = |index: super::IndexEntry| index.is_constraint && index.index.name == name;
        checks.iter().any(|check| check.name == name)
            || self.foreign_keys.iter().any(|key| key.name == name)
            || self.all_indexes().any(is_kept_by)
    }

    /// Forgets the comments of what is not there any more.
    pub(crate) fn settle_comments(&mut self) {
        if self.part_comments.is_empty() {
            return;
        }
        let mut comments = std::mem::take(&mut self.part_comments);
        let has_index = |name: &String| self.all_indexes().any(|index| index.index.name == *name);
        comments
            .constraints
            .retain(|name, _| self.has_constraint(name));
        comments.indexes.retain(|name, _| has_index(name));
        self.part_comments = comments;
    }
}
