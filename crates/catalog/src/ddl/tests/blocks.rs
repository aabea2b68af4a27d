//! Several transactions with concurrent definitions.

use std::{sync::Arc, thread};

use aerostat_txn::{Block, LockMode};
use proptest::prelude::*;

use super::*;
use crate::state::relation_tag;

/// A transaction that defines.
struct Open<'s> {
    scene: &'s Scene,
    definitions: Arc<Definitions>,
    block: Block,
}

impl Scene {
    fn begin(&self) -> Open<'_> {
        let block = self.database.store.txns().begin_block(Isolation::default());
        Open {
            scene: self,
            definitions: Definitions::new(&self.database, &block),
            block,
        }
    }

    /// The names of all relations.
    fn names(&self) -> Vec<String> {
        names(&self.database.catalog.load())
    }
}

fn names(state: &CatalogState) -> Vec<String> {
    let named = |(schema, _, name): (&crate::state::SchemaEntry, _, &str)| {
        format!("{}.{name}", schema.name)
    };
    state.relations().map(named).collect()
}

impl Open<'_> {
    fn run(&self, sql: &str) -> Result<CommandResult, SqlError> {
        self.scene.run_in(&self.definitions, sql)
    }

    fn ok(&self, sql: &str) {
        self.run(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    fn names(&self) -> Vec<String> {
        names(&self.definitions.load().unwrap())
    }

    fn commit(self) -> Result<(), SqlError> {
        self.definitions.commit(self.block)
    }

    fn rollback(self) {
        self.definitions.rollback();
        self.block.rollback();
    }
}

#[test]
fn a_transaction_sees_its_definitions_at_once_and_others_at_its_commit() {
    let scene = scene();
    scene.ok("create table old (a int)");
    let open = scene.begin();
    open.ok("create table t (a int primary key)");
    open.ok("create view v as select a from t");
    open.ok("drop table old");
    assert_eq!(open.names(), ["public.t", "public.v"]);
    assert_eq!(scene.names(), ["public.old"]);
    open.commit().unwrap();
    assert_eq!(scene.names(), ["public.t", "public.v"]);
    let open = scene.begin();
    open.ok("drop view v");
    open.ok("alter table t rename to u");
    assert_eq!(open.names(), ["public.u"]);
    open.rollback();
    assert_eq!(scene.names(), ["public.t", "public.v"]);
}

#[test]
fn transactions_that_define_different_things_merge() {
    let scene = scene();
    scene.ok("create schema s");
    let (one, two) = (scene.begin(), scene.begin());
    one.ok("create table a (x int)");
    two.ok("create table b (x int)");
    one.ok("create table s.c (x int)");
    two.ok("create schema r");
    two.ok("comment on schema public is 'ours'");
    one.commit().unwrap();
    // What others have committed is seen from then on.
    assert_eq!(two.names(), ["public.a", "public.b", "s.c"]);
    two.ok("create view s.v as select x from a");
    two.commit().unwrap();
    assert_eq!(scene.names(), ["public.a", "public.b", "s.c", "s.v"]);
    let state = scene.database.catalog.load();
    assert!(state.schemas.contains_key("r"));
    assert_eq!(state.schemas["public"].comment.as_deref(), Some("ours"));
}

#[test]
fn savepoints_go_back_to_what_was_defined_by_then() {
    let scene = scene();
    let open = scene.begin();
    open.ok("create table a (x int)");
    let mark = open.definitions.mark();
    open.ok("create table b (x int)");
    open.ok("drop table a");
    // Somebody else commits between.
    scene.ok("create table c (x int)");
    assert_eq!(open.names(), ["public.b", "public.c"]);
    open.definitions.rollback_to(&mark);
    assert_eq!(open.names(), ["public.a", "public.c"]);
    open.ok("create table b (y int)");
    open.commit().unwrap();
    assert_eq!(scene.names(), ["public.a", "public.b", "public.c"]);
    assert_eq!(scene.table("b").table.schema().columns[0].name, "y");
}

/// Runs a statement in a thread; `ready` says when it waits.
fn waits_until<T: Send>(
    scene: &Scene,
    statement: &str,
    meanwhile: impl FnOnce() -> T,
) -> Result<CommandResult, SqlError> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| scene.run(statement));
        while scene.database.store.txns().waiting() == 0 {
            thread::yield_now();
        }
        meanwhile();
        thread.join().unwrap()
    })
}

#[test]
fn who_wants_a_name_waits_for_who_has_taken_it() {
    let scene = scene();
    for commit in [true, false] {
        let open = scene.begin();
        open.ok("create table t (a int)");
        let waited = waits_until(&scene, "create table t (b int)", || match commit {
            true => open.commit().unwrap(),
            false => open.rollback(),
        });
        match waited {
            Ok(_) => assert!(!commit),
            Err(error) => {
                assert!(commit);
                assert_eq!(error.kind, ErrorKind::DuplicateTable);
                assert_eq!(error.message, "relation \"t\" already exists");
            }
        }
        scene.ok("drop table t");
    }
    // Names of indexes and keys are relations' names.
    let open = scene.begin();
    open.ok("create table t (a int constraint k primary key)");
    let waited = waits_until(&scene, "create view k as select a", || {
        open.commit().unwrap()
    });
    assert_eq!(waited.unwrap_err().kind, ErrorKind::DuplicateTable);
    let open = scene.begin();
    open.ok("create schema s");
    let waited = waits_until(&scene, "create schema s", || open.commit().unwrap());
    assert_eq!(waited.unwrap_err().kind, ErrorKind::DuplicateSchema);
}

