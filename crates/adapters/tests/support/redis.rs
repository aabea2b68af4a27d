//! A Redis or Valkey server with a folder of its own.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use super::{Started, find, until};

pub(crate) struct Redis {
    pub(crate) process: Started,
    pub(crate) folder: TempDir,
}

impl Redis {
    /// Starts a server, or says why there is none.
    pub(crate) async fn start(policy: &str, maxmemory: &str) -> Result<Redis, String> {
        let server = find("redis-server").or_else(|| find("valkey-server"));
        let server = server.ok_or("there is no redis-server; scripts/setup participants")?;
        let folder = tempfile::tempdir().unwrap();
        let process = Started::new(
            Command::new(server)
                .args(["--port", "0", "--save", "", "--appendonly", "no"])
                .args(["--maxmemory", maxmemory, "--maxmemory-policy", policy])
                .arg("--unixsocket")
                .arg(folder.path().join("socket"))
                .current_dir(folder.path())
                .stdout(Stdio::null()),
        );
        let redis = Redis { process, folder };
        let socket = redis.folder.path().join("socket");
        until("the server listens", || {
            UnixStream::connect(&socket).is_ok()
        })
        .await;
        Ok(redis)
    }

    /// How the adapter reaches it.
    pub(crate) fn options(&self) -> String {
        format!("name=cache,socket={}/socket", self.folder.path().display())
    }

    /// Sets so many keys to values of so many bytes.
    pub(crate) fn fill(&self, keys: u32, bytes: usize) {
        let stream = UnixStream::connect(self.folder.path().join("socket")).unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap());
        let value = "x".repeat(bytes);
        for key in 0..keys {
            let key = format!("key{key:08}");
            let set = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${bytes}\r\n", key.len());
            (&stream).write_all(set.as_bytes()).unwrap();
            (&stream).write_all(value.as_bytes()).unwrap();
            (&stream).write_all(b"\r\n").unwrap();
            let mut line = String::new();
            answers.read_line(&mut line).unwrap();
            assert_eq!(line, "+OK\r\n");
        }
    }

    /// A setting.
    pub(crate) fn setting(&self, name: &str) -> String {
        let answer = self.send(&format!("CONFIG GET {name}"));
        answer.lines().last().unwrap().to_owned()
    }

    /// The answer to a command.
    pub(crate) fn send(&self, command: &str) -> String {
        let mut stream = UnixStream::connect(self.folder.path().join("socket")).unwrap();
        write!(stream, "{command}\r\n").unwrap();
        let mut answer = [0; 256];
        let bytes = stream.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..bytes]).into_owned()
    }
}
