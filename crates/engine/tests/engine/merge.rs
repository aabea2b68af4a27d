//! MERGE against a model, and beside itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::Arc,
};

use crate::common::{Fixture, Random};
use aerostat_types::ErrorKind;

impl Random {
    fn key(&mut self) -> i64 {
        self.below(20) as i64
    }
}

/// The rows of `t (k primary key, v)`.
type Rows = BTreeMap<i64, i64>;

#[derive(Clone, Copy)]
enum Condition {
    Always,
    /// `w < …`
    Source(i64),
    /// `v < …`
    Target(i64),
}

#[derive(Clone, Copy)]
enum Action {
    Nothing,
    Delete,
    /// `v = v + w`
    Add,
    /// `k = k + …, v = w`, which moves the key.
    Move(i64),
    /// `(k, w)`
    Insert,
    /// `(k, 7)`, the default of v.
    InsertDefault,
}

struct Clause {
    is_matched: bool,
    condition: Condition,
    action: Action,
}

impl Clause {
    fn any(random: &mut Random) -> Clause {
        let is_matched = random.below(2) == 0;
        let condition = match random.below(3) {
            0 => Condition::Always,
            1 if is_matched => Condition::Target(random.key()),
            _ => Condition::Source(random.key()),
        };
        let action = match (is_matched, random.below(4)) {
            (_, 0) => Action::Nothing,
            (true, 1) => Action::Delete,
            (true, 2) => Action::Add,
            (true, _) => Action::Move(random.below(3) as i64),
            (false, 1) => Action::InsertDefault,
            (false, _) => Action::Insert,
        };
        Clause {
            is_matched,
            condition,
            action,
        }
    }

    fn sql(&self) -> String {
        let mut sql = format!(" WHEN{} MATCHED", if self.is_matched { "" } else { " NOT" });
        match self.condition {
            Condition::Always => {}
            Condition::Source(below) => write!(sql, " AND s.w < {below}").unwrap(),
            Condition::Target(below) => write!(sql, " AND t.v < {below}").unwrap(),
        }
        sql.push_str(" THEN ");
        match self.action {
            Action::Nothing => sql.push_str("DO NOTHING"),
            Action::Delete => sql.push_str("DELETE"),
            Action::Add => sql.push_str("UPDATE SET v = t.v + s.w"),
            Action::Move(by) => write!(sql, "UPDATE SET k = t.k + {by}, v = s.w").unwrap(),
            Action::Insert => sql.push_str("INSERT VALUES (s.k, s.w)"),
            Action::InsertDefault => sql.push_str("INSERT (k) VALUES (s.k)"),
        }
        sql
    }

    fn applies(&self, w: i64, v: Option<i64>) -> bool {
        self.is_matched == v.is_some()
            && match self.condition {
                Condition::Always => true,
                Condition::Source(below) => w < below,
                Condition::Target(below) => v.is_some_and(|v| v < below),
            }
    }
}

/// Clauses all of which some row can come to.
fn clauses(random: &mut Random) -> Vec<Clause> {
    let mut clauses: Vec<Clause> = Vec::new();
    for _ in 0..=random.below(5) {
        let clause = Clause::any(random);
        let hides = |before: &Clause| {
            before.is_matched == clause.is_matched && matches!(before.condition, Condition::Always)
        };
        if !clauses.iter().any(hides) {
            clauses.push(clause);
        }
    }
    clauses
}

/// What a MERGE makes of the rows, and how many it changed; the errors that it may have.
fn model(
    rows: &Rows,
    source: &[(i64, i64)],
    clauses: &[Clause],
) -> Result<(Rows, u64), BTreeSet<&'static str>> {
    let (mut kept, mut new) = (rows.clone(), Vec::new());
    let (mut changed, mut met, mut errors) = (0, BTreeSet::new(), BTreeSet::new());
    for &(k, w) in source {
        let v = rows.get(&k).copied();
        let Some(clause) = clauses.iter().find(|clause| clause.applies(w, v)) else {
            continue;
        };
        let ends = matches!(
            clause.action,
            Action::Delete | Action::Add | Action::Move(_)
        );
        if ends && !met.insert(k) {
            errors.insert("21000");
        }
        changed += u64::from(!matches!(clause.action, Action::Nothing));
        match clause.action {
            Action::Nothing => {}
            Action::Delete => {
                kept.remove(&k);
            }
            Action::Add => {
                kept.insert(k, v.unwrap() + w);
            }
            Action::Move(by) => {
                kept.remove(&k);
                new.push((k + by, w));
            }
            Action::Insert => new.push((k, w)),
            Action::InsertDefault => new.push((k, 7)),
        }
    }
    for (k, v) in new {
        if kept.insert(k, v).is_some() {
            errors.insert("23505");
        }
    }
    match errors.is_empty() {
        true => Ok((kept, changed)),
        false => Err(errors),
    }
}

