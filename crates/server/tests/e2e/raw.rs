//! A client that speaks the wire protocol byte by byte, to say what no library would.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::harness::PATIENCE;

/// Bytes that are read ahead.
const READ_BYTES: usize = 64 << 10;

/// A connection that sends whatever it is told.
pub(crate) struct Raw {
    /// Reads ahead: a client that asks the system for each row takes longer than the node.
    stream: BufReader<TcpStream>,
    status: u8,
    key: Option<(i32, i32)>,
}

/// A message from the server: its type and body.
pub(crate) type Message = (u8, Vec<u8>);

impl Raw {
    /// A TCP connection, nothing sent.
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::try_open(address).unwrap()
    }

    fn try_open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::with_capacity(READ_BYTES, stream),
            status: 0,
            key: None,
        })
    }

    /// What the last ReadyForQuery said: `I`, idle; `T`, in a block; `E`, in a failed one.
    pub(crate) fn status(&self) -> char {
        char::from(self.status)
    }

    /// What BackendKeyData said: the number of the session, and the secret to cancel it with.
    pub(crate) fn key(&self) -> (i32, i32) {
        self.key.expect("the session has begun")
    }

    /// A session of the superuser in a database, ready for queries.
    pub(crate) fn session(address: SocketAddr, database: &str) -> Self {
        Self::session_as(address, "aerostat", database)
    }

    /// A session of a role that needs no password.
    pub(crate) fn session_as(address: SocketAddr, role: &str, database: &str) -> Self {
        Self::try_session_as(address, role, database).unwrap()
    }

    /// A session of the superuser, where the node may be gone.
    pub(crate) fn try_session(address: SocketAddr, database: &str) -> io::Result<Self> {
        Self::try_session_as(address, "aerostat", database)
    }

    /// A session of a role that needs no password, where it may be refused.
    pub(crate) fn try_session_as(
        address: SocketAddr,
        role: &str,
        database: &str,
    ) -> io::Result<Self> {
        let mut raw = Self::try_open(address)?;
        raw.send_startup(&[("user", role), ("database", database)])?;
        let messages = raw.read_until_ready()?;
        raw.key = messages.iter().find_map(backend_key);
        match errors(&messages).first() {
            Some(error) => Err(io::Error::other(format!("{error:?}"))),
            None => Ok(raw),
        }
    }

    /// Bytes as they are.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// A typed message with its length.
    pub(crate) fn send(&mut self, kind: u8, body: &[u8]) -> io::Result<()> {
        let mut message = vec![kind];
        message.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
        message.extend(body);
        self.stream.get_mut().write_all(&message)
    }

    /// A startup message of protocol 3.0.
    pub(crate) fn send_startup(&mut self, parameters: &[(&str, &str)]) -> io::Result<()> {
        let mut body = 196_608u32.to_be_bytes().to_vec();
        for (name, value) in parameters {
            body.extend(name.bytes().chain([0]).chain(value.bytes()).chain([0]));
        }
        body.push(0);
        let length = u32::try_from(body.len() + 4).unwrap();
        self.stream.get_mut().write_all(&length.to_be_bytes())?;
        self.stream.get_mut().write_all(&body)
    }

    /// A simple query of arbitrary bytes.
    pub(crate) fn send_query(&mut self, sql: &[u8]) -> io::Result<()> {
        let mut body = sql.to_vec();
        body.push(0);
        self.send(b'Q', &body)
    }

    /// The next message.
    pub(crate) fn read(&mut self) -> io::Result<Message> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
        let mut body = vec![0; length.saturating_sub(4)];
        self.stream.read_exact(&mut body)?;
        Ok((head[0], body))
    }

    /// Messages up to ReadyForQuery, answering a COPY's wish for data with `data`.
    pub(crate) fn answer(&mut self, data: &[u8]) -> io::Result<Vec<Message>> {
        let mut messages = Vec::new();
        loop {
            let message = self.read()?;
            match message.0 {
                b'G' => {
                    if !data.is_empty() {
                        self.send(b'd', data)?;
                    }
                    self.send(b'c', &[])?;
                }
                b'Z' => {
                    self.status = message.1[0];
                    return Ok(messages);
                }
                _ => {}
            }
            messages.push(message);
        }
    }

    /// Messages up to ReadyForQuery, but for rows and data of a COPY, of which there may be millions.
    pub(crate) fn read_without_rows(&mut self) -> io::Result<Vec<Message>> {
        let mut messages = Vec::new();
        loop {
            match self.read()? {
                (b'D' | b'd', _) => {}
                (b'G', _) => self.send(b'c', &[])?,
                (b'Z', body) => {
                    self.status = body[0];
                    return Ok(messages);
                }
                message => messages.push(message),
            }
        }
    }

    /// Messages up to ReadyForQuery.
    pub(crate) fn read_until_ready(&mut self) -> io::Result<Vec<Message>> {
        self.answer(&[])
    }

    /// Runs a query and gives the first column of its rows.
    pub(crate) fn query(&mut self, sql: &str) -> io::Result<Vec<String>> {
        self.send_query(sql.as_bytes())?;
        let messages = self.read_until_ready()?;
        let failed = errors(&messages);
        if let Some(error) = failed.first() {
            return Err(io::Error::other(format!("{error:?}")));
        }
        Ok(messages
            .iter()
            .filter(|message| message.0 == b'D')
            .map(|message| values(&message.1).swap_remove(0).unwrap_or_default())
            .collect())
    }

    /// Everything until the server closes the connection.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A reset is as good a close as any.
        self.stream.read_to_end(&mut bytes).ok();
        bytes
    }
}

fn backend_key((kind, body): &Message) -> Option<(i32, i32)> {
    let number = |at: usize| Some(i32::from_be_bytes(body.get(at..at + 4)?.try_into().ok()?));
    (*kind == b'K').then_some((number(0)?, number(4)?))
}

/// The values of a DataRow in text; `None` is NULL.
pub(crate) fn values(body: &[u8]) -> Vec<Option<String>> {
    let count = u16::from_be_bytes([body[0], body[1]]);
    let mut rest = &body[2..];
    let next = |_| {
        let (length, after) = rest.split_at(4);
        let length = usize::try_from(i32::from_be_bytes(length.try_into().unwrap())).ok();
        let (value, after) = after.split_at(length.unwrap_or(0));
        rest = after;
        length.map(|_| String::from_utf8_lossy(value).into_owned())
    };
    (0..count).map(next).collect()
}

/// The fields of each ErrorResponse: `C` is the SQLSTATE, `M` the message.
pub(crate) fn errors(messages: &[Message]) -> Vec<BTreeMap<char, String>> {
    let failed = messages.iter().filter(|message| message.0 == b'E');
    failed.map(|message| fields(&message.1)).collect()
}

/// The fields of an ErrorResponse or a NoticeResponse.
pub(crate) fn fields(body: &[u8]) -> BTreeMap<char, String> {
    let parts = body
        .split(|&byte| byte == 0)
        .filter(|part| !part.is_empty());
    parts
        .map(|part| {
            (
                part[0] as char,
                String::from_utf8_lossy(&part[1..]).into_owned(),
            )
        })
        .collect()
}