#[test]
fn who_waited_for_a_table_looks_its_name_up_again() {
    let scene = scene();
    scene.ok("create table t (a int)");
    let open = scene.begin();
    open.ok("drop table t");
    let waited = waits_until(&scene, "drop table t", || open.commit().unwrap());
    assert_eq!(waited.unwrap_err().kind, ErrorKind::UndefinedTable);
    scene.ok("create table t (a int)");
    let open = scene.begin();
    open.ok("alter table t rename to old");
    open.ok("create table t (b int)");
    let waited = waits_until(&scene, "truncate t", || open.commit().unwrap());
    waited.unwrap();
    assert_eq!(scene.table("t").table.schema().columns[0].name, "b");
    // Nor does anything go into a schema that is being dropped.
    scene.ok("create schema s");
    let open = scene.begin();
    open.ok("drop schema s");
    let waited = waits_until(&scene, "create table s.t (a int)", || {
        open.commit().unwrap()
    });
    assert!(waited.is_err());
}

#[test]
fn tables_are_locked_as_strongly_as_postgresql_locks_them() {
    let cases = [
        ("drop table t", LockMode::AccessShare),
        ("truncate t", LockMode::AccessShare),
        ("alter table t rename to u", LockMode::AccessShare),
        ("comment on table t is 'x'", LockMode::ShareUpdateExclusive),
        ("grant select on t to bob", LockMode::ShareUpdateExclusive),
    ];
    for (statement, least) in cases {
        let scene = scene();
        scene.ok("create table t (a int)");
        let tag = relation_tag(scene.table("t").oid);
        let open = scene.begin();
        open.ok(statement);
        for mode in LockMode::ALL {
            let other = scene.database.store.txns().relation_locks();
            assert_eq!(
                other.try_acquire(tag, mode),
                mode < least,
                "{mode} beside {statement}"
            );
        }
    }
}

#[test]
fn what_two_change_at_once_in_spite_of_locks_is_an_error() {
    let scene = scene();
    scene.ok("create table t (a int)");
    let open = scene.begin();
    open.ok("comment on table t is 'ours'");
    // The node waits for nobody.
    scene
        .database
        .define(|draft| rename_role(draft, "owner", "heir"))
        .unwrap();
    let error = open.commit().unwrap_err();
    assert_eq!(error.kind, ErrorKind::SerializationFailure);
    assert_eq!(scene.table("t").owner, "heir");
    assert_eq!(scene.table("t").comment, None);
}

#[test]
fn a_statement_that_was_given_up_defines_nothing_more() {
    let scene = scene();
    let open = scene.begin();
    let mark = open.definitions.mark();
    let cancel = CancelToken::new();
    let draft = Draft::new(&open.definitions, cancel.clone(), None);
    let mut change = draft.change().unwrap();
    change.state.schema_mut("public").unwrap().comment = Some("late".to_owned());
    // Its client is gone, and the block has gone back; it finds out only now.
    cancel.cancel();
    open.definitions.rollback_to(&mark);
    assert_eq!(change.publish().unwrap_err().kind, ErrorKind::QueryCanceled);
    assert!(!open.definitions.has_changes());
}

/// A transaction, and the tables that it has made and dropped.
type Step<'s> = (Open<'s>, Vec<String>, Vec<String>);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Definitions of transactions at once: what each commits is there, and nothing else.
    #[test]
    fn any_definitions_merge(
        steps in prop::collection::vec((0..3_usize, 0..5_u8), 1..60),
    ) {
        let scene = scene();
        let mut expected: Vec<String> = Vec::new();
        let mut open: Vec<Option<Step<'_>>> = (0..3).map(|_| None).collect();
        for (number, (at, what)) in steps.into_iter().enumerate() {
            let begin = || (scene.begin(), Vec::new(), Vec::new());
            let (transaction, made, dropped) = open[at].get_or_insert_with(begin);
            match what {
                // Each transaction has names of its own, so that none waits.
                0 | 1 => {
                    let name = format!("t{at}_{number}");
                    transaction.ok(&format!("create table {name} (a int primary key)"));
                    made.push(format!("public.{name}"));
                }
                2 => {
                    let own = format!("public.t{at}_");
                    let there = transaction.names();
                    if let Some(name) = there.iter().find(|name| name.starts_with(&own)) {
                        transaction.ok(&format!("drop table {name}"));
                        made.retain(|other| other != name);
                        dropped.push(name.clone());
                    }
                }
                3 => {
                    if let Some((transaction, made, dropped)) = open[at].take() {
                        transaction.commit().unwrap();
                        expected.extend(made);
                        expected.retain(|name| !dropped.contains(name));
                        expected.sort();
                    }
                }
                _ => {
                    if let Some((transaction, ..)) = open[at].take() {
                        transaction.rollback();
                    }
                }
            }
            prop_assert_eq!(&scene.names(), &expected);
        }
    }
}
