//! Commands to a server, by the protocol RESP 2.
//!
//! ```text
//!  *3\r\n $6\r\nCONFIG\r\n $3\r\nGET\r\n …   a command: an array of texts
//!  +OK\r\n  -ERR why\r\n  :7\r\n  $5\r\nhello\r\n   answers
//! ```

use std::time::Duration;

use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpStream, UnixStream},
    time::timeout,
};

use super::{RedisOptions, info::Info};
use crate::{error::AdapterError, options::Address};

/// How long an answer may take. A server has one thread, which commands of others may keep busy.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The longest answer that is read; the longest that is asked for, `INFO`, has some 10 kB.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// A connection of either sort.
trait Stream: AsyncBufRead + tokio::io::AsyncWrite + Send + Unpin {}

impl<S: AsyncBufRead + tokio::io::AsyncWrite + Send + Unpin> Stream for S {}

/// A connection to a server. After an error that is not [`AdapterError::Refused`] it is of no more use.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    /// Whether the server can defragment its memory.
    may_defragment: bool,
}

impl Connection {
    pub(crate) async fn open(options: &RedisOptions) -> Result<Connection, AdapterError> {
        let opening = async {
            let stream: Box<dyn Stream> = match &options.address {
                Address::Unix(path) => Box::new(BufReader::new(UnixStream::connect(path).await?)),
                Address::Tcp(host, port) => {
                    let stream = TcpStream::connect((host.as_str(), *port)).await?;
                    stream.set_nodelay(true)?;
                    Box::new(BufReader::new(stream))
                }
            };
            Ok::<_, AdapterError>(stream)
        };
        let opened = timeout(ANSWER_MAX, opening).await;
        let mut connection = Connection {
            stream: opened.map_err(|_| AdapterError::Silent)??,
            may_defragment: true,
        };
        match (&options.user, &options.password) {
            (Some(user), Some(password)) => connection.command(&["AUTH", user, password]).await?,
            (None, Some(password)) => connection.command(&["AUTH", password]).await?,
            (_, None) => String::new(),
        };
        Ok(connection)
    }

    /// The server's description of itself.
    pub(crate) async fn info(&mut self) -> Result<Info, AdapterError> {
        let mut text = String::new();
        for section in ["server", "memory", "stats"] {
            text += &self.command(&["INFO", section]).await?;
        }
        Info::parse(&text)
    }

    /// Sets the limit, in bytes.
    pub(crate) async fn set_maxmemory(&mut self, bytes: u64) -> Result<(), AdapterError> {
        let bytes = bytes.to_string();
        self.command(&["CONFIG", "SET", "maxmemory", &bytes])
            .await?;
        Ok(())
    }

    /// Has the allocator give free pages back.
    pub(crate) async fn purge(&mut self) -> Result<(), AdapterError> {
        self.command(&["MEMORY", "PURGE"]).await?;
        Ok(())
    }

    /// Turns defragmentation on or off, if the server has it; many distributions' have not.
    pub(crate) async fn defragment(&mut self, is_on: bool) -> Result<(), AdapterError> {
        if !self.may_defragment {
            return Ok(());
        }
        let value = if is_on { "yes" } else { "no" };
        match self
            .command(&["CONFIG", "SET", "activedefrag", value])
            .await
        {
            Err(AdapterError::Refused { .. }) => self.may_defragment = false,
            answer => {
                answer?;
            }
        }
        Ok(())
    }

    async fn command(&mut self, parts: &[&str]) -> Result<String, AdapterError> {
        let exchange = async {
            self.stream.write_all(&encode(parts)).await?;
            self.stream.flush().await?;
            read_answer(&mut self.stream).await
        };
        let answer = timeout(ANSWER_MAX, exchange).await;
        let answer = answer.map_err(|_| AdapterError::Silent)??;
        answer.map_err(|answer| AdapterError::Refused {
            // The rest may be a password.
            what: parts[0].to_owned(),
            answer,
        })
    }
}

fn encode(parts: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        bytes.extend_from_slice(format!("${}\r\n{part}\r\n", part.len()).as_bytes());
    }
    bytes
}

/// An answer that is no array, or the server's description of an error.
async fn read_answer(
    stream: &mut (impl AsyncBufRead + Unpin),
) -> Result<Result<String, String>, AdapterError> {
    let mut line = String::new();
    stream.take(ANSWER_BYTES_MAX).read_line(&mut line).await?;
    let line = line
        .strip_suffix("\r\n")
        .ok_or(AdapterError::Answer("end of a line"))?;
    let unknown = || AdapterError::Answer("type");
    let kind = line.chars().next().ok_or_else(unknown)?;
    let rest = &line[kind.len_utf8()..];
    match kind {
        '+' | ':' => Ok(Ok(rest.to_owned())),
        '-' => Ok(Err(rest.to_owned())),
        '$' if rest == "-1" => Ok(Ok(String::new())),
        '$' => {
            let bytes: u64 = rest.parse().map_err(|_| AdapterError::Answer("length"))?;
            if bytes > ANSWER_BYTES_MAX {
                return Err(AdapterError::Answer("length"));
            }
            let mut text = vec![0; bytes as usize + 2];
            stream.read_exact(&mut text).await?;
            text.truncate(bytes as usize);
            String::from_utf8(text)
                .map(Ok)
                .map_err(|_| AdapterError::Answer("text"))
        }
        _ => Err(unknown()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_arrays_of_texts() {
        assert_eq!(
            encode(&["INFO", "all"]),
            b"*2\r\n$4\r\nINFO\r\n$3\r\nall\r\n"
        );
    }

    #[tokio::test]
    async fn answers_are_read() {
        async fn of(mut bytes: &[u8]) -> Result<Result<String, String>, AdapterError> {
            read_answer(&mut bytes).await
        }
        assert_eq!(of(b"+OK\r\n").await.unwrap(), Ok("OK".to_owned()));
        assert_eq!(of(b":7\r\n").await.unwrap(), Ok("7".to_owned()));
        assert_eq!(
            of(b"$4\r\na\r\nb\r\n").await.unwrap(),
            Ok("a\r\nb".to_owned())
        );
        assert_eq!(of(b"$-1\r\n").await.unwrap(), Ok(String::new()));
        assert_eq!(of(b"-ERR no\r\n").await.unwrap(), Err("ERR no".to_owned()));
        for wrong in [
            &b"$9\r\nab\r\n"[..],
            b"+OK",
            b"",
            b"?\r\n",
            b"$99999999\r\n",
        ] {
            assert!(of(wrong).await.is_err());
        }
    }
}
