//! What PostgreSQL's output plugin `pgoutput` says of a log, in version 1 of its protocol.
//!
//! ```text
//! Begin  Relation  Insert  Update  Relation  Delete  Truncate  Commit   Begin …
//! └────────────────────── one transaction ─────────────────────────┘
//! ```
//!
//! Transactions come whole and in the order of their commits. A [`Relation`] comes before the first
//! change of a table in a connection, and again before the first change after its definition changed.
//! Values are texts, as the type's output function writes them.
//!
//! The bytes come from outside: every length is checked, and bytes that are no message are an error,
//! never a panic. The formats: PostgreSQL's manual, "Logical Replication Message Formats".

use bytes::{Buf, Bytes};

use crate::lsn::Lsn;

/// One message of the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A transaction begins.
    Begin {
        /// Where its commit begins in the log.
        commit: Lsn,
        /// When it committed: microseconds since 2000-01-01 00:00:00 UTC.
        time_us: i64,
        /// Its number at the source.
        xid: u32,
    },
    /// The transaction ends.
    Commit {
        /// Where its commit begins in the log.
        commit: Lsn,
        /// The byte after its commit.
        end: Lsn,
        /// When it committed: microseconds since 2000-01-01 00:00:00 UTC.
        time_us: i64,
    },
    /// The transaction came to the source from another server.
    Origin,
    /// How a table looks from here on.
    Relation(Relation),
    /// A type that is not built in.
    Type,
    /// A row is new.
    Insert {
        /// The table, as its [`Relation`] numbers it.
        relation: u32,
        /// The row.
        new: Vec<Value>,
    },
    /// A row changes.
    Update {
        /// The table.
        relation: u32,
        /// The row before, if its identity changes or is the whole row.
        old: Option<OldRow>,
        /// The row.
        new: Vec<Value>,
    },
    /// A row goes.
    Delete {
        /// The table.
        relation: u32,
        /// The row before.
        old: OldRow,
    },
    /// All rows of several tables go.
    Truncate {
        /// The tables.
        relations: Vec<u32>,
        /// Whether tables that refer to these were to be emptied, too. They are listed.
        cascade: bool,
        /// Whether the sequences of these tables begin again.
        restart: bool,
    },
    /// What a program wrote into the log by `pg_logical_emit_message`.
    Logical,
}

/// How a table looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// The table's number at the source.
    pub oid: u32,
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// How its rows are recognised.
    pub identity: Identity,
    /// Its columns, in order, without those that are generated.
    pub columns: Vec<RelationColumn>,
}

/// How the rows of a table are recognised (`REPLICA IDENTITY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// By the primary key.
    PrimaryKey,
    /// Not at all.
    Nothing,
    /// By all columns.
    Full,
    /// By a unique index.
    Index,
}

/// A column of a [`Relation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelationColumn {
    /// Whether it is part of the identity.
    pub key: bool,
    /// Its name.
    pub name: String,
    /// The number of its type.
    pub type_oid: u32,
    /// The modifier of its type, -1 for none.
    pub typmod: i32,
}

/// A row before a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OldRow {
    /// The columns of its identity; the others are [`Value::Null`].
    Key(Vec<Value>),
    /// All columns.
    Full(Vec<Value>),
}

/// One value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// NULL.
    Null,
    /// A long value that stands outside of the row and was not changed, so it is not told.
    Unchanged,
    /// The value's text.
    Text(Bytes),
}

/// The bytes are no message of the plugin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The message ends before its last field.
    #[error("a message of pgoutput ends within {0}")]
    Short(&'static str),
    /// There are bytes after the last field.
    #[error("a message of pgoutput has {0} bytes too many")]
    Long(usize),
    /// A field has a value that it cannot have.
    #[error("a message of pgoutput has {value:#04x} for {field}")]
    Value {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u8,
    },
    /// A name is not UTF-8.
    #[error("a message of pgoutput has a name that is not UTF-8")]
    Utf8,
    /// A value is sent in the binary form, which was not asked for.
    #[error("a message of pgoutput has a value in the binary form")]
    Binary,
}

impl Message {
    /// Reads a message, which is all of `bytes`. Values share the memory of `bytes`.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: Bytes) -> Result<Message, DecodeError> {
        let mut reader = Reader(bytes);
        let message = match reader.u8("the kind of message")? {
            b'B' => Message::Begin {
                commit: reader.lsn("Begin")?,
                time_us: reader.i64("Begin")?,
                xid: reader.u32("Begin")?,
            },
            b'C' => reader.commit()?,
            b'O' => {
                reader.lsn("Origin")?;
                reader.text("Origin")?;
                Message::Origin
            }
            b'R' => Message::Relation(reader.relation()?),
            b'Y' => {
                reader.u32("Type")?;
                reader.text("Type")?;
                reader.text("Type")?;
                Message::Type
            }
            b'I' => reader.insert()?,
            b'U' => reader.update()?,
            b'D' => reader.delete()?,
            b'T' => reader.truncate()?,
            b'M' => reader.logical()?,
            value => {
                return Err(DecodeError::Value {
                    field: "the kind of message",
                    value,
                });
            }
        };
        match reader.0.len() {
            0 => Ok(message),
            more => Err(DecodeError::Long(more)),
        }
    }
}

/// What is left of a message.
struct Reader(Bytes);

