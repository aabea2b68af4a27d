//! LOCK TABLE.

use aerostat_sql::{grants::Privilege, names::QualifiedName, utility::LockStatement};
use aerostat_txn::LockMode;
use aerostat_types::{ErrorKind, SqlError};

use super::{CommandResult, dependency::relations_in};
use crate::{
    actor::Actor,
    state::{Draft, Relation},
};

/// LOCK TABLE. A view is locked with all that its query names, which its owner must be
/// allowed to lock.
///
/// # Errors
/// There is no such relation, it may not be locked, or waiting for it failed.
pub fn lock(
    draft: &Draft,
    actor: &Actor,
    statement: &LockStatement,
    is_superuser: &dyn Fn(&str) -> bool,
) -> Result<CommandResult, SqlError> {
    let wish = Wish {
        draft,
        mode: statement.mode,
        nowait: statement.nowait,
        is_superuser,
    };
    for name in &statement.tables {
        wish.lock(actor, name)?;
    }
    Ok(CommandResult::new("LOCK TABLE"))
}

struct Wish<'a> {
    draft: &'a Draft,
    mode: LockMode,
    nowait: bool,
    is_superuser: &'a dyn Fn(&str) -> bool,
}

impl Wish<'_> {
    fn lock(&self, actor: &Actor, name: &QualifiedName) -> Result<(), SqlError> {
        let mut locked = None;
        loop {
            let state = self.draft.load()?;
            let relation = actor.resolve(&state, name)?.relation;
            self.require(actor, relation)?;
            // After a wait the name may lead elsewhere.
            if locked == Some(relation.oid()) {
                return match relation {
                    Relation::Table(_) => Ok(()),
                    Relation::Sequence(_) => Err(SqlError::new(
                        ErrorKind::WrongObjectType,
                        format!("cannot lock relation \"{}\"", relation.name()),
                    )
                    .with_detail("This operation is not supported for sequences.")),
                    Relation::View(view) => {
                        let owner = Actor {
                            role: view.owner.clone(),
                            superuser: (self.is_superuser)(&view.owner),
                            ..actor.clone()
                        };
                        let needed = relations_in(&state, &view.query)?;
                        needed.into_iter().try_for_each(|place| {
                            let name = QualifiedName {
                                database: None,
                                schema: Some(place.schema),
                                name: place.name,
                            };
                            self.lock(&owner, &name)
                        })
                    }
                };
            }
            if !self.nowait {
                self.draft.lock(relation.oid(), self.mode)?;
            } else if !self.draft.try_lock(relation.oid(), self.mode) {
                return Err(SqlError::new(
                    ErrorKind::LockNotAvailable,
                    format!("could not obtain lock on relation \"{}\"", relation.name()),
                ));
            }
            locked = Some(relation.oid());
        }
    }

    fn require(&self, actor: &Actor, relation: &Relation) -> Result<(), SqlError> {
        let writing = [Privilege::Update, Privilege::Delete, Privilege::Truncate];
        let is_allowed = match self.mode {
            LockMode::AccessShare => actor.may(relation, Privilege::Select),
            LockMode::RowExclusive if actor.may(relation, Privilege::Insert) => true,
            _ => writing
                .into_iter()
                .any(|privilege| actor.may(relation, privilege)),
        };
        if is_allowed {
            return Ok(());
        }
        Err(super::denied(relation.kind(), relation.name()))
    }
}
