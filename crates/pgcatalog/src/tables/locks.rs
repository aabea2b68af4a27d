//! Locks: holders and waiters.

use std::time::{SystemTime, UNIX_EPOCH};

use aerostat_sql::names::PG_CATALOG;
use aerostat_txn::{AdvisoryKey, LockedObject};

use super::Builder;
use crate::{
    CatalogView,
    cell::{Cell, Rows},
    view::waits::lock_name,
};

pub(super) const BUILDERS: [(&str, &str, Builder); 1] = [(PG_CATALOG, "pg_locks", locks)];

/// What the columns say of the object that is locked.
#[derive(Default)]
struct Object {
    kind: &'static str,
    relation: Option<u32>,
    transaction: Option<u32>,
    /// `classid`, `objid`, `objsubid`.
    number: Option<(u32, u32, i32)>,
}

impl Object {
    fn of(on: LockedObject) -> Self {
        match on {
            LockedObject::Relation(tag) => match u32::try_from(tag.0) {
                Ok(oid) => Object {
                    kind: "relation",
                    relation: Some(oid),
                    ..Object::default()
                },
                // A name that somebody is about to take.
                Err(_) => Object {
                    kind: "object",
                    ..Object::default()
                },
            },
            LockedObject::Transaction(id) => Object {
                kind: "transactionid",
                // As in PostgreSQL, the lower half.
                transaction: Some(id.0 as u32),
                ..Object::default()
            },
            LockedObject::Advisory(key) => Object {
                kind: "advisory",
                number: Some(match key {
                    AdvisoryKey::One(key) => ((key >> 32) as u32, key as u32, 1),
                    AdvisoryKey::Two(first, second) => (first as u32, second as u32, 2),
                }),
                ..Object::default()
            },
        }
    }
}

fn locks(view: &CatalogView, rows: &mut Rows) {
    let Some(waiting) = view.facts.waiting() else {
        return;
    };
    let database = view.node.databases.get(&view.database);
    let database = database.map(|database| database.oid);
    for description in waiting.locks() {
        let lock = description.lock;
        let object = Object::of(lock.on);
        let in_database = object.transaction.is_none();
        let (class, number, part) = match object.number {
            Some((class, number, part)) => (Some(class), Some(number), Some(part)),
            None => (None, None, None),
        };
        rows.push([
            ("locktype", object.kind.into()),
            ("database", database.filter(|_| in_database).into()),
            ("relation", object.relation.into()),
            ("transactionid", object.transaction.into()),
            ("classid", class.into()),
            ("objid", number.into()),
            ("objsubid", part.into()),
            (
                "virtualtransaction",
                format!("{}/{}", description.pid.unwrap_or(-1), lock.owner.0).into(),
            ),
            ("pid", description.pid.into()),
            ("mode", lock_name(lock.mode).into()),
            ("granted", lock.waits_since.is_none().into()),
            ("fastpath", lock.is_fast.into()),
            ("waitstart", lock.waits_since.map_or(Cell::Null, time)),
        ]);
    }
}

fn time(at: SystemTime) -> Cell {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Cell::Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
