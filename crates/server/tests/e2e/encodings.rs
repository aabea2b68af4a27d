//! Clients that speak other encodings than UTF-8: what they send and get, byte by byte as from
//! PostgreSQL.

use std::net::SocketAddr;

use crate::harness::Aerostat;
use crate::postgres::Postgres;
use crate::raw::{Message, Raw, errors};

const SINGLE_BYTES: &[&str] = &[
    "LATIN1",
    "LATIN2",
    "LATIN3",
    "LATIN4",
    "LATIN5",
    "LATIN6",
    "LATIN7",
    "LATIN8",
    "LATIN9",
    "LATIN10",
    "ISO_8859_5",
    "ISO_8859_6",
    "ISO_8859_7",
    "ISO_8859_8",
    "WIN1250",
    "WIN1251",
    "WIN1252",
    "WIN1253",
    "WIN1254",
    "WIN1255",
    "WIN1256",
    "WIN1257",
    "WIN1258",
    "WIN866",
    "WIN874",
    "KOI8R",
    "KOI8U",
];

/// What a client sends, one query after another, and what it sends with COPY.
const SCRIPT: &[(&[u8], &[u8])] = &[
    (b"SET client_encoding = 'latin1'", b""),
    (b"SHOW client_encoding", b""),
    (b"SELECT pg_client_encoding()", b""),
    (
        b"SELECT 'caf\xe9' AS \"\xfcber\", length('caf\xe9'), 'caf\xe9'::bytea",
        b"",
    ),
    (b"SELECT '\x80\x9f' || chr(233)", b""),
    (b"SELECT chr(8364)", b""),
    (b"SELECT 1 AS \"a\xa4\", '\xa4'::bytea", b""),
    (b"SELECT nothing_\xe9", b""),
    (
        b"CREATE TEMP TABLE e (a int, \"\xe4\" text); INSERT INTO e VALUES (1, '\xe4\xf6\xfc')",
        b"",
    ),
    (b"COPY e FROM STDIN", b"2\tn\xe4t\n3\t\\N\n"),
    (b"COPY e FROM STDIN WITH (FORMAT csv)", b"4,\"\xdf\"\n"),
    (b"COPY e TO STDOUT", b""),
    (b"COPY e TO STDOUT WITH (FORMAT csv, HEADER)", b""),
    (b"COPY e TO STDOUT WITH (FORMAT binary)", b""),
    (b"COPY e TO STDOUT WITH (ENCODING 'utf8')", b""),
    (
        b"COPY e FROM STDIN WITH (ENCODING 'utf8')",
        b"5\t\xe2\x82\xac\n",
    ),
    (b"SELECT a, \"\xe4\" FROM e WHERE a < 5 ORDER BY a", b""),
    (b"SELECT \"\xe4\" FROM e WHERE a = 5", b""),
    (b"COPY e TO STDOUT", b""),
    (
        b"SET client_encoding = 'latin9'; SELECT \"\xe4\" FROM e WHERE a = 5",
        b"",
    ),
    (b"SELECT '\xa4' = chr(8364), 'tag\xa4'", b""),
    (b"SET client_encoding = 'win1252'", b""),
    (b"SELECT '\x80' = chr(8364), '\x93\x94'", b""),
    (b"SELECT '\x81'", b""),
    (b"SELECT chr(1234)", b""),
    (b"SET client_encoding TO sql_ascii", b""),
    (b"SELECT '\xe2\x82\xac', length('\xe2\x82\xac')", b""),
    (b"SELECT '\xe9'", b""),
    (b"SET NAMES 'utf8'; SELECT '\xe2\x82\xac'", b""),
    (b"SELECT '\xff'", b""),
    (
        b"BEGIN; SET LOCAL client_encoding = 'latin1'; SELECT chr(233); COMMIT",
        b"",
    ),
    (b"SELECT chr(233)", b""),
    (b"SET client_encoding = 'nothing'", b""),
    (
        b"SET client_encoding = 'windows-1252'; SHOW client_encoding",
        b"",
    ),
    (b"RESET client_encoding; SHOW client_encoding", b""),
];

/// What is to be the same: rows, names of columns, data, what was told, and errors.
fn shown(messages: &[Message]) -> Vec<(char, Vec<u8>)> {
    let shown = messages.iter().filter_map(|(kind, body)| {
        let body = match kind {
            b'D' | b'd' | b'C' => body.clone(),
            b'S' => body.clone(),
            b'T' => body.split(|byte| *byte == 0).nth(1)?.to_vec(),
            b'E' => {
                let error = errors(&[(*kind, body.clone())]).swap_remove(0);
                format!("{} {}", error[&'C'], error[&'M']).into_bytes()
            }
            _ => return None,
        };
        Some((char::from(*kind), body))
    });
    shown.collect()
}

