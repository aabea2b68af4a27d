//! Portals that are read in pieces keep their snapshot; and what a client leaves behind
//! when it goes. Each is played to PostgreSQL, too.

use std::net::SocketAddr;

use crate::harness::Aerostat;
use crate::postgres::Postgres;
use crate::raw::{Message, Raw, errors, values};

/// Opens sessions at one server.
struct Server {
    address: SocketAddr,
    role: String,
    database: String,
}

impl Server {
    fn session(&self) -> Raw {
        Raw::session_as(self.address, &self.role, &self.database)
    }

    /// A session with a fresh table of five rows, and another session.
    fn two(&self, table: &str) -> (Raw, Raw) {
        let mut a = self.session();
        run(
            &mut a,
            &format!("CREATE TABLE {table} (id integer PRIMARY KEY, v integer)"),
        );
        run(
            &mut a,
            &format!("INSERT INTO {table} SELECT g, g * 10 FROM generate_series(1, 5) AS g"),
        );
        (a, self.session())
    }
}

fn run(session: &mut Raw, sql: &str) {
    session
        .query(sql)
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Binds a portal to a query without parameters.
fn open_portal(session: &mut Raw, portal: &str, sql: &str) {
    session
        .send(b'P', &[b"\0", sql.as_bytes(), b"\0\0\0"].concat())
        .unwrap();
    session
        .send(b'B', &[portal.as_bytes(), b"\0\0\0\0\0\0\0\0"].concat())
        .unwrap();
}

/// Asks a portal for rows, 0 for all that are left, and takes what comes up to ReadyForQuery.
fn fetch(session: &mut Raw, portal: &str, rows: u32) -> Vec<Message> {
    let body = [portal.as_bytes(), b"\0", &rows.to_be_bytes()].concat();
    session.send(b'E', &body).unwrap();
    session.send(b'S', &[]).unwrap();
    session.read_until_ready().unwrap()
}

/// The first values of the rows, then how it ended: `suspended`, a tag or a SQLSTATE.
fn shown(messages: &[Message]) -> Vec<String> {
    let shown = messages.iter().filter_map(|(kind, body)| match kind {
        b'D' => values(body).swap_remove(0),
        b's' => Some("suspended".to_owned()),
        b'C' => Some(
            String::from_utf8_lossy(body)
                .trim_end_matches('\0')
                .to_owned(),
        ),
        _ => None,
    });
    let failed = errors(messages)
        .into_iter()
        .map(|error| error[&'C'].clone());
    shown.chain(failed).collect()
}

fn a_portal_keeps_its_snapshot(server: &Server) {
    for (at, level) in ["READ COMMITTED", "REPEATABLE READ"]
        .into_iter()
        .enumerate()
    {
        let table = format!("kept_{at}");
        let (mut a, mut b) = server.two(&table);
        let all = format!("SELECT v FROM {table} ORDER BY id");
        run(&mut a, &format!("BEGIN ISOLATION LEVEL {level}"));
        open_portal(&mut a, "p", &all);
        assert_eq!(
            shown(&fetch(&mut a, "p", 2)),
            ["10", "20", "suspended"],
            "{level}"
        );
        assert_eq!(a.status(), 'T');
        run(&mut b, &format!("UPDATE {table} SET v = -v"));
        run(&mut b, &format!("INSERT INTO {table} VALUES (6, 60)"));
        // A statement between two fetches has the snapshot of its level; the portal has its own.
        let seen = if level == "READ COMMITTED" {
            "-90"
        } else {
            "150"
        };
        let sum = format!("SELECT sum(v) FROM {table}");
        assert_eq!(a.query(&sum).unwrap(), [seen], "{level}");
        assert_eq!(
            shown(&fetch(&mut a, "p", 2)),
            ["30", "40", "suspended"],
            "{level}"
        );
        assert_eq!(shown(&fetch(&mut a, "p", 0)), ["50", "SELECT 1"], "{level}");
        run(&mut a, "COMMIT");
        assert_eq!(a.query(&sum).unwrap(), ["-90"], "{level}");
    }
}

fn a_portal_does_not_see_its_own_blocks_later_changes(server: &Server) {
    let (mut a, _) = server.two("own");
    run(&mut a, "BEGIN");
    run(&mut a, "UPDATE own SET v = 11 WHERE id = 1");
    open_portal(&mut a, "p", "SELECT v FROM own ORDER BY id");
    assert_eq!(shown(&fetch(&mut a, "p", 1)), ["11", "suspended"]);
    run(&mut a, "UPDATE own SET v = 22 WHERE id = 2");
    run(&mut a, "DELETE FROM own WHERE id = 3");
    assert_eq!(shown(&fetch(&mut a, "p", 2)), ["20", "30", "suspended"]);
    run(&mut a, "COMMIT");
    assert_eq!(
        a.query("SELECT v FROM own ORDER BY id").unwrap(),
        ["11", "22", "40", "50"]
    );
}

fn a_portal_ends_with_its_transaction(server: &Server) {
    let (mut a, _) = server.two("ends");
    for end in ["COMMIT", "ROLLBACK"] {
        run(&mut a, "BEGIN");
        open_portal(&mut a, "p", "SELECT v FROM ends ORDER BY id");
        assert_eq!(shown(&fetch(&mut a, "p", 1)), ["10", "suspended"]);
        run(&mut a, end);
        assert_eq!(shown(&fetch(&mut a, "p", 1)), ["34000"], "{end}");
        assert_eq!(a.status(), 'I');
    }
    // Outside a block it ends with the Sync.
    open_portal(&mut a, "p", "SELECT v FROM ends ORDER BY id");
    assert_eq!(shown(&fetch(&mut a, "p", 1)), ["10", "suspended"]);
    assert_eq!(shown(&fetch(&mut a, "p", 1)), ["34000"]);
}

fn messages_up_to_a_sync_are_one_transaction(server: &Server) {
    let (mut a, mut b) = server.two("pipe");
    let pipeline = |session: &mut Raw, statements: &[&str]| {
        for sql in statements {
            open_portal(session, "", sql);
            session.send(b'E', b"\0\0\0\0\0").unwrap();
        }
        session.send(b'S', &[]).unwrap();
        let messages = session.read_until_ready().unwrap();
        (shown(&messages), session.status())
    };
    let failing = [
        "INSERT INTO pipe VALUES (6, 60)",
        "INSERT INTO pipe VALUES (1, 10)",
        "INSERT INTO pipe VALUES (7, 70)",
    ];
    let (answers, status) = pipeline(&mut a, &failing);
    assert_eq!(answers, ["INSERT 0 1", "23505"]);
    assert_eq!(status, 'I');
    assert_eq!(b.query("SELECT count(*) FROM pipe").unwrap(), ["5"]);
    let block = ["BEGIN", "INSERT INTO pipe VALUES (6, 60)"];
    assert_eq!(pipeline(&mut a, &block).1, 'T');
    assert_eq!(b.query("SELECT count(*) FROM pipe").unwrap(), ["5"]);
    assert_eq!(pipeline(&mut a, &["SELECT 1 / 0", "SELECT 1"]).1, 'E');
    let (answers, status) = pipeline(&mut a, &["SELECT 1"]);
    assert_eq!((answers, status), (vec!["25P02".to_owned()], 'E'));
    let (answers, status) = pipeline(&mut a, &["COMMIT"]);
    assert_eq!((answers, status), (vec!["ROLLBACK".to_owned()], 'I'));
    assert_eq!(b.query("SELECT count(*) FROM pipe").unwrap(), ["5"]);
}

fn a_client_that_leaves_its_block_leaves_nothing(server: &Server) {
    let (mut a, mut b) = server.two("gone");
    run(&mut a, "BEGIN");
    run(&mut a, "UPDATE gone SET v = 0");
    run(&mut a, "INSERT INTO gone VALUES (6, 60)");
    drop(a);
    // Waits until the server has noticed, if it has not yet.
    run(&mut b, "INSERT INTO gone VALUES (6, 61)");
    assert_eq!(b.query("SELECT sum(v) FROM gone").unwrap(), ["211"]);
}

/// Plays a test to Aerostat.
async fn play(test: fn(&Server)) {
    let node = Aerostat::start();
    drop(node.create("portals").await);
    test(&Server {
        address: node.sql,
        role: "aerostat".to_owned(),
        database: "portals".to_owned(),
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_keep_their_snapshot() {
    play(a_portal_keeps_its_snapshot).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_do_not_see_later_changes_of_their_block() {
    play(a_portal_does_not_see_its_own_blocks_later_changes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_end_with_their_transaction() {
    play(a_portal_ends_with_its_transaction).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_up_to_a_sync_is_one_transaction() {
    play(messages_up_to_a_sync_are_one_transaction).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_ends_with_its_client() {
    play(a_client_that_leaves_its_block_leaves_nothing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_does_the_same() {
    let Some(postgres) = Postgres::find().await else {
        return;
    };
    let (address, role) = postgres.address();
    let server = Server {
        address,
        role,
        database: postgres.create("portals").await,
    };
    a_portal_keeps_its_snapshot(&server);
    a_portal_does_not_see_its_own_blocks_later_changes(&server);
    a_portal_ends_with_its_transaction(&server);
    messages_up_to_a_sync_are_one_transaction(&server);
    a_client_that_leaves_its_block_leaves_nothing(&server);
}
