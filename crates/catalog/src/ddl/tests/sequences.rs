//! Sequences as objects: owners, dependants, and undoing.

use super::*;
use crate::state::SequenceEntry;

impl Scene {
    fn sequence(&self, name: &str) -> Arc<SequenceEntry> {
        match self.relation("public", name) {
            Some(Relation::Sequence(sequence)) => sequence,
            _ => panic!("{name} is no sequence"),
        }
    }

    fn next(&self, name: &str) -> i64 {
        let sequence = self.sequence(name);
        let taken = sequence.counter.next(&sequence.definition, name);
        taken.unwrap()
    }

    fn default_of(&self, table: &str, column: &str) -> Option<String> {
        let entry = self.table(table);
        let at = entry.table.schema().position(column).unwrap();
        entry.default_text(at)
    }
}

#[test]
fn serial_columns_have_sequences_of_their_own() {
    let scene = scene();
    scene.ok("CREATE TABLE t (id serial PRIMARY KEY, v text, n bigserial)");
    let id = scene.sequence("t_id_seq");
    assert_eq!(id.definition.ty, SqlType::Integer);
    assert_eq!(scene.sequence("t_n_seq").definition.ty, SqlType::BigInt);
    let owner = id.owned_by.clone().unwrap();
    assert_eq!(owner.table, scene.table("t").oid);
    assert_eq!((owner.column.as_str(), owner.is_identity), ("id", false));
    assert_eq!(
        scene.default_of("t", "id"),
        Some(format!("nextval({})", id.oid))
    );
    assert!(!scene.table("t").table.schema().columns[2].nullable);

    scene.ok("ALTER TABLE t RENAME COLUMN id TO key");
    let renamed = scene.sequence("t_id_seq").owned_by.clone().unwrap();
    assert_eq!(renamed.column, "key");
    scene.ok("ALTER TABLE t DROP COLUMN key");
    assert!(scene.relation("public", "t_id_seq").is_none());
    scene.ok("DROP TABLE t");
    assert!(scene.relation("public", "t_n_seq").is_none());
}

#[test]
fn identity_columns_need_their_sequences() {
    let scene = scene();
    scene.ok("CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY (INCREMENT 5 START 10), v int)");
    assert_eq!([scene.next("t_id_seq"), scene.next("t_id_seq")], [10, 15]);
    let (kind, message) = scene.error("DROP SEQUENCE t_id_seq CASCADE");
    assert_eq!(kind, ErrorKind::DependentObjectsStillExist);
    assert_eq!(
        message,
        "cannot drop sequence t_id_seq because column id of table t requires it"
    );
    scene.ok("ALTER TABLE t RENAME COLUMN id TO key");
    assert!(scene.table("t").identity(0).is_some_and(|it| it.is_always));
    let (kind, _) = scene.error("ALTER TABLE t ALTER key SET DEFAULT 5");
    assert_eq!(kind, ErrorKind::SyntaxError);
    scene.ok("ALTER TABLE t ALTER key TYPE bigint");
    assert_eq!(scene.sequence("t_id_seq").definition.max, i64::MAX);
    assert_eq!(scene.next("t_id_seq"), 20);
    scene.ok("ALTER TABLE t DROP COLUMN key");
    assert!(scene.table("t").identities.is_empty());
    assert!(scene.relation("public", "t_id_seq").is_none());
}

#[test]
fn a_default_keeps_its_sequence() {
    let scene = scene();
    scene.ok("CREATE SEQUENCE s");
    let oid = scene.sequence("s").oid;
    scene.ok("CREATE TABLE t (a int DEFAULT nextval('s'), b int)");
    assert_eq!(scene.default_of("t", "a"), Some(format!("nextval({oid})")));
    scene.ok("ALTER SEQUENCE s RENAME TO r");
    let error = scene.run("DROP SEQUENCE r").unwrap_err();
    assert_eq!(error.kind, ErrorKind::DependentObjectsStillExist);
    assert_eq!(
        error.detail.as_deref(),
        Some("default value for column a of table t depends on sequence r")
    );
    let notices = scene.ok("DROP SEQUENCE r CASCADE").notices;
    assert_eq!(
        notices[0].message,
        "drop cascades to default value for column a of table t"
    );
    assert_eq!(scene.default_of("t", "a"), None);
    assert_eq!(
        scene.error("CREATE TABLE u (a int DEFAULT nextval('r'))").0,
        ErrorKind::UndefinedTable
    );
}

