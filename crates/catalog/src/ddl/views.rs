//! Views that read a changing relation: which of its columns they use, and how they keep their
//! meaning.
//!
//! What a view uses is not read from its text: the view is planned against a catalogue in which
//! the column has another name, and uses the column if that makes a difference.

use std::{collections::BTreeMap, sync::Arc};

use aerostat_sql::names::ResolvedName;
use aerostat_types::{Column, ErrorKind, SqlError, TableSchema};
use sqlparser::ast;

use super::{dependency::relations_in, drop::shown, privilege::relation_mut, view_text};
use crate::{
    actor::Actor,
    state::{CatalogState, Relation},
};

/// Plans views' queries. The planner implements it.
pub trait PlanViews {
    /// The columns that a query gives under a catalogue that may be there or not, whoever may
    /// read what.
    ///
    /// # Errors
    /// What is wrong with the query, in the planner's words.
    fn view_columns(
        &self,
        state: &Arc<CatalogState>,
        query: &ast::Query,
    ) -> Result<Vec<Column>, SqlError>;
}

/// What a column is called where nothing may find it: no identifier holds this.
const NOWHERE: &str = "\u{1}nowhere";

/// The views that read a relation, and the planner to try them with.
pub(super) struct Readers<'a> {
    planner: &'a dyn PlanViews,
    before: Arc<CatalogState>,
    place: &'a ResolvedName,
    /// Where each view is, and its query.
    views: Vec<(ResolvedName, ast::Query)>,
}

/// How the columns of a relation change.
pub(super) struct ColumnChange<'a> {
    /// The names of before.
    pub(super) before: &'a [String],
    /// What becomes of a name; `None` if the column goes.
    pub(super) now: &'a dyn Fn(&str) -> Option<String>,
    /// Whether a column of before has another name, or may be mistaken for another.
    pub(super) renames: bool,
}

impl<'a> Readers<'a> {
    /// The views that name the relation themselves.
    ///
    /// # Errors
    /// A view's text cannot be read, which is a defect.
    pub(super) fn of(
        state: &CatalogState,
        place: &'a ResolvedName,
        planner: &'a dyn PlanViews,
    ) -> Result<Self, SqlError> {
        let mut views = Vec::new();
        for (schema, relation, name) in state.relations() {
            let Relation::View(view) = relation else {
                continue;
            };
            if relations_in(state, &view.query)?.contains(place) {
                let at = ResolvedName {
                    schema: schema.name.clone(),
                    name: name.to_owned(),
                };
                views.push((at, view_text::parse(&view.query)?));
            }
        }
        Ok(Self {
            planner,
            before: Arc::new(state.clone()),
            place,
            views,
        })
    }

    /// Where the views are, and their texts.
    pub(super) fn texts(&self) -> Vec<(ResolvedName, String)> {
        let text = |place: &ResolvedName| match self.before.relation(&place.schema, &place.name) {
            Some(Relation::View(view)) => Some((place.clone(), view.query.clone())),
            _ => None,
        };
        let places = self.views.iter().map(|(place, _)| place);
        places.filter_map(text).collect()
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// The views that use a column of the table.
    ///
    /// # Errors
    /// A defect.
    pub(super) fn using(&self, column: &str) -> Result<Vec<ResolvedName>, SqlError> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let Some(Relation::Table(entry)) =
            self.before.relation(&self.place.schema, &self.place.name)
        else {
            return Ok(Vec::new());
        };
        let mut schema = TableSchema::clone(entry.table.schema());
        for candidate in &mut schema.columns {
            if candidate.name == column {
                NOWHERE.clone_into(&mut candidate.name);
            }
        }
        let table = entry.table.redefined(Arc::new(schema));
        let mut without = CatalogState::clone(&self.before);
        if let Relation::Table(entry) = relation_mut(&mut without, self.place)? {
            Arc::make_mut(entry).table = table;
        }
        let now = |name: &str| (name != column).then(|| name.to_owned());
        let mut followed = Vec::with_capacity(self.views.len());
        for (view, query) in &self.views {
            let mut pruned = query.clone();
            view_text::follow(&mut pruned, self.place, &now)?;
            set_query(&mut without, view, &pruned)?;
            followed.push((view, query, pruned));
        }
        let without = Arc::new(without);
        let uses = |(_, query, pruned): &(&ResolvedName, &ast::Query, ast::Query)| {
            !self.is_same(query, &without, pruned)
        };
        let using = followed.into_iter().filter(uses);
        Ok(using.map(|(view, ..)| view.clone()).collect())
    }