#[test]
fn it_does_what_the_model_does() {
    let fixture = Fixture::new();
    for (seed, layout) in (1..).zip(["row", "column", "row", "column"]) {
        let mut session = fixture.session();
        fixture.ok(&mut session, "DROP TABLE IF EXISTS t, s");
        fixture.ok(
            &mut session,
            &format!("CREATE TABLE t (k int PRIMARY KEY, v int DEFAULT 7 CHECK (v >= 0)) WITH (layout = '{layout}')"),
        );
        fixture.ok(&mut session, "CREATE TABLE s (k int, w int)");
        let (mut random, mut rows) = (Random(seed), Rows::new());
        let (mut done, mut failed) = (0, 0);
        for _ in 0..60 {
            let mut source: Vec<(i64, i64)> = Vec::new();
            let may_repeat = random.below(4) == 0;
            for _ in 0..random.below(12) {
                let k = random.key();
                if may_repeat || source.iter().all(|&(other, _)| other != k) {
                    source.push((k, random.key()));
                }
            }
            fixture.ok(&mut session, "DELETE FROM s");
            for (k, w) in &source {
                fixture.ok(&mut session, &format!("INSERT INTO s VALUES ({k}, {w})"));
            }
            let clauses = clauses(&mut random);
            let mut sql = "MERGE INTO t USING s ON t.k = s.k".to_owned();
            sql.extend(clauses.iter().map(Clause::sql));
            let context = || format!("seed {seed}\n{sql}\n{source:?}\n{rows:?}");
            let result = fixture.run(&mut session, &sql);
            match (model(&rows, &source, &clauses), result) {
                (Ok((expected, changed)), Ok(tag)) => {
                    assert_eq!(tag, [format!("MERGE {changed}")], "{}", context());
                    rows = expected;
                    done += 1;
                }
                (Err(expected), Err(error)) => {
                    let code = match error.kind {
                        ErrorKind::CardinalityViolation => "21000",
                        ErrorKind::UniqueViolation => "23505",
                        _ => panic!("{error:?}\n{}", context()),
                    };
                    assert!(expected.contains(code), "{error:?}\n{}", context());
                    failed += 1;
                }
                (Ok(_), Err(error)) => panic!("{error:?}\n{}", context()),
                (Err(expected), Ok(_)) => panic!("no error of {expected:?}\n{}", context()),
            }
            let found = fixture.ok(&mut session, "SELECT k, v FROM t ORDER BY k");
            let expected: Vec<String> = rows.iter().map(|(k, v)| format!("{k}|{v}")).collect();
            assert_eq!(found, expected, "seed {seed}\n{sql}\n{source:?}");
        }
        assert!(done > 20 && failed > 0, "{done} done, {failed} failed");
    }
}

/// Clients count in the same rows at once: no count is lost, and a row that two of them would
/// insert is an error for one.
#[test]
fn no_update_is_lost_beside_others() {
    let fixture = Arc::new(Fixture::new());
    let mut session = fixture.session();
    fixture.ok(&mut session, "CREATE TABLE t (k int PRIMARY KEY, n int)");
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let fixture = Arc::clone(&fixture);
            std::thread::spawn(move || {
                let mut session = fixture.session();
                let mut counted = 0;
                for round in 0..25 {
                    let k = (client + round) % 3;
                    let sql = format!(
                        "MERGE INTO t USING (VALUES ({k})) AS s (k) ON t.k = s.k \
                         WHEN MATCHED THEN UPDATE SET n = n + 1 \
                         WHEN NOT MATCHED THEN INSERT VALUES (s.k, 1)"
                    );
                    match fixture.run(&mut session, &sql) {
                        Ok(tag) => {
                            assert_eq!(tag, ["MERGE 1"]);
                            counted += 1;
                        }
                        Err(error) => assert_eq!(error.kind, ErrorKind::UniqueViolation),
                    }
                }
                counted
            })
        })
        .collect();
    let counted: i64 = clients.into_iter().map(|c| c.join().unwrap()).sum();
    let sum = fixture.ok(&mut session, "SELECT sum(n), count(*) FROM t");
    assert_eq!(sum, [format!("{counted}|3")]);
}

