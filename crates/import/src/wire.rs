//! A connection of replication to the source, which `tokio-postgres` has not.
//!
//! ```text
//! startup (replication=database) ► authentication ► simple queries ► START_REPLICATION ► CopyBoth
//!                                                                     reader: changes, keepalives
//!                                                                     writer: how far the target is
//! ```
//!
//! Nothing is buffered but the message at hand: a target that is slow holds up the source by the socket. The writer
//! has a task of its own, so that the source hears of us while the target takes its time.

use std::{io, time::Duration};

use aerostat_pgclient::{Server, Tls};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use fallible_iterator::FallibleIterator;
use postgres_protocol::{
    authentication::{
        md5_hash,
        sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256},
    },
    message::{
        backend::{ErrorFields, Message},
        frontend,
    },
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf},
    net::{TcpStream, UnixStream},
    sync::watch,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_postgres::config::{Config, Host};

use crate::{connect::SETTINGS, error::ImportError, lsn::Lsn, task::Task};

/// The longest message that a server can send: values have at most 1 GiB, and a row of them is built as one.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// How often the source hears how far the target is. A source gives up a receiver that it has not heard of for
/// `wal_sender_timeout`, a minute if not set.
const STATUS_EVERY: Duration = Duration::from_secs(5);

/// How long connecting may take if the source's URL does not say.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Seconds from 1970 to 2000, where PostgreSQL's times begin.
const EPOCH_2000_S: u64 = 946_684_800;

trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

/// A connection to the source that takes commands of replication.
pub(crate) struct Wire {
    socket: Box<dyn Socket>,
    buffer: BytesMut,
}