    /// Makes the views read the relation as `after` has it, and go on giving what they gave.
    /// Those that `after` has no more are left out.
    ///
    /// # Errors
    /// `FeatureNotSupported` when a view cannot.
    pub(super) fn carry_over(
        &self,
        actor: &Actor,
        after: &mut CatalogState,
        change: &ColumnChange<'_>,
    ) -> Result<(), SqlError> {
        if self.is_empty() {
            return Ok(());
        }
        let is_there = |(view, _): &&(ResolvedName, ast::Query)| {
            after.relation(&view.schema, &view.name).is_some()
        };
        let mut left: Vec<_> = self.views.iter().filter(is_there).collect();
        // A view may read others of them, which have to be done first.
        while let Some((first, _)) = left.first().copied() {
            let (tried, count) = (Arc::new(after.clone()), left.len());
            let mut failed = Vec::new();
            for (view, query) in left {
                match self.followed(query, &tried, change)? {
                    Some(query) => set_query(after, view, &query)?,
                    None => failed.push(view),
                }
            }
            if failed.len() == count {
                return Err(self.cannot_follow(actor, first));
            }
            let is_left = |(view, _): &&(ResolvedName, ast::Query)| failed.contains(&view);
            left = self.views.iter().filter(is_left).collect();
        }
        Ok(())
    }

    /// The query as it gives under the catalogue to come what it gave before: as it stands, if
    /// that is certain, or else with the relation pinned.
    fn followed(
        &self,
        query: &ast::Query,
        tried: &Arc<CatalogState>,
        change: &ColumnChange<'_>,
    ) -> Result<Option<ast::Query>, SqlError> {
        let mut followed = query.clone();
        view_text::follow(&mut followed, self.place, change.now)?;
        let stays = !change.renames && !view_text::takes_all_columns(&followed);
        if stays && self.is_same(query, tried, &followed) {
            return Ok(Some(followed));
        }
        followed.clone_from(query);
        view_text::pin(&mut followed, self.place, change.before, change.now)?;
        Ok(self.is_same(query, tried, &followed).then_some(followed))
    }

    /// Makes all views name relations that have moved, among them perhaps views, where they
    /// are in `after`.
    ///
    /// # Errors
    /// `FeatureNotSupported` when a view cannot.
    pub(super) fn follow_moves(
        before: &CatalogState,
        actor: &Actor,
        after: &mut CatalogState,
        moves: &BTreeMap<ResolvedName, ResolvedName>,
        planner: &dyn PlanViews,
    ) -> Result<(), SqlError> {
        let mut carried = Vec::new();
        for place in moves.keys() {
            let readers = Readers::of(before, place, planner)?;
            let views = readers.views.iter();
            carried.extend(views.map(|(view, query)| (place, view.clone(), query.clone())));
        }
        let mut followed = Vec::with_capacity(carried.len());
        for (_, view, query) in &carried {
            let mut query = query.clone();
            view_text::follow_moves(&mut query, moves);
            set_query(after, moves.get(view).unwrap_or(view), &query)?;
            followed.push(query);
        }
        let (before, after) = (Arc::new(before.clone()), Arc::new(after.clone()));
        for ((place, view, query), followed) in carried.iter().zip(&followed) {
            let readers = Readers {
                planner,
                before: Arc::clone(&before),
                place,
                views: Vec::new(),
            };
            if !readers.is_same(query, &after, followed) {
                return Err(readers.cannot_follow(actor, view));
            }
        }
        Ok(())
    }

    /// Whether a query gives under a catalogue what another gives under that of before: columns
    /// of the same names and types.
    fn is_same(&self, query: &ast::Query, after: &Arc<CatalogState>, now: &ast::Query) -> bool {
        let before = self.planner.view_columns(&self.before, query);
        let after = self.planner.view_columns(after, now);
        match (before, after) {
            (Ok(before), Ok(after)) => before == after,
            _ => false,
        }
    }

    fn cannot_follow(&self, actor: &Actor, view: &ResolvedName) -> SqlError {
        let (view, needed) = (
            shown(&self.before, actor, view),
            shown(&self.before, actor, self.place),
        );
        SqlError::new(
            ErrorKind::FeatureNotSupported,
            format!("view {view} cannot follow this change of what it reads"),
        )
        .with_detail(format!("view {view} depends on {needed}"))
        .with_hint("Drop the view, and create it again afterwards.")
    }
}

fn set_query(
    state: &mut CatalogState,
    view: &ResolvedName,
    query: &ast::Query,
) -> Result<(), SqlError> {
    let text = query.to_string();
    if let Relation::View(entry) = relation_mut(state, view)?
        && entry.query != text
    {
        Arc::make_mut(entry).query = text;
    }
    Ok(())
}
