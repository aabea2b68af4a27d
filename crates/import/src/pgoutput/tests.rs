//! Messages as PostgreSQL writes them, cut at every byte, with other bytes in them, and of bytes alone.

use bytes::{BufMut, BytesMut};
use proptest::prelude::*;

use super::*;

fn row(out: &mut BytesMut, values: &[Value]) {
    out.put_u16(values.len() as u16);
    for value in values {
        match value {
            Value::Null => out.put_u8(b'n'),
            Value::Unchanged => out.put_u8(b'u'),
            Value::Text(text) => {
                out.put_u8(b't');
                out.put_u32(text.len() as u32);
                out.put_slice(text);
            }
        }
    }
}

fn old_row(out: &mut BytesMut, old: &OldRow) {
    let (mark, values) = match old {
        OldRow::Key(values) => (b'K', values),
        OldRow::Full(values) => (b'O', values),
    };
    out.put_u8(mark);
    row(out, values);
}

fn text(out: &mut BytesMut, text: &str) {
    out.put_slice(text.as_bytes());
    out.put_u8(0);
}

/// The bytes of a message, as the plugin writes them.
fn encode(message: &Message) -> Bytes {
    let mut out = BytesMut::new();
    match message {
        Message::Begin {
            commit,
            time_us,
            xid,
        } => {
            out.put_u8(b'B');
            out.put_u64(commit.0);
            out.put_i64(*time_us);
            out.put_u32(*xid);
        }
        Message::Commit {
            commit,
            end,
            time_us,
        } => {
            out.put_slice(b"C\0");
            out.put_u64(commit.0);
            out.put_u64(end.0);
            out.put_i64(*time_us);
        }
        Message::Origin => {
            out.put_u8(b'O');
            out.put_u64(7);
            text(&mut out, "elsewhere");
        }
        Message::Relation(relation) => {
            out.put_u8(b'R');
            out.put_u32(relation.oid);
            text(&mut out, &relation.schema);
            text(&mut out, &relation.name);
            out.put_u8(match relation.identity {
                Identity::PrimaryKey => b'd',
                Identity::Nothing => b'n',
                Identity::Full => b'f',
                Identity::Index => b'i',
            });
            out.put_u16(relation.columns.len() as u16);
            for column in &relation.columns {
                out.put_u8(u8::from(column.key));
                text(&mut out, &column.name);
                out.put_u32(column.type_oid);
                out.put_i32(column.typmod);
            }
        }
        Message::Type => {
            out.put_u8(b'Y');
            out.put_u32(70_000);
            text(&mut out, "public");
            text(&mut out, "mood");
        }
        Message::Insert { relation, new } => {
            out.put_u8(b'I');
            out.put_u32(*relation);
            out.put_u8(b'N');
            row(&mut out, new);
        }
        Message::Update { relation, old, new } => {
            out.put_u8(b'U');
            out.put_u32(*relation);
            if let Some(old) = old {
                old_row(&mut out, old);
            }
            out.put_u8(b'N');
            row(&mut out, new);
        }
        Message::Delete { relation, old } => {
            out.put_u8(b'D');
            out.put_u32(*relation);
            old_row(&mut out, old);
        }
        Message::Truncate {
            relations,
            cascade,
            restart,
        } => {
            out.put_u8(b'T');
            out.put_u32(relations.len() as u32);
            out.put_u8(u8::from(*cascade) | u8::from(*restart) << 1);
            relations.iter().for_each(|&relation| out.put_u32(relation));
        }
        Message::Logical => {
            out.put_u8(b'M');
            out.put_u8(1);
            out.put_u64(9);
            text(&mut out, "prefix");
            out.put_u32(3);
            out.put_slice(b"abc");
        }
    }
    out.freeze()
}

fn values() -> impl Strategy<Value = Vec<Value>> {
    let value = prop_oneof![
        Just(Value::Null),
        Just(Value::Unchanged),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| Value::Text(bytes.into())),
    ];
    proptest::collection::vec(value, 0..6)
}

fn old() -> impl Strategy<Value = OldRow> {
    prop_oneof![
        values().prop_map(OldRow::Key),
        values().prop_map(OldRow::Full)
    ]
}

