//! Everything that has a row in `pg_class`, found by number and by name.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use aerostat_catalog::{
    AEROSTAT_OID, Grant, INFORMATION_SCHEMA_OID, IndexEntry, PG_CATALOG_OID, PG_TEMP, Relation,
    SEQUENCE_COLUMNS, SequenceEntry, TableEntry, ViewEntry, is_temporary,
};
use aerostat_sql::names::{AEROSTAT, INFORMATION_SCHEMA, PG_CATALOG};
use aerostat_types::{Column, SchemaId};

use crate::{
    CatalogView, FunctionDescription,
    data::{self, SystemRelation},
};

/// What is worked out once for a statement, on first use: relations by number and
/// by name, functions with their numbers.
#[derive(Default)]
pub struct ClassIndex {
    classes: OnceLock<Indexed>,
    pub(crate) procedures: OnceLock<Vec<(u32, FunctionDescription)>>,
}

struct Indexed {
    classes: Vec<Class>,
    by_oid: HashMap<u32, usize>,
    by_name: HashMap<String, Vec<usize>>,
}

/// Something that has a row in `pg_class`.
#[derive(Clone)]
pub(crate) struct Class {
    /// Its number there, whether it is a relation of ours, an index, or a system relation.
    pub(crate) oid: u32,
    pub(crate) schema: String,
    pub(crate) schema_oid: SchemaId,
    pub(crate) name: String,
    pub(crate) kind: ClassKind,
}

/// What has a row in `pg_class`.
#[derive(Clone)]
pub(crate) enum ClassKind {
    Table(Arc<TableEntry>),
    View(Arc<ViewEntry>),
    Sequence(Arc<SequenceEntry>),
    /// An index of a table.
    Index(Arc<TableEntry>, IndexEntry),
    System(&'static SystemRelation),
}

impl Class {
    /// `pg_class.relkind`.
    pub(crate) fn relkind(&self) -> &'static str {
        match &self.kind {
            ClassKind::Table(_) => "r",
            ClassKind::View(_) => "v",
            ClassKind::Sequence(_) => "S",
            ClassKind::Index(..) => "i",
            ClassKind::System(relation) if relation.kind == 'v' => "v",
            ClassKind::System(_) => "r",
        }
    }

    /// The columns of a user's table, view or sequence.
    pub(crate) fn columns(&self) -> &[Column] {
        match &self.kind {
            ClassKind::Table(table) => &table.table.schema().columns,
            ClassKind::View(view) => &view.columns,
            ClassKind::Sequence(_) => &SEQUENCE_COLUMNS,
            ClassKind::Index(..) | ClassKind::System(_) => &[],
        }
    }

    /// The COMMENT of a column of a user's table or view.
    pub(crate) fn column_comment(&self, column: &str) -> Option<&str> {
        let comments = match &self.kind {
            ClassKind::Table(table) => &table.column_comments,
            ClassKind::View(view) => &view.column_comments,
            ClassKind::Sequence(_) | ClassKind::Index(..) | ClassKind::System(_) => return None,
        };
        comments.get(column).map(String::as_str)
    }

    /// Grants beyond the owner's rights.
    pub(crate) fn grants(&self) -> &[Grant] {
        match &self.kind {
            ClassKind::Table(table) => &table.grants,
            ClassKind::View(view) => &view.grants,
            ClassKind::Sequence(sequence) => &sequence.grants,
            ClassKind::Index(..) | ClassKind::System(_) => &[],
        }
    }

    /// The owner of a user's relation.
    pub(crate) fn owner(&self) -> Option<&str> {
        match &self.kind {
            ClassKind::Table(table) | ClassKind::Index(table, _) => Some(&table.owner),
            ClassKind::View(view) => Some(&view.owner),
            ClassKind::Sequence(sequence) => Some(&sequence.owner),
            ClassKind::System(_) => None,
        }
    }

    /// Whether it is gone with its session.
    pub(crate) fn is_temporary(&self) -> bool {
        is_temporary(&self.schema)
    }

    /// The table, where this is one.
    pub(crate) fn table(&self) -> Option<&TableEntry> {
        match &self.kind {
            ClassKind::Table(table) => Some(table),
            _ => None,
        }
    }
}