#[test]
fn what_is_altered_can_be_undone_and_numbers_cannot() {
    let scene = scene();
    scene.ok("CREATE SEQUENCE s");
    assert_eq!(scene.next("s"), 1);
    let block = scene
        .database
        .store
        .txns()
        .begin_block(Isolation::default());
    let definitions = Definitions::new(&scene.database, &block);
    scene
        .run_in(&definitions, "ALTER SEQUENCE s INCREMENT 10 RESTART 100")
        .unwrap();
    let altered = definitions.load().unwrap();
    let altered = Arc::clone(altered.sequence(scene.sequence("s").oid).unwrap().1);
    assert_eq!(altered.counter.next(&altered.definition, "s").unwrap(), 100);
    definitions.rollback();
    drop((definitions, altered));
    block.rollback();
    assert_eq!(scene.next("s"), 2);

    scene.ok("ALTER SEQUENCE s INCREMENT 10");
    assert_eq!(scene.next("s"), 12, "it goes on where it stood");
    scene.ok("CREATE TABLE t (id serial)");
    assert_eq!([scene.next("t_id_seq"), scene.next("t_id_seq")], [1, 2]);
    scene.ok("TRUNCATE t");
    assert_eq!(scene.next("t_id_seq"), 3);
    scene.ok("TRUNCATE t RESTART IDENTITY");
    assert_eq!(scene.next("t_id_seq"), 1);
}

#[test]
fn owners_and_schemas_go_together() {
    let scene = scene();
    scene.ok("CREATE TABLE t (id serial)");
    for (sql, kind) in [
        (
            "ALTER SEQUENCE t_id_seq OWNER TO alice",
            ErrorKind::FeatureNotSupported,
        ),
        (
            "ALTER SEQUENCE t_id_seq OWNED BY t.nowhere",
            ErrorKind::UndefinedColumn,
        ),
        ("ALTER SEQUENCE t OWNED BY NONE", ErrorKind::WrongObjectType),
        ("DROP SEQUENCE t", ErrorKind::WrongObjectType),
        ("DROP TABLE t_id_seq", ErrorKind::WrongObjectType),
        ("DROP SEQUENCE nowhere", ErrorKind::UndefinedTable),
        ("CREATE SEQUENCE t", ErrorKind::DuplicateTable),
    ] {
        assert_eq!(scene.error(sql).0, kind, "{sql}");
    }
    let root = scene.as_role("root");
    root.ok("ALTER TABLE t OWNER TO alice");
    assert_eq!(scene.sequence("t_id_seq").owner, "alice");
    root.ok("CREATE SCHEMA other");
    root.ok("ALTER TABLE t SET SCHEMA other");
    assert!(scene.relation("other", "t_id_seq").is_some());
    root.ok("ALTER SEQUENCE other.t_id_seq OWNED BY NONE");
    root.ok("DROP TABLE other.t");
    assert!(scene.relation("other", "t_id_seq").is_some());
}

#[test]
fn a_document_keeps_sequences() {
    let scene = scene();
    scene.ok("CREATE TABLE t (id serial, n int GENERATED BY DEFAULT AS IDENTITY)");
    scene.ok("CREATE SEQUENCE s START 5");
    assert_eq!([scene.next("s"), scene.next("t_n_seq")], [5, 1]);
    let state = scene.database.catalog.load();
    let ids = state.table_ids();
    assert_eq!(ids.len(), 4, "a table, and one for each sequence");
}