impl Wire {
    /// Connects to the first of the hosts that answers.
    ///
    /// # Errors
    /// [`ImportError::SourceLost`] if none answers, [`ImportError::SourceRefused`] if one says no.
    pub(crate) async fn connect(server: &Server) -> Result<Wire, ImportError> {
        let config = &server.config;
        let mut failed = None;
        for (at, host) in config.get_hosts().iter().enumerate() {
            let ports = config.get_ports();
            let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
            let limit = config
                .get_connect_timeout()
                .copied()
                .unwrap_or(CONNECT_TIMEOUT);
            match timeout(limit, open(host, port, server.tls.as_ref()))
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            {
                Ok(socket) => {
                    let buffer = BytesMut::new();
                    let mut wire = Wire { socket, buffer };
                    wire.log_in(config).await?;
                    return Ok(wire);
                }
                Err(error) => failed = Some(error),
            }
        }
        let source = failed.unwrap_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "the URL names no host")
        });
        Err(lost("connecting")(source))
    }

    async fn log_in(&mut self, config: &Config) -> Result<(), ImportError> {
        let user = config.get_user().unwrap_or("postgres");
        let mut parameters = vec![
            ("user", user),
            ("database", config.get_dbname().unwrap_or(user)),
            ("replication", "database"),
            (
                "application_name",
                config.get_application_name().unwrap_or("aerostat import"),
            ),
        ];
        parameters.extend(config.get_options().map(|options| ("options", options)));
        parameters.extend(SETTINGS);
        let mut out = BytesMut::new();
        frontend::startup_message(parameters, &mut out).map_err(lost("connecting"))?;
        self.send(&out, "connecting").await?;
        loop {
            match self.message("connecting").await? {
                Message::AuthenticationOk
                | Message::ParameterStatus(_)
                | Message::BackendKeyData(_)
                | Message::NoticeResponse(_) => {}
                Message::AuthenticationCleartextPassword => {
                    self.password(config.get_password().ok_or_else(no_password)?)
                        .await?;
                }
                Message::AuthenticationMd5Password(body) => {
                    let password = config.get_password().ok_or_else(no_password)?;
                    let hash = md5_hash(user.as_bytes(), password, body.salt());
                    self.password(hash.as_bytes()).await?;
                }
                Message::AuthenticationSasl(body) => {
                    let mut mechanisms = body.mechanisms();
                    let mut scram = false;
                    while let Some(mechanism) = mechanisms.next().map_err(lost("connecting"))? {
                        scram |= mechanism == SCRAM_SHA_256;
                    }
                    if !scram {
                        return Err(ImportError::Protocol(
                            "it wants a way to log in other than SCRAM".to_owned(),
                        ));
                    }
                    self.scram(config.get_password().ok_or_else(no_password)?)
                        .await?;
                }
                Message::ReadyForQuery(_) => return Ok(()),
                Message::ErrorResponse(body) => {
                    return Err(refused("the connection", body.fields()));
                }
                _ => return Err(unexpected("a way to log in")),
            }
        }
    }

    async fn password(&mut self, password: &[u8]) -> Result<(), ImportError> {
        let mut out = BytesMut::new();
        frontend::password_message(password, &mut out).map_err(lost("logging in"))?;
        self.send(&out, "logging in").await
    }

    async fn scram(&mut self, password: &[u8]) -> Result<(), ImportError> {
        let mut scram = ScramSha256::new(password, ChannelBinding::unsupported());
        let mut out = BytesMut::new();
        frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), &mut out)
            .map_err(lost("logging in"))?;
        self.send(&out, "logging in").await?;
        let Message::AuthenticationSaslContinue(body) = self.answer("the user").await? else {
            return Err(unexpected("SCRAM's second step"));
        };
        scram.update(body.data()).map_err(lost("logging in"))?;
        let mut out = BytesMut::new();
        frontend::sasl_response(scram.message(), &mut out).map_err(lost("logging in"))?;
        self.send(&out, "logging in").await?;
        let Message::AuthenticationSaslFinal(body) = self.answer("the user").await? else {
            return Err(unexpected("SCRAM's last step"));
        };
        scram.finish(body.data()).map_err(lost("logging in"))
    }

    /// The rows of a command's answer, as texts.
    ///
    /// # Errors
    /// [`ImportError::SourceRefused`] if the source says no.
    pub(crate) async fn query(
        &mut self,
        command: &str,
    ) -> Result<Vec<Vec<Option<String>>>, ImportError> {
        let mut out = BytesMut::new();
        frontend::query(command, &mut out).map_err(lost(command))?;
        self.send(&out, command).await?;
        let mut rows = Vec::new();
        let mut failed = None;
        loop {
            match self.message(command).await? {
                Message::DataRow(body) => {
                    let cells = body.buffer();
                    let row = body
                        .ranges()
                        .map(|range| {
                            Ok(range
                                .map(|range| String::from_utf8_lossy(&cells[range]).into_owned()))
                        })
                        .collect()
                        .map_err(lost(command))?;
                    rows.push(row);
                }
                Message::ErrorResponse(body) => failed = Some(refused(command, body.fields())),
                Message::ReadyForQuery(_) => return failed.map_or(Ok(rows), Err),
                Message::RowDescription(_)
                | Message::CommandComplete(_)
                | Message::NoticeResponse(_)
                | Message::ParameterStatus(_)
                | Message::EmptyQueryResponse => {}
                _ => return Err(unexpected("an answer to a command")),
            }
        }
    }

    /// Begins to read the log of a slot, from where the slot is.
    ///
    /// # Errors
    /// [`ImportError::SourceRefused`] if the source says no: the slot is gone, is lost, or is in use.
    pub(crate) async fn start(
        mut self,
        slot: &str,
        publication: &str,
    ) -> Result<Stream, ImportError> {
        let command = format!(
            "START_REPLICATION SLOT {} LOGICAL 0/0 (proto_version '1', publication_names {})",
            crate::sql::identifier(slot),
            crate::sql::literal(&crate::sql::identifier(publication)),
        );
        let mut out = BytesMut::new();
        frontend::query(&command, &mut out).map_err(lost("replication"))?;
        self.send(&out, "replication").await?;
        loop {
            let (tag, frame) = self.frame("replication").await?;
            match tag {
                b'W' => break,
                b'E' => match parse(frame)? {
                    Message::ErrorResponse(body) => {
                        return Err(refused("replication", body.fields()));
                    }
                    _ => return Err(unexpected("an error")),
                },
                b'N' | b'S' => {}
                _ => return Err(unexpected("the begin of replication")),
            }
        }
        let (read, write) = tokio::io::split(self.socket);
        let (status, told) = watch::channel(Status::default());
        Ok(Stream {
            reader: read,
            buffer: self.buffer,
            status,
            _writer: Task::spawn(write_status(write, told)),
        })
    }

    async fn answer(&mut self, what: &str) -> Result<Message, ImportError> {
        match self.message(what).await? {
            Message::ErrorResponse(body) => Err(refused(what, body.fields())),
            message => Ok(message),
        }
    }

    async fn message(&mut self, what: &str) -> Result<Message, ImportError> {
        let (_, frame) = self.frame(what).await?;
        parse(frame)
    }

    async fn frame(&mut self, what: &str) -> Result<(u8, BytesMut), ImportError> {
        frame(&mut self.socket, &mut self.buffer, what).await
    }

    async fn send(&mut self, out: &[u8], what: &str) -> Result<(), ImportError> {
        self.socket.write_all(out).await.map_err(lost(what))?;
        self.socket.flush().await.map_err(lost(what))
    }
}