fn relation() -> impl Strategy<Value = Relation> {
    let identity = prop_oneof![
        Just(Identity::PrimaryKey),
        Just(Identity::Nothing),
        Just(Identity::Full),
        Just(Identity::Index)
    ];
    let column = (any::<bool>(), "[a-zé ]{0,8}", any::<u32>(), any::<i32>()).prop_map(
        |(key, name, type_oid, typmod)| RelationColumn {
            key,
            name,
            type_oid,
            typmod,
        },
    );
    (
        any::<u32>(),
        "[a-z]{1,8}",
        "[a-z\"é]{0,8}",
        identity,
        proptest::collection::vec(column, 0..6),
    )
        .prop_map(|(oid, schema, name, identity, columns)| Relation {
            oid,
            schema,
            name,
            identity,
            columns,
        })
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<u64>(), any::<i64>(), any::<u32>()).prop_map(|(commit, time_us, xid)| {
            Message::Begin {
                commit: Lsn(commit),
                time_us,
                xid,
            }
        }),
        (any::<u64>(), any::<u64>(), any::<i64>()).prop_map(|(commit, end, time_us)| {
            Message::Commit {
                commit: Lsn(commit),
                end: Lsn(end),
                time_us,
            }
        }),
        Just(Message::Origin),
        relation().prop_map(Message::Relation),
        Just(Message::Type),
        (any::<u32>(), values()).prop_map(|(relation, new)| Message::Insert { relation, new }),
        (any::<u32>(), proptest::option::of(old()), values())
            .prop_map(|(relation, old, new)| Message::Update { relation, old, new }),
        (any::<u32>(), old()).prop_map(|(relation, old)| Message::Delete { relation, old }),
        (
            proptest::collection::vec(any::<u32>(), 0..5),
            any::<bool>(),
            any::<bool>()
        )
            .prop_map(|(relations, cascade, restart)| Message::Truncate {
                relations,
                cascade,
                restart
            }),
        Just(Message::Logical),
    ]
}

proptest! {
    #[test]
    fn a_message_is_read_as_it_was_written(message in message()) {
        prop_assert_eq!(Message::decode(encode(&message)), Ok(message));
    }

    #[test]
    fn a_message_cut_anywhere_is_an_error(message in message()) {
        let whole = encode(&message);
        for end in 0..whole.len() {
            prop_assert!(Message::decode(whole.slice(..end)).is_err(), "{message:?} cut at {end}");
        }
    }

    #[test]
    fn a_byte_too_many_is_an_error(message in message(), byte in any::<u8>()) {
        let mut bytes = encode(&message).to_vec();
        bytes.push(byte);
        prop_assert!(Message::decode(bytes.into()).is_err());
    }

    // Whether a changed byte makes another message or none, reading it ends.
    #[test]
    fn a_changed_byte_is_no_panic(message in message(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = encode(&message).to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(read) = Message::decode(bytes.clone().into()) {
            // Messages that carry nothing that is used are not kept byte by byte.
            if !matches!(read, Message::Origin | Message::Type | Message::Logical | Message::Relation(_)) {
                prop_assert_eq!(encode(&read), bytes);
            }
        }
    }

    #[test]
    fn bytes_are_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = Message::decode(bytes.into());
    }

    // A kind that exists, so that what follows it is looked at.
    #[test]
    fn bytes_after_a_kind_are_no_panic(
        kind in prop::sample::select(b"BCORYIUDTM".to_vec()),
        bytes in proptest::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"\0\x01NKOtunb\xff".to_vec())], 0..80),
    ) {
        let mut message = vec![kind];
        message.extend(bytes);
        let _ = Message::decode(message.into());
    }
}

#[test]
fn lengths_that_lie_reserve_nothing() {
    // Four thousand million relations, and a value of four GiB.
    let truncate = Bytes::from_static(b"T\xff\xff\xff\xff\0\0\0\0\x01");
    assert_eq!(
        Message::decode(truncate),
        Err(DecodeError::Short("Truncate"))
    );
    let insert = Bytes::from_static(b"I\0\0\0\x01N\0\x01t\xff\xff\xff\xffabc");
    assert_eq!(Message::decode(insert), Err(DecodeError::Short("a value")));
}

#[test]
fn values_in_the_binary_form_are_refused() {
    let insert = Bytes::from_static(b"I\0\0\0\x01N\0\x01b\0\0\0\x01a");
    assert_eq!(Message::decode(insert), Err(DecodeError::Binary));
}