impl Reader {
    fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.0.try_get_u8().map_err(|_| DecodeError::Short(field))
    }

    fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.0.try_get_u16().map_err(|_| DecodeError::Short(field))
    }

    fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.0.try_get_u32().map_err(|_| DecodeError::Short(field))
    }

    fn i32(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        self.0.try_get_i32().map_err(|_| DecodeError::Short(field))
    }

    fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.0.try_get_i64().map_err(|_| DecodeError::Short(field))
    }

    fn lsn(&mut self, field: &'static str) -> Result<Lsn, DecodeError> {
        self.0
            .try_get_u64()
            .map(Lsn)
            .map_err(|_| DecodeError::Short(field))
    }

    /// A text up to its zero byte.
    fn text(&mut self, field: &'static str) -> Result<String, DecodeError> {
        let end = self
            .0
            .iter()
            .position(|&byte| byte == 0)
            .ok_or(DecodeError::Short(field))?;
        let text = self.0.split_to(end);
        self.0.advance(1);
        String::from_utf8(text.to_vec()).map_err(|_| DecodeError::Utf8)
    }

    /// Bytes after their number.
    fn counted(&mut self, field: &'static str) -> Result<Bytes, DecodeError> {
        let length = usize::try_from(self.u32(field)?).map_err(|_| DecodeError::Short(field))?;
        if length > self.0.len() {
            return Err(DecodeError::Short(field));
        }
        Ok(self.0.split_to(length))
    }

    fn commit(&mut self) -> Result<Message, DecodeError> {
        match self.u8("Commit")? {
            0 => Ok(Message::Commit {
                commit: self.lsn("Commit")?,
                end: self.lsn("Commit")?,
                time_us: self.i64("Commit")?,
            }),
            value => Err(DecodeError::Value {
                field: "the flags of Commit",
                value,
            }),
        }
    }

    fn relation(&mut self) -> Result<Relation, DecodeError> {
        let oid = self.u32("Relation")?;
        let mut schema = self.text("Relation")?;
        // The plugin leaves the name of this schema out.
        if schema.is_empty() {
            schema = "pg_catalog".to_owned();
        }
        let name = self.text("Relation")?;
        let identity = match self.u8("Relation")? {
            b'd' => Identity::PrimaryKey,
            b'n' => Identity::Nothing,
            b'f' => Identity::Full,
            b'i' => Identity::Index,
            value => {
                return Err(DecodeError::Value {
                    field: "the identity of a relation",
                    value,
                });
            }
        };
        let columns = (0..self.u16("Relation")?)
            .map(|_| self.relation_column())
            .collect::<Result<_, _>>()?;
        Ok(Relation {
            oid,
            schema,
            name,
            identity,
            columns,
        })
    }

    fn relation_column(&mut self) -> Result<RelationColumn, DecodeError> {
        let key = match self.u8("a column of Relation")? {
            0 => false,
            1 => true,
            value => {
                return Err(DecodeError::Value {
                    field: "the flags of a column",
                    value,
                });
            }
        };
        Ok(RelationColumn {
            key,
            name: self.text("a column of Relation")?,
            type_oid: self.u32("a column of Relation")?,
            typmod: self.i32("a column of Relation")?,
        })
    }

    fn insert(&mut self) -> Result<Message, DecodeError> {
        let relation = self.u32("Insert")?;
        self.mark("the row of Insert", b'N')?;
        Ok(Message::Insert {
            relation,
            new: self.row()?,
        })
    }

    fn update(&mut self) -> Result<Message, DecodeError> {
        let relation = self.u32("Update")?;
        let old = match self.0.first() {
            Some(b'N') => None,
            _ => Some(self.old_row()?),
        };
        self.mark("the row of Update", b'N')?;
        Ok(Message::Update {
            relation,
            old,
            new: self.row()?,
        })
    }

    fn delete(&mut self) -> Result<Message, DecodeError> {
        Ok(Message::Delete {
            relation: self.u32("Delete")?,
            old: self.old_row()?,
        })
    }

    fn old_row(&mut self) -> Result<OldRow, DecodeError> {
        match self.u8("a row before a change")? {
            b'K' => Ok(OldRow::Key(self.row()?)),
            b'O' => Ok(OldRow::Full(self.row()?)),
            value => Err(DecodeError::Value {
                field: "a row before a change",
                value,
            }),
        }
    }

    fn truncate(&mut self) -> Result<Message, DecodeError> {
        let count = self.u32("Truncate")?;
        let options = self.u8("Truncate")?;
        if options & !3 != 0 {
            return Err(DecodeError::Value {
                field: "the options of Truncate",
                value: options,
            });
        }
        // Collected as they come: the number alone reserves nothing.
        let mut relations = Vec::new();
        for _ in 0..count {
            relations.push(self.u32("Truncate")?);
        }
        Ok(Message::Truncate {
            relations,
            cascade: options & 1 != 0,
            restart: options & 2 != 0,
        })
    }

    fn logical(&mut self) -> Result<Message, DecodeError> {
        self.u8("Message")?;
        self.lsn("Message")?;
        self.text("Message")?;
        self.counted("Message")?;
        Ok(Message::Logical)
    }

    fn mark(&mut self, field: &'static str, mark: u8) -> Result<(), DecodeError> {
        match self.u8(field)? {
            value if value == mark => Ok(()),
            value => Err(DecodeError::Value { field, value }),
        }
    }

    fn row(&mut self) -> Result<Vec<Value>, DecodeError> {
        let count = self.u16("a row")?;
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(match self.u8("a value")? {
                b'n' => Value::Null,
                b'u' => Value::Unchanged,
                b't' => Value::Text(self.counted("a value")?),
                b'b' => return Err(DecodeError::Binary),
                value => {
                    return Err(DecodeError::Value {
                        field: "the kind of a value",
                        value,
                    });
                }
            });
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests;