/// What comes from the source once replication has begun.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A message of the output plugin.
    Change(Bytes),
    /// Where the source has read its log up to.
    Keepalive {
        /// All that it sends for the log before here was sent.
        end: Lsn,
        /// Whether it waits for an answer.
        reply: bool,
    },
}

/// A connection that brings changes.
pub(crate) struct Stream {
    reader: ReadHalf<Box<dyn Socket>>,
    buffer: BytesMut,
    status: watch::Sender<Status>,
    _writer: Task,
}

#[derive(Clone, Copy, Debug, Default)]
struct Status {
    /// What the target has for good.
    done: Lsn,
    /// Whether the source is asked to answer with a keepalive.
    ask: bool,
}

impl Stream {
    /// The next event. A call that is dropped before it returns loses nothing.
    ///
    /// # Errors
    /// [`ImportError::SourceLost`] when the connection ends, [`ImportError::SourceRefused`] when the source ends it.
    pub(crate) async fn next(&mut self) -> Result<Event, ImportError> {
        loop {
            let (tag, mut frame) = frame(&mut self.reader, &mut self.buffer, "replication").await?;
            match tag {
                b'd' => {
                    frame.advance(5);
                    return event(frame.freeze());
                }
                b'E' => match parse(frame)? {
                    Message::ErrorResponse(body) => {
                        return Err(refused("replication", body.fields()));
                    }
                    _ => return Err(unexpected("an error")),
                },
                b'N' | b'S' => {}
                // A server that shuts down ends the copy, and then the connection.
                b'c' | b'C' | b'Z' => {
                    let ended = io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the source ended replication",
                    );
                    return Err(lost("replication")(ended));
                }
                _ => return Err(unexpected("a change")),
            }
        }
    }

    /// Tells the source that the target has everything before `done` for good.
    pub(crate) fn confirm(&self, done: Lsn) {
        self.status.send_modify(|status| {
            debug_assert!(done >= status.done, "what is confirmed is not taken back");
            *status = Status { done, ask: false };
        });
    }

    /// Tells the source at once how far the target is; with `ask` the source answers by a keepalive.
    pub(crate) fn nudge(&self, ask: bool) {
        self.status.send_modify(|status| status.ask = ask);
    }
}