impl Indexed {
    fn of(view: &CatalogView) -> Self {
        let mut classes: Vec<Class> = data::relations()
            .iter()
            .filter(|relation| relation.kind != data::HIDDEN)
            .map(|relation| Class {
                oid: relation.oid,
                schema: relation.schema.to_owned(),
                schema_oid: system_schema_oid(relation.schema),
                name: relation.name.to_owned(),
                kind: ClassKind::System(relation),
            })
            .collect();
        for (schema, relation, name) in view.state.relations() {
            let class = |oid: u32, name: &str, kind: ClassKind| Class {
                oid,
                schema: schema.name.clone(),
                schema_oid: schema.oid,
                name: name.to_owned(),
                kind,
            };
            match relation {
                Relation::Table(table) => {
                    classes.push(class(
                        table.oid.0,
                        name,
                        ClassKind::Table(Arc::clone(table)),
                    ));
                    for index in table.all_indexes() {
                        let (oid, name) = (index.oid.0, index.index.name.clone());
                        let kind = ClassKind::Index(Arc::clone(table), index);
                        classes.push(class(oid, &name, kind));
                    }
                }
                Relation::View(view) => {
                    classes.push(class(view.oid.0, name, ClassKind::View(Arc::clone(view))))
                }
                Relation::Sequence(sequence) => {
                    let kind = ClassKind::Sequence(Arc::clone(sequence));
                    classes.push(class(sequence.oid.0, name, kind));
                }
            }
        }
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, class) in classes.iter().enumerate() {
            by_name.entry(class.name.clone()).or_default().push(at);
        }
        let by_oid = classes
            .iter()
            .enumerate()
            .map(|(at, class)| (class.oid, at))
            .collect();
        Self {
            classes,
            by_oid,
            by_name,
        }
    }
}

impl CatalogView {
    /// Everything that has a row in `pg_class`, in order of schema and name.
    pub(crate) fn classes(&self) -> &[Class] {
        &self.indexed().classes
    }

    /// What has this number in `pg_class`.
    pub(crate) fn class(&self, oid: i64) -> Option<&Class> {
        let indexed = self.indexed();
        indexed
            .classes
            .get(*indexed.by_oid.get(&u32::try_from(oid).ok()?)?)
    }

    fn indexed(&self) -> &Indexed {
        self.index.classes.get_or_init(|| Indexed::of(self))
    }

    /// The schemas searched for unqualified names: temporary relations and `pg_catalog` first.
    pub(crate) fn effective_path(&self) -> Vec<&str> {
        let mut path: Vec<&str> = self.implicit_temporary().into_iter().collect();
        if !self.search_path.iter().any(|schema| schema == PG_CATALOG) {
            path.push(PG_CATALOG);
        }
        let exists = |schema: &&String| {
            [PG_CATALOG, INFORMATION_SCHEMA, AEROSTAT].contains(&schema.as_str())
                || self.state.schemas.contains_key(schema.as_str())
        };
        path.extend(self.search_path.iter().filter(exists).map(String::as_str));
        path
    }

    /// The schema of temporary relations, if names lead there though the search path does not
    /// say so.
    pub(crate) fn implicit_temporary(&self) -> Option<&str> {
        let own = self.state.temporary()?.name.as_str();
        let is_named = self.search_path.iter().any(|schema| schema == own);
        (!is_named).then_some(own)
    }

    /// The relation or index that a name means, through the search path when it has no schema.
    pub(crate) fn class_named(&self, schema: Option<&str>, name: &str) -> Option<&Class> {
        let find = |schema: &str| self.named(name).find(|class| class.schema == schema);
        match schema {
            Some(PG_TEMP) => find(self.state.temporary()?.name.as_str()),
            Some(schema) => find(schema),
            None => self.effective_path().into_iter().find_map(find),
        }
    }

    /// Whether the unqualified name means this one.
    pub(crate) fn is_visible(&self, class: &Class) -> bool {
        let path = self.effective_path();
        if !path.contains(&class.schema.as_str()) {
            return false;
        }
        path.iter()
            .take_while(|schema| **schema != class.schema)
            .all(|schema| !self.named(&class.name).any(|other| other.schema == *schema))
    }

    /// Everything of this name, in whatever schema.
    fn named(&self, name: &str) -> impl Iterator<Item = &Class> {
        let indexed = self.indexed();
        let places = indexed.by_name.get(name).map_or(&[][..], Vec::as_slice);
        places.iter().filter_map(|&at| indexed.classes.get(at))
    }
}

/// The number of a system schema.
fn system_schema_oid(schema: &str) -> SchemaId {
    match schema {
        INFORMATION_SCHEMA => INFORMATION_SCHEMA_OID,
        AEROSTAT => AEROSTAT_OID,
        _ => PG_CATALOG_OID,
    }
}
