//! Which relations a query names, and which views need which relations.
//!
//! A view is stored as the text of its query with every relation qualified by its schema, so that
//! it means the same under any search path. Its dependencies are read from that text.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

use aerostat_sql::{
    names::{QualifiedName, ResolvedName, folded},
    walk,
};
use aerostat_types::{ErrorKind, SqlError, quote_ident};
use sqlparser::{
    ast::{Ident, ObjectName, ObjectNamePart, Query, Statement, VisitorMut, With},
    dialect::PostgreSqlDialect,
    parser::Parser,
};

use super::search_path::is_system_schema;
use crate::{
    actor::Actor,
    state::{CatalogState, Relation},
};

/// A view's text was accepted once under the parser's limit; printing it may have added parentheses.
const NESTING_MAX: usize = 256;

/// Qualifies every name of a relation in the query by the schema that the
/// actor's search path gives it, and gives the relations. Names of common
/// table expressions, of system relations and of table functions stay.
///
/// # Errors
/// A qualified name's schema is not there or may not be used.
pub fn qualify_query(
    state: &CatalogState,
    actor: &Actor,
    query: &mut Query,
) -> Result<BTreeSet<ResolvedName>, SqlError> {
    let mut visitor = Qualifier {
        state,
        actor: Some(actor),
        ctes: Vec::new(),
        withs: Vec::new(),
        found: BTreeSet::new(),
    };
    match walk::change(&mut *query, &mut visitor) {
        ControlFlow::Continue(()) => Ok(visitor.found),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// The relations that a view's query names.
///
/// # Errors
/// The text is no query, which is a defect: it was one when it was stored.
pub fn relations_in(state: &CatalogState, query: &str) -> Result<BTreeSet<ResolvedName>, SqlError> {
    let defect = |what: String| {
        SqlError::new(
            ErrorKind::Internal,
            format!("a view's text cannot be read: {what}"),
        )
    };
    let statement = Parser::new(&PostgreSqlDialect {})
        .with_recursion_limit(NESTING_MAX)
        .try_with_sql(query)
        .and_then(|mut parser| parser.parse_statement())
        .map_err(|error| defect(error.to_string()))?;
    let Statement::Query(mut query) = statement else {
        return Err(defect("it is no query".to_owned()));
    };
    let mut visitor = Qualifier {
        state,
        actor: None,
        ctes: Vec::new(),
        withs: Vec::new(),
        found: BTreeSet::new(),
    };
    match walk::change(&mut *query, &mut visitor) {
        ControlFlow::Continue(()) => Ok(visitor.found),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Qualifier<'a> {
    state: &'a CatalogState,
    /// Whose search path qualifies; `None` when only qualified names count.
    actor: Option<&'a Actor>,
    /// Names of common table expressions in scope.
    ctes: Vec<String>,
    /// WITH clauses of the queries being visited, taken out until they are left.
    withs: Vec<Option<With>>,
    found: BTreeSet<ResolvedName>,
}

impl Qualifier<'_> {
    fn relation(&mut self, written: &mut ObjectName) -> Result<(), SqlError> {
        let Ok(name) = QualifiedName::from_object_name(written, &mut Vec::new()) else {
            // Not a name but a function; the planner judges it.
            return Ok(());
        };
        if name.schema.is_none() && self.ctes.contains(&name.name) {
            return Ok(());
        }
        let place = match (self.actor, &name.schema) {
            (_, Some(schema)) if is_system_schema(schema) => None,
            (Some(actor), _) => actor.find(self.state, &name)?.map(|found| found.place),
            (None, Some(schema)) => Some(ResolvedName {
                schema: schema.clone(),
                name: name.name.clone(),
            }),
            (None, None) => None,
        };
        if let Some(place) = place {
            *written = object_name(&place);
            self.found.insert(place);
        }
        Ok(())
    }
}

fn object_name(place: &ResolvedName) -> ObjectName {
    let part = |name: &str| {
        let quoted = quote_ident(name) != name;
        ObjectNamePart::Identifier(if quoted {
            Ident::with_quote('"', name)
        } else {
            Ident::new(name)
        })
    };
    ObjectName(vec![part(&place.schema), part(&place.name)])
}

impl VisitorMut for Qualifier<'_> {
    type Break = Box<SqlError>;

    /// Takes the common table expressions out and visits them here, each with
    /// those before it in scope, and those of a recursive WITH with all.
    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        let mut with = query.with.take();
        if let Some(with) = &mut with {
            let names: Vec<_> = with
                .cte_tables
                .iter()
                .map(|cte| folded(&cte.alias.name))
                .collect();
            if with.recursive {
                self.ctes.extend(names.iter().cloned());
            }
            for (cte, name) in with.cte_tables.iter_mut().zip(names) {
                walk::change(cte, self)?;
                if !with.recursive {
                    self.ctes.push(name);
                }
            }
        }
        self.withs.push(with);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        query.with = self.withs.pop().flatten();
        let count = query.with.as_ref().map_or(0, |with| with.cte_tables.len());
        self.ctes.truncate(self.ctes.len().saturating_sub(count));
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<Self::Break> {
        match self.relation(relation) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

/// What each view needs.
pub(super) struct Dependencies {
    needs: BTreeMap<ResolvedName, BTreeSet<ResolvedName>>,
}

impl Dependencies {
    /// # Errors
    /// As [`relations_in`].
    pub(super) fn of(state: &CatalogState) -> Result<Self, SqlError> {
        let mut needs = BTreeMap::new();
        for (schema, relation, name) in state.relations() {
            if let Relation::View(view) = relation {
                let place = ResolvedName {
                    schema: schema.name.clone(),
                    name: name.to_owned(),
                };
                needs.insert(place, relations_in(state, &view.query)?);
            }
        }
        Ok(Self { needs })
    }

    /// The views that need any of `targets`, directly or through other views,
    /// each with one of those it needs; the targets themselves not counted.
    pub(super) fn dependants(
        &self,
        targets: &BTreeSet<ResolvedName>,
    ) -> Vec<(ResolvedName, ResolvedName)> {
        let mut gone = targets.clone();
        let mut dependants = Vec::new();
        loop {
            let before = dependants.len();
            for (view, needs) in &self.needs {
                if let Some(needed) = needs
                    .intersection(&gone)
                    .next()
                    .filter(|_| !gone.contains(view))
                {
                    dependants.push((view.clone(), needed.clone()));
                    gone.insert(view.clone());
                }
            }
            if dependants.len() == before {
                return dependants;
            }
        }
    }

    /// Whether a view would need itself if it needed these.
    pub(super) fn needs_itself(&self, view: &ResolvedName, needs: &BTreeSet<ResolvedName>) -> bool {
        let dependants = self.dependants(&BTreeSet::from([view.clone()]));
        needs.contains(view)
            || dependants
                .iter()
                .any(|(dependant, _)| needs.contains(dependant))
    }
}