fn session(address: SocketAddr, user: &str, encoding: Option<&str>) -> Raw {
    let mut raw = Raw::open(address);
    let mut startup = vec![("user", user), ("database", "postgres")];
    startup.extend(encoding.map(|encoding| ("client_encoding", encoding)));
    raw.send_startup(&startup).unwrap();
    let messages = raw.read_until_ready().unwrap();
    assert!(errors(&messages).is_empty());
    raw
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_go_both_ways_as_in_postgresql() {
    let Some(postgres) = Postgres::find().await else {
        return;
    };
    let node = Aerostat::start();
    let (address, user) = postgres.address();
    let (mut ours, mut theirs) = (
        session(node.sql, "aerostat", None),
        session(address, &user, None),
    );
    for (query, data) in SCRIPT {
        let mut answer = |raw: &mut Raw| {
            raw.send_query(query).unwrap();
            shown(&raw.answer(data).unwrap())
        };
        let (here, there) = (answer(&mut ours), answer(&mut theirs));
        assert_eq!(here, there, "{}", String::from_utf8_lossy(query));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_byte_of_every_encoding_is_postgresqls() {
    let Some(postgres) = Postgres::find().await else {
        return;
    };
    let node = Aerostat::start();
    let (address, user) = postgres.address();
    for encoding in SINGLE_BYTES {
        let (mut ours, mut theirs) = (
            session(node.sql, "aerostat", Some(encoding)),
            session(address, &user, Some(encoding)),
        );
        for byte in 0x80..=0xffu8 {
            let query = [b"SELECT '", &[byte][..], b"', ascii('", &[byte], b"')"].concat();
            let answer = |raw: &mut Raw| {
                raw.send_query(&query).unwrap();
                shown(&raw.read_until_ready().unwrap())
            };
            assert_eq!(
                answer(&mut ours),
                answer(&mut theirs),
                "{encoding} {byte:x}"
            );
        }
    }
}

/// A prepared statement with a text and an array of texts, bound in both forms.
fn bound(raw: &mut Raw, formats: &[u8], text: &[u8], array: &[u8]) -> Vec<(char, Vec<u8>)> {
    raw.send(
        b'P',
        b"\0SELECT $1 AS \"\xe9\", $2::text[], length($1)\0\0\x02\0\0\0\x19\0\0\x03\xf1",
    )
    .unwrap();
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap().to_be_bytes();
    let body = [
        &b"p\xe9\0\0"[..],
        formats,
        &[0, 2],
        &length(text),
        text,
        &length(array),
        array,
        formats.get(..2).unwrap(),
        formats.get(2..).unwrap(),
        &formats[formats.len() - 2..],
    ]
    .concat();
    // One format for each parameter, and one more for the number.
    let mut body = body;
    let at = 4 + formats.len() + 2 + 4 + text.len() + 4 + array.len();
    body[at..at + 2].copy_from_slice(&[0, 3]);
    raw.send(b'B', &body).unwrap();
    raw.send(b'D', b"Pp\xe9\0").unwrap();
    raw.send(b'E', b"p\xe9\0\0\0\0\0").unwrap();
    raw.send(b'S', &[]).unwrap();
    shown(&raw.read_until_ready().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_converted_in_both_forms() {
    let Some(postgres) = Postgres::find().await else {
        return;
    };
    let node = Aerostat::start();
    let (address, user) = postgres.address();
    let (mut ours, mut theirs) = (
        session(node.sql, "aerostat", Some("latin1")),
        session(address, &user, Some("latin1")),
    );
    let array = [
        &[
            0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 25, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1,
        ][..],
        b"\xe4",
        &[0, 0, 0, 2],
        b"\xf6x",
    ]
    .concat();
    let (texts, binaries) = ([0, 2, 0, 0, 0, 0], [0, 2, 0, 1, 0, 1]);
    for (formats, text, array) in [
        (&texts, &b"\xe9t\xe9"[..], &b"{\xe4,\xf6x}"[..]),
        (&binaries, b"\xe9t\xe9", &array),
    ] {
        let here = bound(&mut ours, formats, text, array);
        let there = bound(&mut theirs, formats, text, array);
        assert_eq!(here, there, "{formats:?}");
        assert!(here.iter().any(|(kind, _)| *kind == 'D'), "{here:?}");
    }
}

#[test]
fn errors_arrive_whatever_characters_they_are_about() {
    let node = Aerostat::start();
    let mut raw = session(node.sql, "aerostat", Some("latin1"));
    let query = b"SET client_encoding = 'utf8'; CREATE TABLE \"\xe2\x82\xac\" (a int); \
        SET client_encoding = 'latin1'; SELECT * FROM nothing; ";
    raw.send_query(query).unwrap();
    raw.read_until_ready().unwrap();
    raw.query("SET client_encoding = 'utf8'").unwrap();
    raw.query("CREATE TABLE \"\u{20ac}\" (a int PRIMARY KEY); INSERT INTO \"\u{20ac}\" VALUES (1)")
        .unwrap();
    raw.query("PREPARE p AS INSERT INTO \"\u{20ac}\" VALUES (1)")
        .unwrap();
    raw.query("SET client_encoding = 'latin1'").unwrap();
    raw.send_query(b"EXECUTE p").unwrap();
    let messages = raw.read_until_ready().unwrap();
    let error = errors(&messages).swap_remove(0);
    assert_eq!(error[&'C'], "23505");
    assert!(error[&'M'].contains("\"?_pkey\""), "{error:?}");
}