#[test]
fn a_changed_row_is_a_conflict_at_repeatable_read() {
    let fixture = Fixture::new();
    let (mut a, mut b) = (fixture.session(), fixture.session());
    fixture.ok(
        &mut a,
        "CREATE TABLE t (k int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1), (2, 2)",
    );
    for action in ["UPDATE SET n = n + 1", "DELETE"] {
        fixture.ok(&mut a, "BEGIN ISOLATION LEVEL REPEATABLE READ");
        fixture.ok(&mut a, "SELECT count(*) FROM t");
        fixture.ok(&mut b, "UPDATE t SET n = n + 10 WHERE k = 1");
        let merge = format!(
            "MERGE INTO t USING (VALUES (1)) s (k) ON t.k = s.k WHEN MATCHED THEN {action}"
        );
        let kind = fixture.kind(&mut a, &merge);
        assert_eq!(kind, ErrorKind::SerializationFailure);
        fixture.ok(&mut a, "ROLLBACK");
        // What it leaves alone may have changed.
        fixture.ok(&mut a, "BEGIN ISOLATION LEVEL REPEATABLE READ");
        fixture.ok(&mut a, "SELECT count(*) FROM t");
        fixture.ok(&mut b, "UPDATE t SET n = n + 10 WHERE k = 1");
        let merge = "MERGE INTO t USING (VALUES (1), (2)) s (k) ON t.k = s.k WHEN MATCHED AND t.k = 1 THEN DO NOTHING WHEN MATCHED THEN UPDATE SET n = n + 1";
        assert_eq!(fixture.ok(&mut a, merge), ["MERGE 1"]);
        fixture.ok(&mut a, "COMMIT");
    }
    let rows = fixture.ok(&mut a, "SELECT k, n FROM t ORDER BY k");
    assert_eq!(rows, ["1|41", "2|4"]);
}

#[test]
fn it_needs_the_rights_of_its_actions_and_of_what_it_reads() {
    let fixture = Fixture::new();
    let mut owner = fixture.session();
    fixture.ok(
        &mut owner,
        "CREATE TABLE t (k int, v int); INSERT INTO t VALUES (1, 1); CREATE TABLE s (k int); INSERT INTO s VALUES (1), (2); \
         CREATE ROLE guest LOGIN; GRANT CONNECT ON DATABASE aerostat TO guest; GRANT SELECT ON s TO guest",
    );
    let mut guest = fixture.engine.connect("guest", "aerostat", &[]).unwrap();
    let insert_all = "MERGE INTO t USING s ON false WHEN NOT MATCHED THEN INSERT VALUES (s.k)";
    let insert = "MERGE INTO t USING s ON t.k = s.k WHEN NOT MATCHED THEN INSERT VALUES (s.k)";
    let update = "MERGE INTO t USING s ON true WHEN MATCHED AND s.k = 1 THEN UPDATE SET v = s.k";
    let add = "MERGE INTO t USING s ON true WHEN MATCHED AND s.k = 1 THEN UPDATE SET v = t.v + 1";
    let delete = "MERGE INTO t USING s ON true WHEN MATCHED AND s.k = 1 THEN DELETE";
    let nothing = "MERGE INTO t USING s ON true WHEN MATCHED THEN DO NOTHING";
    for (grant, allowed, denied) in [
        (
            "",
            &[][..],
            &[insert_all, insert, update, delete, nothing][..],
        ),
        ("INSERT", &[insert_all][..], &[insert, update, nothing][..]),
        ("UPDATE", &[update][..], &[insert_all, add, delete][..]),
        ("SELECT", &[nothing][..], &[insert, update][..]),
        ("SELECT, UPDATE", &[update, add][..], &[delete][..]),
        ("SELECT, INSERT", &[insert][..], &[update][..]),
        ("DELETE", &[delete][..], &[insert_all, update][..]),
    ] {
        fixture.ok(&mut owner, "REVOKE ALL ON t FROM guest");
        if !grant.is_empty() {
            fixture.ok(&mut owner, &format!("GRANT {grant} ON t TO guest"));
        }
        for sql in denied {
            let error = fixture.error(&mut guest, sql);
            assert_eq!(
                error.message, "permission denied for table t",
                "{grant}: {sql}"
            );
        }
        for sql in allowed {
            fixture.ok(&mut guest, sql);
        }
    }
    fixture.ok(
        &mut owner,
        "REVOKE ALL ON s FROM guest; GRANT ALL ON t TO guest",
    );
    let error = fixture.error(&mut guest, insert_all);
    assert_eq!(error.message, "permission denied for table s");
}