/// Reads a message of at least five bytes, with its tag. What was read when this is dropped is in `buffer`.
async fn frame<R: AsyncRead + Unpin>(
    reader: &mut R,
    buffer: &mut BytesMut,
    what: &str,
) -> Result<(u8, BytesMut), ImportError> {
    loop {
        if let Some(total) = length(buffer)?
            && buffer.len() >= total
        {
            return Ok((buffer[0], buffer.split_to(total)));
        }
        // It grows with what comes, not with what a length says will come.
        buffer.reserve(8 << 10);
        if reader.read_buf(buffer).await.map_err(lost(what))? == 0 {
            return Err(lost(what)(io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

/// The length of the first message with its tag, once its head is there.
fn length(buffer: &[u8]) -> Result<Option<usize>, ImportError> {
    let Some(head) = buffer.get(1..5) else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
    if !(4..MESSAGE_BYTES_MAX).contains(&length) {
        return Err(ImportError::Protocol(format!(
            "a message of {length} bytes; is this a PostgreSQL?"
        )));
    }
    Ok(Some(length + 1))
}

fn parse(mut frame: BytesMut) -> Result<Message, ImportError> {
    match Message::parse(&mut frame) {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(unexpected("a whole message")),
        Err(error) => Err(ImportError::Protocol(error.to_string())),
    }
}

/// What stands in a message of the copy.
fn event(mut data: Bytes) -> Result<Event, ImportError> {
    let short = |_| ImportError::Protocol("a message of replication that is too short".to_owned());
    match data.try_get_u8().map_err(short)? {
        b'w' => {
            for _ in 0..3 {
                data.try_get_u64().map_err(short)?;
            }
            Ok(Event::Change(data))
        }
        b'k' => {
            let end = Lsn(data.try_get_u64().map_err(short)?);
            data.try_get_i64().map_err(short)?;
            let reply = data.try_get_u8().map_err(short)? == 1;
            Ok(Event::Keepalive { end, reply })
        }
        kind => Err(ImportError::Protocol(format!(
            "a message of replication of kind {kind:#04x}"
        ))),
    }
}

/// Tells the source how far the target is: when that changes, when it asks, and every few seconds.
async fn write_status(mut socket: WriteHalf<Box<dyn Socket>>, mut told: watch::Receiver<Status>) {
    let mut ticks = interval(STATUS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            changed = told.changed() => if changed.is_err() { return },
            _ = ticks.tick() => {}
        }
        let status = *told.borrow_and_update();
        let mut out = BytesMut::new();
        if frontend::CopyData::new(status_update(status))
            .map(|data| data.write(&mut out))
            .is_err()
        {
            return;
        }
        // The reader sees the end of a connection and says why.
        if socket.write_all(&out).await.is_err() || socket.flush().await.is_err() {
            return;
        }
    }
}

fn status_update(status: Status) -> Bytes {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH + Duration::from_secs(EPOCH_2000_S))
        .unwrap_or_default();
    let mut update = BytesMut::with_capacity(34);
    update.put_u8(b'r');
    // Received, on disk, applied: of us the source needs to keep what the target has not.
    for _ in 0..3 {
        update.put_u64(status.done.0);
    }
    update.put_u64(u64::try_from(now.as_micros()).unwrap_or_default());
    update.put_u8(u8::from(status.ask));
    update.freeze()
}

async fn open(host: &Host, port: u16, tls: Option<&Tls>) -> io::Result<Box<dyn Socket>> {
    match host {
        Host::Tcp(name) => {
            let mut socket = TcpStream::connect((name.as_str(), port)).await?;
            socket.set_nodelay(true)?;
            let Some(tls) = tls else {
                return Ok(Box::new(socket));
            };
            let mut request = BytesMut::new();
            frontend::ssl_request(&mut request);
            socket.write_all(&request).await?;
            if socket.read_u8().await? != b'S' {
                return Err(io::Error::new(io::ErrorKind::Unsupported, "it has no TLS"));
            }
            Ok(Box::new(tls.encrypt(name, socket).await?))
        }
        Host::Unix(folder) => {
            let path = folder.join(format!(".s.PGSQL.{port}"));
            Ok(Box::new(UnixStream::connect(path).await?))
        }
    }
}

fn lost(what: &str) -> impl FnOnce(io::Error) -> ImportError {
    let what = what.to_owned();
    move |source| ImportError::SourceLost { what, source }
}

fn no_password() -> ImportError {
    ImportError::Options("the source wants a password, and its URL has none".to_owned())
}

fn unexpected(what: &str) -> ImportError {
    ImportError::Protocol(format!("something else in the place of {what}"))
}

fn refused(what: &str, mut fields: ErrorFields<'_>) -> ImportError {
    let (mut code, mut message, mut hints) = (String::new(), String::new(), Vec::new());
    // Bytes that are no field end the list: what came before is what there is to say.
    while let Ok(Some(field)) = fields.next() {
        let value = String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'C' => code = value,
            b'M' => message = value,
            b'D' | b'H' => hints.push(value),
            _ => {}
        }
    }
    ImportError::SourceRefused {
        what: what.to_owned(),
        code,
        message,
        hint: (!hints.is_empty()).then(|| hints.join("; ")),
    }
}

#[cfg(test)]
mod tests;
